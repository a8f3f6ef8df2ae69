//! What happened, and to which file, as JSON.

use ctrlz::{Error, TimelineQuery, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::session::{Boundary, Forked, Gap, StepInfo, Uncaptured};
use crate::snapshot::{ChangeStatus, Skipped, all_skipped, is_complete, tag};

/// What happened in a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Log {
    /// The operations, newest first.
    pub operations: Vec<LogEntry>,
    /// What to give as `before` to go on from here; `null` at the end.
    pub next: Option<String>,
}

impl Log {
    /// Part of a log, and whether there is more.
    pub fn read(workspace: &Workspace, query: &TimelineQuery) -> Result<Log, Error> {
        let LogPage { entries, next } = LogPage::read(workspace, query)?;
        Ok(Log { operations: entries.iter().map(LogEntry::from).collect(), next })
    }
}

/// Part of a log as the engine has it.
pub struct LogPage {
    /// The operations, newest first.
    pub entries: Vec<ctrlz::TimelineEntry>,
    /// The last of them, if there are older ones.
    pub next: Option<String>,
}

impl LogPage {
    /// Reads what was asked for. An unknown operation or session is a failure.
    pub fn read(workspace: &Workspace, query: &TimelineQuery) -> Result<LogPage, Error> {
        let limit = query.limit;
        // One more than is asked for tells whether there is more.
        let query = TimelineQuery { limit: limit.saturating_add(1), ..query.clone() };
        let mut entries = workspace.timeline(&query)?;
        if entries.is_empty() {
            check_query(workspace, &query)?;
        }
        let more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().map(|entry| entry.operation.clone());
        Ok(LogPage { entries, next: last.filter(|_| more) })
    }
}

fn check_query(workspace: &Workspace, query: &TimelineQuery) -> Result<(), Error> {
    if let Some(before) = &query.before {
        return workspace.find_operation(before, 0).map(drop);
    }
    match &query.session {
        Some(session) => Err(Error::NoSuchSession { session: session.clone() }),
        None => Ok(()),
    }
}

/// One operation of the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LogEntry {
    /// The operation's own id.
    pub operation: String,
    /// What happened: `baseline`, `step`, `outside`, `restore`, `revert`, `unrevert`, `undo`,
    /// `redo`, `checkpoint`, `fork`, or one that is newer than this list.
    pub kind: String,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot before it; `null` for the oldest one that is kept.
    pub before: Option<Hash>,
    /// The snapshot after it.
    pub after: Hash,
    /// A name for people.
    pub label: Option<String>,
    /// The session it belongs to, where no step says so.
    pub session: Option<String>,
    /// The steps whose changes it holds.
    pub steps: Vec<LoggedStep>,
    /// Paths of several steps at once.
    pub shared: Vec<WirePath>,
    /// Steps that it took back or, for a redo, brought back.
    pub subjects: Vec<String>,
    /// The undo or revert that it took back.
    pub takes_back: Option<String>,
    /// Whether it was itself taken back.
    pub taken_back: bool,
    /// What a session was taken back to.
    pub boundary: Option<Boundary>,
    /// The revert that it made final.
    pub commits: Option<String>,
    /// Where a fork comes from.
    pub forked: Option<Forked>,
    /// Never removed by retention.
    pub pinned: bool,
    /// Where the user's own git stood.
    pub head: Option<Head>,
    /// How many files it changed; `null` for the oldest one that is kept, or if its snapshots cannot be read.
    pub files: Option<u64>,
    /// Lines it added; `null` unless all of its files were counted.
    pub additions: Option<u64>,
    /// Lines it removed, like `additions`.
    pub deletions: Option<u64>,
    /// The first of the files it changed.
    pub changes: Vec<LoggedFile>,
    /// Its snapshots cannot be read.
    pub damaged: bool,
    /// What it changed was not recorded when it happened: agents worked while the disk was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

/// A step in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoggedStep {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
    pub undone: bool,
    /// Paths that no snapshot holds and that it removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
}

impl From<&ctrlz::TimelineStep> for LoggedStep {
    fn from(step: &ctrlz::TimelineStep) -> LoggedStep {
        LoggedStep {
            info: (&step.info).into(),
            inferred: step.inferred,
            undone: step.undone,
            uncaptured: step.uncaptured.iter().map(Uncaptured::from).collect(),
        }
    }
}

/// A file in the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoggedFile {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// How it differs.
    pub status: ChangeStatus,
    /// Lines added; 0 for binary files.
    pub additions: u64,
    /// Lines removed; 0 for binary files.
    pub deletions: u64,
}

impl From<&ctrlz::TimelineFile> for LoggedFile {
    fn from(file: &ctrlz::TimelineFile) -> LoggedFile {
        LoggedFile {
            path: (&file.path).into(),
            status: file.status.into(),
            additions: file.additions as u64,
            deletions: file.deletions as u64,
        }
    }
}

/// Where the user's git stands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Head {
    /// The branch, unless HEAD is detached.
    pub branch: Option<String>,
    /// The commit, unless there is none yet.
    pub commit: Option<String>,
}

impl From<&ctrlz::Head> for Head {
    fn from(head: &ctrlz::Head) -> Head {
        Head { branch: head.branch.clone(), commit: head.commit.clone() }
    }
}

/// Lines that an operation added and removed, if all of its files were counted.
pub fn counted_lines(entry: &ctrlz::TimelineEntry) -> Option<(usize, usize)> {
    let is_counted = entry.before.is_some() && entry.more_files == 0 && !entry.damaged;
    let sum = |of: fn(&ctrlz::TimelineFile) -> usize| entry.files.iter().map(of).sum();
    is_counted.then(|| (sum(|file| file.additions), sum(|file| file.deletions)))
}

impl From<&ctrlz::TimelineEntry> for LogEntry {
    fn from(entry: &ctrlz::TimelineEntry) -> LogEntry {
        let is_known = entry.before.is_some() && !entry.damaged;
        let lines = counted_lines(entry);
        LogEntry {
            operation: entry.operation.clone(),
            kind: tag(&entry.kind, "kind"),
            at_millis: entry.at_millis,
            before: entry.before.map(Hash::from),
            after: entry.snapshot.into(),
            label: entry.label.clone(),
            session: entry.session.clone(),
            steps: entry.steps.iter().map(LoggedStep::from).collect(),
            shared: entry.shared.iter().map(WirePath::from).collect(),
            subjects: entry.undone.clone(),
            takes_back: entry.takes_back.clone(),
            taken_back: entry.taken_back,
            boundary: entry.boundary.as_ref().map(Boundary::from),
            commits: entry.commits.clone(),
            forked: entry.forked.as_ref().map(Forked::from),
            pinned: entry.pinned,
            head: entry.head.as_ref().map(Head::from),
            files: is_known.then(|| (entry.files.len() + entry.more_files) as u64),
            additions: lines.map(|(additions, _)| additions as u64),
            deletions: lines.map(|(_, deletions)| deletions as u64),
            changes: entry.files.iter().map(LoggedFile::from).collect(),
            damaged: entry.damaged,
            gap: entry.gap.as_ref().map(Gap::from),
        }
    }
}

/// Files that disappeared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lost {
    /// The files, the last lost first.
    pub lost: Vec<LostFile>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
    /// Paths that no snapshot holds and that steps removed or changed, the last loss first. None of it
    /// can be brought back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<LostUncaptured>,
}

/// Something that a step removed or changed and that no snapshot holds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LostUncaptured {
    /// The path that was lost.
    #[serde(flatten)]
    pub uncaptured: Uncaptured,
    /// The operation that recorded the loss.
    pub operation: String,
    /// When that was, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step.
    pub step: StepInfo,
}

impl From<&ctrlz::LostUncaptured> for LostUncaptured {
    fn from(lost: &ctrlz::LostUncaptured) -> LostUncaptured {
        LostUncaptured {
            uncaptured: (&lost.uncaptured).into(),
            operation: lost.operation.clone(),
            at_millis: lost.at_millis,
            step: (&lost.step).into(),
        }
    }
}

/// A file that some snapshot has and the newest one has not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LostFile {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The last snapshot that has it.
    pub snapshot: Hash,
    /// The operation after which it was gone.
    pub operation: String,
    /// What happened then; see `kind` of the log.
    pub kind: String,
    /// When that was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step that removed it, if it was one.
    pub step: Option<StepInfo>,
}

impl From<&ctrlz::LostFile> for LostFile {
    fn from(lost: &ctrlz::LostFile) -> LostFile {
        LostFile {
            path: (&lost.path).into(),
            snapshot: lost.snapshot.into(),
            operation: lost.operation.clone(),
            kind: tag(&lost.kind, "kind"),
            at_millis: lost.at_millis,
            step: lost.step.as_ref().map(StepInfo::from),
        }
    }
}

/// The versions of a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Versions {
    /// The file.
    pub path: WirePath,
    /// Its versions, newest first.
    pub versions: Vec<Version>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Version {
    /// The id of its content; `null` where the file was deleted.
    pub content: Option<Hash>,
    /// The snapshot that has it first.
    pub snapshot: Hash,
    /// The operation that recorded it.
    pub operation: String,
    /// What happened then; see `kind` of the log.
    pub kind: String,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step that made it, if it was one.
    pub step: Option<StepInfo>,
}

impl From<&ctrlz::Version> for Version {
    fn from(version: &ctrlz::Version) -> Version {
        Version {
            content: version.content.map(Hash::from),
            snapshot: version.snapshot.into(),
            operation: version.operation.clone(),
            kind: tag(&version.kind, "kind"),
            at_millis: version.at_millis,
            step: version.step.as_ref().map(StepInfo::from),
        }
    }
}

/// Which operation wrote which line.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Blame {
    /// The file.
    pub path: WirePath,
    /// Its lines, as the newest snapshot has them.
    pub lines: Vec<BlameLine>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// A line and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BlameLine {
    /// The line, without its end; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Who wrote it.
    pub origin: Origin,
}

impl From<&ctrlz::BlameLine> for BlameLine {
    fn from(line: &ctrlz::BlameLine) -> BlameLine {
        BlameLine { text: line.text.clone(), origin: (&line.origin).into() }
    }
}

/// The operation that brought a line into a file, or the oldest one that is kept and has it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Origin {
    /// The operation.
    pub operation: String,
    /// The kind of the operation; see `kind` of the log. `expired` if the line is older than that: the operation
    /// that brought it is not kept any more.
    pub kind: String,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The step, if it was one.
    pub step: Option<StepInfo>,
    /// The name the file had then.
    pub path: WirePath,
    /// The line was written while nothing could be recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

impl From<&ctrlz::Origin> for Origin {
    fn from(origin: &ctrlz::Origin) -> Origin {
        Origin {
            operation: origin.operation.clone(),
            kind: match origin.expired {
                true => "expired".into(),
                false => tag(&origin.kind, "kind"),
            },
            at_millis: origin.at_millis,
            step: origin.step.as_ref().map(StepInfo::from),
            path: (&origin.path).into(),
            gap: origin.gap.as_ref().map(Gap::from),
        }
    }
}

/// The named states of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Checkpoints {
    /// The checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
}

/// A named state.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Checkpoint {
    /// The ref that names it in the store.
    pub name: String,
    /// What somebody called it.
    pub label: Option<String>,
    /// Never removed by pruning or retention.
    pub pinned: bool,
    /// The session it belongs to.
    pub session: Option<String>,
    /// The snapshot.
    pub snapshot: Hash,
    /// The operation.
    pub operation: String,
    /// When it was made, in milliseconds since 1970.
    pub at_millis: u64,
}

impl From<&ctrlz::Checkpoint> for Checkpoint {
    fn from(checkpoint: &ctrlz::Checkpoint) -> Checkpoint {
        Checkpoint {
            name: checkpoint.name.clone(),
            label: checkpoint.label.clone(),
            pinned: checkpoint.pinned,
            session: checkpoint.session.clone(),
            snapshot: checkpoint.snapshot.into(),
            operation: checkpoint.operation.clone(),
            at_millis: checkpoint.at_millis,
        }
    }
}

/// A named state that was just recorded.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckpointMade {
    /// The checkpoint.
    #[serde(flatten)]
    pub checkpoint: Checkpoint,
    /// Whether everything that should be in it is.
    pub complete: bool,
    /// What it does not hold, and why.
    pub skipped: Vec<Skipped>,
}

impl From<&ctrlz::Checkpoint> for CheckpointMade {
    fn from(checkpoint: &ctrlz::Checkpoint) -> CheckpointMade {
        CheckpointMade {
            checkpoint: checkpoint.into(),
            complete: is_complete(&checkpoint.skipped),
            skipped: all_skipped(&checkpoint.skipped),
        }
    }
}
