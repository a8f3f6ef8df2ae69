//! The user's own index: the tracked paths, and their blob ids.

use std::path::Path;

use gix_index::entry::{Flags, Mode, Stage};

use super::hash::Hasher;
use super::id::ObjectId;

/// File metadata to compare with an index entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    pub(crate) is_symlink: bool,
    pub(crate) executable: bool,
    pub(crate) bytes: u64,
    pub(crate) mtime: (i64, u32),
    pub(crate) ctime: (i64, u32),
    pub(crate) inode: u64,
}

/// A decoded index.
pub(crate) struct IndexFile {
    state: gix_index::File,
    written: (i64, u32),
}

impl IndexFile {
    /// Reads the index at `path`. Returns `None` if it cannot be decoded.
    ///
    /// `sha256` is whether the repository uses SHA-256, if that is known. Otherwise the checksum
    /// decides, because the wrong hash function would decode into garbage.
    pub(crate) fn read(path: &Path, sha256: Option<bool>) -> Option<IndexFile> {
        let options = || gix_index::decode::Options {
            thread_limit: Some(1),
            alloc_limit_bytes: Some(1 << 30),
            ..Default::default()
        };
        let kinds: &[gix_hash::Kind] = match sha256 {
            Some(false) => &[gix_hash::Kind::Sha1],
            Some(true) => &[gix_hash::Kind::Sha256],
            None => &[gix_hash::Kind::Sha1, gix_hash::Kind::Sha256],
        };
        let state = kinds
            .iter()
            .find_map(|kind| gix_index::File::at(path, *kind, sha256.is_some(), options()).ok())?;
        let time = state.timestamp();
        let written = (time.unix_seconds(), time.nanoseconds());
        Some(IndexFile { state, written })
    }

    /// Returns the entries below `directory`. An empty path selects the whole index.
    pub(crate) fn below(&self, directory: &[u8]) -> TrackedBelow<'_> {
        let prefix = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
        let entries = self.state.prefixed_entries(prefix.as_slice().into()).unwrap_or_default();
        TrackedBelow { index: self, entries, prefix: prefix.len() }
    }

    /// Returns the directories that contain tracked files.
    pub(crate) fn dirs(&self) -> TrackedDirs {
        let mut dirs = TrackedDirs::default();
        for entry in self.state.entries() {
            let mut path: &[u8] = entry.path(&self.state);
            while let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
                path = &path[..at];
                if !dirs.0.insert(TrackedDirs::key(path)) {
                    break;
                }
            }
        }
        dirs
    }

    /// Returns a hash of the tracked paths, independent of their content.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = Hasher::raw();
        for entry in self.state.entries() {
            hasher.update(entry.path(&self.state));
            hasher.update(&[0]);
        }
        let id = hasher.finish().map_or([0; 20], |id| id.0);
        u64::from_le_bytes(id[..8].try_into().expect("eight of twenty bytes"))
    }
}

/// The entries of one directory. A lookup compares a few short names instead of the many long paths
/// of the whole index.
pub(crate) struct TrackedBelow<'a> {
    index: &'a IndexFile,
    entries: &'a [gix_index::Entry],
    /// Length of the prefix that all paths share.
    prefix: usize,
}

impl<'a> TrackedBelow<'a> {
    fn name(&self, entry: &'a gix_index::Entry) -> &'a [u8] {
        &entry.path(&self.index.state)[self.prefix..]
    }

    /// Returns the entries from the first one at or after `name`.
    fn at_or_after(&self, name: &[u8]) -> &'a [gix_index::Entry] {
        &self.entries[self.entries.partition_point(|entry| self.name(entry) < name)..]
    }

    /// Returns whether the user's git tracks a file of exactly this name here, in any stage.
    pub(crate) fn tracks(&self, name: &[u8]) -> bool {
        self.at_or_after(name).first().is_some_and(|entry| self.name(entry) == name)
    }

    /// Returns whether the user's git tracks any file inside the directory of this name.
    pub(crate) fn tracks_below(&self, name: &[u8]) -> bool {
        let inside = [name, b"/"].concat();
        self.at_or_after(&inside).first().is_some_and(|entry| self.name(entry).starts_with(&inside))
    }

    /// Returns the blob id of the file `name`, if the entry's stat data proves that the content is
    /// unchanged.
    ///
    /// Only uses ordinary stage-zero entries. Skips those with flags that keep git from checking
    /// the file (assume-unchanged, skip-worktree, intent-to-add), and entries as new as the index.
    pub(crate) fn blob(&self, name: &[u8], file: &Seed) -> Option<ObjectId> {
        if self.index.state.object_hash() != gix_hash::Kind::Sha1 {
            return None;
        }
        let entry = self.at_or_after(name).first()?;
        let is_plain = self.name(entry) == name && entry.stage() == Stage::Unconflicted;
        let unusable = Flags::ASSUME_VALID | Flags::SKIP_WORKTREE | Flags::INTENT_TO_ADD;
        if !is_plain || entry.flags.intersects(unusable) || file.bytes >= u64::from(u32::MAX) {
            return None;
        }
        let kind_agrees = match entry.mode {
            Mode::FILE => !file.is_symlink && !file.executable,
            Mode::FILE_EXECUTABLE => !file.is_symlink && file.executable,
            Mode::SYMLINK => file.is_symlink,
            _ => false,
        };
        let stat = &entry.stat;
        let agrees = kind_agrees
            && u64::from(stat.size) == file.bytes
            && same_time((stat.mtime.secs, stat.mtime.nsecs), file.mtime)
            && same_time((stat.ctime.secs, stat.ctime.nsecs), file.ctime)
            && stat.ino == file.inode as u32
            // Git's "racily clean" rule: a file as new as the index may have changed after it was
            // read.
            && file.mtime < self.index.written
            && file.ctime < self.index.written;
        agrees.then(|| ObjectId::from_slice(entry.id.as_slice())).flatten()
    }
}

/// Set of the directories with tracked files. It holds hashes to save memory: a collision can cause
/// a false positive, never a false negative.
#[derive(Debug, Default)]
pub(crate) struct TrackedDirs(std::collections::HashSet<u64>);

impl TrackedDirs {
    fn key(path: &[u8]) -> u64 {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        hasher.write(path);
        hasher.finish()
    }

    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        self.0.contains(&TrackedDirs::key(path))
    }
}

/// Compares two times. The index stores only the low 32 bits of the seconds.
fn same_time(index: (u32, u32), file: (i64, u32)) -> bool {
    index.0 == file.0 as u32 && index.1 == file.1
}
