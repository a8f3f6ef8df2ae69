//! `ctrlz relink`: a moved directory gets its history back.

use std::path::PathBuf;

use ctrlz::{Relinked, relink};

use super::Done;
use crate::config::Settings;
use crate::failure::Failure;
use crate::render::{self, Output};

/// Give a moved or renamed directory its history back
///
/// A directory that was renamed on the same file system is known again by itself. After a move to
/// another disk or a restored backup, this says that NEW is what was recorded at OLD. OLD need not
/// exist; if the directory is still there, nothing is changed. With OLD and NEW the same, the
/// history of a directory that was at this path before is taken over.
///
/// Example: ctrlz relink ~/old/project ~/new/project
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RelinkArgs {
    /// Where the directory was when it was recorded
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Where it is now
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
        out.json(&relinked)?;
        return Ok(Done::Complete);
    }
    let Relinked { from, root, already, snapshot, set_aside } = relinked;
    let (from, root) = (from.display(), root.display());
    out.line(&render::printable(&match already {
        true => format!("{root} has this history already"),
        false => format!("{root} has the history of {from}"),
    }))?;
    if let Some(snapshot) = snapshot {
        out.line(&format!("newest snapshot {snapshot}"))?;
    }
    if let Some(log) = set_aside {
        out.line(&format!("what was recorded there before stays in the store as log {log}"))?;
    }
    Ok(Done::Complete)
}
