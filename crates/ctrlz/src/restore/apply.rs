//! Applying a plan, undoing it half-way, and finishing what a killed process began.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::compare::Entry;
use crate::error::Error;
use crate::fs::{
    Dir, FileError, FileKind, Guard, MODE_BITS, Named, Stat, Time, random_name, set_mode,
};
use crate::git::{Hasher, Kind, ObjectId};
use crate::jobs::run_jobs;
use crate::path::{PathText, TreePath, join, split};
use crate::scan::{EntryStat, Placed, is_racy};
use crate::store::Objects;

use super::journal::{Journal, ModeRecord, Phase, Record, Renamed, StatRecord, Thing, UnitRecord};
use super::plan::{NewThing, OldThing, Plan, Unit};
use super::stage::{Flush, stage};

/// Above this many files one flush of the whole file system is cheaper than one per file.
const MAX_SINGLE_FLUSHES: usize = 32;

/// What applying did beyond the plan.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Things that were replaced and could not be removed afterwards, under their temporary name.
    pub(crate) left: Vec<Vec<u8>>,
    /// Paths that somebody changed between a crash and its recovery; they stay as they are.
    pub(crate) kept: Vec<Vec<u8>>,
    /// What need not be read to know its content.
    pub(crate) placed: Placed,
    /// Files that could not get their set-user-id or set-group-id bit.
    pub(crate) without_special_bits: Vec<Vec<u8>>,
}

/// Saves a file that is in no snapshot yet: a directory, the name in it, and the path it belongs to.
pub(crate) type Rescue<'a> = &'a dyn Fn(&Dir, &[u8], &[u8]) -> Result<(), Error>;

/// Carries out `plan`. On any failure everything is put back.
pub(crate) fn apply(
    root: &Dir,
    objects: &Objects,
    plan: &Plan,
    journal_path: &Path,
    (target, safety, record): (Option<ObjectId>, ObjectId, Option<Record>),
    threads: usize,
    rescue: Rescue<'_>,
) -> Result<Applied, Error> {
    let mut journal = Journal { record, ..journal_of(plan, target, safety) };
    journal.mark_links();
    journal.save(journal_path)?;
    let flush = flush_for(plan);
    if let Err(cause) = stage_all(root, objects, plan, &mut journal, flush, threads) {
        return Err(roll_back(root, &mut journal, journal_path, rescue, cause));
    }
    journal.phase = Phase::Swapping;
    if let Err(cause) = journal.save(journal_path) {
        return Err(roll_back(root, &mut journal, journal_path, rescue, cause));
    }
    let before_swap = Time::now();
    let held = AtomicUsize::new(0);
    let swap = |near: &mut Near<'_>, unit| swap(near, unit, (!plan.replaces_used).then_some(&held));
    let swapped = for_each_unit(root, threads, &journal.units, swap).and_then(|swapped| {
        let (stats, guards): (Vec<_>, Vec<_>) = swapped.into_iter().unzip();
        // A process that found a file by its name before the exchange opens it only now.
        let wanted = guards.iter().flatten().find(|(guard, _)| guard.is_wanted());
        if let Some((_, unit)) = wanted {
            return Err(moved(&unit.path.clone().into_bytes()));
        }
        let mut modes = journal.modes.iter();
        modes.try_for_each(|change| change_mode(root, change, change.from, change.to))?;
        Ok(stats)
    });
    let stats = match swapped {
        Ok(stats) => stats,
        Err(cause) => return Err(roll_back(root, &mut journal, journal_path, rescue, cause)),
    };
    // From here on the new state stands; a failure leaves the journal for the next command.
    let applied = finish(root, &journal, journal_path, (flush, OnFailure::Stop), threads, rescue)
        .map_err(|cause| Error::Interrupted { cause: Box::new(cause) })?;
    let without_special_bits = without_special_bits(root, plan);
    Ok(Applied { placed: placed(plan, stats, before_swap), without_special_bits, ..applied })
}

/// Files whose set-user-id or set-group-id bit the kernel dropped: only a member of the file's group,
/// or root, may set the latter.
fn without_special_bits(root: &Dir, plan: &Plan) -> Vec<Vec<u8>> {
    let files = plan.units.iter().flat_map(|unit| match &unit.new {
        Some(NewThing::Leaf { mode, .. }) => vec![(unit.path.clone(), *mode)],
        Some(NewThing::Dir { files, .. }) => {
            files.iter().map(|(path, _, mode)| (join(&unit.path, path), *mode)).collect()
        }
        None => Vec::new(),
    });
    let modes = plan.modes.iter().filter(|change| !change.is_dir);
    let files = files.chain(modes.map(|change| (change.path.clone(), change.to)));
    let lacks = |(path, mode): &(Vec<u8>, u32)| {
        let (parent, name) = split(path);
        let found = root.open_below(parent).and_then(|dir| dir.stat(name));
        found.is_ok_and(|stat| stat.is_some_and(|stat| mode & !stat.mode & 0o7000 != 0))
    };
    let special = files.filter(|(_, mode)| mode & 0o7000 != 0);
    special.filter(lacks).map(|(path, _)| path).collect()
}

/// The files that the next snapshot need not read as long as they look like this.
///
/// Their content was read back under a name that nobody else knew. Since then they were renamed,
/// which moves only the change time; a write would have moved the modification time, as that was
/// old enough before anybody could know the file.
fn placed(plan: &Plan, stats: Vec<Option<(&UnitRecord, Stat)>>, before_swap: Time) -> Placed {
    let mut ids = BTreeMap::new();
    for unit in &plan.units {
        if let Some(NewThing::Leaf { entry, .. }) = &unit.new {
            ids.insert(unit.path.as_slice(), entry.id);
        }
    }
    let proven = stats.into_iter().flatten().filter_map(|(unit, stat)| {
        let Some(Thing::Leaf(staged)) = &unit.staged else { return None };
        let path = unit.path.clone().into_bytes();
        let id = *ids.get(path.as_slice())?;
        let unchanged = staged.is(&stat, Renamed::Perhaps) && !is_racy(stat.mtime, before_swap);
        unchanged.then(|| (path, (EntryStat::from(&stat), id)))
    });
    proven.collect()
}

fn flush_for(plan: &Plan) -> Flush {
    let files: usize = plan
        .units
        .iter()
        .map(|unit| match &unit.new {
            Some(NewThing::Dir { files, .. }) => files.len() + 1,
            Some(NewThing::Leaf { .. }) | None => 1,
        })
        .sum();
    if files > MAX_SINGLE_FLUSHES { Flush::Later } else { Flush::Each }
}

fn journal_of(plan: &Plan, target: Option<ObjectId>, safety: ObjectId) -> Journal {
    let token = random_name();
    let record = |(at, unit): (usize, &Unit)| UnitRecord {
        path: PathText::from_bytes(&unit.path),
        temporary: format!(".ctrlz-{token}-{at}"),
        staged: None,
        has_new: unit.new.is_some(),
        old: unit.old.as_ref().map(old_record),
    };
    Journal {
        version: Journal::VERSION,
        phase: Phase::Staging,
        target,
        safety,
        units: plan.units.iter().enumerate().map(record).collect(),
        modes: plan
            .modes
            .iter()
            .map(|mode| ModeRecord {
                path: PathText::from_bytes(&mode.path),
                from: mode.from,
                to: mode.to,
                is_dir: mode.is_dir,
            })
            .collect(),
        emptied: plan.emptied.iter().map(|path| PathText::from_bytes(path)).collect(),
        record: None,
    }
}

fn old_record(old: &OldThing) -> Thing {
    match old {
        OldThing::Leaf { entry, stat, racy } => Thing::Leaf(record(entry, stat, *racy)),
        OldThing::Dir { inode, files, dirs } => Thing::Dir {
            inode: *inode,
            files: files
                .iter()
                .map(|(path, entry, stat, racy)| {
                    (PathText::from_bytes(path), record(entry, stat, *racy))
                })
                .collect(),
            dirs: dirs.iter().map(|path| PathText::from_bytes(path)).collect(),
        },
    }
}

/// Metadata that is too young to prove anything is backed by the content itself.
fn record(entry: &Entry, stat: &EntryStat, racy: bool) -> StatRecord {
    let content = (racy && entry.kind.is_file()).then_some(entry.id);
    StatRecord::from(stat).backed_by(content)
}

fn stage_all(
    root: &Dir,
    objects: &Objects,
    plan: &Plan,
    journal: &mut Journal,
    flush: Flush,
    threads: usize,
) -> Result<(), Error> {
    let mut jobs: Vec<(&Unit, &mut UnitRecord)> =
        plan.units.iter().zip(&mut journal.units).filter(|(unit, _)| unit.new.is_some()).collect();
    let per_job = units_per_job(threads, jobs.len());
    let staged = run_jobs(threads, jobs.chunks_mut(per_job).rev().collect(), |units, _| {
        let mut near = Near::of(root);
        units.iter_mut().try_for_each(|(unit, record)| -> Result<(), Error> {
            let Some(new) = &unit.new else { return Ok(()) };
            let (parent, name) = split(&unit.path);
            let temporary = record.temporary.as_bytes();
            record.staged = Some(stage(objects, near.dir(parent)?, name, temporary, new, flush)?);
            Ok(())
        })
    });
    staged.into_iter().collect::<Result<(), Error>>()?;
    link_staged(root, plan, journal)?;
    if flush == Flush::Later {
        root.sync_file_system()?;
    }
    Ok(())
}

/// Makes staged files that were names of one file names of one again.
fn link_staged(root: &Dir, plan: &Plan, journal: &mut Journal) -> Result<(), Error> {
    for group in &plan.links {
        let Some((first, others)) = group.split_first() else { continue };
        let (first_dir, first_name) = staged_place(root, &journal.units[*first])?;
        for other in others {
            let (dir, name) = staged_place(root, &journal.units[*other])?;
            dir.remove_file(&name)?;
            dir.link_from(&first_dir, &first_name, &name)?;
        }
        for at in group {
            let (dir, name) = staged_place(root, &journal.units[*at])?;
            let stat = dir.stat(&name)?.ok_or_else(|| moved(&name))?;
            journal.units[*at].staged =
                Some(Thing::Leaf(StatRecord::from(&EntryStat::from(&stat))));
        }
    }
    Ok(())
}

/// The directory and temporary name of a staged file.
fn staged_place(root: &Dir, unit: &UnitRecord) -> Result<(Dir, Vec<u8>), Error> {
    let path = unit.path.clone().into_bytes();
    Ok((root.open_below(split(&path).0)?, unit.temporary.as_bytes().to_vec()))
}

/// How many units one thread takes at once: neighbours share a directory, which is opened once.
fn units_per_job(threads: usize, units: usize) -> usize {
    const MAX_UNITS: usize = 64;
    (units / (threads.max(1) * 4)).clamp(1, MAX_UNITS)
}

/// Does something with every unit, several at a time; the first failure stops it.
fn for_each_unit<'a, R: Send>(
    root: &Dir,
    threads: usize,
    units: &'a [UnitRecord],
    work: impl Fn(&mut Near<'_>, &'a UnitRecord) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let failed = AtomicBool::new(false);
    let jobs = units.chunks(units_per_job(threads, units.len())).rev().collect();
    let done = run_jobs(threads, jobs, |units: &'a [UnitRecord], _| {
        let mut near = Near::of(root);
        let going_on = units.iter().take_while(|_| !failed.load(Ordering::Relaxed));
        let work = |unit| work(&mut near, unit);
        let done: Result<Vec<R>, Error> = going_on.map(work).collect();
        done.inspect_err(|_| failed.store(true, Ordering::Relaxed))
    });
    let done: Vec<Vec<R>> = done.into_iter().collect::<Result<_, Error>>()?;
    Ok(done.into_iter().flatten().collect())
}

/// Keeps the directory open that was used last.
///
/// No symlink is followed on the way to it, and whatever happens to the names above it meanwhile,
/// it stays a directory that was in the work tree.
struct Near<'a> {
    root: &'a Dir,
    last: Option<(Vec<u8>, Dir)>,
}

impl<'a> Near<'a> {
    fn of(root: &'a Dir) -> Near<'a> {
        Near { root, last: None }
    }

    fn dir(&mut self, path: &[u8]) -> Result<&Dir, FileError> {
        let last = match self.last.take() {
            Some(last) if last.0 == path => last,
            _ => (path.to_vec(), self.root.open_below(path)?),
        };
        Ok(&self.last.insert(last).1)
    }
}

/// A unit's directory, and its name in it.
struct Place<'a> {
    dir: &'a Dir,
    name: Vec<u8>,
    path: Vec<u8>,
}

fn place<'a>(near: &'a mut Near<'_>, path: &PathText) -> Result<Place<'a>, FileError> {
    let path = path.clone().into_bytes();
    let (parent, name) = split(&path);
    Ok(Place { dir: near.dir(parent)?, name: name.to_vec(), path: path.clone() })
}

fn moved(path: &[u8]) -> Error {
    Error::Moved { path: TreePath::from_scan(path.to_vec()) }
}

/// What one path looks like after its change, and the guard of the file that was replaced.
type Swapped<'a> = (Option<(&'a UnitRecord, Stat)>, Option<(Guard, &'a UnitRecord)>);

/// Changes one path by one rename, if it still is what the safety snapshot holds. Says what a new
/// thing looks like in its place.
///
/// A file that is replaced is guarded meanwhile: a process that opens it for writing would write to a
/// file without a name. `held` counts the guards that are kept until all paths are changed; without it,
/// files in use are replaced.
fn swap<'a>(
    near: &mut Near<'_>,
    unit: &'a UnitRecord,
    held: Option<&AtomicUsize>,
) -> Result<Swapped<'a>, Error> {
    /// Each guard holds a file open.
    const MAX_GUARDS: usize = 256;
    let Place { dir, name, path } = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    let guard = match &unit.old {
        Some(Thing::Leaf(_)) if held.is_some() => {
            Guard::of(dir, &name).map_err(|()| moved(&path))?
        }
        _ => None,
    };
    match (&unit.old, unit.has_new) {
        (None, false) => (),
        (None, true) => match dir.rename_new(temporary, &name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(moved(&path));
            }
            other => other?,
        },
        (Some(old), has_new) => {
            if !is_as_recorded(dir, &name, old, Renamed::No)? {
                return Err(moved(&path));
            }
            if has_new {
                dir.exchange(temporary, &name)?;
            } else {
                dir.rename_new(&name, temporary)?;
            }
            // Between the look and the rename somebody may have written. What came out tells, and
            // rolling back puts it right.
            if !is_as_recorded(dir, temporary, old, Renamed::Perhaps)? {
                return Err(moved(&path));
            }
        }
    }
    if guard.as_ref().is_some_and(Guard::is_wanted) {
        return Err(moved(&path));
    }
    let stat = if unit.has_new { dir.stat(&name)? } else { None };
    let is_kept = held.is_some_and(|held| held.fetch_add(1, Ordering::Relaxed) < MAX_GUARDS);
    let guard = guard.filter(|_| is_kept);
    Ok((stat.map(|stat| (unit, stat)), guard.map(|guard| (guard, unit))))
}

/// Whether what stands at `name` is exactly what was recorded, directories with all they hold.
fn is_as_recorded(dir: &Dir, name: &[u8], old: &Thing, renamed: Renamed) -> Result<bool, Error> {
    let Some(stat) = dir.stat(name)? else { return Ok(false) };
    let (files, dirs) = match old {
        Thing::Leaf(record) => return leaf_is(dir, name, record, &stat, renamed),
        Thing::Dir { inode, files, dirs } if stat.inode == *inode => (files, dirs),
        Thing::Dir { .. } => return Ok(false),
    };
    if stat.kind != FileKind::Dir {
        return Ok(false);
    }
    let top = dir.open_below(name)?;
    let expected: BTreeSet<Vec<u8>> = files
        .iter()
        .map(|(path, _)| path)
        .chain(dirs)
        .map(|path| path.clone().into_bytes())
        .collect();
    let mut found = BTreeSet::new();
    for inside in std::iter::once(Vec::new()).chain(dirs.iter().map(|dir| dir.clone().into_bytes()))
    {
        for name in top.open_below(&inside)?.names()? {
            found.insert(join(&inside, &name));
        }
    }
    if found != expected {
        return Ok(false);
    }
    for (path, record) in files {
        // The files inside were not renamed themselves.
        if !file_is(&top, &path.clone().into_bytes(), record)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn file_is(top: &Dir, path: &[u8], record: &StatRecord) -> Result<bool, Error> {
    let (parent, name) = split(path);
    let dir = top.open_below(parent)?;
    match dir.stat(name)? {
        Some(stat) => leaf_is(&dir, name, record, &stat, Renamed::No),
        None => Ok(false),
    }
}

/// Whether a file is the recorded one; its content is read only if its metadata is too young.
fn leaf_is(
    dir: &Dir,
    name: &[u8],
    record: &StatRecord,
    stat: &Stat,
    renamed: Renamed,
) -> Result<bool, Error> {
    if !record.is(stat, renamed) {
        return Ok(false);
    }
    let Some(id) = record.content else { return Ok(true) };
    let mut file = dir.open_file(name)?;
    let mut hasher = Hasher::object(Kind::Blob, stat.bytes);
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer).named("read", &dir.path_of(name))? {
            0 => return Ok(hasher.finish() == Some(id)),
            count => hasher.update(&buffer[..count]),
        }
    }
}

fn change_mode(root: &Dir, change: &ModeRecord, from: u32, to: u32) -> Result<(), Error> {
    let mut near = Near::of(root);
    let Place { dir, name, path } = place(&mut near, &change.path)?;
    let current = dir.stat(&name)?;
    let expected = if change.is_dir { FileKind::Dir } else { FileKind::File };
    match current {
        Some(stat) if stat.kind == expected && stat.mode & MODE_BITS == to => return Ok(()),
        Some(stat) if stat.kind == expected && stat.mode & MODE_BITS == from => (),
        _ => return Err(moved(&path)),
    }
    if change.is_dir {
        return Ok(dir.open_below(&name)?.set_exact_mode_of_dir(to)?);
    }
    let file = dir.open_file(&name)?;
    Ok(set_mode(&file, to).named("set the permissions of", &dir.path_of(&name))?)
}

/// Puts everything back that was changed, and removes what was staged.
fn roll_back(
    root: &Dir,
    journal: &mut Journal,
    path: &Path,
    rescue: Rescue<'_>,
    cause: Error,
) -> Error {
    let mut undone = || -> Result<(), Error> {
        if journal.phase == Phase::Swapping {
            // Killed from here on, the next command must not roll forward again.
            journal.phase = Phase::RollingBack;
            journal.save(path)?;
        }
        undo_all(root, journal, path, OnFailure::Stop, rescue).map(drop)
    };
    match undone() {
        Ok(()) => Error::RolledBack { cause: Box::new(cause) },
        Err(_) => Error::Interrupted { cause: Box::new(cause) },
    }
}

/// Undoes what a journal describes; gives the paths that somebody changed meanwhile, which stay.
fn undo_all(
    root: &Dir,
    journal: &Journal,
    path: &Path,
    on_failure: OnFailure,
    rescue: Rescue<'_>,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut kept = Vec::new();
    let mut failure = None;
    for change in journal.modes.iter().rev() {
        // Not changed yet, or changed by somebody else: either way it is not ours to set.
        drop(change_mode(root, change, change.to, change.from));
    }
    let mut near = Near::of(root);
    for unit in journal.units.iter().rev() {
        match undo_steadily(&mut near, unit, rescue) {
            Ok(true) => (),
            Ok(false) | Err(Error::Moved { .. }) => kept.push(unit.path.clone().into_bytes()),
            Err(error) => {
                kept.push(unit.path.clone().into_bytes());
                failure.get_or_insert(error);
            }
        }
    }
    // A path that could not be put back must not be called put back: the next command tries again.
    if let Some(error) = failure
        && on_failure == OnFailure::Stop
    {
        return Err(error);
    }
    sync_places(root, journal)?;
    Journal::remove(path)?;
    Ok(kept)
}

/// The same as [`undo_unit`], also if somebody else comes between its looks and its renames.
fn undo_steadily(
    near: &mut Near<'_>,
    unit: &UnitRecord,
    rescue: Rescue<'_>,
) -> Result<bool, Error> {
    use std::io::ErrorKind::{AlreadyExists, NotFound};
    const MAX_TRIES: usize = 10;
    for _ in 1..MAX_TRIES {
        match undo_unit(near, unit, rescue) {
            Err(Error::File(error)) if [AlreadyExists, NotFound].contains(&error.kind()) => (),
            other => return other,
        }
    }
    undo_unit(near, unit, rescue)
}

/// Puts one path back if it is in its new state; whether it is in its old one.
///
/// What somebody else put there since stays, and the old content is in the safety snapshot.
fn undo_unit(near: &mut Near<'_>, unit: &UnitRecord, rescue: Rescue<'_>) -> Result<bool, Error> {
    let Place { dir, name, path } = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    let is = |name: &[u8], thing: &Option<Thing>| match thing {
        Some(thing) => is_as_recorded(dir, name, thing, Renamed::Perhaps),
        None => Ok(dir.stat(name)?.is_none()),
    };
    let new_is_here = unit.has_new && unit.staged.is_some() && is(&name, &unit.staged)?;
    // Also if it is not what was saved: then somebody wrote it just before the swap, and it belongs
    // where it was.
    let old_is_there = unit.old.is_some() && dir.stat(temporary)?.is_some();
    match (&unit.old, unit.has_new) {
        (None, true) if new_is_here => dir.rename_new(&name, temporary)?,
        (Some(_), true) if new_is_here && old_is_there => dir.exchange(temporary, &name)?,
        (Some(_), false) if old_is_there && dir.stat(&name)?.is_none() => {
            dir.rename_new(temporary, &name)?;
        }
        _ => (),
    }
    let is_back = is(&name, &unit.old)?;
    discard(dir, &path, unit, rescue)?;
    Ok(is_back)
}

/// Removes what lies under a unit's temporary name; what is in no snapshot yet is saved first.
fn discard(dir: &Dir, path: &[u8], unit: &UnitRecord, rescue: Rescue<'_>) -> Result<(), Error> {
    let temporary = unit.temporary.as_bytes();
    let Some(stat) = dir.stat(temporary)? else { return Ok(()) };
    // Without a record it is something that we had begun to write.
    if unit.has_new && unit.staged.is_none() {
        return remove_own(dir, temporary);
    }
    for thing in [&unit.staged, &unit.old].into_iter().flatten() {
        match thing {
            Thing::Dir { inode, .. } if stat.inode == *inode => {
                return remove_known(dir, temporary, thing);
            }
            Thing::Dir { .. } => (),
            Thing::Leaf(_) => {
                if is_as_recorded(dir, temporary, thing, Renamed::Perhaps)? {
                    return Ok(dir.remove_file(temporary)?);
                }
            }
        }
    }
    // Bytes that somebody wrote at the last moment.
    rescue(dir, temporary, path)?;
    Ok(dir.remove_file(temporary)?)
}

/// Removes the file that a unit replaced, if it is exactly what the safety snapshot holds; whether
/// it did.
fn remove_recorded_leaf(near: &mut Near<'_>, unit: &UnitRecord) -> Result<bool, Error> {
    let Some(old @ Thing::Leaf(_)) = &unit.old else { return Ok(false) };
    let Place { dir, .. } = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    if !is_as_recorded(dir, temporary, old, Renamed::Perhaps)? {
        return Ok(false);
    }
    dir.remove_file(temporary)?;
    Ok(true)
}

/// Removes a directory's recorded content, and the directory if nothing else is in it.
fn remove_known(dir: &Dir, name: &[u8], thing: &Thing) -> Result<(), Error> {
    let Thing::Dir { files, dirs, .. } = thing else { return Ok(()) };
    let top = dir.open_below(name)?;
    let mut dirs: Vec<Vec<u8>> = dirs.iter().cloned().map(PathText::into_bytes).collect();
    dirs.sort_unstable();
    for path in std::iter::once(&Vec::new()).chain(&dirs) {
        match top.open_below(path) {
            // It goes anyway, and without write permission nothing in it could.
            Ok(inside) => drop(inside.set_mode_of_dir(0o700)),
            Err(error) if is_elsewhere(&error) => (),
            Err(error) => return Err(error.into()),
        }
    }
    for (file, record) in files {
        let file = file.clone().into_bytes();
        let (parent, name) = split(&file);
        let inside = match top.open_below(parent) {
            Ok(inside) => inside,
            Err(error) if is_elsewhere(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(stat) = inside.stat(name)? else { continue };
        if leaf_is(&inside, name, record, &stat, Renamed::No)? {
            inside.remove_file(name)?;
        }
    }
    for path in dirs.iter().rev() {
        let (parent, name) = split(path);
        match top.open_below(parent) {
            Ok(parent) => ignore_not_empty(parent.remove_dir(name))?,
            Err(error) if is_elsewhere(&error) => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ignore_not_empty(dir.remove_dir(name))?)
}

/// Removes something that only we know the name of and only we have put content into.
fn remove_own(dir: &Dir, name: &[u8]) -> Result<(), Error> {
    match dir.stat(name)? {
        None => return Ok(()),
        Some(stat) if stat.kind != FileKind::Dir => return Ok(dir.remove_file(name)?),
        Some(_) => (),
    }
    let top = dir.open_below(name)?;
    let mut waiting = vec![Vec::new()];
    let mut dirs = Vec::new();
    while let Some(path) = waiting.pop() {
        let inside = top.open_below(&path)?;
        // A staged directory may already have got permissions that forbid changing it.
        inside.set_mode_of_dir(0o700)?;
        for name in inside.names()? {
            match inside.stat(&name)? {
                Some(stat) if stat.kind == FileKind::Dir => waiting.push(join(&path, &name)),
                Some(_) => inside.remove_file(&name)?,
                None => (),
            }
        }
        dirs.push(path);
    }
    for path in dirs.iter().rev().filter(|path| !path.is_empty()) {
        let (parent, name) = split(path);
        top.open_below(parent)?.remove_dir(name)?;
    }
    Ok(dir.remove_dir(name)?)
}

/// What to do when something that was replaced cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnFailure {
    /// Leave the journal, so that the next command tries again.
    Stop,
    /// That was the next command: tell where it lies and close the journal.
    GoOn,
}

/// Makes the swap durable, removes what it replaced, and closes the journal.
fn finish(
    root: &Dir,
    journal: &Journal,
    path: &Path,
    (flush, on_failure): (Flush, OnFailure),
    threads: usize,
    rescue: Rescue<'_>,
) -> Result<Applied, Error> {
    sync_all(root, journal, flush)?;
    let mut applied = Applied::default();
    // What is as it was recorded goes at once, on all threads. What is not, or could not be
    // removed, is looked at again below, where it can be saved or told.
    let left = for_each_unit(root, threads, &journal.units, |near, unit| {
        Ok((!remove_recorded_leaf(near, unit).unwrap_or(false)).then_some(unit))
    })?;
    let mut near = Near::of(root);
    for unit in left.into_iter().flatten() {
        match remove_old(&mut near, unit, rescue) {
            Ok(None) => (),
            Ok(Some(left)) => applied.left.push(left),
            Err(error) if on_failure == OnFailure::Stop => return Err(error),
            Err(_) => {
                let path = unit.path.clone().into_bytes();
                applied.left.push(join(split(&path).0, unit.temporary.as_bytes()));
            }
        }
    }
    applied.left.sort_unstable();
    for emptied in &journal.emptied {
        let dir = emptied.clone().into_bytes();
        match remove_if_empty(root, &dir) {
            Ok(()) => (),
            Err(error) if on_failure == OnFailure::Stop && !is_refusal(&error) => {
                return Err(error.into());
            }
            Err(_) => applied.left.push(dir),
        }
    }
    // The removals must not come undone after the journal is gone.
    sync_all(root, journal, flush)?;
    match &journal.record {
        Some(_) => Journal { phase: Phase::Recording, ..journal.clone() }.save(path)?,
        None => Journal::remove(path)?,
    }
    Ok(applied)
}

/// Whether trying again would give the same answer.
fn is_refusal(error: &FileError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    [PermissionDenied, ReadOnlyFilesystem].contains(&error.kind())
}

fn sync_all(root: &Dir, journal: &Journal, flush: Flush) -> Result<(), Error> {
    match flush {
        Flush::Each => sync_places(root, journal),
        Flush::Later => Ok(root.sync_file_system()?),
    }
}

fn sync_places(root: &Dir, journal: &Journal) -> Result<(), Error> {
    let parents: BTreeSet<Vec<u8>> = journal
        .units
        .iter()
        .map(|unit| split(&unit.path.clone().into_bytes()).0.to_vec())
        .collect();
    for parent in parents {
        match root.open_below(&parent) {
            Ok(dir) => dir.sync()?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes what a unit replaced; tells where it lies if that is not possible.
fn remove_old(
    near: &mut Near<'_>,
    unit: &UnitRecord,
    rescue: Rescue<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    let Place { dir, path, .. } = match place(near, &unit.path) {
        Ok(place) => place,
        Err(error) if is_elsewhere(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match discard(dir, &path, unit, rescue) {
        Ok(()) => (),
        // It changes all the time, or is of a kind that nobody can save.
        Err(Error::Moved { .. }) => (),
        Err(error) => return Err(error),
    }
    let left = dir.stat(unit.temporary.as_bytes())?.is_some();
    Ok(left.then(|| join(split(&path).0, unit.temporary.as_bytes())))
}

/// Removes a directory if nothing is in it.
fn remove_if_empty(root: &Dir, path: &[u8]) -> Result<(), FileError> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(parent) => ignore_not_empty(parent.remove_dir(name)),
        // Whatever stands there now is not a directory that we emptied.
        Err(error) if is_elsewhere(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a directory is gone, or something else stands in its place.
fn is_elsewhere(error: &FileError) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    [NotADirectory, NotFound].contains(&error.kind())
        || rustix::io::Errno::from_io_error(&error.source) == Some(rustix::io::Errno::LOOP)
}

fn ignore_not_empty(removed: Result<(), FileError>) -> Result<(), FileError> {
    use std::io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound, ResourceBusy};
    match removed {
        Err(error)
            if [DirectoryNotEmpty, NotADirectory, NotFound, ResourceBusy]
                .contains(&error.kind()) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Finishes a restore that was cut off: back if nothing had changed yet, forward otherwise.
///
/// Nothing that happened to single paths since can stop it: what is no longer as it was stays as it
/// is and is told.
pub(crate) fn recover(
    root: &Dir,
    journal: &Journal,
    path: &Path,
    rescue: Rescue<'_>,
) -> Result<Applied, Error> {
    match journal.phase {
        Phase::Staging | Phase::RollingBack => {
            let kept = undo_all(root, journal, path, OnFailure::GoOn, rescue)?;
            let kept = if journal.phase == Phase::Staging { Vec::new() } else { kept };
            Ok(Applied { kept, ..Applied::default() })
        }
        Phase::Recording => Ok(Applied::default()),
        Phase::Swapping => {
            let mut kept = Vec::new();
            let mut near = Near::of(root);
            for unit in &journal.units {
                if !roll_forward(&mut near, unit, rescue).unwrap_or(false) {
                    kept.push(unit.path.clone().into_bytes());
                }
            }
            for change in &journal.modes {
                if change_mode(root, change, change.from, change.to).is_err() {
                    kept.push(change.path.clone().into_bytes());
                }
            }
            let how = (Flush::Later, OnFailure::GoOn);
            let applied = finish(root, journal, path, how, 1, rescue)?;
            Ok(Applied { kept, ..applied })
        }
    }
}

/// Brings one path to its new state if nobody changed it since the crash; whether it is there.
fn roll_forward(near: &mut Near<'_>, unit: &UnitRecord, rescue: Rescue<'_>) -> Result<bool, Error> {
    let Place { dir, name, path } = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    let is = |name: &[u8], thing: &Option<Thing>| match thing {
        Some(thing) => is_as_recorded(dir, name, thing, Renamed::Perhaps),
        None => Ok(dir.stat(name)?.is_none()),
    };
    if unit.has_new && is(&name, &unit.staged)? {
        return Ok(true);
    }
    let untouched = is(&name, &unit.old)?;
    let staged_waits = unit.has_new && unit.staged.is_some() && is(temporary, &unit.staged)?;
    match (&unit.old, unit.has_new) {
        (None, true) if untouched && staged_waits => dir.rename_new(temporary, &name)?,
        (Some(_), true) if untouched && staged_waits => dir.exchange(temporary, &name)?,
        (Some(_), false) if untouched && dir.stat(temporary)?.is_none() => {
            dir.rename_new(&name, temporary)?;
        }
        // Removed before the crash, or by somebody since.
        (Some(_), false) if dir.stat(&name)?.is_none() => (),
        (None, false) => (),
        _ => {
            // Somebody wrote here after the crash. Their bytes stay; ours are in the store.
            discard(dir, &path, unit, rescue)?;
            return Ok(false);
        }
    }
    Ok(true)
}
