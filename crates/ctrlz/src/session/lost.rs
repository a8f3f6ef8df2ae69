//! Files that disappeared, and their recovery.

use std::collections::{BTreeMap, HashSet};

use crate::compare::{Trees, find};
use crate::error::{Error, LookupError};
use crate::git::ObjectId;
use crate::log::{OperationKind, StepInfo, Uncaptured};
use crate::path::TreePath;
use crate::record::TrackOptions;
use crate::restore::{OnUse, Plan, RestoreOptions, RestoreReport, database_of_log, is_transient};
use crate::scan::Progress;
use crate::workspace::{PatchToRevert, Workspace};

use super::LostFiles;
use super::history::History;
use super::reading::real_changes;

/// A file that an earlier snapshot holds and the newest one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFile {
    /// Path of the file.
    pub path: TreePath,
    /// Last snapshot that holds it.
    pub snapshot: ObjectId,
    /// Operation that recorded the deletion.
    pub operation: String,
    /// Kind of that operation.
    pub kind: OperationKind,
    /// Time of that operation, in milliseconds since 1970.
    pub at_millis: u64,
    /// Step that removed the file, if any.
    pub step: Option<StepInfo>,
}

/// A path that no snapshot holds and that a step removed or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostUncaptured {
    /// Path, reason why it was not captured, and kind of change.
    pub uncaptured: Uncaptured,
    /// Operation that recorded the loss.
    pub operation: String,
    /// Time of that operation, in milliseconds since 1970.
    pub at_millis: u64,
    /// Step that made the change.
    pub step: StepInfo,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Content id, or `None` if the file was deleted.
    pub content: Option<ObjectId>,
    /// First snapshot with this version.
    pub snapshot: ObjectId,
    /// Operation that recorded it.
    pub operation: String,
    /// Kind of that operation.
    pub kind: OperationKind,
    /// Time of that operation, in milliseconds since 1970.
    pub at_millis: u64,
    /// Step that made this version, if any.
    pub step: Option<StepInfo>,
}

impl Workspace {
    /// Returns the versions of a file, newest first.
    pub fn versions(&self, path: &TreePath) -> Result<Vec<Version>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let mut history = History::open(&store, &work_tree)?;
        let mut versions = Vec::new();
        let mut at = 0;
        loop {
            let before = history.before(at)?.cloned();
            let Some(after) = history.entries.get(at) else { break };
            let now = find(&store.objects, &after.snapshot, path)?;
            let was = match &before {
                Some(before) => find(&store.objects, &before.snapshot, path)?,
                None => None,
            };
            if now != was {
                // The state before the oldest operation is not kept, so its changes are unknown.
                let (kind, step) = match before {
                    Some(_) => after.author(path),
                    None => (after.kind, None),
                };
                versions.push(Version {
                    content: now.map(|entry| entry.id),
                    snapshot: after.snapshot,
                    operation: after.id.clone(),
                    kind,
                    at_millis: after.at_millis,
                    step: step.cloned(),
                });
            }
            at += 1;
        }
        Ok(versions)
    }
}

impl LostFiles<'_> {
    /// Returns the files that disappeared and have not come back, newest loss first.
    pub fn list(&self) -> Result<Vec<LostFile>, Error> {
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(Vec::new()) };
        let mut history = History::open(&store, &work_tree)?;
        let mut seen: HashSet<TreePath> = HashSet::new();
        let mut lost = Vec::new();
        let mut at = 0;
        let trees = Trees::new(&store.objects);
        let mut newest = None;
        while let Some(before) = history.before(at)?.cloned() {
            let after = history.entries[at].clone();
            let newest = *newest.get_or_insert(after.snapshot);
            for change in real_changes(&store, &before, &after)? {
                let is_first = seen.insert(change.path.clone());
                let is_there = trees.find(&newest, &change.path)?.is_some();
                // Files that an undo, revert or restore removed are not lost.
                let is_meant = matches!(
                    after.kind,
                    OperationKind::Undo | OperationKind::Revert | OperationKind::Restore
                );
                let is_gone = change.after.is_none() && is_first && !is_there && !is_meant;
                if is_gone && !is_transient(&store.objects, &change)? {
                    let (kind, step) = after.author(&change.path);
                    lost.push(LostFile {
                        kind,
                        step: step.cloned(),
                        path: change.path,
                        snapshot: before.snapshot,
                        operation: after.id.clone(),
                        at_millis: after.at_millis,
                    });
                }
            }
            at += 1;
        }
        Ok(lost)
    }

    /// Returns paths that no snapshot holds and that steps removed or changed, newest loss first.
    /// Only captured repositories can be recovered.
    pub fn uncaptured(&self) -> Result<Vec<LostUncaptured>, Error> {
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(Vec::new()) };
        let history = History::read(&store, &work_tree)?;
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut lost = Vec::new();
        for entry in &history.entries {
            for credit in &entry.details.credits {
                for uncaptured in credit.uncaptured.iter().filter(|lost| lost.is_loss()) {
                    if seen.insert(&uncaptured.path) {
                        lost.push(LostUncaptured {
                            uncaptured: uncaptured.clone(),
                            operation: entry.id.clone(),
                            at_millis: entry.at_millis,
                            step: credit.step.clone(),
                        });
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Restores the last version of each lost file at or below `path`.
    pub fn recover(
        &self,
        path: &TreePath,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let patches = self.grouped(path, progress)?;
        self.0.revert(&patches, options, progress)
    }

    /// Returns the plan that [`LostFiles::recover`] would apply now.
    pub fn plan(&self, path: &TreePath, in_use: OnUse, progress: &Progress) -> Result<Plan, Error> {
        let patches = self.grouped(path, progress)?;
        self.0.plan_revert(&patches, in_use, progress)
    }

    /// Returns the lost files at or below `path`, grouped by the last snapshot that holds them.
    fn grouped(&self, path: &TreePath, progress: &Progress) -> Result<Vec<PatchToRevert>, Error> {
        // Includes files that disappeared since the last snapshot.
        self.0.track(&TrackOptions::default(), progress)?;
        let mut patches: BTreeMap<ObjectId, Vec<TreePath>> = BTreeMap::new();
        // A database is restored together with its log.
        let is_part = |lost: &LostFile| database_of_log(&lost.path).is_some_and(|of| of == *path);
        let is_meant = |lost: &LostFile| lost.path.is_within(path) || is_part(lost);
        for lost in self.list()?.into_iter().filter(is_meant) {
            patches.entry(lost.snapshot).or_default().push(lost.path);
        }
        if patches.is_empty() {
            return Err(Error::Lookup(LookupError::NothingLost { path: path.clone() }));
        }
        let patch = |(hash, files)| PatchToRevert { hash, files };
        Ok(patches.into_iter().map(patch).collect())
    }
}
