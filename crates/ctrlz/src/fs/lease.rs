//! Detects whether other processes have a file open, by means of kernel leases.
//!
//! The kernel grants a read lease only on a file that no process has open for writing or mapped
//! writable, and a write lease only on one that no other process has open at all. Requesting a
//! lease and releasing it answers the question without a list of processes, and covers processes of
//! other users.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::{Dir, FileKind, Stat};
use crate::path::split;

/// Processes whose use of a file matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// Processes that can write to it.
    Writers,
    /// Also processes that only read it or hold SQLite's locks on it.
    All,
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InUse {
    Yes,
    No,
    /// The kernel cannot answer: the file has another owner, or the file system has no leases.
    Unknown,
}

/// Checks whether another process uses `file`, which must be open for reading only.
fn in_use(file: &File, users: Users) -> InUse {
    match lease(file, users) {
        InUse::No => {
            // Best effort: closing the file releases the lease too.
            fcntl(file, libc::F_SETLEASE, libc::F_UNLCK).ok();
            if users == Users::All && has_sqlite_lock(file) { InUse::Yes } else { InUse::No }
        }
        answer => answer,
    }
}

/// Requests a lease. Returns [`InUse::No`] if it was granted.
fn lease(file: &File, users: Users) -> InUse {
    let kind = match users {
        Users::Writers => libc::F_RDLCK,
        Users::All => libc::F_WRLCK,
    };
    /// Linux's value, which `libc` does not define.
    const F_SETSIG: libc::c_int = 10;
    // The kernel signals this process when another one opens the file. The default SIGIO would
    // terminate this process; SIGURG is ignored unless handled.
    if fcntl(file, F_SETSIG, libc::SIGURG).is_err() {
        return InUse::Unknown;
    }
    match fcntl(file, libc::F_SETLEASE, kind) {
        Ok(_) => InUse::No,
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => InUse::Yes,
        Err(_) => InUse::Unknown,
    }
}

/// A lease that keeps a file from being opened for writing: the kernel blocks a process that tries
/// until this is dropped.
pub(crate) struct Guard(File);

impl Guard {
    /// Guards the file `name`. Returns `Err` if a process already has it open for writing, and
    /// `None` if the kernel grants no lease or there is no such file.
    pub(crate) fn of(dir: &Dir, name: &[u8]) -> Result<Option<Guard>, ()> {
        let Ok(Some(stat)) = dir.stat(name) else { return Ok(None) };
        if stat.kind != FileKind::File {
            return Ok(None);
        }
        let Ok(file) = dir.open_file(name) else { return Ok(None) };
        match lease(&file, Users::Writers) {
            InUse::No => Ok(Some(Guard(file))),
            InUse::Yes => Err(()),
            InUse::Unknown => Ok(None),
        }
    }

    /// Returns whether a process is waiting to open the file for writing.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(fcntl(&self.0, libc::F_GETLEASE, 0), Ok(kind) if kind == libc::F_RDLCK)
    }
}

/// Checks whether another process uses the file at `path` below `root`, and returns the process's
/// name if it is known. Returns `None` if there is no such file.
pub(crate) fn use_of(root: &Dir, path: &[u8], users: Users) -> Option<(InUse, Option<String>)> {
    let (parent, name) = split(path);
    let dir = root.open_below(parent).ok()?;
    let stat = dir.stat(name).ok()??;
    if stat.kind != FileKind::File {
        return None;
    }
    let Ok(file) = dir.open_file(name) else { return Some((InUse::Unknown, None)) };
    let answer = in_use(&file, users);
    drop(file);
    let process = if answer == InUse::Yes { process_using(&stat) } else { None };
    Some((answer, process))
}

/// Calls `fcntl` with an integer argument.
fn fcntl(file: &File, command: libc::c_int, argument: libc::c_int) -> std::io::Result<libc::c_int> {
    // SAFETY: F_SETSIG and F_SETLEASE take an integer by value, F_GETLEASE takes nothing, and none
    // accesses this process's memory. The descriptor is open while `file` is borrowed.
    #[expect(unsafe_code, reason = "no crate offers leases; the proof is above")]
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result == -1 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns whether a process holds one of the byte-range locks that SQLite's connections use.
fn has_sqlite_lock(file: &File) -> bool {
    const PENDING_BYTE: libc::off_t = 0x4000_0000;
    const LOCK_BYTES: libc::off_t = 512;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: PENDING_BYTE,
        l_len: LOCK_BYTES,
        l_pid: 0,
    };
    // SAFETY: F_OFD_GETLK reads and writes one `flock`, which lives on this stack frame and is
    // borrowed mutably for the call. The descriptor is open while `file` is borrowed.
    #[expect(unsafe_code, reason = "no crate of ours asks for locks; the proof is above")]
    let result =
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, std::ptr::from_mut(&mut lock)) };
    result == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Returns the name and pid of a process that has the file open or mapped, for messages. Best
/// effort: the kernel hides the descriptors of other users' processes.
fn process_using(file: &Stat) -> Option<String> {
    const MAX_TIME: Duration = Duration::from_millis(300);
    let end = Instant::now() + MAX_TIME;
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if Instant::now() > end {
            return None;
        }
        if pid != own && (has_open(pid, file) || has_mapped(pid, file)) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(format!("{} ({pid})", name.trim()));
        }
    }
    None
}

fn has_open(pid: u32, file: &Stat) -> bool {
    use std::os::unix::fs::MetadataExt;
    let opened = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let device = |meta: &std::fs::Metadata| {
        (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())) == file.device
    };
    let mut metas = opened.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    metas.any(|meta| meta.ino() == file.inode && device(&meta))
}

fn has_mapped(pid: u32, file: &Stat) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let inode = file.inode.to_string();
    let mut lines = maps.lines().map(str::split_whitespace);
    lines.any(|mut fields| fields.nth(4) == Some(inode.as_str()))
}
