//! Advice for people: the next command after an error of the engine.

use std::io;

use ctrlz::{
    Error, ExchangeError, LookupError, RecordError, RestoreError, SessionError, StoreError,
};

use crate::render::with_program;

/// Returns advice on what the user can do next, if there is any.
pub(crate) fn hint(error: &Error) -> Option<String> {
    advice(error).map(|text| with_program(&text))
}

fn advice(error: &Error) -> Option<String> {
    let text = match error {
        Error::Lookup(LookupError::UnknownSnapshot { .. })
        | Error::Lookup(LookupError::UnknownOperation { .. }) => {
            "`ctrlz status` shows the store this directory uses and its newest snapshot"
        }
        Error::Lookup(LookupError::BeingImported { .. }) => {
            "try again in a moment, or import it now with `ctrlz adopt`"
        }
        Error::Lookup(LookupError::Purged { .. }) => "use the other hash",
        Error::Lookup(LookupError::NoSuchText) => {
            "`ctrlz log` shows the labels; `ctrlz purge PATH` removes contents"
        }
        Error::Lookup(LookupError::NothingToPurge { .. }) => {
            "`ctrlz log --lost` and `ctrlz ls HASH` list files"
        }
        Error::Session(SessionError::NoSuchStep { .. })
        | Error::Session(SessionError::NoSuchMessage { .. })
        | Error::Session(SessionError::NoSuchPart { .. }) => "`ctrlz log` lists the steps",
        Error::Session(SessionError::NoSuchSession { .. })
        | Error::Session(SessionError::NothingReverted { .. }) => {
            "`ctrlz sessions` lists the sessions and what is undone"
        }
        Error::Session(SessionError::SessionBusy { .. }) => {
            "wait for the step to end, or pass --interrupt if its agent is gone"
        }
        Error::Lookup(LookupError::UnknownPlan { .. }) => {
            "make a plan with --dry-run; it prints the plan's hash"
        }
        Error::Lookup(LookupError::NoSuchCheckpoint { .. }) => {
            "`ctrlz checkpoint --list` lists them"
        }
        Error::Lookup(LookupError::NothingLost { .. }) => {
            "`ctrlz log --lost` lists files that disappeared"
        }
        Error::Lookup(LookupError::Binary { .. }) => {
            "`ctrlz recover --list PATH` lists its versions"
        }
        Error::Restore(RestoreError::NotEmpty { .. }) => "name a directory that does not exist yet",
        Error::Session(SessionError::TooLong { .. }) => "use a shorter one",
        Error::Restore(RestoreError::InsideRepository { .. }) => "name a place that is in no .git",
        Error::Restore(RestoreError::InsideWorkTree { .. }) => {
            "name a directory outside the work tree"
        }
        Error::Session(SessionError::SessionExists { .. }) => {
            "choose another id; `ctrlz sessions` lists those taken"
        }
        Error::Session(SessionError::NothingToUndo) => {
            "`ctrlz log` shows what was done and what is taken back"
        }
        Error::Session(SessionError::NotRecorded { before, .. }) => {
            return Some(format!(
                "`ctrlz restore --exact {before}` brings back the state before it"
            ));
        }
        Error::Session(SessionError::SharedExpired { .. }) => "`ctrlz log` shows what is kept",
        Error::Session(SessionError::NoCapturedRepository) => {
            "a repository is captured when an agent's command names it, and kept for a week"
        }
        Error::Session(SessionError::NothingToRedo) => {
            "`ctrlz redo` takes back an undo, and there is none left"
        }
        Error::NotAHash(_) => {
            "`ctrlz track` prints the hash of a new snapshot, `ctrlz log` lists operations, \
             `ctrlz checkpoint --list` names"
        }
        Error::Lookup(LookupError::NotASnapshot { .. }) => {
            "a snapshot is named by the hash that `ctrlz track` printed"
        }
        Error::NotATreePath(_) => {
            "paths are relative to the current directory and stay inside the work tree"
        }
        Error::Lookup(LookupError::NoSuchFile { .. }) => {
            "`ctrlz ls HASH` lists the files of a snapshot"
        }
        Error::Busy { .. } => "wait for the other command, or try again",
        Error::Record(RecordError::DangerousRoot { .. }) => {
            "run it inside a project, or pass --force-root if you mean it"
        }
        Error::Record(RecordError::NotGit { .. }) => "run `git init`, or set require_git = false",
        Error::Record(RecordError::OverBudget { .. }) => {
            "ignore what is large with `exclude`, or raise max_files / max_snapshot_bytes"
        }
        Error::Store(StoreError::StoreInUse { .. }) => {
            "delete its other sessions first, or keep it"
        }
        Error::Record(RecordError::OverQuota { .. }) => {
            "`ctrlz du` shows what takes room, `ctrlz gc` frees some; or raise max_store_bytes \
             / max_total_bytes"
        }
        Error::Record(RecordError::NoSpace { .. }) => "free some space and run the command again",
        Error::Restore(RestoreError::MassChange { .. }) => {
            "look at it with --dry-run, then pass --yes"
        }
        Error::Store(StoreError::LostRef { .. }) => {
            "`ctrlz track` in that work tree finds its log again"
        }
        Error::Store(StoreError::Damaged { .. }) => {
            "other snapshots are not affected; `ctrlz doctor` checks the whole store"
        }
        Error::Restore(RestoreError::Moved { .. }) | Error::Restore(RestoreError::StalePlan) => {
            "run the command again"
        }
        Error::Restore(RestoreError::Interrupted { .. })
        | Error::Restore(RestoreError::RecoveryPending) => {
            "run `ctrlz track`, which finishes it, and then the command again"
        }
        Error::Store(StoreError::NewerFormat { .. }) => "update ctrlz",
        Error::Exchange(ExchangeError::NoSuchLog { .. }) => {
            "`ctrlz sessions` names those that came from elsewhere"
        }
        Error::Exchange(ExchangeError::NoHistory { .. }) => {
            "name the path where the project was when it was recorded"
        }
        Error::Exchange(ExchangeError::StillThere { .. }) => {
            "to give a copy the same history, `ctrlz export` it here and `ctrlz import` it there"
        }
        Error::Exchange(ExchangeError::BadImport { .. }) => {
            "get the file again from where it was made"
        }
        Error::Exchange(ExchangeError::BringsPurged { .. }) => {
            "purge it there and `ctrlz push` again (here too, for this work tree's own log), or \
             pass --allow-purged"
        }
        Error::Exchange(ExchangeError::Diverged { .. }) => {
            "if this machine or its data directory was copied, `ctrlz push --as-new` goes on \
             under a name of its own"
        }
        Error::Exchange(ExchangeError::NothingPulled) => {
            "name a snapshot; `ctrlz log` and `ctrlz sessions` list them"
        }
        Error::Record(RecordError::Disabled { .. }) => "set enabled = true in the configuration",
        Error::Store(StoreError::UntrustedStore { .. }) => {
            "remove what is named above, or record in another place with --data-dir or --store"
        }
        Error::Restore(RestoreError::RolledBack { cause }) => return advice(cause),
        Error::File(error) => return file_hint(error.source.kind()),
        // Nothing helps here, or the error is newer than this table.
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns advice for errors of the file system that have a usual cause.
fn file_hint(kind: std::io::ErrorKind) -> Option<String> {
    let text = match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space and run the command again"
        }
        io::ErrorKind::PermissionDenied => "check who owns it and its permissions",
        io::ErrorKind::ReadOnlyFilesystem => "remount the file system for writing",
        io::ErrorKind::NotFound => "check that the directory still exists",
        _ => return None,
    };
    Some(text.to_owned())
}
