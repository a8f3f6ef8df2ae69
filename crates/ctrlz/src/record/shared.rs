//! Shared scans: a process that waited for the lock may use the scan of another process.
//!
//! Each scan leaves a note of its start and its result. A process that asked for a snapshot before
//! that start uses the result. An earlier scan may have missed a change that the request is about.

use std::hash::{Hash, Hasher};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private;
use crate::git::ObjectId;
use crate::log::{Operation, WorkTree};
use crate::options::Options;

use super::draft::Snapshot;
use super::request::TrackOptions;
use crate::hold::Hold;

/// A time of the boot clock, which all processes share and which cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Moment(i128);

impl Moment {
    pub(crate) fn now() -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec))
    }

    /// Returns the time in clock ticks since boot, the unit of the start times of processes.
    pub(crate) fn ticks(self) -> u64 {
        // `USER_HZ` is 100 on every architecture that Rust's standard library supports.
        u64::try_from(self.0 / (1_000_000_000 / 100)).unwrap_or_default()
    }
}

/// The note of a finished scan.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Times of another boot are not comparable.
    boot: String,
    began: Moment,
    /// A fingerprint of the options.
    options: u64,
    commit: ObjectId,
    files: u64,
    borrowed: u64,
}

impl Hold {
    /// Returns the snapshot of a scan that began after `asked`, if it is still the newest
    /// operation.
    pub(crate) fn shared_scan(
        &self,
        options: &TrackOptions,
        asked: Moment,
    ) -> Result<Option<Snapshot>, Error> {
        if !options.paths.is_empty() || options.rehash {
            return Ok(None);
        }
        let Some(note) = read_note(&self.work_tree) else { return Ok(None) };
        let usable = note.began > asked
            && note.options == fingerprint(&self.context.options)
            && Some(&note.boot) == boot_id().as_ref();
        if !usable {
            return Ok(None);
        }
        let last = self.work_tree.last(&self.store)?;
        let last = last.filter(|last| last.commit == note.commit);
        Ok(last.map(|operation| {
            let snapshot = Snapshot::unchanged(&operation);
            Snapshot { files: note.files, borrowed: note.borrowed, ..snapshot }
        }))
    }

    /// Leaves a note of a full scan. Errors are ignored: another process scans again.
    pub(super) fn note_scan(&self, began: Moment, operation: &Operation, snapshot: &Snapshot) {
        let Some(boot) = boot_id() else { return };
        let note = Note {
            boot,
            began,
            options: fingerprint(&self.context.options),
            commit: operation.commit,
            files: snapshot.files,
            borrowed: snapshot.borrowed,
        };
        let bytes = serde_json::to_vec(&note).expect("plain data has a JSON form");
        drop(private::overwrite(&self.work_tree.scan_note_path(), &bytes));
    }
}

fn read_note(work_tree: &WorkTree) -> Option<Note> {
    private::load_json(&work_tree.scan_note_path(), 4096).ok()?
}

fn boot_id() -> Option<String> {
    let bytes = private::read_small(Path::new("/proc/sys/kernel/random/boot_id"), 64);
    String::from_utf8(bytes.ok().flatten()?).ok()
}

fn fingerprint(options: &Options) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    format!("{options:?}").hash(&mut hasher);
    hasher.finish()
}
