//! Reading sessions: what was done, by whom, and what of it is taken back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use serde::Serialize;

use crate::compare::{Change, Entry, changes, write_unified};
use crate::error::{Error, ExchangeError, LookupError, SessionError};
use crate::git::ObjectId;
use crate::log::{
    Boundary, Forked, Gap, LogEntry, OpenStep, OperationKind, StepInfo, Uncaptured, WorkTree,
    load_steps,
};
use crate::path::TreePath;
use crate::restore::Absence;
use crate::store::{Head, Store};
use crate::workspace::{Diffs, Workspace};

use super::choose::Lineage;
use super::history::{History, Piece};
use super::revert::{RevertState, all_pending};

/// One session as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// The session's id.
    pub session: String,
    /// The agent, if it said so.
    pub who: Option<String>,
    /// The session it works for, if it is a sub-agent's.
    pub parent: Option<String>,
    /// Where it comes from, if it is a fork.
    pub forked: Option<Forked>,
    /// Steps that changed something.
    pub steps: usize,
    /// Steps that are taken back at present.
    pub undone: usize,
    /// When its first and its last change were recorded, in milliseconds since 1970.
    pub first_at_millis: u64,
    /// When its last change was recorded.
    pub last_at_millis: u64,
    /// Its revert, as long as that can be moved or taken back.
    pub reverted: Option<RevertState>,
}

/// What one step changed in one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepRecord {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// The operation.
    pub operation: String,
    /// When it was recorded, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot before.
    pub before: ObjectId,
    /// The snapshot after.
    pub after: ObjectId,
    /// Its paths; `None` for all that differ.
    pub paths: Option<Vec<TreePath>>,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
    pub undone: bool,
}

/// Some of what sessions did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Deeds {
    /// Everything that steps did.
    #[default]
    All,
    /// A session, its sub-agents included.
    Session(String),
    /// A message.
    Message(String),
    /// A step.
    Step(String),
}

impl Deeds {
    fn include(&self, info: &StepInfo) -> bool {
        match self {
            Deeds::All => true,
            Deeds::Session(session) => info.belongs_to(session),
            Deeds::Message(message) => {
                let parent = info.parent.as_ref().and_then(|turn| turn.message.as_ref());
                info.message.as_ref() == Some(message) || parent == Some(message)
            }
            Deeds::Step(step) => info.step == *step,
        }
    }

    fn unknown(&self) -> Error {
        match self {
            Deeds::All => Error::Session(SessionError::NothingToUndo),
            Deeds::Session(session) => {
                Error::Session(SessionError::NoSuchSession { session: session.clone() })
            }
            Deeds::Message(message) => {
                Error::Session(SessionError::NoSuchMessage { message: message.clone() })
            }
            Deeds::Step(step) => Error::Session(SessionError::NoSuchStep { step: step.clone() }),
        }
    }
}

/// An operation of the log, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// The operation's id.
    pub operation: String,
    /// What happened.
    pub kind: OperationKind,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The snapshot after it.
    pub snapshot: ObjectId,
    /// The steps it belongs to, and whether each is taken back.
    pub steps: Vec<TimelineStep>,
    /// A name that somebody gave it.
    pub label: Option<String>,
    /// The session, where no step says so.
    pub session: Option<String>,
    /// The steps that it took back or brought again.
    pub undone: Vec<String>,
    /// Whether the operation itself was taken back.
    pub taken_back: bool,
    /// Files added, changed and deleted.
    pub files: Vec<TimelineFile>,
    /// Files beyond those in `files`.
    pub more_files: usize,
    /// Never removed by retention.
    pub pinned: bool,
    /// The snapshot before it; `None` for the oldest one that is kept.
    pub before: Option<ObjectId>,
    /// Its snapshots cannot be read, so `files` says nothing.
    pub damaged: bool,
    /// Paths of several steps at once.
    pub shared: Vec<TreePath>,
    /// The undo or revert that it took back.
    pub takes_back: Option<String>,
    /// The message that a session was taken back to.
    pub boundary: Option<Boundary>,
    /// The revert that it made final.
    pub commits: Option<String>,
    /// Where a fork comes from.
    pub forked: Option<Forked>,
    /// Where the user's own git stood.
    pub head: Option<Head>,
    /// What it changed was not recorded when it happened.
    pub gap: Option<Gap>,
}

/// A step in the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineStep {
    /// The step.
    #[serde(flatten)]
    pub info: StepInfo,
    /// Its agent did not close it.
    pub inferred: bool,
    /// It is taken back at present.
    pub undone: bool,
    /// Paths that no snapshot holds and that it removed or changed.
    pub uncaptured: Vec<Uncaptured>,
}

/// A file in the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineFile {
    /// The path.
    pub path: TreePath,
    /// How it differs.
    pub status: crate::compare::Status,
    /// Lines added; 0 for binary files.
    pub additions: usize,
    /// Lines removed; 0 for binary files.
    pub deletions: usize,
}

/// Which part of the log to show.
#[derive(Clone, Debug)]
pub struct TimelineQuery {
    /// Another log of the store, as [`Log::name`](crate::Log::name) has it. Default: the work
    /// tree's own.
    pub log: Option<String>,
    /// Only what belongs to this session. Default: all.
    pub session: Option<String>,
    /// Only operations older than this one. Default: from the newest on.
    pub before: Option<String>,
    /// At most this many operations. Default: 50.
    pub limit: usize,
    /// At most this many files for each. Default: 20; 0 leaves line counts out.
    pub files: usize,
}

impl Default for TimelineQuery {
    fn default() -> TimelineQuery {
        TimelineQuery { log: None, session: None, before: None, limit: 50, files: 20 }
    }
}

impl Workspace {
    /// The log for people, newest first.
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
                found.push(timeline_entry(&store, &mut history, at, &entry, query.files)?);
            }
            at += 1;
        }
        Ok(found)
    }

    /// One operation of the log, for people, with at most `files` files.
    pub fn find_operation(&self, id: &str, files: usize) -> Result<TimelineEntry, Error> {
        let unknown = || Error::Lookup(LookupError::UnknownOperation { id: id.to_owned() });
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
            return timeline_entry(&store, &mut history, at, &entry, files);
        }
    }

    /// The steps of the work tree, oldest first.
    pub fn steps(&self) -> Result<Vec<StepRecord>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let history = History::read(&store, &work_tree)?;
        Ok(history.pieces().into_iter().map(|piece| record(&history, piece)).collect())
    }

    /// The steps whose agent is still at work on them, as they say themselves.
    pub fn working_steps(&self) -> Result<Vec<StepInfo>, Error> {
        let Some((_, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let open = load_steps(&work_tree.steps_path())?;
        let is_alive = |step: &OpenStep| !step.abandoned && !step.is_orphan();
        Ok(open.into_iter().filter(is_alive).map(|step| step.info).collect())
    }

    /// What is recorded of one step, oldest first: one record per operation it had a part in.
    pub fn step(&self, step: &str) -> Result<Vec<StepRecord>, Error> {
        let steps: Vec<StepRecord> =
            self.steps()?.into_iter().filter(|record| record.info.step == step).collect();
        match steps.is_empty() {
            true => Err(Error::Session(SessionError::NoSuchStep { step: step.to_owned() })),
            false => Ok(steps),
        }
    }

    /// The sessions of the work tree, the one that worked last at the end.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        sessions_of(&store, &work_tree)
    }

    /// The sessions of another log in the store, as [`Log::name`](crate::Log::name) has it.
    pub fn sessions_of(&self, log: &str) -> Result<Vec<SessionInfo>, Error> {
        let Some((store, _)) = self.existing()? else { return Ok(Vec::new()) };
        sessions_of(&store, &WorkTree::named(&store, log))
    }

    /// What steps changed in all: per file, from before the first of them to after the last.
    ///
    /// What is taken back at present is left out, and so are files that are what they were.
    pub fn deeds(&self, deeds: &Deeds) -> Result<Vec<Change>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Err(deeds.unknown()) };
        let history = History::read(&store, &work_tree)?;
        let mut known = false;
        let mut files: BTreeMap<TreePath, (Option<Entry>, Option<Entry>)> = BTreeMap::new();
        for piece in history.pieces() {
            let credit = history.credit(piece);
            if !deeds.include(&credit.step) {
                continue;
            }
            known = true;
            for change in changed_by(&store, &history, piece)? {
                if !history.is_path_undone(&credit.step.step, piece.entry, &change.path) {
                    let whole = files.entry(change.path).or_insert((change.before, None));
                    whole.1 = change.after;
                }
            }
        }
        if !known {
            return Err(deeds.unknown());
        }
        let change = |(path, (before, after)): (TreePath, _)| Change { path, before, after };
        let differs = |change: &Change| change.before != change.after;
        Ok(files.into_iter().map(change).filter(differs).collect())
    }

    /// [`Workspace::deeds`] as text that `git apply` accepts.
    pub fn deeds_diff(&self, deeds: &Deeds, out: &mut dyn Write) -> Result<(), Error> {
        let changes = self.deeds(deeds)?;
        let Some((store, _)) = self.existing()? else { return Ok(()) };
        changes.iter().try_for_each(|change| write_unified(&store.objects, change, out))
    }

    /// [`Workspace::deeds`] with whole texts, one file at a time.
    pub fn deeds_full(&self, deeds: &Deeds) -> Result<Diffs, Error> {
        let changes = self.deeds(deeds)?;
        let (store, _) = self.existing()?.ok_or_else(|| deeds.unknown())?;
        Ok(Diffs::of(store, changes, self.options().threads))
    }
}

fn existing_log(store: &Store, log: &str) -> Result<WorkTree, Error> {
    let work_tree = WorkTree::named(store, log);
    match store.refs.read(work_tree.ref_name())? {
        Some(_) => Ok(work_tree),
        None => Err(Error::Exchange(ExchangeError::NoSuchLog { log: log.to_owned() })),
    }
}

fn sessions_of(store: &Store, work_tree: &WorkTree) -> Result<Vec<SessionInfo>, Error> {
    let mut history = History::read(store, work_tree)?;
    let mut reverts = all_pending(&mut history)?;
    // A step that cannot be undone any more does not count.
    let oldest = history.entries.len().saturating_sub(1);
    let counted = if history.is_cut_off(oldest)? { ..oldest } else { ..usize::MAX };
    let mut sessions: BTreeMap<String, SessionInfo> = BTreeMap::new();
    let mut seen = HashSet::new();
    let fresh = |session: &str, at: u64| SessionInfo {
        session: session.to_owned(),
        who: None,
        parent: None,
        forked: None,
        steps: 0,
        undone: 0,
        first_at_millis: at,
        last_at_millis: at,
        reverted: None,
    };
    for (at, entry) in history.entries.iter().enumerate().rev() {
        if let (Some(forked), Some(id)) = (&entry.details.forked, &entry.details.session) {
            let known = sessions.entry(id.clone());
            known.or_insert_with(|| fresh(id, entry.at_millis)).forked = Some(forked.clone());
        }
        for piece in history.pieces_of(at).filter(|_| counted.contains(&at)) {
            let info = history.info(piece);
            let session = sessions
                .entry(info.session.clone())
                .or_insert_with(|| fresh(&info.session, entry.at_millis));
            session.who = session.who.take().or_else(|| info.who.clone());
            let parent = info.parent.as_ref().map(|turn| turn.session.clone());
            session.parent = session.parent.take().or(parent);
            session.last_at_millis = session.last_at_millis.max(entry.at_millis);
            if seen.insert(&info.step) {
                session.steps += 1;
                session.undone += usize::from(history.is_undone(piece));
            }
        }
    }
    for (id, session) in &mut sessions {
        session.reverted = reverts.remove(id);
    }
    let mut sessions: Vec<SessionInfo> = sessions.into_values().collect();
    sessions.sort_by_key(|session| session.last_at_millis);
    Ok(sessions)
}

fn belongs(entry: &LogEntry, session: &str) -> bool {
    entry.details.session.as_deref() == Some(session)
        || entry.details.credits.iter().any(|credit| credit.step.belongs_to(session))
}

fn record(history: &History<'_>, piece: Piece) -> StepRecord {
    let credit = history.credit(piece);
    let (after, before) = (&history.entries[piece.entry], &history.entries[piece.entry + 1]);
    StepRecord {
        undone: history.is_undone(piece),
        info: credit.step.clone(),
        operation: after.id.clone(),
        at_millis: after.at_millis,
        before: before.snapshot,
        after: after.snapshot,
        paths: credit.paths.clone(),
        inferred: credit.inferred,
    }
}

/// What a piece changed and what is its own.
fn changed_by(store: &Store, history: &History<'_>, piece: Piece) -> Result<Vec<Change>, Error> {
    let (after, before) = (&history.entries[piece.entry], &history.entries[piece.entry + 1]);
    let own = history.credit(piece).paths.as_deref();
    let mut found = real_changes(store, before, after)?;
    found.retain(|change| own.is_none_or(|own| own.contains(&change.path)));
    Ok(found)
}

/// What differs between two operations; what the later one merely leaves out is no deletion.
pub(super) fn real_changes(
    store: &Store,
    before: &LogEntry,
    after: &LogEntry,
) -> Result<Vec<Change>, Error> {
    let mut found = changes(&store.objects, &before.snapshot, &after.snapshot)?;
    if found.iter().any(|change| change.after.is_none()) {
        let after = crate::log::read_operation(&store.objects, &after.commit)?;
        let mut covered = Absence::of_operation(store, &after);
        let mut kept = Vec::with_capacity(found.len());
        for change in found {
            if change.after.is_some() || !covered.is_left_out(&change.path)? {
                kept.push(change);
            }
        }
        found = kept;
    }
    Ok(found)
}

/// Names the oldest operation that is kept, if it is a step whose `before` has expired.
const EXPIRED: &str = "after older operations expired";

fn timeline_entry(
    store: &Store,
    history: &mut History<'_>,
    at: usize,
    entry: &LogEntry,
    max_files: usize,
) -> Result<TimelineEntry, Error> {
    let before = history.before(at)?.cloned();
    // A damaged snapshot must not hide the log, which may be what helps.
    let counted = timeline_files(store, before.as_ref(), entry, max_files);
    let damaged = counted.is_err();
    let (files, more_files) = counted.unwrap_or_default();
    // A step that cannot be undone is not offered as one.
    let is_expired = entry.kind == OperationKind::Step && history.is_cut_off(at)?;
    let (kind, label) = match is_expired {
        true => (OperationKind::Baseline, Some(EXPIRED.to_owned())),
        false => (entry.kind, entry.details.label.clone()),
    };
    // A checkpoint that outlived its segment has no place in the log.
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
        takes_back: entry.details.takes_back.clone(),
        boundary: entry.details.boundary.clone(),
        commits: entry.details.commits.clone(),
        forked: entry.details.forked.clone(),
        head: entry.details.head.clone(),
        gap: entry.details.gap.clone(),
    })
}

/// The first files that an operation changed, and how many more there are.
fn timeline_files(
    store: &Store,
    before: Option<&LogEntry>,
    after: &LogEntry,
    max: usize,
) -> Result<(Vec<TimelineFile>, usize), Error> {
    let changed = match before {
        Some(before) => real_changes(store, before, after)?,
        None => Vec::new(),
    };
    let mut files = Vec::new();
    for change in changed.iter().take(max) {
        let diff = crate::compare::file_diff(&store.objects, change)?;
        files.push(TimelineFile {
            path: change.path.clone(),
            status: change.status(),
            additions: diff.additions,
            deletions: diff.deletions,
        });
    }
    let more = changed.len() - files.len();
    Ok((files, more))
}

/// Where a session stood when a message came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "walk")]
pub enum WalkBack {
    /// The state before the first of the given messages that left a trace.
    Found {
        /// The message.
        message: String,
        /// The snapshot at its beginning.
        snapshot: ObjectId,
        /// The operation that recorded it.
        operation: String,
    },
    /// A message is known, but what was before it has been removed by retention.
    Expired {
        /// The message.
        message: String,
    },
    /// None of the messages left a trace.
    Nothing,
}

impl Workspace {
    /// The nearest snapshot at or before a message.
    ///
    /// `messages` is the way back as the client knows it: the message first, then the ones before
    /// it. The first one counts by its beginning, an earlier one by its end. A fork shares the
    /// messages before it.
    pub fn walk_back(&self, session: &str, messages: &[String]) -> Result<WalkBack, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(WalkBack::Nothing) };
        let history = History::read(&store, &work_tree)?;
        // For each message the operation before its first piece, and its last piece.
        let mut known: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut lineage = Lineage::of(Some(session));
        for (at, entry) in history.entries.iter().enumerate() {
            lineage.pass(&history, at);
            for credit in &entry.details.credits {
                if let (true, Some(message)) =
                    (lineage.includes(&credit.step), credit.step.message.as_deref())
                {
                    let span = known.entry(message).or_insert((at, at));
                    let begun =
                        history.entries.iter().skip(at).position(|older| older.id == credit.begun);
                    span.0 = span.0.max(begun.map_or(at + 1, |steps| at + steps));
                }
            }
        }
        for (place, message) in messages.iter().enumerate() {
            let Some((before, last)) = known.get(message.as_str()) else { continue };
            let at = if place == 0 { *before } else { *last };
            let Some(entry) = history.entries.get(at) else {
                return Ok(WalkBack::Expired { message: message.clone() });
            };
            return Ok(match store.snapshot(&entry.snapshot) {
                Ok(_) => WalkBack::Found {
                    message: message.clone(),
                    snapshot: entry.snapshot,
                    operation: entry.id.clone(),
                },
                Err(_) => WalkBack::Expired { message: message.clone() },
            });
        }
        Ok(WalkBack::Nothing)
    }
}
