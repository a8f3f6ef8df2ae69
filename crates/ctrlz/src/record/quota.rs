//! Limits on the size of a snapshot, and the files that it leaves out because of the quota.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, QuotaUse, RecordError};
use crate::fs::{check_free, disk_use};
use crate::git::{Kind, ObjectId, hash_object};
use crate::hold::{Context, Hold};
use crate::path::join;
use crate::scan::{
    Content, Keep, LargeProblem, Listing, Progress, SkipReason, Skipped, hash_large, read_listing,
};
use crate::store::Store;

use super::keep::StoreKeep;
use super::request::{Cause, Room};

/// Returns an upper bound for the stored size of a file. Fast compression adds up to an eighth to
/// incompressible data.
pub(super) fn cost(bytes: u64) -> u64 {
    const ENTRY_BYTES: u64 = 128;
    bytes.saturating_add(bytes / 8).saturating_add(ENTRY_BYTES)
}

/// Returns an upper bound for trees, the operation and the pack index.
fn overhead(listing: &Listing) -> u64 {
    const OPERATION_BYTES: u64 = 16 << 10;
    const ENTRY_BYTES: u64 = 64;
    let names = listing.dirs.iter().flat_map(|dir| &dir.entries);
    let trees: u64 = names.map(|entry| entry.name.len() as u64 + ENTRY_BYTES).sum();
    let skipped: u64 = listing.skipped.iter().map(|skip| skip.path.len() as u64 + 200).sum();
    OPERATION_BYTES + trees + skipped
}

impl Context {
    /// Returns the use of the quota by the store at `path` and the other stores.
    pub(crate) fn quota_use(&self, path: &Path) -> Result<QuotaUse, Error> {
        let store_bytes = disk_use(path)?;
        let mut total_bytes = store_bytes;
        for other in stores(&self.options.data_dir) {
            if other != path {
                // Unreadable stores are not counted.
                total_bytes += disk_use(&other).unwrap_or(0);
            }
        }
        let (max_store_bytes, max_total_bytes) =
            (self.options.max_store_bytes, self.options.max_total_bytes);
        Ok(QuotaUse { store_bytes, max_store_bytes, total_bytes, max_total_bytes })
    }
}

impl Hold {
    /// Returns the allowance of a snapshot with this listing, or `None` if it is unlimited.
    pub(super) fn room_for(
        &self,
        cause: &Cause,
        listing: &Listing,
    ) -> Result<Option<Allowance>, Error> {
        let reads = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let is_idle = !listing.changed && !reads.into_iter().any(is_to_read) && !cause.always;
        if cause.room == Room::Disk || is_idle {
            return Ok(None);
        }
        let used = self.context.quota_use(self.store.path())?;
        let (left, needed) = (used.left(), overhead(listing));
        let room = Allowance { used, content_bytes: left.saturating_sub(needed) };
        if needed > left { Err(room.exceeded(self)) } else { Ok(Some(room)) }
    }

    /// Fails if the snapshot would be too large. Returns the number of files to read.
    pub(super) fn check_budget(
        &self,
        listing: &Listing,
        progress: &Progress,
    ) -> Result<u64, Error> {
        let (mut files, mut to_read, mut bytes) = (0, 0, 0);
        for entry in listing.dirs.iter().flat_map(|dir| &dir.entries) {
            files += u64::from(matches!(entry.content, Content::Known(_) | Content::ToRead));
            if entry.content == Content::ToRead {
                to_read += 1;
                bytes += entry.stat.bytes;
            }
        }
        progress.files_to_read.store(to_read, Ordering::Relaxed);
        let over = |what, found, limit, measure: fn(u64) -> u64| {
            Error::Record(RecordError::OverBudget {
                what,
                found,
                limit,
                largest: largest(listing, measure),
            })
        };
        if files > self.context.options.max_files {
            return Err(over("files", files, self.context.options.max_files, |_| 1));
        }
        if bytes > self.context.options.max_snapshot_bytes {
            return Err(over(
                "new bytes",
                bytes,
                self.context.options.max_snapshot_bytes,
                |bytes| bytes,
            ));
        }
        if bytes > 0 {
            let reserve = self.context.options.min_free_bytes;
            // Text compresses to about a quarter.
            check_free(self.store.path(), |free| bytes / 4 + reserve.min(free / 10))?;
        }
        Ok(to_read)
    }
}

/// Returns the five largest top-level entries by a measure of their files.
fn largest(listing: &Listing, measure: fn(u64) -> u64) -> Vec<(Vec<u8>, u64)> {
    let mut sizes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for dir in &listing.dirs {
        for entry in &dir.entries {
            if matches!(entry.content, Content::Known(_) | Content::ToRead) {
                let path = join(&dir.path, &entry.name);
                let top = path.split(|byte| *byte == b'/').next().unwrap_or_default();
                *sizes.entry(top.to_vec()).or_default() += measure(entry.stat.bytes);
            }
        }
    }
    let mut sizes: Vec<(Vec<u8>, u64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    sizes.truncate(5);
    sizes
}

fn is_to_read(entry: &crate::scan::ListedEntry) -> bool {
    entry.content == Content::ToRead
}

/// Returns the stores in a data directory.
pub(crate) fn stores(data_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data_dir.join("snapshot")).into_iter().flatten().flatten();
    let mut stores: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.join("ctrlz").is_dir()).collect();
    stores.sort();
    stores
}

/// The bytes that a snapshot may write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    used: QuotaUse,
    content_bytes: u64,
}

impl Allowance {
    /// Returns the bytes that are left for file contents.
    pub(super) fn left(&self, keep: &StoreKeep<'_>) -> u64 {
        self.content_bytes.saturating_sub(keep.pack.bytes())
    }

    /// Returns the error of a snapshot that does not fit.
    pub(super) fn exceeded(&self, hold: &Hold) -> Error {
        let (path, used) = (hold.store.path().to_owned(), Box::new(self.used));
        Error::Record(RecordError::OverQuota { path, used })
    }

    /// Returns the warning threshold that the use of the quota crosses with `bytes` more.
    pub(super) fn mark_crossed_by(&self, bytes: u64) -> Option<u64> {
        let (before, after) = (self.used.warning(), self.used.and(bytes).warning());
        after.filter(|_| after > before)
    }

    /// Leaves out the largest files until the rest fits. All files are read to find those that the
    /// store already has.
    pub(super) fn leave_out(
        &self,
        hold: &Hold,
        listing: &mut Listing,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<(), Error> {
        let left = self.left(keep);
        let probe = Probe { keep, new: Mutex::default() };
        let rules = listing.hidden_rules.clone();
        let threads = hold.context.options.threads.max(1);
        read_listing(&hold.root, listing, &probe, threads, progress)?;
        // Files that are left out below are not captured.
        listing.hidden_rules = rules;
        let new = probe.new.into_inner().unwrap_or_else(PoisonError::into_inner);
        leave_out_largest(listing, &new, left);
        Ok(())
    }

    /// Returns whether all files to read fit by their sizes.
    pub(super) fn fits_all(&self, keep: &StoreKeep<'_>, listing: &Listing) -> bool {
        let entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let costs = entries.filter(|entry| is_to_read(entry)).map(|entry| cost(entry.stat.bytes));
        costs.sum::<u64>() <= self.left(keep)
    }

    /// Returns whether a file of this size fits.
    pub(super) fn fits(&self, keep: &StoreKeep<'_>, bytes: u64) -> bool {
        cost(bytes) <= self.left(keep)
    }
}

/// Marks new files as to be read again, except the largest ones that do not fit.
fn leave_out_largest(listing: &mut Listing, new: &HashSet<ObjectId>, left: u64) {
    let mut sizes: BTreeMap<ObjectId, u64> = BTreeMap::new();
    let entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
    for entry in entries {
        if let Content::Known(id) = entry.content
            && new.contains(&id)
        {
            sizes.insert(id, entry.stat.bytes);
        }
    }
    let mut order: Vec<(u64, ObjectId)> =
        sizes.into_iter().map(|(id, bytes)| (bytes, id)).collect();
    order.sort_unstable();
    let mut taken = 0_u64;
    // Smallest first, so that as many files as possible are captured.
    let fitting = order.iter().take_while(|(bytes, _)| {
        taken = taken.saturating_add(cost(*bytes));
        taken <= left
    });
    let fitting: HashSet<ObjectId> = fitting.map(|(_, id)| *id).collect();
    let Listing { dirs, skipped, .. } = listing;
    for dir in dirs {
        for entry in &mut dir.entries {
            let Content::Known(id) = entry.content else { continue };
            if fitting.contains(&id) {
                entry.content = Content::ToRead;
            } else if new.contains(&id) {
                let reason = SkipReason::OverQuota { bytes: entry.stat.bytes };
                entry.content = Content::Skipped(reason.clone());
                skipped.push(Skipped { path: join(&dir.path, &entry.name), reason });
            }
        }
    }
    skipped.sort_unstable();
}

/// Reads without storing, and collects the ids that the store does not have.
pub(super) struct Probe<'a> {
    pub(super) keep: &'a StoreKeep<'a>,
    pub(super) new: Mutex<HashSet<ObjectId>>,
}

impl Probe<'_> {
    fn note(&self, id: ObjectId) -> ObjectId {
        let store: &Store = self.keep.store;
        if !self.keep.pack.has(&id) && !store.objects.holds(&id) {
            self.new.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        }
        id
    }
}

impl Keep for Probe<'_> {
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error> {
        Ok(hash_object(Kind::Blob, bytes).map(|id| self.note(id)))
    }

    fn large(&self, bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem> {
        hash_large(bytes, source).map(|id| self.note(id))
    }

    fn has(&self, id: &ObjectId) -> bool {
        self.keep.has(id)
    }

    fn borrow(&self, id: &ObjectId, bytes: u64) -> bool {
        self.keep.borrow(id, bytes)
    }

    fn held_before(&self, path: &[u8]) -> bool {
        self.keep.held_before(path)
    }
}
