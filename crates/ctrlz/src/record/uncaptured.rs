//! Uncaptured paths: their metadata is recorded while a step is open, so that a loss is reported
//! even if it cannot be undone.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::compare::find;
use crate::error::Error;
use crate::fs::{Dir, FileKind};
use crate::git::ObjectId;
use crate::log::{Operation, Stamp, Uncaptured, UncapturedChange, Watched, read_ignored};
use crate::pack::Objects;
use crate::path::{PathText, TreePath, join, split};
use crate::scan::SkipReason;

use crate::hold::Hold;

/// Reason for a named file in an ignored directory, or a large one, that was not captured.
const TOO_LARGE_TO_KEEP: &str = "ignored or large, and over the limit for named files";
/// Reason for a repository that is in no snapshot, but was captured before the step.
pub(crate) const CAPTURED_REPOSITORY: &str = "a repository; `ctrlz recover --git --into DIR` writes what was captured of it to a new directory";
/// The maximum number of paths that are watched during a step.
const MAX_WATCHED: usize = 1_000;

impl Hold {
    /// Returns the metadata of all paths that a snapshot leaves out, and of the files `not_kept`,
    /// which a tool names and which could not be captured.
    pub(crate) fn watch_uncaptured(
        &self,
        operation: &Operation,
        not_kept: &[TreePath],
    ) -> Result<Vec<Watched>, Error> {
        let own =
            self.context.repo.is_some().then(|| (b".git".to_vec(), "a repository".to_owned()));
        let left_out = left_out(&self.store.objects, operation);
        let known: HashSet<&[u8]> = left_out.iter().map(|(path, _)| path.as_slice()).collect();
        let named = not_kept.iter().filter(|path| !known.contains(path.as_bytes()));
        let named = named.map(|path| (path.as_bytes().to_vec(), TOO_LARGE_TO_KEEP.to_owned()));
        let named: Vec<_> = named.collect();
        Ok(self.watch(own.into_iter().chain(left_out).chain(named)))
    }

    /// Returns the metadata of those paths that exist. Paths outside of the work tree are absolute.
    pub(crate) fn watch(&self, paths: impl Iterator<Item = (Vec<u8>, String)>) -> Vec<Watched> {
        let watched = paths.take(MAX_WATCHED).filter_map(|(path, why)| {
            let stamp = stamp(self, &path)?;
            Some(Watched { path: PathText::from_bytes(&path), why, stamp })
        });
        watched.collect()
    }
}

/// Returns the paths that a snapshot and its ignored snapshot leave out, each with the reason.
fn left_out(objects: &Objects, operation: &Operation) -> Vec<(Vec<u8>, String)> {
    let skipped = operation.meta.skipped.iter();
    let skipped = skipped.map(|skipped| (skipped.path.clone(), describe(&skipped.reason)));
    let mut paths: Vec<(Vec<u8>, String)> = skipped.collect();
    if let Some(ignored) = &operation.meta.ignored_snapshot
        && let Ok(ignored) = read_ignored(objects, ignored)
    {
        // The ignored snapshot holds files that a tool named.
        paths.retain(|(path, _)| {
            let Ok(path) = TreePath::parse(path) else { return true };
            !matches!(find(objects, &ignored.tree, &path), Ok(Some(_)))
        });
        let not_kept = ignored.data.not_kept.into_iter().flatten();
        paths.extend(not_kept.map(|path| {
            let path = path.into_bytes();
            let is_repository = split(&path).1 == b".git";
            (path, if is_repository { "a repository" } else { "ignored" }.to_owned())
        }));
    }
    paths
}

/// Returns the paths that a snapshot leaves out.
pub(crate) fn left_out_paths(objects: &Objects, operation: &Operation) -> HashSet<Vec<u8>> {
    left_out(objects, operation).into_iter().map(|(path, _)| path).collect()
}

/// Returns the paths that `after` leaves out and that were not there before: neither in the
/// snapshot `before` nor among the paths `known` that it left out.
pub(crate) fn created_uncaptured(
    objects: &Objects,
    (before, known): (&ObjectId, &HashSet<Vec<u8>>),
    after: &Operation,
) -> Result<Vec<Uncaptured>, Error> {
    let failures: HashSet<&[u8]> = after
        .meta
        .skipped
        .iter()
        .filter(|skipped| skipped.reason.is_failure())
        .map(|skipped| skipped.path.as_slice())
        .collect();
    let mut made = Vec::new();
    for (path, why) in left_out(objects, after) {
        if known.contains(&path) || failures.contains(path.as_slice()) {
            continue;
        }
        // A path that was captured before is not new.
        let was_captured = match TreePath::parse(&path) {
            Ok(path) => find(objects, before, &path)?.is_some(),
            Err(_) => false,
        };
        if !was_captured {
            let change = UncapturedChange::Created;
            made.push(Uncaptured { path, why, change, bytes: None });
        }
    }
    Ok(made)
}

fn describe(reason: &SkipReason) -> String {
    match reason {
        // The size may change and is not part of the reason.
        SkipReason::TooLarge { .. } => "new and large".into(),
        SkipReason::OverQuota { .. } => "over the quota".into(),
        other => other.to_string(),
    }
}

impl Hold {
    /// Returns whether the ignored snapshot of an operation holds or lists all files of a directory
    /// on disk. Returns `false` for a `.git` directory and for one with more than 4,000 entries.
    pub(crate) fn keeps_all_of(&self, operation: &Operation, dir: &[u8]) -> bool {
        const MAX_ENTRIES: usize = 4_000;
        let objects = &self.store.objects;
        let ignored =
            operation.meta.ignored_snapshot.and_then(|id| read_ignored(objects, &id).ok());
        let Some(ignored) = ignored else { return false };
        let mut dirs = vec![dir.to_vec()];
        let (mut entries, mut files) = (0, 0);
        while let Some(path) = dirs.pop() {
            let Ok(below) = self.root.open_below(&path) else { return false };
            let Ok(names) = below.names() else { return false };
            for name in names {
                let path = join(&path, &name);
                entries += 1;
                let (Ok(Some(stat)), Ok(tree_path)) = (below.stat(&name), TreePath::parse(&path))
                else {
                    return false;
                };
                if stat.kind == FileKind::Dir {
                    dirs.push(path);
                } else if matches!(find(objects, &ignored.tree, &tree_path), Ok(Some(_)))
                    || ignored.is_unknown(&path)
                {
                    files += 1;
                } else {
                    return false;
                }
            }
            if entries > MAX_ENTRIES {
                return false;
            }
        }
        files > 0
    }

    /// Returns the paths that the snapshot after a step leaves out and that the step made.
    pub(crate) fn made_uncaptured(
        &self,
        watched: &[Watched],
        before: &ObjectId,
        after: &Operation,
    ) -> Result<Vec<Uncaptured>, Error> {
        // Beyond the limit, nothing shows whether a path is new.
        if watched.len() >= MAX_WATCHED {
            return Ok(Vec::new());
        }
        let known = watched.iter().map(|watched| watched.path.clone().into_bytes()).collect();
        created_uncaptured(&self.store.objects, (before, &known), after)
    }

    /// Returns the watched paths that were removed or changed.
    pub(crate) fn uncaptured_changes(&self, watched: &[Watched]) -> Vec<Uncaptured> {
        let change = |watched: &Watched| {
            let path = watched.path.clone().into_bytes();
            let change = change_of(&path, watched, stamp(self, &path))?;
            let bytes = (!watched.stamp.is_dir).then_some(watched.stamp.bytes);
            Some(Uncaptured { path, why: watched.why.clone(), change, bytes })
        };
        watched.iter().filter_map(change).collect()
    }

    /// Returns whether a change is still visible. A removed path must not exist, a new one must.
    pub(crate) fn still_shows(&self, change: &Uncaptured) -> bool {
        match change.change {
            UncapturedChange::Gone => stamp(self, &change.path).is_none(),
            UncapturedChange::Created => stamp(self, &change.path).is_some(),
            UncapturedChange::Replaced
            | UncapturedChange::Modified
            | UncapturedChange::ChangedInside => true,
        }
    }
}

/// Returns the change of a path, or `None` if it did not change.
fn change_of(path: &[u8], watched: &Watched, now: Option<Stamp>) -> Option<UncapturedChange> {
    let then = watched.stamp;
    // A directory outside of the work tree was to be captured, but did not fit.
    let is_policy = !path.starts_with(b"/") || watched.why == CAPTURED_REPOSITORY;
    let Some(now) = now else { return Some(UncapturedChange::Gone) };
    let is_same = then.is_same_inode(&now) && then.is_unmodified(&now);
    let is_ignored = watched.why == "ignored";
    match (then.is_dir, now.is_dir) {
        (true, true) if !then.is_same_inode(&now) => Some(UncapturedChange::Replaced),
        (true, true) if then.mtime == now.mtime => None,
        (true, true) if is_policy => Some(UncapturedChange::ChangedInside),
        (true, true) => Some(UncapturedChange::Modified),
        (true, false) | (false, true) => Some(UncapturedChange::Replaced),
        // Changes of ignored files are left alone by policy.
        (false, false) if is_ignored => (!is_same).then_some(UncapturedChange::ChangedInside),
        (false, false) => (!is_same).then_some(UncapturedChange::Modified),
    }
}

/// Returns the metadata of a path, or `None` if nothing exists there. A path outside of the work
/// tree is absolute.
fn stamp(hold: &Hold, path: &[u8]) -> Option<Stamp> {
    let (parent, name) = split(path);
    let parent = if path.starts_with(b"/") {
        let parent = [parent, b"/"].concat();
        Dir::open_real(Path::new(OsStr::from_bytes(&parent))).ok()?.glimpse(b"")?
    } else {
        hold.root.glimpse(parent)?
    };
    let stat = parent.stat(name)?;
    Some(Stamp {
        is_dir: stat.kind == FileKind::Dir,
        inode: stat.inode,
        bytes: stat.bytes,
        mtime: (stat.mtime.seconds, stat.mtime.nanos),
        mode: Some(stat.mode),
        born: parent.birth(name).map(|born| (born.seconds, born.nanos)),
    })
}
