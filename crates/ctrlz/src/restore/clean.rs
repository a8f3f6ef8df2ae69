//! Cleaning up after a restore: removes the replaced files and closes the journal.

use std::collections::BTreeSet;

use crate::error::{Error, RestoreError};
use crate::fs::{Dir, FileError, FileKind};
use crate::path::{PathText, join, split};

use super::applied::{Applied, Rescue, Site};
use super::journal::{Journal, Phase, Renamed, Thing, UnitRecord};
use super::modes::{change_mode, close_dirs};
use super::place::{Near, for_each_unit, is_as_recorded, leaf_is, place};
use super::stage::Flush;

/// Removes the file at a unit's temporary name. A file that is in no snapshot is saved first.
pub(super) fn discard(dir: &Dir, unit: &UnitRecord, rescue: Rescue<'_>) -> Result<(), Error> {
    let temporary = unit.temporary.as_bytes();
    let Some(stat) = dir.stat(temporary)? else { return Ok(()) };
    // Without a record, its staging was interrupted.
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
    // Another process wrote it during the swap.
    rescue(dir, temporary, &unit.path)?;
    Ok(dir.remove_file(temporary)?)
}

/// Removes the file that a unit replaced, if it is exactly what the safety snapshot holds. Returns
/// whether it was removed.
fn remove_recorded_leaf(near: &mut Near<'_>, unit: &UnitRecord) -> Result<bool, Error> {
    let Some(old @ Thing::Leaf(_)) = &unit.old else { return Ok(false) };
    let (dir, _) = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    if !is_as_recorded(dir, temporary, old, Renamed::Perhaps)? {
        return Ok(false);
    }
    dir.remove_file(temporary)?;
    Ok(true)
}

/// Removes the recorded contents of a directory, and the directory if it is empty then.
fn remove_known(dir: &Dir, name: &[u8], thing: &Thing) -> Result<(), Error> {
    let Thing::Dir { files, dirs, .. } = thing else { return Ok(()) };
    let top = dir.open_below(name)?;
    let mut dirs: Vec<&[u8]> = dirs.iter().map(PathText::as_bytes).collect();
    dirs.sort_unstable();
    for path in std::iter::once(&&b""[..]).chain(&dirs) {
        match top.open_below(path) {
            // The removals need write permission. Errors are ignored: the removals fail then.
            Ok(inside) => drop(inside.set_mode_of_dir(0o700)),
            Err(error) if is_elsewhere(&error) => (),
            Err(error) => return Err(error.into()),
        }
    }
    for (file, record) in files {
        let (parent, name) = split(file.as_bytes());
        let inside = match top.open_below(parent) {
            Ok(inside) => inside,
            Err(error) if is_elsewhere(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        if leaf_is(&inside, name, record, Renamed::No)? {
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

/// Removes a staged file or directory, which only ctrlz has written to.
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
        // A staged directory may already have its final permissions, which may be read-only.
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

/// Reaction to a replaced file that cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// Keeps the journal, so that the next command tries again.
    Stop,
    /// Reports the file and closes the journal, because this is already the second attempt.
    GoOn,
}

/// Makes the swap durable, removes the replaced files, and closes the journal.
pub(super) fn finish(
    site: &Site<'_>,
    journal: &Journal,
    flush: Flush,
    on_failure: OnFailure,
) -> Result<Applied, Error> {
    let Site { root, rescue, .. } = *site;
    sync_all(root, journal, flush)?;
    let mut applied = Applied::default();
    // Files that match their records are removed on all threads. The others, and those that could
    // not be removed, are saved or reported below.
    let left = for_each_unit(site, &journal.units, |near, unit| {
        Ok((!remove_recorded_leaf(near, unit).unwrap_or(false)).then_some(unit))
    })?;
    let mut near = Near::of(root);
    for unit in left.into_iter().flatten() {
        match remove_old(&mut near, unit, rescue) {
            Ok(None) => (),
            Ok(Some(left)) => applied.left.push(left),
            Err(error) if on_failure == OnFailure::Stop => return Err(error),
            Err(_) => applied.left.push(temporary_path(unit)),
        }
    }
    applied.left.sort_unstable();
    for emptied in &journal.emptied {
        let dir = emptied.as_bytes();
        match remove_if_empty(root, dir) {
            Ok(()) => (),
            Err(error) if on_failure == OnFailure::Stop && !is_refusal(&error) => {
                return Err(error.into());
            }
            Err(_) => applied.left.push(dir.to_vec()),
        }
    }
    close_dirs(root, journal);
    // Last, because a directory may become read-only.
    for change in journal.modes.iter().filter(|change| change.is_dir) {
        match change_mode(root, change, change.from, change.to) {
            Ok(()) => (),
            Err(Error::Restore(RestoreError::Moved { .. })) => {
                applied.kept.push(change.path.clone());
            }
            Err(error) if on_failure == OnFailure::Stop => return Err(error),
            Err(_) => applied.kept.push(change.path.clone()),
        }
    }
    // The removals have to be durable before the journal is removed.
    sync_all(root, journal, flush)?;
    match &journal.record {
        Some(_) => Journal { phase: Phase::Recording, ..journal.clone() }.save(site.journal)?,
        None => Journal::remove(site.journal)?,
    }
    Ok(applied)
}

/// Returns whether a retry would fail in the same way.
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

pub(super) fn sync_places(root: &Dir, journal: &Journal) -> Result<(), Error> {
    let parents: BTreeSet<&[u8]> = journal.units.iter().map(|unit| split(&unit.path).0).collect();
    for parent in parents {
        match root.open_below(parent) {
            Ok(dir) => dir.sync()?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes the file that a unit replaced. Returns its temporary path if that is not possible.
fn remove_old(
    near: &mut Near<'_>,
    unit: &UnitRecord,
    rescue: Rescue<'_>,
) -> Result<Option<Vec<u8>>, Error> {
    let dir = match place(near, &unit.path) {
        Ok((dir, _)) => dir,
        Err(error) if is_elsewhere(&error) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match discard(dir, unit, rescue) {
        Ok(()) => (),
        // It keeps changing, or is a special file.
        Err(Error::Restore(RestoreError::Moved { .. })) => (),
        Err(error) => return Err(error),
    }
    let left = dir.stat(unit.temporary.as_bytes())?.is_some();
    Ok(left.then(|| temporary_path(unit)))
}

fn temporary_path(unit: &UnitRecord) -> Vec<u8> {
    join(split(&unit.path).0, unit.temporary.as_bytes())
}

/// Removes a directory if it is empty.
fn remove_if_empty(root: &Dir, path: &[u8]) -> Result<(), FileError> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(parent) => ignore_not_empty(parent.remove_dir(name)),
        // The directory that was emptied is gone or was replaced.
        Err(error) if is_elsewhere(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that a directory is gone or was replaced by another file.
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
