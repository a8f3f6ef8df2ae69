//! `ctrlz unrevert`: reverses the revert of a session.

use ctrlz::{Boundary, RevertState, Rewind, UndoOptions};

use super::Done;
use super::undo::{refuse_mass_removal, show, show_plan};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output, shell_word};

/// Reverse a revert that is not final yet
///
/// Restores the files to their state before `ctrlz revert --message`. Later edits are merged by
/// line; a file whose changes do not merge is left unchanged and marked with !. Exit code 3 means
/// that something was left unchanged. After new work of the session or `revert --commit`, there is
/// nothing to unrevert; `ctrlz redo` can still bring the files back.
#[derive(clap::Args, Debug)]
pub(crate) struct UnrevertArgs {
    /// Use session ID; by default, the one reverted last
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Use the version from before the revert where changes do not merge
    #[arg(long)]
    force: bool,
    /// Also bring back changes of ignored files that no tool named
    #[arg(long)]
    ignored: bool,
    /// First close the session's open steps, if its agent has exited or should stop
    #[arg(long)]
    interrupt: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &UnrevertArgs, out: &mut Output) -> Result<Done, Failure> {
    let RevertState { session, boundary, .. } = pending(place, args.session.as_deref())?;
    let options = UndoOptions {
        force: args.force,
        ignored: args.ignored,
        interrupt: args.interrupt,
        allow_mass_removal: args.yes,
        ..UndoOptions::default()
    };
    let workspace = &place.workspace;
    if args.dry_run {
        place.workspace.check_finished()?;
        let rewind = Rewind::Unrevert { session, options };
        let report = watched(|progress| workspace.plan(&rewind, progress))?;
        let done = show_plan(place, "would bring back", &report, out)?;
        refuse_mass_removal(report.mass_removal, args.yes, out)?;
        return Ok(done);
    }
    let report = watched(|progress| workspace.unrevert(&session, &options, progress))?;
    show(place, "brought back", &report, out)?;
    if !out.is_json() {
        let program = render::program();
        out.line(&format!("revert again: {program} revert {}", named(&session, &boundary)))?;
    }
    Ok(Done::of(report.is_complete()))
}

/// Returns the pending revert of `session`, or the newest pending revert if `session` is `None`.
pub(super) fn pending(place: &Place, session: Option<&str>) -> Result<RevertState, Failure> {
    let found = ctrlz_api::pending_revert(&place.workspace, session)?;
    found.ok_or_else(|| match session {
        Some(session) => ctrlz::Error::Session(ctrlz::SessionError::NothingReverted {
            session: session.to_owned(),
        })
        .into(),
        None => Failure::NothingReverted,
    })
}

/// Returns the options that select a boundary.
pub(super) fn named(session: &str, boundary: &Boundary) -> String {
    let Boundary { message, part } = boundary;
    let word = |text: &str| shell_word(text.as_bytes());
    let part = part.as_ref().map(|part| format!(" --part {}", word(part))).unwrap_or_default();
    format!("--session {} --message {}{part}", word(session), word(message))
}
