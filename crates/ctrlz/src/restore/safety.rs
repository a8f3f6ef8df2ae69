//! The safety snapshot: everything that a plan overwrites or removes is saved first, or left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::compare::{Entry, Now, NowAt, find};
use crate::defect::Defect;
use crate::error::Error;
use crate::fs::{FileKind, Glimpse, MODE_BITS, Stat, check_free};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{Details, Moved, NewOperation, Operation, OperationKind, read_ignored};
use crate::pack::{Objects, PackWriter};
use crate::path::{TreePath, dirs_above, is_within};
use crate::record::{Recorded, StoreKeep, capture, look};
use crate::scan::{EntryStat, ReadOutcome, is_store_at};
use crate::store::{TreeChange, edit_tree};

use super::plan::{Action, Kept, KeptReason, NewThing, Plan, Request, Unit, Wanted};
use super::planner::plan;
use super::report::OnUse;
use super::units::Source;

/// Place where an ignored file is saved before it is overwritten or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveIgnored {
    /// The safety snapshot itself. Restoring it restores the file.
    InTheSnapshot,
    /// The ignored snapshot, if it already holds the file. It is private, and redo reads it.
    Beside,
}

/// Options for turning a request into a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planning {
    pub(crate) ignored: SaveIgnored,
    pub(crate) in_use: OnUse,
}

/// Files that were captured although a scan leaves them out.
pub(super) type Forced = BTreeMap<Vec<u8>, (EntryStat, Entry)>;

/// A plan with its safety snapshot.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// Snapshot to restore, if the plan is for a single one.
    pub(super) target: Option<ObjectId>,
    pub(super) safety: Operation,
    pub(super) files: u64,
}

impl Hold {
    /// Saves the files that would be overwritten and are in no snapshot yet, then makes the plan.
    pub(crate) fn plan_from(
        &self,
        tracked: &Recorded,
        mut request: Request,
        mut sources: Vec<Source<'_>>,
        how: Planning,
    ) -> Result<Prepared, Error> {
        let Planning { ignored, in_use } = how;
        self.leave_stores_alone(tracked, &mut request);
        leave_unreadable_alone(tracked, &mut request);
        leave_read_only_alone(self, &mut request);
        leave_misled_alone(self, tracked, &mut request)?;
        self.keep_together(tracked, &mut request, &mut sources, in_use)?;
        let (forced, dirs) = self.save_unsaved(tracked, &mut request)?;
        let safety = match ignored {
            SaveIgnored::InTheSnapshot => self.record_forced(tracked, &forced)?,
            SaveIgnored::Beside => {
                let unkept = not_kept(self, tracked, &forced)?;
                self.record_forced(tracked, &unkept)?
            }
        };
        let files = tracked.snapshot.files + forced.len() as u64;
        let now = Now { listing: &tracked.listing, forced, dirs };
        for dir in request.emptied.iter().filter(|dir| now.dir(dir).is_none()) {
            let names = self.root.open_below(dir).and_then(|dir| dir.names());
            // Errors are ignored: an unreadable directory is not removed.
            request.unlisted.extend(names.ok().map(|names| (dir.clone(), names)));
        }
        let mut plan = plan(&now, &request);
        link_again(self, &now, &request, &mut plan);
        note_other_names(self, &now, &mut plan);
        plan.unlinked = removed_links(&now, &plan);
        plan.replaces_used = in_use == OnUse::Replace;
        plan.mass_removal = plan.mass_removal_of(files);
        if !plan.units.is_empty() {
            check_room(&self.store.objects, &self.context.root, &plan)?;
        }
        Ok(Prepared { plan, target: None, safety, files })
    }

    /// Removes stores and the user's repository from the request.
    ///
    /// Snapshots of 0.1.0 may hold the files of another store. Each such store is reported once.
    fn leave_stores_alone(&self, tracked: &Recorded, request: &mut Request) {
        let forbidden = self.forbidden();
        let stores = stores_named_by(self, tracked, request);
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

    /// Captures the files that the request replaces and that a scan leaves out. Also returns the
    /// directories on disk at or above the requested paths.
    fn save_unsaved(
        &self,
        tracked: &Recorded,
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
            for part in whole.chain(dirs_above(&path)) {
                if clear.contains(part) {
                    continue;
                }
                match self.stands_at(&now, part) {
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
        let pack = PackWriter::new(&self.store.objects_dir());
        let keep = StoreKeep::new(&self.store, &pack);
        for path in in_the_way {
            let kind = look(&self.root, &path)?;
            let outcome = match kind {
                Some(kind) => capture(&self.root, &path, kind, &keep)?,
                None => ReadOutcome::Gone,
            };
            match outcome {
                ReadOutcome::Read { stat, id, .. } => {
                    if let Some(kind) = crate::compare::entry_kind(&stat) {
                        forced.insert(path, (stat, Entry { kind, id }));
                    }
                }
                ReadOutcome::Gone => (),
                ReadOutcome::Skip(reason) => {
                    let reason = KeptReason::CannotBeSaved { why: reason.to_string() };
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
        self.store.objects.refresh()?;
        leave_alone(request, unclear);
        Ok((forced, dirs))
    }

    /// Checks whether the safety snapshot holds the file at `path`.
    fn stands_at(&self, now: &Now<'_>, path: &[u8]) -> Standing {
        if matches!(now.at(path), NowAt::File { .. }) {
            return Standing::Saved;
        }
        let kind = match look(&self.root, path) {
            Ok(kind) => kind,
            Err(error) => {
                let why = error.to_string();
                return Standing::Blocked(KeptReason::CannotBeSaved { why });
            }
        };
        match kind {
            None => Standing::Saved,
            Some(FileKind::File | FileKind::Symlink) => Standing::Unsaved,
            // Its contents are checked when the plan replaces it.
            Some(FileKind::Dir) => Standing::Dir,
            Some(FileKind::Special) => Standing::Blocked(KeptReason::CannotBeSaved {
                why: "a fifo, socket or device".into(),
            }),
        }
    }

    /// Records a snapshot that also holds the forced files, and returns it as the safety snapshot.
    fn record_forced(&self, tracked: &Recorded, forced: &Forced) -> Result<Operation, Error> {
        let last = &tracked.operation;
        if forced.is_empty() {
            return Ok(last.clone());
        }
        let changes: BTreeMap<Vec<u8>, TreeChange> = forced
            .iter()
            .map(|(path, (_, entry))| (path.clone(), Some((entry.kind, entry.id))))
            .collect();
        let pack = PackWriter::new(&self.store.objects_dir());
        let tree = edit_tree(&self.store.objects, &pack, last.snapshot, &changes)?;
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
            ignored_snapshot: None,
        };
        Ok(self.work_tree.append(&self.store, pack, Some(last), new)?.0)
    }
}

/// Returns the stores that the request reaches into: those on disk, and those that it would create
/// from the snapshot.
fn stores_named_by(hold: &Hold, tracked: &Recorded, request: &Request) -> BTreeSet<Vec<u8>> {
    let listed = &tracked.listing.dirs;
    // A scan does not enter stores.
    let is_entered =
        |path: &[u8]| listed.binary_search_by(|dir| dir.path.as_slice().cmp(path)).is_ok();
    let dirs = request.dirs.keys().chain(&request.emptied);
    let modes = request.modes.iter().map(|change| &change.path);
    let dirs = dirs.chain(modes).map(|path| path.as_slice());
    let above = request.wanted.keys().map(|path| crate::path::split(path).0);
    let mut judged: BTreeSet<&[u8]> = BTreeSet::new();
    let mut stores = BTreeSet::new();
    for path in dirs.chain(above) {
        for dir in std::iter::once(path).chain(dirs_above(path)) {
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

/// Checks that all blobs exist and that the new files fit on the disk beside the old ones.
pub(crate) fn check_room(objects: &Objects, dir: &Path, plan: &Plan) -> Result<(), Error> {
    let mut needed = 0;
    for id in plan.blobs() {
        needed += objects.header(&id)?.ok_or_else(|| Error::missing(&id))?.1;
    }
    check_free(dir, |_| needed)
}

/// Plans hard links for files that were links to another one, which still exists unchanged or
/// changes alike. Reports the others as separated. The kernel may refuse links to files of other
/// users.
fn link_again(hold: &Hold, now: &Now<'_>, request: &Request, plan: &mut Plan) {
    let me = rustix::process::geteuid();
    for (path, other) in &request.relinked {
        let Some(Wanted::Entry { entry, mode }) = request.wanted.get(path) else { continue };
        let is_leaf = |unit: &Unit| matches!(unit.new, Some(NewThing::Leaf { .. }));
        let unit_at =
            |path: &[u8]| plan.units.iter().position(|unit| unit.path == *path && is_leaf(unit));
        let unit = unit_at(path);
        if let (Some(unit), Some(with)) = (unit, unit_at(other))
            && plan.units[unit].new == plan.units[with].new
        {
            link_together(&mut plan.links, unit, with);
            continue;
        }
        let is_left = !plan.units.iter().any(|unit| is_within(other, &unit.path))
            && !plan.modes.iter().any(|planned| planned.path == *other);
        let (dir, name) = crate::path::split(other);
        let there = hold.root.glimpse(dir).and_then(|dir| dir.stat(name));
        let is_own = there.is_some_and(|stat| me.is_root() || stat.uid == me.as_raw());
        let same = match now.at(other) {
            NowAt::File { entry: now, stat, .. } if now.is_same_content(entry) => {
                (stat.mode & MODE_BITS == *mode).then_some(stat.inode)
            }
            _ => None,
        };
        match (unit, same.filter(|_| is_left && is_own)) {
            (Some(unit), Some(inode)) => plan.relinked.push((unit, other.clone(), inode)),
            _ if plan.actions.iter().any(|action| action.path().as_bytes() == path) => {
                let path = TreePath::from_scan(path.clone());
                plan.kept.push(Kept { path, reason: KeptReason::Separated });
            }
            _ => (),
        }
    }
}

/// Adds two units to the same group of hard links.
fn link_together(groups: &mut Vec<Vec<usize>>, one: usize, other: usize) {
    let group_of = |unit: usize| groups.iter().position(|group| group.contains(&unit));
    match (group_of(one), group_of(other)) {
        (None, None) => groups.push(vec![one, other]),
        (Some(group), None) => groups[group].push(other),
        (None, Some(group)) => groups[group].push(one),
        (Some(_), Some(_)) => (),
    }
}

/// Returns the hard links that a plan removes, each with another name of the file, so that a redo
/// can link them again.
fn removed_links(now: &Now<'_>, plan: &Plan) -> Vec<Moved> {
    let mut names: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for path in &now.listing.linked {
        if let NowAt::File { stat, .. } = now.at(path) {
            names.entry(stat.inode).or_default().push(path);
        }
    }
    let is_removed = |path: &&[u8]| {
        let at = plan.units.binary_search_by(|unit| unit.path.as_slice().cmp(path));
        at.is_ok_and(|at| plan.units[at].new.is_none())
    };
    let path = |path: &[u8]| TreePath::from_scan(path.to_vec());
    let removed = names.values().flat_map(|names| {
        let to = *names.iter().find(|name| !is_removed(name)).unwrap_or(&names[0]);
        let from = names.iter().filter(move |name| **name != to && is_removed(name));
        from.map(move |from| Moved { from: path(from), to: path(to) })
    });
    removed.collect()
}

/// Reports replaced files that have hard links outside the work tree or in ignored directories.
/// Those links keep the replaced content.
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

/// Leaves paths alone that the present snapshot could not read, and reports them.
fn leave_unreadable_alone(tracked: &Recorded, request: &mut Request) {
    for skipped in tracked.snapshot.skipped.iter().filter(|skipped| skipped.reason.is_failure()) {
        let Ok(path) = TreePath::parse(&skipped.path) else { continue };
        let inside = |other: &[u8]| crate::path::is_within(other, &skipped.path);
        request.wanted.retain(|wanted, _| !inside(wanted));
        request.dirs.retain(|dir, _| !inside(dir));
        request.emptied.retain(|dir| !inside(dir));
        let why = skipped.reason.to_string();
        request.kept.push(Kept { path, reason: KeptReason::CannotBeSaved { why } });
    }
}

/// Leaves files alone whose recorded content came from a wrong index of the user.
fn leave_misled_alone(hold: &Hold, tracked: &Recorded, request: &mut Request) -> Result<(), Error> {
    let now = Now::of(&tracked.listing);
    let wanted = |path: &[u8]| match request.wanted.get(path) {
        Some(Wanted::Entry { entry, .. }) => Some(entry.id),
        _ => None,
    };
    let is_there = |path: &[u8]| matches!(now.at(path), NowAt::File { entry, .. } if wanted(path) == Some(entry.id));
    let mut misled = hold.misled(wanted)?;
    misled.retain(|path| !is_there(path));
    for path in misled {
        request.wanted.remove(&path);
        let why = "git's index was wrong about its content".into();
        let reason = KeptReason::SkippedThen { why };
        request.kept.push(Kept { path: TreePath::from_scan(path), reason });
    }
    Ok(())
}

/// Leaves paths alone whose directory this user can neither write to nor make writable, and files
/// of other users in a sticky directory of another user.
fn leave_read_only_alone(hold: &Hold, request: &mut Request) {
    use rustix::fs::{Access, AtFlags};
    const STICKY: u32 = 0o1000;
    let me = rustix::process::geteuid();
    let is_foreign = |stat: &Stat| !me.is_root() && stat.uid != me.as_raw();
    let is_held = |path: &[u8]| {
        let (dir, name) = crate::path::split(path);
        let dir = hold.root.glimpse(dir);
        let sticky = dir.as_ref().and_then(Glimpse::stat_self).filter(|dir| dir.mode & STICKY != 0);
        let file = dir.as_ref().and_then(|dir| dir.stat(name));
        sticky.is_some_and(|dir| is_foreign(&dir)) && file.is_some_and(|file| is_foreign(&file))
    };
    let mut known: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let mut is_read_only = |dir: &[u8]| {
        *known.entry(dir.to_vec()).or_insert_with(|| {
            let Ok(dir) = hold.root.open_below(dir) else { return false };
            let is_own = dir.stat_self().is_ok_and(|stat| stat.uid == me.as_raw());
            let access = Access::WRITE_OK | Access::EXEC_OK;
            let allowed = rustix::fs::accessat(&dir, ".", access, AtFlags::EACCESS);
            !is_own && allowed == Err(rustix::io::Errno::ACCESS)
        })
    };
    let mut unclear = BTreeMap::new();
    for path in request.wanted.keys() {
        let above = dirs_above(path).chain([&b""[..]]);
        let nearest = above.into_iter().find(|dir| hold.root.glimpse(dir).is_some());
        if nearest.is_some_and(&mut is_read_only) || is_held(path) {
            unclear.insert(path.clone(), KeptReason::ReadOnlyDirectory);
        }
    }
    request.emptied.retain(|dir| !is_read_only(crate::path::split(dir).0) && !is_held(dir));
    leave_alone(request, unclear);
}

/// Removes paths from a request, with all requested paths above and below them: if a file and a
/// directory trade places, either both change or neither.
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

/// State of a path with regard to the safety snapshot.
enum Standing {
    Saved,
    Dir,
    Unsaved,
    Blocked(KeptReason),
}

/// Returns the forced files that the ignored snapshot does not hold with the same content.
fn not_kept(hold: &Hold, tracked: &Recorded, forced: &Forced) -> Result<Forced, Error> {
    let Some(ignored) = tracked.operation.meta.ignored_snapshot else { return Ok(forced.clone()) };
    let ignored = read_ignored(&hold.store.objects, &ignored)?;
    let mut left = Forced::new();
    for (path, (stat, entry)) in forced {
        let kept = find(&hold.store.objects, &ignored.tree, &TreePath::from_scan(path.clone()))?;
        if kept != Some(*entry) {
            left.insert(path.clone(), (*stat, *entry));
        }
    }
    Ok(left)
}
