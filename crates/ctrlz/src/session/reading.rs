//! Read-only views of the log: sessions and steps.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::compare::{Change, Entry, changes};
use crate::error::{Error, SessionError};
use crate::git::ObjectId;
use crate::log::{Forked, LogEntry, OpenStep, StepInfo, WorkTree, load_steps};
use crate::path::TreePath;
use crate::restore::Absence;
use crate::store::Store;
use crate::workspace::{Diffs, Workspace};

use super::choose::Lineage;
use super::history::{History, Piece};
use super::revert::{RevertState, all_pending};

/// A session in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Session id.
    pub session: String,
    /// Name of the agent, if it reported one.
    pub who: Option<String>,
    /// Parent session, if this is the session of a sub-agent.
    pub parent: Option<String>,
    /// Origin, if the session is a fork.
    pub forked: Option<Forked>,
    /// Number of recorded steps, not counting those whose previous state has expired.
    pub steps: usize,
    /// Number of steps that are currently undone.
    pub undone: usize,
    /// Time of its first recorded operation, in milliseconds since 1970.
    pub first_at_millis: u64,
    /// Time of its last recorded change, in milliseconds since 1970.
    pub last_at_millis: u64,
    /// Its revert, as long as that can be moved or reversed.
    pub reverted: Option<RevertState>,
}

/// Changes of one step in one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Step that made the changes.
    pub info: StepInfo,
    /// Operation id.
    pub operation: String,
    /// Time of recording, in milliseconds since 1970.
    pub at_millis: u64,
    /// Snapshot before the operation.
    pub before: ObjectId,
    /// Snapshot after the operation.
    pub after: ObjectId,
    /// Changed paths of the step, or `None` for all paths that differ.
    pub paths: Option<Vec<TreePath>>,
    /// Whether the step was not closed by its agent.
    pub inferred: bool,
    /// Whether the step is currently undone.
    pub undone: bool,
}

/// Selection of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StepScope {
    /// All steps.
    #[default]
    All,
    /// Steps of a session and of its sub-agents.
    Session(String),
    /// Steps of a message and of the sub-agents that worked for it.
    Message(String),
    /// A single step.
    Step(String),
}

impl StepScope {
    fn include(&self, info: &StepInfo) -> bool {
        match self {
            StepScope::All => true,
            StepScope::Session(session) => info.belongs_to(session),
            StepScope::Message(message) => {
                let parent = info.parent.as_ref().and_then(|turn| turn.message.as_ref());
                info.message.as_ref() == Some(message) || parent == Some(message)
            }
            StepScope::Step(step) => info.step == *step,
        }
    }

    fn unknown(&self) -> Error {
        match self {
            StepScope::All => Error::Session(SessionError::NothingToUndo),
            StepScope::Session(session) => Error::no_such_session(session),
            StepScope::Message(message) => Error::no_such_message(message),
            StepScope::Step(step) => Error::no_such_step(step),
        }
    }
}

impl Workspace {
    /// Returns the steps of the work tree, oldest first.
    pub fn steps(&self) -> Result<Vec<StepRecord>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let history = History::read(&store, &work_tree)?;
        Ok(history.pieces().into_iter().map(|piece| record(&history, piece)).collect())
    }

    /// Returns the open steps that are not abandoned and whose owner process, if known, is alive.
    pub fn working_steps(&self) -> Result<Vec<StepInfo>, Error> {
        let Some((_, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let open = load_steps(&work_tree.steps_path())?;
        let is_alive = |step: &OpenStep| !step.abandoned && !step.is_orphan();
        Ok(open.into_iter().filter(is_alive).map(|step| step.info).collect())
    }

    /// Returns the records of one step, oldest first: one for each operation that it is part of.
    pub fn step(&self, step: &str) -> Result<Vec<StepRecord>, Error> {
        let steps: Vec<StepRecord> =
            self.steps()?.into_iter().filter(|record| record.info.step == step).collect();
        if steps.is_empty() { Err(Error::no_such_step(step)) } else { Ok(steps) }
    }

    /// Returns the sessions of the work tree, or of another log in the store if `log` names one (see
    /// [`Log::name`](crate::Log::name)). The most recently active session is the last one.
    pub fn sessions(&self, log: Option<&str>) -> Result<Vec<SessionInfo>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let work_tree = log.map_or(work_tree, |log| WorkTree::named(&store, log));
        sessions_of(&store, &work_tree)
    }

    /// Returns the combined changes of steps: per file, from before the first step to after the
    /// last.
    ///
    /// Changes that are currently undone are left out, as are files that end up unchanged.
    pub fn step_changes(&self, scope: &StepScope) -> Result<Vec<Change>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Err(scope.unknown()) };
        let history = History::read(&store, &work_tree)?;
        let mut known = false;
        let mut files: BTreeMap<TreePath, (Option<Entry>, Option<Entry>)> = BTreeMap::new();
        for piece in history.pieces() {
            let credit = history.credit(piece);
            if !scope.include(&credit.step) {
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
            return Err(scope.unknown());
        }
        let change = |(path, (before, after)): (TreePath, _)| Change { path, before, after };
        let differs = |change: &Change| change.before != change.after;
        Ok(files.into_iter().map(change).filter(differs).collect())
    }

    /// Returns [`Workspace::step_changes`] with full texts, one file at a time.
    pub fn step_diff_full(&self, scope: &StepScope) -> Result<Diffs, Error> {
        let changes = self.step_changes(scope)?;
        let (store, _) = self.existing()?.ok_or_else(|| scope.unknown())?;
        Ok(Diffs::of(store, changes, self.options().threads))
    }
}

fn sessions_of(store: &Store, work_tree: &WorkTree) -> Result<Vec<SessionInfo>, Error> {
    let mut history = History::read(store, work_tree)?;
    let mut reverts = all_pending(&mut history)?;
    // Steps whose previous state has expired cannot be undone and are not counted.
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

/// Returns the changes of an operation that belong to a piece.
fn changed_by(store: &Store, history: &History<'_>, piece: Piece) -> Result<Vec<Change>, Error> {
    let (after, before) = (&history.entries[piece.entry], &history.entries[piece.entry + 1]);
    let own = history.credit(piece).paths.as_deref();
    let mut found = real_changes(store, before, after)?;
    found.retain(|change| own.is_none_or(|own| own.contains(&change.path)));
    Ok(found)
}

/// Returns the changes between two operations. A path that the later one only leaves out is not
/// deleted and not returned.
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

/// Result of [`Workspace::snapshot_before`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotBefore {
    /// A snapshot was found for the first of the given messages that is recorded.
    Found {
        /// Message that was found.
        message: String,
        /// Snapshot at the beginning of the first given message, or at the end of an earlier one.
        snapshot: ObjectId,
        /// Operation that recorded the snapshot.
        operation: String,
    },
    /// A message is recorded, but retention has removed the snapshot.
    Expired {
        /// Message that was found.
        message: String,
    },
    /// None of the messages is recorded.
    Nothing,
}

impl Workspace {
    /// Returns the nearest snapshot at or before a message.
    ///
    /// `messages` starts with the message in question, followed by the ones before it, newest
    /// first. The beginning of the first message counts, but the end of an earlier one. A fork
    /// shares the messages of its origin up to the fork.
    pub fn snapshot_before(
        &self,
        session: &str,
        messages: &[String],
    ) -> Result<SnapshotBefore, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(SnapshotBefore::Nothing) };
        let mut history = History::with_shared(&store, &work_tree)?;
        while history.pull()? {}
        // Per message: the index of the operation before its first piece, and that of its last
        // piece.
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
                return Ok(SnapshotBefore::Expired { message: message.clone() });
            };
            return Ok(match store.snapshot(&entry.snapshot) {
                Ok(_) => SnapshotBefore::Found {
                    message: message.clone(),
                    snapshot: entry.snapshot,
                    operation: entry.id.clone(),
                },
                Err(_) => SnapshotBefore::Expired { message: message.clone() },
            });
        }
        Ok(SnapshotBefore::Nothing)
    }
}
