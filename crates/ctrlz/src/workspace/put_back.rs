//! Restoring and reverting: a safety snapshot, then a plan, which is applied, and a report.

use std::collections::BTreeMap;

use crate::compare::Now;
use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{Details, OperationKind, WorkTree, read_operation};
use crate::path::TreePath;
use crate::record::Cause;
use crate::restore::{Absence, OnUse, Plan, Request, RestoreOptions, RestoreReport, Target, plan};
use crate::scan::Progress;

use super::Workspace;

/// Files to revert to their state in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchToRevert {
    /// Snapshot to revert to.
    pub hash: ObjectId,
    /// Files, relative to the work tree.
    pub files: Vec<TreePath>,
}

/// A state to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// A snapshot. If several operations recorded it, the newest one determines permissions and
    /// empty directories, which a hash does not cover.
    Snapshot(ObjectId),
    /// State recorded by an operation, including permissions and empty directories.
    Operation(String),
    /// Operation of another log in the store: another work tree's, or one from another machine.
    OperationOf {
        /// Name of the log, as in [`Log::name`](crate::Log::name).
        log: String,
        /// Id of the operation.
        id: String,
    },
}

impl From<&ObjectId> for Point {
    fn from(id: &ObjectId) -> Point {
        Point::Snapshot(*id)
    }
}

impl From<ObjectId> for Point {
    fn from(id: ObjectId) -> Point {
        Point::Snapshot(id)
    }
}

impl std::str::FromStr for Point {
    type Err = crate::git::NotAHash;

    fn from_str(text: &str) -> Result<Point, Self::Err> {
        let is_operation = text.len() == 26 && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if is_operation {
            Ok(Point::Operation(text.to_ascii_uppercase()))
        } else {
            text.parse().map(Point::Snapshot)
        }
    }
}

impl Workspace {
    /// Returns what [`Workspace::restore`] would do now. Takes a snapshot but changes no file.
    pub fn plan_restore(
        &self,
        to: impl Into<Point>,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<Plan, Error> {
        let target = self.find_point(&to.into())?;
        let hold = self.begin()?;
        Ok(hold.prepare_restore(&target, options, progress)?.plan)
    }

    /// Looks up a point, before the safety snapshot is recorded, which may have the same hash.
    fn find_point(&self, point: &Point) -> Result<Target, Error> {
        match point {
            Point::Snapshot(hash) => {
                let store = self.for_reading(hash)?;
                store.snapshot(hash)?;
                // The first request here may be for another work tree's snapshot.
                let own = self.existing()?.map(|(_, work_tree)| work_tree);
                let head = match &own {
                    Some(own) => store.refs.read(own.ref_name())?,
                    None => None,
                };
                let own = own.as_ref().map_or("", WorkTree::id);
                let meta = Absence::of(&store, *hash)?.meta_for(own, head);
                Ok(Target { hash: *hash, meta, operation: None })
            }
            Point::Operation(id) | Point::OperationOf { id, .. } => {
                let unknown = || Error::unknown_operation(id);
                let (store, work_tree) = match point {
                    Point::OperationOf { log, .. } => {
                        let store = self.readable()?.ok_or_else(unknown)?;
                        let work_tree = WorkTree::named(&store, log);
                        (store, work_tree)
                    }
                    _ => self.existing()?.ok_or_else(unknown)?,
                };
                for entry in work_tree.index(&store)? {
                    let entry = entry?;
                    if entry.id == *id {
                        store.snapshot(&entry.snapshot)?;
                        let operation = read_operation(&store.objects, &entry.commit)?;
                        return Ok(Target::of_operation(operation));
                    }
                }
                // A checkpoint outlives its segment of the log.
                let operation = work_tree.checkpointed(&store, id)?.ok_or_else(unknown)?;
                store.snapshot(&operation.snapshot)?;
                Ok(Target::of_operation(operation))
            }
        }
    }

    /// Restores the work tree to a snapshot.
    ///
    /// Takes a snapshot first, so that the restore can be undone. Writes only files that differ.
    /// Files created since are kept unless `exact` is set; ignored and skipped files always are.
    pub fn restore(
        &self,
        to: impl Into<Point>,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let target = self.find_point(&to.into())?;
        let hold = self.begin()?;
        let prepared = hold.prepare_restore(&target, options, progress)?;
        let cause = cause_by(OperationKind::Restore, options);
        hold.carry_out(prepared, options, &cause, progress)
    }

    /// Returns what [`Workspace::revert`] would do now. Takes a snapshot but changes no file.
    pub fn plan_revert(
        &self,
        patches: &[PatchToRevert],
        in_use: OnUse,
        progress: &Progress,
    ) -> Result<Plan, Error> {
        let Some(wanted) = self.wanted_by(patches)? else { return Ok(empty_plan()) };
        let hold = self.begin()?;
        Ok(hold.prepare_revert(&wanted, in_use, progress)?.plan)
    }

    /// Reverts single files. If several patches name a file, the first one counts.
    ///
    /// A file that its snapshot proves absent is removed. A file that it does not cover is kept.
    pub fn revert(
        &self,
        patches: &[PatchToRevert],
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let wanted = self.wanted_by(patches)?.unwrap_or_default();
        let hold = self.begin()?;
        let prepared = hold.prepare_revert(&wanted, options.in_use, progress)?;
        let cause = cause_by(OperationKind::Revert, options);
        hold.carry_out(prepared, options, &cause, progress)
    }

    /// Returns the snapshot to use for each file. Fails if one of the snapshots does not exist.
    fn wanted_by(
        &self,
        patches: &[PatchToRevert],
    ) -> Result<Option<BTreeMap<TreePath, ObjectId>>, Error> {
        let mut wanted = BTreeMap::new();
        for patch in patches {
            self.for_reading(&patch.hash)?.snapshot(&patch.hash)?;
            for file in &patch.files {
                wanted.entry(file.clone()).or_insert(patch.hash);
            }
        }
        Ok((!wanted.is_empty()).then_some(wanted))
    }
}

fn cause_by(kind: OperationKind, options: &RestoreOptions) -> Cause {
    let details = Details { by_person: options.by_person, ..Details::default() };
    Cause { details, ..Cause::of(kind) }
}

fn empty_plan() -> Plan {
    plan(&Now::of(&crate::scan::Listing::default()), &Request::default())
}
