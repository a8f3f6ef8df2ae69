//! Repacking: copies the wanted objects of some packs into new ones, older versions as deltas.
//!
//! Entries that are well compressed are copied verbatim. A version that is older than another in
//! the same pack is stored as a delta against the newer one. So the newest version is always whole,
//! and dropping old versions does not affect new ones.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Error;
use crate::fs::private;
use crate::git::{Kind, ObjectId, PackFile, RawEntry, hash_object};

use crate::pack::{
    Effort, MAX_DELTA_BYTES as MAX_BYTES, PackWriter, Published, deflated, delta, effort_of,
    whole_entry,
};
use crate::store::Store;

/// Size from which packs are not merged, in bytes.
pub(super) const SMALL_BYTES: u64 = 8 << 20;

/// Upper bound on the length of delta chains.
const MAX_DEPTH: usize = 40;

/// Maps each object to its newer version.
#[derive(Default)]
pub(super) struct Versions {
    /// Ids of newer versions, by the id of the older one.
    newer: HashMap<ObjectId, ObjectId>,
    /// All objects, each one after its newer version.
    order: Vec<ObjectId>,
    seen: HashSet<ObjectId>,
}

impl Versions {
    /// Records one object, and the newer version of the same path if there is one.
    fn note(&mut self, id: ObjectId, newer: Option<ObjectId>) {
        if self.seen.insert(id) {
            self.order.push(id);
            // Only an object recorded before can be a base, so that no cycle arises.
            if let Some(newer) = newer.filter(|newer| *newer != id && self.seen.contains(newer)) {
                self.newer.insert(id, newer);
            }
        }
    }

    /// Records consecutive commits and their trees, newest first. Unreadable trees are skipped;
    /// their entries are copied verbatim.
    pub(super) fn follow(&mut self, store: &Store, chain: &[(ObjectId, ObjectId)]) {
        let mut newer: Option<&(ObjectId, ObjectId)> = None;
        for link @ (commit, tree) in chain {
            self.note(*commit, newer.map(|(commit, _)| *commit));
            self.pair(store, *tree, newer.map(|(_, tree)| *tree));
            newer = Some(link);
        }
    }

    fn pair(&mut self, store: &Store, tree: ObjectId, newer: Option<ObjectId>) {
        let mut work = vec![(tree, newer)];
        while let Some((tree, newer)) = work.pop() {
            if Some(tree) == newer || self.seen.contains(&tree) {
                continue;
            }
            self.note(tree, newer);
            let Ok(old) = store.objects.tree(&tree) else { continue };
            let new = newer.and_then(|newer| store.objects.tree(&newer).ok());
            for entry in old.iter() {
                let beside = new.as_ref().and_then(|new| new.find(entry.name));
                let beside = beside.filter(|beside| beside.kind.is_tree() == entry.kind.is_tree());
                let beside = beside.map(|beside| beside.id);
                match entry.kind.is_tree() {
                    true if beside != Some(entry.id) => work.push((entry.id, beside)),
                    true => (),
                    false => self.note(entry.id, beside),
                }
            }
        }
    }
}

/// An object of the old packs.
struct Old<'a> {
    pack: &'a PackFile,
    raw: RawEntry<'a>,
}

/// Writes the readable objects of some packs that `wanted` accepts into new packs. Recompresses at
/// most `effort_bytes` of the objects that were compressed quickly.
pub(super) fn repack(
    store: &Store,
    packs: &[Arc<PackFile>],
    wanted: &dyn Fn(&ObjectId) -> bool,
    versions: &Versions,
    effort_bytes: u64,
) -> Result<Published, Error> {
    let mut old: HashMap<ObjectId, Old<'_>> = HashMap::new();
    for pack in packs {
        for (id, raw) in pack.raw_entries() {
            if wanted(&id) {
                old.entry(id).or_insert(Old { pack, raw });
            }
        }
    }
    let mut repacker = Repacker {
        old: &old,
        versions,
        writer: PackWriter::new(&store.objects_dir()),
        depth: HashMap::new(),
        effort_bytes,
    };
    for id in versions.order.iter().filter(|id| old.contains_key(id)) {
        repacker.write(*id)?;
    }
    let mut rest: Vec<ObjectId> =
        old.keys().filter(|id| !versions.seen.contains(id)).copied().collect();
    rest.sort_unstable();
    for id in rest {
        repacker.write(id)?;
    }
    repacker.writer.publish()
}

struct Repacker<'a> {
    old: &'a HashMap<ObjectId, Old<'a>>,
    versions: &'a Versions,
    writer: PackWriter,
    /// Delta chain length of each object written as a delta.
    depth: HashMap<ObjectId, usize>,
    /// Bytes that may still be recompressed.
    effort_bytes: u64,
}

impl Repacker<'_> {
    fn write(&mut self, id: ObjectId) -> Result<(), Error> {
        if self.writer.has(&id) {
            return Ok(());
        }
        let old = &self.old[&id];
        match old.raw {
            RawEntry::Delta { base, size, packed } => {
                // An existing delta is kept if its base is in the same new pack.
                if self.old.contains_key(&base) && !self.writer.has(&base) {
                    self.write(base)?;
                }
                if let Some(depth) = self.next_depth(&base)
                    && self.writer.add_delta(id, base, size, packed)?
                {
                    self.depth.insert(id, depth);
                    return Ok(());
                }
                self.write_again(id)
            }
            RawEntry::Whole { packed } => {
                let newer = self.versions.newer.get(&id).copied();
                if let Some(base) = newer
                    && self.write_delta(id, base, packed.len())?
                {
                    return Ok(());
                }
                match self.compressed_well(id, packed)? {
                    Some(better) => self.writer.add_raw(id, &better),
                    None => self.writer.add_raw(id, packed),
                }
            }
        }
    }

    /// Recompresses an object that was compressed quickly, within the budget. Returns `None` if the
    /// original entry is to be copied.
    fn compressed_well(&mut self, id: ObjectId, packed: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if effort_of(packed) == Effort::Well {
            return Ok(None);
        }
        let size = self.old[&id].pack.header(&id).ok().flatten().map_or(u64::MAX, |(_, size)| size);
        let Some(left) = self.effort_bytes.checked_sub(size) else { return Ok(None) };
        let Some((kind, bytes)) = self.read(&self.old[&id], &id) else { return Ok(None) };
        // A corrupt object is copied verbatim, so that a repair finds it.
        if hash_object(kind, &bytes) != Some(id) {
            return Ok(None);
        }
        self.effort_bytes = left;
        let better = whole_entry(kind, &bytes, Effort::Well);
        Ok((better.len() <= packed.len()).then_some(better))
    }

    fn next_depth(&self, base: &ObjectId) -> Option<usize> {
        let depth = self.depth.get(base).copied().unwrap_or(0) + 1;
        (depth <= MAX_DEPTH).then_some(depth)
    }

    /// Writes an object as a delta and returns `true`, if that is smaller than `whole` bytes.
    fn write_delta(&mut self, id: ObjectId, base: ObjectId, whole: usize) -> Result<bool, Error> {
        let (Some(depth), Some(base_at)) = (self.next_depth(&base), self.old.get(&base)) else {
            return Ok(false);
        };
        if !self.writer.has(&base) {
            return Ok(false);
        }
        let (Some((kind, bytes)), Some((base_kind, base_bytes))) =
            (self.read(&self.old[&id], &id), self.read(base_at, &base))
        else {
            return Ok(false);
        };
        if kind != base_kind {
            return Ok(false);
        }
        let Some(delta) = delta(kind, &base_bytes, &bytes) else { return Ok(false) };
        let size = delta.len() as u64;
        let packed = deflated(&delta, Effort::Well);
        if packed.len() >= whole || !self.writer.add_delta(id, base, size, &packed)? {
            return Ok(false);
        }
        self.depth.insert(id, depth);
        Ok(true)
    }

    /// Reads an old object. Returns `None` if it is too large for a delta or unreadable.
    fn read(&self, old: &Old<'_>, id: &ObjectId) -> Option<(Kind, Vec<u8>)> {
        let size = old.pack.header(id).ok().flatten().map_or(u64::MAX, |(_, size)| size);
        if size > MAX_BYTES as u64 {
            return None;
        }
        old.pack.read(id).ok().flatten()
    }

    /// Writes an object whole that was a delta. If it or its base is damaged, it is skipped and
    /// stays in its old pack, so that the other objects are still written.
    fn write_again(&mut self, id: ObjectId) -> Result<(), Error> {
        let Ok(Some((kind, bytes))) = self.old[&id].pack.read(&id) else { return Ok(()) };
        if hash_object(kind, &bytes) == Some(id) {
            self.writer.add_raw(id, &whole_entry(kind, &bytes, Effort::Well))?;
        }
        Ok(())
    }
}

/// Returns whether a pack may be replaced: it has no `.keep` file, which tells git to keep it.
pub(super) fn is_ours(pack: &Arc<PackFile>) -> bool {
    pack.path().with_extension("keep").symlink_metadata().is_err()
}

/// Removes packs whose wanted objects are all in other, durable packs. Returns the packs that stay
/// because one of their objects is damaged.
///
/// The caller holds the store's lock exclusively.
pub(super) fn remove_packs(
    store: &Store,
    packs: &[Arc<PackFile>],
    made: &Published,
    wanted: &dyn Fn(&ObjectId) -> bool,
) -> Result<Vec<PathBuf>, Error> {
    store.objects.refresh()?;
    let going: HashSet<PathBuf> = packs
        .iter()
        .map(|pack| pack.path().to_owned())
        .filter(|path| !made.packs.contains(path))
        .collect();
    let staying: Vec<Arc<PackFile>> = store
        .objects
        .open_packs()
        .into_iter()
        .filter(|pack| !going.contains(pack.path()))
        .collect();
    forget_summaries(store)?;
    let is_safe = |id: ObjectId| !wanted(&id) || staying.iter().any(|pack| pack.contains(&id));
    let mut left = Vec::new();
    for pack in packs.iter().filter(|pack| going.contains(pack.path())) {
        if !pack.ids().all(is_safe) {
            // An object is damaged and could not be copied, so the pack is kept unchanged.
            left.push(pack.path().to_owned());
            continue;
        }
        // The index is removed first: without it the pack is not used. The other files are git's.
        for extension in ["idx", "bitmap", "rev", "mtimes", "pack"] {
            private::remove(&pack.path().with_extension(extension))?;
        }
    }
    private::sync_dir(&store.objects_dir().join("pack"))?;
    store.objects.refresh()?;
    Ok(left)
}

/// Removes git's optional commit graphs and multi-pack index, which may name removed objects.
fn forget_summaries(store: &Store) -> Result<(), Error> {
    let objects = store.objects_dir();
    private::remove(&objects.join("info/commit-graph"))?;
    private::remove(&objects.join("pack/multi-pack-index"))?;
    let graphs = objects.join("info/commit-graphs");
    for path in private::list(&graphs).unwrap_or_default() {
        private::remove(&path)?;
    }
    Ok(())
}
