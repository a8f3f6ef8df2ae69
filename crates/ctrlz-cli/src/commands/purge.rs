//! `ctrlz purge`: takes a path out of every snapshot, for good.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ctrlz::{PurgeOptions, PurgeReport};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Take a file or directory out of every snapshot, for good
///
/// For what should never have been recorded, such as a secret. Removes its content from all
/// snapshots of all work trees that share the store. The files of the work tree are not touched;
/// what is still there is recorded again unless you exclude it. This cannot be undone, so it
/// needs --yes.
#[derive(clap::Args, Debug)]
pub(crate) struct PurgeArgs {
    /// The path
    path: PathBuf,
    /// Take the same content away under other names too
    #[arg(long)]
    everywhere: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &PurgeArgs, out: &mut Output) -> Result<Done, Failure> {
    let path = place.file(args.path.as_os_str().as_bytes())?;
    if !args.yes {
        return Err(Failure::NotConfirmed { path });
    }
    let options = PurgeOptions { everywhere: args.everywhere };
    let report = watched(|progress| place.workspace.purge(&path, options, progress))?;
    if report.still_there {
        render::note(&format!("{path} is still there, and the next snapshot records it again"));
        render::note("remove it, or name it in `exclude` in the configuration");
    }
    if out.is_json() {
        out.json(&ctrlz_wire::PurgeReport::from(&report))?;
        return Ok(Done::Complete);
    }
    let PurgeReport { snapshots, contents, same_content, .. } = &report;
    out.line(&format!("{contents} contents taken out of {} snapshots", snapshots.len()))?;
    for (old, new) in snapshots {
        out.line(&format!("{old} is {new} now"))?;
    }
    for other in same_content {
        out.line(&format!("the same content is at {other}; --everywhere takes that away too"))?;
    }
    Ok(Done::Complete)
}
