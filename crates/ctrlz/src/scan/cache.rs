//! The stat cache: what the last scan saw, so that unchanged files need only a stat.
//!
//! Disposable: it is checked as a whole when it is loaded, and losing it costs a slower scan. The
//! entries are decoded where they are needed, straight from the file's bytes.

use std::path::Path;

use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::fs::{FileKind, Time};
use crate::git::{ObjectId, Verdict};

use super::{Content, EntryStat, ListedDir, ListedEntry, Listing};

const MAGIC: &[u8; 8] = b"ctrlzst1";
const MAX_CACHE_BYTES: u64 = 4 << 30;

/// A loaded cache, or an empty one.
#[derive(Debug, Default)]
pub(crate) struct StatCache {
    bytes: Vec<u8>,
    /// Offsets of the directories, sorted by path.
    dirs: Vec<usize>,
    /// Packs that held the objects when the cache was written.
    packs: Vec<String>,
}

/// One directory of the cache.
#[derive(Debug)]
pub(crate) struct CachedDir<'a> {
    pub(crate) stat: EntryStat,
    pub(crate) settled: bool,
    pub(crate) rules: u64,
    count: usize,
    rest: Reader<'a>,
}

/// One entry of a cached directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) stat: EntryStat,
    pub(crate) id: Option<ObjectId>,
    pub(crate) verdict: Verdict,
    pub(crate) racy: bool,
}

const SETTLED: u8 = 1;
const IGNORED: u8 = 1;
const RACY: u8 = 2;
const KNOWN: u8 = 4;
const INCLUDED: u8 = 8;

impl StatCache {
    /// Loads the cache at `path`. Anything that is not exactly what was written is an empty cache.
    pub(crate) fn load(path: &Path) -> StatCache {
        let bytes = private::read_small(path, MAX_CACHE_BYTES).ok().flatten().unwrap_or_default();
        StatCache::decode(bytes).unwrap_or_default()
    }

    fn decode(bytes: Vec<u8>) -> Option<StatCache> {
        let body = bytes.len().checked_sub(4)?;
        if !bytes.starts_with(MAGIC)
            || crc32fast::hash(&bytes[..body]).to_le_bytes() != bytes[body..]
        {
            return None;
        }
        let mut reader = Reader { bytes: &bytes[MAGIC.len()..body] };
        let pack_count = reader.u32()?;
        let mut packs = Vec::new();
        for _ in 0..pack_count {
            packs.push(String::from_utf8(reader.blob()?.to_vec()).ok()?);
        }
        let dir_count = reader.u32()? as usize;
        let mut dirs = Vec::with_capacity(dir_count.min(body / 8));
        for _ in 0..dir_count {
            dirs.push(reader.u64()? as usize);
        }
        Some(StatCache { dirs, packs, bytes })
    }

    /// Writes what `listing` knows.
    pub(crate) fn save(path: &Path, listing: &Listing, packs: &[String]) -> Result<(), Error> {
        Ok(private::replace(path, &encode(listing, packs), Durable::No)?)
    }

    /// What a cache of `listing` would say, without a file.
    pub(crate) fn of(listing: &Listing) -> StatCache {
        StatCache::decode(encode(listing, &[])).unwrap_or_default()
    }

    pub(crate) fn packs(&self) -> &[String] {
        &self.packs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    pub(crate) fn dir(&self, path: &[u8]) -> Option<CachedDir<'_>> {
        let found = self.dirs.binary_search_by(|offset| {
            let mut reader = Reader { bytes: self.bytes.get(*offset..).unwrap_or_default() };
            reader.blob().unwrap_or_default().cmp(path)
        });
        let mut rest = Reader { bytes: self.bytes.get(self.dirs[found.ok()?]..)? };
        rest.blob()?;
        let flags = rest.u8()?;
        let rules = rest.u64()?;
        let stat = rest.stat()?;
        let count = rest.u32()? as usize;
        Some(CachedDir { stat, settled: flags & SETTLED != 0, rules, count, rest })
    }
}

impl<'a> CachedDir<'a> {
    /// The entries, sorted by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = CachedEntry<'a>> + use<'a> {
        let mut rest = self.rest;
        (0..self.count).map_while(move |_| rest.entry())
    }
}

/// Reads fixed-width little-endian fields.
#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(count)?;
        self.bytes = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { seconds: self.array().map(i64::from_le_bytes)?, nanos: self.u32()? })
    }

    fn blob(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    fn stat(&mut self) -> Option<EntryStat> {
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

    fn entry(&mut self) -> Option<CachedEntry<'a>> {
        let name = self.blob()?;
        let flags = self.u8()?;
        let stat = self.stat()?;
        let id = if flags & KNOWN != 0 { Some(ObjectId::from_bytes(self.array()?)) } else { None };
        Some(CachedEntry {
            name,
            stat,
            id,
            verdict: match flags & (IGNORED | INCLUDED) {
                0 => Verdict::Plain,
                IGNORED => Verdict::Ignored,
                _ => Verdict::Included,
            },
            racy: flags & RACY != 0,
        })
    }
}

fn encode(listing: &Listing, packs: &[String]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((packs.len() as u32).to_le_bytes());
    for pack in packs {
        put_blob(&mut bytes, pack.as_bytes());
    }
    bytes.extend((listing.dirs.len() as u32).to_le_bytes());
    let table = bytes.len();
    bytes.resize(table + listing.dirs.len() * 8, 0);
    for (at, dir) in listing.dirs.iter().enumerate() {
        let offset = (bytes.len() as u64).to_le_bytes();
        bytes[table + at * 8..table + at * 8 + 8].copy_from_slice(&offset);
        put_dir(&mut bytes, dir);
    }
    let sum = crc32fast::hash(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
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

fn put_dir(bytes: &mut Vec<u8>, dir: &ListedDir) {
    put_blob(bytes, &dir.path);
    bytes.push(if dir.settled { SETTLED } else { 0 });
    bytes.extend(dir.rules.to_le_bytes());
    put_stat(bytes, &dir.stat);
    bytes.extend((dir.entries.len() as u32).to_le_bytes());
    for entry in &dir.entries {
        put_entry(bytes, entry);
    }
}

fn put_entry(bytes: &mut Vec<u8>, entry: &ListedEntry) {
    put_blob(bytes, &entry.name);
    let id = match &entry.content {
        Content::Known(id) => Some(id),
        Content::Ignored | Content::ToRead | Content::Directory | Content::Skipped(_) => None,
    };
    let verdict = match entry.verdict {
        Verdict::Plain => 0,
        Verdict::Ignored => IGNORED,
        Verdict::Included => INCLUDED,
    };
    let known = if id.is_some() { KNOWN } else { 0 };
    bytes.push(verdict | known | if entry.racy { RACY } else { 0 });
    put_stat(bytes, &entry.stat);
    if let Some(id) = id {
        bytes.extend(id.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Listing {
        let stat = EntryStat {
            kind: FileKind::File,
            mode: 0o644,
            bytes: 3,
            mtime: Time { seconds: -5, nanos: 7 },
            ctime: Time { seconds: 9, nanos: 1 },
            inode: 42,
        };
        let entry = |name: &[u8], content| ListedEntry {
            name: name.into(),
            stat,
            verdict: if content == Content::Ignored { Verdict::Ignored } else { Verdict::Plain },
            content,
            racy: false,
        };
        let dir = |path: &[u8], entries| ListedDir {
            path: path.to_vec(),
            stat: EntryStat { kind: FileKind::Dir, ..stat },
            settled: true,
            rules: 77,
            entries,
        };
        let known = Content::Known(ObjectId::EMPTY_TREE);
        Listing {
            dirs: vec![
                dir(b"", vec![entry(b"a", known), entry(b"b", Content::Ignored)]),
                dir(b"d", vec![]),
            ],
            ..Listing::default()
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let cache = StatCache::decode(encode(&sample(), &["p1".into()])).unwrap();
        assert_eq!(cache.packs(), ["p1"]);
        let root = cache.dir(b"").unwrap();
        assert_eq!((root.rules, root.settled), (77, true));
        let entries: Vec<_> = root.entries().collect();
        assert_eq!(entries[0].id, Some(ObjectId::EMPTY_TREE));
        assert_eq!(entries[0].stat.mtime.seconds, -5);
        assert_eq!(entries[1].verdict, Verdict::Ignored);
        assert!(cache.dir(b"d").is_some() && cache.dir(b"e").is_none());
    }

    #[test]
    fn any_damage_empties_the_cache() {
        let good = encode(&sample(), &[]);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(StatCache::decode(bad).is_none(), "byte {at}");
            assert!(StatCache::decode(good[..at].to_vec()).is_none(), "cut at {at}");
        }
    }
}
