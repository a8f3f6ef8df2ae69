//! Support for coding agents beyond snapshots: files that a tool is about to change and that no
//! snapshot covers, and a record of failures. This crate only defines the trait; the
//! [`crate::Host`] supplies the implementation.

use std::path::PathBuf;

use ctrlz::TreePath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A tool that is about to run.
#[derive(Clone, Debug, Default)]
pub struct Tool {
    /// Name of the tool.
    pub name: Option<String>,
    /// Working directory of the tool.
    pub dir: PathBuf,
    /// Files that the tool says it will change.
    pub files: Vec<PathBuf>,
    /// Shell commands that the tool will run.
    pub commands: Vec<String>,
}

/// Paths that a tool names, and properties of the tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Paths in the work tree. They are kept even if they are ignored.
    pub inside: Vec<TreePath>,
    /// Paths outside of the work tree that the tool changes.
    pub outside: Vec<PathBuf>,
    /// Whether the tool edits the files that it names and no others.
    pub only_named: bool,
    /// Whether the tool starts a sub-agent and waits for it, if that is known.
    pub starts_agent: Option<bool>,
}

/// Data about the agents of one work tree.
pub trait Agents {
    /// Returns the paths that a tool names.
    fn reach(&self, tool: &Tool) -> Reach;

    /// Keeps a failure until it has been shown to the user.
    fn note(&self, client: &str, event: &str, why: &str) -> std::io::Result<()>;

    /// Returns the failures of the last days, oldest first.
    fn failures(&self) -> Vec<AgentFailure>;
}

/// An event of an agent that could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFailure {
    /// Time of the failure, in milliseconds since the Unix epoch.
    pub at_millis: u64,
    /// Name of the agent.
    pub client: String,
    /// The event that could not be recorded.
    pub event: String,
    /// Cause of the failure.
    pub why: String,
}
