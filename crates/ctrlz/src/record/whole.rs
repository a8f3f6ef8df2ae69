//! A scan of everything, narrowed by the stat cache.

use crate::compare::Extent;
use crate::defect::Defect;
use crate::error::Error;
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::jobs::run_jobs;
use crate::log::{Meta, Operation, OuterRules, WrongIndex};
use crate::path::escape;
use crate::scan::{
    Basis, IndexStamp, ListInput, ListedDir, Listing, Proof, Seeding, SkipReason, Skipped,
    StatCache, list, verify,
};
use crate::store::{Borrowed, UserRepo, build_tree};

use super::draft::{Draft, Recorded, Snapshot};
use super::kept::Kept;
use super::part::or_whole;
use super::recording::{Recording, Scanned};
use super::request::Need;

/// The maximum number of scans after the first one, if names keep changing.
const MORE_SCANS: usize = 3;

/// The inputs of a scan, read before it.
pub(super) struct Ground<'a> {
    /// Includes the stat cache.
    pub(super) input: ListInput<'a>,
    pub(super) basis: Basis,
    pub(super) rules: OuterRules,
    /// The number of blobs that are still borrowed.
    pub(super) borrowed: u64,
}

impl Recording<'_> {
    /// Rescans what the stat cache does not prove to be unchanged.
    pub(super) fn whole(mut self, need: Need, last: Option<&Operation>) -> Result<Recorded, Error> {
        let hold = self.hold;
        let (borrowed, corrected) = hold.copy_borrowed()?;
        let last = corrected.as_ref().or(last);
        let cache = StatCache::load(&hold.work_tree.cache_path());
        let packs = hold.store.objects.pack_names();
        let packs_lost = !cache.packs().iter().all(|pack| packs.contains(pack));
        self.doubt = packs_lost || !borrowed.lost.is_empty() || cache.is_empty();
        let is_first = cache.is_empty() && last.is_none();
        self.source = hold.borrow_source(is_first && hold.work_tree.wrong_index().is_none())?;
        let rules = hold.outer_rules()?;
        let input = ListInput {
            seed: if self.source.is_some() { hold.seeding()? } else { Seeding::Off },
            rehash: self.rehash,
            ..hold.context.list_input(&hold.store, &hold.root, &cache)?
        };
        let basis = Basis { policy: input.policy(), operation: None, ..hold.basis() };
        let proof = if self.doubt || self.rehash || basis.policy != cache.basis().policy {
            None
        } else {
            Some(verify(&hold.root, &input, &basis.index, self.progress)?)
        };
        let ground = Ground { input, basis, rules, borrowed: borrowed.left };
        if let (Need::Snapshot, Some(proof), Some(last)) = (need, &proof, last)
            && let Some(recorded) = self.known(&ground, last, proof)?
        {
            return Ok(recorded);
        }
        self.everything(last, ground, proof.as_ref())
    }

    /// Records a snapshot if the stat cache proves that little or nothing changed. Returns `None`
    /// if a full scan is required.
    fn known(
        &self,
        ground: &Ground<'_>,
        last: &Operation,
        proof: &Proof,
    ) -> Result<Option<Recorded>, Error> {
        let cache = ground.input.cache;
        let is_recorded = proof.is_whole()
            && cache.basis().operation == Some(last.commit)
            && cache.basis().index == ground.basis.index
            && !self.cause.always;
        if is_recorded {
            let dirs = self.hold.ignored_part(cache, proof, self.cause)?;
            let part = Listing { dirs, ..Listing::default() };
            let kept = self.keep_ignored(&part, Some(last), None)?;
            if kept.new.is_none() && kept.same == last.meta.ignored_snapshot {
                let (files, borrowed) = (proof.files(), ground.borrowed);
                let snapshot = Snapshot { files, borrowed, ..Snapshot::unchanged(last) };
                let (operation, listing) = (last.clone(), Listing::default());
                return Ok(Some(Recorded { snapshot, operation, listing }));
            }
        }
        let part = Recording::new(self.hold, self.cause, self.progress, Extent::Part);
        or_whole(part.differing(ground, last, proof))
    }

    /// Lists everything, and records the tree that is built from the listing.
    fn everything(
        mut self,
        last: Option<&Operation>,
        ground: Ground<'_>,
        proof: Option<&Proof>,
    ) -> Result<Recorded, Error> {
        let Ground { input, mut basis, rules, borrowed: mut borrowed_count } = ground;
        let Hold { store, work_tree, .. } = self.hold;
        let cache = input.cache;
        let (index, index_is_readable) = match &self.hold.context.repo {
            Some(repo) => repo.index()?,
            None => (None, true),
        };
        basis.index.settled &= index_is_readable;
        let placed = Some(&self.cause.placed);
        let mut input = ListInput { index: index.as_ref(), proof, placed, ..input };
        let (listing, wrong) = self.list_sampled(&mut input)?;
        let mut scanned = self.read(listing)?;
        self.scan_again(&mut scanned, &input)?;
        let listing = &mut scanned.listing;
        if Defect::Silent.is_made() {
            listing.skipped.clear();
        }
        if !index_is_readable {
            let (path, reason) = (b".git/index".to_vec(), SkipReason::UnreadableIndex);
            listing.skipped.push(Skipped { path, reason });
            listing.skipped.sort_unstable();
        }
        let known = |id: &ObjectId| store.objects.holds(id);
        let tree = build_tree(listing, &self.pack, &known, input.threads)?;
        let renames = last.map(|last| self.hold.moved(Some(cache), last, &listing.dirs));
        let renames = renames.unwrap_or_default();
        let kept = self.keep_ignored(listing, last, scanned.room.as_ref())?;
        let borrowed = match self.source.take() {
            Some(source) if wrong.is_none() => source.into_borrowed(),
            _ => Borrowed::default(),
        };
        if !borrowed.is_empty() {
            borrowed.save(store, &work_tree.borrowed_path())?;
        }
        borrowed_count += borrowed.len();
        let same_tree = last.filter(|last| last.snapshot == tree);
        let meta = meta_of(&scanned.listing, &rules, &kept, same_tree);
        let doubt = self.doubt;
        let draft = Draft { tree, meta, renames, kept };
        let Recorded { snapshot, operation, listing } = self.finish(last, draft, scanned)?;
        basis.operation = Some(operation.commit);
        let is_stale =
            snapshot.files_read > 0 || doubt || listing.changed || basis != *cache.basis();
        if snapshot.changed || is_stale {
            let packs = store.objects.pack_names();
            // Errors are ignored: without the cache the next scan is slower.
            drop(StatCache::save(&work_tree.cache_path(), &listing, &packs, &basis));
        }
        let wrong_index = wrong.map(|path| escape(&path));
        let snapshot = Snapshot { borrowed: borrowed_count, wrong_index, ..snapshot };
        Ok(Recorded { snapshot, operation, listing })
    }

    /// Lists everything. If the user's index is wrong about a borrowed file, lists again without
    /// borrowing, and also returns the file's path.
    fn list_sampled(&self, input: &mut ListInput<'_>) -> Result<(Listing, Option<Vec<u8>>), Error> {
        let hold = self.hold;
        let listing = list(&hold.root, input, &self.keep(), self.progress)?;
        let source = self.source.as_ref();
        let wrong = source.and_then(|source| hold.check_sample(source, &listing));
        let Some(path) = &wrong else { return Ok((listing, None)) };
        hold.distrust_index(&WrongIndex { path: escape(path), ..WrongIndex::default() })?;
        input.seed = Seeding::Off;
        Ok((list(&hold.root, input, &self.keep(), self.progress)?, wrong))
    }

    /// Scans again if files vanished during the scan, because they may have been renamed to a
    /// directory that had been listed before. Files that keep vanishing are reported.
    fn scan_again(&self, scanned: &mut Scanned, input: &ListInput<'_>) -> Result<(), Error> {
        for _ in 0..MORE_SCANS {
            self.hold.note_moved_dirs(&mut scanned.listing);
            if scanned.listing.vanished.is_empty() && scanned.listing.moved.is_empty() {
                return Ok(());
            }
            let cache = StatCache::of(&scanned.listing);
            let input = ListInput { cache: &cache, proof: None, rehash: false, ..input.clone() };
            scanned.listing = list(&self.hold.root, &input, &self.keep(), self.progress)?;
            self.fill(scanned)?;
        }
        self.hold.note_moved_dirs(&mut scanned.listing);
        let Listing { vanished, moved, skipped, .. } = &mut scanned.listing;
        let unstable = |path| Skipped { path, reason: SkipReason::Unstable };
        let restless = |path| Skipped { path, reason: SkipReason::Restless };
        skipped.extend(vanished.drain(..).map(unstable).chain(moved.drain(..).map(restless)));
        skipped.sort_unstable();
        Ok(())
    }
}

impl Hold {
    /// Notes the directories that changed since they were listed: a file may have been moved there.
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
}

/// Returns the metadata of a listing. The common permissions are computed for each snapshot, but if
/// nothing else changed since the last one, which has the same tree, that one's are used.
fn meta_of(
    listing: &Listing,
    rules: &OuterRules,
    kept: &Kept,
    same_tree: Option<&Operation>,
) -> Meta {
    let ignored = kept.same;
    let like_last = same_tree.and_then(|last| {
        let meta = Meta::of_listing_with(listing, rules, last.meta.common);
        let meta = Meta { ignored_snapshot: ignored, ..meta };
        last.meta.says_the_same_as(&meta).then_some(meta)
    });
    like_last
        .unwrap_or_else(|| Meta { ignored_snapshot: ignored, ..Meta::of_listing(listing, rules) })
}
