//! Reading the log as sessions, turns and steps.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::store::{Operation, OperationKind, StepInfo, Store, WorkTree};
use crate::workspace::Workspace;

/// One session as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionInfo {
    /// The session's id.
    pub session: String,
    /// The agent, if it said so.
    pub who: Option<String>,
    /// Steps that changed something.
    pub steps: usize,
    /// Steps that are taken back at present.
    pub undone: usize,
    /// When its first and its last change were recorded, in milliseconds since 1970.
    pub first_at_millis: u64,
    /// When its last change was recorded.
    pub last_at_millis: u64,
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

/// The whole log, oldest first, with what is taken back.
pub(super) struct History {
    pub(super) operations: Vec<Operation>,
    taken: HashMap<String, Taken>,
}

/// How far a step is taken back.
#[derive(Default)]
struct Taken {
    /// All of it, except what did not merge.
    whole: bool,
    conflicts: Vec<TreePath>,
    /// Some of its paths, because only they were asked for.
    paths: Vec<TreePath>,
}

impl History {
    pub(super) fn read(store: &Store, work_tree: &WorkTree) -> Result<History, Error> {
        let mut operations = match store.refs.read(work_tree.ref_name())? {
            Some(head) => store.history(head).collect::<Result<Vec<_>, Error>>()?,
            None => Vec::new(),
        };
        operations.reverse();
        let redone: HashSet<&str> =
            operations.iter().filter_map(|op| op.details.takes_back.as_deref()).collect();
        let mut taken: HashMap<String, Taken> = HashMap::new();
        let undos = operations
            .iter()
            .filter(|op| op.kind == OperationKind::Undo && !redone.contains(op.id.as_str()));
        for undo in undos {
            for step in &undo.details.undone {
                let taken = taken.entry(step.clone()).or_default();
                if undo.details.undone_only.is_empty() {
                    taken.whole = true;
                    taken.conflicts = undo.details.conflicts.clone();
                } else {
                    let merged = |path: &&TreePath| !undo.details.conflicts.contains(path);
                    taken.paths.extend(undo.details.undone_only.iter().filter(merged).cloned());
                }
            }
        }
        Ok(History { operations, taken })
    }

    /// Whether a step is taken back, apart from what did not merge.
    pub(super) fn is_undone(&self, step: &str) -> bool {
        self.taken.get(step).is_some_and(|taken| taken.whole)
    }

    /// Whether there is something of a step that a forced undo could still take back.
    pub(super) fn has_conflicts(&self, step: &str) -> bool {
        self.taken.get(step).is_some_and(|taken| !taken.conflicts.is_empty())
    }

    /// Whether a step's change of `path` is taken back already.
    pub(super) fn is_path_undone(&self, step: &str, path: &TreePath) -> bool {
        self.taken.get(step).is_some_and(|taken| {
            (taken.whole && !taken.conflicts.contains(path))
                || taken.paths.iter().any(|only| path.is_within(only))
        })
    }

    /// Every piece of every step, oldest first.
    pub(super) fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        for pair in self.operations.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            for credit in &after.details.credits {
                pieces.push(Piece {
                    before,
                    after,
                    info: Some(&credit.step),
                    paths: credit.paths.as_deref(),
                    inferred: credit.inferred,
                });
            }
        }
        pieces
    }
}

/// A change that belongs together: one operation, or one step's part of it.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) before: &'a Operation,
    pub(super) after: &'a Operation,
    pub(super) info: Option<&'a StepInfo>,
    pub(super) paths: Option<&'a [TreePath]>,
    pub(super) inferred: bool,
}

impl Piece<'_> {
    /// Whether this piece's change of `path` is its own.
    pub(super) fn owns(&self, path: &TreePath) -> bool {
        self.paths.is_none_or(|paths| paths.contains(path))
    }
}

impl Workspace {
    /// The steps of the work tree, oldest first.
    pub fn steps(&self) -> Result<Vec<StepRecord>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let history = History::read(&store, &work_tree)?;
        let record = |piece: &Piece<'_>| {
            let info = piece.info?.clone();
            Some(StepRecord {
                undone: history.is_undone(&info.step),
                info,
                operation: piece.after.id.clone(),
                at_millis: piece.after.at_millis,
                before: piece.before.snapshot,
                after: piece.after.snapshot,
                paths: piece.paths.map(<[TreePath]>::to_vec),
                inferred: piece.inferred,
            })
        };
        Ok(history.pieces().iter().filter_map(record).collect())
    }

    /// The sessions of the work tree, the one that worked last at the end.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        let mut sessions: BTreeMap<String, SessionInfo> = BTreeMap::new();
        let mut seen = HashSet::new();
        for step in self.steps()? {
            let session =
                sessions.entry(step.info.session.clone()).or_insert_with(|| SessionInfo {
                    session: step.info.session.clone(),
                    who: None,
                    steps: 0,
                    undone: 0,
                    first_at_millis: step.at_millis,
                    last_at_millis: step.at_millis,
                });
            session.who = session.who.take().or(step.info.who);
            session.last_at_millis = session.last_at_millis.max(step.at_millis);
            if seen.insert(step.info.step) {
                session.steps += 1;
                session.undone += usize::from(step.undone);
            }
        }
        let mut sessions: Vec<SessionInfo> = sessions.into_values().collect();
        sessions.sort_by_key(|session| session.last_at_millis);
        Ok(sessions)
    }
}
