//! Merging: many small packs become one, older versions as deltas against newer ones.

use std::sync::Arc;

use crate::error::Error;
use crate::git::{ObjectId, PackFile};

use super::gc::remove_packs;
use super::layout::Store;
use super::lock::{Lock, Sharing};
use super::log;
use super::quarantine::is_among;
use super::repack::{Versions, repack};

/// This many small packs are merged. Every snapshot opens all packs, so their number is a cost.
const MANY: usize = 50;
/// Larger packs are left alone.
pub(super) const SMALL_BYTES: u64 = 4 << 20;

/// A command waits for merging, so little is compressed again.
const EFFORT_BYTES: u64 = 1 << 20;

impl Store {
    /// Merges the small packs if there are many and nobody else is writing.
    ///
    /// The caller holds no lock on the store. The merged pack is durable before the first of the
    /// old ones goes.
    pub(crate) fn merge_small_packs(&self) -> Result<(), Error> {
        // Every snapshot comes by here, and looking at a pack's size takes two calls.
        let packs = self.objects.open_packs();
        if packs.len() < MANY {
            return Ok(());
        }
        let flawed = self.known_flawed();
        let is_to_merge = |pack: &&Arc<PackFile>| is_small(pack) && !is_among(&flawed, pack);
        if packs.iter().filter(is_to_merge).count() < MANY {
            return Ok(());
        }
        let Some(_alone) = Lock::try_take(&self.lock_path(), Sharing::Exclusive)? else {
            return Ok(());
        };
        self.objects.refresh()?;
        let packs = self.objects.open_packs();
        let small: Vec<Arc<PackFile>> = packs.iter().filter(is_to_merge).cloned().collect();
        if small.len() < 2 {
            return Ok(());
        }
        let versions = self.versions_in(&small);
        let made = repack(self, &small, &|_| true, &versions, EFFORT_BYTES)?;
        let left = remove_packs(self, &small, &made, &|_| true)?;
        self.note_flawed(&left)
    }

    /// Which objects of some packs are versions of each other, as the operations in them tell.
    fn versions_in(&self, packs: &[Arc<PackFile>]) -> Versions {
        let mut operations: Vec<(String, String, (ObjectId, ObjectId))> = Vec::new();
        for pack in packs {
            for id in pack.ids() {
                if let Ok(Some((crate::git::Kind::Commit, _))) = pack.header(&id)
                    && let Ok(operation) = log::read(&self.objects, &id)
                {
                    let link = (operation.commit, operation.snapshot);
                    operations.push((operation.work_tree, operation.id, link));
                }
            }
        }
        operations.sort_by(|one, other| (&other.0, &other.1).cmp(&(&one.0, &one.1)));
        let mut versions = Versions::default();
        for chain in operations.chunk_by(|one, other| one.0 == other.0) {
            let links: Vec<(ObjectId, ObjectId)> = chain.iter().map(|(_, _, link)| *link).collect();
            versions.follow(self, &links);
        }
        versions
    }
}

pub(super) fn is_small(pack: &Arc<PackFile>) -> bool {
    is_ours(pack) && pack.path().metadata().is_ok_and(|meta| meta.len() < SMALL_BYTES)
}

/// Whether a pack may be replaced: nobody asked git to keep it.
pub(super) fn is_ours(pack: &Arc<PackFile>) -> bool {
    pack.path().with_extension("keep").symlink_metadata().is_err()
}
