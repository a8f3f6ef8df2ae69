//! Restoring and reverting: a safety snapshot, a plan, the plan applied, a report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::compare::{Change, Entry, Trees, changes, changes_by, find};
use crate::defect::Defect;
use crate::error::Error;
use crate::fs::{FileKind, MODE_BITS, free_bytes};
use crate::git::{EntryKind, ObjectId};
use crate::path::{TreePath, is_within};
use crate::restore::{
    Action, Journal, Kept, KeptReason, ModeChange, Now, NowAt, Plan, Record, Request, Wanted,
    apply, plan,
};
use crate::scan::{EntryStat, Progress, ReadOutcome, is_store_at};
use crate::store::{
    Details, LogIndex, Meta, NewOperation, Operation, OperationKind, PackWriter, TreeChange,
    WorkTree, edit_tree, read_companion, read_operation,
};

use super::absence::{Absence, is_dir_of, parents};
use super::track::{StoreKeep, Tracked, capture};
use super::units::Source;
use super::{Cause, Hold, Recovery, TrackOptions, Workspace, is_asked_for};

/// How to put a snapshot back.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// Also removes files created since, where the snapshot proves that they did not exist.
    /// Default: no.
    pub exact: bool,
    /// Only these paths and what is below them. Default: everything.
    pub paths: Vec<TreePath>,
    /// Allows removing an unusual share of the files. Default: no.
    pub allow_mass_removal: bool,
    /// Policy for files that another process has open. Default: they stay.
    pub in_use: OnUse,
    /// A person asked for it, so that a plain undo may take it back. Default: no.
    pub by_person: bool,
    /// Refuses if the plan is no longer the one with this hash. Default: none.
    pub expected_plan: Option<ObjectId>,
}

/// Policy for files that another process has open for writing, mapped writable or locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUse {
    /// It stays as it is and is reported with the process.
    #[default]
    Leave,
    /// It is replaced; the process goes on with the file that was there.
    Replace,
}

/// Files to take back to the state they had in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchToRevert {
    /// The snapshot.
    pub hash: ObjectId,
    /// The files, relative to the work tree.
    pub files: Vec<TreePath>,
}

/// A state to bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// A snapshot. Where several records share its hash, the newest decides about permissions and
    /// empty directories, which a hash does not cover.
    Snapshot(ObjectId),
    /// What one operation recorded, permissions and empty directories included.
    Operation(String),
    /// The same, of another log in the store: another work tree's, or one from elsewhere.
    OperationOf {
        /// The log's name, as [`Log::name`](crate::Log::name) has it.
        log: String,
        /// The operation.
        id: String,
    },
}

impl From<&ObjectId> for Point {
    fn from(id: &ObjectId) -> Point {
        Point::Snapshot(*id)
    }
}

impl From<ObjectId> for Point {
    fn from(id: ObjectId) -> Point {
        Point::Snapshot(id)
    }
}

impl std::str::FromStr for Point {
    type Err = crate::git::NotAHash;

    fn from_str(text: &str) -> Result<Point, Self::Err> {
        let is_operation = text.len() == 26 && text.bytes().all(|b| b.is_ascii_alphanumeric());
        match is_operation {
            true => Ok(Point::Operation(text.to_ascii_uppercase())),
            false => text.parse().map(Point::Snapshot),
        }
    }
}

/// A point that was found in the store.
struct Target {
    hash: ObjectId,
    meta: Option<Arc<Meta>>,
}

/// What a restore did, path by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// The snapshot taken before anything changed.
    pub safety: ObjectId,
    /// The operation that recorded it: restoring this undoes everything, permissions included.
    pub safety_operation: String,
    /// The snapshot taken afterwards.
    pub after: ObjectId,
    /// What was done.
    pub done: Vec<Action>,
    /// What stays as it is although the request touches it.
    pub kept: Vec<Kept>,
    /// Files of which the kernel could not say whether other processes have them open.
    pub not_checked: Vec<TreePath>,
    /// Replaced things that were changed by somebody else at the last moment and still lie under
    /// these names.
    pub left: Vec<String>,
    /// A restore that had been cut off and was finished before this one.
    pub recovered: Option<Recovery>,
    /// Why the state afterwards could not be recorded, if so; the files are as `done` says.
    pub not_recorded: Option<String>,
}

impl RestoreReport {
    /// Whether everything that was asked for was done.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty()
            && self.not_recorded.is_none()
            && !self.kept.iter().any(|kept| kept.reason.is_failure())
    }
}

/// Files that were captured although the rules leave them out.
/// Where an ignored file is saved before it is overwritten or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveIgnored {
    /// In the safety snapshot itself: restoring that brings it back.
    InTheSnapshot,
    /// In its companion, if it is there already: it is private, and redo knows it.
    Beside,
}

/// Options for turning a request into a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planning {
    pub(crate) ignored: SaveIgnored,
    pub(crate) in_use: OnUse,
}

type Forced = BTreeMap<Vec<u8>, (EntryStat, Entry)>;

/// What a plan is made from.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    safety: Operation,
    files: u64,
}

impl Workspace {
    /// What [`Workspace::restore`] would do now. Takes a snapshot, changes no file.
    pub fn plan_restore(
        &self,
        to: impl Into<Point>,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<Plan, Error> {
        let target = self.find_point(&to.into())?;
        let hold = self.begin()?;
        Ok(self.prepare_restore(&hold, &target, options, progress)?.plan)
    }

    /// Looks a point up before anything is recorded: the safety snapshot may have the same hash.
    fn find_point(&self, point: &Point) -> Result<Target, Error> {
        match point {
            Point::Snapshot(hash) => {
                let store = self.for_reading(hash)?;
                store.snapshot(hash)?;
                // Another work tree's snapshot may be the first thing asked for here.
                let own = self.existing()?.map(|(_, work_tree)| work_tree);
                let head = match &own {
                    Some(own) => store.refs.read(own.ref_name())?,
                    None => None,
                };
                let own = own.as_ref().map_or("", WorkTree::id);
                let meta = Absence::of(&store, *hash)?.meta_for(own, head);
                Ok(Target { hash: *hash, meta })
            }
            Point::Operation(id) | Point::OperationOf { id, .. } => {
                let unknown = || Error::UnknownOperation { id: id.clone() };
                let (store, work_tree) = match point {
                    Point::OperationOf { log, .. } => {
                        let store = self.readable()?.ok_or_else(unknown)?;
                        let work_tree = WorkTree::named(&store, log);
                        (store, work_tree)
                    }
                    _ => self.existing()?.ok_or_else(unknown)?,
                };
                let head = store.refs.read(work_tree.ref_name())?.ok_or_else(unknown)?;
                let mut log = LogIndex::open(&store, &work_tree, head)?;
                while let Some(entry) = log.next(&store)? {
                    if entry.id == *id {
                        store.snapshot(&entry.snapshot)?;
                        let meta = read_operation(&store.objects, &entry.commit)?.meta;
                        return Ok(Target { hash: entry.snapshot, meta: Some(Arc::new(meta)) });
                    }
                }
                // A checkpoint outlives its segment of the log.
                let operation = work_tree.checkpointed(&store, id)?.ok_or_else(unknown)?;
                store.snapshot(&operation.snapshot)?;
                Ok(Target { hash: operation.snapshot, meta: Some(Arc::new(operation.meta)) })
            }
        }
    }

    /// Brings the work tree back to a snapshot.
    ///
    /// Takes a snapshot first, so this can itself be undone. Only files that differ are written.
    /// Files created since stay, unless `exact` asks to remove them; ignored and skipped files
    /// always stay.
    pub fn restore(
        &self,
        to: impl Into<Point>,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let target = self.find_point(&to.into())?;
        let hold = self.begin()?;
        let prepared = self.prepare_restore(&hold, &target, options, progress)?;
        let cause = cause_by(OperationKind::Restore, options);
        self.carry_out(&hold, prepared, Some(target.hash), options, &cause, progress)
    }

    /// What [`Workspace::revert`] would do now.
    pub fn plan_revert(
        &self,
        patches: &[PatchToRevert],
        in_use: OnUse,
        progress: &Progress,
    ) -> Result<Plan, Error> {
        let Some(wanted) = self.wanted_by(patches)? else { return Ok(empty_plan()) };
        let hold = self.begin()?;
        Ok(self.prepare_revert(&hold, &wanted, in_use, progress)?.plan)
    }

    /// Takes single files back. Where several patches name a file, the first one counts.
    ///
    /// A file that its snapshot proves absent is removed; one that it cannot speak of is kept.
    pub fn revert(
        &self,
        patches: &[PatchToRevert],
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let wanted = self.wanted_by(patches)?.unwrap_or_default();
        let hold = self.begin()?;
        let prepared = self.prepare_revert(&hold, &wanted, options.in_use, progress)?;
        let cause = cause_by(OperationKind::Revert, options);
        self.carry_out(&hold, prepared, None, options, &cause, progress)
    }

    /// Which snapshot decides about which file; every snapshot is known to exist.
    fn wanted_by(
        &self,
        patches: &[PatchToRevert],
    ) -> Result<Option<BTreeMap<TreePath, ObjectId>>, Error> {
        let mut wanted = BTreeMap::new();
        for patch in patches {
            self.for_reading(&patch.hash)?.snapshot(&patch.hash)?;
            for file in &patch.files {
                wanted.entry(file.clone()).or_insert(patch.hash);
            }
        }
        Ok((!wanted.is_empty()).then_some(wanted))
    }

    fn prepare_restore(
        &self,
        hold: &Hold,
        target: &Target,
        options: &RestoreOptions,
        progress: &Progress,
    ) -> Result<Prepared, Error> {
        let store = &hold.store;
        let Target { hash, meta } = target;
        let tracked = self.track_before(hold, progress)?;
        let mut absence = Absence::of(store, *hash)?;
        let modes = Modes::of(meta.as_deref());
        let mut request = request_with(meta.as_deref());
        let (threads, now) = (self.options.threads, &tracked.operation.snapshot);
        let trees = Trees::new(&store.objects);
        for change in changes_by(threads, &store.objects, now, hash)? {
            if !is_asked_for(&change.path, &options.paths) {
                continue;
            }
            if change.after.is_none() && gives_way(&trees, hash, &change.path)? {
                request.wanted.insert(change.path.as_bytes().to_vec(), Wanted::Absent);
                continue;
            }
            match change.after {
                Some(entry) => want(&mut request, &modes, &change, entry),
                None if !options.exact => {
                    let Change { path, .. } = change;
                    request.kept.push(Kept { path, reason: KeptReason::CreatedSince });
                }
                None => match absence.doubt(&change.path)? {
                    Some(reason) => request.kept.push(Kept { path: change.path, reason }),
                    None => {
                        request.wanted.insert(change.path.as_bytes().to_vec(), Wanted::Absent);
                    }
                },
            }
        }
        if let Some(meta) = meta.as_deref() {
            want_dirs(&mut request, meta, options);
            want_modes(&mut request, hold, &tracked, meta, hash, options)?;
        }
        if options.exact {
            empty_out(&mut request, hold, &tracked, hash, meta.as_deref(), options)?;
        }
        let source = Source::of(hold, *hash, Absence::of(store, *hash)?, meta.as_deref());
        let how = Planning { ignored: SaveIgnored::InTheSnapshot, in_use: options.in_use };
        self.plan_from(hold, &tracked, request, vec![source], how)
    }

    fn prepare_revert(
        &self,
        hold: &Hold,
        wanted: &BTreeMap<TreePath, ObjectId>,
        in_use: OnUse,
        progress: &Progress,
    ) -> Result<Prepared, Error> {
        let store = &hold.store;
        let tracked = self.track_before(hold, progress)?;
        let mut sources: BTreeMap<ObjectId, (Absence<'_>, Option<Arc<Meta>>)> = BTreeMap::new();
        for hash in wanted.values() {
            if !sources.contains_key(hash) {
                let absence = Absence::of(store, *hash)?;
                let head = Some(tracked.operation.commit);
                let meta = absence.meta_for(hold.work_tree.id(), head);
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
            for dir in parents(path.as_bytes()) {
                // Patches are in order of preference, so the first snapshot decides.
                request.dir_modes.entry(dir.to_vec()).or_insert_with(|| modes.of_dir(dir));
            }
            let before = trees.find(&tracked.operation.snapshot, path)?;
            match trees.find(hash, path)? {
                Some(entry) if !entry.kind.is_tree() => {
                    let change = Change { path: path.clone(), before, after: Some(entry) };
                    want(&mut request, modes, &change, entry);
                }
                // A directory then: its files are named themselves, the path was no file.
                Some(_) => drop(request.wanted.insert(path.as_bytes().to_vec(), Wanted::Absent)),
                None => match absence.doubt(path)? {
                    Some(reason) => request.kept.push(Kept { path: path.clone(), reason }),
                    None => {
                        request.wanted.insert(path.as_bytes().to_vec(), Wanted::Absent);
                        for dir in parents(path.as_bytes()) {
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
            .map(|(hash, (absence, meta))| Source::of(hold, hash, absence, meta.as_deref()));
        let how = Planning { ignored: SaveIgnored::InTheSnapshot, in_use };
        self.plan_from(hold, &tracked, request, sources.collect(), how)
    }

    fn track_before(&self, hold: &Hold, progress: &Progress) -> Result<Tracked, Error> {
        let options = TrackOptions::default();
        self.track_locked(hold, &options, &Cause::before_change(), progress)
    }

    /// Saves what would be overwritten and is in no snapshot yet, then plans.
    pub(crate) fn plan_from(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        mut request: Request,
        mut sources: Vec<Source<'_>>,
        how: Planning,
    ) -> Result<Prepared, Error> {
        let Planning { ignored, in_use } = how;
        self.leave_stores_alone(hold, tracked, &mut request);
        leave_unreadable_alone(tracked, &mut request);
        self.keep_together(hold, tracked, &mut request, &mut sources, in_use)?;
        let (forced, dirs) = self.save_unsaved(hold, tracked, &mut request)?;
        let safety = match ignored {
            SaveIgnored::InTheSnapshot => self.record_forced(hold, tracked, &forced)?,
            SaveIgnored::Beside => {
                let unkept = not_kept(hold, tracked, &forced)?;
                self.record_forced(hold, tracked, &unkept)?
            }
        };
        let files = tracked.snapshot.files + forced.len() as u64;
        let now = Now { listing: &tracked.listing, forced, dirs };
        let mut plan = plan(&now, &request);
        note_other_names(hold, &now, &mut plan);
        plan.replaces_used = in_use == OnUse::Replace;
        Ok(Prepared { plan, safety, files })
    }

    /// Takes stores and the user's repository out of the request, whoever named them.
    ///
    /// Snapshots of 0.1.0 may hold the files of another store. Each such store is reported once.
    fn leave_stores_alone(&self, hold: &Hold, tracked: &Tracked, request: &mut Request) {
        let forbidden = self.forbidden(&hold.store);
        let stores = stores_named_by(hold, tracked, request);
        let own = |path: &[u8]| forbidden.iter().any(|dir| is_within(path, dir));
        let store = |path: &[u8]| stores.iter().find(|dir| is_within(path, dir));
        let ours = |path: &[u8]| own(path) || store(path).is_some();
        let named: Vec<Vec<u8>> =
            request.wanted.keys().filter(|path| ours(path)).cloned().collect();
        let mut kept = BTreeMap::new();
        for path in named {
            request.wanted.remove(&path);
            let (path, why) = match store(&path) {
                Some(dir) => (dir.clone(), "it is a ctrlz store, which is never changed"),
                None => (path, "it belongs to a repository"),
            };
            kept.insert(path, why);
        }
        request.kept.extend(kept.into_iter().map(|(path, why)| {
            let reason = KeptReason::CannotBeSaved { why: why.into() };
            Kept { path: TreePath::from_scan(path), reason }
        }));
        request.dirs.retain(|path, _| !ours(path));
        request.emptied.retain(|path| !ours(path));
        request.modes.retain(|change| !ours(&change.path));
    }

    /// Captures every file that stands in the way of the request and that the rules leave out.
    fn save_unsaved(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        request: &mut Request,
    ) -> Result<(Forced, BTreeSet<Vec<u8>>), Error> {
        let now = Now::of(&tracked.listing);
        let mut dirs: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut clear: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut in_the_way: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut unclear: BTreeMap<Vec<u8>, KeptReason> = BTreeMap::new();
        let paths: Vec<Vec<u8>> =
            request.wanted.keys().chain(request.dirs.keys()).cloned().collect();
        for path in paths {
            let whole = std::iter::once(path.as_slice());
            for part in whole.chain(parents(&path)) {
                if clear.contains(part) {
                    continue;
                }
                match self.stands_at(hold, &now, part) {
                    Standing::Saved => drop(clear.insert(part.to_vec())),
                    Standing::Dir => {
                        dirs.insert(part.to_vec());
                        clear.insert(part.to_vec());
                    }
                    Standing::Unsaved => drop(in_the_way.insert(part.to_vec())),
                    Standing::Blocked(reason) => drop(unclear.insert(path.clone(), reason)),
                }
            }
        }
        let mut forced = BTreeMap::new();
        let pack = PackWriter::new(&hold.store.objects_dir());
        let keep = StoreKeep::new(&hold.store, &pack);
        for path in in_the_way {
            let kind = super::track::look(&hold.root, &path)?;
            let outcome = match kind {
                Some(kind) => capture(&hold.root, &path, kind, &keep)?,
                None => ReadOutcome::Gone,
            };
            match outcome {
                ReadOutcome::Read { stat, id, .. } => {
                    if let Some(kind) = crate::restore::entry_kind(&stat) {
                        forced.insert(path, (stat, Entry { kind, id }));
                    }
                }
                ReadOutcome::Gone => (),
                ReadOutcome::Skip(reason) => {
                    let reason = KeptReason::CannotBeSaved { why: reason.describe() };
                    for wanted in request.wanted.keys().chain(request.dirs.keys()) {
                        if crate::path::is_within(wanted, &path) {
                            unclear.insert(wanted.clone(), reason.clone());
                        }
                    }
                }
            }
        }
        if !Defect::Unsaved.is_made() {
            pack.publish()?;
        }
        hold.store.objects.refresh()?;
        leave_alone(request, unclear);
        Ok((forced, dirs))
    }

    /// Whether what stands at `path` on disk is in the safety snapshot.
    fn stands_at(&self, hold: &Hold, now: &Now<'_>, path: &[u8]) -> Standing {
        if matches!(now.at(path), NowAt::File { .. }) {
            return Standing::Saved;
        }
        let kind = match super::track::look(&hold.root, path) {
            Ok(kind) => kind,
            Err(error) => {
                let why = error.to_string();
                return Standing::Blocked(KeptReason::CannotBeSaved { why });
            }
        };
        match kind {
            None => Standing::Saved,
            Some(FileKind::File | FileKind::Symlink) => Standing::Unsaved,
            // A directory is looked into when the plan wants to replace it.
            Some(FileKind::Dir) => Standing::Dir,
            Some(FileKind::Special) => Standing::Blocked(KeptReason::CannotBeSaved {
                why: "a fifo, socket or device".into(),
            }),
        }
    }

    /// Records a snapshot that also holds the forced files; gives the safety snapshot.
    fn record_forced(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        forced: &Forced,
    ) -> Result<Operation, Error> {
        let last = &tracked.operation;
        if forced.is_empty() {
            return Ok(last.clone());
        }
        let changes: BTreeMap<Vec<u8>, TreeChange> = forced
            .iter()
            .map(|(path, (_, entry))| (path.clone(), Some((entry.kind, entry.id))))
            .collect();
        let pack = PackWriter::new(&hold.store.objects_dir());
        let tree = edit_tree(&hold.store.objects, &pack, last.snapshot, &changes)?;
        let mut meta = last.meta.clone();
        for (path, (stat, entry)) in forced {
            let mode = stat.mode & MODE_BITS;
            meta.skipped.retain(|skipped| skipped.path != *path);
            if entry.kind.is_file() && mode != meta.common.of_file(mode) {
                meta.modes.push((crate::path::PathText::from_bytes(path), mode));
            }
        }
        meta.sort();
        let new = NewOperation {
            kind: OperationKind::Outside,
            snapshot: tree,
            meta,
            details: Details::default(),
            companion: None,
        };
        Ok(hold.work_tree.append(&hold.store, pack, Some(last), new)?.0)
    }

    /// Applies a plan and records the result.
    pub(crate) fn carry_out(
        &self,
        hold: &Hold,
        prepared: Prepared,
        target: Option<ObjectId>,
        options: &RestoreOptions,
        cause: &Cause,
        progress: &Progress,
    ) -> Result<RestoreReport, Error> {
        let Prepared { plan, safety, files } = prepared;
        let safety_snapshot = safety.snapshot;
        if options.expected_plan.is_some_and(|expected| expected != plan.hash) {
            return Err(Error::StalePlan);
        }
        check_mass_removal(&plan, files, options)?;
        let mut report = RestoreReport {
            safety: safety.snapshot,
            safety_operation: safety.id,
            after: safety.snapshot,
            done: plan.actions.clone(),
            kept: plan.kept.clone(),
            not_checked: plan.not_checked.clone(),
            left: Vec::new(),
            recovered: hold.recovered.clone(),
            not_recorded: None,
        };
        if plan.units.is_empty() && plan.modes.is_empty() && plan.emptied.is_empty() {
            if cause.always {
                self.track_locked(hold, &TrackOptions::default(), cause, progress)?;
            }
            return Ok(report);
        }
        self.check_room(hold, &plan)?;
        // A kill must not make an undo that nobody can redo, so its record is in the journal too.
        let rewinds = !cause.details.undone.is_empty() || cause.details.takes_back.is_some();
        let record = rewinds.then(|| Record {
            kind: cause.kind,
            details: cause.details.clone(),
            since: report.safety_operation.clone(),
        });
        let journal = hold.work_tree.journal_path();
        let applied = apply(
            &hold.root,
            &hold.store.objects,
            &plan,
            &journal,
            (target, safety_snapshot, record),
            self.options.threads.max(1),
            &|dir, name, path| self.rescue(hold, dir, name, path),
        )?;
        report.left = applied.left.iter().map(|path| crate::path::escape(path)).collect();
        report.kept.extend(applied.without_special_bits.into_iter().map(|path| {
            let reason = KeptReason::SpecialBitsDropped;
            Kept { path: TreePath::from_scan(path), reason }
        }));
        if Defect::Escaping.is_made() {
            crate::fs::private::overwrite(&self.root.with_file_name("escaped"), b"from here")?;
        }
        // The files are changed; failing to record that must not look like a failed restore.
        let cause = Cause { placed: applied.placed, ..cause.clone() };
        match self.track_locked(hold, &TrackOptions::default(), &cause, progress) {
            Ok(tracked) => {
                report.after = tracked.operation.snapshot;
                if rewinds {
                    Journal::remove(&journal)?;
                }
            }
            Err(error) => report.not_recorded = Some(error.to_string()),
        }
        Ok(report)
    }

    /// Records a file that somebody wrote at the last moment, as it belongs at `path`.
    pub(crate) fn rescue(
        &self,
        hold: &Hold,
        dir: &crate::fs::Dir,
        name: &[u8],
        path: &[u8],
    ) -> Result<(), Error> {
        let moved = || Error::Moved { path: TreePath::from_scan(path.to_vec()) };
        let last = hold.work_tree.last(&hold.store)?.ok_or_else(moved)?;
        let pack = PackWriter::new(&hold.store.objects_dir());
        let keep = StoreKeep::new(&hold.store, &pack);
        let kind = dir.stat(name)?.ok_or_else(moved)?.kind;
        let ReadOutcome::Read { stat, id, .. } = crate::scan::read_entry(dir, name, kind, &keep)?
        else {
            return Err(moved());
        };
        let kind = crate::restore::entry_kind(&stat).ok_or_else(moved)?;
        let changes = BTreeMap::from([(path.to_vec(), Some((kind, id)))]);
        let tree = edit_tree(&hold.store.objects, &pack, last.snapshot, &changes)?;
        let new = NewOperation {
            kind: OperationKind::Outside,
            snapshot: tree,
            meta: last.meta.clone(),
            details: Details::default(),
            companion: None,
        };
        hold.work_tree.append(&hold.store, pack, Some(&last), new).map(drop)
    }

    /// Checks that every blob is there and that the new files fit beside the old ones.
    fn check_room(&self, hold: &Hold, plan: &Plan) -> Result<(), Error> {
        let mut needed = 0;
        for id in plan.blobs() {
            match hold.store.objects.header(&id)? {
                Some((_, bytes)) => needed += bytes,
                None => return Err(Error::Damaged { id, why: "it is missing".into() }),
            }
        }
        let free = free_bytes(&self.root)?;
        if needed > free {
            let path = self.root.clone();
            return Err(Error::NoSpace { path, needed_bytes: needed, free_bytes: free });
        }
        Ok(())
    }
}

fn cause_by(kind: OperationKind, options: &RestoreOptions) -> Cause {
    let details = Details { by_person: options.by_person, ..Details::default() };
    Cause { details, ..Cause::of(kind) }
}

/// Returns the stores that the request reaches into: those on disk, and those that it would create
/// from the snapshot.
fn stores_named_by(hold: &Hold, tracked: &Tracked, request: &Request) -> BTreeSet<Vec<u8>> {
    let listed = &tracked.listing.dirs;
    // The scan entered it, so it is no store.
    let is_entered =
        |path: &[u8]| listed.binary_search_by(|dir| dir.path.as_slice().cmp(path)).is_ok();
    let dirs = request.dirs.keys().chain(&request.emptied);
    let modes = request.modes.iter().map(|change| &change.path);
    let dirs = dirs.chain(modes).map(|path| path.as_slice());
    let above = request.wanted.keys().map(|path| crate::path::split(path).0);
    let mut judged: BTreeSet<&[u8]> = BTreeSet::new();
    let mut stores = BTreeSet::new();
    for path in dirs.chain(above) {
        for dir in std::iter::once(path).chain(parents(path)) {
            if !judged.insert(dir) {
                break;
            }
            if !is_entered(dir) && is_store_at(&hold.root, dir) {
                stores.insert(dir.to_vec());
            }
        }
    }
    let creates = |path: &[u8]| matches!(request.wanted.get(path), Some(Wanted::Entry { .. }));
    for path in request.wanted.keys().filter(|path| creates(path)) {
        if let Some(dir) = path.strip_suffix(b"/ctrlz/format")
            && creates(&crate::path::join(dir, b"HEAD"))
        {
            stores.insert(dir.to_vec());
        }
    }
    stores
}

/// Reports files that are replaced and have names that no snapshot looks at: hard links outside of the
/// work tree or in ignored places, which keep the content that is replaced here.
fn note_other_names(hold: &Hold, now: &Now<'_>, plan: &mut Plan) {
    let inode_of = |path: &[u8]| match now.at(path) {
        NowAt::File { stat, .. } => Some(stat.inode),
        NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_) => None,
    };
    for action in &plan.actions {
        let Action::Overwrite { path } = action else { continue };
        let (parent, name) = crate::path::split(path.as_bytes());
        let Some(stat) = hold.root.glimpse(parent).and_then(|dir| dir.stat(name)) else { continue };
        if stat.kind != FileKind::File || stat.links < 2 {
            continue;
        }
        let listed = now.listing.linked.iter();
        let names = listed.filter(|other| inode_of(other) == Some(stat.inode)).count();
        let is_known = plan.kept.iter().any(|kept| kept.path == *path);
        if names < stat.links as usize && !is_known {
            plan.kept.push(Kept { path: path.clone(), reason: KeptReason::Separated });
        }
    }
}

/// What the present snapshot failed to read is not touched, and the report says so.
fn leave_unreadable_alone(tracked: &Tracked, request: &mut Request) {
    for skipped in tracked.snapshot.skipped.iter().filter(|skipped| skipped.reason.is_failure()) {
        let Ok(path) = TreePath::parse(&skipped.path) else { continue };
        let inside = |other: &[u8]| crate::path::is_within(other, &skipped.path);
        request.wanted.retain(|wanted, _| !inside(wanted));
        request.dirs.retain(|dir, _| !inside(dir));
        request.emptied.retain(|dir| !inside(dir));
        let why = skipped.reason.describe();
        request.kept.push(Kept { path, reason: KeptReason::CannotBeSaved { why } });
    }
}

/// Takes paths out of a request, and with each what shares its fate: where a file and a directory
/// change places, both halves happen or none does.
fn leave_alone(request: &mut Request, mut unclear: BTreeMap<Vec<u8>, KeptReason>) {
    let within = crate::path::is_within;
    for path in request.wanted.keys().chain(request.dirs.keys()) {
        let shared = unclear.iter().find(|(other, _)| within(path, other) || within(other, path));
        if let Some((_, reason)) = shared
            && !unclear.contains_key(path)
        {
            let reason = reason.clone();
            unclear.insert(path.clone(), reason);
        }
    }
    for (path, reason) in unclear {
        request.wanted.remove(&path);
        request.dirs.remove(&path);
        request.emptied.retain(|dir| !within(dir, &path));
        request.kept.push(Kept { path: TreePath::from_scan(path), reason });
    }
}

enum Standing {
    Saved,
    Dir,
    Unsaved,
    Blocked(KeptReason),
}

fn empty_plan() -> Plan {
    plan(&Now::of(&crate::scan::Listing::default()), &Request::default())
}

/// Refuses to remove so much that a mistake is more likely than a wish.
pub(crate) fn check_mass_removal(
    plan: &Plan,
    files: u64,
    options: &RestoreOptions,
) -> Result<(), Error> {
    let removed = plan.removed_files() as u64;
    let unusual = removed >= 50 || (removed >= 10 && removed * 5 > files);
    if unusual && !options.allow_mass_removal {
        return Err(Error::MassChange { removed, files });
    }
    Ok(())
}

/// Permissions as a snapshot's newest record has them.
pub(crate) struct Modes<'a> {
    meta: Option<&'a Meta>,
    listed: std::collections::HashMap<Vec<u8>, u32>,
}

impl Modes<'_> {
    pub(crate) fn of(meta: Option<&Meta>) -> Modes<'_> {
        Modes { meta, listed: meta.map(Meta::mode_map).unwrap_or_default() }
    }

    /// The set-user-id, set-group-id and sticky bits of a path that has `present` permissions, if
    /// the snapshot does not record them: they stay.
    pub(crate) fn unrecorded(&self, present: u32) -> u32 {
        self.meta.map_or(present & 0o7000, |meta| meta.unrecorded_bits(present))
    }

    fn of_dir(&self, path: &[u8]) -> u32 {
        let common = self.meta.map_or(0o755, |meta| meta.common.dir);
        self.listed.get(path).copied().unwrap_or(common)
    }

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

/// Whether a file stands where the snapshot has a directory, or below a path where it has a file.
fn gives_way(trees: &Trees<'_>, hash: &ObjectId, path: &TreePath) -> Result<bool, Error> {
    if trees.find(hash, path)?.is_some_and(|entry| entry.kind.is_tree()) {
        return Ok(true);
    }
    for above in parents(path.as_bytes()) {
        let found = trees.find(hash, &TreePath::from_scan(above.to_vec()))?;
        if found.is_some_and(|entry| !entry.kind.is_tree()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Empty directories of the snapshot that are to exist again.
fn want_dirs(request: &mut Request, meta: &Meta, options: &RestoreOptions) {
    let modes = meta.mode_map();
    for dir in &meta.empty_dirs {
        if is_asked_for(dir, &options.paths) {
            let mode = modes.get(dir.as_bytes()).copied().unwrap_or(meta.common.dir);
            request.dirs.insert(dir.as_bytes().to_vec(), mode);
        }
    }
}

/// Permissions that changed where the content did not.
fn want_modes(
    request: &mut Request,
    hold: &Hold,
    tracked: &Tracked,
    then: &Meta,
    hash: &ObjectId,
    options: &RestoreOptions,
) -> Result<(), Error> {
    let now_meta = &tracked.operation.meta;
    if now_meta.common == then.common && now_meta.modes == then.modes {
        return Ok(());
    }
    let objects = &hold.store.objects;
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
        if !is_asked_for(&path, &options.paths) {
            continue;
        }
        match (now.at(&bytes), trees.find(hash, &path)?) {
            (NowAt::File { stat, entry: there, .. }, Some(entry))
                if there == entry && entry.kind.is_file() =>
            {
                let from = stat.mode & MODE_BITS;
                let to = modes.of_file(&bytes, entry.kind) | modes.unrecorded(from);
                if from != to {
                    request.modes.push(ModeChange { path: bytes, from, to, is_dir: false });
                }
            }
            (NowAt::Dir, there) if is_dir_then(there, then, &path) => {
                let to = modes.listed.get(&bytes).copied().unwrap_or(then.common.dir);
                if let Some(from) = now.dir_mode(&bytes)
                    && let to = to | modes.unrecorded(from)
                    && from != to
                {
                    request.modes.push(ModeChange { path: bytes, from, to, is_dir: true });
                }
            }
            _ => (),
        }
    }
    Ok(())
}

/// Whether a path was a directory: one with files, or an empty one.
fn is_dir_then(entry: Option<Entry>, meta: &Meta, path: &TreePath) -> bool {
    let is_empty = || meta.empty_dirs.iter().any(|empty| empty.is_within(path));
    entry.map_or_else(is_empty, |entry| entry.kind.is_tree())
}

/// Directories that the snapshot does not have, to be removed if nothing is left in them.
fn empty_out(
    request: &mut Request,
    hold: &Hold,
    tracked: &Tracked,
    hash: &ObjectId,
    meta: Option<&Meta>,
    options: &RestoreOptions,
) -> Result<(), Error> {
    if meta.is_none() {
        return Ok(());
    }
    let now_empty = tracked.operation.meta.empty_dirs.iter().map(|dir| dir.as_bytes().to_vec());
    let trees = Trees::new(&hold.store.objects);
    let mut candidates: BTreeSet<Vec<u8>> = now_empty.collect();
    let absent = request.wanted.iter().filter(|(_, wanted)| **wanted == Wanted::Absent);
    for path in absent.map(|(path, _)| path).chain(&candidates.clone()) {
        candidates.extend(parents(path).map(<[u8]>::to_vec));
    }
    for dir in candidates {
        let asked = is_asked_for(&TreePath::from_scan(dir.clone()), &options.paths);
        if asked && !is_dir_of(&trees, hash, meta, &dir)? {
            request.emptied.insert(dir);
        }
    }
    Ok(())
}

/// The forced files that the companion does not hold as they are.
fn not_kept(hold: &Hold, tracked: &Tracked, forced: &Forced) -> Result<Forced, Error> {
    let Some(companion) = tracked.operation.meta.companion else { return Ok(forced.clone()) };
    let companion = read_companion(&hold.store.objects, &companion)?;
    let mut left = Forced::new();
    for (path, (stat, entry)) in forced {
        let kept = find(&hold.store.objects, &companion.tree, &TreePath::from_scan(path.clone()))?;
        if kept != Some(*entry) {
            left.insert(path.clone(), (*stat, *entry));
        }
    }
    Ok(left)
}
