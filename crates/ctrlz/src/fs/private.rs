//! The store's own files: only the owner may read them, and what is acknowledged is on disk.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{FileError, Named, random_name};

/// Creates a directory and its missing parents, each 0700 whatever the umask.
pub(crate) fn create_dirs(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dirs(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            let mode = Permissions::from_mode(0o700);
            std::fs::set_permissions(path, mode).named("set the permissions of", path)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
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
    super::dir::set_mode(&file, 0o600).named("set the permissions of", path)?;
    Ok(file)
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
        loop {
            let path = dir.join(format!("{TEMPORARY}{}", random_name()));
            let file = create(&path)?;
            // A sweeper may come between the two calls; then another name is tried.
            if file.try_lock().is_ok() && path.symlink_metadata().is_ok() {
                return Ok(Temporary { path, file });
            }
        }
    }

    fn fill(&mut self, bytes: &[u8], durable: Durable) -> Result<(), FileError> {
        self.file.write_all(bytes).named("write", &self.path)?;
        if durable == Durable::Yes {
            self.file.sync_all().named("flush", &self.path)?;
        }
        Ok(())
    }
}

/// Creates a directory that nobody knows yet, 0700. [`sweep`] lets it be while the handle lives.
pub(crate) fn create_temporary_dir(parent: &Path) -> Result<(PathBuf, File), FileError> {
    loop {
        let path = parent.join(format!("{TEMPORARY}{}", random_name()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .named("create the directory", &path)?;
        // A sweeper may come before the lock; then another name is tried.
        let Ok(dir) = File::open(&path) else { continue };
        if dir.try_lock().is_ok() && path.symlink_metadata().is_ok() {
            super::dir::set_mode(&dir, 0o700).named("set the permissions of", &path)?;
            return Ok((path, dir));
        }
    }
}

/// Removes unfinished files and directories whose makers are gone.
pub(crate) fn sweep(dir: &Path) -> Result<(), FileError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).named("list", dir),
    };
    for entry in entries {
        let entry = entry.named("list", dir)?;
        let path = entry.path();
        if !entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            continue;
        }
        // It may be finished and renamed by now, or belong to somebody who is still at it.
        let Ok(orphan) = File::open(&path) else { continue };
        if orphan.try_lock().is_err() {
            continue;
        }
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
            _ => std::fs::remove_file(&path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).named("remove", &path);
            }
            _ => (),
        }
    }
    Ok(())
}

/// Replaces `path` with `bytes` in one step: readers see the old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: Durable) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut temporary = Temporary::create(parent)?;
    let written = temporary.fill(bytes, durable).and_then(|()| {
        std::fs::rename(&temporary.path, path).named("replace", path)?;
        if durable == Durable::Yes { sync_dir(parent) } else { Ok(()) }
    });
    if written.is_err() {
        // The first error is the one to report; a left-over is swept later.
        drop(std::fs::remove_file(&temporary.path));
    }
    written
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|dir| dir.sync_all()).named("flush", path)
}

/// Reads a regular file of at most `limit` bytes; `None` if there is none or it is something else.
///
/// For files that someone else may have put there: it never waits and never reads without end.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    use std::io::Read;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(error).named("read", path),
    };
    let meta = file.metadata().named("look at", path)?;
    if !meta.is_file() || meta.len() > limit {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).named("read", path)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    use rustix::io::Errno;
    matches!(error.kind(), NotFound | NotADirectory | IsADirectory)
        // A socket cannot be opened at all, a circle of links leads nowhere.
        || matches!(Errno::from_io_error(error), Some(Errno::NXIO | Errno::LOOP))
}

/// Creates `path` with `bytes` unless it exists already, in one durable step. Whoever is first
/// decides; `false` if that was somebody else.
pub(crate) fn create_once(path: &Path, bytes: &[u8]) -> Result<bool, FileError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut temporary = Temporary::create(parent)?;
    let made = temporary.fill(bytes, Durable::Yes).and_then(|()| {
        match std::fs::hard_link(&temporary.path, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).named("create", path),
        }
    });
    drop(std::fs::remove_file(&temporary.path));
    if made? {
        sync_dir(parent)?;
        return Ok(true);
    }
    Ok(false)
}
