//! `ctrlz track`: records the work tree and prints the snapshot's hash.

use std::path::PathBuf;

use ctrlz_api::methods::{self, TrackParams};

use super::{Done, copy_borrowed, gc, watch};
use crate::failure::Failure;
use crate::place::{Place, as_given};
use crate::render::{self, Output};

/// Record the work tree and print the snapshot's hash
///
/// Prints only the hash on standard output. Unchanged files are not read again, and if nothing
/// changed the hash is the same and nothing is written. Skipped paths are listed on standard error
/// with the reason. The exit code is 0 if they were skipped by policy (new and very large files,
/// devices), and 3 if files could not be read.
#[derive(clap::Args, Debug)]
pub(crate) struct TrackArgs {
    /// Read every file instead of trusting timestamps
    #[arg(long)]
    rehash: bool,
    /// Rescan only these paths and take the rest from the previous snapshot
    ///
    /// A file named here is captured even if it is ignored or large.
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &TrackArgs, out: &mut Output) -> Result<Done, Failure> {
    let params = TrackParams { paths: as_given(&args.paths), rehash: args.rehash };
    let snapshot = place.call(methods::track, &params)?;
    render::skipped(&snapshot.skipped);
    if let Some(mark) = snapshot.quota_mark {
        render::note(&format!("{mark} % of the quota are used; `ctrlz du` shows by what"));
    }
    if let Some(path) = &snapshot.wrong_index {
        render::note(&render::wrong_index(path));
    }
    if out.is_json() {
        out.json(&snapshot)?;
    } else {
        out.line(&snapshot.hash.to_string())?;
    }
    // The caller gets the hash before the copying begins.
    out.finish()?;
    if snapshot.borrowed > 0 {
        copy_borrowed::begin_aside(place, snapshot.borrowed);
    }
    if !snapshot.watched {
        watch::begin(place);
    }
    gc::begin_if_due(place);
    Ok(Done::of(snapshot.complete))
}
