//! The options of a work tree.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The options of a work tree. The engine reads neither the environment nor a configuration file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of all stores, except one that `store` names.
    pub data_dir: PathBuf,
    /// The path of the store, which may be inside the work tree. Default: in `data_dir`.
    pub store: Option<PathBuf>,
    /// Whether snapshots are taken. Default: yes.
    pub enabled: bool,
    /// Whether only git work trees are protected. Default: no.
    pub require_git: bool,
    /// New files above this size are skipped and reported. Default: 10 MiB.
    pub max_new_file_bytes: u64,
    /// Further ignore patterns, in the syntax of `.gitignore`. Default: none.
    pub exclude: Vec<String>,
    /// Patterns of ignored files to capture. Default: none.
    pub include_ignored: Vec<String>,
    /// The ignored files to keep beside a snapshot. Default: small ones.
    pub ignored: IgnoredFiles,
    /// The maximum size of all small ignored files that are kept. Default: 4 MiB.
    pub max_ignored_bytes: u64,
    /// The maximum size of all ignored or large files that one tool call names. Default: 64 MiB.
    pub max_named_bytes: u64,
    /// Whether files of nested repositories are captured. Default: yes.
    pub nested_repos: bool,
    /// The maximum number of files. A snapshot with more fails before anything is stored. Default:
    /// 1,500,000.
    pub max_files: u64,
    /// The maximum size of new content in one snapshot. Default: 20 GiB.
    pub max_snapshot_bytes: u64,
    /// The free space to leave on the disk of the store. Default: 64 MiB.
    pub min_free_bytes: u64,
    /// The maximum size of the store. Files that do not fit are skipped and reported, the largest
    /// ones first. Default: 10 GiB.
    pub max_store_bytes: u64,
    /// The maximum size of all stores in `data_dir`. Default: 50 GiB.
    pub max_total_bytes: u64,
    /// The user's global excludes file. Default: none.
    pub excludes_file: Option<PathBuf>,
    /// The user's global attributes file. Its filters exclude blobs from borrowing.
    pub attributes_file: Option<PathBuf>,
    /// The user's home directory, which is refused as a work tree. Default: none.
    pub home: Option<PathBuf>,
    /// Allows directories that are refused for safety. Default: no.
    pub allow_dangerous_root: bool,
    /// Whether the first snapshot may take blobs from the user's repository. Default: yes.
    pub seed: bool,
    /// The number of threads. One thread makes runs deterministic. Default: all cores.
    pub threads: usize,
    /// The time to wait for another command on the same work tree. Default: 30 seconds.
    pub patience: Duration,
    /// The prefix of the log's refs in the store. Default: `refs/ctrlz`.
    pub ref_prefix: String,
    /// Whether the log records prompts and commands, which may hold secrets. Default: yes.
    pub labels: bool,
    /// Whether snapshots use a watcher if one is running. Default: no.
    pub watch: bool,
    /// The maximum age of the last full scan. Writes through memory maps are not reported to a
    /// watcher. Default: 10 minutes.
    pub watch_trust: Duration,
}

impl Options {
    /// Returns the defaults, with stores in `data_dir`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            data_dir: data_dir.into(),
            store: None,
            enabled: true,
            require_git: false,
            max_new_file_bytes: 10 << 20,
            exclude: Vec::new(),
            include_ignored: Vec::new(),
            ignored: IgnoredFiles::Small,
            max_ignored_bytes: 4 << 20,
            max_named_bytes: 64 << 20,
            nested_repos: true,
            max_files: crate::compare::MAX_PATHS,
            max_snapshot_bytes: 20 << 30,
            min_free_bytes: 64 << 20,
            max_store_bytes: 10 << 30,
            max_total_bytes: 50 << 30,
            excludes_file: None,
            attributes_file: None,
            home: None,
            allow_dangerous_root: false,
            seed: true,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            patience: Duration::from_secs(30),
            ref_prefix: "refs/ctrlz".into(),
            watch: false,
            labels: true,
            watch_trust: Duration::from_secs(600),
        }
    }
}

/// The ignored files that are kept beside a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum IgnoredFiles {
    /// Small files in directories that are not ignored, and files that a tool names.
    #[default]
    Small,
    /// Files that a tool names.
    Named,
    /// None.
    None,
}
