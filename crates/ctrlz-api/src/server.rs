//! The self-description of a long-lived server, and the messages that are not method calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the protocol. It changes when clients of the old version would break.
pub const PROTOCOL: u32 = 1;

/// Parameters of `initialize`. All are optional, and so is the call itself.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InitializeParams {
    /// Human-readable name of the client.
    pub client: Option<String>,
}

/// Identity and capabilities of the server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Initialized {
    /// Always `ctrlz`.
    pub name: &'static str,
    /// Version of ctrlz.
    pub version: &'static str,
    /// Version of the protocol.
    pub protocol: u32,
    /// Hash of the schema that the server follows.
    pub schema_hash: String,
    /// Process id of the server.
    pub pid: u32,
    /// Capabilities of the server.
    pub capabilities: Capabilities,
}

/// Capabilities of a server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Names of all methods.
    pub methods: Vec<&'static str>,
    /// Name of the notification that cancels a call.
    pub cancel: &'static str,
    /// Whether calls with `"progress": true` send progress notifications.
    pub progress: bool,
    /// Whether a batch of several requests may be sent in one array.
    pub batch: bool,
    /// Maximum length of a line, in bytes.
    pub max_line_bytes: u64,
    /// Maximum number of requests in a batch.
    pub max_batch: u64,
    /// Maximum number of calls that run concurrently.
    pub max_running: u64,
    /// Maximum number of queued calls.
    pub max_waiting: u64,
}

/// Parameters of `shutdown`: none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShutdownParams {}

/// Response to `shutdown`, after which the process exits.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ShutDown {
    /// Always true. All earlier requests have been answered.
    pub shut_down: bool,
}

/// Notification that cancels a call. The call then fails with `cancelled`, or returns its result if
/// it finished first.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CancelParams {
    /// Id of the request.
    pub id: serde_json::Value,
}

/// Progress of a call, sent only if the call asked for it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProgressParams {
    /// Id of the request.
    pub id: serde_json::Value,
    /// Number of files scanned.
    pub files: u64,
    /// Number of files to read; 0 until it is known.
    pub files_to_read: u64,
    /// Number of files read so far.
    pub files_read: u64,
}
