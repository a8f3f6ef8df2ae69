//! Finds the places where a path and its contents occur in the history, for a purge.

use std::collections::{BTreeSet, HashSet};

use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{
    Credit, Details, IgnoredSnapshot, Operation, StepInfo, read_ignored, read_operation,
};
use crate::path::{TreePath, join, split};
use crate::store::Store;

/// Record of a commit in the store.
enum Recorded {
    Operation(Box<Operation>),
    IgnoredSnapshot(IgnoredSnapshot),
}

/// Calls `visit` for every operation and ignored snapshot reachable from `roots`.
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
            work.extend(operation.meta.ignored_snapshot);
            work.extend(operation.parent_in_segment());
            visit(Recorded::Operation(Box::new(operation)))?;
        } else if let Ok(ignored) = read_ignored(&store.objects, &id) {
            work.extend(store.objects.commit(&id)?.parents);
            visit(Recorded::IgnoredSnapshot(ignored))?;
        }
    }
    Ok(())
}

/// Calls `visit` for every tree reachable from `roots`: snapshots and ignored snapshots.
fn each_tree(
    store: &Store,
    roots: &[ObjectId],
    visit: &mut dyn FnMut(ObjectId) -> Result<(), Error>,
) -> Result<(), Error> {
    each_record(store, roots, &mut |record| match record {
        Recorded::Operation(operation) => visit(operation.snapshot),
        Recorded::IgnoredSnapshot(ignored) => visit(ignored.tree),
    })
}

/// Returns the labelled steps that changed, named or mention a path.
pub(super) fn steps_at(
    store: &Store,
    roots: &[ObjectId],
    path: &TreePath,
) -> Result<BTreeSet<String>, Error> {
    let objects = &store.objects;
    let at = |tree: ObjectId| crate::compare::find(objects, &tree, path);
    let ignored_at = |operation: &Operation| {
        let ignored = operation.meta.ignored_snapshot;
        match ignored.and_then(|id| read_ignored(objects, &id).ok()) {
            Some(ignored) => at(ignored.tree),
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
pub(super) fn mentions(step: &StepInfo, path: &TreePath) -> bool {
    let Some(label) = &step.label else { return false };
    let name = String::from_utf8_lossy(split(path.as_bytes()).1).into_owned();
    let is_part = |c: char| c.is_alphanumeric() || "._-".contains(c);
    label.match_indices(&name).any(|(at, name)| {
        let (before, after) = (&label[..at], &label[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// Returns all contents that a path, or anything below it, ever had.
pub(super) fn contents_at(
    store: &Store,
    roots: &[ObjectId],
    path: &TreePath,
) -> Result<HashSet<ObjectId>, Error> {
    let mut contents = HashSet::new();
    let mut seen = HashSet::new();
    each_tree(store, roots, &mut |tree| {
        let Some(entry) = crate::compare::find(&store.objects, &tree, path)? else { return Ok(()) };
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
pub(super) fn remaining(
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
