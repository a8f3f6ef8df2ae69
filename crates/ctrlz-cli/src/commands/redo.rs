//! `ctrlz redo`: reverses the last undo.

use ctrlz::{StepRecord, UndoOptions, UndoReport};

use super::Done;
use super::undo::{refuse_mass_removal, show, show_plan};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Reverse the last undo
///
/// Run it again to reverse the undo before it. Works even after new changes: they are merged by
/// line, and a file whose changes do not merge is left unchanged and marked with !. Exit code 3
/// means that something was left unchanged. `ctrlz redo --dry-run` shows what would happen.
#[derive(clap::Args, Debug)]
pub(crate) struct RedoArgs {
    /// Reverse the last undo of session ID
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Use the version from before the undo where changes do not merge
    #[arg(long)]
    force: bool,
    /// Also bring back changes of ignored files that no tool named
    #[arg(long)]
    ignored: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &RedoArgs, out: &mut Output) -> Result<Done, Failure> {
    let options = UndoOptions {
        session: args.session.clone(),
        force: args.force,
        ignored: args.ignored,
        allow_mass_removal: args.yes,
        ..UndoOptions::default()
    };
    if args.dry_run {
        place.workspace.check_finished()?;
        let report = watched(|progress| place.workspace.plan_redo(&options, progress))?;
        let done = show_plan(place, "would redo", &report, out)?;
        refuse_mass_removal(report.mass_removal, args.yes, out)?;
        return Ok(done);
    }
    let report = watched(|progress| place.workspace.redo(&options, progress))?;
    show(place, "redo", &report, out)?;
    if !out.is_json() {
        out.line(&way_back(&place.workspace.steps()?, &report, args.force))?;
    }
    Ok(Done::of(report.is_complete()))
}

/// Returns the command that reverses exactly this redo. Undoing the steps would not restore the
/// versions that a forced redo replaced.
fn way_back(steps: &[StepRecord], report: &UndoReport, forced: bool) -> String {
    let Some(safety) = report.safety_operation.as_ref().filter(|_| report.after.is_some()) else {
        return "nothing was redone; --force takes the versions of before the undo".into();
    };
    let left = || steps.iter().filter(|step| !step.undone).map(|step| &step.info);
    let is_last_turn = left().next_back().is_some_and(|newest| {
        let same = |info: &&ctrlz::StepInfo| {
            info.session == newest.session && info.turn() == newest.turn()
        };
        left().filter(same).all(|info| report.steps.contains(&info.step))
            && report.steps.iter().all(|step| left().filter(same).any(|info| info.step == *step))
    });
    let program = render::program();
    if is_last_turn && !forced {
        format!("undo: {program} undo")
    } else {
        format!("undo: {program} restore --exact {safety}")
    }
}
