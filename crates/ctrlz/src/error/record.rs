//! A snapshot cannot be recorded.

use std::path::PathBuf;

use super::{largest_text, shown};

/// A snapshot cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A directory that is too dangerous to track.
    #[error("refusing to protect {}: {why}", shown(path))]
    DangerousRoot {
        /// The directory.
        path: PathBuf,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// `require_git` is set and the directory is not in a git repository.
    #[error("{} is not in a git repository, and require_git is on", shown(path))]
    NotGit {
        /// The directory.
        path: PathBuf,
    },
    /// Snapshots are disabled by the configuration.
    #[error("snapshots are disabled for {}", shown(path))]
    Disabled {
        /// The directory.
        path: PathBuf,
    },
    /// The snapshot would exceed a size limit.
    #[error("the snapshot would hold {found} {what}, more than {limit}{}", largest_text(largest))]
    OverBudget {
        /// Unit of the limit: `files` or `bytes`.
        what: &'static str,
        /// Lower bound on the actual number.
        found: u64,
        /// The limit.
        limit: u64,
        /// Largest paths and their sizes.
        largest: Vec<(Vec<u8>, u64)>,
    },
    /// The store's quota is exhausted: not even the list of files fits.
    #[error("{} has used up its quota, {} %", shown(path), used.percent())]
    OverQuota {
        /// The store.
        path: PathBuf,
        /// Current use of the quota.
        used: Box<crate::QuotaUse>,
    },
    /// The disk does not have enough free space.
    #[error("{} has {free_bytes} bytes free, and {needed_bytes} are needed", shown(path))]
    NoSpace {
        /// Path on that disk.
        path: PathBuf,
        /// Number of bytes needed.
        needed_bytes: u64,
        /// Number of bytes free.
        free_bytes: u64,
    },
}

impl RecordError {
    /// Returns the code of the error.
    pub(super) fn code(&self) -> &'static str {
        match self {
            RecordError::DangerousRoot { .. } => "dangerous_root",
            RecordError::NotGit { .. } => "not_git",
            RecordError::Disabled { .. } => "disabled",
            RecordError::OverBudget { .. } => "over_budget",
            RecordError::OverQuota { .. } => "over_quota",
            RecordError::NoSpace { .. } => "no_space",
        }
    }
}
