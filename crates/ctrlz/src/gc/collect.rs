//! Garbage collection: removes objects that no ref reaches.
//!
//! There are two phases. *Mark and copy* runs beside writers: it finds the objects that refs reach
//! and copies the live part of wasteful packs into new ones. *Remove* holds the store's lock
//! exclusively for a short time: it marks from refs that moved meanwhile, copies objects that these
//! made live again, and then removes the old packs. A writer holds the store's lock from before its
//! first object until its ref is written, so collection never sees objects without their ref. A
//! kill at any point leaves at most duplicate copies.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, StoreError};
use crate::fs::{free_bytes, private};
use crate::git::{ObjectId, PackFile, split_entry};
use crate::scan::Progress;
use crate::store::{Incoming, Lock, Sharing, Store, is_among};

use super::repack::{SMALL_BYTES, Versions, is_ours, remove_packs, repack};
use crate::pack::{Effort, PACK_BYTES, Published, effort_of};

/// Share of dead objects from which a pack is rewritten, in percent.
const WASTEFUL_PERCENT: u64 = 20;
/// Share of the store that one round may copy, in percent. Limits the extra disk space needed.
const ROUND_PERCENT: u64 = 10;
/// Lower bound on the size of a round, so that small stores do not need many rounds.
const MIN_ROUND_BYTES: u64 = 16 << 20;

/// Options of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GcOptions {
    /// Rewrites every pack that contains dead objects, and merges all small packs.
    pub(crate) thorough: bool,
}

/// Result of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Size of all packs before, in bytes.
    pub bytes_before: u64,
    /// Size of all packs after, in bytes.
    pub bytes_after: u64,
    /// Number of packs before.
    pub packs_before: usize,
    /// Number of packs after.
    pub packs_after: usize,
    /// Number of objects that refs reach.
    pub live_objects: u64,
    /// Number of objects that were removed.
    pub dropped_objects: u64,
    /// Reason why the collection is incomplete, if it is.
    pub note: Option<String>,
}

/// Objects that the refs reach.
#[derive(Default)]
pub(crate) struct Live {
    objects: HashSet<ObjectId>,
    /// Commits of each log with their trees, newest first, for finding versions.
    chains: Vec<Vec<(ObjectId, ObjectId)>>,
}

impl Live {
    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.objects.contains(id)
    }

    pub(crate) fn insert(&mut self, id: ObjectId) {
        self.objects.insert(id);
    }

    /// Returns all objects, sorted by id.
    pub(crate) fn sorted(&self) -> Vec<ObjectId> {
        let mut ids: Vec<ObjectId> = self.objects.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

/// Result of a round.
enum Round {
    Done,
    /// Not enough disk space for the copy.
    NoRoom,
    /// Other processes held the store's lock all the time.
    Busy,
}

impl Store {
    /// Removes unreachable objects. The caller holds no lock on the store.
    pub(crate) fn collect(
        &self,
        options: GcOptions,
        patience: Duration,
        progress: &Progress,
    ) -> Result<GcReport, Error> {
        let shared = Lock::take(&self.lock_path(), Sharing::Shared, patience)?;
        self.objects.refresh()?;
        for dir in self.work_tree_dirs()? {
            sweep_work_tree(&dir)?;
        }
        let mut report = GcReport::default();
        let packs = self.objects.open_packs();
        (report.packs_before, report.bytes_before) = (packs.len(), total_bytes(&packs));
        let heads = self.roots()?;
        let mut live = Live::default();
        self.mark(&heads, &mut live, progress)?;
        report.live_objects = live.len() as u64;
        let mut versions = Versions::default();
        for chain in &live.chains {
            versions.follow(self, chain);
        }
        drop(shared);
        let budget = (report.bytes_before * ROUND_PERCENT / 100).max(MIN_ROUND_BYTES);
        let flawed = self.known_flawed();
        let whole: Vec<Arc<PackFile>> =
            packs.iter().filter(|pack| !is_among(&flawed, pack)).cloned().collect();
        for round in rounds(&whole, &live, options, budget) {
            progress.check()?;
            match self.replace(&round, &heads, &mut live, &versions, patience, progress)? {
                Round::Done => (),
                Round::NoRoom => {
                    let why = "the disk is too full to copy what is left of wasteful packs";
                    report.note = Some(why.into());
                }
                Round::Busy => {
                    report.note = Some("other commands were busy; the next run goes on".into());
                    break;
                }
            }
        }
        self.objects.refresh()?;
        let left = self.objects.open_packs();
        (report.packs_after, report.bytes_after) = (left.len(), total_bytes(&left));
        let count = |packs: &[Arc<PackFile>]| {
            packs.iter().map(|pack| u64::from(pack.object_count())).sum::<u64>()
        };
        report.dropped_objects = count(&packs).saturating_sub(count(&left));
        Ok(report)
    }

    /// Returns the expected report of [`Store::collect`] after the refs `going` are removed. Sizes
    /// are estimates, because compression of the remaining objects is not known yet.
    pub(crate) fn foresee(
        &self,
        options: GcOptions,
        going: &HashSet<String>,
        patience: Duration,
        progress: &Progress,
    ) -> Result<GcReport, Error> {
        let _shared = Lock::take(&self.lock_path(), Sharing::Shared, patience)?;
        self.objects.refresh()?;
        let mut heads = self.roots()?;
        heads.retain(|name, _| !going.contains(name));
        let mut live = Live::default();
        self.mark(&heads, &mut live, progress)?;
        let packs = self.objects.open_packs();
        let bytes = total_bytes(&packs);
        let budget = (bytes * ROUND_PERCENT / 100).max(MIN_ROUND_BYTES);
        let flawed = self.known_flawed();
        let whole: Vec<Arc<PackFile>> =
            packs.iter().filter(|pack| !is_among(&flawed, pack)).cloned().collect();
        let mut report = GcReport {
            bytes_before: bytes,
            bytes_after: bytes,
            packs_before: packs.len(),
            packs_after: packs.len(),
            live_objects: live.len() as u64,
            ..GcReport::default()
        };
        for round in rounds(&whole, &live, options, budget) {
            let mut kept = HashSet::new();
            for (id, size) in round.iter().flat_map(|pack| pack.entry_sizes()) {
                if !live.contains(&id) || !kept.insert(id) {
                    report.dropped_objects += 1;
                    report.bytes_after = report.bytes_after.saturating_sub(size);
                }
            }
            report.packs_after -= round.len();
            report.packs_after += usize::from(!kept.is_empty());
        }
        Ok(report)
    }

    /// Runs one round: copies the live part of some packs, then removes the packs.
    fn replace(
        &self,
        packs: &[Arc<PackFile>],
        heads: &HashMap<String, ObjectId>,
        live: &mut Live,
        versions: &Versions,
        patience: Duration,
        progress: &Progress,
    ) -> Result<Round, Error> {
        let shared = Lock::take(&self.lock_path(), Sharing::Shared, patience)?;
        let is_copy_needed = packs.iter().any(|pack| pack.ids().any(|id| live.contains(&id)));
        let copied = match is_copy_needed {
            true if free_bytes(&self.objects_dir())? < total_bytes(packs) => {
                // On a full disk only packs without live objects can be removed.
                return Ok(Round::NoRoom);
            }
            true => repack(self, packs, &|id| live.contains(id), versions, u64::MAX)?,
            false => Published::default(),
        };
        drop(shared);
        let Some(_alone) = take_alone(self, patience)? else { return Ok(Round::Busy) };
        self.objects.refresh()?;
        let now = self.roots()?;
        let moved: HashMap<String, ObjectId> =
            now.into_iter().filter(|(name, id)| heads.get(name) != Some(id)).collect();
        let before = live.len();
        self.mark(&moved, live, progress)?;
        if live.len() > before {
            // A concurrent snapshot may have reused an object of these packs that was dead before.
            let going: HashSet<&Path> = packs.iter().map(|pack| pack.path()).collect();
            let stays = |pack: &Arc<PackFile>| {
                !going.contains(pack.path()) || copied.packs.iter().any(|made| made == pack.path())
            };
            let staying: Vec<_> = self.objects.open_packs().into_iter().filter(stays).collect();
            let elsewhere = |id: &ObjectId| staying.iter().any(|pack| pack.contains(id));
            let revived = |id: &ObjectId| live.contains(id) && !elsewhere(id);
            if packs.iter().any(|pack| pack.ids().any(|id| revived(&id))) {
                // All writers wait for the exclusive lock here, so nothing is recompressed.
                repack(self, packs, &revived, &Versions::default(), 0)?;
                self.objects.refresh()?;
            }
        }
        let left = remove_packs(self, packs, &copied, &|id| live.contains(id))?;
        self.note_flawed(&left)?;
        Ok(Round::Done)
    }

    /// Moves the packs of `incoming` into the store and removes `old` packs that are redundant now.
    ///
    /// The caller holds the store's lock exclusively.
    pub(crate) fn replace_packs(
        &self,
        incoming: &Incoming,
        old: &[Arc<PackFile>],
    ) -> Result<(), Error> {
        let made = Published { packs: incoming.publish(self)?, ..Published::default() };
        remove_packs(self, old, &made, &|_| true).map(drop)
    }

    /// Returns all refs with the objects they name.
    ///
    /// Fails if a work tree that has a log has no log ref: the ref is lost or unreadable, and its
    /// objects must not be collected.
    pub(crate) fn roots(&self) -> Result<HashMap<String, ObjectId>, Error> {
        // Before the refs: a concurrent first snapshot writes its ref before its `logged` file.
        let logged = self.work_tree_dirs()?.into_iter().filter(|dir| dir.join("logged").exists());
        let logged: Vec<PathBuf> = logged.collect();
        let roots: HashMap<String, ObjectId> = self.refs.all()?.into_iter().collect();
        for dir in logged {
            let id = dir.file_name().unwrap_or_default().to_string_lossy();
            let log = format!("{}/{id}/log", self.ref_prefix());
            if !roots.contains_key(&log) {
                return Err(Error::Store(StoreError::LostRef { path: self.path().join(log) }));
            }
        }
        Ok(roots)
    }

    /// Marks everything that `roots` reach. An unreadable object is an error, because objects
    /// behind it must not be collected, unless a repair has recorded it as lost.
    pub(crate) fn mark(
        &self,
        roots: &HashMap<String, ObjectId>,
        live: &mut Live,
        progress: &Progress,
    ) -> Result<(), Error> {
        let lost = self.known_lost()?;
        let mut names: Vec<&String> = roots.keys().collect();
        names.sort();
        for name in names {
            let mut chain = Vec::new();
            let mut commits = vec![roots[name]];
            while let Some(id) = commits.pop() {
                if !live.objects.insert(id) {
                    continue;
                }
                progress.check()?;
                let commit = match self.objects.commit(&id) {
                    Err(Error::Store(StoreError::Damaged { .. })) if lost.contains(&id) => continue,
                    found => found?,
                };
                chain.push((id, commit.tree));
                self.mark_tree(commit.tree, live, &lost)?;
                commits.extend(commit.parents.iter().rev());
            }
            live.chains.push(chain);
        }
        Ok(())
    }

    /// Marks a tree and everything in it.
    pub(crate) fn mark_tree(
        &self,
        tree: ObjectId,
        live: &mut Live,
        lost: &BTreeSet<ObjectId>,
    ) -> Result<(), Error> {
        let mut work = vec![tree];
        while let Some(id) = work.pop() {
            if !live.objects.insert(id) || id == ObjectId::EMPTY_TREE {
                continue;
            }
            let tree = match self.objects.tree(&id) {
                Err(Error::Store(StoreError::Damaged { .. })) if lost.contains(&id) => continue,
                other => other?,
            };
            for entry in tree.iter() {
                if entry.kind.is_tree() {
                    work.push(entry.id);
                } else {
                    live.objects.insert(entry.id);
                }
            }
        }
        Ok(())
    }
}

/// Returns the packs worth rewriting, in groups that need little extra disk space at a time.
fn rounds(
    packs: &[Arc<PackFile>],
    live: &Live,
    options: GcOptions,
    budget: u64,
) -> Vec<Vec<Arc<PackFile>>> {
    let mut dead = Vec::new();
    let mut wasteful = Vec::new();
    let mut small = Vec::new();
    let mut quick = Vec::new();
    let small_bytes = small_bytes(total_bytes(packs));
    for pack in packs.iter().filter(|pack| is_ours(pack)) {
        let total = u64::from(pack.object_count());
        let alive = pack.ids().filter(|id| live.contains(id)).count() as u64;
        let bytes = pack.path().metadata().map_or(0, |meta| meta.len());
        let waste = (total - alive) * 100 / total.max(1);
        if alive == 0 {
            dead.push(Arc::clone(pack));
        } else if waste >= WASTEFUL_PERCENT || (options.thorough && alive < total) {
            wasteful.push((bytes, Arc::clone(pack)));
        } else if bytes < SMALL_BYTES || (bytes < small_bytes && total > 1 && !is_quick(pack)) {
            small.push((bytes, Arc::clone(pack)));
        } else if is_quick(pack) {
            quick.push((bytes, Arc::clone(pack)));
        }
    }
    const MANY_SMALL: usize = 8;
    if options.thorough || small.len() >= MANY_SMALL {
        wasteful.append(&mut small);
    }
    if options.thorough {
        wasteful.append(&mut quick);
    } else if wasteful.is_empty() && dead.is_empty() {
        // With nothing else to do, one round rewrites packs that were compressed quickly.
        quick.sort_by_key(|(bytes, _)| *bytes);
        let sums = quick.iter().scan(0, |sum, (bytes, _)| {
            *sum += bytes;
            Some(*sum)
        });
        let fitting = sums.take_while(|sum| *sum <= budget).count();
        // At least one pack, or packs larger than the budget would never be rewritten.
        quick.truncate(fitting.max(1));
        wasteful.append(&mut quick);
    }
    // Dead packs come first: removing them needs no disk space, so it works on a full disk.
    let mut rounds = vec![dead];
    let (mut round, mut size) = (Vec::new(), 0);
    for (bytes, pack) in wasteful {
        if size > 0 && size + bytes > budget {
            rounds.push(std::mem::take(&mut round));
            size = 0;
        }
        size += bytes;
        round.push(pack);
    }
    rounds.push(round);
    let lonely = |round: &Vec<Arc<PackFile>>| match round.as_slice() {
        [] => true,
        // Rewriting a single pack without waste would produce the same pack.
        [one] => !is_quick(one) && one.ids().all(|id| live.contains(&id)),
        _ => false,
    };
    rounds.retain(|round| !lonely(round));
    rounds
}

/// Returns the size below which a pack is worth merging, given the size of the store. Every
/// snapshot opens all packs, and a large store that grew gradually has hundreds.
fn small_bytes(store_bytes: u64) -> u64 {
    // Far below the size of merged packs, so that the same packs are not merged repeatedly.
    SMALL_BYTES.max((store_bytes / 64).min(PACK_BYTES / 4))
}

/// Returns whether a pack was compressed quickly, so that rewriting it makes it smaller.
fn is_quick(pack: &Arc<PackFile>) -> bool {
    // Large objects are alone in their pack or are copied verbatim.
    let is_small = |(bytes, _): (u64, &[u8])| bytes <= crate::pack::MAX_DELTA_BYTES as u64;
    let gets_smaller = |entry: &[u8]| {
        effort_of(entry) == Effort::Quick && split_entry(entry).is_some_and(is_small)
    };
    pack.object_count() > 1 && pack.last_entry().is_some_and(gets_smaller)
}

fn total_bytes(packs: &[Arc<PackFile>]) -> u64 {
    let size = |path: &std::path::Path| path.metadata().map_or(0, |meta| meta.len());
    packs.iter().map(|pack| size(pack.path()) + size(&pack.path().with_extension("idx"))).sum()
}

/// Removes the temporary files of dead processes from the directory of a work tree.
fn sweep_work_tree(dir: &Path) -> Result<(), Error> {
    private::sweep(dir)?;
    for path in private::list(dir)? {
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            private::sweep(&path)?;
        }
    }
    Ok(())
}

/// Takes the store's lock exclusively. Returns `None` if that takes longer than `patience`.
fn take_alone(store: &Store, patience: Duration) -> Result<Option<Lock>, Error> {
    match Lock::take(&store.lock_path(), Sharing::Exclusive, patience) {
        Ok(lock) => Ok(Some(lock)),
        Err(Error::Busy { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Kind;
    use crate::pack::{PackWriter, whole_entry};

    #[test]
    fn merged_packs_are_too_large_to_be_merged_again() {
        for shift in 20..60 {
            assert!((SMALL_BYTES..PACK_BYTES / 2).contains(&small_bytes(1 << shift)));
        }
    }

    /// Returns whether a quickly compressed pack is worth rewriting, given its last blob's size.
    fn is_rewritten(last_bytes: usize) -> bool {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pack")).unwrap();
        let writer = PackWriter::new(dir.path());
        for bytes in [100, last_bytes] {
            let zeros = vec![0; bytes];
            let id = crate::git::hash_object(Kind::Blob, &zeros).unwrap();
            writer.add_raw(id, &whole_entry(Kind::Blob, &zeros, Effort::Quick)).unwrap();
        }
        writer.publish().unwrap();
        let packs = crate::pack::Objects::open(dir.path()).unwrap().open_packs();
        is_quick(&packs[0])
    }

    #[test]
    fn a_pack_ending_in_a_blob_too_large_for_deltas_is_not_rewritten() {
        let most = crate::pack::MAX_DELTA_BYTES;
        assert!(is_rewritten(1000) && is_rewritten(most) && !is_rewritten(most + 1));
    }
}
