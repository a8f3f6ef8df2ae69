//! Status of a work tree and verification of its store, as JSON.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::agents::AgentFailure;
use crate::care::QuotaUse;
use crate::path::{Hash, WirePath};

use crate::snapshot::Skipped;
use crate::wire::{Wire, tag, wire};

/// Status of a work tree and its store.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// The work tree.
    pub root: WirePath,
    /// Whether snapshots are taken.
    pub enabled: bool,
    /// Whether it is a git work tree.
    pub git: bool,
    /// Path of the store, once it is known.
    pub store: Option<WirePath>,
    /// Size of the store in bytes.
    pub store_bytes: u64,
    /// Used part of the quota; `null` if there is no store yet.
    pub quota: Option<QuotaUse>,
    /// Number of packs in the store.
    pub packs: u64,
    /// Reason why garbage collection is due; `null` if it is not.
    pub gc_due: Option<String>,
    /// Error of the last garbage collection; `null` if it succeeded.
    pub gc_failed: Option<String>,
    /// Human-readable next action; `null` if none is needed.
    pub next_step: Option<String>,
    /// Number of files in the newest snapshot.
    pub files: u64,
    /// The newest snapshot.
    pub last: Option<Hash>,
    /// Time of that snapshot, in milliseconds since the Unix epoch.
    pub last_at_millis: Option<u64>,
    /// Paths that the newest snapshot does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Number of blobs that are still borrowed from the user's repository.
    pub borrowed: u64,
    /// A path for which the user's git index had a wrong id. Nothing has been borrowed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_index: Option<String>,
    /// Number of files of an interrupted restore. The next command that writes finishes it.
    pub interrupted_files: Option<u64>,
    /// The damaged packs.
    pub damaged_packs: Vec<DamagedPack>,
    /// Locks that are currently held.
    pub locks: Vec<HeldLock>,
    /// State of the watcher.
    pub watcher: Watcher,
    /// Recent events of agents that could not be recorded, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AgentFailure>,
}

/// State of the watcher of a work tree. With a watcher, snapshots scan only changed paths.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Watcher {
    /// `none`, `silent` (starting or not responding), `watching`, `refused`, or a newer one that is
    /// not in this list.
    pub state: String,
    /// Process id of the watcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Number of watched directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirs: Option<u64>,
    /// Reason why the last watcher could not watch the work tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&ctrlz::WatcherStatus> for Watcher {
    fn from(watcher: &ctrlz::WatcherStatus) -> Watcher {
        let (process, dirs, why) = match watcher {
            ctrlz::WatcherStatus::Watching { process, dirs } => (Some(*process), Some(*dirs), None),
            ctrlz::WatcherStatus::Refused { why } => (None, None, Some(tag(why, "why"))),
            _ => (None, None, None),
        };
        Watcher { state: watcher.code().to_owned(), process, dirs, why }
    }
}

wire! {
    /// A lock that is currently held.
    pub struct HeldLock from ctrlz::HeldLock {
        /// Name of the lock: `work tree`, `store` or `care`.
        pub what: &'static str,
        /// The processes that hold it.
        pub processes: Vec<u32>,
    }

    /// A damaged pack.
    pub struct DamagedPack from (PathBuf, String) {
        /// Path of the pack.
        pub path: WirePath = |(path, _)| path.wire(),
        /// Description of the damage.
        pub why: String = |(_, why)| why.clone(),
    }
}

impl Status {
    /// Reads the status of a work tree and of its watcher.
    pub fn of(workspace: &ctrlz::Workspace) -> Result<Status, ctrlz::Error> {
        let (status, watcher) = (&workspace.status()?, &workspace.watcher().status()?);
        Ok(Status {
            root: status.root.as_path().into(),
            enabled: status.enabled,
            git: status.git,
            store: status.store.as_deref().map(WirePath::from),
            store_bytes: status.store_bytes,
            quota: status.quota.as_ref().map(QuotaUse::from),
            packs: status.packs,
            gc_due: workspace.maintenance().collection_due()?,
            gc_failed: status.gc_failed.clone(),
            next_step: next_step(status).map(str::to_owned),
            files: status.files,
            last: status.last.map(Hash::from),
            last_at_millis: status.last_at_millis,
            skipped: status.skipped.wire(),
            borrowed: status.borrowed,
            wrong_index: status.wrong_index.clone(),
            interrupted_files: status.interrupted_files,
            damaged_packs: status.damaged_packs.wire(),
            locks: status.locks.iter().map(HeldLock::from).collect(),
            watcher: watcher.into(),
            failures: Vec::new(),
        })
    }
}

/// Returns the next action for the user, or `None` if none is needed.
pub fn next_step(status: &ctrlz::Status) -> Option<&'static str> {
    let is_failure = |skipped: &ctrlz::Skipped| skipped.reason.is_failure();
    Some(match status {
        ctrlz::Status { enabled: false, .. } => "set enabled = true in the configuration",
        ctrlz::Status { last: None, .. } => "ctrlz track",
        ctrlz::Status { damaged_packs, .. } if !damaged_packs.is_empty() => "ctrlz verify --repair",
        ctrlz::Status { gc_failed: Some(_), .. } => "ctrlz verify --repair, then ctrlz gc",
        ctrlz::Status { interrupted_files: Some(_), .. } => "ctrlz track",
        ctrlz::Status { quota: Some(quota), .. } if quota.warning() == Some(80) => {
            "ctrlz du, then ctrlz gc --thorough or a larger max_store_bytes"
        }
        ctrlz::Status { skipped, .. } if skipped.iter().any(is_failure) => {
            "look at what was skipped, then ctrlz track"
        }
        ctrlz::Status { .. } => return None,
    })
}

wire! {
    /// Result of checking a store.
    pub struct Verification from ctrlz::Verification {
        /// Whether no problem was found.
        pub ok: bool = |found| found.problems.is_empty(),
        /// Number of snapshots that were checked.
        pub snapshots: u64,
        /// Number of objects whose content matches their hash.
        pub objects: u64,
        /// The problems that were found.
        pub problems: Vec<Problem>,
    }

    /// A problem in a store.
    pub struct Problem from ctrlz::Problem {
        /// The damaged or missing object; `null` if the problem is not about an object.
        pub object: Option<Hash>,
        /// Path of the object in `snapshots`, escaped for printing.
        pub path: Option<String>,
        /// Snapshots that cannot be restored completely because of the problem.
        pub snapshots: Vec<Hash>,
        /// Description of the problem.
        pub what: String,
    }
}
