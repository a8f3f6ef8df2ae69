//! A scan of everything, narrowed by the stat cache.

use std::collections::BTreeMap;

use crate::defect::Defect;
use crate::error::{Error, RecordError};
use crate::fs::check_free;
use crate::git::ObjectId;
use crate::jobs::run_jobs;
use crate::log::{Meta, Operation, OuterRules, WrongIndex};
use crate::pack::Published;
use crate::path::{escape, join};
use crate::scan::{
    Basis, Content, IndexStamp, ListInput, ListedDir, Listing, Progress, Seeding, SkipReason,
    Skipped, StatCache, list, read_listing, verify,
};
use crate::store::{Borrowed, UserRepo, build_tree};

use super::differences::Ground;
use super::draft::{Concluded, Draft, Recorded, Snapshot};
use super::ignored::Kept;
use super::keep::StoreKeep;
use super::quota::Allowance;
use super::request::{Cause, Need, TrackOptions};
use crate::hold::Hold;

impl Hold {
    /// Scans everything and records it.
    pub(super) fn record_whole(
        &self,
        need: Need,
        options: &TrackOptions,
        cause: &Cause,
        last: Option<&Operation>,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let store = &self.store;
        let (loans, corrected) = self.settle_loans()?;
        let last = corrected.as_ref().or(last);
        let cache = StatCache::load(&self.work_tree.cache_path());
        let packs = store.objects.pack_names();
        let packs_lost = !cache.packs().iter().all(|pack| packs.contains(pack));
        let doubt = packs_lost || !loans.lost.is_empty() || cache.is_empty();
        let is_first = cache.is_empty() && last.is_none();
        let lender = self.lender(is_first && self.work_tree.wrong_index().is_none())?;
        let pack = self.pack_writer();
        let keep = StoreKeep {
            store,
            pack: &pack,
            lender: lender.as_ref(),
            log: Some(&self.work_tree),
            doubt,
            rehash: options.rehash,
        };
        let rules = self.outer_rules()?;
        let input = ListInput {
            seed: if lender.is_some() { self.seeding()? } else { Seeding::Off },
            rehash: options.rehash,
            ..self.context.list_input(store, &self.root, &cache)?
        };
        let mut basis = Basis { policy: input.policy(), operation: None, ..self.basis() };
        let proof = if doubt || options.rehash || basis.policy != cache.basis().policy {
            None
        } else {
            Some(verify(&self.root, &input, &basis.index, progress)?)
        };
        if let (Need::Snapshot, Some(proof), Some(last)) = (need, &proof, last) {
            let borrowed = loans.left;
            let ground = Ground { last, input: &input, proof, basis: &basis, borrowed };
            if let Some(recorded) = self.record_known(cause, &ground, &keep, progress)? {
                return Ok(recorded);
            }
        }
        let (index, index_is_readable) = match &self.context.repo {
            Some(repo) => repo.index()?,
            None => (None, true),
        };
        basis.index.settled &= index_is_readable;
        let placed = Some(&cause.placed);
        let mut input = ListInput { index: index.as_ref(), proof: proof.as_ref(), placed, ..input };
        let mut listing = list(&self.root, &input, &keep, progress)?;
        let wrong = lender.as_ref().and_then(|lender| self.sample_loans(lender, &listing));
        if let Some(path) = &wrong {
            self.distrust_index(&WrongIndex { path: escape(path), ..WrongIndex::default() })?;
            input.seed = Seeding::Off;
            listing = list(&self.root, &input, &keep, progress)?;
        }
        let files_read = self.check_budget(&listing, progress)?;
        let room = self.room_for(cause, &listing)?;
        if let Some(room) = &room {
            room.fit(self, &mut listing, &keep, &input, progress)?;
        }
        read_listing(&self.root, &mut listing, &keep, input.threads, progress)?;
        let again = Again { input: &input, keep: &keep, room: room.as_ref() };
        let mut listing = self.look_again(listing, &again, progress)?;
        if Defect::Silent.is_made() {
            listing.skipped.clear();
        }
        if !index_is_readable {
            let (path, reason) = (b".git/index".to_vec(), SkipReason::UnreadableIndex);
            listing.skipped.push(Skipped { path, reason });
            listing.skipped.sort_unstable();
        }
        let known = |id: &ObjectId| store.objects.holds(id);
        let tree = build_tree(&mut listing, &pack, &known, input.threads)?;
        let renames = last.map(|last| self.moved(Some(&cache), last, &listing.dirs));
        let renames = renames.unwrap_or_default();
        let kept = self.keep_ignored(&listing, cause, last, &keep, room.as_ref())?;
        let borrowed = match lender {
            Some(lender) if wrong.is_none() => lender.into_borrowed(),
            _ => Borrowed::default(),
        };
        if !borrowed.is_empty() {
            borrowed.save(store, &self.work_tree.borrowed_path())?;
        }
        let meta = self.meta_of(&listing, &rules, tree, &kept, last);
        let concluded = self.conclude(cause, last, Draft { tree, meta, renames, kept }, pack)?;
        basis.operation = Some(concluded.operation.commit);
        let is_stale = files_read > 0 || doubt || listing.changed || basis != *cache.basis();
        if concluded.is_new || is_stale {
            let (path, packs) = (self.work_tree.cache_path(), store.objects.pack_names());
            // Errors are ignored: without the cache the next scan is slower.
            drop(StatCache::save(&path, &listing, &packs, &basis));
        }
        let mut snapshot = concluded.snapshot(&listing, files_read, borrowed.len() + loans.left);
        snapshot.quota_mark = concluded.quota_mark(room.as_ref());
        snapshot.wrong_index = wrong.map(|path| escape(&path));
        Ok(Recorded { snapshot, operation: concluded.operation, listing })
    }

    /// Returns the metadata of a listing. The common permissions are computed for each snapshot,
    /// but if nothing else changed, those of the last one are used.
    fn meta_of(
        &self,
        listing: &Listing,
        rules: &OuterRules,
        tree: ObjectId,
        kept: &Kept,
        last: Option<&Operation>,
    ) -> Meta {
        let companion = kept.same;
        let like_last = last.filter(|last| last.snapshot == tree).map(|last| Meta {
            companion,
            ..Meta::of_listing_with(listing, rules, last.meta.common)
        });
        let is_same = |meta: &Meta| last.is_some_and(|last| last.meta.says_the_same_as(meta));
        like_last
            .filter(is_same)
            .unwrap_or_else(|| Meta { companion, ..Meta::of_listing(listing, rules) })
    }

    /// Records a snapshot if the stat cache proves that little or nothing changed. Returns `None`
    /// if a full scan is required.
    fn record_known(
        &self,
        cause: &Cause,
        ground: &Ground<'_>,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Option<Recorded>, Error> {
        let &Ground { last, input, proof, basis, borrowed } = ground;
        let cache = input.cache;
        let is_recorded = proof.is_whole()
            && cache.basis().operation == Some(last.commit)
            && cache.basis().index == basis.index
            && !cause.always;
        if is_recorded {
            let dirs = self.ignored_part(cache, proof, cause)?;
            let part = Listing { dirs, ..Listing::default() };
            let kept = self.keep_ignored(&part, cause, Some(last), keep, None)?;
            if kept.new.is_none() && kept.same == last.meta.companion {
                let (operation, published) = (last.clone(), Published::default());
                let concluded = Concluded { operation, is_new: false, published };
                let listing = Listing::default();
                let snapshot = concluded.snapshot(&listing, 0, borrowed);
                let snapshot = Snapshot { files: proof.files(), ..snapshot };
                return Ok(Some(Recorded { snapshot, operation: concluded.operation, listing }));
            }
        }
        match self.record_differing(cause, ground, progress) {
            // A full scan needs no older object, replaces lost ones, and decides what to leave out.
            Err(error) if is_for_a_scan(&error) => Ok(None),
            recorded => recorded,
        }
    }

    /// Scans again if files vanished during the scan, because they may have been renamed to a
    /// directory that had been listed before. Files that keep vanishing are reported.
    fn look_again(
        &self,
        mut listing: Listing,
        again: &Again<'_>,
        progress: &Progress,
    ) -> Result<Listing, Error> {
        let Again { input, keep, room } = *again;
        for _ in 0..3 {
            self.note_moved_dirs(&mut listing);
            if listing.vanished.is_empty() && listing.moved.is_empty() {
                return Ok(listing);
            }
            let cache = StatCache::of(&listing);
            let input = ListInput { cache: &cache, proof: None, rehash: false, ..input.clone() };
            listing = list(&self.root, &input, keep, progress)?;
            if let Some(room) = room {
                room.fit(self, &mut listing, keep, &input, progress)?;
            }
            read_listing(&self.root, &mut listing, keep, input.threads, progress)?;
        }
        self.note_moved_dirs(&mut listing);
        let Listing { vanished, moved, .. } = &mut listing;
        let unstable = |path| Skipped { path, reason: SkipReason::Unstable };
        let restless = |path| Skipped { path, reason: SkipReason::Restless };
        let lost = vanished.drain(..).map(unstable).chain(moved.drain(..).map(restless));
        let lost: Vec<Skipped> = lost.collect();
        listing.skipped.extend(lost);
        listing.skipped.sort_unstable();
        Ok(listing)
    }

    /// Adds the directories that changed since they were listed: a file may have been moved there.
    /// A scan without changes cannot have missed a move.
    fn note_moved_dirs(&self, listing: &mut Listing) {
        if !listing.changed {
            return;
        }
        let has_moved = |dir: &&ListedDir| {
            let now = self.root.glimpse(&dir.path).and_then(|dir| dir.stat_self());
            now.is_some_and(|now| now.mtime != dir.stat.mtime || now.ctime != dir.stat.ctime)
        };
        let runs: Vec<&[ListedDir]> = listing.dirs.rchunks(64).collect();
        let moved = run_jobs(self.context.options.threads.max(1), runs, |dirs, _| {
            dirs.iter().filter(has_moved).map(|dir| dir.path.clone()).collect::<Vec<_>>()
        });
        let mut moved: Vec<Vec<u8>> = moved.into_iter().flatten().collect();
        moved.sort_unstable();
        listing.moved = moved;
    }

    /// Returns the basis of the stat cache, as far as it is known before the scan.
    fn basis(&self) -> Basis {
        let none = IndexStamp { stat: None, settled: true };
        let index = self.context.repo.as_ref().map_or(none, UserRepo::index_stamp);
        Basis { index, ..Basis::default() }
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
        progress.files_to_read.store(to_read, std::sync::atomic::Ordering::Relaxed);
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

/// Returns whether a full scan may succeed after this error of a partial one.
pub(super) fn is_for_a_scan(error: &Error) -> bool {
    use RecordError::{NoSpace, OverBudget, OverQuota};
    let is_full = |error: &RecordError| {
        matches!(error, OverBudget { .. } | OverQuota { .. } | NoSpace { .. })
    };
    error.is_damage() || matches!(error, Error::Record(error) if is_full(error))
}

/// The arguments of a repeated scan.
#[derive(Clone, Copy)]
struct Again<'a> {
    input: &'a ListInput<'a>,
    keep: &'a StoreKeep<'a>,
    room: Option<&'a Allowance>,
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
