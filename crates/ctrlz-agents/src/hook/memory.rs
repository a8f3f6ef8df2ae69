//! What one event of a session leaves for the next: clients tell too little in each of them.
//!
//! A file per session below the data directory. Losing it costs a turn's name and a notice, never
//! a snapshot, so nothing here is flushed and a torn file counts as none.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Event;
use crate::private::{self, fingerprint};

/// Nobody goes on with a session that was silent for so long.
const MAX_AGE: Duration = Duration::from_secs(60 * 60 * 24 * 30);
const MAX_BYTES: u64 = 1 << 16;

/// What is known of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The directory that it works in, as its first event said.
    pub dir: Option<PathBuf>,
    /// The turn it is in.
    pub turn: Option<String>,
    /// The newest operation that its agent knows of; empty if there was none yet.
    pub seen: Option<String>,
    /// When it was last told of failures, in milliseconds since 1970.
    pub told_at_millis: u64,
    #[serde(skip)]
    path: PathBuf,
    #[serde(skip)]
    stored: Option<Box<Memory>>,
}

impl Memory {
    /// What is known of the event's session, below the data directory.
    pub fn of(data_dir: &Path, event: &Event) -> Memory {
        let name = [event.client.name().as_bytes(), event.session.as_bytes()];
        let dir = data_dir.join("agents/sessions");
        let path = dir.join(format!("{}-{:016x}", event.client.name(), fingerprint(&name)));
        let stored = private::read(&path, MAX_BYTES).ok().flatten();
        let stored = stored.and_then(|bytes| serde_json::from_slice::<Memory>(&bytes).ok());
        let known = stored.clone().unwrap_or_default();
        Memory { path, stored: stored.map(Box::new), ..known }
    }

    /// Whether no event of the session was seen before.
    pub fn is_new(&self) -> bool {
        self.stored.is_none()
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
