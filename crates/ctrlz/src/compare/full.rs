//! Complete before and after texts of changed files, as in OpenCode's `diffFull`.

use crate::error::Error;
use crate::git::diff_lines;
use crate::pack::Objects;
use crate::path::TreePath;

use super::{Change, Side, Status, side};

/// A changed file with both of its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// The path, relative to the work tree.
    pub file: TreePath,
    /// Kind of change.
    pub status: Status,
    /// Earlier text; empty if there was none or it is binary. Bytes that are not UTF-8 are
    /// replaced, and `before_base64` has the original ones.
    pub before: String,
    /// Later text, like `before`.
    pub after: String,
    /// Number of added lines; 0 for binary files.
    pub additions: usize,
    /// Number of deleted lines; 0 for binary files.
    pub deletions: usize,
    /// Whether either side is binary, or too large to be shown as text.
    pub binary: bool,
    /// Earlier bytes in base64, if they are not valid UTF-8.
    pub before_base64: Option<String>,
    /// Later bytes in base64, if they are not valid UTF-8.
    pub after_base64: Option<String>,
}

pub(crate) fn file_diff(objects: &Objects, change: &Change) -> Result<FileDiff, Error> {
    let before = side(objects, change.before.as_ref())?;
    let after = side(objects, change.after.as_ref())?;
    let binary = matches!(before, Side::Binary) || matches!(after, Side::Binary);
    let bytes = |side: Side| match side {
        Side::Text(bytes) if !binary => bytes,
        Side::Text(_) | Side::Absent | Side::Binary => Vec::new(),
    };
    let (before, after) = (bytes(before), bytes(after));
    let lines = diff_lines(&before, &after);
    let (before, before_base64) = texts(before);
    let (after, after_base64) = texts(after);
    Ok(FileDiff {
        file: change.path.clone(),
        status: change.status(),
        before,
        after,
        additions: lines.additions,
        deletions: lines.deletions,
        binary,
        before_base64,
        after_base64,
    })
}

fn texts(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(base64(bytes)))
        }
    }
}

/// Encodes bytes in base64, with the standard alphabet and padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(*chunk.get(index).unwrap_or(&0));
        let group = (at(0) << 16) | (at(1) << 8) | at(2);
        for digit in 0..4 {
            let shown = digit <= chunk.len();
            let value = (group >> (18 - 6 * digit)) & 63;
            text.push(if shown { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_agrees_with_the_standard() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
