//! `ctrlz import`: imports a file written by `export`.

use std::path::PathBuf;

use ctrlz::OnPurged;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Import the snapshots and sessions of a file written by `export`
///
/// Everything in the file is checked before it is used. If nothing was recorded here yet, it
/// becomes the history of this directory, and undo can go back into it. Otherwise it is kept beside
/// the existing history. No file changes: `ctrlz restore` then restores the newest state. Importing
/// the same file again has no effect.
///
/// Example: ctrlz import project.bundle && ctrlz restore
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ImportArgs {
    /// The file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Accept a log with purged content; by default, it is refused
    #[arg(long)]
    allow_purged: bool,
}

pub(crate) fn run(place: &Place, args: &ImportArgs, out: &mut Output) -> Result<Done, Failure> {
    let file = place.dir().join(&args.file);
    let on_purged = if args.allow_purged { OnPurged::Allow } else { OnPurged::Refuse };
    let transfer = place.workspace().transfer();
    let imported = watched(|progress| transfer.import(&file, on_purged, progress))?;
    if out.is_json() {
        out.json(&ctrlz_api::Imported::from(&imported))?;
        return Ok(Done::Complete);
    }
    let whose = if imported.own {
        "the history of this directory".to_owned()
    } else {
        format!("log {}, beside the one of this directory", imported.log)
    };
    out.line(&format!("{} new operations in {whose}", imported.operations))?;
    out.line(&format!("newest snapshot {}", imported.snapshot))?;
    for path in &imported.redacted {
        render::note(&format!("left out when it was exported: {path}"));
    }
    Ok(Done::Complete)
}
