//! The part of undo and redo that lies outside of the work tree.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, SessionError};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{LogEntry, OperationKind, OutsideUndo, new_id};
use crate::outside::{
    Finished, How, OutsideChange, OutsideKept, Prepared, Purpose, RecoveredRepository,
};
use crate::restore::{OnUse, RestoreOptions, check_mass_removal};
use crate::workspace::Workspace;

use super::choose::UndoScope;
use super::fork::{check_free, create};
use super::history::History;
use super::undo::UndoOptions;

/// What an undo or redo does outside of the work tree.
#[derive(Default)]
pub(super) struct OutsidePart {
    prepared: Prepared,
    /// Whether it is to be carried out; otherwise it is only listed.
    pub(super) asked: bool,
}

impl OutsidePart {
    /// Whether it changes anything.
    pub(super) fn writes(&self) -> bool {
        self.asked && !self.prepared.plan.is_empty()
    }

    /// Whether something that was asked for stays as it is.
    pub(super) fn is_blocked(&self) -> bool {
        self.asked && self.prepared.plan.changes.iter().any(|change| change.kept.is_some())
    }

    /// The name of the plan for the work tree and for what lies outside of it.
    pub(super) fn hash_with(&self, inside: ObjectId) -> ObjectId {
        if self.asked { self.prepared.plan.hash_with(inside) } else { inside }
    }

    /// Refuses to remove an unusual share of the files of a root.
    pub(super) fn check(&self, options: &RestoreOptions) -> Result<(), Error> {
        let mut plans = self.prepared.plan.plans().filter(|_| self.asked);
        plans.try_for_each(|(plan, files)| check_mass_removal(plan, files, options))
    }

    /// Every path, and what becomes of it.
    pub(super) fn into_changes(self) -> Vec<OutsideChange> {
        let mut changes = self.prepared.plan.changes;
        if !self.asked {
            for change in changes.iter_mut().filter(|change| change.action.is_some()) {
                change.kept = Some(OutsideKept::NotAsked);
            }
        }
        changes
    }
}

fn how(options: &UndoOptions) -> How {
    let replace_used = options.force || options.in_use == OnUse::Replace;
    How { force: options.force, replace_used, ..How::default() }
}

impl Workspace {
    /// Plans to take back what steps changed outside of the work tree.
    pub(super) fn undo_outside(
        &self,
        hold: &Hold,
        steps: &[String],
        unrestored: HashSet<ObjectId>,
        options: &UndoOptions,
    ) -> Result<OutsidePart, Error> {
        let asked = options.outside;
        let purpose = if asked { Purpose::PutBack } else { Purpose::Preview };
        let how = How { unrestored, ..how(options) };
        let prepared = self.outside_of(hold).plan(steps, &how, purpose)?;
        Ok(OutsidePart { prepared, asked })
    }

    /// Plans to bring back what an undo took back outside of the work tree.
    pub(super) fn redo_outside(
        &self,
        hold: &Hold,
        undo: &LogEntry,
        options: &UndoOptions,
    ) -> Result<OutsidePart, Error> {
        let capture = undo.details.outside.as_ref().and_then(|outside| outside.capture.clone());
        let Some(capture) = capture else { return Ok(OutsidePart::default()) };
        let outside = self.outside_of(hold);
        let prepared = outside.plan(&[capture], &how(options), Purpose::PutBack)?;
        Ok(OutsidePart { prepared, asked: true })
    }

    /// The steps that the newest operation, an undo, took back in the work tree alone, if the rest
    /// is asked for now: then no other step is meant.
    pub(super) fn left_outside(
        &self,
        hold: &Hold,
        history: &mut History<'_>,
        scope: &UndoScope,
        options: &UndoOptions,
    ) -> Result<Option<(Vec<String>, OutsidePart)>, Error> {
        if !options.outside {
            return Ok(None);
        }
        history.before(0)?;
        let Some(newest) = history.entries.first() else { return Ok(None) };
        let (kind, details) = (newest.kind, &newest.details);
        // An undo of this part alone that was redone leaves the steps undone in the work tree.
        let is_redone = kind == OperationKind::Redo && details.undone.is_empty();
        let earlier = details.outside.as_ref();
        let steps = match earlier {
            Some(outside) => &outside.steps,
            None if details.undone.is_empty() => &details.tried,
            None => &details.undone,
        };
        let is_meant = match scope {
            UndoScope::LastTurn | UndoScope::LastStep => true,
            UndoScope::Step { step } => steps.contains(step),
            UndoScope::Message { .. } | UndoScope::From { .. } | UndoScope::Session => false,
        };
        let is_of = |asked: &String| details.session.as_ref().is_none_or(|own| own == asked);
        let is_undo = kind == OperationKind::Undo || is_redone;
        if !is_undo || !is_meant || !options.session.iter().all(is_of) {
            return Ok(None);
        }
        let steps = steps.clone();
        let part = self.undo_outside(hold, &steps, HashSet::new(), options)?;
        // Once it was tried, what cannot be put back must not stand in the way of older turns.
        let is_left = match earlier.filter(|_| !is_redone) {
            None => !part.prepared.plan.changes.is_empty(),
            Some(_) => part.writes(),
        };
        Ok(is_left.then_some((steps, part)))
    }

    /// Saves what a plan replaces outside of the work tree. Returns what the log says about it.
    pub(super) fn save_outside(
        &self,
        hold: &Hold,
        part: &mut OutsidePart,
        kind: OperationKind,
        steps: &[String],
    ) -> Result<Option<OutsideUndo>, Error> {
        if !part.asked || part.prepared.plan.changes.is_empty() {
            return Ok(None);
        }
        let mut capture = None;
        if part.writes() {
            let verb = if kind == OperationKind::Redo { "redo" } else { "undo" };
            let name = format!("{verb}:{}", new_id());
            self.outside_of(hold).save_present(&mut part.prepared, &name)?;
            capture = Some(name);
        }
        Ok(Some(OutsideUndo { steps: steps.to_vec(), capture }))
    }

    /// Forgets what was saved for a plan that is not carried out.
    pub(super) fn forget_outside(&self, hold: &Hold, outside: Option<&OutsideUndo>) {
        if let Some(capture) = outside.and_then(|outside| outside.capture.as_ref()) {
            // Otherwise it expires.
            drop(self.outside_of(hold).forget_step(capture));
        }
    }

    /// Carries out the part outside of the work tree, once the log names what it replaces.
    pub(super) fn put_outside_back(
        &self,
        hold: &Hold,
        part: OutsidePart,
        outside: Option<&OutsideUndo>,
    ) -> Finished {
        let capture = outside.and_then(|outside| outside.capture.as_ref());
        let Some(capture) = capture.filter(|_| part.writes()) else {
            return Finished { changes: part.into_changes(), left: Vec::new() };
        };
        self.outside_of(hold).put_back(part.prepared.plan, capture)
    }

    /// Writes the newest captured directory of a version control system that a step destroyed or
    /// changed to `into`, which must be new or empty.
    ///
    /// Nothing inside of a repository's own directory is ever written, so that this is how one
    /// comes back.
    pub fn recover_repository(&self, into: &Path) -> Result<RecoveredRepository, Error> {
        check_free(into)?;
        let hold = self.begin()?;
        let outside = self.outside_of(&hold);
        let captured = outside
            .captured_repository()?
            .ok_or(Error::Session(SessionError::NoCapturedRepository))?;
        outside.write_repository(captured, &create(into)?)
    }
}
