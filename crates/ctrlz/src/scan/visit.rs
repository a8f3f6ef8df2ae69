//! The visit to one directory: its ignore rules, and how each of its entries is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fs::{Dir, FileKind, Stat, Time};
use crate::git::{ObjectId, Rules, Seed, TrackedBelow, Verdict, is_protected_name};
use crate::path::{join, split};

use super::cache::{CachedDir, CachedEntry};
use super::filters::filter_patterns;
use super::foreign::is_store;
use super::rules::{MAX_RULES_BYTES, SmallFile, read_stable_small};
use super::{
    Content, EntryStat, Keep, ListInput, ListedDir, ListedEntry, Seeding, SkipReason, Skipped,
    is_racy,
};

/// A directory to be listed.
pub(super) struct Job {
    pub(super) path: Vec<u8>,
    pub(super) rules: Arc<Rules>,
    pub(super) filters: Seeding,
    /// Whether the directory is ignored. Then only paths count that the user's git tracks or the
    /// configuration includes.
    pub(super) ignored: bool,
}

impl Job {
    /// Returns whether an entry of the directory with this verdict is ignored.
    pub(super) fn ignores(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Ignored => true,
            Verdict::Included => false,
            Verdict::Plain => self.ignored,
        }
    }
}

/// Result of one job.
#[derive(Default)]
pub(super) struct Found {
    pub(super) dir: Option<ListedDir>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) rules_used: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) vanished: Option<Vec<u8>>,
    /// Path of the directory if it was not listed, for any reason.
    pub(super) closed: Option<Vec<u8>>,
    /// Whether the directory is a store of ctrlz.
    pub(super) is_store: bool,
    pub(super) linked: Vec<Vec<u8>>,
    pub(super) changed: bool,
}

/// The inputs of a walk.
pub(super) struct Walk<'a> {
    pub(super) root: &'a Dir,
    pub(super) input: &'a ListInput<'a>,
    pub(super) keep: &'a dyn Keep,
}

/// State of a visit to one directory.
pub(super) struct Visit<'a, 'b> {
    pub(super) walk: &'a Walk<'a>,
    pub(super) job: &'a Job,
    pub(super) dir: &'a Dir,
    /// Paths that the user's git tracks here and below.
    pub(super) tracked: Option<TrackedBelow<'a>>,
    pub(super) before: Time,
    /// Whether the names come from the cache, so that the kinds are unchanged too.
    pub(super) listing_known: bool,
    /// Whether the cached verdicts are valid.
    pub(super) rules_known: bool,
    pub(super) rules: Arc<Rules>,
    pub(super) filters: Seeding,
    pub(super) found: &'b mut Found,
    pub(super) more: &'b mut Vec<Job>,
}

/// An entry that was looked at.
struct Seen<'a> {
    path: Vec<u8>,
    stat: EntryStat,
    /// Its present metadata. `None` if the cached metadata is proven valid.
    now: Option<Stat>,
    verdict: Verdict,
    cached: Option<CachedEntry<'a>>,
}

impl Visit<'_, '_> {
    pub(super) fn is_unwanted_repository(&self, names: &[Vec<u8>]) -> bool {
        !self.walk.input.nested_repos && !self.job.path.is_empty() && has(names, b".git")
    }

    /// Returns whether the directory is a store of ctrlz. With a complete listing, most directories
    /// are decided without a system call.
    pub(super) fn is_store(&self, only_some: bool, names: &[Vec<u8>]) -> bool {
        let may_be = only_some || (has(names, b"HEAD") && has(names, b"ctrlz"));
        may_be && !self.job.path.is_empty() && is_store(self.dir)
    }

    /// Adds this directory's `.gitignore` and `.gitattributes` to the rules.
    pub(super) fn take_rules(&mut self, names: &[Vec<u8>]) {
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

    pub(super) fn entries(
        &mut self,
        names: Vec<Vec<u8>>,
        cached: Option<&CachedDir<'_>>,
    ) -> Vec<ListedEntry> {
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
                let seen = Seen { path, stat: cached.stat, now: None, verdict, cached: None };
                return Some(self.classify(seen));
            }
        }
        match self.dir.stat(&name) {
            Ok(None) => None,
            Ok(Some(stat)) => {
                let verdict = self.verdict(&path, stat.kind, cached);
                let (now, stat) = (Some(stat), EntryStat::from(&stat));
                Some(self.classify(Seen { path, stat, now, verdict, cached }))
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

    /// Returns whether an ignored path is left out of the snapshot.
    fn is_left_out(&self, path: &[u8], verdict: Verdict, kind: FileKind) -> bool {
        if !self.job.ignores(verdict) {
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

    /// Decides how to record one entry.
    fn classify(&mut self, seen: Seen<'_>) -> ListedEntry {
        let Seen { path, stat, now, verdict, cached } = seen;
        let racy = is_racy(stat.ctime, self.before);
        let name = split(&path).1.into();
        let done = |content| ListedEntry { name, stat, content, verdict, racy };
        if now.is_some_and(|now| now.kind == FileKind::File && now.links > 1) {
            self.found.linked.push(path.clone());
        }
        if self.is_left_out(&path, verdict, stat.kind) {
            return done(Content::Ignored);
        }
        if stat.kind == FileKind::Dir {
            if now.is_some_and(|now| now.mount_root) {
                self.found.skipped.push(skip(path, SkipReason::OtherMount));
                return done(Content::Skipped(SkipReason::OtherMount));
            }
            self.more.push(Job {
                path,
                rules: Arc::clone(&self.rules),
                filters: self.filters.clone(),
                ignored: self.job.ignores(verdict),
            });
            return done(Content::Directory);
        }
        let Some(now) = now else { return done(Content::Ignored) };
        match self.content(&path, &now, cached) {
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
    fn placed(&self, path: &[u8], stat: &Stat) -> Option<ObjectId> {
        let input = self.walk.input;
        let (then, id) = input.placed?.get(path)?;
        let same = input.trust.stat && !input.rehash && *then == EntryStat::from(stat);
        (same && self.walk.keep.has(id)).then_some(*id)
    }

    /// Returns the blob id from the user's index, if it is proven to be the file's content.
    fn seeded(&self, path: &[u8], stat: &Stat) -> Option<ObjectId> {
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

/// Returns whether `name` is a repository directory that users expect to be left out, so that
/// reporting it would be noise.
pub(super) fn is_repository_dir(name: &[u8]) -> bool {
    [&b".git"[..], b".jj", b".hg", b".svn", b".sl"].contains(&name)
}

pub(super) fn skip(path: Vec<u8>, reason: SkipReason) -> Skipped {
    Skipped { path, reason }
}
