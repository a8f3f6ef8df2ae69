//! `ctrlz guard`: runs a command and undoes its changes if it fails.

use ctrlz::{Error, SessionError};
use ctrlz_api::UndoReport;
use ctrlz_api::methods::{self, Scope, UndoParams};

use super::Done;
use super::run::{Ran, StepArgs, exit_code, run_as_step};
use super::undo::kept_lines;
use crate::failure::Failure;
use crate::place::Place;
use crate::render;

/// Run a command, and undo its changes if it fails
///
/// Works like `run`. If the command exits with a code other than 0 or is killed, its changes are
/// undone, except where another process changed the same lines in the meantime. `ctrlz redo` brings
/// them back. The exit code is the command's in both cases.
#[derive(clap::Args, Debug)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    step: StepArgs,
}

pub(crate) fn run(place: Result<Place, Failure>, args: &GuardArgs) -> Result<Done, Failure> {
    let Ran { status, step } = run_as_step(place, &args.step)?;
    let code = exit_code(status);
    match step {
        Some((_, ended)) if status.success() => {
            let files = render::files(ended.files.len());
            render::note(&format!("ctrlz: the command succeeded; {files} changed"));
        }
        Some((place, ended)) => take_back(&place, &ended.step, code),
        None if !status.success() => {
            render::note("ctrlz: the command failed, and its changes were not undone");
        }
        None => (),
    }
    Ok(Done::Ran(code))
}

/// Undoes the step and reports the result. Errors do not change the exit code, which is the
/// command's.
fn take_back(place: &Place, step: &str, code: u8) {
    // The command made these changes, and `guard` implies consent to undoing all of them.
    let scope = Scope::Step(step.to_owned());
    let params = UndoParams { scope, allow_mass_removal: true, ..UndoParams::default() };
    let failed = format!("ctrlz: the command failed with {code}");
    match place.call(methods::undo, &params) {
        Ok(report) => say(&failed, &report),
        Err(Failure::Engine(Error::Session(
            SessionError::NothingToUndo | SessionError::NoSuchStep { .. },
        ))) => {
            render::note(&format!("{failed}; it changed nothing"));
        }
        Err(error) => {
            let why = render::message(&error);
            render::note(&format!("{failed}, and its changes could not be undone: {why}"));
        }
    }
}

fn say(failed: &str, report: &UndoReport) {
    for line in kept_lines(report) {
        render::note(&line);
    }
    match report.after {
        Some(_) => {
            let paths = render::paths(report.done.len());
            let program = render::program();
            render::note(&format!("{failed}; {paths} put back; redo: {program} redo"));
        }
        None => render::note(&format!("{failed}, and nothing of it could be undone")),
    }
    if let Some(hint) = &report.git_hint {
        render::note(&format!("your git moved too; to move it back: {hint}"));
    }
}
