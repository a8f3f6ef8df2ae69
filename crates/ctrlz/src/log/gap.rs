//! The note that a turn is not recorded because the store's disk is full.
//!
//! The note itself must fit on that disk. Its file is allocated in advance and rewritten in place.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::Named;
use crate::fs::private::{self, Durable};

use super::operation::{Gap, UnrecordedTurn};

/// Size of the file: one block on most file systems.
const BYTES: usize = 4096;

/// A gap that no operation has closed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenGap {
    /// Newest operation when recording failed. The note is obsolete once there is a newer one.
    pub(crate) after: String,
    pub(crate) gap: Gap,
}

impl OpenGap {
    /// Allocates the file if it does not exist. Best effort: without it, gaps are not noted.
    pub(crate) fn allocate(path: &Path) {
        if path.symlink_metadata().is_err() {
            drop(private::replace(path, &[0; BYTES], Durable::No));
        }
    }

    /// Reads the note. Returns `None` if it is empty or torn.
    pub(crate) fn load(path: &Path) -> Option<OpenGap> {
        let bytes = private::read_small(path, BYTES as u64).ok().flatten()?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        serde_json::from_slice(&bytes[..end]).ok()
    }

    /// Adds a turn, once. If the turns do not fit, [`OpenGap::save`] drops the oldest.
    pub(crate) fn add(&mut self, turn: UnrecordedTurn) {
        if !self.gap.turns.contains(&turn) {
            self.gap.turns.push(turn);
        }
    }

    pub(crate) fn save(mut self, path: &Path) -> Result<(), Error> {
        let json = |note: &OpenGap| serde_json::to_vec(note).expect("plain data has a JSON form");
        let mut bytes = json(&self);
        while bytes.len() > BYTES && !self.gap.turns.is_empty() {
            self.gap.turns.remove(0);
            bytes = json(&self);
        }
        rewrite(path, &bytes)
    }

    /// Clears the note unless it is empty.
    pub(crate) fn forget(path: &Path) -> Result<(), Error> {
        let bytes = private::read_small(path, BYTES as u64)?;
        if bytes.is_some_and(|bytes| bytes.first().is_some_and(|first| *first != 0)) {
            rewrite(path, &[])
        } else {
            Ok(())
        }
    }
}

/// Overwrites the allocated block.
fn rewrite(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut block = [0; BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    let mut file = private::open_or_create(path)?;
    file.write_all(&block).and_then(|()| file.sync_data()).named("write", path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(message: &str) -> UnrecordedTurn {
        let message = Some(message.to_owned());
        UnrecordedTurn { who: Some("claude-code".into()), session: "s".into(), message }
    }

    #[test]
    fn a_note_is_rewritten_in_place_and_never_grows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gap");
        OpenGap::allocate(&path);
        assert_eq!(OpenGap::load(&path), None);
        let gap = Gap { why: "store disk full".into(), turns: Vec::new() };
        let mut note = OpenGap { after: "01".into(), gap };
        for number in 0..300 {
            note.add(turn(&format!("turn {number}")));
            note.add(turn(&format!("turn {number}")));
        }
        note.save(&path).unwrap();
        assert_eq!(path.metadata().unwrap().len(), BYTES as u64);
        let stored = OpenGap::load(&path).unwrap();
        assert_eq!(stored.gap.turns.last(), Some(&turn("turn 299")));
        OpenGap::forget(&path).unwrap();
        assert_eq!(OpenGap::load(&path), None);
        assert_eq!(path.metadata().unwrap().len(), BYTES as u64);
    }
}
