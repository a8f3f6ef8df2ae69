//! File watching: the paths that may have changed since a cursor.
//!
//! ```text
//! kernel    inotify events of single directories
//! mounts    changes of mount points inside the work tree
//! tree      every directory that a scan enters, and the dirty paths in them
//! protocol  requests and responses on the watcher's Unix socket
//! server    the watcher: one process per work tree
//! client    status, requests to stop, the lock
//! ```
//!
//! A watcher takes no snapshot and writes only to its own directory in the store. It can be
//! missing, killed or stopped at any time: without a response, a snapshot falls back to a full
//! scan.

mod client;
mod kernel;
mod mounts;
mod protocol;
mod server;
mod tree;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use client::{changes_since, gave_up_recently, is_locked, status, stop};
pub(crate) use server::{Site, serve};
pub(crate) use tree::{Cursor, Scope};

/// Options of a watcher.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// The watcher ends after this time without a request. Default: 30 minutes.
    pub idle: Duration,
    /// Refuses to watch more directories than this. Default: the kernel's limit.
    pub max_dirs: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { idle: Duration::from_secs(30 * 60), max_dirs: usize::MAX }
    }
}

/// The reason why a watcher ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEnd {
    /// Another watcher serves this work tree.
    AlreadyThere,
    /// No request came for [`WatchOptions::idle`].
    Idle,
    /// It was asked to stop.
    Stopped,
    /// The work tree or the store was removed.
    Gone,
    /// The work tree cannot be watched.
    Refused(Refusal),
}

/// The reason why a work tree cannot be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The file system is not known to report every change.
    #[error("not a local file system: some changes would not be reported")]
    FileSystem,
    /// The work tree has more directories than the user may watch.
    #[error("more directories than may be watched; see fs.inotify.max_user_watches")]
    TooManyDirectories,
    /// The system offers no notifications, or no more of them.
    #[error("the system offers no change notifications; see fs.inotify.max_user_instances")]
    NoNotices,
}

/// The state of a work tree's watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatcherStatus {
    /// There is no watcher.
    None,
    /// A watcher is starting or does not respond. Snapshots use full scans meanwhile.
    Silent,
    /// A watcher is running.
    Watching {
        /// Its process id.
        process: u32,
        /// The number of directories that it watches.
        dirs: u64,
    },
    /// The last watcher could not watch the work tree.
    Refused {
        /// The reason.
        why: Refusal,
    },
}

impl WatcherStatus {
    /// Returns a short, stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            WatcherStatus::None => "none",
            WatcherStatus::Silent => "silent",
            WatcherStatus::Watching { .. } => "watching",
            WatcherStatus::Refused { .. } => "refused",
        }
    }
}
