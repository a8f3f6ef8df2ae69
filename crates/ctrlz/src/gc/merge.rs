//! Merging: combines many small packs into one, with older versions as deltas against newer ones.

use std::sync::Arc;

use crate::error::Error;
use crate::git::{ObjectId, PackFile};
use crate::store::{Lock, Sharing, Store, is_among};

use super::repack::{SMALL_BYTES, Versions, is_ours, remove_packs, repack};

/// Number of small packs that triggers a merge. Every snapshot opens all packs.
const MANY: usize = 50;

/// Upper bound on the bytes recompressed by a merge, because a command waits for it.
const EFFORT_BYTES: u64 = 1 << 20;

/// Returns the log, the sorting key and the snapshot of a commit, if it is an operation.
pub(crate) type VersionOf<'a> = &'a dyn Fn(&ObjectId) -> Option<(String, String, ObjectId)>;

impl Store {
    /// Merges small packs if there are many and no process is writing. Returns their names.
    ///
    /// The caller holds no lock on the store. The new pack is durable before old ones are removed.
    pub(crate) fn merge_small_packs(
        &self,
        version_of: VersionOf<'_>,
    ) -> Result<Vec<String>, Error> {
        // Fast path: every snapshot calls this, and getting a pack's size takes two system calls.
        let packs = self.objects.open_packs();
        if packs.len() < MANY {
            return Ok(Vec::new());
        }
        let flawed = self.known_flawed();
        let is_to_merge = |pack: &&Arc<PackFile>| is_small(pack) && !is_among(&flawed, pack);
        if packs.iter().filter(is_to_merge).count() < MANY {
            return Ok(Vec::new());
        }
        let Some(_alone) = Lock::try_take(&self.lock_path(), Sharing::Exclusive)? else {
            return Ok(Vec::new());
        };
        self.objects.refresh()?;
        let packs = self.objects.open_packs();
        let small = lightest(packs.iter().filter(is_to_merge).cloned().collect());
        if small.len() < 2 {
            return Ok(Vec::new());
        }
        let versions = self.versions_in(&small, version_of);
        let made = repack(self, &small, &|_| true, &versions, EFFORT_BYTES)?;
        let left = remove_packs(self, &small, &made, &|_| true)?;
        self.note_flawed(&left)?;
        Ok(small.iter().filter_map(|pack| pack.name()).collect())
    }

    /// Finds objects of `packs` that are versions of each other, by the operations in them.
    ///
    /// Only commits stored whole are read. In a pack that was merged before, the older operations
    /// are deltas already, and only the newest one, which is whole, can be an older version of
    /// something. Reading all of them would make each merge slower than the last.
    fn versions_in(&self, packs: &[Arc<PackFile>], version_of: VersionOf<'_>) -> Versions {
        let mut operations: Vec<(String, String, (ObjectId, ObjectId))> = Vec::new();
        for pack in packs {
            for id in pack.whole_commits() {
                if let Some((log, at, snapshot)) = version_of(&id) {
                    operations.push((log, at, (id, snapshot)));
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

/// Returns the smallest packs, up to one at least twice as large as all smaller ones together.
///
/// A merged pack is therefore not rewritten until the newer packs exceed half its size, and a
/// command that merges rarely rewrites more than the recent snapshots.
fn lightest(packs: Vec<Arc<PackFile>>) -> Vec<Arc<PackFile>> {
    let size = |pack: &PackFile| pack.path().metadata().map_or(0, |meta| meta.len());
    let mut sized: Vec<(u64, Arc<PackFile>)> =
        packs.into_iter().map(|pack| (size(&pack), pack)).collect();
    sized.sort_unstable_by(|(one, a), (other, b)| (one, a.path()).cmp(&(other, b.path())));
    let sizes: Vec<u64> = sized.iter().map(|(bytes, _)| *bytes).collect();
    sized.truncate(light(&sizes));
    sized.into_iter().map(|(_, pack)| pack).collect()
}

/// Returns the number of sorted sizes before the first one that is at least twice their sum.
fn light(sizes: &[u64]) -> usize {
    let mut sum = 0;
    let heavy = sizes.iter().enumerate().position(|(at, bytes)| {
        let is_heavy = at > 1 && *bytes >= 2 * sum;
        sum += bytes;
        is_heavy
    });
    heavy.unwrap_or(sizes.len())
}

pub(super) fn is_small(pack: &Arc<PackFile>) -> bool {
    is_ours(pack) && pack.path().metadata().is_ok_and(|meta| meta.len() < SMALL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::light;

    #[test]
    fn a_merged_pack_waits_until_as_many_bytes_are_added() {
        assert_eq!(light(&[5, 5, 5, 5, 400]), 4);
        assert_eq!(light(&[5, 5, 5, 5, 30, 400]), 5);
        assert_eq!(light(&[5, 5, 5, 5]), 4);
        assert_eq!(light(&[5, 400]), 2, "a merge has at least two packs");
        assert_eq!(light(&[]), 0);
    }

    #[test]
    fn a_long_session_rewrites_few_bytes() {
        let (mut packs, mut written, mut most): (Vec<u64>, u64, usize) = (Vec::new(), 0, 0);
        for _ in 0..10_000 {
            packs.push(5);
            most = most.max(packs.len());
            if packs.len() >= super::MANY {
                packs.sort_unstable();
                let merged: u64 = packs.drain(..light(&packs)).sum();
                written += merged;
                packs.push(merged);
            }
        }
        assert!(most <= super::MANY, "{most}");
        // A pack that is rewritten grows to 1.5 times its size or more, so each byte is rewritten a
        // logarithmic number of times.
        assert!(written < 10_000 * 5 * 9, "{written}");
    }
}
