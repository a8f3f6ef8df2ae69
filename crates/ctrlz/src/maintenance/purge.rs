//! Purging: removes the content of a path from every snapshot permanently.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::error::{Error, LookupError};
use crate::gc::{GcOptions, GcReport};
use crate::git::ObjectId;
use crate::log::{OpenStep, load_steps, save_steps};
use crate::pack::PackWriter;
use crate::path::TreePath;
use crate::scan::Progress;
use crate::store::{Borrowed, Lock, Sharing, Store, Tombstones};

use super::Maintenance;
use super::editors::{Eraser, Purger, erase_from};
use super::occurrences::{contents_at, mentions, remaining, steps_at};
use super::rewrite::{History, move_refs, rewrite};

/// Options of [`Maintenance::purge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Also removes the same content under other paths. By default those are kept and listed.
    pub everywhere: bool,
}

/// Report of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Rewritten snapshots: map from old to new hashes.
    pub snapshots: BTreeMap<ObjectId, ObjectId>,
    /// Number of operations that had the path, in their snapshot or among its ignored files.
    pub operations: u64,
    /// Number of contents that were removed.
    pub contents: u64,
    /// Number of steps and checkpoints whose label was blanked or contained the text.
    pub labels: u64,
    /// Other paths that have, or had, the same content.
    pub same_content: Vec<TreePath>,
    /// Whether the path still exists in the work tree, so that the next snapshot records it again.
    pub still_there: bool,
    /// Number of quarantined files that were deleted, because their content is unknown.
    pub quarantine_removed: u64,
    /// Report of the garbage collection.
    pub gc: GcReport,
}

impl Maintenance<'_> {
    /// Removes a path, and everything below it, from all snapshots of all work trees that share the
    /// store: from trees, ignored snapshots, packs and caches.
    ///
    /// Affected snapshots are rewritten and record that the path was purged; their old hashes map
    /// to the new ones. The labels of steps that changed, named or mention the path are blanked,
    /// since a command may repeat what it wrote. Tombstones of the contents make pull and import
    /// refuse to bring them back. The files of the work tree are not touched.
    pub fn purge(
        &self,
        path: &TreePath,
        options: PurgeOptions,
        progress: &Progress,
    ) -> Result<PurgeReport, Error> {
        let nothing = || Error::Lookup(LookupError::NothingToPurge { path: path.clone() });
        let site = self.begin_rewrite()?.ok_or_else(nothing)?;
        let Site { store, roots, .. } = &site;
        let contents = contents_at(store, roots, path)?;
        let roots = &self.forget_outside_with(store, roots, &contents)?;
        let steps = steps_at(store, roots, path)?;
        if contents.is_empty() && steps.is_empty() {
            return Err(nothing());
        }
        edit_open_steps(store, |step| {
            let names = step.paths.iter().any(|named| named.is_within(path));
            let is_meant = names || steps.contains(&step.info.step) || mentions(&step.info, path);
            is_meant && step.info.label.take().is_some()
        })?;
        let mut purger = Purger {
            store,
            pack: PackWriter::new(&store.objects_dir()),
            path,
            everywhere: options.everywhere.then_some(&contents),
            steps: &steps,
            trees: HashMap::new(),
            snapshots: BTreeMap::new(),
            operations: BTreeSet::new(),
        };
        let History { commits, pack, .. } = rewrite(store, roots.iter().copied(), &mut purger)?;
        let Purger { pack: trees, snapshots, operations, .. } = purger;
        trees.publish()?;
        pack.publish()?;
        store.objects.refresh()?;
        let moved = |id: &ObjectId| commits.get(id).copied().unwrap_or(*id);
        let left: Vec<ObjectId> = roots.iter().map(moved).collect();
        let (same_content, still_needed) = remaining(store, &left, &contents)?;
        let gone: BTreeSet<ObjectId> =
            contents.iter().filter(|id| !still_needed.contains(id)).copied().collect();
        Tombstones::load(store)?.add(store, gone.iter().copied())?;
        store.note_purged(snapshots.iter().map(|(old, new)| (*old, *new)))?;
        move_refs(store, &commits)?;
        for id in &gone {
            store.remove_loose(id)?;
        }
        for work_tree in store.work_trees()? {
            Borrowed::forget(&work_tree.borrowed_path(), &gone)?;
        }
        let report = PurgeReport {
            snapshots,
            operations: operations.len() as u64,
            contents: gone.len() as u64,
            labels: steps.len() as u64,
            same_content: same_content.into_iter().collect(),
            still_there: is_there(&self.0.root().join(path.as_path())),
            ..PurgeReport::default()
        };
        self.finish_purge(site, &commits, report, progress)
    }

    /// Removes a text from the labels, tools and agent names of all steps, and from the labels of
    /// all checkpoints, of all work trees that share the store. Contents, paths and ids are not
    /// searched.
    pub fn purge_text(&self, text: &str, progress: &Progress) -> Result<PurgeReport, Error> {
        let site = self
            .begin_rewrite()?
            .filter(|_| !text.is_empty())
            .ok_or(Error::Lookup(LookupError::NoSuchText))?;
        let store = &site.store;
        let mut eraser = Eraser { text, found: BTreeSet::new() };
        let history = rewrite(store, site.roots.iter().copied(), &mut eraser)?;
        let mut found = eraser.found;
        edit_open_steps(store, |step| {
            let erased = erase_from(&mut step.info, text);
            if erased {
                found.insert(step.info.step.clone());
            }
            erased
        })?;
        if found.is_empty() {
            return Err(Error::Lookup(LookupError::NoSuchText));
        }
        let labels = found.len() as u64;
        let commits = history.publish()?;
        let report = PurgeReport { labels, ..PurgeReport::default() };
        self.finish_purge(site, &commits, report, progress)
    }

    /// Drops captures of outside paths with purged contents. Returns the roots that refs still
    /// name.
    fn forget_outside_with(
        &self,
        store: &Store,
        roots: &[ObjectId],
        contents: &HashSet<ObjectId>,
    ) -> Result<Vec<ObjectId>, Error> {
        let mut dropped = HashSet::new();
        for work_tree in store.work_trees()? {
            dropped.extend(self.0.outside(store, &work_tree).forget(&|id| contents.contains(id))?);
        }
        Ok(roots.iter().filter(|root| !dropped.contains(root)).copied().collect())
    }

    /// Locks the store exclusively. Returns `None` if there is no store.
    pub(super) fn begin_rewrite(&self) -> Result<Option<Site>, Error> {
        // Recovers from a killed command first.
        drop(self.0.begin()?);
        let Some((store, _)) = self.0.existing()? else { return Ok(None) };
        let patience = self.0.options().patience;
        let caring = Lock::take(&store.care_lock_path(), Sharing::Exclusive, patience)?;
        let alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
        store.objects.refresh()?;
        let roots = store.refs.all()?.into_iter().map(|(_, id)| id).collect();
        Ok(Some(Site { store, roots, _caring: caring, alone }))
    }

    /// Removes unneeded objects. Refs already name the rewritten history.
    fn finish_purge(
        &self,
        site: Site,
        commits: &BTreeMap<ObjectId, ObjectId>,
        mut report: PurgeReport,
        progress: &Progress,
    ) -> Result<PurgeReport, Error> {
        let Site { store, alone, _caring, .. } = site;
        for commit in commits.keys() {
            store.remove_loose(commit)?;
        }
        report.quarantine_removed = store.empty_quarantine()?;
        drop(alone);
        let options = GcOptions { thorough: true };
        report.gc = store.collect(options, self.0.options().patience, progress)?;
        Ok(report)
    }
}

/// An exclusively locked store to be rewritten, and the commits that its refs name.
pub(super) struct Site {
    pub(super) store: Store,
    pub(super) roots: Vec<ObjectId>,
    _caring: Lock,
    alone: Lock,
}

/// Edits the open steps of all work trees. The caller holds the store lock exclusively.
fn edit_open_steps(
    store: &Store,
    mut edit: impl FnMut(&mut OpenStep) -> bool,
) -> Result<(), Error> {
    for work_tree in store.work_trees()? {
        let path = work_tree.steps_path();
        let mut steps = load_steps(&path)?;
        let mut edited = false;
        for step in &mut steps {
            edited |= edit(step);
        }
        if edited {
            save_steps(&path, &steps)?;
        }
    }
    Ok(())
}

/// Returns whether a file or a non-empty directory exists at `path`.
fn is_there(path: &std::path::Path) -> bool {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => {
            std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
        }
        Ok(_) => true,
        Err(_) => false,
    }
}
