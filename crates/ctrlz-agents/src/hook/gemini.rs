//! Events of Gemini CLI.

use super::Client;
use super::event::{Event, What};
use super::without_ids::Payload;

pub(super) fn read(input: &[u8]) -> Result<Event, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(input)?;
    let call = || payload.tool_call(only_reads(&payload.tool_name), &payload.tool_response);
    let what = match payload.hook_event_name.as_str() {
        "SessionStart" => What::SessionStart,
        "BeforeAgent" => What::Prompt,
        "BeforeTool" => What::ToolBefore(call()),
        "AfterTool" => What::ToolAfter(vec![call()]),
        "AfterAgent" => What::TurnEnd,
        "SessionEnd" => What::SessionEnd,
        _ => What::Other,
    };
    Ok(payload.event(Client::Gemini, what))
}

/// Returns whether a tool can change nothing.
pub(super) fn only_reads(tool: &str) -> bool {
    matches!(
        tool,
        "read_file"
            | "read_many_files"
            | "list_directory"
            | "glob"
            | "search_file_content"
            | "grep_search"
            | "google_web_search"
            | "web_fetch"
            | "ask_user"
    )
}
