//! Import of an exported file, which is checked completely before any of it is used.

use std::path::Path;

use crate::error::{Error, ExchangeError, StoreError};
use crate::fs::absolute;
use crate::git::ObjectId;
use crate::log::{Source, WorkTree};
use crate::pack::Objects;
use crate::scan::Progress;
use crate::store::Incoming;

use super::Transfer;
use super::acceptance::{Origin, adopt};
use super::arrival::{Arrival, OnPurged, SHARED, arrivals};
use super::bundle::Bundle;
use super::checker::{Checker, Fate, known_commits};
use super::export::{MANIFEST_NAME, MANIFEST_REF, Manifest};
use super::rejected::Rejected;

/// Result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Name of the log in the file.
    pub log: String,
    /// Whether it became the history of this work tree; otherwise it is kept as a separate log.
    pub own: bool,
    /// Number of operations that are new here.
    pub operations: u64,
    /// Sessions in the file.
    pub sessions: Vec<String>,
    /// Newest snapshot in the file.
    pub snapshot: ObjectId,
    /// Whether the file includes ignored files.
    pub ignored: bool,
    /// Paths that were left out of every snapshot.
    pub redacted: Vec<crate::path::TreePath>,
}

impl Transfer<'_> {
    /// Imports the log in an exported file.
    ///
    /// If the work tree has no log, the imported one becomes its history; otherwise it is kept as a
    /// separate log. No file of the work tree changes. Idempotent: importing a file again is a
    /// no-op. A log with content that was purged here is refused unless `on_purged` allows it.
    pub fn import(
        &self,
        file: &Path,
        on_purged: OnPurged,
        progress: &Progress,
    ) -> Result<Imported, Error> {
        self.0.context().check_enabled()?;
        let file = absolute(file);
        self.import_checked(&file, on_purged, progress)
            .map_err(|rejected| rejected.into_error(&file))
    }

    fn import_checked(
        &self,
        file: &Path,
        on_purged: OnPurged,
        progress: &Progress,
    ) -> Result<Imported, Rejected> {
        let bundle = Bundle::open(file)?;
        let refs = bundle.refs.clone();
        // Checked before a store is created for it.
        let arrival = only(arrivals(&refs))?;
        let hold = self.0.begin()?;
        let store = &hold.store;
        let incoming = Incoming::create(store)?;
        bundle.unpack(&incoming.pack_dir(), progress)?;
        let objects = incoming.objects()?;
        let manifest = manifest(&objects, &arrival, &refs)?;
        let own = hold.work_tree.last_or_salvaged(store)?;
        let is_own = own.is_none();
        let mut known = known_commits(store, &hold.work_tree)?;
        let is_here = arrival.log.is_some_and(|log| known.contains(&log));
        let mut name = arrival.name.clone();
        if name == hold.work_tree.id() && !is_own {
            // History of this work tree from before its store was lost; needs another name.
            name = format!("{name}-{}", &arrival.log.unwrap_or(ObjectId::NULL).to_string()[..8]);
        }
        let beside = WorkTree::named(store, &name);
        let mut head = None;
        if !is_own && !is_here {
            known = known_commits(store, &beside)?;
            head = store.refs.read(beside.ref_name())?;
        }
        let mut checker = Checker::of(store, &objects, progress)?;
        let fate = checker.log(&arrival, &known, head)?;
        if !manifest.describes(&checker) && matches!(fate, Fate::News(_)) && known.is_empty() {
            return Err("its manifest says something else".into());
        }
        let operations = match fate {
            Fate::Known => 0,
            Fate::News(count) => count,
            Fate::Diverged => {
                return Err(Error::Exchange(ExchangeError::Diverged { log: name }).into());
            }
        };
        let label = file.file_name().unwrap_or_default().to_string_lossy();
        let (into, patience) = (hold.work_tree.id(), self.0.options().patience);
        let origin = Origin { from: &label, into, patience };
        if operations > 0 {
            if on_purged == OnPurged::Refuse {
                checker.refuse_purged(file)?;
            }
            incoming.publish(store)?;
            if is_own {
                adopt(store, &hold.work_tree, &arrival, &checker)?;
            } else {
                let _lock = origin.note(store, &beside)?;
                adopt(store, &beside, &arrival, &checker)?;
            }
        } else if Source::of(&beside).is_some() {
            drop(origin.note(store, &beside)?);
        }
        Ok(Imported {
            log: manifest.log,
            own: is_own || is_here,
            operations,
            sessions: manifest.sessions,
            snapshot: manifest.snapshot,
            ignored: manifest.ignored,
            redacted: manifest.redacted,
        })
    }
}

impl Manifest {
    /// Returns whether the manifest describes the log that was checked.
    fn describes(&self, checker: &Checker<'_>) -> bool {
        let newest = checker.newest.as_ref().map(|newest| newest.snapshot);
        checker.operations() == self.operations && newest == Some(self.snapshot)
    }
}

fn only(arrivals: Vec<Arrival>) -> Result<Arrival, String> {
    match <[Arrival; 1]>::try_from(arrivals) {
        Ok([only]) => Ok(only),
        Err(other) => Err(format!("it holds {} logs instead of one", other.len())),
    }
}

/// Reads the manifest, which must name exactly the refs of the file.
fn manifest(
    objects: &Objects,
    arrival: &Arrival,
    refs: &[(String, ObjectId)],
) -> Result<Manifest, Rejected> {
    let name = format!("{SHARED}{}/{MANIFEST_REF}", arrival.name);
    let (_, commit) = refs.iter().find(|(known, _)| *known == name).ok_or("it has no manifest")?;
    let tree = match objects.read(commit) {
        Ok(Some((_, bytes))) => crate::git::parse_commit(&bytes).map(|commit| commit.tree),
        Ok(None) | Err(Error::Store(StoreError::Damaged { .. })) => None,
        Err(error) => return Err(error.into()),
    };
    let tree = tree.and_then(|tree| objects.tree(&tree).ok());
    let entry = tree.as_ref().and_then(|tree| tree.find(MANIFEST_NAME));
    let json = entry.and_then(|entry| objects.blob(&entry.id).ok());
    let parsed = json.and_then(|json| serde_json::from_slice::<Manifest>(&json).ok());
    let manifest = parsed.ok_or("its manifest cannot be read")?;
    if manifest.format != 1 {
        return Err(format!("it has format {}; this version knows 1", manifest.format).into());
    }
    let plain = |name: &str| name != "HEAD" && name != "refs/heads/main";
    let listed = refs.iter().filter(|(known, _)| *known != name && plain(known));
    let listed: std::collections::BTreeMap<String, ObjectId> = listed.cloned().collect();
    let stray = refs.iter().any(|(name, id)| !plain(name) && Some(*id) != arrival.log);
    if manifest.refs == listed && manifest.log == arrival.name && !stray {
        Ok(manifest)
    } else {
        Err("its manifest names other refs than it has".into())
    }
}
