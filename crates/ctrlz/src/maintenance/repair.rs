//! Repair: restores damaged objects from other copies of their content and quarantines the rest.
//!
//! Nothing is deleted. Each damaged pack is moved to the quarantine after its intact objects were
//! written to a new pack. If the process is killed at any point, some objects merely exist twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::git::{ObjectId, PackFile};
use crate::log::{Operation, WorkTree, read_operation, sessions_of};
use crate::options::Options;
use crate::pack::PackWriter;
use crate::scan::Progress;
use crate::store::{Lock, Sharing, Store};
use crate::workspace::{Wanted, Workspace};

use super::Maintenance;
use super::rewrite::bridge;
use super::verify::{Findings, Verification, examine};

/// Report of [`Maintenance::repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Problems found before the repair.
    pub before: Verification,
    /// Problems that remain.
    pub after: Verification,
    /// Number of damaged objects that were restored.
    pub healed: u64,
    /// Refs that were rebuilt.
    pub refs: Vec<String>,
    /// New paths of the damaged files.
    pub quarantined: Vec<PathBuf>,
}

impl Maintenance<'_> {
    /// Repairs damaged objects of the store from copies of their content in other packs, in the
    /// user's repository or in the files of a work tree.
    ///
    /// Objects without a copy stay damaged and are listed; everything else keeps working.
    pub fn repair(&self, progress: &Progress) -> Result<RepairReport, Error> {
        // Recovers from a killed command first.
        drop(self.0.begin()?);
        let Some((store, _)) = self.0.existing()? else { return Ok(RepairReport::default()) };
        let patience = self.0.options().patience;
        let _caring = Lock::take(&store.care_lock_path(), Sharing::Exclusive, patience)?;
        let _alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
        store.objects.refresh()?;
        let found = examine(&store, progress)?;
        let mut quarantined = Vec::new();
        for path in &found.torn_refs {
            quarantined.push(store.quarantine(path)?);
        }
        for cache in &found.torn_caches {
            quarantined.push(store.quarantine(cache)?);
        }
        self.heal(&store, &found, &mut quarantined, progress)?;
        let refs = if found.torn_refs.is_empty() && found.lost_logs.is_empty() {
            Vec::new()
        } else {
            rebuild_refs(&store)?
        };
        bridge(&store, &found.bad_commits)?;
        let after = examine(&store, progress)?;
        store.note_lost(after.bad.keys().copied())?;
        let healed = found.bad.keys().filter(|id| !after.bad.contains_key(id)).count() as u64;
        let (before, after) = (found.verification, after.verification);
        Ok(RepairReport { before, after, healed, refs, quarantined })
    }

    /// Writes recoverable damaged objects to a new pack, then quarantines the damaged packs.
    fn heal(
        &self,
        store: &Store,
        found: &Findings,
        quarantined: &mut Vec<PathBuf>,
        progress: &Progress,
    ) -> Result<(), Error> {
        let flawed = store.flawed_packs();
        let unusable = store.unusable_packs()?;
        let pack = PackWriter::new(&store.objects_dir());
        for one in &flawed {
            store.salvage_flawed(one, &flawed, &pack)?;
        }
        let missing = |id: &ObjectId| !is_held(store, &flawed, id);
        for path in &unusable {
            store.salvage_unusable(path, &missing, &pack)?;
        }
        let lost = |pack: &PackWriter| -> BTreeSet<ObjectId> {
            found.bad.keys().filter(|id| !pack.has(id)).copied().collect()
        };
        if !lost(&pack).is_empty() {
            for path in store.quarantined_packs() {
                store.salvage_unusable(&path, &|id| found.bad.contains_key(id), &pack)?;
            }
        }
        for workspace in self.neighbours(store)? {
            let wanted = Wanted { ids: lost(&pack), paths: &found.paths };
            if wanted.ids.is_empty() {
                break;
            }
            // Best effort: after an error, this work tree just provides no copies.
            if let Err(Error::Cancelled) = workspace.seek(store, &wanted, &pack, progress) {
                return Err(Error::Cancelled);
            }
        }
        let published = pack.publish()?;
        store.objects.refresh()?;
        let made = |path: &&Path| published.packs.iter().any(|made| made == path);
        let damaged = flawed.iter().map(|pack| pack.path()).chain(unusable.iter().map(Path::new));
        // If only its checksum was damaged, a new pack of the same name has replaced it.
        for path in damaged.filter(|path| !made(path)) {
            quarantined.push(store.quarantine_pack(path)?);
        }
        for id in found.bad.keys() {
            let path = store.loose_path(id);
            if path.symlink_metadata().is_ok() {
                quarantined.push(store.quarantine(&path)?);
            }
        }
        Ok(store.objects.refresh()?)
    }

    /// Opens every existing work tree that uses the store, this one first.
    fn neighbours(&self, store: &Store) -> Result<Vec<Workspace>, Error> {
        let mut roots = vec![self.0.root().to_owned()];
        for work_tree in store.work_trees()? {
            roots.extend(work_tree.root()?.filter(|root| root != self.0.root()));
        }
        let options = Options {
            store: Some(store.path().to_owned()),
            require_git: false,
            allow_dangerous_root: true,
            ..self.0.options().clone()
        };
        let open = |root: PathBuf| Workspace::open(&root, options.clone()).ok();
        Ok(roots.into_iter().filter_map(open).collect())
    }
}

fn is_held(store: &Store, flawed: &[Arc<PackFile>], id: &ObjectId) -> bool {
    let is_flawed = |path: &Path| flawed.iter().any(|pack| pack.path() == path);
    store.objects.open_packs().iter().any(|pack| !is_flawed(pack.path()) && pack.contains(id))
}

/// Returns every readable, unpurged operation in the packs, grouped by work tree id.
fn operations(store: &Store) -> Result<HashMap<String, BTreeMap<String, Operation>>, Error> {
    let purged = store.purged()?;
    let mut found: HashMap<String, BTreeMap<String, Operation>> = HashMap::new();
    for commit in store.objects.packed_commits() {
        let Ok(operation) = read_operation(&store.objects, &commit) else { continue };
        if !purged.contains_key(&operation.snapshot.to_string()) {
            let log = found.entry(operation.work_tree.clone()).or_default();
            log.insert(operation.id.clone(), operation);
        }
    }
    Ok(found)
}

/// Sets the missing refs that can be derived from the commits of the logs. Returns their names.
///
/// The caller holds the store lock exclusively.
fn rebuild_refs(store: &Store) -> Result<Vec<String>, Error> {
    let mut wanted: BTreeMap<String, ObjectId> = BTreeMap::new();
    for (id, log) in operations(store)? {
        let work_tree = WorkTree::named(store, &id);
        let Some(newest) = log.values().next_back() else { continue };
        wanted.insert(work_tree.ref_name().to_owned(), newest.commit);
        wanted.extend(
            newest.meta.ignored_snapshot.map(|commit| (work_tree.ignored_snapshot_ref(), commit)),
        );
        for operation in log.values() {
            for session in sessions_of(&operation.details) {
                wanted.insert(work_tree.session_ref(session), operation.commit);
            }
            let ended = operation.follows.as_ref().and_then(|id| log.get(id));
            if let Some(end) = ended {
                wanted.insert(store.past_ref(&id, &end.id), end.commit);
                let ignored = end
                    .meta
                    .ignored_snapshot
                    .map(|commit| (work_tree.past_ignored_snapshot_ref(&end.id), commit));
                wanted.extend(ignored);
            }
        }
    }
    let mut set = Vec::new();
    for (name, commit) in wanted {
        if store.refs.read(&name)?.is_none() && store.objects.holds(&commit) {
            store.set_ref_alone(&name, &commit)?;
            set.push(name);
        }
    }
    Ok(set)
}
