//! Requests: the changes from the present state to a recorded one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::compare::{Change, Entry, Now, NowAt, Trees, changes, changes_by};
use crate::error::Error;
use crate::fs::{FileKind, MODE_BITS};
use crate::git::{EntryKind, ObjectId};
use crate::hold::Hold;
use crate::log::{Meta, Operation};
use crate::path::{TreePath, dirs_above, is_asked_for};
use crate::record::{Cause, Recorded, look};
use crate::scan::Progress;
use crate::store::Store;

use super::absence::{Absence, is_dir_of};
use super::plan::{Kept, KeptReason, ModeChange, Request, Wanted};
use super::report::{OnUse, RestoreOptions};
use super::safety::{Planning, Prepared, SaveIgnored};
use super::units::Source;

/// A recorded state that was found in the store.
pub(crate) struct Target {
    pub(crate) hash: ObjectId,
    pub(crate) meta: Option<Arc<Meta>>,
    /// The operation, if one was named and not only a hash.
    pub(crate) operation: Option<Operation>,
}

impl Target {
    /// Returns the target that an operation recorded.
    pub(crate) fn of_operation(operation: Operation) -> Target {
        let meta = Some(Arc::new(operation.meta.clone()));
        Target { hash: operation.snapshot, meta, operation: Some(operation) }
    }

    /// Returns the evidence about paths that the target does not hold. For a bare hash, all records
    /// of that tree count.
    fn absence<'a>(&self, store: &'a Store) -> Result<Absence<'a>, Error> {
        match &self.operation {
            Some(operation) => Ok(Absence::of_operation(store, operation)),
            None => Absence::of(store, self.hash),
        }
    }
}

impl Hold {
    /// Plans to restore a state.
    pub(crate) fn prepare_restore(
        &self,
        target: &Target,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<Prepared, Error> {
        let tracked = self.track_before(progress)?;
        let absence = target.absence(&self.store)?;
        let request = request_with(target.meta.as_deref());
        let mut draft = Draft { hold: self, tracked: &tracked, target, absence, options, request };
        draft.want_files()?;
        if let Some(meta) = target.meta.as_deref() {
            draft.want_dirs(meta);
            draft.want_modes(meta)?;
        }
        draft.remove_unlisted_in_the_way()?;
        if options.exact {
            draft.empty_out()?;
        }
        let mut request = draft.request;
        let Target { hash, meta, .. } = target;
        let mut source = Source::of(self, *hash, target.absence(&self.store)?, meta.as_deref());
        self.remove_logs_made_since(&tracked, &mut request, &mut source, options)?;
        let how = Planning { ignored: SaveIgnored::InTheSnapshot, in_use: options.in_use };
        let prepared = self.plan_from(&tracked, request, vec![source], how)?;
        Ok(Prepared { target: Some(*hash), ..prepared })
    }

    /// Plans to restore files, each to its state in a given snapshot.
    pub(crate) fn prepare_revert(
        &self,
        wanted: &BTreeMap<TreePath, ObjectId>,
        in_use: OnUse,
        progress: &Progress,
    ) -> Result<Prepared, Error> {
        let store = &self.store;
        let tracked = self.track_before(progress)?;
        let mut sources: BTreeMap<ObjectId, (Absence<'_>, Option<Arc<Meta>>)> = BTreeMap::new();
        for hash in wanted.values() {
            if !sources.contains_key(hash) {
                let absence = Absence::of(store, *hash)?;
                let head = Some(tracked.operation.commit);
                let meta = absence.meta_for(self.work_tree.id(), head);
                sources.insert(*hash, (absence, meta));
            }
        }
        let metas: BTreeMap<ObjectId, Option<Arc<Meta>>> =
            sources.iter().map(|(hash, (_, meta))| (*hash, meta.clone())).collect();
        let modes: BTreeMap<ObjectId, Modes<'_>> =
            metas.iter().map(|(hash, meta)| (*hash, Modes::of(meta.as_deref()))).collect();
        let mut request = request_with(None);
        let trees = Trees::new(&store.objects);
        for (path, hash) in wanted {
            let (Some((absence, meta)), Some(modes)) = (sources.get_mut(hash), modes.get(hash))
            else {
                continue;
            };
            for dir in dirs_above(path.as_bytes()) {
                // The snapshot of the first path below the directory decides, in path order.
                request.dir_modes.entry(dir.to_vec()).or_insert_with(|| modes.of_dir(dir));
            }
            let before = trees.find(&tracked.operation.snapshot, path)?;
            match trees.find(hash, path)? {
                Some(entry) if !entry.kind.is_tree() => {
                    let change = Change { path: path.clone(), before, after: Some(entry) };
                    want(&mut request, modes, &change, entry);
                }
                // It was a directory, so there was no file. Its files are named separately.
                Some(_) => drop(request.wanted.insert(path.as_bytes().to_vec(), Wanted::Absent)),
                None => match absence.doubt(path)? {
                    Some(reason) => request.kept.push(Kept { path: path.clone(), reason }),
                    None => {
                        request.wanted.insert(path.as_bytes().to_vec(), Wanted::Absent);
                        for dir in dirs_above(path.as_bytes()) {
                            if !is_dir_of(&trees, hash, meta.as_deref(), dir)? {
                                request.emptied.insert(dir.to_vec());
                            }
                        }
                    }
                },
            }
        }
        let sources = sources
            .into_iter()
            .map(|(hash, (absence, meta))| Source::of(self, hash, absence, meta.as_deref()));
        let how = Planning { ignored: SaveIgnored::InTheSnapshot, in_use };
        self.plan_from(&tracked, request, sources.collect(), how)
    }

    fn track_before(&self, progress: &Progress) -> Result<Recorded, Error> {
        self.record_listed(&Cause::before_change(), progress)
    }
}

/// Permissions in a record of a snapshot.
pub(crate) struct Modes<'a> {
    meta: Option<&'a Meta>,
    listed: std::collections::HashMap<Vec<u8>, u32>,
}

impl Modes<'_> {
    pub(crate) fn of(meta: Option<&Meta>) -> Modes<'_> {
        Modes { meta, listed: meta.map(Meta::mode_map).unwrap_or_default() }
    }

    /// Returns the set-user-id, set-group-id and sticky bits of `present` that stay because the
    /// snapshot does not record them.
    pub(crate) fn unrecorded(&self, present: u32) -> u32 {
        self.meta.map_or(present & 0o7000, |meta| meta.unrecorded_bits(present))
    }

    /// Returns the permissions of a directory.
    pub(crate) fn of_dir(&self, path: &[u8]) -> u32 {
        let common = self.meta.map_or(0o755, |meta| meta.common.dir);
        self.listed.get(path).copied().unwrap_or(common)
    }

    /// Returns the permissions of a file.
    pub(crate) fn of_file(&self, path: &[u8], kind: EntryKind) -> u32 {
        let plain = if kind == EntryKind::Executable { 0o755 } else { 0o644 };
        match self.meta {
            Some(meta) => {
                self.listed.get(path).copied().unwrap_or_else(|| meta.common.of_file(plain))
            }
            None => plain,
        }
    }
}

fn request_with(meta: Option<&Meta>) -> Request {
    Request {
        common_dir_mode: meta.map_or(0o755, |meta| meta.common.dir),
        dir_modes: meta.map(|meta| meta.mode_map().into_iter().collect()).unwrap_or_default(),
        ..Request::default()
    }
}

fn want(request: &mut Request, modes: &Modes<'_>, change: &Change, entry: Entry) {
    let path = change.path.as_bytes();
    let mode = modes.of_file(path, entry.kind);
    request.wanted.insert(path.to_vec(), Wanted::Entry { entry, mode });
}

/// Returns whether the snapshot has a directory at the path of a file, or a file above it.
fn gives_way(trees: &Trees<'_>, hash: &ObjectId, path: &TreePath) -> Result<bool, Error> {
    if trees.find(hash, path)?.is_some_and(|entry| entry.kind.is_tree()) {
        return Ok(true);
    }
    for above in dirs_above(path.as_bytes()) {
        let found = trees.find(hash, &TreePath::from_scan(above.to_vec()))?;
        if found.is_some_and(|entry| !entry.kind.is_tree()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A request to restore a state, while it is put together.
struct Draft<'a> {
    hold: &'a Hold,
    /// The present state.
    tracked: &'a Recorded,
    target: &'a Target,
    absence: Absence<'a>,
    options: &'a RestoreOptions,
    request: Request,
}

impl Draft<'_> {
    fn is_asked_for(&self, path: &TreePath) -> bool {
        is_asked_for(path, &self.options.paths)
    }

    /// Requests the files of the snapshot that differ, and the removal of files that it does not
    /// have.
    fn want_files(&mut self) -> Result<(), Error> {
        let (store, Target { hash, meta, .. }) = (&self.hold.store, self.target);
        let modes = Modes::of(meta.as_deref());
        let (threads, now) = (self.hold.context.options.threads, &self.tracked.operation.snapshot);
        let trees = Trees::new(&store.objects);
        for change in changes_by(threads, &store.objects, now, hash)? {
            if !self.is_asked_for(&change.path) {
                continue;
            }
            let request = &mut self.request;
            let path = change.path.as_bytes().to_vec();
            match change.after {
                Some(entry) => want(request, &modes, &change, entry),
                None if gives_way(&trees, hash, &change.path)? => {
                    request.wanted.insert(path, Wanted::Absent);
                }
                None if !self.options.exact => {
                    let Change { path, .. } = change;
                    request.kept.push(Kept { path, reason: KeptReason::CreatedSince });
                }
                None => match self.absence.doubt(&change.path)? {
                    Some(reason) => request.kept.push(Kept { path: change.path, reason }),
                    None => drop(request.wanted.insert(path, Wanted::Absent)),
                },
            }
        }
        Ok(())
    }

    /// Requests the removal of files that a scan leaves out and that stand where the snapshot has a
    /// directory. They are saved in the safety snapshot first.
    fn remove_unlisted_in_the_way(&mut self) -> Result<(), Error> {
        let (request, now) = (&self.request, Now::of(&self.tracked.listing));
        let above = request.wanted.keys().flat_map(|path| dirs_above(path));
        let above = above.chain(request.dirs.keys().flat_map(|dir| dirs_above(dir)));
        let mut dirs: BTreeSet<&[u8]> =
            above.chain(request.dirs.keys().map(Vec::as_slice)).collect();
        dirs.retain(|dir| !matches!(now.at(dir), NowAt::File { .. } | NowAt::Dir));
        let mut in_the_way = Vec::new();
        for dir in dirs {
            let is_asked_for = self.is_asked_for(&TreePath::from_scan(dir.to_vec()));
            let there = look(&self.hold.root, dir)?;
            if is_asked_for && matches!(there, Some(FileKind::File | FileKind::Symlink)) {
                in_the_way.push(dir.to_vec());
            }
        }
        let removals = in_the_way.into_iter().map(|path| (path, Wanted::Absent));
        self.request.wanted.extend(removals);
        Ok(())
    }

    /// Requests the empty directories of the snapshot.
    fn want_dirs(&mut self, meta: &Meta) {
        let modes = Modes::of(Some(meta));
        for dir in meta.empty_dirs.iter().filter(|dir| is_asked_for(dir, &self.options.paths)) {
            self.request.dirs.insert(dir.as_bytes().to_vec(), modes.of_dir(dir.as_bytes()));
        }
    }

    /// Requests the permissions of files and directories whose content is the same.
    fn want_modes(&mut self, then: &Meta) -> Result<(), Error> {
        let (tracked, hash) = (self.tracked, &self.target.hash);
        let now_meta = &tracked.operation.meta;
        if now_meta.common == then.common && now_meta.modes == then.modes {
            return Ok(());
        }
        let objects = &self.hold.store.objects;
        let modes = Modes::of(Some(then));
        let trees = Trees::new(objects);
        let now = Now::of(&tracked.listing);
        let paths: BTreeSet<Vec<u8>> = if now_meta.common == then.common {
            let both = now_meta.modes.iter().chain(&then.modes);
            both.map(|(path, _)| path.clone().into_bytes()).collect()
        } else {
            let all = changes(objects, &ObjectId::EMPTY_TREE, hash)?;
            let files = all.into_iter().map(|change| change.path.as_bytes().to_vec());
            let dirs = tracked.listing.dirs.iter().map(|dir| dir.path.clone());
            files.chain(dirs.filter(|dir| !dir.is_empty())).collect()
        };
        for bytes in paths {
            let Ok(path) = TreePath::parse(&bytes) else { continue };
            if !self.is_asked_for(&path) {
                continue;
            }
            let change = match (now.at(&bytes), trees.find(hash, &path)?) {
                (NowAt::File { stat, entry: there, .. }, Some(entry))
                    if there == entry && entry.kind.is_file() =>
                {
                    let from = stat.mode & MODE_BITS;
                    let to = modes.of_file(&bytes, entry.kind) | modes.unrecorded(from);
                    Some(ModeChange::of_file(bytes, from, to))
                }
                (NowAt::Dir, there) if is_dir_then(there, then, &path) => {
                    now.dir_mode(&bytes).map(|from| {
                        let to = modes.of_dir(&bytes) | modes.unrecorded(from);
                        ModeChange::of_dir(bytes, from, to)
                    })
                }
                _ => None,
            };
            self.request.modes.extend(change.filter(|change| change.from != change.to));
        }
        Ok(())
    }

    /// Requests the removal of directories that the snapshot does not have, if they end up empty.
    fn empty_out(&mut self) -> Result<(), Error> {
        let Target { hash, meta: Some(meta), .. } = self.target else { return Ok(()) };
        let now_empty = &self.tracked.operation.meta.empty_dirs;
        let trees = Trees::new(&self.hold.store.objects);
        let mut candidates: BTreeSet<Vec<u8>> =
            now_empty.iter().map(|dir| dir.as_bytes().to_vec()).collect();
        let absent = self.request.wanted.iter().filter(|(_, wanted)| **wanted == Wanted::Absent);
        for path in absent.map(|(path, _)| path).chain(&candidates.clone()) {
            candidates.extend(dirs_above(path).map(<[u8]>::to_vec));
        }
        for dir in candidates {
            let asked = self.is_asked_for(&TreePath::from_scan(dir.clone()));
            // A scan does not enter ignored directories, so nothing may prove their absence.
            if asked
                && !is_dir_of(&trees, hash, Some(meta), &dir)?
                && !self.absence.doubts_dir(&dir)?
            {
                self.request.emptied.insert(dir);
            }
        }
        Ok(())
    }
}

/// Returns whether a path was a directory, with files or empty.
fn is_dir_then(entry: Option<Entry>, meta: &Meta, path: &TreePath) -> bool {
    let is_empty = || meta.empty_dirs.iter().any(|empty| empty.is_within(path));
    entry.map_or_else(is_empty, |entry| entry.kind.is_tree())
}
