//! Steps and sessions, as JSON.

use ctrlz::{Error, SessionError, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::put_back::RestoreReport;
use crate::snapshot::{Change, Skipped, is_complete};
use crate::wire::wire;

wire! {
    /// Description of a step: one tool call or one turn.
    pub struct StepInfo from ctrlz::StepInfo {
        /// Id of the step.
        pub step: String,
        /// Session of the step.
        pub session: String,
        /// Message (turn) of the step.
        pub message: Option<String>,
        /// Part of the message.
        pub part: Option<String>,
        /// Name of the tool.
        pub tool: Option<String>,
        /// Human-readable label.
        pub label: Option<String>,
        /// Name of the agent.
        pub who: Option<String>,
        /// The turn of another session for which this session works as a sub-agent.
        pub parent: Option<ParentTurn>,
    }

    /// A turn for which other sessions work.
    pub struct ParentTurn from ctrlz::ParentTurn {
        /// Session of the turn.
        pub session: String,
        /// Message of the turn, if it is known.
        pub message: Option<String>,
    }

    /// A step that was begun.
    pub struct StepBegun from ctrlz::StepBegun {
        /// Id of the step.
        pub step: String,
        /// Snapshot before the step.
        pub before: Hash,
        /// Whether nothing is missing in that snapshot because of a failure.
        pub complete: bool = |begun| is_complete(&begun.skipped),
        /// Paths that the snapshot does not hold, with the reasons.
        pub skipped: Vec<Skipped>,
        /// Number of blobs that were still borrowed from the user's repository when the step began.
        pub borrowed: u64,
        /// Ignored or large files that the tool names and that were not captured, because they exceed
        /// the size limit, the quota or the time limit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub not_kept: Vec<WirePath>,
    }

    /// A step that was ended.
    pub struct StepEnded from ctrlz::StepEnded {
        /// Id of the step.
        pub step: String,
        /// Snapshot before the step.
        pub before: Hash,
        /// Snapshot after the step.
        pub after: Hash,
        /// Paths that changed in between, by any process.
        pub files: Vec<WirePath>,
        /// Whether nothing is missing in the later snapshot because of a failure.
        pub complete: bool = |ended| is_complete(&ended.skipped),
        /// Paths that the later snapshot does not hold, with the reasons.
        pub skipped: Vec<Skipped>,
        /// Paths that no snapshot holds and that the step created, removed or changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub uncaptured: Vec<Uncaptured>,
    }

    /// A path that no snapshot holds and that a step created, removed or changed.
    pub struct Uncaptured from ctrlz::Uncaptured {
        /// The path, relative to the work tree, or absolute if it lies outside.
        pub path: WirePath = |lost| WirePath::from_bytes(&*lost.path),
        /// Change made by the step: `gone`, `replaced`, `modified`, `changed_inside`, `created`, or a
        /// newer one that is not in this list.
        pub change: String,
        /// Whether undo cannot restore the previous state. Otherwise the path is excluded by policy.
        pub loss: bool = ctrlz::Uncaptured::is_loss,
        /// Human-readable description of the change and of the reason why the path was not captured.
        pub text: String = ctrlz::Uncaptured::describe,
    }
}

/// The steps of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Steps {
    /// The steps, oldest first. A step that was recorded in several operations appears several
    /// times.
    pub steps: Vec<StepRecord>,
    /// Number of entries in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

/// The steps that are open.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OpenSteps {
    /// The steps, in the order in which they began.
    pub steps: Vec<StepInfo>,
}

/// Result of `note_failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Noted {
    /// Whether the failure was stored.
    pub noted: bool,
}

impl OpenSteps {
    /// Returns the steps that were begun and not ended.
    pub fn of(workspace: &Workspace) -> Result<OpenSteps, Error> {
        Ok(OpenSteps { steps: workspace.working_steps()?.iter().map(StepInfo::from).collect() })
    }
}

wire! {
    /// Changes of one step in one operation.
    pub struct StepRecord from ctrlz::StepRecord {
        /// The step.
        #[serde(flatten)]
        pub info: StepInfo,
        /// The operation.
        pub operation: String,
        /// Time of the operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// Snapshot before the operation.
        pub before: Hash,
        /// Snapshot after the operation.
        pub after: Hash,
        /// Paths of the step; `null` for all paths that differ.
        pub paths: Option<Vec<WirePath>>,
        /// Whether the step was closed automatically because its agent did not end it.
        pub inferred: bool,
        /// Whether the step is currently undone.
        pub undone: bool,
    }
}

/// A step with its records and its changes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ShownStep {
    /// Id of the step.
    pub step: String,
    /// Records of the step, oldest first, one per operation.
    pub records: Vec<StepRecord>,
    /// All changes of the step, except those that are currently undone.
    pub files: Vec<Change>,
}

impl ShownStep {
    /// Reads the records and the changes of a step.
    pub fn of(workspace: &Workspace, step: &str) -> Result<ShownStep, Error> {
        let records = workspace.step(step)?;
        let files = workspace.step_changes(&ctrlz::StepScope::Step(step.to_owned()))?;
        Ok(ShownStep {
            step: step.to_owned(),
            records: records.iter().map(StepRecord::from).collect(),
            files: files.iter().map(Change::from).collect(),
        })
    }
}

/// The sessions of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sessions {
    /// The sessions, most recently active first.
    pub sessions: Vec<SessionInfo>,
    /// Logs that were pulled or imported and belong to other work trees, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
}

/// A log from another machine or work tree, and its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Elsewhere {
    /// Name of the log.
    pub log: String,
    /// Server or file from which the log came.
    pub from: String,
    /// Newest snapshot of the log.
    pub snapshot: Hash,
    /// Newest operation of the log.
    pub operation: String,
    /// Time of that operation, in milliseconds since the Unix epoch.
    pub at_millis: u64,
    /// Sessions of the log, most recently active first.
    pub sessions: Vec<SessionInfo>,
}

impl Elsewhere {
    fn of(workspace: &Workspace, log: ctrlz::Log) -> Result<Elsewhere, Error> {
        let sessions = workspace.sessions(Some(&log.name))?;
        Ok(Elsewhere {
            sessions: newest_first(&sessions),
            log: log.name,
            from: log.from,
            snapshot: log.snapshot.into(),
            operation: log.operation,
            at_millis: log.at_millis,
        })
    }
}

fn newest_first(sessions: &[ctrlz::SessionInfo]) -> Vec<SessionInfo> {
    sessions.iter().rev().map(SessionInfo::from).collect()
}

impl Sessions {
    /// Reads the sessions of a work tree.
    pub fn of(workspace: &Workspace) -> Result<Sessions, Error> {
        let logs = workspace.transfer().received_logs()?.into_iter().rev();
        let elsewhere = logs.map(|log| Elsewhere::of(workspace, log)).collect::<Result<_, _>>()?;
        Ok(Sessions { sessions: newest_first(&workspace.sessions(None)?), elsewhere })
    }
}

wire! {
    /// A session in the log.
    pub struct SessionInfo from ctrlz::SessionInfo {
        /// Id of the session.
        pub session: String,
        /// Name of the agent, if it was given.
        pub who: Option<String>,
        /// The session for which this one works as a sub-agent.
        pub parent: Option<String>,
        /// Origin of the session, if it is a fork.
        pub forked: Option<Forked>,
        /// Number of steps that changed something.
        pub steps: u64,
        /// Number of steps that are currently undone.
        pub undone: u64,
        /// Time of its first recorded change, in milliseconds since the Unix epoch.
        pub first_at_millis: u64,
        /// Time of its last recorded change, in milliseconds since the Unix epoch.
        pub last_at_millis: u64,
        /// Its revert, as long as it can be moved or undone.
        pub reverted: Option<RevertState>,
    }

    /// Origin of a forked session.
    pub struct Forked from ctrlz::Forked {
        /// The session whose history is shared.
        pub session: String,
        /// The first message that is not shared; `null` if everything up to the fork is shared.
        pub message: Option<String>,
        /// The last operation that is shared.
        pub operation: String,
        /// The log of that operation, if the fork has its own directory and log.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log: Option<String>,
    }

    /// A period in which nothing could be recorded.
    pub struct Gap from ctrlz::Gap {
        /// Human-readable reason.
        pub why: String,
        /// Turns whose steps are missing, oldest first.
        pub turns: Vec<UnrecordedTurn>,
    }

    /// A turn, or part of one, that is missing in the log.
    pub struct UnrecordedTurn from ctrlz::UnrecordedTurn {
        /// Name of the agent.
        pub who: Option<String>,
        /// Session of the turn.
        pub session: String,
        /// The message (turn).
        pub message: Option<String>,
    }

    /// The point to which a session is reverted.
    pub struct Boundary from ctrlz::Boundary {
        /// The first message that is undone.
        pub message: String,
        /// The first part of the message that is undone; `null` if the whole message is.
        pub part: Option<String>,
    }

    /// A revert that can still be moved or undone.
    pub struct RevertState from ctrlz::RevertState {
        /// Id of the session.
        pub session: String,
        /// The point to which the session is reverted.
        pub boundary: Boundary,
        /// The operation that reverted it.
        pub operation: String,
        /// Snapshot before the revert.
        pub before: Hash,
        /// Snapshot after the revert.
        pub after: Hash,
        /// Steps that are undone, oldest first.
        pub steps: Vec<String>,
        /// Messages of those steps, oldest first. A commit of the revert removes them.
        pub messages: Vec<String>,
    }
}

/// The revert of a session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reverted {
    /// The revert, as long as it can be moved or undone; `null` if there is none.
    pub reverted: Option<RevertState>,
}

/// Returns the pending revert of `session`, or the newest pending revert if `session` is `None`.
pub(crate) fn pending_revert(
    workspace: &Workspace,
    session: Option<&str>,
) -> Result<Option<ctrlz::RevertState>, Error> {
    if let Some(session) = session {
        return workspace.revert_state(session);
    }
    let reverts = workspace.sessions(None)?.into_iter().filter_map(|info| info.reverted);
    Ok(reverts.max_by(|one, other| one.operation.cmp(&other.operation)))
}

/// Returns the session of a message. If several sessions use the id, the last one wins. A message
/// without recorded steps is assumed to belong to the most recently active session.
pub fn session_of(workspace: &Workspace, message: &str) -> Result<String, Error> {
    let steps = workspace.steps()?;
    let step = steps.into_iter().rev().find(|step| step.info.message.as_deref() == Some(message));
    if let Some(step) = step {
        return Ok(step.info.session);
    }
    let last = workspace.sessions(None)?.pop();
    let unknown = || Error::Session(SessionError::NoSuchMessage { message: message.to_owned() });
    Ok(last.ok_or_else(unknown)?.session)
}

wire! {
    /// A session that shares the history of another one.
    pub struct Fork from ctrlz::Fork {
        /// Id of the new session.
        pub session: String,
        /// Origin of the new session.
        pub forked: Forked,
        /// The snapshot at which the fork begins.
        pub snapshot: Hash,
        /// Directory of the fork's files, if one was requested.
        pub into: Option<WirePath>,
        /// Report of the restore into that directory.
        pub report: Option<RestoreReport>,
        /// Whether the request was carried out completely.
        pub complete: bool = |fork| match &fork.report {
            Some(report) => report.is_complete(),
            None => true,
        },
    }
}

/// The state of a session at a message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotBefore {
    /// Outcome of the search.
    pub outcome: SnapshotBeforeOutcome,
    /// The message that was found; `null` if none has recorded steps.
    pub message: Option<String>,
    /// The snapshot at its beginning, or at its end if it is not the first message of the request;
    /// `null` unless it was found.
    pub snapshot: Option<Hash>,
    /// The operation that recorded the snapshot.
    pub operation: Option<String>,
}

/// Outcome of the search for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotBeforeOutcome {
    /// The snapshot of the first message with recorded steps is available.
    Found,
    /// A message has recorded steps, but retention removed its snapshot.
    Expired,
    /// None of the messages has recorded steps.
    Nothing,
}

impl From<ctrlz::SnapshotBefore> for SnapshotBefore {
    fn from(found: ctrlz::SnapshotBefore) -> SnapshotBefore {
        let (outcome, message, snapshot, operation) = match found {
            ctrlz::SnapshotBefore::Found { message, snapshot, operation } => (
                SnapshotBeforeOutcome::Found,
                Some(message),
                Some(snapshot.into()),
                Some(operation),
            ),
            ctrlz::SnapshotBefore::Expired { message } => {
                (SnapshotBeforeOutcome::Expired, Some(message), None, None)
            }
            ctrlz::SnapshotBefore::Nothing => (SnapshotBeforeOutcome::Nothing, None, None, None),
        };
        SnapshotBefore { outcome, message, snapshot, operation }
    }
}
