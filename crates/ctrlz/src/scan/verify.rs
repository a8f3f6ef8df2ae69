//! Verifying: one look at everything that is remembered, and at nothing else.
//!
//! Most scans find what the last one found. This pass goes through the cache as it lies in memory,
//! opens every directory and stats every file once, and makes nothing: no names, no paths, no
//! listing. What it cannot prove is left to the walk, which then skips what it could.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Error;
use crate::fs::{Dir, FileKind, FsTrust, Glimpse, Stat};
use crate::git::Verdict;
use crate::jobs::on_threads;
use crate::path::join;

use super::cache::{CachedDir, CachedEntry, Fate};
use super::foreign::is_store_at;
use super::{EntryStat, IndexStamp, ListInput, Progress, StatCache};

/// Directories are handed out in runs of this many, which lie beside each other.
const RUN: usize = 16;

/// Which remembered directories are as they were.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    same: Vec<bool>,
    whole: bool,
    files: u64,
    linked: Vec<Vec<u8>>,
    /// What differs in directories in which no name came or went.
    pub(super) differing: Vec<Vec<u8>>,
    /// Directories that are gone, or in which names came or went.
    pub(super) moved: Vec<usize>,
    /// Directories with ignored files.
    with_ignored: Vec<usize>,
    /// Whether paths can be told one by one: the user's index decides as it did, and every
    /// directory that was entered is remembered.
    pub(super) told_apart: bool,
}

impl Proof {
    /// Files with more than one name.
    pub(super) fn linked(&self) -> &[Vec<u8>] {
        &self.linked
    }

    /// Whether everything is as it was.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// How many files are remembered.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// The remembered directories with ignored files, by their numbers.
    pub(crate) fn with_ignored(&self) -> &[usize] {
        &self.with_ignored
    }

    /// Whether the directory with this number and its entries are as they were. It says nothing of
    /// what lies inside its directories.
    pub(crate) fn holds_for(&self, dir: usize) -> bool {
        self.same.get(dir).copied().unwrap_or(false)
    }
}

/// Looks at everything in the cache. `index` is the user's index as it is now.
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
    // Every directory but the work tree itself was entered from another one.
    let complete = entered + 1 == cache.len();
    proof.whole = complete && proof.same.iter().all(|same| *same);
    proof.told_apart = complete && same_index;
    Ok(proof)
}

struct Pass<'a> {
    root: &'a Dir,
    cache: &'a StatCache,
    trust: FsTrust,
    /// The user's index is the one that decided about ignored paths.
    same_index: bool,
    next: AtomicUsize,
    progress: &'a Progress,
}

/// What one thread saw.
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
            // The parent's stamp says that it was not replaced; its own is looked at in its turn.
            Fate::Entered => entry.stat.kind == FileKind::Dir && !by_index,
            // Rules that are not captured have to be read again.
            Fate::LeftOut => !by_index && entry.name != b".gitignore",
            Fate::Protected => true,
            // Protected by its content, not by its name.
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
    /// Whether the directory's stamp proves that no name came or went since it was listed.
    pub(super) fn listing_holds(&self, trust: FsTrust, now: &Stat) -> bool {
        trust.stat
            && self.settled
            && self.stat.mtime == now.mtime
            && self.stat.ctime == now.ctime
            && (!trust.inode || self.stat.inode == now.inode)
    }
}

impl CachedEntry<'_> {
    /// Whether the metadata is the remembered one and proves that the content is.
    pub(super) fn holds(&self, trust: FsTrust, now: &Stat) -> bool {
        let now = EntryStat::from(now);
        let same_inode = !trust.inode || self.stat.inode == now.inode;
        let same = EntryStat { inode: now.inode, ..self.stat } == now;
        trust.stat && !self.racy && same_inode && same
    }
}
