//! Paths inside a work tree, as validated bytes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::git::is_protected_name;

/// Returns whether a path is in, or is itself, the directory of a version control system.
pub(crate) fn is_in_repository(path: &Path) -> bool {
    path.components().any(|part| is_protected_name(part.as_os_str().as_bytes()))
}

/// A path relative to the work tree, with `/` between its components.
///
/// It is not absolute or empty, and no component is `.`, `..`, `.git` or a name that some file
/// system takes for `.git`. The name alone therefore cannot escape a root or enter a repository. A
/// symlink in the path still could; every file system call in this crate refuses to follow one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Error for a path that cannot be inside a work tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {why}", escape(path))]
pub struct NotATreePath {
    /// The path as given.
    pub path: Vec<u8>,
    /// Reason, as the rest of a sentence that starts with the path.
    pub why: &'static str,
}

/// Maximum length in bytes of a path passed by a caller: `PATH_MAX` on Linux.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of components of a path passed by a caller. Trees are edited recursively, with
/// one call per component.
const MAX_PATH_PARTS: usize = 400;

impl TreePath {
    /// Validates `bytes`, which need not be UTF-8.
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

    /// Resolves a path given on a command line, either absolute or relative to `base`. Both `base`
    /// and the path must be inside `root`. Returns `None` for the root itself.
    ///
    /// The resolution is lexical: no symlink is followed.
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

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path relative to the work tree.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Returns the last component.
    pub fn name(&self) -> &[u8] {
        split(&self.0).1
    }

    /// Returns the path without its last component, or `None` directly below the root.
    pub fn parent(&self) -> Option<TreePath> {
        match split(&self.0).0 {
            b"" => None,
            parent => Some(TreePath(parent.to_vec())),
        }
    }

    pub(crate) fn parent_bytes(&self) -> &[u8] {
        split(&self.0).0
    }

    /// Returns whether this path is `other` or lies inside it.
    pub fn is_within(&self, other: &TreePath) -> bool {
        is_within(&self.0, &other.0)
    }
}

pub(crate) fn is_within(path: &[u8], directory: &[u8]) -> bool {
    // The empty path is the work tree, which contains every path.
    directory.is_empty()
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Splits a path into its directory (empty at the top level) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Returns `directory/name`, or `name` at the top level.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns a path as printable text. Control characters and invalid UTF-8 are escaped, so that a
/// name can neither forge a line nor control a terminal.
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

/// Returns a path of the file system as printable text, like [`escape`].
pub(crate) fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// Returns whether a character reorders or hides the text around it: every format character
/// (category Cf), blank fillers, variation selectors and tags.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
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

/// Lossless JSON form of a path: a string if it is UTF-8, else `{"bytes": [...]}`.
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
    /// Returns the JSON form of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> PathText {
        match std::str::from_utf8(bytes) {
            Ok(text) => PathText::Text(text.to_owned()),
            Err(_) => PathText::Bytes { bytes: bytes.to_vec() },
        }
    }

    /// Returns the bytes of the path.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            PathText::Text(text) => text.as_bytes(),
            PathText::Bytes { bytes } => bytes,
        }
    }

    /// Returns the bytes of the path.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            PathText::Text(text) => text.into_bytes(),
            PathText::Bytes { bytes } => bytes,
        }
    }
}

/// Serde support for paths that are bytes in memory and [`PathText`] in files.
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

/// Returns whether `paths` selects `path`: it is empty, or contains `path` or a directory above it.
pub(crate) fn is_asked_for(path: &TreePath, paths: &[TreePath]) -> bool {
    paths.is_empty() || paths.iter().any(|asked| path.is_within(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_escaping_paths_are_refused() {
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
    fn non_utf8_paths_survive_json() {
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
    fn escaping_removes_terminal_control_characters() {
        assert_eq!(escape(b"a\x1b[31m\n\xff\xe2\x80\xae"), "a\\u{1b}[31m\\n\\xff\\u{202e}");
    }

    #[test]
    fn format_characters_and_blanks_are_escaped() {
        for c in
            "\u{600}\u{6dd}\u{70f}\u{891}\u{8e2}\u{2800}\u{fe00}\u{fe0f}\u{110cd}\u{13430}".chars()
        {
            let shown = format!("\\u{{{:x}}}", u32::from(c));
            assert_eq!(escape(c.to_string().as_bytes()), shown);
        }
        assert_eq!(escape("ä漢字👍".as_bytes()), "ä漢字👍");
    }
}
