//! Steps: the snapshots before and after a tool runs.

use serde::Serialize;

use crate::compare::changes;
use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::scan::{Progress, Skipped};
use crate::store::{OpenStep, ProcessId, StepInfo, new_id};
use crate::workspace::{Cause, Hold, TrackOptions, Workspace};

/// What an agent says about a step before it begins.
#[derive(Clone, Debug, Default)]
pub struct StepStart {
    /// Who and what; an empty [`StepInfo::step`] gets an id.
    pub info: StepInfo,
    /// Paths the tool says it will change. The strongest evidence when several steps overlap.
    pub paths: Vec<TreePath>,
    /// The process that will end the step. If it dies, the step is closed and marked as inferred.
    /// Default: none, as where every call comes from another process.
    pub owner: Option<u32>,
}

/// A step that began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepBegun {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: ObjectId,
    /// What that snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

/// A step that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepEnded {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: ObjectId,
    /// The snapshot after it.
    pub after: ObjectId,
    /// The paths that changed in between, whoever changed them.
    pub files: Vec<TreePath>,
    /// What the later snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

impl Workspace {
    /// Records the state before a tool runs, and that from now on changes are the step's.
    ///
    /// Beginning the same step twice is beginning it once. Steps of the same session that belong
    /// to an earlier turn and were never ended are closed and marked as inferred.
    pub fn begin_step(&self, start: StepStart, progress: &Progress) -> Result<StepBegun, Error> {
        self.check_enabled()?;
        let hold = self.begin()?;
        let StepStart { mut info, paths, owner } = start;
        let open = hold.open_steps()?;
        if let Some(known) = open.iter().find(|step| step.info.step == info.step) {
            let before = known.before;
            return Ok(StepBegun { step: info.step, before, skipped: Vec::new() });
        }
        if info.step.is_empty() {
            info.step = new_id();
        }
        let open = abandon_earlier_turns(&hold, open, &info)?;
        let options = TrackOptions::default();
        let tracked = self.track_locked(&hold, &options, &Cause::outside(), progress)?;
        let mut open: Vec<OpenStep> = open.into_iter().filter(|step| !step.abandoned).collect();
        let owner = owner.and_then(ProcessId::of);
        let step = info.step.clone();
        let before = tracked.operation.snapshot;
        let before_operation = tracked.operation.id;
        open.push(OpenStep { info, paths, before, before_operation, owner, abandoned: false });
        hold.save_steps(&open)?;
        Ok(StepBegun { step, before, skipped: tracked.snapshot.skipped })
    }

    /// Records the state after a tool ran.
    ///
    /// Also right when the tool failed. A step that is not open is an error, and nothing changes.
    pub fn end_step(&self, step: &str, progress: &Progress) -> Result<StepEnded, Error> {
        let hold = self.begin()?;
        let mut open = hold.open_steps()?;
        let Some(at) = open.iter().position(|open| open.info.step == step) else {
            return Err(Error::NoSuchStep { step: step.to_owned() });
        };
        let options = TrackOptions::default();
        let tracked = self.track_locked(&hold, &options, &Cause::outside(), progress)?;
        let OpenStep { before, .. } = open.remove(at);
        hold.save_steps(&open)?;
        let after = tracked.operation.snapshot;
        let changed = changes(&hold.store.objects, &before, &after)?;
        Ok(StepEnded {
            step: step.to_owned(),
            before,
            after,
            files: changed.into_iter().map(|change| change.path).collect(),
            skipped: tracked.snapshot.skipped,
        })
    }
}

/// Marks what the same session left open in an earlier turn: its agent was interrupted.
fn abandon_earlier_turns(
    hold: &Hold,
    mut open: Vec<OpenStep>,
    next: &StepInfo,
) -> Result<Vec<OpenStep>, Error> {
    let mut marked = false;
    for step in &mut open {
        let earlier = step.info.session == next.session && step.info.turn() != next.turn();
        if earlier && !step.abandoned && !step.is_owned() {
            step.abandoned = true;
            marked = true;
        }
    }
    if marked {
        // The snapshot that follows credits them, so it must find them marked.
        hold.save_steps(&open)?;
    }
    Ok(open)
}
