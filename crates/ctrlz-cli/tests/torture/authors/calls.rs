//! Steps by `ctrlz run` and by the hook events of Claude Code.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use xtask::Random;

use crate::lab::{Ended, ended};

use super::actions::{Call, Ending, Meanwhile, Tool, Via};
use super::edits::Editor;
use super::oracle::{Author, Checked, Script, Step, Violation, check};
use super::world::World;

/// Time until the user answers a permission prompt. It is longer than any hook takes and than the
/// engine allows for a call without a prompt, so that the reported duration of the tool separates
/// the user's edits from the tool's.
const BEFORE_PERMISSION: Duration = Duration::from_millis(1000);

/// A step that has begun and not ended.
pub(crate) struct OpenCall {
    step: usize,
    how: How,
    started: Instant,
    /// Whether a process of the client runs while the tool does.
    has_process: bool,
}

enum How {
    /// The process of `ctrlz run`, whose command waits for the end of its input.
    Run(Child),
    /// The event that began the step.
    Hook(Value),
}

impl OpenCall {
    /// Waits for `ctrlz run`. Otherwise it would write to the data directory while that is removed.
    pub(super) fn abandon(self) {
        if let How::Run(child) = self.how {
            drop(ended(child));
        }
    }
}

const SESSIONS: [&str; 2] = ["A", "B"];

impl World {
    /// Runs a step from begin to end.
    pub(super) fn step(
        &mut self,
        call: Call,
        meanwhile: Meanwhile,
        random: &mut Random,
    ) -> Checked {
        let mut open = self.begin(call, random)?;
        if meanwhile == Meanwhile::Waiting && call.via == Via::Hook {
            self.edits(Author::User, random);
            if random.below(3) == 0 {
                self.track()?;
            }
            std::thread::sleep(BEFORE_PERMISSION);
        }
        self.start_tool(&mut open);
        self.work(&open, random);
        if meanwhile == Meanwhile::Running {
            self.edits(Author::User, random);
        }
        self.end(open, Ending::Success)
    }

    pub(super) fn begin_in(&mut self, slot: usize, call: Call, random: &mut Random) -> Checked {
        self.end_in(slot, Ending::Success)?;
        let mut open = self.begin(call, random)?;
        self.start_tool(&mut open);
        self.slots[slot] = Some(open);
        Ok(())
    }

    pub(super) fn work_in(&mut self, slot: usize, random: &mut Random) {
        if let Some(open) = self.slots[slot].take() {
            self.work(&open, random);
            self.slots[slot] = Some(open);
        }
    }

    pub(super) fn end_in(&mut self, slot: usize, ending: Ending) -> Checked {
        match self.slots[slot].take() {
            Some(open) => self.end(open, ending),
            None => Ok(()),
        }
    }

    /// Adds the step of a call to the oracle. Returns its index.
    fn new_step(&mut self, call: Call, random: &mut Random) -> usize {
        let (session, turn) = (SESSIONS[call.session], self.turn_of(call));
        let script =
            (call.tool == Tool::Script).then(|| Editor::pick_script(&self.oracle.seen, random));
        let names = match call.tool {
            Tool::Edit => vec![Editor::pick_path(&self.oracle.seen, random)],
            Tool::Shell => Vec::new(),
            Tool::Script => script.iter().flat_map(Script::names).collect(),
        };
        let message = format!("{session}{turn}");
        let own_session = match call.agent {
            Some(agent) => format!("{session}/x{agent}"),
            None => session.to_owned(),
        };
        let number = self.oracle.steps.len();
        self.oracle.steps.push(Step {
            part: format!("part{number}"),
            session: own_session,
            message: message.clone(),
            turn: (session.to_owned(), message),
            only_named: call.tool == Tool::Edit,
            is_hooked: call.via == Via::Hook,
            names,
            script,
            ..Step::default()
        });
        number
    }

    fn turn_of(&self, call: Call) -> usize {
        match call.agent {
            Some(agent) => self.agent_turns[call.session][agent],
            None => self.turns[call.session],
        }
    }

    fn begin(&mut self, call: Call, random: &mut Random) -> Result<OpenCall, Violation> {
        let session = SESSIONS[call.session];
        let is_busy = self.oracle.steps.iter().any(|step| step.is_open && step.session == session);
        // A new turn would close the open steps of the session.
        if call.is_new_turn && call.agent.is_none() && !is_busy {
            match call.via {
                Via::Run => self.turns[call.session] += 1,
                Via::Hook => self.prompt(call.session)?,
            }
        }
        let step = self.new_step(call, random);
        let Step { part, session, message, names, script, .. } = self.oracle.steps[step].clone();
        self.cut();
        let how = match call.via {
            Via::Run => {
                self.say(format!("step {step}: ctrlz run --session {session} --message {message}"));
                How::Run(self.begin_run(&session, &message, &part)?)
            }
            Via::Hook => {
                let (tool, input) = match (&script, names.first()) {
                    (Some(script), _) => ("Bash", json!({ "command": script.text() })),
                    (None, Some(name)) => {
                        let path = self.lab.work.join(name);
                        ("Edit", json!({ "file_path": path, "old_string": "", "new_string": "" }))
                    }
                    (None, None) => ("Bash", json!({ "command": "make" })),
                };
                let mut event = self.event(SESSIONS[call.session], &message, "PreToolUse");
                event["tool_name"] = tool.into();
                event["tool_use_id"] = part.into();
                event["tool_input"] = input;
                if let Some(agent) = call.agent {
                    event["agent_id"] = format!("x{agent}").into();
                }
                self.say(format!("step {step}: PreToolUse {tool} {names:?} ({session} {message})"));
                self.hook(&event)?;
                How::Hook(event)
            }
        };
        self.oracle.steps[step].is_open = true;
        self.oracle.note_sign(step);
        let is_hooked_shell = call.via == Via::Hook && call.tool != Tool::Edit;
        let has_process = is_hooked_shell && random.clone().below(2) == 0;
        Ok(OpenCall { step, how, started: Instant::now(), has_process })
    }

    fn begin_run(&mut self, session: &str, message: &str, part: &str) -> Result<Child, Violation> {
        // The command prints a line when it runs, and then waits.
        let line = ["run", "--session", session, "--message", message, "--part", part];
        let script = ["--", "sh", "-c", "echo; read end"];
        let args: Vec<&str> = line.into_iter().chain(script).collect();
        let mut command = self.lab.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        self.counts.commands += 1;
        let mut byte = [0];
        let said = child.stdout.as_mut().and_then(|out| out.read(&mut byte).ok());
        if said == Some(1) {
            return Ok(child);
        }
        let ended = ended(child);
        Err(Violation { rule: "a command failed", what: format!("run: {ended:?}") })
    }

    fn start_tool(&mut self, open: &mut OpenCall) {
        let step = &mut self.oracle.steps[open.step];
        if step.is_running {
            return;
        }
        step.is_running = true;
        step.has_process = open.has_process;
        if step.has_process {
            self.client().start_tool(open.step);
        }
        open.started = Instant::now();
    }

    fn work(&mut self, open: &OpenCall, random: &mut Random) {
        let author = Author::Step(open.step);
        let Step { script, names, .. } = self.oracle.steps[open.step].clone();
        match (script, names.first()) {
            (Some(script), _) => self.edit_with(author, random, |editor| editor.follow(&script)),
            (None, Some(name)) => {
                self.edit_with(author, random, |editor| editor.change_file(name));
            }
            (None, None) => self.edits(author, random),
        }
    }

    fn end(&mut self, open: OpenCall, ending: Ending) -> Checked {
        let OpenCall { step, how, started, .. } = open;
        self.end_tool(step);
        self.cut();
        if !self.oracle.steps[step].is_open {
            // A prompt has closed the step; the client sends no further event for it.
            if let How::Run(child) = how {
                drop(ended(child));
            }
            return Ok(());
        }
        self.oracle.steps[step].is_open = false;
        self.oracle.note_sign(step);
        match how {
            How::Run(mut child) => {
                drop(child.stdin.take());
                let ended = ended(child);
                self.say(format!("step {step}: ends"));
                check("a command failed", ended.code() == Some(1), || format!("run: {ended:?}"))
            }
            How::Hook(event) => {
                // A refused call changed nothing.
                self.oracle.steps[step].is_interrupted |= ending == Ending::Refused;
                let event = ending_event(event, ending, started.elapsed());
                self.say(format!("step {step}: {}", event["hook_event_name"]));
                self.hook(&event)
            }
        }
    }

    /// Ends the process that represents the tool of a step.
    fn end_tool(&mut self, step: usize) {
        if std::mem::take(&mut self.oracle.steps[step].has_process) {
            self.client().end_tool(step);
        }
    }

    /// Kills the process that would end the step in the first slot.
    pub(super) fn kill_end_of_step(&mut self, random: &mut Random) -> Checked {
        let Some(open) = self.slots[0].take() else { return Ok(()) };
        if !self.oracle.steps[open.step].is_open {
            return self.end(open, Ending::Success);
        }
        let OpenCall { step, how, started, .. } = open;
        self.end_tool(step);
        self.oracle.steps[step].is_interrupted = true;
        match how {
            How::Run(mut child) => {
                self.say(format!("step {step}: kill -9 of ctrlz run"));
                drop(child.kill());
                drop(ended(child));
                // Its process is gone, so the next snapshot closes the step.
                self.oracle.steps[step].closes = true;
            }
            How::Hook(event) => {
                let event = ending_event(event, Ending::Success, started.elapsed());
                self.say(format!("step {step}: PostToolUse (kill -9)"));
                self.oracle.steps[step].end_is_lost = true;
                self.cut();
                let after = Duration::from_micros(random.below(25_000) as u64);
                self.run_hook(&event, Some(after));
            }
        }
        Ok(())
    }

    /// Submits a new prompt, which closes the open steps of the session.
    pub(super) fn prompt(&mut self, session: usize) -> Checked {
        self.turns[session] += 1;
        let message = format!("{}{}", SESSIONS[session], self.turns[session]);
        self.say(format!("UserPromptSubmit {message}"));
        self.close(session);
        let mut event = self.event(SESSIONS[session], &message, "UserPromptSubmit");
        event["prompt"] = "go on".into();
        self.hook(&event)?;
        if self.oracle.segments.is_empty() { self.await_baseline() } else { Ok(()) }
    }

    /// Waits for the first snapshot, which a process in the background takes after the first prompt.
    fn await_baseline(&mut self) -> Checked {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.ctrlz(&["log", "--json", "-n", "1"]).stdout.contains("\"operation\"") {
            let is_late = Instant::now() > end;
            check("no first snapshot after a prompt", !is_late, || "after 60 s".to_owned())?;
            std::thread::sleep(Duration::from_millis(5));
        }
        self.cut();
        Ok(())
    }

    pub(super) fn stop(&mut self, session: usize) -> Checked {
        let message = format!("{}{}", SESSIONS[session], self.turns[session]);
        self.say(format!("Stop {message}"));
        self.close(session);
        let event = self.event(SESSIONS[session], &message, "Stop");
        self.hook(&event)
    }

    /// Marks the open steps of a session as closed by the next snapshot.
    fn close(&mut self, session: usize) {
        let session = SESSIONS[session];
        let is_open = |step: &Step| step.is_open && step.session == session;
        let steps = &self.oracle.steps;
        let open: Vec<usize> = (0..steps.len()).filter(|at| is_open(&steps[*at])).collect();
        for step in &open {
            self.end_tool(*step);
            let step = &mut self.oracle.steps[*step];
            (step.closes, step.is_interrupted) = (true, true);
        }
        if !open.is_empty() {
            self.cut();
        }
    }

    /// Begins the call that starts a sub-agent.
    pub(super) fn delegate(&mut self, session: usize) -> Checked {
        self.delegated(session)?;
        let call =
            Call { via: Via::Hook, session, agent: None, tool: Tool::Shell, is_new_turn: false };
        let step = self.new_step(call, &mut Random::from(0));
        self.agent_turns[session] = [self.turns[session]; 2];
        let info = &mut self.oracle.steps[step];
        info.only_waits = true;
        let (message, part) = (info.message.clone(), info.part.clone());
        let mut event = self.event(SESSIONS[session], &message, "PreToolUse");
        event["tool_name"] = "Task".into();
        event["tool_use_id"] = part.into();
        event["tool_input"] = json!({ "description": "look into it", "prompt": "look into it" });
        self.say(format!("step {step}: PreToolUse Task ({message})"));
        self.cut();
        self.hook(&event)?;
        self.oracle.steps[step].is_open = true;
        self.oracle.note_sign(step);
        let started = Instant::now();
        self.delegating[session] =
            Some(OpenCall { step, how: How::Hook(event), started, has_process: false });
        Ok(())
    }

    pub(super) fn delegated(&mut self, session: usize) -> Checked {
        match self.delegating[session].take() {
            Some(open) => self.end(open, Ending::Success),
            None => Ok(()),
        }
    }

    fn event(&self, session: &str, message: &str, name: &str) -> Value {
        json!({
            "session_id": session, "prompt_id": message, "cwd": self.lab.work,
            "hook_event_name": name, "permission_mode": "default",
            "transcript_path": format!("/nowhere/{session}.jsonl"),
        })
    }

    fn run_hook(&mut self, event: &Value, kill_after: Option<Duration>) -> Ended {
        self.counts.commands += 1;
        let command = self.lab.command(&["hook", "claude-code"]);
        self.client().run(&command, &event.to_string(), kill_after)
    }

    fn hook(&mut self, event: &Value) -> Checked {
        let Ended { status, stderr, .. } = self.run_hook(event, None);
        check("a hook failed", status.success() && stderr.is_empty(), || {
            format!("{event}: {status} {stderr}")
        })
    }
}

/// Returns the event that ends the step begun by `event`.
fn ending_event(mut event: Value, ending: Ending, took: Duration) -> Value {
    let name = match ending {
        Ending::Success => "PostToolUse",
        Ending::Failure => "PostToolUseFailure",
        Ending::Refused => "PostToolBatch",
    };
    event["hook_event_name"] = name.into();
    match ending {
        Ending::Success => event["tool_response"] = json!({ "type": "update" }),
        Ending::Failure => event["error"] = "Exit code 1".into(),
        Ending::Refused => {
            let mut call = json!({});
            for key in ["tool_name", "tool_input", "tool_use_id"] {
                call[key] = event[key].clone();
            }
            if let Some(fields) = event.as_object_mut() {
                fields.retain(|key, _| !key.starts_with("tool_"));
            }
            event["tool_calls"] = json!([call]);
            return event;
        }
    }
    event["duration_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
    event
}
