//! Tracking without a watcher where little changed: the previous snapshot, with what is not as it
//! is remembered looked at again.
//!
//! Everything was looked at once, which nobody can avoid; from there on nothing is made of what is
//! as it was: no listing, and of what is remembered only what changed is written anew.

use crate::error::Error;
use crate::scan::{Basis, Dirty, ListInput, Listing, Progress, Proof, differences};
use crate::store::Operation;

use super::partly::to_try_again;
use super::track::{StoreKeep, Tracked};
use super::{Cause, Hold, Workspace};

/// What the last scan left, and what a look at all of it proved.
pub(super) struct Ground<'a> {
    pub(super) last: &'a Operation,
    /// With the cache.
    pub(super) input: &'a ListInput<'a>,
    pub(super) proof: &'a Proof,
    pub(super) basis: &'a Basis,
    /// Blobs that are still borrowed.
    pub(super) borrowed: u64,
}

impl Workspace {
    /// Looks at what differs and records it; `None` if that would not be the whole truth.
    pub(super) fn record_differing(
        &self,
        hold: &Hold,
        cause: &Cause,
        ground: &Ground<'_>,
        progress: &Progress,
    ) -> Result<Option<Tracked>, Error> {
        let &Ground { last, input, proof, basis, borrowed } = ground;
        let cache = input.cache;
        let mut outer = last.meta.rules.clone();
        outer.hidden.clear();
        if cache.basis().operation != Some(last.commit) || outer != self.outer_rules(&hold.store)? {
            return Ok(None);
        }
        let differences = differences(&hold.root, input, proof, progress)?;
        let Some((differences, retries)) = differences.zip(to_try_again(last)) else {
            return Ok(None);
        };
        let pack = self.pack_writer(&hold.store);
        let log = Some(&hold.work_tree);
        let keep = StoreKeep { log, ..StoreKeep::new(&hold.store, &pack) };
        let dirty = Dirty::new(differences.paths.iter().cloned().chain(retries));
        let looked = self.look_at_dirty(hold, cause, dirty, &keep, progress)?;
        let Some(looked) = looked.filter(|looked| looked.listing.vanished.is_empty()) else {
            return Ok(None);
        };
        let (dirty, listing) = (&looked.dirty, &looked.listing);
        let names_changed = !differences.compared.is_empty() || looked.lacks_something();
        if names_changed
            && differences.are_overtaken(&hold.root, cache, dirty, listing, input.threads)
        {
            return Ok(None);
        }
        let Some(fresh) = differences.fresh(cache, dirty, listing) else { return Ok(None) };
        let files = proof.files();
        let Some(edited) = self.edited(hold, last, files, &looked, &pack)? else {
            return Ok(None);
        };
        let mut dirs = self.ignored_part(hold, cache, proof, cause)?;
        dirs.retain(|dir| fresh.leaves(&dir.path));
        dirs.extend(fresh.dirs().cloned());
        dirs.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let part = Listing { dirs, ..Listing::default() };
        let room = match looked.room {
            None if names_changed => {
                let changing = Listing { changed: true, ..Listing::default() };
                self.room_for(hold, cause, &changing)?
            }
            room => room,
        };
        let kept = self.keep_ignored(hold, &part, cause, Some(last), &keep, room.as_ref())?;
        let recorded = self.record_edited(hold, cause, last, edited, kept, pack)?;
        let basis = Basis { operation: Some(recorded.operation.commit), ..basis.clone() };
        let news = recorded.is_new || looked.read > 0 || !differences.compared.is_empty();
        if news || basis != *cache.basis() {
            let path = hold.work_tree.cache_path();
            // Losing the cache costs a slower scan, so failing to write it fails nothing.
            drop(cache.save_with(&path, &fresh, &hold.store.objects.pack_names(), &basis));
        }
        let mut snapshot = recorded.snapshot(&looked, borrowed);
        snapshot.files = recorded.files_after(files);
        let listing = Listing::default();
        Ok(Some(Tracked { snapshot, operation: recorded.operation, listing }))
    }
}
