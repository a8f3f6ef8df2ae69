//! Errors of the engine: one enum per concern, and one table with the fault of every code.
//!
//! Errors give no advice: programs that show them to people know the options that they offer.

mod exchange;
mod kinds;
mod lookup;
mod record;
mod session;
mod shorthand;
mod store;

use std::path::PathBuf;

use crate::fs::FileError;
use crate::git::NotAHash;
use crate::path::{NotATreePath, TreePath, shown};

pub use exchange::ExchangeError;
pub use kinds::{ERROR_KINDS, ErrorKind, Fault};
pub use lookup::LookupError;
pub use record::{QuotaUse, RecordError};
pub use session::SessionError;
pub use store::StoreError;

/// Any failure of the engine. Nothing was changed unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A text that should be a hash is not.
    #[error(transparent)]
    NotAHash(#[from] NotAHash),
    /// A path that cannot be inside the work tree.
    #[error(transparent)]
    NotATreePath(#[from] NotATreePath),
    /// A snapshot, operation, plan, checkpoint, file or text that was asked for cannot be found or used.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A store or an object in it cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A snapshot cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Files cannot be written, or writing them was stopped.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A step, turn or session does not allow the request.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Logs cannot be exchanged with another machine, or given to another path.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Another process holds the lock.
    #[error("{} is busy: {holder} has it; waited {waited_seconds} s", shown(path))]
    Busy {
        /// Path of the lock file.
        path: PathBuf,
        /// Holder of the lock, as recorded in the lock file.
        holder: String,
        /// Time spent waiting for the lock, in seconds.
        waited_seconds: u64,
    },
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Returns a description of what is full, if recording failed because a disk or quota is full.
    pub fn full(&self) -> Option<&'static str> {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Error::Record(RecordError::NoSpace { .. }) => Some("store disk full"),
            Error::Record(RecordError::OverQuota { .. }) => Some("store quota reached"),
            Error::File(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                Some("store disk full")
            }
            _ => None,
        }
    }

    /// Returns whether an object is missing, damaged or not safe to use.
    pub(crate) fn is_damage(&self) -> bool {
        use StoreError::{Damaged, HostileTree};
        matches!(self, Error::Store(Damaged { .. } | HostileTree { .. }))
    }
}

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
