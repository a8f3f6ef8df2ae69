//! A snapshot, operation, plan, checkpoint, file or text that was asked for cannot be found or used.

use crate::git::ObjectId;
use crate::path::TreePath;

/// A snapshot, operation, plan, checkpoint, file or text that was asked for cannot be found or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// The store has no such snapshot.
    #[error("no snapshot {id} in this store")]
    UnknownSnapshot {
        /// Requested hash.
        id: ObjectId,
    },
    /// A store that came with the project is being imported, and the snapshot may be in it.
    #[error("snapshot {id} is not here yet; the earlier store is being imported")]
    BeingImported {
        /// Requested hash.
        id: ObjectId,
    },
    /// Content was purged from the snapshot, so it has another hash now.
    #[error("snapshot {id} was purged; what is left of it is {replacement}")]
    Purged {
        /// Requested hash.
        id: ObjectId,
        /// Snapshot without the purged content.
        replacement: ObjectId,
    },
    /// The work tree's log has no such operation.
    #[error("no operation {id} in this work tree's log")]
    UnknownOperation {
        /// Requested id.
        id: String,
    },
    /// The hash names something that is not a tree.
    #[error("{id} is a {kind}, not a snapshot")]
    NotASnapshot {
        /// Requested hash.
        id: ObjectId,
        /// Kind of the object.
        kind: String,
    },
    /// The snapshot has no such file.
    #[error("snapshot {id} has no {path}")]
    NoSuchFile {
        /// The snapshot.
        id: ObjectId,
        /// Requested path.
        path: TreePath,
    },
    /// No such plan was made, or it has expired.
    #[error("no plan {id}")]
    UnknownPlan {
        /// Requested hash.
        id: ObjectId,
    },
    /// No such checkpoint.
    #[error("no checkpoint {name:?}")]
    NoSuchCheckpoint {
        /// Requested name.
        name: String,
    },
    /// The path is not lost: no snapshot has a file there that is missing now.
    #[error("{path} is not lost: no snapshot has a file there that is missing now")]
    NothingLost {
        /// Requested path.
        path: TreePath,
    },
    /// The file is binary, so it has no lines.
    #[error("{path} is binary")]
    Binary {
        /// The file.
        path: TreePath,
    },
    /// No snapshot has this path.
    #[error("no snapshot has {path}")]
    NothingToPurge {
        /// Requested path.
        path: TreePath,
    },
    /// No label of a step or checkpoint contains this text. The error does not repeat the text.
    #[error("no label of a step or checkpoint has this text")]
    NoSuchText,
}
