//! Results of commands that exchange history or install hooks, as JSON. No method returns them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::wire::wire;

wire! {
    /// Result of `ctrlz export`.
    pub struct Exported from ctrlz::Exported {
        /// Path of the written file.
        pub file: WirePath,
        /// Size of the file in bytes.
        pub bytes: u64,
        /// Name of the exported log.
        pub log: String,
        /// Number of exported operations.
        pub operations: u64,
        /// Exported sessions.
        pub sessions: Vec<String>,
        /// Number of exported objects.
        pub objects: u64,
        /// Whether ignored files are included.
        pub ignored: bool,
        /// Paths that were left out of every snapshot, which changes the hashes of the snapshots.
        pub redacted: Vec<WirePath>,
        /// Newest exported snapshot.
        pub snapshot: Hash,
    }

    /// Result of `ctrlz import`.
    pub struct Imported from ctrlz::Imported {
        /// Name of the log in the file.
        pub log: String,
        /// Whether it became the history of this work tree; otherwise it is kept as a separate log.
        pub own: bool,
        /// Number of operations that are new here.
        pub operations: u64,
        /// Sessions in the file.
        pub sessions: Vec<String>,
        /// Newest snapshot in the file.
        pub snapshot: Hash,
        /// Whether the file includes ignored files.
        pub ignored: bool,
        /// Paths that were left out of every snapshot.
        pub redacted: Vec<WirePath>,
    }
}

/// Result of `ctrlz push`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pushed {
    /// Address of the server, without a password.
    pub remote: String,
    /// Name of the log.
    pub log: String,
    /// Number of operations that the server did not have.
    pub operations: u64,
    /// Number of refs that were set.
    pub refs: usize,
}

wire! {
    /// Result of `ctrlz pull`.
    pub struct Pulled from ctrlz::Pulled {
        /// Logs with new operations.
        pub logs: Vec<PulledLog>,
        /// Logs that have diverged from the local logs of the same name; they were left unchanged.
        pub diverged: Vec<String>,
    }

    /// A log that was pulled.
    pub struct PulledLog from ctrlz::PulledLog {
        /// Name of the log.
        pub log: String,
        /// Number of operations that are new here.
        pub operations: u64,
        /// Newest snapshot of the log.
        pub snapshot: Option<Hash>,
    }

    /// Result of `ctrlz relink`.
    pub struct Relinked from ctrlz::Relinked {
        /// Path at which the history was recorded.
        pub from: WirePath,
        /// Directory that owns the history now.
        pub root: WirePath,
        /// Whether the directory already owned the history.
        pub already: bool,
        /// Newest snapshot of the history.
        pub snapshot: Option<Hash>,
        /// Log of the operations recorded at the new path before, if any. Its snapshots are kept.
        pub set_aside: Option<String>,
    }

    /// Result of `ctrlz adopt`.
    pub struct Adopted from ctrlz::Adopted {
        /// Directory that was read.
        pub from: WirePath,
        /// Number of operations that are new here.
        pub operations: u64,
        /// Number of snapshots that no operation names.
        pub snapshots: u64,
        /// Number of objects that were copied.
        pub objects: u64,
        /// Items that were left out, each with the reason.
        pub left_out: Vec<String>,
    }
}

/// Result of `ctrlz install` and `ctrlz uninstall`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Installation {
    /// The agents that were named or found.
    pub clients: Vec<Installed>,
    /// Whether a test change was recorded and undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<bool>,
}

/// Result for one agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Installed {
    /// Name of the agent.
    pub client: &'static str,
    /// The actions that were taken, or would be.
    pub actions: Vec<String>,
    /// Notes for the user about further steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Reason why nothing was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
