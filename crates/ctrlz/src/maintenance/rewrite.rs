//! Rewriting of history: replaces commits reachable from refs, oldest first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::Error;
use crate::git::{Commit, Kind, ObjectId, parse_commit};
use crate::log::{
    IgnoredSnapshot, Operation, Rewriting, Rewritten, Start, read_ignored, read_operation,
};
use crate::pack::PackWriter;
use crate::store::Store;

/// Decision about a commit.
pub(super) enum Fate {
    /// The commit is kept, except that the ids it references are updated.
    Keep,
    /// The commit gets the given tree and metadata.
    Change(Box<Rewritten>),
    /// The commit is dropped; its children become children of its parent.
    Drop,
}

/// Decides about each commit of a rewrite.
pub(super) trait Editor {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error>;

    /// Returns the new tree of an ignored snapshot. By default it stays the same.
    fn ignored_snapshot(&mut self, ignored: &IgnoredSnapshot) -> Result<ObjectId, Error> {
        Ok(ignored.tree)
    }

    /// Returns whether a commit is unreadable. Commits that reference it are rewritten without it.
    fn is_lost(&self, _: &ObjectId) -> bool {
        false
    }
}

/// Map from old to new commits. The new ones are in `pack`, to be published before refs are set.
pub(super) struct History<'a> {
    store: &'a Store,
    pub(super) commits: BTreeMap<ObjectId, ObjectId>,
    pub(super) pack: PackWriter,
}

/// Rewrites the commits reachable from `roots` as `editor` decides.
///
/// The caller holds the store lock exclusively. Nothing is visible until refs are updated.
pub(super) fn rewrite<'a>(
    store: &'a Store,
    roots: impl Iterator<Item = ObjectId>,
    editor: &mut dyn Editor,
) -> Result<History<'a>, Error> {
    let pack = PackWriter::new(&store.objects_dir());
    let mut history = History { store, commits: BTreeMap::new(), pack };
    let mut done: HashSet<ObjectId> = HashSet::new();
    // On the stack, a commit is below its dependencies: parents and an operation's ignored
    // snapshot.
    let mut work: Vec<ObjectId> = roots.collect();
    while let Some(id) = work.last().copied() {
        if done.contains(&id) {
            work.pop();
            continue;
        }
        let needs = dependencies(store, &id)?;
        let missing: Vec<ObjectId> = needs
            .into_iter()
            .filter(|need| !done.contains(need) && !editor.is_lost(need))
            .collect();
        if missing.is_empty() {
            history.visit(id, editor)?;
            done.insert(id);
            work.pop();
        } else {
            work.extend(missing);
        }
    }
    Ok(history)
}

fn dependencies(store: &Store, id: &ObjectId) -> Result<Vec<ObjectId>, Error> {
    let mut needs = read_commit(store, id)?.parents;
    if let Ok(operation) = read_operation(&store.objects, id) {
        needs.extend(operation.meta.ignored_snapshot);
    }
    Ok(needs)
}

fn read_commit(store: &Store, id: &ObjectId) -> Result<Commit, Error> {
    let found = store.objects.read(id)?.filter(|(kind, _)| *kind == Kind::Commit);
    found
        .and_then(|(_, bytes)| parse_commit(&bytes))
        .ok_or_else(|| Error::damaged(id, "it is missing or no commit"))
}

impl History<'_> {
    /// Publishes the new commits and updates the refs. Returns the map from old to new commits.
    pub(super) fn publish(self) -> Result<BTreeMap<ObjectId, ObjectId>, Error> {
        self.pack.publish()?;
        self.store.objects.refresh()?;
        move_refs(self.store, &self.commits)?;
        Ok(self.commits)
    }

    fn moved(&self, id: ObjectId) -> ObjectId {
        self.commits.get(&id).copied().unwrap_or(id)
    }

    fn visit(&mut self, id: ObjectId, editor: &mut dyn Editor) -> Result<(), Error> {
        if let Ok(operation) = read_operation(&self.store.objects, &id) {
            return self.operation(&operation, editor);
        }
        // An ignored snapshot, or spilled data of an operation, which never changes.
        let Ok(ignored) = read_ignored(&self.store.objects, &id) else { return Ok(()) };
        self.ignored_snapshot(id, ignored, editor)
    }

    fn operation(&mut self, operation: &Operation, editor: &mut dyn Editor) -> Result<(), Error> {
        let parent = operation.parent_in_segment();
        let new = match editor.operation(operation)? {
            Fate::Drop => {
                if let Some(parent) = parent {
                    let before = self.moved(parent);
                    self.commits.insert(operation.commit, before);
                }
                return Ok(());
            }
            Fate::Change(new) => *new,
            Fate::Keep => {
                let named = parent.into_iter().chain(operation.meta.ignored_snapshot);
                if named.into_iter().all(|id| self.moved(id) == id) {
                    return Ok(());
                }
                Rewritten::with_snapshot(operation.snapshot)
            }
        };
        let rewriting =
            Rewriting { objects: &self.store.objects, pack: &self.pack, commits: &self.commits };
        let commit = rewriting.write(operation, new)?;
        self.commits.insert(operation.commit, commit);
        Ok(())
    }

    fn ignored_snapshot(
        &mut self,
        id: ObjectId,
        ignored: IgnoredSnapshot,
        editor: &mut dyn Editor,
    ) -> Result<(), Error> {
        let tree = editor.ignored_snapshot(&ignored)?;
        let commit = read_commit(self.store, &id)?;
        let parent = commit.parents.first().copied();
        let moved = parent.map(|parent| self.moved(parent));
        if tree == ignored.tree && parent == moved {
            return Ok(());
        }
        let new = IgnoredSnapshot { tree, ..ignored };
        let millis = u64::try_from(commit.seconds).unwrap_or(0) * 1000;
        let written = new.write(&self.store.objects, &self.pack, moved, millis)?;
        self.commits.insert(id, written);
        Ok(())
    }
}

/// Updates every ref whose commit was rewritten. The caller holds the store lock exclusively.
pub(super) fn move_refs(
    store: &Store,
    commits: &BTreeMap<ObjectId, ObjectId>,
) -> Result<(), Error> {
    for (name, id) in store.refs.all()? {
        if let Some(new) = commits.get(&id) {
            store.set_ref_alone(&name, new)?;
        }
    }
    // Log indexes name commits. The next reader rebuilds them.
    for work_tree in store.work_trees()? {
        work_tree.forget_index()?;
    }
    Ok(())
}

/// Reconnects logs across lost commits: the next operation follows the nearest readable earlier
/// one.
struct Bridger {
    lost: BTreeSet<ObjectId>,
    /// For each operation after a lost one, the nearest readable operation before it.
    starts: HashMap<ObjectId, Option<(ObjectId, String)>>,
}

impl Editor for Bridger {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error> {
        let Some(before) = self.starts.get(&operation.commit) else { return Ok(Fate::Keep) };
        let start = match before.clone() {
            Some((commit, id)) => Start::After { commit, id },
            None => Start::First,
        };
        let new = Rewritten { start, ..Rewritten::with_snapshot(operation.snapshot) };
        Ok(Fate::Change(Box::new(new)))
    }

    fn is_lost(&self, id: &ObjectId) -> bool {
        self.lost.contains(id)
    }
}

/// Reconnects every log across lost commits. The older part becomes a separate segment.
///
/// The caller holds the store lock exclusively.
pub(super) fn bridge(store: &Store, lost: &BTreeSet<ObjectId>) -> Result<(), Error> {
    let is_lost = |id: &ObjectId| !matches!(store.objects.read(id), Ok(Some((Kind::Commit, _))));
    let lost: BTreeSet<ObjectId> = lost.iter().copied().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let mut logs: HashMap<String, BTreeMap<String, Operation>> = HashMap::new();
    for commit in store.objects.packed_commits() {
        if let Ok(operation) = read_operation(&store.objects, &commit) {
            let log = logs.entry(operation.work_tree.clone()).or_default();
            log.insert(operation.id.clone(), operation);
        }
    }
    let mut starts = HashMap::new();
    for (id, log) in &logs {
        for operation in log.values().filter(|operation| operation.follows.is_none()) {
            if operation.parent.is_none_or(|parent| !lost.contains(&parent)) {
                continue;
            }
            let before = log.range(..operation.id.clone()).next_back().map(|(_, before)| before);
            if let Some(before) = before {
                store.set_ref_alone(&store.past_ref(id, &before.id), &before.commit)?;
            }
            let before = before.map(|before| (before.commit, before.id.clone()));
            starts.insert(operation.commit, before);
        }
    }
    let roots: Vec<ObjectId> = store.refs.list("refs")?.into_iter().map(|(_, id)| id).collect();
    let roots = roots.into_iter().filter(|id| !lost.contains(id));
    let mut bridger = Bridger { lost: lost.clone(), starts };
    rewrite(store, roots, &mut bridger)?.publish()?;
    Ok(())
}
