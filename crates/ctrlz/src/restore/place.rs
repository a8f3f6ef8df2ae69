//! Paths of a plan on disk, and their comparison with the recorded metadata.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Named};
use crate::jobs::run_jobs;
use crate::path::{PathText, join, split};
use crate::scan::{LargeProblem, hash_large};

use super::applied::Site;
use super::journal::{Renamed, StatRecord, Thing, UnitRecord};

/// Returns the number of units per job. Adjacent units share a directory, which is opened once.
pub(super) fn units_per_job(threads: usize, units: usize) -> usize {
    const MAX_UNITS: usize = 64;
    (units / (threads.max(1) * 4)).clamp(1, MAX_UNITS)
}

/// Calls `work` for each unit, on several threads. Stops at the first error.
pub(super) fn for_each_unit<'a, R: Send>(
    site: &Site<'_>,
    units: &'a [UnitRecord],
    work: impl Fn(&mut Near<'_>, &'a UnitRecord) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let failed = AtomicBool::new(false);
    let Site { root, threads, .. } = *site;
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

/// Returns the directory of a path, and the name in it.
pub(super) fn place<'a>(
    near: &'a mut Near<'_>,
    path: &'a [u8],
) -> Result<(&'a Dir, &'a [u8]), FileError> {
    let (parent, name) = split(path);
    Ok((near.dir(parent)?, name))
}

/// Returns whether `name` is exactly the recorded file, or directory with the same contents.
pub(super) fn is_as_recorded(
    dir: &Dir,
    name: &[u8],
    old: &Thing,
    renamed: Renamed,
) -> Result<bool, Error> {
    let (inode, files, dirs) = match old {
        Thing::Leaf(record) => return leaf_is(dir, name, record, renamed),
        Thing::Dir { inode, files, dirs } => (inode, files, dirs),
    };
    let stat = dir.stat(name)?;
    if stat.is_none_or(|stat| stat.inode != *inode || stat.kind != FileKind::Dir) {
        return Ok(false);
    }
    let top = dir.open_below(name)?;
    let expected: BTreeSet<&[u8]> =
        files.iter().map(|(path, _)| path).chain(dirs).map(PathText::as_bytes).collect();
    let mut found = BTreeSet::new();
    for inside in std::iter::once(&b""[..]).chain(dirs.iter().map(PathText::as_bytes)) {
        for name in top.open_below(inside)?.names()? {
            found.insert(join(inside, &name));
        }
    }
    if !found.iter().map(Vec::as_slice).eq(expected) {
        return Ok(false);
    }
    for (path, record) in files {
        // Only the directory was renamed, so the change times of its files are comparable.
        let (parent, name) = split(path.as_bytes());
        if !leaf_is(&top.open_below(parent)?, name, record, Renamed::No)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a file is the recorded one. Its content is read only if the recorded metadata
/// was too recent to prove it.
pub(super) fn leaf_is(
    dir: &Dir,
    name: &[u8],
    record: &StatRecord,
    renamed: Renamed,
) -> Result<bool, Error> {
    let Some(stat) = dir.stat(name)?.filter(|stat| record.is(stat, renamed)) else {
        return Ok(false);
    };
    let Some(id) = record.content else { return Ok(true) };
    let mut file = dir.open_file(name)?;
    match hash_large(stat.bytes, &mut file) {
        Ok(found) => Ok(found == id),
        Err(LargeProblem::Read(error)) => Ok(Err(error).named("read", &dir.path_of(name))?),
        Err(_) => Ok(false),
    }
}
