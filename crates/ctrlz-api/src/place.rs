//! The parameters that all methods share: the work tree and the options of a call.

use std::path::Path;

use ctrlz::{IgnoredFiles, ObjectId, Retention, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::agents::Agents;
use crate::error::WireError;
use crate::path::{WirePath, bounded_option};

/// Location and options of a call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Directory to act in: the work tree or a directory below it. Default: the directory in which
    /// the server was started.
    pub dir: Option<WirePath>,
    /// Directory of the stores. Default: as configured by the user.
    pub data_dir: Option<WirePath>,
    /// Path of the store to use instead. A relative path starts at the work tree. If the store is
    /// inside a hidden directory, such as `.agent/snapshots`, no snapshot includes that directory.
    pub store: Option<WirePath>,
    /// Rule that selects the work tree. Default: the nearest repository.
    #[serde(default)]
    pub work_tree: WorkTree,
    /// Name of a set of options. Default: none.
    pub profile: Option<Profile>,
    /// Options of this call. They override the profile and the user's configuration.
    #[serde(default)]
    pub options: CallOptions,
    /// Whether to send progress notifications, if the interface supports them.
    #[serde(default)]
    pub progress: bool,
}

/// Rule that selects the work tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkTree {
    /// The nearest repository at or above `dir`, else the nearest directory with a history, else
    /// `dir`.
    #[default]
    Nearest,
    /// `dir` itself, regardless of its surroundings.
    Dir,
}

/// A named set of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The behaviour of OpenCode: new files above 2 MiB are skipped, only git work trees are
    /// protected, and files that are ignored now are not reported as changed.
    Opencode,
}

/// Options of a call. All are optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallOptions {
    /// Whether snapshots are taken. Only `false` has an effect: a call cannot enable what the user
    /// disabled.
    pub enabled: Option<bool>,
    /// Whether only git work trees are protected.
    pub require_git: Option<bool>,
    /// Maximum size of a new file in bytes. Larger ones are skipped and reported.
    pub max_new_file_bytes: Option<u64>,
    /// Further ignore patterns, in the syntax of `.gitignore`.
    #[serde(default, deserialize_with = "bounded_option")]
    pub exclude: Option<Vec<String>>,
    /// Patterns of ignored files to capture.
    #[serde(default, deserialize_with = "bounded_option")]
    pub include_ignored: Option<Vec<String>>,
    /// The ignored files that are kept beside a snapshot.
    pub ignored: Option<IgnoredFiles>,
    /// Maximum size in bytes of all small ignored files kept beside a snapshot.
    pub max_ignored_bytes: Option<u64>,
    /// Maximum size in bytes of all ignored or large files that one tool call names.
    pub max_named_bytes: Option<u64>,
    /// Whether files of nested repositories are captured.
    pub nested_repos: Option<bool>,
    /// Maximum number of files. A snapshot with more is refused.
    pub max_files: Option<u64>,
    /// Maximum size in bytes of new content in one snapshot. A snapshot with more is refused.
    pub max_snapshot_bytes: Option<u64>,
    /// Free space to leave on the disk of the store, in bytes.
    pub min_free_bytes: Option<u64>,
    /// Maximum size of the store in bytes. Files that do not fit are skipped and reported.
    pub max_store_bytes: Option<u64>,
    /// Maximum size of all stores in the data directory, in bytes.
    pub max_total_bytes: Option<u64>,
    /// Prefix of the log's refs in the store.
    pub ref_prefix: Option<String>,
    /// Number of checkpoints to keep, not counting pinned ones.
    pub keep_checkpoints: Option<u64>,
    /// Whether files that are ignored now are not reported as changed.
    pub hide_ignored: Option<bool>,
    /// Whether directories that are much more than a project, such as a home directory, are
    /// allowed.
    pub allow_dangerous_root: Option<bool>,
    /// Number of threads.
    pub threads: Option<u16>,
    /// Time to wait for another process on the same work tree, in milliseconds.
    pub patience_millis: Option<u64>,
}

impl CallOptions {
    /// Returns these options, completed by those of the profile.
    pub fn over(self, profile: Option<Profile>) -> CallOptions {
        match profile {
            None => self,
            Some(Profile::Opencode) => CallOptions {
                max_new_file_bytes: self.max_new_file_bytes.or(Some(2 << 20)),
                require_git: self.require_git.or(Some(true)),
                hide_ignored: self.hide_ignored.or(Some(true)),
                ..self
            },
        }
    }
}

impl Place {
    /// Returns the options of this call, completed by those of its profile.
    pub fn decided_options(&self) -> CallOptions {
        self.options.clone().over(self.profile)
    }
}

/// An open work tree, and settings of the user's configuration beyond the engine's options.
pub struct Opened {
    /// The work tree.
    pub workspace: Workspace,
    /// Number of checkpoints to keep, not counting pinned ones.
    pub keep_checkpoints: usize,
    /// Retention of `gc`, unless the call sets it.
    pub retention: Retention,
    /// Data about agents; `None` if the host keeps none.
    pub agents: Option<Box<dyn Agents>>,
}

impl From<Workspace> for Opened {
    fn from(workspace: Workspace) -> Opened {
        let keep_checkpoints = ctrlz::CheckpointOptions::default().keep;
        Opened { workspace, keep_checkpoints, retention: Retention::default(), agents: None }
    }
}

/// Access to the user's configuration. Neither the engine nor this crate reads any.
pub trait Host: Send + Sync {
    /// Opens the work tree of a call.
    fn open(&self, place: &Place) -> Result<Opened, WireError>;

    /// Called after the response was sent, if the call recorded or wrote something, to run deferred
    /// maintenance. The default does nothing.
    fn rest(&self, workspace: &Workspace) {
        let _ = workspace;
    }

    /// Refuses a snapshot that the caller must not read, with the same error as for a missing one.
    /// The default allows every snapshot of the store.
    fn check_snapshot(&self, workspace: &Workspace, hash: &ObjectId) -> Result<(), WireError> {
        let _ = (workspace, hash);
        Ok(())
    }

    /// Refuses a path that a step must not name: the directory that its tool runs in, or a file
    /// that it changes. The default allows every path.
    fn check_named(&self, path: &Path) -> Result<(), WireError> {
        let _ = path;
        Ok(())
    }

    /// Returns the process whose exit closes the steps begun through this host, or `None` if they
    /// outlive this process.
    fn owner(&self) -> Option<u32>;
}
