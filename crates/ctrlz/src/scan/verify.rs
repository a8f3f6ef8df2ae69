//! Verifies the whole stat cache, and nothing beyond it.
//!
//! Most scans find no change. This pass reads the cache in place, opens every directory and stats
//! every file once. It builds no listing and allocates nothing for an unchanged file. The walk then
//! skips the directories that were proven unchanged.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::fs::{Dir, FileKind, FsTrust, Glimpse, Stat};
use crate::git::Verdict;
use crate::jobs::on_threads;
use crate::path::join;

use super::cache::{CachedDir, CachedEntry, Fate};
use super::foreign::is_store_at;
use super::{EntryStat, IndexStamp, ListInput, Progress, StatCache};

/// Number of adjacent directories that a thread takes at a time.
const RUN: usize = 16;

/// Cached directories that are proven unchanged.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    same: Vec<bool>,
    whole: bool,
    files: u64,
    linked: Vec<Vec<u8>>,
    /// Paths that differ, in directories where no name was created or removed.
    pub(super) differing: Vec<Vec<u8>>,
    /// Positions of directories that were removed, or in which names were created or removed.
    pub(super) moved: Vec<usize>,
    /// Positions of directories with ignored files.
    with_ignored: Vec<usize>,
    /// Whether single paths can be compared: the user's index is unchanged, and the cache contains
    /// every directory that was entered.
    pub(super) told_apart: bool,
}

impl Proof {
    /// Returns the hard-linked files.
    pub(super) fn linked(&self) -> &[Vec<u8>] {
        &self.linked
    }

    /// Returns whether everything is unchanged.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the number of files in the cache.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// Returns the cache positions of directories with ignored files.
    pub(crate) fn with_ignored(&self) -> &[usize] {
        &self.with_ignored
    }

    /// Returns whether the directory at this position and its entries are unchanged. Does not cover
    /// the contents of its subdirectories.
    pub(crate) fn holds_for(&self, dir: usize) -> bool {
        self.same.get(dir).copied().unwrap_or(false)
    }
}

/// Verifies the whole cache. `index` is the present state of the user's index.
pub(crate) fn verify(
    root: &Dir,
    input: &ListInput<'_>,
    index: &IndexStamp,
    progress: &Progress,
) -> Result<Proof, Error> {
    let cache = input.cache;
    let same_index = cache.basis().index.proves(index);
    let next = AtomicUsize::new(0);
    let pass = Pass { root, cache, trust: input.trust, same_index, next, progress };
    let threads = input.threads.min(cache.len().div_ceil(4 * RUN));
    let seen = on_threads(threads, || pass.work());
    progress.check()?;
    let mut proof = Proof { same: vec![true; cache.len()], ..Proof::default() };
    let mut entered = 0;
    for seen in seen {
        for changed in seen.changed.into_iter().chain(seen.moved.iter().copied()) {
            proof.same[changed] = false;
        }
        entered += seen.entered;
        proof.files += seen.files;
        proof.linked.extend(seen.linked);
        proof.differing.extend(seen.differing);
        proof.moved.extend(seen.moved);
        proof.with_ignored.extend(seen.with_ignored);
    }
    // Every directory except the work tree itself was entered from another one.
    let complete = entered + 1 == cache.len();
    proof.whole = complete && proof.same.iter().all(|same| *same);
    proof.told_apart = complete && same_index;
    Ok(proof)
}

struct Pass<'a> {
    root: &'a Dir,
    cache: &'a StatCache,
    trust: FsTrust,
    /// Whether the user's index is still the one that decided about ignored paths.
    same_index: bool,
    next: AtomicUsize,
    progress: &'a Progress,
}

/// Results of one thread.
#[derive(Default)]
struct Seen {
    changed: Vec<usize>,
    moved: Vec<usize>,
    with_ignored: Vec<usize>,
    differing: Vec<Vec<u8>>,
    entered: usize,
    files: u64,
    linked: Vec<Vec<u8>>,
}

impl Pass<'_> {
    fn work(&self) -> Seen {
        let mut seen = Seen::default();
        loop {
            let start = self.next.fetch_add(RUN, Ordering::Relaxed);
            if start >= self.cache.len() || self.progress.check().is_err() {
                return seen;
            }
            for at in start..(start + RUN).min(self.cache.len()) {
                self.look_at(at, &mut seen);
            }
        }
    }

    fn look_at(&self, at: usize, seen: &mut Seen) {
        let Some((path, cached)) = self.cache.nth(at) else { return seen.moved.push(at) };
        let holds = |dir: &Glimpse| {
            dir.stat_self().is_some_and(|now| cached.listing_holds(self.trust, &now))
        };
        let dir = self.root.glimpse(path).filter(holds);
        let differing = seen.differing.len();
        let (mut count, mut unrecorded) = (0, false);
        for entry in cached.entries() {
            seen.files += u64::from(matches!(entry.fate, Fate::Known(_)));
            seen.entered += usize::from(entry.fate == Fate::Entered);
            unrecorded |= entry.is_unrecorded();
            if let Some(dir) = &dir
                && !self.entry_is_same(path, dir, &entry, &mut seen.linked)
            {
                seen.differing.push(join(path, entry.name));
            }
            count += 1;
        }
        Progress::add(&self.progress.files, count);
        if unrecorded {
            seen.with_ignored.push(at);
        }
        if dir.is_none() || count != cached.len() {
            seen.moved.push(at);
        } else if seen.differing.len() > differing || (cached.in_ignored && !self.same_index) {
            seen.changed.push(at);
        }
    }

    fn entry_is_same(
        &self,
        path: &[u8],
        dir: &Glimpse,
        entry: &CachedEntry<'_>,
        linked: &mut Vec<Vec<u8>>,
    ) -> bool {
        let by_index = entry.verdict == Verdict::Ignored && !self.same_index;
        match entry.fate {
            Fate::Known(_) => {
                if entry.racy || by_index {
                    return false;
                }
                let Some(now) = dir.stat(entry.name) else { return false };
                if now.kind == FileKind::File && now.links > 1 {
                    linked.push(join(path, entry.name));
                }
                !now.mount_root && entry.holds(self.trust, &now)
            }
            // The parent's stamp proves that it was not replaced; its own is verified separately.
            Fate::Entered => entry.stat.kind == FileKind::Dir && !by_index,
            // Ignore rules that are not captured have to be read again.
            Fate::LeftOut => !by_index && entry.name != b".gitignore",
            Fate::Protected => true,
            // Protected because of its content, not its name.
            Fate::Store => {
                let same = |now: Stat| now.inode == entry.stat.inode;
                dir.stat(entry.name).is_some_and(same)
                    && is_store_at(self.root, &join(path, entry.name))
            }
            Fate::Doubtful => false,
        }
    }
}

impl CachedDir<'_> {
    /// Returns whether the directory's stamp proves that no name was created or removed since it
    /// was listed.
    pub(super) fn listing_holds(&self, trust: FsTrust, now: &Stat) -> bool {
        trust.stat
            && self.settled
            && self.stat.mtime == now.mtime
            && self.stat.ctime == now.ctime
            && (!trust.inode || self.stat.inode == now.inode)
    }
}

impl CachedEntry<'_> {
    /// Returns whether the metadata is unchanged and proves that the content is too.
    pub(super) fn holds(&self, trust: FsTrust, now: &Stat) -> bool {
        let now = EntryStat::from(now);
        let same_inode = !trust.inode || self.stat.inode == now.inode;
        let same = EntryStat { inode: now.inode, ..self.stat } == now;
        trust.stat && !self.racy && same_inode && same
    }
}
