//! Options and reports of a restore.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::hold::Recovery;
use crate::path::TreePath;

use super::plan::{Action, Kept};

/// Options of a restore.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Also removes files created since the snapshot, if it proves that they did not exist then.
    /// Default: no.
    pub exact: bool,
    /// Restores only these paths and everything below them. Default: everything.
    pub paths: Vec<TreePath>,
    /// Allows removing an unusual share of the files. Default: no.
    pub allow_mass_removal: bool,
    /// Policy for files that another process has open. Default: they are left alone.
    pub in_use: OnUse,
    /// Whether the user asked for it, so that a plain undo may reverse it. Default: no.
    pub by_person: bool,
    /// Fails if the hash of the plan differs. Default: any plan is carried out.
    pub expected_plan: Option<ObjectId>,
}

/// Policy for files that another process has open for writing, mapped writable or locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUse {
    /// Leaves the file alone and reports it with the process.
    #[default]
    Leave,
    /// Replaces the file. The process keeps using the replaced one.
    Replace,
}

/// The report of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The snapshot taken before anything changed.
    pub safety: ObjectId,
    /// The operation that recorded it. Restoring it undoes everything, including permissions.
    pub safety_operation: String,
    /// The snapshot taken afterwards.
    pub after: ObjectId,
    /// The actions, one per path.
    pub done: Vec<Action>,
    /// Paths that were left alone, with the reasons.
    pub kept: Vec<Kept>,
    /// Files for which the kernel could not determine whether other processes have them open.
    pub not_checked: Vec<TreePath>,
    /// Replaced files that another process changed during the swap, by temporary name, and
    /// directories that could not be removed.
    pub left: Vec<String>,
    /// An interrupted restore that was finished before this one.
    pub recovered: Option<Recovery>,
    /// The error, if the new state could not be recorded. The files were changed as `done` says.
    pub not_recorded: Option<String>,
}

impl RestoreReport {
    /// Returns whether everything that was requested was done.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
            && self.not_recorded.is_none()
            && !self.kept.iter().any(|kept| kept.reason.is_failure())
    }
}
