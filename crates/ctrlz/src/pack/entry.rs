//! The entries of a pack, as git encodes them.

use std::cell::RefCell;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::error::Error;
use crate::git::{Kind, ObjectId};

/// Compression effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Level 1, used while a command waits.
    Quick,
    /// Level 6, zlib's default.
    Well,
}

impl Effort {
    pub(super) fn level(self) -> Compression {
        match self {
            Effort::Quick => Compression::new(1),
            Effort::Well => Compression::new(6),
        }
    }
}

pub(crate) const PACK_HEADER_BYTES: u64 = 12;

pub(crate) fn header(entries: u32) -> Vec<u8> {
    let mut header = b"PACK\0\0\0\x02".to_vec();
    header.extend(entries.to_be_bytes());
    header
}

pub(crate) fn attacked() -> Error {
    Error::damaged(&ObjectId::NULL, "the pack attacks its own checksum")
}

/// Appends the header of a pack entry: kind and size, seven bits at a time.
pub(super) fn put_entry_header(out: &mut Vec<u8>, kind: Kind, bytes: u64) {
    put_header(out, kind.pack_number(), bytes);
}

pub(crate) fn put_header(out: &mut Vec<u8>, number: u8, bytes: u64) {
    let mut byte = (number << 4) | (bytes & 0x0f) as u8;
    let mut rest = bytes >> 4;
    while rest > 0 {
        out.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    out.push(byte);
}

/// Appends the distance to a delta's base.
pub(crate) fn put_offset(out: &mut Vec<u8>, distance: u64) {
    let mut bytes = vec![(distance & 0x7f) as u8];
    let mut rest = distance >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.extend(bytes.iter().rev());
}

/// Returns the entry of a whole object.
pub(crate) fn whole_entry(kind: Kind, bytes: &[u8], effort: Effort) -> Vec<u8> {
    let mut packed = Vec::with_capacity(bytes.len() / 2 + 32);
    put_entry_header(&mut packed, kind, bytes.len() as u64);
    deflate(bytes, &mut packed, effort);
    packed
}

/// Returns the compression effort of a whole object, from its zlib header.
pub(crate) fn effort_of(packed: &[u8]) -> Effort {
    const HEADER_GOES_ON: u8 = 0x80;
    let header = packed.iter().take_while(|byte| **byte & HEADER_GOES_ON != 0).count() + 1;
    match packed.get(header + 1).map(|flags| flags >> 6) {
        Some(0) => Effort::Quick,
        Some(_) | None => Effort::Well,
    }
}

/// Returns the uncompressed size of a whole object.
pub(crate) fn size_of(packed: &[u8]) -> u64 {
    let (mut size, mut shift) = (0, 0);
    for (at, byte) in packed.iter().enumerate().take(10) {
        let (mask, bits) = if at == 0 { (0x0f, 4) } else { (0x7f, 7) };
        size |= u64::from(byte & mask).checked_shl(shift).unwrap_or(0);
        shift += bits;
        if byte & 0x80 == 0 {
            break;
        }
    }
    size
}

/// Compresses `bytes`.
pub(crate) fn deflated(bytes: &[u8], effort: Effort) -> Vec<u8> {
    let mut packed = Vec::new();
    deflate(bytes, &mut packed, effort);
    packed
}

thread_local! {
    // Kept per thread, because creating a compressor costs as much as compressing a small file.
    static QUICK: RefCell<Compress> = RefCell::new(Compress::new(Effort::Quick.level(), true));
    static WELL: RefCell<Compress> = RefCell::new(Compress::new(Effort::Well.level(), true));
}

fn deflate(bytes: &[u8], out: &mut Vec<u8>, effort: Effort) {
    let compressor = match effort {
        Effort::Quick => &QUICK,
        Effort::Well => &WELL,
    };
    compressor.with_borrow_mut(|compressor| {
        compressor.reset();
        let mut done = 0;
        loop {
            out.reserve(((bytes.len() - done) / 2).max(256));
            let status = compressor
                .compress_vec(&bytes[done..], out, FlushCompress::Finish)
                .expect("compressing into memory cannot fail");
            done = compressor.total_in() as usize;
            if status == Status::StreamEnd {
                return;
            }
        }
    });
}
