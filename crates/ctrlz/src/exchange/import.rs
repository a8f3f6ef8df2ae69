//! Import of an exported file, which is checked completely before any of it is used.

use std::path::Path;

use crate::error::{Error, ExchangeError, StoreError};
use crate::git::ObjectId;
use crate::hold::absolute;
use crate::log::{Source, WorkTree};
use crate::pack::Objects;
use crate::scan::Progress;
use crate::store::Incoming;
use crate::workspace::Workspace;

use super::arrival::{Arrival, Checker, Fate, OnPurged, SHARED, adopt, arrivals, known_commits};
use super::bundle::Bundle;
use super::export::{MANIFEST_NAME, MANIFEST_REF, Manifest};

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

impl Workspace {
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
        self.context().check_enabled()?;
        let file = absolute(file);
        let bad =
            |why: String| Error::Exchange(ExchangeError::BadImport { path: file.clone(), why });
        let bundle = Bundle::open(&file)?.map_err(bad)?;
        let refs = bundle.refs.clone();
        // Checked before a store is created for it.
        let arrival = only(arrivals(&refs)).map_err(bad)?;
        let hold = self.begin()?;
        let store = &hold.store;
        let incoming = Incoming::create(store)?;
        bundle.unpack(&incoming.pack_dir(), progress)?.map_err(bad)?;
        let objects = incoming.objects()?;
        let manifest = manifest(&objects, &arrival, &refs)?.map_err(bad)?;
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
        let fate = checker.log(&arrival, &known, head)?.map_err(bad)?;
        if !checker.matches(&manifest) && matches!(fate, Fate::News(_)) && known.is_empty() {
            return Err(bad("its manifest says something else".into()));
        }
        let operations = match fate {
            Fate::Known => 0,
            Fate::News(count) => count,
            Fate::Diverged => return Err(Error::Exchange(ExchangeError::Diverged { log: name })),
        };
        if operations > 0 {
            if on_purged == OnPurged::Refuse {
                checker.refuse_purged(&file)?;
            }
            incoming.publish(store)?;
            if is_own {
                adopt(store, &hold.work_tree, &arrival, &checker)?;
            } else {
                let label = label_of(&file);
                let into = hold.work_tree.id();
                let _lock = note_from(store, &beside, &label, into, self.options().patience)?;
                adopt(store, &beside, &arrival, &checker)?;
            }
        } else if Source::of(&beside).is_some() {
            let (label, into) = (label_of(&file), hold.work_tree.id());
            drop(note_from(store, &beside, &label, into, self.options().patience)?);
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

/// Creates the directory of a log from elsewhere, locks it and records its source.
pub(super) fn note_from(
    store: &crate::store::Store,
    beside: &WorkTree,
    from: &str,
    into: &str,
    patience: std::time::Duration,
) -> Result<crate::store::Lock, Error> {
    beside.create_dir()?;
    let lock = beside.lock(store, patience)?;
    Source::note(beside, from, into)?;
    Ok(lock)
}

/// Returns the name of a file for display.
fn label_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
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
) -> Result<Result<Manifest, String>, Error> {
    let name = format!("{SHARED}{}/{MANIFEST_REF}", arrival.name);
    let Some((_, commit)) = refs.iter().find(|(known, _)| *known == name) else {
        return Ok(Err("it has no manifest".into()));
    };
    let tree = match objects.read(commit) {
        Ok(Some((_, bytes))) => crate::git::parse_commit(&bytes).map(|commit| commit.tree),
        Ok(None) | Err(Error::Store(StoreError::Damaged { .. })) => None,
        Err(error) => return Err(error),
    };
    let tree = tree.and_then(|tree| objects.tree(&tree).ok());
    let entry = tree.as_ref().and_then(|tree| tree.find(MANIFEST_NAME));
    let json = entry.and_then(|entry| objects.blob(&entry.id).ok());
    let parsed = json.and_then(|json| serde_json::from_slice::<Manifest>(&json).ok());
    let Some(manifest) = parsed else { return Ok(Err("its manifest cannot be read".into())) };
    if manifest.format != 1 {
        return Ok(Err(format!("it has format {}; this version knows 1", manifest.format)));
    }
    let plain = |name: &str| name != "HEAD" && name != "refs/heads/main";
    let listed = refs.iter().filter(|(known, _)| *known != name && plain(known));
    let listed: std::collections::BTreeMap<String, ObjectId> = listed.cloned().collect();
    let stray = refs.iter().any(|(name, id)| !plain(name) && Some(*id) != arrival.log);
    Ok(if manifest.refs == listed && manifest.log == arrival.name && !stray {
        Ok(manifest)
    } else {
        Err("its manifest names other refs than it has".into())
    })
}
