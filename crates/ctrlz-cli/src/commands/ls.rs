//! `ctrlz ls`: lists the files of a snapshot.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use ctrlz_api::ListedFile;
use ctrlz_api::methods::{self, ListParams};

use super::Done;
use crate::failure::Failure;
use crate::place::{Place, as_given};
use crate::render::{Ending, Output};

/// List the files of a snapshot
///
/// Prints paths relative to the work tree, one per line, byte for byte (with escapes on a
/// terminal).
#[derive(clap::Args, Debug)]
pub(crate) struct LsArgs {
    /// The snapshot: its hash, an operation, a checkpoint, `latest` or `resume`
    #[arg(value_name = "HASH")]
    hash: OsString,
    /// Print mode and id before each path
    #[arg(short = 'l')]
    long: bool,
    /// End paths with NUL instead of a line break
    #[arg(short = 'z')]
    nul: bool,
    /// List only these paths and everything below them
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &LsArgs, out: &mut Output) -> Result<Done, Failure> {
    let params = ListParams {
        hash: place.snapshot(&args.hash)?.into(),
        paths: as_given(&args.paths),
        limit: Some(u64::MAX),
        ..ListParams::default()
    };
    let found = place.read(methods::list_files, &params)?;
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    for ListedFile { path, mode, id } in &found.files {
        if args.long {
            write!(out, "{mode} {id} ")?;
        }
        out.path(path.as_bytes(), Ending::of(args.nul))?;
    }
    Ok(Done::Complete)
}
