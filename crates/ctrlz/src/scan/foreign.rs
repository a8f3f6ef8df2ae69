//! Stores of ctrlz inside the work tree. No scan enters one, and no plan touches one, whether it
//! is the store in use or another one.

use crate::fs::{Dir, FileKind};

/// Returns whether an open directory is a store: it contains `HEAD` and `ctrlz/format`.
pub(crate) fn is_store(dir: &Dir) -> bool {
    let is_file = |dir: &Dir, name: &[u8]| {
        dir.stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
    };
    is_file(dir, b"HEAD") && dir.open_below(b"ctrlz").is_ok_and(|ours| is_file(&ours, b"format"))
}

/// Returns whether the directory `path` is a store. Returns `false` for the work tree itself.
pub(crate) fn is_store_at(root: &Dir, path: &[u8]) -> bool {
    !path.is_empty() && root.open_below(path).is_ok_and(|dir| is_store(&dir))
}

/// Returns the outermost store that `path` is or lies in.
pub(crate) fn store_around<'a>(root: &Dir, path: &'a [u8]) -> Option<&'a [u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let mut parts = ends.chain([path.len()]).map(|end| &path[..end]);
    parts.find(|part| is_store_at(root, part))
}
