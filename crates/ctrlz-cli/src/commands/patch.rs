//! `ctrlz patch`: lists the files that changed since a snapshot.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use ctrlz_api::{Patch, Skipped, WirePath};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Ending, Output};

/// List the files that changed since a snapshot
///
/// Records the work tree first. Prints absolute paths, one per line, byte for byte (with escapes on
/// a terminal). Renames are not detected: a file that moved is listed under both names. `ctrlz
/// revert --patches` reads the output of `ctrlz patch --json`.
#[derive(clap::Args, Debug)]
pub(crate) struct PatchArgs {
    /// The snapshot to compare with: its hash, an operation, a checkpoint, `latest` or `resume`
    #[arg(value_name = "HASH")]
    hash: OsString,
    /// Print paths relative to the work tree
    #[arg(long)]
    relative: bool,
    /// End paths with NUL instead of a line break
    #[arg(short = 'z')]
    nul: bool,
}

pub(crate) fn run(place: &Place, args: &PatchArgs, out: &mut Output) -> Result<Done, Failure> {
    let hash = place.snapshot(&args.hash)?;
    let patch = watched(|progress| place.workspace.patch(&hash, progress))?;
    let complete = !patch.skipped.iter().any(|skipped| skipped.reason.is_failure());
    if !complete {
        render::skipped(&patch.skipped);
    }
    let done = Done::of(complete);
    let files: Vec<Vec<u8>> = if args.relative {
        patch.files.iter().map(|file| file.as_bytes().to_vec()).collect()
    } else {
        patch.absolute().map(|file| file.as_os_str().as_bytes().to_vec()).collect()
    };
    if out.is_json() {
        let skipped = patch.skipped.iter().map(Skipped::from).collect();
        let files = files.into_iter().map(WirePath::from_bytes).collect();
        out.json(&Patch { hash: hash.into(), files, complete, skipped })?;
        return Ok(done);
    }
    for file in &files {
        out.path(file, Ending::of(args.nul))?;
    }
    Ok(done)
}
