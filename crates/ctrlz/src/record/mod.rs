//! Recording: every snapshot is made here.
//!
//! ```text
//! whole        a scan of everything, narrowed by the stat cache
//! differences  the paths that differ from the stat cache
//! watched      the paths that a watcher reports
//! part         the previous snapshot with some paths rescanned, for both
//! named        paths that a caller names
//! shared       the result of a scan by another process
//! ignored      ignored files that are kept beside the snapshot
//! found        edits by the user that the report about a tool proves
//! borrowed     blobs from the user's repository
//! credit       the steps that changes belong to
//! quota        limits on size
//! ```
//!
//! All of them end in [`Hold::conclude`], which appends an operation if the state differs from the
//! last one.

mod borrowed;
mod credit;
mod differences;
mod draft;
mod edit;
mod found;
mod ignored;
mod keep;
mod moved;
mod named;
mod part;
mod quota;
mod remembered;
mod request;
mod shared;
mod uncaptured;
mod watched;
mod whole;

use crate::error::Error;
use crate::fs::Dir;
use crate::git::ObjectId;
use crate::hold::{Context, Hold};
use crate::log::{Details, NewOperation, OpenGap, Operation, read_operation};
use crate::pack::PackWriter;
use crate::scan::{ListInput, Progress, Seeding, StatCache};
use crate::store::Store;

use draft::{Concluded, Draft};
use moved::Renames;
use request::Need;

pub use draft::Snapshot;
pub use found::FileEdit;
pub use request::TrackOptions;

pub(crate) use credit::Ending;
pub(crate) use draft::Recorded;
pub(crate) use keep::{HashOnly, StoreKeep};
pub(crate) use named::{capture, look};
pub(crate) use request::{Cause, NamedLimit};
pub(crate) use shared::Moment;
pub(crate) use uncaptured::{created_uncaptured, left_out_paths};

impl Hold {
    /// Records the work tree, using a watcher if there is one.
    pub(crate) fn record(
        &self,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let cause = &self.with_doubts(cause)?;
        let is_whole = options.paths.is_empty() && !options.rehash;
        if self.context.options.watch && is_whole {
            self.record_watched(options, cause, progress)
        } else {
            self.record_by_scan(Need::Snapshot, options, cause, progress)
        }
    }

    /// Records the work tree, and returns the metadata of every file.
    pub(crate) fn record_listed(
        &self,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let cause = self.with_doubts(cause)?;
        self.record_by_scan(Need::Listing, &TrackOptions::default(), &cause, progress)
    }

    fn record_by_scan(
        &self,
        need: Need,
        options: &TrackOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let began = Moment::now();
        let last = self.work_tree.last_or_salvaged(&self.store)?;
        let gap = if options.paths.is_empty() { None } else { self.open_gap()? };
        let recorded = match last {
            Some(last) if !options.paths.is_empty() && self.rules_hold(options, &last)? => {
                self.record_named(options, cause, &last, progress)?
            }
            // Without a previous snapshot there is nothing to take the other paths from.
            last => {
                let whole = self.record_whole(need, options, cause, last.as_ref(), progress)?;
                self.note_scan(began, &whole.operation, &whole.snapshot);
                if options.paths.is_empty() {
                    whole
                } else {
                    // Named files are captured even if they are ignored or large.
                    let files = whole.snapshot.files;
                    let named = self.record_named(options, cause, &whole.operation, progress)?;
                    Recorded { snapshot: Snapshot { files, ..named.snapshot }, ..named }
                }
            }
        };
        self.drop_abandoned()?;
        match gap {
            None => self.close_gap(),
            // The other changes are still not recorded. Errors are ignored: the log has the gap.
            Some(gap) => {
                let gap = OpenGap { after: recorded.operation.id.clone(), ..gap };
                drop(gap.save(&self.work_tree.gap_path()));
            }
        }
        Ok(recorded)
    }

    /// Publishes the objects, and appends an operation if the state differs from the last one.
    fn conclude(
        &self,
        cause: &Cause,
        last: Option<&Operation>,
        draft: Draft,
        pack: PackWriter,
    ) -> Result<Concluded, Error> {
        let Draft { tree, meta, renames: Renames { moved, unlinked }, kept } = draft;
        let is_same = |last: &&Operation| {
            kept.new.is_none() && last.snapshot == tree && last.meta.says_the_same_as(&meta)
        };
        if let Some(last) = last.filter(is_same).filter(|_| !cause.always) {
            // Objects that had gone missing are replaced even if the state is the same.
            let published = pack.publish()?;
            if published.objects > 0 {
                self.store.objects.refresh()?;
            }
            return Ok(Concluded { operation: last.clone(), is_new: false, published });
        }
        let (kind, details, pack) = self.credited(cause, pack, last, (&tree, &meta), &kept)?;
        let details = Details { moved, unlinked, ..details };
        let new = NewOperation { kind, snapshot: tree, meta, details, companion: kept.new };
        let (operation, published) = self.work_tree.append(&self.store, pack, last, new)?;
        Ok(Concluded { operation, is_new: true, published })
    }

    /// Returns a pack writer that leaves the configured space on the disk free, at most 1 GiB.
    fn pack_writer(&self) -> PackWriter {
        PackWriter::new(&self.store.objects_dir())
            .leaving(self.context.options.min_free_bytes.min(1 << 30))
            .with_threads(self.context.options.threads)
    }

    /// Releases the locks, and merges small packs if there are many and no other process writes.
    ///
    /// Errors are ignored: the operation is already recorded.
    pub(crate) fn release(self) {
        let Hold { store, work_tree, lock, shared, .. } = self;
        drop(shared);
        let version_of = |id: &ObjectId| {
            let operation = read_operation(&store.objects, id).ok()?;
            Some((operation.work_tree, operation.id, operation.snapshot))
        };
        let merged = store.merge_small_packs(&version_of).unwrap_or_default();
        if !merged.is_empty() {
            let now = store.objects.pack_names();
            watched::WatchState::follow_merge(&work_tree, &merged, &now);
            StatCache::follow_merge(&work_tree.cache_path(), &merged, &now);
        }
        drop(lock);
    }
}

impl Context {
    /// Returns the input of a scan of everything, without an index and without borrowing.
    pub(crate) fn list_input<'a>(
        &self,
        store: &Store,
        root: &Dir,
        cache: &'a StatCache,
    ) -> Result<ListInput<'a>, Error> {
        Ok(ListInput {
            rules: self.outer_rules(store)?.base(store),
            forbidden: self.forbidden(store),
            cache,
            index: None,
            proof: None,
            placed: None,
            seed: Seeding::Off,
            trust: root.trust()?,
            max_new_file_bytes: self.options.max_new_file_bytes,
            nested_repos: self.options.nested_repos,
            rehash: false,
            start: b"",
            only: None,
            threads: self.options.threads.max(1),
        })
    }
}
