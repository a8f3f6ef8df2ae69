//! Methods that read the log, the sessions, and the history of files.

use ctrlz::TimelineQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::part::Part;
use super::{NoParams, page};
use crate::error::MethodError;
use crate::log::{
    Blame, BlameLine, Checkpoint, Checkpoints, Log, LogEntry, Lost, LostFile, LostUncaptured,
    Version, Versions,
};
use crate::method::{Call, Method};
use crate::path::{WirePath, bounded};
use crate::session::{
    OpenSteps, Reverted, Sessions, ShownStep, SnapshotBefore, StepRecord, Steps, pending_revert,
};
use crate::snapshot::{Change, StepChanges, StepDiff, StepDiffFull};

const OF_LOGS: &[&str] = &["no_such_session", "unknown_operation"];
const OF_STEPS: &[&str] =
    &["nothing_to_undo", "no_such_session", "no_such_message", "no_such_step"];

pub(super) fn table() -> Vec<Method> {
    let mut methods = of_operations();
    methods.extend(of_sessions());
    methods.extend(of_files());
    methods
}

fn of_operations() -> Vec<Method> {
    vec![
        Method::reads(
            "timeline",
            "Lists the operations, newest first, with changed files and lines.",
            timeline,
        )
        .errors(OF_LOGS),
        Method::reads("log", "Same as `timeline`.", timeline).errors(OF_LOGS),
        Method::reads("operation", "Returns one operation of the log.", operation)
            .errors(&["unknown_operation"]),
        Method::reads("checkpoints", "Lists the checkpoints, newest first.", checkpoints),
    ]
}

fn of_sessions() -> Vec<Method> {
    vec![
        Method::reads("steps", "Lists the steps, oldest first.", steps),
        Method::reads("open_steps", "Lists the open steps.", open_steps),
        Method::reads("step", "Returns the record of one step and its changes.", step).errors(&["no_such_step"]),
        Method::reads("sessions", "Lists the sessions that changed something, most recently active first.", sessions),
        Method::reads("revert_state", "Returns the pending revert of a session, which can still be moved or reversed.", revert_state),
        Method::reads("snapshot_before", "Finds the state of a session at the beginning of a message.", snapshot_before),
        Method::reads("step_changes", "Lists the combined changes of a session, message or step, without those that are undone.", step_changes).errors(OF_STEPS),
        Method::reads("step_diff", "Returns the same changes as text that `git apply` accepts.", step_diff).errors(OF_STEPS),
        Method::reads("step_diff_full", "Returns the same changes with both texts and the line counts of every file.", step_diff_full).errors(OF_STEPS),
        Method::reads("walk_back", "Deprecated alias of `snapshot_before`.", snapshot_before),
        Method::reads("deeds", "Deprecated alias of `step_changes`.", step_changes).errors(OF_STEPS),
        Method::reads("deeds_diff", "Deprecated alias of `step_diff`.", step_diff).errors(OF_STEPS),
        Method::reads("deeds_full", "Deprecated alias of `step_diff_full`.", step_diff_full).errors(OF_STEPS),
    ]
}

fn of_files() -> Vec<Method> {
    vec![
        Method::reads(
            "blame",
            "Returns the origin of each line of a file in the newest snapshot.",
            blame,
        )
        .errors(&["not_a_tree_path", "no_such_file", "binary"]),
        Method::reads(
            "lost",
            "Lists files that disappeared and were not restored, most recent first.",
            lost,
        ),
        Method::reads("versions", "Lists the versions of a file, newest first.", versions)
            .errors(&["not_a_tree_path"]),
    ]
}

/// Parameters of `timeline` and `log`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineParams {
    /// Session whose operations are listed. Default: all operations.
    pub session: Option<String>,
    /// Id of an operation; only older operations are listed. Default: start at the newest one.
    pub before: Option<String>,
    /// Maximum number of operations to return. Default: 20.
    pub limit: Option<u64>,
    /// Maximum number of files to name per operation. Default: 20. With 0, lines are not counted.
    pub files: Option<u64>,
    /// A log that was pulled or imported, to list instead of the work tree's own.
    #[serde(skip)]
    pub log: Option<String>,
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Runs the method `timeline`.
pub fn timeline(call: &Call<'_>, params: &TimelineParams) -> Result<Log, MethodError> {
    const DEFAULT_OPERATIONS: u64 = 20;
    let TimelineParams { session, before, limit, files, log } = params;
    let query = TimelineQuery {
        log: log.clone(),
        session: session.clone(),
        before: before.clone(),
        limit: count(limit.unwrap_or(DEFAULT_OPERATIONS).max(1)),
        files: files.map_or(TimelineQuery::default().files, count),
    };
    Ok(Log::read(call.workspace, &query)?)
}

/// Parameters of `operation`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationParams {
    /// Id of the operation.
    pub operation: String,
    /// Maximum number of files to name. Default: 1,000.
    pub files: Option<u64>,
}

/// Runs the method `operation`.
pub fn operation(call: &Call<'_>, params: &OperationParams) -> Result<LogEntry, MethodError> {
    const DEFAULT_FILES: u64 = 1000;
    let files = count(params.files.unwrap_or(DEFAULT_FILES));
    Ok(LogEntry::from(&call.workspace.find_operation(&params.operation, files)?))
}

/// Runs the method `checkpoints`.
pub fn checkpoints(call: &Call<'_>, _: &NoParams) -> Result<Checkpoints, MethodError> {
    let checkpoints = call.workspace.checkpoints()?;
    Ok(Checkpoints { checkpoints: checkpoints.iter().rev().map(Checkpoint::from).collect() })
}

/// Parameters of `steps`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepsParams {
    /// Session whose steps are listed, without those of its sub-agents. Default: all steps.
    pub session: Option<String>,
    /// Number of steps to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of steps to return. Default: 100,000.
    pub limit: Option<u64>,
}

/// Runs the method `steps`.
pub fn steps(call: &Call<'_>, params: &StepsParams) -> Result<Steps, MethodError> {
    let mut steps = call.workspace.steps()?;
    if let Some(session) = &params.session {
        steps.retain(|step| step.info.session == *session);
    }
    let (steps, total, next) = page(steps, params.offset, params.limit);
    Ok(Steps { steps: steps.iter().map(StepRecord::from).collect(), total, next })
}

fn open_steps(call: &Call<'_>, _: &NoParams) -> Result<OpenSteps, MethodError> {
    Ok(OpenSteps::of(call.workspace)?)
}

/// Parameters of `step`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepParams {
    /// Id of the step.
    pub step: String,
}

/// Runs the method `step`.
pub fn step(call: &Call<'_>, params: &StepParams) -> Result<ShownStep, MethodError> {
    Ok(ShownStep::of(call.workspace, &params.step)?)
}

/// Runs the method `sessions`.
pub fn sessions(call: &Call<'_>, _: &NoParams) -> Result<Sessions, MethodError> {
    Ok(Sessions::of(call.workspace)?)
}

/// Parameters of `revert_state`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertStateParams {
    /// The session. Default: the one that was reverted last.
    pub session: Option<String>,
}

/// Runs the method `revert_state`.
pub fn revert_state(call: &Call<'_>, params: &RevertStateParams) -> Result<Reverted, MethodError> {
    let state = pending_revert(call.workspace, params.session.as_deref())?;
    Ok(Reverted { reverted: state.as_ref().map(Into::into) })
}

/// Parameters of `snapshot_before`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SnapshotBeforeParams {
    /// The session.
    session: String,
    /// The message, followed by earlier ones, newest first, as the client knows them. The first one
    /// stands for the state at its beginning, an earlier one for the state at its end.
    #[serde(deserialize_with = "bounded")]
    messages: Vec<String>,
}

fn snapshot_before(
    call: &Call<'_>,
    params: &SnapshotBeforeParams,
) -> Result<SnapshotBefore, MethodError> {
    Ok(call.workspace.snapshot_before(&params.session, &params.messages)?.into())
}

/// The steps whose changes are requested.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
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

/// Parameters of `step_changes`, `step_diff` and `step_diff_full`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepChangesParams {
    /// The steps whose changes are requested. Default: all.
    #[serde(default)]
    pub of: Whose,
    /// Number of files to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    pub limit: Option<u64>,
    /// Maximum size of the text to return in bytes, in whole files. Default: 16 MiB.
    pub max_bytes: Option<u64>,
}

impl StepChangesParams {
    /// Returns the steps in the form of the engine.
    pub fn of(&self) -> ctrlz::StepScope {
        match self.of.clone() {
            Whose::All => ctrlz::StepScope::All,
            Whose::Session(session) => ctrlz::StepScope::Session(session),
            Whose::Message(message) => ctrlz::StepScope::Message(message),
            Whose::Step(step) => ctrlz::StepScope::Step(step),
        }
    }

    fn part(&self) -> Part {
        let StepChangesParams { offset, limit, max_bytes, .. } = *self;
        Part { offset, limit, max_bytes }
    }
}

/// Runs the method `step_changes`.
pub fn step_changes(
    call: &Call<'_>,
    params: &StepChangesParams,
) -> Result<StepChanges, MethodError> {
    let changes = call.workspace.step_changes(&params.of())?;
    let (changes, total, next) = page(changes, params.offset, params.limit);
    Ok(StepChanges { files: changes.iter().map(Change::from).collect(), total, next })
}

fn step_diff(call: &Call<'_>, params: &StepChangesParams) -> Result<StepDiff, MethodError> {
    params.part().text_of(call, call.workspace.step_diff_full(&params.of())?)
}

fn step_diff_full(
    call: &Call<'_>,
    params: &StepChangesParams,
) -> Result<StepDiffFull, MethodError> {
    params.part().texts_of(call, call.workspace.step_diff_full(&params.of())?)
}

/// Parameters of `blame` and `versions`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryParams {
    /// The file.
    pub path: WirePath,
    /// Number of items to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of items to return. Default: 100,000.
    pub limit: Option<u64>,
}

/// Runs the method `blame`.
pub fn blame(call: &Call<'_>, params: &HistoryParams) -> Result<Blame, MethodError> {
    let path = call.file(&params.path)?;
    let lines = call.workspace.blame(&path, None)?;
    let (lines, total, next) = page(lines, params.offset, params.limit);
    Ok(Blame { path: path.into(), lines: lines.iter().map(BlameLine::from).collect(), total, next })
}

/// Runs the method `versions`.
pub fn versions(call: &Call<'_>, params: &HistoryParams) -> Result<Versions, MethodError> {
    let path = call.file(&params.path)?;
    let versions = call.workspace.versions(&path)?;
    let (versions, total, next) = page(versions, params.offset, params.limit);
    let versions = versions.iter().map(Version::from).collect();
    Ok(Versions { path: path.into(), versions, total, next })
}

/// Parameters of `lost`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LostParams {
    /// Number of files to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    pub limit: Option<u64>,
}

/// Runs the method `lost`.
pub fn lost(call: &Call<'_>, params: &LostParams) -> Result<Lost, MethodError> {
    let files = call.workspace.lost_files();
    let (lost, total, next) = page(files.list()?, params.offset, params.limit);
    let lost = lost.iter().map(LostFile::from).collect();
    let uncaptured = files.uncaptured()?;
    let uncaptured = uncaptured.iter().map(LostUncaptured::from).collect();
    Ok(Lost { lost, total, next, uncaptured })
}
