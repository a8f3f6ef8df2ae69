//! The stat cache: results of the last scan, so that unchanged files need only a stat.
//!
//! It is disposable: its checksum is verified on loading, and losing it only slows the next scan
//! down. Entries are decoded on demand, directly from the file's bytes.

mod entry;
mod format;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use crate::error::Error;
use crate::fs::Held;
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;

use super::{Dirty, EntryStat, ListedDir, ListedEntry, Listing, TreeState};
pub(crate) use entry::{Basis, CachedEntry, Fate, IndexStamp};
use format::{IN_IGNORED, MAGIC, Reader, SETTLED, TREE_EMPTY, TREE_KNOWN, put_head, put_table};
use writer::Writer;

const MAX_CACHE_BYTES: u64 = 4 << 30;

/// A loaded cache, or an empty one.
#[derive(Debug, Default)]
pub(crate) struct StatCache {
    bytes: Held,
    /// Offsets of the directories, sorted by path.
    dirs: Vec<usize>,
    /// Packs that held the objects when the cache was written.
    packs: Vec<String>,
    basis: Basis,
}

/// One directory of the cache.
#[derive(Debug)]
pub(crate) struct CachedDir<'a> {
    pub(crate) stat: EntryStat,
    pub(crate) settled: bool,
    pub(crate) rules: u64,
    /// Whether it lies inside an ignored directory.
    pub(crate) in_ignored: bool,
    /// Its tree. [`TreeState::Unknown`] if it was never built.
    pub(crate) tree: TreeState,
    count: usize,
    rest: Reader<'a>,
}

/// Update of a part of the cache.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    pub(in crate::scan) dirs: BTreeMap<Vec<u8>, ListedDir>,
    /// Paths at and below which cached directories are dropped, unless they are in `dirs`.
    pub(in crate::scan) gone: Dirty,
}

impl Fresh {
    /// Returns the updated directories, each complete.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &ListedDir> {
        self.dirs.values()
    }

    /// Returns whether the cached state of a directory is still valid.
    pub(crate) fn leaves(&self, path: &[u8]) -> bool {
        !self.dirs.contains_key(path) && !self.gone.covers(path)
    }
}

impl StatCache {
    /// Loads the cache at `path`. Returns an empty one if it is missing or damaged.
    pub(crate) fn load(path: &Path) -> StatCache {
        let bytes = Held::open(path, MAX_CACHE_BYTES).ok().flatten().unwrap_or_default();
        StatCache::decode(bytes).unwrap_or_default()
    }

    /// Returns whether the file at `path` is an intact cache.
    pub(crate) fn is_readable(path: &Path) -> bool {
        let bytes = Held::open(path, MAX_CACHE_BYTES).ok().flatten();
        bytes.is_some_and(|bytes| StatCache::decode(bytes).is_some())
    }

    /// Decodes a cache with this body, adding the magic number and the checksum.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn from_body(body: &[u8]) -> Option<StatCache> {
        let mut bytes = [MAGIC, body].concat();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        StatCache::decode(bytes.into())
    }

    fn decode(bytes: Held) -> Option<StatCache> {
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
        let basis = reader.basis()?;
        let (rest, dir_count) = reader.bytes.split_last_chunk()?;
        let table_bytes = (u32::from_le_bytes(*dir_count) as usize).checked_mul(8)?;
        let (table, []) = rest.get(rest.len().checked_sub(table_bytes)?..)?.as_chunks() else {
            return None;
        };
        let dirs = table.iter().map(|offset| u64::from_le_bytes(*offset) as usize).collect();
        Some(StatCache { dirs, packs, basis, bytes })
    }

    /// Writes the cache of `listing`.
    pub(crate) fn save(
        path: &Path,
        listing: &Listing,
        packs: &[String],
        basis: &Basis,
    ) -> Result<(), Error> {
        let write = |file: &mut File| write(file, listing, packs, basis);
        Ok(private::replace_with(path, write, Durable::No)?)
    }

    /// Writes this cache with the directories of `fresh` in place of its own.
    pub(crate) fn save_with(
        &self,
        path: &Path,
        fresh: &Fresh,
        packs: &[String],
        basis: &Basis,
    ) -> Result<(), Error> {
        let write =
            |file: &mut File| self.update(fresh, Writer::new(file, &self.bytes, packs, basis));
        Ok(private::replace_with(path, write, Durable::No)?)
    }

    /// Copies unchanged directories verbatim and writes the changed ones in between.
    fn update(&self, fresh: &Fresh, mut out: Writer<'_, impl Write>) -> io::Result<()> {
        out.reserve(self.len() + 8);
        let mut new = fresh.dirs.iter().peekable();
        for at in 0..self.len() {
            let misplaced = || io::Error::other("the cache is not in order");
            let ((path, _), span) = self.nth(at).zip(self.span(at)).ok_or_else(misplaced)?;
            while let Some((_, dir)) = new.next_if(|(new, _)| new.as_slice() <= path) {
                out.put(dir)?;
            }
            if fresh.leaves(path) {
                out.copy(span)?;
            }
        }
        new.try_for_each(|(_, dir)| out.put(dir))?;
        out.finish()
    }

    /// Returns the byte range of the directory at this position.
    fn span(&self, at: usize) -> Option<Range<usize>> {
        let table_at = self.bytes.len().checked_sub(8 + 8 * self.dirs.len())?;
        Some(*self.dirs.get(at)?..self.dirs.get(at + 1).copied().unwrap_or(table_at))
    }

    /// Makes the cache at `path` refer to the packs `now`, which hold all objects of the `merged`
    /// ones. Leaves the cache alone if it refers to any other pack.
    pub(crate) fn follow_merge(path: &Path, merged: &[String], now: &[String]) {
        let cache = StatCache::load(path);
        let is_there = |pack: &String| merged.contains(pack) || now.contains(pack);
        if !cache.is_empty() && cache.packs.iter().all(is_there) {
            // Best effort: losing the cache only slows the next scan down.
            drop(private::replace(path, &cache.relying_on(now), Durable::No));
        }
    }

    /// Returns the encoded cache with other packs.
    fn relying_on(&self, packs: &[String]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        put_head(&mut bytes, &self.packs, &self.basis);
        let old_head = bytes.len();
        bytes.clear();
        put_head(&mut bytes, packs, &self.basis);
        let head = bytes.len();
        let moved = |offset: &usize| {
            (offset.saturating_add(head).saturating_sub(old_head) as u64).to_le_bytes()
        };
        let table: Vec<u8> = self.dirs.iter().flat_map(moved).collect();
        let table_at = self.bytes.len() - 8 - table.len();
        bytes.extend(&self.bytes[old_head..table_at]);
        put_table(&mut bytes, &table);
        let sum = crc32fast::hash(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Returns the cache of `listing`, in memory only.
    pub(crate) fn of(listing: &Listing) -> StatCache {
        StatCache::decode(encode(listing, &[], &Basis::default()).into()).unwrap_or_default()
    }

    pub(crate) fn packs(&self) -> &[String] {
        &self.packs
    }

    pub(crate) fn basis(&self) -> &Basis {
        &self.basis
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Returns the number of directories.
    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    /// Returns the position of the directory `path`.
    pub(crate) fn position(&self, path: &[u8]) -> Option<usize> {
        let found = self.dirs.binary_search_by(|offset| {
            let mut reader = Reader { bytes: self.bytes.get(*offset..).unwrap_or_default() };
            reader.blob().unwrap_or_default().cmp(path)
        });
        found.ok()
    }

    pub(crate) fn dir(&self, path: &[u8]) -> Option<CachedDir<'_>> {
        Some(self.nth(self.position(path)?)?.1)
    }

    /// Returns the directories at these positions, in their form in a listing.
    pub(crate) fn part(&self, numbers: &BTreeSet<usize>) -> Vec<ListedDir> {
        let listed = |(path, dir): (&[u8], CachedDir<'_>)| {
            dir.listed(path, dir.entries().map(|entry| entry.listed()).collect())
        };
        numbers.iter().filter_map(|at| self.nth(*at)).map(listed).collect()
    }

    /// Returns the path and content of the directory at this position.
    pub(crate) fn nth(&self, at: usize) -> Option<(&[u8], CachedDir<'_>)> {
        let mut rest = Reader { bytes: self.bytes.get(*self.dirs.get(at)?..)? };
        let path = rest.blob()?;
        let flags = rest.u8()?;
        let rules = rest.u64()?;
        let stat = rest.stat()?;
        let tree = match flags & (TREE_KNOWN | TREE_EMPTY) {
            0 => TreeState::Unknown,
            TREE_KNOWN => TreeState::Known(Some(ObjectId::from_bytes(rest.array()?))),
            _ => TreeState::Known(None),
        };
        let count = rest.u32()? as usize;
        let (settled, in_ignored) = (flags & SETTLED != 0, flags & IN_IGNORED != 0);
        Some((path, CachedDir { stat, settled, rules, in_ignored, tree, count, rest }))
    }
}

impl<'a> CachedDir<'a> {
    /// Returns the entries, sorted by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = CachedEntry<'a>> + use<'a> {
        let mut rest = self.rest;
        (0..self.count).map_while(move |_| rest.entry())
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Converts the directory to its form in a listing.
    pub(crate) fn listed(&self, path: &[u8], entries: Vec<ListedEntry>) -> ListedDir {
        let &CachedDir { stat, settled, rules, in_ignored, tree, .. } = self;
        ListedDir { path: path.to_vec(), stat, settled, rules, in_ignored, tree, entries }
    }
}

/// Encodes a cache in memory.
fn encode(listing: &Listing, packs: &[String], basis: &Basis) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, listing, packs, basis).expect("memory can be written");
    bytes
}

fn write(out: impl Write, listing: &Listing, packs: &[String], basis: &Basis) -> io::Result<()> {
    let mut out = Writer::new(out, &[], packs, basis);
    out.reserve(listing.dirs.len());
    out.reserve_piece();
    listing.dirs.iter().try_for_each(|dir| out.put(dir))?;
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{FileKind, Time};
    use crate::git::Verdict;
    use crate::scan::Content;

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
            in_ignored: false,
            tree: TreeState::Known(None),
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

    fn basis() -> Basis {
        let stat = Some(EntryStat { inode: 7, ..EntryStat::NOTHING });
        let index = IndexStamp { stat, settled: true };
        Basis { policy: 5, index, operation: Some(ObjectId::EMPTY_TREE) }
    }

    #[test]
    fn a_written_cache_is_read_back() {
        let cache = StatCache::decode(encode(&sample(), &["p1".into()], &basis()).into()).unwrap();
        assert_eq!((cache.packs(), cache.basis()), (&["p1".to_owned()][..], &basis()));
        let root = cache.dir(b"").unwrap();
        assert_eq!((root.rules, root.settled), (77, true));
        let entries: Vec<_> = root.entries().collect();
        assert_eq!(entries[0].fate, Fate::Known(ObjectId::EMPTY_TREE));
        assert_eq!(entries[0].stat.mtime.seconds, -5);
        assert_eq!(entries[1].verdict, Verdict::Ignored);
        assert!(cache.dir(b"d").is_some() && cache.dir(b"e").is_none());
    }

    #[test]
    fn a_cache_rewritten_for_other_packs_keeps_its_entries() {
        let cache = StatCache::decode(encode(&sample(), &["p1".into()], &basis()).into()).unwrap();
        let packs = ["a longer name".to_owned(), "another".to_owned()];
        assert_eq!(cache.relying_on(&packs), encode(&sample(), &packs, &basis()));
        let back = StatCache::decode(cache.relying_on(&packs).into()).unwrap();
        assert_eq!(back.relying_on(&[]), encode(&sample(), &[], &basis()));
    }

    /// Directories are added, changed and removed before, between and after those that stay.
    #[test]
    fn a_cache_updated_with_fresh_directories_equals_a_full_cache() {
        let paths = |names: &[&str]| -> Listing {
            let dir = |name: &&str| ListedDir {
                path: name.as_bytes().to_vec(),
                rules: name.len() as u64,
                ..sample().dirs[usize::from(name.contains('x'))].clone()
            };
            Listing { dirs: names.iter().map(dir).collect(), ..Listing::default() }
        };
        let check = |before: &[&str], gone: &[&str], fresh: &[&str], after: &[&str]| {
            let cache = StatCache::of(&paths(before));
            let dirs = paths(fresh).dirs.into_iter().map(|dir| (dir.path.clone(), dir)).collect();
            let gone = Dirty::new(gone.iter().map(|path| path.as_bytes().to_vec()));
            let mut bytes = Vec::new();
            let out = Writer::new(&mut bytes, &cache.bytes, &["p".into()], &basis());
            cache.update(&Fresh { dirs, gone }, out).unwrap();
            assert_eq!(bytes, encode(&paths(after), &["p".into()], &basis()), "{after:?}");
        };
        let before = ["", "a", "a/b", "c", "d"];
        check(&before, &[], &[], &before);
        check(&before, &["a"], &[""], &["", "c", "d"]);
        check(&before, &["a", "e"], &["", "a", "e", "e/x"], &["", "a", "c", "d", "e", "e/x"]);
        check(&before, &["a.x", "d"], &["", "a.x", "c"], &["", "a", "a.x", "a/b", "c"]);
        check(&["", "a"], &["a"], &[""], &[""]);
    }

    #[test]
    fn a_damaged_cache_is_rejected() {
        let good = encode(&sample(), &[], &basis());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(StatCache::decode(bad.into()).is_none(), "byte {at}");
            assert!(StatCache::decode(good[..at].to_vec().into()).is_none(), "cut at {at}");
        }
    }
}
