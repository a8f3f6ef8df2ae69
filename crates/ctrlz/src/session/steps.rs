//! Steps: the snapshots before and after a tool runs.

use serde::Serialize;

use crate::compare::changes;
use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::scan::{Progress, Skipped};
use crate::store::{
    Credit, Details, NewOperation, OpenStep, Operation, OperationKind, PackWriter, ParentTurn,
    ProcessId, StepInfo, load_steps, new_id,
};
use crate::workspace::{Cause, Hold, Snapshot, TrackOptions, Workspace};

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
    /// Blobs that the user's repository still has to lend; see [`Workspace::absorb`]. Not counted
    /// again for a step that is open already.
    pub borrowed: u64,
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
            return Ok(StepBegun { step: info.step, before, skipped: Vec::new(), borrowed: 0 });
        }
        if info.step.is_empty() {
            info.step = new_id();
        }
        if !self.options().labels {
            info.label = None;
        }
        let open = abandon_earlier_turns(&hold, open, &info)?;
        info.parent = parent_turn(&open, &info);
        let options = TrackOptions::default();
        let cause = Cause { named: paths.clone(), ..Cause::outside() };
        let (snapshot, operation) = self.record_locked(&hold, &options, &cause, progress)?;
        let mut open: Vec<OpenStep> = open.into_iter().filter(|step| !step.abandoned).collect();
        let owner = owner.and_then(ProcessId::of);
        let step = info.step.clone();
        let before = operation.snapshot;
        let before_operation = operation.id;
        open.push(OpenStep { info, paths, before, before_operation, owner, abandoned: false });
        hold.save_steps(&open)?;
        let Snapshot { skipped, borrowed, .. } = snapshot;
        Ok(StepBegun { step, before, skipped, borrowed })
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
        let (snapshot, operation) =
            self.record_locked(&hold, &options, &Cause::outside(), progress)?;
        let ended = open.remove(at);
        let before = ended.before;
        let after = operation.snapshot;
        if !snapshot.changed {
            mark_turn(&hold, &operation, &ended)?;
        }
        hold.save_steps(&open)?;
        let changed = changes(&hold.store.objects, &before, &after)?;
        hold.release();
        Ok(StepEnded {
            step: step.to_owned(),
            before,
            after,
            files: changed.into_iter().map(|change| change.path).collect(),
            skipped: snapshot.skipped,
        })
    }
}

impl Workspace {
    /// The steps that have begun and not ended, oldest first. Takes no lock.
    pub fn open_steps(&self) -> Result<Vec<StepInfo>, Error> {
        let Some((_, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let open = load_steps(&work_tree.steps_path())?;
        Ok(open.into_iter().filter(|step| !step.abandoned).map(|step| step.info).collect())
    }

    /// Closes steps that their agent will not end any more, and marks them as inferred.
    ///
    /// What changed since they began is recorded as theirs. Steps that are not open are passed
    /// over; if none is, nothing is looked at.
    pub fn close_steps(&self, steps: &[String], progress: &Progress) -> Result<(), Error> {
        let hold = self.begin()?;
        let mut open = hold.open_steps()?;
        let mut marked = false;
        for step in open.iter_mut().filter(|step| steps.contains(&step.info.step)) {
            step.abandoned = true;
            marked = true;
        }
        if !marked {
            return Ok(());
        }
        // The snapshot that follows credits them, so it must find them marked; then it drops them.
        hold.save_steps(&open)?;
        let options = TrackOptions::default();
        self.record_locked(&hold, &options, &Cause::outside(), progress)?;
        hold.release();
        Ok(())
    }
}

/// The turn that a sub-agent's step works for, as far as open steps of its parent tell.
fn parent_turn(open: &[OpenStep], info: &StepInfo) -> Option<ParentTurn> {
    let parent = info.parent.clone()?;
    let waiting = open.iter().rev().find(|step| step.info.session == parent.session);
    match waiting {
        // A sub-agent of a sub-agent works for whoever started the first.
        Some(step) if step.info.parent.is_some() => step.info.parent.clone(),
        Some(step) if parent.message.is_none() => {
            Some(ParentTurn { message: Some(step.info.turn().to_owned()), ..parent })
        }
        _ => Some(parent),
    }
}

/// Records a step that changed nothing if it is the first of its message, so that the message is
/// known and can be gone back to.
fn mark_turn(hold: &Hold, last: &Operation, step: &OpenStep) -> Result<(), Error> {
    if step.info.message.is_none() {
        return Ok(());
    }
    let known = hold.work_tree.newest_of(&hold.store, &step.info.session)?;
    let is_known = known.is_some_and(|known| {
        let credits = &known.details.credits;
        credits.iter().any(|credit| credit.step.message == step.info.message)
    });
    if is_known {
        return Ok(());
    }
    let credit = Credit {
        step: step.info.clone(),
        paths: Some(Vec::new()),
        inferred: false,
        named: Vec::new(),
        begun: step.before_operation.clone(),
    };
    let details = Details { credits: vec![credit], head: hold.head.clone(), ..Details::default() };
    let new = NewOperation {
        kind: OperationKind::Step,
        snapshot: last.snapshot,
        meta: last.meta.clone(),
        details,
        companion: None,
    };
    let pack = PackWriter::new(&hold.store.objects_dir());
    hold.work_tree.append(&hold.store, pack, Some(last), new).map(drop)
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
