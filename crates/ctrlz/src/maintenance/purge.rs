//! Purging: removes the content of a path from every snapshot permanently.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Error, LookupError};
use crate::gc::{GcOptions, GcReport};
use crate::git::{ObjectId, TreeEntry};
use crate::log::{
    Companion, Credit, Details, OpenStep, Operation, Rewritten, StepInfo, load_steps,
    read_companion, read_operation, save_steps,
};
use crate::pack::PackWriter;
use crate::path::{TreePath, join, split};
use crate::scan::{Progress, SkipReason, Skipped};
use crate::store::{Borrowed, Lock, Sharing, Store, Tombstones, write_tree};
use crate::workspace::Workspace;

use super::rewrite::{Editor, Fate, History, move_refs, rewrite};

/// Options of [`Workspace::purge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Also removes the same content under other paths. By default those are kept and listed.
    pub everywhere: bool,
}

/// Report of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Rewritten snapshots: map from old to new hashes.
    pub snapshots: BTreeMap<ObjectId, ObjectId>,
    /// Number of operations that had the path, in their snapshot or among its ignored files.
    pub operations: u64,
    /// Number of contents that were removed.
    pub contents: u64,
    /// Number of steps and checkpoints whose label was blanked or contained the text.
    pub labels: u64,
    /// Other paths that have, or had, the same content.
    pub same_content: Vec<TreePath>,
    /// Whether the path still exists in the work tree, so that the next snapshot records it again.
    pub still_there: bool,
    /// Number of quarantined files that were deleted, because their content is unknown.
    pub quarantine_removed: u64,
    /// Report of the garbage collection.
    pub gc: GcReport,
}

impl Workspace {
    /// Removes a path, and everything below it, from all snapshots of all work trees that share the
    /// store: from trees, companions, packs and caches.
    ///
    /// Affected snapshots are rewritten and record that the path was purged; their old hashes map
    /// to the new ones. The labels of steps that changed, named or mention the path are blanked,
    /// since a command may repeat what it wrote. Tombstones of the contents make pull and import
    /// refuse to bring them back. The files of the work tree are not touched.
    pub fn purge(
        &self,
        path: &TreePath,
        options: PurgeOptions,
        progress: &Progress,
    ) -> Result<PurgeReport, Error> {
        let nothing = || Error::Lookup(LookupError::NothingToPurge { path: path.clone() });
        let site = self.begin_rewrite()?.ok_or_else(nothing)?;
        let Site { store, roots, .. } = &site;
        let contents = contents_at(store, roots, path)?;
        let roots = &self.forget_outside_with(store, roots, &contents)?;
        let steps = steps_at(store, roots, path)?;
        if contents.is_empty() && steps.is_empty() {
            return Err(nothing());
        }
        edit_open_steps(store, |step| {
            let names = step.paths.iter().any(|named| named.is_within(path));
            let is_meant = names || steps.contains(&step.info.step) || mentions(&step.info, path);
            is_meant && step.info.label.take().is_some()
        })?;
        let mut purger = Purger {
            store,
            pack: PackWriter::new(&store.objects_dir()),
            path,
            everywhere: options.everywhere.then_some(&contents),
            steps: &steps,
            trees: HashMap::new(),
            snapshots: BTreeMap::new(),
            operations: BTreeSet::new(),
        };
        let History { commits, pack } = rewrite(store, roots.iter().copied(), &mut purger)?;
        let Purger { pack: trees, snapshots, operations, .. } = purger;
        trees.publish()?;
        pack.publish()?;
        store.objects.refresh()?;
        let moved = |id: &ObjectId| commits.get(id).copied().unwrap_or(*id);
        let left: Vec<ObjectId> = roots.iter().map(moved).collect();
        let (same_content, still_needed) = remaining(store, &left, &contents)?;
        let gone: BTreeSet<ObjectId> =
            contents.iter().filter(|id| !still_needed.contains(id)).copied().collect();
        Tombstones::load(store)?.add(store, gone.iter().copied())?;
        store.note_purged(snapshots.iter().map(|(old, new)| (*old, *new)))?;
        move_refs(store, &commits)?;
        for id in &gone {
            store.remove_loose(id)?;
        }
        for work_tree in store.work_trees()? {
            Borrowed::forget(&work_tree.borrowed_path(), &gone)?;
        }
        let report = PurgeReport {
            snapshots,
            operations: operations.len() as u64,
            contents: gone.len() as u64,
            labels: steps.len() as u64,
            same_content: same_content.into_iter().collect(),
            still_there: is_there(&self.root().join(path.as_path())),
            ..PurgeReport::default()
        };
        self.finish_purge(site, &commits, report, progress)
    }

    /// Removes a text from the labels, tools and agent names of all steps, and from the labels of
    /// all checkpoints, of all work trees that share the store. Contents, paths and ids are not
    /// searched.
    pub fn purge_text(&self, text: &str, progress: &Progress) -> Result<PurgeReport, Error> {
        let site = self
            .begin_rewrite()?
            .filter(|_| !text.is_empty())
            .ok_or(Error::Lookup(LookupError::NoSuchText))?;
        let store = &site.store;
        let mut eraser = Eraser { text, found: BTreeSet::new() };
        let history = rewrite(store, site.roots.iter().copied(), &mut eraser)?;
        let mut found = eraser.found;
        edit_open_steps(store, |step| {
            let erased = erase_from(&mut step.info, text);
            if erased {
                found.insert(step.info.step.clone());
            }
            erased
        })?;
        if found.is_empty() {
            return Err(Error::Lookup(LookupError::NoSuchText));
        }
        let labels = found.len() as u64;
        let commits = history.publish(store)?;
        let report = PurgeReport { labels, ..PurgeReport::default() };
        self.finish_purge(site, &commits, report, progress)
    }

    /// Drops captures of outside paths with purged contents. Returns the roots that refs still
    /// name.
    fn forget_outside_with(
        &self,
        store: &Store,
        roots: &[ObjectId],
        contents: &HashSet<ObjectId>,
    ) -> Result<Vec<ObjectId>, Error> {
        let mut dropped = HashSet::new();
        for work_tree in store.work_trees()? {
            dropped.extend(self.outside(store, &work_tree).forget(&|id| contents.contains(id))?);
        }
        Ok(roots.iter().filter(|root| !dropped.contains(root)).copied().collect())
    }

    /// Locks the store exclusively. Returns `None` if there is no store.
    pub(super) fn begin_rewrite(&self) -> Result<Option<Site>, Error> {
        // Recovers from a killed command first.
        drop(self.begin()?);
        let Some((store, _)) = self.existing()? else { return Ok(None) };
        let patience = self.options().patience;
        let caring = Lock::take(&store.care_lock_path(), Sharing::Exclusive, patience)?;
        let alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
        store.objects.refresh()?;
        let roots = store.refs.all()?.into_iter().map(|(_, id)| id).collect();
        Ok(Some(Site { store, roots, _caring: caring, alone }))
    }

    /// Removes unneeded objects. Refs already name the rewritten history.
    fn finish_purge(
        &self,
        site: Site,
        commits: &BTreeMap<ObjectId, ObjectId>,
        mut report: PurgeReport,
        progress: &Progress,
    ) -> Result<PurgeReport, Error> {
        let Site { store, alone, _caring, .. } = site;
        for commit in commits.keys() {
            store.remove_loose(commit)?;
        }
        report.quarantine_removed = store.empty_quarantine()?;
        drop(alone);
        let options = GcOptions { thorough: true };
        report.gc = store.collect(options, self.options().patience, progress)?;
        Ok(report)
    }
}

/// An exclusively locked store to be rewritten, and the commits that its refs name.
pub(super) struct Site {
    pub(super) store: Store,
    pub(super) roots: Vec<ObjectId>,
    _caring: Lock,
    alone: Lock,
}

/// Edits the open steps of all work trees. The caller holds the store lock exclusively.
fn edit_open_steps(
    store: &Store,
    mut edit: impl FnMut(&mut OpenStep) -> bool,
) -> Result<(), Error> {
    for work_tree in store.work_trees()? {
        let path = work_tree.steps_path();
        let mut steps = load_steps(&path)?;
        let mut edited = false;
        for step in &mut steps {
            edited |= edit(step);
        }
        if edited {
            save_steps(&path, &steps)?;
        }
    }
    Ok(())
}

/// Replaces all occurrences of a text. Returns whether there were any.
fn erase(from: &mut String, text: &str) -> bool {
    let found = from.contains(text);
    if found {
        *from = from.replace(text, "[purged]");
    }
    found
}

/// Replaces a text in all descriptive texts of a step. Returns whether it occurred.
fn erase_from(step: &mut StepInfo, text: &str) -> bool {
    let mut found = false;
    for one in step.texts_mut() {
        found |= erase(one, text);
    }
    found
}

/// Removes a text from labels.
struct Eraser<'a> {
    text: &'a str,
    /// Steps, and operations with their own label, that contained the text.
    found: BTreeSet<String>,
}

impl Editor for Eraser<'_> {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error> {
        let mut details = operation.details.clone();
        for Credit { step, .. } in &mut details.credits {
            if erase_from(step, self.text) {
                self.found.insert(step.step.clone());
            }
        }
        if details.label.as_mut().is_some_and(|label| erase(label, self.text)) {
            self.found.insert(operation.id.clone());
        }
        if details == operation.details {
            return Ok(Fate::Keep);
        }
        let details = Some(details);
        let new = Rewritten { details, ..Rewritten::with_snapshot(operation.snapshot) };
        Ok(Fate::Change(Box::new(new)))
    }
}

/// Returns whether a file or a non-empty directory exists at `path`.
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
    /// Steps whose labels are blanked.
    steps: &'a BTreeSet<String>,
    /// Cache of rewritten trees by old id and path. The path is empty where it does not matter.
    trees: HashMap<(ObjectId, Vec<u8>), Option<ObjectId>>,
    snapshots: BTreeMap<ObjectId, ObjectId>,
    /// Operations that had the path, in their snapshot or in their companion.
    operations: BTreeSet<String>,
}

impl Purger<'_> {
    /// Returns whether the purge changes the operation's companion.
    fn changes_companion(&mut self, operation: &Operation) -> Result<bool, Error> {
        let Some(id) = operation.meta.companion else { return Ok(false) };
        // A companion that was left out when the log was imported has nothing to purge.
        let Ok(companion) = read_companion(&self.store.objects, &id) else { return Ok(false) };
        Ok(self.root(companion.tree)? != companion.tree)
    }

    /// Returns the details of an operation with the affected labels blanked.
    fn blanked(&self, details: &Details) -> Details {
        let mut details = details.clone();
        for Credit { step, .. } in &mut details.credits {
            step.label = step.label.take().filter(|_| !self.steps.contains(&step.step));
        }
        details
    }

    fn root(&mut self, tree: ObjectId) -> Result<ObjectId, Error> {
        let left = self.tree(tree, b"")?;
        match left {
            Some(id) => Ok(id),
            None => write_tree(Vec::new(), &self.pack, &|id| self.store.objects.holds(id)),
        }
    }

    /// Returns a tree without the purged entries, or `None` if it becomes empty.
    fn tree(&mut self, id: ObjectId, at: &[u8]) -> Result<Option<ObjectId>, Error> {
        let on_the_way = at.is_empty()
            || crate::path::is_within(self.path.as_bytes(), at)
            || self.everywhere.is_some();
        if !on_the_way || id == ObjectId::EMPTY_TREE {
            return Ok(Some(id));
        }
        let key = match self.everywhere {
            // On the way to the purged path the result depends on the path of the tree.
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
        let is_other = snapshot != operation.snapshot;
        if is_other || self.changes_companion(operation)? {
            self.operations.insert(operation.id.clone());
        }
        let details = Some(self.blanked(&operation.details));
        let details = details.filter(|details| *details != operation.details);
        if !is_other && details.is_none() {
            return Ok(Fate::Keep);
        }
        let mut new = Rewritten { details, ..Rewritten::with_snapshot(snapshot) };
        if is_other {
            self.snapshots.insert(operation.snapshot, snapshot);
            let mut meta = operation.meta.clone();
            let path = self.path.as_bytes().to_vec();
            meta.skipped.push(Skipped { path, reason: SkipReason::Purged });
            meta.sort();
            meta.skipped.dedup();
            new.meta = Some(meta);
        }
        Ok(Fate::Change(Box::new(new)))
    }

    fn companion(&mut self, companion: &Companion) -> Result<ObjectId, Error> {
        self.root(companion.tree)
    }
}

/// Record of a commit in the store.
enum Recorded {
    Operation(Box<Operation>),
    Companion(Companion),
}

/// Calls `visit` for every operation and companion reachable from `roots`.
fn each_record(
    store: &Store,
    roots: &[ObjectId],
    visit: &mut dyn FnMut(Recorded) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut seen: HashSet<ObjectId> = HashSet::new();
    let mut work = roots.to_vec();
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Ok(operation) = read_operation(&store.objects, &id) {
            work.extend(operation.meta.companion);
            work.extend(operation.parent_in_segment());
            visit(Recorded::Operation(Box::new(operation)))?;
        } else if let Ok(companion) = read_companion(&store.objects, &id) {
            work.extend(store.parents_of(&id)?);
            visit(Recorded::Companion(companion))?;
        }
    }
    Ok(())
}

/// Calls `visit` for every tree reachable from `roots`: snapshots and companions.
fn each_tree(
    store: &Store,
    roots: &[ObjectId],
    visit: &mut dyn FnMut(ObjectId) -> Result<(), Error>,
) -> Result<(), Error> {
    each_record(store, roots, &mut |record| match record {
        Recorded::Operation(operation) => visit(operation.snapshot),
        Recorded::Companion(companion) => visit(companion.tree),
    })
}

/// Returns the labelled steps that changed, named or mention a path.
fn steps_at(store: &Store, roots: &[ObjectId], path: &TreePath) -> Result<BTreeSet<String>, Error> {
    let objects = &store.objects;
    let at = |tree: ObjectId| crate::compare::find(objects, &tree, path);
    let ignored_at = |operation: &Operation| {
        let companion = operation.meta.companion;
        match companion.and_then(|id| read_companion(objects, &id).ok()) {
            Some(companion) => at(companion.tree),
            None => Ok(None),
        }
    };
    let mut steps = BTreeSet::new();
    each_record(store, roots, &mut |record| {
        let Recorded::Operation(operation) = record else { return Ok(()) };
        let Details { credits, shared, .. } = &operation.details;
        if credits.iter().all(|credit| credit.step.label.is_none()) {
            return Ok(());
        }
        // Without the previous operation, everything present counts as possibly changed.
        let before = operation.parent.and_then(|before| read_operation(objects, &before).ok());
        let (was, ignored_was) = match &before {
            Some(before) => (at(before.snapshot)?, ignored_at(before)?),
            None => (None, None),
        };
        let is_changed = at(operation.snapshot)? != was;
        // Changes of ignored files are not attributed to single steps.
        let is_ignored_changed = ignored_at(&operation)? != ignored_was;
        let within = |paths: &[TreePath]| paths.iter().any(|one| one.is_within(path));
        for Credit { step, paths, named, .. } in credits {
            let is_own = paths.as_deref().is_none_or(|paths| within(paths) || within(shared));
            let is_meant = (is_changed && is_own)
                || is_ignored_changed
                || within(named)
                || mentions(step, path);
            if is_meant && step.label.is_some() {
                steps.insert(step.step.clone());
            }
        }
        Ok(())
    })?;
    Ok(steps)
}

/// Returns whether a step's label contains the file name of `path` as a whole word.
fn mentions(step: &StepInfo, path: &TreePath) -> bool {
    let Some(label) = &step.label else { return false };
    let name = String::from_utf8_lossy(split(path.as_bytes()).1).into_owned();
    let is_part = |c: char| c.is_alphanumeric() || "._-".contains(c);
    label.match_indices(&name).any(|(at, name)| {
        let (before, after) = (&label[..at], &label[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// Returns all contents that a path, or anything below it, ever had.
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
        if entry.kind.is_tree() {
            let all = crate::compare::changes(&store.objects, &ObjectId::EMPTY_TREE, &entry.id)?;
            contents.extend(all.iter().filter_map(|change| Some(change.after?.id)));
        } else {
            contents.insert(entry.id);
        }
        Ok(())
    })?;
    Ok(contents)
}

/// Returns the paths at which the contents still occur, and the ids of those that do.
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
