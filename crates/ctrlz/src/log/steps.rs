//! Open steps: a small file of the work tree, written under its lock.

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
    /// Paths that the tool announced it will change.
    #[serde(default)]
    pub(crate) paths: Vec<TreePath>,
    /// Snapshot at the beginning of the step.
    pub(crate) before: ObjectId,
    /// Operation that recorded that snapshot.
    pub(crate) before_operation: String,
    /// Process that will close the step, if it is a single process.
    #[serde(default)]
    pub(crate) owner: Option<ProcessId>,
    /// Process that starts the tool, if it is not the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools_of: Option<ProcessId>,
    /// Whether no process will close the step any more.
    #[serde(default)]
    pub(crate) abandoned: bool,
    /// Whether the tool changes only the files in `paths`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) only_named: bool,
    /// Whether the tool starts a sub-agent and waits for it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) starts_agent: Option<bool>,
    /// Time at which the step began, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) began_millis: u64,
    /// Time at which the step began, in clock ticks since boot, like the start times of processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) began_ticks: Option<u64>,
    /// Whether the owner recorded the beginning itself, as `ctrlz run` does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recorded_by_owner: bool,
    /// Last time its agent was known to be active, in milliseconds since 1970.
    #[serde(default)]
    pub(crate) last_sign_millis: u64,
    /// Size limit for named files that are ignored or large, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_named_bytes: Option<u64>,
    /// Paths that the snapshot at the beginning and the capture of outside paths leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) uncaptured: Vec<Watched>,
}

/// A path that no snapshot holds, with its state at the beginning of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    pub(crate) path: PathText,
    pub(crate) why: String,
    #[serde(flatten)]
    pub(crate) stamp: Stamp,
}

/// Metadata that identifies a version of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    pub(crate) is_dir: bool,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    pub(crate) mtime: (i64, u32),
    /// Permissions; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<u32>,
    /// Birth time, if the file system records it; absent in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) born: Option<(i64, u32)>,
}

impl Stamp {
    /// Returns whether both can be the same file or directory. An inode number alone does not prove
    /// it, because file systems reuse the number of a removed one.
    pub(crate) fn is_same_inode(&self, other: &Stamp) -> bool {
        self.inode == other.inode && is_same_if_known(self.born, other.born)
    }

    /// Returns whether the size, the modification time and the permissions are equal.
    pub(crate) fn is_unmodified(&self, other: &Stamp) -> bool {
        self.bytes == other.bytes
            && self.mtime == other.mtime
            && is_same_if_known(self.mode, other.mode)
    }
}

fn is_same_if_known<T: PartialEq + Copy>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// A process. The start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    number: u32,
    started: u64,
}

impl ProcessId {
    /// Returns a process and its ancestors, up to the first process.
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

    /// Returns the process with this id, if it is alive.
    pub(crate) fn of(number: u32) -> Option<ProcessId> {
        let fields = ProcessId::fields(number)?;
        // A zombie is listed until its parent reaps it, which may never happen.
        let has_ended = matches!(fields.first()?.as_str(), "Z" | "X" | "x");
        let started = fields.get(19)?.parse().ok()?;
        (!has_ended).then_some(ProcessId { number, started })
    }

    /// Returns the fields of `/proc/PID/stat`, starting with the state.
    fn fields(number: u32) -> Option<Vec<String>> {
        let stat = read_small(Path::new(&format!("/proc/{number}/stat")), 4096).ok().flatten()?;
        // The name may contain blanks and parentheses. The fields follow the last parenthesis.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let text = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
        Some(text.split_whitespace().map(str::to_owned).collect())
    }

    fn is_alive(self) -> bool {
        ProcessId::of(self.number) == Some(self)
    }
}

impl OpenStep {
    /// Returns whether the call names a path or a directory above it.
    pub(crate) fn names(&self, path: &TreePath) -> bool {
        self.paths.iter().any(|named| path.is_within(named))
    }

    /// Returns whether its owner is known and alive.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner.is_some_and(ProcessId::is_alive)
    }

    /// Returns whether this process, which knows the state of its own steps, owns the step.
    pub(crate) fn is_owner(&self, process: u32) -> bool {
        self.owner.is_some_and(|owner| owner.number == process)
    }

    /// Returns the agent and the process that work on the step, as far as they are known.
    pub(crate) fn holder(&self) -> Option<String> {
        let process = self.owner.map(|owner| format!("process {}", owner.number));
        let who = self.info.who.clone();
        match (who, process) {
            (Some(who), Some(process)) => Some(format!("{who}, {process}")),
            (who, process) => who.or(process),
        }
    }

    /// Returns whether a descendant of the owner that started after the step began is still
    /// running. That is most likely the tool. Processes in `apart` are not counted.
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

    /// Returns whether its owner is known and no longer alive.
    pub(crate) fn is_orphan(&self) -> bool {
        self.owner.is_some() && !self.is_owned()
    }
}

/// Reads the open steps. A missing or torn file counts as empty.
pub(crate) fn load(path: &Path) -> Result<Vec<OpenStep>, Error> {
    Ok(private::load_json(path, 64 << 20)?.unwrap_or_default())
}

/// Replaces the open steps, durably.
pub(crate) fn save(path: &Path, steps: &[OpenStep]) -> Result<(), Error> {
    Ok(private::save_json(path, steps, Durable::Yes)?)
}
