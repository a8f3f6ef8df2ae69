//! Advice for people: the next command after an error of the engine.

use std::io;

use ctrlz::{Error, LookupError, RestoreError, SessionError};

use crate::render::with_program;

/// Returns advice on what the user can do next, if there is any.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let advice = match error {
        Error::Session(SessionError::NotRecorded { before, .. }) => {
            format!("`ctrlz restore --exact {before}` brings back the state before it")
        }
        Error::Lookup(LookupError::NoSuchText) => {
            "`ctrlz log` shows the labels; `ctrlz purge PATH` removes contents".to_owned()
        }
        Error::Restore(RestoreError::RolledBack { cause }) => return hint(cause),
        Error::File(error) => of_file(error.source.kind())?.to_owned(),
        error => ADVICE.iter().find(|(code, _)| *code == error.code())?.1.to_owned(),
    };
    Some(with_program(&advice))
}

/// The codes of errors, and the advice for each. Where nothing helps, the code is missing.
const ADVICE: [(&str, &str); 52] = [
    ("unknown_snapshot", SHOW_STORE),
    ("unknown_operation", SHOW_STORE),
    ("being_imported", "try again in a moment, or import it now with `ctrlz adopt`"),
    ("purged", "use the other hash"),
    ("nothing_to_purge", "`ctrlz log --lost` and `ctrlz ls HASH` list files"),
    ("no_such_step", LIST_STEPS),
    ("no_such_message", LIST_STEPS),
    ("no_such_part", LIST_STEPS),
    ("no_such_session", LIST_SESSIONS),
    ("nothing_reverted", LIST_SESSIONS),
    ("session_busy", "wait for the step to end, or pass --interrupt if its agent is gone"),
    ("unknown_plan", "make a plan with --dry-run; it prints the plan's hash"),
    ("no_such_checkpoint", "`ctrlz checkpoint --list` lists them"),
    ("nothing_lost", "`ctrlz log --lost` lists files that disappeared"),
    ("binary", "`ctrlz recover --list PATH` lists its versions"),
    ("not_empty", "name a directory that does not exist yet"),
    ("too_long", "use a shorter one"),
    ("inside_repository", "name a place that is in no .git"),
    ("inside_work_tree", "name a directory outside the work tree"),
    ("session_exists", "choose another id; `ctrlz sessions` lists those taken"),
    ("nothing_to_undo", "`ctrlz log` shows what was done and what is taken back"),
    ("shared_expired", "`ctrlz log` shows what is kept"),
    (
        "no_captured_repository",
        "a repository is captured when an agent's command names it, and kept for a week",
    ),
    ("nothing_to_redo", "`ctrlz redo` takes back an undo, and there is none left"),
    (
        "not_a_hash",
        "`ctrlz track` prints the hash of a new snapshot, `ctrlz log` lists operations, \
         `ctrlz checkpoint --list` names",
    ),
    ("not_a_snapshot", "a snapshot is named by the hash that `ctrlz track` printed"),
    (
        "not_a_tree_path",
        "paths are relative to the current directory and stay inside the work tree",
    ),
    ("no_such_file", "`ctrlz ls HASH` lists the files of a snapshot"),
    ("busy", "wait for the other command, or try again"),
    ("dangerous_root", "run it inside a project, or pass --force-root if you mean it"),
    ("not_git", "run `git init`, or set require_git = false"),
    ("over_budget", "ignore what is large with `exclude`, or raise max_files / max_snapshot_bytes"),
    ("store_in_use", "delete its other sessions first, or keep it"),
    (
        "over_quota",
        "`ctrlz du` shows what takes room, `ctrlz gc` frees some; or raise max_store_bytes \
         / max_total_bytes",
    ),
    ("no_space", FREE_SPACE),
    ("mass_change", "look at it with --dry-run, then pass --yes"),
    ("lost_ref", "`ctrlz track` in that work tree finds its log again"),
    ("damaged", "other snapshots are not affected; `ctrlz doctor` checks the whole store"),
    ("moved", RUN_AGAIN),
    ("stale_plan", RUN_AGAIN),
    ("interrupted", FINISH_RESTORE),
    ("recovery_pending", FINISH_RESTORE),
    ("newer_format", "update ctrlz"),
    ("no_such_log", "`ctrlz sessions` names those that came from elsewhere"),
    ("no_history", "name the path where the project was when it was recorded"),
    (
        "still_there",
        "to give a copy the same history, `ctrlz export` it here and `ctrlz import` it there",
    ),
    ("bad_import", "get the file again from where it was made"),
    (
        "brings_purged",
        "purge it there and `ctrlz push` again (here too, for this work tree's own log), or \
         pass --allow-purged",
    ),
    (
        "diverged",
        "if this machine or its data directory was copied, `ctrlz push --as-new` goes on \
         under a name of its own",
    ),
    ("nothing_pulled", "name a snapshot; `ctrlz log` and `ctrlz sessions` list them"),
    ("disabled", "set enabled = true in the configuration"),
    ("untrusted_store", "record in another place with --data-dir or --store"),
];

const SHOW_STORE: &str =
    "`ctrlz status` shows the store this directory uses and its newest snapshot";
const LIST_STEPS: &str = "`ctrlz log` lists the steps";
const LIST_SESSIONS: &str = "`ctrlz sessions` lists the sessions and what is undone";
const FREE_SPACE: &str = "free some space and run the command again";
const RUN_AGAIN: &str = "run the command again";
const FINISH_RESTORE: &str = "run `ctrlz track`, which finishes it, and then the command again";

/// Returns advice for errors of the file system that have a usual cause.
fn of_file(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(FREE_SPACE),
        io::ErrorKind::PermissionDenied => Some("check who owns it and its permissions"),
        io::ErrorKind::ReadOnlyFilesystem => Some("remount the file system for writing"),
        io::ErrorKind::NotFound => Some("check that the directory still exists"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::ADVICE;

    #[test]
    fn every_code_with_advice_is_a_code_of_the_engine() {
        for (code, _) in ADVICE {
            assert!(ctrlz::ERROR_KINDS.iter().any(|kind| kind.code == code), "{code}");
        }
    }
}
