//! The journal of a restore, from which the next command can finish it or roll it back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, StoreError};
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{FileKind, Landmark, MODE_BITS, Named, Stat, Time, random_name};
use crate::git::ObjectId;
use crate::log::{Details, OperationKind};
use crate::path::{PathText, TreePath};
use crate::scan::EntryStat;

use super::plan::ModeChange;

/// Phase of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Temporary files are being written. No path has changed.
    Staging,
    /// All temporary files are on disk. Paths are being swapped.
    Swapping,
    /// The restore failed. Paths are being swapped back.
    RollingBack,
    /// All paths have their new state. The operation is not in the log yet.
    Recording,
}

/// A restore in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) version: u32,
    pub(crate) phase: Phase,
    /// Snapshot to restore, if the plan is for a single one.
    pub(crate) target: Option<ObjectId>,
    /// Safety snapshot, which holds everything that is overwritten.
    pub(crate) safety: ObjectId,
    pub(crate) units: Vec<UnitRecord>,
    pub(crate) modes: Vec<ModeChange>,
    pub(crate) emptied: Vec<PathText>,
    /// Read-only directories that are writable until the restore ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) opened: Vec<ModeChange>,
    /// Log entry of an undo or redo. `None` for a plain restore.
    #[serde(default)]
    pub(crate) record: Option<Record>,
    /// Identity of the file that it was read from.
    #[serde(default, skip_serializing)]
    pub(super) file: Option<Landmark>,
}

/// Log entry that is appended once a plan is carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: OperationKind,
    pub(crate) details: Details,
    /// Id of the newest operation before it.
    pub(crate) since: String,
}

impl Journal {
    /// Returns all paths that the restore changes.
    pub(crate) fn paths(&self) -> Vec<TreePath> {
        let units = self.units.iter().map(|unit| unit.path.as_slice());
        let modes = self.modes.iter().map(|change| change.path.as_slice());
        let all = units.chain(modes).chain(self.emptied.iter().map(PathText::as_bytes));
        all.map(|path| TreePath::from_scan(path.to_vec())).collect()
    }
}

/// A path that changes by one rename.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnitRecord {
    #[serde(with = "crate::path::text")]
    pub(crate) path: Vec<u8>,
    /// Temporary name in the same directory.
    pub(crate) temporary: String,
    /// Staged content. `None` until it is completely written, and if the path is only removed.
    pub(crate) staged: Option<Thing>,
    pub(crate) has_new: bool,
    /// Previous content of the path, which the safety snapshot holds.
    pub(crate) old: Option<Thing>,
}

/// A file, a symlink, or a directory with its contents, identified by metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Thing {
    Leaf(StatRecord),
    Dir { inode: u64, files: Vec<(PathText, StatRecord)>, dirs: Vec<PathText> },
}

/// Metadata of a file in the safety snapshot, or of a staged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatRecord {
    link: bool,
    mode: u32,
    bytes: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
    inode: u64,
    /// Whether another hard link to the same file changes too, which updates the change time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    linked: bool,
    /// Permissions that the file gets through another hard link after it was moved aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode_after: Option<u32>,
    /// Content, if the metadata is too recent to prove it.
    #[serde(default)]
    pub(crate) content: Option<ObjectId>,
}

impl Thing {
    /// Returns the paths of its contents, relative to it.
    fn paths(&self) -> Vec<&[u8]> {
        match self {
            Thing::Leaf(_) => Vec::new(),
            Thing::Dir { files, dirs, .. } => {
                files.iter().map(|(path, _)| path).chain(dirs).map(PathText::as_bytes).collect()
            }
        }
    }

    fn records_mut(&mut self) -> Vec<&mut StatRecord> {
        match self {
            Thing::Leaf(record) => vec![record],
            Thing::Dir { files, .. } => files.iter_mut().map(|(_, record)| record).collect(),
        }
    }
}

impl Journal {
    /// Marks files that change through several hard links. The journal must be a new one: inodes
    /// of files whose permissions change are not in its file.
    pub(crate) fn mark_links(&mut self) {
        let modes: HashMap<u64, u32> =
            self.modes.iter().filter_map(|mode| Some((mode.inode?, mode.to))).collect();
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
    /// Returns whether `now` is the recorded file and unchanged. A rename updates the change time,
    /// so it is not compared after one.
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
/// Extension of journals that were set aside.
const SET_ASIDE: &str = "damaged";
/// Prefix of the names of temporary files.
const TEMPORARY: &str = ".ctrlz-";

/// Returns the name of the temporary file of the unit at this position. `token` is a random name.
pub(super) fn temporary_name(token: &str, at: usize) -> String {
    format!("{TEMPORARY}{token}-{at}")
}

/// Returns whether a name is one that [`temporary_name`] returns.
fn is_temporary(name: &str) -> bool {
    let rest = name.strip_prefix(TEMPORARY).and_then(|rest| rest.split_once('-'));
    let is_hex = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    rest.is_some_and(|(token, at)| is_hex(token) && is_number(at))
}

fn is_path(path: &[u8]) -> bool {
    TreePath::parse(path).is_ok()
}

impl Journal {
    pub(crate) const VERSION: u32 = VERSION;
    /// Reason for which a journal was set aside.
    pub(crate) const DAMAGED: &str = "not a journal that ctrlz wrote; it was not carried out";

    /// Reads the journal at `path` and changes nothing. Returns `None` if missing or damaged.
    pub(crate) fn peek(path: &Path) -> Result<Option<Journal>, Error> {
        let Some(bytes) = read_small(path, MAX_JOURNAL_BYTES)? else { return Ok(None) };
        Ok(Journal::parse(&bytes))
    }

    /// Returns the journal, or `None` if it cannot be one that ctrlz wrote.
    fn parse(bytes: &[u8]) -> Option<Journal> {
        serde_json::from_slice::<Journal>(bytes).ok().filter(Journal::is_sound)
    }

    /// Returns whether everything that it names is inside the work tree and not in a repository,
    /// and every temporary name is one of ours. A store inside a project can be overwritten by a
    /// `git pull`, so a journal there may have come with the project.
    fn is_sound(&self) -> bool {
        let is_mode = |change: &ModeChange| (change.from | change.to) & !MODE_BITS == 0;
        let is_unit = |unit: &UnitRecord| {
            let things = [&unit.staged, &unit.old].into_iter().flatten();
            is_path(&unit.path)
                && is_temporary(&unit.temporary)
                && things.flat_map(Thing::paths).all(is_path)
        };
        // The work tree itself may be read-only.
        let is_dir = |path: &[u8]| path.is_empty() || is_path(path);
        self.units.iter().all(is_unit)
            && self.modes.iter().all(|change| is_path(&change.path) && is_mode(change))
            && self.opened.iter().all(|change| is_dir(&change.path) && is_mode(change))
            && self.emptied.iter().all(|path| is_path(path.as_bytes()))
    }

    /// Returns the path at which a damaged journal is kept.
    fn aside_path(path: &Path) -> PathBuf {
        let free = |path: &PathBuf| path.symlink_metadata().is_err();
        let usual = path.with_extension(SET_ASIDE);
        Some(usual)
            .filter(free)
            .unwrap_or_else(|| path.with_extension(format!("{}.{SET_ASIDE}", random_name())))
    }

    /// Renames a journal that is damaged or that ctrlz did not write, so that it is kept for
    /// inspection and never carried out.
    pub(crate) fn set_aside(path: &Path) -> Result<(), Error> {
        Ok(std::fs::rename(path, Journal::aside_path(path)).named("set aside", path)?)
    }

    /// Returns the journals in `dir` that were set aside.
    pub(crate) fn damaged(dir: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.retain(|path| path.extension().is_some_and(|end| end == SET_ASIDE));
        found.sort();
        found
    }

    /// Reads the journal at `path`, to finish the restore. The caller holds the work tree's lock. A
    /// damaged journal is renamed and counts as missing.
    pub(crate) fn load(path: &Path) -> Result<Option<Journal>, Error> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
            file: Option<Landmark>,
        }
        let Some(bytes) = read_small(path, MAX_JOURNAL_BYTES)? else { return Ok(None) };
        // A file that no version of ctrlz wrote here, such as one from a `git pull`, is damaged.
        if let Ok(Version { version: found, file }) = serde_json::from_slice(&bytes)
            && found > VERSION
            && Landmark::is_noted(file.as_ref(), path)
        {
            return Err(Error::Store(StoreError::NewerFormat {
                path: path.to_owned(),
                found,
                known: VERSION,
            }));
        }
        let journal = Journal::parse(&bytes);
        if journal.is_none() {
            // Journals are replaced atomically, so no crash caused this.
            Journal::set_aside(path)?;
        }
        Ok(journal)
    }

    pub(crate) fn save(&self, path: &Path) -> Result<(), Error> {
        Ok(private::replace_marked(path, "", self, Durable::Yes)?)
    }

    /// Returns whether ctrlz wrote it to the file at `path`, and not for instance git.
    pub(crate) fn is_original(&self, path: &Path) -> bool {
        Landmark::is_noted(self.file.as_ref(), path)
    }

    pub(crate) fn remove(path: &Path) -> Result<(), Error> {
        std::fs::remove_file(path).named("remove", path)?;
        Ok(private::sync_dir(path.parent().unwrap_or(Path::new("/")))?)
    }
}
