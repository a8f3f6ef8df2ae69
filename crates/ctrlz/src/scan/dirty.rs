//! The part of a work tree that has to be rescanned.

use std::collections::{BTreeMap, BTreeSet};

use crate::path::split;

/// Paths that may have changed, and their ancestor directories.
///
/// A limited walk enters the ancestors but examines no other name there. It examines everything at
/// and below the dirty paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    paths: BTreeSet<Vec<u8>>,
    ways: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

impl Dirty {
    pub(crate) fn new(paths: impl IntoIterator<Item = Vec<u8>>) -> Dirty {
        let mut dirty = Dirty::default();
        // In sorted order a directory precedes its contents, which are then covered.
        for path in paths.into_iter().map(with_its_repository).collect::<BTreeSet<_>>() {
            if !dirty.covers(&path) {
                dirty.add_way_to(&path);
                dirty.paths.insert(path);
            }
        }
        dirty
    }

    fn add_way_to(&mut self, path: &[u8]) {
        let mut path = path;
        while !path.is_empty() {
            let (parent, name) = split(path);
            let known = self.ways.entry(parent.to_vec()).or_default();
            if !known.insert(name.to_vec()) {
                break;
            }
            path = parent;
        }
    }

    /// Returns the dirty paths. None of them is inside another.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.paths.iter().map(Vec::as_slice)
    }

    /// Returns the ancestor directories of the dirty paths, including the work tree itself.
    pub(crate) fn ways(&self) -> impl Iterator<Item = &[u8]> {
        self.ways.keys().map(Vec::as_slice)
    }

    /// Returns the names to examine in an ancestor directory, or `None` for all names.
    pub(crate) fn names_in(&self, dir: &[u8]) -> Option<Vec<Vec<u8>>> {
        self.ways.get(dir).map(|names| names.iter().cloned().collect())
    }

    /// Returns whether `path` or one of its ancestors is dirty.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        let mut path = path;
        loop {
            if self.paths.contains(path) {
                return true;
            }
            if path.is_empty() {
                return false;
            }
            path = split(path).0;
        }
    }
}

/// Maps the `.git` of a nested repository to its directory: creating or removing a repository
/// affects everything in that directory.
fn with_its_repository(path: Vec<u8>) -> Vec<u8> {
    match split(&path) {
        (parent, b".git") if !parent.is_empty() => parent.to_vec(),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirty(paths: &[&str]) -> Dirty {
        Dirty::new(paths.iter().map(|path| path.as_bytes().to_vec()))
    }

    #[test]
    fn paths_below_a_dirty_directory_are_not_listed_again() {
        let dirty = dirty(&["a/b/c", "a/b", "a.x", "a/bc"]);
        let paths: Vec<&[u8]> = dirty.paths().collect();
        assert_eq!(paths, [&b"a.x"[..], b"a/b", b"a/bc"]);
        assert!(dirty.covers(b"a/b/c/d") && !dirty.covers(b"a"));
        assert_eq!(dirty.names_in(b"a").unwrap(), [b"b".to_vec(), b"bc".to_vec()]);
        assert_eq!(dirty.names_in(b"a/b"), None);
        assert_eq!(dirty.ways().collect::<Vec<_>>(), [&b""[..], b"a"]);
    }

    #[test]
    fn a_dirty_dot_git_marks_its_parent_directory() {
        let dirty = dirty(&["a/b/.git", ".git"]);
        assert_eq!(dirty.paths().collect::<Vec<_>>(), [&b".git"[..], b"a/b"]);
    }

    #[test]
    fn a_dirty_root_covers_everything() {
        let dirty = dirty(&["", "x"]);
        assert!(dirty.covers(b"y/z"));
        assert_eq!(dirty.paths().count(), 1);
    }
}
