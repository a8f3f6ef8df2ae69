//! File system access.
//!
//! [`Dir`] is a directory handle. Its calls are relative to the handle and follow no symlink, so a
//! name cannot lead out of a work tree even if another process swaps directories concurrently.
//! [`private`](mod@private) writes the store's own files. Every error names the path.

mod dir;
mod held;
mod landmark;
mod lease;
pub(crate) mod private;
mod space;
mod stat;

use std::io;
use std::path::{Path, PathBuf};

/// Permission bits, including set-user-id, set-group-id and sticky.
pub(crate) const MODE_BITS: u32 = 0o7777;

pub(crate) use dir::{Dir, Glimpse, NamedKind, set_mode, set_owner, stat_file};
pub(crate) use held::Held;
pub(crate) use landmark::Landmark;
pub(crate) use lease::{Guard, InUse, Users, use_of};
pub(crate) use space::check_free;
pub(crate) use stat::{FileKind, FsTrust, Stat, Time};

/// An I/O error with the file it concerns.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {}", crate::path::shown(path))]
pub struct FileError {
    /// Attempted action, as in "cannot read".
    pub verb: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Cause of the failure.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// Adds the action and the path to an I/O error.
pub(crate) trait Named<T> {
    fn named(self, verb: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> Named<T> for Result<T, E> {
    fn named(self, verb: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { verb, path: path.to_owned(), source: source.into() })
    }
}

/// Returns a path with the symlinks of its existing part resolved.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    for above in full.ancestors() {
        if let Ok(real) = above.canonicalize() {
            return rest.iter().rev().fold(real, |path, name| path.join(name));
        }
        rest.extend(above.file_name().map(std::ffi::OsStr::to_owned));
    }
    full
}

/// Returns an unpredictable name of 16 hexadecimal digits.
pub(crate) fn random_name() -> String {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills `bytes` with random bytes from the kernel.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => (),
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
}

/// Returns the total size in bytes of the file system that holds `path`.
pub(crate) fn total_bytes(path: &Path) -> Result<u64, FileError> {
    let stat = rustix::fs::statvfs(path).named("measure the space at", path)?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// Returns the total size in bytes of all files below `path`.
pub(crate) fn disk_use(path: &Path) -> Result<u64, FileError> {
    let mut total = 0;
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).named("list", &dir)? {
            let entry = entry.named("list", &dir)?;
            // Another command may remove a temporary file between the two calls.
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if meta.is_dir() {
                dirs.push(entry.path());
            } else {
                total += meta.len();
            }
        }
    }
    Ok(total)
}

/// Returns the number of bytes available to unprivileged users on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, FileError> {
    let stat = rustix::fs::statvfs(path).named("measure the free space at", path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
