//! Carrying out a plan: applies it and records the result.

use std::collections::BTreeMap;

use crate::compare::entry_kind;
use crate::defect::Defect;
use crate::error::{Error, RestoreError};
use crate::hold::Hold;
use crate::log::{Details, NewOperation, OperationKind};
use crate::pack::PackWriter;
use crate::path::TreePath;
use crate::record::{Cause, StoreKeep};
use crate::scan::{Progress, ReadOutcome};
use crate::store::edit_tree;

use super::applied::{Applied, Site};
use super::apply::apply;
use super::journal::{Journal, Record};
use super::plan::{Kept, KeptReason, Plan};
use super::report::{RestoreOptions, RestoreReport};
use super::safety::Prepared;

impl Hold {
    /// Applies a plan and records the result.
    pub(crate) fn carry_out(
        &self,
        prepared: Prepared,
        options: &RestoreOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let Prepared { mut plan, target, safety, files } = prepared;
        if options.expected_plan.is_some_and(|expected| expected != plan.hash) {
            return Err(Error::Restore(RestoreError::StalePlan));
        }
        check_mass_removal(&plan, files, options)?;
        let mut report = RestoreReport {
            safety: safety.snapshot,
            safety_operation: safety.id,
            after: safety.snapshot,
            done: plan.actions.clone(),
            kept: plan.kept.clone(),
            not_checked: plan.not_checked.clone(),
            left: Vec::new(),
            recovered: self.recovered.clone(),
            not_recorded: None,
        };
        if plan.units.is_empty() && plan.modes.is_empty() && plan.emptied.is_empty() {
            if cause.always {
                self.record_listed(cause, progress)?;
            }
            return Ok(report);
        }
        let unlinked = std::mem::take(&mut plan.unlinked);
        let details = Details { unlinked, ..cause.details.clone() };
        // The journal also holds the log entry, so that an undo that was killed can be redone.
        let rewinds = !cause.details.undone.is_empty() || cause.details.takes_back.is_some();
        let record = rewinds.then(|| Record {
            kind: cause.kind,
            details: details.clone(),
            since: report.safety_operation.clone(),
        });
        let journal = Journal { target, record, ..Journal::of(&plan, safety.snapshot) };
        let applied = self.apply(&plan, journal)?;
        report.left = applied.left.iter().map(|path| crate::path::escape(path)).collect();
        report.kept.extend(applied.without_special_bits.into_iter().map(|path| {
            let reason = KeptReason::SpecialBitsDropped;
            Kept { path: TreePath::from_scan(path), reason }
        }));
        // The files have changed, so a failure to record this is not a failed restore.
        let cause = Cause { placed: applied.placed, details, ..cause.clone() };
        match self.record_listed(&cause, progress) {
            Ok(tracked) => {
                report.after = tracked.operation.snapshot;
                if rewinds {
                    Journal::remove(&self.work_tree.journal_path())?;
                }
            }
            Err(error) => report.not_recorded = Some(error.to_string()),
        }
        Ok(report)
    }

    fn apply(&self, plan: &Plan, journal: Journal) -> Result<Applied, Error> {
        let site = Site {
            root: &self.root,
            journal: &self.work_tree.journal_path(),
            threads: self.context.options.threads.max(1),
            rescue: &|dir, name, path| self.rescue(dir, name, path),
        };
        let applied = apply(&site, &self.store.objects, plan, journal)?;
        if Defect::Escaping.is_made() {
            crate::fs::private::overwrite(
                &self.context.root.with_file_name("escaped"),
                b"from here",
            )?;
        }
        Ok(applied)
    }

    /// Records a file that another process wrote during the swap, under `path`.
    pub(crate) fn rescue(
        &self,
        dir: &crate::fs::Dir,
        name: &[u8],
        path: &[u8],
    ) -> Result<(), Error> {
        let moved = || Error::moved(path);
        let last = self.work_tree.last(&self.store)?.ok_or_else(moved)?;
        let pack = PackWriter::new(&self.store.objects_dir());
        let keep = StoreKeep::new(&self.store, &pack);
        let kind = dir.stat(name)?.ok_or_else(moved)?.kind;
        let ReadOutcome::Read { stat, id, .. } = crate::scan::read_entry(dir, name, kind, &keep)?
        else {
            return Err(moved());
        };
        let kind = entry_kind(&stat).ok_or_else(moved)?;
        let changes = BTreeMap::from([(path.to_vec(), Some((kind, id)))]);
        let tree = edit_tree(&self.store.objects, &pack, last.snapshot, &changes)?;
        let new = NewOperation {
            kind: OperationKind::Outside,
            snapshot: tree,
            meta: last.meta.clone(),
            details: Details::default(),
            ignored_snapshot: None,
        };
        self.work_tree.append(&self.store, pack, Some(&last), new).map(drop)
    }
}

/// Fails if a plan removes so many files that it is probably a mistake, unless that is allowed.
pub(crate) fn check_mass_removal(
    plan: &Plan,
    files: u64,
    options: &RestoreOptions,
) -> Result<(), Error> {
    match plan.mass_removal_of(files).filter(|_| !options.allow_mass_removal) {
        Some((removed, files)) => Err(Error::Restore(RestoreError::MassChange { removed, files })),
        None => Ok(()),
    }
}
