//! Recording: every snapshot is made here.
//!
//! ```text
//! recording    the sequence of every snapshot: list, check the limits, read, append
//! whole        a scan of everything, narrowed by the stat cache
//! part         the previous snapshot with some paths rescanned:
//! differences  - those that differ from the stat cache
//! watched      - those that a watcher reports
//! named        - those that a caller names
//! shared       the result of a scan by another process
//! ignored      ignored files that are kept beside the snapshot
//! found        edits by the user that the report about a tool proves
//! borrowed     blobs from the user's repository
//! credit       the steps that changes belong to, by the evidence about them
//! quota        limits on size
//! ```
//!
//! All of them end in [`Recording::finish`], which appends an operation if the state differs from
//! the last one.

mod borrowed;
mod credit;
mod differences;
mod draft;
mod edit;
mod evidence;
mod file;
mod found;
mod ignored;
mod keep;
mod kept;
mod moved;
mod named;
mod part;
mod quota;
mod recording;
mod remembered;
mod request;
mod shared;
mod uncaptured;
mod watched;
mod whole;

use crate::compare::Extent;
use crate::error::Error;
use crate::fs::Dir;
use crate::git::ObjectId;
use crate::hold::{Context, Hold};
use crate::log::{OpenGap, read_operation};
use crate::pack::PackWriter;
use crate::scan::{ListInput, Progress, Seeding, StatCache};
use crate::store::Store;

use recording::Recording;
use request::Need;

pub use draft::Snapshot;
pub use found::FileEdit;
pub use request::TrackOptions;

pub(crate) use draft::Recorded;
pub(crate) use file::{capture, look};
pub(crate) use keep::{HashOnly, StoreKeep};
pub(crate) use request::{Cause, Ending, NamedLimit, RunTime};
pub(crate) use shared::Moment;
pub(crate) use uncaptured::{CAPTURED_REPOSITORY, created_uncaptured, left_out_paths};

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
            self.record_watched(cause, progress)
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
        let recording = || Recording {
            rehash: options.rehash,
            ..Recording::new(self, cause, progress, Extent::Whole)
        };
        let paths = &options.paths;
        let recorded = match last {
            Some(last) if !paths.is_empty() && self.rules_hold(paths, &last)? => {
                recording().named(paths, &last)?
            }
            // Without a previous snapshot there is nothing to take the other paths from.
            last => {
                let whole = recording().whole(need, last.as_ref())?;
                self.note_scan(began, &whole.operation, &whole.snapshot);
                if paths.is_empty() {
                    whole
                } else {
                    // Named files are captured even if they are ignored or large.
                    let named = recording().named(paths, &whole.operation)?;
                    let snapshot = Snapshot { files: whole.snapshot.files, ..named.snapshot };
                    Recorded { snapshot, ..named }
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
