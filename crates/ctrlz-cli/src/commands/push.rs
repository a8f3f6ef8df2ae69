//! `ctrlz push`: pushes snapshots and sessions to a git server.

use std::ffi::OsString;

use super::Done;
use crate::failure::Failure;
use crate::git;
use crate::place::Place;
use crate::render::Output;

/// Push snapshots and sessions to a git server
///
/// Git transfers them, with your keys and credential helpers. REMOTE is an address, the name of
/// a remote of your own repository, or a path that starts with ./, ../ or /. Many machines and sandboxes can push to one repository, even
/// with the same path: each writes under a name of its own and never overwrites another's. Only new
/// operations are sent. Ignored files are not sent unless --ignored is given.
///
/// Example: ctrlz push git@host:snapshots/project.git
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct PushArgs {
    /// The server's address, or the name of a remote
    #[arg(value_name = "REMOTE")]
    remote: OsString,
    /// Also push the ignored files that are kept beside snapshots
    #[arg(long)]
    ignored: bool,
    /// Continue under a new name, for a data directory that was copied from another machine
    #[arg(long)]
    as_new: bool,
}

pub(crate) fn run(place: &Place, args: &PushArgs, out: &mut Output) -> Result<Done, Failure> {
    let transfer = place.workspace().transfer();
    let nothing = || {
        ctrlz::Error::Exchange(ctrlz::ExchangeError::NoHistory { path: place.root().to_owned() })
    };
    if args.as_new {
        transfer.continue_as_new()?;
    }
    let log = transfer.log_name()?.ok_or_else(nothing)?;
    let exchange = transfer.begin_push()?;
    let address = git::address(exchange.git_dir(), place.root(), &args.remote)?;
    let there = git::list(exchange.git_dir(), &address, &log)?;
    let push = transfer.plan_push(&there, args.ignored)?;
    if !push.updates.is_empty() {
        git::push(exchange.git_dir(), &address, &push)?;
        transfer.note_pushed(&push)?;
    }
    let (refs, operations) = (push.updates.len(), push.operations);
    if out.is_json() {
        let remote = git::shown(&address.text);
        out.json(&ctrlz_api::Pushed { remote, log, operations, refs })?;
        return Ok(Done::Complete);
    }
    out.line(&match refs {
        0 => format!("log {log}: the server has everything"),
        _ => format!("log {log}: {operations} new operations"),
    })?;
    Ok(Done::Complete)
}
