//! The store's own files: only the owner may read them, and what is acknowledged is on disk.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::defect::Defect;

use super::{FileError, Named, random_name};

/// Creates a directory and its missing parents, each 0700 whatever the umask.
pub(crate) fn create_dirs(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dirs(parent)?;
    }
    if create_dir(path)? {
        // What is put inside must not vanish with the directory's name.
        path.parent().map_or(Ok(()), sync_dir)?;
    }
    Ok(())
}

/// Creates a directory, 0700 whatever the umask, and leaves it to the caller to make its name
/// durable; `false` if there is one already.
pub(crate) fn create_dir(path: &Path) -> Result<bool, FileError> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            let mode = Permissions::from_mode(0o700);
            std::fs::set_permissions(path, mode).named("set the permissions of", path)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).named("create the directory", path),
    }
}

/// Creates a new file, 0600 whatever the umask.
pub(crate) fn create(path: &Path) -> Result<File, FileError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .named("create", path)?;
    let mode = if Defect::Open.is_made() { 0o644 } else { 0o600 };
    super::dir::set_mode(&file, mode).named("set the permissions of", path)?;
    Ok(file)
}

/// A copy of an open file that shares its blocks, without a name; `None` where the file system has
/// no such copies, or `dir` is on another one.
pub(crate) fn clone_into(dir: &Path, file: &File) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let copy = rustix::fs::open(dir, flags, Mode::from(0o600)).ok()?;
    rustix::fs::ioctl_ficlone(&copy, file).ok()?;
    Some(File::from(copy))
}

/// Opens a file for locking, creating it if it is missing.
pub(crate) fn open_or_create(path: &Path) -> Result<File, FileError> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).write(true).open(path).named("open", path)
        }
        other => other,
    }
}

/// Whether a write has to survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    Yes,
    /// For caches, which can be lost.
    No,
}

/// The prefix of every file that is not finished.
const TEMPORARY: &str = "tmp_";

/// A file that nobody knows yet. It is locked while we live, which tells [`sweep`] to let it be.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn create(dir: &Path) -> Result<Temporary, FileError> {
        Temporary::create_as(TEMPORARY, dir)
    }

    fn create_as(prefix: &str, dir: &Path) -> Result<Temporary, FileError> {
        loop {
            let path = dir.join(format!("{prefix}{}", random_name()));
            let file = create(&path)?;
            match hold(&file, &path) {
                Ok(true) => return Ok(Temporary { path, file }),
                Ok(false) => (),
                Err(error) => {
                    drop(std::fs::remove_file(&path));
                    return Err(error);
                }
            }
        }
    }

    fn fill(
        &mut self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
        durable: Durable,
    ) -> Result<(), FileError> {
        write(&mut self.file).named("write", &self.path)?;
        match durable {
            Durable::Yes => flush(&self.file, &self.path),
            Durable::No => Ok(()),
        }
    }
}

/// Creates a file like [`create`]; [`sweep`] lets it be while the handle lives, whatever its name.
pub(crate) fn create_held(path: &Path) -> Result<File, FileError> {
    loop {
        let file = create(path)?;
        if hold(&file, path)? {
            return Ok(file);
        }
        // A sweeper is about to remove it.
        absent_is_fine(std::fs::remove_file(path)).named("remove", path)?;
    }
}

/// Locks what we just made; `false` if a sweeper took it for an orphan between the two calls.
fn hold(file: &File, path: &Path) -> Result<bool, FileError> {
    match file.try_lock() {
        Ok(()) => Ok(path.symlink_metadata().is_ok()),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error).named("lock", path),
    }
}

/// The prefix of a store that is being built, beside where it will be.
const BUILDING: &str = ".ctrlz-store-";

/// Whether `name` is `prefix` and sixteen hexadecimal digits: nobody else's by chance.
fn is_ours(name: &std::ffi::OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes()
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.len() == 16 && rest.iter().all(|byte| byte.is_ascii_hexdigit()))
}

/// Creates a directory that nobody knows yet, 0700. [`sweep_builds`] lets it be while the handle
/// lives.
pub(crate) fn create_build_dir(parent: &Path) -> Result<(PathBuf, File), FileError> {
    loop {
        let path = parent.join(format!("{BUILDING}{}", random_name()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .named("create the directory", &path)?;
        // Whatever the umask left of the permissions, we must be able to open it. A sweeper may
        // take it for an orphan before it is locked; then another name is tried.
        let mode = Permissions::from_mode(0o700);
        let opened = std::fs::set_permissions(&path, mode).and_then(|()| File::open(&path));
        let dir = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.named("open", &path)?,
        };
        match hold(&dir, &path) {
            Ok(true) => return Ok((path, dir)),
            Ok(false) => (),
            Err(error) => {
                drop(std::fs::remove_dir(&path));
                return Err(error);
            }
        }
    }
}

/// Removes what [`create_build_dir`] made.
pub(crate) fn remove_build_dir(path: &Path) -> Result<(), FileError> {
    let is_build = path.file_name().is_some_and(|name| is_ours(name, BUILDING));
    match is_build {
        true => absent_is_fine(std::fs::remove_dir_all(path)).named("remove", path),
        false => Ok(()),
    }
}

/// Removes a whole store: it loses its name first, so that it is there or not. What a killed
/// process left of it is swept like an unfinished one.
pub(crate) fn retire_dir(path: &Path) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let retired = parent.join(format!("{BUILDING}{}", random_name()));
    std::fs::rename(path, &retired).named("remove", path)?;
    sync_dir(parent)?;
    remove_build_dir(&retired)
}

/// The prefix of a file for the user that is not finished, beside where it will be.
const EXPORTING: &str = ".ctrlz-export-";

/// Creates a file in anybody's directory that nobody knows yet. [`sweep_exports`] lets it be while
/// the handle, or a copy of it, lives.
pub(crate) fn create_export(dir: &Path) -> Result<(PathBuf, File), FileError> {
    let Temporary { path, file } = Temporary::create_as(EXPORTING, dir)?;
    Ok((path, file))
}

/// Removes what [`create_export`] made for processes that are gone.
pub(crate) fn sweep_exports(dir: &Path) -> Result<(), FileError> {
    for (path, _) in orphans(dir, EXPORTING, |kind| kind.is_file())? {
        absent_is_fine(std::fs::remove_file(&path)).named("remove", &path)?;
    }
    Ok(())
}

/// Removes unfinished stores in `parent`, which may be anybody's directory, whose makers are gone.
///
/// Only names that [`create_build_dir`] makes, and only if they hold nothing or a store's parts.
pub(crate) fn sweep_builds(parent: &Path) -> Result<(), FileError> {
    for (path, _) in orphans(parent, BUILDING, |kind| kind.is_dir())? {
        let is_empty = std::fs::read_dir(&path).is_ok_and(|mut inside| inside.next().is_none());
        if is_empty || path.join("ctrlz").is_dir() {
            absent_is_fine(std::fs::remove_dir_all(&path)).named("remove", &path)?;
        }
    }
    Ok(())
}

/// Removes unfinished files in a directory of the store whose makers are gone.
pub(crate) fn sweep(dir: &Path) -> Result<(), FileError> {
    for (path, _) in orphans(dir, TEMPORARY, |kind| kind.is_file())? {
        absent_is_fine(std::fs::remove_file(&path)).named("remove", &path)?;
    }
    Ok(())
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Unfinished things that nobody holds, each with the lock that proves it.
fn orphans(
    dir: &Path,
    prefix: &str,
    is_kind: fn(&std::fs::FileType) -> bool,
) -> Result<Vec<(PathBuf, File)>, FileError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).named("list", dir),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.named("list", dir)?;
        let right_kind = entry.file_type().is_ok_and(|kind| is_kind(&kind));
        if !is_ours(&entry.file_name(), prefix) || !right_kind {
            continue;
        }
        // It may be finished and renamed by now, or belong to somebody who is still at it.
        let Ok(orphan) = File::open(entry.path()) else { continue };
        if orphan.try_lock().is_ok() {
            found.push((entry.path(), orphan));
        }
    }
    Ok(found)
}

/// Replaces `path` with `bytes` in one step: readers see the old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: Durable) -> Result<(), FileError> {
    replace_with(path, |file| file.write_all(bytes), durable)
}

/// Replaces `path` in one step with what `write` writes.
pub(crate) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
    durable: Durable,
) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut temporary = Temporary::create(parent)?;
    let written = temporary.fill(write, durable).and_then(|()| {
        std::fs::rename(&temporary.path, path).named("replace", path)?;
        if durable == Durable::Yes { sync_dir(parent) } else { Ok(()) }
    });
    if written.is_err() {
        // The first error is the one to report; a left-over is swept later.
        drop(std::fs::remove_file(&temporary.path));
    }
    written
}

/// Writes over a file in place. For notes that only the holder of a lock reads and that can be lost.
pub(crate) fn overwrite(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = open_or_create(path)?;
    file.set_len(0).and_then(|()| file.write_all(bytes)).named("write", path)
}

/// Makes a file of the store durable, or the names in a directory.
pub(crate) fn flush(file: &File, path: &Path) -> Result<(), FileError> {
    if Defect::Unflushed.is_made() {
        return Ok(());
    }
    file.sync_all().named("flush", path)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), FileError> {
    let dir = File::open(path).named("flush", path)?;
    flush(&dir, path)
}

/// Reads a regular file of at most `limit` bytes; `None` if there is none or it is something else.
///
/// For files that someone else may have put there: it never waits and never reads without end.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    match open_small(path, limit)? {
        Some((file, bytes)) => read_open(file, bytes, path, limit),
        None => Ok(None),
    }
}

/// Reads what [`open_small`] opened.
pub(super) fn read_open(
    file: File,
    bytes: usize,
    path: &Path,
    limit: u64,
) -> Result<Option<Vec<u8>>, FileError> {
    use std::io::Read;
    // One more than there should be, so that the end is seen without another piece of memory.
    let mut read = Vec::with_capacity(bytes + 1);
    file.take(limit + 1).read_to_end(&mut read).named("read", path)?;
    Ok((read.len() as u64 <= limit).then_some(read))
}

/// Opens a regular file of at most `limit` bytes, and says how many it has.
pub(super) fn open_small(path: &Path, limit: u64) -> Result<Option<(File, usize)>, FileError> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(error).named("read", path),
    };
    let meta = file.metadata().named("look at", path)?;
    Ok((meta.is_file() && meta.len() <= limit).then_some((file, meta.len() as usize)))
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    use rustix::io::Errno;
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
        // A socket cannot be opened at all, a circle of links leads nowhere.
        || matches!(Errno::from_io_error(error), Some(Errno::NXIO | Errno::LOOP))
}
