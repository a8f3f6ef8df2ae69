//! `ctrlz unrevert`: reverses the revert of a session.

use ctrlz_api::methods::{self, RevertStateParams, UnrevertParams};
use ctrlz_api::{Boundary, RevertState};

use super::Done;
use super::undo::{show, show_plan};
use crate::failure::Failure;
use crate::place::Place;
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
    let session = args.session.clone();
    let before = place.read(methods::revert_state, &RevertStateParams { session })?.reverted;
    let params = UnrevertParams {
        // The session that the last line names.
        session: before.as_ref().map(|state| state.session.clone()).or(args.session.clone()),
        force: args.force,
        ignored: args.ignored,
        interrupt: args.interrupt,
        allow_mass_removal: args.yes,
        ..UnrevertParams::default()
    };
    if args.dry_run {
        let report = place.plan(methods::plan_unrevert, &params)?;
        return show_plan(place, "would bring back", &report, args.yes, out);
    }
    let report = place.call(methods::unrevert, &params)?;
    show(place, "brought back", &report, out)?;
    if let Some(RevertState { session, boundary, .. }) = before.filter(|_| !out.is_json()) {
        let program = render::program();
        out.line(&format!("revert again: {program} revert {}", named(&session, &boundary)))?;
    }
    Ok(Done::of(report.complete))
}

/// Returns the options that select a boundary.
fn named(session: &str, boundary: &Boundary) -> String {
    let Boundary { message, part } = boundary;
    let word = |text: &str| shell_word(text.as_bytes());
    let part = part.as_ref().map(|part| format!(" --part {}", word(part))).unwrap_or_default();
    format!("--session {} --message {}{part}", word(session), word(message))
}
