//! Decoding and encoding of trees and commits.

use super::id::{NotAHash, ObjectId};
use super::name::is_protected_name;

/// The kinds of git objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Commit,
    Tree,
    Blob,
    Tag,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Tree => "tree",
            Kind::Blob => "blob",
            Kind::Tag => "tag",
        }
    }

    pub(crate) fn from_name(name: &[u8]) -> Option<Kind> {
        match name {
            b"commit" => Some(Kind::Commit),
            b"tree" => Some(Kind::Tree),
            b"blob" => Some(Kind::Blob),
            b"tag" => Some(Kind::Tag),
            _ => None,
        }
    }

    /// Returns the type number in a pack entry's header.
    pub(crate) fn pack_number(self) -> u8 {
        match self {
            Kind::Commit => 1,
            Kind::Tree => 2,
            Kind::Blob => 3,
            Kind::Tag => 4,
        }
    }
}

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
        [EntryKind::File, EntryKind::Tree].into_iter().find_map(|kind| {
            let found = self.spans.binary_search_by(|span| {
                let entry = self.entry(span);
                tree_order(entry.name, entry.kind.is_tree(), name, kind.is_tree())
            });
            found.ok().map(|at| self.entry(&self.spans[at]))
        })
    }
}

/// Compares two tree entries in git's order: by name, with a slash appended to a directory's name.
pub(crate) fn tree_order(
    left: &[u8],
    left_is_tree: bool,
    right: &[u8],
    right_is_tree: bool,
) -> std::cmp::Ordering {
    let end = |name: &[u8], is_tree: bool, at: usize| match name.get(at) {
        Some(byte) => u16::from(*byte) + 1,
        None if is_tree && at == name.len() => u16::from(b'/') + 1,
        None => 0,
    };
    let common = left.len().min(right.len());
    left[..common]
        .cmp(&right[..common])
        .then_with(|| end(left, left_is_tree, common).cmp(&end(right, right_is_tree, common)))
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
    let mut previous: Option<TreeEntry<'_>> = None;
    for entry in tree.iter() {
        if let Some(before) = previous {
            if before.name == entry.name {
                return Err(TreeProblem::Duplicate { name: lossy(entry.name) });
            }
            let is_tree = |entry: &TreeEntry<'_>| entry.kind.is_tree();
            if tree_order(before.name, is_tree(&before), entry.name, is_tree(&entry)).is_ge() {
                return Err(TreeProblem::Unsorted { name: lossy(entry.name) });
            }
        }
        previous = Some(entry);
    }
    // A file and a directory of the same name need not be adjacent.
    let is_file = |name: &[u8]| {
        let order = |span: &(u32, u32, EntryKind)| {
            let entry = tree.entry(span);
            tree_order(entry.name, entry.kind.is_tree(), name, false)
        };
        tree.spans.binary_search_by(order).is_ok()
    };
    match tree.iter().find(|entry| entry.kind.is_tree() && is_file(entry.name)) {
        Some(entry) => Err(TreeProblem::Duplicate { name: lossy(entry.name) }),
        None => Ok(()),
    }
}

/// Encodes entries that are already in [`tree_order`].
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

/// A commit of the log: the snapshot's tree, the parents, and structured data of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) tree: ObjectId,
    pub(crate) parents: Vec<ObjectId>,
    /// Name shown by `git log`, for example the agent's.
    pub(crate) author: String,
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    /// Value of the `ctrlz` header, one line of JSON. Empty if there is no such header.
    pub(crate) data: String,
    pub(crate) message: String,
}

const HEADER: &str = "ctrlz";
const MAIL: &str = "ctrlz@localhost";

/// Encodes a commit in git's format, with the `ctrlz` header after the committer.
pub(crate) fn encode_commit(commit: &Commit) -> Vec<u8> {
    let mut text = format!("tree {}\n", commit.tree);
    for parent in &commit.parents {
        text.push_str(&format!("parent {parent}\n"));
    }
    let author = plain_name(&commit.author);
    let seconds = commit.seconds.max(0);
    text.push_str(&format!("author {author} <{MAIL}> {seconds} +0000\n"));
    text.push_str(&format!("committer ctrlz <{MAIL}> {seconds} +0000\n"));
    if !commit.data.is_empty() {
        debug_assert!(!commit.data.contains('\n'), "the data is one line");
        text.push_str(&format!("{HEADER} {}\n", commit.data));
    }
    text.push('\n');
    text.push_str(&commit.message.replace('\0', "\u{fffd}"));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.into_bytes()
}

/// Returns an author name without characters that could end its header line.
fn plain_name(name: &str) -> String {
    let kept: String = name.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
    let trimmed = kept.trim();
    if trimmed.is_empty() { "ctrlz".into() } else { trimmed.into() }
}

/// Decodes a commit. Returns `None` if the bytes are not a commit.
pub(crate) fn parse_commit(bytes: &[u8]) -> Option<Commit> {
    let text = String::from_utf8_lossy(bytes);
    let (headers, message) = text.split_once("\n\n")?;
    let id = |value: &str| -> Option<ObjectId> {
        let parsed: Result<ObjectId, NotAHash> = value.parse();
        parsed.ok()
    };
    let mut commit = Commit {
        tree: ObjectId::NULL,
        parents: Vec::new(),
        author: String::new(),
        seconds: 0,
        data: String::new(),
        message: message.trim_end_matches('\n').to_owned(),
    };
    let mut has_tree = false;
    for line in headers.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        match key {
            "tree" => {
                commit.tree = id(value)?;
                has_tree = true;
            }
            "parent" => commit.parents.push(id(value)?),
            "author" => commit.author = value.split(" <").next().unwrap_or("").to_owned(),
            "committer" => {
                commit.seconds = value.split_whitespace().rev().nth(1)?.parse().unwrap_or(0);
            }
            HEADER => commit.data = value.to_owned(),
            _ => (),
        }
    }
    has_tree.then_some(commit)
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

    #[test]
    fn a_commit_survives_encoding() {
        let commit = Commit {
            tree: ObjectId::EMPTY_TREE,
            parents: vec![ObjectId([3; 20])],
            author: "an agent".into(),
            seconds: 1_700_000_000,
            data: r#"{"v":1}"#.into(),
            message: "label\n\nbody".into(),
        };
        assert_eq!(parse_commit(&encode_commit(&commit)), Some(commit));
    }

    #[test]
    fn an_author_cannot_add_headers() {
        let commit = Commit {
            tree: ObjectId::EMPTY_TREE,
            parents: vec![],
            author: "x>\nparent 1 <".into(),
            seconds: 0,
            data: String::new(),
            message: String::new(),
        };
        assert_eq!(parse_commit(&encode_commit(&commit)).unwrap().parents, []);
    }
}
