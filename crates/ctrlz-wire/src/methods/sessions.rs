//! Methods about steps and sessions: begin, end, undo, redo.

use ctrlz::{StepInfo, StepStart, UndoOptions, UndoScope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::writing::{check_plan, expected};
use crate::error::WireError;
use crate::method::{Access, Call, Method};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::UndoReport;
use crate::session::{StepBegun, StepEnded};

const OF_UNDOS: &[&str] = &[
    "nothing_to_undo",
    "no_such_step",
    "no_such_message",
    "not_a_tree_path",
    "mass_change",
    "moved",
    "stale_plan",
    "rolled_back",
    "interrupted",
];

pub(super) fn table() -> Vec<Method> {
    vec![
        Method::new(
            "begin_step",
            "Records the state before a tool runs; from now on changes are the step's.",
            Access::Records,
            &["not_a_tree_path", "over_budget", "no_space"],
            begin_step,
        ),
        Method::new(
            "end_step",
            "Records the state after a tool ran, also if it failed.",
            Access::Records,
            &["no_such_step", "over_budget", "no_space"],
            end_step,
        ),
        Method::new(
            "plan_undo",
            "Tells what `undo` would do now; records the present state and changes no file.",
            Access::Writes,
            &[
                "nothing_to_undo",
                "no_such_step",
                "no_such_message",
                "not_a_tree_path",
                "stale_plan",
            ],
            plan_undo,
        ),
        Method::new(
            "undo",
            "Takes steps back and keeps what others did since.",
            Access::Writes,
            OF_UNDOS,
            undo,
        ),
        Method::new(
            "redo",
            "Brings back what the last undo took back.",
            Access::Writes,
            &["nothing_to_redo", "mass_change", "moved", "rolled_back", "interrupted"],
            redo,
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
    /// Paths the tool says it will change: the strongest evidence when several steps overlap.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Keep the step open when this process ends. Otherwise it is closed then, and marked as
    /// inferred.
    #[serde(default)]
    detached: bool,
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
    };
    let paths = params.paths.iter().map(|path| call.file(path));
    let owner = call.owner.filter(|_| !params.detached);
    let start = StepStart { info, paths: paths.collect::<Result<_, _>>()?, owner };
    let begun = call.workspace.begin_step(start, call.progress)?;
    // The step has begun, so a failure here is none of it; the next snapshot goes on.
    let left = call.workspace.absorb(AT_ONCE_BYTES).unwrap_or(0);
    call.borrowing.set(left > 0);
    Ok(StepBegun::from(&begun))
}

/// A step that ends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndParams {
    /// The step's id.
    step: String,
}

fn end_step(call: &Call<'_>, params: &EndParams) -> Result<StepEnded, WireError> {
    Ok(StepEnded::from(&call.workspace.end_step(&params.step, call.progress)?))
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
    /// The newest turn that is not taken back yet.
    #[default]
    LastTurn,
    /// The newest step that is not taken back yet.
    LastStep,
    /// One step, keeping later ones.
    Step(String),
    /// One message, keeping later ones.
    Message(String),
    /// A message and everything its session did after it.
    From(String),
    /// Everything the session did.
    Session,
}

impl From<Scope> for UndoScope {
    fn from(scope: Scope) -> UndoScope {
        match scope {
            Scope::LastTurn => UndoScope::LastTurn,
            Scope::LastStep => UndoScope::LastStep,
            Scope::Step(step) => UndoScope::Step(step),
            Scope::Message(message) => UndoScope::Message(message),
            Scope::From(message) => UndoScope::From(message),
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
            allow_mass_removal: self.allow_mass_removal,
            expected_plan: expected(self.plan.as_ref())?,
        };
        Ok((self.scope.clone().into(), options))
    }
}

fn plan_undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, WireError> {
    let (scope, options) = params.read(call)?;
    let report = call.workspace.plan_undo(&scope, &options, call.progress)?;
    check_plan(options.expected_plan, report.plan)?;
    Ok(UndoReport::from(&report))
}

fn undo(call: &Call<'_>, params: &UndoParams) -> Result<UndoReport, WireError> {
    let (scope, options) = params.read(call)?;
    Ok(UndoReport::from(&call.workspace.undo(&scope, &options, call.progress)?))
}

/// How to bring it back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RedoParams {
    /// Take the version of before the undo where changes do not merge.
    #[serde(default)]
    force: bool,
    /// Allow removing an unusual share of the files.
    #[serde(default)]
    allow_mass_removal: bool,
}

fn redo(call: &Call<'_>, params: &RedoParams) -> Result<UndoReport, WireError> {
    let RedoParams { force, allow_mass_removal } = *params;
    let options = UndoOptions { force, allow_mass_removal, ..UndoOptions::default() };
    Ok(UndoReport::from(&call.workspace.redo(&options, call.progress)?))
}
