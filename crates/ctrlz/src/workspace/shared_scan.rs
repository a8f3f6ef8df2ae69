//! One scan for all who wait: a request that was made before a scan began may use its result.
//!
//! Requests for one work tree queue up at its lock. Whoever gets it leaves a note of when its scan
//! began and what it found; the next in the queue, if it asked before that, need not scan again.
//! A scan that began earlier than the request proves nothing, because it may have missed what the
//! request is about.

use std::hash::{Hash, Hasher};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private;
use crate::git::ObjectId;
use crate::store::{Operation, WorkTree};

use super::{Hold, Options, Snapshot, TrackOptions, Workspace};

/// A point on the clock that all processes share and nobody can set. It starts with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Moment(i128);

impl Moment {
    pub(super) fn now() -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec))
    }
}

/// What a finished scan leaves for those who waited.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Moments of another run of the machine mean nothing.
    boot: String,
    began: Moment,
    /// What was decided about the work tree; a scan by other options is another scan.
    options: u64,
    commit: ObjectId,
    files: u64,
    borrowed: u64,
}

impl Workspace {
    /// The snapshot of a scan that began after `asked`, if there is one and nothing came since.
    pub(super) fn shared_scan(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        asked: Moment,
    ) -> Result<Option<Snapshot>, Error> {
        if !options.paths.is_empty() || options.rehash {
            return Ok(None);
        }
        let Some(note) = read_note(&hold.work_tree) else { return Ok(None) };
        let usable = note.began > asked
            && note.options == fingerprint(&self.options)
            && Some(&note.boot) == boot_id().as_ref();
        if !usable {
            return Ok(None);
        }
        let last = hold.work_tree.last(&hold.store)?;
        let last = last.filter(|last| last.commit == note.commit);
        Ok(last.map(|last| Snapshot {
            hash: last.snapshot,
            operation: last.id,
            changed: false,
            files: note.files,
            files_read: 0,
            objects_written: 0,
            bytes_written: 0,
            borrowed: note.borrowed,
            skipped: last.meta.skipped,
            quota_mark: None,
            recovered: None,
            watched: false,
        }))
    }

    /// Leaves a note of a scan of the whole work tree. Losing it costs a scan.
    pub(super) fn note_scan(
        &self,
        hold: &Hold,
        began: Moment,
        operation: &Operation,
        snapshot: &Snapshot,
    ) {
        let Some(boot) = boot_id() else { return };
        let note = Note {
            boot,
            began,
            options: fingerprint(&self.options),
            commit: operation.commit,
            files: snapshot.files,
            borrowed: snapshot.borrowed,
        };
        let bytes = serde_json::to_vec(&note).expect("plain data has a JSON form");
        drop(private::overwrite(&hold.work_tree.scan_note_path(), &bytes));
    }
}

fn read_note(work_tree: &WorkTree) -> Option<Note> {
    let bytes = private::read_small(&work_tree.scan_note_path(), 4096).ok().flatten()?;
    serde_json::from_slice(&bytes).ok()
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
