//! How a work tree and its store are doing.

use std::path::PathBuf;

use serde::Serialize;

use crate::error::Error;
use crate::fs::disk_use;
use crate::fs::private::read_small;
use crate::git::ObjectId;
use crate::log::WorkTree;
use crate::restore::Journal;
use crate::scan::Skipped;
use crate::store::{Borrowed, Store, holders};

use super::Workspace;

/// A look at a work tree, without changing anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The work tree.
    pub root: PathBuf,
    /// Whether snapshots are taken.
    pub enabled: bool,
    /// Whether it is a git work tree.
    pub git: bool,
    /// Where the store is, once it is decided.
    pub store: Option<PathBuf>,
    /// Bytes the store takes.
    pub store_bytes: u64,
    /// How much of the quota is used.
    pub quota: Option<crate::record::QuotaUse>,
    /// Files that the newest snapshot holds.
    pub files: u64,
    /// Packs in the store.
    pub packs: u64,
    /// The newest snapshot.
    pub last: Option<ObjectId>,
    /// When it was taken, in milliseconds since 1970.
    pub last_at_millis: Option<u64>,
    /// What the newest snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Blobs that the user's repository still lends.
    pub borrowed: u64,
    /// A file, escaped, that the user's index was wrong about. Nothing is taken from the user's
    /// repository since.
    pub wrong_index: Option<String>,
    /// Files of a restore that was cut off; the next command that writes finishes it.
    pub interrupted_files: Option<u64>,
    /// Why collecting garbage failed the last time, if it did.
    pub gc_failed: Option<String>,
    /// Packs that are damaged, and how.
    pub damaged_packs: Vec<(PathBuf, String)>,
    /// Locks that somebody holds just now.
    pub locks: Vec<HeldLock>,
}

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldLock {
    /// What it locks: the work tree, the store, or its care.
    pub what: &'static str,
    /// Who holds it; several may, if they only add to the store.
    pub processes: Vec<u32>,
}

impl Workspace {
    /// How things are, read without taking a lock.
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
        status.gc_failed = gc_failure(&store);
        status.locks = held_locks(&store, &work_tree);
        status.borrowed = Borrowed::load(&work_tree.borrowed_path())?.len();
        status.wrong_index = work_tree.wrong_index();
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

/// What whoever collected garbage last left for us to tell.
fn gc_failure(store: &Store) -> Option<String> {
    let bytes = read_small(&store.cared_path(), 64 << 10).ok().flatten()?;
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|why| !why.is_empty())
}

/// Files of a snapshot, as far as its trees can be read.
fn count_files(store: &Store, snapshot: ObjectId) -> u64 {
    let mut count = 0_u64;
    let mut work = vec![snapshot];
    while let Some(tree) = work.pop() {
        let Ok(entries) = store.objects.tree(&tree) else { continue };
        for entry in entries.iter() {
            match entry.kind.is_tree() {
                true => work.push(entry.id),
                false => count += 1,
            }
        }
        if count + work.len() as u64 > crate::compare::MAX_PATHS {
            break;
        }
    }
    count
}
