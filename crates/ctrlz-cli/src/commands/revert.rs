//! `ctrlz revert`: takes single files back to the state they had in their snapshots.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use ctrlz::{PatchToRevert, PathText, RestoreOptions};
use serde::Deserialize;

use super::Done;
use super::restore::{Detail, show_plan, show_report};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::Output;

/// More than any list of changed files takes.
const MAX_PATCHES_BYTES: u64 = 256 << 20;

/// Take single files back, each to its own snapshot
///
/// Reads patches as `ctrlz patch --json` prints them: {"hash": …, "files": […]} or an array of
/// these. Where several name a file, the first one counts, so the oldest comes first. A file that
/// its snapshot has is put back, one that it proves absent is removed, and one that it cannot
/// speak of is kept and reported with exit code 3. The present state is recorded first.
#[derive(clap::Args, Debug)]
pub(crate) struct RevertArgs {
    /// Read the patches from FILE, or from standard input for -
    #[arg(long, value_name = "FILE|-")]
    patches: PathBuf,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
}

#[derive(Deserialize)]
struct PatchJson {
    hash: String,
    files: Vec<PathText>,
}

pub(crate) fn run(place: &Place, args: &RevertArgs, out: &mut Output) -> Result<Done, Failure> {
    // Everything is read and checked before anything is touched.
    let patches = parse(&read(&args.patches)?)?
        .into_iter()
        .map(|patch| to_revert(place, patch))
        .collect::<Result<Vec<PatchToRevert>, Failure>>()?;
    if args.dry_run {
        let plan = watched(|progress| place.workspace.plan_revert(&patches, progress))?;
        return show_plan(&plan, Detail::Named, out);
    }
    let options = RestoreOptions { allow_mass_removal: args.yes, ..RestoreOptions::default() };
    let report = watched(|progress| place.workspace.revert(&patches, &options, progress))?;
    show_report(&report, Detail::Named, out)
}

fn read(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let source: io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
        true => Ok(Box::new(io::stdin().lock())),
        false => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
    };
    let mut bytes = Vec::new();
    source
        .and_then(|source| source.take(MAX_PATCHES_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::file("read", path, error))?;
    if bytes.len() as u64 > MAX_PATCHES_BYTES {
        return Err(Failure::Patches { why: format!("more than {MAX_PATCHES_BYTES} bytes") });
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Vec<PatchJson>, Failure> {
    let is_array = bytes.trim_ascii_start().starts_with(b"[");
    let parsed = match is_array {
        true => serde_json::from_slice(bytes),
        false => serde_json::from_slice(bytes).map(|patch| vec![patch]),
    };
    parsed.map_err(|error| Failure::Patches { why: error.to_string() })
}

fn to_revert(place: &Place, patch: PatchJson) -> Result<PatchToRevert, Failure> {
    let hash = patch.hash.parse().map_err(Failure::from)?;
    let files = patch.files.into_iter().map(|file| place.file_of_root(&file.into_bytes()));
    Ok(PatchToRevert { hash, files: files.collect::<Result<_, _>>()? })
}
