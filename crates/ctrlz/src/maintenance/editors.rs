//! Editors of a purge: one removes a path from all trees, the other a text from all labels.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::Error;
use crate::git::{ObjectId, TreeEntry};
use crate::log::{Credit, Details, IgnoredSnapshot, Operation, Rewritten, StepInfo, read_ignored};
use crate::pack::PackWriter;
use crate::path::{TreePath, join};
use crate::scan::{SkipReason, Skipped};
use crate::store::{Store, write_tree};

use super::rewrite::{Editor, Fate};

/// Replaces all occurrences of a text. Returns whether there were any.
fn erase(from: &mut String, text: &str) -> bool {
    let found = from.contains(text);
    if found {
        *from = from.replace(text, "[purged]");
    }
    found
}

/// Replaces a text in all descriptive texts of a step. Returns whether it occurred.
pub(super) fn erase_from(step: &mut StepInfo, text: &str) -> bool {
    let mut found = false;
    for one in step.texts_mut() {
        found |= erase(one, text);
    }
    found
}

/// Removes a text from labels.
pub(super) struct Eraser<'a> {
    pub(super) text: &'a str,
    /// Steps, and operations with their own label, that contained the text.
    pub(super) found: BTreeSet<String>,
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

/// Removes a path from trees.
pub(super) struct Purger<'a> {
    pub(super) store: &'a Store,
    pub(super) pack: PackWriter,
    pub(super) path: &'a TreePath,
    pub(super) everywhere: Option<&'a HashSet<ObjectId>>,
    /// Steps whose labels are blanked.
    pub(super) steps: &'a BTreeSet<String>,
    /// Cache of rewritten trees by old id and path. The path is empty where it does not matter.
    pub(super) trees: HashMap<(ObjectId, Vec<u8>), Option<ObjectId>>,
    pub(super) snapshots: BTreeMap<ObjectId, ObjectId>,
    /// Operations that had the path, in their snapshot or in their ignored snapshot.
    pub(super) operations: BTreeSet<String>,
}

impl Purger<'_> {
    /// Returns whether the purge changes the operation's ignored snapshot.
    fn changes_ignored_snapshot(&mut self, operation: &Operation) -> Result<bool, Error> {
        let Some(id) = operation.meta.ignored_snapshot else { return Ok(false) };
        // An ignored snapshot that was left out when the log was imported has nothing to purge.
        let Ok(ignored) = read_ignored(&self.store.objects, &id) else { return Ok(false) };
        Ok(self.root(ignored.tree)? != ignored.tree)
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
        if is_other || self.changes_ignored_snapshot(operation)? {
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

    fn ignored_snapshot(&mut self, ignored: &IgnoredSnapshot) -> Result<ObjectId, Error> {
        self.root(ignored.tree)
    }
}
