//! Reads the entries of a received pack.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use crate::git::{Hasher, Kind, ObjectId};
use crate::scan::Progress;

use super::rejected::Rejected;

/// Upper bound on the size of deltas, of their bases and of their results.
pub(super) const MAX_DELTA_BYTES: u64 = 64 << 20;
/// Upper bound on the size of trees and commits.
const MAX_MEMORY_BYTES: u64 = 256 << 20;
pub(super) const OFFSET_DELTA: u8 = 6;
pub(super) const REF_DELTA: u8 = 7;
pub(super) const PACK_HEADER_BYTES: u64 = 12;

/// An entry of the pack that is being indexed.
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) crc: u32,
    pub(super) id: Option<ObjectId>,
    pub(super) base: Option<Base>,
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, Copy)]
pub(super) enum Base {
    At(u64),
    Id(ObjectId),
}

/// Reads a pack from its beginning and hashes the bytes read.
pub(super) struct Taker {
    pub(super) input: BufReader<File>,
    pub(super) at: u64,
    pub(super) seen: Option<(Hasher, crc32fast::Hasher)>,
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
    pub(super) fn take_bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes).map_err(|_| "it ends too early".to_owned())?;
        Ok(bytes)
    }

    pub(super) fn parts(
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
    pub(super) fn header(&mut self) -> Result<(u8, u64), String> {
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

    pub(super) fn distance(&mut self) -> Result<u64, String> {
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
            return Err(format!("a {kind} has {size} bytes"));
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
    pub(super) fn inflate(&mut self, size: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), String> {
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
    match number {
        1 => Some(Kind::Commit),
        2 => Some(Kind::Tree),
        3 => Some(Kind::Blob),
        _ => None,
    }
}
