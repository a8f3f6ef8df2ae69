//! Unpublished pack files, which are removed on drop unless they are published.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::{FileError, Named};
use crate::git::{Hasher, ObjectId};

use super::entry::{attacked, header};

/// Prefix of unpublished files.
pub(crate) const TEMPORARY: &str = "tmp_ctrlz_";

/// Entries that are not written yet.
pub(crate) struct Buffer {
    pub(crate) entries: Vec<Entry>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Entry {
    pub(crate) id: ObjectId,
    pub(crate) crc: u32,
    /// Offset relative to the first entry of its buffer, and later of its pack.
    pub(crate) offset: u64,
}

/// A complete pack that is not published.
pub(crate) struct TemporaryPack {
    pub(crate) path: PathBuf,
    pub(crate) entries: Vec<Entry>,
    pub(crate) checksum: ObjectId,
}

/// Removes a temporary pack and its index unless they were published.
pub(super) struct RemovePack(pub(super) TemporaryPack);

impl RemovePack {
    /// Renames pack and index to their final names. Returns the path of the pack and the size of
    /// both.
    pub(super) fn rename_into(self, pack_dir: &Path) -> Result<(PathBuf, u64), FileError> {
        let name = format!("pack-{}", self.0.checksum);
        let mut bytes = 0;
        for extension in ["pack", "idx"] {
            let from = temporary_file(&self.0.path, extension);
            let to = pack_dir.join(&name).with_extension(extension);
            bytes += from.metadata().map_or(0, |meta| meta.len());
            std::fs::rename(&from, &to).named("publish", &to)?;
        }
        Ok((pack_dir.join(&name).with_extension("pack"), bytes))
    }
}

impl Drop for RemovePack {
    fn drop(&mut self) {
        for extension in ["pack", "idx"] {
            // Errors are ignored: a later command removes leftovers.
            drop(std::fs::remove_file(temporary_file(&self.0.path, extension)));
        }
    }
}

pub(crate) struct RemoveOnDrop(pub(crate) Option<PathBuf>);

impl RemoveOnDrop {
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Errors are ignored: a later command removes leftovers.
            drop(std::fs::remove_file(path));
        }
    }
}

pub(crate) fn temporary_file(path: &Path, extension: &str) -> PathBuf {
    match extension {
        "pack" => path.to_owned(),
        _ => path.with_extension("idx"),
    }
}

/// A file whose bytes are hashed as they are written.
pub(crate) struct HashedFile<'a> {
    file: File,
    path: &'a Path,
    hasher: Hasher,
}

impl HashedFile<'_> {
    pub(crate) fn start(
        file: File,
        path: &Path,
        entries: u32,
    ) -> Result<HashedFile<'_>, FileError> {
        let mut out = HashedFile { file, path, hasher: Hasher::raw() };
        out.write(&header(entries))?;
        Ok(out)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.hasher.update(bytes);
        self.file.write_all(bytes).named("write", self.path)
    }

    /// Writes the trailing checksum and returns it.
    pub(crate) fn finish(mut self) -> Result<ObjectId, Error> {
        let checksum = self.hasher.finish().ok_or_else(attacked)?;
        self.file.write_all(checksum.as_bytes()).named("write", self.path)?;
        Ok(checksum)
    }
}
