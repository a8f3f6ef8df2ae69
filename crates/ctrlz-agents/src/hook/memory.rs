//! State that one event of a session leaves for the next, because single events contain too little.
//!
//! It is one file per session below the data directory. Losing it costs the name of a turn and a
//! notice, never a snapshot, so the file is not flushed, and a torn file counts as missing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Event, What};
use crate::private::{self, fingerprint};

/// Time without events after which a session is forgotten: 30 days.
const MAX_AGE: Duration = Duration::from_secs(60 * 60 * 24 * 30);
const MAX_BYTES: u64 = 1 << 16;

/// A process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64)", into = "(u32, u64)")]
pub struct ClientProcess {
    /// Process id.
    pub number: u32,
    /// Start time by the kernel's clock, because process ids are reused.
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
    /// Returns whether the process is still running.
    fn is_alive(self) -> bool {
        ClientProcess::of(self.number) == Some(self)
    }

    /// Returns the process with this id, if it exists.
    pub fn of(number: u32) -> Option<ClientProcess> {
        let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The name is in parentheses and may contain anything; the start time is the 20th field
        // after it.
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(ClientProcess { number, started })
    }
}

/// The process and the project directory of the client that runs a hook.
pub struct Caller<'a> {
    /// The client's process.
    pub process: Option<ClientProcess>,
    /// Project directory that the client names. It does not follow the agent's directory.
    pub project: Option<PathBuf>,
    /// Finds the work tree of a directory.
    pub root_of: &'a dyn Fn(&Path) -> PathBuf,
}

/// State of a session.
///
/// A session is identified by client, id and project, because some clients reuse their ids in every
/// project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Directory that the session works in, from its first event.
    pub dir: Option<PathBuf>,
    /// Current turn.
    pub turn: Option<String>,
    /// Newest operation that the agent knows of; empty if there was none yet.
    pub seen: Option<String>,
    /// Steps of the turn whose tools have run, with their durations in milliseconds. If a step
    /// could not be ended then, the end of the batch must not take its tool for refused.
    pub ran: Vec<(String, Option<u64>)>,
    /// Steps whose beginning is being recorded. A step that is still here but not open was cut off.
    pub beginning: Vec<String>,
    /// The client's process.
    pub process: Option<ClientProcess>,
    /// Whether the process ran several hooks. Otherwise it may be a helper that the client starts
    /// for each hook.
    pub steady: bool,
    /// Time of the last notice about failures, in milliseconds since 1970.
    pub told_at_millis: u64,
    /// Time of the last prompt, in milliseconds since 1970.
    pub prompted_millis: u64,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    stored: Option<Box<Memory>>,
}

impl Memory {
    /// Loads the state of the event's session and determines the directory that it works in. `dir`
    /// is `None` if nothing names one.
    ///
    /// A session stays in the directory where it began: an agent that changes its directory while a
    /// tool runs must not end the step in another project. The same id in another project is
    /// another session. It is recognized by the project that the client names, or by the client's
    /// process.
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
        // No tool runs when a turn begins, so that its directory is where the agent works now.
        let begins = is_start || event.what == What::Prompt;
        let stays = stays.filter(|known| !begins || is_same_project(known, event, caller));
        let found = match (stays, project.or_else(|| event.dir.clone().filter(is_dir))) {
            (Some(memory), _) => memory,
            (None, Some(dir)) => Memory::in_project(&first, dir, caller),
            (None, None) => Memory::load(&first),
        };
        let steady = if found.process == caller.process {
            caller.process.is_some() && !found.is_new()
        } else {
            false
        };
        let prompted_millis = if begins { ctrlz::now_millis() } else { found.prompted_millis };
        Memory { process: caller.process, steady, prompted_millis, ..found }
    }

    /// Returns the session in the project of `dir`.
    fn in_project(first: &Path, dir: PathBuf, caller: &Caller<'_>) -> Memory {
        let root = (caller.root_of)(&dir);
        let memory = Memory::load(first);
        let is_first = match &memory.dir {
            // If the directory is gone, the project was moved or will not be used again.
            Some(known) => *known == dir || !known.is_dir() || (caller.root_of)(known) == root,
            None => true,
        };
        let memory = if is_first {
            memory
        } else {
            let mut path = first.as_os_str().to_owned();
            let project = fingerprint(&[root.as_os_str().as_encoded_bytes()]);
            path.push(format!("-{project:016x}"));
            Memory::load(Path::new(&path))
        };
        Memory { dir: Some(dir), ..memory }
    }

    fn load(path: &Path) -> Memory {
        let is_own = check_owner(path).is_ok();
        let stored = is_own.then(|| private::read(path, MAX_BYTES).ok().flatten()).flatten();
        let stored = stored.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok());
        let known = stored.clone().unwrap_or_default();
        Memory { path: path.to_owned(), stored: stored.map(Box::new), ..known }
    }

    /// Returns whether another process of the client certainly ran the session's last hook.
    fn is_anothers(&self, caller: &Caller<'_>) -> bool {
        let (Some(process), Some(asking)) = (self.process, caller.process) else { return false };
        process != asking && (self.steady || process.is_alive())
    }

    /// Returns whether this is the first event of the session.
    pub fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// Returns the turn as of the previous event.
    pub fn stored_turn(&self) -> Option<String> {
        self.stored.as_ref().and_then(|stored| stored.turn.clone())
    }

    /// Saves the state if it has changed.
    pub fn save(&self) -> io::Result<()> {
        let plain = Memory { path: PathBuf::new(), stored: None, ..self.clone() };
        if self.stored.as_deref() == Some(&plain) {
            return Ok(());
        }
        check_owner(&self.path)?;
        if self.is_new() {
            forget_old(self.path.parent().unwrap_or(Path::new(".")));
        }
        let bytes = serde_json::to_vec(&plain).expect("plain data has a JSON form");
        private::replace(&self.path, &bytes)
    }
}

/// Fails if another user controls the directory of a session's file, `agents/sessions/NAME`.
fn check_owner(path: &Path) -> io::Result<()> {
    path.ancestors().nth(2).map_or(Ok(()), private::check_owner)
}

/// Returns the session that the caller continues, whatever its agent's current directory: the
/// session of its process, or else the only candidate. A session that starts names its directory
/// itself.
fn known(first: &Path, caller: &Caller<'_>, is_start: bool) -> Option<Memory> {
    let is_own = |memory: &Memory| memory.process.is_some() && memory.process == caller.process;
    let memory = Memory::load(first);
    if memory.is_new() {
        return None;
    }
    let name = first.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    let entries = first.parent().and_then(|dir| std::fs::read_dir(dir).ok());
    let others = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let others = others.filter(|path| {
        let found = path.file_name().unwrap_or_default().as_encoded_bytes();
        found.starts_with(&name) && found.get(name.len()) == Some(&b'-')
    });
    let mut all: Vec<Memory> = others.map(|path| Memory::load(&path)).collect();
    all.push(memory);
    // A process may have moved to another project; the last prompt shows where it is.
    let own = (0..all.len()).filter(|at| is_own(&all[*at]));
    if let Some(newest) = own.max_by_key(|at| all[*at].prompted_millis) {
        return Some(all.swap_remove(newest));
    }
    if is_start {
        return None;
    }
    all.retain(|memory| !memory.is_anothers(caller));
    match all.len() {
        1 => all.pop(),
        // Ambiguous: the event's directory decides.
        _ => None,
    }
}

/// Returns whether an event names no directory, or one in the project of a session.
fn is_same_project(memory: &Memory, event: &Event, caller: &Caller<'_>) -> bool {
    let named = event.dir.as_deref().filter(|dir| dir.is_absolute() && dir.is_dir());
    let (Some(named), Some(known)) = (named, &memory.dir) else { return true };
    named == known || (caller.root_of)(named) == (caller.root_of)(known)
}

/// Removes expired sessions. Errors are ignored: the next call tries again.
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
