//! Operations as git commits: JSON in a commit header, and large data in a second parent.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::error::Error;
use crate::git::{
    Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit, encode_tree, parse_commit,
};
use crate::pack::{Objects, PackWriter, add};

use super::companion::{self, NewCompanion};
use super::id::id_after;
use super::meta::Meta;
use super::operation::{Details, Gap, Operation, OperationKind, Segment};

const VERSION: u32 = 1;
const MAX_INLINE_BYTES: usize = 2048;
const META_NAME: &[u8] = b"meta.json";

/// JSON in the header of a commit.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    v: u32,
    /// Work tree that the log belongs to, so that a lost ref can be recovered.
    #[serde(default)]
    work_tree: String,
    id: String,
    kind: OperationKind,
    at: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    details: Details,
    /// Number of earlier operations in the segment, and the time of its first one.
    #[serde(default)]
    place: u32,
    #[serde(default)]
    began: u64,
    /// Previous operation, if this one begins a segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continues: Option<Continues>,
    /// Newest earlier commit of each session that the operation belongs to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    previous: BTreeMap<String, ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// Commit, the last parent, whose tree holds the metadata if it is too large for the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta_in: Option<ObjectId>,
}

/// End of the previous segment.
#[derive(Debug, Serialize, Deserialize)]
struct Continues {
    commit: ObjectId,
    id: String,
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
    pub(crate) companion: Option<NewCompanion>,
}

/// Position of a new operation in the log.
pub(crate) struct Place<'a> {
    pub(crate) work_tree: &'a str,
    pub(crate) last: Option<&'a Operation>,
    /// Whether it begins a new segment.
    pub(crate) cut: bool,
    /// Newest commit of each session that it belongs to.
    pub(crate) previous: BTreeMap<String, ObjectId>,
    /// Newest companion.
    pub(crate) last_companion: Option<ObjectId>,
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
    let exists = &|id: &ObjectId| objects.holds(id);
    let NewOperation { kind, snapshot, mut meta, details, companion } = new;
    let Place { work_tree, last, cut, previous, last_companion } = place;
    let at_millis = now_millis();
    let id = id_after(last.map(|last| last.id.as_str()), at_millis);
    meta.companion = match companion {
        Some(companion) => {
            let before = last_companion.filter(|_| !cut);
            Some(companion::write(pack, &companion, before, at_millis, exists)?)
        }
        // Each segment has its own companions, so that dropping one does not affect another.
        None if cut => match meta.companion {
            // A companion that was not imported with the log stays absent.
            Some(id) if objects.read(&id)?.is_some() => {
                let companion = companion::read(objects, &id)?.into_new();
                Some(companion::write(pack, &companion, None, at_millis, exists)?)
            }
            Some(_) | None => None,
        },
        None => meta.companion,
    };
    let json = serde_json::to_string(&meta).expect("plain data has a JSON form");
    let spilled = if json.len() > MAX_INLINE_BYTES {
        Some(spill(pack, json.as_bytes(), exists)?)
    } else {
        None
    };
    let segment = match last {
        Some(last) if !cut => Segment { place: last.segment.place + 1, began: last.segment.began },
        _ => Segment { place: 0, began: at_millis },
    };
    let parent = last.map(|last| last.commit);
    let header = Header {
        v: VERSION,
        work_tree: work_tree.to_owned(),
        id: id.clone(),
        kind,
        at: at_millis,
        details: details.clone(),
        place: segment.place,
        began: segment.began,
        continues: last
            .filter(|_| cut)
            .map(|last| Continues { commit: last.commit, id: last.id.clone() }),
        previous,
        meta: spilled.is_none().then(|| meta.clone()),
        meta_in: spilled,
    };
    let commit = Commit {
        tree: snapshot,
        parents: parent.filter(|_| !cut).into_iter().chain(spilled).collect(),
        author: author_of(&details),
        seconds: (at_millis / 1000) as i64,
        data: serde_json::to_string(&header).expect("plain data has a JSON form"),
        message: subject_of(kind, &details),
    };
    let commit = add(pack, Kind::Commit, &encode_commit(&commit), exists)?;
    let work_tree = work_tree.to_owned();
    Ok(Operation {
        id,
        kind,
        snapshot,
        at_millis,
        details,
        work_tree,
        commit,
        parent,
        follows: last.filter(|_| cut).map(|last| last.id.clone()),
        segment,
        meta,
    })
}

/// Returns the author that `git log` shows: the agent or the user.
fn author_of(details: &Details) -> String {
    let who = details.credits.first().and_then(|credit| credit.step.who.clone());
    who.unwrap_or_else(|| if details.credits.is_empty() { "you" } else { "an agent" }.into())
}

/// Returns the subject that `git log` shows. It is never read back.
fn subject_of(kind: OperationKind, details: &Details) -> String {
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

/// Stores `json` in a commit without parents and time, so that equal data is stored once.
fn spill(
    pack: &PackWriter,
    json: &[u8],
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    let blob = add(pack, Kind::Blob, json, exists)?;
    let tree = add(pack, Kind::Tree, &spilled_tree(blob), exists)?;
    add(pack, Kind::Commit, &encode_commit(&spilled_commit(tree)), exists)
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
        segment: Segment { place: header.place, began: header.began },
        meta,
    })
}

/// Changes to an operation that is exported without some paths.
pub(crate) struct Redacted<'a> {
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    /// New commits by their old ids. Contains every earlier commit that is kept.
    pub(crate) commits: &'a HashMap<ObjectId, ObjectId>,
}

/// Rewrites the operation of a commit through `put` and returns the new commit.
pub(crate) fn redact(
    objects: &Objects,
    commit: &ObjectId,
    new: Redacted<'_>,
    mut put: impl FnMut(Kind, Vec<u8>) -> ObjectId,
) -> Result<ObjectId, Error> {
    let (mut commit, mut header): (Commit, Header) = commit_with(objects, commit)?;
    let renamed = |old: &ObjectId| new.commits.get(old).copied();
    let mut parents: Vec<ObjectId> = commit
        .parents
        .iter()
        .filter(|parent| Some(**parent) != header.meta_in)
        .filter_map(renamed)
        .collect();
    header.continues = header
        .continues
        .and_then(|end| Some(Continues { commit: renamed(&end.commit)?, id: end.id }));
    header.previous = header
        .previous
        .into_iter()
        .filter_map(|(session, commit)| Some((session, renamed(&commit)?)))
        .collect();
    let json = serde_json::to_string(&new.meta).expect("plain data has a JSON form");
    (header.meta, header.meta_in) = if json.len() > MAX_INLINE_BYTES {
        let blob = put(Kind::Blob, json.into_bytes());
        let tree = put(Kind::Tree, spilled_tree(blob));
        (None, Some(put(Kind::Commit, encode_commit(&spilled_commit(tree)))))
    } else {
        (Some(new.meta), None)
    };
    parents.extend(header.meta_in);
    commit.parents = parents;
    commit.tree = new.snapshot;
    commit.data = serde_json::to_string(&header).expect("plain data has a JSON form");
    Ok(put(Kind::Commit, encode_commit(&commit)))
}

fn spilled_tree(blob: ObjectId) -> Vec<u8> {
    let entry = TreeEntry { name: META_NAME, kind: EntryKind::File, id: blob };
    encode_tree(std::iter::once(entry))
}

fn spilled_commit(tree: ObjectId) -> Commit {
    Commit {
        tree,
        parents: Vec::new(),
        author: "ctrlz".into(),
        seconds: 0,
        data: String::new(),
        message: "what a tree cannot say".into(),
    }
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
fn commit_with<T: DeserializeOwned>(
    objects: &Objects,
    id: &ObjectId,
) -> Result<(Commit, T), Error> {
    let commit = objects.commit(id)?;
    let data = serde_json::from_str(&commit.data)
        .map_err(|_| Error::damaged(id, "its data cannot be read"))?;
    Ok((commit, data))
}

/// Context for rewriting commits of the store.
pub(crate) struct Rewriting<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) pack: &'a PackWriter,
    /// New ids of rewritten commits.
    pub(crate) commits: &'a BTreeMap<ObjectId, ObjectId>,
}

/// New version of an operation.
pub(crate) struct Rewritten {
    pub(crate) snapshot: ObjectId,
    /// New data besides the tree, or `None` to keep the old data.
    pub(crate) meta: Option<Meta>,
    /// New details, or `None` to keep the old ones. The commit's author and message follow them.
    pub(crate) details: Option<Details>,
    /// Number of earlier operations that were dropped and that this one now represents. A
    /// checkpoint keeps its name and pin; any other operation loses credits, kind and label.
    pub(crate) stands_for: u64,
    pub(crate) start: Start,
}

impl Rewritten {
    /// Changes only the snapshot and the ids that the operation refers to.
    pub(crate) fn with_snapshot(snapshot: ObjectId) -> Rewritten {
        Rewritten { snapshot, meta: None, details: None, stands_for: 0, start: Start::Same }
    }
}

/// Beginning of the segment of a rewritten operation.
pub(crate) enum Start {
    /// The segment begins where it did before.
    Same,
    /// The segment begins with this operation, which is the first of the log.
    First,
    /// The segment begins with this operation, after the given end of the previous segment.
    After { commit: ObjectId, id: String },
}

impl Rewriting<'_> {
    fn moved(&self, id: ObjectId) -> ObjectId {
        self.commits.get(&id).copied().unwrap_or(id)
    }

    /// Rewrites an operation's commit and replaces the ids it refers to by the new ones.
    pub(crate) fn write(&self, operation: &Operation, new: Rewritten) -> Result<ObjectId, Error> {
        let damaged = || Error::damaged(&operation.commit, "it is no operation");
        let exists = &|id: &ObjectId| self.objects.holds(id);
        let (_, bytes) = self.objects.read(&operation.commit)?.ok_or_else(damaged)?;
        let old = parse_commit(&bytes).ok_or_else(damaged)?;
        let mut header: Header = serde_json::from_str(&old.data).map_err(|_| damaged())?;
        let mut meta = new.meta.unwrap_or_else(|| operation.meta.clone());
        meta.companion = meta.companion.map(|companion| self.moved(companion));
        let json = serde_json::to_string(&meta).expect("plain data has a JSON form");
        header.meta_in = if json.len() > MAX_INLINE_BYTES {
            Some(spill(self.pack, json.as_bytes(), exists)?)
        } else {
            None
        };
        header.meta = header.meta_in.is_none().then_some(meta);
        for commit in header.previous.values_mut() {
            *commit = self.moved(*commit);
        }
        if let Some(end) = &mut header.continues {
            end.commit = self.moved(end.commit);
        }
        let mut message = old.message;
        let mut author = old.author;
        if let Some(details) = new.details {
            (message, author) = (subject_of(header.kind, &details), author_of(&details));
            header.details = details;
        }
        if new.stands_for > 0 && header.kind != OperationKind::Checkpoint {
            let count = new.stands_for;
            let label = format!("the last state of a day with {count} more operations");
            header.kind = OperationKind::Outside;
            header.details = Details { label: Some(label.clone()), ..Details::default() };
            header.previous.clear();
            (message, author) = (label, "ctrlz".into());
        }
        header.details.stands_for += new.stands_for;
        let mut parent = operation.parent_in_segment();
        header.continues = match new.start {
            Start::Same => header.continues,
            Start::First | Start::After { .. } => {
                (parent, header.place, header.began) = (None, 0, header.at);
                match new.start {
                    Start::After { commit, id } => Some(Continues { commit, id }),
                    Start::Same | Start::First => None,
                }
            }
        };
        let commit = Commit {
            tree: new.snapshot,
            parents: parent.map(|id| self.moved(id)).into_iter().chain(header.meta_in).collect(),
            author,
            seconds: old.seconds,
            data: serde_json::to_string(&header).expect("plain data has a JSON form"),
            message,
        };
        add(self.pack, Kind::Commit, &encode_commit(&commit), exists)
    }
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
