//! `ctrlz ls`: lists the files of a snapshot.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use ctrlz::ListedFile;
use ctrlz_api::Files;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
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
    let hash = place.snapshot(&args.hash)?;
    let paths = place.paths(&args.paths)?;
    let mut files = place.workspace.files(&hash)?;
    files.retain(|file| paths.is_empty() || paths.iter().any(|path| file.path.is_within(path)));
    if out.is_json() {
        let files: Vec<_> = files.iter().map(ctrlz_api::ListedFile::from).collect();
        let total = files.len() as u64;
        out.json(&Files { hash: hash.into(), files, total, next: None })?;
        return Ok(Done::Complete);
    }
    for ListedFile { path, mode, id } in &files {
        if args.long {
            write!(out, "{mode} {id} ")?;
        }
        out.path(path.as_bytes(), Ending::of(args.nul))?;
    }
    Ok(Done::Complete)
}
