//! The index of a pack, version 2.

use std::io::Write;

use crate::error::Error;
use crate::fs::{Named, private};
use crate::git::{Hasher, ObjectId};

use super::entry::PACK_HEADER_BYTES;
use super::temporary::{Entry, TemporaryPack, temporary_file};

/// Writes and flushes the version 2 index beside a temporary pack.
pub(crate) fn write_index(pack: &TemporaryPack) -> Result<(), Error> {
    let mut entries: Vec<&Entry> = pack.entries.iter().collect();
    entries.sort_unstable_by_key(|entry| entry.id);
    let mut bytes = b"\xfftOc\0\0\0\x02".to_vec();
    let mut counts = [0_u32; 256];
    for entry in &entries {
        counts[usize::from(entry.id.as_bytes()[0])] += 1;
    }
    let mut total = 0_u32;
    for count in counts {
        total += count;
        bytes.extend(total.to_be_bytes());
    }
    for entry in &entries {
        bytes.extend(entry.id.as_bytes());
    }
    for entry in &entries {
        bytes.extend(entry.crc.to_be_bytes());
    }
    // Offsets beyond two gigabytes are in a table of their own. Only imported packs are that large.
    const FAR: u32 = 1 << 31;
    let mut far: Vec<u64> = Vec::new();
    for entry in &entries {
        let offset = entry.offset + PACK_HEADER_BYTES;
        let near = u32::try_from(offset).ok().filter(|offset| *offset < FAR);
        let listed = near.unwrap_or(FAR | far.len() as u32);
        bytes.extend(listed.to_be_bytes());
        if near.is_none() {
            far.push(offset);
        }
    }
    bytes.extend(far.into_iter().flat_map(u64::to_be_bytes));
    bytes.extend(pack.checksum.as_bytes());
    let mut hasher = Hasher::raw();
    hasher.update(&bytes);
    let attacked = || Error::damaged(&ObjectId::NULL, "the pack's index attacks its own checksum");
    let sum = hasher.finish().ok_or_else(attacked)?;
    bytes.extend(sum.as_bytes());
    let path = temporary_file(&pack.path, "idx");
    let mut file = private::create(&path)?;
    file.write_all(&bytes).named("write", &path)?;
    private::flush(&file, &path)?;
    Ok(())
}
