//! A pack that grows: full buffers are appended to one file, which gets its header at the end.
//!
//! A pack begins with the number of its entries and ends with a hash of all before, so one that is
//! too large for memory can only be hashed when it is complete. What is read back for that is
//! compared with what was written: a checksum must not vouch for bytes that a disk has changed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::Error;
use crate::fs::{FileError, Named};
use crate::git::{Hasher, ObjectId};

use super::pack_writer::{Buffer, Entry, PACK_HEADER_BYTES, RemoveOnDrop, TemporaryPack, header};

/// Removed when it is dropped before it was closed.
pub(super) struct GrowingPack {
    file: File,
    path: PathBuf,
    guard: RemoveOnDrop,
    entries: Vec<Entry>,
    /// Of all entries.
    bytes: u64,
    crc: crc32fast::Hasher,
}

impl GrowingPack {
    /// Begins a pack in a new file.
    pub(super) fn start(path: PathBuf, file: File) -> Result<GrowingPack, FileError> {
        let guard = RemoveOnDrop(Some(path.clone()));
        let (entries, crc) = (Vec::new(), crc32fast::Hasher::new());
        let mut pack = GrowingPack { file, path, guard, entries, bytes: 0, crc };
        pack.file.write_all(&[0; PACK_HEADER_BYTES as usize]).named("write", &pack.path)?;
        Ok(pack)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Deltas reach back by a distance, so a buffer is right at any place.
    pub(super) fn append(&mut self, full: Buffer) -> Result<(), FileError> {
        self.file.write_all(&full.bytes).named("write", &self.path)?;
        self.crc.update(&full.bytes);
        let moved = |entry: Entry| Entry { offset: self.bytes + entry.offset, ..entry };
        self.entries.extend(full.entries.into_iter().map(moved));
        self.bytes += full.bytes.len() as u64;
        Ok(())
    }

    pub(super) fn close(mut self) -> Result<TemporaryPack, Error> {
        let header = header(self.entries.len() as u32);
        self.file.write_all_at(&header, 0).named("write", &self.path)?;
        let checksum = self.read_back(&header)?;
        self.file.write_all(checksum.as_bytes()).named("write", &self.path)?;
        self.guard.keep();
        Ok(TemporaryPack { path: self.path, entries: self.entries, checksum })
    }

    /// The hash of everything that was written.
    fn read_back(&self, header: &[u8]) -> Result<ObjectId, Error> {
        let mut hasher = Hasher::raw();
        hasher.update(header);
        let mut crc = crc32fast::Hasher::new();
        let mut buffer = vec![0; 256 * 1024];
        let (mut at, end) = (PACK_HEADER_BYTES, PACK_HEADER_BYTES + self.bytes);
        while at < end {
            let part =
                &mut buffer[..usize::try_from(end - at).unwrap_or(usize::MAX).min(256 * 1024)];
            self.file.read_exact_at(part, at).named("read back", &self.path)?;
            hasher.update(part);
            crc.update(part);
            at += part.len() as u64;
        }
        if crc.finalize() != self.crc.clone().finalize() {
            let changed = std::io::Error::other("its bytes are not those that were written");
            return Ok(Err(changed).named("read back", &self.path)?);
        }
        hasher.finish().ok_or_else(super::pack_writer::attacked)
    }
}
