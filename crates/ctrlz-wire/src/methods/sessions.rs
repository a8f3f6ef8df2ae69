//! Methods about steps and sessions: begin, end, undo, redo, revert, checkpoint, fork.

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
            "Records the state before a tool runs; from now on changes are the step's.",
            Access::Records,
            &["not_a_tree_path", "too_long", "over_budget", "over_quota", "no_space"],
            begin_step,
        ),
        Method::new(
            "end_step",
            "Records the state after a tool ran, also if it failed.",
            Access::Records,
            &["no_such_step", "over_budget", "over_quota", "no_space"],
            end_step,
        ),
        Method::new(
            "note_failure",
            "Keeps why an agent could not be recorded, until `status` or `doctor` has shown it.",
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
            "Tells what `undo` would do now; records the present state and changes no file.",
            writes,
            OF_UNDO_PLANS,
            plan_undo,
        ),
        Method::new(
            "undo",
            "Takes steps back and keeps what others did since.",
            writes,
            OF_UNDOS,
            undo,
        ),
        Method::new(
            "plan_redo",
            "Tells what `redo` would do now; records the present state and changes no file.",
            writes,
            &["nothing_to_redo", "stale_plan"],
            plan_redo,
        ),
        Method::new(
            "redo",
            "Brings back what the last undo or revert took back.",
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
            "Carries out what plan_undo, plan_redo, plan_revert_to or plan_unrevert planned.",
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
            "Tells what `revert_to` would do now; records the present state and changes no file.",
            writes,
            OF_REVERT_PLANS,
            plan_revert_to,
        ),
        Method::new(
            "revert_to",
            "Takes a session back to before a message or a part of it; not final yet.",
            writes,
            OF_REVERTS,
            revert_to,
        ),
        Method::new(
            "plan_unrevert",
            "Tells what `unrevert` would do now; records the present state and changes no file.",
            writes,
            &["nothing_reverted", "session_busy", "stale_plan"],
            plan_unrevert,
        ),
        Method::new(
            "unrevert",
            "Takes a session's revert back, and keeps what others did since.",
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
            "Makes a session's revert final, and tells which messages are gone with it.",
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
            "Records the present state under a name of its own.",
            Access::Records,
            &["too_long", "over_budget", "over_quota", "no_space"],
            checkpoint,
        ),
        Method::new(
            "fork",
            "Makes a session that shares another's history, if asked with files of its own.",
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

/// A step that begins.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BeginParams {
    /// The session it belongs to.
    session: String,
    /// The step's own id. Beginning the same step twice is beginning it once. Default: a new one.
    #[serde(default)]
    step: String,
    /// The message (turn) it belongs to. Default: the step is a turn of its own.
    message: Option<String>,
    /// The part of the message.
    part: Option<String>,
    /// The tool.
    tool: Option<String>,
    /// What it is about, for people.
    label: Option<String>,
    /// The agent.
    who: Option<String>,
    /// The turn of another session that this one works for, as a sub-agent does.
    parent: Option<ParentParam>,
    /// Paths the tool says it will change: the strongest evidence when several steps overlap.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Files the tool says it will change, wherever they are: in the work tree the same as `paths`;
    /// elsewhere they are captured, bounded, for an undo with `outside`.
    #[serde(default, deserialize_with = "bounded")]
    files: Vec<WirePath>,
    /// Shell commands the tool will run. What they name and a snapshot would not cover, ignored
    /// files and files elsewhere, is kept too.
    #[serde(default, deserialize_with = "bounded")]
    commands: Vec<String>,
    /// Where the tool runs. Default: `dir`.
    cwd: Option<WirePath>,
    /// Keep the step open when this process ends. Otherwise it is closed then, and marked as
    /// inferred.
    #[serde(default)]
    detached: bool,
}

/// A turn that other sessions work for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ParentParam {
    /// The session.
    session: String,
    /// Its message. Default: that of the step it has open.
    message: Option<String>,
}

impl ParentParam {
    fn read(self) -> ParentTurn {
        let ParentParam { session, message } = self;
        ParentTurn { session, message }
    }
}

fn begin_step(call: &Call<'_>, params: &BeginParams) -> Result<StepBegun, WireError> {
    /// What is copied before the tool runs: it may remove the repository that lends it.
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
    // An agent that speaks rpc has started this process, and starts its tools beside it.
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
        // The tool runs all the same, and the failure has no other place.
        drop(agents.note("rpc", "begin_step", &why));
    }
    // Where nothing is borrowed, looking again would cost a lock and opening the store.
    if begun.borrowed > 0 {
        // The step has begun, so a failure here is none of it; the next snapshot goes on.
        let left = call.workspace.absorb(AT_ONCE_BYTES).unwrap_or(0);
        call.borrowing.set(left > 0);
    }
    Ok(StepBegun::from(&begun))
}

/// What the tool names beyond `paths`.
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

/// A step that ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndParams {
    /// The step's id.
    step: String,
    /// The duration of the call in milliseconds. Changes made before that, while a permission
    /// question was open, are the user's. Default: unknown.
    duration_ms: Option<u64>,
    /// The tool was refused and never ran, so that the step owns nothing.
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

/// What could not be done.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FailureParams {
    /// The agent.
    client: String,
    /// What it was about to record.
    event: String,
    /// Why that failed.
    why: String,
}

fn note_failure(call: &Call<'_>, params: &FailureParams) -> Result<Noted, WireError> {
    let FailureParams { client, event, why } = params;
    let noted = call.agents.map(|agents| agents.note(client, event, why));
    Ok(Noted { noted: matches!(noted, Some(Ok(()))) })
}

/// What to take back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UndoParams {
    /// What to take back. Default: the newest turn that is not taken back yet.
    #[serde(default)]
    scope: Scope,
    /// The session. Default: the one that worked last and still has something to take back.
    session: Option<String>,
    /// Only these paths and what is below them. Default: all.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Take the earlier version of a file where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Also take back changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Also put back paths outside of the work tree that the steps named and changed. Default: they
    /// are listed. Directly after an undo without it, puts back what that one left there.
    #[serde(default)]
    outside: bool,
    /// Also take back what changed while an interrupted command may have been running.
    #[serde(default)]
    unclear: bool,
    /// Close the session's open steps instead of calling it busy.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Take back a restore, recover or revert that a person made, if that is the newest operation
    /// that changed files and nothing names a turn.
    #[serde(default)]
    restores: bool,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Go on only if the plan still is the one with this hash.
    plan: Option<Hash>,
}

/// What to take back.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scope {
    /// The newest turn that is not taken back yet, sub-agents included.
    #[default]
    LastTurn,
    /// The newest step that is not taken back yet.
    LastStep,
    /// One step, keeping later ones.
    Step(String),
    /// One message, keeping later ones.
    Message(String),
    /// A message, or the rest of it from a part on, and everything its session did after it.
    From(FromMessage),
    /// Everything the session and its sub-agents did.
    Session,
}

/// Where to begin.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FromMessage {
    /// The message.
    message: String,
    /// The part of it; the parts before it stay.
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

/// What was planned, if the caller agreed to it.
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

/// What to bring back, and how. Steps that are open do not stand in the way.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedoParams {
    /// The session. Default: the one that was taken back last.
    session: Option<String>,
    /// Take the version of before the undo where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Also bring back changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Go on only if the plan still is the one with this hash.
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

/// Which revert to take back, and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UnrevertParams {
    /// The session. Default: the one that was reverted last.
    session: Option<String>,
    /// Take the version of before the revert where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Also bring back changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Close the session's open steps instead of calling it busy.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Go on only if the plan still is the one with this hash.
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

/// Which plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ApplyParams {
    /// The plan's hash.
    plan: Hash,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
}

fn apply(call: &Call<'_>, params: &ApplyParams) -> Result<UndoReport, WireError> {
    let ApplyParams { plan, allow_mass_removal } = params;
    let report = call.workspace.apply(&plan.id()?, *allow_mass_removal, call.progress)?;
    Ok(UndoReport::from(&report))
}

/// What to take a session back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertToParams {
    /// The first message to take back; everything the session did after it goes too.
    message: String,
    /// The part of the message to begin with; the parts before it stay. Default: all of it.
    part: Option<String>,
    /// The session. Default: the one that the message belongs to.
    session: Option<String>,
    /// Take the earlier version of a file where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Also take back changes of ignored files that no tool named.
    #[serde(default)]
    ignored: bool,
    /// Close the session's open steps instead of calling it busy.
    #[serde(default)]
    interrupt: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// A person asked for it, as on the page, and not a program: a plain undo may take it back.
    #[serde(default)]
    by_person: bool,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Go on only if the plan still is the one with this hash.
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

/// The session whose revert is meant.
fn reverted(call: &Call<'_>, session: Option<&str>) -> Result<String, WireError> {
    let state = pending_revert(call.workspace, session)?;
    let nothing = || match session {
        Some(session) => ctrlz::Error::NothingReverted { session: session.to_owned() }.into(),
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

/// Whose revert.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CommitParams {
    /// The session. Default: the one that was reverted last.
    session: Option<String>,
}

fn commit_revert(call: &Call<'_>, params: &CommitParams) -> Result<RevertState, WireError> {
    let session = reverted(call, params.session.as_deref())?;
    let state = call.workspace.commit_revert(&session)?;
    // Somebody else may have been faster.
    let state = state.ok_or(ctrlz::Error::NothingReverted { session })?;
    Ok(RevertState::from(&state))
}

/// How to call the present state.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CheckpointParams {
    /// A name for people. Default: none.
    label: Option<String>,
    /// Why it is made, as `manual`, `turn` or `resume`; part of its ref's name. Default: `manual`.
    kind: Option<String>,
    /// Never remove it by pruning or retention.
    #[serde(default)]
    pinned: bool,
    /// The session it belongs to. Default: none.
    session: Option<String>,
    /// Prune checkpoints that are not pinned to this many. Default: as the configuration says.
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

/// What to fork.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ForkParams {
    /// The session to fork.
    session: String,
    /// The first message that the fork does not share. Default: it shares all there is.
    at: Option<String>,
    /// The new session's id. Default: a new one.
    id: Option<String>,
    /// Bring the files into this directory, which must be new or empty and outside the work tree;
    /// a relative path starts at the work tree. Default: no file is touched.
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
