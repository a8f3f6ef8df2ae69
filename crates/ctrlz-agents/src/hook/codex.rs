//! Events of Codex CLI: the format of Claude Code, with `turn_id` instead of `prompt_id`, and with
//! edits as the text of a patch.

use super::claude_code::{Call, Payload, command};
use super::event::{Event, ToolCall, What};
use super::{Client, apply_patch, id};

/// Returns whether the event is from Codex, which may use the plugin of Claude Code.
pub(super) fn is_from(asked: Client, payload: &Payload) -> bool {
    // Codex names its transcripts rollout-…; Claude Code names them after the session.
    let transcript = payload.transcript_path.as_deref().unwrap_or_default();
    let name = transcript.rsplit(['/', '\\']).next().unwrap_or_default();
    match asked {
        Client::Codex => payload.prompt_id.is_none(),
        _ => payload.turn_id.is_some() || name.starts_with("rollout-"),
    }
}

pub(super) fn event(payload: Payload) -> Event {
    let agent = payload.agent_id.as_deref().map(id);
    let what = match payload.hook_event_name.as_str() {
        "SessionStart" => What::SessionStart,
        "UserPromptSubmit" => What::Prompt,
        "PreToolUse" => What::ToolBefore(tool_call(&payload.call, agent)),
        "PostToolUse" => What::ToolAfter(vec![tool_call(&payload.call, agent)]),
        "SubagentStop" => agent.map_or(What::Other, |agent| What::AgentEnd { agent }),
        "Stop" => What::TurnEnd,
        "SessionEnd" => What::SessionEnd,
        _ => What::Other,
    };
    Event {
        client: Client::Codex,
        name: id(&payload.hook_event_name),
        session: id(&payload.session_id),
        turn: payload.turn_id.as_deref().map(id),
        dir: payload.cwd,
        what,
    }
}

fn tool_call(call: &Call, agent: Option<String>) -> ToolCall {
    let text = command(&call.tool_input);
    let is_patch = call.tool_name == "apply_patch";
    let patch = text.as_deref().filter(|_| is_patch).unwrap_or_default();
    let edits = apply_patch::edits(patch);
    let (files, commands) = match text {
        Some(text) if is_patch => (apply_patch::files(&text), Vec::new()),
        Some(text) => (Vec::new(), vec![text]),
        None => (Vec::new(), Vec::new()),
    };
    ToolCall {
        id: id(&call.tool_use_id),
        tool: id(&call.tool_name),
        agent,
        files,
        edits,
        commands,
        duration_ms: None,
        failed: false,
        only_reads: matches!(call.tool_name.as_str(), "view_image" | "update_plan" | "web_search"),
    }
}
