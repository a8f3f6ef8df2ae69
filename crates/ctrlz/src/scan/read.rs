//! Reads every entry whose content is not known yet into a [`Keep`].

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::fs::Dir;
use crate::git::{Kind, hash_object};
use crate::jobs::run_jobs;
use crate::path::{join, split};

use super::databases::{dirs_with_databases, reread_databases};
use super::stable::{Outcome, read_entry};
use super::{Content, Keep, ListedDir, ListedEntry, Listing, Progress, SkipReason, Skipped};

/// Reads the entries marked [`Content::ToRead`] and replaces the mark with the result.
///
/// A file that is unreadable or keeps changing is added to [`Listing::skipped`]. Only an error of
/// `keep` or a cancellation stops the reading.
pub(crate) fn read_listing(
    root: &Dir,
    listing: &mut Listing,
    keep: &dyn Keep,
    threads: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let with_databases = dirs_with_databases(listing);
    let jobs: Vec<&mut ListedDir> = listing
        .dirs
        .iter_mut()
        .filter(|dir| dir.entries.iter().any(|entry| entry.content == Content::ToRead))
        .collect();
    let chunks = split_large(jobs);
    let has_failed = AtomicBool::new(false);
    let skipped = run_jobs(threads, chunks, |chunk, _| {
        if has_failed.load(Ordering::Relaxed) || progress.check().is_err() {
            return Ok(Vec::new());
        }
        let skipped = chunk.read(root, keep, progress);
        has_failed.fetch_or(skipped.is_err(), Ordering::Relaxed);
        skipped
    });
    let skipped = skipped.into_iter().collect::<Result<Vec<_>, Error>>()?;
    progress.check()?;
    for dir in &mut listing.dirs {
        let gone = dir.entries.iter().filter(|entry| entry.content == Content::ToRead);
        listing.vanished.extend(gone.map(|entry| join(&dir.path, &entry.name)));
        dir.entries.retain(|entry| entry.content != Content::ToRead);
    }
    for (at, mains) in with_databases {
        let listed = &mut listing.dirs[at];
        let Ok(dir) = root.open_below(&listed.path) else { continue };
        for name in reread_databases(&dir, &mains, &mut listed.entries, keep)? {
            let path = join(&listed.path, &name);
            listing.skipped.push(Skipped { path, reason: SkipReason::Unstable });
        }
    }
    forget_captured_rules(listing);
    listing.skipped.extend(skipped.into_iter().flatten());
    listing.skipped.sort_unstable();
    Ok(())
}

/// Keeps only the rule texts that no file of the snapshot contains.
fn forget_captured_rules(listing: &mut Listing) {
    let Listing { dirs, hidden_rules, .. } = listing;
    hidden_rules.retain(|(path, text)| {
        let (parent, name) = split(path);
        let dir = dirs.binary_search_by(|dir| dir.path.as_slice().cmp(parent)).ok();
        let entries = dir.map(|at| dirs[at].entries.as_slice()).unwrap_or_default();
        let entry = entries.iter().find(|entry| *entry.name == *name);
        let captured = entry.is_some_and(|entry| {
            let id = hash_object(Kind::Blob, text);
            id.is_some_and(|id| entry.content == Content::Known(id))
        });
        !captured
    });
}

/// Entries of one directory.
struct Chunk<'a> {
    path: &'a [u8],
    entries: &'a mut [ListedEntry],
}

/// Splits directories into chunks, so that one with very many files does not keep a single core
/// busy while the others are idle.
fn split_large(dirs: Vec<&mut ListedDir>) -> Vec<Chunk<'_>> {
    const ENTRIES_PER_JOB: usize = 256;
    let mut jobs = Vec::new();
    for dir in dirs {
        let path = dir.path.as_slice();
        let chunks = dir.entries.chunks_mut(ENTRIES_PER_JOB);
        jobs.extend(chunks.map(|entries| Chunk { path, entries }));
    }
    jobs
}

impl Chunk<'_> {
    /// Reads the entries that are still to be read. Returns those that were skipped.
    fn read(self, root: &Dir, keep: &dyn Keep, progress: &Progress) -> Result<Vec<Skipped>, Error> {
        let mut skipped = Vec::new();
        let is_to_read = |entry: &&mut ListedEntry| entry.content == Content::ToRead;
        let mut to_read = self.entries.iter_mut().filter(is_to_read).peekable();
        if to_read.peek().is_none() {
            return Ok(skipped);
        }
        let dir = match root.open_below(self.path) {
            Ok(dir) => dir,
            Err(error) => {
                // The directory was removed or replaced since it was listed.
                for entry in to_read {
                    let skip = Skipped::unreadable(join(self.path, &entry.name), &error);
                    entry.content = Content::Skipped(skip.reason.clone());
                    skipped.push(skip);
                }
                return Ok(skipped);
            }
        };
        for entry in to_read {
            match read_entry(&dir, &entry.name, entry.stat.kind, keep)? {
                Outcome::Read { stat, id, racy } => {
                    (entry.stat, entry.content, entry.racy) = (stat, Content::Known(id), racy);
                }
                Outcome::Gone => (),
                Outcome::Skip(reason) => {
                    entry.content = Content::Skipped(reason.clone());
                    skipped.push(Skipped { path: join(self.path, &entry.name), reason });
                }
            }
            Progress::add(&progress.files_read, 1);
            progress.check()?;
        }
        Ok(skipped)
    }
}
