//! Files that were moved and changed between two snapshots.
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

impl Hold {
    /// Returns the files in `dirs` that had other names in the last scan. Loads its cache if it is
    /// needed and `None`.
    pub(super) fn moved(
        &self,
        cache: Option<&StatCache>,
        last: &Operation,
        dirs: &[ListedDir],
    ) -> Vec<Moved> {
        let trees = Trees::new(&self.store.objects);
        let mut older: HashMap<u64, (TreePath, &Content)> = HashMap::new();
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
                if matches!(trees.find(&last.snapshot, &path), Ok(None)) {
                    older.insert(stat.inode, (path, &entry.content));
                }
            }
        }
        if older.is_empty() {
            return Vec::new();
        }
        let loaded = cache.is_none().then(|| StatCache::load(&self.work_tree.cache_path()));
        let Some(cache) = cache.or(loaded.as_ref()) else { return Vec::new() };
        let mut moved = Vec::new();
        let mut note = |from: TreePath, id: Option<ObjectId>, inode: u64| {
            let Some((to, content)) = older.get(&inode) else { return };
            let is_same = id.is_some_and(|id| **content == Content::Known(id));
            if from != *to && !is_same && moved.len() < MAX_MOVED {
                let from = self.path_in(last, from, id);
                moved.push(Moved { from, to: to.clone() });
            }
        };
        for (dir, cached) in (0..cache.len()).filter_map(|at| cache.nth(at)) {
            let files = cached.entries().filter(|entry| entry.stat.kind == FileKind::File);
            for entry in files {
                let from = TreePath::from_scan(join(dir, entry.name));
                note(from, entry.id(), entry.stat.inode);
            }
        }
        // Named files in ignored directories, which no scan enters.
        for (path, inode) in kept_inodes(self) {
            note(TreePath::from_scan(path), None, inode);
        }
        moved
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
