//! Steps that have begun and not ended: a small file of the work tree's, written under its lock.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::path::{PathText, TreePath};

use super::operation::StepInfo;

/// A step in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenStep {
    #[serde(flatten)]
    pub(crate) info: StepInfo,
    /// Paths the tool says it will change.
    #[serde(default)]
    pub(crate) paths: Vec<TreePath>,
    /// The snapshot when it began.
    pub(crate) before: ObjectId,
    /// The operation that recorded it.
    pub(crate) before_operation: String,
    /// The process that will close it, where one process does.
    #[serde(default)]
    pub(crate) owner: Option<ProcessId>,
    /// The process that starts the tool, if it is not the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools_of: Option<ProcessId>,
    /// Nobody will close it any more.
    #[serde(default)]
    pub(crate) abandoned: bool,
    /// The tool changes the files in `paths` and no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) only_named: bool,
    /// The tool starts a sub-agent and waits for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) starts_agent: bool,
    /// When it began, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) began_millis: u64,
    /// The kernel's clock when it began, as the start of processes is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) began_ticks: Option<u64>,
    /// When its agent was last known to be at it, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) last_sign_millis: u64,
    /// The limit for named files that are ignored or large, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_named_bytes: Option<u64>,
    /// Paths that the snapshot before it leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) uncaptured: Vec<Watched>,
}

/// A path that no snapshot holds, as it was when a step began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    pub(crate) path: PathText,
    pub(crate) why: String,
    #[serde(flatten)]
    pub(crate) stamp: Stamp,
}

/// The metadata by which a path is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) is_dir: bool,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    pub(crate) mtime: (i64, u32),
}

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    number: u32,
    started: u64,
}

impl ProcessId {
    /// A process and those above it, up to the first one.
    pub(crate) fn ancestors(number: u32) -> Vec<u32> {
        let mut chain = vec![number];
        while let Some(parent) = ProcessId::fields(chain[chain.len() - 1])
            .and_then(|fields| fields.get(1)?.parse().ok())
            .filter(|parent| *parent > 0 && !chain.contains(parent))
        {
            chain.push(parent);
        }
        chain
    }

    /// The process with this number, if it is alive.
    pub(crate) fn of(number: u32) -> Option<ProcessId> {
        let fields = ProcessId::fields(number)?;
        // One that has ended is listed until its parent asks, which may be never.
        let has_ended = matches!(fields.first()?.as_str(), "Z" | "X" | "x");
        let started = fields.get(19)?.parse().ok()?;
        (!has_ended).then_some(ProcessId { number, started })
    }

    /// The fields of `/proc/PID/stat`, from the state of the process on.
    fn fields(number: u32) -> Option<Vec<String>> {
        let stat = read_small(Path::new(&format!("/proc/{number}/stat")), 4096).ok().flatten()?;
        // The name may hold anything, also blanks and brackets; the fields follow its last one.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let text = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    /// When it started, by the kernel's clock.
    pub(crate) fn started(self) -> u64 {
        self.started
    }

    fn is_alive(self) -> bool {
        ProcessId::of(self.number) == Some(self)
    }
}

impl OpenStep {
    /// Whether its owner is known to be at it still.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.is_some_and(ProcessId::is_alive)
    }

    /// Whether it belongs to the process with this number, which knows itself what it does.
    pub(crate) fn is_owner(&self, process: u32) -> bool {
        self.owner.is_some_and(|owner| owner.number == process)
    }

    /// Who is at it, as far as that is known.
    pub(crate) fn holder(&self) -> Option<String> {
        let process = self.owner.map(|owner| format!("process {}", owner.number));
        let who = self.info.who.clone();
        match (who, process) {
            (Some(who), Some(process)) => Some(format!("{who}, {process}")),
            (who, process) => who.or(process),
        }
    }

    /// Whether a process that its owner started after the step began is still running: the tool,
    /// as far as can be told. `apart` are processes that are not it.
    pub(crate) fn tool_is_running(&self, apart: &[u32]) -> bool {
        let (Some(owner), Some(began)) = (self.tools_of.or(self.owner), self.began_ticks) else {
            return false;
        };
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.any(|pid| {
            let started = ProcessId::of(pid).is_some_and(|process| process.started >= began);
            started && !apart.contains(&pid) && ProcessId::ancestors(pid).contains(&owner.number)
        })
    }

    /// Whether its owner is known to be gone.
    pub(crate) fn is_orphan(&self) -> bool {
        self.owner.is_some() && !self.is_owned()
    }
}

/// Reads the open steps; a torn file means none.
pub(crate) fn load(path: &Path) -> Result<Vec<OpenStep>, Error> {
    let bytes = read_small(path, 64 << 20)?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Replaces the open steps, durably.
pub(crate) fn save(path: &Path, steps: &[OpenStep]) -> Result<(), Error> {
    let bytes = serde_json::to_vec(steps).expect("plain data has a JSON form");
    Ok(private::replace(path, &bytes, Durable::Yes)?)
}
