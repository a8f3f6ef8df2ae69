//! Operations as git commits: JSON in a commit header, and large data in a second parent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::error::Error;
use crate::git::{
    Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit, encode_tree, parse_commit,
};
use crate::pack::{Objects, PackWriter, add};

use super::id::id_after;
use super::ignored_snapshot::{self, IgnoredSnapshot};
use super::meta::Meta;
use super::operation::{Details, Gap, Operation, OperationKind, Segment};

const VERSION: u32 = 1;
const MAX_INLINE_BYTES: usize = 2048;
const META_NAME: &[u8] = b"meta.json";

/// JSON in the header of a commit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) v: u32,
    /// Work tree that the log belongs to, so that a lost ref can be recovered.
    #[serde(default)]
    pub(super) work_tree: String,
    pub(super) id: String,
    pub(super) kind: OperationKind,
    pub(super) at: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) details: Details,
    /// Number of earlier operations in the segment, and the time of its first one.
    #[serde(default)]
    pub(super) place: u32,
    #[serde(default)]
    pub(super) began: u64,
    /// Previous operation, if this one begins a segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) continues: Option<Continues>,
    /// Newest earlier commit of each session that the operation belongs to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) previous: BTreeMap<String, ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Meta>,
    /// Commit, the last parent, whose tree holds the metadata if it is too large for the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) meta_in: Option<ObjectId>,
}

/// End of the previous segment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Continues {
    pub(super) commit: ObjectId,
    pub(super) id: String,
}

fn is_default(details: &Details) -> bool {
    *details == Details::default()
}

/// A new operation without a commit.
pub(crate) struct NewOperation {
    pub(crate) kind: OperationKind,
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    pub(crate) details: Details,
    /// Small ignored files, if they changed.
    pub(crate) ignored_snapshot: Option<IgnoredSnapshot>,
}

/// Position of a new operation in the log.
pub(crate) struct Place<'a> {
    pub(crate) work_tree: &'a str,
    pub(crate) last: Option<&'a Operation>,
    /// Whether it begins a new segment.
    pub(crate) cut: bool,
    /// Newest commit of each session that it belongs to.
    pub(crate) previous: BTreeMap<String, ObjectId>,
    /// Newest ignored snapshot.
    pub(crate) last_ignored_snapshot: Option<ObjectId>,
}

impl NewOperation {
    /// Returns the sessions that the operation belongs to.
    pub(crate) fn sessions(&self) -> BTreeSet<&str> {
        sessions_of(&self.details)
    }
}

pub(crate) fn sessions_of(details: &Details) -> BTreeSet<&str> {
    let credited = details.credits.iter().map(|credit| credit.step.session.as_str());
    credited.chain(details.session.as_deref()).filter(|session| !session.is_empty()).collect()
}

/// Writes the operation's objects into `pack`. It is in the log once a ref names its commit.
pub(crate) fn write(
    objects: &Objects,
    pack: &PackWriter,
    new: NewOperation,
    place: Place<'_>,
) -> Result<Operation, Error> {
    let at_millis = now_millis();
    let id = id_after(place.last.map(|last| last.id.as_str()), at_millis);
    let ignored = place.write_ignored_snapshot(objects, pack, &new, at_millis)?;
    let NewOperation { kind, snapshot, meta, details, .. } = new;
    let Place { work_tree, last, cut, previous, .. } = place;
    let meta = Meta { ignored_snapshot: ignored, ..meta };
    let put = |kind, bytes: Vec<u8>| add(pack, kind, &bytes, &|id| objects.holds(id));
    let (inline, spilled) = store_meta(&meta, put)?;
    let segment = match last {
        Some(last) if !cut => Segment { place: last.segment.place + 1, began: last.segment.began },
        _ => Segment { place: 0, began: at_millis },
    };
    let continued = last.filter(|_| cut);
    let header = Header {
        v: VERSION,
        work_tree: work_tree.to_owned(),
        id: id.clone(),
        kind,
        at: at_millis,
        details: details.clone(),
        place: segment.place,
        began: segment.began,
        continues: continued.map(|last| Continues { commit: last.commit, id: last.id.clone() }),
        previous,
        meta: inline,
        meta_in: spilled,
    };
    let parent = last.map(|last| last.commit);
    let commit = Commit {
        tree: snapshot,
        parents: parent.filter(|_| !cut).into_iter().chain(spilled).collect(),
        author: author_of(&details),
        seconds: (at_millis / 1000) as i64,
        data: json_of(&header),
        message: subject_of(kind, &details),
    };
    Ok(Operation {
        id,
        kind,
        snapshot,
        at_millis,
        details,
        work_tree: work_tree.to_owned(),
        commit: put(Kind::Commit, encode_commit(&commit))?,
        parent,
        follows: continued.map(|last| last.id.clone()),
        segment,
        meta,
    })
}

impl Place<'_> {
    /// Writes the ignored snapshot of a new operation, if it changed or a segment begins. Returns
    /// its commit.
    fn write_ignored_snapshot(
        &self,
        objects: &Objects,
        pack: &PackWriter,
        new: &NewOperation,
        at_millis: u64,
    ) -> Result<Option<ObjectId>, Error> {
        let ignored = match (&new.ignored_snapshot, new.meta.ignored_snapshot) {
            (Some(ignored), _) => Cow::Borrowed(ignored),
            (None, same) if !self.cut => return Ok(same),
            // An ignored snapshot that was not imported with the log stays absent.
            (None, Some(id)) if objects.read(&id)?.is_some() => {
                Cow::Owned(ignored_snapshot::read(objects, &id)?)
            }
            (None, _) => return Ok(None),
        };
        // Each segment has its own ignored snapshots, so that dropping one does not affect another.
        let before = self.last_ignored_snapshot.filter(|_| !self.cut);
        ignored.write(objects, pack, before, at_millis).map(Some)
    }
}

pub(super) fn json_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data has a JSON form")
}

/// Returns the author that `git log` shows: the agent or the user.
pub(super) fn author_of(details: &Details) -> String {
    let who = details.credits.first().and_then(|credit| credit.step.who.clone());
    who.unwrap_or_else(|| if details.credits.is_empty() { "you" } else { "an agent" }.into())
}

/// Returns the subject that `git log` shows. It is never read back.
pub(super) fn subject_of(kind: OperationKind, details: &Details) -> String {
    let step = details.credits.first().map(|credit| &credit.step);
    let label = step.and_then(|step| step.label.clone().or_else(|| step.tool.clone()));
    let label = label.or_else(|| details.label.clone());
    let label = label.or_else(|| details.gap.as_ref().map(Gap::describe));
    let first_line = label.as_deref().and_then(|label| label.lines().next());
    match first_line {
        Some(label) => label.chars().take(100).collect(),
        None => kind.subject().into(),
    }
}

/// Returns the metadata for the header, or the commit in which `put` stored it if it is too large.
/// That commit has no parents and no time, so that equal data is stored once.
pub(super) fn store_meta(
    meta: &Meta,
    mut put: impl FnMut(Kind, Vec<u8>) -> Result<ObjectId, Error>,
) -> Result<(Option<Meta>, Option<ObjectId>), Error> {
    let json = json_of(meta);
    if json.len() <= MAX_INLINE_BYTES {
        return Ok((Some(meta.clone()), None));
    }
    let blob = put(Kind::Blob, json.into_bytes())?;
    let entry = TreeEntry { name: META_NAME, kind: EntryKind::File, id: blob };
    let tree = put(Kind::Tree, encode_tree(std::iter::once(entry)))?;
    let commit = Commit {
        tree,
        parents: Vec::new(),
        author: "ctrlz".into(),
        seconds: 0,
        data: String::new(),
        message: "what a tree cannot say".into(),
    };
    Ok((None, Some(put(Kind::Commit, encode_commit(&commit))?)))
}

/// Reads the operation whose commit is `id`.
pub(crate) fn read(objects: &Objects, id: &ObjectId) -> Result<Operation, Error> {
    let commit = objects.commit(id)?;
    let header: Header = serde_json::from_str(&commit.data)
        .map_err(|error| Error::damaged(id, format!("its data cannot be read: {error}")))?;
    if header.v != VERSION {
        let which = if header.v > VERSION { "a later version of ctrlz" } else { "no version" };
        let why = format!("{which} wrote it (operation version {})", header.v);
        return Err(Error::damaged(id, why));
    }
    let (meta, parents) = match (header.meta, header.meta_in) {
        (Some(meta), _) => (meta, commit.parents.as_slice()),
        (None, Some(spilled)) => {
            let rest = commit.parents.strip_suffix(&[spilled]);
            let stray = || Error::damaged(id, "its data is not among its parents");
            let parents = rest.ok_or_else(stray)?;
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
        parent: parents.first().copied().or(header.continues.as_ref().map(|end| end.commit)),
        follows: header.continues.map(|end| end.id),
        segment: Segment::read(header.place, header.began),
        meta,
    })
}

fn read_spilled(objects: &Objects, id: &ObjectId) -> Result<Meta, Error> {
    let commit = objects.read(id)?.and_then(|(_, bytes)| parse_commit(&bytes));
    let tree = objects.tree(&commit.ok_or_else(|| Error::missing(id))?.tree)?;
    let entry = tree.find(META_NAME).ok_or_else(|| Error::damaged(id, "it holds no data"))?;
    let json = objects.blob(&entry.id)?;
    serde_json::from_slice(&json)
        .map_err(|error| Error::damaged(id, format!("unreadable data: {error}")))
}

/// Reads a commit and some members of the JSON in its header.
pub(super) fn commit_with<T: DeserializeOwned>(
    objects: &Objects,
    id: &ObjectId,
) -> Result<(Commit, T), Error> {
    let commit = objects.commit(id)?;
    let data = serde_json::from_str(&commit.data)
        .map_err(|_| Error::damaged(id, "its data cannot be read"))?;
    Ok((commit, data))
}

/// Returns the snapshot and the parent within the segment, without parsing the rest.
pub(crate) fn glance(
    objects: &Objects,
    id: &ObjectId,
) -> Result<(ObjectId, Option<ObjectId>), Error> {
    #[derive(Deserialize)]
    struct Glance {
        #[serde(default)]
        meta_in: Option<ObjectId>,
    }
    let (commit, header): (Commit, Glance) = commit_with(objects, id)?;
    let parent = commit.parents.first().copied().filter(|first| Some(*first) != header.meta_in);
    Ok((commit.tree, parent))
}

/// Returns whether the same session recorded an earlier operation.
pub(crate) fn follows_work_of(
    objects: &Objects,
    id: &ObjectId,
    session: &str,
) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Previous {
        #[serde(default)]
        previous: BTreeMap<String, ObjectId>,
    }
    let (_, header): (Commit, Previous) = commit_with(objects, id)?;
    Ok(header.previous.contains_key(session))
}

/// Returns the newest readable operation of a work tree, found without its ref.
///
/// Reads every commit of the store, which is slow. Only used after damage.
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
