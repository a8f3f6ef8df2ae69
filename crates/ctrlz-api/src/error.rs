//! Errors as other programs see them: a kind to act on and a message to show.

use std::sync::LazyLock;

use ctrlz::{
    ERROR_KINDS, Error, ErrorKind, ExchangeError, FileError, LookupError, RecordError,
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

/// Returns a table of kinds. Each row is a fault, a name and a meaning.
macro_rules! kinds {
    ($($fault:ident $kind:literal: $about:literal;)*) => {
        &[$(Kind { kind: $kind, fault: Fault::$fault, about: $about }),*]
    };
}

/// Errors of the protocols.
const OF_PROTOCOLS: &[Kind] = kinds! {
    Protocol "parse_error": "the line is not JSON";
    Protocol "invalid_request": "the JSON is not a request";
    Protocol "method_not_found": "no such method";
    Protocol "invalid_params": "the parameters do not match the method";
    Protocol "too_large": "the line or the batch is too large and was skipped";
    Caller "unauthorized": "over HTTP: the token is missing or wrong";
    Refused "forbidden": "over HTTP: the host, origin or page is not allowed";
    Protocol "no_such_route": "over HTTP: nothing is at this address";
    Protocol "wrong_verb": "over HTTP: the address does not accept this verb";
    Protocol "not_json": "over HTTP: the content type of the body is not JSON";
    Caller "no_such_project": "over HTTP: no such work tree is served";
    Refused "plan_required": "over HTTP: changing files needs a plan that was made before";
    Caller "key_reused": "over HTTP: the idempotency key was used for another call";
    Conflict "timed_out": "the call took too long and was stopped; no file was changed";
    Conflict "overloaded": "too many calls are waiting; try again later";
    Machine "internal_error": "a defect of ctrlz; other calls are not affected";
};

/// Errors of the programs around the engine.
const OF_PROGRAMS: &[Kind] = kinds! {
    Refused "not_confirmed": "`confirm` is not true, and this cannot be undone";
    Machine "no_git": "git, which push and pull need, cannot be run";
    Machine "git": "a git command failed";
    Caller "no_data_dir": "no directory for snapshots is known";
    Machine "current_directory": "the current directory cannot be determined";
    Caller "configuration": "the user's configuration is invalid";
    Caller "patches": "the patches to revert cannot be read";
    Caller "not_started": "the command could not be started";
    Refused "not_watched": "the work tree cannot be watched";
    Caller "not_a_terminal": "interactive mode needs a terminal";
    Refused "not_loopback": "the address can be reached from other machines";
    Conflict "already_served": "a server is already running";
    Machine "not_served": "the server cannot start";
    Machine "signals": "signals cannot be caught";
    Machine "output": "the output cannot be written";
    Machine "json": "a value has no JSON form";
    Caller "agent": "the agent was not found, or its settings cannot be changed";
};

/// Every error kind: those of the protocols, of the engine, and of the programs around it.
pub static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let of_engine = ERROR_KINDS.iter().map(|&ErrorKind { code, fault, about }| Kind {
        kind: code,
        fault: fault.into(),
        about,
    });
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
pub fn message(error: &dyn std::error::Error) -> String {
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
        let (kind, fault) = (error.code(), error.fault().into());
        let (path, details) = facts(error);
        let message = message(error);
        WireError { kind, fault, message, hint: None, path, details: Box::new(details) }
    }
}

/// Returns the path that an error is about, and further facts.
fn facts(error: &Error) -> (Option<WirePath>, ErrorDetails) {
    let mut path = None;
    let mut details = ErrorDetails::default();
    match error {
        Error::File(FileError { path: at, .. })
        | Error::Store(StoreError::LostRef { path: at })
        | Error::Store(StoreError::NewerFormat { path: at, .. })
        | Error::Store(StoreError::UntrustedStore { path: at, .. })
        | Error::Store(StoreError::StoreInUse { path: at, .. })
        | Error::Record(RecordError::DangerousRoot { path: at, .. })
        | Error::Record(RecordError::NotGit { path: at })
        | Error::Record(RecordError::Disabled { path: at })
        | Error::Restore(RestoreError::NotEmpty { path: at })
        | Error::Restore(RestoreError::InsideRepository { path: at })
        | Error::Restore(RestoreError::InsideWorkTree { path: at })
        | Error::Exchange(ExchangeError::NoHistory { path: at })
        | Error::Exchange(ExchangeError::StillThere { path: at })
        | Error::Exchange(ExchangeError::BadImport { path: at, .. })
        | Error::Exchange(ExchangeError::BringsPurged { path: at, .. }) => {
            path = Some(at.as_path().into());
        }
        Error::Lookup(LookupError::NothingToPurge { path: at })
        | Error::Lookup(LookupError::NothingLost { path: at })
        | Error::Lookup(LookupError::Binary { path: at })
        | Error::Restore(RestoreError::Moved { path: at }) => path = Some(at.into()),
        Error::NotATreePath(refused) => path = Some(WirePath::from_bytes(&*refused.path)),
        Error::Lookup(LookupError::UnknownPlan { id })
        | Error::Lookup(LookupError::UnknownSnapshot { id })
        | Error::Lookup(LookupError::BeingImported { id })
        | Error::Lookup(LookupError::NotASnapshot { id, .. })
        | Error::Store(StoreError::HostileTree { id, .. })
        | Error::Store(StoreError::Damaged { id, .. }) => details.hash = Some((*id).into()),
        Error::Lookup(LookupError::UnknownOperation { id })
        | Error::Lookup(LookupError::NoSuchCheckpoint { name: id })
        | Error::Session(SessionError::NoSuchStep { step: id })
        | Error::Session(SessionError::NoSuchMessage { message: id })
        | Error::Session(SessionError::NoSuchPart { part: id, .. })
        | Error::Session(SessionError::NoSuchSession { session: id })
        | Error::Session(SessionError::SessionExists { session: id })
        | Error::Session(SessionError::NothingReverted { session: id })
        | Error::Session(SessionError::SharedExpired { session: id })
        | Error::Exchange(ExchangeError::NoSuchLog { log: id })
        | Error::Exchange(ExchangeError::Diverged { log: id }) => details.id = Some(id.clone()),
        Error::Lookup(LookupError::NoSuchFile { id, path: file }) => {
            (path, details.hash) = (Some(file.into()), Some((*id).into()));
        }
        Error::Lookup(LookupError::Purged { id, replacement }) => {
            details.hash = Some((*id).into());
            details.replacement = Some((*replacement).into());
        }
        Error::Busy { path: at, holder, .. } => {
            (path, details.holder) = (Some(at.as_path().into()), Some(holder.clone()));
        }
        Error::Session(SessionError::SessionBusy { session, holder, .. }) => {
            (details.id, details.holder) = (Some(session.clone()), Some(holder.clone()));
        }
        Error::Store(StoreError::Bomb { id, limit, what }) => {
            (details.hash, details.limit) = (Some((*id).into()), Some(*limit));
            details.what = Some((*what).to_owned());
        }
        Error::Record(RecordError::NoSpace { path: at, needed_bytes, free_bytes }) => {
            path = Some(at.as_path().into());
            (details.found, details.limit) = (Some(*free_bytes), Some(*needed_bytes));
        }
        Error::Record(RecordError::OverQuota { path: at, used }) => {
            path = Some(at.as_path().into());
            let (found, limit) = if used.store_bytes >= used.max_store_bytes {
                (used.store_bytes, used.max_store_bytes)
            } else {
                (used.total_bytes, used.max_total_bytes)
            };
            (details.found, details.limit) = (Some(found), Some(limit));
        }
        Error::Record(RecordError::OverBudget { what, found, limit, largest }) => {
            path = largest.first().map(|(path, _)| WirePath::from_bytes(&**path));
            details.what = Some((*what).to_owned());
            (details.found, details.limit) = (Some(*found), Some(*limit));
        }
        Error::Restore(RestoreError::MassChange { removed, files }) => {
            (details.removed, details.files) = (Some(*removed), Some(*files));
        }
        Error::Restore(RestoreError::RolledBack { cause })
        | Error::Restore(RestoreError::Interrupted { cause }) => {
            (path, details) = facts(cause);
            details.cause = Some(cause.code());
        }
        // All other errors, including those of newer engines, have only a kind and a message.
        _ => (),
    }
    (path, details)
}

impl From<Error> for WireError {
    fn from(error: Error) -> WireError {
        WireError::from(&error)
    }
}

/// An error of a method, before it gets the form for other programs.
#[derive(Debug)]
pub enum MethodError {
    /// An error of the engine.
    Engine(Error),
    /// Any other error.
    Other(WireError),
}

impl<E: Into<Error>> From<E> for MethodError {
    fn from(error: E) -> MethodError {
        MethodError::Engine(error.into())
    }
}

impl From<WireError> for MethodError {
    fn from(error: WireError) -> MethodError {
        MethodError::Other(error)
    }
}

impl From<MethodError> for WireError {
    fn from(error: MethodError) -> WireError {
        match error {
            MethodError::Engine(error) => error.into(),
            MethodError::Other(error) => error,
        }
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
