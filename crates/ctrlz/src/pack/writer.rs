//! Writes new objects as one pack per snapshot, or as a few if they do not fit into memory.
//!
//! Pack and index are written under temporary names and flushed. Then they are renamed, the pack
//! first, because git looks for indexes. Then their directory is flushed. Only then may a ref name
//! them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::defect::Defect;
use crate::error::Error;
use crate::fs::{FileError, Named, private, random_name};
use crate::git::{Kind, ObjectId, hash_object, put_delta_header, put_object_header};
use crate::scan::LargeProblem;

use super::entry::{Effort, whole_entry};
use super::growing::GrowingPack;
use super::index::write_index;
use super::large::stream_deflated;
use super::sizes::Sizes;
use super::temporary::{
    Buffer, Entry, HashedFile, RemoveOnDrop, RemovePack, TEMPORARY, TemporaryPack,
};

/// Bytes of a snapshot that are compressed well. Most steps change only a few files, which fit. The
/// rest is compressed quickly, and well when packs are rewritten.
const WELL_BYTES: u64 = 256 << 10;

/// Size of a tree with about two hundred entries.
const LARGE_TREE_BYTES: usize = 8 << 10;

/// Collects new objects. Everything is removed on drop unless [`PackWriter::publish`] is called.
pub(crate) struct PackWriter {
    pack_dir: PathBuf,
    /// Free disk space to leave.
    reserve_bytes: u64,
    /// Remaining part of [`WELL_BYTES`].
    well_bytes: AtomicU64,
    /// Whether packs are flushed on other threads while the next one is filled.
    aside: bool,
    sizes: Sizes,
    state: Mutex<State>,
    growing: Mutex<Option<GrowingPack>>,
    /// Whether a write failed.
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    seen: HashSet<ObjectId>,
    entries: Vec<Entry>,
    /// Offsets of the entries in the current buffer, for deltas.
    places: HashMap<ObjectId, u64>,
    buffer: Vec<u8>,
    finished: Vec<TemporaryPack>,
    /// Running flushes of complete packs. `publish` flushes the others.
    flushes: HashMap<PathBuf, JoinHandle<Result<(), FileError>>>,
    bytes: u64,
    /// Size of all buffers written so far.
    written: u64,
    /// Trees that are not readable from a pack yet.
    trees: PendingTrees,
}

/// Trees of an unpublished pack.
#[derive(Default)]
struct PendingTrees {
    trees: HashMap<ObjectId, Vec<u8>>,
    bytes: usize,
    /// Whether there were too many to keep.
    incomplete: bool,
}

impl PendingTrees {
    /// Upper bound on the size of the trees kept in memory.
    const MAX_BYTES: usize = 8 << 20;

    fn add(&mut self, id: ObjectId, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.incomplete |= self.bytes > Self::MAX_BYTES;
        if self.incomplete {
            self.trees.clear();
        } else {
            drop(self.trees.insert(id, bytes.to_vec()));
        }
    }
}

/// Result of publishing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Final paths of the packs. One of them may have existed before.
    pub(crate) packs: Vec<PathBuf>,
}

impl PackWriter {
    /// Returns a writer for the object directory `objects`.
    pub(crate) fn new(objects: &Path) -> PackWriter {
        PackWriter {
            pack_dir: objects.join("pack"),
            reserve_bytes: 0,
            well_bytes: AtomicU64::new(WELL_BYTES),
            aside: false,
            sizes: Sizes::now(),
            state: Mutex::default(),
            growing: Mutex::default(),
            failed: AtomicBool::new(false),
        }
    }

    /// Sets the number of threads.
    pub(crate) fn with_threads(mut self, threads: usize) -> PackWriter {
        self.aside = threads > 1;
        self
    }

    /// Sets the free disk space to leave.
    pub(crate) fn leaving(mut self, bytes: u64) -> PackWriter {
        self.reserve_bytes = bytes;
        self
    }

    fn check_space(&self, needed_bytes: u64) -> Result<(), Error> {
        if self.reserve_bytes == 0 || needed_bytes == 0 {
            return Ok(());
        }
        // On a small disk the reserve is at most 2% of its size.
        let reserve = self.reserve_bytes.min(crate::fs::total_bytes(&self.pack_dir)? / 50);
        crate::fs::check_free(&self.pack_dir, |_| needed_bytes.saturating_add(reserve))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the compressed size of the objects so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Returns whether this writer has the object.
    pub(crate) fn has(&self, id: &ObjectId) -> bool {
        self.state().seen.contains(id)
    }

    /// Returns an unpublished tree. The outer `None` means that there were too many to keep.
    #[expect(clippy::option_option, reason = "not added and not kept differ")]
    pub(crate) fn pending_tree(&self, id: &ObjectId) -> Option<Option<Vec<u8>>> {
        let state = self.state();
        (!state.trees.incomplete).then(|| state.trees.trees.get(id).cloned())
    }

    /// Adds an object unless `exists` returns true. Returns `None` for a SHA-1 collision attack.
    pub(crate) fn add(
        &self,
        kind: Kind,
        bytes: &[u8],
        exists: impl Fn(&ObjectId) -> bool,
    ) -> Result<Option<ObjectId>, Error> {
        let Some(id) = hash_object(kind, bytes) else { return Ok(None) };
        self.add_hashed(id, kind, bytes, exists)?;
        Ok(Some(id))
    }

    /// Adds an object with a known id.
    pub(crate) fn add_hashed(
        &self,
        id: ObjectId,
        kind: Kind,
        bytes: &[u8],
        exists: impl Fn(&ObjectId) -> bool,
    ) -> Result<(), Error> {
        if self.has(&id) || exists(&id) {
            return Ok(());
        }
        if kind == Kind::Tree {
            self.state().trees.add(id, bytes);
        }
        let effort = match kind {
            // A large tree consists mostly of ids, which do not compress.
            Kind::Tree if bytes.len() > LARGE_TREE_BYTES => Effort::Quick,
            Kind::Blob | Kind::Tree | Kind::Commit | Kind::Tag => self.effort(bytes.len() as u64),
        };
        self.add_raw(id, &whole_entry(kind, &as_stored(kind, bytes), effort))
    }

    /// Returns the effort for an object of `bytes`, and deducts it from the budget.
    fn effort(&self, bytes: u64) -> Effort {
        let take = |left: u64| left.checked_sub(bytes);
        match self.well_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Effort::Well,
            Err(_) => Effort::Quick,
        }
    }

    /// Adds a compressed entry of another pack.
    pub(crate) fn add_raw(&self, id: ObjectId, packed: &[u8]) -> Result<(), Error> {
        let crc = crc32fast::hash(packed);
        let mut state = self.state();
        // Another thread may have added it.
        if !state.seen.insert(id) {
            return Ok(());
        }
        state.push(id, crc, packed);
        self.write_out_if_full(state)
    }

    /// Writes a full buffer to disk. Other threads continue meanwhile.
    fn write_out_if_full(&self, mut state: MutexGuard<'_, State>) -> Result<(), Error> {
        if state.buffer.len() as u64 <= self.sizes.buffer_bytes {
            return Ok(());
        }
        let enough_bytes = self.enough_bytes(state.written);
        let full = state.take_buffer();
        drop(state);
        let pack = self.write_out(full, enough_bytes);
        if pack.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        let mut state = self.state();
        pack?.into_iter().for_each(|pack| self.finish(&mut state, pack));
        Ok(())
    }

    /// Returns the size at which the next pack is closed, given the bytes written so far.
    ///
    /// The command waits until the last pack is hashed and flushed, so that pack should be small
    /// compared with the previous ones. With a single thread, fewer packs are better.
    fn enough_bytes(&self, written: u64) -> u64 {
        if self.aside { (written / 4).min(self.sizes.pack_bytes) } else { self.sizes.pack_bytes }
    }

    /// Writes entries to the growing pack or to one of their own. Returns the pack if it is
    /// complete.
    fn write_out(&self, full: Buffer, enough_bytes: u64) -> Result<Option<TemporaryPack>, Error> {
        self.check_space(full.bytes.len() as u64)?;
        let mut growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pack = match growing.take() {
            Some(pack) => pack,
            None if full.entries.is_empty() => return Ok(None),
            None if full.bytes.len() as u64 >= enough_bytes => {
                drop(growing);
                return self.write_pack(full).map(Some);
            }
            None => {
                let (path, file) = self.temporary()?;
                GrowingPack::start(path, file)?
            }
        };
        pack.append(full)?;
        if pack.bytes() < enough_bytes {
            *growing = Some(pack);
            return Ok(None);
        }
        // Other threads may begin the next pack while this one is hashed.
        drop(growing);
        pack.close().map(Some)
    }

    /// Adds a complete pack and starts its flush.
    fn finish(&self, state: &mut State, pack: TemporaryPack) {
        if self.aside {
            let path = pack.path.clone();
            let flush = std::thread::Builder::new().spawn(move || flush_pack(&path));
            // If no thread can be started, `publish` flushes the pack.
            state.flushes.extend(flush.ok().map(|flush| (pack.path.clone(), flush)));
        }
        state.finished.push(pack);
    }

    /// Adds a compressed delta. Returns `false` if its base is not in the current buffer.
    pub(crate) fn add_delta(
        &self,
        id: ObjectId,
        base: ObjectId,
        delta_bytes: u64,
        packed: &[u8],
    ) -> Result<bool, Error> {
        let mut state = self.state();
        let Some(base_at) = state.places.get(&base).copied() else { return Ok(false) };
        if !state.seen.insert(id) {
            return Ok(true);
        }
        let mut entry = Vec::with_capacity(packed.len() + 16);
        put_delta_header(&mut entry, state.buffer.len() as u64 - base_at, delta_bytes);
        entry.extend_from_slice(packed);
        state.push(id, crc32fast::hash(&entry), &entry);
        self.write_out_if_full(state)?;
        Ok(true)
    }

    /// Streams a blob of `bytes` bytes into a pack of its own.
    pub(crate) fn add_large(
        &self,
        bytes: u64,
        source: &mut dyn Read,
        exists: impl Fn(&ObjectId) -> bool,
    ) -> Result<ObjectId, LargeProblem> {
        // Incompressible data takes its full size.
        self.check_space(bytes)?;
        let (path, file) = self.temporary()?;
        let guard = RemoveOnDrop(Some(path.clone()));
        let mut out = HashedFile::start(file, &path, 1)?;
        let mut header = Vec::new();
        put_object_header(&mut header, Kind::Blob, bytes);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&header);
        out.write(&header)?;
        let id = stream_deflated(bytes, source, &mut out, &mut crc)?;
        if self.has(&id) || exists(&id) {
            return Ok(id);
        }
        let checksum = out.finish()?;
        let mut state = self.state();
        if state.seen.insert(id) {
            let entries = vec![Entry { id, crc: crc.finalize(), offset: 0 }];
            self.finish(&mut state, TemporaryPack { path, entries, checksum });
            state.bytes += bytes;
            guard.keep();
        }
        Ok(id)
    }

    fn temporary(&self) -> Result<(PathBuf, File), FileError> {
        let path = self.pack_dir.join(format!("{TEMPORARY}{}", random_name()));
        let file = private::create(&path)?;
        Ok((path, file))
    }

    /// Writes entries as a temporary pack.
    fn write_pack(&self, full: Buffer) -> Result<TemporaryPack, Error> {
        let Buffer { entries, bytes } = full;
        let (path, file) = self.temporary()?;
        let guard = RemoveOnDrop(Some(path.clone()));
        let mut out = HashedFile::start(file, &path, entries.len() as u32)?;
        out.write(&bytes)?;
        let checksum = out.finish()?;
        guard.keep();
        Ok(TemporaryPack { path, entries, checksum })
    }

    /// Makes all objects durable and visible. No ref may name them before this returns.
    pub(crate) fn publish(self) -> Result<Published, Error> {
        if self.failed.load(Ordering::Relaxed) {
            let lost = std::io::Error::other("some of it could not be written");
            return Ok(Err(lost).named("publish", &self.pack_dir)?);
        }
        let mut state = std::mem::take(&mut *self.state());
        let rest = self.write_out(state.take_buffer(), 0);
        let rest = rest.map(|pack| pack.into_iter().for_each(|pack| self.finish(&mut state, pack)));
        let mut packs: Vec<RemovePack> = state.finished.drain(..).map(RemovePack).collect();
        rest?;
        let mut published = Published::default();
        for RemovePack(pack) in &packs {
            write_index(pack)?;
            published.objects += pack.entries.len() as u64;
        }
        for RemovePack(pack) in &packs {
            match state.flushes.remove(&pack.path).map(JoinHandle::join) {
                Some(Ok(flushed)) => flushed?,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => flush_pack(&pack.path)?,
            }
        }
        for pack in packs.drain(..) {
            let (path, bytes) = pack.rename_into(&self.pack_dir)?;
            published.packs.push(path);
            published.bytes += bytes;
        }
        if published.objects > 0 {
            private::sync_dir(&self.pack_dir)?;
        }
        Ok(published)
    }
}

fn flush_pack(path: &Path) -> Result<(), FileError> {
    private::flush(&File::open(path).named("flush", path)?, path)
}

/// Returns the bytes unchanged, except in tests that inject a defect.
fn as_stored(kind: Kind, bytes: &[u8]) -> Cow<'_, [u8]> {
    if Defect::Damaged.is_made() && kind == Kind::Blob {
        bytes.iter().map(|byte| byte ^ 1).collect()
    } else {
        Cow::Borrowed(bytes)
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        let finished = std::mem::take(&mut self.state().finished);
        drop(finished.into_iter().map(RemovePack).collect::<Vec<_>>());
    }
}

impl State {
    fn push(&mut self, id: ObjectId, crc: u32, packed: &[u8]) {
        let offset = self.buffer.len() as u64;
        self.entries.push(Entry { id, crc, offset });
        self.places.insert(id, offset);
        self.buffer.extend_from_slice(packed);
        self.bytes += packed.len() as u64;
    }

    fn take_buffer(&mut self) -> Buffer {
        self.places.clear();
        self.written += self.buffer.len() as u64;
        let (entries, bytes) =
            (std::mem::take(&mut self.entries), std::mem::take(&mut self.buffer));
        Buffer { entries, bytes }
    }
}

/// Adds an object created by ctrlz, such as a tree or a commit.
pub(crate) fn add(
    pack: &PackWriter,
    kind: Kind,
    bytes: &[u8],
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    pack.add(kind, bytes, exists)?.ok_or_else(|| attack(kind))
}

/// Returns the error for a SHA-1 collision in such an object, which needs crafted file names.
pub(crate) fn attack(kind: Kind) -> Error {
    Error::damaged(&ObjectId::NULL, format!("a {kind} of ours attacks the hash"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Hasher;
    use crate::pack::deflated;

    /// With 1 thread the publishing thread flushes; with 2 another one does when the pack is
    /// complete.
    #[test]
    fn a_pack_that_could_not_be_flushed_is_not_published() {
        for threads in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            let pack_dir = dir.path().join("pack");
            std::fs::create_dir(&pack_dir).unwrap();
            let writer = PackWriter::new(dir.path()).with_threads(threads);
            writer.add(Kind::Blob, b"text", |_| false).unwrap();
            let full = writer.state().take_buffer();
            let pack = writer.write_pack(full).unwrap();
            // Can be renamed, but not opened.
            std::fs::remove_file(&pack.path).unwrap();
            std::os::unix::fs::symlink("nowhere", &pack.path).unwrap();
            writer.finish(&mut writer.state(), pack);
            let error = writer.publish().unwrap_err();
            assert!(error.to_string().contains("flush"), "{error}");
            let left = std::fs::read_dir(&pack_dir).unwrap().count();
            assert_eq!(left, 0, "with {threads} threads");
        }
    }

    fn small() -> Sizes {
        Sizes { buffer_bytes: 2_000, pack_bytes: 16_000 }
    }

    fn random_bytes(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        crate::fs::fill_random(&mut bytes);
        bytes
    }

    fn pack_dir_of(dir: &Path) -> PathBuf {
        let pack_dir = dir.join("pack");
        std::fs::create_dir(&pack_dir).unwrap();
        pack_dir
    }

    /// Checks the header and the checksum of a pack and returns the number of its entries.
    fn entries_of(pack: &PathBuf) -> u32 {
        let bytes = std::fs::read(pack).unwrap();
        let (content, checksum) = bytes.split_at(bytes.len() - 20);
        let mut hasher = Hasher::raw();
        hasher.update(content);
        assert_eq!(hasher.finish().unwrap().as_bytes(), checksum);
        let (magic, count) = content[..12].split_at(8);
        assert_eq!(magic, b"PACK\0\0\0\x02");
        u32::from_be_bytes(count.try_into().unwrap())
    }

    /// Adds blobs and deltas against them, on one thread and on several, and one large blob.
    #[test]
    fn a_growing_pack_contains_every_object() {
        for threads in [1, 4] {
            let dir = tempfile::tempdir().unwrap();
            pack_dir_of(dir.path());
            let mut writer = PackWriter::new(dir.path()).with_threads(threads);
            writer.sizes = small();
            let add = |number: usize| {
                let text: Vec<u8> = (0..40 + number % 7)
                    .flat_map(|_| (random_name() + "\n").into_bytes())
                    .collect();
                let id = writer.add(Kind::Blob, &text, |_| false).unwrap().unwrap();
                let next = [&text[..], b"and more"].concat();
                let next_id = hash_object(Kind::Blob, &next).unwrap();
                let delta = super::super::delta::delta(Kind::Blob, &text, &next).unwrap();
                let packed = deflated(&delta, Effort::Well);
                if !writer.add_delta(next_id, id, delta.len() as u64, &packed).unwrap() {
                    writer.add(Kind::Blob, &next, |_| false).unwrap();
                }
                [(id, text), (next_id, next)]
            };
            let add_many = |first: usize| -> Vec<(ObjectId, Vec<u8>)> {
                (first..first + 100).flat_map(add).collect()
            };
            let mut texts: Vec<(ObjectId, Vec<u8>)> = std::thread::scope(|scope| {
                let others: Vec<_> = (0..threads)
                    .map(|thread| scope.spawn(move || add_many(1_000 * thread)))
                    .collect();
                others.into_iter().flat_map(|other| other.join().unwrap()).collect()
            });
            let large = random_bytes(20_000);
            let large_id = writer.add_large(20_000, &mut &large[..], |_| false).unwrap();
            texts.push((large_id, large));
            texts.extend(add_many(10_000));
            let published = writer.publish().unwrap();
            assert_eq!(published.objects, texts.len() as u64);
            assert_eq!(published.packs.iter().map(entries_of).sum::<u32>() as usize, texts.len());
            let sum: usize = texts.iter().map(|(_, text)| text.len()).sum();
            // Packs reach their full size. Half of the objects are deltas.
            assert!(published.packs.len() < sum / 2 / 8_000 + 10, "{}", published.packs.len());
            let objects = super::super::Objects::open(dir.path()).unwrap();
            for (id, text) in texts {
                assert_eq!(objects.read_known(&id).unwrap(), Some((Kind::Blob, text)));
            }
        }
    }

    #[test]
    fn a_pack_that_reads_back_differently_is_not_published() {
        let dir = tempfile::tempdir().unwrap();
        let pack_dir = pack_dir_of(dir.path());
        let mut writer = PackWriter::new(dir.path());
        writer.sizes = small();
        for _ in 0..10 {
            writer.add(Kind::Blob, &random_bytes(1_000), |_| false).unwrap();
        }
        let growing = std::fs::read_dir(&pack_dir).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&growing).unwrap();
        bytes[1_500] ^= 1;
        std::fs::write(&growing, bytes).unwrap();
        let error = writer.publish().unwrap_err();
        assert!(error.to_string().contains("read back"), "{error}");
        assert_eq!(std::fs::read_dir(&pack_dir).unwrap().count(), 0);
    }

    #[test]
    fn an_abandoned_pack_leaves_no_files() {
        let dir = tempfile::tempdir().unwrap();
        let pack_dir = pack_dir_of(dir.path());
        let mut writer = PackWriter::new(dir.path());
        writer.sizes = small();
        for _ in 0..50 {
            writer.add(Kind::Blob, &random_bytes(1_000), |_| false).unwrap();
        }
        assert!(std::fs::read_dir(&pack_dir).unwrap().count() > 1);
        drop(writer);
        assert_eq!(std::fs::read_dir(&pack_dir).unwrap().count(), 0);
    }

    /// A caller that ignores the error must not get a snapshot without the lost objects.
    #[test]
    fn after_a_failed_write_nothing_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let pack_dir = pack_dir_of(dir.path());
        let mut writer = PackWriter::new(dir.path());
        writer.sizes = small();
        std::fs::remove_dir(&pack_dir).unwrap();
        let add = || writer.add(Kind::Blob, &random_bytes(3_000), |_| false);
        add().unwrap_err();
        std::fs::create_dir(&pack_dir).unwrap();
        add().unwrap();
        writer.publish().unwrap_err();
        assert_eq!(std::fs::read_dir(&pack_dir).unwrap().count(), 0);
    }

    /// Computes the number of packs for a number of full buffers, with the default sizes.
    #[test]
    fn packs_are_few_and_the_last_one_is_comparatively_small() {
        let packs_of = |threads: usize, buffers: u64| {
            let writer = PackWriter::new(Path::new("nowhere")).with_threads(threads);
            let buffer = writer.sizes.buffer_bytes;
            let (mut packs, mut growing) = (Vec::new(), 0);
            for number in 0..buffers {
                growing += buffer;
                if growing >= writer.enough_bytes(number * buffer) {
                    packs.push(std::mem::take(&mut growing));
                }
            }
            (packs, growing, buffers * buffer)
        };
        for buffers in 0..500 {
            let (packs, last, sum) = packs_of(2, buffers);
            assert!(last <= (sum / 4).min(Sizes::USUAL.pack_bytes), "{buffers}: {last} of {sum}");
            assert!(packs.len() as u64 <= 15 + sum / Sizes::USUAL.pack_bytes, "{buffers}");
            let (packs, _, sum) = packs_of(1, buffers);
            assert_eq!(packs.len() as u64, sum / Sizes::USUAL.pack_bytes);
        }
    }

    /// Id, text and compressed delta.
    type Version = (ObjectId, Vec<u8>, Vec<u8>);

    /// Writes a pack of versions, each a delta against the previous one.
    fn pack_of_versions(dir: &Path, word: &str) -> (PathBuf, Vec<Version>) {
        let writer = PackWriter::new(dir);
        let text = |version: usize| -> Vec<u8> {
            let line =
                |at: usize| format!("{at} {}\n", if at == version || at == 50 { word } else { "" });
            (0..100).flat_map(|at| line(at).into_bytes()).collect()
        };
        let first = writer.add(Kind::Blob, &text(0), |_| false).unwrap().unwrap();
        let mut versions = vec![(first, text(0), Vec::new())];
        for version in 1..40 {
            let (base, before, _) = versions.last().unwrap();
            let delta = super::super::delta::delta(Kind::Blob, before, &text(version)).unwrap();
            let packed = deflated(&delta, Effort::Well);
            let id = hash_object(Kind::Blob, &text(version)).unwrap();
            assert!(writer.add_delta(id, *base, delta.len() as u64, &packed).unwrap());
            versions.push((id, text(version), packed));
        }
        (writer.publish().unwrap().packs.remove(0), versions)
    }

    /// Bases are cached, but not across packs, and the requested object itself is not cached.
    #[test]
    fn objects_are_read_from_their_own_pack() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pack")).unwrap();
        let open =
            |path: &Path| crate::git::PackFile::open(&path.with_extension("idx"), 1 << 20).unwrap();
        let read = |pack: &crate::git::PackFile, id: &ObjectId| {
            pack.read(id).ok().flatten().map(|(_, bytes)| bytes)
        };
        let (path, versions) = pack_of_versions(dir.path(), "one");
        // A word of the same length, so that all offsets are equal.
        let (other_path, others) = pack_of_versions(dir.path(), "neo");
        let (pack, other) = (open(&path), open(&other_path));
        let pairs = || versions.iter().zip(&others);
        for ((id, text, _), (other_id, other_text, _)) in pairs().rev().chain(pairs()) {
            assert_eq!(read(&pack, id).as_ref(), Some(text));
            assert_eq!(read(&other, other_id).as_ref(), Some(other_text));
        }
        let (id, text, packed) = &versions[20];
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(packed.len()).position(|part| part == packed).unwrap();
        bytes[at + packed.len() / 2] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        assert_ne!(read(&pack, id).as_ref(), Some(text), "served from a cache instead of the pack");
    }
}
