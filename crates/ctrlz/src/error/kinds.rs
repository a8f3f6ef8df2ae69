//! The table of error codes.

/// Classification of an error by who can resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request names something that does not exist or makes no sense.
    Caller,
    /// A temporary conflict: another process holds the lock, or files changed after planning.
    Conflict,
    /// A safeguard refused the request; an explicit option overrides it.
    Refused,
    /// Snapshots are switched off here.
    Disabled,
    /// The machine, the disk or the store failed.
    Machine,
}

/// One kind of error.
#[derive(Clone, Copy, Debug)]
pub struct ErrorKind {
    /// Short, stable name.
    pub code: &'static str,
    /// Classification of the error.
    pub fault: Fault,
    /// Meaning for people.
    pub about: &'static str,
}

const fn kind(code: &'static str, fault: Fault, about: &'static str) -> ErrorKind {
    ErrorKind { code, fault, about }
}

/// Every code of an engine error.
pub const ERROR_KINDS: &[ErrorKind] = &[
    kind("cancelled", Fault::Conflict, "the caller cancelled the call; no file was changed"),
    kind("file", Fault::Machine, "an operation on a file failed"),
    kind("not_a_hash", Fault::Caller, "a text that should be a hash is not one"),
    kind("not_a_tree_path", Fault::Caller, "a path that cannot be inside the work tree"),
    kind("unknown_snapshot", Fault::Caller, "the store has no such snapshot"),
    kind("being_imported", Fault::Caller, "the snapshot may be in a store that is being imported"),
    kind(
        "purged",
        Fault::Caller,
        "content was purged from the snapshot, which has another hash now",
    ),
    kind("nothing_to_purge", Fault::Caller, "no snapshot has the path, or no label has the text"),
    kind("unknown_operation", Fault::Caller, "the log has no such operation"),
    kind("no_such_step", Fault::Caller, "no such step is open or recorded"),
    kind("no_such_message", Fault::Caller, "no recorded step belongs to the message"),
    kind("no_such_part", Fault::Caller, "no recorded step belongs to the part"),
    kind("no_such_session", Fault::Caller, "no recorded step belongs to the session"),
    kind("session_exists", Fault::Refused, "the id for the new session is taken"),
    kind("session_busy", Fault::Conflict, "a step of the session is open; `interrupt` closes it"),
    kind("nothing_reverted", Fault::Caller, "the session is not reverted, or the revert is final"),
    kind("no_such_checkpoint", Fault::Caller, "no such checkpoint"),
    kind("unknown_plan", Fault::Caller, "no such plan was made, or it has expired"),
    kind("nothing_lost", Fault::Caller, "no snapshot has a file at the path that is missing now"),
    kind("binary", Fault::Caller, "the file is binary, so it has no lines"),
    kind("not_empty", Fault::Refused, "a directory that should be new is not empty"),
    kind("too_long", Fault::Caller, "an id or a name is too long"),
    kind("inside_repository", Fault::Refused, "the place is inside the directory of a repository"),
    kind("inside_work_tree", Fault::Refused, "the directory is inside the work tree"),
    kind("no_such_log", Fault::Caller, "no such log was pulled or imported"),
    kind("no_history", Fault::Caller, "nothing was recorded at the path"),
    kind("still_there", Fault::Refused, "the directory that owns the history still exists"),
    kind("bad_import", Fault::Machine, "the data to import is invalid; nothing was changed"),
    kind("brings_purged", Fault::Refused, "the data contains purged content; nothing was changed"),
    kind("diverged", Fault::Conflict, "local and remote logs have diverged; nothing was changed"),
    kind(
        "nothing_pulled",
        Fault::Caller,
        "no pulled or imported log can be restored without naming it",
    ),
    kind("store_in_use", Fault::Refused, "another work tree or session uses the store"),
    kind("nothing_to_undo", Fault::Caller, "everything is undone already"),
    kind("not_recorded", Fault::Caller, "the last turn was not recorded as steps"),
    kind(
        "shared_expired",
        Fault::Caller,
        "the history that a fork shares with another session has expired",
    ),
    kind("no_captured_repository", Fault::Caller, "no repository was captured"),
    kind("nothing_to_redo", Fault::Caller, "no undo is left to redo"),
    kind("not_a_snapshot", Fault::Caller, "the hash names an object that is not a snapshot"),
    kind("no_such_file", Fault::Caller, "the snapshot has no such file"),
    kind("hostile_tree", Fault::Refused, "a tree in the store is not safe to use"),
    kind("bomb", Fault::Refused, "a snapshot expands to more than a work tree can hold"),
    kind("damaged", Fault::Machine, "an object is missing or has the wrong bytes"),
    kind(
        "lost_ref",
        Fault::Machine,
        "the ref of a log is missing, so that nothing can be collected",
    ),
    kind("busy", Fault::Conflict, "another process is working on the same work tree"),
    kind("dangerous_root", Fault::Refused, "the directory is much more than a project"),
    kind("not_git", Fault::Refused, "require_git is set and there is no repository"),
    kind("disabled", Fault::Disabled, "snapshots are disabled by configuration"),
    kind("newer_format", Fault::Machine, "the store was written by a newer version"),
    kind(
        "untrusted_store",
        Fault::Machine,
        "the store belongs to another user, or holds links or files that ctrlz did not make",
    ),
    kind("over_budget", Fault::Refused, "the snapshot would be too large"),
    kind("over_quota", Fault::Refused, "stores have reached their quota"),
    kind("no_space", Fault::Machine, "a disk has too little free space"),
    kind("mass_change", Fault::Refused, "an unusual share of the files would be removed"),
    kind("moved", Fault::Conflict, "a file changed meanwhile; nothing was restored"),
    kind("rolled_back", Fault::Machine, "writing failed; all files are as they were"),
    kind("interrupted", Fault::Machine, "a restore stopped half-way; the next command finishes it"),
    kind("stale_plan", Fault::Conflict, "the files changed since the plan was made"),
    kind("recovery_pending", Fault::Conflict, "an interrupted restore has to be finished first"),
];

/// Returns the fault of a code. A code that is missing in the table is a defect, which a test finds.
pub(super) fn fault_of(code: &str) -> Fault {
    let known = ERROR_KINDS.iter().find(|kind| kind.code == code);
    known.map_or(Fault::Machine, |kind| kind.fault)
}
