//! Revert of a session to a message. Files are reverted at once, messages only when the session
//! continues or the caller commits.
//!
//! Until then the boundary can move both ways: a second revert reverses the first one and its own
//! range in one plan. Unrevert reverses the revert and merges it with later edits.

use std::collections::{BTreeMap, HashSet};

use crate::error::{Error, SessionError};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{Boundary, Details, LogEntry, OperationKind};
use crate::workspace::Workspace;

use super::choose::{UndoScope, choose_from};
use super::history::{History, append};
use super::plans::Rewinding;
use super::undo::Chosen;
use super::unreachable::expired;

/// A revert that can still be moved or reversed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevertState {
    /// Session that was reverted.
    pub session: String,
    /// First message or part that is reverted.
    pub boundary: Boundary,
    /// Operation that recorded the revert.
    pub operation: String,
    /// Snapshot before the revert.
    pub before: ObjectId,
    /// Snapshot after the revert.
    pub after: ObjectId,
    /// Reverted steps, oldest first.
    pub steps: Vec<String>,
    /// Messages of these steps, oldest first. A commit removes them.
    pub messages: Vec<String>,
}

impl Rewinding<'_> {
    /// Plans to revert a session to the state before a message or before a part of it.
    pub(super) fn choose_revert(
        &self,
        session: &str,
        boundary: &Boundary,
    ) -> Result<(Chosen, OperationKind, Details), Error> {
        let Rewinding { hold, options, .. } = self;
        let pending = pending(hold, session)?;
        let mut history = History::with_shared(&hold.store, &hold.work_tree)?;
        let mut first = Vec::new();
        if let Some((at, state)) = &pending {
            first = history.chain(*at)?;
            history = History::with_shared(&hold.store, &hold.work_tree)?.without(&state.operation);
        }
        let pieces = choose_from(hold, &mut history, boundary, options, false)?;
        let Boundary { message, part } = boundary.clone();
        let scope = UndoScope::From { message, part };
        let expired = expired(&mut history, &scope, options, &pieces)?;
        let mut chosen = self.plan_pieces(&history, &pieces, first)?;
        chosen.report.expired = expired;
        let details = Details {
            undone: chosen.report.steps.clone(),
            session: Some(session.to_owned()),
            boundary: Some(boundary.clone()),
            takes_back: pending.map(|(_, state)| state.operation),
            by_person: options.by_person,
            ..Details::default()
        };
        Ok((chosen, OperationKind::Revert, details))
    }

    /// Plans to reverse a session's revert.
    pub(super) fn choose_unrevert(
        &self,
        session: &str,
    ) -> Result<(Chosen, OperationKind, Details), Error> {
        let Rewinding { hold, options, .. } = self;
        let nothing =
            || Error::Session(SessionError::NothingReverted { session: session.to_owned() });
        let (at, state) = pending(hold, session)?.ok_or_else(nothing)?;
        let mut history = History::open(&hold.store, &hold.work_tree)?;
        let spans = history.chain(at)?;
        let left = history.still_in_force(&state.operation);
        let chosen = self.plan_redo_of(&spans, state.steps.clone(), left)?;
        let details = Details {
            undone: state.steps,
            session: Some(session.to_owned()),
            takes_back: Some(state.operation),
            by_person: options.by_person,
            ..Details::default()
        };
        Ok((chosen, OperationKind::Unrevert, details))
    }
}

impl Workspace {
    /// Returns a session's revert, as long as it can be moved or reversed.
    pub fn revert_state(&self, session: &str) -> Result<Option<RevertState>, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(None) };
        let mut history = History::open(&store, &work_tree)?;
        Ok(find_pending(&mut history, session)?.map(|(_, state)| state))
    }

    /// Makes a session's revert final, as new work of the session also does.
    ///
    /// Returns the revert, so that the caller can drop its messages, or `None` if nothing was
    /// reverted. Redo can still restore the files.
    pub fn commit_revert(&self, session: &str) -> Result<Option<RevertState>, Error> {
        let hold = self.begin()?;
        let Some((_, state)) = pending(&hold, session)? else { return Ok(None) };
        let Some(last) = hold.work_tree.last_or_salvaged(&hold.store)? else { return Ok(None) };
        let details = Details {
            session: Some(session.to_owned()),
            commits: Some(state.operation.clone()),
            ..Details::default()
        };
        append(&hold, &last, OperationKind::Revert, details)?;
        Ok(Some(state))
    }
}

fn pending(hold: &Hold, session: &str) -> Result<Option<(usize, RevertState)>, Error> {
    find_pending(&mut History::open(&hold.store, &hold.work_tree)?, session)
}

/// Returns the session's newest revert if it is in force and the session has not worked since.
fn find_pending(
    history: &mut History<'_>,
    session: &str,
) -> Result<Option<(usize, RevertState)>, Error> {
    let mut at = 0;
    while history.before(at)?.is_some() {
        let entry = history.entries[at].clone();
        let worked = entry.details.credits.iter().any(|credit| credit.step.belongs_to(session));
        let own = entry.details.session.as_deref() == Some(session);
        if worked || (own && entry.details.commits.is_some()) {
            return Ok(None);
        }
        if own && entry.details.boundary.is_some() {
            return if is_pending(history, &entry) {
                state_of(history, at).map(|state| Some((at, state)))
            } else {
                Ok(None)
            };
        }
        at += 1;
    }
    Ok(None)
}

/// Returns the reverts of all sessions that can be moved or reversed, in one pass over the log.
pub(super) fn all_pending(
    history: &mut History<'_>,
) -> Result<BTreeMap<String, RevertState>, Error> {
    // Sessions whose newest relevant operation has been seen.
    let mut seen: HashSet<String> = HashSet::new();
    let mut found = BTreeMap::new();
    let mut at = 0;
    while history.before(at)?.is_some() {
        let entry = history.entries[at].clone();
        for credit in &entry.details.credits {
            seen.insert(credit.step.session.clone());
            seen.extend(credit.step.parent.iter().map(|turn| turn.session.clone()));
        }
        if let Some(session) = &entry.details.session
            && (entry.details.commits.is_some() || entry.details.boundary.is_some())
            && seen.insert(session.clone())
            && is_pending(history, &entry)
        {
            found.insert(session.clone(), state_of(history, at)?);
        }
        at += 1;
    }
    Ok(found)
}

/// Returns whether a session's newest revert is neither final nor reversed.
fn is_pending(history: &History<'_>, entry: &LogEntry) -> bool {
    let in_force = history.is_in_force(entry) || entry.details.undone.is_empty();
    entry.details.boundary.is_some() && in_force && !history.is_redone(&entry.id)
}

fn state_of(history: &mut History<'_>, at: usize) -> Result<RevertState, Error> {
    let entry = history.entries[at].clone();
    let details = &entry.details;
    let first = history.first_of_chain(at)?;
    let before = history.before(first)?.map_or(entry.snapshot, |before| before.snapshot);
    let boundary = details.boundary.clone().expect("the caller checked that it is there");
    let steps = details.undone.clone();
    // Collects the messages of the steps, walking back until every step was seen.
    let mut missing: HashSet<&str> = steps.iter().map(String::as_str).collect();
    let mut messages: Vec<String> = Vec::new();
    let mut at = 0;
    while !missing.is_empty() && history.before(at)?.is_some() {
        for piece in history.pieces_of(at).collect::<Vec<_>>().into_iter().rev() {
            let info = history.info(piece);
            if steps.contains(&info.step) {
                if let Some(message) = &info.message
                    && !messages.contains(message)
                {
                    messages.push(message.clone());
                }
                missing.remove(info.step.as_str());
            }
        }
        at += 1;
    }
    messages.reverse();
    Ok(RevertState {
        session: details.session.clone().unwrap_or_default(),
        boundary,
        operation: entry.id.clone(),
        before,
        after: entry.snapshot,
        steps,
        messages,
    })
}
