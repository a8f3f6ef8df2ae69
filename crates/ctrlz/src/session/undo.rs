//! Undo and redo: three-way, file by file, as one plan.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::restore::{Action, Kept};
use crate::scan::Progress;
use crate::store::{Details, LogEntry, OperationKind};
use crate::workspace::{
    Cause, Hold, Prepared, RestoreOptions, SaveIgnored, TrackOptions, Tracked, Workspace,
};

use super::choose::{UndoScope, choose};
use super::history::{History, Piece, Span};
use super::inverse::{Inversion, OnConflict, invert};
use super::plans::{Rewind, remember};
use super::revert::check_idle;

/// How to take it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UndoOptions {
    /// The session; default: the one that worked last and still has something to take back.
    pub session: Option<String>,
    /// Only these paths. Default: all.
    pub paths: Vec<TreePath>,
    /// Takes the old version where changes do not merge. Default: the present one stays.
    pub force: bool,
    /// Also takes back changes of ignored files that no tool named. Default: no.
    pub ignored: bool,
    /// Closes the session's open steps instead of calling it busy. Default: no.
    pub interrupt: bool,
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
    /// Changes of ignored files that stay, because nobody asked for them.
    pub ignored: Vec<Conflict>,
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

/// What an undo, redo, revert or unrevert is made from.
pub(super) struct Chosen {
    pub(super) steps: Vec<String>,
    /// Whose steps they are, if all are one session's.
    session: Option<String>,
    prepared: Prepared,
    conflicts: Vec<Conflict>,
    /// Ignored files that will be written or removed.
    ignored: Vec<TreePath>,
    ignored_left: Vec<Conflict>,
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
        let rewind = Rewind::Undo { scope: scope.clone(), options: options.clone() };
        remember(&hold, &rewind, preview(chosen))
    }

    /// Takes steps back, keeping everything that others did since.
    pub fn undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        interrupt(&hold, options)?;
        let chosen = self.choose_undo(&hold, scope, options, progress)?;
        let details = Details {
            undone: chosen.steps.clone(),
            undone_only: options.paths.clone(),
            session: options.session.clone().or_else(|| chosen.session.clone()),
            ..Details::default()
        };
        self.carry_through(&hold, chosen, OperationKind::Undo, details, options, progress)
    }

    /// What [`Workspace::redo`] would do now.
    pub fn plan_redo(
        &self,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, _) = self.choose_redo(&hold, options, progress)?;
        remember(&hold, &Rewind::Redo { options: options.clone() }, preview(chosen))
    }

    /// Takes the newest undo or revert back that is not taken back yet.
    pub fn redo(&self, options: &UndoOptions, progress: &Progress) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, undo) = self.choose_redo(&hold, options, progress)?;
        let details = Details {
            undone: chosen.steps.clone(),
            takes_back: Some(undo.id),
            session: undo.details.session,
            ..Details::default()
        };
        self.carry_through(&hold, chosen, OperationKind::Redo, details, options, progress)
    }

    fn choose_redo(
        &self,
        hold: &Hold,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<(Chosen, LogEntry), Error> {
        let tracked = self.track_present(hold, progress)?;
        let mut history = History::open(&hold.store, &hold.work_tree)?;
        let mut at = 0;
        while history.before(at)?.is_some() {
            let entry = &history.entries[at];
            let asked = options.session.as_ref();
            let own = asked.is_none_or(|asked| entry.details.session.as_ref() == Some(asked));
            if history.is_in_force(entry) && own {
                let entry = entry.clone();
                let spans = history.chain(at)?;
                let steps = entry.details.undone.clone();
                let chosen = self.plan_inverse(hold, &tracked, None, &spans, steps, options)?;
                return Ok((chosen, entry));
            }
            at += 1;
        }
        Err(Error::NothingToRedo)
    }

    fn choose_undo(
        &self,
        hold: &Hold,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<Chosen, Error> {
        let tracked = self.track_present(hold, progress)?;
        let mut history = History::open(&hold.store, &hold.work_tree)?;
        let pieces = choose(&hold.store, &mut history, scope, options)?;
        self.plan_pieces(hold, &tracked, &history, &pieces, Vec::new(), options)
    }

    /// Records what is there now, whoever made it.
    pub(super) fn track_present(&self, hold: &Hold, progress: &Progress) -> Result<Tracked, Error> {
        self.track_locked(hold, &TrackOptions::default(), &Cause::before_change(), progress)
    }

    /// Plans to take pieces back, after `first`, operations that are newer than all of them.
    pub(super) fn plan_pieces(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        history: &History<'_>,
        pieces: &[Piece],
        first: Vec<Span>,
        options: &UndoOptions,
    ) -> Result<Chosen, Error> {
        let mut steps: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        let mut spans = Vec::new();
        for piece in pieces {
            let step = &history.info(*piece).step;
            if seen.insert(step.clone()) {
                steps.push(step.clone());
            }
            spans.push(history.span(*piece)?);
        }
        spans.extend(first);
        let mut chosen = self.plan_inverse(hold, tracked, Some(history), &spans, steps, options)?;
        chosen.git_hint = git_hint(hold, &spans);
        chosen.session = only_session(history, pieces);
        Ok(chosen)
    }

    pub(super) fn plan_inverse(
        &self,
        hold: &Hold,
        tracked: &Tracked,
        history: Option<&History<'_>>,
        spans: &[Span],
        steps: Vec<String>,
        options: &UndoOptions,
    ) -> Result<Chosen, Error> {
        let inversion = Inversion {
            history,
            spans,
            limit: &options.paths,
            on_conflict: if options.force { OnConflict::TakeTheirs } else { OnConflict::Keep },
            ignored: options.ignored,
            companion: tracked.operation.meta.companion,
        };
        let now = crate::restore::Now::of(&tracked.listing);
        let inverted = invert(&hold.store, &now, &inversion)?;
        let prepared = self.plan_from(hold, tracked, inverted.request, SaveIgnored::Beside)?;
        Ok(Chosen {
            steps,
            session: None,
            prepared,
            conflicts: inverted.conflicts,
            ignored: inverted.ignored,
            ignored_left: inverted.ignored_left,
            git_hint: None,
        })
    }

    pub(super) fn carry_through(
        &self,
        hold: &Hold,
        chosen: Chosen,
        kind: OperationKind,
        details: Details,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        if options.expected_plan.is_some_and(|expected| expected != chosen.prepared.plan.hash) {
            return Err(Error::StalePlan);
        }
        let nothing_possible = chosen.prepared.plan.is_empty() && !chosen.conflicts.is_empty();
        if nothing_possible && details.boundary.is_none() && details.takes_back.is_none() {
            if options.expected_plan.is_some_and(|expected| expected != chosen.prepared.plan.hash) {
                return Err(Error::StalePlan);
            }
            // Not recorded as taken back: it is not.
            return Ok(preview(chosen));
        }
        let details = Details {
            conflicts: chosen.conflicts.iter().map(|conflict| conflict.path.clone()).collect(),
            ignored: chosen.ignored.clone(),
            ignored_left: chosen.ignored_left.iter().map(|left| left.path.clone()).collect(),
            ..details
        };
        let cause = Cause { details, always: true, ..Cause::of(kind) };
        let restore = RestoreOptions {
            allow_mass_removal: options.allow_mass_removal,
            expected_plan: options.expected_plan,
            ..RestoreOptions::default()
        };
        let Chosen { steps, prepared, conflicts, ignored_left, git_hint, .. } = chosen;
        let hash = prepared.plan.hash;
        let report = self.carry_out(hold, prepared, None, &restore, &cause, progress)?;
        Ok(UndoReport {
            steps,
            done: report.done,
            conflicts,
            ignored: ignored_left,
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

fn only_session(history: &History<'_>, pieces: &[Piece]) -> Option<String> {
    let mut sessions = pieces.iter().map(|piece| history.info(*piece).root_session());
    let first = sessions.next()?;
    sessions.all(|session| session == first).then(|| first.to_owned())
}

/// Closes the open steps of the session that was asked for, or else of the one that began last.
fn interrupt(hold: &Hold, options: &UndoOptions) -> Result<(), Error> {
    if !options.interrupt {
        return Ok(());
    }
    let newest = || Some(hold.open_steps().ok()?.last()?.info.root_session().to_owned());
    match options.session.clone().or_else(newest) {
        Some(session) => check_idle(hold, &session, options),
        None => Ok(()),
    }
}

pub(super) fn preview(chosen: Chosen) -> UndoReport {
    let plan = chosen.prepared.plan;
    UndoReport {
        steps: chosen.steps,
        conflicts: chosen.conflicts,
        ignored: chosen.ignored_left,
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

/// How the user would move their own git back, if the steps moved it.
fn git_hint(hold: &Hold, spans: &[Span]) -> Option<String> {
    let then = spans.first()?.before.details.head.as_ref()?;
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
