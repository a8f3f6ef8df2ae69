//! Reports about paths outside of the work tree.

use std::path::PathBuf;

/// A path outside of the work tree that a step changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideChange {
    /// Root of the path, which is restored completely or not at all.
    pub root: PathBuf,
    /// The path itself.
    pub path: PathBuf,
    /// Action that restores the path; `None` if it is never restored.
    pub action: Option<OutsideAction>,
    /// Reason for leaving the path unchanged; `None` if it is restored.
    pub kept: Option<OutsideKept>,
}

/// Action that restores a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideAction {
    /// Creates a file or symlink.
    Create,
    /// Replaces the existing object.
    Overwrite,
    /// Removes a file, symlink or empty directory.
    Remove,
    /// Changes only the permissions.
    SetMode {
        /// The new permissions.
        mode: u32,
    },
    /// Creates an empty directory.
    CreateDirectory,
}

/// Reason for leaving a path outside of the work tree unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutsideKept {
    /// Its restoration was not requested.
    #[error("not asked for")]
    NotAsked,
    /// It was changed since the step.
    #[error("it was changed since")]
    ChangedSince,
    /// Its state before or after the step was not captured.
    #[error("it was not captured: {why}")]
    NotCaptured {
        /// Reason why it was not captured.
        why: String,
    },
    /// Its present state cannot be saved first.
    #[error("it cannot be saved first: {why}")]
    CannotBeSaved {
        /// Reason why it cannot be saved.
        why: String,
    },
    /// It belongs to a version control system.
    #[error("a repository's own directory is never written")]
    Repository,
    /// Another process has it open.
    #[error("{} has it open", process.as_deref().unwrap_or("another process"))]
    InUse {
        /// Name of the process, if known.
        process: Option<String>,
    },
    /// It holds the only copy of content that the same undo does not restore elsewhere.
    #[error("it holds the only copy of something that does not come back")]
    OtherHalf,
    /// It belongs to a database whose files would not all be in the same captured state.
    #[error("it belongs to a database whose files cannot all be put back together")]
    Unit,
    /// Restoring it failed, and nothing was changed.
    #[error("it could not be put back: {why}")]
    Failed {
        /// Reason of the failure.
        why: String,
    },
}

/// Directory of a version control system that was restored to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRepository {
    /// Original path.
    pub from: PathBuf,
    /// Path of the restored copy.
    pub into: PathBuf,
    /// Time of the capture, in milliseconds since 1970.
    pub at_millis: u64,
    /// Number of files written.
    pub files: u64,
    /// Paths below `from` that the capture does not contain, each with the reason.
    pub missing: Vec<(PathBuf, String)>,
}
