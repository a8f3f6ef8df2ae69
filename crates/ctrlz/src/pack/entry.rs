//! The entries of a pack, as git encodes them.

use std::cell::RefCell;

use flate2::{Compress, Compression, FlushCompress, Status};

use crate::error::Error;
use crate::git::{Kind, ObjectId, put_object_header, split_entry};

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

/// Returns the entry of a whole object.
pub(crate) fn whole_entry(kind: Kind, bytes: &[u8], effort: Effort) -> Vec<u8> {
    let mut packed = Vec::with_capacity(bytes.len() / 2 + 32);
    put_object_header(&mut packed, kind, bytes.len() as u64);
    deflate(bytes, &mut packed, effort);
    packed
}

/// Returns the compression effort of a whole object, from its zlib header.
pub(crate) fn effort_of(entry: &[u8]) -> Effort {
    match split_entry(entry).and_then(|(_, packed)| packed.get(1)).map(|flags| flags >> 6) {
        Some(0) => Effort::Quick,
        Some(_) | None => Effort::Well,
    }
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
