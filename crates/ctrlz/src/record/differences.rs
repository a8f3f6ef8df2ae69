//! A snapshot without a watcher where little changed: the previous one, with the paths rescanned
//! that differ from the stat cache.
//!
//! Finding them takes one stat per file. Unchanged directories are not listed, and the new stat
//! cache copies their entries.

use crate::error::Error;
use crate::log::Operation;
use crate::scan::{Basis, Dirty, ListInput, Listing, Progress, Proof, differences};

use super::draft::Recorded;
use super::keep::StoreKeep;
use super::part::to_try_again;
use super::request::Cause;
use crate::hold::Hold;

/// The result of the last scan, with the proof of which parts are unchanged.
pub(super) struct Ground<'a> {
    pub(super) last: &'a Operation,
    /// Includes the stat cache.
    pub(super) input: &'a ListInput<'a>,
    pub(super) proof: &'a Proof,
    pub(super) basis: &'a Basis,
    /// The number of blobs that are still borrowed.
    pub(super) borrowed: u64,
}

impl Hold {
    /// Rescans the paths that differ and records a snapshot. Returns `None` if a full scan is
    /// required.
    pub(super) fn record_differing(
        &self,
        cause: &Cause,
        ground: &Ground<'_>,
        progress: &Progress,
    ) -> Result<Option<Recorded>, Error> {
        let &Ground { last, input, proof, basis, borrowed } = ground;
        let cache = input.cache;
        let mut outer = last.meta.rules.clone();
        outer.hidden.clear();
        if cache.basis().operation != Some(last.commit) || outer != self.outer_rules()? {
            return Ok(None);
        }
        let differences = differences(&self.root, input, proof, progress)?;
        let Some((differences, retries)) = differences.zip(to_try_again(last)) else {
            return Ok(None);
        };
        let pack = self.pack_writer();
        let log = Some(&self.work_tree);
        let keep = StoreKeep { log, ..StoreKeep::new(&self.store, &pack) };
        let dirty = Dirty::new(differences.paths.iter().cloned().chain(retries));
        let looked = self.look_at_dirty(cause, dirty, &keep, progress)?;
        let Some(looked) = looked.filter(|looked| looked.listing.vanished.is_empty()) else {
            return Ok(None);
        };
        let (dirty, listing) = (&looked.dirty, &looked.listing);
        let names_changed = !differences.compared.is_empty() || looked.lacks_something();
        if names_changed && differences.are_overtaken(&self.root, input, dirty, listing) {
            return Ok(None);
        }
        let Some(fresh) = differences.fresh(cache, dirty, listing) else { return Ok(None) };
        let files = proof.files();
        let Some(draft) = self.edited(last, files, &looked, &pack, Some(cache))? else {
            return Ok(None);
        };
        let mut dirs = self.ignored_part(cache, proof, cause)?;
        dirs.retain(|dir| fresh.leaves(&dir.path));
        dirs.extend(fresh.dirs().cloned());
        dirs.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let part = Listing { dirs, ..Listing::default() };
        let room = match looked.room {
            None if names_changed => {
                let changing = Listing { changed: true, ..Listing::default() };
                self.room_for(cause, &changing)?
            }
            room => room,
        };
        let kept = self.keep_ignored(&part, cause, Some(last), &keep, room.as_ref())?;
        let (concluded, files) =
            self.conclude_part(cause, last, (draft, kept), pack, proof.files())?;
        let basis = Basis { operation: Some(concluded.operation.commit), ..basis.clone() };
        let news = concluded.is_new || looked.read > 0 || !differences.compared.is_empty();
        if news || basis != *cache.basis() {
            let path = self.work_tree.cache_path();
            // Errors are ignored: without the cache the next scan is slower.
            drop(cache.save_with(&path, &fresh, &self.store.objects.pack_names(), &basis));
        }
        let mut snapshot = concluded.snapshot(listing, looked.read, borrowed);
        snapshot.quota_mark = concluded.quota_mark(looked.room.as_ref());
        snapshot.files = files;
        let listing = Listing::default();
        Ok(Some(Recorded { snapshot, operation: concluded.operation, listing }))
    }
}
