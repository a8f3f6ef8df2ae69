//! `ctrlz unrevert`: takes a session's revert back.

use ctrlz::{Boundary, RevertState, UndoOptions};

use super::Done;
use super::undo::{refuse_mass_removal, show, show_plan};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output, shell_word};

/// Take a revert back, as long as it is not final
///
/// The files become what they were before `ctrlz revert --message`; what you edited since is
/// merged by line, and a file whose changes do not merge stays as it is and is marked with !.
/// Exit code 3 means that something stayed. After new work of the session or `revert --commit`
/// there is nothing to unrevert; `ctrlz redo` then still brings the files back.
#[derive(clap::Args, Debug)]
pub(crate) struct UnrevertArgs {
    /// The session; by default, the one that was reverted last
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Take the version of before the revert where changes do not merge
    #[arg(long)]
    force: bool,
    /// Also bring back changes of ignored files that no tool named
    #[arg(long)]
    ignored: bool,
    /// First close the session's open steps, if its agent is gone or should not go on
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
        let report = watched(|progress| workspace.plan_unrevert(&session, &options, progress))?;
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

/// The revert of a session, or without one, the newest revert that is not final.
pub(super) fn pending(place: &Place, session: Option<&str>) -> Result<RevertState, Failure> {
    let found = ctrlz_wire::pending_revert(&place.workspace, session)?;
    found.ok_or_else(|| match session {
        Some(session) => ctrlz::Error::NothingReverted { session: session.to_owned() }.into(),
        None => Failure::NothingReverted,
    })
}

/// The options that name a boundary.
pub(super) fn named(session: &str, boundary: &Boundary) -> String {
    let Boundary { message, part } = boundary;
    let word = |text: &str| shell_word(text.as_bytes());
    let part = part.as_ref().map(|part| format!(" --part {}", word(part))).unwrap_or_default();
    format!("--session {} --message {}{part}", word(session), word(message))
}
