//! The log prepared for display.

use crate::compare::{Status, file_diff};
use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{Boundary, Forked, Gap, LogEntry, OperationKind, StepInfo, Uncaptured, WorkTree};
use crate::path::TreePath;
use crate::store::{Head, Store};
use crate::workspace::Workspace;

use super::history::History;
use super::reading::real_changes;

/// An operation of the log, prepared for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Operation id.
    pub operation: String,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Time of recording, in milliseconds since 1970.
    pub at_millis: u64,
    /// Snapshot after the operation.
    pub snapshot: ObjectId,
    /// Steps that the operation belongs to, each with whether it is undone.
    pub steps: Vec<TimelineStep>,
    /// Label for users.
    pub label: Option<String>,
    /// Session of the operation, if `steps` does not say so.
    pub session: Option<String>,
    /// Steps that the operation undid or redid.
    pub undone: Vec<String>,
    /// Whether the operation itself was reversed.
    pub taken_back: bool,
    /// Files that the operation added, changed or deleted.
    pub files: Vec<TimelineFile>,
    /// Number of changed files beyond those in `files`.
    pub more_files: usize,
    /// Whether retention must keep the operation.
    pub pinned: bool,
    /// Snapshot before the operation, or `None` for the oldest one that is kept.
    pub before: Option<ObjectId>,
    /// Whether its snapshots cannot be read, so that `files` is empty.
    pub damaged: bool,
    /// Paths that changed while several steps were open and that none of them named.
    pub shared: Vec<TreePath>,
    /// Paths that changed while a step was open and that belong to no step.
    pub outside: Vec<TreePath>,
    /// Undo, revert or restore that the operation reversed.
    pub takes_back: Option<String>,
    /// Message that a session was reverted to.
    pub boundary: Option<Boundary>,
    /// Revert that the operation made final.
    pub commits: Option<String>,
    /// Origin of a fork.
    pub forked: Option<Forked>,
    /// HEAD of the user's own repository at that time.
    pub head: Option<Head>,
    /// Set if its changes were not recorded when they were made.
    pub gap: Option<Gap>,
}

/// A step in the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineStep {
    /// Step, as its agent described it.
    pub info: StepInfo,
    /// Whether the step was not closed by its agent.
    pub inferred: bool,
    /// Whether the step is currently undone.
    pub undone: bool,
    /// Paths that no snapshot holds and that the step removed or changed.
    pub uncaptured: Vec<Uncaptured>,
}

/// A file in the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineFile {
    /// Path of the file.
    pub path: TreePath,
    /// Kind of the change.
    pub status: Status,
    /// Number of added lines; 0 for binary files.
    pub additions: usize,
    /// Number of removed lines; 0 for binary files.
    pub deletions: usize,
}

/// Selection of operations for [`Workspace::timeline`].
#[derive(Clone, Debug)]
pub struct TimelineQuery {
    /// Name of another log of the store; see [`Log::name`](crate::Log::name). Default: the own log.
    pub log: Option<String>,
    /// Limits the timeline to this session. Default: all sessions.
    pub session: Option<String>,
    /// Limits the timeline to operations older than this one. Default: starts at the newest.
    pub before: Option<String>,
    /// Maximum number of operations. Default: 50.
    pub limit: usize,
    /// Maximum number of files per operation; with 0 they are only counted. Default: 20.
    pub files: usize,
}

impl Default for TimelineQuery {
    fn default() -> TimelineQuery {
        TimelineQuery { log: None, session: None, before: None, limit: 50, files: 20 }
    }
}

impl Workspace {
    /// Returns the operations of the log for display, newest first.
    pub fn timeline(&self, query: &TimelineQuery) -> Result<Vec<TimelineEntry>, Error> {
        let Some((store, own)) = self.existing()? else { return Ok(Vec::new()) };
        let work_tree = match &query.log {
            Some(log) => existing_log(&store, log)?,
            None => own,
        };
        let mut history = History::open(&store, &work_tree)?;
        let mut found = Vec::new();
        let mut at = 0;
        let mut begun = query.before.is_none();
        while found.len() < query.limit {
            history.before(at)?;
            let Some(entry) = history.entries.get(at).cloned() else { break };
            let shown = begun && query.session.as_ref().is_none_or(|asked| belongs(&entry, asked));
            begun |= query.before.as_ref() == Some(&entry.id);
            if shown {
                found.push(timeline_entry(&mut history, at, &entry, query.files)?);
            }
            at += 1;
        }
        Ok(found)
    }

    /// Returns one operation of the log for display, with at most `files` files.
    pub fn find_operation(&self, id: &str, files: usize) -> Result<TimelineEntry, Error> {
        let unknown = || Error::unknown_operation(id);
        let (store, work_tree) = self.existing()?.ok_or_else(unknown)?;
        let mut history = History::open(&store, &work_tree)?;
        let mut at = 0;
        loop {
            history.before(at)?;
            let entry = match history.entries.get(at) {
                Some(entry) if entry.id != id => {
                    at += 1;
                    continue;
                }
                Some(entry) => entry.clone(),
                // A checkpoint outlives its segment of the log.
                None => LogEntry::from(&work_tree.checkpointed(&store, id)?.ok_or_else(unknown)?),
            };
            return timeline_entry(&mut history, at, &entry, files);
        }
    }
}

fn existing_log(store: &Store, log: &str) -> Result<WorkTree, Error> {
    let work_tree = WorkTree::named(store, log);
    match store.refs.read(work_tree.ref_name())? {
        Some(_) => Ok(work_tree),
        None => Err(Error::no_such_log(log)),
    }
}

fn belongs(entry: &LogEntry, session: &str) -> bool {
    entry.details.session.as_deref() == Some(session)
        || entry.details.credits.iter().any(|credit| credit.step.belongs_to(session))
}

/// Label of the oldest operation in the log if it is a step whose previous state has expired.
const EXPIRED: &str = "after older operations expired";

fn timeline_entry(
    history: &mut History<'_>,
    at: usize,
    entry: &LogEntry,
    max_files: usize,
) -> Result<TimelineEntry, Error> {
    let before = history.before(at)?.cloned();
    // A damaged snapshot must not hide the log, which may be needed for recovery.
    let counted = timeline_files(history.store, before.as_ref(), entry, max_files);
    let damaged = counted.is_err();
    let Counted { files, more_files, outside } = counted.unwrap_or_default();
    // A step that cannot be undone is not shown as a step.
    let is_expired = entry.kind == OperationKind::Step && history.is_cut_off(at)?;
    let (kind, label) = if is_expired {
        (OperationKind::Baseline, Some(EXPIRED.to_owned()))
    } else {
        (entry.kind, entry.details.label.clone())
    };
    // A checkpoint that outlived its segment is not among the entries of the log.
    let is_shown = !is_expired && at < history.entries.len();
    let pieces = is_shown.then(|| history.pieces_of(at)).into_iter().flatten();
    let steps = pieces.map(|piece| TimelineStep {
        undone: history.is_undone(piece),
        info: history.info(piece).clone(),
        inferred: history.credit(piece).inferred,
        uncaptured: history.credit(piece).uncaptured.clone(),
    });
    Ok(TimelineEntry {
        steps: steps.collect(),
        operation: entry.id.clone(),
        kind,
        at_millis: entry.at_millis,
        snapshot: entry.snapshot,
        label,
        session: entry.details.session.clone(),
        undone: entry.details.undone.clone(),
        taken_back: history.is_redone(&entry.id),
        more_files,
        files,
        pinned: entry.details.pinned,
        before: before.map(|before| before.snapshot),
        damaged,
        shared: entry.details.shared.clone(),
        outside,
        takes_back: entry.details.takes_back.clone(),
        boundary: entry.details.boundary.clone(),
        commits: entry.details.commits.clone(),
        forked: entry.details.forked.clone(),
        head: entry.details.head.clone(),
        gap: entry.details.gap.clone(),
    })
}

/// Files that an operation changed.
#[derive(Default)]
struct Counted {
    files: Vec<TimelineFile>,
    more_files: usize,
    outside: Vec<TreePath>,
}

/// Returns the first files that an operation changed, and the number of further files.
fn timeline_files(
    store: &Store,
    before: Option<&LogEntry>,
    after: &LogEntry,
    max: usize,
) -> Result<Counted, Error> {
    let changed = match before {
        Some(before) => real_changes(store, before, after)?,
        None => Vec::new(),
    };
    let mut files = Vec::new();
    for change in changed.iter().take(max) {
        let diff = file_diff(&store.objects, change)?;
        files.push(TimelineFile {
            path: change.path.clone(),
            status: change.status(),
            additions: diff.additions,
            deletions: diff.deletions,
        });
    }
    let more_files = changed.len() - files.len();
    let mut outside: Vec<TreePath> = changed.into_iter().map(|change| change.path).collect();
    outside.retain(|path| {
        after.kind == OperationKind::Step && after.author(path).0 == OperationKind::Outside
    });
    Ok(Counted { files, more_files, outside })
}
