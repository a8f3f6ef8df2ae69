//! Directory handle whose operations are relative to it and never follow symlinks.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::path::split;

use super::stat::{FileKind, FsTrust, Stat, Time};
use super::{FileError, MODE_BITS, Named};

/// Longest path passed to one system call. Linux rejects paths of 4096 bytes (`PATH_MAX`) or more;
/// longer ones are opened in pieces.
const MAX_CALL_BYTES: usize = 4000;

/// An open directory. The path is used only in error messages.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// A directory entry's name, and its kind if the file system reports it.
pub(crate) type NamedKind = (Vec<u8>, Option<FileKind>);

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

impl Dir {
    /// Opens a directory. Symlinks in `path` are followed, so the caller must trust the path.
    pub(crate) fn open(path: &Path) -> Result<Dir, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .named("open the directory", path)?;
        Ok(Dir { fd, path: path.to_owned() })
    }

    /// Opens a directory by an absolute path without symlinks. Mount points may be crossed.
    ///
    /// Fails with `FilesystemLoop` or `NotADirectory` if a component is a symlink.
    pub(crate) fn open_real(path: &Path) -> Result<Dir, FileError> {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(rustix::fs::CWD, path, OPEN_DIR, Mode::empty(), resolve);
        let fd = match retry_on_intr(open) {
            // An old kernel or a sandbox without openat2, or a rename raced with the resolution.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => open_real_stepwise(path),
            other => other,
        };
        Ok(Dir { fd: fd.named("open the directory", path)?, path: path.to_owned() })
    }

    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(os(name)) }
    }

    /// Opens the directory at `path` below this one. An empty path reopens this directory.
    ///
    /// Fails with `CrossesDevices` at a mount point and `FilesystemLoop` or `NotADirectory` at a
    /// symlink.
    pub(crate) fn open_below(&self, path: &[u8]) -> Result<Dir, FileError> {
        let full = self.path_of(path);
        if path.is_empty() {
            let fd = open_step(&self.fd, b".").named("open the directory", &full)?;
            return Ok(Dir { fd, path: full });
        }
        let mut at: Option<OwnedFd> = None;
        for piece in pieces(path) {
            let from = at.as_ref().unwrap_or(&self.fd);
            at = Some(open_piece(from, piece).named("open the directory", &full)?);
        }
        let fd = at.expect("a path that is not empty has a piece");
        Ok(Dir { fd, path: full })
    }

    /// Returns the metadata of `name`, or `None` if it does not exist. Does not follow a symlink.
    pub(crate) fn stat(&self, name: &[u8]) -> Result<Option<Stat>, FileError> {
        match statx(&self.fd, os(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).named("look at", &self.path_of(name)),
        }
    }

    /// Returns the birth time of `name`, if the file system records it.
    pub(crate) fn birth(&self, name: &[u8]) -> Option<Time> {
        birth(&self.fd, name)
    }

    /// Returns the metadata of this directory itself.
    pub(crate) fn stat_self(&self) -> Result<Stat, FileError> {
        statx(&self.fd, OsStr::new(""), AtFlags::EMPTY_PATH).named("look at", &self.path)
    }

    pub(crate) fn trust(&self) -> Result<FsTrust, FileError> {
        let stat = rustix::fs::fstatfs(&self.fd).named("look at the file system of", &self.path)?;
        Ok(FsTrust::of_magic(stat.f_type as u64))
    }

    /// Returns the names in this directory in no particular order, without `.` and `..`.
    pub(crate) fn names(&self) -> Result<Vec<Vec<u8>>, FileError> {
        let named = self.names_and_kinds()?;
        Ok(named.into_iter().map(|(name, _)| name).collect())
    }

    /// Like [`names`](Dir::names), with the kind of each entry if the file system reports it.
    pub(crate) fn names_and_kinds(&self) -> Result<Vec<NamedKind>, FileError> {
        let mut names = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 32 * 1024];
        let mut entries = rustix::fs::RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            match entry {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => (),
                    name => names.push((name.to_vec(), FileKind::of(entry.file_type()))),
                },
                Err(Errno::INTR) => (),
                Err(error) => return Err(error).named("list", &self.path),
            }
        }
        Ok(names)
    }

    /// Opens a file for reading. Never blocks, even on a fifo without a writer.
    pub(crate) fn open_file(&self, name: &[u8]) -> Result<File, FileError> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::openat(&self.fd, os(name), flags, Mode::empty()))
            .map(File::from)
            .named("open", &self.path_of(name))
    }

    /// Returns the target of a symlink.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, FileError> {
        retry_on_intr(|| rustix::fs::readlinkat(&self.fd, os(name), Vec::new()))
            .map(std::ffi::CString::into_bytes)
            .named("read the link", &self.path_of(name))
    }

    /// Creates a file with mode 0600. Fails if the name exists.
    pub(crate) fn create_file(&self, name: &[u8]) -> Result<File, FileError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::openat(&self.fd, os(name), flags, Mode::from(0o600)))
            .map(File::from)
            .named("create", &self.path_of(name))
    }

    pub(crate) fn create_dir(&self, name: &[u8]) -> Result<(), FileError> {
        retry_on_intr(|| rustix::fs::mkdirat(&self.fd, os(name), Mode::from(0o700)))
            .named("create the directory", &self.path_of(name))
    }

    pub(crate) fn create_symlink(&self, target: &[u8], name: &[u8]) -> Result<(), FileError> {
        retry_on_intr(|| rustix::fs::symlinkat(os(target), &self.fd, os(name)))
            .named("create the link", &self.path_of(name))
    }

    /// Creates `name` as a hard link to `old` in the directory `from`. Fails if `name` exists.
    pub(crate) fn link_from(&self, from: &Dir, old: &[u8], name: &[u8]) -> Result<(), FileError> {
        retry_on_intr(|| {
            rustix::fs::linkat(&from.fd, os(old), &self.fd, os(name), AtFlags::empty())
        })
        .named("create the hard link", &self.path_of(name))
    }

    pub(crate) fn remove_file(&self, name: &[u8]) -> Result<(), FileError> {
        retry_on_intr(|| rustix::fs::unlinkat(&self.fd, os(name), AtFlags::empty()))
            .named("remove", &self.path_of(name))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&self, name: &[u8]) -> Result<(), FileError> {
        retry_on_intr(|| rustix::fs::unlinkat(&self.fd, os(name), AtFlags::REMOVEDIR))
            .named("remove the directory", &self.path_of(name))
    }

    /// Renames an entry within this directory. Fails if `to` exists.
    pub(crate) fn rename_new(&self, from: &[u8], to: &[u8]) -> Result<(), FileError> {
        self.rename(from, to, RenameFlags::NOREPLACE)
    }

    /// Atomically exchanges two names in this directory.
    pub(crate) fn exchange(&self, one: &[u8], other: &[u8]) -> Result<(), FileError> {
        self.rename(one, other, RenameFlags::EXCHANGE)
    }

    fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), FileError> {
        retry_on_intr(|| rustix::fs::renameat_with(&self.fd, os(from), &self.fd, os(to), flags))
            .named("rename", &self.path_of(to))
    }

    /// Sets this directory's permissions. Keeps its special bits, such as a set-group-id bit
    /// inherited from the parent.
    pub(crate) fn set_mode_of_dir(&self, mode: u32) -> Result<(), FileError> {
        let inherited = self.stat_self()?.mode & 0o7000;
        self.set_exact_mode_of_dir(mode | inherited)
    }

    /// Sets this directory's permissions, including its set-group-id and sticky bits.
    pub(crate) fn set_exact_mode_of_dir(&self, mode: u32) -> Result<(), FileError> {
        let mode = Mode::from(mode & MODE_BITS);
        retry_on_intr(|| rustix::fs::fchmod(&self.fd, mode))
            .named("set the permissions of", &self.path)
    }

    /// Changes the owner of a file or symlink in this directory, without following it.
    pub(crate) fn set_owner_of(&self, name: &[u8], uid: u32, gid: u32) -> Result<(), FileError> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        retry_on_intr(|| rustix::fs::chownat(&self.fd, os(name), Some(uid), Some(gid), flags))
            .named("set the owner of", &self.path_of(name))
    }

    pub(crate) fn set_owner(&self, uid: u32, gid: u32) -> Result<(), FileError> {
        set_owner(&self.fd, uid, gid).named("set the owner of", &self.path)
    }

    /// Flushes this directory, which makes its names durable.
    pub(crate) fn sync(&self) -> Result<(), FileError> {
        rustix::fs::fsync(&self.fd).named("flush", &self.path)
    }

    /// Flushes the whole file system.
    pub(crate) fn sync_file_system(&self) -> Result<(), FileError> {
        rustix::fs::syncfs(&self.fd).named("flush", &self.path)
    }
}

/// A directory opened only to read metadata. It keeps no path because its errors are not reported.
#[derive(Debug)]
pub(crate) struct Glimpse(OwnedFd);

impl Dir {
    /// Opens the directory at `path` below this one. Returns `None` on any error.
    pub(crate) fn glimpse(&self, path: &[u8]) -> Option<Glimpse> {
        if path.is_empty() {
            return open_step(&self.fd, b".").ok().map(Glimpse);
        }
        let mut at: Option<OwnedFd> = None;
        for piece in pieces(path) {
            at = Some(open_piece(at.as_ref().unwrap_or(&self.fd), piece).ok()?);
        }
        at.map(Glimpse)
    }

    /// Returns the metadata of the file at `path`. Returns `None` on any error.
    pub(crate) fn glimpse_stat(&self, path: &[u8]) -> Option<Stat> {
        let (parent, name) = split(path);
        self.glimpse(parent)?.stat(name)
    }
}

impl Glimpse {
    pub(crate) fn stat_self(&self) -> Option<Stat> {
        statx(&self.0, OsStr::new(""), AtFlags::EMPTY_PATH).ok()
    }

    pub(crate) fn stat(&self, name: &[u8]) -> Option<Stat> {
        statx(&self.0, os(name), AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Returns the birth time of `name`, if the file system records it.
    pub(crate) fn birth(&self, name: &[u8]) -> Option<Time> {
        birth(&self.0, name)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the metadata of an open file.
pub(crate) fn stat_file(file: &File, path: &Path) -> Result<Stat, FileError> {
    statx(file, OsStr::new(""), AtFlags::EMPTY_PATH).named("look at", path)
}

pub(crate) fn set_mode(fd: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(retry_on_intr(|| rustix::fs::fchmod(&fd, Mode::from(mode & MODE_BITS)))?)
}

/// Changes the owner of an open file. Requires root.
pub(crate) fn set_owner(fd: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    Ok(retry_on_intr(|| rustix::fs::fchown(&fd, Some(uid), Some(gid)))?)
}

fn birth(fd: impl AsFd, name: &[u8]) -> Option<Time> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::BTIME;
    let stat = retry_on_intr(|| rustix::fs::statx(&fd, os(name), flags, wanted)).ok()?;
    let has = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    has.then_some(Time { seconds: stat.stx_btime.tv_sec, nanos: stat.stx_btime.tv_nsec })
}

fn statx(fd: impl AsFd, name: &OsStr, flags: AtFlags) -> Result<Stat, Errno> {
    let flags = flags | AtFlags::NO_AUTOMOUNT;
    let stat = retry_on_intr(|| rustix::fs::statx(&fd, name, flags, StatxFlags::BASIC_STATS))?;
    Ok(Stat::from_statx(&stat))
}

/// Splits a path at slashes into pieces that one system call accepts.
fn pieces(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if rest.len() <= MAX_CALL_BYTES {
            return Some(std::mem::take(&mut rest));
        }
        let cut =
            rest[..MAX_CALL_BYTES].iter().rposition(|byte| *byte == b'/').unwrap_or(rest.len());
        let piece = &rest[..cut];
        rest = rest.get(cut + 1..).unwrap_or_default();
        Some(piece)
    })
}

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open_piece(from: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let opened =
        retry_on_intr(|| rustix::fs::openat2(from, os(path), OPEN_DIR, Mode::empty(), resolve));
    match opened {
        // An old kernel or a sandbox without openat2: same guarantee, one component at a time.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(from, path),
        // A rename raced with the resolution, and the kernel asks for a retry.
        Err(Errno::AGAIN) => open_stepwise(from, path),
        other => other,
    }
}

fn open_step(from: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| rustix::fs::openat(from, os(name), OPEN_DIR, Mode::empty()))
}

/// Opens an absolute path one component at a time. Only the last directory has to be readable.
fn open_real_stepwise(path: &Path) -> Result<OwnedFd, Errno> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |from: BorrowedFd<'_>, name: &OsStr, flags| {
        retry_on_intr(|| rustix::fs::openat(from, name, flags, Mode::empty()))
    };
    let mut at = open(rustix::fs::CWD, OsStr::new("/"), through)?;
    for part in path.components() {
        if let std::path::Component::Normal(name) = part {
            at = open(at.as_fd(), name, through)?;
        }
    }
    open(at.as_fd(), OsStr::new("."), OPEN_DIR)
}

fn open_stepwise(from: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let device = |fd: &OwnedFd| -> Result<(u32, u32), Errno> {
        let stat = statx(fd, OsStr::new(""), AtFlags::EMPTY_PATH)?;
        Ok(stat.device)
    };
    let home = device(from)?;
    let mut at: Option<OwnedFd> = None;
    for name in path.split(|byte| *byte == b'/') {
        let next = open_step(at.as_ref().unwrap_or(from), name)?;
        if device(&next)? != home {
            return Err(Errno::XDEV);
        }
        at = Some(next);
    }
    at.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_path_is_opened_and_a_symlink_on_it_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("a/b")).unwrap();
        std::os::unix::fs::symlink(top.join("a"), top.join("link")).unwrap();
        Dir::open_real(&top.join("a/b")).unwrap();
        open_real_stepwise(&top.join("a/b")).unwrap();
        for path in ["link/b", "link"] {
            assert!(Dir::open_real(&top.join(path)).is_err(), "{path}");
            assert!(open_real_stepwise(&top.join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn long_paths_are_cut_at_slashes() {
        let path = vec![b"x".repeat(200).as_slice(); 50].join(&b'/');
        let cut: Vec<&[u8]> = pieces(&path).collect();
        assert!(cut.iter().all(|piece| piece.len() <= MAX_CALL_BYTES));
        assert_eq!(cut.join(&b'/'), path);
    }
}
