//! State of a work tree and its store.

use std::path::PathBuf;

use crate::error::Error;
use crate::fs::disk_use;
use crate::fs::private::read_small;
use crate::git::ObjectId;
use crate::log::WorkTree;
use crate::restore::Journal;
use crate::scan::Skipped;
use crate::store::{Borrowed, Store, holders};

use super::Workspace;

/// State of a work tree, read without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Path of the work tree.
    pub root: PathBuf,
    /// Whether snapshots are taken.
    pub enabled: bool,
    /// Whether it is a git work tree.
    pub git: bool,
    /// Path of the store, once it is determined.
    pub store: Option<PathBuf>,
    /// Size of the store in bytes.
    pub store_bytes: u64,
    /// Used part of the quota.
    pub quota: Option<crate::error::QuotaUse>,
    /// Number of files in the newest snapshot.
    pub files: u64,
    /// Number of packs in the store.
    pub packs: u64,
    /// Newest snapshot.
    pub last: Option<ObjectId>,
    /// Time of the newest snapshot, in milliseconds since 1970.
    pub last_at_millis: Option<u64>,
    /// Paths that the newest snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Number of blobs that are still borrowed from the user's repository.
    pub borrowed: u64,
    /// Path, escaped, of a file that the user's index was wrong about. Nothing is borrowed from the
    /// user's repository since then.
    pub wrong_index: Option<String>,
    /// Number of files of an interrupted restore. The next command that writes completes it.
    pub interrupted_files: Option<u64>,
    /// Reason why the last garbage collection failed, if it did.
    pub gc_failed: Option<String>,
    /// Damaged packs and journals of restores, with the reason.
    pub damaged_packs: Vec<(PathBuf, String)>,
    /// Locks that are held at this moment.
    pub locks: Vec<HeldLock>,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// Name of the lock: `work tree`, `store` or `care`.
    pub what: &'static str,
    /// Processes that hold it. The store's lock can be shared by several writers.
    pub processes: Vec<u32>,
}

impl Workspace {
    /// Returns the current state, without taking a lock.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = Status {
            root: self.context.root.clone(),
            enabled: self.context.options.enabled,
            git: self.context.repo.is_some(),
            store: self.store_path()?,
            store_bytes: 0,
            quota: None,
            files: 0,
            packs: 0,
            last: None,
            last_at_millis: None,
            skipped: Vec::new(),
            borrowed: 0,
            wrong_index: None,
            interrupted_files: None,
            gc_failed: None,
            damaged_packs: Vec::new(),
            locks: Vec::new(),
        };
        let Some((store, work_tree)) = self.existing()? else { return Ok(status) };
        status.store_bytes = disk_use(store.path())?;
        status.quota = Some(self.context.quota_use(store.path())?);
        status.packs = store.objects.open_packs().len() as u64;
        status.damaged_packs = store.damaged_packs();
        let journals = work_tree.journal_dirs().into_iter().flat_map(|dir| Journal::damaged(&dir));
        status.damaged_packs.extend(journals.map(|path| (path, Journal::DAMAGED.into())));
        status.gc_failed = gc_failure(&store);
        status.locks = held_locks(&store, &work_tree);
        status.borrowed = Borrowed::load(&work_tree.borrowed_path())?.len();
        status.wrong_index = work_tree.wrong_index().map(|wrong| wrong.path);
        let journal = Journal::peek(&work_tree.journal_path())?;
        status.interrupted_files = journal.map(|journal| journal.units.len() as u64);
        if let Some(last) = work_tree.last(&store)? {
            status.last = Some(last.snapshot);
            status.files = count_files(&store, last.snapshot);
            status.last_at_millis = Some(last.at_millis);
            status.skipped = last.meta.skipped;
        }
        Ok(status)
    }
}

fn held_locks(store: &Store, work_tree: &WorkTree) -> Vec<HeldLock> {
    let locks = [
        ("work tree", work_tree.lock_path()),
        ("store", store.lock_path()),
        ("care", store.care_lock_path()),
    ];
    let held = locks.map(|(what, path)| HeldLock { what, processes: holders(&path) });
    held.into_iter().filter(|lock| !lock.processes.is_empty()).collect()
}

/// Returns the failure that the last garbage collection recorded, if any.
fn gc_failure(store: &Store) -> Option<String> {
    let bytes = read_small(&store.cared_path(), 64 << 10).ok().flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|why| !why.is_empty())
}

/// Counts the files of a snapshot, as far as its trees are readable.
fn count_files(store: &Store, snapshot: ObjectId) -> u64 {
    let mut count = 0_u64;
    let mut work = vec![snapshot];
    while let Some(tree) = work.pop() {
        let Ok(entries) = store.objects.tree(&tree) else { continue };
        for entry in entries.iter() {
            if entry.kind.is_tree() { work.push(entry.id) } else { count += 1 }
        }
        if count + work.len() as u64 > crate::compare::MAX_PATHS {
            break;
        }
    }
    count
}
