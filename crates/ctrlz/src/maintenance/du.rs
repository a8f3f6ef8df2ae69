//! Disk use of a store: total size, largest consumers and growth per day.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::{Error, QuotaUse, StoreError};
use crate::fs::disk_use;
use crate::gc::Live;
use crate::git::ObjectId;
use crate::log::Operation;
use crate::path::{TreePath, join};
use crate::scan::Progress;
use crate::store::Store;

use super::Maintenance;

const DAY_MILLIS: u64 = 24 * 3600 * 1000;

/// A path, with the space that its versions use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Path at which the contents first occurred.
    pub path: TreePath,
    /// Number of bytes that its versions use in the packs.
    pub bytes: u64,
    /// Number of distinct contents that first occurred at the path.
    pub versions: u64,
}

/// Growth of the store on one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Day, in days since 1970 (UTC).
    pub day: u64,
    /// Bytes in the packs that operations of this day were the first to need.
    pub bytes: u64,
}

/// Disk use of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Total size of all its files in bytes.
    pub store_bytes: u64,
    /// Bytes of quarantined files.
    pub quarantine_bytes: u64,
    /// Bytes in packs that no operation needs; `ctrlz gc` frees most of them.
    pub unused_bytes: u64,
    /// Number of operations in the logs.
    pub operations: u64,
    /// Quota use.
    pub quota: QuotaUse,
    /// Largest consumers, in descending order.
    pub consumers: Vec<Consumer>,
    /// Growth per day, oldest first; days without growth are omitted.
    pub days: Vec<Growth>,
}

impl Maintenance<'_> {
    /// Measures the store. Reports the `top` largest consumers.
    pub fn disk_use(&self, top: usize, progress: &Progress) -> Result<DiskUse, Error> {
        let Some((store, _)) = self.0.existing()? else { return Ok(DiskUse::default()) };
        let _shared = self.0.lock_shared(&store)?;
        store.objects.refresh()?;
        let mut sizes: HashMap<ObjectId, u64> = HashMap::new();
        let mut packed = 0;
        for pack in store.objects.open_packs() {
            for (id, bytes) in pack.entry_sizes() {
                packed += bytes;
                sizes.insert(id, bytes);
            }
        }
        let operations = all_operations(&store, progress)?;
        let mut tally = Tally { sizes, ..Tally::new(&store) };
        for operation in &operations {
            progress.check()?;
            tally.operation(operation)?;
        }
        let kept = tally.kept_by_refs(progress)?;
        let used: u64 = tally.days.values().sum::<u64>() + kept;
        let mut consumers: Vec<Consumer> = Vec::new();
        for (path, (bytes, versions)) in tally.paths {
            consumers.push(Consumer { path: TreePath::parse(&path)?, bytes, versions });
        }
        consumers.sort_by(|one, other| (other.bytes, &one.path).cmp(&(one.bytes, &other.path)));
        consumers.truncate(top);
        let quarantine = store.quarantine_dir();
        Ok(DiskUse {
            store_bytes: disk_use(store.path())?,
            quarantine_bytes: if quarantine.is_dir() { disk_use(&quarantine)? } else { 0 },
            unused_bytes: packed.saturating_sub(used),
            operations: operations.len() as u64,
            quota: self.0.context().quota_use(store.path())?,
            consumers,
            days: tally.days.into_iter().map(|(day, bytes)| Growth { day, bytes }).collect(),
        })
    }
}

/// Returns every readable operation of every log, oldest first.
fn all_operations(store: &Store, progress: &Progress) -> Result<Vec<Operation>, Error> {
    let mut operations = Vec::new();
    for (_, head) in store.segments()? {
        for operation in store.segment(head).map_while(Result::ok) {
            progress.check()?;
            operations.push(operation);
        }
    }
    operations.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(operations)
}

struct Tally<'a> {
    store: &'a Store,
    sizes: HashMap<ObjectId, u64>,
    seen: HashSet<ObjectId>,
    days: BTreeMap<u64, u64>,
    /// Bytes and number of versions of each path.
    paths: HashMap<Vec<u8>, (u64, u64)>,
}

impl<'a> Tally<'a> {
    fn new(store: &'a Store) -> Tally<'a> {
        let (sizes, seen) = (HashMap::new(), HashSet::new());
        Tally { store, sizes, seen, days: BTreeMap::new(), paths: HashMap::new() }
    }

    /// Counts an object for a day and returns its size, or `None` if it was counted before.
    fn count(&mut self, id: ObjectId, day: u64) -> Option<u64> {
        if !self.seen.insert(id) {
            return None;
        }
        let bytes = self.sizes.get(&id).copied().unwrap_or(0);
        *self.days.entry(day).or_default() += bytes;
        Some(bytes)
    }

    /// Returns the size of the objects that refs keep although no operation in a log needs them:
    /// captures outside of the work tree, and checkpoints whose segment expired.
    fn kept_by_refs(&self, progress: &Progress) -> Result<u64, Error> {
        let refs = self.store.refs.all()?.into_iter();
        let other: HashMap<_, _> = refs.filter(|(_, id)| !self.seen.contains(id)).collect();
        let mut live = Live::default();
        match self.store.mark(&other, &mut live, progress) {
            // What a damaged object hides counts as unused.
            Ok(()) | Err(Error::Store(StoreError::Damaged { .. })) => (),
            Err(error) => return Err(error),
        }
        let is_kept = |id: &ObjectId| live.contains(id) && !self.seen.contains(id);
        Ok(self.sizes.iter().filter(|(id, _)| is_kept(id)).map(|(_, bytes)| bytes).sum())
    }

    fn operation(&mut self, operation: &Operation) -> Result<(), Error> {
        let day = operation.at_millis / DAY_MILLIS;
        self.count(operation.commit, day);
        let mut work = vec![(operation.snapshot, Vec::new())];
        if let Some(ignored) = operation.meta.ignored_snapshot
            && self.count(ignored, day).is_some()
            && let Ok(kept) = crate::log::read_ignored(&self.store.objects, &ignored)
        {
            work.push((kept.tree, Vec::new()));
        }
        while let Some((id, at)) = work.pop() {
            if self.count(id, day).is_none() {
                continue;
            }
            let Ok(tree) = self.store.objects.tree(&id) else { continue };
            for entry in tree.iter() {
                let path = join(&at, entry.name);
                if entry.kind.is_tree() {
                    work.push((entry.id, path));
                } else if let Some(bytes) = self.count(entry.id, day) {
                    let (total, versions) = self.paths.entry(path).or_default();
                    *total += bytes;
                    *versions += 1;
                }
            }
        }
        Ok(())
    }
}
