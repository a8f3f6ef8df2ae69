//! Steps, sessions and the log, as JSON.

use std::collections::{HashMap, HashSet};

use ctrlz::{Error, ObjectId, Operation, Workspace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::snapshot::{Skipped, all_skipped, is_complete, tag};

/// What is known of a step: one tool call, or one turn.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepInfo {
    /// The step's own id.
    pub step: String,
    /// The session it belongs to.
    pub session: String,
    /// The message (turn) it belongs to.
    pub message: Option<String>,
    /// The part of the message.
    pub part: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// What it is about, for people.
    pub label: Option<String>,
    /// The agent.
    pub who: Option<String>,
}

impl From<&ctrlz::StepInfo> for StepInfo {
    fn from(info: &ctrlz::StepInfo) -> StepInfo {
        let ctrlz::StepInfo { step, session, message, part, tool, label, who } = info.clone();
        StepInfo { step, session, message, part, tool, label, who }
    }
}

/// A step that began.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepBegun {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: Hash,
    /// Whether that snapshot holds everything it should.
    pub complete: bool,
    /// What that snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

impl From<&ctrlz::StepBegun> for StepBegun {
    fn from(begun: &ctrlz::StepBegun) -> StepBegun {
        StepBegun {
            step: begun.step.clone(),
            before: begun.before.into(),
            complete: is_complete(&begun.skipped),
            skipped: all_skipped(&begun.skipped),
        }
    }
}

/// A step that ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepEnded {
    /// The step's id.
    pub step: String,
    /// The snapshot before it.
    pub before: Hash,
    /// The snapshot after it.
    pub after: Hash,
    /// The paths that changed in between, whoever changed them.
    pub files: Vec<WirePath>,
    /// Whether the later snapshot holds everything it should.
    pub complete: bool,
    /// What the later snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

impl From<&ctrlz::StepEnded> for StepEnded {
    fn from(ended: &ctrlz::StepEnded) -> StepEnded {
        StepEnded {
            step: ended.step.clone(),
            before: ended.before.into(),
            after: ended.after.into(),
            files: ended.files.iter().map(WirePath::from).collect(),
            complete: is_complete(&ended.skipped),
            skipped: all_skipped(&ended.skipped),
        }
    }
}

/// The steps of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Steps {
    /// The steps, oldest first. One that was recorded in several pieces is there several times.
    pub steps: Vec<StepRecord>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// What one step changed in one operation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepRecord {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// The operation.
    pub operation: String,
    /// When it was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot before.
    pub before: Hash,
    /// The snapshot after.
    pub after: Hash,
    /// Its paths; `null` for all that differ.
    pub paths: Option<Vec<WirePath>>,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
    pub undone: bool,
}

impl From<&ctrlz::StepRecord> for StepRecord {
    fn from(record: &ctrlz::StepRecord) -> StepRecord {
        let paths = record.paths.as_ref();
        StepRecord {
            info: (&record.info).into(),
            operation: record.operation.clone(),
            at_millis: record.at_millis,
            before: record.before.into(),
            after: record.after.into(),
            paths: paths.map(|paths| paths.iter().map(WirePath::from).collect()),
            inferred: record.inferred,
            undone: record.undone,
        }
    }
}

/// The sessions of a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sessions {
    /// The sessions, the last active one first.
    pub sessions: Vec<SessionInfo>,
}

impl Sessions {
    /// The sessions as the engine has them.
    pub fn of(workspace: &Workspace) -> Result<Sessions, Error> {
        let sessions = workspace.sessions()?;
        Ok(Sessions { sessions: sessions.iter().rev().map(SessionInfo::from).collect() })
    }
}

/// One session as the log has it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionInfo {
    /// The session's id.
    pub session: String,
    /// The agent, if it said so.
    pub who: Option<String>,
    /// Steps that changed something.
    pub steps: u64,
    /// Steps that are taken back at present.
    pub undone: u64,
    /// When its first change was recorded, in milliseconds since 1970.
    pub first_at_millis: u64,
    /// When its last change was recorded.
    pub last_at_millis: u64,
}

impl From<&ctrlz::SessionInfo> for SessionInfo {
    fn from(info: &ctrlz::SessionInfo) -> SessionInfo {
        SessionInfo {
            session: info.session.clone(),
            who: info.who.clone(),
            steps: info.steps as u64,
            undone: info.undone as u64,
            first_at_millis: info.first_at_millis,
            last_at_millis: info.last_at_millis,
        }
    }
}

/// What happened in a work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Log {
    /// The operations, newest first.
    pub operations: Vec<LogEntry>,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// One operation of the log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LogEntry {
    /// The operation's own id.
    pub operation: String,
    /// What happened: `baseline`, `step`, `outside`, `restore`, `revert`, `undo`, `redo`,
    /// `checkpoint`, or one that is newer than this list.
    pub kind: String,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot before it; `null` for the first one.
    pub before: Option<Hash>,
    /// The snapshot after it.
    pub after: Hash,
    /// A name for people.
    pub label: Option<String>,
    /// The session it belongs to, where no step says so.
    pub session: Option<String>,
    /// The steps whose changes it holds.
    pub steps: Vec<CreditedStep>,
    /// Paths of several steps at once.
    pub shared: Vec<WirePath>,
    /// Steps that it took back or, for a redo, brought back.
    pub subjects: Vec<String>,
    /// The undo that a redo took back.
    pub takes_back: Option<String>,
    /// Where the user's own git stood.
    pub head: Option<Head>,
    /// Files it changed, or for the first one, has; `null` if they cannot be read.
    pub files: Option<u64>,
    /// Lines it added; `null` for the first one.
    pub additions: Option<u64>,
    /// Lines it removed; `null` for the first one.
    pub deletions: Option<u64>,
}

/// A step that an operation credits.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CreditedStep {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// Its paths; `null` for everything the operation changed.
    pub paths: Option<Vec<WirePath>>,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
    pub undone: bool,
}

/// Where the user's git stands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Head {
    /// The branch, unless HEAD is detached.
    pub branch: Option<String>,
    /// The commit, unless there is none yet.
    pub commit: Option<String>,
}

/// An operation with what others know about it.
pub struct Logged {
    /// The operation.
    pub operation: Operation,
    /// The snapshot before it.
    pub before: Option<ObjectId>,
    /// Which of its steps are taken back at present.
    pub undone: HashSet<String>,
    /// What is known of the steps that it took back or brought back.
    pub subjects: Vec<ctrlz::StepInfo>,
    /// How much it changed; `None` if its snapshots cannot be read.
    pub counts: Option<Counts>,
}

/// How much an operation changed.
pub struct Counts {
    /// Files.
    pub files: usize,
    /// Added and removed lines; a baseline has none, since everything would be new.
    pub lines: Option<(usize, usize)>,
}

/// Which part of a log to read.
#[derive(Clone, Debug)]
pub struct LogRange {
    /// Only what belongs to this session.
    pub session: Option<String>,
    /// How many of the newest operations to pass over.
    pub offset: usize,
    /// How many to read.
    pub limit: usize,
}

/// Part of a log, newest first, and whether there is more.
pub struct LogPage {
    /// The operations.
    pub entries: Vec<Logged>,
    /// The offset that goes on from here.
    pub next: Option<usize>,
    /// Whether nothing at all belongs to the session that was asked for.
    pub unknown_session: bool,
}

/// Reads part of the log.
pub fn read_log(workspace: &Workspace, range: &LogRange) -> Result<LogPage, Error> {
    let end = range.offset.saturating_add(range.limit);
    let to_read = match range.session {
        Some(_) => usize::MAX,
        // One more than is asked for: it is the state before the oldest one.
        None => end.saturating_add(1),
    };
    let log = workspace.log(to_read)?;
    let steps = workspace.steps()?;
    let known: HashMap<&str, &ctrlz::StepInfo> =
        steps.iter().map(|step| (step.info.step.as_str(), &step.info)).collect();
    let undone: HashSet<&str> =
        steps.iter().filter(|step| step.undone).map(|step| step.info.step.as_str()).collect();
    let befores: Vec<Option<ObjectId>> =
        log.iter().skip(1).map(|operation| Some(operation.snapshot)).chain([None]).collect();
    let mut entries: Vec<Logged> = Vec::new();
    for (operation, before) in log.into_iter().zip(befores) {
        let ids = operation.details.undone.iter();
        let subjects = ids.filter_map(|id| known.get(id.as_str()).copied().cloned()).collect();
        let credits = operation.details.credits.iter().map(|credit| &credit.step.step);
        let undone = credits.filter(|step| undone.contains(step.as_str())).cloned().collect();
        let entry = Logged { operation, before, undone, subjects, counts: None };
        if range.session.as_deref().is_none_or(|session| entry.belongs_to(session)) {
            entries.push(entry);
        }
    }
    let unknown_session = range.session.is_some() && entries.is_empty();
    let next = (entries.len() > end).then_some(end);
    entries.truncate(end);
    let mut entries = entries.split_off(range.offset.min(entries.len()));
    for entry in &mut entries {
        // A damaged snapshot must not hide the log, which may be what helps.
        entry.counts = Counts::of(workspace, &entry.operation, entry.before).ok();
    }
    Ok(LogPage { entries, next, unknown_session })
}

impl Counts {
    fn of(
        workspace: &Workspace,
        operation: &Operation,
        before: Option<ObjectId>,
    ) -> Result<Counts, Error> {
        let Some(before) = before else {
            let files = workspace.files(&operation.snapshot)?.len();
            return Ok(Counts { files, lines: None });
        };
        let (mut files, mut additions, mut deletions) = (0, 0, 0);
        for file in workspace.diff_full(&before, &operation.snapshot, &[])? {
            let file = file?;
            files += 1;
            additions += file.additions;
            deletions += file.deletions;
        }
        Ok(Counts { files, lines: Some((additions, deletions)) })
    }
}

impl Logged {
    fn belongs_to(&self, session: &str) -> bool {
        let details = &self.operation.details;
        let credited = details.credits.iter().map(|credit| &credit.step);
        let mut steps = credited.chain(&self.subjects);
        details.session.as_deref() == Some(session) || steps.any(|step| step.session == session)
    }
}

impl From<&Logged> for LogEntry {
    fn from(entry: &Logged) -> LogEntry {
        let Logged { operation, before, undone, counts, .. } = entry;
        let details = &operation.details;
        let paths = |paths: &Vec<ctrlz::TreePath>| paths.iter().map(WirePath::from).collect();
        let step = |credit: &ctrlz::Credit| CreditedStep {
            info: (&credit.step).into(),
            paths: credit.paths.as_ref().map(paths),
            inferred: credit.inferred,
            undone: undone.contains(&credit.step.step),
        };
        let head =
            |head: &ctrlz::Head| Head { branch: head.branch.clone(), commit: head.commit.clone() };
        let lines = counts.as_ref().and_then(|counts| counts.lines);
        LogEntry {
            operation: operation.id.clone(),
            kind: tag(&operation.kind, "kind"),
            at_millis: operation.at_millis,
            before: before.map(Hash::from),
            after: operation.snapshot.into(),
            label: details.label.clone(),
            session: details.session.clone(),
            steps: details.credits.iter().map(step).collect(),
            shared: paths(&details.shared),
            subjects: details.undone.clone(),
            takes_back: details.takes_back.clone(),
            head: details.head.as_ref().map(head),
            files: counts.as_ref().map(|counts| counts.files as u64),
            additions: lines.map(|(additions, _)| additions as u64),
            deletions: lines.map(|(_, deletions)| deletions as u64),
        }
    }
}

impl From<&LogPage> for Log {
    fn from(page: &LogPage) -> Log {
        Log {
            operations: page.entries.iter().map(LogEntry::from).collect(),
            next: page.next.map(|next| next as u64),
        }
    }
}
