//! What coding agents need beside snapshots: files that a tool is about to change and no snapshot
//! covers, and a place for what could not be done. This crate only names it; whoever opens work
//! trees brings it.

use std::path::PathBuf;

use ctrlz::TreePath;
use schemars::JsonSchema;
use serde::Serialize;

/// A tool that is about to run.
#[derive(Clone, Debug, Default)]
pub struct Tool {
    /// Its name.
    pub name: Option<String>,
    /// Where it runs.
    pub dir: PathBuf,
    /// Files that it says it will change.
    pub files: Vec<PathBuf>,
    /// Shell commands that it will run.
    pub commands: Vec<String>,
}

/// What a tool names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Paths in the work tree: they are kept even if they are ignored.
    pub inside: Vec<TreePath>,
    /// Paths elsewhere that it changes.
    pub outside: Vec<PathBuf>,
    /// It edits the files that it names and no others.
    pub only_named: bool,
    /// It starts a sub-agent and waits for it.
    pub starts_agent: bool,
}

/// What is kept for the agents of one work tree.
pub trait Agents {
    /// What a tool names.
    fn reach(&self, tool: &Tool) -> Reach;

    /// Keeps a failure until somebody has seen it.
    fn note(&self, client: &str, event: &str, why: &str) -> std::io::Result<()>;

    /// The failures of the last days, oldest first.
    fn failures(&self) -> Vec<AgentFailure>;
}

/// Something that could not be recorded for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AgentFailure {
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// Which agent.
    pub client: String,
    /// What it was about to record.
    pub event: String,
    /// Why that failed.
    pub why: String,
}
