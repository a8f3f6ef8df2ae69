//! Errors of the engine, classified by who can resolve them.

use std::path::PathBuf;

use crate::fs::FileError;
use crate::git::{NotAHash, ObjectId, TreeProblem};
use crate::path::{NotATreePath, TreePath, escape};

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
        /// Requested hash.
        id: ObjectId,
    },
    /// A store that came with the project is being imported, and the snapshot may be in it.
    #[error("snapshot {id} is not here yet; the earlier store is being imported")]
    BeingImported {
        /// Requested hash.
        id: ObjectId,
    },
    /// Content was purged from the snapshot, so it has another hash now.
    #[error("snapshot {id} was purged; what is left of it is {replacement}")]
    Purged {
        /// Requested hash.
        id: ObjectId,
        /// Snapshot without the purged content.
        replacement: ObjectId,
    },
    /// No snapshot has this path.
    #[error("no snapshot has {path}")]
    NothingToPurge {
        /// Requested path.
        path: TreePath,
    },
    /// No label of a step or checkpoint contains this text. The error does not repeat the text.
    #[error("no label of a step or checkpoint has this text")]
    NoSuchText,
    /// The work tree's log has no such operation.
    #[error("no operation {id} in this work tree's log")]
    UnknownOperation {
        /// Requested id.
        id: String,
    },
    /// No such step is open or recorded.
    #[error("no step {step:?}")]
    NoSuchStep {
        /// Requested id.
        step: String,
    },
    /// No recorded step belongs to this message.
    #[error("no step of a message {message:?}")]
    NoSuchMessage {
        /// Requested id.
        message: String,
    },
    /// No recorded step belongs to this part of the message.
    #[error("message {message:?} has no step of a part {part:?}")]
    NoSuchPart {
        /// Id of the message.
        message: String,
        /// Requested part.
        part: String,
    },
    /// The session is not reverted, or the revert has become final.
    #[error("session {session:?} has no revert to take back")]
    NothingReverted {
        /// Id of the session.
        session: String,
    },
    /// The session has an open step.
    #[error("session {session:?} is busy: {holder} is at step {step}")]
    SessionBusy {
        /// Id of the session.
        session: String,
        /// Id of the open step.
        step: String,
        /// Process that runs the step.
        holder: String,
    },
    /// No such session is recorded.
    #[error("no session {session:?}")]
    NoSuchSession {
        /// Requested id.
        session: String,
    },
    /// The id for a new session is already in use.
    #[error("there is a session {session:?} already")]
    SessionExists {
        /// Requested id.
        session: String,
    },
    /// No such plan was made, or it has expired.
    #[error("no plan {id}")]
    UnknownPlan {
        /// Requested hash.
        id: ObjectId,
    },
    /// No such checkpoint.
    #[error("no checkpoint {name:?}")]
    NoSuchCheckpoint {
        /// Requested name.
        name: String,
    },
    /// The path is not lost: no snapshot has a file there that is missing now.
    #[error("{path} is not lost: no snapshot has a file there that is missing now")]
    NothingLost {
        /// Requested path.
        path: TreePath,
    },
    /// The file is binary, so it has no lines.
    #[error("{path} is binary")]
    Binary {
        /// The file.
        path: TreePath,
    },
    /// The target directory is not empty.
    #[error("{} is not empty", shown(path))]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// An id or a name is too long to be stored with every operation.
    #[error("{what} has more than {max} bytes")]
    TooLong {
        /// Name of the value that is too long.
        what: &'static str,
        /// Upper bound in bytes.
        max: usize,
    },
    /// The destination is inside the directory of a version control system.
    #[error("{} lies inside a repository's own directory", shown(path))]
    InsideRepository {
        /// Requested destination.
        path: PathBuf,
    },
    /// A directory that must be a separate work tree is inside this one.
    #[error("{} lies inside the work tree", shown(path))]
    InsideWorkTree {
        /// The directory.
        path: PathBuf,
    },
    /// The store has no such log.
    #[error("no log {log:?} in this store")]
    NoSuchLog {
        /// Requested name.
        log: String,
    },
    /// Nothing was ever recorded at this path.
    #[error("nothing was recorded at {}", shown(path))]
    NoHistory {
        /// The path.
        path: PathBuf,
    },
    /// The directory that owns the history still exists.
    #[error("{} is still there, and its history stays with it", shown(path))]
    StillThere {
        /// The directory.
        path: PathBuf,
    },
    /// An import file, or data from a server, is invalid.
    #[error("{} cannot be imported: {why}; nothing was changed", shown(path))]
    BadImport {
        /// Import file, or address of the server.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// An import file, or data from a server, contains content that was purged here.
    #[error("{} brings purged content back{}; nothing was changed", shown(path), named(paths))]
    BringsPurged {
        /// Import file, or address of the server.
        path: PathBuf,
        /// Paths of the content there, one per content.
        paths: Vec<TreePath>,
    },
    /// The local and the remote log of the same name both have operations that the other lacks.
    #[error("the log {log} here and there have parted; neither was changed")]
    Diverged {
        /// Name of the log.
        log: String,
    },
    /// No pulled or imported history can be restored.
    #[error("nothing was pulled or imported that could be restored without naming it")]
    NothingPulled,
    /// Everything is undone already, or nothing was recorded.
    #[error("nothing to undo")]
    NothingToUndo,
    /// A fork has no operations of its own to undo, and the shared ones have expired.
    #[error("what is shared with session {session:?} has expired and cannot be undone")]
    SharedExpired {
        /// Session that was forked.
        session: String,
    },
    /// The only work left to undo was not recorded as steps.
    #[error("the last turn was not recorded ({why}), so it cannot be undone by turn or step")]
    NotRecorded {
        /// Id of the operation before that work.
        before: String,
        /// Reason why it was not recorded.
        why: String,
    },
    /// There is no undo left to redo.
    #[error("nothing to redo")]
    NothingToRedo,
    /// No step changed or destroyed a version control directory that it named.
    #[error("no captured repository")]
    NoCapturedRepository,
    /// The hash names something that is not a tree.
    #[error("{id} is a {kind}, not a snapshot")]
    NotASnapshot {
        /// Requested hash.
        id: ObjectId,
        /// Kind of the object.
        kind: &'static str,
    },
    /// The snapshot has no such file.
    #[error("snapshot {id} has no {path}")]
    NoSuchFile {
        /// The snapshot.
        id: ObjectId,
        /// Requested path.
        path: TreePath,
    },
    /// A tree in the store is malformed or hostile.
    #[error("tree {id} cannot be used: {why}")]
    HostileTree {
        /// The tree.
        id: ObjectId,
        /// Description of the fault.
        why: TreeProblem,
    },
    /// A snapshot expands to more than any real work tree contains.
    #[error("snapshot {id} has more than {limit} {what}")]
    Bomb {
        /// The snapshot.
        id: ObjectId,
        /// Limit that was exceeded.
        limit: u64,
        /// Unit of the limit.
        what: &'static str,
    },
    /// An object is missing, or its content does not match its hash.
    #[error("object {id} is damaged: {why}")]
    Damaged {
        /// The object.
        id: ObjectId,
        /// Description of the damage.
        why: String,
    },
    /// A log's ref is missing or unreadable, so garbage cannot be determined.
    #[error("{} is missing or cannot be read", shown(path))]
    LostRef {
        /// The ref.
        path: PathBuf,
    },
    /// Another process holds the lock.
    #[error("{} is busy: {holder} has held it for {waited_seconds} s", shown(path))]
    Busy {
        /// Path of the lock file.
        path: PathBuf,
        /// Holder of the lock, as recorded in the lock file.
        holder: String,
        /// Time spent waiting for the lock, in seconds.
        waited_seconds: u64,
    },
    /// A directory that is too dangerous to track.
    #[error("refusing to protect {}: {why}", shown(path))]
    DangerousRoot {
        /// The directory.
        path: PathBuf,
        /// Reason for the refusal.
        why: &'static str,
    },
    /// `require_git` is set and the directory is not in a git repository.
    #[error("{} is not in a git repository, and require_git is on", shown(path))]
    NotGit {
        /// The directory.
        path: PathBuf,
    },
    /// Snapshots are disabled by the configuration.
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
        /// Format of the store.
        found: u32,
        /// Newest format that this version supports.
        known: u32,
    },
    /// The path of the store belongs to another user, is not a directory, or cannot be used safely.
    #[error("the store at {} cannot be trusted: {why}", shown(path))]
    UntrustedStore {
        /// The store.
        path: PathBuf,
        /// Reason for distrusting it.
        why: &'static str,
    },
    /// The store cannot be removed because it is still needed.
    #[error("the store at {} is needed by {by}", shown(path))]
    StoreInUse {
        /// The store.
        path: PathBuf,
        /// Work tree or session that needs it.
        by: String,
    },
    /// The snapshot would exceed a size limit.
    #[error("the snapshot would hold {found} {what}, more than {limit}{}", largest_text(largest))]
    OverBudget {
        /// Unit of the limit: `files` or `bytes`.
        what: &'static str,
        /// Lower bound on the actual number.
        found: u64,
        /// The limit.
        limit: u64,
        /// Largest paths and their sizes.
        largest: Vec<(Vec<u8>, u64)>,
    },
    /// The store's quota is exhausted: not even the list of files fits.
    #[error("{} has used up its quota, {} %", shown(path), used.percent())]
    OverQuota {
        /// The store.
        path: PathBuf,
        /// Current use of the quota.
        used: Box<crate::QuotaUse>,
    },
    /// The disk does not have enough free space.
    #[error("{} has {free_bytes} bytes free, and {needed_bytes} are needed", shown(path))]
    NoSpace {
        /// Path on that disk.
        path: PathBuf,
        /// Number of bytes needed.
        needed_bytes: u64,
        /// Number of bytes free.
        free_bytes: u64,
    },
    /// The restore would remove an unusually large share of the work tree.
    #[error("this would remove {removed} of {files} files")]
    MassChange {
        /// Number of files to remove.
        removed: u64,
        /// Number of files in the work tree.
        files: u64,
    },
    /// A file changed between planning and writing; everything was rolled back.
    #[error("{path} changed meanwhile; nothing was restored")]
    Moved {
        /// The file.
        path: TreePath,
    },
    /// Writing failed; everything was rolled back.
    #[error("nothing was restored, everything is as it was")]
    RolledBack {
        /// Cause of the failure.
        #[source]
        cause: Box<Error>,
    },
    /// Writing failed, and so did the rollback. The next command tries again.
    #[error("the restore stopped half-way and will be finished by the next command")]
    Interrupted {
        /// Cause of the failure.
        #[source]
        cause: Box<Error>,
    },
    /// An interrupted restore must be finished first, and making a plan must not do that.
    #[error("a restore was cut off and has to be finished before anything is planned")]
    RecoveryPending,
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// The plan was made for a different state.
    #[error("the files moved since the plan was made; make a new one")]
    StalePlan,
}

/// Returns a path escaped for printing.
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

/// Returns the first few paths after a colon, or an empty string.
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
    /// Returns the classification of the error.
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

    /// Returns a description of what is full, if recording failed because a disk or quota is full.
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

    /// Returns advice on what the user can do next, if there is any.
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

    /// Returns a short, stable name for programs.
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
