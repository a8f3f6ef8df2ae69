//! Methods that read the log, the sessions, and the history of files.

use ctrlz::TimelineQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::part::Part;
use super::{NoParams, page};
use crate::error::WireError;
use crate::log::{
    Blame, BlameLine, Checkpoint, Checkpoints, Log, LogEntry, Lost, LostFile, LostUncaptured,
    Version, Versions,
};
use crate::method::{Access, Call, Method};
use crate::path::{WirePath, bounded};
use crate::session::{
    OpenSteps, Reverted, Sessions, ShownStep, StepRecord, Steps, WalkBack, pending_revert,
};
use crate::snapshot::{Change, Deeds, DeedsDiff, DeedsFull};

const OF_LOGS: &[&str] = &["no_such_session", "unknown_operation"];
const OF_DEEDS: &[&str] =
    &["nothing_to_undo", "no_such_session", "no_such_message", "no_such_step"];

pub(super) fn table() -> Vec<Method> {
    let mut methods = of_operations();
    methods.extend(of_sessions());
    methods.extend(of_files());
    methods
}

fn of_operations() -> Vec<Method> {
    let reads = Access::Reads;
    vec![
        Method::new(
            "timeline",
            "Lists the operations, newest first, with changed files and lines.",
            reads,
            OF_LOGS,
            timeline,
        ),
        Method::new("log", "Same as `timeline`.", reads, OF_LOGS, timeline),
        Method::new(
            "operation",
            "Returns one operation of the log.",
            reads,
            &["unknown_operation"],
            operation,
        ),
        Method::new("checkpoints", "Lists the checkpoints, newest first.", reads, &[], checkpoints),
    ]
}

fn of_sessions() -> Vec<Method> {
    let reads = Access::Reads;
    vec![
        Method::new("steps", "Lists the steps, oldest first.", reads, &[], steps),
        Method::new("open_steps", "Lists the open steps.", reads, &[], open_steps),
        Method::new(
            "step",
            "Returns the record of one step and its changes.",
            reads,
            &["no_such_step"],
            step,
        ),
        Method::new(
            "sessions",
            "Lists the sessions that changed something, most recently active first.",
            reads,
            &[],
            sessions,
        ),
        Method::new(
            "revert_state",
            "Returns the pending revert of a session, which can still be moved or reversed.",
            reads,
            &[],
            revert_state,
        ),
        Method::new(
            "walk_back",
            "Finds the state of a session at the beginning of a message.",
            reads,
            &[],
            walk_back,
        ),
        Method::new(
            "deeds",
            "Lists the combined changes of a session, message or step, without those that are undone.",
            reads,
            OF_DEEDS,
            deeds,
        ),
        Method::new(
            "deeds_diff",
            "Returns the same changes as text that `git apply` accepts.",
            reads,
            OF_DEEDS,
            deeds_diff,
        ),
        Method::new(
            "deeds_full",
            "Returns the same changes with both texts and the line counts of every file.",
            reads,
            OF_DEEDS,
            deeds_full,
        ),
    ]
}

fn of_files() -> Vec<Method> {
    let reads = Access::Reads;
    vec![
        Method::new(
            "blame",
            "Returns the origin of each line of a file in the newest snapshot.",
            reads,
            &["not_a_tree_path", "no_such_file", "binary"],
            blame,
        ),
        Method::new(
            "lost",
            "Lists files that disappeared and were not restored, most recent first.",
            reads,
            &[],
            lost,
        ),
        Method::new(
            "versions",
            "Lists the versions of a file, newest first.",
            reads,
            &["not_a_tree_path"],
            versions,
        ),
    ]
}

/// Parameters of `timeline` and `log`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimelineParams {
    /// Session whose operations are listed. Default: all operations.
    session: Option<String>,
    /// Id of an operation; only older operations are listed. Default: start at the newest one.
    before: Option<String>,
    /// Maximum number of operations to return. Default: 20.
    limit: Option<u64>,
    /// Maximum number of files to name per operation. Default: 20. With 0, lines are not counted.
    files: Option<u64>,
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn timeline(call: &Call<'_>, params: &TimelineParams) -> Result<Log, WireError> {
    const DEFAULT_OPERATIONS: u64 = 20;
    let TimelineParams { session, before, limit, files } = params;
    let query = TimelineQuery {
        log: None,
        session: session.clone(),
        before: before.clone(),
        limit: count(limit.unwrap_or(DEFAULT_OPERATIONS).max(1)),
        files: files.map_or(TimelineQuery::default().files, count),
    };
    Ok(Log::read(call.workspace, &query)?)
}

/// Parameters of `operation`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OperationParams {
    /// Id of the operation.
    operation: String,
    /// Maximum number of files to name. Default: 1,000.
    files: Option<u64>,
}

fn operation(call: &Call<'_>, params: &OperationParams) -> Result<LogEntry, WireError> {
    const DEFAULT_FILES: u64 = 1000;
    let files = count(params.files.unwrap_or(DEFAULT_FILES));
    Ok(LogEntry::from(&call.workspace.find_operation(&params.operation, files)?))
}

fn checkpoints(call: &Call<'_>, _: &NoParams) -> Result<Checkpoints, WireError> {
    let checkpoints = call.workspace.checkpoints()?;
    Ok(Checkpoints { checkpoints: checkpoints.iter().rev().map(Checkpoint::from).collect() })
}

/// Parameters of `steps`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StepsParams {
    /// Session whose steps are listed, without those of its sub-agents. Default: all steps.
    session: Option<String>,
    /// Number of steps to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of steps to return. Default: 100,000.
    limit: Option<u64>,
}

fn steps(call: &Call<'_>, params: &StepsParams) -> Result<Steps, WireError> {
    let mut steps = call.workspace.steps()?;
    if let Some(session) = &params.session {
        steps.retain(|step| step.info.session == *session);
    }
    let (steps, total, next) = page(steps, params.offset, params.limit);
    Ok(Steps { steps: steps.iter().map(StepRecord::from).collect(), total, next })
}

fn open_steps(call: &Call<'_>, _: &NoParams) -> Result<OpenSteps, WireError> {
    Ok(OpenSteps::of(call.workspace)?)
}

/// Parameters of `step`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StepParams {
    /// Id of the step.
    step: String,
}

fn step(call: &Call<'_>, params: &StepParams) -> Result<ShownStep, WireError> {
    Ok(ShownStep::of(call.workspace, &params.step)?)
}

fn sessions(call: &Call<'_>, _: &NoParams) -> Result<Sessions, WireError> {
    Ok(Sessions::of(call.workspace)?)
}

/// Parameters of `revert_state`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertStateParams {
    /// The session. Default: the one that was reverted last.
    session: Option<String>,
}

fn revert_state(call: &Call<'_>, params: &RevertStateParams) -> Result<Reverted, WireError> {
    let state = pending_revert(call.workspace, params.session.as_deref())?;
    Ok(Reverted { reverted: state.as_ref().map(Into::into) })
}

/// Parameters of `walk_back`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WalkBackParams {
    /// The session.
    session: String,
    /// The message, followed by earlier ones, newest first, as the client knows them. The first one
    /// stands for the state at its beginning, an earlier one for the state at its end.
    #[serde(deserialize_with = "bounded")]
    messages: Vec<String>,
}

fn walk_back(call: &Call<'_>, params: &WalkBackParams) -> Result<WalkBack, WireError> {
    Ok(call.workspace.walk_back(&params.session, &params.messages)?.into())
}

/// The steps whose changes are requested.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Whose {
    /// All steps.
    #[default]
    All,
    /// The steps of a session, including its sub-agents.
    Session(String),
    /// The steps of a message.
    Message(String),
    /// One step.
    Step(String),
}

/// Parameters of `deeds`, `deeds_diff` and `deeds_full`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeedsParams {
    /// The steps whose changes are requested. Default: all.
    #[serde(default)]
    of: Whose,
    /// Number of files to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    limit: Option<u64>,
    /// Maximum size of the text to return in bytes, in whole files. Default: 16 MiB.
    max_bytes: Option<u64>,
}

impl DeedsParams {
    pub(super) fn of(&self) -> ctrlz::Deeds {
        match self.of.clone() {
            Whose::All => ctrlz::Deeds::All,
            Whose::Session(session) => ctrlz::Deeds::Session(session),
            Whose::Message(message) => ctrlz::Deeds::Message(message),
            Whose::Step(step) => ctrlz::Deeds::Step(step),
        }
    }

    fn part(&self) -> Part {
        let DeedsParams { offset, limit, max_bytes, .. } = *self;
        Part { offset, limit, max_bytes }
    }
}

fn deeds(call: &Call<'_>, params: &DeedsParams) -> Result<Deeds, WireError> {
    let changes = call.workspace.deeds(&params.of())?;
    let (changes, total, next) = page(changes, params.offset, params.limit);
    Ok(Deeds { files: changes.iter().map(Change::from).collect(), total, next })
}

fn deeds_diff(call: &Call<'_>, params: &DeedsParams) -> Result<DeedsDiff, WireError> {
    params.part().text_of(call, call.workspace.deeds_full(&params.of())?)
}

fn deeds_full(call: &Call<'_>, params: &DeedsParams) -> Result<DeedsFull, WireError> {
    params.part().texts_of(call, call.workspace.deeds_full(&params.of())?)
}

/// Parameters of `blame` and `versions`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HistoryParams {
    /// The file.
    path: WirePath,
    /// Number of items to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of items to return. Default: 100,000.
    limit: Option<u64>,
}

fn blame(call: &Call<'_>, params: &HistoryParams) -> Result<Blame, WireError> {
    let path = call.file(&params.path)?;
    let lines = call.workspace.blame(&path)?;
    let (lines, total, next) = page(lines, params.offset, params.limit);
    Ok(Blame { path: path.into(), lines: lines.iter().map(BlameLine::from).collect(), total, next })
}

fn versions(call: &Call<'_>, params: &HistoryParams) -> Result<Versions, WireError> {
    let path = call.file(&params.path)?;
    let versions = call.workspace.versions(&path)?;
    let (versions, total, next) = page(versions, params.offset, params.limit);
    let versions = versions.iter().map(Version::from).collect();
    Ok(Versions { path: path.into(), versions, total, next })
}

/// Parameters of `lost`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LostParams {
    /// Number of files to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    limit: Option<u64>,
}

fn lost(call: &Call<'_>, params: &LostParams) -> Result<Lost, WireError> {
    let (lost, total, next) = page(call.workspace.lost()?, params.offset, params.limit);
    let lost = lost.iter().map(LostFile::from).collect();
    let uncaptured = call.workspace.lost_uncaptured()?;
    let uncaptured = uncaptured.iter().map(LostUncaptured::from).collect();
    Ok(Lost { lost, total, next, uncaptured })
}
