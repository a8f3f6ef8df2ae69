//! The encoding of a cache: fixed-width little-endian fields, and texts after their lengths.

use crate::fs::{FileKind, Time};
use crate::git::{ObjectId, Verdict};

use super::entry::{Basis, CachedEntry, Fate, IndexStamp};
use crate::scan::{Content, EntryStat, ListedDir, ListedEntry, SkipReason, TreeState};

pub(super) const MAGIC: &[u8; 8] = b"ctrlzst4";

// Flags of a directory.
pub(super) const SETTLED: u8 = 1;
pub(super) const IN_IGNORED: u8 = 2;
pub(super) const TREE_KNOWN: u8 = 4;
pub(super) const TREE_EMPTY: u8 = 8;
// Flags of an entry.
const IGNORED: u8 = 1;
const RACY: u8 = 2;
const KNOWN: u8 = 4;
const INCLUDED: u8 = 8;
const ENTERED: u8 = 16;
const LEFT_OUT: u8 = 32;
const PROTECTED: u8 = 64;
const STORE: u8 = 128;

/// A reader of fixed-width little-endian fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(count)?;
        self.bytes = tail;
        Some(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { seconds: self.array().map(i64::from_le_bytes)?, nanos: self.u32()? })
    }

    pub(super) fn blob(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub(super) fn stat(&mut self) -> Option<EntryStat> {
        let kind = match self.u8()? {
            0 => FileKind::File,
            1 => FileKind::Dir,
            2 => FileKind::Symlink,
            _ => FileKind::Special,
        };
        Some(EntryStat {
            kind,
            mode: self.u32()?,
            bytes: self.u64()?,
            mtime: self.time()?,
            ctime: self.time()?,
            inode: self.u64()?,
        })
    }

    pub(super) fn basis(&mut self) -> Option<Basis> {
        let policy = self.u64()?;
        let operation = ObjectId::from_bytes(self.array()?);
        let operation = Some(operation).filter(|operation| *operation != ObjectId::NULL);
        let flags = self.u8()?;
        let stat = self.stat()?;
        let stat = (flags & KNOWN != 0).then_some(stat);
        let index = IndexStamp { stat, settled: flags & SETTLED != 0 };
        Some(Basis { policy, index, operation })
    }

    pub(super) fn entry(&mut self) -> Option<CachedEntry<'a>> {
        let name = self.blob()?;
        let flags = self.u8()?;
        let stat = self.stat()?;
        let fate = match flags & (KNOWN | ENTERED | LEFT_OUT | PROTECTED | STORE) {
            KNOWN => Fate::Known(ObjectId::from_bytes(self.array()?)),
            ENTERED => Fate::Entered,
            LEFT_OUT => Fate::LeftOut,
            PROTECTED => Fate::Protected,
            STORE => Fate::Store,
            _ => Fate::Doubtful,
        };
        Some(CachedEntry {
            name,
            stat,
            fate,
            verdict: match flags & (IGNORED | INCLUDED) {
                0 => Verdict::Plain,
                IGNORED => Verdict::Ignored,
                _ => Verdict::Included,
            },
            racy: flags & RACY != 0,
        })
    }
}

pub(super) fn put_head(bytes: &mut Vec<u8>, packs: &[String], basis: &Basis) {
    bytes.extend(MAGIC);
    bytes.extend((packs.len() as u32).to_le_bytes());
    for pack in packs {
        put_blob(bytes, pack.as_bytes());
    }
    put_basis(bytes, basis);
}

/// Appends the offsets of all directories and their number, which is located from the end.
pub(super) fn put_table(bytes: &mut Vec<u8>, table: &[u8]) {
    bytes.extend(table);
    bytes.extend((table.len() as u32 / 8).to_le_bytes());
}

fn put_basis(bytes: &mut Vec<u8>, basis: &Basis) {
    bytes.extend(basis.policy.to_le_bytes());
    bytes.extend(basis.operation.unwrap_or(ObjectId::NULL).as_bytes());
    let known = if basis.index.stat.is_some() { KNOWN } else { 0 };
    bytes.push(known | if basis.index.settled { SETTLED } else { 0 });
    put_stat(bytes, &basis.index.stat.unwrap_or(EntryStat::NOTHING));
}

fn put_blob(bytes: &mut Vec<u8>, blob: &[u8]) {
    bytes.extend((blob.len() as u32).to_le_bytes());
    bytes.extend(blob);
}

fn put_stat(bytes: &mut Vec<u8>, stat: &EntryStat) {
    bytes.push(match stat.kind {
        FileKind::File => 0,
        FileKind::Dir => 1,
        FileKind::Symlink => 2,
        FileKind::Special => 3,
    });
    bytes.extend(stat.mode.to_le_bytes());
    bytes.extend(stat.bytes.to_le_bytes());
    for time in [stat.mtime, stat.ctime] {
        bytes.extend(time.seconds.to_le_bytes());
        bytes.extend(time.nanos.to_le_bytes());
    }
    bytes.extend(stat.inode.to_le_bytes());
}

pub(super) fn put_dir(bytes: &mut Vec<u8>, dir: &ListedDir) {
    put_blob(bytes, &dir.path);
    let settled = if dir.settled { SETTLED } else { 0 };
    let in_ignored = if dir.in_ignored { IN_IGNORED } else { 0 };
    let tree = match dir.tree {
        TreeState::Unknown => 0,
        TreeState::Known(Some(_)) => TREE_KNOWN,
        TreeState::Known(None) => TREE_KNOWN | TREE_EMPTY,
    };
    bytes.push(settled | in_ignored | tree);
    bytes.extend(dir.rules.to_le_bytes());
    put_stat(bytes, &dir.stat);
    if let TreeState::Known(Some(id)) = dir.tree {
        bytes.extend(id.as_bytes());
    }
    bytes.extend((dir.entries.len() as u32).to_le_bytes());
    for entry in &dir.entries {
        put_entry(bytes, entry);
    }
}

fn put_entry(bytes: &mut Vec<u8>, entry: &ListedEntry) {
    put_blob(bytes, &entry.name);
    let (fate, id) = match &entry.content {
        Content::Known(id) => (KNOWN, Some(id)),
        Content::Directory => (ENTERED, None),
        Content::Ignored => (LEFT_OUT, None),
        Content::Skipped(SkipReason::ProtectedName) => (PROTECTED, None),
        Content::Skipped(SkipReason::NestedRepository) => (STORE, None),
        Content::ToRead | Content::Skipped(_) => (0, None),
    };
    let verdict = match entry.verdict {
        Verdict::Plain => 0,
        Verdict::Ignored => IGNORED,
        Verdict::Included => INCLUDED,
    };
    bytes.push(verdict | fate | if entry.racy { RACY } else { 0 });
    put_stat(bytes, &entry.stat);
    if let Some(id) = id {
        bytes.extend(id.as_bytes());
    }
}
