//! Options and reports of undo, redo, revert and unrevert.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::hold::Recovery;
use crate::log::{Gap, StepInfo, Uncaptured};
use crate::outside::OutsideChange;
use crate::path::TreePath;
use crate::restore::{Action, Kept, OnUse};

/// Options for undo, redo and revert.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UndoOptions {
    /// Session to undo. Default: the most recently active one with something left to undo.
    pub session: Option<String>,
    /// Paths to limit the undo to. Default: all.
    pub paths: Vec<TreePath>,
    /// Restores the old version where changes do not merge. Default: keeps the present one.
    pub force: bool,
    /// Also undoes changes of ignored files that no tool named. Default: no.
    pub ignored: bool,
    /// Also undoes changes made while an interrupted command may have been running. Default: no.
    pub unclear: bool,
    /// Policy for files that another process has open. Default: leaves them unchanged.
    pub in_use: OnUse,
    /// Undoes a restore, recover or revert that a user made, if it is the newest operation that
    /// changed files and the call names no session, path or step. Default: no.
    pub restores: bool,
    /// Whether a user asked for it, and not a program. Default: no.
    pub by_person: bool,
    /// Also restores paths outside of the work tree that the steps named and changed. Default: no,
    /// they are only listed.
    pub outside: bool,
    /// Closes the session's open steps instead of failing because it is busy. Default: no.
    pub interrupt: bool,
    /// Allows removing an unusual share of the files. Default: no.
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. Fails if the plan differs. Default: none.
    pub expected_plan: Option<ObjectId>,
}

/// A file that stays unchanged because the change cannot be reversed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Path of the file.
    pub path: TreePath,
    /// Kind of conflict.
    pub reason: ConflictReason,
    /// Description of the conflict.
    pub why: String,
}

/// Reason why a change is not reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConflictReason {
    /// The file was changed since, and the changes do not merge.
    Merge,
    /// Nothing shows which of several open steps made the change.
    Shared,
    /// Nothing shows whether an interrupted step or the user made the change.
    Unclear,
    /// The file holds the only copy of some content that the plan does not restore.
    OtherHalf,
    /// The present or the earlier state of the path is not proven.
    NotProven,
    /// The file is ignored and was not asked for.
    Ignored,
}

/// Work of an agent that cannot be undone because it was not recorded as steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    /// Operation that recorded all of it later.
    pub operation: String,
    /// Operation before that one. Restoring it reverses everything since.
    pub before: String,
    /// Reason why it was not recorded, and the missing turns.
    pub gap: Gap,
}

/// Work in the scope of an undo that cannot be undone because the state before it has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Session id.
    pub session: String,
    /// Step, or `None` for older steps of the session, which the log no longer names.
    pub step: Option<StepInfo>,
}

/// Result of an undo or redo, or of planning one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoReport {
    /// Affected steps, oldest first.
    pub steps: Vec<String>,
    /// Restore, recover or revert that is reversed instead of steps.
    pub takes_back: Option<String>,
    /// Actions that were performed or, for a plan, would be.
    pub done: Vec<Action>,
    /// Files that stay because the change cannot be reversed.
    pub conflicts: Vec<Conflict>,
    /// Ignored files whose changes stay because they were not asked for.
    pub ignored: Vec<Conflict>,
    /// Files that stay for other reasons.
    pub kept: Vec<Kept>,
    /// Files of which the kernel could not say whether other processes have them open.
    pub not_checked: Vec<TreePath>,
    /// Paths that no snapshot holds and that the steps created, removed or changed. They stay
    /// unchanged; [`Uncaptured::is_loss`] returns whether content is lost.
    pub uncaptured: Vec<Uncaptured>,
    /// Paths outside of the work tree that the steps changed.
    pub outside: Vec<OutsideChange>,
    /// Whether these paths were to be restored.
    pub outside_asked: bool,
    /// Steps in the scope that stay because the state before them has expired.
    pub expired: Vec<Expired>,
    /// Newer work of agents that stays because it was not recorded as steps.
    pub unrecorded: Vec<Unrecorded>,
    /// Hash of the plan.
    pub plan: ObjectId,
    /// Number of files that a plan removes and number of files in total, if the share is unusual.
    pub mass_removal: Option<(u64, u64)>,
    /// Operation that recorded the state before. Restoring it reverses the whole undo.
    pub safety_operation: Option<String>,
    /// Snapshot afterwards, or `None` if nothing was changed.
    pub after: Option<ObjectId>,
    /// Names under which replaced objects remain that could not be removed.
    pub left: Vec<String>,
    /// Error if the undo could not be recorded. The files are as described by `done`.
    pub not_recorded: Option<String>,
    /// Command that moves the user's own git back. Never run by ctrlz.
    pub git_hint: Option<String>,
    /// Outcome of an earlier, interrupted restore that was finished or rolled back first.
    pub recovered: Option<Recovery>,
}

impl UndoReport {
    /// Returns whether everything was reversed.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty()
            && !self.uncaptured.iter().any(Uncaptured::is_loss)
            && self.left.is_empty()
            && self.expired.is_empty()
            && self.unrecorded.is_empty()
            && self.not_recorded.is_none()
            && !(self.outside_asked && self.outside.iter().any(|change| change.kept.is_some()))
            && !self.kept.iter().any(|kept| kept.reason.is_failure())
    }
}
