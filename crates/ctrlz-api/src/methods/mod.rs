//! The methods. Each is a function that takes typed parameters, makes one engine call and returns a
//! result, and one entry in a table, which gives it a name for programs.

mod care;
mod history;
mod part;
mod reading;
mod recording;
mod sessions;
mod steps;
mod stream;
mod writing;

pub use care::{
    DuParams, GcParams, PurgeParams, ReleaseParams, du, gc, purge, release_session, repair,
};
pub use history::{
    HistoryParams, LostParams, OperationParams, RevertStateParams, StepChangesParams, StepParams,
    StepsParams, TimelineParams, Whose, blame, checkpoints, lost, operation, revert_state,
    sessions, step, step_changes, steps, timeline, versions,
};
pub use reading::{ListParams, ShowParams, list_files, show, status, verify};
pub use recording::{CompareParams, PatchParams, TrackParams, changes, patch, track};
pub use sessions::{
    ApplyParams, CheckpointParams, CommitParams, ForkParams, FromMessage, RedoParams,
    RevertToParams, Scope, UndoParams, UnrevertParams, apply, checkpoint, commit_revert, fork,
    plan_redo, plan_revert_to, plan_undo, plan_unrevert, redo, revert_to, undo, unrevert,
};
pub use stream::{Sink, Stream, Wanted};
pub use writing::{
    InUse, PatchParam, RecoverParams, RestoreParams, RevertParams, plan_recover, plan_restore,
    plan_revert, recover, restore, revert,
};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::method::Method;

/// Returns every method, in the order of the documentation.
pub(crate) fn all() -> Vec<Method> {
    let tables = [
        recording::table(),
        reading::table(),
        history::table(),
        writing::table(),
        sessions::table(),
        care::table(),
    ];
    tables.into_iter().flatten().collect()
}

/// Maximum size of the text in a response, unless the caller sets another: 16 MiB.
const DEFAULT_MAX_BYTES: u64 = 16 << 20;
/// Maximum number of items in a response, unless the caller sets another.
const DEFAULT_LIMIT: u64 = 100_000;

/// Errors of methods that take the hash of a snapshot.
const OF_HASHES: &[&str] =
    &["not_a_hash", "unknown_snapshot", "being_imported", "purged", "not_a_snapshot"];
/// Errors of methods that also take paths.
const OF_PATHS: &[&str] = &["not_a_tree_path"];
/// Errors of methods that change files.
const OF_CHANGES: &[&str] = &["mass_change", "moved", "stale_plan", "rolled_back", "interrupted"];

/// No parameters beyond the shared ones.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Returns the items from `offset` on, the total number of items, and the offset of the next page.
fn page<T>(items: Vec<T>, offset: u64, limit: Option<u64>) -> (Vec<T>, u64, Option<u64>) {
    let total = items.len() as u64;
    let limit = limit.unwrap_or(DEFAULT_LIMIT).max(1);
    let end = offset.saturating_add(limit).min(total);
    let skipped = usize::try_from(offset.min(total)).unwrap_or(usize::MAX);
    let taken = usize::try_from(limit).unwrap_or(usize::MAX);
    let part = items.into_iter().skip(skipped).take(taken).collect();
    (part, total, (end < total).then_some(end))
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn pages_cover_a_list_exactly() {
        for limit in [1, 2, 3, 10, 11, u64::MAX] {
            let mut all = Vec::new();
            let mut offset = Some(0);
            while let Some(at) = offset {
                let (part, total, next) = page((0..10).collect::<Vec<u32>>(), at, Some(limit));
                assert_eq!(total, 10);
                all.extend(part);
                offset = next;
            }
            assert_eq!(all, (0..10).collect::<Vec<u32>>(), "{limit}");
        }
        assert_eq!(page(vec![1], 7, None), (vec![], 1, None));
        assert_eq!(page(vec![1, 2], 0, Some(0)), (vec![1], 2, Some(1)), "a page is never empty");
    }
}
