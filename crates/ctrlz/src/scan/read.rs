//! Reads every entry whose content is not known yet into a [`Keep`].

use std::fs::File;
use std::io::Read;
use std::sync::Mutex;

use crate::error::Error;
use crate::fs::{Dir, FileKind, Stat, Time, stat_file};
use crate::git::ObjectId;
use crate::jobs::run_jobs;
use crate::path::join;

use super::{
    Content, EntryStat, Keep, LARGE_FILE_BYTES, LargeProblem, ListedDir, ListedEntry, Listing,
    Progress, SkipReason, Skipped, is_racy,
};

/// Number of attempts to read a file that keeps changing, before it is skipped.
const TRIES: usize = 4;

/// Reads the entries marked [`Content::ToRead`] and replaces the mark with the result.
///
/// A file that is unreadable or keeps changing is added to [`Listing::skipped`]. Only an error of
/// `keep` or a cancellation stops the reading.
pub(crate) fn read_listing(
    root: &Dir,
    listing: &mut Listing,
    keep: &dyn Keep,
    threads: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let with_databases = dirs_with_databases(listing);
    let jobs: Vec<&mut ListedDir> = listing
        .dirs
        .iter_mut()
        .filter(|dir| dir.entries.iter().any(|entry| entry.content == Content::ToRead))
        .collect();
    let chunks = split_large(jobs);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let skipped = run_jobs(threads, chunks, |(path, entries), _| {
        let stop = failure.lock().is_ok_and(|failure| failure.is_some());
        if stop || progress.check().is_err() {
            return Vec::new();
        }
        let mut skipped = Vec::new();
        if let Err(error) = read_dir_entries(root, path, entries, keep, progress, &mut skipped) {
            failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
        skipped
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    progress.check()?;
    for dir in &mut listing.dirs {
        let gone = dir.entries.iter().filter(|entry| entry.content == Content::ToRead);
        listing.vanished.extend(gone.map(|entry| join(&dir.path, &entry.name)));
        dir.entries.retain(|entry| entry.content != Content::ToRead);
    }
    for (at, mains) in with_databases {
        let listed = &mut listing.dirs[at];
        let Ok(dir) = root.open_below(&listed.path) else { continue };
        for name in settle_databases(&dir, &mains, &mut listed.entries, keep)? {
            let path = join(&listed.path, &name);
            listing.skipped.push(Skipped { path, reason: SkipReason::Unstable });
        }
    }
    forget_captured_rules(listing);
    listing.skipped.extend(skipped.into_iter().flatten());
    listing.skipped.sort_unstable();
    Ok(())
}

/// Suffixes of files that belong to a database beside them.
pub(crate) const SIDECARS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// Returns the names of files that have a sidecar beside them.
pub(crate) fn with_sidecars<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Vec<Vec<u8>> {
    let all = names.clone();
    let main = |name: &'a [u8]| SIDECARS.iter().find_map(|end| name.strip_suffix(*end));
    let mut mains: Vec<Vec<u8>> = names
        .filter_map(main)
        .filter(|main| all.clone().any(|name| name == *main))
        .map(<[u8]>::to_vec)
        .collect();
    mains.dedup();
    mains
}

/// Returns the positions of directories with databases of which a part has to be read, and the
/// names of these databases.
fn dirs_with_databases(listing: &Listing) -> Vec<(usize, Vec<Vec<u8>>)> {
    let is_read = |dir: &ListedDir, name: &[u8]| {
        dir.entries.iter().any(|entry| *entry.name == *name && entry.content == Content::ToRead)
    };
    let databases = |dir: &ListedDir| {
        let mut mains = with_sidecars(dir.entries.iter().map(|entry| &*entry.name));
        mains.retain(|main| parts_of(main).any(|part| is_read(dir, &part)));
        mains
    };
    let all = listing.dirs.iter().map(databases).enumerate();
    all.filter(|(_, mains)| !mains.is_empty()).collect()
}

/// Returns the names of a database and of its sidecar files.
pub(crate) fn parts_of(main: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let sidecars = SIDECARS.iter().map(move |end| [main, *end].concat());
    std::iter::once(main.to_vec()).chain(sidecars)
}

/// Reads the databases `mains` and their sidecar files again until none of them changed, appeared
/// or disappeared while the others were read. If that fails, they are skipped: parts from different
/// moments would be a corrupt database. Returns the names of the skipped files.
pub(crate) fn settle_databases(
    dir: &Dir,
    mains: &[impl AsRef<[u8]>],
    entries: &mut Vec<ListedEntry>,
    keep: &dyn Keep,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut skipped = Vec::new();
    let place = |entries: &[ListedEntry], name: &[u8]| {
        let at = entries.iter().position(|entry| *entry.name == *name)?;
        matches!(entries[at].content, Content::Known(_)).then_some(at)
    };
    for main in mains.iter().map(AsRef::as_ref) {
        if place(entries, main).is_none() {
            continue;
        }
        let is_same = |entries: &[ListedEntry], name: &[u8]| match dir.stat(name) {
            Ok(now) => {
                let entry = entries.iter().find(|entry| *entry.name == *name);
                // A part without known content is a directory or was skipped for another reason.
                let is_known = |entry: &ListedEntry| matches!(entry.content, Content::Known(_));
                entry.is_some_and(|entry| !is_known(entry))
                    || now.map(|now| EntryStat::from(&now)) == entry.map(|entry| entry.stat)
            }
            Err(_) => false,
        };
        let settled = |entries: &[ListedEntry]| parts_of(main).all(|part| is_same(entries, &part));
        for _ in 1..TRIES {
            if settled(entries) {
                break;
            }
            for name in parts_of(main) {
                let Some(at) = place(entries, &name) else { continue };
                let entry = &mut entries[at];
                match read_entry(dir, &entry.name, entry.stat.kind, keep)? {
                    Outcome::Read { stat, id, racy } => {
                        (entry.stat, entry.content, entry.racy) = (stat, Content::Known(id), racy);
                    }
                    Outcome::Gone => drop(entries.remove(at)),
                    Outcome::Skip(_) => (),
                }
            }
        }
        if settled(entries) {
            continue;
        }
        for name in parts_of(main) {
            let Some(at) = place(entries, &name) else { continue };
            entries[at].content = Content::Skipped(SkipReason::Unstable);
            skipped.push(name);
        }
    }
    Ok(skipped)
}

/// Keeps only the rule texts that no file of the snapshot contains.
fn forget_captured_rules(listing: &mut Listing) {
    let Listing { dirs, hidden_rules, .. } = listing;
    hidden_rules.retain(|(path, text)| {
        let (parent, name) = crate::path::split(path);
        let dir = dirs.binary_search_by(|dir| dir.path.as_slice().cmp(parent)).ok();
        let entries = dir.map(|at| dirs[at].entries.as_slice()).unwrap_or_default();
        let entry = entries.iter().find(|entry| *entry.name == *name);
        let captured = entry.is_some_and(|entry| {
            let id = crate::git::hash_object(crate::git::Kind::Blob, text);
            id.is_some_and(|id| entry.content == Content::Known(id))
        });
        !captured
    });
}

/// Splits directories into chunks, so that one with very many files does not keep a single core
/// busy while the others are idle.
fn split_large(dirs: Vec<&mut ListedDir>) -> Vec<(&[u8], &mut [ListedEntry])> {
    const ENTRIES_PER_JOB: usize = 256;
    let mut jobs = Vec::new();
    for dir in dirs {
        let path = dir.path.as_slice();
        jobs.extend(dir.entries.chunks_mut(ENTRIES_PER_JOB).map(|entries| (path, entries)));
    }
    jobs
}

fn read_dir_entries(
    root: &Dir,
    path: &[u8],
    entries: &mut [ListedEntry],
    keep: &dyn Keep,
    progress: &Progress,
    skipped: &mut Vec<Skipped>,
) -> Result<(), Error> {
    if entries.iter().all(|entry| entry.content != Content::ToRead) {
        return Ok(());
    }
    let dir = match root.open_below(path) {
        Ok(dir) => dir,
        Err(error) => {
            // The directory was removed or replaced since it was listed.
            for entry in entries.iter_mut().filter(|entry| entry.content == Content::ToRead) {
                let skip = Skipped::unreadable(join(path, &entry.name), &error);
                entry.content = Content::Skipped(skip.reason.clone());
                skipped.push(skip);
            }
            return Ok(());
        }
    };
    for entry in entries.iter_mut().filter(|entry| entry.content == Content::ToRead) {
        match read_entry(&dir, &entry.name, entry.stat.kind, keep)? {
            Outcome::Read { stat, id, racy } => {
                entry.stat = stat;
                entry.content = Content::Known(id);
                entry.racy = racy;
            }
            Outcome::Gone => (),
            Outcome::Skip(reason) => {
                entry.content = Content::Skipped(reason.clone());
                skipped.push(Skipped { path: join(path, &entry.name), reason });
            }
        }
        Progress::add(&progress.files_read, 1);
        progress.check()?;
    }
    Ok(())
}

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

fn unreadable_now(error: &crate::fs::FileError) -> Once {
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
fn look_at_link(dir: &Dir, name: &[u8]) -> Result<Option<(Vec<u8>, Stat)>, crate::fs::FileError> {
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
    let look = |file: &File| stat_file(file, std::path::Path::new("the file that is read"));
    let first = match look(&file) {
        Ok(stat) => stat,
        Err(error) => return Ok(unreadable_now(&error)),
    };
    if first.kind != FileKind::File {
        return Ok(Once::Changed);
    }
    let id = if first.bytes > LARGE_FILE_BYTES {
        let copy = keep.clone_of(&file);
        // A copy is checked at the moment when it was made; later changes do not affect it.
        let moment = copy.is_some().then(|| look(&file));
        let mut source = copy.as_ref().unwrap_or(&file);
        let id = match keep.large(first.bytes, &mut source) {
            Ok(id) => id,
            Err(LargeProblem::Changed) => return Ok(Once::Changed),
            Err(LargeProblem::Collision) => {
                return Ok(Once::Stable(Outcome::Skip(SkipReason::HashCollision)));
            }
            Err(LargeProblem::Read(error)) => return Ok(Once::Stable(unreadable_io(&error))),
            Err(LargeProblem::Store(error)) => return Err(error),
        };
        let moment = moment.unwrap_or_else(|| look(&file));
        if !moment.is_ok_and(|now| first.same_file_and_content(&now)) {
            return Ok(Once::Changed);
        }
        id
    } else {
        let bytes = match read_twice_if_young(&mut file, &first, before) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Once::Changed),
            Err(error) => return Ok(Once::Stable(unreadable_io(&error))),
        };
        let unchanged = look(&file).is_ok_and(|now| first.same_file_and_content(&now));
        if !unchanged {
            // A torn read must not reach the store.
            return Ok(Once::Changed);
        }
        match keep.blob(&bytes)? {
            Some(id) => id,
            None => return Ok(Once::Stable(Outcome::Skip(SkipReason::HashCollision))),
        }
    };
    let racy = is_racy(first.ctime, before);
    Ok(Once::Stable(Outcome::Read { stat: EntryStat::from(&first), id, racy }))
}

fn is_loop(error: &crate::fs::FileError) -> bool {
    rustix::io::Errno::from_io_error(&error.source) == Some(rustix::io::Errno::LOOP)
}

fn unreadable_io(error: &std::io::Error) -> Outcome {
    Outcome::Skip(SkipReason::Unreadable { error: error.to_string() })
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

/// Result of reading a small file for internal use.
pub(crate) enum SmallFile {
    Read(Vec<u8>),
    TooLarge(u64),
    NotAFile,
    Unreadable,
}

/// Reads a rule file of at most `limit` bytes.
pub(crate) fn read_stable_small(dir: &Dir, name: &[u8], limit: u64) -> SmallFile {
    let Ok(file) = dir.open_file(name) else { return SmallFile::NotAFile };
    let Ok(stat) = stat_file(&file, &dir.path_of(name)) else { return SmallFile::Unreadable };
    if stat.kind != FileKind::File {
        return SmallFile::NotAFile;
    }
    if stat.bytes > limit {
        return SmallFile::TooLarge(stat.bytes);
    }
    let mut bytes = Vec::new();
    match (&file).take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) => SmallFile::Read(bytes),
        Err(_) => SmallFile::Unreadable,
    }
}
