//! Constructors of common errors.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::git::ObjectId;
use crate::path::TreePath;

use super::{
    Error, ExchangeError, LookupError, RecordError, RestoreError, SessionError, StoreError,
};

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
        SessionError::NoSuchStep { step: shown(step) }.into()
    }

    /// Returns the error for a message without a recorded step.
    pub(crate) fn no_such_message(message: &str) -> Error {
        SessionError::NoSuchMessage { message: shown(message) }.into()
    }

    /// Returns the error for a session without a recorded step.
    pub fn no_such_session(session: &str) -> Error {
        SessionError::NoSuchSession { session: shown(session) }.into()
    }

    /// Returns the error for a file that a snapshot lacks.
    pub(crate) fn no_such_file(id: &ObjectId, path: &TreePath) -> Error {
        LookupError::NoSuchFile { id: *id, path: path.clone() }.into()
    }

    /// Returns the error for an operation that the log lacks.
    pub(crate) fn unknown_operation(id: &str) -> Error {
        LookupError::UnknownOperation { id: shown(id) }.into()
    }

    /// Returns the error for a path without recorded history.
    pub(crate) fn no_history(path: &Path) -> Error {
        ExchangeError::NoHistory { path: path.to_owned() }.into()
    }

    /// Returns the error for a log that the store lacks.
    pub(crate) fn no_such_log(log: &str) -> Error {
        ExchangeError::NoSuchLog { log: shown(log) }.into()
    }
}

/// Truncates an id that a caller passed. Recorded ids have at most 1,024 bytes.
fn shown(id: &str) -> String {
    id.chars().take(1024).collect()
}
