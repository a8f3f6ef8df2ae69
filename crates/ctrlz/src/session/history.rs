//! The log as sessions, turns and steps, read from its newest end as far as needed.

use std::collections::HashMap;

use crate::compare::{Entry, find};
use crate::error::Error;
use crate::log::{
    Credit, Forked, LogEntry, LogIndex, Operation, OperationKind, StepInfo, Uncaptured, WorkTree,
    follows_work_of, read_operation, sessions_of,
};
use crate::path::{TreePath, dirs_above, is_within};
use crate::store::Store;

/// A work tree's log, newest first.
pub(super) struct History<'a> {
    store: &'a Store,
    log: Option<LogIndex>,
    /// The operations read so far.
    pub(super) entries: Vec<LogEntry>,
    /// Whether to go on, at the end of a fork's own log, into the log that it was forked from.
    follows: bool,
    /// Where the log that is being read was forked from, once that has been read.
    forked: Option<(String, Forked)>,
    /// The parts of [`History::entries`] that lie in other logs, oldest last.
    shared: Vec<Shared>,
    /// The session whose shared history is not kept any more.
    expired: Option<String>,
    /// Undos and reverts that were taken back, each with the paths that conflicts kept from
    /// coming back: for those it is still in force.
    redone: HashMap<String, Vec<TreePath>>,
    taken: HashMap<String, Vec<Taking>>,
    /// Steps that an undo met only conflicts in, newest first.
    tried: HashMap<String, Vec<Attempt>>,
}

/// History that a fork shares with another log.
struct Shared {
    /// The place of its newest operation in [`History::entries`].
    since: usize,
    /// The log.
    log: String,
    /// The forked session, and the one that it shares this with.
    fork: String,
    session: String,
}

/// One undo or revert of a step.
struct Taking {
    /// Its place in [`History::entries`]. It covers only pieces recorded before it.
    at: usize,
    /// The only paths that it covers; `None` for all.
    only: Option<Vec<TreePath>>,
    /// Paths left because they did not merge.
    conflicts: Vec<TreePath>,
    /// Ignored files left because they were not asked for.
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

/// An undo that met only conflicts and therefore took nothing back.
pub(super) struct Attempt {
    /// Its place in [`History::entries`].
    pub(super) at: usize,
    /// The paths that did not merge.
    pub(super) conflicts: Vec<TreePath>,
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
    /// Whether changes of directories are its own where `paths` lists its files.
    dirs: bool,
    /// The tool changed the files that it named and no others.
    only_named: bool,
    /// Paths that may be its own or the user's.
    pub(super) unclear: Vec<TreePath>,
    /// Paths that no snapshot holds and that it removed or changed.
    pub(super) uncaptured: Vec<Uncaptured>,
    /// Ignored files that are its own.
    pub(super) named: Vec<TreePath>,
    /// The step was not closed by its agent.
    pub(super) inferred: bool,
    /// Ignored files that changed before its tool ran.
    pub(super) earlier_ignored: Vec<TreePath>,
    /// When the step began, in milliseconds since 1970; 0 if that is not known.
    pub(super) began_millis: u64,
    /// The place of `after` in [`History::entries`].
    pub(super) entry: usize,
}

impl Span {
    /// Whether this span's change of `path` is its own.
    pub(super) fn owns(&self, path: &TreePath) -> bool {
        let Some(paths) = &self.paths else { return true };
        // An operation of ours names whole directories that it made or removed.
        let within = |owned: &TreePath| self.info.is_none() && path.is_within(owned);
        paths.contains(path) || paths.iter().any(within)
    }

    /// Whether changes that no tool names can be its own.
    pub(super) fn owns_unnamed(&self) -> bool {
        !self.only_named
    }

    /// Whether this span's change of a directory is its own.
    pub(super) fn owns_dir(&self, dir: &TreePath) -> bool {
        self.paths.is_none() || self.dirs || self.owns(dir)
    }

    /// Whether a directory that this span made is its own: an edit tool makes directories only for
    /// the files that it names.
    pub(super) fn made_dir(&self, dir: &TreePath) -> bool {
        let mut own = self.named.iter().chain(self.paths.iter().flatten());
        self.owns_dir(dir) || own.any(|path| path.is_within(dir))
    }
}

impl<'a> History<'a> {
    /// The log of a work tree; nothing of it is read yet.
    pub(super) fn open(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let log = match store.refs.read(work_tree.ref_name())? {
            Some(head) => Some(LogIndex::open(store, work_tree, head)?),
            None => None,
        };
        let (entries, redone, taken, tried) = Default::default();
        let (forked, shared, expired) = Default::default();
        let follows = false;
        Ok(History { store, log, entries, follows, forked, shared, expired, redone, taken, tried })
    }

    /// The same; in the directory of a fork, what it shares with other logs follows.
    pub(super) fn with_shared(
        store: &'a Store,
        work_tree: &WorkTree,
    ) -> Result<History<'a>, Error> {
        Ok(History { follows: true, ..History::open(store, work_tree)? })
    }

    /// The whole log.
    pub(super) fn read(store: &'a Store, work_tree: &WorkTree) -> Result<History<'a>, Error> {
        let mut history = History::open(store, work_tree)?;
        while history.pull()? {}
        Ok(history)
    }

    /// Regards an undo or revert as taken back, as a plan does that takes it back.
    pub(super) fn without(mut self, operation: &str) -> History<'a> {
        self.redone.insert(operation.to_owned(), Vec::new());
        self
    }

    /// Reads one more operation; `false` at the beginning of the log.
    pub(super) fn pull(&mut self) -> Result<bool, Error> {
        let Some(entry) = self.next()? else { return Ok(false) };
        if let Some((fork, forked)) = origin_of(&entry).filter(|_| self.follows) {
            self.forked = Some((fork.to_owned(), forked.clone()));
        }
        self.note(&entry);
        self.entries.push(entry);
        Ok(true)
    }

    fn next(&mut self) -> Result<Option<LogEntry>, Error> {
        let Some(log) = &mut self.log else { return Ok(None) };
        if let Some(entry) = log.next(self.store)? {
            return Ok(Some(entry));
        }
        match self.forked.take() {
            Some((fork, forked)) => self.go_on_in(fork, forked),
            None => Ok(None),
        }
    }

    /// Goes on in the log that a fork comes from, at the operation that both share. What happened
    /// there after the fork is passed over.
    fn go_on_in(&mut self, fork: String, forked: Forked) -> Result<Option<LogEntry>, Error> {
        let Forked { session, operation, log: Some(log), .. } = forked else { return Ok(None) };
        let work_tree = WorkTree::named(self.store, &log);
        self.log = match self.store.refs.read(work_tree.ref_name())? {
            Some(head) => Some(LogIndex::open(self.store, &work_tree, head)?),
            None => None,
        };
        while let Some(index) = &mut self.log {
            let Some(entry) = index.next(self.store)? else { break };
            // Thinning may have dropped the operation itself, and kept older ones.
            if entry.id <= operation {
                let since = self.entries.len();
                self.shared.push(Shared { since, log, fork, session });
                return Ok(Some(entry));
            }
        }
        self.log = None;
        self.expired = Some(session);
        Ok(None)
    }

    /// The log that holds an operation, where it is not the work tree's own.
    pub(super) fn log_of(&self, entry: usize) -> Option<&str> {
        self.shared_at(entry).map(|shared| shared.log.as_str())
    }

    /// The fork whose shared history an operation belongs to, and the session that it shares it with.
    pub(super) fn fork_of(&self, entry: usize) -> Option<(&str, &str)> {
        self.shared_at(entry).map(|shared| (shared.fork.as_str(), shared.session.as_str()))
    }

    fn shared_at(&self, entry: usize) -> Option<&Shared> {
        self.shared.iter().rfind(|shared| shared.since <= entry)
    }

    /// The session whose history a fork shared and retention has removed. Known once the log has
    /// been read to its beginning.
    pub(super) fn shared_is_expired(&self) -> Option<&str> {
        self.expired.as_deref()
    }

    /// Takes note of what an operation takes back. The log is read newest first, so the newest
    /// operation about a step or an undo decides.
    fn note(&mut self, entry: &LogEntry) {
        let details = &entry.details;
        let at = self.entries.len();
        // The undo of a restore that was taken back itself has no effect any more.
        let is_void = entry.kind != OperationKind::Revert && self.is_redone(&entry.id);
        if let Some(undo) = details.takes_back.as_ref().filter(|_| !is_void) {
            // A revert that moves another one takes its place completely.
            let left = match entry.kind {
                OperationKind::Revert => Vec::new(),
                _ => details.conflicts.clone(),
            };
            self.redone.entry(undo.clone()).or_insert(left);
        }
        for step in &details.tried {
            let attempt = Attempt { at, conflicts: details.conflicts.clone() };
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

    /// Whether an undo or revert is in force, at least for some paths.
    pub(super) fn is_in_force(&self, entry: &LogEntry) -> bool {
        takes_steps_back(entry) && !self.is_redone(&entry.id)
    }

    /// Whether an operation was taken back completely.
    pub(super) fn is_redone(&self, operation: &str) -> bool {
        self.redone.get(operation).is_some_and(Vec::is_empty)
    }

    /// The paths for which an undo or revert is still in force because conflicts stopped the redo
    /// or unrevert of it; empty if nothing has tried to take it back.
    pub(super) fn still_in_force(&self, operation: &str) -> &[TreePath] {
        self.redone.get(operation).map(Vec::as_slice).unwrap_or_default()
    }

    fn takings(&self, piece: Piece) -> impl Iterator<Item = &Taking> {
        let takings = self.taken.get(&self.info(piece).step).into_iter().flatten();
        takings.filter(move |taking| taking.covers(piece.entry))
    }

    /// The newest undo of all of a piece.
    fn whole(&self, piece: Piece) -> Option<&Taking> {
        self.takings(piece).find(|taking| taking.only.is_none())
    }

    /// Whether a piece is taken back, apart from conflicts.
    pub(super) fn is_undone(&self, piece: Piece) -> bool {
        self.whole(piece).is_some()
    }

    /// Whether the undo of a piece left conflicts, which a forced undo can still take back.
    pub(super) fn has_conflicts(&self, piece: Piece) -> bool {
        self.whole(piece).is_some_and(|left| !left.conflicts.is_empty())
    }

    /// Returns the paths that the undo of a piece left as conflicts, and the undo.
    pub(super) fn conflicts_left(&self, piece: Piece) -> Option<(&LogEntry, &[TreePath])> {
        let left = self.whole(piece)?;
        Some((self.entries.get(left.at)?, &left.conflicts))
    }

    /// Whether a path, or something above it that was in its way, changed from one operation to
    /// another.
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
        let is_skipped = |entry: &LogEntry| -> Result<bool, Error> {
            let meta = read_operation(objects, &entry.commit)?.meta;
            Ok(meta.skipped.iter().any(|skipped| is_within(path.as_bytes(), &skipped.path)))
        };
        Ok(is_skipped(then)? != is_skipped(now)?)
    }

    /// Whether the undo of a piece left files that another process had open.
    pub(super) fn has_in_use_left(&self, piece: Piece) -> bool {
        self.whole(piece).is_some_and(|left| !left.in_use.is_empty())
    }

    /// Whether the undo of a piece left changes of ignored files.
    pub(super) fn has_ignored_left(&self, piece: Piece) -> bool {
        self.whole(piece).is_some_and(|left| !left.ignored.is_empty())
    }

    /// The newest undo that met only conflicts in a piece.
    pub(super) fn last_attempt(&self, piece: Piece) -> Option<&Attempt> {
        let attempts = self.tried.get(&self.info(piece).step)?;
        attempts.iter().find(|attempt| attempt.at < piece.entry)
    }

    /// Whether a step's change of `path` in the operation at `entry` is taken back already.
    pub(super) fn is_path_undone(&self, step: &str, entry: usize, path: &TreePath) -> bool {
        let mut takings = self.taken.get(step).into_iter().flatten();
        takings.any(|taking| taking.covers(entry) && taking.takes(path))
    }

    /// The paths that earlier undos of the pieces of a step left as conflicts, and that are still
    /// not taken back.
    pub(super) fn left_of_step(&self, step: &str) -> Vec<TreePath> {
        let takings = || self.taken.get(step).into_iter().flatten();
        let conflicts = takings().flat_map(|taking| &taking.conflicts);
        conflicts.filter(|path| !takings().any(|taking| taking.takes(path))).cloned().collect()
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

    /// Whether the state before an entry has expired: the entry is the oldest that is kept and not
    /// the first that was recorded. What it changed is not known any more.
    pub(super) fn is_cut_off(&mut self, at: usize) -> Result<bool, Error> {
        let is_oldest = self.before(at)?.is_none();
        let is_first = |entry: &LogEntry| entry.kind == OperationKind::Baseline;
        Ok(is_oldest && self.entries.get(at).is_some_and(|entry| !is_first(entry)))
    }

    /// Whether a session did something before its oldest operation that is kept. All of the log has
    /// been read.
    pub(super) fn has_older_work(&self, session: &str) -> Result<bool, Error> {
        let of_session = |entry: &&LogEntry| sessions_of(&entry.details).contains(session);
        match self.entries.iter().rev().find(of_session) {
            Some(oldest) => follows_work_of(&self.store.objects, &oldest.commit, session),
            None => Ok(false),
        }
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

    /// The restore that an operation is or, if it is a redo, brings back; else the operation itself.
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

    /// Returns the place of the restore that the undo at `at` took back.
    pub(super) fn undone_restore(&mut self, at: usize) -> Result<Option<usize>, Error> {
        let LogEntry { id, kind, details, .. } = &self.entries[at];
        let takes_back = details.takes_back.clone();
        let is_undo = matches!(kind, OperationKind::Undo | OperationKind::Unrevert);
        if !is_undo || !details.conflicts.is_empty() || self.is_redone(id) {
            return Ok(None);
        }
        self.find(at, takes_back.as_deref())
    }

    /// The place of an older operation.
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

    /// The revert that a revert took the place of.
    fn moved_from(&mut self, at: usize) -> Result<Option<usize>, Error> {
        let entry = &self.entries[at];
        if entry.kind != OperationKind::Revert {
            return Ok(None);
        }
        let older = entry.details.takes_back.clone();
        self.find(at, older.as_deref())
    }

    /// A piece with all that its operations know.
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

/// The session that an operation forked from another log, and where from.
fn origin_of(entry: &LogEntry) -> Option<(&str, &Forked)> {
    let forked = entry.details.forked.as_ref().filter(|forked| forked.log.is_some())?;
    Some((entry.details.session.as_deref()?, forked))
}

fn takes_steps_back(entry: &LogEntry) -> bool {
    let kind = matches!(entry.kind, OperationKind::Undo | OperationKind::Revert);
    // A plain undo of a person took a restore or a session's revert back.
    let of_a_restore = match entry.kind {
        OperationKind::Undo => entry.details.takes_back.is_some(),
        OperationKind::Unrevert => entry.details.by_person,
        _ => false,
    };
    let outside = entry.details.outside.as_ref();
    let writes_outside = outside.is_some_and(|outside| outside.capture.is_some());
    (kind && (!entry.details.undone.is_empty() || writes_outside)) || of_a_restore
}
