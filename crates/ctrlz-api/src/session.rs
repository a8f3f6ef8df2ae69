//! Steps and sessions, as JSON.

use ctrlz::{Error, SessionError, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::put_back::RestoreReport;
use crate::snapshot::{Change, Skipped, all_skipped, is_complete, tag};

/// Description of a step: one tool call or one turn.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepInfo {
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

impl From<&ctrlz::StepInfo> for StepInfo {
    fn from(info: &ctrlz::StepInfo) -> StepInfo {
        let ctrlz::StepInfo { step, session, message, part, tool, label, who, parent } =
            info.clone();
        let parent = parent.map(ParentTurn::from);
        StepInfo { step, session, message, part, tool, label, who, parent }
    }
}

/// A turn for which other sessions work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ParentTurn {
    /// Session of the turn.
    pub session: String,
    /// Message of the turn, if it is known.
    pub message: Option<String>,
}

impl From<ctrlz::ParentTurn> for ParentTurn {
    fn from(turn: ctrlz::ParentTurn) -> ParentTurn {
        let ctrlz::ParentTurn { session, message } = turn;
        ParentTurn { session, message }
    }
}

/// A step that was begun.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepBegun {
    /// Id of the step.
    pub step: String,
    /// Snapshot before the step.
    pub before: Hash,
    /// Whether nothing is missing in that snapshot because of a failure.
    pub complete: bool,
    /// Paths that the snapshot does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Number of blobs that were still borrowed from the user's repository when the step began.
    pub borrowed: u64,
    /// Ignored or large files that the tool names and that were not captured, because they exceed
    /// the size limit, the quota or the time limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<WirePath>,
}

impl From<&ctrlz::StepBegun> for StepBegun {
    fn from(begun: &ctrlz::StepBegun) -> StepBegun {
        StepBegun {
            step: begun.step.clone(),
            before: begun.before.into(),
            complete: is_complete(&begun.skipped),
            skipped: all_skipped(&begun.skipped),
            not_kept: begun.not_kept.iter().map(WirePath::from).collect(),
            borrowed: begun.borrowed,
        }
    }
}

/// A step that was ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepEnded {
    /// Id of the step.
    pub step: String,
    /// Snapshot before the step.
    pub before: Hash,
    /// Snapshot after the step.
    pub after: Hash,
    /// Paths that changed in between, by any process.
    pub files: Vec<WirePath>,
    /// Whether nothing is missing in the later snapshot because of a failure.
    pub complete: bool,
    /// Paths that the later snapshot does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Paths that no snapshot holds and that the step created, removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
}

/// A path that no snapshot holds and that a step created, removed or changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Uncaptured {
    /// The path, relative to the work tree, or absolute if it lies outside.
    pub path: WirePath,
    /// Change made by the step: `gone`, `replaced`, `modified`, `changed_inside`, `created`, or a
    /// newer one that is not in this list.
    pub change: String,
    /// Whether undo cannot restore the previous state. Otherwise the path is excluded by policy.
    pub loss: bool,
    /// Human-readable description of the change and of the reason why the path was not captured.
    pub text: String,
}

impl From<&ctrlz::Uncaptured> for Uncaptured {
    fn from(lost: &ctrlz::Uncaptured) -> Uncaptured {
        Uncaptured {
            path: WirePath::from_bytes(&*lost.path),
            change: tag(&lost.change, "change"),
            loss: lost.is_loss(),
            text: lost.describe(),
        }
    }
}

impl From<&ctrlz::StepEnded> for StepEnded {
    fn from(ended: &ctrlz::StepEnded) -> StepEnded {
        StepEnded {
            step: ended.step.clone(),
            before: ended.before.into(),
            after: ended.after.into(),
            files: ended.files.iter().map(WirePath::from).collect(),
            complete: is_complete(&ended.skipped),
            skipped: all_skipped(&ended.skipped),
            uncaptured: ended.uncaptured.iter().map(Uncaptured::from).collect(),
        }
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

/// Changes of one step in one operation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepRecord {
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

impl From<&ctrlz::StepRecord> for StepRecord {
    fn from(record: &ctrlz::StepRecord) -> StepRecord {
        let paths = record.paths.as_ref();
        StepRecord {
            info: (&record.info).into(),
            operation: record.operation.clone(),
            at_millis: record.at_millis,
            before: record.before.into(),
            after: record.after.into(),
            paths: paths.map(|paths| paths.iter().map(WirePath::from).collect()),
            inferred: record.inferred,
            undone: record.undone,
        }
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

/// A session in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionInfo {
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

impl From<&ctrlz::SessionInfo> for SessionInfo {
    fn from(info: &ctrlz::SessionInfo) -> SessionInfo {
        SessionInfo {
            session: info.session.clone(),
            who: info.who.clone(),
            parent: info.parent.clone(),
            forked: info.forked.as_ref().map(Forked::from),
            steps: info.steps as u64,
            undone: info.undone as u64,
            first_at_millis: info.first_at_millis,
            last_at_millis: info.last_at_millis,
            reverted: info.reverted.as_ref().map(RevertState::from),
        }
    }
}

/// Origin of a forked session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Forked {
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

impl From<&ctrlz::Forked> for Forked {
    fn from(forked: &ctrlz::Forked) -> Forked {
        let ctrlz::Forked { session, message, operation, log } = forked.clone();
        Forked { session, message, operation, log }
    }
}

/// A period in which nothing could be recorded.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gap {
    /// Human-readable reason.
    pub why: String,
    /// Turns whose steps are missing, oldest first.
    pub turns: Vec<UnrecordedTurn>,
}

/// A turn, or part of one, that is missing in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnrecordedTurn {
    /// Name of the agent.
    pub who: Option<String>,
    /// Session of the turn.
    pub session: String,
    /// The message (turn).
    pub message: Option<String>,
}

impl From<&ctrlz::Gap> for Gap {
    fn from(gap: &ctrlz::Gap) -> Gap {
        let turn = |turn: &ctrlz::UnrecordedTurn| {
            let ctrlz::UnrecordedTurn { who, session, message } = turn.clone();
            UnrecordedTurn { who, session, message }
        };
        Gap { why: gap.why.clone(), turns: gap.turns.iter().map(turn).collect() }
    }
}

/// The point to which a session is reverted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Boundary {
    /// The first message that is undone.
    pub message: String,
    /// The first part of the message that is undone; `null` if the whole message is.
    pub part: Option<String>,
}

impl From<&ctrlz::Boundary> for Boundary {
    fn from(boundary: &ctrlz::Boundary) -> Boundary {
        let ctrlz::Boundary { message, part } = boundary.clone();
        Boundary { message, part }
    }
}

/// A revert that can still be moved or undone.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RevertState {
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

impl From<&ctrlz::RevertState> for RevertState {
    fn from(state: &ctrlz::RevertState) -> RevertState {
        RevertState {
            session: state.session.clone(),
            boundary: (&state.boundary).into(),
            operation: state.operation.clone(),
            before: state.before.into(),
            after: state.after.into(),
            steps: state.steps.clone(),
            messages: state.messages.clone(),
        }
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

/// A session that shares the history of another one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Fork {
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
    pub complete: bool,
}

impl From<&ctrlz::Fork> for Fork {
    fn from(fork: &ctrlz::Fork) -> Fork {
        Fork {
            session: fork.session.clone(),
            forked: (&fork.forked).into(),
            snapshot: fork.snapshot.into(),
            into: fork.into.as_deref().map(WirePath::from),
            report: fork.report.as_ref().map(RestoreReport::from),
            complete: fork.report.as_ref().is_none_or(ctrlz::RestoreReport::is_complete),
        }
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
