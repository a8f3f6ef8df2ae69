//! Decoding, validation and encoding of trees.

use std::cmp::Ordering;

use super::id::ObjectId;
use super::name::is_protected_name;

/// Kind of a tree entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    File,
    Executable,
    Symlink,
    Tree,
}

impl EntryKind {
    /// Returns the octal mode that git writes for this kind.
    pub(crate) fn mode(self) -> &'static str {
        match self {
            EntryKind::File => "100644",
            EntryKind::Executable => "100755",
            EntryKind::Symlink => "120000",
            EntryKind::Tree => "40000",
        }
    }

    pub(crate) fn is_tree(self) -> bool {
        self == EntryKind::Tree
    }

    pub(crate) fn is_file(self) -> bool {
        matches!(self, EntryKind::File | EntryKind::Executable)
    }
}

/// One entry of a tree, borrowed from the tree's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: EntryKind,
    pub(crate) id: ObjectId,
}

impl TreeEntry<'_> {
    /// Compares two entries in git's order: by name, with a slash appended to a directory's name.
    pub(crate) fn order(&self, other: &TreeEntry<'_>) -> Ordering {
        let common = self.name.len().min(other.name.len());
        let end = |entry: &TreeEntry<'_>| match entry.name.get(common) {
            Some(byte) => u16::from(*byte) + 1,
            None if entry.kind.is_tree() => u16::from(b'/') + 1,
            None => 0,
        };
        self.name[..common].cmp(&other.name[..common]).then_with(|| end(self).cmp(&end(other)))
    }
}

/// A decoded and validated tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    bytes: Vec<u8>,
    /// For each entry: start of the name, start of the id, and kind.
    spans: Vec<(u32, u32, EntryKind)>,
}

/// Reason why a tree must not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeProblem {
    /// The bytes do not form a tree.
    #[error("it is malformed")]
    Malformed,
    /// An entry's name is empty, `.`, `..`, contains a slash, or stands for a repository's metadata
    /// directory.
    #[error("it has an entry named {name:?}")]
    UnsafeName {
        /// The name, lossily.
        name: String,
    },
    /// Two entries share a name.
    #[error("it names {name:?} twice")]
    Duplicate {
        /// The name, lossily.
        name: String,
    },
    /// The entries are not in git's order, so a lookup could miss one.
    #[error("its entries are out of order at {name:?}")]
    Unsorted {
        /// The name, lossily.
        name: String,
    },
    /// The entry is a submodule link or has a mode that git does not use for files.
    #[error("the entry {name:?} has the mode {mode}")]
    UnknownMode {
        /// The name, lossily.
        name: String,
        /// The mode as written.
        mode: String,
    },
}

impl Tree {
    pub(crate) fn empty() -> Tree {
        Tree { bytes: Vec::new(), spans: Vec::new() }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = TreeEntry<'_>> + '_ {
        self.spans.iter().map(|span| self.entry(span))
    }

    fn entry(&self, &(name, id, kind): &(u32, u32, EntryKind)) -> TreeEntry<'_> {
        let (name, id) = (name as usize, id as usize);
        TreeEntry {
            name: &self.bytes[name..id - 1],
            kind,
            id: ObjectId::from_slice(&self.bytes[id..id + 20]).expect("parsed with twenty bytes"),
        }
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<TreeEntry<'_>> {
        // Files and directories sort differently, so each needs a binary search of its own.
        let found = [EntryKind::File, EntryKind::Tree].into_iter();
        found
            .map(|kind| self.position(name, kind))
            .find_map(|at| Some(self.entry(&self.spans[at?])))
    }

    /// Returns the position of the entry that sorts like one of this name and kind.
    fn position(&self, name: &[u8], kind: EntryKind) -> Option<usize> {
        let wanted = TreeEntry { name, kind, id: ObjectId::NULL };
        self.spans.binary_search_by(|span| self.entry(span).order(&wanted)).ok()
    }
}

/// Decodes and validates a tree. An invalid one could make a restore write to the wrong place.
pub(crate) fn parse_tree(bytes: Vec<u8>) -> Result<Tree, TreeProblem> {
    let mut spans = Vec::with_capacity(bytes.len() / 40);
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let space = rest.iter().position(|byte| *byte == b' ').ok_or(TreeProblem::Malformed)?;
        let null = rest.iter().position(|byte| *byte == 0).ok_or(TreeProblem::Malformed)?;
        if null < space || rest.len() < null + 21 {
            return Err(TreeProblem::Malformed);
        }
        let name = &rest[space + 1..null];
        let kind = entry_kind(&rest[..space], name)?;
        check_entry_name(name)?;
        spans.push(((at + space + 1) as u32, (at + null + 1) as u32, kind));
        at += null + 21;
    }
    let tree = Tree { bytes, spans };
    check_order(&tree)?;
    Ok(tree)
}

fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn entry_kind(mode: &[u8], name: &[u8]) -> Result<EntryKind, TreeProblem> {
    match mode {
        // Very old versions of git wrote 100664 for group-writable files.
        b"100644" | b"100664" => Ok(EntryKind::File),
        b"100755" => Ok(EntryKind::Executable),
        b"120000" => Ok(EntryKind::Symlink),
        b"40000" => Ok(EntryKind::Tree),
        _ => Err(TreeProblem::UnknownMode { name: lossy(name), mode: lossy(mode) }),
    }
}

fn check_entry_name(name: &[u8]) -> Result<(), TreeProblem> {
    let unsafe_name = name.is_empty()
        || name == b"."
        || name == b".."
        || name.contains(&b'/')
        || is_protected_name(name);
    if unsafe_name {
        return Err(TreeProblem::UnsafeName { name: lossy(name) });
    }
    Ok(())
}

fn check_order(tree: &Tree) -> Result<(), TreeProblem> {
    for pair in tree.spans.windows(2) {
        let (before, entry) = (tree.entry(&pair[0]), tree.entry(&pair[1]));
        if before.name == entry.name {
            return Err(TreeProblem::Duplicate { name: lossy(entry.name) });
        }
        if before.order(&entry).is_ge() {
            return Err(TreeProblem::Unsorted { name: lossy(entry.name) });
        }
    }
    // A file and a directory of the same name need not be adjacent.
    let is_file_too = |entry: &TreeEntry<'_>| {
        entry.kind.is_tree() && tree.position(entry.name, EntryKind::File).is_some()
    };
    match tree.iter().find(is_file_too) {
        Some(entry) => Err(TreeProblem::Duplicate { name: lossy(entry.name) }),
        None => Ok(()),
    }
}

/// Encodes entries that are already in the order of [`TreeEntry::order`].
pub(crate) fn encode_tree<'a>(entries: impl Iterator<Item = TreeEntry<'a>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend_from_slice(entry.kind.mode().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(entry.name);
        bytes.push(0);
        bytes.extend_from_slice(entry.id.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (mode, name) in entries {
            bytes.extend_from_slice(mode.as_bytes());
            bytes.push(b' ');
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.extend_from_slice(&[7; 20]);
        }
        bytes
    }

    #[test]
    fn directories_sort_as_if_they_ended_in_a_slash() {
        let good = raw(&[("100644", b"a.b"), ("40000", b"a"), ("100644", b"a0")]);
        let tree = parse_tree(good.clone()).unwrap();
        assert_eq!(tree.find(b"a").unwrap().kind, EntryKind::Tree);
        assert_eq!(tree.find(b"a0").unwrap().kind, EntryKind::File);
        assert!(tree.find(b"b").is_none());
        assert_eq!(encode_tree(tree.iter()), good);
    }

    #[test]
    fn hostile_trees_are_refused() {
        let cases: Vec<Vec<u8>> = vec![
            raw(&[("100644", b"..")]),
            raw(&[("100644", b".")]),
            raw(&[("100644", b"")]),
            raw(&[("100644", b"a/b")]),
            raw(&[("40000", b".git")]),
            raw(&[("120000", b".GIT")]),
            raw(&[("100644", b"git~1")]),
            raw(&[("160000", b"sub")]),
            raw(&[("100644", b"a"), ("100644", b"a")]),
            raw(&[("120000", b"a"), ("40000", b"a")]),
            raw(&[("100644", b"b"), ("100644", b"a")]),
            b"100644 a\0short".to_vec(),
            b"no null".to_vec(),
        ];
        for case in cases {
            assert!(parse_tree(case.clone()).is_err(), "{:?}", String::from_utf8_lossy(&case));
        }
    }
}
