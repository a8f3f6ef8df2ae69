//! The journal: what a restore is doing, so that the next command can finish or undo it.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, StoreError};
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{FileKind, Named, Stat, Time};
use crate::git::ObjectId;
use crate::log::{Details, OperationKind};
use crate::path::{PathText, TreePath};
use crate::scan::EntryStat;

use super::plan::PlannedMode;

/// How far a restore has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Temporary files are being written; no path has changed.
    Staging,
    /// All temporary files are on disk; paths are being swapped.
    Swapping,
    /// Something failed; paths are being swapped back.
    RollingBack,
    /// Every path is as it shall be; the log does not say so yet.
    Recording,
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
    /// Read-only directories that are made writable meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) opened: Vec<ModeRecord>,
    /// What the log shall say; without it, that something was restored.
    #[serde(default)]
    pub(crate) record: Option<Record>,
}

/// What the log says once a plan is carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: OperationKind,
    pub(crate) details: Details,
    /// The newest operation before it.
    pub(crate) since: String,
}

impl Journal {
    /// Every path that is planned to change.
    pub(crate) fn paths(&self) -> Vec<TreePath> {
        let units = self.units.iter().map(|unit| &unit.path);
        let modes = self.modes.iter().map(|change| &change.path);
        let all = units.chain(modes).chain(&self.emptied);
        all.map(|path| TreePath::from_scan(path.clone().into_bytes())).collect()
    }
}

/// One path that changes by a rename.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnitRecord {
    pub(crate) path: PathText,
    /// The temporary name, in the same directory.
    pub(crate) temporary: String,
    /// The staged content; absent while it is written, or if the path is only removed.
    pub(crate) staged: Option<Thing>,
    pub(crate) has_new: bool,
    /// What the path held before, which the safety snapshot has.
    pub(crate) old: Option<Thing>,
}

/// A file or link, or a directory with all it holds, as its metadata tells it from any other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Thing {
    Leaf(StatRecord),
    Dir { inode: u64, files: Vec<(PathText, StatRecord)>, dirs: Vec<PathText> },
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
    /// Another name of the same file changes too, and moves the change time of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    linked: bool,
    /// The permissions that it gets through another name after it was moved aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode_after: Option<u32>,
    /// The content, where the metadata is too young to prove it.
    #[serde(default)]
    pub(crate) content: Option<ObjectId>,
}

impl Thing {
    fn records_mut(&mut self) -> Vec<&mut StatRecord> {
        match self {
            Thing::Leaf(record) => vec![record],
            Thing::Dir { files, .. } => files.iter_mut().map(|(_, record)| record).collect(),
        }
    }
}

impl Journal {
    /// Marks files that several of the paths are names of, also if `modes` changes one of them.
    pub(crate) fn mark_links(&mut self, modes: &[PlannedMode]) {
        let modes: HashMap<u64, u32> =
            modes.iter().filter_map(|mode| Some((mode.inode?, mode.to))).collect();
        let mut seen: HashMap<u64, usize> = HashMap::new();
        let records = |units: &mut Vec<UnitRecord>, with: &mut dyn FnMut(&mut StatRecord)| {
            let old = units.iter_mut().filter_map(|unit| unit.old.as_mut());
            old.flat_map(Thing::records_mut).for_each(with);
        };
        records(&mut self.units, &mut |record| *seen.entry(record.inode).or_default() += 1);
        records(&mut self.units, &mut |record| {
            record.mode_after = modes.get(&record.inode).copied();
            record.linked = seen[&record.inode] > 1 || record.mode_after.is_some();
        });
    }
}

impl StatRecord {
    pub(crate) fn backed_by(self, content: Option<ObjectId>) -> StatRecord {
        StatRecord { content, ..self }
    }
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
            linked: false,
            mode_after: None,
            content: None,
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
            && (now.mode == self.mode || self.mode_after == Some(now.mode))
            && time(now.mtime) == self.mtime
            && (renamed == Renamed::Perhaps || self.linked || time(now.ctime) == self.ctime)
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

    /// The journal at `path`, if a restore was cut off. Looks, and changes nothing.
    pub(crate) fn peek(path: &Path) -> Result<Option<Journal>, Error> {
        let Some(bytes) = read_small(path, MAX_JOURNAL_BYTES)? else { return Ok(None) };
        Ok(serde_json::from_slice::<Journal>(&bytes).ok())
    }

    /// The journal at `path`, to be finished. The caller holds the work tree's lock.
    pub(crate) fn load(path: &Path) -> Result<Option<Journal>, Error> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Some(bytes) = read_small(path, MAX_JOURNAL_BYTES)? else { return Ok(None) };
        let version = serde_json::from_slice::<Version>(&bytes).map(|found| found.version);
        if let Ok(found) = version
            && found > VERSION
        {
            return Err(Error::Store(StoreError::NewerFormat {
                path: path.to_owned(),
                found,
                known: VERSION,
            }));
        }
        match serde_json::from_slice::<Journal>(&bytes) {
            Ok(journal) => Ok(Some(journal)),
            // It is written in one step, so this is not ours; keep it for whoever wants to look.
            Err(_) => {
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
