//! Taking snapshots.

use crate::error::Error;
use crate::fs::Dir;
use crate::record::{Cause, Moment, Snapshot, TrackOptions};
use crate::scan::Progress;
use crate::store::{Borrowed, Limits};

use super::Workspace;

impl Workspace {
    /// Takes a snapshot.
    ///
    /// Unchanged files are not read, and nothing is written if nothing changed. Paths that could
    /// not be captured are listed in the result. Fails without a hash if the store fails or the
    /// work tree is unreadable.
    pub fn track(&self, options: &TrackOptions, progress: &Progress) -> Result<Snapshot, Error> {
        self.context.check_enabled()?;
        let asked = Moment::now();
        let hold = self.begin()?;
        if let Some(snapshot) = hold.shared_scan(options, asked)? {
            return Ok(Snapshot { recovered: hold.recovered, ..snapshot });
        }
        let mut snapshot = hold.record(options, &Cause::outside(), progress)?.snapshot;
        snapshot.recovered = hold.recovered.clone();
        hold.release();
        Ok(snapshot)
    }

    /// Copies blobs that earlier snapshots borrow from the user's repository, up to `max_bytes`
    /// bytes. Returns the number of blobs that are still borrowed.
    pub fn copy_borrowed(&self, max_bytes: u64) -> Result<u64, Error> {
        let (store, work_tree) = self.for_writing()?;
        let borrowed = Borrowed::load(&work_tree.borrowed_path())?;
        if borrowed.is_empty() {
            return Ok(0);
        }
        // Another process that holds the lock is copying them.
        let Some(_turn) = work_tree.try_lock_copying()? else { return Ok(borrowed.len()) };
        let (borrowed, copied) = {
            let _shared = self.lock_shared(&store)?;
            store.objects.refresh()?;
            let room_bytes = self.context.quota_use(store.path())?.left();
            // Read again under the lock, so that a purge in the meantime is respected.
            let borrowed = Borrowed::load(&work_tree.borrowed_path())?;
            let limits = Limits { bytes: max_bytes, objects: u64::MAX, room_bytes };
            let copied = borrowed.copy(&store, &limits)?;
            (borrowed, copied)
        };
        let root = Dir::open(&self.context.root)?;
        let wrong = self.context.check_copied(&root, &work_tree, &borrowed, &copied);
        let hold = self.begin()?;
        hold.correct(wrong)?;
        Ok(hold.work_tree.remove_copied(&hold.store, copied)?.left)
    }
}
