//! Deltas in git's format: an object as copies of parts of another one.
//!
//! Texts are compared by line, trees by entry, and other objects by blocks of 16 bytes or, if they
//! are large, by their common prefix and suffix. Consecutive versions rarely need more.

use crate::git::{Kind, diff_lines, is_binary, split_lines};

/// Objects above this size are stored whole.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// Objects below this size are stored whole.
const MIN_BYTES: usize = 48;
/// Objects up to this size are compared by blocks.
const MAX_BLOCK_BYTES: usize = 4 << 20;
/// Size of a block in bytes.
const BLOCK: usize = 16;

/// Returns the delta from `base` to `target`, or `None` if it saves too little.
pub(crate) fn delta(kind: Kind, base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let sizes = MIN_BYTES..=MAX_BYTES;
    if !sizes.contains(&base.len()) || !sizes.contains(&target.len()) {
        return None;
    }
    let copies = match kind {
        Kind::Tree => tree_copies(base, target),
        Kind::Blob if !is_binary(base) && !is_binary(target) => line_copies(base, target),
        Kind::Blob if base.len().max(target.len()) > MAX_BLOCK_BYTES => end_copies(base, target),
        Kind::Blob | Kind::Commit | Kind::Tag => block_copies(base, target),
    };
    let mut out = Vec::new();
    put_size(&mut out, base.len());
    put_size(&mut out, target.len());
    let mut at = 0;
    for Copy { from, to, len } in copies {
        put_insert(&mut out, &target[at..to]);
        put_copy(&mut out, from, len);
        at = to + len;
    }
    put_insert(&mut out, &target[at..]);
    (out.len() < target.len() / 2).then_some(out)
}

/// A range of bytes in both objects.
#[derive(Clone, Copy)]
struct Copy {
    from: usize,
    to: usize,
    len: usize,
}

fn end_copies(base: &[u8], target: &[u8]) -> Vec<Copy> {
    let start = base.iter().zip(target).take_while(|(one, other)| one == other).count();
    let most = base.len().min(target.len()) - start;
    let end = base.iter().rev().zip(target.iter().rev()).take(most);
    let end = end.take_while(|(one, other)| one == other).count();
    let copies = [
        Copy { from: 0, to: 0, len: start },
        Copy { from: base.len() - end, to: target.len() - end, len: end },
    ];
    copies.into_iter().filter(|copy| copy.len > 0).collect()
}

/// Returns the common blocks, extended as far as both objects agree.
fn block_copies(base: &[u8], target: &[u8]) -> Vec<Copy> {
    let mut blocks: std::collections::HashMap<&[u8], usize> = std::collections::HashMap::new();
    for (at, block) in base.chunks_exact(BLOCK).enumerate() {
        blocks.entry(block).or_insert(at * BLOCK);
    }
    let mut copies = Vec::new();
    let (mut at, mut done) = (0, 0);
    while at + BLOCK <= target.len() {
        let Some(found) = blocks.get(&target[at..at + BLOCK]) else {
            at += 1;
            continue;
        };
        let ahead = base[*found..].iter().zip(&target[at..]);
        let ahead = ahead.take_while(|(one, other)| one == other).count();
        let behind = base[..*found].iter().rev().zip(target[done..at].iter().rev());
        let behind = behind.take_while(|(one, other)| one == other).count();
        copies.push(Copy { from: found - behind, to: at - behind, len: ahead + behind });
        at += ahead;
        done = at;
    }
    copies
}

fn line_copies(base: &[u8], target: &[u8]) -> Vec<Copy> {
    let starts = |text: &[u8]| {
        let mut at = 0;
        let mut starts = vec![0];
        for line in split_lines(text) {
            at += line.len();
            starts.push(at);
        }
        starts
    };
    let (base_starts, target_starts) = (starts(base), starts(target));
    let mut copies = Vec::new();
    let (mut base_line, mut target_line) = (0, 0);
    let mut copy_until = |base_line: usize, target_line: usize, end: usize| {
        let from = base_starts[base_line];
        let len = base_starts[end] - from;
        if len > 0 {
            copies.push(Copy { from, to: target_starts[target_line], len });
        }
    };
    for hunk in diff_lines(base, target).hunks {
        copy_until(base_line, target_line, hunk.before.start);
        (base_line, target_line) = (hunk.before.end, hunk.after.end);
    }
    copy_until(base_line, target_line, base_starts.len() - 1);
    copies
}

/// Returns the common entries of two trees, and the common part of changed ones.
fn tree_copies(base: &[u8], target: &[u8]) -> Vec<Copy> {
    const ID_BYTES: usize = 20;
    let known: std::collections::HashMap<&[u8], usize> =
        tree_entries(base).iter().map(|range| (&base[range.clone()], range.start)).collect();
    let named: std::collections::HashMap<&[u8], usize> =
        known.iter().map(|(entry, at)| (&entry[..entry.len() - ID_BYTES], *at)).collect();
    let mut copies: Vec<Copy> = Vec::new();
    for range in tree_entries(target) {
        let (to, entry) = (range.start, &target[range]);
        let name = &entry[..entry.len() - ID_BYTES];
        let (from, len) = match (known.get(entry), named.get(name)) {
            (Some(from), _) => (*from, entry.len()),
            (None, Some(from)) => (*from, name.len()),
            (None, None) => continue,
        };
        match copies.last_mut() {
            Some(last) if last.from + last.len == from && last.to + last.len == to => {
                last.len += len;
            }
            _ => copies.push(Copy { from, to, len }),
        }
    }
    copies
}

/// Returns the ranges of a tree's entries, up to the first malformed one.
fn tree_entries(tree: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut entries = Vec::new();
    let mut at = 0;
    while let Some(name) = tree[at..].iter().position(|byte| *byte == 0) {
        let end = at + name + 1 + 20;
        if end > tree.len() {
            break;
        }
        entries.push(at..end);
        at = end;
    }
    entries
}

fn put_size(out: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        out.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    out.push(size as u8);
}

fn put_insert(out: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.chunks(0x7f) {
        out.push(part.len() as u8);
        out.extend_from_slice(part);
    }
}

fn put_copy(out: &mut Vec<u8>, mut from: usize, mut len: usize) {
    const MAX_COPY: usize = 0xff_ff_ff;
    while len > 0 {
        let part = len.min(MAX_COPY);
        let at = out.len();
        out.push(0x80);
        for (bit, byte) in (from as u32).to_le_bytes().into_iter().enumerate() {
            if byte != 0 {
                out.push(byte);
                out[at] |= 1 << bit;
            }
        }
        for (bit, byte) in (part as u32).to_le_bytes().into_iter().take(3).enumerate() {
            if byte != 0 {
                out.push(byte);
                out[at] |= 0x10 << bit;
            }
        }
        from += part;
        len -= part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a delta as git does.
    fn apply(base: &[u8], delta: &[u8]) -> Vec<u8> {
        let mut at = 0;
        let mut size = || {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = delta[at];
                at += 1;
                value |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return value;
                }
            }
        };
        assert_eq!(size(), base.len());
        let target_len = size();
        let mut out = Vec::new();
        while at < delta.len() {
            let op = delta[at];
            at += 1;
            if op & 0x80 == 0 {
                out.extend_from_slice(&delta[at..at + usize::from(op)]);
                at += usize::from(op);
                continue;
            }
            let (mut from, mut len) = (0, 0);
            for bit in 0..4 {
                if op & (1 << bit) != 0 {
                    from |= usize::from(delta[at]) << (8 * bit);
                    at += 1;
                }
            }
            for bit in 0..3 {
                if op & (0x10 << bit) != 0 {
                    len |= usize::from(delta[at]) << (8 * bit);
                    at += 1;
                }
            }
            let len = if len == 0 { 0x10000 } else { len };
            out.extend_from_slice(&base[from..from + len]);
        }
        assert_eq!(out.len(), target_len);
        out
    }

    #[track_caller]
    fn check(kind: Kind, base: &[u8], target: &[u8]) {
        let delta = delta(kind, base, target).expect("worth a delta");
        assert_eq!(apply(base, &delta), target);
    }

    #[test]
    fn applying_a_delta_yields_the_target() {
        let text: Vec<u8> = (0..5000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let mut edited = text.clone();
        edited.splice(100..107, *b"something else\n");
        edited.truncate(edited.len() - 300);
        edited.extend_from_slice(b"no end of line");
        check(Kind::Blob, &text, &edited);
        check(Kind::Blob, &edited, &text);
        let binary: Vec<u8> =
            (0..200_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut other = binary.clone();
        other[300_000] ^= 1;
        check(Kind::Blob, &binary, &other);
        check(Kind::Commit, &text, &edited[..]);
    }

    #[test]
    fn trees_are_compared_entry_by_entry() {
        let tree = |skip: usize, changed: &[usize]| -> Vec<u8> {
            (0..300)
                .filter(|n| *n != skip)
                .flat_map(|n| {
                    let id = if changed.contains(&n) { [1; 20] } else { [n as u8; 20] };
                    [format!("100644 file{n:04}\0").into_bytes(), id.to_vec()].concat()
                })
                .collect()
        };
        check(Kind::Tree, &tree(999, &[]), &tree(999, &[3, 150, 299]));
        check(Kind::Tree, &tree(0, &[]), &tree(299, &[7]));
        let small = delta(Kind::Tree, &tree(999, &[]), &tree(999, &[150])).unwrap();
        assert!(small.len() < 40, "{}", small.len());
    }
}
