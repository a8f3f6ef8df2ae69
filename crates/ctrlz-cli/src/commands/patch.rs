//! `ctrlz patch`: lists the files that changed since a snapshot.

use std::ffi::OsString;

use ctrlz_api::methods::{self, PatchParams};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
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
    let hash = place.snapshot(&args.hash)?.into();
    let params = PatchParams { hash, to: None, relative: args.relative };
    let patch = place.call(methods::patch, &params)?;
    let done = Done::of(patch.complete);
    if !patch.complete {
        render::skipped(&patch.skipped);
    }
    if out.is_json() {
        out.json(&patch)?;
        return Ok(done);
    }
    for file in &patch.files {
        out.path(file.as_bytes(), Ending::of(args.nul))?;
    }
    Ok(done)
}
