//! Tracking: one consistent pass over the work tree, recorded.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::Trees;
use crate::defect::Defect;
use crate::error::Error;
use crate::fs::{FileKind, MODE_BITS, free_bytes};
use crate::git::{Kind, ObjectId, Rules};
use crate::jobs::run_jobs;
use crate::path::{NotATreePath, PathText, TreePath, is_within, join, split};
use crate::scan::{
    Basis, Content, IndexStamp, Keep, LargeProblem, ListInput, ListedDir, Listing, Progress,
    ReadOutcome, Seeding, SkipReason, Skipped, StatCache, filter_patterns, list, list_from,
    read_entry, read_listing, rule_text, rules_above, verify,
};
use crate::store::{
    Absorbed, Borrowed, Lender, Limits, Lock, LogIndex, Meta, NewOperation, OpenGap, Operation,
    OuterRules, PackWriter, Published, Sharing, Store, TreeChange, UserRepo, WorkTree, build_tree,
    edit_tree,
};

use super::companion::Kept;
use super::differing::Ground;
use super::quota::{Allowance, Probe, QuotaUse};
use super::shared_scan::Moment;
use super::{Cause, Hold, Recovery, Workspace};

/// How to take a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TrackOptions {
    /// Only these paths are looked at; everything else is taken from the previous snapshot.
    /// A file named here is captured even if it is ignored or large. Default: everything.
    pub paths: Vec<TreePath>,
    /// Reads every file instead of trusting timestamps. Default: no.
    pub rehash: bool,
}

/// A recorded state of the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Its hash: the id of a git tree.
    pub hash: ObjectId,
    /// The operation that recorded it.
    pub operation: String,
    /// Whether anything differs from the previous snapshot.
    pub changed: bool,
    /// Files it holds; of a partial snapshot, files that were looked at.
    pub files: u64,
    /// Files that had to be read.
    pub files_read: u64,
    /// Objects that were new to the store.
    pub objects_written: u64,
    /// Bytes the store grew by.
    pub bytes_written: u64,
    /// Blobs that the user's repository still has to lend.
    pub borrowed: u64,
    /// What it does not hold, and why.
    pub skipped: Vec<Skipped>,
    /// The mark that the use of the quota has passed with it: 50 or 80 percent.
    pub quota_mark: Option<u64>,
    /// A restore that had been cut off and was finished first.
    pub recovered: Option<Recovery>,
    /// Whether only what a watcher was told of was looked at.
    pub watched: bool,
}

impl Snapshot {
    /// Whether everything that should be in it is.
    pub fn is_complete(&self) -> bool {
        !self.skipped.iter().any(|skipped| skipped.reason.is_failure())
    }
}

/// A snapshot together with what the scan saw.
pub(crate) struct Tracked {
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
    pub(crate) listing: Listing,
}

/// A snapshot without what the scan saw.
pub(crate) struct Noted {
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
}

/// What the caller of a scan will use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Snapshot,
    /// Also every file's metadata, as a restore needs it.
    Listing,
}

/// The store as a scan sees it.
pub(super) struct StoreKeep<'a> {
    pub(super) store: &'a Store,
    pub(super) pack: &'a PackWriter,
    pub(super) lender: Option<&'a Lender>,
    /// The log that says which files are new; without it, none is.
    pub(super) log: Option<&'a WorkTree>,
    /// Objects went missing, so remembered ids prove nothing.
    pub(super) doubt: bool,
    /// Everything is read again and compared with what the store holds.
    pub(super) rehash: bool,
}

impl<'a> StoreKeep<'a> {
    /// The store for files that are read whatever is remembered of them.
    pub(super) fn new(store: &'a Store, pack: &'a PackWriter) -> StoreKeep<'a> {
        StoreKeep { store, pack, lender: None, log: None, doubt: true, rehash: false }
    }

    /// Whether a snapshot that the log still holds has a file at `path`.
    fn is_in_log(&self, log: &WorkTree, path: &TreePath) -> Result<bool, Error> {
        let Some(head) = self.store.refs.read(log.ref_name())? else { return Ok(false) };
        let mut entries = LogIndex::open(self.store, log, head)?;
        let trees = Trees::new(&self.store.objects);
        let mut last = None;
        while let Some(entry) = entries.next(self.store)? {
            if last.replace(entry.snapshot) == Some(entry.snapshot) {
                continue;
            }
            let found = trees.find(&entry.snapshot, path)?;
            if found.is_some_and(|found| !found.kind.is_tree()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Keep for StoreKeep<'_> {
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error> {
        self.pack.add(Kind::Blob, bytes, |id| match self.rehash {
            // Whoever asks to read everything again also wants damaged copies replaced.
            true => self.store.objects.holds_intact(id),
            false => self.store.objects.holds(id),
        })
    }

    fn large(
        &self,
        bytes: u64,
        source: &mut dyn std::io::Read,
    ) -> Result<Result<ObjectId, LargeProblem>, Error> {
        self.pack.add_large(bytes, source, |id| self.store.objects.holds(id))
    }

    fn has(&self, id: &ObjectId) -> bool {
        !self.doubt || self.store.objects.holds(id)
    }

    fn borrow(&self, id: &ObjectId, bytes: u64) -> bool {
        self.lender.is_some_and(|lender| lender.lend(id, bytes))
    }

    fn held_before(&self, path: &[u8]) -> bool {
        let path = TreePath::from_scan(path.to_vec());
        // Where the log cannot be read, the file counts as new: it is skipped, which is reported.
        self.log.is_some_and(|log| self.is_in_log(log, &path).unwrap_or(false))
    }
}

impl Workspace {
    /// Takes a snapshot.
    ///
    /// Unchanged files are not read, and if nothing changed nothing is written. What could not be
    /// captured is listed in the result; only a failure of the store or an unreadable work tree is
    /// an error, and then no hash is returned.
    pub fn track(&self, options: &TrackOptions, progress: &Progress) -> Result<Snapshot, Error> {
        self.check_enabled()?;
        let asked = Moment::now();
        let hold = self.begin()?;
        if let Some(snapshot) = self.shared_scan(&hold, options, asked)? {
            return Ok(Snapshot { recovered: hold.recovered, ..snapshot });
        }
        let (mut snapshot, _) = self.record_locked(&hold, options, &Cause::outside(), progress)?;
        snapshot.recovered = hold.recovered.clone();
        hold.release();
        Ok(snapshot)
    }

    /// Disabled means no new snapshots; what was recorded can still be brought back.
    pub(crate) fn check_enabled(&self) -> Result<(), Error> {
        if self.options.enabled {
            return Ok(());
        }
        Err(Error::Disabled { path: self.root.clone() })
    }

    /// Copies what earlier snapshots borrow from the user's repository, at most `max_bytes` of
    /// it; gives the number of blobs still borrowed.
    pub fn absorb(&self, max_bytes: u64) -> Result<u64, Error> {
        let (store, work_tree) = self.for_writing()?;
        let borrowed = Borrowed::load(&work_tree.borrowed_path())?;
        if borrowed.is_empty() {
            return Ok(0);
        }
        // Whoever is at it already also finishes it.
        let Some(_turn) = work_tree.try_lock_loans()? else { return Ok(borrowed.len()) };
        let copied = {
            let _shared = Lock::take(&store.lock_path(), Sharing::Shared, self.options.patience)?;
            store.objects.refresh()?;
            let room_bytes = self.quota_use(store.path())?.left();
            // Only now, as what was purged before must not come back.
            let borrowed = Borrowed::load(&work_tree.borrowed_path())?;
            borrowed.copy(&store, &Limits { bytes: max_bytes, objects: u64::MAX, room_bytes })?
        };
        let hold = self.begin()?;
        Ok(Borrowed::settle(&hold.store, &hold.work_tree, copied)?.left)
    }

    /// Takes a snapshot, and says what the scan saw.
    pub(crate) fn track_locked(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Tracked, Error> {
        self.track_for(Need::Listing, hold, options, cause, progress)
    }

    /// Takes a snapshot. Where nothing changed this makes no listing, which is most of the work.
    pub(crate) fn note_locked(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Noted, Error> {
        let tracked = self.track_for(Need::Snapshot, hold, options, cause, progress)?;
        let Tracked { snapshot, operation, .. } = tracked;
        Ok(Noted { snapshot, operation })
    }

    fn track_for(
        &self,
        need: Need,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Tracked, Error> {
        let began = Moment::now();
        let last = hold.work_tree.last_or_salvaged(&hold.store)?;
        let gap = if options.paths.is_empty() { None } else { hold.open_gap()? };
        let tracked = match last {
            Some(last) if !options.paths.is_empty() && self.rules_hold(hold, options, &last)? => {
                self.track_paths(hold, options, cause, last, progress)
            }
            // Without a previous snapshot there is nothing to take the other paths from.
            last => {
                let tracked =
                    self.track_all(need, hold, options, cause, last.as_ref(), progress)?;
                self.note_scan(hold, began, &tracked.operation, &tracked.snapshot);
                match options.paths.is_empty() {
                    true => Ok(tracked),
                    // Named files are captured even if they are ignored or large.
                    false => {
                        let files = tracked.snapshot.files;
                        let named =
                            self.track_paths(hold, options, cause, tracked.operation, progress)?;
                        Ok(Tracked { snapshot: Snapshot { files, ..named.snapshot }, ..named })
                    }
                }
            }
        }?;
        hold.drop_abandoned()?;
        match gap {
            None => hold.close_gap(),
            // The rest of what changed is still not recorded. Best effort, as the gap is in the log.
            Some(gap) => {
                let gap = OpenGap { after: tracked.operation.id.clone(), ..gap };
                drop(gap.save(&hold.work_tree.gap_path()));
            }
        }
        Ok(tracked)
    }

    /// Whether the ignore rules above the named directories are those of the previous snapshot.
    ///
    /// Otherwise a part of the new snapshot would be judged by rules that it does not record, and
    /// "not there" could be read as "did not exist".
    fn rules_hold(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        last: &Operation,
    ) -> Result<bool, Error> {
        let outer = self.outer_rules(&hold.store)?;
        let mut then = last.meta.rules.clone();
        then.hidden.clear();
        if outer != then {
            return Ok(false);
        }
        for path in &options.paths {
            if look(&hold.root, path.as_bytes())? != Some(FileKind::Dir) {
                continue;
            }
            let dirs = super::absence::parents(path.as_bytes()).chain([&b""[..]]);
            for dir in dirs {
                let file = TreePath::from_scan(join(dir, b".gitignore"));
                let then = crate::compare::find(&hold.store.objects, &last.snapshot, &file)?;
                let now = rule_text(&hold.root, dir);
                let now = now.and_then(|text| crate::git::hash_object(Kind::Blob, &text));
                if then.filter(|entry| entry.kind.is_file()).map(|entry| entry.id) != now {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn track_all(
        &self,
        need: Need,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        last: Option<&Operation>,
        progress: &Progress,
    ) -> Result<Tracked, Error> {
        let store = &hold.store;
        let loans = self.settle_loans(hold)?;
        let cache = StatCache::load(&hold.work_tree.cache_path());
        let packs = store.objects.pack_names();
        let packs_lost = !cache.packs().iter().all(|pack| packs.contains(pack));
        let doubt = packs_lost || !loans.lost.is_empty() || cache.is_empty();
        let lender = self.lender(cache.is_empty() && last.is_none())?;
        let pack = self.pack_writer(store);
        let keep = StoreKeep {
            store,
            pack: &pack,
            lender: lender.as_ref(),
            log: Some(&hold.work_tree),
            doubt,
            rehash: options.rehash,
        };
        let rules = self.outer_rules(store)?;
        let seeded = lender.is_some();
        let input = self.list_input(store, &hold.root, &cache, rules.base(), seeded, options)?;
        let mut basis = Basis { policy: input.policy(), operation: None, ..self.basis() };
        let proof = match doubt || options.rehash || basis.policy != cache.basis().policy {
            true => None,
            false => Some(verify(&hold.root, &input, &basis.index, progress)?),
        };
        if let (Need::Snapshot, Some(proof), Some(last)) = (need, &proof, last) {
            let borrowed = loans.left;
            let ground = Ground { last, input: &input, proof, basis: &basis, borrowed };
            if let Some(tracked) = self.track_known(hold, cause, &ground, &keep, progress)? {
                return Ok(tracked);
            }
        }
        let (index, index_is_readable) = match &self.repo {
            Some(repo) => repo.index()?,
            None => (None, true),
        };
        basis.index.settled &= index_is_readable;
        let placed = Some(&cause.placed);
        let input = ListInput { index: index.as_ref(), proof: proof.as_ref(), placed, ..input };
        let mut listing = list(&hold.root, &input, &keep, progress)?;
        let files_read = self.check_budget(hold, &listing, progress)?;
        let room = self.room_for(hold, cause, &listing)?;
        if let Some(room) = &room {
            room.fit(hold, &mut listing, &keep, &input, progress)?;
        }
        read_listing(&hold.root, &mut listing, &keep, input.threads, progress)?;
        let again = Again { input: &input, keep: &keep, room: room.as_ref() };
        let mut listing = self.look_again(hold, listing, &again, progress)?;
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
        let kept = self.keep_ignored(hold, &listing, cause, last, &keep, room.as_ref())?;
        let meta = Meta { companion: kept.same, ..Meta::of_listing(&listing, &rules) };
        // Losing the cache costs a slower scan, so failing to write it fails nothing.
        let save_cache = |basis: &Basis| {
            let path = hold.work_tree.cache_path();
            drop(StatCache::save(&path, &listing, &store.objects.pack_names(), basis));
        };
        let same = last.filter(|last| {
            // Which permissions are the usual ones may be decided anew, and says nothing new.
            let meta = Meta::of_listing_with(&listing, &rules, last.meta.common);
            let meta = Meta { companion: kept.same, ..meta };
            !cause.always
                && kept.new.is_none()
                && last.snapshot == tree
                && last.meta.says_the_same_as(&meta)
        });
        if let Some(operation) = same.cloned() {
            // Objects that had gone missing are put back even if the snapshot is the same.
            let published = pack.publish()?;
            store.objects.refresh()?;
            basis.operation = Some(operation.commit);
            if files_read > 0 || doubt || listing.changed || basis != *cache.basis() {
                save_cache(&basis);
            }
            let snapshot =
                snapshot(&operation, false, &listing, files_read, &published, loans.left);
            return Ok(Tracked { snapshot, operation, listing });
        }
        let borrowed = match lender {
            Some(lender) => lender.into_borrowed(store),
            None => Borrowed::default(),
        };
        if !borrowed.is_empty() {
            borrowed.save(store, &hold.work_tree.borrowed_path())?;
        }
        let (kind, details, pack) = hold.credited(cause, pack, last, (&tree, &meta), &kept)?;
        let new = NewOperation { kind, snapshot: tree, meta, details, companion: kept.new };
        let (operation, published) = hold.work_tree.append(store, pack, last, new)?;
        basis.operation = Some(operation.commit);
        save_cache(&basis);
        let lent = borrowed.len() + loans.left;
        let mut snapshot = snapshot(&operation, true, &listing, files_read, &published, lent);
        snapshot.quota_mark = room.and_then(|room| passed_mark(room.used, published.bytes));
        Ok(Tracked { snapshot, operation, listing })
    }

    /// The snapshot where everything, or all but a little, is as it is remembered.
    fn track_known(
        &self,
        hold: &Hold,
        cause: &Cause,
        ground: &Ground<'_>,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Option<Tracked>, Error> {
        let &Ground { last, input, proof, basis, borrowed } = ground;
        let cache = input.cache;
        let is_recorded = proof.is_whole()
            && cache.basis().operation == Some(last.commit)
            && cache.basis().index == basis.index
            && !cause.always;
        if is_recorded {
            let dirs = self.ignored_part(hold, cache, proof, cause)?;
            let part = Listing { dirs, ..Listing::default() };
            let kept = self.keep_ignored(hold, &part, cause, Some(last), keep, None)?;
            if kept.new.is_none() && kept.same == last.meta.companion {
                let (operation, listing) = (last.clone(), Listing::default());
                let published = Published::default();
                let snapshot = snapshot(&operation, false, &listing, 0, &published, borrowed);
                let snapshot = Snapshot { files: proof.files(), ..snapshot };
                return Ok(Some(Tracked { snapshot, operation, listing }));
            }
        }
        match self.record_differing(hold, cause, ground, progress) {
            // A scan of everything needs no older object and puts back what is lost. It also knows
            // what need not be read, and what to leave out.
            Err(error) if is_for_a_scan(&error) => Ok(None),
            recorded => recorded,
        }
    }

    /// Scans again what vanished during the scan: it may have been renamed to a place that had
    /// been looked at before. What keeps vanishing is reported.
    fn look_again(
        &self,
        hold: &Hold,
        mut listing: Listing,
        again: &Again<'_>,
        progress: &Progress,
    ) -> Result<Listing, Error> {
        let Again { input, keep, room } = *again;
        for _ in 0..3 {
            self.note_moved_dirs(hold, &mut listing);
            if listing.vanished.is_empty() && listing.moved.is_empty() {
                return Ok(listing);
            }
            let cache = StatCache::of(&listing);
            let input = ListInput { cache: &cache, proof: None, rehash: false, ..input.clone() };
            listing = list(&hold.root, &input, keep, progress)?;
            if let Some(room) = room {
                room.fit(hold, &mut listing, keep, &input, progress)?;
            }
            read_listing(&hold.root, &mut listing, keep, input.threads, progress)?;
        }
        self.note_moved_dirs(hold, &mut listing);
        let Listing { vanished, moved, .. } = &mut listing;
        let unstable = |path| Skipped { path, reason: SkipReason::Unstable };
        let restless = |path| Skipped { path, reason: SkipReason::Restless };
        let lost = vanished.drain(..).map(unstable).chain(moved.drain(..).map(restless));
        let lost: Vec<Skipped> = lost.collect();
        listing.skipped.extend(lost);
        listing.skipped.sort_unstable();
        Ok(listing)
    }

    /// Adds directories that changed since they were listed: a name may have come to one that was
    /// looked at before. Only a scan that found something new can have missed a rename, so the
    /// others need not look.
    fn note_moved_dirs(&self, hold: &Hold, listing: &mut Listing) {
        if !listing.changed {
            return;
        }
        let has_moved = |dir: &&ListedDir| {
            let now = hold.root.glimpse(&dir.path).and_then(|dir| dir.stat_self());
            now.is_some_and(|now| now.mtime != dir.stat.mtime || now.ctime != dir.stat.ctime)
        };
        let runs: Vec<&[ListedDir]> = listing.dirs.rchunks(64).collect();
        let moved = run_jobs(self.options.threads.max(1), runs, |dirs, _| {
            dirs.iter().filter(has_moved).map(|dir| dir.path.clone()).collect::<Vec<_>>()
        });
        let mut moved: Vec<Vec<u8>> = moved.into_iter().flatten().collect();
        moved.sort_unstable();
        listing.moved = moved;
    }

    pub(super) fn list_input<'a>(
        &self,
        store: &Store,
        root: &crate::fs::Dir,
        cache: &'a StatCache,
        rules: std::sync::Arc<Rules>,
        seeded: bool,
        options: &TrackOptions,
    ) -> Result<ListInput<'a>, Error> {
        Ok(ListInput {
            rules,
            forbidden: self.forbidden(store),
            cache,
            index: None,
            proof: None,
            placed: None,
            seed: if seeded { self.seeding()? } else { Seeding::Off },
            trust: root.trust()?,
            max_new_file_bytes: self.options.max_new_file_bytes,
            nested_repos: self.options.nested_repos,
            rehash: options.rehash,
            only: None,
            threads: self.options.threads.max(1),
        })
    }

    /// What a cache that is written now depends on, as far as it is known before the scan.
    fn basis(&self) -> Basis {
        let none = IndexStamp { stat: None, settled: true };
        let index = self.repo.as_ref().map_or(none, UserRepo::index_stamp);
        Basis { index, ..Basis::default() }
    }

    /// Goes on copying what earlier snapshots borrowed, as far as a snapshot may be delayed.
    fn settle_loans(&self, hold: &Hold) -> Result<Absorbed, Error> {
        const MAX_BYTES: u64 = 16 << 20;
        const MAX_OBJECTS: u64 = 1_000;
        let borrowed = Borrowed::load(&hold.work_tree.borrowed_path())?;
        if borrowed.is_empty() {
            return Ok(Absorbed::default());
        }
        let Some(_turn) = hold.work_tree.try_lock_loans()? else {
            return Ok(Absorbed { left: borrowed.len(), ..Absorbed::default() });
        };
        let room_bytes = self.quota_use(hold.store.path())?.left();
        let limits = Limits { bytes: MAX_BYTES, objects: MAX_OBJECTS, room_bytes };
        let copied = borrowed.copy(&hold.store, &limits)?;
        Borrowed::settle(&hold.store, &hold.work_tree, copied)
    }

    /// For the objects of a snapshot, which the disk may have no room for.
    pub(super) fn pack_writer(&self, store: &Store) -> PackWriter {
        PackWriter::new(&store.objects_dir())
            .leaving(self.options.min_free_bytes.min(1 << 30))
            .with_threads(self.options.threads)
    }

    fn lender(&self, first_snapshot: bool) -> Result<Option<Lender>, Error> {
        match &self.repo {
            // A repository that cannot be read lends nothing; the files are read instead.
            Some(repo) if first_snapshot && self.options.seed => {
                Ok(Lender::open(&repo.objects_dir()).ok())
            }
            _ => Ok(None),
        }
    }

    /// Which blobs may be borrowed, as far as attributes outside the work tree say.
    fn seeding(&self) -> Result<Seeding, Error> {
        let none = Rules::base(&[], &[], &[]);
        let global = self.options.attributes_file.as_ref().map(|file| {
            let text = crate::fs::private::read_small(file, 1 << 20).ok().flatten();
            text.unwrap_or_default()
        });
        let own = self.repo.as_ref().map(|repo| repo.info("attributes"));
        let mut patterns = Vec::new();
        for text in global.into_iter().chain(own) {
            match filter_patterns(&text) {
                Some(found) => patterns.extend(found),
                None => return Ok(Seeding::Off),
            }
        }
        Ok(Seeding::Except(none.child(b"", &patterns)))
    }

    /// Stops before anything is stored if the snapshot would be too large; counts what to read.
    pub(super) fn check_budget(
        &self,
        hold: &Hold,
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
        let over = |what, found, limit, measure: fn(u64) -> u64| Error::OverBudget {
            what,
            found,
            limit,
            largest: largest(listing, measure),
        };
        if files > self.options.max_files {
            return Err(over("files", files, self.options.max_files, |_| 1));
        }
        if bytes > self.options.max_snapshot_bytes {
            return Err(over("new bytes", bytes, self.options.max_snapshot_bytes, |bytes| bytes));
        }
        if bytes > 0 {
            let free = free_bytes(hold.store.path())?;
            // Text shrinks to about a quarter; less than that cannot be enough.
            let needed = bytes / 4 + self.options.min_free_bytes.min(free / 10);
            if needed > free {
                let path = hold.store.path().to_owned();
                return Err(Error::NoSpace { path, needed_bytes: needed, free_bytes: free });
            }
        }
        Ok(to_read)
    }

    /// Reads one named file, if the quota has room for what is new in it.
    fn capture_named(
        &self,
        hold: &Hold,
        path: &[u8],
        kind: FileKind,
        keep: &StoreKeep<'_>,
        cause: &Cause,
    ) -> Result<ReadOutcome, Error> {
        let changing = Listing { changed: true, ..Listing::default() };
        let (parent, name) = split(path);
        let stat = hold.root.open_below(parent)?.stat(name)?;
        let bytes = stat.map_or(0, |stat| stat.bytes);
        let room = self.room_for(hold, cause, &changing)?;
        if room.is_none_or(|room| room.fits(keep, bytes)) {
            return capture(&hold.root, path, kind, keep);
        }
        let probe = Probe { keep, new: Default::default() };
        let outcome = capture(&hold.root, path, kind, &probe)?;
        let new = probe.new.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(match new.is_empty() {
            true => outcome,
            false => ReadOutcome::Skip(SkipReason::OverQuota { bytes }),
        })
    }

    /// The previous snapshot with some paths looked at again.
    fn track_paths(
        &self,
        hold: &Hold,
        options: &TrackOptions,
        cause: &Cause,
        last: Operation,
        progress: &Progress,
    ) -> Result<Tracked, Error> {
        let store = &hold.store;
        let pack = PackWriter::new(&store.objects_dir());
        let log = Some(&hold.work_tree);
        let keep = StoreKeep { log, rehash: options.rehash, ..StoreKeep::new(store, &pack) };
        let cache = StatCache::default();
        let rules = self.outer_rules(store)?.base();
        let index = match &self.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        let input = self.list_input(store, &hold.root, &cache, rules, false, options)?;
        let input = ListInput { index: index.as_ref(), ..input };
        let mut edit = Edit { changes: BTreeMap::new(), meta: last.meta.clone(), read: 0 };
        let mut listing = Listing::default();
        for path in &options.paths {
            if self.is_forbidden(&hold.root, &input.forbidden, path.as_bytes()) {
                let why = "belongs to a repository";
                return Err(NotATreePath { path: path.as_bytes().to_vec(), why }.into());
            }
            edit.forget(path.as_bytes());
            match look(&hold.root, path.as_bytes())? {
                Some(FileKind::Dir) => {
                    let above = rules_above(&hold.root, &input.rules, path.as_bytes());
                    let mut part =
                        list_from(&hold.root, &input, &keep, progress, path.as_bytes(), above)?;
                    edit.read += self.check_budget(hold, &part, progress)?;
                    if let Some(room) = self.room_for(hold, cause, &part)? {
                        room.fit(hold, &mut part, &keep, &input, progress)?;
                    }
                    read_listing(&hold.root, &mut part, &keep, input.threads, progress)?;
                    edit.take_listing(&part);
                    listing.dirs.append(&mut part.dirs);
                }
                Some(kind) => {
                    let outcome = self.capture_named(hold, path.as_bytes(), kind, &keep, cause)?;
                    edit.take_file(path.as_bytes(), outcome);
                }
                None => (),
            }
        }
        let tree = edit_tree(&store.objects, &pack, last.snapshot, &edit.changes)?;
        edit.meta.sort();
        let files_read = edit.read;
        if !cause.always && tree == last.snapshot && edit.meta.says_the_same_as(&last.meta) {
            let published = pack.publish()?;
            store.objects.refresh()?;
            let snapshot = snapshot(&last, false, &listing, files_read, &published, 0);
            return Ok(Tracked { snapshot, operation: last, listing });
        }
        let (kind, details, pack) = {
            let kept = Kept::default();
            hold.credited(cause, pack, Some(&last), (&tree, &edit.meta), &kept)?
        };
        let new = NewOperation { kind, snapshot: tree, meta: edit.meta, details, companion: None };
        let (operation, published) = hold.work_tree.append(store, pack, Some(&last), new)?;
        let snapshot = snapshot(&operation, true, &listing, files_read, &published, 0);
        Ok(Tracked { snapshot, operation, listing })
    }
}

/// Whether a scan of everything may do better than one of a part.
pub(super) fn is_for_a_scan(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. }
            | Error::HostileTree { .. }
            | Error::OverBudget { .. }
            | Error::OverQuota { .. }
            | Error::NoSpace { .. }
    )
}

/// What a second look needs.
#[derive(Clone, Copy)]
struct Again<'a> {
    input: &'a ListInput<'a>,
    keep: &'a StoreKeep<'a>,
    room: Option<&'a Allowance>,
}

/// The mark of the quota that `bytes` more pass.
pub(super) fn passed_mark(used: QuotaUse, bytes: u64) -> Option<u64> {
    let (before, after) = (used.warning(), used.and(bytes).warning());
    after.filter(|_| after > before)
}

/// What stands at `path`, without following a link on the way.
pub(crate) fn look(root: &crate::fs::Dir, path: &[u8]) -> Result<Option<FileKind>, Error> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(dir) => Ok(dir.stat(name)?.map(|stat| stat.kind)),
        // No directory there, so nothing in it.
        Err(error)
            if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory]
                .contains(&error.kind())
                || rustix::io::Errno::from_io_error(&error.source)
                    == Some(rustix::io::Errno::LOOP) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads one named file or link, whatever its size or the rules.
pub(super) fn capture(
    root: &crate::fs::Dir,
    path: &[u8],
    kind: FileKind,
    keep: &dyn Keep,
) -> Result<ReadOutcome, Error> {
    let (parent, name) = split(path);
    let dir = root.open_below(parent)?;
    read_entry(&dir, name, kind, keep)
}

/// A snapshot being changed path by path.
pub(super) struct Edit {
    pub(super) changes: BTreeMap<Vec<u8>, TreeChange>,
    pub(super) meta: Meta,
    pub(super) read: u64,
}

impl Edit {
    /// Drops everything known of `path` and what is below it.
    fn forget(&mut self, path: &[u8]) {
        self.changes.insert(path.to_vec(), None);
        self.meta.skipped.retain(|skipped| !is_within(&skipped.path, path));
        self.meta.modes.retain(|(known, _)| !is_within(&known.clone().into_bytes(), path));
        self.meta.empty_dirs.retain(|dir| !is_within(dir.as_bytes(), path));
        self.meta.rules.hidden.retain(|(file, _)| !is_within(&file.clone().into_bytes(), path));
    }

    fn take_file(&mut self, path: &[u8], outcome: ReadOutcome) {
        match outcome {
            ReadOutcome::Read { stat, id, .. } => {
                self.read += 1;
                let Some(kind) = crate::restore::entry_kind(&stat) else { return };
                self.changes.insert(path.to_vec(), Some((kind, id)));
                let mode = stat.mode & MODE_BITS;
                if kind.is_file() && mode != self.meta.common.of_file(mode) {
                    self.meta.modes.push((PathText::from_bytes(path), mode));
                }
            }
            ReadOutcome::Gone => (),
            ReadOutcome::Skip(reason) => self.skip(path, reason),
        }
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason) {
        self.meta.skipped.push(Skipped { path: path.to_vec(), reason });
    }

    pub(super) fn take_listing(&mut self, listing: &Listing) {
        let outer = OuterRules { hidden: Vec::new(), ..self.meta.rules.clone() };
        let part = Meta::of_listing_with(listing, &outer, self.meta.common);
        self.meta.skipped.extend(part.skipped);
        self.meta.modes.extend(part.modes);
        self.meta.empty_dirs.extend(part.empty_dirs);
        self.meta.rules.hidden.extend(part.rules.hidden);
        self.meta.empty_dirs.sort_unstable();
        for dir in &listing.dirs {
            for entry in &dir.entries {
                if let Content::Known(id) = entry.content
                    && let Some(kind) = crate::restore::entry_kind(&entry.stat)
                {
                    self.changes.insert(join(&dir.path, &entry.name), Some((kind, id)));
                }
            }
        }
    }
}

pub(super) fn snapshot(
    operation: &Operation,
    changed: bool,
    listing: &Listing,
    files_read: u64,
    published: &Published,
    borrowed: u64,
) -> Snapshot {
    let known = |content: &Content| matches!(content, Content::Known(_));
    let entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
    Snapshot {
        hash: operation.snapshot,
        operation: operation.id.clone(),
        changed,
        files: entries.filter(|entry| known(&entry.content)).count() as u64,
        files_read,
        objects_written: published.objects,
        bytes_written: published.bytes,
        borrowed,
        skipped: operation.meta.skipped.clone(),
        quota_mark: None,
        recovered: None,
        watched: false,
    }
}

/// The five largest things directly below the work tree, by some measure of their files.
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
