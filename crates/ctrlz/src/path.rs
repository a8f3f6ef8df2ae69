//! Paths inside a work tree: bytes, checked once.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::git::is_protected_name;

/// A path relative to the work tree, with `/` between its parts.
///
/// Never absolute, never empty, and no part is `.`, `..`, `.git` or anything a file system could
/// take for `.git`: the name alone cannot climb out of a root or into a repository. (A symlink on
/// the way still could; every file system call in this crate refuses to follow one.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why a path cannot be inside a work tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {why}", escape(path))]
pub struct NotATreePath {
    /// The path as given.
    pub path: Vec<u8>,
    /// What is wrong, as the rest of a sentence that starts with the path.
    pub why: &'static str,
}

/// The most bytes of a path that callers name: PATH_MAX on Linux.
const MAX_PATH_BYTES: usize = 4096;
/// The most parts of a path that callers name. Trees are edited recursively, one call per part.
const MAX_PATH_PARTS: usize = 400;

impl TreePath {
    /// Checks `bytes` and keeps them: names on Linux need not be UTF-8.
    pub fn parse(bytes: &[u8]) -> Result<TreePath, NotATreePath> {
        let refuse = |why| Err(NotATreePath { path: bytes.to_vec(), why });
        if bytes.is_empty() {
            return refuse("is empty");
        }
        if bytes[0] == b'/' {
            return refuse("is absolute");
        }
        if bytes.contains(&0) {
            return refuse("contains a NUL byte");
        }
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" => return refuse("has an empty part"),
                b"." | b".." => return refuse("has a part that leads elsewhere"),
                name if is_protected_name(name) => return refuse("lies inside a repository"),
                _ => (),
            }
        }
        Ok(TreePath(bytes.to_vec()))
    }

    /// Takes `path` as given on a command line: absolute inside `root`, or relative to `base`,
    /// itself a directory inside `root`. `None` stands for the root itself.
    ///
    /// Only the text is looked at; no symlink is resolved.
    pub fn locate(root: &Path, base: &Path, path: &Path) -> Result<Option<TreePath>, NotATreePath> {
        let refuse = |why| NotATreePath { path: path.as_os_str().as_bytes().to_vec(), why };
        if path.as_os_str().len() > MAX_PATH_BYTES {
            let start = path.as_os_str().as_bytes()[..100].to_vec();
            return Err(NotATreePath { path: start, why: "is longer than 4,096 bytes" });
        }
        let mut parts: Vec<&OsStr> = Vec::new();
        let joined = base.join(path);
        for part in joined.components() {
            match part {
                std::path::Component::Normal(name) => parts.push(name),
                std::path::Component::ParentDir => drop(parts.pop()),
                std::path::Component::RootDir
                | std::path::Component::CurDir
                | std::path::Component::Prefix(_) => (),
            }
        }
        let absolute = Path::new("/").join(parts.iter().collect::<PathBuf>());
        let relative =
            absolute.strip_prefix(root).map_err(|_| refuse("is outside the work tree"))?;
        match relative.as_os_str().as_bytes() {
            b"" => Ok(None),
            bytes if bytes.split(|byte| *byte == b'/').count() > MAX_PATH_PARTS => {
                Err(refuse("has more than 400 parts"))
            }
            bytes => TreePath::parse(bytes).map(Some),
        }
    }

    pub(crate) fn from_scan(bytes: Vec<u8>) -> TreePath {
        debug_assert!(TreePath::parse(&bytes).is_ok(), "{}", escape(&bytes));
        TreePath(bytes)
    }

    /// The bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as the operating system spells it, relative to the work tree.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The last part.
    pub fn name(&self) -> &[u8] {
        split(&self.0).1
    }

    /// Everything before the last part; `None` directly below the root.
    pub fn parent(&self) -> Option<TreePath> {
        match split(&self.0).0 {
            b"" => None,
            parent => Some(TreePath(parent.to_vec())),
        }
    }

    pub(crate) fn parent_bytes(&self) -> &[u8] {
        split(&self.0).0
    }

    /// Whether this path is `other` or lies inside it.
    pub fn is_within(&self, other: &TreePath) -> bool {
        is_within(&self.0, &other.0)
    }
}

pub(crate) fn is_within(path: &[u8], directory: &[u8]) -> bool {
    // Everything lies within the work tree itself.
    directory.is_empty()
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Splits a path into its directory (empty at the top) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// `directory/name`, or `name` at the top.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// A path as text that is safe to print: control characters and bytes that are not UTF-8 become
/// escapes, so that a name can neither forge a line nor steer a terminal.
pub fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                c if c.is_control() || is_invisible(c) => {
                    text.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Characters that reorder or hide the text around them: bidirectional controls, characters without a
/// width, fillers that look like nothing, annotations and tags.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl serde::Serialize for TreePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from_bytes(&self.0).serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for TreePath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<TreePath, D::Error> {
        let bytes = PathText::deserialize(deserializer)?.into_bytes();
        TreePath::parse(&bytes).map_err(serde::de::Error::custom)
    }
}

/// A path in JSON: a string where it is UTF-8, else `{"bytes": [...]}`, so that nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// The path is UTF-8.
    Text(String),
    /// The path is not UTF-8.
    Bytes {
        /// Every byte of the path.
        bytes: Vec<u8>,
    },
}

impl PathText {
    /// The JSON form of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> PathText {
        match std::str::from_utf8(bytes) {
            Ok(text) => PathText::Text(text.to_owned()),
            Err(_) => PathText::Bytes { bytes: bytes.to_vec() },
        }
    }

    /// The bytes again.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            PathText::Text(text) => text.into_bytes(),
            PathText::Bytes { bytes } => bytes,
        }
    }
}

/// Paths as bytes in memory and as [`PathText`] in files.
pub(crate) mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::PathText;

    pub(crate) fn serialize<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        PathText::from_bytes(path).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(PathText::deserialize(from)?.into_bytes())
    }
}

/// Returns the directories above `path`, deepest first, without the root.
pub(crate) fn dirs_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut dir = split(path).0;
    std::iter::from_fn(move || {
        let here = dir;
        dir = split(dir).0;
        (!here.is_empty()).then_some(here)
    })
}

/// Whether `path` is asked for: `paths` is empty, or one of them is it or above it.
pub(crate) fn is_asked_for(path: &TreePath, paths: &[TreePath]) -> bool {
    paths.is_empty() || paths.iter().any(|asked| path.is_within(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let cases = [
            "",
            "/abs",
            "..",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            ".git",
            "a/.git/config",
            "a/.GIT",
            "a\0b",
        ];
        for case in cases {
            assert!(TreePath::parse(case.as_bytes()).is_err(), "{case:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_survive_json() {
        let path = TreePath::parse(b"b\xff\n\"q").unwrap();
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<TreePath>(&json).unwrap(), path);
    }

    #[test]
    fn a_located_path_stays_inside_the_root() {
        let root = Path::new("/w");
        let locate = |base: &str, path: &str| {
            TreePath::locate(root, Path::new(base), Path::new(path))
                .map(|p| p.map(|p| p.to_string()))
        };
        assert_eq!(locate("/w/sub", "a").unwrap().unwrap(), "sub/a");
        assert_eq!(locate("/w/sub", "../b").unwrap().unwrap(), "b");
        assert_eq!(locate("/w/sub", "/w").unwrap(), None);
        assert!(locate("/w/sub", "../../etc").is_err());
        assert!(locate("/w", "/wx/a").is_err());
    }

    #[test]
    fn escapes_leave_nothing_to_steer_a_terminal() {
        assert_eq!(escape(b"a\x1b[31m\n\xff\xe2\x80\xae"), "a\\u{1b}[31m\\n\\xff\\u{202e}");
    }
}
