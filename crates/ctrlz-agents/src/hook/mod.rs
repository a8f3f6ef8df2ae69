//! Hooks: events that a coding agent's client reports, and the session calls that result.
//!
//! A client starts `ctrlz hook CLIENT` for each of its events, with the event as JSON on standard
//! input. One file per client parses it into an [`Event`], and [`act`] translates the event into
//! session calls. A tool call is a step. Prompts and ends of turns only close steps that were left
//! open, so normally they cost nothing.
//!
//! A hook must never delay or break an agent. No event depends on an earlier one; each may arrive
//! twice, concurrently or not at all. An error is recorded in [`Failures`] instead of being
//! returned as an exit code.

mod act;
mod apply_patch;
mod claude_code;
mod cline;
mod codex;
mod copilot;
mod event;
mod failures;
mod gemini;
mod memory;
mod notice;
mod qwen;
mod without_ids;

use std::fmt;
use std::str::FromStr;

pub use act::{Outcome, Scene, act};
pub use event::{Event, ToolCall, ToolEdit, What};
pub use failures::Failures;
pub use memory::{Caller, ClientProcess, Memory};
pub use notice::Notice;

/// Coding agents that ctrlz supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Cline CLI.
    Cline,
    /// Qwen Code.
    Qwen,
    /// GitHub Copilot CLI.
    Copilot,
    /// pi, whose extension speaks rpc.
    Pi,
    /// OpenCode, whose plugin speaks rpc.
    OpenCode,
    /// Kilo, a fork of OpenCode that uses the same plugin.
    Kilo,
    /// Marvin, whose hook speaks rpc.
    Marvin,
}

impl Client {
    /// All clients, in display order.
    pub const ALL: [Client; 10] = [
        Client::ClaudeCode,
        Client::Codex,
        Client::Gemini,
        Client::Cline,
        Client::Qwen,
        Client::Copilot,
        Client::Pi,
        Client::OpenCode,
        Client::Kilo,
        Client::Marvin,
    ];

    /// Returns the client's name on the command line and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Client::ClaudeCode => "claude-code",
            Client::Codex => "codex",
            Client::Gemini => "gemini-cli",
            Client::Cline => "cline",
            Client::Qwen => "qwen-code",
            Client::Copilot => "copilot",
            Client::Pi => "pi",
            Client::OpenCode => "opencode",
            Client::Kilo => "kilo",
            Client::Marvin => "marvin",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Error for a name that matches no client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClient(pub String);

impl fmt::Display for UnknownClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Client::ALL.iter().map(|client| client.name()).collect();
        write!(out, "no client is called {:?}; there are {}", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownClient {}

impl FromStr for Client {
    type Err = UnknownClient;

    fn from_str(text: &str) -> Result<Client, UnknownClient> {
        let named = Client::ALL.into_iter().find(|client| client.name() == text);
        // Common short names.
        let short = || match text {
            "claude" => Some(Client::ClaudeCode),
            "gemini" => Some(Client::Gemini),
            "qwen" => Some(Client::Qwen),
            _ => None,
        };
        named.or_else(short).ok_or_else(|| UnknownClient(text.to_owned()))
    }
}

/// Reason why the input is not an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnEvent(String);

impl fmt::Display for NotAnEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the input is no event: {}", self.0)
    }
}

impl std::error::Error for NotAnEvent {}

/// Parses an event in the client's format.
///
/// Unknown fields are ignored, and irrelevant events become [`What::Other`].
pub fn read(client: Client, input: &[u8]) -> Result<Event, NotAnEvent> {
    let parsed = match client {
        // Both clients use the same plugin and so the same command; the event decides.
        Client::ClaudeCode | Client::Codex => serde_json::from_slice(input).map(|payload| {
            if codex::is_from(client, &payload) {
                codex::event(payload)
            } else {
                claude_code::event(payload)
            }
        }),
        Client::Gemini => gemini::read(input),
        Client::Cline => cline::read(input),
        Client::Qwen => qwen::read(input),
        Client::Copilot => copilot::read(input),
        Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
            return Err(NotAnEvent(format!("{client} speaks rpc and runs no hook")));
        }
    };
    parsed.map_err(|error| NotAnEvent(error.to_string()))?.check()
}

impl Event {
    /// Rejects events that cannot be acted on.
    fn check(self) -> Result<Event, NotAnEvent> {
        if self.session.is_empty() && self.what != What::Other {
            return Err(NotAnEvent(format!("{} names no session", self.name)));
        }
        Ok(self)
    }
}

/// Returns an id without control characters, truncated because it becomes part of names.
fn id(text: &str) -> String {
    const MAX_CHARS: usize = 128;
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded events, one file per client.
    const RECORDED: [&str; 6] = [
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/claude-code.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/cline.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/codex.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/copilot.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/gemini-cli.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/qwen-code.jsonl"),
    ];

    #[test]
    fn parsing_arbitrary_events_never_panics() {
        let lines = RECORDED.iter().flat_map(|text| text.lines().take(8));
        let seeds: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        xtask::feed("hook", &seeds, xtask::sized(1_000, 60_000), |input| {
            for client in Client::ALL {
                drop(read(client, input));
            }
        });
    }
}
