//! A snapshot without a watcher where little changed: the previous one, with the paths rescanned
//! that differ from the stat cache.
//!
//! Finding them takes one stat per file. Unchanged directories are not listed, and the new stat
//! cache copies their entries.

use crate::log::Operation;
use crate::scan::{Basis, Dirty, Listing, Proof, differences};

use super::draft::{Recorded, Snapshot};
use super::part::{Part, Unfit, lacks_something, to_try_again};
use super::recording::Recording;
use super::whole::Ground;

impl Recording<'_> {
    /// Rescans the paths that differ and records a snapshot.
    pub(super) fn differing(
        self,
        ground: &Ground<'_>,
        last: &Operation,
        proof: &Proof,
    ) -> Result<Recorded, Unfit> {
        let Ground { input, basis, borrowed, .. } = ground;
        let (hold, cache) = (self.hold, input.cache);
        if cache.basis().operation != Some(last.commit) || !hold.outer_rules_are_of(last)? {
            return Err(Unfit::NeedsWhole);
        }
        let differences = differences(&hold.root, input, proof, self.progress)?;
        let (differences, retries) =
            differences.zip(to_try_again(last)).ok_or(Unfit::NeedsWhole)?;
        let dirty = Dirty::new(differences.paths.iter().cloned().chain(retries));
        let scanned = self.rescan(&dirty)?;
        let listing = &scanned.listing;
        let names_changed = !differences.compared.is_empty() || lacks_something(listing, &dirty);
        let is_overtaken = || differences.are_overtaken(&hold.root, input, &dirty, listing);
        if !listing.vanished.is_empty() || (names_changed && is_overtaken()) {
            return Err(Unfit::NeedsWhole);
        }
        let fresh = differences.fresh(cache, &dirty, listing).ok_or(Unfit::NeedsWhole)?;
        let part = Part { last, files: proof.files(), cache: Some(cache), dirty, scanned };
        let recorded = self.part(part, |recording, part| {
            let mut dirs = hold.ignored_part(cache, proof, recording.cause)?;
            dirs.retain(|dir| fresh.leaves(&dir.path));
            dirs.extend(fresh.dirs().cloned());
            dirs.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let listing = Listing { dirs, ..Listing::default() };
            let room = match part.scanned.room {
                None if names_changed => {
                    let changing = Listing { changed: true, ..Listing::default() };
                    hold.room_for(recording.cause, &changing)?
                }
                room => room,
            };
            Ok(recording.keep_ignored(&listing, Some(last), room.as_ref())?)
        })?;
        let Recorded { snapshot, operation, .. } = &recorded;
        let basis = Basis { operation: Some(operation.commit), ..basis.clone() };
        let news = snapshot.changed || snapshot.files_read > 0 || !differences.compared.is_empty();
        if news || basis != *cache.basis() {
            let path = hold.work_tree.cache_path();
            // Errors are ignored: without the cache the next scan is slower.
            drop(cache.save_with(&path, &fresh, &hold.store.objects.pack_names(), &basis));
        }
        let snapshot = Snapshot { borrowed: *borrowed, ..recorded.snapshot };
        Ok(Recorded { snapshot, ..recorded })
    }
}
