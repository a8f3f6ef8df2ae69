//! A line-based three-way merge that shares no code with the engine.

use std::ops::Range;

use crate::manifest::Entry;

/// The content of a path as an undo merges it. Directories count as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    File { is_executable: bool, bytes: Vec<u8> },
    Link(Vec<u8>),
}

impl Content {
    pub(crate) fn of(entry: Option<&Entry>) -> Option<Content> {
        match entry? {
            Entry::File { mode, bytes } => {
                Some(Content::File { is_executable: mode & 0o100 != 0, bytes: bytes.clone() })
            }
            Entry::Link { target } => Some(Content::Link(target.clone())),
            Entry::Dir { .. } | Entry::Special => None,
        }
    }
}

/// One recorded change of a path.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) before: Option<Content>,
    pub(crate) after: Option<Content>,
}

/// Reverses the pieces, newest first, in `ours`. Returns `None` if one of them does not merge.
pub(crate) fn take_out(ours: Option<Content>, pieces: &[Piece]) -> Option<Option<Content>> {
    let mut wanted = ours;
    for piece in pieces {
        wanted = merge(wanted, piece.after.as_ref(), piece.before.as_ref())?;
    }
    Some(wanted)
}

fn merge(
    ours: Option<Content>,
    base: Option<&Content>,
    theirs: Option<&Content>,
) -> Option<Option<Content>> {
    if ours.as_ref() == base {
        return Some(theirs.cloned());
    }
    if ours.as_ref() == theirs || base == theirs {
        return Some(ours);
    }
    let (
        Content::File { is_executable: our_bit, bytes: ours },
        Content::File { is_executable: base_bit, bytes: base },
        Content::File { is_executable: their_bit, bytes: theirs },
    ) = (ours?, base?, theirs?)
    else {
        return None;
    };
    let is_executable = if our_bit == *base_bit { *their_bit } else { our_bit };
    let bytes = if ours == *base {
        theirs.clone()
    } else if theirs == base || *theirs == ours {
        ours
    } else {
        merge_lines(base, &ours, theirs)?
    };
    Some(Some(Content::File { is_executable, bytes }))
}

/// Merges two texts. Returns `None` for binary files and if changes overlap or are adjacent.
fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    if [base, ours, theirs].iter().any(|bytes| bytes.contains(&0)) {
        return None;
    }
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let mut both: Vec<(Hunk, &[&[u8]])> = Vec::new();
    for (hunk, side) in hunks(&base, &ours)
        .into_iter()
        .map(|hunk| (hunk, &ours))
        .chain(hunks(&base, &theirs).into_iter().map(|hunk| (hunk, &theirs)))
    {
        let new = &side[hunk.after.clone()];
        let touches = |other: &Hunk| {
            hunk.before.start <= other.before.end && other.before.start <= hunk.before.end
        };
        match both.iter().find(|(other, _)| touches(other)) {
            None => both.push((hunk, new)),
            Some((other, same)) if other.before == hunk.before && *same == new => (),
            Some(_) => return None,
        }
    }
    both.sort_by_key(|(hunk, _)| hunk.before.start);
    let mut merged: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    for (hunk, new) in &both {
        merged.extend(&base[at..hunk.before.start]);
        merged.extend(*new);
        at = hunk.before.end;
    }
    merged.extend(&base[at..]);
    let is_open = |line: &&&[u8]| !line.ends_with(b"\n");
    // Only the last line may lack a line terminator.
    let has_open_line = merged.iter().rev().skip(1).any(|line| is_open(&line));
    (!has_open_line).then(|| merged.concat())
}

struct Hunk {
    before: Range<usize>,
    after: Range<usize>,
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Returns the ranges of differing lines, computed by the longest common subsequence.
fn hunks(before: &[&[u8]], after: &[&[u8]]) -> Vec<Hunk> {
    let (rows, columns) = (before.len(), after.len());
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if before[row] == after[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut found: Vec<Hunk> = Vec::new();
    while row < rows || column < columns {
        if row < rows && column < columns && before[row] == after[column] {
            (row, column) = (row + 1, column + 1);
            continue;
        }
        let removes =
            row < rows && (column == columns || common[row + 1][column] >= common[row][column + 1]);
        let (next_row, next_column) = if removes { (row + 1, column) } else { (row, column + 1) };
        match found.last_mut() {
            Some(last) if last.before.end == row && last.after.end == column => {
                (last.before.end, last.after.end) = (next_row, next_column);
            }
            _ => found.push(Hunk { before: row..next_row, after: column..next_column }),
        }
        (row, column) = (next_row, next_column);
    }
    found
}
