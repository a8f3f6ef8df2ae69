//! Ignore files of a work tree.

use std::io::Read;
use std::sync::Arc;

use crate::fs::{Dir, FileKind, stat_file};
use crate::git::Rules;

/// Ignore files larger than this are reported and not applied.
pub(super) const MAX_RULES_BYTES: u64 = 1 << 20;

/// Returns the text of the ignore file in the directory `path`.
pub(crate) fn rule_text(root: &Dir, path: &[u8]) -> Option<Vec<u8>> {
    rule_text_in(&root.open_below(path).ok()?)
}

/// Returns the text of the ignore file in an open directory.
pub(crate) fn rule_text_in(dir: &Dir) -> Option<Vec<u8>> {
    match read_stable_small(dir, b".gitignore", MAX_RULES_BYTES) {
        SmallFile::Read(text) => Some(text),
        SmallFile::TooLarge(_) | SmallFile::NotAFile | SmallFile::Unreadable => None,
    }
}

/// Returns the rules that apply to the directory `path`, from the ignore files of its ancestors.
pub(crate) fn rules_above(root: &Dir, base: &Arc<Rules>, path: &[u8]) -> Arc<Rules> {
    let mut rules = Arc::clone(base);
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in std::iter::once(0).chain(ends) {
        let dir = &path[..end];
        if let Some(text) = rule_text(root, dir) {
            rules = rules.child(dir, &text);
        }
    }
    rules
}

/// Result of reading a rule file.
pub(super) enum SmallFile {
    Read(Vec<u8>),
    TooLarge(u64),
    NotAFile,
    Unreadable,
}

/// Reads a rule file of at most `limit` bytes.
pub(super) fn read_stable_small(dir: &Dir, name: &[u8], limit: u64) -> SmallFile {
    let Ok(file) = dir.open_file(name) else { return SmallFile::NotAFile };
    let Ok(stat) = stat_file(&file, &dir.path_of(name)) else { return SmallFile::Unreadable };
    if stat.kind != FileKind::File {
        return SmallFile::NotAFile;
    }
    if stat.bytes > limit {
        return SmallFile::TooLarge(stat.bytes);
    }
    let mut bytes = Vec::new();
    match (&file).take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) => SmallFile::Read(bytes),
        Err(_) => SmallFile::Unreadable,
    }
}
