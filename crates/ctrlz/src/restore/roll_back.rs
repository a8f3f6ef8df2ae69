//! Rolls a failed restore back, and an interrupted one back or forward.

use std::path::Path;

use crate::error::{Error, RestoreError};
use crate::fs::Dir;

use super::applied::{Applied, Rescue, Site};
use super::clean::{OnFailure, discard, finish, sync_places};
use super::journal::{Journal, Phase, Renamed, Thing, UnitRecord};
use super::modes::{change_mode, close_dirs, open_dirs};
use super::place::{Near, is_as_recorded, place};
use super::stage::Flush;

/// Reverses all changes and removes the staged files. Returns the error to report for `cause`.
pub(super) fn roll_back(site: &Site<'_>, journal: &mut Journal, cause: Error) -> Error {
    let mut undone = || -> Result<(), Error> {
        if journal.phase == Phase::Swapping {
            // If this process is killed from here on, the next command must not roll forward.
            journal.phase = Phase::RollingBack;
            journal.save(site.journal)?;
        }
        undo_all(site, journal, OnFailure::Stop).map(drop)
    };
    match undone() {
        Ok(()) => Error::Restore(RestoreError::RolledBack { cause: Box::new(cause) }),
        Err(_) => Error::Restore(RestoreError::Interrupted { cause: Box::new(cause) }),
    }
}

/// Rolls a journal back. Returns the paths that were changed meanwhile, which are left alone.
fn undo_all(
    site: &Site<'_>,
    journal: &Journal,
    on_failure: OnFailure,
) -> Result<Vec<Vec<u8>>, Error> {
    let Site { root, rescue, .. } = *site;
    let mut kept = Vec::new();
    let mut failure = None;
    // Errors are ignored: without permission, the paths below are kept.
    drop(open_dirs(root, journal));
    // Permissions of directories change after the swap, so none has changed yet.
    for change in journal.modes.iter().rev().filter(|change| !change.is_dir) {
        // Errors are ignored: it was not changed yet, or by another process.
        drop(change_mode(root, change, change.to, change.from));
    }
    let mut near = Near::of(root);
    for unit in journal.units.iter().rev() {
        match undo_steadily(&mut near, unit, rescue) {
            Ok(true) => (),
            Ok(false) | Err(Error::Restore(RestoreError::Moved { .. })) => {
                kept.push(unit.path.clone());
            }
            Err(error) => {
                kept.push(unit.path.clone());
                failure.get_or_insert(error);
            }
        }
    }
    // The journal stays if a path could not be restored, so that the next command tries again.
    if let Some(error) = failure
        && on_failure == OnFailure::Stop
    {
        return Err(error);
    }
    close_dirs(root, journal);
    sync_places(root, journal)?;
    Journal::remove(site.journal)?;
    Ok(kept)
}

/// Calls [`undo_unit`], up to ten times if another process interferes.
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

/// Restores a path that is in its new state. Returns whether the path has its old state.
///
/// A file that another process created there is left alone. The safety snapshot has the old
/// content.
fn undo_unit(near: &mut Near<'_>, unit: &UnitRecord, rescue: Rescue<'_>) -> Result<bool, Error> {
    let (dir, name) = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    let is = |name: &[u8], thing: &Option<Thing>| match thing {
        Some(thing) => is_as_recorded(dir, name, thing, Renamed::Perhaps),
        None => Ok(dir.stat(name)?.is_none()),
    };
    let new_is_here = unit.has_new && unit.staged.is_some() && is(name, &unit.staged)?;
    // Its content is not compared: if another process wrote to it just before the swap, the file
    // still belongs at its path.
    let old_is_there = unit.old.is_some() && dir.stat(temporary)?.is_some();
    match (&unit.old, unit.has_new) {
        (None, true) if new_is_here => dir.rename_new(name, temporary)?,
        (Some(_), true) if new_is_here && old_is_there => dir.exchange(temporary, name)?,
        (Some(_), false) if old_is_there && dir.stat(name)?.is_none() => {
            dir.rename_new(temporary, name)?;
        }
        _ => (),
    }
    let is_back = is(name, &unit.old)?;
    discard(dir, unit, rescue)?;
    Ok(is_back)
}

/// Finishes an interrupted restore. Rolls it back if no path had changed or a rollback had begun,
/// and forward otherwise.
///
/// Never fails on a single path: paths modified since the crash are left alone and reported.
pub(crate) fn recover(
    root: &Dir,
    journal: &Journal,
    path: &Path,
    rescue: Rescue<'_>,
) -> Result<Applied, Error> {
    let site = Site { root, journal: path, threads: 1, rescue };
    match journal.phase {
        Phase::Staging | Phase::RollingBack => {
            let kept = undo_all(&site, journal, OnFailure::GoOn)?;
            let kept = if journal.phase == Phase::Staging { Vec::new() } else { kept };
            Ok(Applied { kept, ..Applied::default() })
        }
        Phase::Recording => Ok(Applied::default()),
        Phase::Swapping => {
            let mut kept = Vec::new();
            // Errors are ignored: without permission, the paths below are kept and reported.
            drop(open_dirs(root, journal));
            let mut near = Near::of(root);
            for unit in &journal.units {
                if !roll_forward(&mut near, unit, rescue).unwrap_or(false) {
                    kept.push(unit.path.clone());
                }
            }
            for change in journal.modes.iter().filter(|change| !change.is_dir) {
                if change_mode(root, change, change.from, change.to).is_err() {
                    kept.push(change.path.clone());
                }
            }
            let applied = finish(&site, journal, Flush::Later, OnFailure::GoOn)?;
            kept.extend(applied.kept);
            Ok(Applied { kept, ..applied })
        }
    }
}

/// Brings a path to its new state unless it was changed since the crash. Returns whether the path
/// has its new state.
fn roll_forward(near: &mut Near<'_>, unit: &UnitRecord, rescue: Rescue<'_>) -> Result<bool, Error> {
    let (dir, name) = place(near, &unit.path)?;
    let temporary = unit.temporary.as_bytes();
    let is = |name: &[u8], thing: &Option<Thing>| match thing {
        Some(thing) => is_as_recorded(dir, name, thing, Renamed::Perhaps),
        None => Ok(dir.stat(name)?.is_none()),
    };
    if unit.has_new && is(name, &unit.staged)? {
        return Ok(true);
    }
    let untouched = is(name, &unit.old)?;
    let staged_waits = unit.has_new && unit.staged.is_some() && is(temporary, &unit.staged)?;
    match (&unit.old, unit.has_new) {
        (None, true) if untouched && staged_waits => dir.rename_new(temporary, name)?,
        (Some(_), true) if untouched && staged_waits => dir.exchange(temporary, name)?,
        (Some(_), false) if untouched && dir.stat(temporary)?.is_none() => {
            dir.rename_new(name, temporary)?;
        }
        // Removed before the crash or since.
        (Some(_), false) if dir.stat(name)?.is_none() => (),
        (None, false) => (),
        _ => {
            // Another process wrote here after the crash. Its file stays; ours is in the store.
            discard(dir, unit, rescue)?;
            return Ok(false);
        }
    }
    Ok(true)
}
