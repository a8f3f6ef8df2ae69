//! Operations: the entries of a log.

use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::store::Head;

use super::meta::Meta;

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
    /// Changes while steps were open. [`Details::credits`] attributes them.
    Step,
    /// Changes since the last operation that belong to no step.
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
    pub(super) fn subject(self) -> &'static str {
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
    /// Its kind.
    pub kind: OperationKind,
    /// The snapshot after it.
    pub snapshot: ObjectId,
    /// Milliseconds since 1970.
    pub at_millis: u64,
    /// Its author, and the steps that it takes back.
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

/// The data of an operation besides its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The steps whose changes it holds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<Credit>,
    /// Paths that changed while several steps were open and that none of them named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<TreePath>,
    /// Files that were moved and changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
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
    /// Changes of ignored files that an undo left because they were not asked for.
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
    /// It has no part in the paths that several steps share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
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

/// A file that has another name and other content than in the snapshot before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Its path before.
    pub from: TreePath,
    /// Its path now.
    pub to: TreePath,
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

/// A change of a path that no snapshot holds.
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

/// A step: one tool call, or one turn.
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
    /// A label for users.
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
