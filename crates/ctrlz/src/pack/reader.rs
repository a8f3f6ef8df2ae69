//! Reads objects from packs, loose files and alternates, in this order. Objects read as a whole are
//! verified against their ids.

use std::collections::{BTreeSet, HashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::{Error, StoreError};
use crate::fs::private::read_small;
use crate::fs::{FileError, Named};
use crate::git::{
    Commit, Hasher, Kind, ObjectId, PackFile, Packed, Tree, hash_object, inflate_loose,
    parse_commit, parse_tree,
};

use super::packs::{MAX_OBJECT_BYTES, Packs, open_packs};

/// Upper bound on the depth of nested alternates, as in git.
const MAX_ALTERNATE_DEPTH: usize = 5;

/// An object directory in git's layout.
pub(crate) struct Objects {
    dir: PathBuf,
    packs: RwLock<Packs>,
    alternates: RwLock<Vec<Objects>>,
    /// Whether `info/alternates` is read.
    borrows: bool,
    /// Held during a refresh, so that an older result never replaces a newer one.
    looking: Mutex<()>,
}

impl Objects {
    /// Opens an object directory and its alternates.
    pub(crate) fn open(dir: &Path) -> Result<Objects, FileError> {
        Objects::open_at_depth(dir, 0)
    }

    /// Opens an object directory without reading its `info/alternates`.
    pub(crate) fn open_alone(dir: &Path) -> Result<Objects, FileError> {
        Objects::open_at_depth(dir, MAX_ALTERNATE_DEPTH)
    }

    fn open_at_depth(dir: &Path, depth: usize) -> Result<Objects, FileError> {
        let packs = RwLock::new(open_packs(dir, &[])?);
        let borrows = depth < MAX_ALTERNATE_DEPTH;
        let alternates = if borrows { alternates_of(dir, depth)? } else { Vec::new() };
        let (alternates, looking) = (RwLock::new(alternates), Mutex::default());
        Ok(Objects { dir: dir.to_owned(), packs, alternates, borrows, looking })
    }

    /// Opens packs that other processes have added or replaced.
    pub(crate) fn refresh(&self) -> Result<(), FileError> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = open_packs(&self.dir, &self.packs())?;
        *self.packs.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        let alternates = if self.borrows { alternates_of(&self.dir, 0)? } else { Vec::new() };
        *self.alternates.write().unwrap_or_else(PoisonError::into_inner) = alternates;
        Ok(())
    }

    fn packs(&self) -> Arc<Vec<Arc<PackFile>>> {
        Arc::clone(&self.packs.read().unwrap_or_else(PoisonError::into_inner).open)
    }

    pub(crate) fn open_packs(&self) -> Vec<Arc<PackFile>> {
        self.packs().to_vec()
    }

    /// Returns the names of all usable packs.
    pub(crate) fn pack_names(&self) -> Vec<String> {
        self.packs().iter().filter_map(|pack| pack.name()).collect()
    }

    /// Returns the unusable packs with the reasons.
    pub(crate) fn damaged_packs(&self) -> Vec<(PathBuf, String)> {
        self.packs.read().unwrap_or_else(PoisonError::into_inner).damaged.clone()
    }

    /// Returns whether this directory itself, without alternates, holds the object.
    ///
    /// A loose object is verified, because a power loss may leave an empty file. An object that was
    /// added after the last refresh may be missed, and is then stored again.
    pub(crate) fn holds(&self, id: &ObjectId) -> bool {
        let packs = self.packs.read().unwrap_or_else(PoisonError::into_inner);
        packs.open.iter().any(|pack| pack.contains(id))
            || (packs.loose && self.read_loose(id).is_ok_and(|found| is_intact(id, found)))
    }

    /// Returns whether this directory itself holds an intact copy of the object.
    pub(crate) fn holds_intact(&self, id: &ObjectId) -> bool {
        self.packs().iter().any(|pack| pack.read(id).is_ok_and(|found| is_intact(id, found)))
            || self.read_loose(id).is_ok_and(|found| is_intact(id, found))
    }

    /// Returns the kind and size of an object. Refreshes once if it is missing.
    pub(crate) fn header(&self, id: &ObjectId) -> Result<Option<(Kind, u64)>, Error> {
        self.refreshing(|| self.header_known(id))
    }

    /// Calls `look`, and once more after a refresh if it does not succeed.
    fn refreshing<T>(
        &self,
        look: impl Fn() -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        if let Ok(Some(found)) = look() {
            return Ok(Some(found));
        }
        self.refresh()?;
        look()
    }

    /// Returns the kind and size of an object without a refresh.
    pub(crate) fn header_known(&self, id: &ObjectId) -> Result<Option<(Kind, u64)>, Error> {
        // A damaged copy does not matter as long as there is an intact one.
        let good = self.packs().iter().find_map(|pack| pack.header(id).ok().flatten());
        if good.is_some() {
            return Ok(good);
        }
        if let Ok(Some((kind, bytes))) = self.read_loose(id) {
            return Ok(Some((kind, bytes.len() as u64)));
        }
        self.first_alternate(|alternate| alternate.header_known(id))
    }

    fn first_alternate<T>(
        &self,
        ask: impl Fn(&Objects) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let alternates = self.alternates.read().unwrap_or_else(PoisonError::into_inner);
        for alternate in alternates.iter() {
            if let Some(found) = ask(alternate)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read_loose(&self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        let hex = id.to_string();
        let path = self.dir.join(&hex[..2]).join(&hex[2..]);
        let Some(file) = read_small(&path, MAX_OBJECT_BYTES)? else { return Ok(None) };
        inflate_loose(&file, MAX_OBJECT_BYTES).map(Some).map_err(|why| Error::damaged(id, why))
    }

    /// Reads and verifies an object. Refreshes once if it is missing.
    pub(crate) fn read(&self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        self.refreshing(|| self.read_known(id))
    }

    /// Reads and verifies an object without a refresh.
    pub(crate) fn read_known(&self, id: &ObjectId) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        let packs = self.packs();
        let packed = packs.iter().map(|pack| pack.read(id).map_err(|why| Error::damaged(id, why)));
        let mut problem = None;
        // A damaged copy does not matter as long as there is an intact one.
        for copy in packed.chain(std::iter::once_with(|| self.read_loose(id))) {
            match copy {
                Ok(Some((kind, bytes))) if hash_object(kind, &bytes) == Some(*id) => {
                    return Ok(Some((kind, bytes)));
                }
                Ok(Some(_)) => {
                    problem = Some(Error::damaged(id, "its bytes do not have this hash"));
                }
                Ok(None) => (),
                Err(error) => problem = Some(error),
            }
        }
        if let Some(found) = self.first_alternate(|alternate| alternate.read_known(id))? {
            return Ok(Some(found));
        }
        problem.map_or(Ok(None), Err)
    }

    /// Reads and verifies an object, with its compressed entry if a pack of an alternate has it.
    pub(crate) fn read_packed(&self, id: &ObjectId) -> Result<Option<Packed>, Error> {
        let of_alternate = self.first_alternate(|alternate| {
            let packs = alternate.packs();
            let found = packs.iter().find_map(|pack| pack.read_packed(id).ok().flatten());
            Ok(found.filter(|found| hash_object(found.kind, &found.bytes) == Some(*id)))
        })?;
        match of_alternate {
            Some(found) => Ok(Some(found)),
            None => Ok(self.read(id)?.map(|(kind, bytes)| Packed { kind, bytes, packed: None })),
        }
    }

    /// Returns every object of this directory, packed or loose.
    pub(crate) fn all_ids(&self) -> Result<BTreeSet<ObjectId>, FileError> {
        let mut ids: BTreeSet<ObjectId> =
            self.packs().iter().flat_map(|pack| pack.ids().collect::<Vec<_>>()).collect();
        for prefix in 0..=255_u8 {
            let prefix = format!("{prefix:02x}");
            let Ok(entries) = std::fs::read_dir(self.dir.join(&prefix)) else { continue };
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            ids.extend(names.filter_map(|name| format!("{prefix}{name}").parse::<ObjectId>().ok()));
        }
        Ok(ids)
    }

    /// Returns all commits in the packs of this directory.
    pub(crate) fn packed_commits(&self) -> Vec<ObjectId> {
        let is_commit =
            |pack: &PackFile, id: &ObjectId| matches!(pack.header(id), Ok(Some((Kind::Commit, _))));
        let packs = self.packs();
        let ids = packs.iter().flat_map(|pack| pack.ids().filter(|id| is_commit(pack, id)));
        ids.collect()
    }

    /// Reads a blob. Fails if it is missing.
    pub(crate) fn blob(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        match self.read(id)? {
            Some((Kind::Blob, bytes)) => Ok(bytes),
            Some((kind, _)) => Err(Error::damaged(id, format!("it is a {kind}, not a blob"))),
            None => Err(Error::missing(id)),
        }
    }

    /// Reads a commit. Fails if it is missing.
    pub(crate) fn commit(&self, id: &ObjectId) -> Result<Commit, Error> {
        let commit = match self.read(id)? {
            Some((Kind::Commit, bytes)) => parse_commit(&bytes),
            Some(_) => None,
            None => return Err(Error::missing(id)),
        };
        commit.ok_or_else(|| Error::damaged(id, "it is not a commit"))
    }

    /// Reads a tree. Fails if it is missing.
    pub(crate) fn tree(&self, id: &ObjectId) -> Result<Tree, Error> {
        if *id == ObjectId::EMPTY_TREE {
            return Ok(Tree::empty());
        }
        match self.read(id)? {
            Some((Kind::Tree, bytes)) => parse_tree(bytes)
                .map_err(|why| Error::Store(StoreError::HostileTree { id: *id, why })),
            Some((kind, _)) => Err(Error::damaged(id, format!("it is a {kind}, not a tree"))),
            None => Err(Error::missing(id)),
        }
    }

    /// Returns up to `max_bytes` bytes from the start of a blob, without verifying them.
    pub(crate) fn blob_head(&self, id: &ObjectId, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let size = self.header(id)?.map_or(0, |(_, size)| size);
        if size > crate::scan::LARGE_FILE_BYTES {
            for pack in self.packs().iter() {
                if let Ok(Some(source)) = pack.stream(id) {
                    let mut head = Vec::new();
                    source
                        .take(max_bytes)
                        .read_to_end(&mut head)
                        .map_err(|why| Error::damaged(id, why))?;
                    return Ok(head);
                }
            }
        }
        let mut bytes = self.blob(id)?;
        bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Streams a blob to `out` if the pack allows it, and verifies it at the end.
    pub(crate) fn copy_blob(&self, id: &ObjectId, out: &mut dyn Write) -> Result<u64, Error> {
        let size = match self.header(id)? {
            Some((Kind::Blob, size)) => size,
            Some((kind, _)) => return Err(Error::damaged(id, format!("it is a {kind}"))),
            None => self.blob(id)?.len() as u64,
        };
        if size > crate::scan::LARGE_FILE_BYTES {
            let packs = self.packs();
            let copies: Vec<&Arc<PackFile>> =
                packs.iter().filter(|pack| matches!(pack.stream(id), Ok(Some(_)))).collect();
            // Written bytes cannot be taken back. If there are several copies, an intact one is
            // chosen by verifying it first.
            let is_good = |pack: &&&Arc<PackFile>| match pack.stream(id) {
                Ok(Some(mut source)) => {
                    copy_checked(id, size, &mut source, &mut std::io::sink()).is_ok()
                }
                Ok(None) | Err(_) => false,
            };
            let chosen = match copies.as_slice() {
                [only] => Some(only),
                several => several.iter().find(is_good),
            };
            if let Some(pack) = chosen
                && let Ok(Some(mut source)) = pack.stream(id)
            {
                return copy_checked(id, size, &mut source, out);
            }
        }
        let bytes = self.blob(id)?;
        out.write_all(&bytes).named("write", Path::new("the restored file"))?;
        Ok(bytes.len() as u64)
    }
}

/// Returns whether an object was found and its bytes have this id.
fn is_intact(id: &ObjectId, found: Option<(Kind, Vec<u8>)>) -> bool {
    found.is_some_and(|(kind, bytes)| hash_object(kind, &bytes) == Some(*id))
}

/// Copies a blob and verifies it at the end.
fn copy_checked(
    id: &ObjectId,
    size: u64,
    source: &mut dyn Read,
    out: &mut dyn Write,
) -> Result<u64, Error> {
    let mut hasher = Hasher::object(Kind::Blob, size);
    let mut buffer = vec![0; 256 * 1024];
    let mut copied = 0;
    loop {
        let count = source.read(&mut buffer).map_err(|why| Error::damaged(id, why))?;
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        out.write_all(&buffer[..count]).named("write", Path::new("the restored file"))?;
        copied += count as u64;
    }
    if copied != size || hasher.finish() != Some(*id) {
        return Err(Error::damaged(id, "its bytes do not have this hash"));
    }
    Ok(copied)
}

/// Returns the alternates of `dir`.
fn alternates_of(dir: &Path, depth: usize) -> Result<Vec<Objects>, FileError> {
    let list = dir.join("info").join("alternates");
    let Some(text) = read_small(&list, 1 << 16)? else { return Ok(Vec::new()) };
    let mut seen = HashSet::new();
    let mut alternates = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = std::os::unix::ffi::OsStrExt::from_bytes(line);
        let path = dir.join(Path::new::<std::ffi::OsStr>(line));
        if path.is_dir() && seen.insert(path.clone()) {
            alternates.push(Objects::open_at_depth(&path, depth + 1)?);
        }
    }
    Ok(alternates)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::pack::PackWriter;

    const LONG_ENOUGH: Duration = Duration::from_secs(2);

    fn publish(objects: &Path, texts: &[String]) -> (Vec<ObjectId>, PathBuf) {
        let writer = PackWriter::new(objects);
        let add = |text: &String| writer.add(Kind::Blob, text.as_bytes(), |_| false).unwrap();
        let ids = texts.iter().map(|text| add(text).unwrap()).collect();
        (ids, writer.publish().unwrap().packs.remove(0))
    }

    fn remove(packs: &[PathBuf]) {
        for pack in packs {
            for extension in ["idx", "pack"] {
                std::fs::remove_file(pack.with_extension(extension)).unwrap();
            }
        }
    }

    /// Hard-links packs under names that were not used before.
    fn link(packs: &[PathBuf], dir: &Path, round: usize) -> Vec<PathBuf> {
        let link = |pack: &PathBuf| {
            let stem = pack.file_stem().unwrap().to_string_lossy();
            let name = dir.join(format!("{stem}-{round}.pack"));
            for extension in ["pack", "idx"] {
                let (from, to) = (pack.with_extension(extension), name.with_extension(extension));
                std::fs::hard_link(from, to).unwrap();
            }
            name
        };
        packs.iter().map(link).collect()
    }

    #[test]
    fn objects_opened_during_a_merge_include_every_object() {
        let dir = tempfile::tempdir().unwrap();
        let (objects, aside) = (dir.path().join("objects"), dir.path().join("aside"));
        let packs = objects.join("pack");
        for dir in [&packs, &aside.join("pack")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let texts: Vec<String> = (0..60).map(|number| format!("text {number}")).collect();
        let (ids, merged) = publish(&aside, &texts);
        let small: Vec<PathBuf> =
            texts.iter().map(|text| publish(&aside, std::slice::from_ref(text)).1).collect();
        let mut here = link(&small, &packs, 0);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let merged = [merged];
                for (round, next) in [&merged[..], &small].into_iter().cycle().enumerate() {
                    // As in a merge, the new packs exist before the old ones are removed.
                    remove(&std::mem::replace(&mut here, link(next, &packs, round + 1)));
                    std::thread::sleep(Duration::from_millis(8));
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let read = || {
                let start = Instant::now();
                let mut missing = 0;
                while start.elapsed() < LONG_ENOUGH {
                    let look = Objects::open(&objects).unwrap();
                    let is_there = |id| matches!(look.read_known(id), Ok(Some(_)));
                    missing += usize::from(!ids.iter().all(is_there));
                }
                missing
            };
            let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
            let missing: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            over.store(true, Ordering::Relaxed);
            assert_eq!(missing, 0);
        });
    }

    #[test]
    fn threads_that_refresh_find_previously_published_objects() {
        let dir = tempfile::tempdir().unwrap();
        let objects = dir.path().join("objects");
        std::fs::create_dir_all(objects.join("pack")).unwrap();
        publish(&objects, &["first".into()]);
        let shared = Objects::open(&objects).unwrap();
        let work = &|thread: usize| {
            let start = Instant::now();
            for round in (0..).take_while(|_| start.elapsed() < LONG_ENOUGH) {
                let (ids, pack) = publish(&objects, &[format!("{thread} {round}")]);
                assert!(matches!(shared.header(&ids[0]), Ok(Some((Kind::Blob, _)))));
                assert!(matches!(shared.read(&ids[0]), Ok(Some(_))), "{thread} {round}");
                remove(&[pack]);
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || work(thread));
            }
        });
    }
}
