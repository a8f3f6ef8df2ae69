//! What can go wrong, sorted by who can do something about it.

use std::path::PathBuf;

use crate::fs::FileError;
use crate::git::{NotAHash, ObjectId, TreeProblem};
use crate::path::{NotATreePath, TreePath, escape};

/// Who can do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request names something that does not exist or makes no sense.
    Caller,
    /// The world is in the way for now: someone holds the lock, or files moved under a plan.
    Conflict,
    /// A safeguard said no; an explicit option overrides it.
    Refused,
    /// Snapshots are switched off here.
    Disabled,
    /// The machine, the disk or the store failed.
    Machine,
}

/// Any failure of the engine. Nothing was changed unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A text that should be a hash is not.
    #[error(transparent)]
    NotAHash(#[from] NotAHash),
    /// A path that cannot be inside the work tree.
    #[error(transparent)]
    NotATreePath(#[from] NotATreePath),
    /// The store has no such snapshot.
    #[error("no snapshot {id} in this store")]
    UnknownSnapshot {
        /// The hash that was asked for.
        id: ObjectId,
    },
    /// A store that came with the project is being imported, and the snapshot may be in it.
    #[error("snapshot {id} is not here yet; the earlier store is being imported")]
    BeingImported {
        /// The hash that was asked for.
        id: ObjectId,
    },
    /// Something was purged from the snapshot, so it has another hash now.
    #[error("snapshot {id} was purged; what is left of it is {replacement}")]
    Purged {
        /// The hash that was asked for.
        id: ObjectId,
        /// The snapshot without what was purged.
        replacement: ObjectId,
    },
    /// No snapshot has this path.
    #[error("no snapshot has {path}")]
    NothingToPurge {
        /// The path that was asked for.
        path: TreePath,
    },
    /// No step and no checkpoint has this text. The text itself is not repeated.
    #[error("no label of a step or checkpoint has this text")]
    NoSuchText,
    /// The work tree's log has no such operation.
    #[error("no operation {id} in this work tree's log")]
    UnknownOperation {
        /// The id that was asked for.
        id: String,
    },
    /// No such step is open or recorded.
    #[error("no step {step:?}")]
    NoSuchStep {
        /// The id that was asked for.
        step: String,
    },
    /// No recorded step belongs to this message.
    #[error("no step of a message {message:?}")]
    NoSuchMessage {
        /// The id that was asked for.
        message: String,
    },
    /// The message has no such part, as far as steps tell.
    #[error("message {message:?} has no step of a part {part:?}")]
    NoSuchPart {
        /// The message.
        message: String,
        /// The part that was asked for.
        part: String,
    },
    /// The session is not reverted, or the revert has become final.
    #[error("session {session:?} has no revert to take back")]
    NothingReverted {
        /// The session.
        session: String,
    },
    /// The session is at work.
    #[error("session {session:?} is busy: {holder} is at step {step}")]
    SessionBusy {
        /// The session.
        session: String,
        /// The open step.
        step: String,
        /// Who is at it.
        holder: String,
    },
    /// No such session is recorded.
    #[error("no session {session:?}")]
    NoSuchSession {
        /// The id that was asked for.
        session: String,
    },
    /// A new session was given an id that is taken.
    #[error("there is a session {session:?} already")]
    SessionExists {
        /// The id that was asked for.
        session: String,
    },
    /// No such plan was made, or it is forgotten.
    #[error("no plan {id}")]
    UnknownPlan {
        /// The hash that was asked for.
        id: ObjectId,
    },
    /// No such checkpoint.
    #[error("no checkpoint {name:?}")]
    NoSuchCheckpoint {
        /// The name that was asked for.
        name: String,
    },
    /// No snapshot has lost this.
    #[error("{path} is not lost: no snapshot has a file there that is missing now")]
    NothingLost {
        /// The path that was asked for.
        path: TreePath,
    },
    /// The file is binary, so it has no lines.
    #[error("{path} is binary")]
    Binary {
        /// The file.
        path: TreePath,
    },
    /// A directory that should be made new has something in it.
    #[error("{} is not empty", shown(path))]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// An id or a name is too long to be kept with every operation.
    #[error("{what} has more than {max} bytes")]
    TooLong {
        /// Which one.
        what: &'static str,
        /// The most bytes that it may have.
        max: usize,
    },
    /// A place to write to lies inside the directory of a version control system.
    #[error("{} lies inside a repository's own directory", shown(path))]
    InsideRepository {
        /// The place that was named.
        path: PathBuf,
    },
    /// A directory that should be a work tree of its own lies in this one.
    #[error("{} lies inside the work tree", shown(path))]
    InsideWorkTree {
        /// The directory.
        path: PathBuf,
    },
    /// The store has no such log.
    #[error("no log {log:?} in this store")]
    NoSuchLog {
        /// The name that was asked for.
        log: String,
    },
    /// Nothing was ever recorded at this path.
    #[error("nothing was recorded at {}", shown(path))]
    NoHistory {
        /// The path.
        path: PathBuf,
    },
    /// The directory that a history belongs to is still there.
    #[error("{} is still there, and its history stays with it", shown(path))]
    StillThere {
        /// The directory.
        path: PathBuf,
    },
    /// A file that was to be imported, or what a server sent, is not usable.
    #[error("{} cannot be imported: {why}; nothing was changed", shown(path))]
    BadImport {
        /// The file, or the server's address.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file that was to be imported, or what a server sent, has content that was purged here.
    #[error("{} brings purged content back{}; nothing was changed", shown(path), named(paths))]
    BringsPurged {
        /// The file, or the server's address.
        path: PathBuf,
        /// Where the content lies there, one path for each content.
        paths: Vec<TreePath>,
    },
    /// Both sides have recorded something the other does not know under the same name.
    #[error("the log {log} here and there have parted; neither was changed")]
    Diverged {
        /// The log.
        log: String,
    },
    /// Nothing from elsewhere is here to be brought back.
    #[error("nothing was pulled or imported that could be restored without naming it")]
    NothingPulled,
    /// Everything is taken back already, or nothing was ever done.
    #[error("nothing to undo")]
    NothingToUndo,
    /// A fork has nothing of its own to undo, and what it shares is not kept any more.
    #[error("what is shared with session {session:?} has expired and cannot be undone")]
    SharedExpired {
        /// The session that it was forked from.
        session: String,
    },
    /// The only work that is left was not recorded as steps.
    #[error("the last turn was not recorded ({why}), so it cannot be undone by turn or step")]
    NotRecorded {
        /// The operation before it.
        before: String,
        /// Why it was not recorded.
        why: String,
    },
    /// No undo is left to be taken back.
    #[error("nothing to redo")]
    NothingToRedo,
    /// No step destroyed or changed the directory of a version control system that it named.
    #[error("no captured repository")]
    NoCapturedRepository,
    /// The hash names something that is not a tree.
    #[error("{id} is a {kind}, not a snapshot")]
    NotASnapshot {
        /// The hash that was asked for.
        id: ObjectId,
        /// What it names.
        kind: &'static str,
    },
    /// The snapshot has no such file.
    #[error("snapshot {id} has no {path}")]
    NoSuchFile {
        /// The snapshot.
        id: ObjectId,
        /// The path that was asked for.
        path: TreePath,
    },
    /// A tree in the store must not be used.
    #[error("tree {id} cannot be used: {why}")]
    HostileTree {
        /// The tree.
        id: ObjectId,
        /// What is wrong with it.
        why: TreeProblem,
    },
    /// A snapshot expands to more than any work tree holds.
    #[error("snapshot {id} has more than {limit} {what}")]
    Bomb {
        /// The snapshot.
        id: ObjectId,
        /// The limit that was passed.
        limit: u64,
        /// What there is too much of.
        what: &'static str,
    },
    /// An object is missing or its bytes do not have the hash they should.
    #[error("object {id} is damaged: {why}")]
    Damaged {
        /// The object.
        id: ObjectId,
        /// What was found.
        why: String,
    },
    /// A log's ref is gone or cannot be read, so nothing can be called garbage.
    #[error("{} is missing or cannot be read", shown(path))]
    LostRef {
        /// The ref.
        path: PathBuf,
    },
    /// Someone else holds the lock.
    #[error("{} is busy: {holder} has held it for {waited_seconds} s", shown(path))]
    Busy {
        /// The locked file.
        path: PathBuf,
        /// Who holds it, as they wrote it down.
        holder: String,
        /// How long we waited.
        waited_seconds: u64,
    },
    /// A directory that is too dangerous to track.
    #[error("refusing to protect {}: {why}", shown(path))]
    DangerousRoot {
        /// The directory.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// `require_git` is on and the directory is in no git repository.
    #[error("{} is not in a git repository, and require_git is on", shown(path))]
    NotGit {
        /// The directory.
        path: PathBuf,
    },
    /// Snapshots are switched off by configuration.
    #[error("snapshots are disabled for {}", shown(path))]
    Disabled {
        /// The directory.
        path: PathBuf,
    },
    /// The store was written by a newer version.
    #[error("the store at {} has format {found}; this version knows {known}", shown(path))]
    NewerFormat {
        /// The store.
        path: PathBuf,
        /// The format it has.
        found: u32,
        /// The newest format we know.
        known: u32,
    },
    /// The store's directory belongs to someone else or is not a directory.
    #[error("the store at {} cannot be trusted: {why}", shown(path))]
    UntrustedStore {
        /// The store.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// The store would be removed while somebody else needs it.
    #[error("the store at {} is needed by {by}", shown(path))]
    StoreInUse {
        /// The store.
        path: PathBuf,
        /// A work tree or a session.
        by: String,
    },
    /// The snapshot would be too large.
    #[error("the snapshot would hold {found} {what}, more than {limit}{}", largest_text(largest))]
    OverBudget {
        /// What there is too much of: `files` or `bytes`.
        what: &'static str,
        /// How much there is, at least.
        found: u64,
        /// The limit.
        limit: u64,
        /// What takes the most room.
        largest: Vec<(Vec<u8>, u64)>,
    },
    /// The store has used up its quota, so that not even a list of the files fits.
    #[error("{} has used up its quota, {} %", shown(path), used.percent())]
    OverQuota {
        /// The store.
        path: PathBuf,
        /// What is used.
        used: Box<crate::QuotaUse>,
    },
    /// A disk has too little room.
    #[error("{} has {free_bytes} bytes free, and {needed_bytes} are needed", shown(path))]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// Needed there.
        needed_bytes: u64,
        /// Free there.
        free_bytes: u64,
    },
    /// Restoring would change an unusual share of the work tree.
    #[error("this would remove {removed} of {files} files")]
    MassChange {
        /// Files that would go.
        removed: u64,
        /// Files there are.
        files: u64,
    },
    /// A file changed between planning and writing; everything was put back.
    #[error("{path} changed meanwhile; nothing was restored")]
    Moved {
        /// The file.
        path: TreePath,
    },
    /// Writing failed; everything was put back.
    #[error("nothing was restored, everything is as it was")]
    RolledBack {
        /// What failed.
        #[source]
        cause: Box<Error>,
    },
    /// Writing failed, and so did putting back. The next command tries again.
    #[error("the restore stopped half-way and will be finished by the next command")]
    Interrupted {
        /// What failed.
        #[source]
        cause: Box<Error>,
    },
    /// A restore was cut off and has to be finished first, which a plan must not do.
    #[error("a restore was cut off and has to be finished before anything is planned")]
    RecoveryPending,
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// A plan was made for a different state.
    #[error("the files moved since the plan was made; make a new one")]
    StalePlan,
}

/// A path as it may be printed.
fn shown(path: &std::path::Path) -> String {
    escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

fn largest_text(largest: &[(Vec<u8>, u64)]) -> String {
    if largest.is_empty() {
        return String::new();
    }
    let items: Vec<String> =
        largest.iter().map(|(path, size)| format!("{} ({size})", escape(path))).collect();
    format!("; largest: {}", items.join(", "))
}

/// The first of some paths, after a colon.
fn named(paths: &[TreePath]) -> String {
    const MAX_NAMED: usize = 10;
    let mut text = String::new();
    for (at, path) in paths.iter().take(MAX_NAMED).enumerate() {
        text.push_str(if at == 0 { ": " } else { ", " });
        text.push_str(&path.to_string());
    }
    match paths.len().saturating_sub(MAX_NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

impl Error {
    /// Sorts the error for the interfaces.
    pub fn fault(&self) -> Fault {
        match self {
            Error::NotAHash(_)
            | Error::NotATreePath(_)
            | Error::TooLong { .. }
            | Error::UnknownSnapshot { .. }
            | Error::BeingImported { .. }
            | Error::Purged { .. }
            | Error::NothingToPurge { .. }
            | Error::NoSuchText
            | Error::UnknownOperation { .. }
            | Error::NoSuchStep { .. }
            | Error::NoSuchMessage { .. }
            | Error::NothingToUndo
            | Error::NotRecorded { .. }
            | Error::SharedExpired { .. }
            | Error::NothingToRedo
            | Error::NoCapturedRepository
            | Error::NoHistory { .. }
            | Error::NoSuchLog { .. }
            | Error::NothingPulled
            | Error::NoSuchPart { .. }
            | Error::NoSuchSession { .. }
            | Error::NoSuchCheckpoint { .. }
            | Error::NothingReverted { .. }
            | Error::UnknownPlan { .. }
            | Error::NothingLost { .. }
            | Error::Binary { .. }
            | Error::NotASnapshot { .. }
            | Error::NoSuchFile { .. } => Fault::Caller,
            Error::Busy { .. }
            | Error::SessionBusy { .. }
            | Error::Diverged { .. }
            | Error::Moved { .. }
            | Error::StalePlan
            | Error::RecoveryPending
            | Error::Cancelled => Fault::Conflict,
            Error::DangerousRoot { .. }
            | Error::NotGit { .. }
            | Error::OverBudget { .. }
            | Error::OverQuota { .. }
            | Error::StoreInUse { .. }
            | Error::BringsPurged { .. }
            | Error::MassChange { .. }
            | Error::NotEmpty { .. }
            | Error::InsideRepository { .. }
            | Error::InsideWorkTree { .. }
            | Error::SessionExists { .. }
            | Error::StillThere { .. }
            | Error::HostileTree { .. }
            | Error::Bomb { .. } => Fault::Refused,
            Error::Disabled { .. } => Fault::Disabled,
            Error::RolledBack { cause } => match cause.fault() {
                Fault::Conflict => Fault::Conflict,
                Fault::Caller | Fault::Refused | Fault::Disabled | Fault::Machine => Fault::Machine,
            },
            Error::File(_)
            | Error::BadImport { .. }
            | Error::Damaged { .. }
            | Error::LostRef { .. }
            | Error::NewerFormat { .. }
            | Error::UntrustedStore { .. }
            | Error::NoSpace { .. }
            | Error::Interrupted { .. } => Fault::Machine,
        }
    }

    /// Returns what is full, if nothing can be recorded because the disk or a quota is.
    pub fn full(&self) -> Option<&'static str> {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Error::NoSpace { .. } => Some("store disk full"),
            Error::OverQuota { .. } => Some("store quota reached"),
            Error::File(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                Some("store disk full")
            }
            _ => None,
        }
    }

    /// What the user can do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::UnknownSnapshot { .. } | Error::UnknownOperation { .. } => {
                "`ctrlz status` shows the store this directory uses and its newest snapshot"
            }
            Error::BeingImported { .. } => {
                "try again in a moment, or import it now with `ctrlz adopt`"
            }
            Error::Purged { .. } => "use the other hash",
            Error::NoSuchText => {
                "`ctrlz log` shows the labels; `ctrlz purge PATH` removes contents"
            }
            Error::NothingToPurge { .. } => "`ctrlz log --lost` and `ctrlz ls HASH` list files",
            Error::NoSuchStep { .. } | Error::NoSuchMessage { .. } | Error::NoSuchPart { .. } => {
                "`ctrlz log` lists the steps"
            }
            Error::NoSuchSession { .. } | Error::NothingReverted { .. } => {
                "`ctrlz sessions` lists the sessions and what is taken back"
            }
            Error::SessionBusy { .. } => {
                "wait for the step to end, or pass --interrupt if its agent is gone"
            }
            Error::UnknownPlan { .. } => "make a plan with --dry-run; it prints the plan's hash",
            Error::NoSuchCheckpoint { .. } => "`ctrlz checkpoint --list` lists them",
            Error::NothingLost { .. } => "`ctrlz log --lost` lists files that disappeared",
            Error::Binary { .. } => "`ctrlz recover --list PATH` lists its versions",
            Error::NotEmpty { .. } => "name a directory that does not exist yet",
            Error::TooLong { .. } => "use a shorter one",
            Error::InsideRepository { .. } => "name a place that is in no .git",
            Error::InsideWorkTree { .. } => "name a directory outside the work tree",
            Error::SessionExists { .. } => "choose another id; `ctrlz sessions` lists those taken",
            Error::NothingToUndo => "`ctrlz log` shows what was done and what is taken back",
            Error::NotRecorded { before, .. } => {
                return Some(format!(
                    "`ctrlz restore --exact {before}` brings back the state before it"
                ));
            }
            Error::SharedExpired { .. } => "`ctrlz log` shows what is kept",
            Error::NoCapturedRepository => {
                "a repository is captured when an agent's command names it, and kept for a week"
            }
            Error::NothingToRedo => "`ctrlz redo` takes back an undo, and there is none left",
            Error::NotAHash(_) => {
                "`ctrlz track` prints the hash of a new snapshot, `ctrlz log` lists operations, \
                 `ctrlz checkpoint --list` names"
            }
            Error::NotASnapshot { .. } => {
                "a snapshot is named by the hash that `ctrlz track` printed"
            }
            Error::NotATreePath(_) => {
                "paths are relative to the current directory and stay inside the work tree"
            }
            Error::NoSuchFile { .. } => "`ctrlz ls HASH` lists the files of a snapshot",
            Error::Busy { .. } => "wait for the other command, or try again",
            Error::DangerousRoot { .. } => {
                "run it inside a project, or pass --force-root if you mean it"
            }
            Error::NotGit { .. } => "run `git init`, or set require_git = false",
            Error::OverBudget { .. } => {
                "ignore what is large with `exclude`, or raise max_files / max_snapshot_bytes"
            }
            Error::StoreInUse { .. } => "delete its other sessions first, or keep it",
            Error::OverQuota { .. } => {
                "`ctrlz du` shows what takes room, `ctrlz gc` frees some; or raise max_store_bytes \
                 / max_total_bytes"
            }
            Error::NoSpace { .. } => "free some space and run the command again",
            Error::MassChange { .. } => "look at it with --dry-run, then pass --yes",
            Error::LostRef { .. } => "`ctrlz track` in that work tree finds its log again",
            Error::Damaged { .. } => {
                "other snapshots are not affected; `ctrlz doctor` checks the whole store"
            }
            Error::Moved { .. } | Error::StalePlan => "run the command again",
            Error::Interrupted { .. } | Error::RecoveryPending => {
                "run `ctrlz track`, which finishes it, and then the command again"
            }
            Error::NewerFormat { .. } => "update ctrlz",
            Error::NoSuchLog { .. } => "`ctrlz sessions` names those that came from elsewhere",
            Error::NoHistory { .. } => "name the path where the project was when it was recorded",
            Error::StillThere { .. } => {
                "to give a copy the same history, `ctrlz export` it here and `ctrlz import` it there"
            }
            Error::BadImport { .. } => "get the file again from where it was made",
            Error::BringsPurged { .. } => {
                "purge it there and `ctrlz push` again (here too, for this work tree's own log), or \
                 pass --allow-purged"
            }
            Error::Diverged { .. } => {
                "if this machine or its data directory was copied, `ctrlz push --as-new` goes on \
                 under a name of its own"
            }
            Error::NothingPulled => "name a snapshot; `ctrlz log` and `ctrlz sessions` list them",
            Error::Disabled { .. } => "set enabled = true in the configuration",
            Error::UntrustedStore { .. } => "choose another place with --data-dir",
            Error::RolledBack { cause } => return cause.hint(),
            Error::File(error) => return error.hint(),
            Error::HostileTree { .. } | Error::Bomb { .. } | Error::Cancelled => return None,
        };
        Some(text.to_owned())
    }

    /// A short, stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::File(_) => "file",
            Error::NotAHash(_) => "not_a_hash",
            Error::NotATreePath(_) => "not_a_tree_path",
            Error::UnknownSnapshot { .. } => "unknown_snapshot",
            Error::BeingImported { .. } => "being_imported",
            Error::Purged { .. } => "purged",
            Error::NothingToPurge { .. } => "nothing_to_purge",
            Error::NoSuchText => "nothing_to_purge",
            Error::UnknownOperation { .. } => "unknown_operation",
            Error::NoSuchStep { .. } => "no_such_step",
            Error::NoSuchMessage { .. } => "no_such_message",
            Error::NoSuchPart { .. } => "no_such_part",
            Error::NoSuchSession { .. } => "no_such_session",
            Error::NoSuchCheckpoint { .. } => "no_such_checkpoint",
            Error::NothingReverted { .. } => "nothing_reverted",
            Error::SessionBusy { .. } => "session_busy",
            Error::UnknownPlan { .. } => "unknown_plan",
            Error::NothingLost { .. } => "nothing_lost",
            Error::NotEmpty { .. } => "not_empty",
            Error::TooLong { .. } => "too_long",
            Error::InsideRepository { .. } => "inside_repository",
            Error::InsideWorkTree { .. } => "inside_work_tree",
            Error::SessionExists { .. } => "session_exists",
            Error::Binary { .. } => "binary",
            Error::NothingToUndo => "nothing_to_undo",
            Error::NotRecorded { .. } => "not_recorded",
            Error::SharedExpired { .. } => "shared_expired",
            Error::NothingToRedo => "nothing_to_redo",
            Error::NoCapturedRepository => "no_captured_repository",
            Error::NoHistory { .. } => "no_history",
            Error::NoSuchLog { .. } => "no_such_log",
            Error::StillThere { .. } => "still_there",
            Error::BadImport { .. } => "bad_import",
            Error::BringsPurged { .. } => "brings_purged",
            Error::Diverged { .. } => "diverged",
            Error::NothingPulled => "nothing_pulled",
            Error::NotASnapshot { .. } => "not_a_snapshot",
            Error::NoSuchFile { .. } => "no_such_file",
            Error::HostileTree { .. } => "hostile_tree",
            Error::Bomb { .. } => "bomb",
            Error::Damaged { .. } => "damaged",
            Error::LostRef { .. } => "lost_ref",
            Error::Busy { .. } => "busy",
            Error::DangerousRoot { .. } => "dangerous_root",
            Error::NotGit { .. } => "not_git",
            Error::Disabled { .. } => "disabled",
            Error::NewerFormat { .. } => "newer_format",
            Error::UntrustedStore { .. } => "untrusted_store",
            Error::OverBudget { .. } => "over_budget",
            Error::OverQuota { .. } => "over_quota",
            Error::StoreInUse { .. } => "store_in_use",
            Error::NoSpace { .. } => "no_space",
            Error::MassChange { .. } => "mass_change",
            Error::Moved { .. } => "moved",
            Error::RolledBack { .. } => "rolled_back",
            Error::Interrupted { .. } => "interrupted",
            Error::StalePlan => "stale_plan",
            Error::RecoveryPending => "recovery_pending",
            Error::Cancelled => "cancelled",
        }
    }
}
