//! Reading of single packs, with every size checked before memory is reserved.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gix_object::Kind;
use gix_pack::data::decode::entry::ResolvedBase;
use gix_pack::data::entry::Header;

use super::bases::{BasesOf, with_state};
use super::id::ObjectId;

/// A pack and its index, whose checksums and object counts agree.
pub(crate) struct PackFile {
    path: PathBuf,
    index: gix_pack::index::File,
    data: gix_pack::data::File,
}

/// An entry in its stored form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawEntry<'a> {
    /// Header and compressed bytes, to be copied verbatim.
    Whole { packed: &'a [u8] },
    /// Compressed bytes of a delta, and its size when decompressed.
    Delta { base: ObjectId, size: u64, packed: &'a [u8] },
}

/// A decoded object.
pub(crate) struct Packed {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    /// Header and compressed bytes, unless the object is stored as a delta.
    pub(crate) packed: Option<Vec<u8>>,
}

/// Kind, content and, unless it is a delta, the range of the entry in the pack.
type Decoded = (Kind, Vec<u8>, Option<Range<u64>>);

/// Description of a defect in a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PackProblem(pub(crate) String);

fn problem(error: impl std::fmt::Display) -> PackProblem {
    PackProblem(error.to_string())
}

impl PackFile {
    /// Opens the pack that `index_path` (`….idx`) describes.
    ///
    /// The two trailers must agree, which detects a truncated or replaced pack without reading it.
    /// No allocation for a single object exceeds `max_object_bytes`.
    pub(crate) fn open(index_path: &Path, max_object_bytes: u64) -> Result<PackFile, PackProblem> {
        let data_path = index_path.with_extension("pack");
        for path in [index_path, &data_path] {
            // Opening a fifo would block forever.
            let meta = path.symlink_metadata().map_err(problem)?;
            if !meta.is_file() {
                return Err(PackProblem("not a regular file".into()));
            }
        }
        let sha1 = gix_hash::Kind::Sha1;
        let index = gix_pack::index::File::at(index_path, sha1).map_err(problem)?;
        let limit = usize::try_from(max_object_bytes).unwrap_or(usize::MAX);
        let mut data = gix_pack::data::File::at(&data_path, sha1)
            .map_err(problem)?
            .with_alloc_limit_bytes(Some(limit));
        // A unique id, so that the base cache does not mistake another pack, or an earlier file of
        // the same name, for this one.
        data.id = OPENED.fetch_add(1, Ordering::Relaxed);
        if index.pack_checksum() != data.checksum() || index.num_objects() != data.num_objects() {
            return Err(PackProblem("pack and index do not belong together".into()));
        }
        Ok(PackFile { path: data_path, index, data })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file name without its extension.
    pub(crate) fn name(&self) -> Option<String> {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.index.lookup(id.to_gix()).is_some()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        (0..self.index.num_objects()).filter_map(|at| self.id_at(at))
    }

    fn id_at(&self, at: u32) -> Option<ObjectId> {
        ObjectId::from_slice(self.index.oid_at_index(at).as_bytes())
    }

    /// Returns the positions in the index, each with the range of its entry in the pack.
    fn ranges(&self) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        let mut ends = self.index.sorted_offsets();
        ends.push(self.data.pack_end() as u64);
        (0..self.index.num_objects()).filter_map(move |at| {
            let start = self.index.pack_offset_at_index(at);
            let end = *ends.get(ends.partition_point(|end| *end <= start))?;
            Some((at, start..end))
        })
    }

    /// Returns the stored form of every intact entry. Omits entries that do not match their CRC-32,
    /// and offset deltas whose base is not in the index.
    pub(crate) fn raw_entries(&self) -> Vec<(ObjectId, RawEntry<'_>)> {
        let by_offset: HashMap<u64, ObjectId> = (0..self.index.num_objects())
            .filter_map(|at| Some((self.index.pack_offset_at_index(at), self.id_at(at)?)))
            .collect();
        let one = |(at, Range { start, end })| {
            let bytes = self.data.entry_slice(start..end)?;
            if self.index.crc32_at_index(at) != Some(crc32fast::hash(bytes)) {
                return None;
            }
            let entry = self.data.entry(start).ok()?;
            let packed = || self.data.entry_slice(entry.data_offset..end);
            let base = match entry.header {
                Header::OfsDelta { base_distance } => {
                    Some(*by_offset.get(&start.checked_sub(base_distance)?)?)
                }
                Header::RefDelta { base_id } => Some(ObjectId::from_slice(base_id.as_bytes())?),
                _ => None,
            };
            let raw = match base {
                Some(base) => {
                    RawEntry::Delta { base, size: entry.decompressed_size, packed: packed()? }
                }
                None => RawEntry::Whole { packed: bytes },
            };
            Some((*by_offset.get(&start)?, raw))
        };
        self.ranges().filter_map(one).collect()
    }

    /// Returns the bytes of the last entry, unless it is a delta.
    pub(crate) fn last_entry(&self) -> Option<&[u8]> {
        let start = *self.index.sorted_offsets().last()?;
        let whole = self.data.entry(start).ok().filter(|entry| !entry.header.is_delta());
        whole.and_then(|_| self.data.entry_slice(start..self.data.pack_end() as u64))
    }

    /// Returns the commits that are not stored as deltas.
    pub(crate) fn whole_commits(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let is_whole = |at: &u32| {
            let entry = self.data.entry(self.index.pack_offset_at_index(*at));
            entry.is_ok_and(|entry| entry.header.as_kind() == Some(Kind::Commit))
        };
        (0..self.index.num_objects()).filter(is_whole).filter_map(|at| self.id_at(at))
    }

    /// Returns the size of each entry in the pack, in bytes.
    pub(crate) fn entry_sizes(&self) -> Vec<(ObjectId, u64)> {
        let one = |(at, range): (u32, Range<u64>)| Some((self.id_at(at)?, range.end - range.start));
        self.ranges().filter_map(one).collect()
    }

    pub(crate) fn object_count(&self) -> u32 {
        self.index.num_objects()
    }

    fn entry(&self, id: &ObjectId) -> Result<Option<gix_pack::data::Entry>, PackProblem> {
        let Some(at) = self.index.lookup(id.to_gix()) else { return Ok(None) };
        let offset = self.index.pack_offset_at_index(at);
        if offset >= self.data.pack_end() as u64 {
            return Err(PackProblem("an entry lies beyond the end of its pack".into()));
        }
        self.data.entry(offset).map(Some).map_err(problem)
    }

    /// Returns the kind and size of an object without decoding all of it.
    pub(crate) fn header(&self, id: &ObjectId) -> Result<Option<(Kind, u64)>, PackProblem> {
        let Some(entry) = self.entry(id)? else { return Ok(None) };
        // The header of an entry that is not a delta holds both.
        if let Some(kind) = entry.header.as_kind() {
            return Ok(Some((kind, entry.decompressed_size)));
        }
        let resolve = |base: &gix_hash::oid| {
            let Some(at) = self.index.lookup(base) else { return Ok(None) };
            let entry = self.data.entry(self.index.pack_offset_at_index(at))?;
            Ok(Some(gix_pack::data::decode::header::ResolvedBase::InPack(entry)))
        };
        let header = with_state(|inflate, _| self.data.decode_header(entry, inflate, &resolve));
        let header = header.map_err(problem)?;
        Ok(Some((header.kind, header.object_size)))
    }

    /// Returns the whole object. The caller has to verify the hash.
    pub(crate) fn read(&self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, PackProblem> {
        Ok(self.decode(id)?.map(|(kind, bytes, _)| (kind, bytes)))
    }

    /// Returns the whole object with its stored form, unless that is a delta.
    pub(crate) fn read_packed(&self, id: &ObjectId) -> Result<Option<Packed>, PackProblem> {
        let Some((kind, bytes, stored)) = self.decode(id)? else { return Ok(None) };
        let packed = stored.and_then(|range| self.data.entry_slice(range)).map(<[u8]>::to_vec);
        Ok(Some(Packed { kind, bytes, packed }))
    }

    /// Decodes an object. Returns the range of its entry too, unless it is a delta.
    fn decode(&self, id: &ObjectId) -> Result<Option<Decoded>, PackProblem> {
        let Some(entry) = self.entry(id)? else { return Ok(None) };
        let (start, data_start) = (entry.pack_offset(), entry.data_offset);
        let is_delta = entry.header.is_delta();
        let mut bytes = Vec::new();
        let resolve = |base: &gix_hash::oid, _: &mut Vec<u8>| {
            let Some(at) = self.index.lookup(base) else { return Ok(None) };
            let entry = self.data.entry(self.index.pack_offset_at_index(at))?;
            Ok(Some(ResolvedBase::InPack(entry)))
        };
        let outcome = with_state(|inflate, bases| {
            let mut bases = BasesOf { entry: data_start, bases };
            self.data.decode_entry(entry, &mut bytes, inflate, &resolve, &mut bases)
        });
        let outcome = outcome.map_err(problem)?;
        let end = data_start + outcome.compressed_size as u64;
        let stored = (!is_delta).then_some(start..end);
        Ok(Some((outcome.kind, bytes, stored)))
    }

    /// Returns a reader over an object's content, or `None` if the object is absent or a delta.
    pub(crate) fn stream(&self, id: &ObjectId) -> Result<Option<impl Read + '_>, PackProblem> {
        let Some(entry) = self.entry(id)? else { return Ok(None) };
        if entry.header.is_delta() {
            return Ok(None);
        }
        let range = entry.data_offset..self.data.pack_end() as u64;
        let bytes = self
            .data
            .entry_slice(range)
            .ok_or_else(|| PackProblem("an entry lies beyond the end of its pack".into()))?;
        Ok(Some(flate2::bufread::ZlibDecoder::new(bytes).take(entry.decompressed_size)))
    }
}

/// Number of packs opened by this process, used as their ids.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Decodes a loose object's file. Fails if the content is larger than `max_bytes`.
pub(crate) fn inflate_loose(file: &[u8], max_bytes: u64) -> Result<(Kind, Vec<u8>), PackProblem> {
    let mut inflated = flate2::bufread::ZlibDecoder::new(file);
    let mut header = Vec::with_capacity(32);
    while header.len() <= 32 && !header.ends_with(b"\0") {
        let mut byte = [0];
        inflated.read_exact(&mut byte).map_err(problem)?;
        header.extend(byte);
    }
    let (kind, size, _) = gix_object::decode::loose_header(&header).map_err(problem)?;
    if size > max_bytes {
        return Err(PackProblem(format!("the object has {size} bytes, more than can be read")));
    }
    let mut bytes = Vec::new();
    inflated.take(size + 1).read_to_end(&mut bytes).map_err(problem)?;
    if bytes.len() as u64 != size {
        return Err(PackProblem("the object is shorter or longer than it says".into()));
    }
    Ok((kind, bytes))
}
