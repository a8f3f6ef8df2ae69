//! Files cannot be written, or writing them was stopped.

use std::path::PathBuf;

use crate::path::TreePath;

use super::{Error, shown};

/// Files cannot be written, or writing them was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The restore would remove an unusually large share of the work tree.
    #[error("this would remove {removed} of {files} files")]
    MassChange {
        /// Number of files to remove.
        removed: u64,
        /// Number of files in the work tree.
        files: u64,
    },
    /// A file changed between planning and writing; everything was rolled back.
    #[error("{path} changed meanwhile; nothing was restored")]
    Moved {
        /// The file.
        path: TreePath,
    },
    /// Writing failed; everything was rolled back.
    #[error("nothing was restored, everything is as it was")]
    RolledBack {
        /// Cause of the failure.
        #[source]
        cause: Box<Error>,
    },
    /// Writing failed, and so did the rollback. The next command tries again.
    #[error("the restore stopped half-way and will be finished by the next command")]
    Interrupted {
        /// Cause of the failure.
        #[source]
        cause: Box<Error>,
    },
    /// An interrupted restore must be finished first, and making a plan must not do that.
    #[error("a restore was cut off and has to be finished before anything is planned")]
    RecoveryPending,
    /// The plan was made for a different state.
    #[error("the files moved since the plan was made; make a new one")]
    StalePlan,
    /// The target directory is not empty.
    #[error("{} is not empty", shown(path))]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The destination is inside the directory of a version control system.
    #[error("{} lies inside a repository's own directory", shown(path))]
    InsideRepository {
        /// Requested destination.
        path: PathBuf,
    },
    /// A directory that must be a separate work tree is inside this one.
    #[error("{} lies inside the work tree", shown(path))]
    InsideWorkTree {
        /// The directory.
        path: PathBuf,
    },
}
