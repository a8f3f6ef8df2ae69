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

use std::path::PathBuf;

use crate::fs::FileError;
use crate::git::NotAHash;
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
        match self {
            Error::File(_) => "file",
            Error::NotAHash(_) => "not_a_hash",
            Error::NotATreePath(_) => "not_a_tree_path",
            Error::Lookup(error) => error.code(),
            Error::Store(error) => error.code(),
            Error::Record(error) => error.code(),
            Error::Restore(error) => error.code(),
            Error::Session(error) => error.code(),
            Error::Exchange(error) => error.code(),
            Error::Busy { .. } => "busy",
            Error::Cancelled => "cancelled",
        }
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
            _ => kinds::fault_of(self.code()),
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

/// Returns a path escaped for printing.
fn shown(path: &std::path::Path) -> String {
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
