//! The log and the history of files, as JSON.

use ctrlz::{ChangeStatus, Error, TimelineQuery, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::session::{Boundary, Forked, Gap, StepInfo, Uncaptured};
use crate::snapshot::{Skipped, is_complete};
use crate::wire::{Wire, wire};

/// Part of the log of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Log {
    /// The operations, newest first.
    pub operations: Vec<LogEntry>,
    /// Cursor to pass as `before` for the next page; `null` on the last page.
    pub next: Option<String>,
}

impl Log {
    /// Reads one page of the log. Fails if the query names an unknown operation or session.
    pub fn read(workspace: &Workspace, query: &TimelineQuery) -> Result<Log, Error> {
        let limit = query.limit;
        // One extra entry shows whether there is another page.
        let query = TimelineQuery { limit: limit.saturating_add(1), ..query.clone() };
        let mut entries = workspace.timeline(&query)?;
        if entries.is_empty() {
            check_query(workspace, &query)?;
        }
        let more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().map(|entry| entry.operation.clone());
        let operations = entries.iter().map(LogEntry::from).collect();
        Ok(Log { operations, next: last.filter(|_| more) })
    }
}

fn check_query(workspace: &Workspace, query: &TimelineQuery) -> Result<(), Error> {
    if let Some(before) = &query.before {
        return workspace.find_operation(before, 0).map(drop);
    }
    match &query.session {
        Some(session) => Err(Error::no_such_session(session)),
        None => Ok(()),
    }
}

/// Returns the number of files that an operation changed, or `None` if that is not known.
fn changed_files(entry: &ctrlz::TimelineEntry) -> Option<u64> {
    let is_known = entry.before.is_some() && !entry.damaged;
    is_known.then(|| (entry.files.len() + entry.more_files) as u64)
}

/// Returns the sum of `lines` over the files of an operation, or `None` unless all of its files
/// were counted.
fn counted_lines(
    entry: &ctrlz::TimelineEntry,
    lines: fn(&ctrlz::TimelineFile) -> usize,
) -> Option<u64> {
    let is_counted = entry.before.is_some() && entry.more_files == 0 && !entry.damaged;
    is_counted.then(|| entry.files.iter().map(lines).sum::<usize>() as u64)
}

wire! {
    /// One operation of the log.
    pub struct LogEntry from ctrlz::TimelineEntry {
        /// Id of the operation.
        pub operation: String,
        /// Kind of the operation: `baseline`, `step`, `outside`, `restore`, `revert`, `unrevert`,
        /// `undo`, `redo`, `checkpoint`, `fork`, or a newer one that is not in this list.
        pub kind: String,
        /// Time of the operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// Snapshot before the operation; `null` for the oldest operation that is kept.
        pub before: Option<Hash>,
        /// Snapshot after the operation.
        pub after: Hash = |entry| entry.snapshot.wire(),
        /// Human-readable label.
        pub label: Option<String>,
        /// Session of the operation, if no step names it.
        pub session: Option<String>,
        /// Steps whose changes the operation holds.
        pub steps: Vec<LoggedStep>,
        /// Paths that are attributed to several steps.
        pub shared: Vec<WirePath>,
        /// Paths that changed while a step was open and that belong to no step. An undo leaves them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub outside: Vec<WirePath>,
        /// Steps that the operation undid or, for a redo, restored.
        pub subjects: Vec<String> = |entry| entry.undone.clone(),
        /// The undo or revert that the operation reversed.
        pub takes_back: Option<String>,
        /// Whether the operation itself was undone.
        pub taken_back: bool,
        /// Boundary to which a session was reverted.
        pub boundary: Option<Boundary>,
        /// The revert that the operation made final.
        pub commits: Option<String>,
        /// Origin of a fork.
        pub forked: Option<Forked>,
        /// Whether retention never removes the operation.
        pub pinned: bool,
        /// HEAD of the user's git repository at that time.
        pub head: Option<Head>,
        /// Number of changed files; `null` for the oldest operation that is kept, or if its snapshots
        /// cannot be read.
        pub files: Option<u64> = changed_files,
        /// Number of added lines; `null` unless all changed files were counted.
        pub additions: Option<u64> = |entry| counted_lines(entry, |file| file.additions),
        /// Number of removed lines; `null` in the same cases as `additions`.
        pub deletions: Option<u64> = |entry| counted_lines(entry, |file| file.deletions),
        /// The changed files, up to the requested number.
        pub changes: Vec<LoggedFile> = |entry| entry.files.wire(),
        /// Whether the snapshots of the operation cannot be read.
        pub damaged: bool,
        /// The gap, if the changes were not recorded when they happened because agents worked while the
        /// disk was full.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub gap: Option<Gap>,
    }

    /// A step in the log.
    pub struct LoggedStep from ctrlz::TimelineStep {
        /// The step.
        #[serde(flatten)]
        pub info: StepInfo,
        /// Whether the step was closed automatically because its agent did not end it.
        pub inferred: bool,
        /// Whether the step is currently undone.
        pub undone: bool,
        /// Paths that no snapshot holds and that the step created, removed or changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub uncaptured: Vec<Uncaptured>,
    }

    /// A changed file in the log.
    pub struct LoggedFile from ctrlz::TimelineFile {
        /// The path, relative to the work tree.
        pub path: WirePath,
        /// Kind of the change.
        pub status: ChangeStatus,
        /// Number of added lines; 0 for binary files.
        pub additions: u64,
        /// Number of removed lines; 0 for binary files.
        pub deletions: u64,
    }

    /// HEAD of the user's git repository.
    pub struct Head from ctrlz::Head {
        /// Name of the branch; `null` if HEAD is detached.
        pub branch: Option<String>,
        /// Id of the commit; `null` if there is none yet.
        pub commit: Option<String>,
    }
}

/// Files that disappeared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lost {
    /// The files, the last loss first.
    pub lost: Vec<LostFile>,
    /// Number of files in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
    /// Paths that no snapshot holds and that steps removed or changed, the last loss first. They
    /// cannot be restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<LostUncaptured>,
}

wire! {
    /// A path that no snapshot holds and that a step removed or changed.
    pub struct LostUncaptured from ctrlz::LostUncaptured {
        /// The path that was lost.
        #[serde(flatten)]
        pub uncaptured: Uncaptured,
        /// The operation that recorded the loss.
        pub operation: String,
        /// Time of that operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// The step that caused the loss.
        pub step: StepInfo,
    }

    /// A file that an older snapshot has and the newest one does not.
    pub struct LostFile from ctrlz::LostFile {
        /// The path, relative to the work tree.
        pub path: WirePath,
        /// The last snapshot that has it.
        pub snapshot: Hash,
        /// The operation that recorded the loss.
        pub operation: String,
        /// Kind of that operation; see `kind` of the log.
        pub kind: String,
        /// Time of that operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// The step that removed the file; `null` if it was not a step.
        pub step: Option<StepInfo>,
    }
}

/// The versions of a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Versions {
    /// The file.
    pub path: WirePath,
    /// Its versions, newest first.
    pub versions: Vec<Version>,
    /// Number of versions in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

wire! {
    /// A version of a file.
    pub struct Version from ctrlz::Version {
        /// Id of the content; `null` if the file was deleted.
        pub content: Option<Hash>,
        /// The first snapshot that has this version.
        pub snapshot: Hash,
        /// The operation that recorded this version.
        pub operation: String,
        /// Kind of that operation; see `kind` of the log.
        pub kind: String,
        /// Time of that operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// The step that made this version; `null` if it was not a step.
        pub step: Option<StepInfo>,
    }
}

/// The origin of each line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Blame {
    /// The file.
    pub path: WirePath,
    /// Lines of the file in the newest snapshot.
    pub lines: Vec<BlameLine>,
    /// Number of lines in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

wire! {
    /// A line and its origin.
    pub struct BlameLine from ctrlz::BlameLine {
        /// The line without its terminator. Bytes that are not UTF-8 are replaced.
        pub text: String,
        /// Origin of the line.
        pub origin: Origin,
    }

    /// The operation that added a line to a file, or the oldest operation that is kept and has the
    /// line.
    pub struct Origin from ctrlz::Origin {
        /// Id of the operation.
        pub operation: String,
        /// Kind of the operation; see `kind` of the log. `expired` if the operation that added the line
        /// is no longer kept.
        pub kind: String = |origin| if origin.expired { "expired".to_owned() } else { origin.kind.wire() },
        /// Time of the operation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// The step; `null` if it was not a step.
        pub step: Option<StepInfo>,
        /// Path of the file at that time.
        pub path: WirePath,
        /// The gap during which the line was written, if nothing could be recorded then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub gap: Option<Gap>,
    }
}

/// The checkpoints of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Checkpoints {
    /// The checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
}

wire! {
    /// A named snapshot.
    pub struct Checkpoint from ctrlz::Checkpoint {
        /// Name of the ref in the store.
        pub name: String,
        /// Label given by the user.
        pub label: Option<String>,
        /// Whether pruning and retention never remove the checkpoint.
        pub pinned: bool,
        /// Session of the checkpoint.
        pub session: Option<String>,
        /// The snapshot.
        pub snapshot: Hash,
        /// The operation.
        pub operation: String,
        /// Time of creation, in milliseconds since the Unix epoch.
        pub at_millis: u64,
    }

    /// A checkpoint that was just created.
    pub struct CheckpointMade from ctrlz::Checkpoint {
        /// The checkpoint.
        #[serde(flatten)]
        pub checkpoint: Checkpoint = |checkpoint| checkpoint.wire(),
        /// Whether nothing is missing because of a failure.
        pub complete: bool = |checkpoint| is_complete(&checkpoint.skipped),
        /// Paths that the snapshot does not hold, with the reasons.
        pub skipped: Vec<Skipped>,
    }
}
