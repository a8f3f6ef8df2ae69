//! Steps that have begun and not ended: a small file of the work tree's, written under its lock.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::path::TreePath;

use super::log::StepInfo;

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
    /// Nobody will close it any more.
    #[serde(default)]
    pub(crate) abandoned: bool,
}

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    number: u32,
    started: u64,
}

impl ProcessId {
    /// The process with this number, if it is alive.
    pub(crate) fn of(number: u32) -> Option<ProcessId> {
        let stat = read_small(Path::new(&format!("/proc/{number}/stat")), 4096).ok().flatten()?;
        // The name may hold anything, also blanks and brackets; the fields follow its last one.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let text = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
        let mut fields = text.split_whitespace();
        // One that has ended is listed until its parent asks, which may be never.
        let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
        let started = fields.nth(18)?.parse().ok()?;
        (!has_ended).then_some(ProcessId { number, started })
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

    /// Who is at it, as far as that is known.
    pub(crate) fn holder(&self) -> Option<String> {
        let process = self.owner.map(|owner| format!("process {}", owner.number));
        let who = self.info.who.clone();
        match (who, process) {
            (Some(who), Some(process)) => Some(format!("{who}, {process}")),
            (who, process) => who.or(process),
        }
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
