//! Events of Claude Code. A failed command has an event of its own. A refused command appears only
//! in the event of its batch: a step that is still open then never ran.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::event::{Event, ToolCall, ToolEdit, What};
use super::{Client, id};

/// An event in the format of Claude Code and Codex.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Payload {
    pub(super) hook_event_name: String,
    pub(super) session_id: String,
    pub(super) prompt_id: Option<String>,
    pub(super) turn_id: Option<String>,
    pub(super) transcript_path: Option<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) agent_id: Option<String>,
    #[serde(flatten)]
    pub(super) call: Call,
    pub(super) tool_calls: Vec<Call>,
}

/// A tool call.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Call {
    pub(super) tool_name: String,
    pub(super) tool_use_id: String,
    /// Id of the call in a batch of Qwen Code, where `tool_use_id` differs.
    pub(super) tool_call_id: String,
    pub(super) tool_input: Value,
    pub(super) tool_response: Value,
    pub(super) duration_ms: Option<f64>,
}

/// Returns a reported duration in whole milliseconds. Implausible values are dropped.
pub(super) fn millis(duration: Option<f64>) -> Option<u64> {
    duration.filter(|millis| (0.0..1e12).contains(millis)).map(|millis| millis as u64)
}

pub(super) fn event(payload: Payload) -> Event {
    let agent = payload.agent_id.as_deref().map(id);
    let what = match payload.hook_event_name.as_str() {
        "SessionStart" => What::SessionStart,
        "UserPromptSubmit" => What::Prompt,
        "PreToolUse" => What::ToolBefore(tool_call(&payload.call, agent)),
        name @ ("PostToolUse" | "PostToolUseFailure") => {
            let failed = name == "PostToolUseFailure";
            What::ToolAfter(vec![ToolCall { failed, ..tool_call(&payload.call, agent) }])
        }
        "PostToolBatch" => {
            let calls = payload.tool_calls.iter();
            What::BatchEnd(calls.map(|call| tool_call(call, agent.clone())).collect())
        }
        "SubagentStop" => agent.map_or(What::Other, |agent| What::AgentEnd { agent }),
        "Stop" | "StopFailure" => What::TurnEnd,
        "SessionEnd" => What::SessionEnd,
        _ => What::Other,
    };
    Event {
        client: Client::ClaudeCode,
        name: id(&payload.hook_event_name),
        session: id(&payload.session_id),
        turn: payload.prompt_id.as_deref().map(id),
        dir: payload.cwd,
        what,
    }
}

fn tool_call(call: &Call, agent: Option<String>) -> ToolCall {
    ToolCall {
        id: id(if call.tool_call_id.is_empty() { &call.tool_use_id } else { &call.tool_call_id }),
        tool: id(&call.tool_name),
        agent,
        duration_ms: millis(call.duration_ms),
        files: files(&call.tool_input),
        edits: edits(&call.tool_input, &call.tool_response),
        failed: false,
        commands: command(&call.tool_input).into_iter().collect(),
        only_reads: matches!(
            call.tool_name.as_str(),
            "Read"
                | "Grep"
                | "Glob"
                | "LS"
                | "NotebookRead"
                | "WebFetch"
                | "WebSearch"
                | "TodoWrite"
                | "TodoRead"
                | "ToolSearch"
                | "AskUserQuestion"
                | "ExitPlanMode"
                | "EnterPlanMode"
                | "BashOutput"
                | "TaskOutput"
        ),
    }
}

/// Returns the files that an edit names, under any of the usual field names.
pub(super) fn files(input: &Value) -> Vec<PathBuf> {
    const FIELDS: [&str; 4] = ["file_path", "notebook_path", "absolute_path", "path"];
    let named = FIELDS.iter().filter_map(|field| input.get(field)?.as_str());
    named.filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// Returns the edit of a call, given its input and its response, under the usual field names.
pub(super) fn edits(input: &Value, response: &Value) -> Vec<ToolEdit> {
    let text = |of: &Value, names: [&str; 2]| {
        names.iter().find_map(|name| of.get(name)?.as_str()).map(str::to_owned)
    };
    let pair =
        |of: &Value| text(of, ["old_string", "old_str"]).zip(text(of, ["new_string", "new_str"]));
    let several = input.get("edits").and_then(Value::as_array).into_iter().flatten();
    let replaced: Vec<_> = several.chain([input]).filter_map(pair).collect();
    let shown = response.get("returnDisplay").unwrap_or(response);
    let found = text(shown, ["originalFile", "originalContent"]);
    let edit = |file| ToolEdit { file, found: found.clone(), replaced: replaced.clone() };
    files(input).into_iter().take(1).map(edit).collect()
}

pub(super) fn command(input: &Value) -> Option<String> {
    Some(input.get("command")?.as_str()?.to_owned())
}
