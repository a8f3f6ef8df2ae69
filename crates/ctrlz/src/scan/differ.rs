//! Finds the paths that differ from the stat cache.
//!
//! [`verify`](super::verify::verify) has examined everything once. Where no name was created or
//! removed, it knows the differences. This module lists the other directories and compares them
//! with the cache. The result is the same as a watcher's, so the cost of a snapshot depends on the
//! size of the change.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::fs::{Dir, FileKind, FsTrust, Stat, Time};
use crate::jobs::{on_threads, run_jobs};
use crate::path::join;

use super::cache::{CachedDir, CachedEntry, Fate, Fresh};
use super::foreign::is_store_at;
use super::{Dirty, EntryStat, ListInput, ListedDir, Listing, Progress, Proof, StatCache, is_racy};

/// If more than one in this many files differs, a full listing is as fast.
const FEW: u64 = 100;
/// Fewer directories than this are compared on one thread: they are done before a second one
/// starts.
const MANY_DIRS: usize = 32;
/// Number of directories that a thread takes at a time.
const RUN: usize = 64;

/// Differences from the cache.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Paths to rescan.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Directories whose names were compared, and their stamps. Any later change of names changes
    /// the stamp.
    pub(crate) compared: BTreeMap<Vec<u8>, Stamp>,
}

/// Metadata of a directory before its names were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    stat: EntryStat,
    settled: bool,
}

/// Result of comparing one directory.
enum Compared {
    Names {
        path: Vec<u8>,
        stamp: Stamp,
        differing: Vec<Vec<u8>>,
    },
    /// It cannot be opened. If it was removed, the comparison of its parent shows it.
    Closed(Vec<u8>),
}

/// Finds the differences. Returns `None` if a full scan is required.
pub(crate) fn differences(
    root: &Dir,
    input: &ListInput<'_>,
    proof: &Proof,
    progress: &Progress,
) -> Result<Option<Differences>, Error> {
    let few = (proof.files() / FEW).max(64);
    let is_much = |count: usize| count as u64 > few;
    if !proof.told_apart || is_much(proof.differing.len() + proof.moved.len()) {
        return Ok(None);
    }
    let threads = if proof.moved.len() < MANY_DIRS { 1 } else { input.threads };
    let jobs = proof.moved.clone();
    let compared = run_jobs(threads, jobs, |at, _| compare(root, input.cache, input.trust, at));
    progress.check()?;
    let mut found = Differences { paths: proof.differing.clone(), ..Differences::default() };
    let mut closed = Vec::new();
    for compared in compared {
        match compared {
            Some(Compared::Names { path, stamp, differing }) => {
                found.paths.extend(differing);
                found.compared.insert(path, stamp);
            }
            Some(Compared::Closed(path)) => closed.push(path),
            None => return Ok(None),
        }
    }
    let dirty = Dirty::new(found.paths.iter().cloned());
    let told = closed.iter().all(|path| dirty.covers(path));
    Ok((told && !dirty.covers(b"") && !is_much(found.paths.len())).then_some(found))
}

/// Compares the names in a directory with the cached ones.
fn compare(root: &Dir, cache: &StatCache, trust: FsTrust, at: usize) -> Option<Compared> {
    let (path, cached) = cache.nth(at)?;
    // Read before any stat: changes from now on are not covered by the result.
    let before = Time::now();
    let Ok(dir) = root.open_below(path) else { return Some(Compared::Closed(path.to_vec())) };
    let stat = dir.stat_self().ok()?;
    let mut names = dir.names_and_kinds().ok()?;
    names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut names = names.into_iter().peekable();
    let mut differing = Vec::new();
    for entry in cached.entries() {
        while let Some((new, _)) = names.next_if(|(name, _)| name.as_slice() < entry.name) {
            differing.push(join(path, &new));
        }
        let now = names.next_if(|(name, _)| name == entry.name);
        if !now.is_some_and(|(_, kind)| is_same(&dir, &entry, kind, trust)) {
            differing.push(join(path, entry.name));
        }
    }
    differing.extend(names.map(|(new, _)| join(path, &new)));
    // The permissions belong to the parent's entry, and rescanning that entry would read everything
    // below it. A full scan is required instead.
    if stat.mode != cached.stat.mode && !path.is_empty() {
        return None;
    }
    let stamp = Stamp { stat: EntryStat::from(&stat), settled: !is_racy(stat.ctime, before) };
    Some(Compared::Names { path: path.to_vec(), stamp, differing })
}

/// Returns whether an entry is the same as the cached one.
fn is_same(dir: &Dir, entry: &CachedEntry<'_>, kind: Option<FileKind>, trust: FsTrust) -> bool {
    let look = || dir.stat(entry.name).ok().flatten();
    match entry.fate {
        Fate::Known(_) => {
            let holds = |now: Stat| !now.mount_root && entry.holds(trust, &now);
            !entry.racy && look().is_some_and(holds)
        }
        // Its contents are compared separately, provided that it is the same directory.
        Fate::Entered => look().is_some_and(|now| {
            now.kind == FileKind::Dir && !now.mount_root && now.inode == entry.stat.inode
        }),
        Fate::LeftOut if entry.stat.kind == FileKind::Dir => {
            kind.or_else(|| look().map(|now| now.kind)) == Some(FileKind::Dir)
        }
        // The size of an ignored file decides whether it is kept beside the snapshot.
        Fate::LeftOut => {
            let same = look().is_some_and(|now| EntryStat::from(&now) == entry.stat);
            same && entry.name != b".gitignore"
        }
        Fate::Protected => true,
        Fate::Store => {
            let same = |now: Stat| now.inode == entry.stat.inode;
            look().is_some_and(same) && is_store_at(dir, entry.name)
        }
        Fate::Doubtful => false,
    }
}

impl Differences {
    /// Returns whether a name was created or removed in a directory after it was examined. A file
    /// may have been moved there from a directory that was examined later, and is then in neither.
    pub(crate) fn are_overtaken(
        &self,
        root: &Dir,
        input: &ListInput<'_>,
        dirty: &Dirty,
        listing: &Listing,
    ) -> bool {
        let cache = input.cache;
        let has_moved = |path: &[u8], then: &EntryStat| {
            let now = root.glimpse(path).and_then(|dir| dir.stat_self());
            now.is_some_and(|now| now.mtime != then.mtime || now.ctime != then.ctime)
        };
        let new = |dir: &&ListedDir| dirty.covers(&dir.path);
        if listing.dirs.iter().filter(new).any(|dir| has_moved(&dir.path, &dir.stat)) {
            return true;
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        let work = || {
            loop {
                let start = next.fetch_add(RUN, std::sync::atomic::Ordering::Relaxed);
                let run = start..(start + RUN).min(cache.len());
                if run.is_empty() {
                    return false;
                }
                for (path, cached) in run.filter_map(|at| cache.nth(at)) {
                    let then = self.compared.get(path).map_or(cached.stat, |stamp| stamp.stat);
                    if has_moved(path, &then) && !dirty.covers(path) {
                        return true;
                    }
                }
            }
        };
        let threads = input.threads.min(cache.len().div_ceil(4 * RUN));
        on_threads(threads, work).into_iter().any(|moved| moved)
    }

    /// Returns the cache update: the compared directories, the ancestors of the dirty paths and the
    /// new directories, each complete. Returns `None` if the listing is not sufficient.
    pub(crate) fn fresh(
        &self,
        cache: &StatCache,
        dirty: &Dirty,
        listing: &Listing,
    ) -> Option<Fresh> {
        let mut fresh = Fresh { gone: dirty.clone(), ..Fresh::default() };
        for dir in &listing.dirs {
            match dirty.names_in(&dir.path) {
                Some(names) => {
                    let cached = cache.dir(&dir.path)?;
                    // A name created or removed since the comparison was not examined.
                    let then = self.compared.get(&dir.path).map_or(cached.stat, |known| known.stat);
                    if (dir.stat.mtime, dir.stat.ctime) != (then.mtime, then.ctime) {
                        return None;
                    }
                    let dir = self.overlaid(&dir.path, &cached, Some((&names, dir)))?;
                    fresh.dirs.insert(dir.path.clone(), dir);
                }
                None => drop(fresh.dirs.insert(dir.path.clone(), dir.clone())),
            }
        }
        for path in self.compared.keys() {
            if !fresh.dirs.contains_key(path) && !dirty.covers(path) {
                let dir = self.overlaid(path, &cache.dir(path)?, None)?;
                fresh.dirs.insert(path.clone(), dir);
            }
        }
        // An ancestor that was not entered would keep its outdated cache entry.
        let is_entered = |way: &[u8]| fresh.dirs.contains_key(way) || cache.position(way).is_none();
        dirty.ways().all(is_entered).then_some(fresh)
    }

    /// Returns a cached directory with some of its entries replaced by rescanned ones.
    fn overlaid(
        &self,
        path: &[u8],
        cached: &CachedDir<'_>,
        again: Option<(&[Vec<u8>], &ListedDir)>,
    ) -> Option<ListedDir> {
        let is_old = |entry: &CachedEntry<'_>| {
            again.is_none_or(|(names, _)| {
                names.binary_search_by(|name| name.as_slice().cmp(entry.name)).is_err()
            })
        };
        let mut entries = Vec::with_capacity(cached.len());
        for entry in cached.entries().filter(is_old) {
            // The cache does not hold the reason for skipping it, so it needs a rescan.
            if entry.fate == Fate::Doubtful {
                return None;
            }
            entries.push(entry.listed());
        }
        let mut dir = cached.listed(path, Vec::new());
        if let Some((_, listed)) = again {
            entries.extend(listed.entries.iter().cloned());
            entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            dir.tree = super::TreeState::Unknown;
        }
        if let Some(stamp) = self.compared.get(path) {
            (dir.stat, dir.settled) = (stamp.stat, stamp.settled);
        }
        Some(ListedDir { entries, ..dir })
    }
}
