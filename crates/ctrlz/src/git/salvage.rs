//! Reading of a pack without its index: entry by entry from the front, up to the first damaged one.

use std::collections::HashMap;

use flate2::{Decompress, FlushDecompress, Status};
use gix_object::Kind;
use gix_pack::data::Entry;
use gix_pack::data::entry::Header;

const HEADER_BYTES: usize = 12;
/// Maximum length of a delta chain, like git's own limit.
const MAX_DEPTH: usize = 4096;

/// Visits the objects of the pack `bytes` and returns their number. Stops at the first entry that
/// is damaged or larger than `max_bytes`.
///
/// Skips deltas whose base cannot be read, for example because it is in another pack. The pack
/// header is not needed and may be damaged.
pub(crate) fn salvage_pack(
    bytes: &[u8],
    max_bytes: usize,
    visit: &mut dyn FnMut(Kind, &[u8]),
) -> usize {
    let mut found: HashMap<usize, Entry> = HashMap::new();
    let (mut at, mut count) = (HEADER_BYTES, 0);
    while let Some((entry, end)) = entry_at(bytes, at, max_bytes) {
        found.insert(at, entry);
        if let Some((kind, object)) = resolve(bytes, &found, at, max_bytes) {
            visit(kind, &object);
            count += 1;
        }
        at = end;
    }
    count
}

/// Returns the entry at an offset, and the offset of its end. Returns `None` if the entry cannot be
/// decoded or has more than `max_bytes`.
fn entry_at(bytes: &[u8], at: usize, max_bytes: usize) -> Option<(Entry, usize)> {
    let entry = Entry::from_bytes(bytes.get(at..)?, at as u64, gix_hash::Kind::Sha1).ok()?;
    if entry.decompressed_size > max_bytes as u64 {
        return None;
    }
    if let Header::OfsDelta { base_distance } = entry.header {
        entry.pack_offset().checked_sub(base_distance)?;
    }
    let (_, packed) = content(bytes, &entry)?;
    let end = entry.data_offset as usize + packed;
    Some((entry, end))
}

/// Decompresses an entry. Returns its bytes with the length of the compressed stream.
fn content(bytes: &[u8], entry: &Entry) -> Option<(Vec<u8>, usize)> {
    inflate(bytes.get(entry.data_offset as usize..)?, entry.decompressed_size as usize)
}

/// Decompresses exactly `size` bytes. Returns them with the length of the compressed stream.
fn inflate(packed: &[u8], size: usize) -> Option<(Vec<u8>, usize)> {
    let mut out = Vec::with_capacity(size + 1);
    let mut stream = Decompress::new(true);
    loop {
        let before = (stream.total_in(), stream.total_out());
        let rest = packed.get(stream.total_in() as usize..)?;
        let status = stream.decompress_vec(rest, &mut out, FlushDecompress::Finish).ok()?;
        if status == Status::StreamEnd {
            return (out.len() == size).then_some((out, stream.total_in() as usize));
        }
        if (stream.total_in(), stream.total_out()) == before || out.len() > size {
            return None;
        }
    }
}

/// Returns the object of the entry at an offset. Returns `None` if a base was not found or is named
/// by its id, or if a delta is invalid.
fn resolve(
    bytes: &[u8],
    found: &HashMap<usize, Entry>,
    at: usize,
    max_bytes: usize,
) -> Option<(Kind, Vec<u8>)> {
    let mut deltas = Vec::new();
    let mut at = at;
    let (kind, mut object) = loop {
        let entry = found.get(&at)?;
        let (data, _) = content(bytes, entry)?;
        match entry.header {
            Header::OfsDelta { base_distance } => {
                deltas.push(data);
                at -= base_distance as usize;
            }
            whole => break (whole.as_kind()?, data),
        }
        if deltas.len() > MAX_DEPTH {
            return None;
        }
    };
    for delta in deltas.iter().rev() {
        object = apply(&object, delta, max_bytes)?;
    }
    Some((kind, object))
}

/// Applies `delta` to `base`. Returns `None` if the delta is invalid.
fn apply(base: &[u8], delta: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
    let mut rest = delta;
    let mut number = || {
        let (mut value, mut shift) = (0_usize, 0);
        loop {
            let (byte, more) = rest.split_first()?;
            rest = more;
            value |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            if shift > 60 {
                return None;
            }
        }
    };
    let (base_size, size) = (number()?, number()?);
    if base_size != base.len() || size > max_bytes {
        return None;
    }
    let mut out = Vec::with_capacity(size);
    while let Some((command, more)) = rest.split_first() {
        rest = more;
        if command & 0x80 == 0 {
            let (text, more) = rest.split_at_checked(usize::from(*command))?;
            rest = more;
            out.extend_from_slice(text);
            continue;
        }
        let mut parts = [0_usize; 7];
        for (bit, part) in parts.iter_mut().enumerate() {
            if command & (1 << bit) != 0 {
                let (byte, more) = rest.split_first()?;
                rest = more;
                *part = usize::from(*byte);
            }
        }
        let offset = parts[0] | (parts[1] << 8) | (parts[2] << 16) | (parts[3] << 24);
        let length = match parts[4] | (parts[5] << 8) | (parts[6] << 16) {
            0 => 0x10000,
            length => length,
        };
        out.extend_from_slice(base.get(offset..offset.checked_add(length)?)?);
        if out.len() > size {
            return None;
        }
    }
    (out.len() == size).then_some(out)
}
