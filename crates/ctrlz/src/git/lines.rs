//! Line diffs.

use gix_imara_diff::{Algorithm, Diff, InternedInput, sources::byte_lines};

/// One run of changed lines, as zero-based half-open ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    pub(crate) before: std::ops::Range<usize>,
    pub(crate) after: std::ops::Range<usize>,
}

/// The difference between two texts.
#[derive(Debug)]
pub(crate) struct LineDiff {
    pub(crate) hunks: Vec<Hunk>,
    pub(crate) additions: usize,
    pub(crate) deletions: usize,
}

/// Returns the lines of `text`, each with its line ending.
pub(crate) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns whether the content is binary: like git, if there is a NUL in the first 8000 bytes.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(8000)].contains(&0)
}

/// Compares two texts line by line.
pub(crate) fn diff_lines(before: &[u8], after: &[u8]) -> LineDiff {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let hunks = diff
        .hunks()
        .map(|hunk| Hunk {
            before: hunk.before.start as usize..hunk.before.end as usize,
            after: hunk.after.start as usize..hunk.after.end as usize,
        })
        .collect();
    LineDiff {
        hunks,
        additions: diff.count_additions() as usize,
        deletions: diff.count_removals() as usize,
    }
}
