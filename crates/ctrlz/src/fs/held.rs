//! Read access to large files of the store, memory-mapped where that is safe.

use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::private::{open_small, read_open};
use super::{FileError, FsTrust};

/// Files smaller than this are read: for them a copy is cheaper than a mapping.
const MIN_MAPPED_BYTES: usize = 256 << 10;

/// Contents of a file, either a copy or a memory mapping.
#[derive(Debug)]
pub(crate) enum Held {
    Copied(Vec<u8>),
    Mapped(Mmap),
}

impl Held {
    /// Opens a regular file of at most `limit` bytes. Returns `None` if it does not exist, is
    /// larger, or is not a regular file.
    ///
    /// Only for files that are replaced by rename and never modified in place.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Option<Held>, FileError> {
        let Some((file, bytes)) = open_small(path, limit, rustix::fs::OFlags::NOFOLLOW)? else {
            return Ok(None);
        };
        // Accessing a mapped page can fail on a network file system, so only local ones are mapped.
        let is_local = rustix::fs::fstatfs(&file)
            .is_ok_and(|stat| FsTrust::of_magic(stat.f_type as u64).notices);
        if bytes >= MIN_MAPPED_BYTES && is_local {
            // SAFETY: the bytes must not change while they are mapped. This crate only ever
            // replaces the file by renaming another one over it, which leaves the mapped inode
            // intact, and the file lies in a directory that only its owner can enter. gitoxide maps
            // the packs beside it under the same assumption. If the file is truncated by hand
            // nevertheless, SIGBUS ends the process, which is no worse for the files than any other
            // kill.
            #[expect(unsafe_code, reason = "the one mapping; the proof is above")]
            let mapped = unsafe { Mmap::map(&file) };
            if let Ok(mapped) = mapped {
                return Ok(Some(Held::Mapped(mapped)));
            }
        }
        Ok(read_open(file, bytes, path, limit)?.map(Held::Copied))
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Held::Copied(bytes) => bytes,
            Held::Mapped(bytes) => bytes,
        }
    }
}

impl Default for Held {
    fn default() -> Held {
        Held::Copied(Vec::new())
    }
}

impl From<Vec<u8>> for Held {
    fn from(bytes: Vec<u8>) -> Held {
        Held::Copied(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_files_are_read_completely() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert!(Held::open(&path, 10).unwrap().is_none(), "no such file");
        for bytes in [0, 10, MIN_MAPPED_BYTES - 1, MIN_MAPPED_BYTES, MIN_MAPPED_BYTES + 1] {
            let text: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            std::fs::write(&path, &text).unwrap();
            let held = Held::open(&path, bytes as u64).unwrap().unwrap();
            assert_eq!(*held, *text, "{bytes} bytes");
            let too_small = (bytes as u64).checked_sub(1);
            assert!(too_small.is_none_or(|limit| Held::open(&path, limit).unwrap().is_none()));
        }
        assert!(Held::open(dir.path(), 10).unwrap().is_none(), "a directory");
    }

    #[test]
    fn replacing_a_file_does_not_change_its_mapping() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let old = vec![1; 2 * MIN_MAPPED_BYTES];
        std::fs::write(&path, &old).unwrap();
        let held = Held::open(&path, 1 << 20).unwrap().unwrap();
        super::super::private::replace(&path, &[2; 10], super::super::private::Durable::No)
            .unwrap();
        assert_eq!(*held, *old);
    }
}
