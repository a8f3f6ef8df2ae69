//! Reading snapshots: their files, contents and differences.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use crate::compare::{
    Change, Entry, FileDiff, Status, changes, changes_by, file_diff, find, write_unified,
};
use crate::error::Error;
use crate::fs::FileKind;
use crate::git::{EntryKind, Kind, ObjectId};
use crate::jobs::run_jobs;
use crate::log::Operation;
use crate::pack::Objects;
use crate::path::{TreePath, is_asked_for};
use crate::record::{Cause, Recorded, TrackOptions, look};
use crate::scan::{Progress, Skipped, hash_large};
use crate::store::Store;

use super::Workspace;
use crate::restore::Absence;

/// Files that changed since a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Snapshot they are compared with.
    pub hash: ObjectId,
    /// Changed files, relative to the work tree, sorted.
    pub files: Vec<TreePath>,
    /// Path of the work tree.
    pub root: PathBuf,
    /// Paths that the present snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

impl Patch {
    /// Returns the changed files as absolute paths.
    pub fn absolute(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.files.iter().map(|file| self.root.join(file.as_path()))
    }
}

/// Whether a snapshot has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Presence {
    /// The snapshot holds the file.
    Present,
    /// The snapshot proves that the file did not exist.
    Absent,
    /// The path was ignored or skipped at the time, so that its state is unknown.
    Unknown,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Path relative to the work tree.
    pub path: TreePath,
    /// Git's mode: `100644`, `100755` or `120000`.
    pub mode: &'static str,
    /// Id of its content.
    pub id: ObjectId,
}

impl Workspace {
    /// Takes a snapshot and lists the files that changed since `hash`. Renames are not detected.
    ///
    /// A path that one of them does not cover is listed only if the file on disk proves the change.
    pub fn patch(&self, hash: &ObjectId, progress: &Progress) -> Result<Patch, Error> {
        // Checked first, so that no snapshot is taken for an unknown hash.
        self.check_snapshot(hash)?;
        let hold = self.begin()?;
        let options = TrackOptions::default();
        let Recorded { snapshot, operation, .. } =
            hold.record(&options, &Cause::outside(), progress)?;
        let store = &hold.store;
        let now = operation.snapshot;
        let mut covered = Absence::of_operation(store, &operation);
        let mut files = Vec::new();
        for change in changes_by(self.context.options.threads, &store.objects, hash, &now)? {
            let listed = match change.status() {
                Status::Added | Status::Modified => true,
                Status::Deleted if covered.doubt(&change.path)?.is_none() => true,
                // Now ignored or skipped, so the file on disk decides.
                Status::Deleted => !self.is_unchanged_on_disk(&hold.root, &change)?,
            };
            if listed {
                files.push(change.path);
            }
        }
        let skipped = snapshot.skipped;
        Ok(Patch { hash: *hash, files, root: self.context.root.clone(), skipped })
    }

    /// Returns whether the file on disk still has the content that it had before `change`.
    fn is_unchanged_on_disk(&self, root: &crate::fs::Dir, change: &Change) -> Result<bool, Error> {
        let Some(before) = change.before else { return Ok(true) };
        let path = change.path.as_bytes();
        let Ok(dir) = root.open_below(change.path.parent_bytes()) else { return Ok(false) };
        let bytes = match look(root, path)? {
            Some(FileKind::Symlink) if before.kind == EntryKind::Symlink => {
                dir.read_link(change.path.name())?
            }
            Some(FileKind::File) if before.kind.is_file() => {
                let mut file = dir.open_file(change.path.name())?;
                let bytes = file.metadata().map_or(0, |meta| meta.len());
                return Ok(hash_large(bytes, &mut file).is_ok_and(|id| id == before.id));
            }
            Some(_) | None => return Ok(false),
        };
        Ok(crate::git::hash_object(Kind::Blob, &bytes) == Some(before.id))
    }

    /// Checks that the store has a snapshot with this hash.
    pub fn check_snapshot(&self, hash: &ObjectId) -> Result<(), Error> {
        self.for_reading(hash)?.snapshot(hash).map(drop)
    }

    /// Returns the differences between two snapshots.
    ///
    /// A file that the later one lacks only because it was ignored or skipped is left out.
    pub fn changes(&self, from: &ObjectId, to: &ObjectId) -> Result<Vec<Change>, Error> {
        let store = self.for_reading(from)?;
        covered_changes(self.context.options.threads, &store, from, to)
    }

    /// Returns every changed file with its texts. Reads a few files at a time to bound memory use.
    pub fn diff_full(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        paths: &[TreePath],
    ) -> Result<Diffs, Error> {
        let store = self.for_reading(from)?;
        let mut changes = covered_changes(self.context.options.threads, &store, from, to)?;
        changes.retain(|change| is_asked_for(&change.path, paths));
        Ok(Diffs::of(store, changes, self.context.options.threads))
    }

    /// Returns the content of a file, or the target of a symlink, in a snapshot.
    pub fn file_at(&self, hash: &ObjectId, path: &TreePath) -> Result<Vec<u8>, Error> {
        let store = self.for_reading(hash)?;
        store.snapshot(hash)?;
        match find(&store.objects, hash, path)? {
            Some(entry) if !entry.kind.is_tree() => store.objects.blob(&entry.id),
            _ => Err(Error::no_such_file(hash, path)),
        }
    }

    /// Returns whether a snapshot has a file.
    pub fn file_exists_at(&self, hash: &ObjectId, path: &TreePath) -> Result<Presence, Error> {
        let store = self.for_reading(hash)?;
        store.snapshot(hash)?;
        if find(&store.objects, hash, path)?.is_some_and(|entry| !entry.kind.is_tree()) {
            return Ok(Presence::Present);
        }
        let doubt = Absence::of(&store, *hash)?.doubt(path)?;
        Ok(if doubt.is_some() { Presence::Unknown } else { Presence::Absent })
    }

    /// Returns the files of a snapshot, sorted by path.
    pub fn files(&self, hash: &ObjectId) -> Result<Vec<ListedFile>, Error> {
        let store = self.for_reading(hash)?;
        store.snapshot(hash)?;
        let all = changes(&store.objects, &ObjectId::EMPTY_TREE, hash)?;
        let listed = |change: Change| {
            let entry = change.after?;
            Some(ListedFile { path: change.path, mode: entry.kind.mode(), id: entry.id })
        };
        Ok(all.into_iter().filter_map(listed).collect())
    }

    /// Returns the work tree's operations, newest first, at most `limit`.
    pub fn log(&self, limit: usize) -> Result<Vec<Operation>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        match store.refs.read(work_tree.ref_name())? {
            Some(head) => store.history(work_tree.id(), head).take(limit).collect(),
            None => Ok(Vec::new()),
        }
    }
}

pub(super) fn covered_changes(
    threads: usize,
    store: &Store,
    from: &ObjectId,
    to: &ObjectId,
) -> Result<Vec<Change>, Error> {
    store.snapshot(from)?;
    store.snapshot(to)?;
    let all = changes_by(threads, &store.objects, from, to)?;
    if all.iter().all(|change| change.status() != Status::Deleted) {
        // Only a deletion can be in doubt, and finding the records requires reading the log.
        return Ok(all);
    }
    let mut covered = Absence::of(store, *to)?;
    let mut kept = Vec::with_capacity(all.len());
    for change in all {
        let doubtful = change.status() == Status::Deleted && covered.is_left_out(&change.path)?;
        if !doubtful {
            kept.push(change);
        }
    }
    Ok(kept)
}

/// Changed files of [`Workspace::diff_full`]. They are read on demand, a few ahead on all threads,
/// so that memory use is bounded.
pub struct Diffs {
    store: Store,
    changes: std::vec::IntoIter<Change>,
    ready: std::vec::IntoIter<Result<FileDiff, Error>>,
    threads: usize,
    /// Number of files per thread to compare next. Starts small: a caller may want only one file.
    ahead: usize,
}

/// Upper bound on the texts that are read ahead.
const MAX_BYTES_AHEAD: u64 = 32 << 20;

/// Estimates the memory that both texts of a change take.
fn bytes_of(objects: &Objects, change: &Change) -> u64 {
    const OVERHEAD: u64 = 1 << 10;
    let header = |entry: &Entry| objects.header(&entry.id).ok().flatten();
    let sides = change.before.iter().chain(&change.after);
    OVERHEAD + sides.filter_map(header).map(|(_, bytes)| bytes).sum::<u64>()
}

impl Diffs {
    pub(crate) fn of(store: Store, changes: Vec<Change>, threads: usize) -> Diffs {
        let threads = threads.clamp(1, changes.len().max(1));
        let (changes, ready) = (changes.into_iter(), Vec::new().into_iter());
        Diffs { store, changes, ready, threads, ahead: 4 }
    }

    /// Compares the next few files and applies `make` to each, on all threads. Returns the results in
    /// order, and none after the last file.
    fn read_ahead<T: Send>(
        &mut self,
        make: impl Fn(FileDiff) -> T + Sync,
    ) -> Vec<Result<T, Error>> {
        const MAX_FILES_PER_THREAD: usize = 128;
        let objects = &self.store.objects;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.threads * self.ahead && bytes < MAX_BYTES_AHEAD {
            let Some(change) = self.changes.next() else { break };
            bytes += bytes_of(objects, &change);
            batch.push((batch.len(), change));
        }
        self.ahead = (self.ahead * 2).min(MAX_FILES_PER_THREAD);
        let mut done = run_jobs(self.threads, batch, |(at, change), _| {
            (at, file_diff(objects, &change).map(&make))
        });
        done.sort_unstable_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, made)| made).collect()
    }
}

impl Diffs {
    /// Returns the number of files not read yet. Files read ahead by the iterator do not count.
    pub fn remaining(&self) -> usize {
        self.changes.len()
    }

    /// Skips files that are not read yet.
    pub fn pass_over(&mut self, files: usize) {
        self.changes.by_ref().take(files).for_each(drop);
    }

    /// Passes the result of `make` for each file to `take`, in order. `make` runs on all threads,
    /// because formatting texts takes about as long as comparing them.
    pub fn make_each<T: Send, E: From<Error>>(
        mut self,
        make: impl Fn(FileDiff) -> T + Sync,
        mut take: impl FnMut(T) -> Result<(), E>,
    ) -> Result<(), E> {
        for file in std::mem::take(&mut self.ready) {
            take(make(file?))?;
        }
        loop {
            let batch = self.read_ahead(&make);
            if batch.is_empty() {
                return Ok(());
            }
            batch.into_iter().try_for_each(|made| take(made?))?;
        }
    }

    /// Writes the files that are not read yet as a patch that `git apply` accepts.
    pub fn write_unified(mut self, out: &mut dyn Write) -> Result<(), Error> {
        self.changes.try_for_each(|change| write_unified(&self.store.objects, &change, out))
    }

    /// Returns the next file as a patch that `git apply` accepts, instead of its whole texts.
    pub fn next_unified(&mut self) -> Option<Result<Vec<u8>, Error>> {
        let change = self.changes.next()?;
        let mut text = Vec::new();
        Some(write_unified(&self.store.objects, &change, &mut text).map(|()| text))
    }
}

impl Iterator for Diffs {
    type Item = Result<FileDiff, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.as_slice().is_empty() {
            self.ready = self.read_ahead(std::convert::identity).into_iter();
        }
        self.ready.next()
    }
}
