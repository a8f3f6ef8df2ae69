//! Scanning: work tree → listing.
//!
//! [`list`] walks the work tree once and says of every path what it is and whether its content is
//! already known; [`read`](read::read) then reads the rest into a [`Keep`]. Between the two, the
//! caller can look at the totals and stop before anything is stored.
//!
//! Scanning only reads, follows no symlink, leaves no mount, and never enters a repository's own
//! directory.

mod cache;
mod differ;
mod dirty;
mod foreign;
mod read;
mod verify;
mod walk;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::{FsTrust, Stat, Time};
use crate::git::{IndexFile, ObjectId, Rules, Verdict};
use crate::path::escape;

pub(crate) use cache::{Basis, IndexStamp, StatCache};
pub(crate) use differ::differences;
pub(crate) use dirty::Dirty;
pub(crate) use foreign::{is_store, is_store_at, store_around};
pub(crate) use read::{Outcome as ReadOutcome, SIDECARS, read_entry, read_listing};
pub(crate) use verify::{Proof, verify};
pub(crate) use walk::{filter_patterns, list, list_from, rule_text, rule_text_in, rules_above};

/// Files above this size are read as a stream, not into memory.
pub(crate) const LARGE_FILE_BYTES: u64 = 8 << 20;

/// Why a path is not in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum SkipReason {
    /// A new file above `max_new_file_bytes`.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The file could not be read.
    Unreadable {
        /// What the operating system said.
        error: String,
    },
    /// The directory could not be listed; nothing is known of what it holds.
    UnreadableDirectory {
        /// What the operating system said.
        error: String,
    },
    /// The file changed every time it was read.
    Unstable,
    /// Names came and went in this directory all through the scan. What is captured of it is right,
    /// but a file that was moved there meanwhile may be missing.
    Restless,
    /// A fifo, socket or device.
    Special,
    /// Another file system is mounted there.
    OtherMount,
    /// The name could be taken for a repository's own directory.
    ProtectedName,
    /// A store of ctrlz inside the work tree, or any repository there while `nested_repos` is off.
    NestedRepository,
    /// It was captured, and purged later.
    Purged,
    /// The store would have taken more than its quota.
    OverQuota {
        /// The file's size.
        bytes: u64,
    },
    /// The bytes are one half of an attack on SHA-1.
    HashCollision,
    /// The user's index could not be understood, so tracked files that are ignored are missing.
    UnreadableIndex,
    /// It was left out when the snapshot was exported.
    Redacted,
    /// The ignore file is too large to apply; its rules were not used.
    IgnoreFileTooLarge {
        /// Its size.
        bytes: u64,
    },
}

impl SkipReason {
    /// Whether the path should have been captured and was not, as opposed to left out by policy.
    pub fn is_failure(&self) -> bool {
        match self {
            SkipReason::Unreadable { .. }
            | SkipReason::UnreadableDirectory { .. }
            | SkipReason::Unstable
            | SkipReason::HashCollision
            | SkipReason::UnreadableIndex
            | SkipReason::OverQuota { .. }
            | SkipReason::IgnoreFileTooLarge { .. } => true,
            SkipReason::TooLarge { .. }
            | SkipReason::Restless
            | SkipReason::Special
            | SkipReason::OtherMount
            | SkipReason::ProtectedName
            | SkipReason::Purged
            | SkipReason::Redacted
            | SkipReason::NestedRepository => false,
        }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        match self {
            SkipReason::TooLarge { bytes } => format!("new and large ({bytes} bytes)"),
            SkipReason::Unreadable { error } => format!("unreadable: {error}"),
            SkipReason::UnreadableDirectory { error } => format!("unreadable directory: {error}"),
            SkipReason::Unstable => "changed while it was read".into(),
            SkipReason::Restless => {
                "names came and went in it during the scan; one moved there may be missing".into()
            }
            SkipReason::Special => "a fifo, socket or device".into(),
            SkipReason::OtherMount => "another file system is mounted there".into(),
            SkipReason::ProtectedName => "its name could be taken for a repository".into(),
            SkipReason::NestedRepository => "a nested repository".into(),
            SkipReason::Purged => "purged".into(),
            SkipReason::OverQuota { bytes } => {
                format!("the store's quota has no room for it ({bytes} bytes)")
            }
            SkipReason::HashCollision => "its bytes attack SHA-1".into(),
            SkipReason::Redacted => "left out when it was exported".into(),
            SkipReason::UnreadableIndex => "the index of git cannot be understood".into(),
            SkipReason::IgnoreFileTooLarge { bytes } => {
                format!("an ignore file of {bytes} bytes, whose rules were not applied")
            }
        }
    }
}

/// A path that a snapshot does not hold. Everything inside it is just as unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Skipped {
    /// The path, relative to the work tree.
    #[serde(with = "crate::path::text")]
    pub path: Vec<u8>,
    /// Why it was left out.
    #[serde(flatten)]
    pub reason: SkipReason,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escape(&self.path), self.reason.describe())
    }
}

/// How long work has come; shared with whoever shows it. Also the way to cancel it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files looked at.
    pub files: AtomicU64,
    /// Files that have to be read; known once the walk is over.
    pub files_to_read: AtomicU64,
    /// Files read so far.
    pub files_read: AtomicU64,
    /// Set to stop at the next file.
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

/// Files that were just put in place: what they look like since then, and their content.
pub(crate) type Placed = BTreeMap<Vec<u8>, (EntryStat, ObjectId)>;

/// What a walk needs to know.
#[derive(Clone)]
pub(crate) struct ListInput<'a> {
    /// Rules from outside the work tree.
    pub(crate) rules: Arc<Rules>,
    /// Directories never entered: the store in use, and the user's repository. Other stores are
    /// recognised by their content.
    pub(crate) forbidden: Vec<Vec<u8>>,
    /// What the last scan saw.
    pub(crate) cache: &'a StatCache,
    /// The user's index, if there is one.
    pub(crate) index: Option<&'a IndexFile>,
    /// What a look at everything that is remembered proved, if there was one.
    pub(crate) proof: Option<&'a Proof>,
    /// Files that need not be read as long as they look the same.
    pub(crate) placed: Option<&'a Placed>,
    /// Whether blob ids may be taken from the user's index.
    pub(crate) seed: Seeding,
    pub(crate) trust: FsTrust,
    pub(crate) max_new_file_bytes: u64,
    pub(crate) nested_repos: bool,
    /// Read every file, whatever the metadata says.
    pub(crate) rehash: bool,
    /// Look at nothing else.
    pub(crate) only: Option<&'a Dirty>,
    pub(crate) threads: usize,
}

impl ListInput<'_> {
    /// Fingerprint of what decides which paths count and is no file of the work tree.
    pub(crate) fn policy(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.rules.fingerprint(), &self.forbidden, self.nested_repos).hash(&mut hasher);
        (self.trust.stat, self.trust.inode).hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether, and except where, blob ids may be taken from the user's index.
#[derive(Clone, Debug)]
pub(crate) enum Seeding {
    Off,
    /// Paths that match these patterns go through a filter, so the blob is not the file.
    Except(Arc<Rules>),
}

/// Where a scan asks about and leaves content. Implemented by the store.
pub(crate) trait Keep: Sync {
    /// Stores the bytes of a file or a link.
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error>;

    /// Stores a large file while it is read. `None` if `source` does not have `bytes` bytes or
    /// attacks the hash.
    fn large(
        &self,
        bytes: u64,
        source: &mut dyn std::io::Read,
    ) -> Result<Result<ObjectId, LargeProblem>, Error>;

    /// A copy of a large file that no writer changes while it is read, where one costs nothing.
    fn clone_of(&self, _file: &std::fs::File) -> Option<std::fs::File> {
        None
    }

    /// Whether the object is in the store, so that a remembered id may be used.
    fn has(&self, id: &ObjectId) -> bool;

    /// Whether the user's repository has this blob with this size; if so, it will be copied.
    fn borrow(&self, id: &ObjectId, bytes: u64) -> bool;

    /// Whether the previous snapshot held this path.
    fn held_before(&self, path: &[u8]) -> bool;
}

/// Why a large file could not be stored.
#[derive(Debug)]
pub(crate) enum LargeProblem {
    Changed,
    Collision,
    Read(std::io::Error),
}

/// What is known of an entry's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Known(ObjectId),
    ToRead,
    /// Listed, so that its fate can be looked up without listing again.
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
    /// What the ignore rules say of it.
    pub(crate) verdict: Verdict,
    /// The metadata is too young to prove anything next time.
    pub(crate) racy: bool,
}

/// The metadata that is remembered of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryStat {
    pub(crate) kind: crate::fs::FileKind,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) inode: u64,
}

impl EntryStat {
    /// The metadata of what was not looked at.
    pub(crate) const NOTHING: EntryStat = EntryStat {
        kind: crate::fs::FileKind::Special,
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

/// One directory of the work tree.
#[derive(Clone, Debug)]
pub(crate) struct ListedDir {
    /// Relative to the work tree; empty for the work tree itself.
    pub(crate) path: Vec<u8>,
    pub(crate) stat: EntryStat,
    /// Whether the listing is old enough that an unchanged stamp proves it complete.
    pub(crate) settled: bool,
    /// Fingerprint of the ignore rules the entries were judged by.
    pub(crate) rules: u64,
    /// It lies inside an ignored directory.
    pub(crate) in_ignored: bool,
    /// Its tree, once it is built. Of a directory that is proven to be as it was, the old one; it
    /// still holds if the directories inside kept theirs.
    pub(crate) tree: TreeState,
    /// Sorted by name.
    pub(crate) entries: Vec<ListedEntry>,
}

/// What is known of a directory's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeState {
    Unknown,
    /// `None` if the directory holds nothing that a tree would show.
    Known(Option<ObjectId>),
}

/// Everything one scan found.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Sorted by path.
    pub(crate) dirs: Vec<ListedDir>,
    /// What was left out, each with its reason. Never dropped in silence.
    pub(crate) skipped: Vec<Skipped>,
    /// Ignore files whose text, as it was applied, is not what the snapshot holds: they are
    /// ignored themselves, or changed during the scan.
    pub(crate) hidden_rules: Vec<(Vec<u8>, Vec<u8>)>,
    /// Paths that were listed and then gone: deleted, or renamed to where we had looked already.
    pub(crate) vanished: Vec<Vec<u8>>,
    /// Files with more than one name: what is done to them through another one is told of that one.
    pub(crate) linked: Vec<Vec<u8>>,
    /// Directories that changed after they were listed.
    pub(crate) moved: Vec<Vec<u8>>,
    /// Whether the cache no longer says what is here.
    pub(crate) changed: bool,
}

/// Timestamps younger than this may not show the next change.
const SLACK_MILLIS: i64 = 20;
/// The same for file systems that keep whole seconds (or two, as FAT does).
const COARSE_SLACK_MILLIS: i64 = 2_050;

/// Whether a file that changed again right now could keep the same change time.
///
/// `before` was taken before the stat. A change time without a fraction of a second is a sign of
/// a file system that has none.
pub(crate) fn is_racy(ctime: Time, before: Time) -> bool {
    let slack = if ctime.nanos == 0 { COARSE_SLACK_MILLIS } else { SLACK_MILLIS };
    ctime >= before.minus_millis(slack)
}
