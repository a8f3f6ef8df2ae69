//! File metadata from `statx`, and the trust that each file system's metadata deserves.

use rustix::fs::{FileType, Statx, StatxAttributes};

/// A file timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Time {
    /// Returns the coarse clock, which file systems use for timestamps. If read *before* a stat,
    /// later changes cannot have an older timestamp.
    pub(crate) fn now() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Time { seconds: now.tv_sec, nanos: now.tv_nsec as u32 }
    }

    /// Returns the milliseconds since 1970. Earlier times count as zero seconds.
    pub(crate) fn millis(self) -> u64 {
        let seconds = u64::try_from(self.seconds).unwrap_or_default();
        seconds * 1_000 + u64::from(self.nanos / 1_000_000)
    }

    pub(crate) fn minus_millis(self, millis: i64) -> Time {
        let total = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
            - i128::from(millis) * 1_000_000;
        Time {
            seconds: total.div_euclid(1_000_000_000) as i64,
            nanos: total.rem_euclid(1_000_000_000) as u32,
        }
    }
}

/// Type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    File,
    Dir,
    Symlink,
    /// A fifo, socket or device. Never opened.
    Special,
}

impl FileKind {
    /// Converts a file type. Returns `None` if the file system does not report it.
    pub(crate) fn of(kind: FileType) -> Option<FileKind> {
        match kind {
            FileType::RegularFile => Some(FileKind::File),
            FileType::Directory => Some(FileKind::Dir),
            FileType::Symlink => Some(FileKind::Symlink),
            FileType::Unknown => None,
            _ => Some(FileKind::Special),
        }
    }
}

/// Metadata of one file, taken without following a symlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: FileKind,
    /// Permission bits, including set-user-id, set-group-id and sticky.
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) inode: u64,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: (u32, u32),
    /// Whether it is a mount point, including a bind mount of the same file system.
    pub(crate) mount_root: bool,
}

impl Stat {
    pub(crate) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }

    /// Returns whether both describe the same file with unmodified content.
    pub(crate) fn same_file_and_content(&self, other: &Stat) -> bool {
        self.kind == other.kind
            && self.inode == other.inode
            && self.bytes == other.bytes
            && self.mtime == other.mtime
            && self.ctime == other.ctime
    }

    pub(crate) fn from_statx(stat: &Statx) -> Stat {
        let time =
            |time: &rustix::fs::StatxTimestamp| Time { seconds: time.tv_sec, nanos: time.tv_nsec };
        Stat {
            kind: FileKind::of(FileType::from_raw_mode(u32::from(stat.stx_mode)))
                .unwrap_or(FileKind::Special),
            mode: u32::from(stat.stx_mode) & 0o7777,
            bytes: stat.stx_size,
            mtime: time(&stat.stx_mtime),
            ctime: time(&stat.stx_ctime),
            inode: stat.stx_ino,
            links: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        }
    }
}

/// Guarantees that a file system's metadata gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FsTrust {
    /// Every change updates the change time, so equal metadata means equal content.
    pub(crate) stat: bool,
    /// A file keeps its inode number for life.
    pub(crate) inode: bool,
    /// Every change goes through this kernel, so inotify reports all of them.
    pub(crate) notices: bool,
}

impl FsTrust {
    /// Returns the trust for a file system's magic number. Only known local ones are trusted.
    pub(crate) fn of_magic(magic: u64) -> FsTrust {
        const EXT: u64 = 0xef53;
        const XFS: u64 = 0x5846_5342;
        const BTRFS: u64 = 0x9123_683e;
        const TMPFS: u64 = 0x0102_1994;
        const ZFS: u64 = 0x2fc1_2fc1;
        const F2FS: u64 = 0xf2f5_2010;
        const BCACHEFS: u64 = 0xca45_1a4e;
        const OVERLAY: u64 = 0x794c_7630;
        match magic {
            EXT | XFS | BTRFS | TMPFS | ZFS | F2FS | BCACHEFS => {
                FsTrust { stat: true, inode: true, notices: true }
            }
            // Copying a file up from a lower layer changes only its inode number.
            OVERLAY => FsTrust { stat: true, inode: false, notices: true },
            _ => FsTrust { stat: false, inode: false, notices: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_file_systems_report_every_change() {
        const NFS: u64 = 0x6969;
        const SMB2: u64 = 0xfe53_4d42;
        const FUSE: u64 = 0x6573_5546;
        const P9: u64 = 0x0102_1997;
        for remote in [NFS, SMB2, FUSE, P9, 0] {
            assert!(!FsTrust::of_magic(remote).notices, "{remote:x}");
        }
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994] {
            assert!(FsTrust::of_magic(local).notices, "{local:x}");
        }
    }
}
