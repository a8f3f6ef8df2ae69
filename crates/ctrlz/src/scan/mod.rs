//! Scanning: work tree → listing.
//!
//! [`list`] walks the work tree once. It finds out what each path is and whether its content is
//! already known. [`read_listing`] then reads the rest into a [`Keep`]. Between the two, the caller
//! can check the totals and stop before anything is stored.
//!
//! Scanning only reads. It follows no symlink, crosses no mount point, and never enters a
//! repository's own directory.

mod cache;
mod databases;
mod differ;
mod dirty;
mod filters;
mod foreign;
mod read;
mod rules;
mod stable;
mod verify;
mod visit;
mod walk;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher as _};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::{FileError, FileKind, FsTrust, Stat, Time};
use crate::git::{EntryKind, Hasher, IndexFile, Kind, ObjectId, Rules, Verdict};
use crate::path::escape;

pub(crate) use cache::{Basis, IndexStamp, StatCache};
pub(crate) use databases::{SIDECARS, parts_of, reread_databases, with_sidecars};
pub(crate) use differ::differences;
pub(crate) use dirty::Dirty;
pub(crate) use filters::filter_patterns;
pub(crate) use foreign::{is_store, is_store_at, store_around};
pub(crate) use read::read_listing;
pub(crate) use rules::{rule_text, rule_text_in, rules_above};
pub(crate) use stable::{Outcome as ReadOutcome, read_entry};
pub(crate) use verify::{Proof, verify};
pub(crate) use walk::list;

/// Files larger than this are streamed instead of read into memory.
pub(crate) const LARGE_FILE_BYTES: u64 = 8 << 20;

/// Reason why a path is not in a snapshot.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error,
)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum SkipReason {
    /// A new file above `max_new_file_bytes`.
    #[error("new and large ({bytes} bytes)")]
    TooLarge {
        /// Size of the file.
        bytes: u64,
    },
    /// The file could not be read.
    #[error("unreadable: {error}")]
    Unreadable {
        /// Error message of the operating system.
        error: String,
    },
    /// The directory could not be listed; its contents are unknown.
    #[error("unreadable directory: {error}")]
    UnreadableDirectory {
        /// Error message of the operating system.
        error: String,
    },
    /// The file changed every time it was read.
    #[error("changed while it was read")]
    Unstable,
    /// Names were created or removed in this directory throughout the scan. The captured files are
    /// correct, but a file moved there during the scan may be missing.
    #[error("names came and went in it during the scan; one moved there may be missing")]
    Restless,
    /// A fifo, socket or device.
    #[error("a fifo, socket or device")]
    Special,
    /// Another file system is mounted there.
    #[error("another file system is mounted there")]
    OtherMount,
    /// The name could be mistaken for a repository's own directory.
    #[error("its name could be taken for a repository")]
    ProtectedName,
    /// A store of ctrlz inside the work tree, or any repository there while `nested_repos` is off.
    #[error("a nested repository")]
    NestedRepository,
    /// It was captured and later purged.
    #[error("purged")]
    Purged,
    /// The file would exceed the store's quota.
    #[error("the store's quota has no room for it ({bytes} bytes)")]
    OverQuota {
        /// Size of the file.
        bytes: u64,
    },
    /// The content is part of a known SHA-1 collision attack.
    #[error("its bytes attack SHA-1")]
    HashCollision,
    /// The user's index could not be decoded, so files that are tracked and ignored are missing.
    #[error("the index of git cannot be understood")]
    UnreadableIndex,
    /// It was left out when the snapshot was exported.
    #[error("left out when it was exported")]
    Redacted,
    /// The ignore file is too large to apply; its rules were not used.
    #[error("an ignore file of {bytes} bytes, whose rules were not applied")]
    IgnoreFileTooLarge {
        /// Size of the file.
        bytes: u64,
    },
}

impl SkipReason {
    /// Returns whether the path should have been captured, as opposed to excluded by policy.
    pub fn is_failure(&self) -> bool {
        !matches!(
            self,
            SkipReason::TooLarge { .. }
                | SkipReason::Restless
                | SkipReason::Special
                | SkipReason::OtherMount
                | SkipReason::ProtectedName
                | SkipReason::Purged
                | SkipReason::Redacted
                | SkipReason::NestedRepository
        )
    }
}

/// A path that was not captured. The state of everything below it is unknown too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// The path, relative to the work tree.
    #[serde(with = "crate::path::text")]
    pub path: Vec<u8>,
    /// Reason why it is missing.
    #[serde(flatten)]
    pub reason: SkipReason,
}

impl Skipped {
    fn unreadable(path: Vec<u8>, error: &FileError) -> Skipped {
        Skipped { path, reason: SkipReason::Unreadable { error: error.source.to_string() } }
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escape(&self.path), self.reason)
    }
}

/// Progress counters shared with the UI, and the cancellation flag.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of files visited.
    pub files: AtomicU64,
    /// Number of files to read, known after the walk.
    pub files_to_read: AtomicU64,
    /// Number of files read so far.
    pub files_read: AtomicU64,
    /// Set to cancel at the next file.
    pub cancelled: AtomicBool,
}

impl Progress {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Files written by a restore, each with its metadata afterwards and its content.
pub(crate) type Placed = BTreeMap<Vec<u8>, (EntryStat, ObjectId)>;

/// Inputs of a walk.
#[derive(Clone)]
pub(crate) struct ListInput<'a> {
    /// Ignore rules from outside the work tree.
    pub(crate) rules: Arc<Rules>,
    /// Directories that are never entered: the store in use, and the user's repository. Other
    /// stores are recognised by their content.
    pub(crate) forbidden: Vec<Vec<u8>>,
    /// Results of the last scan.
    pub(crate) cache: &'a StatCache,
    /// The user's index, if there is one.
    pub(crate) index: Option<&'a IndexFile>,
    /// Result of verifying the cache, if it was verified.
    pub(crate) proof: Option<&'a Proof>,
    /// Files that need not be read while their metadata is unchanged.
    pub(crate) placed: Option<&'a Placed>,
    /// Whether blob ids may be taken from the user's index.
    pub(crate) seed: Seeding,
    pub(crate) trust: FsTrust,
    pub(crate) max_new_file_bytes: u64,
    pub(crate) nested_repos: bool,
    /// Reads every file, regardless of the metadata.
    pub(crate) rehash: bool,
    /// Directory in which the walk starts; `rules` are those of its parent directories.
    pub(crate) start: &'a [u8],
    /// Limits the walk to these paths. Requires an empty `cache`.
    pub(crate) only: Option<&'a Dirty>,
    pub(crate) threads: usize,
}

impl ListInput<'_> {
    /// Returns a fingerprint of everything outside the work tree that decides which paths are
    /// captured.
    pub(crate) fn policy(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.rules.fingerprint(), &self.forbidden, self.nested_repos).hash(&mut hasher);
        (self.trust.stat, self.trust.inode).hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether blob ids may be taken from the user's index.
#[derive(Clone, Debug)]
pub(crate) enum Seeding {
    Off,
    /// Allowed, except for paths that match these patterns: a filter makes the blob differ from the
    /// file.
    Except(Arc<Rules>),
}

/// Content storage used by a scan. Implemented by the store.
pub(crate) trait Keep: Sync {
    /// Stores the content of a file or the target of a symlink. Returns `None` if it is part of a
    /// known SHA-1 collision attack.
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error>;

    /// Stores a large file while it is read. Fails with a [`LargeProblem`] if `source` does not
    /// have `bytes` bytes, cannot be read, or is part of a known SHA-1 collision attack.
    fn large(&self, bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem>;

    /// Returns a copy of a large file that no writer can change, where the file system makes copies
    /// for free (reflinks).
    fn clone_of(&self, _file: &std::fs::File) -> Option<std::fs::File> {
        None
    }

    /// Returns whether the object is in the store, so that a cached id may be used.
    fn has(&self, id: &ObjectId) -> bool;

    /// Returns whether the user's repository has this blob with this size. If so, it will be
    /// copied.
    fn borrow(&self, _id: &ObjectId, _bytes: u64) -> bool {
        false
    }

    /// Returns whether the file is kept whatever its size, as the previous snapshot contains it.
    fn held_before(&self, _path: &[u8]) -> bool {
        true
    }
}

/// Reason why a file could not be stored. Large files are stored while they are read.
#[derive(Debug)]
pub(crate) enum LargeProblem {
    Changed,
    Collision,
    Read(std::io::Error),
    /// Storing it failed.
    Store(Error),
}

impl<E: Into<Error>> From<E> for LargeProblem {
    fn from(error: E) -> LargeProblem {
        LargeProblem::Store(error.into())
    }
}

/// Returns the id of a file of `bytes` bytes, which is read but not stored.
pub(crate) fn hash_large(bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem> {
    const MAX_BUFFER_BYTES: u64 = 256 << 10;
    let mut hasher = Hasher::object(Kind::Blob, bytes);
    let mut buffer = vec![0; bytes.clamp(1, MAX_BUFFER_BYTES) as usize];
    let mut left = bytes;
    loop {
        match source.read(&mut buffer) {
            Ok(0) if left == 0 => return hasher.finish().ok_or(LargeProblem::Collision),
            Ok(count) if count > 0 && count as u64 <= left => {
                hasher.update(&buffer[..count]);
                left -= count as u64;
            }
            Ok(_) => return Err(LargeProblem::Changed),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(error) => return Err(LargeProblem::Read(error)),
        }
    }
}

/// State of an entry's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Known(ObjectId),
    ToRead,
    /// An ignored path. It is listed so that the cached names of the directory are complete.
    Ignored,
    Directory,
    Skipped(SkipReason),
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct ListedEntry {
    pub(crate) name: Box<[u8]>,
    pub(crate) stat: EntryStat,
    pub(crate) content: Content,
    /// Verdict of the ignore rules.
    pub(crate) verdict: Verdict,
    /// Whether the metadata is too recent to prove anything in the next scan.
    pub(crate) racy: bool,
}

/// Cached metadata of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryStat {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) inode: u64,
}

impl EntryStat {
    /// Placeholder for an entry that was not examined.
    pub(crate) const NOTHING: EntryStat = EntryStat {
        kind: FileKind::Special,
        mode: 0,
        bytes: 0,
        mtime: Time { seconds: 0, nanos: 0 },
        ctime: Time { seconds: 0, nanos: 0 },
        inode: 0,
    };
}

impl From<&Stat> for EntryStat {
    fn from(stat: &Stat) -> EntryStat {
        let &Stat { kind, mode, bytes, mtime, ctime, inode, .. } = stat;
        EntryStat { kind, mode, bytes, mtime, ctime, inode }
    }
}

/// Returns the kind of a tree entry for a file with this metadata.
pub(crate) fn entry_kind(stat: &EntryStat) -> Option<EntryKind> {
    match stat.kind {
        FileKind::File if stat.mode & 0o100 != 0 => Some(EntryKind::Executable),
        FileKind::File => Some(EntryKind::File),
        FileKind::Symlink => Some(EntryKind::Symlink),
        FileKind::Dir | FileKind::Special => None,
    }
}

/// One directory of the work tree.
#[derive(Clone, Debug)]
pub(crate) struct ListedDir {
    /// Path relative to the work tree; empty for the work tree itself.
    pub(crate) path: Vec<u8>,
    pub(crate) stat: EntryStat,
    /// Whether an unchanged directory stamp proves that the listing is complete.
    pub(crate) settled: bool,
    /// Fingerprint of the ignore rules that were applied to the entries.
    pub(crate) rules: u64,
    /// Whether it lies inside an ignored directory.
    pub(crate) in_ignored: bool,
    /// Tree of the directory, once built. A directory proven unchanged has its cached tree, which
    /// is valid only if its subdirectories keep theirs.
    pub(crate) tree: TreeState,
    /// Sorted by name.
    pub(crate) entries: Vec<ListedEntry>,
}

/// State of a directory's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeState {
    Unknown,
    /// `None` if the directory contains nothing that git records.
    Known(Option<ObjectId>),
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Sorted by path.
    pub(crate) dirs: Vec<ListedDir>,
    /// Every path that was left out, with the reason.
    pub(crate) skipped: Vec<Skipped>,
    /// Path and applied text of ignore files whose text is not in the snapshot, because they are
    /// ignored themselves or changed during the scan.
    pub(crate) hidden_rules: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths that disappeared after they were listed: deleted, or renamed to a directory that was
    /// already listed.
    pub(crate) vanished: Vec<Vec<u8>>,
    /// Hard-linked files: inotify reports a write only for the link that was written through.
    pub(crate) linked: Vec<Vec<u8>>,
    /// Directories that changed after they were listed.
    pub(crate) moved: Vec<Vec<u8>>,
    /// Whether the cache is out of date.
    pub(crate) changed: bool,
}

/// Change times younger than this, in milliseconds, may not reveal the next change: file timestamps
/// advance in steps of up to 10 ms.
const SLACK_MILLIS: i64 = 20;
/// The same for file systems with a resolution of one second, or two as in FAT.
const COARSE_SLACK_MILLIS: i64 = 2_050;

/// Returns whether a file that changed again now could keep the same change time.
///
/// `before` was taken before the stat. A change time without a fraction suggests a file system with
/// a resolution of whole seconds.
pub(crate) fn is_racy(ctime: Time, before: Time) -> bool {
    let slack = if ctime.nanos == 0 { COARSE_SLACK_MILLIS } else { SLACK_MILLIS };
    ctime >= before.minus_millis(slack)
}
