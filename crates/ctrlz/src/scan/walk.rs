//! The walk: one job per directory, in parallel.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Stat, Time};
use crate::git::{Rules, Seed, TrackedBelow, Verdict, is_protected_name};
use crate::jobs::run_jobs;
use crate::path::{join, split};

use super::cache::{CachedDir, CachedEntry, Fate};
use super::filters::filter_patterns;
use super::foreign::is_store;
use super::read::{SmallFile, read_stable_small};
use super::{
    Content, EntryStat, Keep, ListInput, ListedDir, ListedEntry, Listing, Progress, Seeding,
    SkipReason, Skipped, TreeState, is_racy,
};

/// Ignore files larger than this are reported and not applied.
const MAX_RULES_BYTES: u64 = 1 << 20;

struct Job {
    path: Vec<u8>,
    rules: Arc<Rules>,
    filters: Seeding,
    /// Whether the directory is ignored. Then only paths count that the user's git tracks or the
    /// configuration includes.
    ignored: bool,
}

/// Result of one job.
#[derive(Default)]
struct Found {
    dir: Option<ListedDir>,
    skipped: Vec<Skipped>,
    rules_used: Vec<(Vec<u8>, Vec<u8>)>,
    vanished: Option<Vec<u8>>,
    /// Path of the directory if it was not listed, for any reason.
    closed: Option<Vec<u8>>,
    /// Whether the directory is a store of ctrlz.
    is_store: bool,
    linked: Vec<Vec<u8>>,
    cancelled: bool,
    changed: bool,
}

/// Lists everything under `root`.
///
/// An unreadable directory is added to [`Listing::skipped`], and the walk continues. Only an
/// unreadable `root` is an error.
pub(crate) fn list(
    root: &Dir,
    input: &ListInput<'_>,
    keep: &dyn Keep,
    progress: &Progress,
) -> Result<Listing, Error> {
    list_from(root, input, keep, progress, b"", Arc::clone(&input.rules))
}

/// Lists everything under `start`. `rules` are those of its parent directories.
pub(crate) fn list_from(
    root: &Dir,
    input: &ListInput<'_>,
    keep: &dyn Keep,
    progress: &Progress,
    start: &[u8],
    rules: Arc<Rules>,
) -> Result<Listing, Error> {
    let first = Job { path: start.to_vec(), rules, filters: input.seed.clone(), ignored: false };
    // A root that cannot be opened is an error, not an empty work tree.
    let start = root.open_below(start)?;
    if input.only.is_none() {
        start.names()?;
    }
    let walk = Walk { root, input, keep };
    let found = run_jobs(input.threads, vec![first], |job, more| {
        if progress.check().is_err() {
            return Found { cancelled: true, ..Found::default() };
        }
        let mut found = walk.visit(&job, more);
        found.closed = found.dir.is_none().then_some(job.path);
        Progress::add(&progress.files, found.dir.as_ref().map_or(0, |dir| dir.entries.len()));
        found
    });
    progress.check()?;
    let mut listing = Listing::default();
    let mut closed = Vec::new();
    for mut job in found {
        debug_assert!(!job.cancelled, "checked above");
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
    listing.linked.extend(input.proof.iter().flat_map(|proof| proof.linked().iter().cloned()));
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
    Ok(listing)
}

/// Returns the text of the ignore file in the directory `path`.
pub(crate) fn rule_text(root: &Dir, path: &[u8]) -> Option<Vec<u8>> {
    rule_text_in(&root.open_below(path).ok()?)
}

/// Returns the text of the ignore file in an open directory.
pub(crate) fn rule_text_in(dir: &Dir) -> Option<Vec<u8>> {
    match read_stable_small(dir, b".gitignore", MAX_RULES_BYTES) {
        SmallFile::Read(text) => Some(text),
        SmallFile::TooLarge(_) | SmallFile::NotAFile | SmallFile::Unreadable => None,
    }
}

/// Returns the rules that apply to the directory `path`, from the ignore files of its ancestors.
pub(crate) fn rules_above(root: &Dir, base: &Arc<Rules>, path: &[u8]) -> Arc<Rules> {
    let mut rules = Arc::clone(base);
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in std::iter::once(0).chain(ends) {
        let dir = &path[..end];
        if let Some(text) = rule_text(root, dir) {
            rules = rules.child(dir, &text);
        }
    }
    rules
}

struct Walk<'a> {
    root: &'a Dir,
    input: &'a ListInput<'a>,
    keep: &'a dyn Keep,
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
                ignored: is_ignored(entry.verdict, job),
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

/// State of a visit to one directory.
struct Visit<'a, 'b> {
    walk: &'a Walk<'a>,
    job: &'a Job,
    dir: &'a Dir,
    /// Paths that the user's git tracks here and below.
    tracked: Option<TrackedBelow<'a>>,
    before: Time,
    /// Whether the names come from the cache, so that the kinds are unchanged too.
    listing_known: bool,
    /// Whether the cached verdicts are valid.
    rules_known: bool,
    rules: Arc<Rules>,
    filters: Seeding,
    found: &'b mut Found,
    more: &'b mut Vec<Job>,
}

impl Visit<'_, '_> {
    fn is_unwanted_repository(&self, names: &[Vec<u8>]) -> bool {
        !self.walk.input.nested_repos && !self.job.path.is_empty() && has(names, b".git")
    }

    /// Returns whether the directory is a store of ctrlz. With a complete listing, most directories
    /// are decided without a system call.
    fn is_store(&self, only_some: bool, names: &[Vec<u8>]) -> bool {
        let may_be = only_some || (has(names, b"HEAD") && has(names, b"ctrlz"));
        may_be && !self.job.path.is_empty() && is_store(self.dir)
    }

    /// Adds this directory's `.gitignore` and `.gitattributes` to the rules.
    fn take_rules(&mut self, names: &[Vec<u8>]) {
        if has(names, b".gitignore")
            && let Some(text) = self.rule_file(b".gitignore")
        {
            self.rules = self.rules.child(&self.job.path, &text);
            // Later snapshots need these rules to decide why a path is absent from this one.
            self.found.rules_used.push((join(&self.job.path, b".gitignore"), text));
        }
        if let Seeding::Except(filters) = self.filters.clone()
            && has(names, b".gitattributes")
        {
            let patterns =
                self.rule_file(b".gitattributes").and_then(|text| filter_patterns(&text));
            self.filters = match patterns {
                Some(patterns) if patterns.is_empty() => Seeding::Except(filters),
                Some(patterns) => Seeding::Except(filters.child(&self.job.path, &patterns)),
                None => Seeding::Off,
            };
        }
    }

    fn rule_file(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        match read_stable_small(self.dir, name, MAX_RULES_BYTES) {
            SmallFile::Read(bytes) => Some(bytes),
            SmallFile::TooLarge(bytes) => {
                let reason = SkipReason::IgnoreFileTooLarge { bytes };
                self.found.skipped.push(skip(join(&self.job.path, name), reason));
                None
            }
            // Like git, ignores rule files that are missing, symlinks or directories. An unreadable
            // one is reported when it is read as an ordinary file.
            SmallFile::NotAFile | SmallFile::Unreadable => None,
        }
    }

    fn entries(&mut self, names: Vec<Vec<u8>>, cached: Option<&CachedDir<'_>>) -> Vec<ListedEntry> {
        let mut remembered: BTreeMap<&[u8], CachedEntry<'_>> = BTreeMap::new();
        let mut in_order = cached.map(|cached| cached.entries().peekable());
        if !self.listing_known {
            remembered
                .extend(in_order.take().into_iter().flatten().map(|entry| (entry.name, entry)));
        }
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let entry = match &mut in_order {
                Some(cached) => cached.next(),
                None => remembered.get(name.as_slice()).copied(),
            };
            entries.extend(self.entry(name, entry));
        }
        entries
    }

    fn entry(&mut self, name: Vec<u8>, cached: Option<CachedEntry<'_>>) -> Option<ListedEntry> {
        let path = join(&self.job.path, &name);
        if self.walk.input.forbidden.contains(&path) {
            return None;
        }
        if is_protected_name(&name) {
            if !is_repository_dir(&name) {
                self.found.skipped.push(skip(path, SkipReason::ProtectedName));
            }
            return Some(unseen_entry(name, SkipReason::ProtectedName));
        }
        if self.listing_known
            && let Some(cached) = cached
        {
            // The directory's stamp proves that nothing was renamed or created here. An ignored
            // entry or a subdirectory still is the cached one and needs no stat.
            let kind = cached.stat.kind;
            let verdict = self.verdict(&path, kind, Some(cached));
            if kind == FileKind::Dir || self.is_left_out(&path, verdict, kind) {
                return Some(self.settle(&name, path, cached.stat, None, verdict, None));
            }
        }
        match self.dir.stat(&name) {
            Ok(None) => None,
            Ok(Some(stat)) => {
                let verdict = self.verdict(&path, stat.kind, cached);
                Some(self.settle(&name, path, EntryStat::from(&stat), Some(stat), verdict, cached))
            }
            Err(error) => {
                let skipped = Skipped::unreadable(path, &error);
                self.found.skipped.push(skipped.clone());
                Some(unseen_entry(name, skipped.reason))
            }
        }
    }

    /// Returns the verdict for `path`. Uses the cached one if the same rules produced it for the
    /// same kind of entry.
    fn verdict(&self, path: &[u8], kind: FileKind, cached: Option<CachedEntry<'_>>) -> Verdict {
        let is_dir = kind == FileKind::Dir;
        cached
            .filter(|cached| {
                // An entry that could not be examined has no inode number and no verdict.
                self.rules_known
                    && cached.stat.inode != 0
                    && (cached.stat.kind == FileKind::Dir) == is_dir
            })
            .map_or_else(|| self.rules.verdict(path, is_dir), |cached| cached.verdict)
    }

    fn tracked(&self, path: &[u8]) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| tracked.tracks(split(path).1))
    }

    fn is_ignored(&self, verdict: Verdict) -> bool {
        is_ignored(verdict, self.job)
    }

    /// Returns whether an ignored path is left out of the snapshot.
    fn is_left_out(&self, path: &[u8], verdict: Verdict, kind: FileKind) -> bool {
        if !self.is_ignored(verdict) {
            return false;
        }
        let wanted = if kind == FileKind::Dir {
            self.tracked.as_ref().is_some_and(|tracked| tracked.tracks_below(split(path).1))
                || self.rules.includes_below(path)
        } else {
            self.tracked(path)
        };
        !wanted
    }

    /// Decides how to record one entry. `stat` is `None` where the cache is proven valid.
    fn settle(
        &mut self,
        name: &[u8],
        path: Vec<u8>,
        entry_stat: EntryStat,
        stat: Option<Stat>,
        verdict: Verdict,
        cached: Option<CachedEntry<'_>>,
    ) -> ListedEntry {
        let racy = is_racy(entry_stat.ctime, self.before);
        let done =
            |content| ListedEntry { name: name.into(), stat: entry_stat, content, verdict, racy };
        if stat.is_some_and(|stat| stat.kind == FileKind::File && stat.links > 1) {
            self.found.linked.push(path.clone());
        }
        if self.is_left_out(&path, verdict, entry_stat.kind) {
            return done(Content::Ignored);
        }
        if entry_stat.kind == FileKind::Dir {
            if stat.is_some_and(|stat| stat.mount_root) {
                self.found.skipped.push(skip(path, SkipReason::OtherMount));
                return done(Content::Skipped(SkipReason::OtherMount));
            }
            self.more.push(Job {
                path,
                rules: Arc::clone(&self.rules),
                filters: self.filters.clone(),
                ignored: self.is_ignored(verdict),
            });
            return done(Content::Directory);
        }
        let Some(stat) = stat else { return done(Content::Ignored) };
        match self.content(&path, &stat, cached) {
            Content::Skipped(reason) => {
                self.found.skipped.push(skip(path, reason.clone()));
                done(Content::Skipped(reason))
            }
            // Another process may have written to the file and reset its times between the rename
            // and this stat. Such a write counts as later than this snapshot, and the racy mark
            // makes the next one read the file.
            content if self.is_placed(&path) => ListedEntry { racy: true, ..done(content) },
            Content::Known(id) if cached.is_some_and(|cached| cached.id() == Some(id)) => {
                // The content was read with the cached metadata, which is not racy.
                ListedEntry { racy: false, ..done(Content::Known(id)) }
            }
            content => done(content),
        }
    }

    fn content(&self, path: &[u8], stat: &Stat, cached: Option<CachedEntry<'_>>) -> Content {
        if stat.kind == FileKind::Special {
            return Content::Skipped(SkipReason::Special);
        }
        if stat.mount_root {
            return Content::Skipped(SkipReason::OtherMount);
        }
        let walk = self.walk;
        let remembered = cached
            .filter(|cached| !walk.input.rehash && cached.holds(walk.input.trust, stat))
            .and_then(|cached| cached.id())
            .filter(|id| walk.keep.has(id));
        if let Some(id) = remembered {
            return Content::Known(id);
        }
        let limit = walk.input.max_new_file_bytes;
        if stat.kind == FileKind::File
            && stat.bytes > limit
            && !self.tracked(path)
            && !walk.keep.held_before(path)
        {
            return Content::Skipped(SkipReason::TooLarge { bytes: stat.bytes });
        }
        match self.placed(path, stat).or_else(|| self.seeded(path, stat)) {
            Some(id) => Content::Known(id),
            None => Content::ToRead,
        }
    }

    fn is_placed(&self, path: &[u8]) -> bool {
        self.walk.input.placed.is_some_and(|placed| placed.contains_key(path))
    }

    /// Returns the content of a file that a restore wrote, if its metadata is unchanged.
    fn placed(&self, path: &[u8], stat: &Stat) -> Option<crate::git::ObjectId> {
        let input = self.walk.input;
        let (then, id) = input.placed?.get(path)?;
        let same = input.trust.stat && !input.rehash && *then == EntryStat::from(stat);
        (same && self.walk.keep.has(id)).then_some(*id)
    }

    /// Returns the blob id from the user's index, if it is proven to be the file's content.
    fn seeded(&self, path: &[u8], stat: &Stat) -> Option<crate::git::ObjectId> {
        let Seeding::Except(filters) = &self.filters else { return None };
        let input = self.walk.input;
        if input.rehash || !input.trust.stat || is_racy(stat.ctime, self.before) {
            return None;
        }
        let seed = Seed {
            is_symlink: stat.kind == FileKind::Symlink,
            executable: stat.kind == FileKind::File && stat.is_executable(),
            bytes: stat.bytes,
            mtime: (stat.mtime.seconds, stat.mtime.nanos),
            ctime: (stat.ctime.seconds, stat.ctime.nanos),
            inode: stat.inode,
        };
        let id = self.tracked.as_ref()?.blob(split(path).1, &seed)?;
        if filters.verdict(path, false) == Verdict::Ignored {
            return None;
        }
        self.walk.keep.borrow(&id, stat.bytes).then_some(id)
    }
}

/// Returns whether an entry of the job's directory is ignored.
fn is_ignored(verdict: Verdict, job: &Job) -> bool {
    match verdict {
        Verdict::Ignored => true,
        Verdict::Included => false,
        Verdict::Plain => job.ignored,
    }
}

/// Returns an entry that was not examined. It keeps the cached listing complete.
fn unseen_entry(name: Vec<u8>, reason: SkipReason) -> ListedEntry {
    ListedEntry {
        name: name.into_boxed_slice(),
        stat: EntryStat::NOTHING,
        content: Content::Skipped(reason),
        verdict: Verdict::Plain,
        racy: true,
    }
}

fn has(names: &[Vec<u8>], name: &[u8]) -> bool {
    names.binary_search_by(|probe| probe.as_slice().cmp(name)).is_ok()
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

/// Returns whether `name` is a repository directory that users expect to be left out, so that
/// reporting it would be noise.
fn is_repository_dir(name: &[u8]) -> bool {
    [&b".git"[..], b".jj", b".hg", b".svn", b".sl"].contains(&name)
}

fn skip(path: Vec<u8>, reason: SkipReason) -> Skipped {
    Skipped { path, reason }
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
