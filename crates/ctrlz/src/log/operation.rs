//! Operations: the entries of a log.

use serde::{Deserialize, Serialize};

use crate::clock::now_millis;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::store::Head;

use super::meta::Meta;

/// Number of operations after which a new segment begins. Old segments are dropped as a whole.
const MAX_SEGMENT: u32 = 256;
/// Age of a segment's first operation after which a new segment begins (24 hours).
const MAX_SEGMENT_MILLIS: u64 = 24 * 3600 * 1000;

/// Reason for recording a snapshot. Stored as data, so that undo never parses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// The first snapshot of the work tree.
    Baseline,
    /// Changes made while steps were open. [`Details::credits`] attributes them.
    Step,
    /// Changes since the last operation that belong to no step.
    Outside,
    /// A whole snapshot was restored.
    Restore,
    /// Single files were restored, or a session was reverted to a message.
    Revert,
    /// A session's revert was reversed.
    Unrevert,
    /// Steps were undone.
    Undo,
    /// An undo was reversed.
    Redo,
    /// A named state.
    Checkpoint,
    /// A session that continues from an earlier state of another one.
    Fork,
}

impl OperationKind {
    /// Returns whether the operation writes files of the work tree.
    pub fn writes_files(self) -> bool {
        use OperationKind::{Redo, Restore, Revert, Undo, Unrevert};
        matches!(self, Restore | Revert | Unrevert | Undo | Redo)
    }

    pub(super) fn subject(self) -> &'static str {
        match self {
            OperationKind::Baseline => "baseline",
            OperationKind::Step => "a step",
            OperationKind::Outside => "changes outside any step",
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
    /// Id of the operation, a ULID. It is sortable by time and never a commit hash.
    pub id: String,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Snapshot after the operation.
    pub snapshot: ObjectId,
    /// Time in milliseconds since 1970.
    pub at_millis: u64,
    /// Author, attribution of changes, undone steps and other data.
    pub details: Details,
    pub(crate) work_tree: String,
    pub(crate) commit: ObjectId,
    /// Commit of the previous operation, even across segments.
    pub(crate) parent: Option<ObjectId>,
    /// Id of the last operation of the previous segment, if this one begins a segment. The ref of
    /// that segment names its current commit and is absent if the segment was dropped.
    pub(crate) follows: Option<String>,
    pub(crate) segment: Segment,
    pub(crate) meta: Meta,
}

impl Operation {
    /// Returns the commit of the previous operation, if it is in the same segment.
    pub(crate) fn parent_in_segment(&self) -> Option<ObjectId> {
        self.parent.filter(|_| self.follows.is_none())
    }
}

/// Position of an operation in its segment.
///
/// Within a segment, commits are linked as git parents. The first commit of a segment only names
/// its predecessor in its data, so that git can collect the older segment once its ref is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Number of earlier operations in the segment.
    pub(crate) place: u32,
    /// Time of the segment's first operation, in milliseconds since 1970.
    pub(crate) began: u64,
}

impl Segment {
    /// Returns the position that a commit claims. A forged place beyond the end of a segment counts
    /// as its end, so that the next operation begins a new one.
    pub(crate) fn read(place: u32, began: u64) -> Segment {
        Segment { place: place.min(MAX_SEGMENT - 1), began }
    }

    /// Returns whether the next operation begins a new segment.
    pub(crate) fn is_full(self) -> bool {
        self.place + 1 >= MAX_SEGMENT
            || now_millis().saturating_sub(self.began) >= MAX_SEGMENT_MILLIS
    }
}

/// Data of an operation besides its snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// Steps whose changes the operation contains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credits: Vec<Credit>,
    /// Paths that changed while several steps were open and that none of them named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<TreePath>,
    /// Changes that earlier operations credited to a step and that its end shows are not its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disowned: Vec<Disowned>,
    /// Files that were both moved and modified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// Removed or replaced names (`from`) of files that had another name, too (`to`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlinked: Vec<Moved>,
    /// Steps that this undo reversed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<String>,
    /// Paths that the undo was limited to. Empty if it was not limited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undone_only: Vec<TreePath>,
    /// Steps that the undo did not reverse because all of their changes conflicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// Paths that the undo left unchanged because of a conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<TreePath>,
    /// Those of `conflicts` that another process had open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub in_use: Vec<TreePath>,
    /// Undo or revert that this operation reverses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_back: Option<String>,
    /// Ignored files that an undo or redo wrote or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<TreePath>,
    /// Ignored files whose changes an undo left because ignored files were not asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_left: Vec<TreePath>,
    /// Paths that the operation itself changed. Only set if a later command recorded it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<TreePath>,
    /// Part of an undo or redo that affects paths outside of the work tree, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideUndo>,
    /// Message that a session was reverted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// Revert that became final, so that it can no longer be reversed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<String>,
    /// Origin of a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked: Option<Forked>,
    /// Set if the store's disk was full while agents worked, so that changes were recorded later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// Label for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Session that the operation belongs to, if `credits` does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether a user asked for it on the command line or the web page, and not a program.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_person: bool,
    /// Whether retention must keep it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// HEAD of the user's own repository at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Number of earlier operations that thinning dropped. Their changes are part of this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub stands_for: u64,
}

/// Part of an undo or redo that affects paths outside of the work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideUndo {
    /// Steps that it reverses there.
    pub steps: Vec<String>,
    /// Capture of the state that it replaced, or `None` if it replaced nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A period in which nothing could be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gap {
    /// Reason to show to users: `store disk full` or `store quota reached`.
    pub why: String,
    /// Turns whose steps are missing, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<UnrecordedTurn>,
}

impl Gap {
    /// Returns a description for users, without the names of the turns.
    pub fn describe(&self) -> String {
        format!("not recorded: {}", self.why)
    }

    /// Returns the agents whose turns are missing, without duplicates.
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
    /// Name of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Session id.
    pub session: String,
    /// Message id (turn).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// First message or part of a session that a revert reverses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Message id.
    pub message: String,
    /// Part of the message, if the parts before it are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Origin of a forked session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// Session that it shares history with.
    pub session: String,
    /// First message that it does not share, or `None` if it shares all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Last operation that it shares.
    pub operation: String,
    /// Log that contains the operation, if the fork has a log of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Changes that are attributed to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// The step.
    #[serde(flatten)]
    pub step: StepInfo,
    /// Changed paths, or `None` for everything that the operation changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<TreePath>>,
    /// Whether changes of directories belong to the step although `paths` lists only files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirs: bool,
    /// Whether the tool changes only the files that it names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_named: bool,
    /// Whether the step has no part in the shared paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Paths that changed after the last sign of activity of an interrupted step. The step or the
    /// user may have changed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unclear: Vec<TreePath>,
    /// Whether the step was not closed by its agent, so that its end is inferred.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inferred: bool,
    /// Ignored files that the tool named and that are therefore attributed to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<TreePath>,
    /// Ignored files, not attributed to the step, that changed after it began but before its tool
    /// ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_ignored: Vec<TreePath>,
    /// Paths that no snapshot holds and that the step removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
    /// Whether it changed something outside of the work tree that a capture holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Operation that recorded the state at the beginning of the step.
    #[serde(default)]
    pub begun: String,
    /// Time at which the step began, in milliseconds since 1970, or 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub began_millis: u64,
}

impl Credit {
    /// Returns whether anything is attributed to the step.
    pub(crate) fn has_something(&self) -> bool {
        self.paths.as_ref().is_none_or(|paths| !paths.is_empty())
            || !self.named.is_empty()
            || !self.unclear.is_empty()
            || !self.uncaptured.is_empty()
            || self.outside
    }
}

/// Changes that a step turned out not to have made, or that the user may have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disowned {
    /// Id of the step.
    pub step: String,
    /// The paths; `None` for all of them, because the tool was refused and never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<TreePath>>,
    /// Whether the step may have made them, because it was interrupted and nothing shows when.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unclear: bool,
}

impl Disowned {
    /// Removes the changes from an earlier credit of the step. Returns whether the step still has a
    /// part in the operation.
    pub(crate) fn take_from(&self, credit: &mut Credit) -> bool {
        let Some(paths) = &self.paths else { return false };
        let is_other = |path: &TreePath| !paths.contains(path);
        credit.named.retain(is_other);
        let own = credit.paths.iter_mut().flatten();
        let taken: Vec<TreePath> =
            own.filter(|path| !is_other(path)).map(|path| path.clone()).collect();
        credit.paths.iter_mut().for_each(|own| own.retain(is_other));
        if self.unclear {
            credit.unclear.extend(taken);
        }
        true
    }
}

/// A file whose path and content both differ from the previous snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Previous path.
    pub from: TreePath,
    /// New path.
    pub to: TreePath,
}

/// A path that no snapshot holds and that a step removed or changed. Undo cannot restore it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncaptured {
    /// Path relative to the work tree, or absolute if it lies outside.
    #[serde(with = "crate::path::text")]
    pub path: Vec<u8>,
    /// Reason why it was not captured.
    pub why: String,
    /// Change that the step made.
    pub change: UncapturedChange,
    /// Size in bytes before the step, if it was a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A change of a path that no snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UncapturedChange {
    /// The path was removed.
    Gone,
    /// Another file or directory took its place.
    Replaced,
    /// The file was written to, or the directory outside of the work tree changed.
    Modified,
    /// A directory that is never entered, or an ignored file, changed. Such paths are left out on
    /// purpose, so this is not a loss.
    ChangedInside,
    /// The path was created. An undo does not remove it.
    Created,
}

impl Uncaptured {
    /// Returns whether undo cannot restore the previous state.
    pub fn is_loss(&self) -> bool {
        !matches!(self.change, UncapturedChange::ChangedInside | UncapturedChange::Created)
    }

    /// Returns a one-line description for users, without the path.
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
    /// Step id.
    pub step: String,
    /// Session that the step belongs to.
    pub session: String,
    /// Message (turn) that the step belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Part of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Label for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Turn of another session that this one works for, in a sub-agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentTurn>,
}

/// A turn that other sessions work for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParentTurn {
    /// Session id.
    pub session: String,
    /// Message id. Determined automatically while that session has an open step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl StepInfo {
    /// Returns every text that describes the step to users. Ids are not included.
    pub(crate) fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.label, &mut self.tool, &mut self.who].into_iter().flatten()
    }

    /// Returns whether the step was made by `session`, directly or through a sub-agent.
    pub fn belongs_to(&self, session: &str) -> bool {
        self.session == session || self.parent.as_ref().is_some_and(|turn| turn.session == session)
    }

    /// Returns the top-level session: the parent's session for a sub-agent, else its own.
    pub fn root_session(&self) -> &str {
        self.parent.as_ref().map_or(&self.session, |turn| &turn.session)
    }

    /// Returns the turn of [`StepInfo::root_session`] that the step belongs to.
    pub fn root_turn(&self) -> &str {
        let parent = self.parent.as_ref().and_then(|turn| turn.message.as_deref());
        parent.unwrap_or_else(|| self.turn())
    }

    /// Returns the turn that the step belongs to: its message, or its own id if it has none.
    pub fn turn(&self) -> &str {
        self.message.as_deref().unwrap_or(&self.step)
    }
}
