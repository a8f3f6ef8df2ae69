//! From an event to session calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ctrlz::{
    Error, OperationKind, ParentTurn, Progress, StepInfo, StepStart, TreePath, Workspace, escape,
};
use ctrlz_wire::Tool;

use super::failures::now_millis;
use super::{Event, Failures, Memory, Notice, ToolCall, What};
use crate::outside::Outside;
use crate::private::fingerprint;
use crate::reach::reach;

/// Further back nobody looks for what changed under an agent.
const MAX_OPERATIONS: usize = 200;

/// What an event is acted on with.
pub struct Scene<'a> {
    /// The work tree.
    pub workspace: &'a Workspace,
    /// The process of the client: if it dies, its steps are closed.
    pub owner: Option<u32>,
    /// Failures of earlier hooks here.
    pub failures: &'a Failures,
    /// Where files outside of the project are kept before a tool changes them.
    pub outside: &'a Outside,
    /// The user's home directory, as shell commands mean it.
    pub home: Option<&'a Path>,
}

/// What is left to do after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What to tell.
    pub notice: Notice,
    /// There is no snapshot yet, so one should be taken in the background.
    pub wants_baseline: bool,
    /// Blobs that the user's repository has to lend until they are copied.
    pub borrowed: u64,
    /// Why files outside of the project could not be kept, if so.
    pub outside_failed: Option<String>,
}

/// The directory whose work tree an event is about.
///
/// A session stays where it began: an agent that changes its directory while a tool runs must not
/// end the step somewhere else.
pub fn project_of(event: &Event, memory: &Memory, told: Option<PathBuf>) -> Option<PathBuf> {
    let is_dir = |dir: &PathBuf| dir.is_absolute() && dir.is_dir();
    let remembered = memory.dir.clone().filter(is_dir);
    let told = || told.filter(is_dir).or_else(|| event.dir.clone().filter(is_dir));
    match event.what {
        What::SessionStart => told().or(remembered),
        _ => remembered.or_else(told),
    }
}

/// Does what the event means, and updates what is known of its session.
pub fn act(
    event: &Event,
    memory: &mut Memory,
    scene: &Scene<'_>,
    progress: &Progress,
) -> Result<Outcome, Error> {
    let workspace = scene.workspace;
    if memory.turn.is_none() || event.turn.is_some() {
        memory.turn = Some(event.turn.clone().unwrap_or_else(|| format!("{:x}", now_millis())));
    }
    let turn = memory.turn.clone().unwrap_or_default();
    let mut outcome = Outcome::default();
    match &event.what {
        What::SessionStart => {
            // One that goes on has yet to hear what happened meanwhile.
            if memory.seen.is_none() {
                learn(workspace, memory)?;
            }
            outcome.wants_baseline = memory.seen.as_deref() == Some("");
        }
        What::Prompt => {
            close(workspace, progress, |step| {
                step.session == event.session && step.message.as_deref() != Some(&turn)
            })?;
            outcome.notice = notice(event, memory, scene)?;
            outcome.wants_baseline = memory.seen.as_deref() == Some("");
        }
        What::ToolBefore(call) if !call.only_reads => {
            let dir = working_dir(event, workspace.root());
            let (files, commands) = (call.files.clone(), call.commands.clone());
            let named = reach(&Tool { dir, files, commands }, workspace.root(), scene.home);
            let start = step_start(event, &turn, call, named.inside, scene.owner);
            let kept = scene.outside.capture(&start.info.step, &named.outside);
            let begun = workspace.begin_step(start, progress)?;
            outcome.borrowed = begun.borrowed;
            outcome.outside_failed = kept.err().map(|error| error.to_string());
        }
        What::ToolAfter(calls) => end(event, &turn, calls, scene, progress)?,
        What::TurnEnd => {
            close(workspace, progress, |step| step.session == event.session)?;
            learn(workspace, memory)?;
        }
        What::AgentEnd { agent } => {
            let session = agent_session(event, agent);
            close(workspace, progress, |step| step.session == session)?;
        }
        What::SessionEnd => close(workspace, progress, |step| step.belongs_to(&event.session))?,
        What::ToolBefore(_) | What::Other => (),
    }
    Ok(outcome)
}

/// Closes open steps that will not be ended any more.
fn close(
    workspace: &Workspace,
    progress: &Progress,
    which: impl Fn(&StepInfo) -> bool,
) -> Result<(), Error> {
    let open = workspace.open_steps()?;
    let steps: Vec<String> =
        open.iter().filter(|step| which(step)).map(|step| step.step.clone()).collect();
    if steps.is_empty() { Ok(()) } else { workspace.close_steps(&steps, progress) }
}

/// Ends those of the calls that are open; the same end may be told twice.
fn end(
    event: &Event,
    turn: &str,
    calls: &[ToolCall],
    scene: &Scene<'_>,
    progress: &Progress,
) -> Result<(), Error> {
    let workspace = scene.workspace;
    let open: BTreeSet<String> =
        workspace.open_steps()?.into_iter().map(|step| step.step).collect();
    for call in calls {
        let step = step_id(event, turn, call);
        if !open.contains(&step) {
            continue;
        }
        // If it cannot be noted, undo compares with what is there then.
        scene.outside.settle(&step).ok();
        match workspace.end_step(&step, progress) {
            // Another hook was faster.
            Ok(_) | Err(Error::NoSuchStep { .. }) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The id of a call's step, the same for its before and its after.
fn step_id(event: &Event, turn: &str, call: &ToolCall) -> String {
    let parts = [event.client.name(), &event.session, turn, &call.tool, &call.id];
    let number = fingerprint(&parts.map(str::as_bytes));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let shown: String = call.id.chars().filter(|c| plain(*c)).take(40).collect();
    // Ids of calls are the model's and may come again in another session.
    format!("{shown}-{:08x}", number >> 32)
}

fn agent_session(event: &Event, agent: &str) -> String {
    format!("{}/{agent}", event.session)
}

fn step_start(
    event: &Event,
    turn: &str,
    call: &ToolCall,
    paths: Vec<TreePath>,
    owner: Option<u32>,
) -> StepStart {
    let parent = call
        .agent
        .as_ref()
        .map(|_| ParentTurn { session: event.session.clone(), message: Some(turn.to_owned()) });
    let info = StepInfo {
        step: step_id(event, turn, call),
        session: match &call.agent {
            Some(agent) => agent_session(event, agent),
            None => event.session.clone(),
        },
        message: Some(turn.to_owned()),
        part: Some(call.id.clone()).filter(|id| !id.is_empty()),
        tool: Some(call.tool.clone()).filter(|tool| !tool.is_empty()),
        label: call.label(),
        who: Some(event.client.name().to_owned()),
        parent,
    };
    StepStart { info, paths, owner }
}

/// Where the agent's shell is.
fn working_dir(event: &Event, root: &Path) -> PathBuf {
    let told = event.dir.as_deref().and_then(|dir| dir.canonicalize().ok());
    told.unwrap_or_else(|| root.to_owned())
}

/// Takes note of what is the newest operation.
fn learn(workspace: &Workspace, memory: &mut Memory) -> Result<(), Error> {
    let newest = workspace.log(1)?.first().map(|operation| operation.id.clone());
    memory.seen = Some(newest.unwrap_or_default());
    Ok(())
}

/// What a prompt should tell of: files that changed under the agent, and hooks that failed.
fn notice(event: &Event, memory: &mut Memory, scene: &Scene<'_>) -> Result<Notice, Error> {
    let names = match &memory.seen {
        Some(seen) => taken_back_since(scene.workspace, seen)?,
        None => Vec::new(),
    };
    learn(scene.workspace, memory)?;
    let mut notice = match names.is_empty() {
        true => Notice::default(),
        false => Notice::taken_back(&names),
    };
    let failed = scene.failures.recent();
    let new: Vec<_> =
        failed.iter().filter(|failure| failure.at_millis > memory.told_at_millis).collect();
    if let Some(last) = new.last() {
        let count = if new.len() == 1 { "a step".into() } else { format!("{} steps", new.len()) };
        notice.say(&format!(
            "ctrlz: {count} of {} could not be recorded, the last at {}: {}. `ctrlz doctor` looks into it.",
            event.client, last.event, last.why
        ));
    }
    memory.told_at_millis = now_millis();
    Ok(notice)
}

/// The files that undo, redo and their like changed after an operation.
fn taken_back_since(workspace: &Workspace, seen: &str) -> Result<Vec<String>, Error> {
    let newest = workspace.log(1)?;
    if newest.first().is_none_or(|newest| newest.id.as_str() <= seen) {
        return Ok(Vec::new());
    }
    let log = workspace.log(MAX_OPERATIONS)?;
    let mut names = BTreeSet::new();
    for pair in log.windows(2).filter(|pair| pair[0].id.as_str() > seen) {
        if puts_back(pair[0].kind) {
            let changed = workspace.changes(&pair[1].snapshot, &pair[0].snapshot)?;
            names.extend(changed.iter().map(|change| escape(change.path.as_bytes())));
        }
    }
    Ok(names.into_iter().collect())
}

fn puts_back(kind: OperationKind) -> bool {
    use OperationKind::{Redo, Restore, Revert, Undo, Unrevert};
    matches!(kind, Undo | Redo | Restore | Revert | Unrevert)
}
