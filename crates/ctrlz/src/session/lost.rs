//! Files that disappeared, and the way to have them again.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::compare::{Trees, find};
use crate::error::{Error, LookupError};
use crate::git::ObjectId;
use crate::log::{Credit, OperationKind, StepInfo, Uncaptured};
use crate::path::TreePath;
use crate::record::TrackOptions;
use crate::restore::{OnUse, Plan, RestoreOptions, RestoreReport};
use crate::scan::Progress;
use crate::workspace::{PatchToRevert, Workspace};

use super::history::History;
use super::reading::real_changes;

/// A file that some snapshot has and the newest one has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostFile {
    /// The path.
    pub path: TreePath,
    /// The last snapshot that has it.
    pub snapshot: ObjectId,
    /// The operation after which it was gone.
    pub operation: String,
    /// What happened then.
    pub kind: OperationKind,
    /// When that was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step that removed it, if it was one.
    pub step: Option<StepInfo>,
}

/// Something that a step removed or changed and that no snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostUncaptured {
    /// The path, the reason why it was not captured, and the change.
    #[serde(flatten)]
    pub uncaptured: Uncaptured,
    /// The operation that recorded the loss.
    pub operation: String,
    /// When that was, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step.
    pub step: StepInfo,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The id of its content; `None` where the file was deleted.
    pub content: Option<ObjectId>,
    /// The snapshot that has it first.
    pub snapshot: ObjectId,
    /// The operation that recorded it.
    pub operation: String,
    /// What happened then.
    pub kind: OperationKind,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step that made it, if it was one.
    pub step: Option<StepInfo>,
}

impl Workspace {
    /// Files that disappeared and have not come back, the last lost first.
    pub fn lost(&self) -> Result<Vec<LostFile>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
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
                // What the user took back is not lost.
                let is_meant = matches!(
                    after.kind,
                    OperationKind::Undo | OperationKind::Revert | OperationKind::Restore
                );
                if change.after.is_none() && is_first && !is_there && !is_meant {
                    let by = after.details.credits.iter().find(|credit| {
                        credit.paths.as_ref().is_none_or(|paths| paths.contains(&change.path))
                    });
                    lost.push(LostFile {
                        path: change.path,
                        snapshot: before.snapshot,
                        operation: after.id.clone(),
                        kind: after.kind,
                        at_millis: after.at_millis,
                        step: by.map(|credit| credit.step.clone()),
                    });
                }
            }
            at += 1;
        }
        Ok(lost)
    }

    /// Paths that no snapshot holds and that steps removed or changed, the last loss first. None of it
    /// can be brought back.
    pub fn lost_uncaptured(&self) -> Result<Vec<LostUncaptured>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
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

    /// Brings back what was lost at `path` or below it, each file as it was last.
    pub fn recover(
        &self,
        path: &TreePath,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let patches = self.lost_at(path, progress)?;
        self.revert(&patches, options, progress)
    }

    /// What [`Workspace::recover`] would do now.
    pub fn plan_recover(
        &self,
        path: &TreePath,
        in_use: OnUse,
        progress: &Progress,
    ) -> Result<Plan, Error> {
        let patches = self.lost_at(path, progress)?;
        self.plan_revert(&patches, in_use, progress)
    }

    /// What is lost at `path` or below it, by the last snapshot that has it.
    fn lost_at(&self, path: &TreePath, progress: &Progress) -> Result<Vec<PatchToRevert>, Error> {
        // What vanished a moment ago is lost as well.
        self.track(&TrackOptions::default(), progress)?;
        let mut patches: BTreeMap<ObjectId, Vec<TreePath>> = BTreeMap::new();
        for lost in self.lost()?.into_iter().filter(|lost| lost.path.is_within(path)) {
            patches.entry(lost.snapshot).or_default().push(lost.path);
        }
        if patches.is_empty() {
            return Err(Error::Lookup(LookupError::NothingLost { path: path.clone() }));
        }
        let patch = |(hash, files)| PatchToRevert { hash, files };
        Ok(patches.into_iter().map(patch).collect())
    }

    /// The versions of a file, newest first.
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
                // Of the oldest operation it is not known which files it changed.
                let credits = before.as_ref().map_or(&[][..], |_| &after.details.credits);
                let owns = |credit: &&Credit| {
                    credit.paths.as_ref().is_none_or(|paths| paths.contains(path))
                };
                let by = credits.iter().find(owns);
                versions.push(Version {
                    content: now.map(|entry| entry.id),
                    snapshot: after.snapshot,
                    operation: after.id.clone(),
                    kind: after.kind,
                    at_millis: after.at_millis,
                    step: by.map(|credit| credit.step.clone()),
                });
            }
            at += 1;
        }
        Ok(versions)
    }
}
