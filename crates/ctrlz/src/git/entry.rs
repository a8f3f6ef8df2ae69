//! Headers of pack entries.

use gix_object::Kind;
use gix_pack::data::Entry;
use gix_pack::data::entry::Header;

/// Appends the header of a whole object of `bytes` bytes.
pub(crate) fn put_object_header(out: &mut Vec<u8>, kind: Kind, bytes: u64) {
    let header = match kind {
        Kind::Commit => Header::Commit,
        Kind::Tree => Header::Tree,
        Kind::Blob => Header::Blob,
        Kind::Tag => Header::Tag,
    };
    put(out, header, bytes);
}

/// Appends the header of a delta of `bytes` bytes whose base begins `base_distance` bytes earlier.
pub(crate) fn put_delta_header(out: &mut Vec<u8>, base_distance: u64, bytes: u64) {
    put(out, Header::OfsDelta { base_distance }, bytes);
}

fn put(out: &mut Vec<u8>, header: Header, bytes: u64) {
    header.write_to(bytes, out).expect("memory can be written");
}

/// Returns the uncompressed size of an entry, and its bytes after the header.
pub(crate) fn split_entry(entry: &[u8]) -> Option<(u64, &[u8])> {
    let header = Entry::from_bytes(entry, 0, gix_hash::Kind::Sha1).ok()?;
    Some((header.decompressed_size, entry.get(header.header_size()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back() {
        for bytes in [0, 1, 15, 16, 2047, 2048, u64::from(u32::MAX) + 1] {
            for distance in [None, Some(1), Some(127), Some(128), Some(16_511), Some(1 << 40)] {
                let mut entry = Vec::new();
                match distance {
                    Some(distance) => put_delta_header(&mut entry, distance, bytes),
                    None => put_object_header(&mut entry, Kind::Tree, bytes),
                }
                entry.extend(b"rest");
                assert_eq!(split_entry(&entry), Some((bytes, &b"rest"[..])));
            }
        }
        assert_eq!(split_entry(&[0x80]), None);
    }
}
