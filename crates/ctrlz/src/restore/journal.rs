//! The journal: what a restore is doing, so that the next command can finish or undo it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{FileKind, Named, Stat, Time};
use crate::git::ObjectId;
use crate::path::PathText;
use crate::scan::EntryStat;

/// How far a restore has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Temporary files are being written; no path has changed.
    Staging,
    /// All temporary files are on disk; paths are being swapped.
    Swapping,
}

/// A restore in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) version: u32,
    pub(crate) phase: Phase,
    /// What is being restored.
    pub(crate) target: Option<ObjectId>,
    /// Holds everything that is overwritten.
    pub(crate) safety: ObjectId,
    pub(crate) units: Vec<UnitRecord>,
    pub(crate) modes: Vec<ModeRecord>,
    pub(crate) emptied: Vec<PathText>,
}

/// One path that changes by a rename.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnitRecord {
    pub(crate) path: PathText,
    /// The temporary name, in the same directory.
    pub(crate) temporary: String,
    /// The inode of the staged content; absent if the path is only removed.
    pub(crate) staged: Option<u64>,
    pub(crate) has_new: bool,
    pub(crate) old: Option<OldRecord>,
}

/// What a path held before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum OldRecord {
    Leaf(StatRecord),
    Dir { files: Vec<(PathText, StatRecord)>, dirs: Vec<PathText> },
}

/// Permissions that change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModeRecord {
    pub(crate) path: PathText,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) is_dir: bool,
}

/// The metadata of a file that is in the safety snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatRecord {
    link: bool,
    mode: u32,
    bytes: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
    inode: u64,
}

impl From<&EntryStat> for StatRecord {
    fn from(stat: &EntryStat) -> StatRecord {
        let pair = |time: Time| (time.seconds, time.nanos);
        StatRecord {
            link: stat.kind == FileKind::Symlink,
            mode: stat.mode,
            bytes: stat.bytes,
            mtime: pair(stat.mtime),
            ctime: pair(stat.ctime),
            inode: stat.inode,
        }
    }
}

impl StatRecord {
    /// Whether `now` is the recorded file, unchanged since. A rename moves the change time, so
    /// after one it is not compared.
    pub(crate) fn is(&self, now: &Stat, renamed: Renamed) -> bool {
        let kind = if self.link { FileKind::Symlink } else { FileKind::File };
        let time = |time: Time| (time.seconds, time.nanos);
        now.kind == kind
            && now.inode == self.inode
            && now.bytes == self.bytes
            && now.mode == self.mode
            && time(now.mtime) == self.mtime
            && (renamed == Renamed::Perhaps || time(now.ctime) == self.ctime)
    }
}

/// Whether a file may have been renamed since its metadata was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renamed {
    No,
    Perhaps,
}

const VERSION: u32 = 1;
const MAX_JOURNAL_BYTES: u64 = 2 << 30;

impl Journal {
    pub(crate) const VERSION: u32 = VERSION;

    /// The journal at `path`, if a restore was cut off.
    pub(crate) fn load(path: &Path) -> Result<Option<Journal>, Error> {
        let Some(bytes) = read_small(path, MAX_JOURNAL_BYTES)? else { return Ok(None) };
        match serde_json::from_slice::<Journal>(&bytes) {
            Ok(journal) if journal.version == VERSION => Ok(Some(journal)),
            // It is written in one step, so this is not ours; keep it for whoever wants to look.
            _ => {
                let aside = path.with_extension("damaged");
                std::fs::rename(path, &aside).named("set aside", path)?;
                Ok(None)
            }
        }
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        let bytes = serde_json::to_vec(self).expect("plain data has a JSON form");
        Ok(private::replace(path, &bytes, Durable::Yes)?)
    }

    pub(crate) fn remove(path: &Path) -> Result<(), Error> {
        std::fs::remove_file(path).named("remove", path)?;
        Ok(private::sync_dir(path.parent().unwrap_or(Path::new("/")))?)
    }
}
