//! Translates events into session calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctrlz::{
    Error, FileEdit, OperationKind, ParentTurn, Progress, SessionError, StepEnd, StepInfo,
    StepStart, Workspace, escape, now_millis,
};
use ctrlz_api::{Reach, Tool};

use super::{Client, Event, Failures, Memory, Notice, ToolCall, What};
use crate::private::fingerprint;
use crate::reach::{inside, reach};

/// Number of newest operations that are searched for changes made under an agent.
const MAX_OPERATIONS: usize = 200;

/// Maximum number of lost paths in a notice.
const MAX_LOST: usize = 10;

/// Context in which an event is handled.
pub struct Scene<'a> {
    /// The work tree.
    pub workspace: &'a Workspace,
    /// Process of the client. If it dies, its steps are closed.
    pub owner: Option<u32>,
    /// Failures of earlier hooks in this work tree.
    pub failures: &'a Failures,
    /// Time limit for capturing large files that a tool names.
    pub named_time: Option<Duration>,
    /// The user's home directory, for `~` in shell commands.
    pub home: Option<&'a Path>,
    /// Time at which the client started the hook. A reported duration ends there, however long the
    /// hook takes.
    pub begun: Instant,
}

/// Result of handling an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Messages for the model and the user.
    pub notice: Notice,
    /// Whether there is no snapshot yet, so that one should be taken in the background.
    pub wants_baseline: bool,
    /// Number of blobs that the user's repository has to keep until they are copied.
    pub borrowed: u64,
    /// Reason why files outside the project could not be captured, if so.
    pub outside_failed: Option<String>,
    /// Whether the hook before the tool call did not finish, so that the call is not a step.
    pub cut_off: bool,
}

/// Handles an event and updates the state of its session.
pub fn act(
    event: &Event,
    memory: &mut Memory,
    scene: &Scene<'_>,
    progress: &Progress,
) -> Result<Outcome, Error> {
    let workspace = scene.workspace;
    let is_prompt = matches!(event.what, What::Prompt);
    if memory.turn.is_none() || event.turn.is_some() || is_prompt {
        memory.turn = Some(event.turn.clone().unwrap_or_else(|| format!("{:x}", now_millis())));
    }
    let turn = memory.turn.clone().unwrap_or_default();
    let mut outcome = Outcome::default();
    match &event.what {
        What::SessionStart => {
            // A resumed session has yet to be notified of what happened meanwhile.
            if memory.seen.is_none() {
                learn(workspace, memory)?;
            }
            outcome.wants_baseline = memory.seen.as_deref() == Some("");
        }
        What::Prompt => {
            // Clients no longer report tool calls of an earlier turn.
            memory.beginning.clear();
            close(workspace, progress, |step| {
                step.session == event.session && step.message.as_deref() != Some(&turn)
            })?;
            outcome.notice = notice(event, memory, scene)?;
            outcome.wants_baseline = memory.seen.as_deref() == Some("");
        }
        What::ToolBefore(call) if !call.only_reads => {
            let dir = working_dir(event, workspace.root());
            let (files, commands) = (call.files.clone(), call.commands.clone());
            let tool = Tool { name: Some(call.tool.clone()), dir, files, commands };
            let named = reach(&tool, workspace.root(), scene.home);
            let start = step_start(event, &turn, call, named, scene.owner);
            let start = StepStart { named_time: scene.named_time, ..start };
            let step = start.info.step.clone();
            memory.beginning.push(step.clone());
            // Best effort: lets the event after the tool call detect that this hook was killed.
            memory.save().ok();
            let begun = workspace.begin_step(start, progress);
            memory.beginning.retain(|known| *known != step);
            let begun = begun?;
            outcome.borrowed = begun.borrowed;
            for path in &begun.not_kept {
                outcome.notice.say(&format!(
                    "ctrlz: {path} is ignored or large and could not be captured in time; what this \
                     command does to it cannot be undone"
                ));
            }
            outcome.outside_failed = begun.outside_failed;
        }
        What::ToolAfter(calls) => {
            let ran: Vec<(String, Option<u64>)> =
                calls.iter().map(|call| (step_id(event, &turn, call), call.duration_ms)).collect();
            memory.ran.extend(ran.clone());
            // Saved before waiting for the work tree. Best effort: without it, the end of the batch
            // may take the call for refused.
            memory.save().ok();
            let open = workspace.open_steps()?;
            let is_open = |step: &String| open.iter().any(|open| open.step == *step);
            let ended = |step: &String| ran.iter().any(|(ran, _)| ran == step);
            outcome.cut_off = memory.beginning.iter().any(|step| ended(step) && !is_open(step));
            memory.beginning.retain(|step| !ended(step));
            let ran: Vec<_> = ran.into_iter().zip(calls.iter().map(Some)).collect();
            outcome.notice = end(event, &ran, false, scene, progress)?;
            memory.ran.retain(|known| !ran.iter().any(|(ran, _)| ran == known));
        }
        What::BatchEnd(calls) => {
            let steps = calls.iter().map(|call| step_id(event, &turn, call));
            let (late, refused): (Vec<_>, Vec<_>) = steps
                .map(|step| {
                    let ran = memory.ran.iter().find(|(known, _)| *known == step).cloned();
                    ran.ok_or((step, None))
                })
                .partition(Result::is_ok);
            let late: Vec<_> = late.into_iter().flatten().map(|step| (step, None)).collect();
            let refused = refused.into_iter().filter_map(Result::err);
            let refused: Vec<_> = refused.map(|step| (step, None)).collect();
            outcome.notice = end(event, &late, false, scene, progress)?;
            end(event, &refused, true, scene, progress)?;
            memory.ran.retain(|known| !late.iter().any(|(late, _)| late == known));
        }
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

/// Closes open steps that no event will end.
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

/// A step that ends, with the duration of its tool call, and the call if this event reports it.
type Ended<'a> = ((String, Option<u64>), Option<&'a ToolCall>);

/// Ends those of the steps that are open. Idempotent: a client may report the same end twice.
/// Returns warnings for the user.
fn end(
    event: &Event,
    steps: &[Ended<'_>],
    refused: bool,
    scene: &Scene<'_>,
    progress: &Progress,
) -> Result<Notice, Error> {
    let workspace = scene.workspace;
    let mut notice = Notice::default();
    let open: BTreeSet<String> =
        workspace.open_steps()?.into_iter().map(|step| step.step).collect();
    for ((step, duration), call) in steps.iter().filter(|((step, _), _)| open.contains(step)) {
        let since = |millis| Duration::from_millis(millis) + scene.begun.elapsed();
        let edits = call.map(|call| edits(event, call, workspace.root())).unwrap_or_default();
        let end = StepEnd { duration: duration.map(since), refused, edits };
        match workspace.end_step_with(step, &end, progress) {
            Ok(ended) => {
                let mut losses = ended.uncaptured.iter().filter(|lost| lost.is_loss());
                for lost in losses.by_ref().take(MAX_LOST) {
                    let path = escape(&lost.path);
                    notice.say(&format!("ctrlz: {path} {}; it cannot be undone", lost.describe()));
                }
                let more = losses.count();
                if more > 0 {
                    notice.say(&format!("ctrlz: {more} more were lost; see `ctrlz log --lost`"));
                }
            }
            // Another hook ended the step first.
            Err(Error::Session(SessionError::NoSuchStep { .. })) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(notice)
}

/// Returns the edits that a call reports, inside the work tree.
fn edits(event: &Event, call: &ToolCall, root: &Path) -> Vec<FileEdit> {
    let dir = working_dir(event, root);
    let located = call.edits.iter().filter_map(|edit| {
        let path = inside(root, &dir.join(&edit.file))?;
        Some(FileEdit { path, found: edit.found.clone(), replaced: edit.replaced.clone() })
    });
    located.collect()
}

/// Returns the step id of a tool call, which is the same before and after the call.
fn step_id(event: &Event, turn: &str, call: &ToolCall) -> String {
    let parts = [event.client.name(), &event.session, turn, &call.tool, &call.id];
    let number = fingerprint(&parts.map(str::as_bytes));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let shown: String = call.id.chars().filter(|c| plain(*c)).take(40).collect();
    // Call ids are chosen by the model and may recur in another session.
    format!("{shown}-{:08x}", number >> 32)
}

fn agent_session(event: &Event, agent: &str) -> String {
    format!("{}/{agent}", event.session)
}

fn step_start(
    event: &Event,
    turn: &str,
    call: &ToolCall,
    named: Reach,
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
    let Reach { inside: paths, outside, only_named, starts_agent } = named;
    // Claude Code reports the calls of its sub-agents, so the call that started one owns no
    // changes.
    let only_named = only_named || (starts_agent && event.client == Client::ClaudeCode);
    StepStart { info, paths, only_named, starts_agent, owner, outside, ..StepStart::default() }
}

/// Returns the working directory of the agent's shell, or the work tree if it is unknown.
fn working_dir(event: &Event, root: &Path) -> PathBuf {
    let told = event.dir.as_deref().and_then(|dir| dir.canonicalize().ok());
    told.unwrap_or_else(|| root.to_owned())
}

/// Remembers the newest operation.
fn learn(workspace: &Workspace, memory: &mut Memory) -> Result<(), Error> {
    let newest = workspace.log(1)?.first().map(|operation| operation.id.clone());
    memory.seen = Some(newest.unwrap_or_default());
    Ok(())
}

/// Returns the notice for a prompt: files that changed under the agent, and failed hooks.
fn notice(event: &Event, memory: &mut Memory, scene: &Scene<'_>) -> Result<Notice, Error> {
    let names = match &memory.seen {
        Some(seen) => taken_back_since(scene.workspace, seen)?,
        None => Vec::new(),
    };
    learn(scene.workspace, memory)?;
    let mut notice = if names.is_empty() { Notice::default() } else { Notice::taken_back(&names) };
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

/// Returns the files that undo, redo, restore and revert changed after an operation.
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
