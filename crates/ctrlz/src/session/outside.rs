//! Part of undo and redo that affects paths outside of the work tree.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, SessionError};
use crate::git::ObjectId;
use crate::log::{LogEntry, OperationKind, OutsideUndo, new_id};
use crate::outside::{
    Finished, How, OutsideChange, OutsideKept, Prepared, Purpose, RecoveredRepository,
};
use crate::restore::{OnUse, RestoreOptions, check_mass_removal};

use super::LostFiles;
use super::choose::UndoScope;
use super::fork::{check_free, create};
use super::history::History;
use super::plans::Rewinding;
use super::report::UndoOptions;

/// Part of an undo or redo that affects paths outside of the work tree.
#[derive(Default)]
pub(super) struct OutsidePart {
    prepared: Prepared,
    /// Whether to apply it. Otherwise it is only listed.
    pub(super) asked: bool,
}

impl OutsidePart {
    /// Returns whether it changes anything.
    pub(super) fn writes(&self) -> bool {
        self.asked && !self.prepared.plan.is_empty()
    }

    /// Returns whether a path that was asked for stays unchanged.
    pub(super) fn is_blocked(&self) -> bool {
        self.asked && self.prepared.plan.changes.iter().any(|change| change.kept.is_some())
    }

    /// Returns the hash of the whole plan, given that of the part inside of the work tree.
    pub(super) fn hash_with(&self, inside: ObjectId) -> ObjectId {
        if self.asked { self.prepared.plan.hash_with(inside) } else { inside }
    }

    /// Fails if an unusual share of the files of a root would be removed.
    pub(super) fn check(&self, options: &RestoreOptions) -> Result<(), Error> {
        let mut plans = self.prepared.plan.plans().filter(|_| self.asked);
        plans.try_for_each(|(plan, files)| check_mass_removal(plan, files, options))
    }

    /// Returns every path with its outcome.
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

impl Rewinding<'_> {
    /// Plans to reverse the changes of steps outside of the work tree.
    pub(super) fn undo_outside(
        &self,
        steps: &[String],
        unrestored: HashSet<ObjectId>,
    ) -> Result<OutsidePart, Error> {
        let asked = self.options.outside;
        let purpose = if asked { Purpose::PutBack } else { Purpose::Preview };
        let how = How { unrestored, ..how(&self.options) };
        let prepared = self.workspace.outside_of(self.hold).plan(steps, &how, purpose)?;
        Ok(OutsidePart { prepared, asked })
    }

    /// Plans to reverse the effects of an undo outside of the work tree.
    pub(super) fn redo_outside(&self, undo: &LogEntry) -> Result<OutsidePart, Error> {
        let capture = undo.details.outside.as_ref().and_then(|outside| outside.capture.clone());
        let Some(capture) = capture else { return Ok(OutsidePart::default()) };
        let outside = self.workspace.outside_of(self.hold);
        let prepared = outside.plan(&[capture], &how(&self.options), Purpose::PutBack)?;
        Ok(OutsidePart { prepared, asked: true })
    }

    /// Returns the steps that the newest operation, an undo, reversed only inside of the work tree,
    /// if the outside part is asked for now. The caller then chooses no other steps.
    pub(super) fn left_outside(
        &self,
        history: &mut History<'_>,
        scope: &UndoScope,
    ) -> Result<Option<(Vec<String>, OutsidePart)>, Error> {
        if !self.options.outside {
            return Ok(None);
        }
        history.before(0)?;
        let Some(newest) = history.entries.first() else { return Ok(None) };
        let (kind, details) = (newest.kind, &newest.details);
        // The redo of an undo of this part alone leaves the steps undone in the work tree.
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
        if !is_undo || !is_meant || !self.options.session.iter().all(is_of) {
            return Ok(None);
        }
        let steps = steps.clone();
        let part = self.undo_outside(&steps, HashSet::new())?;
        // After a first attempt, paths that cannot be restored must not block older turns.
        let is_left = match earlier.filter(|_| !is_redone) {
            None => !part.prepared.plan.changes.is_empty(),
            Some(_) => part.writes(),
        };
        Ok(is_left.then_some((steps, part)))
    }

    /// Saves the state that a plan replaces outside of the work tree. Returns its log record.
    pub(super) fn save_outside(
        &self,
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
            self.workspace.outside_of(self.hold).save_present(&mut part.prepared, &name)?;
            capture = Some(name);
        }
        Ok(Some(OutsideUndo { steps: steps.to_vec(), capture }))
    }

    /// Drops the saved state of a plan that is not applied.
    pub(super) fn forget_outside(&self, outside: Option<&OutsideUndo>) {
        if let Some(capture) = outside.and_then(|outside| outside.capture.as_ref()) {
            // Errors are ignored because the capture expires anyway.
            drop(self.workspace.outside_of(self.hold).forget_step(capture));
        }
    }

    /// Applies the part outside of the work tree, once the log names the state that it replaces.
    pub(super) fn put_outside_back(
        &self,
        part: OutsidePart,
        outside: Option<&OutsideUndo>,
    ) -> Finished {
        let capture = outside.and_then(|outside| outside.capture.as_ref());
        let Some(capture) = capture.filter(|_| part.writes()) else {
            return Finished { changes: part.into_changes(), left: Vec::new() };
        };
        self.workspace.outside_of(self.hold).put_back(part.prepared.plan, capture)
    }
}

impl LostFiles<'_> {
    /// Writes the newest captured directory of a version control system that a step destroyed or
    /// changed to `into`, which must be new or empty.
    ///
    /// Needed because ctrlz never writes inside of a repository's own directory.
    pub fn recover_repository(&self, into: &Path) -> Result<RecoveredRepository, Error> {
        check_free(into)?;
        let hold = self.0.begin()?;
        let outside = self.0.outside_of(&hold);
        let captured = outside
            .captured_repository()?
            .ok_or(Error::Session(SessionError::NoCapturedRepository))?;
        outside.write_repository(captured, &create(into)?)
    }
}
