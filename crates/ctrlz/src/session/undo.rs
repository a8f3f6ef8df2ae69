//! Undo and redo: a three-way merge of each file, applied as one plan.

use std::collections::{BTreeSet, HashSet};

use crate::compare::find;
use crate::error::{Error, RestoreError, SessionError};
use crate::fs::{InUse, Users, use_of};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{Details, LogEntry, Operation, OperationKind, OutsideUndo, Uncaptured};
use crate::path::TreePath;
use crate::record::{Cause, TrackOptions, created_uncaptured, left_out_paths};
use crate::restore::{
    Absence, Kept, KeptReason, OnUse, Planning, Prepared, Request, RestoreOptions, SaveIgnored,
    Source,
};
use crate::scan::SkipReason;

use super::choose::{UndoScope, choose};
use super::history::{History, Piece, Span};
use super::inverse::{Inversion, Inverted, OnConflict, invert};
use super::outside::OutsidePart;
use super::plans::{Rewind, Rewinding};
use super::report::{Conflict, ConflictReason, UndoOptions, UndoReport};
use super::unreachable::{expired, unrecorded};

/// Plan of an undo, redo, revert or unrevert, with its conflicts.
pub(super) struct Chosen {
    /// Report without the actions, which [`Chosen::preview`] or the restore adds.
    pub(super) report: UndoReport,
    prepared: Prepared,
    /// Ignored files that will be written or removed.
    ignored: Vec<TreePath>,
    /// Part outside of the work tree.
    outside: OutsidePart,
    /// Conflicts of earlier undos of the same steps that this one does not resolve.
    left_before: Vec<TreePath>,
}

impl Chosen {
    /// Returns whether it changes something, or is complete without changing anything.
    fn is_possible(&self) -> bool {
        let plan = &self.prepared.plan;
        let is_whole = self.report.conflicts.is_empty()
            && !self.report.uncaptured.iter().any(Uncaptured::is_loss)
            && plan.is_complete()
            && !self.outside.is_blocked();
        !plan.is_empty() || self.outside.writes() || is_whole
    }

    /// Returns the hash of the whole plan.
    fn hash(&self) -> ObjectId {
        self.outside.hash_with(self.prepared.plan.hash)
    }

    /// Returns the report of the plan, which is not carried out.
    pub(super) fn preview(self) -> UndoReport {
        let hash = self.hash();
        let plan = self.prepared.plan;
        UndoReport {
            plan: hash,
            mass_removal: plan.mass_removal,
            done: plan.actions,
            kept: plan.kept,
            not_checked: plan.not_checked,
            outside_asked: self.outside.asked,
            outside: self.outside.into_changes(),
            ..self.report
        }
    }

    /// Adds the outcome to the details of the operation that is recorded for it.
    fn note_in(&self, details: Details, outside: Option<OutsideUndo>) -> Details {
        let kept = &self.prepared.plan.kept;
        let failed = kept.iter().filter(|kept| kept.reason.is_failure()).map(|kept| &kept.path);
        let conflicts = self.report.conflicts.iter().map(|conflict| &conflict.path);
        let conflicts: BTreeSet<&TreePath> =
            conflicts.chain(failed).chain(&self.left_before).collect();
        let in_use = kept.iter().filter(|kept| matches!(kept.reason, KeptReason::InUse { .. }));
        Details {
            in_use: in_use.map(|kept| kept.path.clone()).collect(),
            outside,
            conflicts: conflicts.into_iter().cloned().collect(),
            ignored: self.ignored.clone(),
            ignored_left: self.report.ignored.iter().map(|left| left.path.clone()).collect(),
            ..details
        }
    }
}

impl Rewinding<'_> {
    /// Plans a request. Returns the plan and the operation to record for it.
    pub(super) fn choose(&self, rewind: &Rewind) -> Result<(Chosen, Cause), Error> {
        let (chosen, kind, details) = match rewind {
            Rewind::Undo { scope, .. } => self.choose_undo(scope)?,
            Rewind::Redo { .. } => self.choose_redo()?,
            Rewind::RevertTo { session, boundary, .. } => self.choose_revert(session, boundary)?,
            Rewind::Unrevert { session, .. } => self.choose_unrevert(session)?,
        };
        Ok((chosen, Cause { details, ..Cause::of(kind) }))
    }

    fn choose_redo(&self) -> Result<(Chosen, OperationKind, Details), Error> {
        let (chosen, undo) = self.plan_redo()?;
        let details = Details {
            undone: undo.details.undone,
            takes_back: Some(undo.id),
            session: undo.details.session,
            ..Details::default()
        };
        Ok((chosen, OperationKind::Redo, details))
    }

    /// Plans to reverse the newest undo or revert that can be reversed. Returns the undo, too.
    fn plan_redo(&self) -> Result<(Chosen, LogEntry), Error> {
        let mut history = History::open(&self.hold.store, &self.hold.work_tree)?;
        let mut at = 0;
        let mut only_conflicts = None;
        while history.before(at)?.is_some() {
            let entry = &history.entries[at];
            let asked = self.options.session.as_ref();
            let own = asked.is_none_or(|asked| entry.details.session.as_ref() == Some(asked));
            if history.is_in_force(entry) && own {
                let entry = entry.clone();
                let spans = history.chain(at)?;
                let steps = match (&entry.details.undone, &entry.details.outside) {
                    (undone, Some(outside)) if undone.is_empty() => outside.steps.clone(),
                    (undone, _) => undone.clone(),
                };
                let left = history.still_in_force(&entry.id);
                let mut chosen = self.plan_redo_of(&spans, steps, left)?;
                chosen.outside = self.redo_outside(&entry)?;
                if chosen.is_possible() {
                    return Ok((chosen, entry));
                }
                // Nothing of it can be reversed now; an older undo may be possible.
                only_conflicts.get_or_insert((chosen, entry));
            }
            at += 1;
        }
        only_conflicts.ok_or(Error::Session(SessionError::NothingToRedo))
    }

    /// Plans to reverse an undo or revert, limited to the paths that an earlier attempt left.
    pub(super) fn plan_redo_of(
        &self,
        spans: &[Span],
        steps: Vec<String>,
        left: &[TreePath],
    ) -> Result<Chosen, Error> {
        let limit = if left.is_empty() { &self.options.paths } else { left };
        self.plan_inverse(None, spans, steps, limit)
    }

    fn choose_undo(&self, scope: &UndoScope) -> Result<(Chosen, OperationKind, Details), Error> {
        let options = &self.options;
        let details = Details {
            undone_only: options.paths.clone(),
            session: options.session.clone(),
            by_person: options.by_person,
            ..Details::default()
        };
        let mut history = History::with_shared(&self.hold.store, &self.hold.work_tree)?;
        if let Some((steps, outside)) = self.left_outside(&mut history, scope)? {
            // An earlier undo has reversed the steps in the work tree.
            let chosen = self.plan_inverse(None, &[], steps, &options.paths)?;
            return Ok((Chosen { outside, ..chosen }, OperationKind::Undo, details));
        }
        let plain =
            *scope == UndoScope::LastTurn && options.session.is_none() && options.paths.is_empty();
        if options.restores
            && plain
            && let Some(at) = newest_restore(&mut history)?
        {
            return self.choose_restore(&mut history, at, details);
        }
        let pieces = match choose(self.hold, &mut history, scope, options) {
            Err(Error::Session(SessionError::NothingToUndo)) => {
                return Err(nothing_to_undo(&mut history, scope, options)?);
            }
            chosen => chosen?,
        };
        let unrecorded = unrecorded(&mut history, scope, options, &pieces)?;
        let expired = expired(&mut history, scope, options, &pieces)?;
        let mut chosen = self.plan_pieces(&history, &pieces, Vec::new())?;
        chosen.report = UndoReport { expired, unrecorded, ..chosen.report };
        let details = Details {
            undone: chosen.report.steps.clone(),
            session: details.session.or_else(|| only_session(&history, &pieces)),
            ..details
        };
        Ok((chosen, OperationKind::Undo, details))
    }

    /// Plans to undo a restore or revert.
    fn choose_restore(
        &self,
        history: &mut History<'_>,
        at: usize,
        details: Details,
    ) -> Result<(Chosen, OperationKind, Details), Error> {
        let spans = history.chain(at)?;
        let LogEntry { id, details: restore, .. } = history.restore_of(at)?;
        // Reversing a session's revert is an unrevert.
        let (kind, steps) = match restore.boundary {
            Some(_) => (OperationKind::Unrevert, restore.undone),
            None => (OperationKind::Undo, Vec::new()),
        };
        let mut chosen = self.plan_redo_of(&spans, steps.clone(), history.still_in_force(&id))?;
        chosen.report.takes_back = Some(id.clone());
        let session = details.session.or(restore.session);
        Ok((chosen, kind, Details { undone: steps, takes_back: Some(id), session, ..details }))
    }

    /// Plans to reverse `pieces` after `first`, which are operations newer than all of them.
    pub(super) fn plan_pieces(
        &self,
        history: &History<'_>,
        pieces: &[Piece],
        first: Vec<Span>,
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
        let mut chosen =
            self.plan_inverse(Some(history), &spans, steps.clone(), &self.options.paths)?;
        // A step that continued after an earlier undo keeps the conflicts of that undo.
        let mut left: Vec<TreePath> =
            steps.iter().flat_map(|step| history.left_of_step(step)).collect();
        let actions = &chosen.prepared.plan.actions;
        left.retain(|path| !actions.iter().any(|action| action.path() == path));
        chosen.left_before = left;
        chosen.report.git_hint = git_hint(self.hold, &spans);
        // Files in conflict are not restored, so their only copy may lie outside of the work tree.
        let mut unrestored = HashSet::new();
        for path in chosen.report.conflicts.iter().map(|conflict| &conflict.path) {
            for span in &spans {
                let before = find(&self.hold.store.objects, &span.before.snapshot, path)?;
                unrestored.extend(before.map(|entry| entry.id));
            }
        }
        chosen.outside = self.undo_outside(&steps, unrestored)?;
        Ok(chosen)
    }

    /// Plans to reverse `spans` at the paths in `limit`, or everywhere if it is empty.
    fn plan_inverse(
        &self,
        history: Option<&History<'_>>,
        spans: &[Span],
        steps: Vec<String>,
        limit: &[TreePath],
    ) -> Result<Chosen, Error> {
        let Rewinding { hold, options, present, .. } = self;
        let inversion = Inversion {
            history,
            spans,
            limit,
            on_conflict: if options.force { OnConflict::TakeTheirs } else { OnConflict::Keep },
            ignored: options.ignored,
            unclear: options.unclear,
            present: &present.operation,
            root: &hold.root,
        };
        let now = crate::compare::Now::of(&present.listing);
        let mut inverted = invert(&hold.store, &now, &inversion)?;
        report_purged(&inversion, &mut inverted);
        let in_use = if options.force { OnUse::Replace } else { options.in_use };
        if in_use == OnUse::Leave {
            report_writers(hold, &mut inverted);
        }
        let sources = spans.iter().map(|span| {
            let absence = Absence::of_operation(&hold.store, &span.before);
            Source::of(hold, span.before.snapshot, absence, Some(&span.before.meta))
        });
        let how = Planning { ignored: SaveIgnored::Beside, in_use };
        let prepared = hold.plan_from(present, inverted.request, sources.collect(), how)?;
        let report = UndoReport {
            steps,
            takes_back: None,
            done: Vec::new(),
            conflicts: inverted.conflicts,
            ignored: inverted.ignored_left,
            kept: Vec::new(),
            not_checked: Vec::new(),
            uncaptured: uncaptured_by(hold, &inversion)?,
            outside: Vec::new(),
            outside_asked: false,
            expired: Vec::new(),
            unrecorded: Vec::new(),
            plan: prepared.plan.hash,
            mass_removal: None,
            safety_operation: None,
            after: None,
            left: Vec::new(),
            not_recorded: None,
            git_hint: None,
            recovered: hold.recovered.clone(),
        };
        let (outside, left_before) = (OutsidePart::default(), Vec::new());
        Ok(Chosen { report, prepared, ignored: inverted.ignored, outside, left_before })
    }

    /// Carries out a plan and records the operation.
    pub(super) fn carry_through(
        &self,
        mut chosen: Chosen,
        cause: Cause,
    ) -> Result<UndoReport, Error> {
        let Rewinding { hold, options, progress, .. } = self;
        let (hash, kind) = (chosen.hash(), cause.kind);
        if options.expected_plan.is_some_and(|expected| expected != hash) {
            return Err(Error::Restore(RestoreError::StalePlan));
        }
        let restore = RestoreOptions {
            allow_mass_removal: options.allow_mass_removal,
            ..RestoreOptions::default()
        };
        chosen.outside.check(&restore)?;
        let possible = chosen.is_possible();
        let outside = self.save_outside(&mut chosen.outside, kind, &chosen.report.steps)?;
        let details = chosen.note_in(cause.details, outside.clone());
        if !possible {
            // Nothing is reversed. An undo records the attempt, so that the next one goes further
            // back; a redo, revert or unrevert can simply be repeated.
            let is_tried = !details.undone.is_empty() || details.outside.is_some();
            if kind == OperationKind::Undo && is_tried {
                let details = Details { tried: details.undone, undone: Vec::new(), ..details };
                let cause = Cause { details, always: true, ..Cause::of(kind) };
                hold.record(&TrackOptions::default(), &cause, progress)?;
            }
            return Ok(chosen.preview());
        }
        // Restored files that no tree holds are kept in the ignored snapshot, where redo finds
        // them.
        let cause = Cause { details, always: true, named: chosen.ignored, ..Cause::of(kind) };
        let restored = hold.carry_out(chosen.prepared, &restore, &cause, progress);
        let restored = restored.inspect_err(|_| self.forget_outside(outside.as_ref()))?;
        let outside_asked = chosen.outside.asked;
        let done = self.put_outside_back(chosen.outside, outside.as_ref());
        Ok(UndoReport {
            done: restored.done,
            kept: restored.kept,
            not_checked: restored.not_checked,
            outside: done.changes,
            outside_asked,
            plan: hash,
            safety_operation: Some(restored.safety_operation),
            after: Some(restored.after),
            left: restored.left.into_iter().chain(done.left).collect(),
            not_recorded: restored.not_recorded,
            recovered: restored.recovered,
            ..chosen.report
        })
    }
}

/// Returns the error of an undo without anything to undo, with the reason if one is known.
fn nothing_to_undo(
    history: &mut History<'_>,
    scope: &UndoScope,
    options: &UndoOptions,
) -> Result<Error, Error> {
    let newer = unrecorded(history, scope, options, &[])?.into_iter().next();
    let shared = history.shared_is_expired().map(str::to_owned);
    Ok(Error::Session(match (newer, shared) {
        (Some(newer), _) => SessionError::NotRecorded { before: newer.before, why: newer.gap.why },
        (None, Some(session)) => SessionError::SharedExpired { session },
        (None, None) => SessionError::NothingToUndo,
    }))
}

fn only_session(history: &History<'_>, pieces: &[Piece]) -> Option<String> {
    // In a fork's directory, steps may belong to another session but their undo belongs to the
    // fork.
    let session = |piece: &Piece| {
        let shared = history.fork_of(piece.entry).map(|(fork, _)| fork);
        shared.unwrap_or_else(|| history.info(*piece).root_session())
    };
    let mut sessions = pieces.iter().map(session);
    let first = sessions.next()?;
    sessions.all(|session| session == first).then(|| first.to_owned())
}

/// Returns the index of the newest operation that changed files, not counting edits of the user, if
/// it is a restore, recover or revert that a user made and that was not reversed.
fn newest_restore(history: &mut History<'_>) -> Result<Option<usize>, Error> {
    let mut at = 0;
    while let Some(before) = history.before(at)?.map(|before| before.snapshot) {
        if let Some(older) = history.undone_restore(at)? {
            at = older + 1;
            continue;
        }
        let entry = &history.entries[at];
        let is_step = !entry.details.credits.is_empty();
        let is_empty = entry.snapshot == before && entry.kind != OperationKind::Restore;
        // Later edits of the user stay, as with any undo. A gap contains work of an agent.
        let is_users = entry.kind == OperationKind::Outside && entry.details.gap.is_none();
        if !is_step && (is_empty || is_users) {
            at += 1;
            continue;
        }
        let entry = history.restore_of(at)?;
        let kind = matches!(entry.kind, OperationKind::Restore | OperationKind::Revert);
        let is_meant = kind && entry.details.by_person && entry.details.commits.is_none();
        return Ok((is_meant && !history.is_redone(&entry.id)).then_some(at));
    }
    Ok(None)
}

/// Returns the changes of the spans to paths that no snapshot holds, if they are still visible.
fn uncaptured_by(hold: &Hold, inversion: &Inversion<'_>) -> Result<Vec<Uncaptured>, Error> {
    let is_asked_for = |lost: &Uncaptured| match TreePath::parse(&lost.path) {
        Ok(path) => inversion.is_asked_for(&path),
        // The path lies in a repository's own directory, which no request can name.
        Err(_) => inversion.limit.is_empty(),
    };
    let mut found: Vec<Uncaptured> = Vec::new();
    for span in inversion.spans.iter().filter(|span| span.info.is_some()) {
        let created = if span.owns_unnamed() {
            let known = left_out_paths(&hold.store.objects, &span.before);
            let before = (&span.before.snapshot, &known);
            created_uncaptured(&hold.store.objects, before, &span.after)?
        } else {
            Vec::new()
        };
        for change in created.iter().chain(&span.uncaptured) {
            let known = found.iter().position(|known| known.path == change.path);
            if !is_asked_for(change) || !hold.still_shows(change) {
                continue;
            }
            match known {
                None => found.push(change.clone()),
                Some(at) if change.is_loss() && !found[at].is_loss() => found[at] = change.clone(),
                Some(_) => (),
            }
        }
    }
    Ok(found)
}

/// Reports files whose content was purged from the history of the spans. If a span owns everything
/// that changed, nothing shows any more whether it changed a file that exists before and after, so
/// this is only reported if there is nothing else to reverse.
fn report_purged(inversion: &Inversion<'_>, inverted: &mut Inverted) {
    let Request { wanted, dirs, modes, emptied, .. } = &inverted.request;
    let changes_nothing =
        wanted.is_empty() && dirs.is_empty() && modes.is_empty() && emptied.is_empty();
    let is_empty =
        changes_nothing && inverted.conflicts.is_empty() && inverted.ignored_left.is_empty();
    for span in inversion.spans.iter().filter(|span| span.info.is_some()) {
        let skipped = span.before.meta.skipped.iter().chain(&span.after.meta.skipped);
        for purged in skipped.filter(|skipped| skipped.reason == SkipReason::Purged) {
            let Ok(path) = TreePath::parse(&purged.path) else { continue };
            let lists = |operation: &Operation| operation.meta.skipped.contains(purged);
            let is_changed = lists(&span.before) != lists(&span.after);
            let is_own = span.owns(&path) && (is_empty || is_changed || span.paths.is_some());
            let is_new = !inverted.conflicts.iter().any(|known| known.path == path);
            if is_own && is_new && inversion.is_asked_for(&path) {
                let why = "its content was purged from the history".into();
                inverted.conflicts.push(Conflict { path, reason: ConflictReason::NotProven, why });
            }
        }
    }
}

/// Reports files that do not merge because a process keeps writing to them, such as a log of a
/// server, as files in use instead of conflicts that the user has to resolve.
fn report_writers(hold: &Hold, inverted: &mut Inverted) {
    let kept = &mut inverted.request.kept;
    inverted.conflicts.retain(|conflict| {
        let is_merge = conflict.reason == ConflictReason::Merge;
        let used = is_merge.then(|| use_of(&hold.root, conflict.path.as_bytes(), Users::Writers));
        let Some((InUse::Yes, process)) = used.flatten() else { return true };
        let reason = KeptReason::InUse { process };
        kept.push(Kept { path: conflict.path.clone(), reason });
        false
    });
}

/// Returns the git command that moves the user's HEAD back, if the steps moved it.
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

/// Quotes a word for the shell if necessary.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    if text.chars().all(plain) && !text.starts_with('-') {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
