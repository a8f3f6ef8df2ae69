//! Methods for steps and sessions: begin, end, undo, redo, revert, checkpoint, fork.

use ctrlz::{Boundary, CheckpointOptions, ForkOptions, ObjectId, UndoOptions, UndoScope};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::WireError;
use crate::log::CheckpointMade;
use crate::method::{Access, Call, Method, Precondition};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::UndoReport;
use crate::session::{Fork, RevertState, pending_revert, session_of};

use super::steps::of_steps;
use super::writing::{InUse, check_plan, expected};

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
        )
        .requires(Precondition::Plan),
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
        )
        .requires(Precondition::Plan),
        Method::new(
            "apply",
            "Applies a plan of plan_undo, plan_redo, plan_revert_to or plan_unrevert.",
            writes,
            &["not_a_hash", "unknown_plan", "stale_plan", "mass_change", "moved", "session_busy"],
            apply,
        )
        .requires(Precondition::Plan),
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
        ).requires(Precondition::Plan),
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
        ).requires(Precondition::Plan),
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
        )
        .reaches_outside("into"),
    ]
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
