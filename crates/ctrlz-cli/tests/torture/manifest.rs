//! Manifests: the content of a directory as a value that can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The kind, permissions and content of one path.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File { mode: u32, bytes: Vec<u8> },
    Dir { mode: u32 },
    Link { target: Vec<u8> },
    Special,
}

impl fmt::Debug for Entry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::File { mode, bytes } => {
                let start = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
                write!(out, "file {mode:o} of {} bytes {start:?}", bytes.len())
            }
            Entry::Dir { mode } => write!(out, "dir {mode:o}"),
            Entry::Link { target } => write!(out, "link to {}", String::from_utf8_lossy(target)),
            Entry::Special => write!(out, "special"),
        }
    }
}

/// Everything below a directory, by relative path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest(pub(crate) BTreeMap<String, Entry>);

impl Manifest {
    pub(crate) fn of(dir: &Path) -> Manifest {
        let mut manifest = Manifest::default();
        add(dir, dir, &mut manifest);
        manifest
    }

    /// Returns the manifest of a directory without the temporary files of a restore in progress.
    pub(crate) fn of_user_files(dir: &Path) -> Manifest {
        let mut manifest = Manifest::of(dir);
        manifest.0.retain(|path, _| !is_temporary(path));
        manifest
    }

    /// Returns the bytes of the regular file at `path`.
    pub(crate) fn bytes(&self, path: &str) -> Option<&[u8]> {
        match self.0.get(path)? {
            Entry::File { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns the differences from `other`, for messages.
    pub(crate) fn difference(&self, other: &Manifest) -> String {
        let paths: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let differing = paths.into_iter().filter(|path| self.0.get(*path) != other.0.get(*path));
        let lines = differing
            .map(|path| format!("{path}: {:?} / {:?}", self.0.get(path), other.0.get(path)));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Asserts that this manifest equals `expected`.
    #[track_caller]
    pub(crate) fn assert_is(&self, expected: &Manifest, when: &str) {
        assert!(self == expected, "{when}: found / expected\n{}", self.difference(expected));
    }

    /// Asserts that every path has exactly its version in `old` or in `new`.
    #[track_caller]
    pub(crate) fn assert_between(&self, old: &Manifest, new: &Manifest, when: &str) {
        let torn = self.neither(old, new);
        assert!(torn.is_empty(), "{when}: {}", torn.join("\n"));
    }

    /// Returns descriptions of the paths that have neither their version in `old` nor the one in
    /// `new`.
    pub(crate) fn neither(&self, old: &Manifest, new: &Manifest) -> Vec<String> {
        let paths: BTreeSet<&String> =
            self.0.keys().chain(old.0.keys()).chain(new.0.keys()).collect();
        let versions = |path| (self.0.get(path), old.0.get(path), new.0.get(path));
        let torn = paths.into_iter().filter_map(|path| match versions(path) {
            (now, old, new) if now == old || now == new => None,
            (now, old, new) => Some(format!("{path} is {now:?}, neither {old:?} nor {new:?}")),
        });
        torn.collect()
    }
}

/// Returns whether a component of `path` is a temporary name of a restore.
pub(crate) fn is_temporary(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with(".ctrlz-"))
}

fn add(top: &Path, dir: &Path, manifest: &mut Manifest) {
    // A directory that disappears while it is listed counts as empty.
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(meta) = path.symlink_metadata() else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        let found = if meta.is_dir() {
            add(top, &path, manifest);
            Entry::Dir { mode }
        } else if meta.is_symlink() {
            let target = std::fs::read_link(&path).unwrap_or_default();
            Entry::Link { target: target.as_os_str().as_bytes().to_vec() }
        } else if meta.is_file() {
            Entry::File { mode, bytes: std::fs::read(&path).unwrap_or_default() }
        } else {
            Entry::Special
        };
        let relative = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
        manifest.0.insert(relative, found);
    }
}
