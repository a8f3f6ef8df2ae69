//! Reading packs, one at a time, with every size checked before memory is reserved.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use gix_pack::data::decode::entry::ResolvedBase;

use super::id::ObjectId;
use super::object::Kind;

/// A pack and its index, known to belong together and to be complete in length.
pub(crate) struct PackFile {
    path: PathBuf,
    index: gix_pack::index::File,
    data: gix_pack::data::File,
}

/// An entry as a pack stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawEntry<'a> {
    /// Header and compressed bytes, to be copied as they are.
    Whole { packed: &'a [u8] },
    /// The compressed bytes of a delta, which has `size` bytes.
    Delta { base: ObjectId, size: u64, packed: &'a [u8] },
}

/// An object that was read.
pub(crate) struct Packed {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    /// Header and compressed bytes, if it is stored whole in a pack.
    pub(crate) packed: Option<Vec<u8>>,
}

/// Kind, content and, unless it is a delta, where it is stored.
type Decoded = (Kind, Vec<u8>, Option<Range<u64>>);

/// What is wrong with a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PackProblem(pub(crate) String);

fn problem(error: impl std::fmt::Display) -> PackProblem {
    PackProblem(error.to_string())
}

impl PackFile {
    /// Opens the pack that `index_path` (`….idx`) describes.
    ///
    /// The two trailers must agree: that catches a truncated or replaced pack without reading it.
    /// No allocation for a single object exceeds `max_object_bytes`.
    pub(crate) fn open(index_path: &Path, max_object_bytes: u64) -> Result<PackFile, PackProblem> {
        let data_path = index_path.with_extension("pack");
        for path in [index_path, &data_path] {
            // Opening a fifo would wait for ever.
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
        // Of its own, so that nothing of another pack, or of this one before, is taken for its base.
        data.id = OPENED.fetch_add(1, Ordering::Relaxed);
        if index.pack_checksum() != data.checksum() || index.num_objects() != data.num_objects() {
            return Err(PackProblem("pack and index do not belong together".into()));
        }
        Ok(PackFile { path: data_path, index, data })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name without an extension.
    pub(crate) fn name(&self) -> Option<String> {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.index.lookup(id.to_gix()).is_some()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        (0..self.index.num_objects())
            .filter_map(|at| ObjectId::from_slice(self.index.oid_at_index(at).as_bytes()))
    }

    /// Every intact entry as it is stored. One whose bytes do not fit their checksum, or whose
    /// base is not in this pack, is left out.
    pub(crate) fn raw_entries(&self) -> Vec<(ObjectId, RawEntry<'_>)> {
        let mut ends = self.index.sorted_offsets();
        ends.push(self.data.pack_end() as u64);
        let by_offset: std::collections::HashMap<u64, ObjectId> = (0..self.index.num_objects())
            .filter_map(|at| {
                let id = ObjectId::from_slice(self.index.oid_at_index(at).as_bytes())?;
                Some((self.index.pack_offset_at_index(at), id))
            })
            .collect();
        let one = |at: u32| {
            let start = self.index.pack_offset_at_index(at);
            let end = *ends.get(ends.partition_point(|end| *end <= start))?;
            let bytes = self.data.entry_slice(start..end)?;
            if self.index.crc32_at_index(at) != Some(crc32fast::hash(bytes)) {
                return None;
            }
            let entry = self.data.entry(start).ok()?;
            let packed = || self.data.entry_slice(entry.data_offset..end);
            let base = match entry.header {
                gix_pack::data::entry::Header::OfsDelta { base_distance } => {
                    Some(*by_offset.get(&start.checked_sub(base_distance)?)?)
                }
                gix_pack::data::entry::Header::RefDelta { base_id } => {
                    Some(ObjectId::from_slice(base_id.as_bytes())?)
                }
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
        (0..self.index.num_objects()).filter_map(one).collect()
    }

    /// The bytes of the entry at the end, if it is stored whole.
    pub(crate) fn last_entry(&self) -> Option<&[u8]> {
        let start = *self.index.sorted_offsets().last()?;
        let whole = self.data.entry(start).ok().filter(|entry| !entry.header.is_delta());
        whole.and_then(|_| self.data.entry_slice(start..self.data.pack_end() as u64))
    }

    /// The commits that are stored whole.
    pub(crate) fn whole_commits(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let is_whole = |at: &u32| {
            let entry = self.data.entry(self.index.pack_offset_at_index(*at));
            entry.is_ok_and(|entry| entry.header.as_kind() == Some(gix_object::Kind::Commit))
        };
        let id = |at| ObjectId::from_slice(self.index.oid_at_index(at).as_bytes());
        (0..self.index.num_objects()).filter(is_whole).filter_map(id)
    }

    /// What each entry takes in the pack.
    pub(crate) fn entry_sizes(&self) -> Vec<(ObjectId, u64)> {
        let mut ends = self.index.sorted_offsets();
        ends.push(self.data.pack_end() as u64);
        let one = |at: u32| {
            let start = self.index.pack_offset_at_index(at);
            let end = *ends.get(ends.partition_point(|end| *end <= start))?;
            Some((ObjectId::from_slice(self.index.oid_at_index(at).as_bytes())?, end - start))
        };
        (0..self.index.num_objects()).filter_map(one).collect()
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

    /// The kind and size of an object, without reading all of it.
    pub(crate) fn header(&self, id: &ObjectId) -> Result<Option<(Kind, u64)>, PackProblem> {
        let Some(entry) = self.entry(id)? else { return Ok(None) };
        // An object that is stored whole says it in its first bytes.
        if let Some(kind) = entry.header.as_kind() {
            return Ok(Some((kind_of(kind), entry.decompressed_size)));
        }
        let resolve = |base: &gix_hash::oid| {
            let Some(at) = self.index.lookup(base) else { return Ok(None) };
            let entry = self.data.entry(self.index.pack_offset_at_index(at))?;
            Ok(Some(gix_pack::data::decode::header::ResolvedBase::InPack(entry)))
        };
        let header = with_state(|inflate, _| self.data.decode_header(entry, inflate, &resolve));
        let header = header.map_err(problem)?;
        Ok(Some((kind_of(header.kind), header.object_size)))
    }

    /// The whole object. The caller checks the hash.
    pub(crate) fn read(&self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, PackProblem> {
        Ok(self.decode(id)?.map(|(kind, bytes, _)| (kind, bytes)))
    }

    /// The whole object, and how it is stored unless that is a delta.
    pub(crate) fn read_packed(&self, id: &ObjectId) -> Result<Option<Packed>, PackProblem> {
        let Some((kind, bytes, stored)) = self.decode(id)? else { return Ok(None) };
        let packed = stored.and_then(|range| self.data.entry_slice(range)).map(<[u8]>::to_vec);
        Ok(Some(Packed { kind, bytes, packed }))
    }

    /// An object, and the bytes of the pack that it alone takes.
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
        Ok(Some((kind_of(outcome.kind), bytes, stored)))
    }

    /// A reader over an object's bytes if it is stored whole; `None` if it is absent or a delta.
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

/// Packs opened by this process.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Calls `work` with what each thread keeps. Setting up the state for inflating clears tens of
/// kilobytes, which is more work than most small objects are; it is reset before every use.
fn with_state<R>(work: impl FnOnce(&mut gix_zlib::Inflate, &mut Bases) -> R) -> R {
    thread_local! {
        static STATE: RefCell<(gix_zlib::Inflate, Bases)> = RefCell::default();
    }
    STATE.with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => {
            let (inflate, bases) = &mut *kept;
            work(inflate, bases)
        }
        Err(_) => work(&mut gix_zlib::Inflate::default(), &mut Bases::default()),
    })
}

/// Deltas read a moment ago. Versions of a file or a directory are deltas of each other and read one
/// after the other; without this each of them is made from the whole chain below it.
#[derive(Default)]
struct Bases {
    kept: VecDeque<Base>,
    bytes: usize,
}

struct Base {
    pack: u32,
    offset: u64,
    kind: gix_object::Kind,
    packed_bytes: usize,
    bytes: Vec<u8>,
}

impl Bases {
    const MAX_COUNT: usize = 64;
    const MAX_BYTES: usize = 4 << 20;

    fn find(&self, pack: u32, offset: u64) -> Option<&Base> {
        self.kept.iter().rev().find(|base| base.offset == offset && base.pack == pack)
    }

    fn keep(&mut self, base: Base) {
        self.bytes += base.bytes.len();
        self.kept.push_back(base);
        while self.kept.len() > Bases::MAX_COUNT || self.bytes > Bases::MAX_BYTES {
            self.bytes -= self.kept.pop_front().map_or(0, |base| base.bytes.len());
        }
    }
}

/// What may be the base of an entry. The entry itself is always read from the pack: whoever verifies
/// wants to know what is there.
struct BasesOf<'a> {
    entry: u64,
    bases: &'a mut Bases,
}

impl gix_pack::cache::DecodeEntry for BasesOf<'_> {
    fn put(
        &mut self,
        pack: u32,
        offset: u64,
        data: &[u8],
        kind: gix_object::Kind,
        packed_bytes: usize,
    ) {
        if data.len() <= Bases::MAX_BYTES / 4 && self.bases.find(pack, offset).is_none() {
            self.bases.keep(Base { pack, offset, kind, packed_bytes, bytes: data.to_vec() });
        }
    }

    fn get(
        &mut self,
        pack: u32,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> Option<(gix_object::Kind, usize)> {
        let base = self.bases.find(pack, offset).filter(|base| base.offset != self.entry)?;
        out.clear();
        out.extend_from_slice(&base.bytes);
        Some((base.kind, base.packed_bytes))
    }
}

fn kind_of(kind: gix_object::Kind) -> Kind {
    match kind {
        gix_object::Kind::Tree => Kind::Tree,
        gix_object::Kind::Blob => Kind::Blob,
        gix_object::Kind::Commit => Kind::Commit,
        gix_object::Kind::Tag => Kind::Tag,
    }
}

/// Decodes a loose object's file, refusing one that would need more than `max_bytes`.
pub(crate) fn inflate_loose(file: &[u8], max_bytes: u64) -> Result<(Kind, Vec<u8>), PackProblem> {
    let mut inflated = flate2::bufread::ZlibDecoder::new(file);
    let mut header = Vec::with_capacity(32);
    loop {
        let mut byte = [0];
        inflated.read_exact(&mut byte).map_err(problem)?;
        if byte[0] == 0 {
            break;
        }
        header.push(byte[0]);
        if header.len() > 32 {
            return Err(PackProblem("the object's header is malformed".into()));
        }
    }
    let malformed = || PackProblem("the object's header is malformed".into());
    let space = header.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
    let kind = Kind::from_name(&header[..space]).ok_or_else(malformed)?;
    let size = std::str::from_utf8(&header[space + 1..]).ok().and_then(|text| text.parse().ok());
    let size: u64 = size.ok_or_else(malformed)?;
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
