//! Events of GitHub Copilot CLI, with the event names of Claude Code.

use serde_json::Value;

use super::Client;
use super::event::{Event, What};
use super::without_ids::Payload;

pub(super) fn read(input: &[u8]) -> Result<Event, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(input)?;
    let call = || payload.tool_call(only_reads(&payload.tool_name), &Value::Null);
    let what = match payload.hook_event_name.as_str() {
        "SessionStart" => What::SessionStart,
        "UserPromptSubmit" => What::Prompt,
        "PreToolUse" => What::ToolBefore(call()),
        "PostToolUse" | "PostToolUseFailure" => What::ToolAfter(vec![call()]),
        "Stop" => What::TurnEnd,
        "SessionEnd" => What::SessionEnd,
        _ => What::Other,
    };
    Ok(payload.event(Client::Copilot, what))
}

/// Returns whether a tool can change nothing.
fn only_reads(tool: &str) -> bool {
    matches!(
        tool.to_ascii_lowercase().as_str(),
        "read" | "view" | "grep" | "glob" | "webfetch" | "web_fetch" | "ask_user" | "report_intent"
    )
}
