//! `ctrlz fork`: creates a session that continues from an earlier state of another one.

use std::path::PathBuf;

use ctrlz_api::Fork;
use ctrlz_api::methods::{self, ForkParams};

use super::Done;
use super::restore::{Detail, show_kept};
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output, printable, shell_word};

/// Create a session that continues from an earlier state of another one
///
/// The new session shares everything that SESSION did before the message. Undo in the new session
/// can go back into the shared part, and never affects what SESSION did later. With --into, the
/// files of that state are copied into a new directory, so that both can work at the same time.
/// Without it, no file is changed.
///
/// Example: ctrlz fork main --at 7 --into ../other-way
#[derive(clap::Args, Debug)]
pub(crate) struct ForkArgs {
    /// The session to fork
    #[arg(value_name = "SESSION")]
    session: String,
    /// Do not share MESSAGE and later ones; by default, the fork shares everything
    #[arg(long, value_name = "MESSAGE")]
    at: Option<String>,
    /// Use ID for the new session; by default, a new one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Copy the files into DIR, which must be new or empty and outside the work tree
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &ForkArgs, out: &mut Output) -> Result<Done, Failure> {
    let params = ForkParams {
        session: args.session.clone(),
        at: args.at.clone(),
        id: args.id.clone(),
        into: args.into.as_ref().map(|into| into.as_path().into()),
    };
    let fork = place.call(methods::fork, &params)?;
    let done = Done::of(fork.complete);
    if out.is_json() {
        out.json(&fork)?;
        return Ok(done);
    }
    let Fork { session, forked, into, report, .. } = &fork;
    let at = forked.message.as_ref().map(|message| format!(" before message {message}"));
    let origin = format!("{}{}", forked.session, at.unwrap_or_default());
    out.line(&printable(&format!("session {session} goes on from {origin}")))?;
    match (into, report) {
        (Some(into), Some(report)) => {
            let files = render::files(report.done.len());
            out.line(&format!("{files} in {into}"))?;
            show_kept(&report.kept, Detail::Named, out)?;
        }
        _ => {
            let (word, program) = (shell_word(forked.operation.as_bytes()), render::program());
            out.line(&format!("no file was touched; its state: {program} restore --exact {word}"))?;
        }
    }
    Ok(done)
}
