//! `ctrlz track`: records the work tree and prints the snapshot's hash.

use std::path::PathBuf;

use ctrlz::TrackOptions;
use ctrlz_wire::Snapshot;

use super::{Done, absorb, gc, watch};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Record the work tree and print the snapshot's hash
///
/// Prints the hash alone on standard output. Unchanged files are not read again, and if nothing
/// changed the hash is the same and nothing is written. What is left out is listed on standard
/// error with the reason: files that policy leaves out (new and very large ones, devices) end in
/// exit code 0, files that could not be read in exit code 3.
#[derive(clap::Args, Debug)]
pub(crate) struct TrackArgs {
    /// Read every file instead of trusting timestamps
    #[arg(long)]
    rehash: bool,
    /// Look only at these paths and take the rest from the previous snapshot
    ///
    /// A file named here is captured even if it is ignored or large.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &TrackArgs, out: &mut Output) -> Result<Done, Failure> {
    let options = TrackOptions { paths: place.paths(&args.paths)?, rehash: args.rehash };
    let snapshot = watched(|progress| place.workspace.track(&options, progress))?;
    let complete = snapshot.is_complete();
    render::skipped(&snapshot.skipped);
    if let Some(mark) = snapshot.quota_mark {
        render::note(&format!("{mark} % of the quota are used; `ctrlz du` shows by what"));
    }
    if let Some(path) = &snapshot.wrong_index {
        render::note(&render::wrong_index(path));
    }
    if out.is_json() {
        out.json(&Snapshot::from(&snapshot))?;
    } else {
        out.line(&snapshot.hash.to_string())?;
    }
    // Whoever waits for the hash need not wait for the copying.
    out.finish()?;
    if snapshot.borrowed > 0 {
        absorb::begin_aside(place, snapshot.borrowed);
    }
    if !snapshot.watched {
        watch::begin(place);
    }
    gc::begin_if_due(place);
    Ok(Done::of(complete))
}
