//! A snapshot cannot be recorded.

use std::path::PathBuf;

use crate::defect::Defect;
use crate::path::{escape, shown};

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
        used: Box<QuotaUse>,
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

/// Returns the largest paths with their sizes, as the end of a message.
fn largest_text(largest: &[(Vec<u8>, u64)]) -> String {
    if largest.is_empty() {
        return String::new();
    }
    let items: Vec<String> =
        largest.iter().map(|(path, size)| format!("{} ({size})", escape(path))).collect();
    format!("; largest: {}", items.join(", "))
}

/// The used part of the quota. Counts every file of the stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// The size of this store.
    pub store_bytes: u64,
    /// The limit for this store.
    pub max_store_bytes: u64,
    /// The size of all stores in the data directory.
    pub total_bytes: u64,
    /// The limit for all stores.
    pub max_total_bytes: u64,
}

impl QuotaUse {
    /// Returns the higher of the two shares, in percent.
    pub fn percent(&self) -> u64 {
        let of = |used: u64, max: u64| match u128::from(max) {
            0 => 100,
            max => u64::try_from(u128::from(used) * 100 / max).unwrap_or(u64::MAX),
        };
        of(self.store_bytes, self.max_store_bytes).max(of(self.total_bytes, self.max_total_bytes))
    }

    /// Returns the highest warning threshold that is reached: 50 or 80 percent.
    pub fn warning(&self) -> Option<u64> {
        [80, 50].into_iter().find(|mark| self.percent() >= *mark)
    }

    /// Returns the quota use after adding `bytes`.
    pub(crate) fn and(self, bytes: u64) -> QuotaUse {
        let (store_bytes, total_bytes) = (self.store_bytes + bytes, self.total_bytes + bytes);
        QuotaUse { store_bytes, total_bytes, ..self }
    }

    pub(crate) fn left(&self) -> u64 {
        if Defect::Unbounded.is_made() {
            return u64::MAX;
        }
        let store = self.max_store_bytes.saturating_sub(self.store_bytes);
        store.min(self.max_total_bytes.saturating_sub(self.total_bytes))
    }
}
