//! Methods for steps and sessions: begin, end, undo, redo, revert, checkpoint, fork.

use std::time::Duration;

use ctrlz::{
    Boundary, CheckpointOptions, ForkOptions, ObjectId, ParentTurn, StepEnd, StepInfo, StepStart,
    UndoOptions, UndoScope,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::writing::{InUse, check_plan, expected};
use crate::agents::{Reach, Tool};
use crate::error::WireError;
use crate::log::CheckpointMade;
use crate::method::{Access, Call, Method};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::UndoReport;
use crate::session::{Fork, Noted, RevertState, StepBegun, StepEnded, pending_revert, session_of};

const OF_UNDO_PLANS: &[&str] = &[
    "nothing_to_undo",
    "not_recorded",
    "shared_expired",
    "no_such_step",
    "no_such_message",
    "no_such_part",
    "session_busy",
    "not_a_tree_path",
    "stale_plan",
];
const OF_UNDOS: &[&str] = &[
    "nothing_to_undo",
    "not_recorded",
    "shared_expired",
    "no_such_step",
    "no_such_message",
    "no_such_part",
    "session_busy",
    "not_a_tree_path",
    "mass_change",
    "moved",
    "stale_plan",
    "rolled_back",
    "interrupted",
];
const OF_REVERT_PLANS: &[&str] = &["no_such_message", "no_such_part", "session_busy", "stale_plan"];
const OF_REVERTS: &[&str] = &[
    "no_such_message",
    "no_such_part",
    "session_busy",
    "mass_change",
    "moved",
    "stale_plan",
    "rolled_back",
    "interrupted",
];

pub(super) fn table() -> Vec<Method> {
    let mut methods = of_steps();
    methods.extend(of_undos());
    methods.extend(of_reverts());
    methods.extend(of_names());
    methods
}

fn of_steps() -> Vec<Method> {
    vec![
        Method::new(
            "begin_step",
            "Records the state before a tool runs and opens a step.",
            Access::Records,
            &["not_a_tree_path", "too_long", "over_budget", "over_quota", "no_space"],
            begin_step,
        ),
        Method::new(
            "end_step",
            "Records the state after a tool ran or failed, and closes the step.",
            Access::Records,
            &["no_such_step", "over_budget", "over_quota", "no_space"],
            end_step,
        ),
        Method::new(
            "note_failure",
            "Stores the reason why an agent could not be recorded, until `status` or `doctor` has shown it.",
            Access::Records,
            &[],
            note_failure,
        ),
    ]
}

fn of_undos() -> Vec<Method> {
    let writes = Access::Writes;
    vec![
        Method::new(
            "plan_undo",
            "Plans `undo`: records the present state and changes no file.",
            writes,
            OF_UNDO_PLANS,
            plan_undo,
        ),
        Method::new(
            "undo",
            "Undoes steps and keeps all later changes by others.",
            writes,
            OF_UNDOS,
            undo,
        ),
        Method::new(
            "plan_redo",
            "Plans `redo`: records the present state and changes no file.",
            writes,
            &["nothing_to_redo", "stale_plan"],
            plan_redo,
        ),
        Method::new(
            "redo",
            "Reverses the last undo or revert.",
            writes,
            &[
                "nothing_to_redo",
                "mass_change",
                "moved",
                "stale_plan",
                "rolled_back",
                "interrupted",
            ],
            redo,
        ),
        Method::new(
            "apply",
            "Applies a plan of plan_undo, plan_redo, plan_revert_to or plan_unrevert.",
            writes,
            &["not_a_hash", "unknown_plan", "stale_plan", "mass_change", "moved", "session_busy"],
            apply,
        ),
    ]
}

fn of_reverts() -> Vec<Method> {
    let writes = Access::Writes;
    vec![
        Method::new(
            "plan_revert_to",
            "Plans `revert_to`: records the present state and changes no file.",
            writes,
            OF_REVERT_PLANS,
            plan_revert_to,
        ),
        Method::new(
            "revert_to",
            "Reverts a session to before a message or a part of it; can be moved or reversed until it is final.",
            writes,
            OF_REVERTS,
            revert_to,
        ),
        Method::new(
            "plan_unrevert",
            "Plans `unrevert`: records the present state and changes no file.",
            writes,
            &["nothing_reverted", "session_busy", "stale_plan"],
            plan_unrevert,
        ),
        Method::new(
            "unrevert",
            "Reverses the revert of a session and keeps all later changes by others.",
            writes,
            &[
                "nothing_reverted",
                "session_busy",
                "mass_change",
                "moved",
                "stale_plan",
                "rolled_back",
                "interrupted",
            ],
            unrevert,
        ),
        Method::new(
            "commit_revert",
            "Makes the revert of a session final. Returns the messages that are lost with it.",
            writes,
            &["nothing_reverted"],
            commit_revert,
        ),
    ]
}

fn of_names() -> Vec<Method> {
    vec![
        Method::new(
            "checkpoint",
            "Records the present state as a checkpoint.",
            Access::Records,
            &["too_long", "over_budget", "over_quota", "no_space"],
            checkpoint,
        ),
        Method::new(
            "fork",
            "Creates a session that shares the history of another, optionally with its own files.",
            Access::Writes,
            &[
                "no_such_session",
                "no_such_message",
                "session_exists",
                "not_empty",
                "inside_repository",
                "inside_work_tree",
                "no_space",
            ],
            fork,
        ),
    ]
}

/// Parameters of `begin_step`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BeginParams {
    /// Session of the step.
    session: String,
    /// Id of the step. Idempotent: beginning an open step again is a no-op. Default: a new id.
    #[serde(default)]
    step: String,
    /// Message (turn) of the step. Default: the step is a turn of its own.
    message: Option<String>,
    /// Part of the message.
    part: Option<String>,
    /// Name of the tool.
    tool: Option<String>,
    /// Human-readable label.
    label: Option<String>,
    /// Name of the agent.
    who: Option<String>,
    /// The turn of another session for which this session works as a sub-agent.
    parent: Option<ParentParam>,
    /// Paths that the tool says it will change. They are the strongest evidence when steps overlap.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Files that the tool says it will change, in any location. Those in the work tree are treated
    /// like `paths`. Others are captured within limits, for an undo with `outside`.
    #[serde(default, deserialize_with = "bounded")]
    files: Vec<WirePath>,
    /// Shell commands that the tool will run. Paths that they name and a snapshot would not cover,
    /// which are ignored files and files outside of the work tree, are captured too.
    #[serde(default, deserialize_with = "bounded")]
    commands: Vec<String>,
    /// Working directory of the tool. Default: `dir`.
    cwd: Option<WirePath>,
    /// Whether the step stays open when this process exits. Otherwise it is closed then and marked
    /// as inferred.
    #[serde(default)]
    detached: bool,
}

/// A turn for which other sessions work.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ParentParam {
    /// Session of the turn.
    session: String,
    /// Message of the turn. Default: the message of the session's open step.
    message: Option<String>,
}

impl ParentParam {
    fn read(self) -> ParentTurn {
        let ParentParam { session, message } = self;
        ParentTurn { session, message }
    }
}

fn begin_step(call: &Call<'_>, params: &BeginParams) -> Result<StepBegun, WireError> {
    /// Maximum size of borrowed content that is copied before the tool runs. The tool may remove
    /// the repository that it is borrowed from.
    const AT_ONCE_BYTES: u64 = 32 << 20;
    let info = StepInfo {
        step: params.step.clone(),
        session: params.session.clone(),
        message: params.message.clone(),
        part: params.part.clone(),
        tool: params.tool.clone(),
        label: params.label.clone(),
        who: params.who.clone(),
        parent: params.parent.clone().map(ParentParam::read),
    };
    let paths = params.paths.iter().map(|path| call.file(path));
    let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
    let Reach { inside, outside, only_named, starts_agent } = reach(call, params)?;
    paths.extend(inside);
    let owner = call.owner.filter(|_| !params.detached);
    // An agent that uses rpc is the parent of this process and starts its tools itself.
    let tools_of = owner.is_some().then(std::os::unix::process::parent_id);
    let start = StepStart {
        info,
        paths,
        only_named,
        starts_agent,
        owner,
        tools_of,
        outside,
        ..StepStart::default()
    };
    let begun = call.workspace.begin_step(start, call.progress)?;
    if let (Some(agents), Some(why)) = (call.agents, &begun.outside_failed) {
        let why = format!("files outside of the project could not be captured: {why}");
        // Best effort: the tool runs even if the failure cannot be stored.
        drop(agents.note("rpc", "begin_step", &why));
    }
    // Avoids a lock and opening the store if nothing is borrowed.
    if begun.borrowed > 0 {
        // Errors are ignored: the step has begun, and the next snapshot resumes the copying.
        let left = call.workspace.absorb(AT_ONCE_BYTES).unwrap_or(0);
        call.borrowing.set(left > 0);
    }
    Ok(StepBegun::from(&begun))
}

/// Returns the paths that the tool names beyond `paths`.
fn reach(call: &Call<'_>, params: &BeginParams) -> Result<Reach, WireError> {
    let root = call.workspace.root();
    let dir = params.cwd.as_ref().or(call.dir.as_ref()).map(|dir| root.join(dir.as_path()));
    dir.iter().try_for_each(|dir| call.host.check_named(dir))?;
    let dir = dir.and_then(|dir| dir.canonicalize().ok()).unwrap_or_else(|| root.to_owned());
    let files: Vec<_> = params.files.iter().map(|file| file.as_path().to_owned()).collect();
    call.host.check_named(&dir)?;
    files.iter().try_for_each(|file| call.host.check_named(&dir.join(file)))?;
    let (name, commands) = (params.tool.clone(), params.commands.clone());
    let tool = Tool { name, dir, files, commands };
    let reach = call.agents.map(|agents| agents.reach(&tool)).unwrap_or_default();
    reach.outside.iter().try_for_each(|path| call.host.check_named(path))?;
    Ok(reach)
}

/// Parameters of `end_step`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndParams {
    /// Id of the step.
    step: String,
    /// Duration of the tool call in milliseconds. Changes made earlier in the step, while a
    /// permission prompt was open, are attributed to the user. Default: unknown.
    duration_ms: Option<u64>,
    /// Whether the tool was refused and never ran, so that no change is attributed to the step.
    #[serde(default)]
    refused: bool,
}

fn end_step(call: &Call<'_>, params: &EndParams) -> Result<StepEnded, WireError> {
    let end = StepEnd {
        duration: params.duration_ms.map(Duration::from_millis),
        refused: params.refused,
    };
    Ok(StepEnded::from(&call.workspace.end_step_with(&params.step, &end, call.progress)?))
}

/// Parameters of `note_failure`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FailureParams {
    /// Name of the agent.
    client: String,
    /// The event that could not be recorded.
    event: String,
    /// Cause of the failure.
    why: String,
}

fn note_failure(call: &Call<'_>, params: &FailureParams) -> Result<Noted, WireError> {
    let FailureParams { client, event, why } = params;
    let noted = call.agents.map(|agents| agents.note(client, event, why));
    Ok(Noted { noted: matches!(noted, Some(Ok(()))) })
}

/// Parameters of `undo` and `plan_undo`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UndoParams {
    /// The steps to undo. Default: the newest turn that is not undone yet.
    #[serde(default)]
    scope: Scope,
    /// The session. Default: the most recently active one that still has something to undo.
    session: Option<String>,
    /// Paths to undo, including everything below them. Default: all.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Whether to use the earlier version of a file where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Whether to also undo changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Whether to also put back paths outside of the work tree that the steps named and changed. By
    /// default they are only listed. Directly after an undo without it, puts back the paths that
    /// the undo left unchanged.
    #[serde(default)]
    outside: bool,
    /// Whether to also undo changes made while an interrupted command may have been running.
    #[serde(default)]
    unclear: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether to undo a restore, recover or revert that a person made, if it is the newest
    /// operation that changed files and the request names no turn.
    #[serde(default)]
    restores: bool,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

/// The steps to undo.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scope {
    /// The newest turn that is not undone yet, including sub-agents.
    #[default]
    LastTurn,
    /// The newest step that is not undone yet.
    LastStep,
    /// One step, keeping later ones.
    Step(String),
    /// One message, keeping later ones.
    Message(String),
    /// A message, or the rest of it from a part on, and everything that its session did afterwards.
    From(FromMessage),
    /// Everything that the session and its sub-agents did.
    Session,
}

/// The first message to undo.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromMessage {
    /// Id of the message.
    message: String,
    /// The first part to undo; earlier parts are kept.
    part: Option<String>,
}

impl Scope {
    fn read(&self) -> UndoScope {
        match self.clone() {
            Scope::LastTurn => UndoScope::LastTurn,
            Scope::LastStep => UndoScope::LastStep,
            Scope::Step(step) => UndoScope::Step { step },
            Scope::Message(message) => UndoScope::Message { message },
            Scope::From(FromMessage { message, part }) => UndoScope::From { message, part },
            Scope::Session => UndoScope::Session,
        }
    }
}

impl UndoParams {
    fn read(&self, call: &Call<'_>) -> Result<(UndoScope, UndoOptions), WireError> {
        let options = UndoOptions {
            session: self.session.clone(),
            paths: call.paths(&self.paths)?,
            force: self.force,
            ignored: self.ignored,
            unclear: self.unclear,
            outside: self.outside,
            interrupt: self.interrupt,
            allow_mass_removal: self.allow_mass_removal,
            restores: self.restores,
            by_person: self.restores,
            in_use: self.in_use.read(),
            expected_plan: expected(self.plan.as_ref())?,
        };
        Ok((self.scope.read(), options))
    }
}

/// Returns the report of a plan, or an error if it is not the expected plan.
fn planned(
    expected: Option<ObjectId>,
    report: &ctrlz::UndoReport,
) -> Result<UndoReport, WireError> {
    check_plan(expected, report.plan)?;
    Ok(UndoReport::from(report))
}

fn plan_undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, WireError> {
    let (scope, options) = params.read(call)?;
    let report = call.workspace.plan_undo(&scope, &options, call.progress)?;
    planned(options.expected_plan, &report)
}

fn undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, WireError> {
    let (scope, options) = params.read(call)?;
    Ok(UndoReport::from(&call.workspace.undo(&scope, &options, call.progress)?))
}

/// Parameters of `redo` and `plan_redo`. Open steps do not prevent a redo.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedoParams {
    /// The session. Default: the one that was undone last.
    session: Option<String>,
    /// Whether to use the version from before the undo where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Whether to also redo changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

impl RedoParams {
    fn options(&self) -> Result<UndoOptions, WireError> {
        Ok(UndoOptions {
            session: self.session.clone(),
            force: self.force,
            ignored: self.ignored,
            allow_mass_removal: self.allow_mass_removal,
            in_use: self.in_use.read(),
            expected_plan: expected(self.plan.as_ref())?,
            ..UndoOptions::default()
        })
    }
}

/// Parameters of `unrevert` and `plan_unrevert`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnrevertParams {
    /// The session. Default: the one that was reverted last.
    session: Option<String>,
    /// Whether to use the version from before the revert where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Whether to also bring back changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

impl UnrevertParams {
    fn options(&self) -> Result<UndoOptions, WireError> {
        Ok(UndoOptions {
            force: self.force,
            ignored: self.ignored,
            interrupt: self.interrupt,
            allow_mass_removal: self.allow_mass_removal,
            in_use: self.in_use.read(),
            expected_plan: expected(self.plan.as_ref())?,
            ..UndoOptions::default()
        })
    }
}

fn plan_redo(call: &Call<'_>, params: &RedoParams) -> Result<UndoReport, WireError> {
    let options = params.options()?;
    let report = call.workspace.plan_redo(&options, call.progress)?;
    check_plan(options.expected_plan, report.plan)?;
    Ok(UndoReport::from(&report))
}

fn redo(call: &Call<'_>, params: &RedoParams) -> Result<UndoReport, WireError> {
    Ok(UndoReport::from(&call.workspace.redo(&params.options()?, call.progress)?))
}

/// Parameters of `apply`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyParams {
    /// Hash of the plan.
    plan: Hash,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
}

fn apply(call: &Call<'_>, params: &ApplyParams) -> Result<UndoReport, WireError> {
    let ApplyParams { plan, allow_mass_removal } = params;
    let report = call.workspace.apply(&plan.id()?, *allow_mass_removal, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Parameters of `revert_to` and `plan_revert_to`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertToParams {
    /// The first message to undo. Everything that the session did afterwards is undone too.
    message: String,
    /// The first part of the message to undo; earlier parts are kept. Default: the whole message.
    part: Option<String>,
    /// The session. Default: the session of the message.
    session: Option<String>,
    /// Whether to use the earlier version of a file where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Whether to also undo changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    by_person: bool,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

impl RevertToParams {
    fn read(&self, call: &Call<'_>) -> Result<(String, Boundary, UndoOptions), WireError> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => session_of(call.workspace, &self.message)?,
        };
        let boundary = Boundary { message: self.message.clone(), part: self.part.clone() };
        let options = UndoOptions {
            force: self.force,
            ignored: self.ignored,
            interrupt: self.interrupt,
            allow_mass_removal: self.allow_mass_removal,
            by_person: self.by_person,
            in_use: self.in_use.read(),
            expected_plan: expected(self.plan.as_ref())?,
            ..UndoOptions::default()
        };
        Ok((session, boundary, options))
    }
}

fn plan_revert_to(call: &Call<'_>, params: &RevertToParams) -> Result<UndoReport, WireError> {
    let (session, boundary, options) = params.read(call)?;
    let report = call.workspace.plan_revert_to(&session, &boundary, &options, call.progress)?;
    planned(options.expected_plan, &report)
}

fn revert_to(call: &Call<'_>, params: &RevertToParams) -> Result<UndoReport, WireError> {
    let (session, boundary, options) = params.read(call)?;
    let report = call.workspace.revert_to(&session, &boundary, &options, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Returns the session whose revert a request refers to.
fn reverted(call: &Call<'_>, session: Option<&str>) -> Result<String, WireError> {
    let state = pending_revert(call.workspace, session)?;
    let nothing = || match session {
        Some(session) => ctrlz::Error::Session(ctrlz::SessionError::NothingReverted {
            session: session.to_owned(),
        })
        .into(),
        None => WireError::new("nothing_reverted", "no session is reverted"),
    };
    Ok(state.ok_or_else(nothing)?.session)
}

fn plan_unrevert(call: &Call<'_>, params: &UnrevertParams) -> Result<UndoReport, WireError> {
    let session = reverted(call, params.session.as_deref())?;
    let options = params.options()?;
    let report = call.workspace.plan_unrevert(&session, &options, call.progress)?;
    check_plan(options.expected_plan, report.plan)?;
    Ok(UndoReport::from(&report))
}

fn unrevert(call: &Call<'_>, params: &UnrevertParams) -> Result<UndoReport, WireError> {
    let session = reverted(call, params.session.as_deref())?;
    let report = call.workspace.unrevert(&session, &params.options()?, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Parameters of `commit_revert`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommitParams {
    /// The session. Default: the one that was reverted last.
    session: Option<String>,
}

fn commit_revert(call: &Call<'_>, params: &CommitParams) -> Result<RevertState, WireError> {
    let session = reverted(call, params.session.as_deref())?;
    let state = call.workspace.commit_revert(&session)?;
    // Another process may have committed it in the meantime.
    let state =
        state.ok_or(ctrlz::Error::Session(ctrlz::SessionError::NothingReverted { session }))?;
    Ok(RevertState::from(&state))
}

/// Parameters of `checkpoint`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckpointParams {
    /// Human-readable label. Default: none.
    label: Option<String>,
    /// Kind of the checkpoint, such as `manual`, `turn` or `resume`; part of its ref name. Default:
    /// `manual`.
    kind: Option<String>,
    /// Whether pruning and retention never remove it.
    #[serde(default)]
    pinned: bool,
    /// Session of the checkpoint. Default: none.
    session: Option<String>,
    /// Number of checkpoints to keep, not counting pinned ones; older ones are pruned. Default: as
    /// configured.
    keep: Option<u64>,
}

fn checkpoint(call: &Call<'_>, params: &CheckpointParams) -> Result<CheckpointMade, WireError> {
    let keep = params.keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let options = CheckpointOptions {
        label: params.label.clone(),
        kind: params.kind.clone().unwrap_or(CheckpointOptions::default().kind),
        pinned: params.pinned,
        session: params.session.clone(),
        keep: keep.unwrap_or(call.keep_checkpoints),
    };
    Ok(CheckpointMade::from(&call.workspace.checkpoint(&options, call.progress)?))
}

/// Parameters of `fork`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkParams {
    /// The session to fork.
    session: String,
    /// The first message that the fork does not share. Default: the fork shares everything.
    at: Option<String>,
    /// Id of the new session. Default: a new id.
    id: Option<String>,
    /// Directory into which the files are restored. It must be new or empty and outside of the work
    /// tree; a relative path starts at the work tree. Default: no file is written.
    into: Option<WirePath>,
}

fn fork(call: &Call<'_>, params: &ForkParams) -> Result<Fork, WireError> {
    let ForkParams { session, at, id, into } = params;
    let root = call.workspace.root();
    let options = ForkOptions {
        at: at.clone(),
        session: id.clone(),
        into: into.as_ref().map(|into| root.join(into.as_path())),
    };
    Ok(Fork::from(&call.workspace.fork(session, &options, call.progress)?))
}
