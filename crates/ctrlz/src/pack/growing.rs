//! Packs that are larger than memory: full buffers are appended to a file.
//!
//! A pack begins with the number of its entries and ends with a hash of all bytes, so that it can
//! only be hashed when it is complete. The bytes that are read back are compared by CRC with those
//! that were written, so that the hash does not cover bytes that the disk has changed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::error::Error;
use crate::fs::{FileError, Named};
use crate::git::{Hasher, ObjectId};

use super::entry::{PACK_HEADER_BYTES, attacked, header};
use super::temporary::{Buffer, Entry, RemoveOnDrop, TemporaryPack};

/// A growing pack. Its file is removed if it is dropped before it is closed.
pub(super) struct GrowingPack {
    file: File,
    path: PathBuf,
    guard: RemoveOnDrop,
    entries: Vec<Entry>,
    /// Size of all entries.
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

    /// Appends a buffer. Delta offsets are relative, so the buffer can be at any position.
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

    /// Returns the hash of all bytes.
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
        hasher.finish().ok_or_else(attacked)
    }
}
