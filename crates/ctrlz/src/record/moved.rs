//! Files that were moved and changed between two snapshots, and hard links that were removed.
//!
//! A file that was only moved is recognised by its content, one that was changed too by its inode.
//! No snapshot holds inodes, so the operation records the move.

use std::collections::HashMap;

use crate::compare::{Trees, changes, find};
use crate::fs::FileKind;
use crate::git::ObjectId;
use crate::log::{Moved, Operation};
use crate::path::{TreePath, join};
use crate::scan::{Content, ListedDir, StatCache};

use super::remembered::kept_inodes;
use crate::hold::Hold;

/// The maximum number of recorded moves. An undo leaves and reports the other files.
const MAX_MOVED: usize = 1_000;

/// Changes of names that the inodes show.
#[derive(Default)]
pub(super) struct Renames {
    /// Files that were both moved and modified.
    pub(super) moved: Vec<Moved>,
    /// Names that no longer belong to a file that keeps another name.
    pub(super) unlinked: Vec<Moved>,
}

impl Hold {
    /// Returns the files in `dirs` that had other names in the last scan. Loads its cache if it is
    /// needed and `None`.
    pub(super) fn moved(
        &self,
        cache: Option<&StatCache>,
        last: &Operation,
        dirs: &[ListedDir],
    ) -> Renames {
        let trees = Trees::new(&self.store.objects);
        let mut older: HashMap<u64, (TreePath, &Content)> = HashMap::new();
        // Files that were changed in place, or of which only the number of hard links changed.
        let mut touched: HashMap<u64, TreePath> = HashMap::new();
        for dir in dirs {
            let Some(handle) = self.root.glimpse(&dir.path) else { continue };
            let is_file = |content: &Content| matches!(content, Content::Known(_));
            let files = dir.entries.iter().filter(|entry| entry.stat.kind == FileKind::File);
            for entry in files.filter(|entry| is_file(&entry.content)) {
                let stat = &entry.stat;
                // A move only changes the change time. A new file is created after `last`.
                let is_new = stat.ctime.millis() >= last.at_millis;
                let born = is_new.then(|| handle.birth(&entry.name)).flatten();
                if born.is_none_or(|born| born.millis() >= last.at_millis) {
                    continue;
                }
                let path = TreePath::from_scan(join(&dir.path, &entry.name));
                // A damaged tree says nothing about the last snapshot.
                match trees.find(&last.snapshot, &path) {
                    Ok(None) => drop(older.insert(stat.inode, (path, &entry.content))),
                    // With a watcher, the cache is not read for every change of a file.
                    Ok(Some(then))
                        if cache.is_some() || entry.content == Content::Known(then.id) =>
                    {
                        touched.insert(stat.inode, path);
                    }
                    Ok(Some(_)) | Err(_) => (),
                }
            }
        }
        if older.is_empty() && touched.is_empty() {
            return Renames::default();
        }
        let loaded = cache.is_none().then(|| StatCache::load(&self.work_tree.cache_path()));
        let Some(cache) = cache.or(loaded.as_ref()) else { return Renames::default() };
        let Renames { mut moved, mut unlinked } = Renames::default();
        let mut names: HashMap<u64, Vec<(TreePath, Option<ObjectId>)>> = HashMap::new();
        let mut note = |from: &dyn Fn() -> Vec<u8>, id: Option<ObjectId>, inode: u64| {
            if touched.contains_key(&inode) {
                let name = (TreePath::from_scan(from()), id);
                names.entry(inode).or_default().push(name);
            }
            let Some((to, content)) = older.get(&inode) else { return };
            let from = TreePath::from_scan(from());
            let is_same = id.is_some_and(|id| **content == Content::Known(id));
            if from != *to && !is_same && moved.len() < MAX_MOVED {
                let from = self.path_in(last, from, id);
                moved.push(Moved { from, to: to.clone() });
            }
        };
        for (dir, cached) in (0..cache.len()).filter_map(|at| cache.nth(at)) {
            let files = cached.entries().filter(|entry| entry.stat.kind == FileKind::File);
            for entry in files {
                note(&|| join(dir, entry.name), entry.id(), entry.stat.inode);
            }
        }
        // Named files in ignored directories, which no scan enters.
        for (path, inode) in kept_inodes(self) {
            note(&|| path.clone(), None, inode);
        }
        for (inode, names) in names {
            let to = &touched[&inode];
            // Otherwise another file was renamed to this path.
            if !names.iter().any(|(name, _)| name == to) {
                continue;
            }
            let is_linked = |path: &TreePath| {
                let now = self.root.glimpse_stat(path.as_bytes());
                now.is_some_and(|now| now.inode == inode)
            };
            for (from, id) in names.into_iter().filter(|(name, _)| name != to && !is_linked(name)) {
                if unlinked.len() < MAX_MOVED {
                    unlinked.push(Moved { from: self.path_in(last, from, id), to: to.clone() });
                }
            }
        }
        Renames { moved, unlinked }
    }

    /// Returns the path that a file had in the last snapshot. With a watcher the cache may be older
    /// than that; then the content decides.
    fn path_in(&self, last: &Operation, path: TreePath, id: Option<ObjectId>) -> TreePath {
        let objects = &self.store.objects;
        let is_there = |path: &TreePath| !matches!(find(objects, &last.snapshot, path), Ok(None));
        let Some(id) = id.filter(|_| !is_there(&path)) else { return path };
        let all = changes(objects, &ObjectId::EMPTY_TREE, &last.snapshot).unwrap_or_default();
        let mut same = all.into_iter().filter(|found| found.after.is_some_and(|at| at.id == id));
        same.next().map_or(path, |found| found.path)
    }
}
