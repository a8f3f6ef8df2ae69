//! Writes a git bundle.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::error::{Error, StoreError};
use crate::fs::{Named, private};
use crate::git::{Kind, ObjectId, RawEntry, hash_object, put_delta_header, put_object_header};
use crate::pack::{Effort, HashedFile, deflated};
use crate::scan::Progress;
use crate::store::Store;

use super::bundle::SIGNATURE;
use super::entries::PACK_HEADER_BYTES;

/// Objects that no store holds yet.
pub(crate) type Extra = BTreeMap<ObjectId, (Kind, Vec<u8>)>;

/// Adds an object that the store does not hold. Returns its id.
pub(super) fn put(extra: &mut Extra, kind: Kind, bytes: Vec<u8>) -> ObjectId {
    // Hashing fails only for a SHA-1 collision attack, which objects that we encode do not contain.
    let id = hash_object(kind, &bytes).unwrap_or(ObjectId::NULL);
    extra.insert(id, (kind, bytes));
    id
}

/// Refs and objects to write into a bundle.
pub(crate) struct Contents<'a> {
    pub(crate) refs: &'a [(String, ObjectId)],
    /// Objects of the store.
    pub(crate) objects: &'a [ObjectId],
    pub(crate) extra: &'a Extra,
}

/// Writes a bundle atomically and returns its size in bytes.
pub(crate) fn write_bundle(
    store: &Store,
    path: &Path,
    contents: &Contents<'_>,
    progress: &Progress,
) -> Result<u64, Error> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if path.metadata().is_ok_and(|meta| !meta.is_file()) {
        // The rename would replace a device or a pipe by a file.
        Err(std::io::Error::other("it is not a regular file")).named("replace", path)?;
    }
    private::sweep_exports(parent)?;
    let (temporary, file) = private::create_export(parent)?;
    // `file` stays open and locked until the rename, so that no other process sweeps it.
    let copied = file.try_clone().named("open", &temporary).map_err(Error::from);
    let written = copied.and_then(|copy| write_to(store, &temporary, copy, contents, progress));
    let written = written.and_then(|bytes| {
        std::fs::rename(&temporary, path).named("create", path)?;
        private::sync_dir(parent)?;
        Ok(bytes)
    });
    if written.is_err() {
        // Best effort: the first error is the one to report.
        drop(std::fs::remove_file(&temporary));
    }
    written
}

fn write_to(
    store: &Store,
    path: &Path,
    mut file: File,
    contents: &Contents<'_>,
    progress: &Progress,
) -> Result<u64, Error> {
    let mut header = SIGNATURE.to_vec();
    for (name, id) in contents.refs {
        header.extend(format!("{id} {name}\n").into_bytes());
    }
    header.push(b'\n');
    file.write_all(&header).named("write", path)?;
    let count = contents.objects.len() + contents.extra.len();
    let count = u32::try_from(count).map_err(|_| {
        Error::Store(StoreError::Bomb {
            id: ObjectId::NULL,
            limit: u64::from(u32::MAX),
            what: "objects",
        })
    })?;
    let packs = store.objects.open_packs();
    let stored: HashMap<ObjectId, RawEntry<'_>> =
        packs.iter().flat_map(|pack| pack.raw_entries()).collect();
    let mut writer = EntryWriter {
        store,
        stored: &stored,
        wanted: contents.objects.iter().collect(),
        out: HashedFile::start(file, path, count)?,
        buffer: Vec::new(),
        at: PACK_HEADER_BYTES,
        places: HashMap::new(),
    };
    for id in contents.objects {
        progress.check()?;
        writer.put(*id)?;
    }
    for (id, (kind, bytes)) in contents.extra {
        writer.put_whole(*id, *kind, bytes)?;
    }
    let pack_bytes = writer.finish()?;
    File::open(path).and_then(|file| file.sync_all()).named("flush", path)?;
    Ok(header.len() as u64 + pack_bytes)
}

struct EntryWriter<'a> {
    store: &'a Store,
    stored: &'a HashMap<ObjectId, RawEntry<'a>>,
    wanted: HashSet<&'a ObjectId>,
    out: HashedFile<'a>,
    buffer: Vec<u8>,
    at: u64,
    places: HashMap<ObjectId, u64>,
}

impl EntryWriter<'_> {
    fn put(&mut self, id: ObjectId) -> Result<(), Error> {
        if self.places.contains_key(&id) {
            return Ok(());
        }
        match self.stored.get(&id) {
            Some(RawEntry::Whole { packed }) => self.append(id, &[packed]),
            Some(RawEntry::Delta { base, size, packed }) if self.wanted.contains(base) => {
                // A base precedes its delta. The recursion is shallow: delta chains are short.
                self.put(*base)?;
                let mut header = Vec::new();
                put_delta_header(&mut header, self.at - self.places[base], *size);
                self.append(id, &[&header, packed])
            }
            Some(RawEntry::Delta { .. }) | None => {
                let found = self.store.objects.read(&id)?;
                let (kind, bytes) = found.ok_or_else(|| Error::missing(&id))?;
                self.put_whole(id, kind, &bytes)
            }
        }
    }

    fn put_whole(&mut self, id: ObjectId, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
        let mut header = Vec::new();
        put_object_header(&mut header, kind, bytes.len() as u64);
        self.append(id, &[&header, &deflated(bytes, Effort::Quick)])
    }

    fn append(&mut self, id: ObjectId, parts: &[&[u8]]) -> Result<(), Error> {
        const MANY_BYTES: usize = 1 << 20;
        self.places.insert(id, self.at);
        for part in parts {
            self.at += part.len() as u64;
            if part.len() > MANY_BYTES {
                self.flush()?;
                self.out.write(part)?;
            } else {
                self.buffer.extend_from_slice(part);
            }
        }
        if self.buffer.len() > MANY_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.out.write(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        self.out.finish()?;
        Ok(self.at + 20)
    }
}
