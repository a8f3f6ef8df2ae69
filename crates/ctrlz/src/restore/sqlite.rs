//! SQLite databases and their sidecar files, recognised by names and by first bytes.

use crate::compare::Change;
use crate::error::Error;
use crate::git::ObjectId;
use crate::pack::Objects;
use crate::path::TreePath;
use crate::scan::SIDECARS;

/// Suffix of the shared memory of an SQLite database.
pub(crate) const SHARED_MEMORY: &[u8] = b"-shm";

/// Number of bytes that the functions below need to recognise a file.
pub(crate) const HEAD_BYTES: u64 = 32;

/// Returns the database that a path belongs to by its name: the path itself unless it is a sidecar.
pub(crate) fn database_of(path: &[u8]) -> &[u8] {
    let ends = SIDECARS.iter().copied().chain([SHARED_MEMORY]);
    ends.filter_map(|end| path.strip_suffix(end)).find(|main| !main.is_empty()).unwrap_or(path)
}

/// Returns the database that a path is named as the write-ahead log or rollback journal of.
pub(crate) fn database_of_log(path: &TreePath) -> Option<TreePath> {
    let main = SIDECARS.iter().find_map(|end| path.as_bytes().strip_suffix(*end))?;
    TreePath::parse(main).ok()
}

/// Returns whether a file begins like an SQLite database.
pub(crate) fn is_sqlite(head: &[u8]) -> bool {
    head.starts_with(b"SQLite format 3\0")
}

/// Returns whether a file begins like an SQLite write-ahead log, rollback journal or shared memory.
pub(crate) fn is_sqlite_log(head: &[u8]) -> bool {
    const WAL_BIG: [u8; 4] = 0x377f_0682_u32.to_be_bytes();
    const WAL_LITTLE: [u8; 4] = 0x377f_0683_u32.to_be_bytes();
    const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    head.starts_with(&WAL_BIG)
        || head.starts_with(&WAL_LITTLE)
        || head.starts_with(&JOURNAL)
        || head.starts_with(&SHARED_MEMORY_MAGIC)
}

/// Returns whether a file can be a log. SQLite erases the header of a log that it keeps for reuse.
pub(super) fn may_be_log(head: &[u8]) -> bool {
    is_blank(head) || is_sqlite_log(head)
}

/// Returns whether a file begins with zeros or is empty.
pub(super) fn is_blank(head: &[u8]) -> bool {
    head.iter().all(|byte| *byte == 0)
}

const SHARED_MEMORY_MAGIC: [u8; 4] = 3_007_000_u32.to_ne_bytes();

/// Returns whether a recorded file is an SQLite write-ahead log, rollback journal or shared memory.
pub(crate) fn is_database_log(objects: &Objects, content: &ObjectId) -> Result<bool, Error> {
    Ok(is_sqlite_log(&objects.blob_head(content, HEAD_BYTES)?))
}

/// Returns whether a change affects the shared memory of SQLite, which is never restored.
pub(crate) fn is_transient(objects: &Objects, change: &Change) -> Result<bool, Error> {
    let path = change.path.as_bytes();
    let either = change.before.or(change.after).filter(|entry| entry.kind.is_file());
    match either.filter(|_| path.ends_with(SHARED_MEMORY)) {
        Some(entry) => Ok(is_shared_memory_head(path, &objects.blob_head(&entry.id, HEAD_BYTES)?)),
        None => Ok(false),
    }
}

/// Returns whether a file is the shared memory of SQLite, by its name and its first bytes.
pub(crate) fn is_shared_memory_head(path: &[u8], head: &[u8]) -> bool {
    path.ends_with(SHARED_MEMORY) && head.starts_with(&SHARED_MEMORY_MAGIC)
}
