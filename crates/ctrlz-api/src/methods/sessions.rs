//! Methods for steps and sessions: begin, end, undo, redo, revert, checkpoint, fork.

use ctrlz::{
    Boundary, CheckpointOptions, Error, ForkOptions, ObjectId, Rewind, SessionError, UndoOptions,
    UndoScope,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{MethodError, WireError};
use crate::log::CheckpointMade;
use crate::method::{Call, Method, Precondition};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::UndoReport;
use crate::session::{Fork, RevertState, pending_revert, session_of};

use super::OF_CHANGES;
use super::steps::of_steps;
use super::writing::{InUse, check_plan, expected};

const OF_UNDOS: &[&str] = &[
    "nothing_to_undo",
    "not_recorded",
    "shared_expired",
    "no_such_step",
    "no_such_message",
    "no_such_part",
    "session_busy",
    "not_a_tree_path",
];
const OF_REVERTS: &[&str] = &["no_such_message", "no_such_part", "session_busy"];
const OF_UNREVERTS: &[&str] = &["nothing_reverted", "session_busy"];

pub(super) fn table() -> Vec<Method> {
    let mut methods = of_steps();
    methods.extend(of_undos());
    methods.extend(of_reverts());
    methods.extend(of_names());
    methods
}

fn of_undos() -> Vec<Method> {
    vec![
        Method::writes(
            "plan_undo",
            "Plans `undo`: records the present state and changes no file.",
            plan_undo,
        )
        .errors(OF_UNDOS)
        .errors(&["stale_plan"]),
        Method::writes("undo", "Undoes steps and keeps all later changes by others.", undo)
            .errors(OF_UNDOS)
            .errors(OF_CHANGES)
            .requires(Precondition::Plan),
        Method::writes(
            "plan_redo",
            "Plans `redo`: records the present state and changes no file.",
            plan_redo,
        )
        .errors(&["nothing_to_redo", "stale_plan"]),
        Method::writes("redo", "Reverses the last undo or revert.", redo)
            .errors(&["nothing_to_redo"])
            .errors(OF_CHANGES)
            .requires(Precondition::Plan),
        Method::writes(
            "apply",
            "Applies a plan of plan_undo, plan_redo, plan_revert_to or plan_unrevert.",
            apply,
        )
        .errors(&[
            "not_a_hash",
            "unknown_plan",
            "stale_plan",
            "mass_change",
            "moved",
            "session_busy",
        ])
        .requires(Precondition::Plan),
    ]
}

fn of_reverts() -> Vec<Method> {
    vec![
        Method::writes("plan_revert_to", "Plans `revert_to`: records the present state and changes no file.", plan_revert_to).errors(OF_REVERTS).errors(&["stale_plan"]),
        Method::writes("revert_to", "Reverts a session to before a message or a part of it; can be moved or reversed until it is final.", revert_to).errors(OF_REVERTS).errors(OF_CHANGES).requires(Precondition::Plan),
        Method::writes("plan_unrevert", "Plans `unrevert`: records the present state and changes no file.", plan_unrevert).errors(OF_UNREVERTS).errors(&["stale_plan"]),
        Method::writes("unrevert", "Reverses the revert of a session and keeps all later changes by others.", unrevert).errors(OF_UNREVERTS).errors(OF_CHANGES).requires(Precondition::Plan),
        Method::writes("commit_revert", "Makes the revert of a session final. Returns the messages that are lost with it.", commit_revert).errors(&["nothing_reverted"]),
    ]
}

fn of_names() -> Vec<Method> {
    vec![
        Method::records("checkpoint", "Records the present state as a checkpoint.", checkpoint)
            .errors(&["too_long", "over_budget", "over_quota", "no_space"]),
        Method::writes(
            "fork",
            "Creates a session that shares the history of another, optionally with its own files.",
            fork,
        )
        .errors(&[
            "no_such_session",
            "no_such_message",
            "session_exists",
            "not_empty",
            "inside_repository",
            "inside_work_tree",
            "no_space",
        ])
        .reaches_outside("into"),
    ]
}

/// Parameters of `undo` and `plan_undo`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoParams {
    /// The steps to undo. Default: the newest turn that is not undone yet.
    #[serde(default)]
    pub scope: Scope,
    /// The session. Default: the most recently active one that still has something to undo.
    pub session: Option<String>,
    /// Paths to undo, including everything below them. Default: all.
    #[serde(default, deserialize_with = "bounded")]
    pub paths: Vec<WirePath>,
    /// Whether to use the earlier version of a file where changes do not merge.
    #[serde(default)]
    pub force: bool,
    /// Whether to also undo changes of ignored files that no tool named.
    #[serde(default)]
    pub ignored: bool,
    /// Whether to also put back paths outside of the work tree that the steps named and changed. By
    /// default they are only listed. Directly after an undo without it, puts back the paths that
    /// the undo left unchanged.
    #[serde(default)]
    pub outside: bool,
    /// Whether to also undo changes made while an interrupted command may have been running.
    #[serde(default)]
    pub unclear: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    pub interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether to undo a restore, recover or revert that a person made, if it is the newest
    /// operation that changed files and the request names no turn.
    #[serde(default)]
    pub restores: bool,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

/// The steps to undo.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
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
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FromMessage {
    /// Id of the message.
    pub message: String,
    /// The first part to undo; earlier parts are kept.
    pub part: Option<String>,
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
    fn read(&self, call: &Call<'_>) -> Result<(UndoScope, UndoOptions), MethodError> {
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

/// Plans a request. Returns the report of the plan, or an error if it is not the expected plan.
fn planned(
    call: &Call<'_>,
    expected: Option<ObjectId>,
    rewind: &Rewind,
) -> Result<UndoReport, MethodError> {
    let report = call.workspace.plan(rewind, call.progress)?;
    check_plan(expected, report.plan)?;
    Ok(UndoReport::from(&report))
}

/// Runs the method `plan_undo`.
pub fn plan_undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, MethodError> {
    let (scope, options) = params.read(call)?;
    planned(call, options.expected_plan, &Rewind::Undo { scope, options })
}

/// Runs the method `undo`.
pub fn undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, MethodError> {
    let (scope, options) = params.read(call)?;
    Ok(UndoReport::from(&call.workspace.undo(&scope, &options, call.progress)?))
}

/// Parameters of `redo` and `plan_redo`. Open steps do not prevent a redo.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedoParams {
    /// The session. Default: the one that was undone last.
    pub session: Option<String>,
    /// Whether to use the version from before the undo where changes do not merge.
    #[serde(default)]
    pub force: bool,
    /// Whether to also redo changes of ignored files that no tool named.
    #[serde(default)]
    pub ignored: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

impl RedoParams {
    fn options(&self) -> Result<UndoOptions, MethodError> {
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
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnrevertParams {
    /// The session. Default: the one that was reverted last.
    pub session: Option<String>,
    /// Whether to use the version from before the revert where changes do not merge.
    #[serde(default)]
    pub force: bool,
    /// Whether to also bring back changes of ignored files that no tool named.
    #[serde(default)]
    pub ignored: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    pub interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

impl UnrevertParams {
    fn options(&self) -> Result<UndoOptions, MethodError> {
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

/// Runs the method `plan_redo`.
pub fn plan_redo(call: &Call<'_>, params: &RedoParams) -> Result<UndoReport, MethodError> {
    let options = params.options()?;
    planned(call, options.expected_plan, &Rewind::Redo { options })
}

/// Runs the method `redo`.
pub fn redo(call: &Call<'_>, params: &RedoParams) -> Result<UndoReport, MethodError> {
    Ok(UndoReport::from(&call.workspace.redo(&params.options()?, call.progress)?))
}

/// Parameters of `apply`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyParams {
    /// Hash of the plan.
    pub plan: Hash,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
}

/// Runs the method `apply`.
pub fn apply(call: &Call<'_>, params: &ApplyParams) -> Result<UndoReport, MethodError> {
    let ApplyParams { plan, allow_mass_removal } = params;
    let report = call.workspace.apply(&plan.id()?, *allow_mass_removal, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Parameters of `revert_to` and `plan_revert_to`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertToParams {
    /// The first message to undo. Everything that the session did afterwards is undone too.
    pub message: String,
    /// The first part of the message to undo; earlier parts are kept. Default: the whole message.
    pub part: Option<String>,
    /// The session. Default: the session of the message.
    pub session: Option<String>,
    /// Whether to use the earlier version of a file where changes do not merge.
    #[serde(default)]
    pub force: bool,
    /// Whether to also undo changes of ignored files that no tool named.
    #[serde(default)]
    pub ignored: bool,
    /// Whether to close the session's open steps instead of failing with `session_busy`.
    #[serde(default)]
    pub interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    pub by_person: bool,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

impl RevertToParams {
    fn read(&self, call: &Call<'_>) -> Result<(String, Boundary, UndoOptions), MethodError> {
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

/// Runs the method `plan_revert_to`.
pub fn plan_revert_to(call: &Call<'_>, params: &RevertToParams) -> Result<UndoReport, MethodError> {
    let (session, boundary, options) = params.read(call)?;
    planned(call, options.expected_plan, &Rewind::RevertTo { session, boundary, options })
}

/// Runs the method `revert_to`.
pub fn revert_to(call: &Call<'_>, params: &RevertToParams) -> Result<UndoReport, MethodError> {
    let (session, boundary, options) = params.read(call)?;
    let report = call.workspace.revert_to(&session, &boundary, &options, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Returns the session whose revert a request refers to.
fn reverted(call: &Call<'_>, session: Option<&str>) -> Result<String, MethodError> {
    match (pending_revert(call.workspace, session)?, session) {
        (Some(state), _) => Ok(state.session),
        (None, Some(session)) => Err(nothing_reverted(session.to_owned()).into()),
        (None, None) => Err(WireError::new("nothing_reverted", "no session is reverted").into()),
    }
}

fn nothing_reverted(session: String) -> Error {
    SessionError::NothingReverted { session }.into()
}

/// Runs the method `plan_unrevert`.
pub fn plan_unrevert(call: &Call<'_>, params: &UnrevertParams) -> Result<UndoReport, MethodError> {
    let session = reverted(call, params.session.as_deref())?;
    let options = params.options()?;
    planned(call, options.expected_plan, &Rewind::Unrevert { session, options })
}

/// Runs the method `unrevert`.
pub fn unrevert(call: &Call<'_>, params: &UnrevertParams) -> Result<UndoReport, MethodError> {
    let session = reverted(call, params.session.as_deref())?;
    let report = call.workspace.unrevert(&session, &params.options()?, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// Parameters of `commit_revert`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitParams {
    /// The session. Default: the one that was reverted last.
    pub session: Option<String>,
}

/// Runs the method `commit_revert`.
pub fn commit_revert(call: &Call<'_>, params: &CommitParams) -> Result<RevertState, MethodError> {
    let session = reverted(call, params.session.as_deref())?;
    let state = call.workspace.commit_revert(&session)?;
    // Another process may have committed it in the meantime.
    Ok(RevertState::from(&state.ok_or_else(|| nothing_reverted(session))?))
}

/// Parameters of `checkpoint`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointParams {
    /// Human-readable label. Default: none.
    pub label: Option<String>,
    /// Kind of the checkpoint, such as `manual`, `turn` or `resume`; part of its ref name. Default:
    /// `manual`.
    pub kind: Option<String>,
    /// Whether pruning and retention never remove it.
    #[serde(default)]
    pub pinned: bool,
    /// Session of the checkpoint. Default: none.
    pub session: Option<String>,
    /// Number of checkpoints to keep, not counting pinned ones; older ones are pruned. Default: as
    /// configured; a lower number has no effect.
    pub keep: Option<u64>,
}

/// Runs the method `checkpoint`.
pub fn checkpoint(
    call: &Call<'_>,
    params: &CheckpointParams,
) -> Result<CheckpointMade, MethodError> {
    let keep = params.keep.map_or(0, |keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let options = CheckpointOptions {
        label: params.label.clone(),
        kind: params.kind.clone().unwrap_or(CheckpointOptions::default().kind),
        pinned: params.pinned,
        session: params.session.clone(),
        keep: keep.max(call.opened.keep_checkpoints),
    };
    Ok(CheckpointMade::from(&call.workspace.checkpoint(&options, call.progress)?))
}

/// Parameters of `fork`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkParams {
    /// The session to fork.
    pub session: String,
    /// The first message that the fork does not share. Default: the fork shares everything.
    pub at: Option<String>,
    /// Id of the new session. Default: a new id.
    pub id: Option<String>,
    /// Directory into which the files are restored. It must be new or empty and outside of the work
    /// tree; a relative path starts at the work tree. Default: no file is written.
    pub into: Option<WirePath>,
}

/// Runs the method `fork`.
pub fn fork(call: &Call<'_>, params: &ForkParams) -> Result<Fork, MethodError> {
    let ForkParams { session, at, id, into } = params;
    let options = ForkOptions {
        at: at.clone(),
        session: id.clone(),
        into: into.as_ref().map(|into| call.base.join(into.as_path())),
    };
    Ok(Fork::from(&call.workspace.fork(session, &options, call.progress)?))
}
