//! Events in a form that is common to all clients.

use std::path::PathBuf;

use super::Client;

/// An event that a client reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The client.
    pub client: Client,
    /// The client's name for the event, for messages.
    pub name: String,
    /// The client's session.
    pub session: String,
    /// Id of the turn, if the client has ids for turns.
    pub turn: Option<String>,
    /// Working directory of the agent.
    pub dir: Option<PathBuf>,
    /// Kind of the event.
    pub what: What,
}

/// Kind of an event, which has happened or is about to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A session begins or resumes.
    SessionStart,
    /// The user submitted a prompt; no tool of this turn has run yet.
    Prompt,
    /// A tool is about to run.
    ToolBefore(ToolCall),
    /// Tools ran or failed.
    ToolAfter(Vec<ToolCall>),
    /// All tools of one model response are done. A call that was not reported before was refused.
    BatchEnd(Vec<ToolCall>),
    /// The agent has finished its response.
    TurnEnd,
    /// A sub-agent has finished its response.
    AgentEnd {
        /// The sub-agent.
        agent: String,
    },
    /// The session ends; no more events follow.
    SessionEnd,
    /// An event that is ignored.
    Other,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Id from the client, or one derived from the call if the client has none.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// Sub-agent that makes the call, if any.
    pub agent: Option<String>,
    /// Files that the call names.
    pub files: Vec<PathBuf>,
    /// Shell commands that the call will run.
    pub commands: Vec<String>,
    /// Whether the tool can change nothing.
    pub only_reads: bool,
    /// The duration of the call in milliseconds, if the client reports it afterwards.
    pub duration_ms: Option<u64>,
    /// Whether the client reports that the call failed.
    pub failed: bool,
    /// Edits that the call made, if the client reports them afterwards.
    pub edits: Vec<ToolEdit>,
}

/// An edit of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolEdit {
    /// The file.
    pub file: PathBuf,
    /// Its text before the edit.
    pub found: Option<String>,
    /// The texts that were replaced, each with its replacement.
    pub replaced: Vec<(String, String)>,
}

impl ToolCall {
    /// Returns a short description for users: the commands, or else the files.
    pub(super) fn label(&self) -> Option<String> {
        const MAX_CHARS: usize = 200;
        let text = match (self.commands.as_slice(), self.files.as_slice()) {
            ([], []) => return None,
            ([], files) => {
                let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
                names.join(" ")
            }
            (commands, _) => commands.join("; "),
        };
        Some(text.chars().take(MAX_CHARS).collect())
    }
}
