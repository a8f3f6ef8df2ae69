//! Comparison: two trees → changes → text.
//!
//! Subtrees with the same id are not opened. Renames are not detected: a move is a deletion and an
//! addition.

mod full;
mod merge;
mod present;
mod unified;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::error::{Error, StoreError};
pub(crate) use crate::git::is_binary;
use crate::git::{EntryKind, ObjectId, Tree, parse_tree};
use crate::jobs::run_jobs;
use crate::pack::{Objects, PackWriter};
use crate::path::{TreePath, join};

pub(crate) use crate::scan::entry_kind;
pub(crate) use full::file_diff;
pub use full::{FileDiff, base64};
pub(crate) use merge::merge_lines;
pub(crate) use present::{Extent, Now, NowAt};
pub(crate) use unified::write_unified;

/// Upper bound on the paths of a tree. No work tree has more; a larger tree would exhaust memory.
pub(crate) const MAX_PATHS: u64 = 1_500_000;

/// Kind of a change between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ChangeStatus"))]
pub enum Status {
    /// Only the later snapshot has it.
    Added,
    /// Only the earlier snapshot has it.
    Deleted,
    /// Both snapshots have it, with different content, mode or type.
    Modified,
}

/// A file of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    pub(crate) id: ObjectId,
}

impl Entry {
    /// Returns whether both entries have the same content. Permissions may differ.
    pub(crate) fn is_same_content(&self, other: &Entry) -> bool {
        let both_are_files = self.kind.is_file() && other.kind.is_file();
        self.id == other.id && (self.kind == other.kind || both_are_files)
    }
}

/// A path that differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path, relative to the work tree.
    pub path: TreePath,
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
}

impl Change {
    /// Returns the kind of change.
    pub fn status(&self) -> Status {
        match (&self.before, &self.after) {
            (None, _) => Status::Added,
            (_, None) => Status::Deleted,
            (Some(_), Some(_)) => Status::Modified,
        }
    }
}

/// Returns every file that differs between two trees, sorted by path.
pub(crate) fn changes(
    objects: &Objects,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<Change>, Error> {
    changes_by(1, objects, from, to)
}

/// Like [`changes`], where `to` may not be published yet. Returns `None` if `pack` does not have it
/// in memory.
pub(crate) fn changes_to_pending(
    objects: &Objects,
    pack: &PackWriter,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Option<Vec<Change>>, Error> {
    if pack.pending_tree(to).is_none() {
        return Ok(None);
    }
    let trees = Trees { pack: Some(pack), ..Trees::new(objects) };
    Comparison::new(trees, *to).all(1, *from).map(Some)
}

/// Like [`changes`], using several threads if there is much to compare.
pub(crate) fn changes_by(
    threads: usize,
    objects: &Objects,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<Change>, Error> {
    Comparison::new(Trees::new(objects), *to).all(threads, *from)
}

struct Comparison<'a> {
    trees: Trees<'a>,
    to: ObjectId,
    /// Number of changes found plus tree pairs still to compare.
    paths: AtomicU64,
    limit: u64,
}

impl<'a> Comparison<'a> {
    fn new(trees: Trees<'a>, to: ObjectId) -> Comparison<'a> {
        Comparison { trees, to, paths: AtomicU64::new(1), limit: MAX_PATHS }
    }

    /// Returns every file that differs, sorted by path.
    fn all(&self, threads: usize, from: ObjectId) -> Result<Vec<Change>, Error> {
        /// Fewer pairs than this are compared before a thread would have started.
        const MANY: usize = 50;
        let mut found = Vec::new();
        let mut work = vec![(Vec::new(), Some(from), Some(self.to))];
        while threads == 1 || work.len() < MANY {
            let Some(pair) = work.pop() else { break };
            found.append(&mut self.compare(pair, &mut work)?);
        }
        let compare = |pair, more: &mut Vec<Pending>| self.compare(pair, more);
        if !work.is_empty() {
            for part in run_jobs(threads, work, compare) {
                found.append(&mut part?);
            }
        }
        found.sort_unstable_by(|one: &Change, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Returns the changed files of two trees, and adds their changed subtrees to `work`.
    fn compare(&self, pair: Pending, work: &mut Vec<Pending>) -> Result<Vec<Change>, Error> {
        let (path, before, after) = pair;
        let (mut found, waiting) = (Vec::new(), work.len());
        // Beyond the limit the comparison fails, so all threads stop.
        if before != after && self.paths.load(Ordering::Relaxed) <= self.limit {
            let (before, after) = (self.trees.load(before)?, self.trees.load(after)?);
            found = compare_trees(&path, &before, &after, work);
        }
        // In the count, this pair is replaced by its results.
        self.paths.fetch_sub(1, Ordering::Relaxed);
        let more = (found.len() + work.len() - waiting) as u64;
        if self.paths.fetch_add(more, Ordering::Relaxed) + more > self.limit {
            self.paths.store(u64::MAX / 2, Ordering::Relaxed);
            work.clear();
            return Err(Error::Store(StoreError::Bomb {
                id: self.to,
                limit: self.limit,
                what: "paths",
            }));
        }
        Ok(found)
    }
}

/// Cache of recently read trees. A tree that occurs in many places is read once.
pub(crate) struct Trees<'a> {
    objects: &'a Objects,
    /// Source of trees that are not published yet.
    pack: Option<&'a PackWriter>,
    recent: Mutex<HashMap<ObjectId, Arc<Tree>>>,
    empty: Arc<Tree>,
}

impl Trees<'_> {
    pub(crate) fn new(objects: &Objects) -> Trees<'_> {
        Trees { objects, pack: None, recent: Mutex::default(), empty: Arc::new(Tree::empty()) }
    }

    /// Returns the entry at `path` in the tree `root`.
    pub(crate) fn find(&self, root: &ObjectId, path: &TreePath) -> Result<Option<Entry>, Error> {
        let mut at = Entry { kind: EntryKind::Tree, id: *root };
        for name in path.as_bytes().split(|byte| *byte == b'/') {
            if !at.kind.is_tree() {
                return Ok(None);
            }
            match self.load(Some(at.id))?.find(name) {
                Some(entry) => at = Entry { kind: entry.kind, id: entry.id },
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Returns the names in a tree, each with its kind.
    pub(crate) fn names(&self, id: &ObjectId) -> Result<Vec<(Vec<u8>, EntryKind)>, Error> {
        let tree = self.load(Some(*id))?;
        Ok(tree.iter().map(|entry| (entry.name.to_vec(), entry.kind)).collect())
    }

    fn load(&self, id: Option<ObjectId>) -> Result<Arc<Tree>, Error> {
        const MAX_RECENT: usize = 256;
        let Some(id) = id else { return Ok(Arc::clone(&self.empty)) };
        if let Some(tree) = self.recent().get(&id) {
            return Ok(Arc::clone(tree));
        }
        let pending = self.pack.and_then(|pack| pack.pending_tree(&id).flatten());
        let tree = match pending {
            Some(bytes) => parse_tree(bytes)
                .map_err(|why| Error::Store(StoreError::HostileTree { id, why }))?,
            None => self.objects.tree(&id)?,
        };
        let tree = Arc::new(tree);
        let mut recent = self.recent();
        if recent.len() >= MAX_RECENT {
            recent.clear();
        }
        recent.insert(id, Arc::clone(&tree));
        Ok(tree)
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<ObjectId, Arc<Tree>>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Pending = (Vec<u8>, Option<ObjectId>, Option<ObjectId>);

/// Returns the changed files of two trees at `path`, and adds the changed subtrees to `work`.
fn compare_trees(path: &[u8], before: &Tree, after: &Tree, work: &mut Vec<Pending>) -> Vec<Change> {
    let mut found = Vec::new();
    let mut before = before.iter().peekable();
    let mut after = after.iter().peekable();
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return found,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(one), Some(other)) => one.order(other),
        };
        let one = if order.is_le() { before.next() } else { None };
        let other = if order.is_ge() { after.next() } else { None };
        let name = one.or(other).map(|entry| entry.name).unwrap_or_default();
        if one.map(|entry| (entry.kind, entry.id)) == other.map(|entry| (entry.kind, entry.id)) {
            continue;
        }
        let path = join(path, name);
        let is_tree = one.or(other).is_some_and(|entry| entry.kind.is_tree());
        if is_tree {
            work.push((path, one.map(|entry| entry.id), other.map(|entry| entry.id)));
        } else {
            let entry = |entry: crate::git::TreeEntry<'_>| Entry { kind: entry.kind, id: entry.id };
            found.push(Change {
                path: TreePath::from_scan(path),
                before: one.map(entry),
                after: other.map(entry),
            });
        }
    }
}

/// Returns the entry at `path` in a tree: a file, a symlink or a directory.
pub(crate) fn find(
    objects: &Objects,
    root: &ObjectId,
    path: &TreePath,
) -> Result<Option<Entry>, Error> {
    Trees::new(objects).find(root, path)
}

/// Files above this size are shown as binary: longer diffs are not useful to readers, and the line
/// diff of one giant line does not finish in time.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Content of one side of a change.
pub(crate) enum Side {
    Absent,
    Text(Vec<u8>),
    Binary,
}

pub(crate) fn side(objects: &Objects, entry: Option<&Entry>) -> Result<Side, Error> {
    let Some(entry) = entry else { return Ok(Side::Absent) };
    if objects.header(&entry.id)?.is_some_and(|(_, bytes)| bytes > MAX_TEXT_BYTES) {
        return Ok(Side::Binary);
    }
    let bytes = objects.blob(&entry.id)?;
    Ok(if is_binary(&bytes) { Side::Binary } else { Side::Text(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::{Kind, TreeEntry, encode_tree};
    use crate::pack::PackWriter;

    /// Writes a tree of `dirs` directories with `files` files each.
    fn tree(writer: &PackWriter, dirs: usize, files: usize, id: ObjectId) -> ObjectId {
        let named = |count: usize| (0..count).map(|at| format!("{at:03}")).collect::<Vec<_>>();
        let put = |names: &[String], kind: EntryKind, id: ObjectId| {
            let entry = |name| TreeEntry { name: String::as_bytes(name), kind, id };
            let bytes = encode_tree(names.iter().map(entry));
            writer.add(Kind::Tree, &bytes, |_| false).unwrap().unwrap()
        };
        let dir = put(&named(files), EntryKind::File, id);
        put(&named(dirs), EntryKind::Tree, dir)
    }

    #[test]
    fn comparisons_succeed_up_to_the_path_limit_and_fail_beyond_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pack")).unwrap();
        let writer = PackWriter::new(dir.path());
        let one = tree(&writer, 100, 3, ObjectId::EMPTY_TREE);
        let other = tree(&writer, 100, 3, ObjectId::NULL);
        writer.publish().unwrap();
        let objects = Objects::open(dir.path()).unwrap();
        for threads in [1, 4] {
            let within = |limit| {
                let comparison = Comparison::new(Trees::new(&objects), other);
                Comparison { limit, ..comparison }.all(threads, one)
            };
            assert_eq!(within(300).unwrap().len(), 300, "{threads} threads");
            assert!(
                matches!(within(299), Err(Error::Store(StoreError::Bomb { .. }))),
                "{threads} threads"
            );
        }
    }
}
