//! Paths of a plan on disk, and their comparison with the recorded metadata.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Named, Stat};
use crate::jobs::run_jobs;
use crate::path::{PathText, join, split};
use crate::scan::{LargeProblem, hash_large};

use super::journal::{Renamed, StatRecord, Thing, UnitRecord};

/// Returns the number of units per job. Adjacent units share a directory, which is opened once.
pub(super) fn units_per_job(threads: usize, units: usize) -> usize {
    const MAX_UNITS: usize = 64;
    (units / (threads.max(1) * 4)).clamp(1, MAX_UNITS)
}

/// Calls `work` for each unit, on several threads. Stops at the first error.
pub(super) fn for_each_unit<'a, R: Send>(
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

/// Keeps the most recently used directory open.
///
/// No symlink is followed to reach it. If a directory above it is renamed meanwhile, the handle
/// still refers to a directory that was in the work tree.
pub(super) struct Near<'a> {
    root: &'a Dir,
    last: Option<(Vec<u8>, Dir)>,
}

impl<'a> Near<'a> {
    pub(super) fn of(root: &'a Dir) -> Near<'a> {
        Near { root, last: None }
    }

    pub(super) fn dir(&mut self, path: &[u8]) -> Result<&Dir, FileError> {
        let last = match self.last.take() {
            Some(last) if last.0 == path => last,
            _ => (path.to_vec(), self.root.open_below(path)?),
        };
        Ok(&self.last.insert(last).1)
    }
}

/// Directory of a unit, and the unit's name in it.
pub(super) struct Place<'a> {
    pub(super) dir: &'a Dir,
    pub(super) name: Vec<u8>,
    pub(super) path: Vec<u8>,
}

pub(super) fn place<'a>(near: &'a mut Near<'_>, path: &PathText) -> Result<Place<'a>, FileError> {
    let path = path.clone().into_bytes();
    let (parent, name) = split(&path);
    Ok(Place { dir: near.dir(parent)?, name: name.to_vec(), path: path.clone() })
}

/// Returns whether `name` is exactly the recorded file, or directory with the same contents.
pub(super) fn is_as_recorded(
    dir: &Dir,
    name: &[u8],
    old: &Thing,
    renamed: Renamed,
) -> Result<bool, Error> {
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
        // Only the directory was renamed, so the change times of its files are comparable.
        if !file_is(&top, &path.clone().into_bytes(), record)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn file_is(top: &Dir, path: &[u8], record: &StatRecord) -> Result<bool, Error> {
    let (parent, name) = split(path);
    let dir = top.open_below(parent)?;
    match dir.stat(name)? {
        Some(stat) => leaf_is(&dir, name, record, &stat, Renamed::No),
        None => Ok(false),
    }
}

/// Returns whether a file is the recorded one. Its content is read only if the recorded metadata
/// was too recent to prove it.
pub(super) fn leaf_is(
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
    match hash_large(stat.bytes, &mut file) {
        Ok(found) => Ok(found == id),
        Err(LargeProblem::Read(error)) => Ok(Err(error).named("read", &dir.path_of(name))?),
        Err(_) => Ok(false),
    }
}
