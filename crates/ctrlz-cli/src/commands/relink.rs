//! `ctrlz relink`: reconnects a moved directory with its history.

use std::path::PathBuf;

use ctrlz::{Relinked, relink};

use super::Done;
use crate::config::Settings;
use crate::failure::Failure;
use crate::render::{self, Output};

/// Reconnect a moved or renamed directory with its history
///
/// A directory that was renamed on the same file system is recognized automatically. After a move
/// to another disk or a restored backup, this command declares that NEW is the directory recorded
/// at OLD. OLD need not exist; if the directory is still there, nothing is changed. If OLD and NEW
/// are the same, the history of the directory that was at this path before is taken over.
///
/// Example: ctrlz relink ~/old/project ~/new/project
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RelinkArgs {
    /// The path of the directory when it was recorded
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The present path of the directory
    #[arg(value_name = "NEW")]
    new: PathBuf,
}

pub(crate) fn run(
    settings: Settings,
    args: &RelinkArgs,
    out: &mut Output,
) -> Result<Done, Failure> {
    let relinked =
        relink(&settings.dir.join(&args.old), &settings.dir.join(&args.new), settings.options)?;
    if out.is_json() {
        out.json(&ctrlz_api::Relinked::from(&relinked))?;
        return Ok(Done::Complete);
    }
    let Relinked { from, root, already, snapshot, set_aside } = relinked;
    let (from, root) = (from.display(), root.display());
    out.line(&render::printable(&if already {
        format!("{root} has this history already")
    } else {
        format!("{root} has the history of {from}")
    }))?;
    if let Some(snapshot) = snapshot {
        out.line(&format!("newest snapshot {snapshot}"))?;
    }
    if let Some(log) = set_aside {
        out.line(&format!("what was recorded there before stays in the store as log {log}"))?;
    }
    Ok(Done::Complete)
}
