//! What went wrong in a hook. Its client hears nothing of it, so it is kept until people do:
//! `status`, `doctor` and the notice of the next prompt show it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::private::{self, fingerprint};

/// As many as anybody reads.
const MAX_KEPT: usize = 20;
const MAX_BYTES: u64 = 1 << 18;
/// Older ones help nobody any more.
const MAX_AGE_MILLIS: u64 = 7 * 24 * 60 * 60 * 1000;

/// A hook that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// Which client.
    pub client: String,
    /// Which of its events.
    pub event: String,
    /// Why.
    pub why: String,
}

/// The failures in one directory.
#[derive(Clone, Debug)]
pub struct Failures {
    path: PathBuf,
}

impl Failures {
    /// Those of hooks that ran for `dir`, a work tree or what could not become one.
    pub fn of(data_dir: &Path, dir: &Path) -> Failures {
        let name = fingerprint(&[dir.as_os_str().as_encoded_bytes()]);
        Failures { path: data_dir.join(format!("agents/failures/{name:016x}")) }
    }

    /// Keeps a failure. Two hooks at once may keep only one of theirs, which still tells.
    pub fn add(&self, client: &str, event: &str, why: &str) -> io::Result<()> {
        const MAX_CHARS: usize = 500;
        let short = |text: &str| text.chars().take(MAX_CHARS).collect();
        let (client, event, why) = (short(client), short(event), short(why));
        let mut kept = self.recent();
        kept.push(Failure { at_millis: now_millis(), client, event, why });
        let first = kept.len().saturating_sub(MAX_KEPT);
        let bytes = serde_json::to_vec(&kept[first..]).expect("plain data has a JSON form");
        private::replace(&self.path, &bytes)
    }

    /// Removes all of them.
    pub fn forget(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The failures of the last days, oldest first.
    pub fn recent(&self) -> Vec<Failure> {
        let bytes = private::read(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        let mut kept: Vec<Failure> = serde_json::from_slice(&bytes).unwrap_or_default();
        let oldest = now_millis().saturating_sub(MAX_AGE_MILLIS);
        kept.retain(|failure| failure.at_millis >= oldest);
        kept
    }
}

pub(super) fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
