//! Errors of the engine: one enum per concern, and one table with the fault of every code.
//!
//! Errors give no advice: programs that show them to people know the options that they offer.

mod exchange;
mod kinds;
mod lookup;
mod record;
mod restore;
mod session;
mod store;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::fs::FileError;
use crate::git::{NotAHash, ObjectId};
use crate::path::{NotATreePath, TreePath, escape};

pub use exchange::ExchangeError;
pub use kinds::{ERROR_KINDS, ErrorKind, Fault};
pub use lookup::LookupError;
pub use record::{QuotaUse, RecordError};
pub use restore::RestoreError;
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
    /// Returns a short, stable name for programs.
    pub fn code(&self) -> &'static str {
        kinds::kind_of(self).code
    }

    /// Returns the classification of the error.
    pub fn fault(&self) -> Fault {
        match self {
            // Everything is as it was, so that the cause decides whether to try again.
            Error::Restore(RestoreError::RolledBack { cause })
                if cause.fault() == Fault::Conflict =>
            {
                Fault::Conflict
            }
            _ => kinds::kind_of(self).fault,
        }
    }

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
}

/// Constructors of common errors.
impl Error {
    /// Returns the error for an object that is missing or invalid.
    pub(crate) fn damaged(id: &ObjectId, why: impl Display) -> Error {
        StoreError::Damaged { id: *id, why: why.to_string() }.into()
    }

    /// Returns the error for an object that is missing.
    pub(crate) fn missing(id: &ObjectId) -> Error {
        Error::damaged(id, "it is missing")
    }

    /// Returns the error for a store that cannot be used safely.
    pub(crate) fn untrusted(path: impl Into<PathBuf>, why: &'static str) -> Error {
        StoreError::UntrustedStore { path: path.into(), why }.into()
    }

    /// Returns the error for a file that changed between planning and writing.
    pub(crate) fn moved(path: &[u8]) -> Error {
        RestoreError::Moved { path: TreePath::from_scan(path.to_vec()) }.into()
    }

    /// Returns the error for a directory that must not be tracked.
    pub(crate) fn dangerous_root(path: impl Into<PathBuf>, why: &'static str) -> Error {
        RecordError::DangerousRoot { path: path.into(), why }.into()
    }

    /// Returns the error for a step that is neither open nor recorded.
    pub(crate) fn no_such_step(step: &str) -> Error {
        SessionError::NoSuchStep { step: step.to_owned() }.into()
    }

    /// Returns the error for a message without a recorded step.
    pub(crate) fn no_such_message(message: &str) -> Error {
        SessionError::NoSuchMessage { message: message.to_owned() }.into()
    }

    /// Returns the error for a session without a recorded step.
    pub(crate) fn no_such_session(session: &str) -> Error {
        SessionError::NoSuchSession { session: session.to_owned() }.into()
    }

    /// Returns the error for a file that a snapshot lacks.
    pub(crate) fn no_such_file(id: &ObjectId, path: &TreePath) -> Error {
        LookupError::NoSuchFile { id: *id, path: path.clone() }.into()
    }

    /// Returns the error for an operation that the log lacks.
    pub(crate) fn unknown_operation(id: &str) -> Error {
        LookupError::UnknownOperation { id: id.to_owned() }.into()
    }

    /// Returns the error for a path without recorded history.
    pub(crate) fn no_history(path: &Path) -> Error {
        ExchangeError::NoHistory { path: path.to_owned() }.into()
    }

    /// Returns the error for a log that the store lacks.
    pub(crate) fn no_such_log(log: &str) -> Error {
        ExchangeError::NoSuchLog { log: log.to_owned() }.into()
    }

    /// Returns whether an object is missing, damaged or not safe to use.
    pub(crate) fn is_damage(&self) -> bool {
        use StoreError::{Damaged, HostileTree};
        matches!(self, Error::Store(Damaged { .. } | HostileTree { .. }))
    }
}

/// Returns a path escaped for printing.
fn shown(path: &Path) -> String {
    escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

fn largest_text(largest: &[(Vec<u8>, u64)]) -> String {
    if largest.is_empty() {
        return String::new();
    }
    let items: Vec<String> =
        largest.iter().map(|(path, size)| format!("{} ({size})", escape(path))).collect();
    format!("; largest: {}", items.join(", "))
}

/// Returns the first few paths after a colon, or an empty string.
fn named(paths: &[TreePath]) -> String {
    const MAX_NAMED: usize = 10;
    let mut text = String::new();
    for (at, path) in paths.iter().take(MAX_NAMED).enumerate() {
        text.push_str(if at == 0 { ": " } else { ", " });
        text.push_str(&path.to_string());
    }
    match paths.len().saturating_sub(MAX_NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
