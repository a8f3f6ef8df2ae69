//! The log as sessions, turns and steps, read lazily from its newest end.

use std::collections::HashMap;

use crate::compare::{Entry, find};
use crate::error::Error;
use crate::hold::Hold;
use crate::log::{
    Credit, Details, Disowned, Forked, LogEntry, LogIndex, NewOperation, Operation, OperationKind,
    StepInfo, Uncaptured, WorkTree, follows_work_of, read_operation, sessions_of,
};
use crate::pack::PackWriter;
use crate::path::{TreePath, dirs_above, is_within};
use crate::store::Store;

/// Log of a work tree, newest first.
pub(super) struct History<'a> {
    pub(super) store: &'a Store,
    log: LogIndex<'a>,
    /// Operations read so far.
    pub(super) entries: Vec<LogEntry>,
    /// Whether to continue, at the end of a fork's own log, in the log that it was forked from.
    follows: bool,
    /// Forked session and its origin, once the operation that records them has been read.
    forked: Option<(String, Forked)>,
    /// Parts of [`History::entries`] that come from other logs, oldest last.
    shared: Vec<Shared>,
    /// Session whose shared history is no longer kept.
    expired: Option<String>,
    /// Undos and reverts that were reversed, each with the paths for which it is still in force
    /// because conflicts prevented the reversal.
    redone: HashMap<String, Vec<TreePath>>,
    taken: HashMap<String, Vec<Taking>>,
    /// Attempts to undo a step that met only conflicts, newest first.
    tried: HashMap<String, Vec<Attempt>>,
    /// Changes that steps turned out not to have made, by step.
    disowned: HashMap<String, Vec<Disowned>>,
}

/// History that a fork shares with another log.
struct Shared {
    /// Index of its newest operation in [`History::entries`].
    since: usize,
    /// Name of the log.
    log: String,
    /// Forked session; `session` is the one that it shares this history with.
    fork: String,
    session: String,
}

/// One undo or revert of a step.
struct Taking {
    /// Its index in [`History::entries`]. It covers only pieces recorded before it.
    at: usize,
    /// Paths that it is limited to, or `None` for all.
    only: Option<Vec<TreePath>>,
    /// Paths that it left unchanged because of a conflict.
    conflicts: Vec<TreePath>,
    /// Ignored files that it left unchanged because they were not asked for.
    ignored: Vec<TreePath>,
    /// Those of `conflicts` that another process had open.
    in_use: Vec<TreePath>,
}

impl Taking {
    fn covers(&self, entry: usize) -> bool {
        self.at < entry
    }

    fn takes(&self, path: &TreePath) -> bool {
        let is_asked_for = |only: &Vec<TreePath>| only.iter().any(|only| path.is_within(only));
        self.only.as_ref().is_none_or(is_asked_for)
            && !self.conflicts.contains(path)
            && !self.ignored.contains(path)
    }
}

/// An undo that met only conflicts and therefore reversed nothing.
pub(super) struct Attempt {
    /// Its index in [`History::entries`].
    pub(super) at: usize,
    /// Paths that did not merge.
    pub(super) conflicts: Vec<TreePath>,
    /// Those of `conflicts` that another process had open.
    pub(super) in_use: Vec<TreePath>,
}

/// One step's part of one operation, by its index in [`History::entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) entry: usize,
    credit: usize,
}

/// A unit of change: one operation, or one step's part of it.
pub(super) struct Span {
    pub(super) before: Operation,
    pub(super) after: Operation,
    pub(super) info: Option<StepInfo>,
    pub(super) paths: Option<Vec<TreePath>>,
    /// Whether changes of directories belong to the span although `paths` lists only files.
    dirs: bool,
    /// Whether the tool changes only the files that it names.
    only_named: bool,
    /// Paths that the step or the user may have changed.
    pub(super) unclear: Vec<TreePath>,
    /// Paths that no snapshot holds and that the span removed or changed.
    pub(super) uncaptured: Vec<Uncaptured>,
    /// Ignored files that belong to the span.
    pub(super) named: Vec<TreePath>,
    /// Whether the step was not closed by its agent.
    pub(super) inferred: bool,
    /// Ignored files that changed before the tool ran.
    pub(super) earlier_ignored: Vec<TreePath>,
    /// Time at which the step began, in milliseconds since 1970, or 0 if unknown.
    pub(super) began_millis: u64,
    /// Index of `after` in [`History::entries`].
    pub(super) entry: usize,
}

impl Span {
    /// Returns whether the change of `path` belongs to this span.
    pub(super) fn owns(&self, path: &TreePath) -> bool {
        let Some(paths) = &self.paths else { return true };
        // An undo or restore lists whole directories that it created or removed.
        let within = |owned: &TreePath| self.info.is_none() && path.is_within(owned);
        paths.contains(path) || paths.iter().any(within)
    }

    /// Returns whether changes that no tool names can belong to this span.
    pub(super) fn owns_unnamed(&self) -> bool {
        !self.only_named
    }

    /// Returns whether the change of a directory belongs to this span.
    pub(super) fn owns_dir(&self, dir: &TreePath) -> bool {
        self.paths.is_none() || self.dirs || self.owns(dir)
    }

    /// Returns whether the creation of a directory belongs to this span. An edit tool creates
    /// directories only for the files that it names.
    pub(super) fn made_dir(&self, dir: &TreePath) -> bool {
        let mut own = self.named.iter().chain(self.paths.iter().flatten());
        self.owns_dir(dir) || own.any(|path| path.is_within(dir))
    }
}

impl<'a> History<'a> {
    /// Opens the log of a work tree without reading any operation.
    pub(super) fn open(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let log = work_tree.index(store)?;
        let (entries, redone, taken, tried, disowned) = Default::default();
        let (forked, shared, expired) = Default::default();
        let follows = false;
        Ok(History {
            store,
            log,
            entries,
            follows,
            forked,
            shared,
            expired,
            redone,
            taken,
            tried,
            disowned,
        })
    }

    /// Opens the log of a work tree, followed by the history that a fork's directory shares.
    pub(super) fn with_shared(
        store: &'a Store,
        work_tree: &WorkTree,
    ) -> Result<History<'a>, Error> {
        Ok(History { follows: true, ..History::open(store, work_tree)? })
    }

    /// Reads the whole log of a work tree.
    pub(super) fn read(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let mut history = History::open(store, work_tree)?;
        while history.pull()? {}
        Ok(history)
    }

    /// Treats an undo or revert as reversed, for a plan that reverses it.
    pub(super) fn without(mut self, operation: &str) -> History<'a> {
        self.redone.insert(operation.to_owned(), Vec::new());
        self
    }

    /// Reads one more operation. Returns `false` at the beginning of the log.
    pub(super) fn pull(&mut self) -> Result<bool, Error> {
        let Some(mut entry) = self.next()? else { return Ok(false) };
        self.disown(&mut entry);
        if let Some((fork, forked)) = origin_of(&entry).filter(|_| self.follows) {
            self.forked = Some((fork.to_owned(), forked.clone()));
        }
        self.note(&entry);
        self.entries.push(entry);
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<LogEntry>, Error> {
        if let Some(entry) = self.log.next() {
            return entry.map(Some);
        }
        match self.forked.take() {
            Some((fork, forked)) => self.go_on_in(fork, forked),
            None => Ok(None),
        }
    }

    /// Continues in the log that a fork comes from, at the operation that both share. Skips
    /// operations recorded there after the fork.
    fn go_on_in(&mut self, fork: String, forked: Forked) -> Result<Option<LogEntry>, Error> {
        let Forked { session, operation, log: Some(log), .. } = forked else { return Ok(None) };
        let work_tree = WorkTree::named(self.store, &log);
        self.log = work_tree.index(self.store)?;
        while let Some(entry) = self.log.next().transpose()? {
            // Thinning may have dropped the operation itself and kept older ones.
            if entry.id <= operation {
                let since = self.entries.len();
                self.shared.push(Shared { since, log, fork, session });
                return Ok(Some(entry));
            }
        }
        self.expired = Some(session);
        Ok(None)
    }

    /// Returns the log that holds an operation, or `None` if it is the work tree's own.
    pub(super) fn log_of(&self, entry: usize) -> Option<&str> {
        self.shared_at(entry).map(|shared| shared.log.as_str())
    }

    /// Returns the fork whose shared history holds an operation, and the session it is shared with.
    pub(super) fn fork_of(&self, entry: usize) -> Option<(&str, &str)> {
        self.shared_at(entry).map(|shared| (shared.fork.as_str(), shared.session.as_str()))
    }

    fn shared_at(&self, entry: usize) -> Option<&Shared> {
        self.shared.iter().rfind(|shared| shared.since <= entry)
    }

    /// Returns the session whose shared history retention has removed. Only known once the log has
    /// been read to its beginning.
    pub(super) fn shared_is_expired(&self) -> Option<&str> {
        self.expired.as_deref()
    }

    /// Removes from the credits of an operation the changes that newer operations disown.
    fn disown(&self, entry: &mut LogEntry) {
        let details = &mut entry.details;
        if !details.credits.iter().any(|credit| self.disowned.contains_key(&credit.step.step)) {
            return;
        }
        details.credits.retain_mut(|credit| {
            let mut disowned = self.disowned.get(&credit.step.step).into_iter().flatten();
            disowned.all(|disowned| disowned.take_from(credit))
        });
        if details.credits.is_empty() && details.shared.is_empty() {
            entry.kind = OperationKind::Outside;
        }
    }

    /// Records which steps and operations an operation reverses. The log is read newest first, so
    /// the newest operation about a step or an undo decides.
    fn note(&mut self, entry: &LogEntry) {
        let details = &entry.details;
        let at = self.entries.len();
        // The undo of a restore has no effect any more if it was itself reversed.
        let is_void = entry.kind != OperationKind::Revert && self.is_redone(&entry.id);
        if let Some(undo) = details.takes_back.as_ref().filter(|_| !is_void) {
            // A revert that moves another one replaces it completely.
            let left = match entry.kind {
                OperationKind::Revert => Vec::new(),
                _ => details.conflicts.clone(),
            };
            self.redone.entry(undo.clone()).or_insert(left);
        }
        for disowned in &details.disowned {
            self.disowned.entry(disowned.step.clone()).or_default().push(disowned.clone());
        }
        for step in &details.tried {
            let (conflicts, in_use) = (details.conflicts.clone(), details.in_use.clone());
            let attempt = Attempt { at, conflicts, in_use };
            self.tried.entry(step.clone()).or_default().push(attempt);
        }
        let takes = matches!(entry.kind, OperationKind::Undo | OperationKind::Revert);
        if !takes || !self.is_in_force(entry) {
            return;
        }
        for step in &details.undone {
            let asked = (!details.undone_only.is_empty()).then(|| details.undone_only.clone());
            self.taken.entry(step.clone()).or_default().push(Taking {
                at,
                only: self.redone.get(&entry.id).cloned().or(asked),
                conflicts: details.conflicts.clone(),
                ignored: details.ignored_left.clone(),
                in_use: details.in_use.clone(),
            });
        }
    }

    /// Returns whether an undo or revert is in force, at least for some paths.
    pub(super) fn is_in_force(&self, entry: &LogEntry) -> bool {
        takes_steps_back(entry) && !self.is_redone(&entry.id)
    }

    /// Returns whether an operation was reversed completely.
    pub(super) fn is_redone(&self, operation: &str) -> bool {
        self.redone.get(operation).is_some_and(Vec::is_empty)
    }

    /// Returns the paths for which an undo or revert is still in force because its redo or unrevert
    /// met conflicts. Empty if there was no attempt to reverse it.
    pub(super) fn still_in_force(&self, operation: &str) -> &[TreePath] {
        self.redone.get(operation).map(Vec::as_slice).unwrap_or_default()
    }

    fn takings(&self, piece: Piece) -> impl Iterator<Item = &Taking> {
        let takings = self.taken.get(&self.info(piece).step).into_iter().flatten();
        takings.filter(move |taking| taking.covers(piece.entry))
    }

    /// Returns the newest undo that was not limited to some paths of a piece.
    fn whole(&self, piece: Piece) -> Option<&Taking> {
        self.takings(piece).find(|taking| taking.only.is_none())
    }

    /// Returns whether a piece is undone, apart from conflicts.
    pub(super) fn is_undone(&self, piece: Piece) -> bool {
        self.whole(piece).is_some()
    }

    /// Returns whether the undo of a piece left conflicts, which a forced undo can still reverse.
    pub(super) fn has_conflicts(&self, piece: Piece) -> bool {
        self.whole(piece).is_some_and(|left| !left.conflicts.is_empty())
    }

    /// Returns the undo of a piece and the paths that it left as conflicts.
    pub(super) fn conflicts_left(&self, piece: Piece) -> Option<(&LogEntry, &[TreePath])> {
        let left = self.whole(piece)?;
        Some((self.entries.get(left.at)?, &left.conflicts))
    }

    /// Returns whether a path, an obstacle above it or its coverage differs between two operations.
    pub(super) fn differs(
        &self,
        then: &LogEntry,
        now: &LogEntry,
        path: &TreePath,
    ) -> Result<bool, Error> {
        let objects = &self.store.objects;
        let at = |entry: &LogEntry, path: &TreePath| find(objects, &entry.snapshot, path);
        if at(then, path)? != at(now, path)? {
            return Ok(true);
        }
        for dir in dirs_above(path.as_bytes()) {
            let dir = TreePath::from_scan(dir.to_vec());
            let is_tree = |entry: Option<Entry>| entry.map(|entry| entry.kind.is_tree());
            if is_tree(at(then, &dir)?) != is_tree(at(now, &dir)?) {
                return Ok(true);
            }
        }
        let coverage = |entry: &LogEntry| -> Result<(bool, bool), Error> {
            let meta = read_operation(objects, &entry.commit)?.meta;
            let skipped = || meta.skipped.iter().map(|skipped| skipped.path.as_slice());
            let is_skipped = skipped().any(|skipped| is_within(path.as_bytes(), skipped));
            // A directory without captured files in the place of the file.
            let is_dir = skipped().any(|skipped| is_within(skipped, path.as_bytes()))
                || meta.empty_dirs.iter().any(|dir| dir.is_within(path));
            Ok((is_skipped, is_dir))
        };
        Ok(coverage(then)? != coverage(now)?)
    }

    /// Returns the paths whose recorded permissions differ between two operations.
    pub(super) fn other_modes(
        &self,
        one: &LogEntry,
        other: &LogEntry,
    ) -> Result<Vec<TreePath>, Error> {
        let read = |entry: &LogEntry| read_operation(&self.store.objects, &entry.commit);
        Ok(read(one)?.meta.other_modes(&read(other)?.meta))
    }

    /// Returns the files that the undo of a piece left because another process had them open.
    pub(super) fn in_use_left(&self, piece: Piece) -> &[TreePath] {
        self.whole(piece).map(|left| left.in_use.as_slice()).unwrap_or_default()
    }

    /// Returns whether the undo of a piece left changes of ignored files.
    pub(super) fn has_ignored_left(&self, piece: Piece) -> bool {
        self.whole(piece).is_some_and(|left| !left.ignored.is_empty())
    }

    /// Returns the newest undo of a piece that met only conflicts.
    pub(super) fn last_attempt(&self, piece: Piece) -> Option<&Attempt> {
        let attempts = self.tried.get(&self.info(piece).step)?;
        attempts.iter().find(|attempt| attempt.at < piece.entry)
    }

    /// Returns whether a step's change of `path` in the operation at `entry` is already undone.
    pub(super) fn is_path_undone(&self, step: &str, entry: usize, path: &TreePath) -> bool {
        let mut takings = self.taken.get(step).into_iter().flatten();
        takings.any(|taking| taking.covers(entry) && taking.takes(path))
    }

    /// Returns the paths that earlier undos of a step left as conflicts and that are still
    /// unresolved.
    pub(super) fn left_of_step(&self, step: &str) -> Vec<TreePath> {
        let takings = || self.taken.get(step).into_iter().flatten();
        let conflicts = takings().flat_map(|taking| &taking.conflicts);
        conflicts.filter(|path| !takings().any(|taking| taking.takes(path))).cloned().collect()
    }

    /// Returns the pieces of an operation that has been read.
    pub(super) fn pieces_of(&self, entry: usize) -> impl Iterator<Item = Piece> + use<> {
        (0..self.entries[entry].details.credits.len()).map(move |credit| Piece { entry, credit })
    }

    /// Returns every piece that was read together with the operation before it, oldest first.
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

    /// Returns the operation before an entry, reading it if necessary.
    pub(super) fn before(&mut self, entry: usize) -> Result<Option<&LogEntry>, Error> {
        while self.entries.len() <= entry + 1 {
            if !self.pull()? {
                return Ok(None);
            }
        }
        Ok(self.entries.get(entry + 1))
    }

    /// Returns whether the state before an entry has expired: the entry is the oldest that is kept
    /// but not the first that was recorded. Its changes are then unknown.
    pub(super) fn is_cut_off(&mut self, at: usize) -> Result<bool, Error> {
        let is_oldest = self.before(at)?.is_none();
        let is_first = |entry: &LogEntry| entry.kind == OperationKind::Baseline;
        Ok(is_oldest && self.entries.get(at).is_some_and(|entry| !is_first(entry)))
    }

    /// Returns whether a session did something before its oldest operation that is kept. The caller
    /// must have read the whole log.
    pub(super) fn has_older_work(&self, session: &str) -> Result<bool, Error> {
        let of_session = |entry: &&LogEntry| sessions_of(&entry.details).contains(session);
        match self.entries.iter().rev().find(of_session) {
            Some(oldest) => follows_work_of(&self.store.objects, &oldest.commit, session),
            None => Ok(false),
        }
    }

    /// Returns an undo or revert and the reverts that it replaced, oldest first. Reversed together,
    /// they restore the state before the first of them.
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

    /// Returns the index of the oldest operation of [`History::chain`].
    pub(super) fn first_of_chain(&mut self, at: usize) -> Result<usize, Error> {
        let mut first = at;
        while let Some(older) = self.moved_from(first)? {
            first = older;
        }
        Ok(first)
    }

    /// Returns the restore that a redo at `at` brings back, or else the operation itself.
    pub(super) fn restore_of(&mut self, at: usize) -> Result<LogEntry, Error> {
        let entry = self.entries[at].clone();
        if entry.kind != OperationKind::Redo {
            return Ok(entry);
        }
        let Some(undo) = self.find(at, entry.details.takes_back.as_deref())? else {
            return Ok(entry);
        };
        let restore = self.entries[undo].details.takes_back.clone();
        match self.find(undo, restore.as_deref())? {
            Some(restore) => Ok(self.entries[restore].clone()),
            None => Ok(entry),
        }
    }

    /// Returns the index of the restore that the undo at `at` reversed, or `None` if the undo left
    /// conflicts or was itself reversed.
    pub(super) fn undone_restore(&mut self, at: usize) -> Result<Option<usize>, Error> {
        let LogEntry { id, kind, details, .. } = &self.entries[at];
        let takes_back = details.takes_back.clone();
        let is_undo = matches!(kind, OperationKind::Undo | OperationKind::Unrevert);
        if !is_undo || !details.conflicts.is_empty() || self.is_redone(id) {
            return Ok(None);
        }
        self.find(at, takes_back.as_deref())
    }

    /// Returns the index of an older operation.
    fn find(&mut self, after: usize, id: Option<&str>) -> Result<Option<usize>, Error> {
        let Some(id) = id else { return Ok(None) };
        let mut at = after + 1;
        while self.before(at)?.is_some() || at < self.entries.len() {
            if self.entries[at].id == id {
                return Ok(Some(at));
            }
            at += 1;
        }
        Ok(None)
    }

    /// Returns the index of the revert that a revert replaced.
    fn moved_from(&mut self, at: usize) -> Result<Option<usize>, Error> {
        let entry = &self.entries[at];
        if entry.kind != OperationKind::Revert {
            return Ok(None);
        }
        let older = entry.details.takes_back.clone();
        self.find(at, older.as_deref())
    }

    /// Returns the span of a piece.
    pub(super) fn span(&self, piece: Piece) -> Result<Span, Error> {
        let credit = self.credit(piece);
        let span = self.span_of(piece.entry)?;
        let named = credit.named.clone();
        Ok(Span {
            info: Some(credit.step.clone()),
            paths: credit.paths.clone(),
            dirs: credit.dirs,
            only_named: credit.only_named,
            unclear: credit.unclear.clone(),
            uncaptured: credit.uncaptured.clone(),
            began_millis: credit.began_millis,
            inferred: credit.inferred,
            earlier_ignored: credit.earlier_ignored.clone(),
            named,
            ..span
        })
    }

    /// Returns the span of a whole operation.
    pub(super) fn span_of(&self, entry: usize) -> Result<Span, Error> {
        let read = |entry: &LogEntry| read_operation(&self.store.objects, &entry.commit);
        let mut after = read(&self.entries[entry])?;
        // Without the changes that newer operations disown.
        after.details.credits.clone_from(&self.entries[entry].details.credits);
        let before = match self.entries.get(entry + 1) {
            Some(before) => read(before)?,
            // The previous state has expired, so no change is known.
            None => after.clone(),
        };
        let named = after.details.ignored.clone();
        let written = &after.details.written;
        let paths = (!written.is_empty()).then(|| written.clone());
        let (unclear, uncaptured) = (Vec::new(), Vec::new());
        Ok(Span {
            before,
            after,
            info: None,
            paths,
            dirs: false,
            only_named: false,
            unclear,
            uncaptured,
            named,
            inferred: false,
            earlier_ignored: Vec::new(),
            began_millis: 0,
            entry,
        })
    }
}

/// Appends an operation about a session that changes no file.
pub(super) fn append(
    hold: &Hold,
    last: &Operation,
    kind: OperationKind,
    details: Details,
) -> Result<(), Error> {
    let new = NewOperation {
        kind,
        snapshot: last.snapshot,
        meta: last.meta.clone(),
        details: Details { head: hold.head.clone(), ..details },
        ignored_snapshot: None,
    };
    let pack = PackWriter::new(&hold.store.objects_dir());
    hold.work_tree.append(&hold.store, pack, Some(last), new).map(drop)
}

/// Returns the session that an operation forked from another log, and its origin.
fn origin_of(entry: &LogEntry) -> Option<(&str, &Forked)> {
    let forked = entry.details.forked.as_ref().filter(|forked| forked.log.is_some())?;
    Some((entry.details.session.as_deref()?, forked))
}

fn takes_steps_back(entry: &LogEntry) -> bool {
    let kind = matches!(entry.kind, OperationKind::Undo | OperationKind::Revert);
    // An undo by a user may have reversed a restore or a session's revert instead of steps.
    let of_a_restore = match entry.kind {
        OperationKind::Undo => entry.details.takes_back.is_some(),
        OperationKind::Unrevert => entry.details.by_person,
        _ => false,
    };
    let outside = entry.details.outside.as_ref();
    let writes_outside = outside.is_some_and(|outside| outside.capture.is_some());
    (kind && (!entry.details.undone.is_empty() || writes_outside)) || of_a_restore
}
