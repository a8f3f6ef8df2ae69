//! Stable reading: one file at a time, until nothing changed it while it was read.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;
use crate::fs::{Dir, FileError, FileKind, Stat, Time, stat_file};
use crate::git::ObjectId;

use super::{EntryStat, Keep, LARGE_FILE_BYTES, LargeProblem, SkipReason, Skipped, is_racy};

/// Number of attempts to read a file that keeps changing, before it is skipped.
pub(super) const TRIES: usize = 4;

/// Result of reading one file.
pub(crate) enum Outcome {
    Read {
        stat: EntryStat,
        id: ObjectId,
        racy: bool,
    },
    /// Deleted since it was listed.
    Gone,
    Skip(SkipReason),
}

/// Reads one file or symlink until its metadata is the same before and after.
pub(crate) fn read_entry(
    dir: &Dir,
    name: &[u8],
    kind: FileKind,
    keep: &dyn Keep,
) -> Result<Outcome, Error> {
    let mut kind = kind;
    for _ in 0..TRIES {
        let outcome = match kind {
            FileKind::Symlink => read_link_once(dir, name, keep)?,
            FileKind::File => read_file_once(dir, name, keep)?,
            FileKind::Dir => return Ok(Outcome::Skip(SkipReason::Unstable)),
            FileKind::Special => return Ok(Outcome::Skip(SkipReason::Special)),
        };
        match outcome {
            Once::Stable(outcome) => return Ok(outcome),
            Once::Changed => (),
        }
        kind = match dir.stat(name) {
            Ok(Some(stat)) => stat.kind,
            Ok(None) => return Ok(Outcome::Gone),
            Err(error) => return Ok(Outcome::Skip(Skipped::unreadable(Vec::new(), &error).reason)),
        };
    }
    Ok(Outcome::Skip(SkipReason::Unstable))
}

enum Once {
    Stable(Outcome),
    Changed,
}

fn unreadable_now(error: &FileError) -> Once {
    Once::Stable(match error.kind() {
        std::io::ErrorKind::NotFound => Outcome::Gone,
        _ => Outcome::Skip(Skipped::unreadable(Vec::new(), error).reason),
    })
}

fn read_link_once(dir: &Dir, name: &[u8], keep: &dyn Keep) -> Result<Once, Error> {
    let before = Time::now();
    let (target, second) = match look_at_link(dir, name) {
        Ok(Some(seen)) => seen,
        Ok(None) => return Ok(Once::Changed),
        Err(error) => return Ok(unreadable_now(&error)),
    };
    let Some(id) = keep.blob(&target)? else {
        return Ok(Once::Stable(Outcome::Skip(SkipReason::HashCollision)));
    };
    let racy = is_racy(second.ctime, before);
    Ok(Once::Stable(Outcome::Read { stat: EntryStat::from(&second), id, racy }))
}

/// Returns a symlink's target, or `None` if the symlink changed while it was read.
fn look_at_link(dir: &Dir, name: &[u8]) -> Result<Option<(Vec<u8>, Stat)>, FileError> {
    let is_link = |stat: &Stat| stat.kind == FileKind::Symlink;
    let Some(first) = dir.stat(name)?.filter(is_link) else { return Ok(None) };
    let target = dir.read_link(name)?;
    let second = dir.stat(name)?.filter(|second| first.same_file_and_content(second));
    Ok(second.map(|second| (target, second)))
}

fn read_file_once(dir: &Dir, name: &[u8], keep: &dyn Keep) -> Result<Once, Error> {
    let before = Time::now();
    let mut file = match dir.open_file(name) {
        Ok(file) => file,
        // A symlink has replaced it.
        Err(error) if is_loop(&error) => return Ok(Once::Changed),
        Err(error) => return Ok(unreadable_now(&error)),
    };
    let first = match look(&file) {
        Ok(stat) => stat,
        Err(error) => return Ok(unreadable_now(&error)),
    };
    if first.kind != FileKind::File {
        return Ok(Once::Changed);
    }
    let stored = if first.bytes > LARGE_FILE_BYTES {
        store_large(&file, &first, keep)
    } else {
        store_small(&mut file, &first, before, keep)
    };
    match stored {
        Ok(id) => {
            let racy = is_racy(first.ctime, before);
            Ok(Once::Stable(Outcome::Read { stat: EntryStat::from(&first), id, racy }))
        }
        Err(LargeProblem::Changed) => Ok(Once::Changed),
        Err(LargeProblem::Collision) => Ok(Once::Stable(Outcome::Skip(SkipReason::HashCollision))),
        Err(LargeProblem::Read(error)) => {
            Ok(Once::Stable(Outcome::Skip(SkipReason::Unreadable { error: error.to_string() })))
        }
        Err(LargeProblem::Store(error)) => Err(error),
    }
}

fn look(file: &File) -> Result<Stat, FileError> {
    stat_file(file, Path::new("the file that is read"))
}

/// Stores a large file while it is read. `first` is its metadata from before.
fn store_large(file: &File, first: &Stat, keep: &dyn Keep) -> Result<ObjectId, LargeProblem> {
    let copy = keep.clone_of(file);
    // A copy is checked at the moment when it was made; later changes do not affect it.
    let moment = copy.is_some().then(|| look(file));
    let mut source = copy.as_ref().unwrap_or(file);
    let id = keep.large(first.bytes, &mut source)?;
    let moment = moment.unwrap_or_else(|| look(file));
    if moment.is_ok_and(|now| first.same_file_and_content(&now)) {
        Ok(id)
    } else {
        Err(LargeProblem::Changed)
    }
}

/// Stores a file after it was read completely. `first` is its metadata from before.
fn store_small(
    file: &mut File,
    first: &Stat,
    before: Time,
    keep: &dyn Keep,
) -> Result<ObjectId, LargeProblem> {
    let bytes = read_twice_if_young(file, first, before).map_err(LargeProblem::Read)?;
    let bytes = bytes.ok_or(LargeProblem::Changed)?;
    if !look(file).is_ok_and(|now| first.same_file_and_content(&now)) {
        // A torn read must not reach the store.
        return Err(LargeProblem::Changed);
    }
    keep.blob(&bytes)?.ok_or(LargeProblem::Collision)
}

fn is_loop(error: &FileError) -> bool {
    rustix::io::Errno::from_io_error(&error.source) == Some(rustix::io::Errno::LOOP)
}

/// Reads the file, twice if its change time is too recent to reveal a concurrent write.
///
/// Returns `None` if the two reads differ or the size is not the one in `stat`.
fn read_twice_if_young(
    file: &mut File,
    stat: &Stat,
    before: Time,
) -> std::io::Result<Option<Vec<u8>>> {
    let bytes = read_sized(file, stat.bytes)?;
    if bytes.len() as u64 != stat.bytes {
        return Ok(None);
    }
    if is_racy(stat.ctime, before) {
        std::io::Seek::rewind(file)?;
        if read_sized(file, stat.bytes)? != bytes {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

/// Reads at most `bytes` bytes. If the file grew since, the next stat shows it.
fn read_sized(file: &mut File, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; bytes as usize];
    let mut done = 0;
    while done < content.len() {
        match file.read(&mut content[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    content.truncate(done);
    Ok(content)
}
