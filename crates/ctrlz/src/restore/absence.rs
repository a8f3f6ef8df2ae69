//! Absence: decides whether a path that a snapshot does not hold did not exist.

use std::collections::HashMap;
use std::sync::Arc;

use super::plan::KeptReason;
use crate::compare::{Trees, find};
use crate::error::Error;
use crate::git::{ObjectId, Rules};
use crate::log::{Meta, Operation};
use crate::path::{PathText, TreePath, join};
use crate::store::Store;

/// Evidence from the records of a snapshot about paths that it does not hold.
pub(crate) struct Absence<'a> {
    store: &'a Store,
    snapshot: ObjectId,
    records: Vec<Record>,
}

struct Record {
    work_tree: String,
    commit: ObjectId,
    at_millis: u64,
    meta: Arc<Meta>,
    hidden: HashMap<Vec<u8>, Vec<u8>>,
    base: Arc<Rules>,
    /// Whether `base` has all rules. A user's private rules do not leave their machine.
    are_rules_known: bool,
    rules: HashMap<Vec<u8>, Arc<Rules>>,
}

impl<'a> Absence<'a> {
    /// Collects all records of `snapshot`, from all work trees.
    pub(crate) fn of(store: &'a Store, snapshot: ObjectId) -> Result<Absence<'a>, Error> {
        let records = store
            .records_of(&snapshot)?
            .into_iter()
            .map(|operation| Record::of(store, operation))
            .collect();
        Ok(Absence { store, snapshot, records })
    }

    /// Returns the evidence of a single operation.
    pub(crate) fn of_operation(store: &'a Store, operation: &Operation) -> Absence<'a> {
        Absence {
            store,
            snapshot: operation.snapshot,
            records: vec![Record::of(store, operation.clone())],
        }
    }

    /// Returns the record that decides about permissions and empty directories, which hashes omit.
    ///
    /// Prefers the newest record of this work tree other than `head`: a caller that asks for the
    /// hash of the present state wants the state before it. Records of other work trees come last.
    pub(crate) fn meta_for(&self, work_tree: &str, head: Option<ObjectId>) -> Option<Arc<Meta>> {
        let rank = |record: &&Record| {
            let own = record.work_tree == work_tree;
            (own && Some(record.commit) != head, own, record.at_millis)
        };
        self.records.iter().max_by_key(rank).map(|record| Arc::clone(&record.meta))
    }

    /// Returns why the file `path`, which the snapshot does not hold, may have existed, or `None`
    /// if it did not exist.
    pub(crate) fn doubt(&mut self, path: &TreePath) -> Result<Option<KeptReason>, Error> {
        self.doubt_as(path, false)
    }

    /// Returns whether the directory `dir`, which the snapshot does not hold, may have existed.
    pub(crate) fn doubts_dir(&mut self, dir: &[u8]) -> Result<bool, Error> {
        Ok(self.doubt_as(&TreePath::from_scan(dir.to_vec()), true)?.is_some())
    }

    fn doubt_as(&mut self, path: &TreePath, is_dir: bool) -> Result<Option<KeptReason>, Error> {
        if self.records.is_empty() {
            return Ok(Some(KeptReason::NoRecord));
        }
        for record in &mut self.records {
            let skipped = record
                .meta
                .skipped
                .iter()
                .find(|skipped| crate::path::is_within(path.as_bytes(), &skipped.path));
            if let Some(skipped) = skipped {
                let why = skipped.reason.to_string();
                return Ok(Some(KeptReason::SkippedThen { why }));
            }
            let rules = record.rules_in(self.store, &self.snapshot, path.parent_bytes())?;
            if rules.ignores_or_above(path.as_bytes(), is_dir) {
                return Ok(Some(KeptReason::IgnoredThen));
            }
            if !record.are_rules_known {
                return Ok(Some(KeptReason::RulesUnknown));
            }
        }
        Ok(None)
    }

    /// Returns whether `path`, which an earlier snapshot holds, was ignored or skipped and not
    /// deleted. Without evidence it counts as deleted, because no file is removed as a result.
    pub(crate) fn is_left_out(&mut self, path: &TreePath) -> Result<bool, Error> {
        Ok(match self.doubt(path)? {
            Some(KeptReason::NoRecord | KeptReason::RulesUnknown) | None => false,
            Some(_) => true,
        })
    }
}

impl Record {
    fn of(store: &Store, operation: Operation) -> Record {
        let hidden = operation.meta.rules.hidden.iter().cloned();
        Record {
            work_tree: operation.work_tree.clone(),
            commit: operation.commit,
            at_millis: operation.at_millis,
            hidden: hidden
                .map(|(path, text)| (path.into_bytes(), PathText::into_bytes(text)))
                .collect(),
            base: operation.meta.rules.base(store),
            are_rules_known: operation.meta.rules.are_known(store),
            meta: Arc::new(operation.meta),
            rules: HashMap::new(),
        }
    }

    /// Returns the ignore rules of a directory at the time of the snapshot.
    fn rules_in(
        &mut self,
        store: &Store,
        snapshot: &ObjectId,
        dir: &[u8],
    ) -> Result<Arc<Rules>, Error> {
        if let Some(rules) = self.rules.get(dir) {
            return Ok(Arc::clone(rules));
        }
        // Iterates from the top down instead of recursing: a path may have thousands of parts.
        let ends = dir.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let mut parts: Vec<&[u8]> = ends.map(|end| &dir[..end]).collect();
        if !dir.is_empty() {
            parts.insert(0, b"");
        }
        parts.push(dir);
        let mut rules = Arc::clone(&self.base);
        for part in parts {
            rules = match self.rules.get(part) {
                Some(known) => Arc::clone(known),
                None => {
                    let made = match self.ignore_file(store, snapshot, part)? {
                        Some(text) => rules.child(part, &text),
                        None => rules,
                    };
                    self.rules.insert(part.to_vec(), Arc::clone(&made));
                    made
                }
            };
        }
        Ok(rules)
    }

    fn ignore_file(
        &self,
        store: &Store,
        snapshot: &ObjectId,
        dir: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let path = join(dir, b".gitignore");
        if let Some(text) = self.hidden.get(&path) {
            return Ok(Some(text.clone()));
        }
        let path = TreePath::from_scan(path);
        match find(&store.objects, snapshot, &path)? {
            Some(entry) if entry.kind.is_file() => store.objects.blob(&entry.id).map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns whether `dir` is a directory of the snapshot. Trees only have directories with files;
/// the empty ones are in `meta`.
pub(crate) fn is_dir_of(
    trees: &Trees<'_>,
    snapshot: &ObjectId,
    meta: Option<&Meta>,
    dir: &[u8],
) -> Result<bool, Error> {
    if dir.is_empty() {
        return Ok(true);
    }
    let path = TreePath::from_scan(dir.to_vec());
    if trees.find(snapshot, &path)?.is_some_and(|entry| entry.kind.is_tree()) {
        return Ok(true);
    }
    let empty = meta.map(|meta| meta.empty_dirs.as_slice()).unwrap_or_default();
    Ok(empty.iter().any(|empty| empty.is_within(&path)))
}
