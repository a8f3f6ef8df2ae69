//! The store's own files. Only the owner can read them, and acknowledged writes are durable.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::defect::Defect;

use super::{FileError, Landmark, Named, random_name};

/// Creates a directory and its missing parents, each with mode 0700 regardless of the umask.
pub(crate) fn create_dirs(path: &Path) -> Result<(), FileError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dirs(parent)?;
    }
    if create_dir(path)? {
        // Make the new name durable: without it, files created inside would be lost too.
        path.parent().map_or(Ok(()), sync_dir)?;
    }
    Ok(())
}

/// Creates a directory with mode 0700 regardless of the umask. Returns `false` if it exists.
///
/// The caller has to make the new name durable.
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

/// Creates a new file with mode 0600 regardless of the umask.
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

/// Creates an unnamed reflink copy of an open file in `dir`. Returns `None` if the file system does
/// not support reflinks or `dir` is on another one.
pub(crate) fn clone_into(dir: &Path, file: &File) -> Option<File> {
    use rustix::fs::Mode;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let copy = rustix::fs::open(dir, flags, Mode::from(0o600)).ok()?;
    rustix::fs::ioctl_ficlone(&copy, file).ok()?;
    Some(File::from(copy))
}

/// Opens a file for locking or writing, and creates it if it is missing. Refuses a symlink.
pub(crate) fn open_or_create(path: &Path) -> Result<File, FileError> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(NO_LINK).open(path).named("open", path)
        }
        other => other,
    }
}

/// Opens an existing file for appending. Refuses a symlink.
pub(crate) fn open_for_appending(path: &Path) -> Result<File, FileError> {
    OpenOptions::new().append(true).custom_flags(NO_LINK).open(path).named("open", path)
}

/// Flag for opening a file: fails if the path names a symlink, which could direct a write to any
/// other file of the user.
const NO_LINK: i32 = OFlags::NOFOLLOW.bits() as i32;

/// Whether a write has to survive a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    Yes,
    /// For caches, which can be rebuilt.
    No,
}

/// Prefix of temporary files.
const TEMPORARY: &str = "tmp_";

/// A temporary file. Its lock makes [`sweep`] skip it while it is open.
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
                    // Best effort: the first error is the one to report.
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

/// Creates a file like [`create`] and locks it, so that [`sweep`] skips it while the handle is
/// open, whatever its name.
pub(crate) fn create_held(path: &Path) -> Result<File, FileError> {
    loop {
        let file = create(path)?;
        if hold(&file, path)? {
            return Ok(file);
        }
        // A sweeper locked it first and is about to remove it. A new file of this name before that
        // would be removed instead.
        file.lock().named("lock", path)?;
        remove(path)?;
    }
}

/// Locks a file just created. Returns `false` if a sweeper took it for an orphan before that.
fn hold(file: &File, path: &Path) -> Result<bool, FileError> {
    match file.try_lock() {
        Ok(()) => Ok(path.symlink_metadata().is_ok()),
        Err(std::fs::TryLockError::WouldBlock) => Ok(false),
        Err(std::fs::TryLockError::Error(error)) => Err(error).named("lock", path),
    }
}

/// Prefix of a store under construction, in the directory where the store will be.
const BUILDING: &str = ".ctrlz-store-";

/// Returns whether `name` is `prefix` and 16 hexadecimal digits, which no other program's file
/// matches by chance.
fn is_ours(name: &std::ffi::OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes()
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.len() == 16 && rest.iter().all(|byte| byte.is_ascii_hexdigit()))
}

/// Creates a locked build directory with mode 0700. [`sweep_builds`] skips it while the handle is
/// open.
pub(crate) fn create_build_dir(parent: &Path) -> Result<(PathBuf, File), FileError> {
    loop {
        let path = parent.join(format!("{BUILDING}{}", random_name()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .named("create the directory", &path)?;
        // The umask may have removed permissions needed to open it. A sweeper may remove it as an
        // orphan before it is locked; then another name is tried.
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

/// Removes a directory made by [`create_build_dir`]. Ignores other paths.
pub(crate) fn remove_build_dir(path: &Path) -> Result<(), FileError> {
    let is_build = path.file_name().is_some_and(|name| is_ours(name, BUILDING));
    if is_build { absent_is_fine(remove_build(path)).named("remove", path) } else { Ok(()) }
}

/// Removes an unfinished store. Its directory `ctrlz` goes last, so that [`sweep_builds`] recognises
/// the remains if the process is killed meanwhile.
fn remove_build(path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() == "ctrlz" {
            continue;
        }
        absent_is_fine(if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())
        } else {
            std::fs::remove_file(entry.path())
        })?;
    }
    std::fs::remove_dir_all(path)
}

/// Removes a whole store. It is renamed first, so that its removal is atomic; the remains after a
/// crash are swept like an unfinished store.
pub(crate) fn retire_dir(path: &Path) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let retired = parent.join(format!("{BUILDING}{}", random_name()));
    std::fs::rename(path, &retired).named("remove", path)?;
    sync_dir(parent)?;
    remove_build_dir(&retired)
}

/// Prefix of an unfinished export, in the directory where the finished file will be.
const EXPORTING: &str = ".ctrlz-export-";

/// Creates a locked export file in a directory that need not belong to the store. [`sweep_exports`]
/// skips it while the handle or a duplicate of it is open.
pub(crate) fn create_export(dir: &Path) -> Result<(PathBuf, File), FileError> {
    let Temporary { path, file } = Temporary::create_as(EXPORTING, dir)?;
    Ok((path, file))
}

/// Removes files made by [`create_export`] in processes that have exited.
pub(crate) fn sweep_exports(dir: &Path) -> Result<(), FileError> {
    for (path, _) in orphans(dir, EXPORTING, |kind| kind.is_file())? {
        remove(&path)?;
    }
    Ok(())
}

/// Removes unfinished stores of exited processes from `parent`, which may be any directory.
///
/// Only removes names made by [`create_build_dir`], and only if the directory is empty or contains
/// parts of a store.
pub(crate) fn sweep_builds(parent: &Path) -> Result<(), FileError> {
    for (path, _) in orphans(parent, BUILDING, |kind| kind.is_dir())? {
        let is_empty = std::fs::read_dir(&path).is_ok_and(|mut inside| inside.next().is_none());
        if is_empty || path.join("ctrlz").is_dir() {
            absent_is_fine(remove_build(&path)).named("remove", &path)?;
        }
    }
    Ok(())
}

/// Removes temporary files of exited processes from a directory of the store. Leaves a symlink to
/// a directory alone.
pub(crate) fn sweep(dir: &Path) -> Result<(), FileError> {
    if dir.symlink_metadata().is_ok_and(|meta| meta.is_symlink()) {
        return Ok(());
    }
    for (path, _) in orphans(dir, TEMPORARY, |kind| kind.is_file())? {
        remove(&path)?;
    }
    Ok(())
}

/// Removes a file. Does nothing if it is missing.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    absent_is_fine(std::fs::remove_file(path)).named("remove", path)
}

/// Returns the paths in a directory, sorted.
pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = std::fs::read_dir(dir).named("list", dir)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    let mut paths = paths.named("list", dir)?;
    paths.sort();
    Ok(paths)
}

/// Like [`list`]. A missing directory counts as empty.
pub(crate) fn list_if_there(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    match list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// Turns the error about a missing file into success.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns whether `path` still names the open file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(named)) => id(open) == id(named),
        _ => false,
    }
}

/// Returns unlocked temporary files or directories, each with the lock taken on it.
fn orphans(
    dir: &Path,
    prefix: &str,
    is_kind: fn(&std::fs::FileType) -> bool,
) -> Result<Vec<(PathBuf, File)>, FileError> {
    let mut found = Vec::new();
    for path in list_if_there(dir)? {
        let right_kind = || path.symlink_metadata().is_ok_and(|meta| is_kind(&meta.file_type()));
        if !path.file_name().is_some_and(|name| is_ours(name, prefix)) || !right_kind() {
            continue;
        }
        // It may have been renamed since, or belong to a process that is still writing it.
        let Ok(orphan) = File::open(&path) else { continue };
        if orphan.try_lock().is_ok() && is_at(&orphan, &path) {
            found.push((path, orphan));
        }
    }
    Ok(found)
}

/// Atomically replaces `path` with `bytes`: readers see the old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8], durable: Durable) -> Result<(), FileError> {
    replace_with(path, |file| file.write_all(bytes), durable)
}

/// Atomically replaces `path` with a value as JSON.
pub(crate) fn save_json(
    path: &Path,
    value: &(impl serde::Serialize + ?Sized),
    durable: Durable,
) -> Result<(), FileError> {
    replace(path, &serde_json::to_vec(value).expect("plain data has a JSON form"), durable)
}

/// Reads a file that [`save_json`] wrote. Returns `None` if it is missing, malformed, or larger than
/// `limit` bytes.
pub(crate) fn load_json<T: serde::de::DeserializeOwned>(
    path: &Path,
    limit: u64,
) -> Result<Option<T>, FileError> {
    Ok(read_small(path, limit)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Atomically replaces `path` with the output of `write`.
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
        // The first error is the one to report; a leftover is swept later.
        drop(std::fs::remove_file(&temporary.path));
    }
    written
}

/// Atomically replaces `path` with a JSON object, and adds the new file's [`Landmark`] to it as its
/// member `file`, so that a copy of the file can be recognized.
///
/// `start` is written before the object.
pub(crate) fn replace_marked(
    path: &Path,
    start: &str,
    object: &impl serde::Serialize,
    durable: Durable,
) -> Result<(), FileError> {
    let mut text = start.as_bytes().to_vec();
    serde_json::to_writer(&mut text, object).expect("plain data has a JSON form");
    let write = |file: &mut File| {
        if let Some(landmark) = Landmark::of_file(file) {
            // The object has other members, and ends with a brace.
            text.pop();
            text.extend_from_slice(b",\"file\":");
            serde_json::to_writer(&mut text, &landmark)?;
            text.push(b'}');
        }
        file.write_all(&text)
    };
    replace_with(path, write, durable)
}

/// Overwrites a file in place. For expendable notes that are only read under a lock.
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

/// Reads a regular file of at most `limit` bytes. Returns `None` if it does not exist, is larger,
/// or is not a regular file. A symlink is not followed.
///
/// Safe for files that another program may have put there: never blocks, and the read is bounded.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    read_with(path, limit, OFlags::NOFOLLOW)
}

/// Like [`read_small`], for files of the user that may be symlinks.
pub(crate) fn read_small_linked(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    read_with(path, limit, OFlags::empty())
}

fn read_with(path: &Path, limit: u64, flags: OFlags) -> Result<Option<Vec<u8>>, FileError> {
    match open_small(path, limit, flags)? {
        Some((file, bytes)) => read_open(file, bytes, path, limit),
        None => Ok(None),
    }
}

/// Reads a file opened by [`open_small`]. Returns `None` if it has grown beyond `limit`.
pub(super) fn read_open(
    file: File,
    bytes: usize,
    path: &Path,
    limit: u64,
) -> Result<Option<Vec<u8>>, FileError> {
    use std::io::Read;
    // One spare byte, so that end of file is detected without growing the buffer.
    let mut read = Vec::with_capacity(bytes + 1);
    file.take(limit + 1).read_to_end(&mut read).named("read", path)?;
    Ok((read.len() as u64 <= limit).then_some(read))
}

/// Opens a regular file of at most `limit` bytes and returns it with its size.
pub(super) fn open_small(
    path: &Path,
    limit: u64,
    flags: OFlags,
) -> Result<Option<(File, usize)>, FileError> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
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
        // A socket cannot be opened (ENXIO), and a symlink is not followed (ELOOP).
        || matches!(Errno::from_io_error(error), Some(Errno::NXIO | Errno::LOOP))
}
