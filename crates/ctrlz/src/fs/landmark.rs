//! Identity of a directory, independent of its path.

use std::fs::File;
use std::path::Path;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use serde::{Deserialize, Serialize};

use super::stat::FsTrust;

/// Identity that survives renaming a directory or file and that copies do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Landmark {
    device: (u32, u32),
    inode: u64,
    /// Birth time. Inode numbers are reused after a directory is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<(i64, u32)>,
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl Landmark {
    /// Returns the landmark of the directory at `path`. Returns `None` if it does not exist or its
    /// file system has no stable inode numbers.
    pub(crate) fn of(path: &Path) -> Option<Landmark> {
        let magic = rustix::fs::statfs(path).ok()?.f_type;
        let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), WANTED).ok()?;
        Landmark::from(magic as u64, &stat)
    }

    /// Returns the landmark of an open file.
    pub(crate) fn of_file(file: &File) -> Option<Landmark> {
        let magic = rustix::fs::fstatfs(file).ok()?.f_type;
        let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, WANTED).ok()?;
        Landmark::from(magic as u64, &stat)
    }

    fn from(magic: u64, stat: &Statx) -> Option<Landmark> {
        if !FsTrust::of_magic(magic).inode {
            return None;
        }
        let has_born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Some(Landmark {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            born: has_born.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)),
        })
    }

    /// Returns whether both can be the same directory, seen at the same path. Ignores missing birth
    /// times, and device numbers because they can change at reboot.
    pub(crate) fn may_be(&self, other: &Landmark) -> bool {
        let born_alike = match (self.born, other.born) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.inode == other.inode && born_alike
    }

    /// Returns whether `noted`, which the file at `path` holds, is the identity of this very file.
    /// A copy of the file, such as git makes, has another one. Returns `true` on file systems
    /// without stable identities.
    pub(crate) fn is_noted(noted: Option<&Landmark>, path: &Path) -> bool {
        let is_same = |here: &Landmark| {
            noted.is_some_and(|it| it.inode == here.inode && it.born == here.born)
        };
        Landmark::of(path).is_none_or(|here| is_same(&here))
    }

    /// Returns whether both certainly are the same directory, at any path.
    pub(crate) fn is(&self, other: &Landmark) -> bool {
        self.born.is_some() && self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_is_recognized_and_a_new_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let Some(then) = Landmark::of(&old) else { return };
        std::fs::rename(&old, &new).unwrap();
        let moved = Landmark::of(&new).unwrap();
        assert!(then.may_be(&moved) && (then.is(&moved) || then.born.is_none()));
        assert_eq!(Landmark::of(&old), None);
        std::fs::create_dir(&old).unwrap();
        assert!(!Landmark::of(&old).unwrap().may_be(&moved));
    }
}
