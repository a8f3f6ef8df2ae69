//! Errors as other programs see them: a kind to act on and a message to show.

use ctrlz::{Error, NotAHash, NotATreePath};
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

/// Every error kind: those of the protocol, of the engine, and of the programs around it.
pub const KINDS: &[Kind] = &[
    kind("parse_error", Fault::Protocol, "the line is not JSON"),
    kind("invalid_request", Fault::Protocol, "the JSON is no request"),
    kind("method_not_found", Fault::Protocol, "there is no such method"),
    kind("invalid_params", Fault::Protocol, "the parameters do not fit the method"),
    kind("too_large", Fault::Protocol, "the line or the batch is too large; it was passed over"),
    kind("unauthorized", Fault::Caller, "over HTTP: no token, or a wrong one"),
    kind("forbidden", Fault::Refused, "over HTTP: not from this host, origin or page"),
    kind("no_such_route", Fault::Protocol, "over HTTP: there is nothing at this address"),
    kind("wrong_verb", Fault::Protocol, "over HTTP: the address does not take this verb"),
    kind("not_json", Fault::Protocol, "over HTTP: the body is not said to be JSON"),
    kind("no_such_project", Fault::Caller, "over HTTP: no such work tree is served"),
    kind("plan_required", Fault::Refused, "over HTTP: files change only by a plan made before"),
    kind("key_reused", Fault::Caller, "over HTTP: the idempotency key was used for another call"),
    kind("timed_out", Fault::Conflict, "it took too long and was stopped; no file was changed"),
    kind("overloaded", Fault::Conflict, "too much is waiting already; ask again later"),
    kind("internal_error", Fault::Machine, "a defect of ctrlz; other calls go on"),
    kind("cancelled", Fault::Conflict, "the caller asked to stop; no file was changed"),
    kind("file", Fault::Machine, "an operation on a file failed"),
    kind("not_a_hash", Fault::Caller, "a text that should be a hash is not"),
    kind("not_a_tree_path", Fault::Caller, "a path that cannot be inside the work tree"),
    kind("unknown_snapshot", Fault::Caller, "the store has no such snapshot"),
    kind("being_imported", Fault::Caller, "the snapshot may be in a store that is being imported"),
    kind("purged", Fault::Caller, "something was purged from the snapshot: it has another hash"),
    kind("nothing_to_purge", Fault::Caller, "no snapshot has the path, or no label the text"),
    kind("not_confirmed", Fault::Refused, "`confirm` is not true, and this cannot be undone"),
    kind("unknown_operation", Fault::Caller, "the log has no such operation"),
    kind("no_such_step", Fault::Caller, "no such step is open or recorded"),
    kind("no_such_message", Fault::Caller, "no recorded step belongs to the message"),
    kind("no_such_part", Fault::Caller, "no recorded step belongs to the part"),
    kind("no_such_session", Fault::Caller, "no recorded step belongs to the session"),
    kind("session_exists", Fault::Refused, "a new session was given an id that is taken"),
    kind("session_busy", Fault::Conflict, "the session has a step open; `interrupt` closes it"),
    kind("nothing_reverted", Fault::Caller, "the session is not reverted, or for good"),
    kind("no_such_checkpoint", Fault::Caller, "there is no such checkpoint"),
    kind("unknown_plan", Fault::Caller, "no such plan was made, or it is forgotten"),
    kind("nothing_lost", Fault::Caller, "no snapshot has lost the path"),
    kind("binary", Fault::Caller, "the file is binary, so it has no lines"),
    kind("not_empty", Fault::Refused, "a directory that should be new has something in it"),
    kind("too_long", Fault::Caller, "an id or a name has too many bytes"),
    kind("inside_repository", Fault::Refused, "the place lies inside a repository's own directory"),
    kind("inside_work_tree", Fault::Refused, "the directory lies inside the work tree"),
    kind("no_such_log", Fault::Caller, "nothing of that name came from elsewhere"),
    kind("no_history", Fault::Caller, "nothing was ever recorded at the path"),
    kind("still_there", Fault::Refused, "the directory that a history belongs to is still there"),
    kind("bad_import", Fault::Machine, "what was to be imported is not usable; nothing changed"),
    kind("brings_purged", Fault::Refused, "what arrives has purged content; nothing changed"),
    kind("diverged", Fault::Conflict, "a log went on here and elsewhere; neither was changed"),
    kind("nothing_pulled", Fault::Caller, "nothing came from elsewhere that could be restored"),
    kind("no_git", Fault::Machine, "git, which carries pushes and pulls, cannot be run"),
    kind("store_in_use", Fault::Refused, "another work tree or session needs the store"),
    kind("git", Fault::Machine, "git could not do what it was asked for"),
    kind("nothing_to_undo", Fault::Caller, "everything is taken back already"),
    kind("not_recorded", Fault::Caller, "the last turn was not recorded, so it is no step"),
    kind("shared_expired", Fault::Caller, "what a fork shares with another session has expired"),
    kind("no_captured_repository", Fault::Caller, "no repository was captured"),
    kind("nothing_to_redo", Fault::Caller, "no undo is left to be taken back"),
    kind("not_a_snapshot", Fault::Caller, "the hash names something else"),
    kind("no_such_file", Fault::Caller, "the snapshot has no such file"),
    kind("hostile_tree", Fault::Refused, "a tree in the store must not be used"),
    kind("bomb", Fault::Refused, "a snapshot expands to more than any work tree holds"),
    kind("damaged", Fault::Machine, "an object is missing or has the wrong bytes"),
    kind("lost_ref", Fault::Machine, "a log's ref is gone, so nothing can be called garbage"),
    kind("busy", Fault::Conflict, "another process works on the same work tree"),
    kind("dangerous_root", Fault::Refused, "a directory that is far more than a project"),
    kind("not_git", Fault::Refused, "require_git is on and there is no repository"),
    kind("disabled", Fault::Disabled, "snapshots are switched off by configuration"),
    kind("newer_format", Fault::Machine, "the store was written by a newer version"),
    kind("untrusted_store", Fault::Machine, "the store belongs to someone else"),
    kind("over_budget", Fault::Refused, "the snapshot would be too large"),
    kind("over_quota", Fault::Refused, "stores take all the room they may"),
    kind("no_space", Fault::Machine, "a disk has too little room"),
    kind("mass_change", Fault::Refused, "an unusual share of the files would be removed"),
    kind("moved", Fault::Conflict, "a file changed meanwhile; nothing was restored"),
    kind("rolled_back", Fault::Machine, "writing failed; everything was put back"),
    kind("interrupted", Fault::Machine, "a restore stopped half-way; the next command ends it"),
    kind("stale_plan", Fault::Conflict, "the files moved since the plan was made"),
    kind("recovery_pending", Fault::Conflict, "a restore was cut off and has to be finished first"),
    kind("no_data_dir", Fault::Caller, "there is no place for snapshots"),
    kind("current_directory", Fault::Machine, "the current directory cannot be told"),
    kind("configuration", Fault::Caller, "the user's configuration cannot be used"),
    kind("patches", Fault::Caller, "the patches to revert cannot be read"),
    kind("not_started", Fault::Caller, "the command to run could not be started"),
    kind("not_watched", Fault::Refused, "the work tree cannot be watched"),
    kind("not_a_terminal", Fault::Caller, "there is no terminal to browse in"),
    kind("not_loopback", Fault::Refused, "the address can be reached from other machines"),
    kind("already_served", Fault::Conflict, "a server runs already"),
    kind("not_served", Fault::Machine, "the server cannot start"),
    kind("signals", Fault::Machine, "signals cannot be caught"),
    kind("output", Fault::Machine, "the output cannot be written"),
    kind("json", Fault::Machine, "a value has no JSON form"),
];

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
    /// Suggested next action, if there is one.
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
            hint: error.hint(),
            path,
            details: Box::new(details),
        }
    }
}

fn facts(error: &Error) -> (Option<WirePath>, ErrorDetails) {
    let none = ErrorDetails::default();
    match error {
        Error::File(file) => (Some(file.path.as_path().into()), none),
        Error::NotATreePath(refused) => (Some(WirePath::from_bytes(&*refused.path)), none),
        Error::SessionBusy { session, holder, .. } => {
            let (id, holder) = (Some(session.clone()), Some(holder.clone()));
            (None, ErrorDetails { id, holder, ..none })
        }
        Error::Purged { id, replacement } => {
            let (hash, replacement) = (Some((*id).into()), Some((*replacement).into()));
            (None, ErrorDetails { hash, replacement, ..none })
        }
        Error::NothingToPurge { path }
        | Error::NothingLost { path }
        | Error::Binary { path }
        | Error::Moved { path } => (Some(path.into()), none),
        Error::NotEmpty { path }
        | Error::InsideRepository { path }
        | Error::InsideWorkTree { path }
        | Error::NoHistory { path }
        | Error::StillThere { path }
        | Error::BadImport { path, .. }
        | Error::BringsPurged { path, .. }
        | Error::LostRef { path } => (Some(path.as_path().into()), none),
        Error::UnknownPlan { id }
        | Error::UnknownSnapshot { id }
        | Error::BeingImported { id }
        | Error::NotASnapshot { id, .. } => {
            (None, ErrorDetails { hash: Some((*id).into()), ..none })
        }
        Error::HostileTree { id, .. } | Error::Damaged { id, .. } => {
            (None, ErrorDetails { hash: Some((*id).into()), ..none })
        }
        Error::Bomb { id, limit, what } => {
            let (hash, what) = (Some((*id).into()), Some((*what).to_owned()));
            (None, ErrorDetails { hash, limit: Some(*limit), what, ..none })
        }
        Error::NoSuchFile { id, path } => {
            (Some(path.into()), ErrorDetails { hash: Some((*id).into()), ..none })
        }
        Error::UnknownOperation { id }
        | Error::NoSuchStep { step: id }
        | Error::NoSuchMessage { message: id }
        | Error::NoSuchPart { part: id, .. }
        | Error::NoSuchSession { session: id }
        | Error::SessionExists { session: id }
        | Error::NothingReverted { session: id }
        | Error::SharedExpired { session: id }
        | Error::NoSuchLog { log: id }
        | Error::Diverged { log: id }
        | Error::NoSuchCheckpoint { name: id } => {
            (None, ErrorDetails { id: Some(id.clone()), ..none })
        }
        Error::Busy { path, holder, .. } => {
            (Some(path.as_path().into()), ErrorDetails { holder: Some(holder.clone()), ..none })
        }
        Error::DangerousRoot { path, .. }
        | Error::NotGit { path }
        | Error::Disabled { path }
        | Error::NewerFormat { path, .. }
        | Error::UntrustedStore { path, .. }
        | Error::StoreInUse { path, .. } => (Some(path.as_path().into()), none),
        Error::NoSpace { path, needed_bytes, free_bytes } => {
            let (found, limit) = (Some(*free_bytes), Some(*needed_bytes));
            (Some(path.as_path().into()), ErrorDetails { found, limit, ..none })
        }
        Error::OverQuota { path, used } => {
            let (found, limit) = match used.store_bytes >= used.max_store_bytes {
                true => (used.store_bytes, used.max_store_bytes),
                false => (used.total_bytes, used.max_total_bytes),
            };
            let details = ErrorDetails { found: Some(found), limit: Some(limit), ..none };
            (Some(path.as_path().into()), details)
        }
        Error::OverBudget { what, found, limit, largest } => {
            let path = largest.first().map(|(path, _)| WirePath::from_bytes(&**path));
            let (what, found) = (Some((*what).to_owned()), Some(*found));
            (path, ErrorDetails { what, found, limit: Some(*limit), ..none })
        }
        Error::MassChange { removed, files } => {
            (None, ErrorDetails { removed: Some(*removed), files: Some(*files), ..none })
        }
        Error::RolledBack { cause } | Error::Interrupted { cause } => {
            let (path, details) = facts(cause);
            (path, ErrorDetails { cause: Some(cause.code()), ..details })
        }
        // All other errors, including those of newer engines, have only a kind and a message.
        _ => (None, none),
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
