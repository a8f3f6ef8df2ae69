//! Options and reports of a restore.

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::hold::Recovery;
use crate::path::TreePath;

use super::plan::{Action, Kept};

/// Options of a restore.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Also removes files created since, where the snapshot proves that they did not exist.
    /// Default: no.
    pub exact: bool,
    /// Only these paths and what is below them. Default: everything.
    pub paths: Vec<TreePath>,
    /// Allows removing an unusual share of the files. Default: no.
    pub allow_mass_removal: bool,
    /// Policy for files that another process has open. Default: they stay.
    pub in_use: OnUse,
    /// A person asked for it, so that a plain undo may take it back. Default: no.
    pub by_person: bool,
    /// Refuses if the plan is no longer the one with this hash. Default: none.
    pub expected_plan: Option<ObjectId>,
}

/// Policy for files that another process has open for writing, mapped writable or locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUse {
    /// It stays as it is and is reported with the process.
    #[default]
    Leave,
    /// It is replaced; the process goes on with the file that was there.
    Replace,
}

/// The report of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The snapshot taken before anything changed.
    pub safety: ObjectId,
    /// The operation that recorded it: restoring this undoes everything, permissions included.
    pub safety_operation: String,
    /// The snapshot taken afterwards.
    pub after: ObjectId,
    /// The actions, one per path.
    pub done: Vec<Action>,
    /// Paths that were left alone, with the reasons.
    pub kept: Vec<Kept>,
    /// Files of which the kernel could not say whether other processes have them open.
    pub not_checked: Vec<TreePath>,
    /// Replaced files that another process changed during the swap, under these names.
    pub left: Vec<String>,
    /// A restore that had been cut off and was finished before this one.
    pub recovered: Option<Recovery>,
    /// Why the state afterwards could not be recorded, if so; the files are as `done` says.
    pub not_recorded: Option<String>,
}

impl RestoreReport {
    /// Whether everything that was asked for was done.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
            && self.not_recorded.is_none()
            && !self.kept.iter().any(|kept| kept.reason.is_failure())
    }
}
