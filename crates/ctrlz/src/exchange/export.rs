//! Export: a work tree's snapshots and sessions in one file, for another directory or machine.
//!
//! The file is a git bundle: `git clone FILE` checks out the newest snapshot with the log as its
//! history. It contains no path of this machine, and ignored files only on request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::absolute;
use crate::gc::Live;
use crate::git::{Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit, encode_tree};
use crate::log::{Operation, WorkTree};
use crate::outside::check_place;
use crate::path::TreePath;
use crate::scan::Progress;
use crate::store::Store;

use super::Transfer;
use super::arrival::{PRIVATE, SHARED};
use super::bundle_writer::{Contents, Extra, put, write_bundle};
use super::redact::Redaction;

/// Version of the manifest format.
const FORMAT: u32 = 1;
/// Name of the manifest's ref below the log's ref prefix.
pub(super) const MANIFEST_REF: &str = "manifest";
pub(super) const MANIFEST_NAME: &[u8] = b"manifest.json";

/// Options of [`Transfer::export`].
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Includes the ignored files that are kept beside snapshots. Default: false.
    pub ignored: bool,
    /// Exports only the part of the log that involves this session. Default: the whole log.
    pub session: Option<String>,
    /// Paths whose contents are left out of every snapshot. Default: none.
    pub redact: Vec<TreePath>,
}

/// Result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Path of the written file.
    pub file: PathBuf,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Name of the exported log.
    pub log: String,
    /// Number of exported operations.
    pub operations: u64,
    /// Exported sessions.
    pub sessions: Vec<String>,
    /// Number of exported objects.
    pub objects: u64,
    /// Whether ignored files are included.
    pub ignored: bool,
    /// Paths that were left out of every snapshot, which changes the hashes of the snapshots.
    pub redacted: Vec<TreePath>,
    /// Newest exported snapshot.
    pub snapshot: ObjectId,
}

/// Table of contents of an exported file. Every hash in it is checked by the import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) log: String,
    pub(super) operations: u64,
    pub(super) sessions: Vec<String>,
    pub(super) snapshot: ObjectId,
    pub(super) ignored: bool,
    pub(super) redacted: Vec<TreePath>,
    /// All other refs of the file.
    pub(super) refs: BTreeMap<String, ObjectId>,
}

/// One segment of the log, newest operation first.
struct Segment {
    /// Name of the segment's ref below the log's ref prefix.
    name: String,
    operations: Vec<Operation>,
}

impl Segment {
    fn has(&self, session: &str) -> bool {
        self.operations.iter().any(|operation| sessions_of(operation).contains(session))
    }
}

fn sessions_of(operation: &Operation) -> BTreeSet<&str> {
    let credits = operation.details.credits.iter();
    let sessions =
        credits.flat_map(|credit| [credit.step.session.as_str(), credit.step.root_session()]);
    sessions.chain(operation.details.session.as_deref()).filter(|name| !name.is_empty()).collect()
}

impl Transfer<'_> {
    /// Writes snapshots, sessions and a manifest to one file atomically.
    pub fn export(
        &self,
        file: &Path,
        options: &ExportOptions,
        progress: &Progress,
    ) -> Result<Exported, Error> {
        check_place(file)?;
        self.0.maintenance().withhold_private_lists()?;
        let nothing = || Error::no_history(self.0.root());
        let (store, work_tree) = self.0.existing()?.ok_or_else(nothing)?;
        let _lock = work_tree.lock(&store, self.0.options().patience)?;
        let _shared = self.0.lock_shared(&store)?;
        store.objects.refresh()?;
        let mut segments = segments(&store, &work_tree)?;
        if let Some(session) = &options.session {
            segments = limited(segments, session)?;
        }
        let newest = segments.first().and_then(|segment| segment.operations.first());
        let mut snapshot = newest.ok_or_else(nothing)?.snapshot;
        let mut refs = chosen_refs(&store, &work_tree, &segments, options)?;
        let mut extra = Extra::new();
        let mut live = Live::default();
        if options.redact.is_empty() {
            store.mark(&refs.clone().into_iter().collect(), &mut live, progress)?;
        } else {
            let mut redaction = Redaction::of(&store, &options.redact);
            for (_, id) in refs.iter().filter(|(name, _)| name.starts_with(PRIVATE)) {
                redaction.rewrite_ignored(*id)?;
            }
            for segment in segments.iter().rev() {
                for operation in segment.operations.iter().rev() {
                    progress.check()?;
                    redaction.rewrite(operation)?;
                }
            }
            for id in refs.values_mut() {
                *id = redaction.new_commit(id);
            }
            snapshot = redaction.new_tree(&snapshot)?;
            redaction.mark(&mut live)?;
            extra = redaction.into_extra();
        }
        let operations = segments.iter().map(|segment| segment.operations.len() as u64).sum();
        let all = segments.iter().flat_map(|segment| &segment.operations).flat_map(sessions_of);
        let sessions: BTreeSet<String> = all.map(str::to_owned).collect();
        let manifest = Manifest {
            format: FORMAT,
            log: work_tree.id().to_owned(),
            operations,
            sessions: sessions.into_iter().collect(),
            snapshot,
            ignored: options.ignored,
            redacted: options.redact.clone(),
            refs: refs.clone(),
        };
        let manifest_id = put_manifest(&manifest, &mut extra);
        let mut listed: Vec<(String, ObjectId)> = refs.into_iter().collect();
        listed.push((format!("{SHARED}{}/{MANIFEST_REF}", work_tree.id()), manifest_id));
        let log =
            listed.iter().find(|(name, _)| name.ends_with("/log") && name.starts_with(SHARED));
        if let Some((_, log)) = log.cloned() {
            // Allows a plain `git clone` to check out the newest snapshot.
            listed.push(("refs/heads/main".into(), log));
            listed.push(("HEAD".into(), log));
        }
        let objects: Vec<ObjectId> = live.sorted();
        let objects: Vec<ObjectId> =
            objects.into_iter().filter(|id| !extra.contains_key(id)).collect();
        let file = absolute(file);
        let contents = Contents { refs: &listed, objects: &objects, extra: &extra };
        let bytes = write_bundle(&store, &file, &contents, progress)?;
        Ok(Exported {
            file,
            bytes,
            log: manifest.log,
            operations,
            sessions: manifest.sessions,
            objects: (objects.len() + extra.len()) as u64,
            ignored: options.ignored,
            redacted: options.redact.clone(),
            snapshot,
        })
    }
}

/// Returns the segments of a log, newest first.
fn segments(store: &Store, work_tree: &WorkTree) -> Result<Vec<Segment>, Error> {
    let mut heads: Vec<(String, ObjectId)> = Vec::new();
    heads.extend(store.refs.read(work_tree.ref_name())?.map(|head| ("log".to_owned(), head)));
    let mut past = work_tree.past(store)?;
    past.sort_by(|one, other| other.0.cmp(&one.0));
    heads.extend(past.into_iter().map(|(end, head)| (format!("past/{end}"), head)));
    let mut segments = Vec::new();
    for (name, head) in heads {
        let operations = store.segment(head).collect::<Result<_, _>>()?;
        segments.push(Segment { name, operations });
    }
    Ok(segments)
}

/// Returns the range of segments from the first to the last that involves a session.
fn limited(segments: Vec<Segment>, session: &str) -> Result<Vec<Segment>, Error> {
    let first = segments.iter().position(|segment| segment.has(session));
    let last = segments.iter().rposition(|segment| segment.has(session));
    let (Some(first), Some(last)) = (first, last) else {
        return Err(Error::no_such_session(session));
    };
    let mut kept: Vec<Segment> = segments.into_iter().take(last + 1).skip(first).collect();
    kept[0].name = "log".into();
    Ok(kept)
}

/// Returns the refs to export, by their names in the file.
fn chosen_refs(
    store: &Store,
    work_tree: &WorkTree,
    segments: &[Segment],
    options: &ExportOptions,
) -> Result<BTreeMap<String, ObjectId>, Error> {
    let log = work_tree.id();
    let mut refs = BTreeMap::new();
    for segment in segments {
        let head = segment.operations[0].commit;
        refs.insert(format!("{SHARED}{log}/{}", segment.name), head);
    }
    let commits: BTreeSet<ObjectId> = segments
        .iter()
        .flat_map(|segment| segment.operations.iter().map(|operation| operation.commit))
        .collect();
    for (rest, id) in work_tree.own_refs(store)? {
        if rest != "log" && !rest.starts_with("past/") && commits.contains(&id) {
            refs.insert(format!("{SHARED}{log}/{rest}"), id);
        }
    }
    if options.ignored {
        for (name, id) in store.refs.list(&format!("{PRIVATE}{log}/"))? {
            refs.insert(name, id);
        }
    }
    Ok(refs)
}

/// Adds the objects of the manifest. Returns the commit that its ref names.
fn put_manifest(manifest: &Manifest, extra: &mut Extra) -> ObjectId {
    let json = serde_json::to_vec_pretty(manifest).expect("plain data has a JSON form");
    let blob = put(extra, Kind::Blob, json);
    let entry = TreeEntry { name: MANIFEST_NAME, kind: EntryKind::File, id: blob };
    let tree = put(extra, Kind::Tree, encode_tree(std::iter::once(entry)));
    let commit = Commit {
        tree,
        parents: Vec::new(),
        author: "ctrlz".into(),
        seconds: 0,
        data: String::new(),
        message: "what this file holds".into(),
    };
    put(extra, Kind::Commit, encode_commit(&commit))
}
