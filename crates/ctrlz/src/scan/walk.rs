//! The walk: one job per directory, in parallel.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;
use crate::fs::{Dir, FileError, Time};
use crate::jobs::run_jobs;
use crate::path::{join, split};

use super::cache::{CachedDir, CachedEntry, Fate};
use super::visit::{Found, Job, Visit, Walk, is_repository_dir, skip};
use super::{
    Content, EntryStat, Keep, ListInput, ListedDir, ListedEntry, Listing, Progress, Proof,
    SkipReason, Skipped, TreeState, is_racy,
};

/// Lists everything under `input.start`.
///
/// An unreadable directory is added to [`Listing::skipped`], and the walk continues. Only an
/// unreadable start is an error.
pub(crate) fn list(
    root: &Dir,
    input: &ListInput<'_>,
    keep: &dyn Keep,
    progress: &Progress,
) -> Result<Listing, Error> {
    let (path, rules) = (input.start.to_vec(), Arc::clone(&input.rules));
    let first = Job { path, rules, filters: input.seed.clone(), ignored: false };
    // A root that cannot be opened is an error, not an empty work tree.
    let start = root.open_below(input.start)?;
    if input.only.is_none() {
        start.names()?;
    }
    let walk = Walk { root, input, keep };
    let found = run_jobs(input.threads, vec![first], |job, more| {
        if progress.check().is_err() {
            return Found::default();
        }
        let mut found = walk.visit(&job, more);
        found.closed = found.dir.is_none().then_some(job.path);
        Progress::add(&progress.files, found.dir.as_ref().map_or(0, |dir| dir.entries.len()));
        found
    });
    progress.check()?;
    Ok(merged(found, input.proof))
}

/// Returns the listing of all jobs' results.
fn merged(found: Vec<Found>, proof: Option<&Proof>) -> Listing {
    let mut listing = Listing::default();
    let mut closed = Vec::new();
    for mut job in found {
        listing.changed |= job.changed;
        listing.dirs.extend(job.dir);
        listing.skipped.append(&mut job.skipped);
        // All of them for now; `read_listing` removes those that the snapshot contains.
        listing.hidden_rules.append(&mut job.rules_used);
        listing.vanished.extend(job.vanished);
        closed.extend(job.closed.map(|path| (path, job.is_store)));
        listing.linked.append(&mut job.linked);
    }
    // The walk did not visit the files of directories proven unchanged.
    listing.linked.extend(proof.iter().flat_map(|proof| proof.linked().iter().cloned()));
    listing.linked.sort_unstable();
    listing.linked.dedup();
    listing.dirs.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    for (path, is_store) in closed {
        let (parent, name) = split(&path);
        // The parent's cached tree still contains it.
        if let Ok(at) = listing.dirs.binary_search_by(|dir| dir.path.as_slice().cmp(parent)) {
            let parent = &mut listing.dirs[at];
            parent.tree = TreeState::Unknown;
            let entry = parent.entries.binary_search_by(|entry| (*entry.name).cmp(name));
            if let (true, Ok(at)) = (is_store, entry) {
                parent.entries[at].content = Content::Skipped(SkipReason::NestedRepository);
            }
        }
    }
    listing.skipped.sort_unstable();
    listing.hidden_rules.sort_unstable();
    listing
}

impl Walk<'_> {
    /// Returns the cached state of a directory that is proven unchanged, without any system call.
    ///
    /// Returns `None` for a directory with its own ignore rules, because its subdirectories need
    /// them.
    fn proven(&self, job: &Job, more: &mut Vec<Job>) -> Option<Found> {
        let proof = self.input.proof?;
        let at = self.input.cache.position(&job.path).filter(|at| proof.holds_for(*at))?;
        let (_, cached) = self.input.cache.nth(at)?;
        let judged_alike =
            cached.rules == job.rules.fingerprint() && cached.in_ignored == job.ignored;
        let needs_a_look =
            |entry: CachedEntry<'_>| entry.name == b".gitignore" || entry.fate == Fate::Doubtful;
        if !judged_alike || cached.entries().any(needs_a_look) || may_be_store(&cached) {
            return None;
        }
        let mut found = Found::default();
        let mut entries = Vec::with_capacity(cached.len());
        for entry in cached.entries() {
            entries.push(self.remembered(job, &entry, &mut found, more));
        }
        found.dir = Some(cached.listed(&job.path, entries));
        Some(found)
    }

    fn remembered(
        &self,
        job: &Job,
        entry: &CachedEntry<'_>,
        found: &mut Found,
        more: &mut Vec<Job>,
    ) -> ListedEntry {
        match entry.fate {
            Fate::Entered => more.push(Job {
                path: join(&job.path, entry.name),
                rules: Arc::clone(&job.rules),
                filters: job.filters.clone(),
                ignored: job.ignores(entry.verdict),
            }),
            Fate::Protected if !is_repository_dir(entry.name) => {
                let path = join(&job.path, entry.name);
                found.skipped.push(skip(path, SkipReason::ProtectedName));
            }
            Fate::Store => {
                let path = join(&job.path, entry.name);
                found.skipped.push(skip(path, SkipReason::NestedRepository));
            }
            Fate::Known(_) | Fate::LeftOut | Fate::Protected | Fate::Doubtful => (),
        }
        entry.listed()
    }

    fn visit(&self, job: &Job, more: &mut Vec<Job>) -> Found {
        if let Some(found) = self.proven(job, more) {
            return found;
        }
        // Read before any stat: changes from now on are not covered by the result.
        let before = Time::now();
        let opened = self.root.open_below(&job.path).and_then(|dir| {
            let stat = dir.stat_self()?;
            Ok((dir, stat))
        });
        let mut found = Found::default();
        let (dir, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                match why_not_opened(&job.path, &error) {
                    Some(skipped) => found.skipped.push(skipped),
                    None => found.vanished = Some(job.path.clone()),
                }
                return found;
            }
        };
        let cached = self.input.cache.dir(&job.path);
        let only = self.input.only.and_then(|dirty| dirty.names_in(&job.path));
        let only_some = only.is_some();
        let rule_names = only_some.then(|| rule_names(&dir));
        let trust = self.input.trust;
        let known = cached.as_ref().filter(|cached| cached.listing_holds(trust, &stat));
        let names = match (only, known) {
            (Some(names), _) => Ok(names),
            (None, Some(cached)) => Ok(cached.entries().map(|entry| entry.name.to_vec()).collect()),
            (None, None) => dir.names(),
        };
        let mut names: Vec<Vec<u8>> = match names {
            Ok(names) => names,
            Err(error) => {
                found.skipped.push(unreadable_dir(&job.path, &error));
                return found;
            }
        };
        names.sort_unstable();
        let mut visit = Visit {
            walk: self,
            job,
            dir: &dir,
            tracked: self.input.index.map(|index| index.below(&job.path)),
            before,
            listing_known: known.is_some(),
            rules_known: false,
            rules: Arc::clone(&job.rules),
            filters: job.filters.clone(),
            found: &mut found,
            more,
        };
        let rule_names = rule_names.as_ref().unwrap_or(&names);
        if visit.is_unwanted_repository(rule_names) {
            found.skipped.push(skip(job.path.clone(), SkipReason::NestedRepository));
            return found;
        }
        if visit.is_store(only_some, rule_names) {
            found.skipped.push(skip(job.path.clone(), SkipReason::NestedRepository));
            found.is_store = true;
            return found;
        }
        visit.take_rules(rule_names);
        visit.rules_known =
            cached.as_ref().is_some_and(|cached| cached.rules == visit.rules.fingerprint());
        let rules = visit.rules.fingerprint();
        let same = visit.listing_known && visit.rules_known;
        let entries = visit.entries(names, cached.as_ref());
        found.changed = !same;
        found.dir = Some(ListedDir {
            path: job.path.clone(),
            stat: EntryStat::from(&stat),
            settled: !is_racy(stat.ctime, before),
            rules,
            in_ignored: job.ignored,
            tree: TreeState::Unknown,
            entries,
        });
        found
    }
}

/// Returns whether a cached directory has the names that a store has. The content of `ctrlz` may
/// have changed without changing the directory's stamp.
fn may_be_store(cached: &CachedDir<'_>) -> bool {
    let mut names = cached.entries().map(|entry| entry.name);
    names.any(|name| name == b"HEAD") && names.any(|name| name == b"ctrlz")
}

/// Returns the names in the directory that affect how other names are treated.
fn rule_names(dir: &Dir) -> Vec<Vec<u8>> {
    let names = [&b".git"[..], b".gitattributes", b".gitignore"];
    let there = |name: &&&[u8]| dir.stat(name).is_ok_and(|stat| stat.is_some());
    names.iter().filter(there).map(|name| name.to_vec()).collect()
}

fn unreadable_dir(path: &[u8], error: &FileError) -> Skipped {
    let reason = SkipReason::UnreadableDirectory { error: error.source.to_string() };
    skip(path.to_vec(), reason)
}

fn why_not_opened(path: &[u8], error: &FileError) -> Option<Skipped> {
    let reason = match Errno::from_io_error(&error.source) {
        Some(Errno::XDEV) => SkipReason::OtherMount,
        // It was a directory when its parent was listed, and is a file or symlink now.
        Some(Errno::LOOP | Errno::NOTDIR) => SkipReason::Unstable,
        _ if error.kind() == io::ErrorKind::NotFound => return None,
        _ => return Some(unreadable_dir(path, error)),
    };
    Some(skip(path.to_vec(), reason))
}
