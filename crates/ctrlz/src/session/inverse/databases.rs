//! Databases: the log and the main file belong together.

use crate::compare::{Change, Entry, changes, find};
use crate::error::Error;
use crate::git::ObjectId;
use crate::log::Operation;
use crate::path::TreePath;
use crate::restore::{Wanted, is_database_log, is_shared_memory};
use crate::scan::SIDECARS;
use crate::session::history::Span;
use crate::session::report::ConflictReason;
use crate::store::Store;

use super::ignored::companion_tree;
use super::{Inverter, OnConflict};

/// Returns the database that a path is named as the write-ahead log or rollback journal of.
pub(super) fn database_of_log(path: &TreePath) -> Option<TreePath> {
    let main = SIDECARS.iter().find_map(|end| path.as_bytes().strip_suffix(*end))?;
    TreePath::parse(main).ok()
}

/// Returns whether a change affects the shared memory file of a database, which is never restored.
pub(super) fn is_transient(store: &Store, change: &Change) -> Result<bool, Error> {
    let either = change.before.or(change.after).filter(|entry| entry.kind.is_file());
    match either {
        Some(entry) => is_shared_memory(&store.objects, &change.path, &entry.id),
        None => Ok(false),
    }
}

impl Inverter<'_> {
    /// Handles databases whose log a step wrote and whose main file was written since. A checkpoint
    /// has moved the step's changes into the main file, which the step itself did not change.
    pub(super) fn databases_written_since(
        &mut self,
        changed: Vec<(Change, &Span)>,
    ) -> Result<(), Error> {
        let objects = &self.store.objects;
        let mut logs = changed;
        let inversion = self.inversion;
        for span in inversion.spans {
            let tree = |id: Option<ObjectId>| companion_tree(self.store, id);
            let (was, is) = (tree(span.before.meta.companion), tree(span.after.meta.companion));
            if was != is {
                logs.extend(changes(objects, &was, &is)?.into_iter().map(|change| (change, span)));
            }
        }
        for (change, span) in logs {
            let Some(main) = database_of_log(&change.path) else { continue };
            let Some(log) = change.after.filter(|log| log.kind.is_file()) else { continue };
            let is_asked_for = inversion.is_asked_for(&main) && !inversion.is_done(span, &main);
            let decided = self.out.request.wanted.contains_key(main.as_bytes());
            if !is_asked_for || decided || !is_database_log(objects, &log.id)? {
                continue;
            }
            let recorded = |operation: &Operation| match find(objects, &operation.snapshot, &main)?
            {
                Some(entry) => Ok(Some(entry)),
                None => find(objects, &companion_tree(self.store, operation.meta.companion), &main),
            };
            let is_same = |now: Option<Entry>, then: Option<Entry>| {
                now.map(|entry| entry.id) == then.map(|entry| entry.id)
            };
            let then: Option<Entry> = recorded(&span.after)?;
            if is_same(self.on_disk(&change.path), Some(log))
                || is_same(self.on_disk(&main), then)
                || then.is_none()
            {
                continue;
            }
            match recorded(&span.before)? {
                Some(entry) if inversion.on_conflict == OnConflict::TakeTheirs => {
                    let mode = self.merged_mode(&main, entry.kind);
                    let wanted = Wanted::Entry { entry, mode };
                    self.out.request.wanted.insert(main.as_bytes().to_vec(), wanted);
                }
                _ => {
                    let why = "the database was written to since the step";
                    self.conflict(&main, ConflictReason::Merge, why.into());
                }
            }
        }
        Ok(())
    }
}
