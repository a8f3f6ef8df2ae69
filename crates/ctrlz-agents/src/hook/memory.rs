//! What one event of a session leaves for the next: clients tell too little in each of them.
//!
//! A file per session below the data directory. Losing it costs a turn's name and a notice, never
//! a snapshot, so nothing here is flushed and a torn file counts as none.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Event, What};
use crate::private::{self, fingerprint};

/// Nobody goes on with a session that was silent for so long.
const MAX_AGE: Duration = Duration::from_secs(60 * 60 * 24 * 30);
const MAX_BYTES: u64 = 1 << 16;

/// A process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64)", into = "(u32, u64)")]
pub struct ClientProcess {
    /// Its number.
    pub number: u32,
    /// When it started, by the kernel's clock. Numbers are used again.
    pub started: u64,
}

impl From<(u32, u64)> for ClientProcess {
    fn from((number, started): (u32, u64)) -> ClientProcess {
        ClientProcess { number, started }
    }
}

impl From<ClientProcess> for (u32, u64) {
    fn from(process: ClientProcess) -> (u32, u64) {
        (process.number, process.started)
    }
}

impl ClientProcess {
    /// Whether the process is still running.
    fn is_alive(self) -> bool {
        ClientProcess::of(self.number) == Some(self)
    }

    /// The process with this number, if there is one.
    pub fn of(number: u32) -> Option<ClientProcess> {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The name stands in brackets and may hold anything; the start is the 20th field after it.
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(ClientProcess { number, started })
    }
}

/// The process and the project directory of the client that runs a hook.
pub struct Caller<'a> {
    /// The client's process.
    pub process: Option<ClientProcess>,
    /// The project as the client itself names it. It does not change with the agent's directory.
    pub project: Option<PathBuf>,
    /// Finds the work tree of a directory.
    pub root_of: &'a dyn Fn(&Path) -> PathBuf,
}

/// What is known of a session.
///
/// A session is a client, an id and a project. Some clients have ids that come again in every
/// project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The directory that it works in, as its first event said.
    pub dir: Option<PathBuf>,
    /// The turn it is in.
    pub turn: Option<String>,
    /// The newest operation that its agent knows of; empty if there was none yet.
    pub seen: Option<String>,
    /// Steps of the turn whose tools have run, and for how long, in milliseconds. If a step could not
    /// be ended then, the end of its batch must not take its tool for refused.
    pub ran: Vec<(String, Option<u64>)>,
    /// Steps whose beginning is being recorded. One that is left here and not open was cut off.
    pub beginning: Vec<String>,
    /// The client's process.
    pub process: Option<ClientProcess>,
    /// The process ran several hooks. Otherwise it may be a helper that the client starts for each.
    pub steady: bool,
    /// When it was last told of failures, in milliseconds since 1970.
    pub told_at_millis: u64,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    stored: Option<Box<Memory>>,
}

impl Memory {
    /// Finds what is known of the event's session, below the data directory, and in which directory
    /// it works; `dir` is `None` if nothing says so.
    ///
    /// A session stays where it began: an agent that changes its directory while a tool runs must
    /// not end the step somewhere else. The same id in another project is another session: the
    /// client names another project, or it is another process of the client.
    pub fn of(data_dir: &Path, event: &Event, caller: &Caller<'_>) -> Memory {
        let name = [event.client.name().as_bytes(), event.session.as_bytes()];
        let sessions = data_dir.join("agents/sessions");
        let first = sessions.join(format!("{}-{:016x}", event.client.name(), fingerprint(&name)));
        let is_dir = |dir: &PathBuf| dir.is_absolute() && dir.is_dir();
        let project = caller.project.clone().filter(is_dir);
        let is_start = event.what == What::SessionStart;
        let stays = match project {
            None => known(&first, caller, is_start),
            Some(_) => None,
        };
        let stays = stays.filter(|known| known.dir.as_ref().is_some_and(is_dir));
        let found = match (stays, project.or_else(|| event.dir.clone().filter(is_dir))) {
            (Some(memory), _) => memory,
            (None, Some(dir)) => Memory::in_project(&first, dir, caller),
            (None, None) => Memory::load(&first),
        };
        let steady = match found.process == caller.process {
            true => caller.process.is_some() && !found.is_new(),
            false => false,
        };
        Memory { process: caller.process, steady, ..found }
    }

    /// The session in the project of `dir`.
    fn in_project(first: &Path, dir: PathBuf, caller: &Caller<'_>) -> Memory {
        let root = (caller.root_of)(&dir);
        let memory = Memory::load(first);
        let is_first = match &memory.dir {
            // One whose directory is gone was moved, or will not be asked for again.
            Some(known) => *known == dir || !known.is_dir() || (caller.root_of)(known) == root,
            None => true,
        };
        let memory = match is_first {
            true => memory,
            false => {
                let mut path = first.as_os_str().to_owned();
                let project = fingerprint(&[root.as_os_str().as_encoded_bytes()]);
                path.push(format!("-{project:016x}"));
                Memory::load(Path::new(&path))
            }
        };
        Memory { dir: Some(dir), ..memory }
    }

    fn load(path: &Path) -> Memory {
        let stored = private::read(path, MAX_BYTES).ok().flatten();
        let stored = stored.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok());
        let known = stored.clone().unwrap_or_default();
        Memory { path: path.to_owned(), stored: stored.map(Box::new), ..known }
    }

    /// Whether the client's process that ran the session's last hook cannot be the caller's.
    fn is_anothers(&self, caller: &Caller<'_>) -> bool {
        let (Some(process), Some(asking)) = (self.process, caller.process) else { return false };
        process != asking && (self.steady || process.is_alive())
    }

    /// Whether no event of the session was seen before.
    pub fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// The turn as the last event left it.
    pub fn stored_turn(&self) -> Option<String> {
        self.stored.as_ref().and_then(|stored| stored.turn.clone())
    }

    /// Stores it, if there is anything new.
    pub fn save(&self) -> io::Result<()> {
        let plain = Memory { path: PathBuf::new(), stored: None, ..self.clone() };
        if self.stored.as_deref() == Some(&plain) {
            return Ok(());
        }
        if self.is_new() {
            forget_old(self.path.parent().unwrap_or(Path::new(".")));
        }
        let bytes = serde_json::to_vec(&plain).expect("plain data has a JSON form");
        private::replace(&self.path, &bytes)
    }
}

/// Returns the session that the caller goes on with, in whatever directory its agent is now: the one
/// of its process, else the only one that may be. One that starts says its directory itself.
fn known(first: &Path, caller: &Caller<'_>, is_start: bool) -> Option<Memory> {
    let is_own = |memory: &Memory| memory.process.is_some() && memory.process == caller.process;
    let memory = Memory::load(first);
    if memory.is_new() {
        return None;
    }
    if is_own(&memory) {
        return Some(memory);
    }
    let name = first.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    let entries = first.parent().and_then(|dir| std::fs::read_dir(dir).ok());
    let others = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let others = others.filter(|path| {
        let found = path.file_name().unwrap_or_default().as_encoded_bytes();
        found.starts_with(&name) && found.get(name.len()) == Some(&b'-')
    });
    let mut all: Vec<Memory> = others.map(|path| Memory::load(&path)).collect();
    if let Some(own) = all.iter().position(is_own) {
        return Some(all.swap_remove(own));
    }
    if is_start {
        return None;
    }
    all.push(memory);
    all.retain(|memory| !memory.is_anothers(caller));
    match all.len() {
        1 => all.pop(),
        // The event's directory decides.
        _ => None,
    }
}

/// Removes what nobody will ask for any more. What cannot be removed is tried again next time.
fn forget_old(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > MAX_AGE) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}
