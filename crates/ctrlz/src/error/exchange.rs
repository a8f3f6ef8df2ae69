//! Logs cannot be exchanged with another machine, or given to another path.

use std::path::PathBuf;

use crate::path::{TreePath, shown};

/// Logs cannot be exchanged with another machine, or given to another path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The store has no such log.
    #[error("no log {log:?} in this store")]
    NoSuchLog {
        /// Requested name.
        log: String,
    },
    /// Nothing was ever recorded at this path.
    #[error("nothing was recorded at {}", shown(path))]
    NoHistory {
        /// The path.
        path: PathBuf,
    },
    /// The directory that owns the history still exists.
    #[error("{} is still there, and its history stays with it", shown(path))]
    StillThere {
        /// The directory.
        path: PathBuf,
    },
    /// An import file, or data from a server, is invalid.
    #[error("{} cannot be imported: {why}; nothing was changed", shown(path))]
    BadImport {
        /// Import file, or address of the server.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// An import file, or data from a server, contains content that was purged here.
    #[error("{} brings purged content back{}; nothing was changed", shown(path), named(paths))]
    BringsPurged {
        /// Import file, or address of the server.
        path: PathBuf,
        /// Paths of the content there, one per content.
        paths: Vec<TreePath>,
    },
    /// The local and the remote log of the same name both have operations that the other lacks.
    #[error("the log {log} here and there have parted; neither was changed")]
    Diverged {
        /// Name of the log.
        log: String,
    },
    /// No pulled or imported history can be restored.
    #[error("nothing was pulled or imported that could be restored without naming it")]
    NothingPulled,
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
