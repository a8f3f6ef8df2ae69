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
mod edit;
mod ignored;
mod keep;
mod moved;
mod named;
mod part;
mod quota;
mod remembered;
mod shared;
mod uncaptured;
mod watched;
mod whole;

use std::time::Instant;

use crate::error::Error;
use crate::fs::Dir;
use crate::git::ObjectId;
use crate::hold::{Context, Hold, Recovery};
use crate::log::{
    Details, Meta, Moved, NewOperation, OpenGap, Operation, OperationKind, read_operation,
};
use crate::pack::{PackWriter, Published};
use crate::path::TreePath;
use crate::scan::{Content, ListInput, Listing, Placed, Progress, Seeding, Skipped, StatCache};
use crate::store::Store;

use ignored::Kept;
use quota::Allowance;

pub use quota::QuotaUse;

pub(crate) use credit::Ending;
pub(crate) use keep::{HashOnly, StoreKeep};
pub(crate) use named::{capture, look};
pub(crate) use quota::Room;
pub(crate) use shared::Moment;
pub(crate) use uncaptured::{created_uncaptured, left_out_paths};

/// Options of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TrackOptions {
    /// Rescans only these paths, and takes everything else from the previous snapshot. A file named
    /// here is captured even if it is ignored or large. Default: everything.
    pub paths: Vec<TreePath>,
    /// Reads every file instead of trusting timestamps. Default: no.
    pub rehash: bool,
}

/// A recorded state of the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of its git tree.
    pub hash: ObjectId,
    /// The operation that recorded it.
    pub operation: String,
    /// Whether anything differs from the previous snapshot.
    pub changed: bool,
    /// The number of its files, or of the rescanned files of a partial snapshot.
    pub files: u64,
    /// The number of files that were read.
    pub files_read: u64,
    /// The number of new objects.
    pub objects_written: u64,
    /// The number of bytes that were added to the store.
    pub bytes_written: u64,
    /// The number of blobs that are still borrowed from the user's repository.
    pub borrowed: u64,
    /// The paths that it does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
    /// The quota warning threshold that it crossed: 50 or 80 percent.
    pub quota_mark: Option<u64>,
    /// An interrupted restore that was finished first.
    pub recovered: Option<Recovery>,
    /// Whether only the paths that a watcher reported were scanned.
    pub watched: bool,
    /// An escaped path for which the user's index has a wrong blob id. Nothing is borrowed then.
    pub wrong_index: Option<String>,
}

impl Snapshot {
    /// Returns whether no path is missing because of a failure.
    pub fn is_complete(&self) -> bool {
        !self.skipped.iter().any(|skipped| skipped.reason.is_failure())
    }
}

/// Limits for ignored or large files that tools name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    /// Replaces [`Options::max_named_bytes`](crate::Options::max_named_bytes).
    pub(crate) bytes: Option<u64>,
    /// Deadline. Files that cannot be read by then are left out.
    pub(crate) until: Option<Instant>,
}

/// The reason for a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) kind: OperationKind,
    pub(crate) details: Details,
    /// Whether it is recorded even if nothing changed.
    pub(crate) always: bool,
    /// Paths that a tool is about to change. They are kept even if they are ignored.
    pub(crate) named: Vec<TreePath>,
    /// The limit for files that tools name.
    pub(crate) named_limit: NamedLimit,
    /// The files that a restore has just written.
    pub(crate) placed: Placed,
    pub(crate) room: Room,
    /// The step that ends with it.
    pub(crate) ending: Option<Ending>,
    /// Whether an undo follows, which may find interrupted steps.
    pub(crate) undoing: bool,
    /// The session of the undo, if it is limited to one.
    pub(crate) undone_session: Option<String>,
    /// Whether it corrects a wrong snapshot, so that no step is credited.
    pub(crate) correction: bool,
}

impl Cause {
    pub(crate) fn of(kind: OperationKind) -> Cause {
        let (always, named, placed, room) = (false, Vec::new(), Placed::new(), Room::Disk);
        Cause {
            kind,
            details: Details::default(),
            always,
            named,
            named_limit: NamedLimit::default(),
            placed,
            room,
            ending: None,
            undoing: false,
            undone_session: None,
            correction: false,
        }
    }

    /// Returns the cause of a snapshot whose changes belong to open steps or to the user.
    pub(crate) fn outside() -> Cause {
        Cause { room: Room::Quota, ..Cause::before_change() }
    }

    /// Returns the cause of a safety snapshot, to which the quota does not apply.
    pub(crate) fn before_change() -> Cause {
        Cause::of(OperationKind::Outside)
    }
}

/// A snapshot with its operation.
pub(crate) struct Recorded {
    pub(crate) snapshot: Snapshot,
    pub(crate) operation: Operation,
    /// The metadata of every file, if the caller needs it.
    pub(crate) listing: Listing,
}

/// The result that the caller of a scan needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Snapshot,
    /// Also the metadata of every file, for a restore.
    Listing,
}

/// A state of the work tree that is not recorded yet.
struct Draft {
    tree: ObjectId,
    meta: Meta,
    moved: Vec<Moved>,
    kept: Kept,
}

/// The operation of a recorded state.
struct Concluded {
    operation: Operation,
    /// Whether it was appended, and is not the last operation.
    is_new: bool,
    published: Published,
}

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
        let Draft { tree, meta, moved, kept } = draft;
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
        let details = Details { moved, ..details };
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
            only: None,
            threads: self.options.threads.max(1),
        })
    }
}

impl Concluded {
    /// Returns the report of a snapshot whose scan made `listing`.
    fn snapshot(&self, listing: &Listing, files_read: u64, borrowed: u64) -> Snapshot {
        let is_known = |content: &Content| matches!(content, Content::Known(_));
        let entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        Snapshot {
            hash: self.operation.snapshot,
            operation: self.operation.id.clone(),
            changed: self.is_new,
            files: entries.filter(|entry| is_known(&entry.content)).count() as u64,
            files_read,
            objects_written: self.published.objects,
            bytes_written: self.published.bytes,
            borrowed,
            skipped: self.operation.meta.skipped.clone(),
            quota_mark: None,
            recovered: None,
            watched: false,
            wrong_index: None,
        }
    }

    /// Returns the quota warning threshold that this operation crossed.
    fn quota_mark(&self, room: Option<&Allowance>) -> Option<u64> {
        let used = room.filter(|_| self.is_new)?.used;
        let (before, after) = (used.warning(), used.and(self.published.bytes).warning());
        after.filter(|_| after > before)
    }
}
