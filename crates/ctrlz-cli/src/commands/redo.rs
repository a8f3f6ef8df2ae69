//! `ctrlz redo`: reverses the last undo.

use ctrlz::Details;
use ctrlz_api::methods::{self, RedoParams};
use ctrlz_api::{StepInfo, StepRecord, UndoReport};

use super::Done;
use super::undo::{is_forceable, show, show_plan, steps};
use crate::failure::Failure;
use crate::place::Place;
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
    let params = RedoParams {
        session: args.session.clone(),
        force: args.force,
        ignored: args.ignored,
        allow_mass_removal: args.yes,
        ..RedoParams::default()
    };
    if args.dry_run {
        let report = place.plan(methods::plan_redo, &params)?;
        return show_plan(place, "would redo", &report, args.yes, out);
    }
    let report = place.call(methods::redo, &params)?;
    show(place, "redo", &report, out)?;
    if !out.is_json() {
        let newest = place.workspace().log(1)?.into_iter().next().map(|redo| redo.details);
        for line in ways_back(&steps(place)?, &report, args.force, &newest.unwrap_or_default()) {
            out.line(&line)?;
        }
    }
    Ok(Done::of(report.complete))
}

/// Returns the commands that reverse exactly this redo, which recorded `redone`. Undoing the steps
/// would not restore the versions that a forced redo replaced. A restore reaches neither ignored
/// files nor files outside of the project.
fn ways_back(
    steps: &[StepRecord],
    report: &UndoReport,
    forced: bool,
    redone: &Details,
) -> Vec<String> {
    let Some(safety) = report.safety_operation.as_ref().filter(|_| report.after.is_some()) else {
        let is_forceable = !forced && is_forceable(report);
        let hint =
            if is_forceable { "; --force takes the versions of before the undo" } else { "" };
        return vec![format!("nothing was redone{hint}")];
    };
    let ignored = if redone.ignored.is_empty() { "" } else { " --ignored" };
    let wrote_outside = report.outside_asked && report.outside.iter().any(|one| one.kept.is_none());
    let outside = if wrote_outside { " --outside" } else { "" };
    let reach = format!("{ignored}{outside}");
    let left = || steps.iter().filter(|step| !step.undone).map(|step| &step.info);
    let is_last_turn = left().next_back().is_some_and(|newest| {
        let same = |info: &&StepInfo| info.session == newest.session && turn(info) == turn(newest);
        left().filter(same).all(|info| report.steps.contains(&info.step))
            && report.steps.iter().all(|step| left().filter(same).any(|info| info.step == *step))
    });
    let program = render::program();
    let restore = format!("undo: {program} restore --exact {safety}");
    match (is_last_turn && !forced, reach.is_empty()) {
        (true, _) => vec![format!("undo: {program} undo{reach}")],
        (false, true) => vec![restore],
        (false, false) if forced => {
            let rest = "this reaches neither ignored files nor files outside of the project";
            vec![restore, rest.into()]
        }
        (false, false) => {
            let step = |step: &String| format!("undo: {program} undo --step {step}{reach}");
            report.steps.iter().rev().map(step).collect()
        }
    }
}

/// Returns the turn that a step belongs to: its message, or its own id if it has none.
fn turn(info: &StepInfo) -> &str {
    info.message.as_deref().unwrap_or(&info.step)
}
