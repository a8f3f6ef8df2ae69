//! Where a call acts and with which options: the part of the parameters that all methods share.

use std::path::Path;

use ctrlz::{ObjectId, Retention, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::agents::Agents;
use crate::error::WireError;
use crate::path::{WirePath, bounded_option};

/// Where a call acts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The directory to act in: the work tree, or one below it. Default: where the server was
    /// started.
    pub dir: Option<WirePath>,
    /// Where stores lie. Default: as the user's configuration says.
    pub data_dir: Option<WirePath>,
    /// Use this store instead; a relative path starts at the work tree. A store inside a hidden
    /// directory, as `.agent/snapshots`, leaves that whole directory out of every snapshot.
    pub store: Option<WirePath>,
    /// Which directory is the work tree. Default: the nearest repository.
    #[serde(default)]
    pub work_tree: WorkTree,
    /// A set of options under one name. Default: none.
    pub profile: Option<Profile>,
    /// Options for this call, over those of the profile and of the user's configuration.
    #[serde(default)]
    pub options: CallOptions,
    /// Ask to be told how far the call has come, where the interface has a way to tell.
    #[serde(default)]
    pub progress: bool,
}

/// Which directory is the work tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkTree {
    /// The nearest directory above `dir` that is a repository or is known already, else `dir`.
    #[default]
    Nearest,
    /// `dir` itself, whatever lies around it.
    Dir,
}

/// Options under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// What OpenCode does: new files above 2 MiB are left out, only git work trees are protected,
    /// and files that are ignored by now are not called changed.
    Opencode,
}

/// Which ignored files are kept beside a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IgnoredFiles {
    /// Small ones in directories that are not ignored themselves, and those that a tool names.
    Small,
    /// Those that a tool names.
    Named,
    /// None.
    None,
}

impl From<IgnoredFiles> for ctrlz::IgnoredFiles {
    fn from(files: IgnoredFiles) -> ctrlz::IgnoredFiles {
        match files {
            IgnoredFiles::Small => ctrlz::IgnoredFiles::Small,
            IgnoredFiles::Named => ctrlz::IgnoredFiles::Named,
            IgnoredFiles::None => ctrlz::IgnoredFiles::None,
        }
    }
}

/// What a call decides for itself. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallOptions {
    /// Switches snapshots off. What the user switched off stays off.
    pub enabled: Option<bool>,
    /// Protect only git work trees.
    pub require_git: Option<bool>,
    /// Skip and report new files above this size.
    pub max_new_file_bytes: Option<u64>,
    /// Patterns, as in `.gitignore`, to leave out beyond what is ignored.
    #[serde(default, deserialize_with = "bounded_option")]
    pub exclude: Option<Vec<String>>,
    /// Patterns to capture although they are ignored.
    #[serde(default, deserialize_with = "bounded_option")]
    pub include_ignored: Option<Vec<String>>,
    /// Which ignored files are kept beside a snapshot.
    pub ignored: Option<IgnoredFiles>,
    /// Keep no more than this of ignored files beside a snapshot.
    pub max_ignored_bytes: Option<u64>,
    /// No more bytes of files that one tool call names, and that are ignored or large, are kept.
    pub max_named_bytes: Option<u64>,
    /// Whether files of repositories inside the work tree are captured.
    pub nested_repos: Option<bool>,
    /// Refuse more files than this.
    pub max_files: Option<u64>,
    /// Refuse more new bytes than this in one snapshot.
    pub max_snapshot_bytes: Option<u64>,
    /// Free space that must remain where the store is.
    pub min_free_bytes: Option<u64>,
    /// What the objects of the store may take; what does not fit is left out and reported.
    pub max_store_bytes: Option<u64>,
    /// The same for all stores under the data dir together.
    pub max_total_bytes: Option<u64>,
    /// Where the log's refs lie in the store.
    pub ref_prefix: Option<String>,
    /// How many checkpoints that are not pinned are kept.
    pub keep_checkpoints: Option<u64>,
    /// Do not call files changed that are ignored by now.
    pub hide_ignored: Option<bool>,
    /// Allow directories that are far more than a project, such as a home.
    pub allow_dangerous_root: Option<bool>,
    /// Threads to work with.
    pub threads: Option<u16>,
    /// How long to wait for another process on the same work tree.
    pub patience_millis: Option<u64>,
}

impl CallOptions {
    /// These options, and where they say nothing those of the profile.
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
    /// What was decided for this call.
    pub fn decided_options(&self) -> CallOptions {
        self.options.clone().over(self.profile)
    }
}

/// A work tree, and what the user's configuration says beyond the options of the engine.
pub struct Opened {
    /// The work tree.
    pub workspace: Workspace,
    /// How many checkpoints that are not pinned are kept.
    pub keep_checkpoints: usize,
    /// What `gc` keeps where the call says nothing.
    pub retention: Retention,
    /// What is kept for agents beside snapshots; `None` where nobody keeps it.
    pub agents: Option<Box<dyn Agents>>,
}

impl From<Workspace> for Opened {
    fn from(workspace: Workspace) -> Opened {
        let keep_checkpoints = ctrlz::CheckpointOptions::default().keep;
        Opened { workspace, keep_checkpoints, retention: Retention::default(), agents: None }
    }
}

/// Whoever knows the user's configuration. The engine reads none, and neither does this crate.
pub trait Host: Send + Sync {
    /// Opens the work tree of a call.
    fn open(&self, place: &Place) -> Result<Opened, WireError>;

    /// Called once the caller has its answer, if the call recorded or wrote something: the time for
    /// what may wait. By default nothing is done.
    fn rest(&self, workspace: &Workspace) {
        let _ = workspace;
    }

    /// Refuses a snapshot that the caller must not read, as if it did not exist. By default every
    /// snapshot of the store can be read.
    fn check_snapshot(&self, workspace: &Workspace, hash: &ObjectId) -> Result<(), WireError> {
        let _ = (workspace, hash);
        Ok(())
    }

    /// Refuses a path that a step must not name: the directory that its tool runs in, or a file
    /// that it changes. By default every path can be named.
    fn check_named(&self, path: &Path) -> Result<(), WireError> {
        let _ = path;
        Ok(())
    }

    /// The process whose end closes the steps that are begun here; `None` if they outlive us.
    fn owner(&self) -> Option<u32>;
}
