//! The log as sessions, turns and steps, read from its newest end as far as needed.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::path::TreePath;
use crate::store::{
    Credit, LogEntry, LogIndex, Operation, OperationKind, StepInfo, Store, WorkTree, read_operation,
};

/// A work tree's log, newest first.
pub(super) struct History<'a> {
    store: &'a Store,
    log: Option<LogIndex>,
    /// What has been read so far.
    pub(super) entries: Vec<LogEntry>,
    /// Undos and reverts that were taken back.
    redone: HashSet<String>,
    taken: HashMap<String, Taken>,
}

/// How far a step is taken back.
#[derive(Default)]
struct Taken {
    /// All of it, except what was left.
    whole: Option<Left>,
    /// Some of its paths, because only they were asked for, and what of them was left.
    paths: Vec<(Vec<TreePath>, Left)>,
}

/// What an undo did not take back.
#[derive(Default)]
struct Left {
    /// What did not merge.
    conflicts: Vec<TreePath>,
    /// Ignored files that nobody asked for.
    ignored: Vec<TreePath>,
}

impl Left {
    fn contains(&self, path: &TreePath) -> bool {
        self.conflicts.contains(path) || self.ignored.contains(path)
    }
}

/// One step's part of one operation, by its place in [`History::entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) entry: usize,
    credit: usize,
}

/// A change that belongs together: one operation, or one step's part of it.
pub(super) struct Span {
    pub(super) before: Operation,
    pub(super) after: Operation,
    pub(super) info: Option<StepInfo>,
    pub(super) paths: Option<Vec<TreePath>>,
    /// Ignored files that are its own.
    pub(super) named: Vec<TreePath>,
}

impl Span {
    /// Whether this span's change of `path` is its own.
    pub(super) fn owns(&self, path: &TreePath) -> bool {
        let Some(paths) = &self.paths else { return true };
        // An operation of ours names whole directories that it made or removed.
        let within = |owned: &TreePath| self.info.is_none() && path.is_within(owned);
        paths.contains(path) || paths.iter().any(within)
    }

    /// Whether this span's making or removing of an empty directory is its own.
    pub(super) fn owns_dir(&self, dir: &TreePath) -> bool {
        self.paths.is_none() || (self.info.is_none() && self.owns(dir))
    }
}

impl<'a> History<'a> {
    /// The log of a work tree; nothing of it is read yet.
    pub(super) fn open(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let log = match store.refs.read(work_tree.ref_name())? {
            Some(head) => Some(LogIndex::open(store, work_tree, head)?),
            None => None,
        };
        let (entries, redone, taken) = Default::default();
        Ok(History { store, log, entries, redone, taken })
    }

    /// The whole log.
    pub(super) fn read(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let mut history = History::open(store, work_tree)?;
        while history.pull()? {}
        Ok(history)
    }

    /// Regards an undo or revert as taken back, as a plan does that takes it back.
    pub(super) fn without(mut self, operation: &str) -> History<'a> {
        self.redone.insert(operation.to_owned());
        self
    }

    /// Reads one more operation; `false` at the beginning of the log.
    pub(super) fn pull(&mut self) -> Result<bool, Error> {
        let Some(log) = &mut self.log else { return Ok(false) };
        let Some(entry) = log.next(self.store)? else { return Ok(false) };
        self.note(&entry);
        self.entries.push(entry);
        Ok(true)
    }

    /// What takes back comes after what it takes back, so the newest word is heard first.
    fn note(&mut self, entry: &LogEntry) {
        let details = &entry.details;
        self.redone.extend(details.takes_back.clone());
        if !takes_steps_back(entry) || self.redone.contains(&entry.id) {
            return;
        }
        for step in &details.undone {
            let taken = self.taken.entry(step.clone()).or_default();
            let left = Left {
                conflicts: details.conflicts.clone(),
                ignored: details.ignored_left.clone(),
            };
            if !details.undone_only.is_empty() {
                taken.paths.push((details.undone_only.clone(), left));
            } else if taken.whole.is_none() {
                taken.whole = Some(left);
            }
        }
    }

    /// Whether an undo or revert is in force.
    pub(super) fn is_in_force(&self, entry: &LogEntry) -> bool {
        takes_steps_back(entry) && !self.redone.contains(&entry.id)
    }

    /// Whether an operation was taken back.
    pub(super) fn is_redone(&self, operation: &str) -> bool {
        self.redone.contains(operation)
    }

    /// Whether a step is taken back, apart from what did not merge.
    pub(super) fn is_undone(&self, step: &str) -> bool {
        self.taken.get(step).is_some_and(|taken| taken.whole.is_some())
    }

    /// Whether there is something of a step that a forced undo could still take back.
    pub(super) fn has_conflicts(&self, step: &str) -> bool {
        self.left_of(step).is_some_and(|left| !left.conflicts.is_empty())
    }

    /// Whether changes of ignored files were left when a step was taken back.
    pub(super) fn has_ignored_left(&self, step: &str) -> bool {
        self.left_of(step).is_some_and(|left| !left.ignored.is_empty())
    }

    fn left_of(&self, step: &str) -> Option<&Left> {
        self.taken.get(step)?.whole.as_ref()
    }

    /// Whether a step's change of `path` is taken back already.
    pub(super) fn is_path_undone(&self, step: &str, path: &TreePath) -> bool {
        self.taken.get(step).is_some_and(|taken| {
            let asked = |only: &[TreePath]| only.iter().any(|only| path.is_within(only));
            taken.whole.as_ref().is_some_and(|left| !left.contains(path))
                || taken.paths.iter().any(|(only, left)| asked(only) && !left.contains(path))
        })
    }

    /// The pieces of one operation that has been read.
    pub(super) fn pieces_of(&self, entry: usize) -> impl Iterator<Item = Piece> + use<> {
        (0..self.entries[entry].details.credits.len()).map(move |credit| Piece { entry, credit })
    }

    /// Every piece that has been read and whose operation before is read too, oldest first.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let complete = 0..self.entries.len().saturating_sub(1);
        complete.rev().flat_map(|entry| self.pieces_of(entry)).collect()
    }

    pub(super) fn credit(&self, piece: Piece) -> &Credit {
        &self.entries[piece.entry].details.credits[piece.credit]
    }

    pub(super) fn info(&self, piece: Piece) -> &StepInfo {
        &self.credit(piece).step
    }

    /// The operation before an entry. Pulls it if it has not been read.
    pub(super) fn before(&mut self, entry: usize) -> Result<Option<&LogEntry>, Error> {
        while self.entries.len() <= entry + 1 {
            if !self.pull()? {
                return Ok(None);
            }
        }
        Ok(self.entries.get(entry + 1))
    }

    /// An undo or revert, and the reverts it moved on from, oldest first: taken back together,
    /// they give the state before the first of them.
    pub(super) fn chain(&mut self, at: usize) -> Result<Vec<Span>, Error> {
        let mut spans = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            self.before(at)?;
            spans.push(self.span_of(at)?);
            next = self.moved_from(at)?;
        }
        spans.reverse();
        Ok(spans)
    }

    /// The oldest operation of [`History::chain`].
    pub(super) fn first_of_chain(&mut self, at: usize) -> Result<usize, Error> {
        let mut first = at;
        while let Some(older) = self.moved_from(first)? {
            first = older;
        }
        Ok(first)
    }

    /// The revert that a revert took the place of.
    fn moved_from(&mut self, at: usize) -> Result<Option<usize>, Error> {
        let entry = &self.entries[at];
        if entry.kind != OperationKind::Revert {
            return Ok(None);
        }
        let Some(older) = entry.details.takes_back.clone() else { return Ok(None) };
        let mut at = at + 1;
        while self.before(at)?.is_some() {
            if self.entries[at].id == older {
                return Ok(Some(at));
            }
            at += 1;
        }
        Ok(None)
    }

    /// A piece with all that its operations know.
    pub(super) fn span(&self, piece: Piece) -> Result<Span, Error> {
        let credit = self.credit(piece);
        let span = self.span_of(piece.entry)?;
        let named = credit.named.clone();
        Ok(Span { info: Some(credit.step.clone()), paths: credit.paths.clone(), named, ..span })
    }

    /// A whole operation as one change.
    pub(super) fn span_of(&self, entry: usize) -> Result<Span, Error> {
        let read = |entry: &LogEntry| read_operation(&self.store.objects, &entry.commit);
        let after = read(&self.entries[entry])?;
        let before = match self.entries.get(entry + 1) {
            Some(before) => read(before)?,
            // What came before has expired; nothing is known to have changed.
            None => after.clone(),
        };
        let named = after.details.ignored.clone();
        let written = &after.details.written;
        let paths = (!written.is_empty()).then(|| written.clone());
        Ok(Span { before, after, info: None, paths, named })
    }
}

fn takes_steps_back(entry: &LogEntry) -> bool {
    let kind = matches!(entry.kind, OperationKind::Undo | OperationKind::Revert);
    kind && !entry.details.undone.is_empty()
}
