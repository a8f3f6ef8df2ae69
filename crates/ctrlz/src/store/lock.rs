//! File locks held by the kernel, which releases them when the holder exits or is killed.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fs::{Named, private};

/// A held lock. It is released on drop.
#[derive(Debug)]
#[must_use = "the lock is held as long as this value lives"]
pub(crate) struct Lock {
    _file: File,
}

/// Whether other processes may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Shared,
    Exclusive,
}

impl Lock {
    /// Takes the lock at `path`, waiting at most `patience`.
    pub(crate) fn take(path: &Path, sharing: Sharing, patience: Duration) -> Result<Lock, Error> {
        let mut file = private::open_or_create(path)?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            if try_lock(&file, sharing, path)? {
                if private::is_at(&file, path) {
                    break;
                }
                // Its directory was renamed while this process waited.
                file = private::open_or_create(path)?;
                continue;
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(Error::Busy {
                    path: path.to_owned(),
                    holder: holder(&mut file),
                    waited_seconds: waited.as_secs(),
                });
            }
            std::thread::sleep(pause);
            // At most 4 ms: short enough to prevent starvation, long enough to use little CPU time.
            pause = (pause * 2).min(Duration::from_millis(4));
        }
        if sharing == Sharing::Exclusive {
            // Only used in the `Busy` error above, so a write error is ignored.
            drop(write_holder(&mut file));
        }
        Ok(Lock { _file: file })
    }

    /// Takes the lock without waiting. Returns `None` if another process holds it.
    pub(crate) fn try_take(path: &Path, sharing: Sharing) -> Result<Option<Lock>, Error> {
        let file = private::open_or_create(path)?;
        Ok(try_lock(&file, sharing, path)?.then_some(Lock { _file: file }))
    }
}

fn try_lock(file: &File, sharing: Sharing, path: &Path) -> Result<bool, Error> {
    let tried = match sharing {
        Sharing::Shared => file.try_lock_shared(),
        Sharing::Exclusive => file.try_lock(),
    };
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {
            Ok(false)
        }
        Err(TryLockError::Error(error)) => Ok(Err(error).named("lock", path)?),
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(200).read_to_string(&mut text));
    match read {
        Ok(_) if !text.is_empty() => text,
        _ => "another process".into(),
    }
}

/// Returns the processes that hold the lock at `path`, according to `/proc/locks`. Takes no lock,
/// so it never makes another process wait.
pub(crate) fn holders(path: &Path) -> Vec<u32> {
    let Ok(meta) = path.metadata() else { return Vec::new() };
    let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    table.lines().filter_map(|line| holder_in(line, meta.dev(), meta.ino())).collect()
}

/// Parses a line such as `2: FLOCK ADVISORY WRITE 417 00:1b:3329 0 EOF` and returns its process id
/// if it holds a lock on the given file.
fn holder_in(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    // A process that is waiting for the lock has `->` before `FLOCK`.
    let is_held = words.next()? == "FLOCK";
    let (process, file) = (words.nth(2)?, words.next()?);
    let mut parts = file.split(':');
    let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
    let (major, minor) = (number()?, number()?);
    let is_same = parts.next()?.parse() == Ok(inode)
        && (major, minor) == (rustix::fs::major(device), rustix::fs::minor(device));
    process.parse().ok().filter(|_| is_held && is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Lock::take(&path, Sharing::Exclusive, Duration::ZERO).unwrap();
        assert_eq!(holders(&path), [std::process::id()]);
        match Lock::take(&path, Sharing::Exclusive, Duration::from_millis(5)) {
            Err(Error::Busy { holder, .. }) => {
                assert_eq!(holder, format!("process {}", std::process::id()));
            }
            other => panic!("{other:?}"),
        }
        drop(held);
        assert!(holders(&path).is_empty());
        drop(Lock::take(&path, Sharing::Exclusive, Duration::ZERO).unwrap());
    }
}
