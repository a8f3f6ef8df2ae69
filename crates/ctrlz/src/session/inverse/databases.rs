//! Databases: the log and the main file belong together.

use crate::compare::{Change, Entry, find};
use crate::error::Error;
use crate::log::Operation;
use crate::restore::{Wanted, database_of_log, is_database_log};
use crate::session::history::Span;
use crate::session::report::ConflictReason;

use super::{Inverter, OnConflict};

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
            logs.extend(self.ignored_changes(span)?.into_iter().map(|change| (change, span)));
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
                None => find(objects, &self.ignored_tree(operation), &main),
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
