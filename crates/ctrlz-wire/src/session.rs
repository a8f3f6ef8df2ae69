//! Steps and sessions, as JSON.

use ctrlz::{Error, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::put_back::RestoreReport;
use crate::snapshot::{Change, Skipped, all_skipped, is_complete, tag};

/// What is known of a step: one tool call, or one turn.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepInfo {
    /// The step's own id.
    pub step: String,
    /// The session it belongs to.
    pub session: String,
    /// The message (turn) it belongs to.
    pub message: Option<String>,
    /// The part of the message.
    pub part: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// What it is about, for people.
    pub label: Option<String>,
    /// The agent.
    pub who: Option<String>,
    /// The turn of another session that this one works for, as a sub-agent does.
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

/// A turn that other sessions work for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ParentTurn {
    /// The session.
    pub session: String,
    /// Its message, as far as it is known.
    pub message: Option<String>,
}

impl From<ctrlz::ParentTurn> for ParentTurn {
    fn from(turn: ctrlz::ParentTurn) -> ParentTurn {
        let ctrlz::ParentTurn { session, message } = turn;
        ParentTurn { session, message }
    }
}

/// A step that began.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepBegun {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: Hash,
    /// Whether that snapshot holds everything it should.
    pub complete: bool,
    /// What that snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Blobs that the user's repository still had to lend when it began.
    pub borrowed: u64,
    /// Files that the tool names and that are ignored or large, and did not fit into the limit for
    /// them, the quota or the time.
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

/// A step that ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepEnded {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: Hash,
    /// The snapshot after it.
    pub after: Hash,
    /// The paths that changed in between, whoever changed them.
    pub files: Vec<WirePath>,
    /// Whether the later snapshot holds everything it should.
    pub complete: bool,
    /// What the later snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Paths that no snapshot holds and that the step removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
}

/// A path that no snapshot holds and that a step removed or changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Uncaptured {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The change that the step made: `gone`, `replaced`, `modified`, `changed_inside`, `created`, or one
    /// that is newer than this list.
    pub change: String,
    /// Whether undo cannot bring back what was there; otherwise it is left out by policy.
    pub loss: bool,
    /// The loss and the reason why the path was not captured, in words.
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
    /// The steps, oldest first. One that was recorded in several pieces is there several times.
    pub steps: Vec<StepRecord>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// The steps that are being worked on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OpenSteps {
    /// The steps, in the order in which they began.
    pub steps: Vec<StepInfo>,
}

/// Whether a failure is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Noted {
    /// It is.
    pub noted: bool,
}

impl OpenSteps {
    /// The steps that have begun and not ended.
    pub fn of(workspace: &Workspace) -> Result<OpenSteps, Error> {
        Ok(OpenSteps { steps: workspace.working_steps()?.iter().map(StepInfo::from).collect() })
    }
}

/// What one step changed in one operation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepRecord {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// The operation.
    pub operation: String,
    /// When it was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot before.
    pub before: Hash,
    /// The snapshot after.
    pub after: Hash,
    /// Its paths; `null` for all that differ.
    pub paths: Option<Vec<WirePath>>,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
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

/// One step: what is recorded of it, and what it did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ShownStep {
    /// The step's id.
    pub step: String,
    /// Its records, oldest first: one per operation it had a part in.
    pub records: Vec<StepRecord>,
    /// What it changed in all; what is taken back at present is left out.
    pub files: Vec<Change>,
}

impl ShownStep {
    /// Everything that is known about a step.
    pub fn of(workspace: &Workspace, step: &str) -> Result<ShownStep, Error> {
        let records = workspace.step(step)?;
        let files = workspace.deeds(&ctrlz::Deeds::Step(step.to_owned()))?;
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
    /// The sessions, the last active one first.
    pub sessions: Vec<SessionInfo>,
    /// Logs that were pulled or imported and are not this work tree's, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
}

/// A log that came from elsewhere, and its sessions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Elsewhere {
    /// Its name.
    pub log: String,
    /// The server or file it came from.
    pub from: String,
    /// Its newest snapshot.
    pub snapshot: Hash,
    /// Its newest operation.
    pub operation: String,
    /// When that was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// Its sessions, the last active one first.
    pub sessions: Vec<SessionInfo>,
}

impl Elsewhere {
    fn of(workspace: &Workspace, log: ctrlz::Log) -> Result<Elsewhere, Error> {
        let sessions = workspace.sessions_of(&log.name)?;
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
    /// The sessions as the engine has them.
    pub fn of(workspace: &Workspace) -> Result<Sessions, Error> {
        let logs = workspace.logs_from_elsewhere()?.into_iter().rev();
        let elsewhere = logs.map(|log| Elsewhere::of(workspace, log)).collect::<Result<_, _>>()?;
        Ok(Sessions { sessions: newest_first(&workspace.sessions()?), elsewhere })
    }
}

/// One session as the log has it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionInfo {
    /// The session's id.
    pub session: String,
    /// The agent, if it said so.
    pub who: Option<String>,
    /// The session it works for, if it is a sub-agent's.
    pub parent: Option<String>,
    /// Where it comes from, if it is a fork.
    pub forked: Option<Forked>,
    /// Steps that changed something.
    pub steps: u64,
    /// Steps that are taken back at present.
    pub undone: u64,
    /// When its first change was recorded, in milliseconds since 1970.
    pub first_at_millis: u64,
    /// When its last change was recorded.
    pub last_at_millis: u64,
    /// Its revert, as long as that can be moved or taken back.
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

/// Where a forked session comes from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Forked {
    /// The session it shares history with.
    pub session: String,
    /// The first message that it does not share; `null` if it shares all there was.
    pub message: Option<String>,
    /// The last operation that it shares.
    pub operation: String,
    /// The log that the operation is in, where the fork has a directory and a log of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

impl From<&ctrlz::Forked> for Forked {
    fn from(forked: &ctrlz::Forked) -> Forked {
        let ctrlz::Forked { session, message, operation, log } = forked.clone();
        Forked { session, message, operation, log }
    }
}

/// A time in which nothing could be recorded.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gap {
    /// Why, for people.
    pub why: String,
    /// The turns whose steps are missing, oldest first.
    pub turns: Vec<UnrecordedTurn>,
}

/// A turn, or a part of one, that is not in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnrecordedTurn {
    /// The agent.
    pub who: Option<String>,
    /// The session.
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

/// The first thing that a revert takes back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Boundary {
    /// The message.
    pub message: String,
    /// The part of it, if what comes before it in the message stays.
    pub part: Option<String>,
}

impl From<&ctrlz::Boundary> for Boundary {
    fn from(boundary: &ctrlz::Boundary) -> Boundary {
        let ctrlz::Boundary { message, part } = boundary.clone();
        Boundary { message, part }
    }
}

/// A revert that can still be moved or taken back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RevertState {
    /// The session.
    pub session: String,
    /// The first thing that is taken back.
    pub boundary: Boundary,
    /// The operation that took it back.
    pub operation: String,
    /// The snapshot before the revert.
    pub before: Hash,
    /// The snapshot after it.
    pub after: Hash,
    /// The steps that are taken back, oldest first.
    pub steps: Vec<String>,
    /// The messages they belong to, oldest first: what a commit removes.
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

/// A session's revert, if there is one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Reverted {
    /// The revert, as long as it can be moved or taken back; `null` if there is none.
    pub reverted: Option<RevertState>,
}

/// The revert of a session, or without one, the newest revert that is not final.
pub fn pending_revert(
    workspace: &Workspace,
    session: Option<&str>,
) -> Result<Option<ctrlz::RevertState>, Error> {
    if let Some(session) = session {
        return workspace.revert_state(session);
    }
    let reverts = workspace.sessions()?.into_iter().filter_map(|info| info.reverted);
    Ok(reverts.max_by(|one, other| one.operation.cmp(&other.operation)))
}

/// The session that a message belongs to; where several use the id, the one that used it last.
/// A message that nothing is recorded of yet can only be of the session that worked last.
pub fn session_of(workspace: &Workspace, message: &str) -> Result<String, Error> {
    let steps = workspace.steps()?;
    let step = steps.into_iter().rev().find(|step| step.info.message.as_deref() == Some(message));
    if let Some(step) = step {
        return Ok(step.info.session);
    }
    let last = workspace.sessions()?.pop();
    let unknown = || Error::NoSuchMessage { message: message.to_owned() };
    Ok(last.ok_or_else(unknown)?.session)
}

/// A session that shares history with another.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Fork {
    /// The new session.
    pub session: String,
    /// Where it comes from.
    pub forked: Forked,
    /// The snapshot it goes on from.
    pub snapshot: Hash,
    /// Where the files are, if they were asked for.
    pub into: Option<WirePath>,
    /// What became of the files there.
    pub report: Option<RestoreReport>,
    /// Whether everything that was asked for was done.
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

/// Where a session stood when a message came.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WalkBack {
    /// How the search ended.
    pub outcome: WalkBackOutcome,
    /// The message that was found; `null` if none left a trace.
    pub message: Option<String>,
    /// The snapshot at its beginning; `null` unless it was found.
    pub snapshot: Option<Hash>,
    /// The operation that recorded it.
    pub operation: Option<String>,
}

/// How the search for a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WalkBackOutcome {
    /// The state before the first of the messages that left a trace is known.
    Found,
    /// A message is known, but what was before it has been removed by retention.
    Expired,
    /// None of the messages left a trace.
    Nothing,
}

impl From<ctrlz::WalkBack> for WalkBack {
    fn from(found: ctrlz::WalkBack) -> WalkBack {
        let (outcome, message, snapshot, operation) = match found {
            ctrlz::WalkBack::Found { message, snapshot, operation } => {
                (WalkBackOutcome::Found, Some(message), Some(snapshot.into()), Some(operation))
            }
            ctrlz::WalkBack::Expired { message } => {
                (WalkBackOutcome::Expired, Some(message), None, None)
            }
            ctrlz::WalkBack::Nothing => (WalkBackOutcome::Nothing, None, None, None),
        };
        WalkBack { outcome, message, snapshot, operation }
    }
}
