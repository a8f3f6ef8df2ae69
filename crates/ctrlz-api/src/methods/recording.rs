//! Methods that take a snapshot: `track`, `patch`, and comparisons with the present state.

use ctrlz::{Diffs, ObjectId, TrackOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use super::part::Part;
use super::{OF_HASHES, OF_PATHS, page};
use crate::error::MethodError;
use crate::method::{Call, Method, Permanence};
use crate::path::{Hash, WirePath, bounded};
use crate::snapshot::{
    Change, Changes, Diff, DiffFull, Patch, Skipped, Snapshot, StepDiff, StepDiffFull, is_complete,
};
use crate::wire::Wire;

pub(super) fn table() -> Vec<Method> {
    vec![
        Method::records("track", "Records the work tree, or only some of its paths. Returns the hash of the snapshot.", track).errors(&["not_a_tree_path", "over_budget", "over_quota", "no_space"]),
        Method::records("patch", "Lists the files that changed since a snapshot, up to now or up to another one.", patch).errors(OF_HASHES).lasts(Permanence::Permanent),
        Method::records("changes", "Lists the differences between a snapshot and now or another snapshot, with relative paths and a status.", changes).errors(OF_HASHES).errors(OF_PATHS).lasts(Permanence::Permanent),
        Method::records("diff", "Returns the differences as text that `git apply` accepts.", diff).errors(OF_HASHES).errors(OF_PATHS).lasts(Permanence::Permanent),
        Method::records("diff_full", "Returns every file that differs, with both texts and line counts.", diff_full).errors(OF_HASHES).errors(OF_PATHS).lasts(Permanence::Permanent),
    ]
}

/// Parameters of `track`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrackParams {
    /// Paths to rescan; everything else is taken from the previous snapshot. A file named here is
    /// captured even if it is ignored or large. Default: everything.
    #[serde(default, deserialize_with = "bounded")]
    pub paths: Vec<WirePath>,
    /// Whether to read every file instead of trusting timestamps.
    #[serde(default)]
    pub rehash: bool,
}

/// Runs the method `track`.
pub fn track(call: &Call<'_>, params: &TrackParams) -> Result<Snapshot, MethodError> {
    let TrackParams { paths, rehash } = params;
    let options = TrackOptions { paths: call.paths(paths)?, rehash: *rehash };
    let snapshot = call.workspace.track(&options, call.progress)?;
    call.borrowing.set(snapshot.borrowed > 0);
    Ok(Snapshot::from(&snapshot))
}

/// Parameters of `patch`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchParams {
    /// The earlier snapshot.
    pub hash: Hash,
    /// The later snapshot. Default: the present state, which is recorded.
    pub to: Option<Hash>,
    /// Whether to return paths relative to the work tree instead of absolute ones.
    #[serde(default)]
    pub relative: bool,
}

/// Runs the method `patch`.
pub fn patch(call: &Call<'_>, params: &PatchParams) -> Result<Patch, MethodError> {
    let hash = call.snapshot(&params.hash)?;
    let root = call.workspace.root();
    let path = |path: &ctrlz::TreePath| {
        if params.relative { path.into() } else { root.join(path.as_path()).as_path().into() }
    };
    if params.to.is_none() && !call.hide_ignored {
        let found = call.workspace.patch(&hash, call.progress)?;
        return Ok(Patch {
            hash: hash.into(),
            files: found.files.iter().map(path).collect(),
            complete: is_complete(&found.skipped),
            skipped: found.skipped.wire(),
        });
    }
    // Files that the later snapshot lacks only because they are ignored now are not changes here.
    let Later { to, skipped, complete } = later(call, &hash, params.to.as_ref())?;
    let changes = call.workspace.changes(&hash, &to)?;
    let files = changes.iter().map(|change| path(&change.path)).collect();
    Ok(Patch { hash: hash.into(), files, complete, skipped })
}

/// The later of two snapshots.
struct Later {
    to: ObjectId,
    complete: bool,
    skipped: Vec<Skipped>,
}

/// Returns the named snapshot, or records the present state.
fn later(call: &Call<'_>, from: &ObjectId, to: Option<&Hash>) -> Result<Later, MethodError> {
    if let Some(to) = to {
        return Ok(Later { to: call.snapshot(to)?, complete: true, skipped: Vec::new() });
    }
    // An unknown hash must fail before the snapshot is taken.
    call.workspace.check_snapshot(from)?;
    let snapshot = call.workspace.track(&TrackOptions::default(), call.progress)?;
    call.borrowing.set(snapshot.borrowed > 0);
    let (complete, skipped) = (snapshot.is_complete(), snapshot.skipped.wire());
    Ok(Later { to: snapshot.hash, complete, skipped })
}

/// Parameters of `changes`, `diff` and `diff_full`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareParams {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot. Default: the present state, which is recorded. Set it when reading
    /// further pages with `offset`, because the list may change otherwise.
    pub to: Option<Hash>,
    /// Paths to compare, including everything below them. Default: everything.
    #[serde(default, deserialize_with = "bounded")]
    pub paths: Vec<WirePath>,
    /// Number of files to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    pub limit: Option<u64>,
    /// Maximum size of the text to return in bytes, in whole files. Default: 16 MiB.
    pub max_bytes: Option<u64>,
}

/// Runs the method `changes`.
pub fn changes(call: &Call<'_>, params: &CompareParams) -> Result<Changes, MethodError> {
    let from = call.snapshot(&params.from)?;
    let paths = call.paths(&params.paths)?;
    let Later { to, .. } = later(call, &from, params.to.as_ref())?;
    let mut changes = call.workspace.changes(&from, &to)?;
    changes
        .retain(|change| paths.is_empty() || paths.iter().any(|path| change.path.is_within(path)));
    let (changes, total, next) = page(changes, params.offset, params.limit);
    let files = changes.iter().map(Change::from).collect();
    Ok(Changes { from: from.into(), to: to.into(), files, total, next })
}

fn diffs(call: &Call<'_>, params: &CompareParams) -> Result<Compared, MethodError> {
    let from = call.snapshot(&params.from)?;
    let paths = call.paths(&params.paths)?;
    let Later { to, .. } = later(call, &from, params.to.as_ref())?;
    let diffs = call.workspace.diff_full(&from, &to, &paths)?;
    let CompareParams { offset, limit, max_bytes, .. } = *params;
    Ok(Compared { from, to, diffs, part: Part { offset, limit, max_bytes } })
}

/// Two snapshots, their differences, and the requested part of them.
struct Compared {
    from: ObjectId,
    to: ObjectId,
    diffs: Diffs,
    part: Part,
}

fn diff(call: &Call<'_>, params: &CompareParams) -> Result<Diff, MethodError> {
    let Compared { from, to, diffs, part } = diffs(call, params)?;
    let StepDiff { text, text_base64, truncated, next, total } = part.text_of(call, diffs)?;
    let (from, to) = (from.into(), to.into());
    Ok(Diff { from, to, text, text_base64, truncated, next, total })
}

fn diff_full(call: &Call<'_>, params: &CompareParams) -> Result<DiffFull, MethodError> {
    let Compared { from, to, diffs, part } = diffs(call, params)?;
    let StepDiffFull { files, truncated, next, total } = part.texts_of(call, diffs)?;
    Ok(DiffFull { from: from.into(), to: to.into(), files, truncated, next, total })
}
