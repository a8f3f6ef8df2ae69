//! What a long-lived server says about itself, and the messages that are no calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the protocol: it changes when a client written for the old one would break.
pub const PROTOCOL: u32 = 1;

/// Who asks. Everything is optional; `initialize` itself is, too.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitializeParams {
    /// The client, for people.
    pub client: Option<String>,
}

/// What the server is and can do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Initialized {
    /// Always `ctrlz`.
    pub name: &'static str,
    /// The version of ctrlz.
    pub version: &'static str,
    /// The version of the protocol.
    pub protocol: u32,
    /// Names the schema that the server follows: `hash` of the schema file.
    pub schema_hash: String,
    /// The server's process.
    pub pid: u32,
    /// What the server can do.
    pub capabilities: Capabilities,
}

/// What a server can do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Every method it has.
    pub methods: Vec<&'static str>,
    /// The notification that cancels a call.
    pub cancel: &'static str,
    /// Whether a call with `"progress": true` is told how far it has come.
    pub progress: bool,
    /// Whether several requests may come in one array.
    pub batch: bool,
    /// The longest line it takes, in bytes.
    pub max_line_bytes: u64,
    /// How many requests one array may hold.
    pub max_batch: u64,
    /// How many calls run at the same time.
    pub max_running: u64,
    /// How many calls may wait.
    pub max_waiting: u64,
}

/// What `shutdown` takes: nothing.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownParams {}

/// The answer to `shutdown`, after which the process ends.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShutDown {
    /// Always true. Everything that was asked for before is answered by now.
    pub shut_down: bool,
}

/// The notification that cancels a call; the call is then answered with `cancelled`, or with its
/// result if that was quicker.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CancelParams {
    /// The id of the request.
    pub id: serde_json::Value,
}

/// How far a call has come; sent only where it was asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProgressParams {
    /// The id of the request.
    pub id: serde_json::Value,
    /// Files looked at.
    pub files: u64,
    /// Files that have to be read; 0 until that is known.
    pub files_to_read: u64,
    /// Files read so far.
    pub files_read: u64,
}
