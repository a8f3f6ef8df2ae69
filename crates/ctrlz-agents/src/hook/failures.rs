//! Failures of hooks. Most clients do not show them, so they are kept until `status`, `doctor` or
//! the notice of the next prompt has shown them.
//!
//! The usual file is replaced as a whole, which needs free space. On a full disk, the newest
//! failures go into a note that was allocated earlier and is rewritten in place.

use std::io;
use std::path::{Path, PathBuf};

use ctrlz::now_millis;
use ctrlz_api::AgentFailure;
use serde::{Deserialize, Serialize};

use crate::private::{self, fingerprint};

/// Number of failures that are kept.
const MAX_KEPT: usize = 20;
const MAX_BYTES: u64 = 1 << 18;
/// Age at which a failure is no longer reported: seven days.
const MAX_AGE_MILLIS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Size of the note: one block on most file systems.
const NOTE_BYTES: usize = 4096;

/// Recorded failures of one directory.
#[derive(Clone, Debug)]
pub struct Failures {
    path: PathBuf,
    /// Note for full disks, which all directories share.
    note: PathBuf,
}

/// A failure in the note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// Name of the file that would otherwise hold it.
    of: String,
    #[serde(flatten)]
    failure: AgentFailure,
}

impl Failures {
    /// Returns the failures of hooks that ran in `dir`: a work tree, or a directory that could not
    /// become one.
    pub fn of(data_dir: &Path, dir: &Path) -> Failures {
        let name = fingerprint(&[dir.as_os_str().as_encoded_bytes()]);
        let path = data_dir.join(format!("agents/failures/{name:016x}"));
        Failures { path, note: data_dir.join("agents/note") }
    }

    /// Allocates the note while there is room for it. Best effort: without the note, failures on a
    /// full disk are not kept.
    pub fn allocate(&self) {
        self.check().and_then(|()| private::allocate(&self.note, NOTE_BYTES)).ok();
    }

    /// Fails if another user controls the directory.
    fn check(&self) -> io::Result<()> {
        self.note.parent().map_or(Ok(()), private::check_owner)
    }

    /// Records a failure. If two hooks fail at once, one of the failures may be lost; the other one
    /// is still reported.
    pub fn add(&self, client: &str, event: &str, why: &str) -> io::Result<()> {
        self.check()?;
        const MAX_CHARS: usize = 500;
        let short = |text: &str| text.chars().take(MAX_CHARS).collect();
        let (client, event, why) = (short(client), short(event), short(why));
        let failure = AgentFailure { at_millis: now_millis(), client, event, why };
        let mut kept = self.recent();
        kept.push(failure.clone());
        let first = kept.len().saturating_sub(MAX_KEPT);
        let bytes = serde_json::to_vec(&kept[first..]).expect("plain data has a JSON form");
        match private::replace(&self.path, &bytes) {
            Err(error) if is_full(&error) => self.add_to_note(failure),
            replaced => replaced,
        }
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn noted(&self) -> Vec<Noted> {
        let bytes = private::read(&self.note, MAX_BYTES).ok().flatten().unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        serde_json::from_slice(&bytes[..end]).unwrap_or_default()
    }

    fn add_to_note(&self, failure: AgentFailure) -> io::Result<()> {
        let mut noted = self.noted();
        noted.push(Noted { of: self.name(), failure });
        self.write_note(noted)
    }

    /// Rewrites the note, dropping the oldest failures if they do not fit.
    fn write_note(&self, mut noted: Vec<Noted>) -> io::Result<()> {
        loop {
            let mut bytes = if noted.is_empty() {
                Vec::new()
            } else {
                serde_json::to_vec(&noted).expect("plain data has a JSON form")
            };
            if bytes.len() <= NOTE_BYTES {
                bytes.resize(NOTE_BYTES, 0);
                return private::rewrite(&self.note, &bytes);
            }
            noted.remove(0);
        }
    }

    /// Removes all failures of this directory.
    pub fn forget(&self) -> io::Result<()> {
        self.check()?;
        let (own, others): (Vec<Noted>, Vec<Noted>) =
            self.noted().into_iter().partition(|noted| noted.of == self.name());
        if !own.is_empty() {
            self.write_note(others)?;
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Returns the failures of the last seven days, oldest first.
    pub fn recent(&self) -> Vec<AgentFailure> {
        if self.check().is_err() {
            return Vec::new();
        }
        let bytes = private::read(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        let mut kept: Vec<AgentFailure> = serde_json::from_slice(&bytes).unwrap_or_default();
        let noted = self.noted().into_iter().filter(|noted| noted.of == self.name());
        for Noted { failure, .. } in noted {
            if !kept.contains(&failure) {
                kept.push(failure);
            }
        }
        kept.sort_by_key(|failure| failure.at_millis);
        let oldest = now_millis().saturating_sub(MAX_AGE_MILLIS);
        kept.retain(|failure| failure.at_millis >= oldest);
        kept
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_the_note_are_shown_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let (one, other) = (Failures::of(dir.path(), &one), Failures::of(dir.path(), &other));
        one.allocate();
        let failure = |why: &str| AgentFailure {
            at_millis: now_millis(),
            client: "claude-code".into(),
            event: "PreToolUse".into(),
            why: why.into(),
        };
        // More than the note can hold.
        for number in 0..100 {
            one.add_to_note(failure(&format!("full {number}"))).unwrap();
        }
        other.add_to_note(failure("also full")).unwrap();
        assert_eq!(one.note.metadata().unwrap().len(), NOTE_BYTES as u64);
        assert_eq!(one.recent().last().unwrap().why, "full 99");
        assert_eq!(other.recent().len(), 1);
        one.forget().unwrap();
        assert_eq!((one.recent().len(), other.recent().len()), (0, 1));
        other.add("claude-code", "PostToolUse", "later").unwrap();
        assert_eq!(other.recent().len(), 2);
    }
}
