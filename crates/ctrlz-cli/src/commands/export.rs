//! `ctrlz export`: writes snapshots and sessions into one file.

use std::path::PathBuf;

use ctrlz::ExportOptions;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::Output;

/// Write snapshots and sessions into one file
///
/// The file is a git bundle with a manifest: `ctrlz import` reads it in another directory or on
/// another machine, and `git clone FILE` reads it too. It contains no path of this machine, and no
/// ignored files unless --ignored is given.
///
/// Example: ctrlz export project.bundle
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ExportArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also export the ignored files that are kept beside snapshots
    #[arg(long)]
    ignored: bool,
    /// Export only the part of the log that involves this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Leave PATH out of every snapshot; snapshots that held it get another hash and are marked
    #[arg(long, value_name = "PATH")]
    redact: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &ExportArgs, out: &mut Output) -> Result<Done, Failure> {
    let options = ExportOptions {
        ignored: args.ignored,
        session: args.session.clone(),
        redact: place.paths(&args.redact)?,
    };
    let file = place.dir().join(&args.file);
    let transfer = place.workspace().transfer();
    let exported = watched(|progress| transfer.export(&file, &options, progress))?;
    if out.is_json() {
        out.json(&ctrlz_api::Exported::from(&exported))?;
        return Ok(Done::Complete);
    }
    let (operations, sessions) = (exported.operations, exported.sessions.len());
    out.line(&format!(
        "{operations} operations of {sessions} sessions, {} bytes; newest snapshot {}",
        exported.bytes, exported.snapshot
    ))?;
    Ok(Done::Complete)
}
