//! The record of which author wrote which line into which path.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::manifest::{Entry, Manifest};

use super::merge::{Content, Piece};
use super::report::Report;

/// An author of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Author {
    User,
    /// A step, by its index in [`Oracle::steps`].
    Step(usize),
    /// An undo, redo, revert or restore.
    Ctrlz,
}

/// A violation of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// Short name of the rule, the same for all of its violations.
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn check(rule: &'static str, holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds || is_tolerated(rule) { Ok(()) } else { Err(Violation { rule, what: what() }) }
}

/// Returns whether `CTRLZ_AUTHORS_TOLERATE`, a comma-separated list, names a rule. Known violations
/// would otherwise hide later ones in the same case.
fn is_tolerated(rule: &str) -> bool {
    let rules = std::env::var("CTRLZ_AUTHORS_TOLERATE").unwrap_or_default();
    rules.split(',').any(|tolerated| tolerated.trim() == rule)
}

/// The unique lines, identified by number.
#[derive(Default)]
pub(crate) struct Tokens {
    authors: Vec<Author>,
}

impl Tokens {
    /// Returns a line that no file holds yet, without a line terminator: `u.12` or `s3.12`.
    pub(crate) fn make(&mut self, author: Author) -> String {
        let number = self.authors.len();
        self.authors.push(author);
        match author {
            Author::Step(step) => format!("s{step}.{number}"),
            Author::User | Author::Ctrlz => format!("u.{number}"),
        }
    }

    pub(super) fn author(&self, token: usize) -> Author {
        self.authors.get(token).copied().unwrap_or(Author::User)
    }

    pub(super) fn show(&self, token: usize) -> String {
        match self.author(token) {
            Author::Step(step) => format!("s{step}.{token}"),
            Author::User | Author::Ctrlz => format!("u.{token}"),
        }
    }
}

/// Returns the tokens in an entry.
pub(super) fn tokens_in(entry: &Entry) -> BTreeSet<usize> {
    let bytes = match entry {
        Entry::File { bytes, .. } => bytes,
        Entry::Link { target } => target,
        Entry::Dir { .. } | Entry::Special => return BTreeSet::new(),
    };
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(['\n', '\r', '\0']);
    words.filter_map(|word| word.split_once('.')?.1.parse().ok()).collect()
}

pub(super) fn all_tokens(tree: &Manifest) -> BTreeMap<usize, BTreeSet<String>> {
    let mut all: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for (path, entry) in &tree.0 {
        for token in tokens_in(entry) {
            all.entry(token).or_default().insert(path.clone());
        }
    }
    all
}

/// A tool call, or a command that was run by `ctrlz run`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// Identifier that is unique in the case; the log shows it as the step's part.
    pub(crate) part: String,
    pub(crate) id: Option<String>,
    pub(crate) session: String,
    pub(crate) message: String,
    /// The turn that an undo reverses as a unit. A sub-agent has the turn of its parent.
    pub(crate) turn: (String, String),
    /// Files that the tool call names.
    pub(crate) names: Vec<String>,
    /// The effect of the shell command on the files that it names.
    pub(crate) script: Option<Script>,
    /// Whether the tool changes only the files that it names.
    pub(crate) only_named: bool,
    /// Whether the call only waits for a sub-agent.
    pub(crate) only_waits: bool,
    pub(crate) is_open: bool,
    /// Whether the tool has started. Before that, the client may wait for a permission.
    pub(crate) is_running: bool,
    /// Whether hooks report the step. Otherwise `ctrlz run` does.
    pub(crate) is_hooked: bool,
    /// Whether a process of the client runs for the step.
    pub(crate) has_process: bool,
    /// Whether the step never ended, was refused, or may have an end that was not recorded.
    pub(crate) is_interrupted: bool,
    /// Whether the hook that would have ended the step was killed. The engine may consider the step
    /// running.
    pub(crate) end_is_lost: bool,
    /// Whether the engine will close the step with the next snapshot.
    pub(crate) closes: bool,
    /// Number of segments at the last event of its turn. Earlier changes are the tool's even if it
    /// was interrupted later.
    pub(crate) sign: usize,
}

/// A shell command that names files.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    Remove(String),
    Move(String, String),
    Edit(String),
    /// Copies a file, then edits it.
    Backup(String, String),
}

impl Script {
    /// Returns the command as a client reports it.
    pub(crate) fn text(&self) -> String {
        match self {
            Script::Remove(path) => format!("rm -rf '{path}'"),
            Script::Move(from, to) => format!("mv '{from}' '{to}'"),
            Script::Edit(path) => format!("sed -i 's/a/b/' '{path}'"),
            Script::Backup(path, copy) => {
                format!("cp '{path}' '{copy}' && sed -i 's/a/b/' '{path}'")
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Script::Remove(path) | Script::Edit(path) => vec![path.clone()],
            Script::Move(one, two) | Script::Backup(one, two) => vec![one.clone(), two.clone()],
        }
    }
}

impl Step {
    /// Returns whether the tool names a path or a directory above it.
    pub(super) fn names(&self, path: &str) -> bool {
        self.names.iter().any(|name| is_within(path, name))
    }
}

/// A change of one path by one author.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(super) actor: Author,
    /// The steps that the change may belong to, according to the evidence available to the engine.
    pub(super) candidates: BTreeSet<usize>,
    /// The candidates whose tool had not started.
    pub(super) waiting: BTreeSet<usize>,
    /// All steps that were open.
    pub(super) open: BTreeSet<usize>,
    pub(super) segment: usize,
}

/// The changes between two snapshots.
pub(super) struct Segment {
    pub(super) before: Arc<Manifest>,
    pub(super) after: Arc<Manifest>,
    pub(super) changes: BTreeMap<String, Vec<Change>>,
    /// Steps that were open without a process when an undo recorded this segment, or that a prompt
    /// closed. No evidence shows whether the tool or the user made the changes.
    pub(super) idle: BTreeSet<usize>,
    /// Like `idle`, for segments that an undo or another command may have recorded.
    may_be_idle: BTreeSet<usize>,
}

/// An undo or revert that changed files.
pub(crate) struct Op {
    pub(crate) id: String,
    pub(crate) steps: BTreeSet<usize>,
    pub(crate) is_in_force: bool,
    /// The revert that this one replaced.
    pub(crate) moved_from: Option<String>,
    /// Whether this is a restore, which only a plain undo reverses.
    pub(crate) is_restore: bool,
    /// Index of its segment.
    pub(super) segment: usize,
    /// The paths that it did not change back.
    left: BTreeSet<String>,
    /// The paths that it was limited to; empty for all paths.
    limit: Vec<String>,
}

impl Op {
    /// Returns whether the command was asked to reverse the changes of a path.
    pub(super) fn covers(&self, path: &str) -> bool {
        self.limit.is_empty() || self.limit.iter().any(|dir| is_within(path, dir))
    }

    /// Returns whether the command reversed the changes of a path.
    fn took(&self, path: &str) -> bool {
        self.covers(path) && !self.left.contains(path)
    }
}

/// The record of a case.
pub(crate) struct Oracle {
    pub(crate) tokens: Tokens,
    pub(crate) steps: Vec<Step>,
    pub(crate) ops: Vec<Op>,
    /// Steps whose undo met only conflicts, with the number of segments at that time. A plain undo
    /// skips them.
    pub(crate) tried: Vec<(usize, usize)>,
    /// Files that a process has open for writing.
    pub(crate) held: BTreeSet<String>,
    /// Names that were ignored at any time.
    pub(crate) ignored_names: BTreeSet<String>,
    pub(super) segments: Vec<Segment>,
    changes: BTreeMap<String, Vec<Change>>,
    /// The tree at the last snapshot.
    recorded: Arc<Manifest>,
    /// The tree as it was last read.
    pub(crate) seen: Arc<Manifest>,
    /// The last change that put a token into a path.
    pub(super) intros: HashMap<(String, usize), Change>,
}

/// The scope of an undo, redo, revert or unrevert.
pub(crate) struct Taken {
    pub(crate) undone: BTreeSet<usize>,
    pub(crate) before: Arc<Manifest>,
    /// Indexes of the undos and reverts that it reverses, newest first.
    pub(crate) redone: Vec<usize>,
    /// The paths that were named on the command line. There, changes that an interrupted step may
    /// have made are reversed too.
    pub(crate) named: Vec<String>,
}

impl Oracle {
    pub(crate) fn new(tree: Manifest) -> Oracle {
        let tree = Arc::new(tree);
        Oracle {
            tokens: Tokens::default(),
            steps: Vec::new(),
            ops: Vec::new(),
            tried: Vec::new(),
            held: BTreeSet::new(),
            ignored_names: ["ignored".to_owned()].into(),
            segments: Vec::new(),
            changes: BTreeMap::new(),
            recorded: Arc::clone(&tree),
            seen: tree,
            intros: HashMap::new(),
        }
    }

    /// Records the changes of `actor` since the last call.
    pub(crate) fn note(&mut self, actor: Author, now: Manifest) {
        let now = Arc::new(now);
        let seen = std::mem::replace(&mut self.seen, Arc::clone(&now));
        let paths: BTreeSet<&String> = seen.0.keys().chain(now.0.keys()).collect();
        for path in paths {
            let (old, new) = (seen.0.get(path), now.0.get(path));
            if old == new {
                continue;
            }
            let mut change = self.change(actor, path);
            if old.is_none() && matches!(new, Some(Entry::Dir { .. })) {
                self.made_for_named(&mut change, path);
            }
            let had = old.map(tokens_in).unwrap_or_default();
            for token in new.map(tokens_in).unwrap_or_default().difference(&had) {
                let key = (path.clone(), *token);
                // A redo restores the tokens of a step; the step stays their author.
                if actor != Author::Ctrlz || !self.intros.contains_key(&key) {
                    self.intros.insert(key, change.clone());
                }
            }
            self.changes.entry(path.clone()).or_default().push(change);
        }
    }

    /// Returns a change of `path` with its candidate steps.
    fn change(&self, actor: Author, path: &str) -> Change {
        let is_open = |at: &usize| self.steps[*at].is_open && !self.steps[*at].only_waits;
        let open: Vec<usize> = (0..self.steps.len()).filter(is_open).collect();
        let names = |at: &usize| self.steps[*at].names(path);
        let namers: Vec<usize> = open.iter().copied().filter(names).collect();
        let candidates: BTreeSet<usize> = match (actor, namers.as_slice()) {
            (Author::Ctrlz, _) => BTreeSet::new(),
            // The engine may have closed a step whose ending hook was killed.
            (_, [one]) if !self.steps[*one].end_is_lost => [*one].into(),
            (_, namers) => {
                let any = open.iter().copied().filter(|at| !self.steps[*at].only_named);
                any.chain(namers.iter().copied()).collect()
            }
        };
        let waiting = candidates.iter().copied().filter(|at| !self.steps[*at].is_running).collect();
        let open = (0..self.steps.len()).filter(|at| self.steps[*at].is_open).collect();
        Change { actor, candidates, waiting, open, segment: self.segments.len() }
    }

    /// Attributes a directory to the tool that creates it for a file that it names.
    fn made_for_named(&self, change: &mut Change, path: &str) {
        let Author::Step(step) = change.actor else { return };
        let info = &self.steps[step];
        if info.only_named && info.names.iter().any(|name| is_within(name, path)) {
            change.candidates = [step].into();
        }
    }

    /// Ends a segment, because the engine records a snapshot at this point.
    pub(crate) fn cut(&mut self) {
        let before = std::mem::replace(&mut self.recorded, Arc::clone(&self.seen));
        let changes = std::mem::take(&mut self.changes);
        let (after, mut idle) = (Arc::clone(&self.seen), BTreeSet::new());
        for (at, step) in self.steps.iter_mut().enumerate().filter(|(_, step)| step.closes) {
            (step.closes, step.is_open) = (false, false);
            idle.insert(at);
        }
        let may_be_idle = BTreeSet::new();
        self.segments.push(Segment { before, after, changes, idle, may_be_idle });
    }

    /// Records an event of a turn, which shows that its tools were at work until now.
    pub(crate) fn note_sign(&mut self, step: usize) {
        let (session, message) =
            (self.steps[step].session.clone(), self.steps[step].message.clone());
        let sign = self.segments.len();
        let of_turn = |step: &&mut Step| step.session == session && step.message == message;
        self.steps.iter_mut().filter(of_turn).for_each(|step| step.sign = sign);
    }

    /// Marks the steps that an undo finds open without a process, in the segments since the last
    /// event of their turn.
    pub(crate) fn mark_idle(&mut self) {
        for step in self.idle_steps() {
            for segment in self.segments.iter_mut().skip(self.steps[step].sign) {
                segment.idle.insert(step);
            }
        }
    }

    /// Like [`Oracle::mark_idle`], if another command than an undo may have recorded the segment.
    pub(crate) fn mark_perhaps_idle(&mut self) {
        for step in self.idle_steps() {
            for segment in self.segments.iter_mut().skip(self.steps[step].sign) {
                segment.may_be_idle.insert(step);
            }
        }
    }

    fn idle_steps(&self) -> Vec<usize> {
        let is_idle = |at: &usize| {
            let step = &self.steps[*at];
            step.is_open && step.is_hooked && !step.has_process
        };
        (0..self.steps.len()).filter(is_idle).collect()
    }

    /// Returns whether no evidence shows whether the step's tool or the user changed a path.
    /// Changes of files that the tool names, and deletions, belong to the tool.
    pub(super) fn is_unclear(&self, path: &str, change: &Change) -> bool {
        let Some(segment) = self.segments.get(change.segment) else { return false };
        let stays = Content::of(segment.after.0.get(path)).is_some();
        stays
            && change.candidates.iter().any(|step| {
                let info = &self.steps[*step];
                let is_idle = segment.idle.contains(step) || segment.may_be_idle.contains(step);
                !info.names(path) && (info.is_interrupted || is_idle)
            })
    }

    /// Records an undo or revert whose segment was cut last.
    pub(crate) fn add_op(
        &mut self,
        logged: &Value,
        steps: BTreeSet<usize>,
        report: Option<&Report>,
    ) {
        let text = |name: &str| logged[name].as_str().map(str::to_owned);
        let (id, is_restore) = (text("operation").unwrap_or_default(), logged["kind"] == "restore");
        let moved_from = text("takes_back").filter(|_| logged["kind"] == "revert");
        let left = report.map(Report::reported).unwrap_or_default();
        let limit = report.map(|report| report.limit.clone()).unwrap_or_default();
        let segment = self.segments.len() - 1;
        let is_in_force = true;
        let op = Op { id, steps, is_in_force, moved_from, is_restore, segment, left, limit };
        self.ops.push(op);
    }

    /// Limits an undo or revert to the paths that a redo could not change back.
    pub(crate) fn narrow(&mut self, op: usize, paths: &[(String, Option<String>)]) {
        let op = &mut self.ops[op];
        op.limit = paths.iter().map(|(path, _)| path.clone()).collect();
    }

    pub(crate) fn is_ignored(&self, path: &str) -> bool {
        path.split('/').any(|name| self.is_ignored_name(name))
    }

    /// Returns whether a path is inside an ignored directory, which the engine does not enter.
    pub(super) fn is_below_ignored(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(dir, _)| self.is_ignored(dir))
    }

    fn is_ignored_name(&self, name: &str) -> bool {
        name.ends_with(".ign") || self.ignored_names.contains(name)
    }

    /// Returns whether a step's change of a path in a segment is already reversed.
    pub(super) fn is_done(
        &self,
        step: usize,
        segment: usize,
        path: &str,
        redone: &[usize],
    ) -> bool {
        self.ops.iter().enumerate().any(|(at, op)| {
            op.is_in_force
                && !redone.contains(&at)
                && op.segment > segment
                && op.steps.contains(&step)
                && op.took(path)
        })
    }

    /// Returns the segments in which the undone steps may have changed a path, newest first.
    pub(super) fn segments_of<'a>(
        &'a self,
        path: &'a str,
        taken: &'a Taken,
    ) -> impl Iterator<Item = &'a Segment> {
        let is_taken = move |at: usize| {
            let changes = self.segments[at].changes.get(path);
            changes.into_iter().flatten().flat_map(|change| &change.candidates).any(|step| {
                taken.undone.contains(step) && !self.is_done(*step, at, path, &taken.redone)
            })
        };
        (0..self.segments.len()).rev().filter(move |at| is_taken(*at)).map(|at| &self.segments[at])
    }

    /// Returns the changes of a path that a command reverses, newest first.
    pub(super) fn pieces(&self, path: &str, taken: &Taken) -> Vec<Piece> {
        self.pieces_where(path, taken, |_| true)
    }

    /// Like [`Oracle::pieces`], without the changes that the user alone made before a tool ran.
    pub(super) fn sure_pieces(&self, path: &str, taken: &Taken) -> Vec<Piece> {
        let is_users = |change: &Change| {
            let started_later =
                |step: &usize| change.waiting.contains(step) && !self.steps[*step].is_open;
            change.actor == Author::User && change.candidates.iter().any(started_later)
        };
        self.pieces_where(path, taken, |segment| {
            !segment.changes.get(path).is_some_and(|changes| changes.iter().all(is_users))
        })
    }

    fn pieces_where(
        &self,
        path: &str,
        taken: &Taken,
        wanted: impl Fn(&Segment) -> bool,
    ) -> Vec<Piece> {
        let redone = taken.redone.iter().map(|at| &self.segments[self.ops[*at].segment]);
        let segments = redone.chain(self.segments_of(path, taken)).filter(|one| wanted(one));
        let content = |tree: &Manifest| Content::of(tree.0.get(path));
        segments
            .map(|segment| Piece {
                before: content(&segment.before),
                after: content(&segment.after),
            })
            .collect()
    }
}

/// Returns whether `path` is `dir` or below it.
pub(crate) fn is_within(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
