//! Telling one directory from another, whatever its path is now.

use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use super::stat::FsTrust;

/// What stays with a directory when it is renamed, and what a copy of it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Landmark {
    device: (u32, u32),
    inode: u64,
    /// When it was made. An inode number alone is given to a new directory once the old one is
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<(i64, u32)>,
}

impl Landmark {
    /// The landmark of the directory at `path`; `None` where there is none, or where the file
    /// system gives its directories no lasting identity.
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

    /// Whether what is at a path now is what was there before. In doubt it is: device numbers
    /// change when a machine starts again.
    pub(crate) fn may_be(&self, other: &Landmark) -> bool {
        let born_alike = match (self.born, other.born) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.inode == other.inode && born_alike
    }

    /// Whether both certainly are one directory, wherever they were seen.
    pub(crate) fn is(&self, other: &Landmark) -> bool {
        self.born.is_some() && self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_directory_is_itself_and_a_new_one_is_not() {
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
