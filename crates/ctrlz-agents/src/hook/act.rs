//! Translates events into session calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctrlz::{
    Error, FileEdit, ParentTurn, Progress, SessionError, StepEnd, StepInfo, StepStart, Uncaptured,
    Workspace, escape, now_millis,
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
    let is_prompt = matches!(event.what, What::Prompt);
    if memory.turn.is_none() || event.turn.is_some() || is_prompt {
        memory.turn = Some(event.turn.clone().unwrap_or_else(|| format!("{:x}", now_millis())));
    }
    let turn = memory.turn.clone().unwrap_or_default();
    let mut handling = Handling { event, memory, scene, progress, turn };
    match &event.what {
        What::SessionStart => handling.session_start(),
        What::Prompt => handling.prompt(),
        What::ToolBefore(call) if !call.only_reads => handling.tool_before(call),
        What::ToolAfter(calls) => handling.tool_after(calls),
        What::BatchEnd(calls) => handling.batch_end(calls),
        What::TurnEnd => handling.turn_end(),
        What::AgentEnd { agent } => {
            let session = agent_session(event, agent);
            handling.close(|step| step.session == session)
        }
        What::SessionEnd => handling.close(|step| step.belongs_to(&event.session)),
        What::ToolBefore(_) | What::Other => Ok(Outcome::default()),
    }
}

/// An event that is being handled.
struct Handling<'a> {
    event: &'a Event,
    memory: &'a mut Memory,
    scene: &'a Scene<'a>,
    progress: &'a Progress,
    turn: String,
}

/// A step that ends.
struct Ended<'a> {
    step: String,
    /// Duration of its tool call in milliseconds.
    duration_ms: Option<u64>,
    /// The tool call, if this event reports it.
    call: Option<&'a ToolCall>,
}

impl Handling<'_> {
    fn session_start(&mut self) -> Result<Outcome, Error> {
        // A resumed session has yet to be notified of what happened meanwhile.
        if self.memory.seen.is_none() {
            learn(self.scene.workspace, self.memory)?;
        }
        Ok(Outcome { wants_baseline: self.has_no_snapshot(), ..Outcome::default() })
    }

    fn prompt(&mut self) -> Result<Outcome, Error> {
        // Clients no longer report tool calls of an earlier turn.
        self.memory.beginning.clear();
        self.close(|step| {
            step.session == self.event.session && step.message.as_deref() != Some(&self.turn)
        })?;
        let notice = notice(self.event, self.memory, self.scene)?;
        Ok(Outcome { notice, wants_baseline: self.has_no_snapshot(), ..Outcome::default() })
    }

    fn has_no_snapshot(&self) -> bool {
        self.memory.seen.as_deref() == Some("")
    }

    fn tool_before(&mut self, call: &ToolCall) -> Result<Outcome, Error> {
        let start = self.step_start(call);
        let step = start.info.step.clone();
        self.memory.beginning.push(step.clone());
        // Best effort: lets the event after the tool call detect that this hook was killed.
        self.memory.save().ok();
        let begun = self.scene.workspace.begin_step(start, self.progress);
        self.memory.beginning.retain(|known| *known != step);
        let begun = begun?;
        let mut notice = Notice::default();
        for path in &begun.not_kept {
            notice.say(&format!(
                "ctrlz: {path} is ignored or large and could not be captured in time; what this \
                 command does to it cannot be undone"
            ));
        }
        let (borrowed, outside_failed) = (begun.borrowed, begun.outside_failed);
        Ok(Outcome { notice, borrowed, outside_failed, ..Outcome::default() })
    }

    fn tool_after(&mut self, calls: &[ToolCall]) -> Result<Outcome, Error> {
        let ran = calls.iter().map(|call| Ended {
            step: self.step_id(call),
            duration_ms: call.duration_ms,
            call: Some(call),
        });
        let ran: Vec<Ended<'_>> = ran.collect();
        self.memory.ran.extend(ran.iter().map(|ended| (ended.step.clone(), ended.duration_ms)));
        // Saved before waiting for the work tree. Best effort: without it, the end of the batch may
        // take the call for refused.
        self.memory.save().ok();
        let open = self.scene.workspace.open_steps()?;
        let is_open = |step: &String| open.iter().any(|open| open.step == *step);
        let ended = |step: &String| ran.iter().any(|ended| ended.step == *step);
        let beginning = &mut self.memory.beginning;
        let cut_off = beginning.iter().any(|step| ended(step) && !is_open(step));
        beginning.retain(|step| !ended(step));
        let notice = self.end(&ran, false)?;
        self.memory.ran.retain(|known| {
            !ran.iter().any(|ended| (&ended.step, ended.duration_ms) == (&known.0, known.1))
        });
        Ok(Outcome { notice, cut_off, ..Outcome::default() })
    }

    fn batch_end(&mut self, calls: &[ToolCall]) -> Result<Outcome, Error> {
        let (mut late, mut refused) = (Vec::new(), Vec::new());
        for step in calls.iter().map(|call| self.step_id(call)) {
            let ran = self.memory.ran.iter().find(|(known, _)| *known == step);
            let list = if ran.is_some() { &mut late } else { &mut refused };
            list.push(Ended { step, duration_ms: ran.and_then(|(_, millis)| *millis), call: None });
        }
        let notice = self.end(&late, false)?;
        self.end(&refused, true)?;
        self.memory.ran.retain(|known| {
            !late.iter().any(|ended| (&ended.step, ended.duration_ms) == (&known.0, known.1))
        });
        Ok(Outcome { notice, ..Outcome::default() })
    }

    fn turn_end(&mut self) -> Result<Outcome, Error> {
        self.close(|step| step.session == self.event.session)?;
        learn(self.scene.workspace, self.memory)?;
        Ok(Outcome::default())
    }

    /// Closes open steps that no event will end.
    fn close(&self, which: impl Fn(&StepInfo) -> bool) -> Result<Outcome, Error> {
        let workspace = self.scene.workspace;
        let open = workspace.open_steps()?.into_iter();
        let steps: Vec<String> = open.filter(|step| which(step)).map(|step| step.step).collect();
        if !steps.is_empty() {
            workspace.close_steps(&steps, self.progress)?;
        }
        Ok(Outcome::default())
    }

    /// Ends those of the steps that are open. Idempotent: a client may report the same end twice.
    /// Returns warnings for the user.
    fn end(&self, steps: &[Ended<'_>], refused: bool) -> Result<Notice, Error> {
        let workspace = self.scene.workspace;
        let mut notice = Notice::default();
        let open: BTreeSet<String> =
            workspace.open_steps()?.into_iter().map(|step| step.step).collect();
        for Ended { step, duration_ms, call } in
            steps.iter().filter(|ended| open.contains(&ended.step))
        {
            let since = |millis| Duration::from_millis(millis) + self.scene.begun.elapsed();
            let edits =
                call.map(|call| edits(self.event, call, workspace.root())).unwrap_or_default();
            let failed = call.is_some_and(|call| call.failed);
            let end = StepEnd { duration: duration_ms.map(since), refused, failed, edits };
            match workspace.end_step(step, &end, self.progress) {
                Ok(ended) => warn_of_losses(&mut notice, &ended.uncaptured),
                // Another hook ended the step first.
                Err(Error::Session(SessionError::NoSuchStep { .. })) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(notice)
    }

    /// Returns the step id of a tool call, which is the same before and after the call.
    fn step_id(&self, call: &ToolCall) -> String {
        let event = self.event;
        let parts = [event.client.name(), &event.session, &self.turn, &call.tool, &call.id];
        let number = fingerprint(&parts.map(str::as_bytes));
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let shown: String = call.id.chars().filter(|c| plain(*c)).take(40).collect();
        // Call ids are chosen by the model and may recur in another session.
        format!("{shown}-{:08x}", number >> 32)
    }

    fn step_start(&self, call: &ToolCall) -> StepStart {
        let (event, scene) = (self.event, self.scene);
        let root = scene.workspace.root();
        let tool = Tool {
            name: Some(call.tool.clone()),
            dir: working_dir(event, root),
            files: call.files.clone(),
            commands: call.commands.clone(),
        };
        let message = Some(self.turn.clone());
        let parent = call
            .agent
            .as_ref()
            .map(|_| ParentTurn { session: event.session.clone(), message: message.clone() });
        let info = StepInfo {
            step: self.step_id(call),
            session: match &call.agent {
                Some(agent) => agent_session(event, agent),
                None => event.session.clone(),
            },
            message,
            part: Some(call.id.clone()).filter(|id| !id.is_empty()),
            tool: Some(call.tool.clone()).filter(|tool| !tool.is_empty()),
            label: call.label(),
            who: Some(event.client.name().to_owned()),
            parent,
        };
        let Reach { inside: paths, outside, only_named, starts_agent } =
            reach(&tool, root, scene.home);
        // Claude Code reports the calls of its sub-agents, so the call that started one owns no
        // changes.
        let only_named =
            only_named || (starts_agent == Some(true) && event.client == Client::ClaudeCode);
        let (owner, named_time) = (scene.owner, scene.named_time);
        StepStart {
            info,
            paths,
            only_named,
            starts_agent,
            owner,
            outside,
            named_time,
            ..StepStart::default()
        }
    }
}

/// Adds the files that a step changed and that cannot be restored.
fn warn_of_losses(notice: &mut Notice, uncaptured: &[Uncaptured]) {
    let mut losses = uncaptured.iter().filter(|lost| lost.is_loss());
    for lost in losses.by_ref().take(MAX_LOST) {
        let path = escape(&lost.path);
        notice.say(&format!("ctrlz: {path} {}; it cannot be undone", lost.describe()));
    }
    let more = losses.count();
    if more > 0 {
        notice.say(&format!("ctrlz: {more} more were lost; see `ctrlz log --lost`"));
    }
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

fn agent_session(event: &Event, agent: &str) -> String {
    format!("{}/{agent}", event.session)
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
        if pair[0].kind.writes_files() {
            let changed = workspace.changes(&pair[1].snapshot, &pair[0].snapshot)?;
            names.extend(changed.iter().map(|change| escape(change.path.as_bytes())));
        }
    }
    Ok(names.into_iter().collect())
}
