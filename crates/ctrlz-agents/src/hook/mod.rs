//! Hooks: what a coding agent's client tells of its work, and what that means for a session.
//!
//! A client starts `ctrlz hook CLIENT` for each of its events, with the event as JSON on standard
//! input. One file per client turns that into an [`Event`]; [`act`] turns the event into session
//! calls. A tool call is a step. Prompts and ends of turns only close what was left open, so they
//! cost nothing while all goes well.
//!
//! Nothing here may ever hold an agent up or break it: no event is needed for a later one to work,
//! each may come twice, in parallel or not at all, and whatever fails leaves a [`Failure`] behind
//! instead of an exit code.

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

use std::fmt;
use std::str::FromStr;

pub use act::{Outcome, Scene, act};
pub use event::{Event, ToolCall, What};
pub use failures::{Failure, Failures};
pub use memory::{Caller, ClientProcess, Memory};
pub use notice::Notice;

/// Coding agents that can be told to use ctrlz.
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
    /// Kilo, which is made from OpenCode and has the same plugin.
    Kilo,
    /// Marvin, whose hook speaks rpc.
    Marvin,
}

impl Client {
    /// All of them, in the order they are shown.
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

    /// What it is called on the command line and in the log.
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

/// A name that is no client's.
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
        // People leave out what goes without saying.
        let short = || match text {
            "claude" => Some(Client::ClaudeCode),
            "gemini" => Some(Client::Gemini),
            "qwen" => Some(Client::Qwen),
            _ => None,
        };
        named.or_else(short).ok_or_else(|| UnknownClient(text.to_owned()))
    }
}

/// Why the input is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnEvent(String);

impl fmt::Display for NotAnEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the input is no event: {}", self.0)
    }
}

impl std::error::Error for NotAnEvent {}

/// Reads an event as the client wrote it.
///
/// Fields that nobody here knows are passed over, and so are events that do not matter.
pub fn read(client: Client, input: &[u8]) -> Result<Event, NotAnEvent> {
    let parsed = match client {
        // One plugin directory serves both, so the command is the same, and the event decides.
        Client::ClaudeCode | Client::Codex if codex::is_from(client, input) => codex::read(input),
        Client::ClaudeCode | Client::Codex => claude_code::read(input),
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
    /// Refuses what cannot be acted on.
    fn check(self) -> Result<Event, NotAnEvent> {
        if self.session.is_empty() && self.what != What::Other {
            return Err(NotAnEvent(format!("{} names no session", self.name)));
        }
        Ok(self)
    }
}

/// An id as far as it is sensible: nobody needs more, and it becomes part of names.
fn id(text: &str) -> String {
    const MAX_CHARS: usize = 128;
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event of each client, as it was recorded.
    const RECORDED: [&str; 6] = [
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/claude-code.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/cline.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/codex.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/copilot.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/gemini-cli.jsonl"),
        include_str!("../../../ctrlz-cli/tests/fixtures/hooks/qwen-code.jsonl"),
    ];

    #[test]
    fn events_survive_anything() {
        let lines = RECORDED.iter().flat_map(|text| text.lines().take(8));
        let seeds: Vec<Vec<u8>> = lines.map(|line| line.as_bytes().to_vec()).collect();
        xtask::feed("hook", &seeds, xtask::sized(1_000, 60_000), |input| {
            for client in Client::ALL {
                drop(read(client, input));
            }
        });
    }
}
