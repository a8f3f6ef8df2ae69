//! What clients say, in one form for all of them.

use std::path::PathBuf;

use super::Client;

/// Something that a client tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which client.
    pub client: Client,
    /// What the client calls it, for messages.
    pub name: String,
    /// The client's session.
    pub session: String,
    /// The turn, where the client has ids for turns.
    pub turn: Option<String>,
    /// Where the agent works.
    pub dir: Option<PathBuf>,
    /// What happened, or is about to.
    pub what: What,
}

/// What happened, or is about to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A session begins or goes on.
    SessionStart,
    /// The user said something; no tool of this turn runs yet.
    Prompt,
    /// A tool is about to run.
    ToolBefore(ToolCall),
    /// Tools ran or failed.
    ToolAfter(Vec<ToolCall>),
    /// All tools of one answer of the model are done. One that has not been told of before was
    /// refused.
    BatchEnd(Vec<ToolCall>),
    /// The agent has answered.
    TurnEnd,
    /// A sub-agent has answered.
    AgentEnd {
        /// The sub-agent.
        agent: String,
    },
    /// The session ends; no more events come.
    SessionEnd,
    /// Nothing that matters here.
    Other,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The client's id; some have none, and then it is made from what the call is.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The sub-agent that calls it, if one does.
    pub agent: Option<String>,
    /// Files that it names.
    pub files: Vec<PathBuf>,
    /// Shell commands that it will run.
    pub commands: Vec<String>,
    /// Whether it can change nothing.
    pub only_reads: bool,
    /// The duration of the call in milliseconds, if the client reports it afterwards.
    pub duration_ms: Option<u64>,
}

impl ToolCall {
    /// What it is about, for people.
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
