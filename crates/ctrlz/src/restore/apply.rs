//! Applying a plan, undoing it half-way, and finishing what a killed process began.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Named, random_name, set_mode};
use crate::git::ObjectId;
use crate::path::{PathText, TreePath, join, split};
use crate::scan::run_jobs;
use crate::store::Objects;

use super::journal::{Journal, ModeRecord, OldRecord, Phase, Renamed, StatRecord, UnitRecord};
use super::plan::{OldThing, Plan, Unit};
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
}

/// Carries out `plan`. On any failure everything is put back.
pub(crate) fn apply(
    root: &Dir,
    objects: &Objects,
    plan: &Plan,
    journal_path: &Path,
    (target, safety): (Option<ObjectId>, ObjectId),
    threads: usize,
) -> Result<Applied, Error> {
    let mut journal = journal_of(plan, target, safety);
    journal.save(journal_path)?;
    let flush = flush_for(plan);
    if let Err(cause) = stage_all(root, objects, plan, &mut journal, flush, threads) {
        return Err(roll_back(root, &journal, journal_path, 0, 0, cause));
    }
    journal.phase = Phase::Swapping;
    if let Err(cause) = journal.save(journal_path) {
        return Err(roll_back(root, &journal, journal_path, 0, 0, cause));
    }
    for (done, unit) in journal.units.iter().enumerate() {
        if let Err(cause) = swap(root, unit) {
            return Err(roll_back(root, &journal, journal_path, done, 0, cause));
        }
    }
    for (done, change) in journal.modes.iter().enumerate() {
        if let Err(cause) = change_mode(root, change, change.from, change.to) {
            let units = journal.units.len();
            return Err(roll_back(root, &journal, journal_path, units, done, cause));
        }
    }
    // From here on the new state stands; a failure leaves the journal for the next command.
    finish(root, &journal, journal_path, flush)
        .map_err(|cause| Error::Interrupted { cause: Box::new(cause) })
}

fn flush_for(plan: &Plan) -> Flush {
    let files: usize = plan
        .units
        .iter()
        .map(|unit| match &unit.new {
            Some(super::plan::NewThing::Dir { files, .. }) => files.len() + 1,
            Some(super::plan::NewThing::Leaf { .. }) | None => 1,
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
    }
}

fn old_record(old: &OldThing) -> OldRecord {
    match old {
        OldThing::Leaf { stat, .. } => OldRecord::Leaf(stat.into()),
        OldThing::Dir { files, dirs } => OldRecord::Dir {
            files: files
                .iter()
                .map(|(path, _, stat)| (PathText::from_bytes(path), stat.into()))
                .collect(),
            dirs: dirs.iter().map(|path| PathText::from_bytes(path)).collect(),
        },
    }
}

fn stage_all(
    root: &Dir,
    objects: &Objects,
    plan: &Plan,
    journal: &mut Journal,
    flush: Flush,
    threads: usize,
) -> Result<(), Error> {
    let jobs: Vec<(&Unit, &mut UnitRecord)> =
        plan.units.iter().zip(&mut journal.units).filter(|(unit, _)| unit.new.is_some()).collect();
    let staged = run_jobs(threads, jobs, |(unit, record), _| -> Result<(), Error> {
        let Some(new) = &unit.new else { return Ok(()) };
        let (parent, name) = split(&unit.path);
        let dir = root.open_below(parent)?;
        let temporary = record.temporary.as_bytes();
        record.staged = Some(stage(objects, &dir, name, temporary, new, flush)?);
        Ok(())
    });
    staged.into_iter().collect::<Result<(), Error>>()?;
    if flush == Flush::Later {
        root.sync_file_system()?;
    }
    Ok(())
}

/// A unit's directory, and its name in it.
struct Place {
    dir: Dir,
    name: Vec<u8>,
    path: Vec<u8>,
}

fn place(root: &Dir, path: &PathText) -> Result<Place, FileError> {
    let path = path.clone().into_bytes();
    let (parent, name) = split(&path);
    Ok(Place { dir: root.open_below(parent)?, name: name.to_vec(), path: path.clone() })
}

fn moved(path: &[u8]) -> Error {
    Error::Moved { path: TreePath::from_scan(path.to_vec()) }
}

/// Changes one path by one rename, if it still is what the safety snapshot holds.
fn swap(root: &Dir, unit: &UnitRecord) -> Result<(), Error> {
    let Place { dir, name, path } = place(root, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    match (&unit.old, unit.has_new) {
        (None, true) => match dir.rename_new(temporary, &name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(moved(&path)),
            other => Ok(other?),
        },
        (Some(old), has_new) => {
            if !is_as_recorded(&dir, &name, old, Renamed::No)? {
                return Err(moved(&path));
            }
            if has_new {
                dir.exchange(temporary, &name)?;
            } else {
                dir.rename_new(&name, temporary)?;
            }
            // Between the look and the rename somebody may have written. What came out tells.
            if is_as_recorded(&dir, temporary, old, Renamed::Perhaps)? {
                return Ok(());
            }
            swap_back(&dir, &name, unit)?;
            Err(moved(&path))
        }
        (None, false) => Ok(()),
    }
}

fn swap_back(dir: &Dir, name: &[u8], unit: &UnitRecord) -> Result<(), Error> {
    let temporary = unit.temporary.as_bytes();
    match (&unit.old, unit.has_new) {
        (None, true) => dir.rename_new(name, temporary)?,
        (Some(_), true) => dir.exchange(temporary, name)?,
        (Some(_), false) => dir.rename_new(temporary, name)?,
        (None, false) => (),
    }
    Ok(())
}

/// Whether what stands at `name` is exactly what was recorded, directories with all they hold.
fn is_as_recorded(
    dir: &Dir,
    name: &[u8],
    old: &OldRecord,
    renamed: Renamed,
) -> Result<bool, Error> {
    let Some(stat) = dir.stat(name)? else { return Ok(false) };
    let (files, dirs) = match old {
        OldRecord::Leaf(record) => return Ok(record.is(&stat, renamed)),
        OldRecord::Dir { files, dirs } => (files, dirs),
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
    let stat = top.open_below(parent)?.stat(name)?;
    Ok(stat.is_some_and(|stat| record.is(&stat, Renamed::No)))
}

fn change_mode(root: &Dir, change: &ModeRecord, from: u32, to: u32) -> Result<(), Error> {
    let Place { dir, name, path } = place(root, &change.path)?;
    let current = dir.stat(&name)?;
    let expected = if change.is_dir { FileKind::Dir } else { FileKind::File };
    match current {
        Some(stat) if stat.kind == expected && stat.mode & 0o777 == to => return Ok(()),
        Some(stat) if stat.kind == expected && stat.mode & 0o777 == from => (),
        _ => return Err(moved(&path)),
    }
    if change.is_dir {
        return Ok(dir.open_below(&name)?.set_mode_of_dir(to)?);
    }
    let file = dir.open_file(&name)?;
    Ok(set_mode(&file, to).named("set the permissions of", &dir.path_of(&name))?)
}

/// Puts back the first `units` units and `modes` modes, and removes what was staged.
fn roll_back(
    root: &Dir,
    journal: &Journal,
    journal_path: &Path,
    units: usize,
    modes: usize,
    cause: Error,
) -> Error {
    let undone = || -> Result<(), Error> {
        for change in journal.modes[..modes].iter().rev() {
            change_mode(root, change, change.to, change.from)?;
        }
        for unit in journal.units[..units].iter().rev() {
            let Place { dir, name, .. } = place(root, &unit.path)?;
            swap_back(&dir, &name, unit)?;
        }
        for unit in &journal.units {
            remove_staged(root, unit)?;
        }
        sync_places(root, journal)?;
        Journal::remove(journal_path)
    };
    match undone() {
        Ok(()) => Error::RolledBack { cause: Box::new(cause) },
        Err(_) => Error::Interrupted { cause: Box::new(cause) },
    }
}

fn remove_staged(root: &Dir, unit: &UnitRecord) -> Result<(), Error> {
    if !unit.has_new {
        return Ok(());
    }
    let dir = match place(root, &unit.path) {
        Ok(place) => place.dir,
        // Its directory is gone, and the temporary file with it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    remove_own(&dir, unit.temporary.as_bytes())
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

/// Makes the swap durable, removes what it replaced, and closes the journal.
fn finish(root: &Dir, journal: &Journal, path: &Path, flush: Flush) -> Result<Applied, Error> {
    sync_all(root, journal, flush)?;
    let mut applied = Applied::default();
    for unit in &journal.units {
        if let Some(left) = remove_old(root, unit)? {
            applied.left.push(left);
        }
    }
    for emptied in &journal.emptied {
        remove_if_empty(root, &emptied.clone().into_bytes())?;
    }
    // The removals must not come undone after the journal is gone.
    sync_all(root, journal, flush)?;
    Journal::remove(path)?;
    Ok(applied)
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

/// Removes what a unit replaced, if it is what the safety snapshot holds; otherwise tells where
/// it is.
fn remove_old(root: &Dir, unit: &UnitRecord) -> Result<Option<Vec<u8>>, Error> {
    let Some(old) = &unit.old else { return Ok(None) };
    let Place { dir, path, .. } = match place(root, &unit.path) {
        Ok(place) => place,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let temporary = unit.temporary.as_bytes();
    if dir.stat(temporary)?.is_none() {
        return Ok(None);
    }
    let files = match old {
        OldRecord::Leaf(_) => {
            if !is_as_recorded(&dir, temporary, old, Renamed::Perhaps)? {
                return Ok(Some(join(split(&path).0, temporary)));
            }
            dir.remove_file(temporary)?;
            return Ok(None);
        }
        OldRecord::Dir { files, .. } => files,
    };
    let top = dir.open_below(temporary)?;
    for (file, record) in files {
        let file = file.clone().into_bytes();
        let (parent, name) = split(&file);
        let inside = match top.open_below(parent) {
            Ok(inside) => inside,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        if inside.stat(name)?.is_some_and(|stat| record.is(&stat, Renamed::No)) {
            inside.remove_file(name)?;
        }
    }
    remove_empty_dirs(&dir, &top, temporary, old)?;
    let left = dir.stat(temporary)?.is_some();
    Ok(left.then(|| join(split(&path).0, temporary)))
}

fn remove_empty_dirs(dir: &Dir, top: &Dir, name: &[u8], old: &OldRecord) -> Result<(), Error> {
    let OldRecord::Dir { dirs, .. } = old else { return Ok(()) };
    let mut dirs: Vec<Vec<u8>> = dirs.iter().cloned().map(PathText::into_bytes).collect();
    dirs.sort_unstable();
    for path in dirs.iter().rev() {
        let (parent, name) = split(path);
        match top.open_below(parent) {
            Ok(parent) => ignore_not_empty(parent.remove_dir(name))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ignore_not_empty(dir.remove_dir(name))?)
}

fn remove_if_empty(root: &Dir, path: &[u8]) -> Result<(), Error> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(parent) => Ok(ignore_not_empty(parent.remove_dir(name))?),
        // Whatever stands there now is not a directory we emptied.
        Err(_) => Ok(()),
    }
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
pub(crate) fn recover(root: &Dir, journal: &Journal, path: &Path) -> Result<Applied, Error> {
    match journal.phase {
        Phase::Staging => {
            for unit in &journal.units {
                remove_staged(root, unit)?;
            }
            sync_places(root, journal)?;
            Journal::remove(path)?;
            Ok(Applied::default())
        }
        Phase::Swapping => {
            let mut kept = Vec::new();
            for unit in &journal.units {
                if !roll_forward(root, unit)? {
                    kept.push(unit.path.clone().into_bytes());
                }
            }
            for change in &journal.modes {
                match change_mode(root, change, change.from, change.to) {
                    Err(Error::Moved { .. }) => kept.push(change.path.clone().into_bytes()),
                    other => other?,
                }
            }
            let applied = finish(root, journal, path, Flush::Later)?;
            Ok(Applied { kept, ..applied })
        }
    }
}

/// Brings one path to its new state if nobody changed it since the crash; whether it is there.
fn roll_forward(root: &Dir, unit: &UnitRecord) -> Result<bool, Error> {
    let Place { dir, name, .. } = match place(root, &unit.path) {
        Ok(place) => place,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let temporary = unit.temporary.as_bytes();
    let here = dir.stat(&name)?;
    let there = dir.stat(temporary)?;
    let is_staged = |stat: Option<crate::fs::Stat>| {
        unit.staged.is_some() && stat.map(|stat| stat.inode) == unit.staged
    };
    if unit.has_new && is_staged(here) {
        return Ok(true);
    }
    let untouched = match &unit.old {
        None => here.is_none(),
        Some(old) => here.is_some() && is_as_recorded(&dir, &name, old, Renamed::Perhaps)?,
    };
    match (&unit.old, unit.has_new) {
        (None, true) if untouched && is_staged(there) => dir.rename_new(temporary, &name)?,
        (Some(_), true) if untouched && is_staged(there) => dir.exchange(temporary, &name)?,
        (Some(_), false) if untouched && there.is_none() => dir.rename_new(&name, temporary)?,
        // Removed before the crash, or by somebody since.
        (Some(_), false) if here.is_none() => (),
        (None, false) => (),
        _ => {
            // Somebody wrote here after the crash. Their bytes stay; ours are in the store.
            if unit.has_new && is_staged(there) {
                remove_own(&dir, temporary)?;
            }
            return Ok(false);
        }
    }
    Ok(true)
}
