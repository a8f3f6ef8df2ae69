//! Undo and redo: three-way, file by file, as one plan.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::restore::{Action, Kept};
use crate::scan::Progress;
use crate::store::{Details, OperationKind};
use crate::workspace::{Cause, Hold, Prepared, RestoreOptions, TrackOptions, Tracked, Workspace};

use super::history::{History, Piece};
use super::inverse::{OnConflict, invert};

/// What to take back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UndoScope {
    /// The newest turn that is not taken back yet.
    #[default]
    LastTurn,
    /// The newest step that is not taken back yet.
    LastStep,
    /// One step, keeping later ones.
    Step(String),
    /// One message, keeping later ones.
    Message(String),
    /// A message and everything its session did after it.
    From(String),
    /// Everything the session did.
    Session,
}

/// How to take it back.
#[derive(Clone, Debug, Default)]
pub struct UndoOptions {
    /// The session; default: the one that worked last and still has something to take back.
    pub session: Option<String>,
    /// Only these paths. Default: all.
    pub paths: Vec<TreePath>,
    /// Takes the old version where changes do not merge. Default: the present one stays.
    pub force: bool,
    /// Allows removing an unusual share of the files. Default: no.
    pub allow_mass_removal: bool,
    /// Refuses if the plan is no longer the one with this hash. Default: none.
    pub expected_plan: Option<ObjectId>,
}

/// A file that stays as it is because taking the change out of it is not possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The file.
    pub path: TreePath,
    /// Why.
    pub why: String,
}

/// What an undo or redo did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndoReport {
    /// The steps it is about, oldest first.
    pub steps: Vec<String>,
    /// What was done, path by path.
    pub done: Vec<Action>,
    /// Files that stay because changes made since do not merge.
    pub conflicts: Vec<Conflict>,
    /// Files that stay for other reasons.
    pub kept: Vec<Kept>,
    /// Names the plan.
    pub plan: ObjectId,
    /// The operation that recorded the state before: restoring it takes this back as a whole.
    pub safety_operation: Option<String>,
    /// The snapshot afterwards; `None` if nothing was changed.
    pub after: Option<ObjectId>,
    /// Replaced things that could not be removed and still lie under these names.
    pub left: Vec<String>,
    /// Why the undo could not be recorded, if so; the files are as `done` says.
    pub not_recorded: Option<String>,
    /// A command that moves the user's own git back; never run by us.
    pub git_hint: Option<String>,
}

impl UndoReport {
    /// Whether everything was taken back.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty()
            && self.left.is_empty()
            && self.not_recorded.is_none()
            && !self.kept.iter().any(|kept| kept.reason.is_failure())
    }
}

/// What an undo or a redo is made from.
struct Chosen {
    steps: Vec<String>,
    prepared: Prepared,
    conflicts: Vec<Conflict>,
    git_hint: Option<String>,
}

impl Workspace {
    /// What [`Workspace::undo`] would do now. Records the present state, changes no file.
    pub fn plan_undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let chosen = self.choose_undo(&hold, scope, options, progress)?;
        Ok(preview(chosen))
    }

    /// Takes steps back, keeping everything that others did since.
    pub fn undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let chosen = self.choose_undo(&hold, scope, options, progress)?;
        let details = Details {
            undone: chosen.steps.clone(),
            undone_only: options.paths.clone(),
            conflicts: chosen.conflicts.iter().map(|conflict| conflict.path.clone()).collect(),
            ..Details::default()
        };
        self.carry_through(&hold, chosen, OperationKind::Undo, details, options, progress)
    }

    /// Takes the newest undo back that is not taken back yet.
    pub fn redo(&self, options: &UndoOptions, progress: &Progress) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let tracked =
            self.track_locked(&hold, &TrackOptions::default(), &Cause::outside(), progress)?;
        let history = History::read(&hold.store, &hold.work_tree)?;
        let pieces = last_undo(&history).ok_or(Error::NothingToRedo)?;
        let undo = pieces.after;
        let (prepared, conflicts) = self.plan_inverse(&hold, &tracked, None, &[pieces], options)?;
        let steps = undo.details.undone.clone();
        let details = Details {
            undone: steps.clone(),
            takes_back: Some(undo.id.clone()),
            ..Details::default()
        };
        let chosen = Chosen { steps, prepared, conflicts, git_hint: None };
        self.carry_through(&hold, chosen, OperationKind::Redo, details, options, progress)
    }

    fn choose_undo(
        &self,
        hold: &Hold,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<Chosen, Error> {
        let tracked =
            self.track_locked(hold, &TrackOptions::default(), &Cause::outside(), progress)?;
        let history = History::read(&hold.store, &hold.work_tree)?;
        let pieces = history.pieces();
        let chosen = choose(&history, &pieces, scope, options)?;
        let mut steps: Vec<String> = Vec::new();
        for step in chosen.iter().filter_map(|piece| piece.info) {
            if !steps.contains(&step.step) {
                steps.push(step.step.clone());
            }
        }
        let git_hint = git_hint(hold, &chosen);
        let (prepared, conflicts) =
            self.plan_inverse(hold, &tracked, Some(&history), &chosen, options)?;
        Ok(Chosen { steps, prepared, conflicts, git_hint })
    }

    fn plan_inverse(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        history: Option<&History>,
        pieces: &[Piece<'_>],
        options: &UndoOptions,
    ) -> Result<(Prepared, Vec<Conflict>), Error> {
        let on_conflict = if options.force { OnConflict::TakeTheirs } else { OnConflict::Keep };
        let now = crate::restore::Now::of(&tracked.listing);
        let (request, conflicts) =
            invert(&hold.store, &now, history, pieces, &options.paths, on_conflict)?;
        let prepared = self.plan_from(hold, tracked, request)?;
        Ok((prepared, conflicts))
    }

    fn carry_through(
        &self,
        hold: &Hold,
        chosen: Chosen,
        kind: OperationKind,
        details: Details,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let nothing_possible = chosen.prepared.plan.is_empty() && !chosen.conflicts.is_empty();
        if nothing_possible {
            // Not recorded as taken back: it is not.
            return Ok(preview(chosen));
        }
        let cause = Cause { kind, details, always: true };
        let restore = RestoreOptions {
            allow_mass_removal: options.allow_mass_removal,
            expected_plan: options.expected_plan,
            ..RestoreOptions::default()
        };
        let Chosen { steps, prepared, conflicts, git_hint } = chosen;
        let hash = prepared.plan.hash;
        let report = self.carry_out(hold, prepared, None, &restore, &cause, progress)?;
        Ok(UndoReport {
            steps,
            done: report.done,
            conflicts,
            kept: report.kept,
            plan: hash,
            safety_operation: Some(report.safety_operation),
            after: Some(report.after),
            left: report.left,
            not_recorded: report.not_recorded,
            git_hint,
        })
    }
}

fn preview(chosen: Chosen) -> UndoReport {
    let plan = chosen.prepared.plan;
    UndoReport {
        steps: chosen.steps,
        conflicts: chosen.conflicts,
        plan: plan.hash,
        done: plan.actions,
        kept: plan.kept,
        safety_operation: None,
        after: None,
        left: Vec::new(),
        not_recorded: None,
        git_hint: chosen.git_hint,
    }
}

/// The pieces to take back, oldest first.
fn choose<'a>(
    history: &History,
    pieces: &[Piece<'a>],
    scope: &UndoScope,
    options: &UndoOptions,
) -> Result<Vec<Piece<'a>>, Error> {
    let open = |piece: &Piece<'a>| {
        piece.info.is_some_and(|info| {
            (!history.is_undone(&info.step) || (options.force && history.has_conflicts(&info.step)))
                && options.session.as_ref().is_none_or(|session| info.session == *session)
        })
    };
    let left: Vec<Piece<'a>> = pieces.iter().copied().filter(open).collect();
    let Some(newest) = left.last().and_then(|piece| piece.info) else {
        return Err(Error::NothingToUndo);
    };
    let session = newest.session.as_str();
    let of = |wanted: &dyn Fn(&crate::store::StepInfo) -> bool| -> Vec<Piece<'a>> {
        left.iter().copied().filter(|piece| piece.info.is_some_and(wanted)).collect()
    };
    let chosen = match scope {
        UndoScope::LastTurn => of(&|info| info.session == session && info.turn() == newest.turn()),
        UndoScope::LastStep => of(&|info| info.step == newest.step),
        UndoScope::Step(step) => of(&|info| info.step == *step),
        UndoScope::Message(message) => of(&|info| info.message.as_deref() == Some(message)),
        UndoScope::From(message) => {
            let first = left.iter().position(|piece| {
                piece.info.is_some_and(|info| info.message.as_deref() == Some(message))
            });
            let Some(first) = first else {
                return Err(Error::NoSuchMessage { message: message.clone() });
            };
            let session = left[first].info.map(|info| info.session.clone()).unwrap_or_default();
            let after = &left[first..];
            let same = |piece: &&Piece<'a>| piece.info.is_some_and(|info| info.session == session);
            after.iter().filter(same).copied().collect()
        }
        UndoScope::Session => of(&|info| info.session == session),
    };
    match (chosen.is_empty(), scope) {
        (false, _) => Ok(chosen),
        (true, UndoScope::Step(step)) => Err(Error::NoSuchStep { step: step.clone() }),
        (true, UndoScope::Message(message)) => {
            Err(Error::NoSuchMessage { message: message.clone() })
        }
        (true, _) => Err(Error::NothingToUndo),
    }
}

/// The newest undo that no redo took back.
fn last_undo(history: &History) -> Option<Piece<'_>> {
    let taken_back: BTreeSet<&str> = history
        .operations
        .iter()
        .filter_map(|operation| operation.details.takes_back.as_deref())
        .collect();
    history.operations.windows(2).rev().find_map(|pair| {
        let (before, after) = (&pair[0], &pair[1]);
        let open = after.kind == OperationKind::Undo && !taken_back.contains(after.id.as_str());
        open.then_some(Piece { before, after, info: None, paths: None, inferred: false })
    })
}

/// How the user would move their own git back, if the steps moved it.
fn git_hint(hold: &Hold, pieces: &[Piece<'_>]) -> Option<String> {
    let then = pieces.first()?.before.details.head.as_ref()?;
    let now = hold.head.as_ref()?;
    if then == now {
        return None;
    }
    let commit = then.commit.as_deref()?;
    Some(match (&then.branch, &now.branch) {
        (Some(branch), now) if Some(branch) != now.as_ref() => {
            format!("git switch {}", shell_word(branch))
        }
        (Some(_), _) => format!("git reset --soft {commit}"),
        (None, _) => format!("git switch --detach {commit}"),
    })
}

/// A word that a shell takes as it is, whatever it holds.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    match text.chars().all(plain) && !text.starts_with('-') {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
