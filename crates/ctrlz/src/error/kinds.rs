//! The table of error codes.

use super::{
    Error, ExchangeError as Exchange, LookupError as Lookup, RecordError as Record,
    RestoreError as Restore, SessionError as Session, StoreError as Store,
};

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

impl Error {
    /// Returns a short, stable name for programs.
    pub fn code(&self) -> &'static str {
        kind_of(self).code
    }

    /// Returns the classification of the error.
    pub fn fault(&self) -> Fault {
        match self {
            // Everything is as it was, so that the cause decides whether to try again.
            Error::Restore(Restore::RolledBack { cause }) if cause.fault() == Fault::Conflict => {
                Fault::Conflict
            }
            _ => kind_of(self).fault,
        }
    }
}

/// Declares the table of codes. A row has one or more variants, the fault, the code and its
/// meaning.
macro_rules! kinds {
    ($($($($part:ident)::+)|+ => $fault:ident $code:literal $about:literal;)*) => {
        /// Every code of an engine error.
        pub const ERROR_KINDS: &[ErrorKind] =
            &[$(ErrorKind { code: $code, fault: Fault::$fault, about: $about }),*];

        /// Returns the entry of [`ERROR_KINDS`] for an error.
        fn kind_of(error: &Error) -> ErrorKind {
            match error {
                $($(variant!($($part)::+))|+ => {
                    ErrorKind { code: $code, fault: Fault::$fault, about: $about }
                })*
            }
        }
    };
}

/// Pattern of a variant of [`Error`], or of the error inside of it.
macro_rules! variant {
    ($variant:ident) => {
        Error::$variant { .. }
    };
    ($concern:ident::$variant:ident) => {
        Error::$concern($concern::$variant { .. })
    };
}

kinds! {
    Cancelled => Conflict "cancelled" "the caller cancelled the call; no file was changed";
    File => Machine "file" "an operation on a file failed";
    NotAHash => Caller "not_a_hash" "a text that should be a hash is not one";
    NotATreePath => Caller "not_a_tree_path" "a path that cannot be inside the work tree";
    Lookup::UnknownSnapshot => Caller "unknown_snapshot" "the store has no such snapshot";
    Lookup::BeingImported =>
        Caller "being_imported" "the snapshot may be in a store that is being imported";
    Lookup::Purged =>
        Caller "purged" "content was purged from the snapshot, which has another hash now";
    Lookup::NothingToPurge | Lookup::NoSuchText =>
        Caller "nothing_to_purge" "no snapshot has the path, or no label has the text";
    Lookup::UnknownOperation => Caller "unknown_operation" "the log has no such operation";
    Session::NoSuchStep => Caller "no_such_step" "no such step is open or recorded";
    Session::NoSuchMessage => Caller "no_such_message" "no recorded step belongs to the message";
    Session::NoSuchPart => Caller "no_such_part" "no recorded step belongs to the part";
    Session::NoSuchSession => Caller "no_such_session" "no recorded step belongs to the session";
    Session::SessionExists => Refused "session_exists" "the id for the new session is taken";
    Session::SessionBusy =>
        Conflict "session_busy" "a step of the session is open; `interrupt` closes it";
    Session::NothingReverted =>
        Caller "nothing_reverted" "the session is not reverted, or the revert is final";
    Lookup::NoSuchCheckpoint => Caller "no_such_checkpoint" "no such checkpoint";
    Lookup::UnknownPlan => Caller "unknown_plan" "no such plan was made, or it has expired";
    Lookup::NothingLost =>
        Caller "nothing_lost" "no snapshot has a file at the path that is missing now";
    Lookup::Binary => Caller "binary" "the file is binary, so it has no lines";
    Restore::NotEmpty => Refused "not_empty" "a directory that should be new is not empty";
    Session::TooLong => Caller "too_long" "an id or a name is too long";
    Restore::InsideRepository =>
        Refused "inside_repository" "the place is inside the directory of a repository";
    Restore::InsideWorkTree => Refused "inside_work_tree" "the directory is inside the work tree";
    Exchange::NoSuchLog => Caller "no_such_log" "no such log was pulled or imported";
    Exchange::NoHistory => Caller "no_history" "nothing was recorded at the path";
    Exchange::StillThere =>
        Refused "still_there" "the directory that owns the history still exists";
    Exchange::BadImport =>
        Machine "bad_import" "the data to import is invalid; nothing was changed";
    Exchange::BringsPurged =>
        Refused "brings_purged" "the data contains purged content; nothing was changed";
    Exchange::Diverged =>
        Conflict "diverged" "local and remote logs have diverged; nothing was changed";
    Exchange::NothingPulled =>
        Caller "nothing_pulled" "no pulled or imported log can be restored without naming it";
    Store::StoreInUse => Refused "store_in_use" "another work tree or session uses the store";
    Session::NothingToUndo => Caller "nothing_to_undo" "everything is undone already";
    Session::NotRecorded => Caller "not_recorded" "the last turn was not recorded as steps";
    Session::SharedExpired =>
        Caller "shared_expired" "the history that a fork shares with another session has expired";
    Session::NoCapturedRepository => Caller "no_captured_repository" "no repository was captured";
    Session::NothingToRedo => Caller "nothing_to_redo" "no undo is left to redo";
    Lookup::NotASnapshot =>
        Caller "not_a_snapshot" "the hash names an object that is not a snapshot";
    Lookup::NoSuchFile => Caller "no_such_file" "the snapshot has no such file";
    Store::HostileTree => Refused "hostile_tree" "a tree in the store is not safe to use";
    Store::Bomb => Refused "bomb" "a snapshot expands to more than a work tree can hold";
    Store::Damaged => Machine "damaged" "an object is missing or has the wrong bytes";
    Store::LostRef =>
        Machine "lost_ref" "the ref of a log is missing, so that nothing can be collected";
    Busy => Conflict "busy" "another process is working on the same work tree";
    Record::DangerousRoot => Refused "dangerous_root" "the directory is much more than a project";
    Record::NotGit => Refused "not_git" "require_git is set and there is no repository";
    Record::Disabled => Disabled "disabled" "snapshots are disabled by configuration";
    Store::NewerFormat => Machine "newer_format" "the store was written by a newer version";
    Store::UntrustedStore =>
        Machine "untrusted_store"
        "the store belongs to another user, or holds links or files that ctrlz did not make";
    Record::OverBudget => Refused "over_budget" "the snapshot would be too large";
    Record::OverQuota => Refused "over_quota" "stores have reached their quota";
    Record::NoSpace => Machine "no_space" "a disk has too little free space";
    Restore::MassChange => Refused "mass_change" "an unusual share of the files would be removed";
    Restore::Moved => Conflict "moved" "a file changed meanwhile; nothing was restored";
    Restore::RolledBack => Machine "rolled_back" "writing failed; all files are as they were";
    Restore::Interrupted =>
        Machine "interrupted" "a restore stopped half-way; the next command finishes it";
    Restore::StalePlan => Conflict "stale_plan" "the files changed since the plan was made";
    Restore::RecoveryPending =>
        Conflict "recovery_pending" "an interrupted restore has to be finished first";
}
