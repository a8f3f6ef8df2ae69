//! Resolves the deltas of a received pack to objects.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use crate::error::Error;
use crate::fs::Named;
use crate::git::{Kind, ObjectId, hash_object};
use crate::scan::Progress;

use super::entries::{Base, MAX_DELTA_BYTES, OFFSET_DELTA, Part, REF_DELTA, Taker};
use super::rejected::Rejected;

/// Upper bound on the length of delta chains.
const MAX_DEPTH: usize = 300;
/// Upper bound on cached contents. The next delta often needs the same base.
const CACHE_BYTES: usize = 64 << 20;

/// Kind and bytes of an object.
type Content = (Kind, Rc<Vec<u8>>);

/// Resolves deltas to objects.
pub(super) struct Resolver {
    taker: Taker,
    pub(super) parts: Vec<Part>,
    by_offset: HashMap<u64, usize>,
    by_id: HashMap<ObjectId, usize>,
    cache: HashMap<usize, Rc<Vec<u8>>>,
    cached_bytes: usize,
}

impl Resolver {
    pub(super) fn of(path: &Path, parts: Vec<Part>) -> Result<Resolver, Error> {
        let input = BufReader::with_capacity(64 << 10, File::open(path).named("open", path)?);
        let by_offset = parts.iter().enumerate().map(|(at, part)| (part.offset, at)).collect();
        let with_id = parts.iter().enumerate().filter_map(|(at, part)| Some((part.id?, at)));
        let by_id = with_id.collect();
        let taker = Taker { input, at: 0, seen: None };
        let (cache, cached_bytes) = Default::default();
        Ok(Resolver { taker, parts, by_offset, by_id, cache, cached_bytes })
    }

    pub(super) fn resolve(&mut self, progress: &Progress) -> Result<(), Rejected> {
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
