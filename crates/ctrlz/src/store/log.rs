//! The log: one chain of commits per work tree, each an operation whose tree is the snapshot.
//!
//! What happened is structured data in an extra commit header, never text to be parsed. Data too
//! large for a header goes into a blob that a second parent keeps reachable, so that `git gc`,
//! `clone` and `push` carry it along.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::fill_random;
use crate::git::{
    Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit, encode_tree, parse_commit,
};

use crate::path::TreePath;

use super::meta::Meta;
use super::objects::Objects;
use super::pack_writer::PackWriter;

const VERSION: u32 = 1;
const MAX_INLINE_BYTES: usize = 2048;
const META_NAME: &[u8] = b"meta.json";

/// Why a snapshot was recorded. Stored as data, so that undo never has to read a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// The first snapshot of the work tree.
    Baseline,
    /// What changed while steps were open; [`Details::credits`] says whose it is.
    Step,
    /// What changed since the last operation, credited to nobody.
    Outside,
    /// A whole snapshot was put back.
    Restore,
    /// Single files were put back.
    Revert,
    /// Steps were taken back.
    Undo,
    /// An undo was taken back.
    Redo,
    /// A named state.
    Checkpoint,
}

impl OperationKind {
    fn subject(self) -> &'static str {
        match self {
            OperationKind::Baseline => "baseline",
            OperationKind::Step => "a step",
            OperationKind::Outside => "changes by nobody we know",
            OperationKind::Restore => "restore",
            OperationKind::Revert => "revert",
            OperationKind::Undo => "undo",
            OperationKind::Redo => "redo",
            OperationKind::Checkpoint => "checkpoint",
        }
    }
}

/// An entry of a work tree's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The operation's own id, a ULID: sortable by time, never a hash.
    pub id: String,
    /// What happened.
    pub kind: OperationKind,
    /// The snapshot after it.
    pub snapshot: ObjectId,
    /// Milliseconds since 1970.
    pub at_millis: u64,
    /// Who did it, and what it takes back.
    pub details: Details,
    pub(crate) work_tree: String,
    pub(crate) commit: ObjectId,
    pub(crate) parent: Option<ObjectId>,
    pub(crate) meta: Meta,
}

/// What an operation knows beyond its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The steps whose changes it holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<Credit>,
    /// Paths that changed while several steps were open and that none of them named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<TreePath>,
    /// Steps that an undo took back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<String>,
    /// The only paths that an undo was asked for; empty if it was asked for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undone_only: Vec<TreePath>,
    /// Paths that an undo left because they did not merge.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<TreePath>,
    /// The operation that a redo takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_back: Option<String>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session it belongs to, where no credit says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Never removed by retention.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Where the user's own git stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
}

/// Changes that a step is credited with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// The step.
    #[serde(flatten)]
    pub step: StepInfo,
    /// The paths; `None` for everything the operation changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<TreePath>>,
    /// The step was not closed by its agent, so its end is a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
}

/// What is known of a step: one tool call, or one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepInfo {
    /// The step's own id.
    pub step: String,
    /// The session it belongs to.
    pub session: String,
    /// The message (turn) it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The part of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What it is about, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

impl StepInfo {
    /// The turn it belongs to: its message, or itself if it has none.
    pub fn turn(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.step)
    }
}

/// Where the user's git stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The branch, unless HEAD is detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit, unless there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// The extra header.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    v: u32,
    /// The work tree whose log this is, so that a lost ref can be found again.
    #[serde(default)]
    work_tree: String,
    id: String,
    kind: OperationKind,
    at: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    details: Details,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// The commit, our second parent, whose tree holds the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta_in: Option<ObjectId>,
}

fn is_default(details: &Details) -> bool {
    *details == Details::default()
}

/// A new entry, before it has a commit.
pub(crate) struct NewOperation {
    pub(crate) work_tree: String,
    pub(crate) kind: OperationKind,
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    pub(crate) details: Details,
    pub(crate) parent: Option<ObjectId>,
}

/// Writes the operation's objects into `pack`. It is not in the log until a ref names its commit.
pub(crate) fn write(
    pack: &PackWriter,
    new: NewOperation,
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<Operation, Error> {
    let NewOperation { work_tree, kind, snapshot, meta, details, parent } = new;
    let at_millis = now_millis();
    let id = id_at(at_millis);
    let json = serde_json::to_string(&meta).expect("plain data has a JSON form");
    let spilled = match json.len() > MAX_INLINE_BYTES {
        true => Some(spill(pack, json.as_bytes(), exists)?),
        false => None,
    };
    let header = Header {
        v: VERSION,
        work_tree: work_tree.clone(),
        id: id.clone(),
        kind,
        at: at_millis,
        details: details.clone(),
        meta: spilled.is_none().then(|| meta.clone()),
        meta_in: spilled,
    };
    let commit = Commit {
        tree: snapshot,
        parents: parent.into_iter().chain(spilled).collect(),
        author: author_of(&details),
        seconds: (at_millis / 1000) as i64,
        data: serde_json::to_string(&header).expect("plain data has a JSON form"),
        message: subject_of(kind, &details),
    };
    let commit = add(pack, Kind::Commit, &encode_commit(&commit), exists)?;
    Ok(Operation { id, kind, snapshot, at_millis, details, work_tree, commit, parent, meta })
}

/// Who `git log` names: the agent, or the user.
fn author_of(details: &Details) -> String {
    let who = details.credits.first().and_then(|credit| credit.step.who.clone());
    who.unwrap_or_else(|| if details.credits.is_empty() { "you" } else { "an agent" }.into())
}

/// What `git log` shows: for people only, never read back.
fn subject_of(kind: OperationKind, details: &Details) -> String {
    let step = details.credits.first().map(|credit| &credit.step);
    let label = step.and_then(|step| step.label.clone().or_else(|| step.tool.clone()));
    let label = label.or_else(|| details.label.clone());
    let first_line = label.as_deref().and_then(|label| label.lines().next());
    match first_line {
        Some(label) => label.chars().take(100).collect(),
        None => kind.subject().into(),
    }
}

/// Stores `json` in a commit that depends on nothing else, so that equal data is stored once.
fn spill(
    pack: &PackWriter,
    json: &[u8],
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    let blob = add(pack, Kind::Blob, json, exists)?;
    let entry = TreeEntry { name: META_NAME, kind: EntryKind::File, id: blob };
    let tree = add(pack, Kind::Tree, &encode_tree(std::iter::once(entry)), exists)?;
    let commit = Commit {
        tree,
        parents: Vec::new(),
        author: "ctrlz".into(),
        seconds: 0,
        data: String::new(),
        message: "what a tree cannot say".into(),
    };
    add(pack, Kind::Commit, &encode_commit(&commit), exists)
}

pub(crate) fn add(
    pack: &PackWriter,
    kind: Kind,
    bytes: &[u8],
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    pack.add(kind, bytes, exists)?.ok_or_else(|| Error::Damaged {
        id: ObjectId::NULL,
        why: format!("a {} of ours attacks the hash", kind.name()),
    })
}

/// Reads the operation whose commit is `id`.
pub(crate) fn read(objects: &Objects, id: &ObjectId) -> Result<Operation, Error> {
    let damaged = |why: &str| Error::Damaged { id: *id, why: why.into() };
    let (kind, bytes) = objects.read(id)?.ok_or_else(|| damaged("it is missing"))?;
    if kind != Kind::Commit {
        return Err(damaged("it is not a commit"));
    }
    let commit = parse_commit(&bytes).ok_or_else(|| damaged("it is not a commit"))?;
    let header: Header = serde_json::from_str(&commit.data)
        .map_err(|error| damaged(&format!("its data cannot be read: {error}")))?;
    let (meta, parents) = match (header.meta, header.meta_in) {
        (Some(meta), _) => (meta, commit.parents.as_slice()),
        (None, Some(spilled)) => {
            let rest = commit.parents.strip_suffix(&[spilled]);
            let parents = rest.ok_or_else(|| damaged("its data is not among its parents"))?;
            (read_spilled(objects, &spilled)?, parents)
        }
        (None, None) => (Meta::default(), commit.parents.as_slice()),
    };
    Ok(Operation {
        id: header.id,
        kind: header.kind,
        snapshot: commit.tree,
        at_millis: header.at,
        details: header.details,
        work_tree: header.work_tree,
        commit: *id,
        parent: parents.first().copied(),
        meta,
    })
}

fn read_spilled(objects: &Objects, id: &ObjectId) -> Result<Meta, Error> {
    let damaged = |why: String| Error::Damaged { id: *id, why };
    let commit = objects
        .read(id)?
        .and_then(|(_, bytes)| parse_commit(&bytes))
        .ok_or_else(|| damaged("it is missing".into()))?;
    let tree = objects.tree(&commit.tree)?;
    let entry = tree.find(META_NAME).ok_or_else(|| damaged("it holds no data".into()))?;
    let json = objects.blob(&entry.id)?;
    serde_json::from_slice(&json).map_err(|error| damaged(format!("unreadable data: {error}")))
}

/// An operation's snapshot and what came before it, without the rest.
pub(crate) fn glance(
    objects: &Objects,
    id: &ObjectId,
) -> Result<(ObjectId, Option<ObjectId>), Error> {
    #[derive(Deserialize)]
    struct Glance {
        #[serde(default)]
        meta_in: Option<ObjectId>,
    }
    let damaged = |why: &str| Error::Damaged { id: *id, why: why.into() };
    let (_, bytes) = objects.read(id)?.ok_or_else(|| damaged("it is missing"))?;
    let commit = parse_commit(&bytes).ok_or_else(|| damaged("it is not a commit"))?;
    let header: Glance =
        serde_json::from_str(&commit.data).map_err(|_| damaged("its data cannot be read"))?;
    let parent = commit.parents.first().copied().filter(|first| Some(*first) != header.meta_in);
    Ok((commit.tree, parent))
}

/// The newest readable operation of a work tree, found without its ref.
///
/// Reads every commit of the store: slow, and only needed after damage.
pub(crate) fn salvage(objects: &Objects, work_tree: &str) -> Result<Option<ObjectId>, Error> {
    let mut newest: Option<(String, ObjectId)> = None;
    for id in objects.packed_commits() {
        let Ok(Some((_, bytes))) = objects.read_known(&id) else { continue };
        let Some(commit) = parse_commit(&bytes) else { continue };
        let Ok(header) = serde_json::from_str::<Header>(&commit.data) else { continue };
        let newer = newest.as_ref().is_none_or(|(known, _)| *known < header.id);
        if header.work_tree == work_tree && newer && read(objects, &id).is_ok() {
            newest = Some((header.id, id));
        }
    }
    Ok(newest.map(|(_, id)| id))
}

/// A new id: sortable by time, and nobody else's.
pub(crate) fn new_id() -> String {
    id_at(now_millis())
}

fn now_millis() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// A ULID: 48 bits of milliseconds and 80 random ones, in Crockford's base 32.
fn id_at(at_millis: u64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let mut random = [0; 16];
    fill_random(&mut random[6..]);
    let value = (u128::from(at_millis) << 80) | u128::from_be_bytes(random);
    (0..26).rev().map(|at| char::from(DIGITS[(value >> (at * 5)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time() {
        let (early, late) = (id_at(1_000), id_at(2_000));
        assert_eq!(early.len(), 26);
        assert!(early < late);
        assert_ne!(id_at(5), id_at(5));
    }
}
