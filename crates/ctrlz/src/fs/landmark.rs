//! Identity of a directory, independent of its path.

use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::stat::FsTrust;

/// Identity that survives renaming a directory and that copies do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Landmark {
    device: (u32, u32),
    inode: u64,
    /// Birth time. Inode numbers are reused after a directory is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<(i64, u32)>,
}

impl Landmark {
    /// Returns the landmark of the directory at `path`. Returns `None` if it does not exist or its
    /// file system has no stable inode numbers.
    pub(crate) fn of(path: &Path) -> Option<Landmark> {
        let magic = rustix::fs::statfs(path).ok()?.f_type;
        if !FsTrust::of_magic(magic as u64).inode {
            return None;
        }
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), wanted).ok()?;
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
