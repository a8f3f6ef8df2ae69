//! Reads HEAD of a repository that keeps its refs in reftables (git 2.45 and later).
//!
//! `tables.list` names the tables, oldest first; the last one with a record of a ref decides. HEAD
//! sorts before `refs/`, so it is in the first block of a table. Anything malformed counts as
//! missing.

use std::path::Path;

use crate::small_file;

/// Maximum number of tables. Git merges them so that there are only a few.
const MAX_TABLES: usize = 1_000;
/// Number of bytes read of a table, which is more than the default size of a block (4 KiB).
const MAX_BLOCK: u64 = 1 << 16;

/// Returns the name of the ref that HEAD refers to. `git_dir` is the work tree's own directory.
pub(crate) fn head(git_dir: &Path) -> Option<Vec<u8>> {
    let dir = git_dir.join("reftable");
    let list = small_file::read(&dir.join("tables.list")).ok()??;
    let names = String::from_utf8(list).ok()?;
    for name in names.lines().rev().take(MAX_TABLES) {
        let is_name = !name.contains('/') && dir.join(name).symlink_metadata().ok()?.is_file();
        let table = small_file::read_start(&dir.join(name), MAX_BLOCK).ok()?;
        match head_in(&table).filter(|_| is_name)? {
            Found::Target(target) => return Some(target),
            Found::Detached => return None,
            Found::Nothing => (),
        }
    }
    None
}

/// HEAD according to one table.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Target(Vec<u8>),
    /// It is a commit, or removed.
    Detached,
    Nothing,
}

/// Parses the first block of a table. Returns `None` if it is malformed.
fn head_in(table: &[u8]) -> Option<Found> {
    let (header, id_bytes) = match table.get(..5)? {
        b"REFT\x01" => (24, 20),
        b"REFT\x02" if table.get(24..28)? == b"s256" => (28, 32),
        b"REFT\x02" => (28, 20),
        _ => return None,
    };
    // A table that has only log records begins with another kind of block.
    if table.get(header) != Some(&b'r') {
        return Some(Found::Nothing);
    }
    let length = table.get(header + 1..header + 4)?;
    let length =
        usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
    let block = table.get(..length.min(table.len()))?;
    let mut rest = block.get(header + 4..)?;
    // Offsets of restarts follow the records, and their number ends the block.
    if let [.., high, low] = table.get(..length)? {
        let restarts = usize::from(*high) << 8 | usize::from(*low);
        rest = rest.get(..rest.len().checked_sub(2 + 3 * restarts)?)?;
    }
    let mut name: Vec<u8> = Vec::new();
    while !rest.is_empty() {
        let shared = number(&mut rest)?;
        let suffix = number(&mut rest)?;
        name.truncate(shared);
        name.extend_from_slice(take(&mut rest, suffix >> 3)?);
        number(&mut rest)?;
        let value = match suffix & 7 {
            0 => &[],
            1 => take(&mut rest, id_bytes)?,
            2 => take(&mut rest, 2 * id_bytes)?,
            3 => {
                let length = number(&mut rest)?;
                take(&mut rest, length)?
            }
            _ => return None,
        };
        if name == b"HEAD" {
            let is_link = suffix & 7 == 3;
            return Some(if is_link { Found::Target(value.to_vec()) } else { Found::Detached });
        }
        if name.as_slice() > b"HEAD".as_slice() {
            break;
        }
    }
    Some(Found::Nothing)
}

/// Reads a number in git's variable-length format.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let mut found: usize = 0;
    loop {
        let byte = take(rest, 1)?[0];
        found = found.checked_mul(128)?.checked_add(usize::from(byte & 127))?;
        if byte < 128 {
            return Some(found);
        }
        found = found.checked_add(1)?;
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of git 2.47 for a new repository.
    const NEW: &[u8] = b"REFT\x01\0\x10\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01r\0\0\x3a\0\x23HEAD\0\
        \x11refs/heads/master\0\0\x1c\0\x01";

    #[test]
    fn the_target_of_head_is_found() {
        assert_eq!(head_in(NEW), Some(Found::Target(b"refs/heads/master".to_vec())));
    }

    #[test]
    fn damaged_tables_are_malformed_or_have_no_head() {
        for end in 0..NEW.len() {
            let found = head_in(&NEW[..end]);
            assert!(matches!(found, None | Some(Found::Nothing)), "{end}: {found:?}");
        }
        for at in 0..NEW.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut table = NEW.to_vec();
                table[at] = byte;
                // Must not panic.
                drop(head_in(&table));
            }
        }
    }
}
