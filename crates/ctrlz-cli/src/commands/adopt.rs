//! `ctrlz adopt`: imports the history of a store that is not trusted.

use std::path::PathBuf;

use super::Done;
use crate::detached;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output, printable};

/// Import the snapshots of a store or bare git repository that is not trusted
///
/// A store inside a project is used directly only if this user's data directory recorded its
/// creation. Any other one, for example of a cloned project, is set aside as NAME.untrusted-DATE,
/// and its history is imported: checked object by object, without reading its configuration, hooks
/// or links. This command does the same for the directory PATH, which is only read. Without PATH it
/// finishes a pending import. Everything that fails the checks is left out and listed (exit 3).
///
/// Example: ctrlz adopt ../old-checkout/.agent/snapshots
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct AdoptArgs {
    /// The store to read
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Run detached from the command that started this one
    #[arg(long, hide = true)]
    background: bool,
}

impl AdoptArgs {
    pub(crate) fn is_detached(&self) -> bool {
        self.background
    }
}

pub(crate) fn run(place: &Place, args: &AdoptArgs, out: &mut Output) -> Result<Done, Failure> {
    let transfer = place.workspace().transfer();
    let adopted = match &args.path {
        Some(path) => {
            let path = place.dir().join(path);
            Some(watched(|progress| transfer.adopt(&path, progress))?)
        }
        None => watched(|progress| transfer.finish_adoption(progress))?,
    };
    let Some(adopted) = adopted else {
        out.line("no import is pending")?;
        return Ok(Done::Complete);
    };
    if out.is_json() {
        out.json(&ctrlz_api::Adopted::from(&adopted))?;
    } else {
        let from = printable(&adopted.from.to_string_lossy());
        out.line(&format!(
            "{} operations and {} other snapshots imported from {from}",
            adopted.operations, adopted.snapshots
        ))?;
        for left in &adopted.left_out {
            render::note(&format!("left out: {left}"));
        }
    }
    Ok(if adopted.left_out.is_empty() { Done::Complete } else { Done::Incomplete })
}

/// Starts a detached process for a pending import. Errors are ignored: the next command tries
/// again.
pub(crate) fn begin(place: &Place) {
    if matches!(place.workspace().transfer().has_pending_adoption(), Ok(true)) {
        detached::start(place, &["adopt", "--background"]).ok();
    }
}
