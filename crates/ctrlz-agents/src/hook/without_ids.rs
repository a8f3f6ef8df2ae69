//! Events of clients that have no ids for turns and tool calls: Gemini CLI and GitHub Copilot CLI.
//!
//! A call is identified by its tool and input, and a turn by its start time.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::claude_code::{command, edits, files};
use super::event::{Event, ToolCall, What};
use super::{Client, id};
use crate::private::fingerprint;

/// An event in the format of these clients.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Payload {
    pub(super) hook_event_name: String,
    session_id: String,
    cwd: Option<PathBuf>,
    timestamp: Option<String>,
    pub(super) tool_name: String,
    tool_input: Value,
    pub(super) tool_response: Value,
}

impl Payload {
    pub(super) fn event(self, client: Client, what: What) -> Event {
        Event {
            client,
            name: id(&self.hook_event_name),
            session: id(&self.session_id),
            turn: self.timestamp.as_deref().map(id).filter(|_| what == What::Prompt),
            dir: self.cwd,
            what,
        }
    }

    /// Returns the tool call, given the response that shows what it edited.
    pub(super) fn tool_call(&self, only_reads: bool, response: &Value) -> ToolCall {
        let input = self.tool_input.to_string();
        let number = fingerprint(&[self.tool_name.as_bytes(), input.as_bytes()]);
        ToolCall {
            id: format!("call-{number:016x}"),
            tool: id(&self.tool_name),
            agent: None,
            duration_ms: None,
            files: files(&self.tool_input),
            edits: edits(&self.tool_input, response),
            commands: command(&self.tool_input).into_iter().collect(),
            failed: false,
            only_reads,
        }
    }
}
