//! Errors as other programs see them: a kind to act on and a message to show.

use std::sync::LazyLock;

use ctrlz::{
    ERROR_KINDS, Error, ExchangeError, LookupError, NotAHash, NotATreePath, RecordError,
    RestoreError, SessionError, StoreError,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};

/// Category of an error, by who can resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The message violates the protocol: malformed, unknown, or too large.
    Protocol,
    /// The request names something that does not exist or is invalid.
    Caller,
    /// A temporary conflict; the same request may succeed later.
    Conflict,
    /// A safeguard refused the request; an explicit option overrides it.
    Refused,
    /// Snapshots are disabled for this work tree.
    Disabled,
    /// The machine, the disk or the store failed.
    Machine,
}

/// One kind of error.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Kind {
    /// Stable, machine-readable name.
    pub kind: &'static str,
    /// Category of the error.
    pub fault: Fault,
    /// Human-readable meaning.
    pub about: &'static str,
}

const fn kind(kind: &'static str, fault: Fault, about: &'static str) -> Kind {
    Kind { kind, fault, about }
}

/// Errors of the protocols.
const OF_PROTOCOLS: &[Kind] = &[
    kind("parse_error", Fault::Protocol, "the line is not JSON"),
    kind("invalid_request", Fault::Protocol, "the JSON is not a request"),
    kind("method_not_found", Fault::Protocol, "no such method"),
    kind("invalid_params", Fault::Protocol, "the parameters do not match the method"),
    kind("too_large", Fault::Protocol, "the line or the batch is too large and was skipped"),
    kind("unauthorized", Fault::Caller, "over HTTP: the token is missing or wrong"),
    kind("forbidden", Fault::Refused, "over HTTP: the host, origin or page is not allowed"),
    kind("no_such_route", Fault::Protocol, "over HTTP: nothing is at this address"),
    kind("wrong_verb", Fault::Protocol, "over HTTP: the address does not accept this verb"),
    kind("not_json", Fault::Protocol, "over HTTP: the content type of the body is not JSON"),
    kind("no_such_project", Fault::Caller, "over HTTP: no such work tree is served"),
    kind(
        "plan_required",
        Fault::Refused,
        "over HTTP: changing files needs a plan that was made before",
    ),
    kind("key_reused", Fault::Caller, "over HTTP: the idempotency key was used for another call"),
    kind(
        "timed_out",
        Fault::Conflict,
        "the call took too long and was stopped; no file was changed",
    ),
    kind("overloaded", Fault::Conflict, "too many calls are waiting; try again later"),
    kind("internal_error", Fault::Machine, "a defect of ctrlz; other calls are not affected"),
];

/// Errors of the programs around the engine.
const OF_PROGRAMS: &[Kind] = &[
    kind("not_confirmed", Fault::Refused, "`confirm` is not true, and this cannot be undone"),
    kind("no_git", Fault::Machine, "git, which push and pull need, cannot be run"),
    kind("git", Fault::Machine, "a git command failed"),
    kind("no_data_dir", Fault::Caller, "no directory for snapshots is known"),
    kind("current_directory", Fault::Machine, "the current directory cannot be determined"),
    kind("configuration", Fault::Caller, "the user's configuration is invalid"),
    kind("patches", Fault::Caller, "the patches to revert cannot be read"),
    kind("not_started", Fault::Caller, "the command could not be started"),
    kind("not_watched", Fault::Refused, "the work tree cannot be watched"),
    kind("not_a_terminal", Fault::Caller, "interactive mode needs a terminal"),
    kind("not_loopback", Fault::Refused, "the address can be reached from other machines"),
    kind("already_served", Fault::Conflict, "a server is already running"),
    kind("not_served", Fault::Machine, "the server cannot start"),
    kind("signals", Fault::Machine, "signals cannot be caught"),
    kind("output", Fault::Machine, "the output cannot be written"),
    kind("json", Fault::Machine, "a value has no JSON form"),
    kind("agent", Fault::Caller, "the agent was not found, or its settings cannot be changed"),
];

/// Every error kind: those of the protocols, of the engine, and of the programs around it.
pub static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let of_engine =
        ERROR_KINDS.iter().map(|known| kind(known.code, known.fault.into(), known.about));
    OF_PROTOCOLS.iter().copied().chain(of_engine).chain(OF_PROGRAMS.iter().copied()).collect()
});

/// An error, in the same form on every interface.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct WireError {
    /// Short, stable name. New kinds may be added; handle an unknown one by its `fault`.
    pub kind: &'static str,
    /// Category of the error.
    pub fault: Fault,
    /// Human-readable message on one line, including all causes.
    pub message: String,
    /// Suggested next action, if there is one. The engine gives none: programs know their options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The path that the error is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<WirePath>,
    /// Further facts, depending on the kind.
    #[serde(skip_serializing_if = "ErrorDetails::is_empty")]
    pub details: Box<ErrorDetails>,
}

/// Facts about an error. Each field is present only where it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ErrorDetails {
    /// The snapshot, plan or object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash>,
    /// The hash to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Hash>,
    /// The operation, step, message, part, session or checkpoint that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Process that holds the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The quantity that exceeds its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The measured amount, which may be a lower bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// The limit that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Number of files that would be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Number of files in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The projects to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<String>,
    /// Kind of the error that caused this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
}

impl ErrorDetails {
    fn is_empty(&self) -> bool {
        *self == ErrorDetails::default()
    }
}

impl WireError {
    /// Creates an error of a known kind.
    pub fn new(kind: &'static str, message: impl Into<String>) -> WireError {
        let known = KINDS.iter().find(|known| known.kind == kind);
        // A kind that is missing in the table is a defect. A test checks the engine's kinds.
        let fault = known.map_or(Fault::Machine, |known| known.fault);
        let message = message.into();
        WireError { kind, fault, message, hint: None, path: None, details: Box::default() }
    }

    /// Creates an `invalid_params` error.
    pub fn invalid_params(why: impl Into<String>) -> WireError {
        WireError::new("invalid_params", why)
    }

    /// Returns the JSON-RPC error code.
    pub fn code(&self) -> i32 {
        code(self.kind, self.fault)
    }
}

/// Returns the JSON-RPC error code of a kind.
pub(crate) fn code(kind: &str, fault: Fault) -> i32 {
    match (kind, fault) {
        ("parse_error" | "too_large", _) => -32700,
        ("invalid_request", _) => -32600,
        ("method_not_found", _) => -32601,
        ("invalid_params", _) => -32602,
        ("internal_error", _) => -32603,
        ("cancelled", _) => -32800,
        (_, Fault::Protocol) => -32600,
        (_, Fault::Caller) => -32010,
        (_, Fault::Conflict) => -32011,
        (_, Fault::Refused) => -32012,
        (_, Fault::Disabled) => -32013,
        (_, Fault::Machine) => -32014,
    }
}

/// Returns an error and all of its causes on one line.
fn message(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> WireError {
        let (path, details) = facts(error);
        WireError {
            kind: error.code(),
            fault: error.fault().into(),
            message: message(error),
            hint: None,
            path,
            details: Box::new(details),
        }
    }
}

/// The path that an error is about, and further facts.
type Facts = (Option<WirePath>, ErrorDetails);

fn facts(error: &Error) -> Facts {
    match error {
        Error::File(file) => of_path(&file.path),
        Error::NotATreePath(refused) => {
            (Some(WirePath::from_bytes(&*refused.path)), ErrorDetails::default())
        }
        Error::Lookup(error) => lookup_facts(error),
        Error::Store(error) => store_facts(error),
        Error::Record(error) => record_facts(error),
        Error::Restore(error) => restore_facts(error),
        Error::Session(error) => session_facts(error),
        Error::Exchange(error) => exchange_facts(error),
        Error::Busy { path, holder, .. } => {
            let (path, none) = of_path(path);
            (path, ErrorDetails { holder: Some(holder.clone()), ..none })
        }
        // All other errors, including those of newer engines, have only a kind and a message.
        _ => Facts::default(),
    }
}

fn of_path(path: &std::path::Path) -> Facts {
    (Some(path.into()), ErrorDetails::default())
}

fn of_id(id: &str) -> Facts {
    (None, ErrorDetails { id: Some(id.to_owned()), ..ErrorDetails::default() })
}

fn of_hash(id: &ctrlz::ObjectId) -> Facts {
    (None, ErrorDetails { hash: Some((*id).into()), ..ErrorDetails::default() })
}

fn lookup_facts(error: &LookupError) -> Facts {
    match error {
        LookupError::Purged { id, replacement } => {
            let (path, details) = of_hash(id);
            (path, ErrorDetails { replacement: Some((*replacement).into()), ..details })
        }
        LookupError::NothingToPurge { path }
        | LookupError::NothingLost { path }
        | LookupError::Binary { path } => (Some(path.into()), ErrorDetails::default()),
        LookupError::UnknownPlan { id }
        | LookupError::UnknownSnapshot { id }
        | LookupError::BeingImported { id }
        | LookupError::NotASnapshot { id, .. } => of_hash(id),
        LookupError::NoSuchFile { id, path } => (Some(path.into()), of_hash(id).1),
        LookupError::UnknownOperation { id } | LookupError::NoSuchCheckpoint { name: id } => {
            of_id(id)
        }
        _ => Facts::default(),
    }
}

fn store_facts(error: &StoreError) -> Facts {
    match error {
        StoreError::HostileTree { id, .. } | StoreError::Damaged { id, .. } => of_hash(id),
        StoreError::Bomb { id, limit, what } => {
            let (path, details) = of_hash(id);
            let what = Some((*what).to_owned());
            (path, ErrorDetails { limit: Some(*limit), what, ..details })
        }
        StoreError::LostRef { path }
        | StoreError::NewerFormat { path, .. }
        | StoreError::UntrustedStore { path, .. }
        | StoreError::StoreInUse { path, .. } => of_path(path),
        _ => Facts::default(),
    }
}

fn record_facts(error: &RecordError) -> Facts {
    let none = ErrorDetails::default();
    match error {
        RecordError::DangerousRoot { path, .. }
        | RecordError::NotGit { path }
        | RecordError::Disabled { path } => of_path(path),
        RecordError::NoSpace { path, needed_bytes, free_bytes } => {
            let (found, limit) = (Some(*free_bytes), Some(*needed_bytes));
            (Some(path.as_path().into()), ErrorDetails { found, limit, ..none })
        }
        RecordError::OverQuota { path, used } => {
            let (found, limit) = if used.store_bytes >= used.max_store_bytes {
                (used.store_bytes, used.max_store_bytes)
            } else {
                (used.total_bytes, used.max_total_bytes)
            };
            let details = ErrorDetails { found: Some(found), limit: Some(limit), ..none };
            (Some(path.as_path().into()), details)
        }
        RecordError::OverBudget { what, found, limit, largest } => {
            let path = largest.first().map(|(path, _)| WirePath::from_bytes(&**path));
            let (what, found) = (Some((*what).to_owned()), Some(*found));
            (path, ErrorDetails { what, found, limit: Some(*limit), ..none })
        }
        _ => Facts::default(),
    }
}

fn restore_facts(error: &RestoreError) -> Facts {
    match error {
        RestoreError::Moved { path } => (Some(path.into()), ErrorDetails::default()),
        RestoreError::NotEmpty { path }
        | RestoreError::InsideRepository { path }
        | RestoreError::InsideWorkTree { path } => of_path(path),
        RestoreError::MassChange { removed, files } => {
            let (removed, files) = (Some(*removed), Some(*files));
            (None, ErrorDetails { removed, files, ..ErrorDetails::default() })
        }
        RestoreError::RolledBack { cause } | RestoreError::Interrupted { cause } => {
            let (path, details) = facts(cause);
            (path, ErrorDetails { cause: Some(cause.code()), ..details })
        }
        _ => Facts::default(),
    }
}

fn session_facts(error: &SessionError) -> Facts {
    match error {
        SessionError::SessionBusy { session, holder, .. } => {
            let (path, details) = of_id(session);
            (path, ErrorDetails { holder: Some(holder.clone()), ..details })
        }
        SessionError::NoSuchStep { step: id }
        | SessionError::NoSuchMessage { message: id }
        | SessionError::NoSuchPart { part: id, .. }
        | SessionError::NoSuchSession { session: id }
        | SessionError::SessionExists { session: id }
        | SessionError::NothingReverted { session: id }
        | SessionError::SharedExpired { session: id } => of_id(id),
        _ => Facts::default(),
    }
}

fn exchange_facts(error: &ExchangeError) -> Facts {
    match error {
        ExchangeError::NoHistory { path }
        | ExchangeError::StillThere { path }
        | ExchangeError::BadImport { path, .. }
        | ExchangeError::BringsPurged { path, .. } => of_path(path),
        ExchangeError::NoSuchLog { log: id } | ExchangeError::Diverged { log: id } => of_id(id),
        _ => Facts::default(),
    }
}

impl From<Error> for WireError {
    fn from(error: Error) -> WireError {
        WireError::from(&error)
    }
}

impl From<NotAHash> for WireError {
    fn from(error: NotAHash) -> WireError {
        Error::from(error).into()
    }
}

impl From<NotATreePath> for WireError {
    fn from(error: NotATreePath) -> WireError {
        Error::from(error).into()
    }
}

impl From<ctrlz::Fault> for Fault {
    fn from(fault: ctrlz::Fault) -> Fault {
        match fault {
            ctrlz::Fault::Caller => Fault::Caller,
            ctrlz::Fault::Conflict => Fault::Conflict,
            ctrlz::Fault::Refused => Fault::Refused,
            ctrlz::Fault::Disabled => Fault::Disabled,
            ctrlz::Fault::Machine => Fault::Machine,
        }
    }
}
