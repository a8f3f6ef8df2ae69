//! Results of commands that exchange history or install hooks, as JSON. No method returns them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};

/// Result of `ctrlz export`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Exported {
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

impl From<&ctrlz::Exported> for Exported {
    fn from(exported: &ctrlz::Exported) -> Exported {
        Exported {
            file: exported.file.as_path().into(),
            bytes: exported.bytes,
            log: exported.log.clone(),
            operations: exported.operations,
            sessions: exported.sessions.clone(),
            objects: exported.objects,
            ignored: exported.ignored,
            redacted: exported.redacted.iter().map(WirePath::from).collect(),
            snapshot: exported.snapshot.into(),
        }
    }
}

/// Result of `ctrlz import`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Imported {
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

impl From<&ctrlz::Imported> for Imported {
    fn from(imported: &ctrlz::Imported) -> Imported {
        Imported {
            log: imported.log.clone(),
            own: imported.own,
            operations: imported.operations,
            sessions: imported.sessions.clone(),
            snapshot: imported.snapshot.into(),
            ignored: imported.ignored,
            redacted: imported.redacted.iter().map(WirePath::from).collect(),
        }
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

/// Result of `ctrlz pull`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pulled {
    /// Logs with new operations.
    pub logs: Vec<PulledLog>,
    /// Logs that have diverged from the local logs of the same name; they were left unchanged.
    pub diverged: Vec<String>,
}

/// A log that was pulled.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PulledLog {
    /// Name of the log.
    pub log: String,
    /// Number of operations that are new here.
    pub operations: u64,
    /// Newest snapshot of the log.
    pub snapshot: Option<Hash>,
}

impl From<&ctrlz::Pulled> for Pulled {
    fn from(pulled: &ctrlz::Pulled) -> Pulled {
        let log = |log: &ctrlz::PulledLog| PulledLog {
            log: log.log.clone(),
            operations: log.operations,
            snapshot: log.snapshot.map(Hash::from),
        };
        Pulled { logs: pulled.logs.iter().map(log).collect(), diverged: pulled.diverged.clone() }
    }
}

/// Result of `ctrlz relink`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Relinked {
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

impl From<&ctrlz::Relinked> for Relinked {
    fn from(relinked: &ctrlz::Relinked) -> Relinked {
        Relinked {
            from: relinked.from.as_path().into(),
            root: relinked.root.as_path().into(),
            already: relinked.already,
            snapshot: relinked.snapshot.map(Hash::from),
            set_aside: relinked.set_aside.clone(),
        }
    }
}

/// Result of `ctrlz adopt`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Adopted {
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

impl From<&ctrlz::Adopted> for Adopted {
    fn from(adopted: &ctrlz::Adopted) -> Adopted {
        Adopted {
            from: adopted.from.as_path().into(),
            operations: adopted.operations,
            snapshots: adopted.snapshots,
            objects: adopted.objects,
            left_out: adopted.left_out.clone(),
        }
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
