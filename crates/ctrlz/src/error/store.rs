//! A store or an object in it cannot be used.

use std::path::PathBuf;

use crate::git::{ObjectId, TreeProblem};
use crate::path::shown;

/// A store or an object in it cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A tree in the store is malformed or hostile.
    #[error("tree {id} cannot be used: {why}")]
    HostileTree {
        /// The tree.
        id: ObjectId,
        /// Description of the fault.
        why: TreeProblem,
    },
    /// A snapshot expands to more than any real work tree contains.
    #[error("snapshot {id} has more than {limit} {what}")]
    Bomb {
        /// The snapshot.
        id: ObjectId,
        /// Limit that was exceeded.
        limit: u64,
        /// Unit of the limit.
        what: &'static str,
    },
    /// An object is missing, or its content does not match its hash.
    #[error("object {id} is damaged: {why}")]
    Damaged {
        /// The object.
        id: ObjectId,
        /// Description of the damage.
        why: String,
    },
    /// A log's ref is missing or unreadable, so garbage cannot be determined.
    #[error("{} is missing or cannot be read", shown(path))]
    LostRef {
        /// The ref.
        path: PathBuf,
    },
    /// The store was written by a newer version.
    #[error("the store at {} has format {found}; this version knows {known}", shown(path))]
    NewerFormat {
        /// The store.
        path: PathBuf,
        /// Format of the store.
        found: u32,
        /// Newest format that this version supports.
        known: u32,
    },
    /// The path of the store belongs to another user, is not a directory, or cannot be used safely.
    #[error("{} is not used: {why}; nothing was changed", shown(path))]
    UntrustedStore {
        /// The store.
        path: PathBuf,
        /// Reason for distrusting it.
        why: &'static str,
    },
    /// The store cannot be removed because it is still needed.
    #[error("the store at {} is needed by {by}", shown(path))]
    StoreInUse {
        /// The store.
        path: PathBuf,
        /// Work tree or session that needs it.
        by: String,
    },
}
