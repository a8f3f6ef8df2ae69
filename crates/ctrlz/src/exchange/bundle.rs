//! Bundles: refs and one pack in a single file, readable by `git bundle` and `git clone`.
//!
//! When writing, compressed entries are copied verbatim. When reading, the file is untrusted: sizes
//! are checked before memory is reserved, and every object id is computed from the content.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::error::Error;
use crate::fs::{Named, private};
use crate::git::{Hasher, Kind, ObjectId, hash_object};
use crate::pack::{Entry, TemporaryPack};
use crate::scan::Progress;

use super::rejected::Rejected;

pub(super) const SIGNATURE: &[u8] = b"# v2 git bundle\n";
/// Upper bound on the size of a bundle's ref list.
const MAX_HEADER_BYTES: usize = 16 << 20;
/// Upper bound on the size of deltas, of their bases and of their results.
const MAX_DELTA_BYTES: u64 = 64 << 20;
/// Upper bound on the size of trees and commits.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
/// Upper bound on the length of delta chains.
const MAX_DEPTH: usize = 300;
/// Upper bound on cached contents. The next delta often needs the same base.
const CACHE_BYTES: usize = 64 << 20;
pub(super) const OFFSET_DELTA: u8 = 6;
const REF_DELTA: u8 = 7;
pub(super) const PACK_HEADER_BYTES: u64 = 12;

/// An opened bundle: its refs are read, its pack is not.
pub(crate) struct Bundle {
    path: PathBuf,
    file: BufReader<File>,
    pub(crate) refs: Vec<(String, ObjectId)>,
    pack_bytes: u64,
}

impl Bundle {
    /// Opens a file and reads its refs.
    pub(crate) fn open(path: &Path) -> Result<Bundle, Rejected> {
        let meta = path.metadata().named("open", path)?;
        if !meta.is_file() {
            return Err("it is not a regular file".into());
        }
        let mut file = BufReader::new(File::open(path).named("open", path)?);
        let mut header = Vec::new();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut line = Vec::new();
            let limit = (MAX_HEADER_BYTES - header.len()) as u64;
            let read = file.by_ref().take(limit).read_until(b'\n', &mut line);
            read.named("read", path)?;
            header.extend_from_slice(&line);
            match line.as_slice() {
                b"\n" => break,
                line if line.ends_with(b"\n") => lines.push(line.trim_ascii_end().to_vec()),
                _ => return Err("its list of refs has no end".into()),
            }
            if lines.len() == 1 && lines[0] != SIGNATURE.trim_ascii_end() {
                return Err("it was not made by `ctrlz export`".into());
            }
        }
        let mut refs = Vec::new();
        for line in lines.iter().skip(1) {
            let parsed = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
            let id = parsed.and_then(|(text, _)| {
                let id: ObjectId = text.parse().ok()?;
                (id.to_string() == text).then_some(id)
            });
            match (parsed, id) {
                (Some((_, name)), Some(id)) => refs.push((name.to_owned(), id)),
                _ => return Err("its list of refs is malformed".into()),
            }
        }
        let pack_bytes = meta.len().saturating_sub(header.len() as u64);
        Ok(Bundle { path: path.to_owned(), file, refs, pack_bytes })
    }

    /// Copies and indexes the pack in `pack_dir`. Returns the number of objects.
    pub(crate) fn unpack(mut self, pack_dir: &Path, progress: &Progress) -> Result<u64, Rejected> {
        crate::fs::check_free(pack_dir, |_| self.pack_bytes)?;
        let path = pack_dir.join("pack-incoming.pack");
        let mut copy = private::create(&path)?;
        std::io::copy(&mut self.file, &mut copy).named("copy", &self.path)?;
        copy.sync_all().named("flush", &path)?;
        let (entries, checksum) = index(&path, progress)?;
        let count = entries.len() as u64;
        let pack = TemporaryPack { path: path.clone(), entries, checksum };
        crate::pack::write_index(&pack)?;
        for extension in ["pack", "idx"] {
            let to = pack_dir.join(format!("pack-{checksum}.{extension}"));
            std::fs::rename(path.with_extension(extension), &to).named("rename", &to)?;
        }
        Ok(count)
    }
}

/// An entry of the pack that is being indexed.
struct Part {
    offset: u64,
    crc: u32,
    id: Option<ObjectId>,
    base: Option<Base>,
    kind: Option<Kind>,
}

#[derive(Clone, Copy)]
enum Base {
    At(u64),
    Id(ObjectId),
}

/// Finds every object of a pack and computes its id.
fn index(path: &Path, progress: &Progress) -> Result<(Vec<Entry>, ObjectId), Rejected> {
    let file = File::open(path).named("open", path)?;
    let total = file.metadata().named("look at", path)?.len();
    let mut taker = Taker { input: BufReader::with_capacity(256 << 10, file), at: 0, seen: None };
    let (parts, checksum) = taker.parts(total, progress)?;
    let mut resolver = Resolver::of(path, parts)?;
    resolver.resolve(progress)?;
    let mut entries = Vec::with_capacity(resolver.parts.len());
    let mut ids = HashSet::new();
    for part in &resolver.parts {
        let id = part.id.ok_or("an object has no base")?;
        if !ids.insert(id) {
            return Err(format!("object {id} is in it twice").into());
        }
        entries.push(Entry { id, crc: part.crc, offset: part.offset - PACK_HEADER_BYTES });
    }
    Ok((entries, checksum))
}

/// Reads a pack from its beginning and hashes the bytes read.
struct Taker {
    input: BufReader<File>,
    at: u64,
    seen: Option<(Hasher, crc32fast::Hasher)>,
}

impl Read for Taker {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(out.len());
        out[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Taker {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Some((hasher, crc)) = &mut self.seen {
            let passed = &self.input.buffer()[..count];
            hasher.update(passed);
            crc.update(passed);
        }
        self.at += count as u64;
        self.input.consume(count);
    }
}

impl Taker {
    fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes).map_err(|_| "it ends too early".to_owned())?;
        Ok(bytes)
    }

    fn parts(
        &mut self,
        total: u64,
        progress: &Progress,
    ) -> Result<(Vec<Part>, ObjectId), Rejected> {
        self.seen = Some((Hasher::raw(), crc32fast::Hasher::new()));
        let mut parts = Vec::new();
        for _ in 0..self.start(total)? {
            progress.check()?;
            parts.push(self.part()?);
        }
        Ok((parts, self.end(total)?))
    }

    fn start(&mut self, total: u64) -> Result<u32, String> {
        if self.take_bytes::<8>()? != *b"PACK\0\0\0\x02" {
            return Err("its pack is of no known kind".into());
        }
        let count = u32::from_be_bytes(self.take_bytes()?);
        // The smallest entry takes nine bytes.
        if u64::from(count) * 9 > total {
            return Err("it says that it holds more objects than it has room for".into());
        }
        Ok(count)
    }

    fn end(&mut self, total: u64) -> Result<ObjectId, String> {
        let (hasher, _) = self.seen.take().ok_or("it was read twice")?;
        let sum = ObjectId::from_bytes(self.take_bytes()?);
        if self.at == total && hasher.finish() == Some(sum) {
            Ok(sum)
        } else {
            Err("its bytes do not have the checksum at its end".into())
        }
    }

    fn part(&mut self) -> Result<Part, String> {
        let offset = self.at;
        if let Some((_, crc)) = &mut self.seen {
            *crc = crc32fast::Hasher::new();
        }
        let (number, size) = self.header()?;
        let (mut id, mut base) = (None, None);
        let kind = kind_of(number);
        match (kind, number) {
            (Some(kind), _) => id = Some(self.whole(kind, size)?),
            (None, OFFSET_DELTA) => {
                let distance = self.distance()?;
                let at = offset.checked_sub(distance).filter(|at| *at >= PACK_HEADER_BYTES);
                base = Some(Base::At(at.ok_or("a delta's base lies before the pack")?));
                self.skip(size)?;
            }
            (None, REF_DELTA) => {
                base = Some(Base::Id(ObjectId::from_bytes(self.take_bytes()?)));
                self.skip(size)?;
            }
            _ => return Err("an entry is of no known kind".into()),
        }
        let crc = self.seen.as_ref().map_or(0, |(_, crc)| crc.clone().finalize());
        Ok(Part { offset, crc, id, base, kind })
    }

    /// Reads the type number and the size of an entry.
    fn header(&mut self) -> Result<(u8, u64), String> {
        let [mut byte] = self.take_bytes()?;
        let number = (byte >> 4) & 7;
        let (mut size, mut shift) = (u64::from(byte & 0x0f), 4);
        while byte & 0x80 != 0 {
            [byte] = self.take_bytes()?;
            if shift > 57 {
                return Err("an entry's size makes no sense".into());
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Ok((number, size))
    }

    fn distance(&mut self) -> Result<u64, String> {
        let [mut byte] = self.take_bytes()?;
        let mut distance = u64::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            [byte] = self.take_bytes()?;
            if distance > 1 << 50 {
                return Err("a delta's base makes no sense".into());
            }
            distance = ((distance + 1) << 7) | u64::from(byte & 0x7f);
        }
        Ok(distance)
    }

    /// Decompresses a whole object in pieces and returns its id.
    fn whole(&mut self, kind: Kind, size: u64) -> Result<ObjectId, String> {
        if kind != Kind::Blob && size > MAX_MEMORY_BYTES {
            return Err(format!("a {} has {size} bytes", kind.name()));
        }
        let mut hasher = Hasher::object(kind, size);
        self.inflate(size, &mut |bytes| hasher.update(bytes))?;
        hasher.finish().ok_or_else(|| "an object attacks its hash".into())
    }

    fn skip(&mut self, size: u64) -> Result<(), String> {
        if size > MAX_DELTA_BYTES {
            return Err(format!("a delta has {size} bytes"));
        }
        self.inflate(size, &mut |_| ())
    }

    /// Decompresses an object, which must have exactly `size` bytes.
    fn inflate(&mut self, size: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let mut inflated = flate2::bufread::ZlibDecoder::new(self);
        let mut buffer = [0; 32 * 1024];
        let mut total = 0;
        loop {
            let count = inflated
                .read(&mut buffer)
                .map_err(|_| "an object cannot be decompressed".to_owned())?;
            total += count as u64;
            if count == 0 || total > size {
                break;
            }
            take(&buffer[..count]);
        }
        if total == size {
            Ok(())
        } else {
            Err("an object is shorter or longer than it says".into())
        }
    }
}

fn kind_of(number: u8) -> Option<Kind> {
    [Kind::Commit, Kind::Tree, Kind::Blob].into_iter().find(|kind| kind.pack_number() == number)
}

/// Kind and bytes of an object.
type Content = (Kind, Rc<Vec<u8>>);

/// Resolves deltas to objects.
struct Resolver {
    taker: Taker,
    parts: Vec<Part>,
    by_offset: HashMap<u64, usize>,
    by_id: HashMap<ObjectId, usize>,
    cache: HashMap<usize, Rc<Vec<u8>>>,
    cached_bytes: usize,
}

impl Resolver {
    fn of(path: &Path, parts: Vec<Part>) -> Result<Resolver, Error> {
        let input = BufReader::with_capacity(64 << 10, File::open(path).named("open", path)?);
        let by_offset = parts.iter().enumerate().map(|(at, part)| (part.offset, at)).collect();
        let with_id = parts.iter().enumerate().filter_map(|(at, part)| Some((part.id?, at)));
        let by_id = with_id.collect();
        let taker = Taker { input, at: 0, seen: None };
        let (cache, cached_bytes) = Default::default();
        Ok(Resolver { taker, parts, by_offset, by_id, cache, cached_bytes })
    }

    fn resolve(&mut self, progress: &Progress) -> Result<(), Rejected> {
        // A base that is named by its id may come later in the pack and may be a delta itself.
        for _ in 0..MAX_DEPTH {
            let open: Vec<usize> =
                (0..self.parts.len()).filter(|at| self.parts[*at].id.is_none()).collect();
            if open.is_empty() {
                return Ok(());
            }
            let mut found = 0;
            for at in open.iter().copied() {
                progress.check()?;
                let Some((kind, bytes)) = self.content(at, 0)? else { continue };
                let id = hash_object(kind, &bytes).ok_or("an object attacks its hash")?;
                self.parts[at].id = Some(id);
                self.parts[at].kind = Some(kind);
                self.by_id.insert(id, at);
                found += 1;
            }
            if found == 0 {
                break;
            }
        }
        Err("a delta has no base in it".into())
    }

    /// Returns the object at an index of `parts`, or `None` if its base is not known yet.
    fn content(&mut self, at: usize, depth: usize) -> Result<Option<Content>, String> {
        if depth > MAX_DEPTH {
            return Err("its deltas are too deep".into());
        }
        if let (Some(kind), Some(bytes)) = (self.parts[at].kind, self.cache.get(&at)) {
            return Ok(Some((kind, Rc::clone(bytes))));
        }
        let base = match self.parts[at].base {
            None => {
                let kind = self.parts[at].kind.ok_or("an entry is of no known kind")?;
                let bytes = Rc::new(self.raw(at)?);
                self.remember(at, &bytes);
                return Ok(Some((kind, bytes)));
            }
            Some(Base::At(offset)) => {
                *self.by_offset.get(&offset).ok_or("a delta's base is no object")?
            }
            Some(Base::Id(id)) => match self.by_id.get(&id) {
                Some(base) => *base,
                None => return Ok(None),
            },
        };
        let Some((kind, base)) = self.content(base, depth + 1)? else { return Ok(None) };
        let bytes = Rc::new(patched(&base, &self.raw(at)?)?);
        self.parts[at].kind = Some(kind);
        self.remember(at, &bytes);
        Ok(Some((kind, bytes)))
    }

    fn remember(&mut self, at: usize, bytes: &Rc<Vec<u8>>) {
        if self.cached_bytes + bytes.len() > CACHE_BYTES {
            self.cache.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes += bytes.len();
        self.cache.insert(at, Rc::clone(bytes));
    }

    /// Decompresses an entry that is a delta or the base of one.
    fn raw(&mut self, at: usize) -> Result<Vec<u8>, String> {
        let seek = self.taker.input.seek(SeekFrom::Start(self.parts[at].offset));
        seek.map_err(|error| error.to_string())?;
        let (number, size) = self.taker.header()?;
        match number {
            OFFSET_DELTA => drop(self.taker.distance()?),
            REF_DELTA => drop(self.taker.take_bytes::<20>()?),
            _ => (),
        }
        if size > MAX_DELTA_BYTES {
            return Err(format!("a delta's base has {size} bytes"));
        }
        let mut bytes = Vec::new();
        self.taker.inflate(size, &mut |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }
}

/// Applies a delta.
fn patched(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, String> {
    let malformed = || "a delta is malformed".to_owned();
    let mut rest = delta;
    let mut next = || -> Option<u8> {
        let (first, more) = rest.split_first()?;
        rest = more;
        Some(*first)
    };
    let mut size = || -> Option<u64> {
        let (mut size, mut shift) = (0, 0);
        loop {
            let byte = next()?;
            size |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return (shift < 63).then_some(size);
            }
        }
    };
    let (base_size, target_size) = (size().ok_or_else(malformed)?, size().ok_or_else(malformed)?);
    if base_size != base.len() as u64 || target_size > MAX_DELTA_BYTES {
        return Err(malformed());
    }
    let mut out = Vec::with_capacity(target_size as usize);
    while let Some((&code, more)) = rest.split_first() {
        rest = more;
        if code & 0x80 == 0 {
            let literal = rest.get(..usize::from(code)).filter(|_| code > 0);
            out.extend_from_slice(literal.ok_or_else(malformed)?);
            rest = &rest[usize::from(code)..];
        } else {
            let mut fields = [0_u8; 7];
            for (bit, field) in fields.iter_mut().enumerate() {
                if code & (1 << bit) != 0 {
                    let (first, more) = rest.split_first().ok_or_else(malformed)?;
                    *field = *first;
                    rest = more;
                }
            }
            let [a, b, c, d, e, f, g] = fields;
            let from = u32::from_le_bytes([a, b, c, d]) as usize;
            let len = match u32::from_le_bytes([e, f, g, 0]) as usize {
                0 => 0x10000,
                len => len,
            };
            let end = from.checked_add(len).ok_or_else(malformed)?;
            out.extend_from_slice(base.get(from..end).ok_or_else(malformed)?);
        }
        if out.len() as u64 > target_size {
            return Err(malformed());
        }
    }
    if out.len() as u64 == target_size { Ok(out) } else { Err(malformed()) }
}
