//! Events of GitHub Copilot CLI, with the event names of Claude Code.
//!
//! It has no ids for turns or tool calls: a call is identified by its tool and input, and a turn by
//! its start time.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::claude_code::{command, edits, files};
use super::event::{Event, ToolCall, What};
use super::{Client, id};
use crate::private::fingerprint;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Payload {
    hook_event_name: String,
    session_id: String,
    cwd: Option<PathBuf>,
    timestamp: Option<String>,
    tool_name: String,
    tool_input: Value,
}

pub(super) fn read(input: &[u8]) -> Result<Event, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(input)?;
    let what = match payload.hook_event_name.as_str() {
        "SessionStart" => What::SessionStart,
        "UserPromptSubmit" => What::Prompt,
        "PreToolUse" => What::ToolBefore(tool_call(&payload)),
        "PostToolUse" | "PostToolUseFailure" => What::ToolAfter(vec![tool_call(&payload)]),
        "Stop" => What::TurnEnd,
        "SessionEnd" => What::SessionEnd,
        _ => What::Other,
    };
    Ok(Event {
        client: Client::Copilot,
        name: id(&payload.hook_event_name),
        session: id(&payload.session_id),
        turn: payload.timestamp.as_deref().map(id).filter(|_| what == What::Prompt),
        dir: payload.cwd,
        what,
    })
}

fn tool_call(payload: &Payload) -> ToolCall {
    let input = payload.tool_input.to_string();
    let number = fingerprint(&[payload.tool_name.as_bytes(), input.as_bytes()]);
    ToolCall {
        id: format!("call-{number:016x}"),
        tool: id(&payload.tool_name),
        agent: None,
        duration_ms: None,
        files: files(&payload.tool_input),
        edits: edits(&payload.tool_input, &Value::Null),
        commands: command(&payload.tool_input).into_iter().collect(),
        only_reads: matches!(
            payload.tool_name.to_ascii_lowercase().as_str(),
            "read"
                | "view"
                | "grep"
                | "glob"
                | "webfetch"
                | "web_fetch"
                | "ask_user"
                | "report_intent"
        ),
    }
}
