//! Methods that begin and end steps.

use std::time::Duration;

use ctrlz::{ParentTurn, StepEnd, StepInfo, StepStart};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::agents::{Reach, Tool};
use crate::error::MethodError;
use crate::method::{Call, Method};
use crate::path::{WirePath, bounded};
use crate::place::Host;
use crate::session::{Noted, StepBegun, StepEnded};

pub(super) fn of_steps() -> Vec<Method> {
    vec![
        Method::records(
            "begin_step",
            "Records the state before a tool runs and opens a step.",
            begin_step,
        )
        .errors(&["not_a_tree_path", "too_long", "over_budget", "over_quota", "no_space"]),
        Method::records(
            "end_step",
            "Records the state after a tool ran or failed, and closes the step.",
            end_step,
        )
        .errors(&["no_such_step", "over_budget", "over_quota", "no_space"]),
        Method::records(
            "note_failure",
            "Stores the reason why an agent could not be recorded, until `status` or `doctor` has shown it.",
            note_failure,
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

fn begin_step(call: &Call<'_>, params: &BeginParams) -> Result<StepBegun, MethodError> {
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
    let owner = call.host.and_then(Host::owner).filter(|_| !params.detached);
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
    if let (Some(agents), Some(why)) = (&call.opened.agents, &begun.outside_failed) {
        let why = format!("files outside of the project could not be captured: {why}");
        // Best effort: the tool runs even if the failure cannot be stored.
        drop(agents.note("rpc", "begin_step", &why));
    }
    // Avoids a lock and opening the store if nothing is borrowed.
    if begun.borrowed > 0 {
        // Errors are ignored: the step has begun, and the next snapshot resumes the copying.
        let left = call.workspace.copy_borrowed(AT_ONCE_BYTES).unwrap_or(0);
        call.borrowing.set(left > 0);
    }
    Ok(StepBegun::from(&begun))
}

/// Returns the paths that the tool names beyond `paths`.
fn reach(call: &Call<'_>, params: &BeginParams) -> Result<Reach, MethodError> {
    let root = call.workspace.root();
    let dir = params.cwd.as_ref().or(call.dir.as_ref()).map(|dir| root.join(dir.as_path()));
    dir.iter().try_for_each(|dir| call.check_named(dir))?;
    let dir = dir.and_then(|dir| dir.canonicalize().ok()).unwrap_or_else(|| root.to_owned());
    let files: Vec<_> = params.files.iter().map(|file| file.as_path().to_owned()).collect();
    call.check_named(&dir)?;
    files.iter().try_for_each(|file| call.check_named(&dir.join(file)))?;
    let (name, commands) = (params.tool.clone(), params.commands.clone());
    let tool = Tool { name, dir, files, commands };
    let reach = call.opened.agents.as_ref().map(|agents| agents.reach(&tool)).unwrap_or_default();
    reach.outside.iter().try_for_each(|path| call.check_named(path))?;
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

fn end_step(call: &Call<'_>, params: &EndParams) -> Result<StepEnded, MethodError> {
    let end = StepEnd {
        duration: params.duration_ms.map(Duration::from_millis),
        refused: params.refused,
        ..StepEnd::default()
    };
    Ok(StepEnded::from(&call.workspace.end_step(&params.step, &end, call.progress)?))
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

fn note_failure(call: &Call<'_>, params: &FailureParams) -> Result<Noted, MethodError> {
    let FailureParams { client, event, why } = params;
    let noted = call.opened.agents.as_ref().map(|agents| agents.note(client, event, why));
    Ok(Noted { noted: matches!(noted, Some(Ok(()))) })
}
