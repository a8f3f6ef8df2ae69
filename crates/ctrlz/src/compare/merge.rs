//! Line-based three-way merge of texts.

use crate::git::{Hunk, diff_lines, split_lines};

/// Applies the changes from `base` to `theirs` to `ours`, which has its own changes.
///
/// Returns `None` if both sides changed overlapping or adjacent lines differently.
pub(crate) fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let our_hunks = diff_lines(base, ours).hunks;
    let their_hunks = diff_lines(base, theirs).hunks;
    let (base, ours, theirs) = (split_lines(base), split_lines(ours), split_lines(theirs));
    let mut merged: Vec<u8> = Vec::new();
    let mut at = 0;
    let (mut our, mut their) = (our_hunks.iter().peekable(), their_hunks.iter().peekable());
    loop {
        let (hunk, lines, other) = match (our.peek().copied(), their.peek().copied()) {
            (None, None) => break,
            (Some(one), Some(two)) if touch(one, two) => {
                let same = one.before == two.before
                    && ours[one.after.clone()] == theirs[two.after.clone()];
                if !same {
                    return None;
                }
                their.next();
                our.next();
                (one, &ours, None)
            }
            (Some(one), Some(two)) if one.before.start < two.before.start => {
                our.next();
                (one, &ours, Some(two))
            }
            (Some(one), None) => {
                our.next();
                (one, &ours, None)
            }
            (one, Some(two)) => {
                their.next();
                (two, &theirs, one)
            }
        };
        debug_assert!(other.is_none_or(|other| hunk.before.end <= other.before.start));
        merged.extend(base[at..hunk.before.start].concat());
        merged.extend(lines[hunk.after.clone()].concat());
        at = hunk.before.end;
    }
    merged.extend(base[at..].concat());
    // Only the last line may lack a line end.
    let lines = split_lines(&merged);
    let open = lines.iter().rev().skip(1).any(|line| !line.ends_with(b"\n"));
    (!open).then_some(merged)
}

/// Returns whether two hunks against the same base overlap or touch. Hunks that only touch also
/// conflict, because the order of their lines is ambiguous.
fn touch(one: &Hunk, two: &Hunk) -> bool {
    one.before.start <= two.before.end && two.before.start <= one.before.end
}

#[cfg(test)]
mod tests {
    use super::merge_lines;

    fn check(base: &str, ours: &str, theirs: &str, merged: Option<&str>) {
        let found = merge_lines(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        let found = found.map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(found.as_deref(), merged, "{base:?} {ours:?} {theirs:?}");
    }

    #[test]
    fn separate_changes_merge() {
        check("a\nb\nc\nd\ne\n", "A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n", Some("A\nb\nc\nd\nE\n"));
        check("a\nb\nc\n", "x\na\nb\nc\n", "a\nb\n", Some("x\na\nb\n"));
        check("a\nb\nc\nd\n", "a\nb\nc\nd\nnew\n", "b\nc\nd\n", Some("b\nc\nd\nnew\n"));
    }

    #[test]
    fn equal_changes_are_made_once() {
        check("a\nb\nc\n", "a\nX\nc\n", "a\nX\nc\n", Some("a\nX\nc\n"));
    }

    #[test]
    fn overlapping_or_touching_changes_conflict() {
        check("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", None);
        check("a\nb\n", "a\nb\nours\n", "a\nb\ntheirs\n", None);
        check("a\nb\nc\n", "a\nX\nc\n", "a\nb\nY\n", None);
    }

    #[test]
    fn a_missing_final_newline_does_not_join_lines() {
        check("a\nm\nb", "a\nm\nb\nc\n", "x\nm\nb", Some("x\nm\nb\nc\n"));
        check("a\nm\nb\n", "a\nm\nb\nlast", "a\nm\nb\nlast\n", None);
    }
}
