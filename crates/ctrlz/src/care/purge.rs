//! Purging: the content of a path goes out of every snapshot, for good.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::error::Error;
use crate::git::{ObjectId, TreeEntry};
use crate::path::{TreePath, join};
use crate::scan::{Progress, SkipReason, Skipped};
use crate::store::{
    Borrowed, Companion, GcOptions, GcReport, Lock, Operation, PackWriter, Rewritten, Sharing,
    Start, Store, read_companion, read_operation, write_tree,
};
use crate::workspace::Workspace;

use super::rewrite::{Editor, Fate, move_refs, rewrite};

/// How to purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Takes the same content away under other names too. Default: those stay and are listed.
    pub everywhere: bool,
}

/// What purging did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PurgeReport {
    /// Snapshots that are without it now: their old hashes and their new ones.
    pub snapshots: BTreeMap<ObjectId, ObjectId>,
    /// Contents that are gone.
    pub contents: u64,
    /// Other paths that have, or had, the same content.
    pub same_content: Vec<TreePath>,
    /// Whether the path is still in the work tree, where the next snapshot finds it again.
    pub still_there: bool,
    /// Damaged files that a repair had put aside, and that are deleted: nobody can tell what is
    /// in them.
    pub quarantine_removed: u64,
    /// What collecting garbage did.
    pub gc: GcReport,
}

impl Workspace {
    /// Removes a path, and everything below it, from all snapshots of all work trees that share
    /// the store: from trees, companions, packs and caches.
    ///
    /// Snapshots that had it are rewritten and say so; their old hashes answer with the new ones.
    /// The files of the work tree are not touched.
    pub fn purge(
        &self,
        path: &TreePath,
        options: PurgeOptions,
        progress: &Progress,
    ) -> Result<PurgeReport, Error> {
        // What a killed command left is finished first.
        drop(self.begin()?);
        let nothing = || Error::NothingToPurge { path: path.clone() };
        let (store, _) = self.existing()?.ok_or_else(nothing)?;
        let _caring =
            Lock::take(&store.care_lock_path(), Sharing::Exclusive, self.options().patience)?;
        let alone = Lock::take(&store.lock_path(), Sharing::Exclusive, self.options().patience)?;
        store.objects.refresh()?;
        let roots: Vec<ObjectId> = store.refs.all()?.into_iter().map(|(_, id)| id).collect();
        let contents = contents_at(&store, &roots, path)?;
        if contents.is_empty() {
            return Err(nothing());
        }
        let mut purger = Purger {
            store: &store,
            pack: PackWriter::new(&store.objects_dir()),
            path,
            everywhere: options.everywhere.then_some(&contents),
            trees: HashMap::new(),
            snapshots: BTreeMap::new(),
        };
        let history = rewrite(&store, roots.into_iter(), &mut purger)?;
        let Purger { pack, snapshots, .. } = purger;
        pack.publish()?;
        history.pack.publish()?;
        store.objects.refresh()?;
        store.note_purged(snapshots.iter().map(|(old, new)| (*old, *new)))?;
        move_refs(&store, &history.commits)?;
        let left: Vec<ObjectId> = store.refs.all()?.into_iter().map(|(_, id)| id).collect();
        let same_content = other_paths(&store, &left, &contents)?;
        let gone: BTreeSet<ObjectId> = match same_content.is_empty() {
            true => contents.iter().copied().collect(),
            false => contents_not_in(&store, &left, &contents)?,
        };
        for id in &gone {
            store.remove_loose(id)?;
        }
        for dir in store.work_tree_dirs()? {
            Borrowed::forget(&dir.join("borrowed"), &gone)?;
        }
        let quarantine_removed = store.empty_quarantine()?;
        drop(alone);
        let gc = store.collect(GcOptions { thorough: true }, self.options().patience, progress)?;
        Ok(PurgeReport {
            snapshots,
            contents: gone.len() as u64,
            same_content,
            still_there: is_there(&self.root().join(path.as_path())),
            quarantine_removed,
            gc,
        })
    }
}

/// Whether there is a file, or a directory that holds something.
fn is_there(path: &std::path::Path) -> bool {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
        }
        Ok(_) => true,
        Err(_) => false,
    }
}

struct Purger<'a> {
    store: &'a Store,
    pack: PackWriter,
    path: &'a TreePath,
    everywhere: Option<&'a HashSet<ObjectId>>,
    /// What a tree at a path becomes; the path matters unless content is taken away everywhere.
    trees: HashMap<(ObjectId, Vec<u8>), Option<ObjectId>>,
    snapshots: BTreeMap<ObjectId, ObjectId>,
}

impl Purger<'_> {
    fn root(&mut self, tree: ObjectId) -> Result<ObjectId, Error> {
        let left = self.tree(tree, b"")?;
        match left {
            Some(id) => Ok(id),
            None => write_tree(Vec::new(), &self.pack, &|id| self.store.objects.holds(id)),
        }
    }

    /// A tree without what is purged; `None` if nothing is left of it.
    fn tree(&mut self, id: ObjectId, at: &[u8]) -> Result<Option<ObjectId>, Error> {
        let on_the_way = at.is_empty()
            || crate::path::is_within(self.path.as_bytes(), at)
            || self.everywhere.is_some();
        if !on_the_way || id == ObjectId::EMPTY_TREE {
            return Ok(Some(id));
        }
        let key = match self.everywhere {
            // Below the path everything goes, so the place still matters there.
            Some(_) if !crate::path::is_within(self.path.as_bytes(), at) => (id, Vec::new()),
            _ => (id, at.to_vec()),
        };
        if let Some(known) = self.trees.get(&key) {
            return Ok(*known);
        }
        let tree = self.store.objects.tree(&id)?;
        let mut entries: Vec<TreeEntry<'_>> = Vec::new();
        let mut changed = false;
        for entry in tree.iter() {
            let path = join(at, entry.name);
            let purged = path == self.path.as_bytes()
                || self.everywhere.is_some_and(|ids| ids.contains(&entry.id));
            let left = match (purged, entry.kind.is_tree()) {
                (true, _) => None,
                (false, true) => self.tree(entry.id, &path)?,
                (false, false) => Some(entry.id),
            };
            changed |= left != Some(entry.id);
            entries.extend(left.map(|id| TreeEntry { id, ..entry }));
        }
        let left = match (changed, entries.is_empty()) {
            (false, _) => Some(id),
            (true, true) => None,
            (true, false) => {
                let exists = |id: &ObjectId| self.store.objects.holds(id);
                Some(write_tree(entries, &self.pack, &exists)?)
            }
        };
        self.trees.insert(key, left);
        Ok(left)
    }
}

impl Editor for Purger<'_> {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error> {
        let snapshot = self.root(operation.snapshot)?;
        if snapshot == operation.snapshot {
            return Ok(Fate::Keep);
        }
        self.snapshots.insert(operation.snapshot, snapshot);
        let mut meta = operation.meta.clone();
        let path = self.path.as_bytes().to_vec();
        meta.skipped.push(Skipped { path, reason: SkipReason::Purged });
        meta.sort();
        meta.skipped.dedup();
        let (stands_for, start) = (None, Start::Same);
        Ok(Fate::Change(Box::new(Rewritten { snapshot, meta: Some(meta), stands_for, start })))
    }

    fn companion(&mut self, companion: &Companion) -> Result<ObjectId, Error> {
        self.root(companion.tree)
    }
}

/// Every tree that the commits show: snapshots and companions.
fn each_tree(
    store: &Store,
    roots: &[ObjectId],
    visit: &mut dyn FnMut(ObjectId) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut seen: HashSet<ObjectId> = HashSet::new();
    let mut work = roots.to_vec();
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Ok(operation) = read_operation(&store.objects, &id) {
            visit(operation.snapshot)?;
            work.extend(operation.meta.companion);
            work.extend(operation.parent.filter(|_| operation.follows.is_none()));
        } else if let Ok(companion) = read_companion(&store.objects, &id) {
            visit(companion.tree)?;
            work.extend(store.parents_of(&id)?);
        }
    }
    Ok(())
}

/// The contents that a path, or anything below it, ever had.
fn contents_at(
    store: &Store,
    roots: &[ObjectId],
    path: &TreePath,
) -> Result<HashSet<ObjectId>, Error> {
    let mut contents = HashSet::new();
    let mut seen = HashSet::new();
    each_tree(store, roots, &mut |tree| {
        let Some(entry) = crate::compare::find(&store.objects, &tree, path)? else {
            return Ok(());
        };
        if !seen.insert(entry.id) {
            return Ok(());
        }
        match entry.kind.is_tree() {
            false => drop(contents.insert(entry.id)),
            true => {
                let all =
                    crate::compare::changes(&store.objects, &ObjectId::EMPTY_TREE, &entry.id)?;
                contents.extend(all.iter().filter_map(|change| Some(change.after?.id)));
            }
        }
        Ok(())
    })?;
    Ok(contents)
}

/// Where else the contents still are.
fn other_paths(
    store: &Store,
    roots: &[ObjectId],
    contents: &HashSet<ObjectId>,
) -> Result<Vec<TreePath>, Error> {
    Ok(remaining(store, roots, contents)?.0.into_iter().collect())
}

fn contents_not_in(
    store: &Store,
    roots: &[ObjectId],
    contents: &HashSet<ObjectId>,
) -> Result<BTreeSet<ObjectId>, Error> {
    let left = remaining(store, roots, contents)?.1;
    Ok(contents.iter().filter(|id| !left.contains(id)).copied().collect())
}

fn remaining(
    store: &Store,
    roots: &[ObjectId],
    contents: &HashSet<ObjectId>,
) -> Result<(BTreeSet<TreePath>, HashSet<ObjectId>), Error> {
    let (mut paths, mut ids) = (BTreeSet::new(), HashSet::new());
    let mut seen: HashSet<(ObjectId, Vec<u8>)> = HashSet::new();
    each_tree(store, roots, &mut |tree| {
        let mut work = vec![(tree, Vec::new())];
        while let Some((id, at)) = work.pop() {
            if id == ObjectId::EMPTY_TREE || !seen.insert((id, at.clone())) {
                continue;
            }
            for entry in store.objects.tree(&id)?.iter() {
                let path = join(&at, entry.name);
                if entry.kind.is_tree() {
                    work.push((entry.id, path));
                } else if contents.contains(&entry.id) {
                    ids.insert(entry.id);
                    paths.insert(TreePath::parse(&path)?);
                }
            }
        }
        Ok(())
    })?;
    Ok((paths, ids))
}
