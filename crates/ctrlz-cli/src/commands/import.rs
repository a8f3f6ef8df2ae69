//! `ctrlz import`: takes over what `export` wrote.

use std::path::PathBuf;

use ctrlz::OnPurged;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Take over the snapshots and sessions of a file that `export` wrote
///
/// Everything in the file is checked before anything of it is used. Where nothing was recorded yet
/// it becomes this directory's history, and undo goes on; otherwise it stands beside it. No file
/// changes: `ctrlz restore` then brings the newest state back. Importing twice is importing once.
///
/// Example: ctrlz import project.bundle && ctrlz restore
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ImportArgs {
    /// The file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take over a log that brings purged content back; by default, it is refused
    #[arg(long)]
    allow_purged: bool,
}

pub(crate) fn run(place: &Place, args: &ImportArgs, out: &mut Output) -> Result<Done, Failure> {
    let file = place.dir().join(&args.file);
    let on_purged = if args.allow_purged { OnPurged::Allow } else { OnPurged::Refuse };
    let imported = watched(|progress| place.workspace.import(&file, on_purged, progress))?;
    if out.is_json() {
        out.json(&imported)?;
        return Ok(Done::Complete);
    }
    let whose = match imported.own {
        true => "the history of this directory".to_owned(),
        false => format!("log {}, beside the one of this directory", imported.log),
    };
    out.line(&format!("{} new operations in {whose}", imported.operations))?;
    out.line(&format!("newest snapshot {}", imported.snapshot))?;
    for path in &imported.redacted {
        render::note(&format!("left out when it was exported: {path}"));
    }
    Ok(Done::Complete)
}
