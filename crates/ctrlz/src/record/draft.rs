//! A snapshot: not recorded yet, with its operation, and as it is reported.

use crate::git::ObjectId;
use crate::hold::Recovery;
use crate::log::{Meta, Operation};
use crate::scan::{Listing, Skipped};

use super::kept::Kept;
use super::moved::Renames;

/// A recorded state of the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of its git tree.
    pub hash: ObjectId,
    /// The operation that recorded it.
    pub operation: String,
    /// Whether anything differs from the previous snapshot.
    pub changed: bool,
    /// The number of its files, or of the rescanned files of a partial snapshot.
    pub files: u64,
    /// The number of files that were read.
    pub files_read: u64,
    /// The number of new objects.
    pub objects_written: u64,
    /// The number of bytes that were added to the store.
    pub bytes_written: u64,
    /// The number of blobs that are still borrowed from the user's repository.
    pub borrowed: u64,
    /// The paths that it does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
    /// The quota warning threshold that it crossed: 50 or 80 percent.
    pub quota_mark: Option<u64>,
    /// An interrupted restore that was finished first.
    pub recovered: Option<Recovery>,
    /// Whether only the paths that a watcher reported were scanned.
    pub watched: bool,
    /// An escaped path for which the user's index has a wrong blob id. Nothing is borrowed then.
    pub wrong_index: Option<String>,
}

impl Snapshot {
    /// Returns the report of a snapshot that changed nothing, without the figures of its scan.
    pub(super) fn unchanged(operation: &Operation) -> Snapshot {
        Snapshot {
            hash: operation.snapshot,
            operation: operation.id.clone(),
            changed: false,
            files: 0,
            files_read: 0,
            objects_written: 0,
            bytes_written: 0,
            borrowed: 0,
            skipped: operation.meta.skipped.clone(),
            quota_mark: None,
            recovered: None,
            watched: false,
            wrong_index: None,
        }
    }

    /// Returns whether no path is missing because of a failure.
    pub fn is_complete(&self) -> bool {
        !self.skipped.iter().any(|skipped| skipped.reason.is_failure())
    }
}

/// A snapshot with its operation.
pub(crate) struct Recorded {
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
    /// The metadata of every file, if the caller needs it.
    pub(crate) listing: Listing,
}

/// A state of the work tree that is not recorded yet.
pub(super) struct Draft {
    pub(super) tree: ObjectId,
    pub(super) meta: Meta,
    pub(super) renames: Renames,
    pub(super) kept: Kept,
}
