//! The sequence of every snapshot: list, check the limits, read, build the tree, append.
//!
//! The other files of this module decide which paths are listed and how the tree follows from them.

use crate::compare::Extent;
use crate::error::Error;
use crate::hold::Hold;
use crate::log::{Details, NewOperation, Operation};
use crate::pack::PackWriter;
use crate::scan::{Content, Listing, Progress, read_listing};
use crate::store::BorrowSource;

use super::draft::{Draft, Recorded, Snapshot};
use super::keep::StoreKeep;
use super::moved::Renames;
use super::quota::Allowance;
use super::request::Cause;

/// The minimum number of files of a partial scan that are read on several threads.
const MANY_FILES: u64 = 32;

/// A snapshot that is being made.
pub(super) struct Recording<'a> {
    pub(super) hold: &'a Hold,
    pub(super) cause: &'a Cause,
    pub(super) progress: &'a Progress,
    /// A partial scan fails if its files do not fit. A whole one decides which are left out.
    pub(super) extent: Extent,
    pub(super) pack: PackWriter,
    pub(super) source: Option<BorrowSource>,
    /// Whether objects are missing, so that cached ids prove nothing.
    pub(super) doubt: bool,
    /// Whether all files are read again and compared with the store.
    pub(super) rehash: bool,
}

/// Listed paths whose files were read.
#[derive(Default)]
pub(super) struct Scanned {
    pub(super) listing: Listing,
    /// The number of files that were read.
    pub(super) read: u64,
    /// The remaining quota, if it limits the snapshot.
    pub(super) room: Option<Allowance>,
}

impl<'a> Recording<'a> {
    /// Starts a recording without a cache.
    pub(super) fn new(
        hold: &'a Hold,
        cause: &'a Cause,
        progress: &'a Progress,
        extent: Extent,
    ) -> Recording<'a> {
        let pack = hold.pack_writer();
        Recording { hold, cause, progress, extent, pack, source: None, doubt: true, rehash: false }
    }

    /// Returns the store as the target of the scan.
    pub(super) fn keep(&self) -> StoreKeep<'_> {
        let mut keep = StoreKeep::new(&self.hold.store, &self.pack);
        keep.source = self.source.as_ref();
        keep.log = Some(&self.hold.work_tree);
        (keep.doubt, keep.rehash) = (self.doubt, self.rehash);
        keep
    }

    /// Reads the listed files whose content is unknown, within the budget and the quota.
    pub(super) fn read(&self, listing: Listing) -> Result<Scanned, Error> {
        let read = self.hold.check_budget(&listing, self.progress)?;
        let room = self.hold.room_for(self.cause, &listing)?;
        let mut scanned = Scanned { listing, read, room };
        self.fill(&mut scanned)?;
        Ok(scanned)
    }

    /// Like [`Recording::read`], for paths that were listed again.
    pub(super) fn fill(&self, scanned: &mut Scanned) -> Result<(), Error> {
        let Scanned { listing, read, room } = scanned;
        let threads = match self.extent {
            Extent::Part if *read < MANY_FILES => 1,
            Extent::Part | Extent::Whole => self.hold.context.options.threads.max(1),
        };
        let keep = self.keep();
        match room.as_ref().filter(|room| !room.fits_all(&keep, listing)) {
            Some(room) if self.extent == Extent::Part => return Err(room.exceeded(self.hold)),
            Some(room) => room.leave_out(self.hold, listing, &keep, self.progress)?,
            None => (),
        }
        read_listing(&self.hold.root, listing, &keep, threads, self.progress)
    }

    /// Publishes the objects, and appends an operation if the state differs from the last one. The
    /// snapshot counts the files of `scanned`.
    pub(super) fn finish(
        mut self,
        last: Option<&Operation>,
        draft: Draft,
        scanned: Scanned,
    ) -> Result<Recorded, Error> {
        let Scanned { listing, read, room } = scanned;
        let entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let captured = entries.filter(|entry| matches!(entry.content, Content::Known(_)));
        let (files, files_read) = (captured.count() as u64, read);
        let is_same = |last: &&Operation| {
            let Draft { tree, meta, kept, .. } = &draft;
            kept.new.is_none() && last.snapshot == *tree && last.meta.says_the_same_as(meta)
        };
        let same = last.filter(is_same).filter(|_| !self.cause.always);
        let (operation, published, quota_mark) = if let Some(last) = same {
            // Objects that had gone missing are replaced even if the state is the same.
            let published = self.pack.publish()?;
            if published.objects > 0 {
                self.hold.store.objects.refresh()?;
            }
            (last.clone(), published, None)
        } else {
            let (kind, details) = self.credited(last, &draft)?;
            let Draft { tree, meta, renames: Renames { moved, unlinked }, kept } = draft;
            let unlinked = details.unlinked.into_iter().chain(unlinked).collect();
            let details = Details { moved, unlinked, ..details };
            let new =
                NewOperation { kind, snapshot: tree, meta, details, ignored_snapshot: kept.new };
            let Hold { store, work_tree, .. } = self.hold;
            let (operation, published) = work_tree.append(store, self.pack, last, new)?;
            let mark = room.and_then(|room| room.mark_crossed_by(published.bytes));
            (operation, published, mark)
        };
        let snapshot = Snapshot {
            changed: same.is_none(),
            files,
            files_read,
            objects_written: published.objects,
            bytes_written: published.bytes,
            quota_mark,
            ..Snapshot::unchanged(&operation)
        };
        Ok(Recorded { snapshot, operation, listing })
    }
}
