//! The log: one chain of commits per work tree, each an operation whose tree is the snapshot.
//!
//! What happened is structured data in an extra commit header, never text to be parsed. Data too
//! large for a header goes into a blob that a second parent keeps reachable, so that `git gc`,
//! `clone` and `push` carry it along.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::fill_random;
use crate::git::{
    Commit, EntryKind, Kind, ObjectId, TreeEntry, encode_commit, encode_tree, parse_commit,
};

use crate::path::TreePath;

use super::companion::{self, NewCompanion};
use super::meta::Meta;
use super::objects::Objects;
use super::pack_writer::PackWriter;

const VERSION: u32 = 1;
const MAX_INLINE_BYTES: usize = 2048;
const META_NAME: &[u8] = b"meta.json";

/// A segment is cut when it holds this many operations, so that old ones can be dropped whole.
const MAX_SEGMENT: u32 = 256;
/// And when its first operation is this old.
const MAX_SEGMENT_MILLIS: u64 = 24 * 3600 * 1000;

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
    /// Single files were put back, or a session was taken back to a message.
    Revert,
    /// A session's revert was taken back.
    Unrevert,
    /// Steps were taken back.
    Undo,
    /// An undo was taken back.
    Redo,
    /// A named state.
    Checkpoint,
    /// A session that goes on from an earlier state of another one.
    Fork,
}

impl OperationKind {
    fn subject(self) -> &'static str {
        match self {
            OperationKind::Baseline => "baseline",
            OperationKind::Step => "a step",
            OperationKind::Outside => "changes by nobody we know",
            OperationKind::Restore => "restore",
            OperationKind::Revert => "revert",
            OperationKind::Unrevert => "unrevert",
            OperationKind::Undo => "undo",
            OperationKind::Redo => "redo",
            OperationKind::Checkpoint => "checkpoint",
            OperationKind::Fork => "fork",
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
    /// The commit of the operation before it, also where a new segment begins.
    pub(crate) parent: Option<ObjectId>,
    /// The last operation of the segment before, if this one begins a segment. Its ref says which
    /// commit that is now, and whether the segment is kept at all.
    pub(crate) follows: Option<String>,
    pub(crate) segment: Segment,
    pub(crate) meta: Meta,
}

/// An operation's place in its part of the chain.
///
/// Within a segment commits are linked as git's parents are. The first of a segment only names
/// the commit before it, so that dropping the older segment's ref lets git forget it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Operations before this one in the segment.
    pub(crate) place: u32,
    /// When the segment's first operation was recorded.
    pub(crate) began: u64,
}

impl Segment {
    /// Whether the next operation begins a new segment.
    pub(crate) fn is_full(self) -> bool {
        self.place + 1 >= MAX_SEGMENT
            || now_millis().saturating_sub(self.began) >= MAX_SEGMENT_MILLIS
    }
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
    /// Steps that an undo would have taken back, had it not met only conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// Paths that an undo left because they did not merge.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<TreePath>,
    /// Those of `conflicts` that were left because another process had them open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<TreePath>,
    /// The undo or revert that this operation takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_back: Option<String>,
    /// Ignored files that an undo or redo wrote or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<TreePath>,
    /// Changes of ignored files that an undo left because nobody asked for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_left: Vec<TreePath>,
    /// The only paths that it changed itself, where it was recorded by a later command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<TreePath>,
    /// The part of an undo or redo that lies outside of the work tree, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideUndo>,
    /// The message that a session was taken back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// The revert that became final, so that no unrevert takes it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<String>,
    /// Where a fork comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
    /// What changed was not recorded when it happened: agents worked while the store's disk was
    /// full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The session it belongs to, where no credit says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// A person asked for it, on the command line or the page, and not a program.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_person: bool,
    /// Never removed by retention.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Where the user's own git stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// How many operations before it were dropped by thinning; what it changed is their work too.
    #[serde(skip_serializing_if = "is_zero")]
    pub stands_for: u64,
}

/// The part of an undo or redo that lies outside of the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideUndo {
    /// The steps that it takes back there.
    pub steps: Vec<String>,
    /// The capture of what it replaced; `None` if it replaced nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A time in which nothing could be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// Why, for people: `store disk full` or `store quota reached`.
    pub why: String,
    /// The turns whose steps are missing, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<UnrecordedTurn>,
}

impl Gap {
    /// Returns a line for people, without the names of the turns.
    pub fn describe(&self) -> String {
        format!("not recorded: {}", self.why)
    }

    /// Returns the agents whose turns are missing, each once.
    pub fn agents(&self) -> Vec<&str> {
        let mut agents: Vec<&str> = Vec::new();
        for who in self.turns.iter().filter_map(|turn| turn.who.as_deref()) {
            if !agents.contains(&who) {
                agents.push(who);
            }
        }
        agents
    }
}

/// A turn, or a part of one, that is not in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnrecordedTurn {
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The session.
    pub session: String,
    /// The message (turn).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The first thing of a session that a revert takes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// The message.
    pub message: String,
    /// The part of it, if what comes before it in the message stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Where a forked session comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The session it shares history with.
    pub session: String,
    /// The first message that it does not share; `None` if it shares all there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last operation that it shares.
    pub operation: String,
    /// The log that the operation is in, where the fork has a log of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
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
    /// Whether changes of directories are its own where `paths` lists its files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirs: bool,
    /// The tool changes the files that it names and no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_named: bool,
    /// Paths that changed after the last sign of an interrupted step: its own, or the user's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<TreePath>,
    /// The step was not closed by its agent, so its end is a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
    /// Ignored files that the tool named, which are therefore its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<TreePath>,
    /// Ignored files that changed while it was open, before its tool ran: not its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_ignored: Vec<TreePath>,
    /// Paths that no snapshot holds and that it removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
    /// Whether it changed something outside of the work tree that a capture holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// The operation that recorded the state when the step began.
    #[serde(default)]
    pub begun: String,
    /// When it began, in milliseconds since 1970; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub began_millis: u64,
}

impl Credit {
    /// Whether anything is credited to the step.
    pub(crate) fn has_something(&self) -> bool {
        self.paths.as_ref().is_none_or(|paths| !paths.is_empty())
            || !self.named.is_empty()
            || !self.unclear.is_empty()
            || !self.uncaptured.is_empty()
            || self.outside
    }
}

/// A path that no snapshot holds and that a step removed or changed, so that undo cannot bring it
/// back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncaptured {
    /// The path, relative to the work tree.
    #[serde(with = "crate::path::text")]
    pub path: Vec<u8>,
    /// Why it was not captured.
    pub why: String,
    /// The change that the step made.
    pub change: UncapturedChange,
}

/// What a step did to a path that no snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UncapturedChange {
    /// It is gone.
    Gone,
    /// Something else stands there.
    Replaced,
    /// It was written to.
    Modified,
    /// Something changed in a directory that is never entered, or in an ignored file. That is
    /// policy and no loss.
    ChangedInside,
    /// It was made. An undo does not remove it.
    Created,
}

impl Uncaptured {
    /// Whether undo cannot bring back what was there.
    pub fn is_loss(&self) -> bool {
        !matches!(self.change, UncapturedChange::ChangedInside | UncapturedChange::Created)
    }

    /// One line for people, without the path.
    pub fn describe(&self) -> String {
        let why = &self.why;
        match self.change {
            UncapturedChange::Gone => format!("is gone, and no snapshot holds it ({why})"),
            UncapturedChange::Replaced => format!("was replaced, and no snapshot holds it ({why})"),
            UncapturedChange::Modified => format!("was changed, and no snapshot holds it ({why})"),
            UncapturedChange::ChangedInside | UncapturedChange::Created => {
                format!("not recorded ({why})")
            }
        }
    }
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
    /// The turn of another session that this one works for, as a sub-agent does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentTurn>,
}

/// A turn that other sessions work for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParentTurn {
    /// The session.
    pub session: String,
    /// Its message; found by itself while that session has a step open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl StepInfo {
    /// Returns every text that describes the step to people. Ids are not among them.
    pub(crate) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.label, &mut self.tool, &mut self.who].into_iter().flatten()
    }

    /// Whether it is part of what `session` did, itself or through a sub-agent.
    pub fn belongs_to(&self, session: &str) -> bool {
        self.session == session || self.parent.as_ref().is_some_and(|turn| turn.session == session)
    }

    /// The session that people think of: the one that started the others.
    pub fn root_session(&self) -> &str {
        self.parent.as_ref().map_or(&self.session, |turn| &turn.session)
    }

    /// The turn of [`StepInfo::root_session`] that it belongs to.
    pub fn root_turn(&self) -> &str {
        let parent = self.parent.as_ref().and_then(|turn| turn.message.as_deref());
        parent.unwrap_or_else(|| self.turn())
    }

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
    /// Operations before it in its segment, and when that began.
    #[serde(default)]
    place: u32,
    #[serde(default)]
    began: u64,
    /// What came before it, where a new segment begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    continues: Option<Continues>,
    /// For each session it belongs to, the newest commit before it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    previous: BTreeMap<String, ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Meta>,
    /// The commit, our second parent, whose tree holds the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta_in: Option<ObjectId>,
}

/// The end of the segment before.
#[derive(Debug, Serialize, Deserialize)]
struct Continues {
    commit: ObjectId,
    id: String,
}

fn is_default(details: &Details) -> bool {
    *details == Details::default()
}

/// A new entry, before it has a commit.
pub(crate) struct NewOperation {
    pub(crate) kind: OperationKind,
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    pub(crate) details: Details,
    /// Small ignored files, if they are other than before.
    pub(crate) companion: Option<NewCompanion>,
}

/// Where a new entry goes.
pub(crate) struct Place<'a> {
    pub(crate) work_tree: &'a str,
    pub(crate) last: Option<&'a Operation>,
    /// Whether it begins a new segment.
    pub(crate) cut: bool,
    /// The newest commit of each session it belongs to.
    pub(crate) previous: BTreeMap<String, ObjectId>,
    /// The newest companion.
    pub(crate) last_companion: Option<ObjectId>,
}

impl NewOperation {
    /// The sessions it belongs to.
    pub(crate) fn sessions(&self) -> BTreeSet<&str> {
        sessions_of(&self.details)
    }
}

pub(crate) fn sessions_of(details: &Details) -> BTreeSet<&str> {
    let credited = details.credits.iter().map(|credit| credit.step.session.as_str());
    credited.chain(details.session.as_deref()).filter(|session| !session.is_empty()).collect()
}

/// Writes the operation's objects into `pack`. It is not in the log until a ref names its commit.
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
        // Each segment keeps its own companions, so that dropping one takes nothing from another.
        None if cut => match meta.companion {
            // One that was left out when the log came from elsewhere stays out.
            Some(id) if objects.read(&id)?.is_some() => {
                let companion = companion::read(objects, &id)?.into_new();
                Some(companion::write(pack, &companion, None, at_millis, exists)?)
            }
            Some(_) | None => None,
        },
        None => meta.companion,
    };
    let json = serde_json::to_string(&meta).expect("plain data has a JSON form");
    let spilled = match json.len() > MAX_INLINE_BYTES {
        true => Some(spill(pack, json.as_bytes(), exists)?),
        false => None,
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
    let label = label.or_else(|| details.gap.as_ref().map(Gap::describe));
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
    let tree = add(pack, Kind::Tree, &spilled_tree(blob), exists)?;
    add(pack, Kind::Commit, &encode_commit(&spilled_commit(tree)), exists)
}

pub(crate) fn add(
    pack: &PackWriter,
    kind: Kind,
    bytes: &[u8],
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    pack.add(kind, bytes, exists)?.ok_or_else(|| attack(kind))
}

/// What we write ourselves is no attack on SHA-1, unless names of files were chosen for it.
pub(super) fn attack(kind: Kind) -> Error {
    let why = format!("a {} of ours attacks the hash", kind.name());
    Error::Damaged { id: ObjectId::NULL, why }
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
    if header.v > VERSION {
        return Err(damaged(&format!(
            "a later version of ctrlz wrote it (operation version {})",
            header.v
        )));
    }
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
        parent: parents.first().copied().or(header.continues.as_ref().map(|end| end.commit)),
        follows: header.continues.map(|end| end.id),
        segment: Segment { place: header.place, began: header.began },
        meta,
    })
}

/// What changes in an operation that is written for others to see.
pub(crate) struct Redacted<'a> {
    pub(crate) snapshot: ObjectId,
    pub(crate) meta: Meta,
    /// For old commits the new ones; every commit that comes before is in it, if it is kept.
    pub(crate) commits: &'a HashMap<ObjectId, ObjectId>,
}

/// Writes the operation of a commit anew, through `put`, and gives the new commit.
pub(crate) fn redact(
    objects: &Objects,
    commit: &ObjectId,
    new: Redacted<'_>,
    mut put: impl FnMut(Kind, Vec<u8>) -> ObjectId,
) -> Result<ObjectId, Error> {
    let damaged = |why: &str| Error::Damaged { id: *commit, why: why.into() };
    let (_, bytes) = objects.read(commit)?.ok_or_else(|| damaged("it is missing"))?;
    let mut commit = parse_commit(&bytes).ok_or_else(|| damaged("it is not a commit"))?;
    let mut header: Header =
        serde_json::from_str(&commit.data).map_err(|_| damaged("its data cannot be read"))?;
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
    (header.meta, header.meta_in) = match json.len() > MAX_INLINE_BYTES {
        false => (Some(new.meta), None),
        true => {
            let blob = put(Kind::Blob, json.into_bytes());
            let tree = put(Kind::Tree, spilled_tree(blob));
            (None, Some(put(Kind::Commit, encode_commit(&spilled_commit(tree)))))
        }
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

/// How a commit of the store is written again.
pub(crate) struct Rewriting<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) pack: &'a PackWriter,
    /// The new ids of commits that were written again.
    pub(crate) commits: &'a BTreeMap<ObjectId, ObjectId>,
}

/// What becomes of an operation that is written again.
pub(crate) struct Rewritten {
    pub(crate) snapshot: ObjectId,
    /// What to say of it beside its tree; `None` for what it said before.
    pub(crate) meta: Option<Meta>,
    /// Its new details; `None` for the old ones. Author and message of the commit follow them.
    pub(crate) details: Option<Details>,
    /// It stands for this many dropped operations before it, beside itself. A checkpoint keeps its
    /// name and its pin; of any other operation credit, kind and label go.
    pub(crate) stands_for: u64,
    pub(crate) start: Start,
}

impl Rewritten {
    /// Changes nothing but the snapshot, and the ids of what the operation names.
    pub(crate) fn with_snapshot(snapshot: ObjectId) -> Rewritten {
        Rewritten { snapshot, meta: None, details: None, stands_for: 0, start: Start::Same }
    }
}

/// Where the segment of an operation that is written again begins.
pub(crate) enum Start {
    /// Where it began before.
    Same,
    /// With this operation, which is the first of the log.
    First,
    /// With this operation, after another that ends a segment.
    After { commit: ObjectId, id: String },
}

impl Rewriting<'_> {
    fn moved(&self, id: ObjectId) -> ObjectId {
        self.commits.get(&id).copied().unwrap_or(id)
    }

    /// Writes an operation's commit again, with what it names under its new ids.
    pub(crate) fn write(&self, operation: &Operation, new: Rewritten) -> Result<ObjectId, Error> {
        let damaged = || Error::Damaged { id: operation.commit, why: "it is no operation".into() };
        let exists = &|id: &ObjectId| self.objects.holds(id);
        let (_, bytes) = self.objects.read(&operation.commit)?.ok_or_else(damaged)?;
        let old = parse_commit(&bytes).ok_or_else(damaged)?;
        let mut header: Header = serde_json::from_str(&old.data).map_err(|_| damaged())?;
        let mut meta = new.meta.unwrap_or_else(|| operation.meta.clone());
        meta.companion = meta.companion.map(|companion| self.moved(companion));
        let json = serde_json::to_string(&meta).expect("plain data has a JSON form");
        header.meta_in = match json.len() > MAX_INLINE_BYTES {
            true => Some(spill(self.pack, json.as_bytes(), exists)?),
            false => None,
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
        let mut parent = operation.parent.filter(|_| operation.follows.is_none());
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

/// An operation's snapshot and what came before it in its segment, without the rest.
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

/// Whether an operation was recorded after another one of the same session.
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
    let damaged = |why: &str| Error::Damaged { id: *id, why: why.into() };
    let (_, bytes) = objects.read(id)?.ok_or_else(|| damaged("it is missing"))?;
    let commit = parse_commit(&bytes).ok_or_else(|| damaged("it is not a commit"))?;
    let header: Previous =
        serde_json::from_str(&commit.data).map_err(|_| damaged("its data cannot be read"))?;
    Ok(header.previous.contains_key(session))
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

/// An id that sorts after the one before it, also if the clock was set back or stood still.
fn id_after(last: Option<&str>, at_millis: u64) -> String {
    let id = id_at(at_millis);
    match last.and_then(number_of) {
        Some(last) if id.as_str() <= text_of(last).as_str() => text_of(last.wrapping_add(1)),
        _ => id,
    }
}

/// A ULID: 48 bits of milliseconds and 80 random ones, in Crockford's base 32.
fn id_at(at_millis: u64) -> String {
    let mut random = [0; 16];
    fill_random(&mut random[6..]);
    text_of((u128::from(at_millis) << 80) | u128::from_be_bytes(random))
}

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

fn text_of(value: u128) -> String {
    (0..26).rev().map(|at| char::from(DIGITS[(value >> (at * 5)) as usize & 31])).collect()
}

fn number_of(id: &str) -> Option<u128> {
    let digit = |byte: u8| DIGITS.iter().position(|digit| *digit == byte);
    id.bytes().try_fold(0u128, |value, byte| Some((value << 5) | digit(byte)? as u128))
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
        let last = id_at(9_000);
        assert!(id_after(Some(&last), 1_000) > last, "the clock was set back");
    }
}
