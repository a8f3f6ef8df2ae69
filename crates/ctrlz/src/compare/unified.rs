//! Unified diffs that `git apply` accepts.

use std::io::{self, Write};

use crate::error::Error;
use crate::fs::Named;
use crate::git::{EntryKind, Hunk, ObjectId, diff_lines, split_lines};
use crate::pack::Objects;

use super::{Change, Entry, Side, side};

const CONTEXT: usize = 3;

/// Writes one change as a git diff.
pub(crate) fn write_unified(
    objects: &Objects,
    change: &Change,
    out: &mut dyn Write,
) -> Result<(), Error> {
    if let (Some(before), Some(after)) = (change.before, change.after)
        && is_link(before.kind) != is_link(after.kind)
    {
        // Git shows a type change as a deletion and a creation.
        let gone = Change { after: None, ..change.clone() };
        let made = Change { before: None, ..change.clone() };
        write_unified(objects, &gone, out)?;
        return write_unified(objects, &made, out);
    }
    let before = side(objects, change.before.as_ref())?;
    let after = side(objects, change.after.as_ref())?;
    let written = write_change(change, &before, &after, out);
    Ok(written.named("write", std::path::Path::new("the diff"))?)
}

fn is_link(kind: EntryKind) -> bool {
    kind == EntryKind::Symlink
}

fn write_change(
    change: &Change,
    before: &Side,
    after: &Side,
    out: &mut dyn Write,
) -> io::Result<()> {
    let path = change.path.as_bytes();
    let (old, new) = (prefixed(b"a/", path), prefixed(b"b/", path));
    out.write_all(&[b"diff --git ", old.as_slice(), b" ", &new, b"\n"].concat())?;
    write_modes(change, out)?;
    let (old_bytes, new_bytes): (&[u8], &[u8]) = match (before, after) {
        (Side::Binary, _) | (_, Side::Binary) => {
            let old = if change.before.is_some() { old } else { b"/dev/null".to_vec() };
            let new = if change.after.is_some() { new } else { b"/dev/null".to_vec() };
            if change.before.map(|entry| entry.id) == change.after.map(|entry| entry.id) {
                return Ok(());
            }
            return out.write_all(
                &[b"Binary files ", old.as_slice(), b" and ", &new, b" differ\n"].concat(),
            );
        }
        (before, after) => (text(before), text(after)),
    };
    let diff = diff_lines(old_bytes, new_bytes);
    if diff.hunks.is_empty() {
        return Ok(());
    }
    // Like git, ends a name that contains a space with a tab.
    let end: &[u8] = if path.contains(&b' ') && !old.starts_with(b"\"") { b"\t\n" } else { b"\n" };
    let name = |present: bool, name: &[u8]| {
        if present { [name, end].concat() } else { b"/dev/null\n".to_vec() }
    };
    out.write_all(&[b"--- ", name(change.before.is_some(), &old).as_slice()].concat())?;
    out.write_all(&[b"+++ ", name(change.after.is_some(), &new).as_slice()].concat())?;
    let (old_lines, new_lines) = (split_lines(old_bytes), split_lines(new_bytes));
    for group in groups(&diff.hunks) {
        write_group(group, &old_lines, &new_lines, out)?;
    }
    Ok(())
}

fn text(side: &Side) -> &[u8] {
    match side {
        Side::Text(bytes) => bytes,
        Side::Absent | Side::Binary => b"",
    }
}

fn write_modes(change: &Change, out: &mut dyn Write) -> io::Result<()> {
    let null = ObjectId::NULL;
    let mode = |entry: Entry| entry.kind.mode();
    match (change.before, change.after) {
        (None, Some(after)) => {
            write!(out, "new file mode {}\nindex {null}..{}\n", mode(after), after.id)
        }
        (Some(before), None) => {
            write!(out, "deleted file mode {}\nindex {}..{null}\n", mode(before), before.id)
        }
        (Some(before), Some(after)) if before.kind != after.kind => {
            write!(out, "old mode {}\nnew mode {}\n", mode(before), mode(after))?;
            if before.id != after.id {
                writeln!(out, "index {}..{}", before.id, after.id)?;
            }
            Ok(())
        }
        (Some(before), Some(after)) => {
            writeln!(out, "index {}..{} {}", before.id, after.id, mode(after))
        }
        (None, None) => Ok(()),
    }
}

/// Groups hunks whose context lines overlap or touch.
fn groups(hunks: &[Hunk]) -> impl Iterator<Item = &[Hunk]> {
    hunks.chunk_by(|one, next| next.before.start - one.before.end <= 2 * CONTEXT)
}

fn write_group(
    group: &[Hunk],
    old: &[&[u8]],
    new: &[&[u8]],
    out: &mut dyn Write,
) -> io::Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let lead = first.before.start.min(CONTEXT);
    let tail = (old.len() - last.before.end).min(CONTEXT);
    let old_range = first.before.start - lead..last.before.end + tail;
    let new_range = first.after.start - lead..last.after.end + tail;
    writeln!(out, "@@ -{} +{} @@", position(&old_range), position(&new_range))?;
    let mut at = old_range.start;
    for hunk in group {
        write_lines(b" ", &old[at..hunk.before.start], out)?;
        write_lines(b"-", &old[hunk.before.clone()], out)?;
        write_lines(b"+", &new[hunk.after.clone()], out)?;
        at = hunk.before.end;
    }
    write_lines(b" ", &old[at..old_range.end], out)
}

/// Formats a range as `start,count`. An empty range names the line before it; a count of 1 is
/// omitted.
fn position(range: &std::ops::Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

fn write_lines(mark: &[u8], lines: &[&[u8]], out: &mut dyn Write) -> io::Result<()> {
    for line in lines {
        out.write_all(mark)?;
        out.write_all(line)?;
        if !line.ends_with(b"\n") {
            out.write_all(b"\n\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

/// Returns a path for a diff header, quoted like git does, so that it is plain ASCII.
fn prefixed(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let plain = !path.iter().any(|byte| !(0x20..0x7f).contains(byte) || b"\"\\".contains(byte));
    if plain {
        return [prefix, path].concat();
    }
    let mut quoted = b"\"".to_vec();
    quoted.extend_from_slice(prefix);
    for byte in path {
        match byte {
            b'"' => quoted.extend_from_slice(b"\\\""),
            b'\\' => quoted.extend_from_slice(b"\\\\"),
            0x07 => quoted.extend_from_slice(b"\\a"),
            0x08 => quoted.extend_from_slice(b"\\b"),
            b'\t' => quoted.extend_from_slice(b"\\t"),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            0x0b => quoted.extend_from_slice(b"\\v"),
            0x0c => quoted.extend_from_slice(b"\\f"),
            b'\r' => quoted.extend_from_slice(b"\\r"),
            0x00..=0x1f | 0x7f.. => quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}
