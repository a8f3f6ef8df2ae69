//! `ctrlz pull`: pulls snapshots and sessions from a git server.

use std::ffi::OsString;

use ctrlz::{OnPurged, PulledLog};

use super::Done;
use crate::failure::Failure;
use crate::git::{self, Ignored};
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Pull snapshots and sessions from a git server
///
/// Git fetches them into a separate repository, and everything is checked before it is used. Pulled
/// logs are kept beside the local one and listed by `sessions`; their snapshots can be used
/// wherever a hash is expected. No file changes: on a new machine, `ctrlz restore` then restores
/// the newest state. Exit code 3 means that a log was skipped because it has diverged from the
/// local one of the same name.
///
/// Example: ctrlz pull git@host:snapshots/project.git && ctrlz restore
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct PullArgs {
    /// The server's address, or the name of a remote
    #[arg(value_name = "REMOTE")]
    remote: OsString,
    /// Also pull ignored files, if they were pushed
    #[arg(long)]
    ignored: bool,
    /// Accept logs with purged content; by default, they are refused
    #[arg(long)]
    allow_purged: bool,
}

pub(crate) fn run(place: &Place, args: &PullArgs, out: &mut Output) -> Result<Done, Failure> {
    let transfer = place.workspace().transfer();
    let exchange = transfer.begin_pull()?;
    let address = git::address(exchange.git_dir(), place.root(), &args.remote)?;
    let ignored = if args.ignored { Ignored::Too } else { Ignored::Not };
    git::fetch(exchange.git_dir(), &address, ignored)?;
    let from = git::shown(&address.text);
    let on_purged = if args.allow_purged { OnPurged::Allow } else { OnPurged::Refuse };
    let pulled = watched(|progress| transfer.finish_pull(&exchange, &from, on_purged, progress))?;
    let complete = pulled.diverged.is_empty();
    for log in &pulled.diverged {
        render::note(&format!("log {log} has parted from the one here and was left alone"));
    }
    if out.is_json() {
        out.json(&ctrlz_api::Pulled::from(&pulled))?;
        return Ok(Done::of(complete));
    }
    for PulledLog { log, operations, snapshot } in &pulled.logs {
        let newest = snapshot.map(|id| format!("; newest snapshot {id}")).unwrap_or_default();
        out.line(&format!("log {log}: {operations} new operations{newest}"))?;
    }
    if pulled.logs.is_empty() {
        out.line("nothing new")?;
    }
    Ok(Done::of(complete))
}
