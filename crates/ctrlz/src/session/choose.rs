//! Selection of the steps in a scope, reading the log back no further than needed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::compare::find;
use crate::error::{Error, SessionError};
use crate::fs::{InUse, Users, use_of};
use crate::hold::Hold;
use crate::log::{Boundary, StepInfo};
use crate::path::TreePath;
use crate::restore::OnUse;

use super::history::{History, Piece};
use super::report::UndoOptions;

/// Range of steps to undo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "scope")]
pub enum UndoScope {
    /// Newest turn that is not undone yet, sub-agents included.
    #[default]
    LastTurn,
    /// Newest step that is not undone yet.
    LastStep,
    /// One step, keeping later ones.
    Step {
        /// Step id.
        step: String,
    },
    /// One message, keeping later ones.
    Message {
        /// Message id.
        message: String,
    },
    /// A message, or the rest of it from a part on, and all later work of its session.
    From {
        /// Message id.
        message: String,
        /// Id of the first part to undo. The parts before it are kept.
        #[serde(default)]
        part: Option<String>,
    },
    /// All work of the session and of its sub-agents.
    Session,
}

/// Returns the pieces to undo, oldest first.
pub(super) fn choose(
    hold: &Hold,
    history: &mut History<'_>,
    scope: &UndoScope,
    options: &UndoOptions,
) -> Result<Vec<Piece>, Error> {
    if let UndoScope::From { message, part } = scope {
        let boundary = Boundary { message: message.clone(), part: part.clone() };
        let mut chosen = choose_from(hold, history, &boundary, options, false)?;
        if chosen.is_empty() {
            chosen = choose_from(hold, history, &boundary, options, true)?;
        }
        return if chosen.is_empty() {
            Err(Error::Session(SessionError::NothingToUndo))
        } else {
            Ok(chosen)
        };
    }
    let mut chooser = Chooser::new(hold, scope, options);
    chooser.walk(history)?;
    if chooser.chosen.is_empty() && chooser.passed_over {
        // Nothing older is left, so what earlier undos left is reported again.
        chooser = Chooser { retries: true, ..Chooser::new(hold, scope, options) };
        chooser.walk(history)?;
    }
    let Chooser { mut chosen, known, .. } = chooser;
    chosen.reverse();
    match (chosen.is_empty(), scope) {
        (false, _) => Ok(chosen),
        // The step or message is recorded, but nothing of it is left to undo.
        (true, _) if known => Err(Error::Session(SessionError::NothingToUndo)),
        (true, UndoScope::Step { step }) => Err(Error::no_such_step(step)),
        (true, UndoScope::Message { message } | UndoScope::From { message, .. }) => {
            Err(Error::no_such_message(message))
        }
        (true, UndoScope::LastTurn | UndoScope::LastStep | UndoScope::Session) => {
            Err(Error::Session(SessionError::NothingToUndo))
        }
    }
}

/// Returns the pieces of a session from a boundary on that are not undone yet, oldest first. With
/// `retries`, includes those of which an undo left conflicts or files in use.
///
/// Returns an empty list if the boundary is known but nothing is left to undo.
pub(super) fn choose_from(
    hold: &Hold,
    history: &mut History<'_>,
    boundary: &Boundary,
    options: &UndoOptions,
    retries: bool,
) -> Result<Vec<Piece>, Error> {
    let Boundary { message, part } = boundary;
    let mut lineage = Lineage::of(options.session.as_deref());
    let mut read: Vec<Piece> = Vec::new();
    // Session of the boundary, and the operation at which its oldest matching step so far began.
    let mut found: Option<(String, String)> = None;
    let mut end = 0;
    let mut is_known = false;
    let mut at = 0;
    while history.before(at)?.is_some() {
        lineage.pass(history, at);
        let mut passed = false;
        for piece in history.pieces_of(at).collect::<Vec<_>>().into_iter().rev() {
            let info = history.info(piece);
            if !lineage.includes(info) {
                continue;
            }
            read.push(piece);
            let of_message = info.message.as_deref() == Some(message);
            is_known |= of_message;
            if of_message && part.as_ref().is_none_or(|part| info.part.as_ref() == Some(part)) {
                found = Some((info.session.clone(), history.credit(piece).begun.clone()));
                end = read.len();
            } else if let Some((session, begun)) = &found {
                passed |= info.session == *session && !of_message;
                // A sub-agent's changes are recorded before the step that waits for it ends.
                let since = info.session != *session && history.entries[at].id > *begun;
                end = if since && info.belongs_to(session) { read.len() } else { end };
            }
        }
        if passed {
            break;
        }
        at += 1;
    }
    let Some((session, _)) = found else {
        return Err(match part {
            Some(part) if is_known => Error::Session(SessionError::NoSuchPart {
                message: message.clone(),
                part: part.clone(),
            }),
            _ => Error::no_such_message(message),
        });
    };
    read.truncate(end);
    let mut chooser = Chooser::new(hold, &UndoScope::Session, options);
    chooser.retries |= retries;
    let mut chosen = Vec::new();
    for piece in read.into_iter().rev() {
        let info = history.info(piece);
        let own = info.belongs_to(&session) || !lineage.any;
        if own && chooser.is_open(history, piece) && chooser.touches(history, piece)? {
            chosen.push(piece);
        }
    }
    Ok(chosen)
}

/// Sessions whose steps count: the given one and, before its fork, the one that it was forked from.
pub(super) struct Lineage {
    sessions: Vec<String>,
    /// Operations, each with the session that joins once the walk reaches it.
    joins: Vec<(String, String)>,
    any: bool,
}

impl Lineage {
    pub(super) fn of(session: Option<&str>) -> Lineage {
        let sessions = session.map(str::to_owned).into_iter().collect();
        Lineage { sessions, joins: Vec::new(), any: session.is_none() }
    }

    /// Advances to an older operation.
    pub(super) fn pass(&mut self, history: &History<'_>, at: usize) {
        let entry = &history.entries[at];
        if let (true, Some((_, session))) = (self.any, history.fork_of(at)) {
            // In another log, only the history that the fork shares belongs to this work tree.
            *self = Lineage::of(Some(session));
        }
        if let (Some(forked), Some(session)) = (&entry.details.forked, &entry.details.session)
            && let Some(bound) = self.shared_with(session)
        {
            let operation = bound.map_or(&forked.operation, |bound| bound.min(&forked.operation));
            self.joins.push((operation.clone(), forked.session.clone()));
        }
        let reached = |(operation, _): &(String, String)| entry.id <= *operation;
        for at in (0..self.joins.len()).rev() {
            if reached(&self.joins[at]) {
                self.sessions.push(self.joins.remove(at).1);
            }
        }
    }

    /// Returns whether a session's steps count, already (`Some(None)`) or from an operation on.
    fn shared_with(&self, session: &String) -> Option<Option<&String>> {
        if self.sessions.contains(session) {
            return Some(None);
        }
        // A fork of a fork may begin in the history that the first one shares with its origin.
        self.joins.iter().find(|(_, joins)| joins == session).map(|(from, _)| Some(from))
    }

    /// Returns whether a step belongs to one of the sessions itself and not to a sub-agent.
    pub(super) fn is_own(&self, info: &StepInfo) -> bool {
        self.any || self.sessions.contains(&info.session)
    }

    pub(super) fn includes(&self, info: &StepInfo) -> bool {
        self.any || self.sessions.iter().any(|session| info.belongs_to(session))
    }
}

/// Session, turn and step that the newest matching step selects.
struct Target {
    session: String,
    turn: String,
    step: String,
}

struct Chooser<'a> {
    hold: &'a Hold,
    scope: &'a UndoScope,
    options: &'a UndoOptions,
    lineage: Lineage,
    target: Option<Target>,
    /// Chosen pieces, newest first.
    chosen: Vec<Piece>,
    /// Operations at which chosen steps began and that have not been reached yet.
    to_begin: BTreeSet<String>,
    /// Whether a step in the scope was seen, even if it is already undone.
    known: bool,
    /// Whether to choose turns again in which the last undo left conflicts or files in use.
    retries: bool,
    /// Whether such a turn was skipped.
    passed_over: bool,
}

impl<'a> Chooser<'a> {
    fn new(hold: &'a Hold, scope: &'a UndoScope, options: &'a UndoOptions) -> Chooser<'a> {
        Chooser {
            hold,
            scope,
            options,
            lineage: Lineage::of(options.session.as_deref()),
            target: None,
            chosen: Vec::new(),
            to_begin: BTreeSet::new(),
            known: false,
            retries: options.force || options.unclear,
            passed_over: false,
        }
    }

    /// Reads the log back until no older operation can matter.
    fn walk(&mut self, history: &mut History<'_>) -> Result<(), Error> {
        let mut at = 0;
        while history.before(at)?.is_some() {
            self.lineage.pass(history, at);
            if self.visit(history, at)? {
                break;
            }
            at += 1;
        }
        Ok(())
    }

    /// Processes one operation. Returns `true` once no older operation can matter.
    fn visit(&mut self, history: &History<'_>, at: usize) -> Result<bool, Error> {
        self.to_begin.remove(&history.entries[at].id);
        let mut passed = false;
        let pieces: Vec<Piece> = history.pieces_of(at).collect();
        for piece in pieces.into_iter().rev() {
            let info = history.info(piece);
            if !self.lineage.includes(info) {
                continue;
            }
            self.passed_over |= history.has_conflicts(piece) && !self.retries;
            self.aim(history, piece)?;
            if self.is_meant(info) {
                self.known = true;
                let is_open = self.is_open(history, piece) || self.is_resolved(history, piece)?;
                if is_open && self.touches(history, piece)? {
                    self.to_begin.insert(history.credit(piece).begun.clone());
                    self.chosen.push(piece);
                }
            } else {
                passed |= self.is_past(info);
            }
        }
        let whole_log = *self.scope == UndoScope::Session;
        Ok(passed && self.known && self.to_begin.is_empty() && !whole_log)
    }

    /// Sets the target at the first step that matches the scope.
    fn aim(&mut self, history: &History<'_>, piece: Piece) -> Result<(), Error> {
        let info = history.info(piece);
        let named = match self.scope {
            UndoScope::Message { message } => info.message.as_deref() == Some(message),
            UndoScope::Step { step } => info.step == *step,
            UndoScope::LastTurn | UndoScope::LastStep => {
                self.target.is_none()
                    && (self.is_open(history, piece) || self.is_resolved(history, piece)?)
                    && self.touches(history, piece)?
                    && !self.conflicts_as_before(history, piece)?
            }
            UndoScope::From { .. } | UndoScope::Session => {
                self.is_open(history, piece) && self.touches(history, piece)?
            }
        };
        if self.target.is_none() && named {
            self.target = Some(Target {
                session: match self.scope {
                    UndoScope::LastTurn | UndoScope::Session | UndoScope::Message { .. } => {
                        info.root_session().to_owned()
                    }
                    UndoScope::LastStep | UndoScope::Step { .. } | UndoScope::From { .. } => {
                        info.session.clone()
                    }
                },
                turn: info.root_turn().to_owned(),
                step: info.step.clone(),
            });
        }
        Ok(())
    }

    fn is_meant(&self, info: &StepInfo) -> bool {
        let Some(target) = &self.target else { return false };
        match self.scope {
            UndoScope::LastTurn => {
                info.belongs_to(&target.session) && info.root_turn() == target.turn
            }
            UndoScope::LastStep | UndoScope::Step { .. } => info.step == target.step,
            UndoScope::Message { message } => {
                info.belongs_to(&target.session)
                    && (info.message.as_deref() == Some(message) || works_for(info, message))
            }
            UndoScope::From { .. } | UndoScope::Session => {
                info.belongs_to(&target.session) || !self.lineage.any
            }
        }
    }

    /// Returns whether a step is older than everything in the scope.
    fn is_past(&self, info: &StepInfo) -> bool {
        let Some(target) = &self.target else { return false };
        match self.scope {
            UndoScope::LastStep | UndoScope::Step { .. } => true,
            UndoScope::LastTurn | UndoScope::Message { .. } => info.session == target.session,
            UndoScope::From { .. } | UndoScope::Session => false,
        }
    }

    fn is_open(&self, history: &History<'_>, piece: Piece) -> bool {
        let credit = history.credit(piece);
        // A step that changed nothing only marks its message.
        let shared = &history.entries[piece.entry].details.shared;
        let is_empty = !credit.has_something() && shared.is_empty();
        let is_named =
            !matches!(self.scope, UndoScope::LastTurn | UndoScope::LastStep | UndoScope::Session);
        let is_open = !history.is_undone(piece)
            || history.in_use_left(piece).iter().any(|path| !self.is_in_use(path))
            || (is_named && history.has_conflicts(piece))
            || (self.retries && history.has_conflicts(piece))
            || (self.options.ignored && history.has_ignored_left(piece));
        is_open && !is_empty
    }

    /// Returns whether to retry the conflicts of a piece that is undone otherwise: one of the paths
    /// has changed since, or is asked for by name.
    fn is_resolved(&self, history: &History<'_>, piece: Piece) -> Result<bool, Error> {
        let (Some((then, conflicts)), Some(newest)) =
            (history.conflicts_left(piece), history.entries.first())
        else {
            return Ok(false);
        };
        let used = history.in_use_left(piece);
        for path in conflicts {
            if used.contains(path) && self.is_in_use(path) {
                continue;
            }
            if self.options.paths.contains(path) || history.differs(then, newest, path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the last undo of a piece met only conflicts and would meet them again,
    /// because none of the paths has changed since.
    fn conflicts_as_before(&mut self, history: &History<'_>, piece: Piece) -> Result<bool, Error> {
        let (Some(attempt), Some(newest)) = (history.last_attempt(piece), history.entries.first())
        else {
            return Ok(false);
        };
        for path in attempt.conflicts.iter().filter(|_| !self.retries) {
            if attempt.in_use.contains(path) && self.is_in_use(path) {
                continue;
            }
            if history.differs(&history.entries[attempt.at], newest, path)? {
                return Ok(false);
            }
        }
        self.passed_over |= !self.retries;
        Ok(!self.retries)
    }

    /// Returns whether a process keeps a file open for writing and an undo would leave it.
    fn is_in_use(&self, path: &TreePath) -> bool {
        let leaves = !self.options.force && self.options.in_use == OnUse::Leave;
        let used = || use_of(&self.hold.root, path.as_bytes(), Users::Writers);
        leaves && matches!(used(), Some((InUse::Yes, _)))
    }

    /// Returns whether the operation changed a requested path; `true` if none is given.
    fn touches(&self, history: &History<'_>, piece: Piece) -> Result<bool, Error> {
        let paths: &[TreePath] = &self.options.paths;
        let entry = &history.entries[piece.entry];
        let Some(before) = history.entries.get(piece.entry + 1) else { return Ok(false) };
        let credit = history.credit(piece);
        let own: Vec<&TreePath> =
            credit.named.iter().chain(credit.paths.iter().flatten()).collect();
        for path in paths {
            let was = find(&self.hold.store.objects, &before.snapshot, path)?;
            let differs = was != find(&self.hold.store.objects, &entry.snapshot, path)?;
            if differs || own.iter().any(|own| own.is_within(path)) {
                return Ok(true);
            }
        }
        if !paths.is_empty() && credit.paths.is_none() {
            // Permissions are in no tree.
            let changed = history.other_modes(before, entry)?;
            return Ok(changed.iter().any(|own| paths.iter().any(|path| own.is_within(path))));
        }
        Ok(paths.is_empty())
    }
}

fn works_for(info: &StepInfo, message: &str) -> bool {
    info.parent.as_ref().is_some_and(|turn| turn.message.as_deref() == Some(message))
}
