//! Applies a plan: stages the new content, swaps every path by a rename, and cleans up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::compare::Entry;
use crate::error::{Error, RestoreError};
use crate::fs::{Dir, Guard, Stat, Time, random_name};
use crate::git::ObjectId;
use crate::jobs::run_jobs;
use crate::pack::Objects;
use crate::path::{PathText, join, split};
use crate::scan::{EntryStat, Placed, is_racy};

use super::applied::{Applied, Site};
use super::clean::{OnFailure, finish};
use super::journal::{Journal, Phase, Renamed, StatRecord, Thing, UnitRecord, temporary_name};
use super::modes::{change_mode, check_dir_modes, open_dirs, read_only_dirs};
use super::place::{Near, for_each_unit, is_as_recorded, place, units_per_job};
use super::plan::{NewThing, OldThing, Plan, Unit};
use super::roll_back::roll_back;
use super::stage::{Flush, Staging};

/// Above this number of files, one flush of the file system is cheaper than one per file.
const MAX_SINGLE_FLUSHES: usize = 32;

/// Carries out `plan`, with the journal that [`Journal::of`] returns for it. An error up to the end
/// of the swap rolls everything back. A later one leaves the journal for the next command.
pub(crate) fn apply(
    site: &Site<'_>,
    objects: &Objects,
    plan: &Plan,
    mut journal: Journal,
) -> Result<Applied, Error> {
    let root = site.root;
    journal.opened = read_only_dirs(root, &journal);
    journal.save(site.journal)?;
    let staging = Staging { objects, flush: flush_for(plan) };
    let opened = open_dirs(root, &journal);
    let staged = opened.and_then(|()| stage_all(site, staging, plan, &mut journal));
    if let Err(cause) = staged {
        return Err(roll_back(site, &mut journal, cause));
    }
    journal.phase = Phase::Swapping;
    if let Err(cause) = journal.save(site.journal) {
        return Err(roll_back(site, &mut journal, cause));
    }
    let before_swap = Time::now();
    let held = AtomicUsize::new(0);
    let swap = |near: &mut Near<'_>, unit| swap(near, unit, (!plan.replaces_used).then_some(&held));
    let swapped = for_each_unit(site, &journal.units, swap).and_then(|swapped| {
        let (stats, guards): (Vec<_>, Vec<_>) = swapped.into_iter().unzip();
        // A process that resolved a name before the exchange may open the replaced file only now.
        let wanted = guards.iter().flatten().find(|(guard, _)| guard.is_wanted());
        if let Some((_, unit)) = wanted {
            return Err(Error::moved(&unit.path));
        }
        let mut files = journal.modes.iter().filter(|change| !change.is_dir);
        files.try_for_each(|change| change_mode(root, change, change.from, change.to))?;
        check_dir_modes(root, &journal)?;
        Ok(stats)
    });
    let stats = match swapped {
        Ok(stats) => stats,
        Err(cause) => return Err(roll_back(site, &mut journal, cause)),
    };
    // The new state is complete. After an error, the next command cleans up by the journal.
    let applied = finish(site, &journal, staging.flush, OnFailure::Stop)
        .map_err(|cause| Error::Restore(RestoreError::Interrupted { cause: Box::new(cause) }))?;
    let without_special_bits = without_special_bits(root, plan);
    Ok(Applied { placed: placed(plan, stats, before_swap), without_special_bits, ..applied })
}

/// Returns the files whose set-user-id or set-group-id bit the kernel cleared. Only root or a
/// member of the file's group may set the latter.
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

/// Returns the files that the next snapshot need not read while their metadata is the same.
///
/// Their content was read back under a name that no other process knew. The rename updated only the
/// change time. A write since then would have updated the modification time, which was old enough
/// before the file became visible.
fn placed(plan: &Plan, stats: Vec<Option<(&UnitRecord, Stat)>>, before_swap: Time) -> Placed {
    let mut ids = BTreeMap::new();
    for unit in &plan.units {
        if let Some(NewThing::Leaf { entry, .. }) = &unit.new {
            ids.insert(unit.path.as_slice(), entry.id);
        }
    }
    let proven = stats.into_iter().flatten().filter_map(|(unit, stat)| {
        let Some(Thing::Leaf(staged)) = &unit.staged else { return None };
        let id = *ids.get(unit.path.as_slice())?;
        let unchanged = staged.is(&stat, Renamed::Perhaps) && !is_racy(stat.mtime, before_swap);
        unchanged.then(|| (unit.path.clone(), (EntryStat::from(&stat), id)))
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

impl Journal {
    /// Returns the journal of a plan that is about to be applied.
    pub(crate) fn of(plan: &Plan, safety: ObjectId) -> Journal {
        let token = random_name();
        let record = |(at, unit): (usize, &Unit)| UnitRecord {
            path: unit.path.clone(),
            temporary: temporary_name(&token, at),
            staged: None,
            has_new: unit.new.is_some(),
            old: unit.old.as_ref().map(old_record),
        };
        let mut journal = Journal {
            version: Journal::VERSION,
            phase: Phase::Staging,
            target: None,
            safety,
            units: plan.units.iter().enumerate().map(record).collect(),
            modes: plan.modes.clone(),
            emptied: plan.emptied.iter().map(|path| PathText::from_bytes(path)).collect(),
            opened: Vec::new(),
            record: None,
            file: None,
        };
        journal.mark_links();
        journal
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

/// Returns the record of a file. It includes the content if the metadata is too recent to prove it.
fn record(entry: &Entry, stat: &EntryStat, racy: bool) -> StatRecord {
    let content = (racy && entry.kind.is_file()).then_some(entry.id);
    StatRecord::from(stat).backed_by(content)
}

fn stage_all(
    site: &Site<'_>,
    staging: Staging<'_>,
    plan: &Plan,
    journal: &mut Journal,
) -> Result<(), Error> {
    let Site { root, threads, .. } = *site;
    let mut jobs: Vec<(&Unit, &mut UnitRecord)> =
        plan.units.iter().zip(&mut journal.units).filter(|(unit, _)| unit.new.is_some()).collect();
    let per_job = units_per_job(threads, jobs.len());
    let staged = run_jobs(threads, jobs.chunks_mut(per_job).rev().collect(), |units, _| {
        let mut near = Near::of(root);
        units.iter_mut().try_for_each(|(unit, record)| -> Result<(), Error> {
            let Some(new) = &unit.new else { return Ok(()) };
            let (parent, name) = split(&unit.path);
            let temporary = record.temporary.as_bytes();
            record.staged = Some(staging.stage(near.dir(parent)?, name, temporary, new)?);
            Ok(())
        })
    });
    staged.into_iter().collect::<Result<(), Error>>()?;
    link_staged(root, plan, journal)?;
    if staging.flush == Flush::Later {
        root.sync_file_system()?;
    }
    Ok(())
}

/// Replaces staged files by hard links to one file, where the present files are hard links too or
/// a removed name was one.
fn link_staged(root: &Dir, plan: &Plan, journal: &mut Journal) -> Result<(), Error> {
    for (at, other, inode) in &plan.relinked {
        let (dir, name) = staged_place(root, &journal.units[*at])?;
        let (other_dir, other_name) = split(other);
        dir.remove_file(&name)?;
        dir.link_from(&root.open_below(other_dir)?, other_name, &name)?;
        let stat = dir.stat(&name)?.filter(|stat| stat.inode == *inode);
        let stat = stat.ok_or_else(|| Error::moved(other))?;
        journal.units[*at].staged = Some(Thing::Leaf(StatRecord::from(&EntryStat::from(&stat))));
    }
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
            let stat = dir.stat(&name)?.ok_or_else(|| Error::moved(&name))?;
            journal.units[*at].staged =
                Some(Thing::Leaf(StatRecord::from(&EntryStat::from(&stat))));
        }
    }
    Ok(())
}

/// Returns the directory and temporary name of a staged file.
fn staged_place(root: &Dir, unit: &UnitRecord) -> Result<(Dir, Vec<u8>), Error> {
    Ok((root.open_below(split(&unit.path).0)?, unit.temporary.as_bytes().to_vec()))
}

/// Metadata of a path after its change, and the guard of the replaced file.
type Swapped<'a> = (Option<(&'a UnitRecord, Stat)>, Option<(Guard, &'a UnitRecord)>);

/// Changes one path by one rename, if it is still what the safety snapshot holds. Returns the new
/// metadata of the path.
///
/// A replaced file is guarded meanwhile: a process that opens it for writing would write to an
/// unlinked file. `held` counts the guards that are kept until all paths are changed. Without it,
/// files in use are replaced.
fn swap<'a>(
    near: &mut Near<'_>,
    unit: &'a UnitRecord,
    held: Option<&AtomicUsize>,
) -> Result<Swapped<'a>, Error> {
    /// Each guard uses one file descriptor.
    const MAX_GUARDS: usize = 256;
    let (dir, name) = place(near, &unit.path)?;
    let moved = || Error::moved(&unit.path);
    let temporary = unit.temporary.as_bytes();
    let guard = match &unit.old {
        Some(Thing::Leaf(_)) if held.is_some() => Guard::of(dir, name).map_err(|()| moved())?,
        _ => None,
    };
    match (&unit.old, unit.has_new) {
        (None, false) => (),
        (None, true) => match dir.rename_new(temporary, name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(moved());
            }
            other => other?,
        },
        (Some(old), has_new) => {
            if !is_as_recorded(dir, name, old, Renamed::No)? {
                return Err(moved());
            }
            if has_new {
                dir.exchange(temporary, name)?;
            } else {
                dir.rename_new(name, temporary)?;
            }
            // Another process may have written between the check and the rename. Then the replaced
            // file differs, and the rollback restores it.
            if !is_as_recorded(dir, temporary, old, Renamed::Perhaps)? {
                return Err(moved());
            }
        }
    }
    if guard.as_ref().is_some_and(Guard::is_wanted) {
        return Err(moved());
    }
    let stat = if unit.has_new { dir.stat(name)? } else { None };
    let is_kept = held.is_some_and(|held| held.fetch_add(1, Ordering::Relaxed) < MAX_GUARDS);
    let guard = guard.filter(|_| is_kept);
    Ok((stat.map(|stat| (unit, stat)), guard.map(|guard| (guard, unit))))
}
