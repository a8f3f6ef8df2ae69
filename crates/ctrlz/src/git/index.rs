//! The user's own index: which files their git tracks, and the blob ids it already knows.

use std::path::Path;

use gix_index::entry::{Flags, Mode, Stage};

use super::id::{Hasher, ObjectId};

/// The part of a file's stat data that an index entry repeats.
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
    /// Reads the index at `path`; `None` if it cannot be understood.
    ///
    /// `sha256` tells which hash the repository uses when that is known. Otherwise the checksum
    /// decides, because a wrong guess would decode into nonsense.
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

    /// What is tracked at or below `directory`, which is empty for the whole.
    pub(crate) fn below(&self, directory: &[u8]) -> TrackedBelow<'_> {
        let prefix = if directory.is_empty() { Vec::new() } else { [directory, b"/"].concat() };
        let entries = self.state.prefixed_entries(prefix.as_slice().into()).unwrap_or_default();
        TrackedBelow { index: self, entries, prefix: prefix.len() }
    }

    /// The directories in which something is tracked.
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

    /// A fingerprint of the paths that are tracked, whatever their content.
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

/// A directory's part of the index. Looking a name up in it compares a few short names, where the
/// whole index would compare many long paths.
pub(crate) struct TrackedBelow<'a> {
    index: &'a IndexFile,
    entries: &'a [gix_index::Entry],
    /// Bytes that all paths begin with.
    prefix: usize,
}

impl<'a> TrackedBelow<'a> {
    fn name(&self, entry: &'a gix_index::Entry) -> &'a [u8] {
        &entry.path(&self.index.state)[self.prefix..]
    }

    /// The first entry at or after `name`.
    fn at_or_after(&self, name: &[u8]) -> &'a [gix_index::Entry] {
        &self.entries[self.entries.partition_point(|entry| self.name(entry) < name)..]
    }

    /// Whether the user's git tracks a file of exactly this name here, in whatever stage.
    pub(crate) fn tracks(&self, name: &[u8]) -> bool {
        self.at_or_after(name).first().is_some_and(|entry| self.name(entry) == name)
    }

    /// Whether the user's git tracks anything inside the directory of this name.
    pub(crate) fn tracks_below(&self, name: &[u8]) -> bool {
        let inside = [name, b"/"].concat();
        self.at_or_after(&inside).first().is_some_and(|entry| self.name(entry).starts_with(&inside))
    }

    /// The blob id of the file `name`, if the entry's stat data proves that the file still has it.
    ///
    /// Declined: anything but a plain stage-zero entry, flags that tell git not to look
    /// (assume-unchanged, skip-worktree, intent-to-add), and entries as young as the index.
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
            // Git's own rule: an entry as young as the index may have changed after it was read.
            && file.mtime < self.index.written
            && file.ctime < self.index.written;
        agrees.then(|| ObjectId::from_slice(entry.id.as_slice())).flatten()
    }
}

/// The directories in which the user's git tracks something, small enough to keep: one that is
/// none of them may be taken for one by a rare chance, never the reverse.
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

/// The index keeps 32 bits of the seconds.
fn same_time(index: (u32, u32), file: (i64, u32)) -> bool {
    index.0 == file.0 as u32 && index.1 == file.1
}
