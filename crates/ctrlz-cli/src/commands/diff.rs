//! `ctrlz diff`: what differs between two snapshots, or a snapshot and now.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use ctrlz::{Change, ChangeStatus, FileDiff, ObjectId, TrackOptions, TreePath};
use serde_json::json;

use super::Done;
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::progress::watched;
use crate::render::{self, Output};

/// Show what changed since a snapshot, or between two
///
/// Without TO the work tree is recorded first and compared. The text is byte-exact and accepted
/// by `git apply`. With --full and --json, prints an array with both texts of every file; with
/// --full alone, a table of added and removed lines; with --json alone, the changed paths.
#[derive(clap::Args, Debug)]
pub(crate) struct DiffArgs {
    /// The earlier snapshot
    #[arg(value_name = "HASH")]
    from: OsString,
    /// The later snapshot; the present state if left out
    #[arg(value_name = "TO")]
    to: Option<OsString>,
    /// Count lines per file, or with --json give both texts
    #[arg(long)]
    full: bool,
    /// Show only these paths
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &DiffArgs, out: &mut Output) -> Result<Done, Failure> {
    let from = hash(&args.from)?;
    let to = args.to.as_deref().map(hash).transpose()?;
    let paths = place.paths(&args.paths)?;
    let (to, done) = match to {
        Some(to) => (to, Done::Complete),
        None => now(place, &from)?,
    };
    match (args.full, out.is_json()) {
        (false, false) => place.workspace.diff(&from, &to, &paths, out)?,
        (false, true) => write_paths(place, &from, &to, &paths, out)?,
        (true, false) => write_counts(place, &from, &to, &paths, out)?,
        (true, true) => write_texts(place, &from, &to, &paths, out)?,
    }
    Ok(done)
}

/// Records the present state, to compare it with `from`.
fn now(place: &Place, from: &ObjectId) -> Result<(ObjectId, Done), Failure> {
    // An unknown hash must not cost a snapshot.
    place.workspace.check_snapshot(from)?;
    let options = TrackOptions::default();
    let snapshot = watched(|progress| place.workspace.track(&options, progress))?;
    let complete = snapshot.is_complete();
    if !complete {
        render::skipped(&snapshot.skipped);
    }
    Ok((snapshot.hash, Done::of(complete)))
}

fn write_paths(
    place: &Place,
    from: &ObjectId,
    to: &ObjectId,
    paths: &[TreePath],
    out: &mut Output,
) -> Result<(), Failure> {
    let changes = place.workspace.changes(from, to)?;
    let asked =
        |change: &&Change| paths.is_empty() || paths.iter().any(|path| change.path.is_within(path));
    let files: Vec<_> = changes
        .iter()
        .filter(asked)
        .map(|change| json!({ "path": change.path, "status": change.status() }))
        .collect();
    out.json(&json!({ "from": from, "to": to, "files": files }))
}

fn write_counts(
    place: &Place,
    from: &ObjectId,
    to: &ObjectId,
    paths: &[TreePath],
    out: &mut Output,
) -> Result<(), Failure> {
    for file in place.workspace.diff_full(from, to, paths)? {
        let FileDiff { file, status, additions, deletions, binary, .. } = file?;
        let status = match status {
            ChangeStatus::Added => "added",
            ChangeStatus::Deleted => "deleted",
            ChangeStatus::Modified => "modified",
        };
        let counts = if binary { "binary".into() } else { format!("+{additions} -{deletions}") };
        out.line(&format!("{counts:<12} {status:<8} {file}"))?;
    }
    Ok(())
}

/// Writes the array item by item: the texts of a large change do not fit into memory at once.
fn write_texts(
    place: &Place,
    from: &ObjectId,
    to: &ObjectId,
    paths: &[TreePath],
    out: &mut Output,
) -> Result<(), Failure> {
    let diffs = place.workspace.diff_full(from, to, paths)?;
    out.write_all(b"[")?;
    for (index, file) in diffs.enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &file?)?;
    }
    out.line("]")
}
