//! Reading of a pack without its index: entry by entry from the front, up to the first damaged one.

use std::collections::HashMap;

use flate2::{Decompress, FlushDecompress, Status};

use super::object::Kind;

const HEADER_BYTES: usize = 12;
/// Maximum length of a delta chain, like git's own limit.
const MAX_DEPTH: usize = 4096;

/// Stored form of an entry.
#[derive(Clone, Copy)]
enum Body {
    Whole(Kind),
    /// A delta against the entry that starts at this offset.
    Delta {
        base: usize,
    },
}

#[derive(Clone, Copy)]
struct Found {
    body: Body,
    data: usize,
    size: usize,
}

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
    let mut found: HashMap<usize, Found> = HashMap::new();
    let (mut at, mut count) = (HEADER_BYTES, 0);
    while let Some((entry, end)) = entry_at(bytes, at, max_bytes) {
        if let Some(entry) = entry {
            found.insert(at, entry);
            if let Some((kind, object)) = resolve(bytes, &found, at, max_bytes) {
                visit(kind, &object);
                count += 1;
            }
        }
        at = end;
    }
    count
}

/// Returns the entry at an offset, and the offset of its end. The entry is `None` for a delta that
/// names its base by id, which is not supported. Returns `None` if the entry cannot be decoded.
fn entry_at(bytes: &[u8], at: usize, max_bytes: usize) -> Option<(Option<Found>, usize)> {
    let mut next = at;
    let mut byte = *bytes.get(next)?;
    next += 1;
    let number = (byte >> 4) & 7;
    let (mut size, mut shift) = (usize::from(byte & 15), 4);
    while byte & 0x80 != 0 {
        byte = *bytes.get(next)?;
        next += 1;
        size |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if shift > 60 {
            return None;
        }
    }
    if size > max_bytes {
        return None;
    }
    let body = match number {
        1 => Some(Body::Whole(Kind::Commit)),
        2 => Some(Body::Whole(Kind::Tree)),
        3 => Some(Body::Whole(Kind::Blob)),
        4 => Some(Body::Whole(Kind::Tag)),
        6 => {
            let mut byte = *bytes.get(next)?;
            next += 1;
            let mut distance = usize::from(byte & 0x7f);
            while byte & 0x80 != 0 {
                byte = *bytes.get(next)?;
                next += 1;
                distance = distance.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
            }
            Some(Body::Delta { base: at.checked_sub(distance)? })
        }
        7 => {
            next += 20;
            None
        }
        _ => return None,
    };
    let (_, packed) = inflate(bytes.get(next..)?, size)?;
    Some((body.map(|body| Found { body, data: next, size }), next + packed))
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

fn resolve(
    bytes: &[u8],
    found: &HashMap<usize, Found>,
    at: usize,
    max_bytes: usize,
) -> Option<(Kind, Vec<u8>)> {
    let mut deltas = Vec::new();
    let mut at = at;
    let (kind, mut object) = loop {
        let entry = found.get(&at)?;
        let (data, _) = inflate(bytes.get(entry.data..)?, entry.size)?;
        match entry.body {
            Body::Whole(kind) => break (kind, data),
            Body::Delta { base } => {
                deltas.push(data);
                at = base;
            }
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
