//! Undo and redo: a three-way merge of each file, applied as one plan.

use std::collections::{BTreeSet, HashSet};

use crate::compare::find;
use crate::error::{Error, RestoreError, SessionError};
use crate::fs::{InUse, Users, use_of};
use crate::hold::{Hold, Recovery};
use crate::log::{Details, LogEntry, OperationKind, Uncaptured};
use crate::path::TreePath;
use crate::record::{Cause, Recorded, TrackOptions, created_uncaptured, left_out_paths};
use crate::restore::{
    Absence, Kept, KeptReason, OnUse, Planning, Prepared, Request, RestoreOptions, SaveIgnored,
    Source,
};
use crate::scan::{Progress, SkipReason};
use crate::workspace::Workspace;

use super::choose::{Expired, UndoScope, Unrecorded, choose, expired, unrecorded};
use super::history::{History, Piece, Span};
use super::inverse::{Inversion, Inverted, OnConflict, invert};
use super::outside::OutsidePart;
use super::plans::{Rewind, remember};
use super::report::{Conflict, ConflictReason, UndoOptions, UndoReport};
use super::revert::check_idle;

/// Plan of an undo, redo, revert or unrevert, with its conflicts.
pub(super) struct Chosen {
    pub(super) steps: Vec<String>,
    /// Restore or revert that is reversed instead of steps.
    pub(super) restore: Option<LogEntry>,
    /// Session of the steps, if all belong to the same one.
    session: Option<String>,
    prepared: Prepared,
    conflicts: Vec<Conflict>,
    /// Ignored files that will be written or removed.
    ignored: Vec<TreePath>,
    ignored_left: Vec<Conflict>,
    uncaptured: Vec<Uncaptured>,
    /// Part outside of the work tree.
    pub(super) outside: OutsidePart,
    /// Conflicts of earlier undos of the same steps that this one does not resolve.
    left_before: Vec<TreePath>,
    recovered: Option<Recovery>,
    git_hint: Option<String>,
    pub(super) expired: Vec<Expired>,
    unrecorded: Vec<Unrecorded>,
}

impl Chosen {
    /// Returns whether it changes something, or is complete without changing anything.
    fn is_possible(&self) -> bool {
        let plan = &self.prepared.plan;
        let is_whole = self.conflicts.is_empty()
            && !self.uncaptured.iter().any(Uncaptured::is_loss)
            && plan.is_complete()
            && !self.outside.is_blocked();
        !plan.is_empty() || self.outside.writes() || is_whole
    }
}

impl Workspace {
    /// Returns the report that [`Workspace::undo`] would produce now. Records the present state but
    /// changes no file.
    pub fn plan_undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, _) = self.choose_undo(&hold, scope, options, progress)?;
        let rewind = Rewind::Undo { scope: scope.clone(), options: options.clone() };
        remember(&hold, &rewind, preview(chosen))
    }

    /// Undoes steps, keeping all later changes by users and other sessions.
    pub fn undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        interrupt(&hold, options)?;
        let (chosen, only_outside) = self.choose_undo(&hold, scope, options, progress)?;
        let restore = chosen.restore.as_ref();
        // Reversing a session's revert is an unrevert.
        let kind = if restore.is_some_and(|restore| restore.details.boundary.is_some()) {
            OperationKind::Unrevert
        } else {
            OperationKind::Undo
        };
        let whose = restore.and_then(|restore| restore.details.session.clone());
        let details = Details {
            // An earlier undo has reversed the steps in the work tree.
            undone: if only_outside { Vec::new() } else { chosen.steps.clone() },
            undone_only: options.paths.clone(),
            takes_back: restore.map(|restore| restore.id.clone()),
            session: options.session.clone().or(whose).or_else(|| chosen.session.clone()),
            by_person: options.by_person,
            ..Details::default()
        };
        self.carry_through(&hold, chosen, kind, details, options, progress)
    }

    /// Returns the report that [`Workspace::redo`] would produce now, without changing files.
    pub fn plan_redo(
        &self,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, _) = self.choose_redo(&hold, options, progress)?;
        remember(&hold, &Rewind::Redo { options: options.clone() }, preview(chosen))
    }

    /// Reverses the newest undo or revert that is still in force.
    pub fn redo(&self, options: &UndoOptions, progress: &Progress) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, undo) = self.choose_redo(&hold, options, progress)?;
        let details = Details {
            undone: undo.details.undone,
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
        let tracked = self.track_present(hold, options.session.as_deref(), progress)?;
        let mut history = History::open(&hold.store, &hold.work_tree)?;
        let mut at = 0;
        let mut only_conflicts = None;
        while history.before(at)?.is_some() {
            let entry = &history.entries[at];
            let asked = options.session.as_ref();
            let own = asked.is_none_or(|asked| entry.details.session.as_ref() == Some(asked));
            if history.is_in_force(entry) && own {
                let entry = entry.clone();
                let spans = history.chain(at)?;
                let steps = match (&entry.details.undone, &entry.details.outside) {
                    (undone, Some(outside)) if undone.is_empty() => outside.steps.clone(),
                    (undone, _) => undone.clone(),
                };
                let left = history.still_in_force(&entry.id);
                let mut chosen = self.plan_redo_of(hold, &tracked, &spans, steps, left, options)?;
                chosen.outside = self.redo_outside(hold, &entry, options)?;
                if chosen.is_possible() {
                    return Ok((chosen, entry));
                }
                // Nothing of it can be reversed now; an older undo may be possible.
                only_conflicts.get_or_insert((chosen, entry));
            }
            at += 1;
        }
        if let Some(chosen) = only_conflicts {
            return Ok(chosen);
        }
        Err(Error::Session(SessionError::NothingToRedo))
    }

    /// Plans to reverse an undo or revert, limited to the paths that an earlier attempt left.
    pub(super) fn plan_redo_of(
        &self,
        hold: &Hold,
        tracked: &Recorded,
        spans: &[Span],
        steps: Vec<String>,
        left: &[TreePath],
        options: &UndoOptions,
    ) -> Result<Chosen, Error> {
        let paths = if left.is_empty() { options.paths.clone() } else { left.to_vec() };
        let options = UndoOptions { paths, ..options.clone() };
        self.plan_inverse(hold, tracked, None, spans, steps, &options)
    }

    fn choose_undo(
        &self,
        hold: &Hold,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<(Chosen, bool), Error> {
        let tracked = self.track_present(hold, options.session.as_deref(), progress)?;
        let mut history = History::with_shared(&hold.store, &hold.work_tree)?;
        if let Some((steps, outside)) = self.left_outside(hold, &mut history, scope, options)? {
            let chosen = self.plan_inverse(hold, &tracked, None, &[], steps, options)?;
            return Ok((Chosen { outside, ..chosen }, true));
        }
        let plain =
            *scope == UndoScope::LastTurn && options.session.is_none() && options.paths.is_empty();
        if options.restores
            && plain
            && let Some(at) = newest_restore(&mut history)?
        {
            let spans = history.chain(at)?;
            let restore = history.restore_of(at)?;
            let steps = match restore.details.boundary {
                Some(_) => restore.details.undone.clone(),
                None => Vec::new(),
            };
            let left = history.still_in_force(&restore.id);
            let chosen = self.plan_redo_of(hold, &tracked, &spans, steps, left, options)?;
            return Ok((Chosen { restore: Some(restore), ..chosen }, false));
        }
        let pieces = match choose(hold, &mut history, scope, options) {
            Err(Error::Session(SessionError::NothingToUndo)) => {
                let newer = unrecorded(&mut history, scope, options, &[])?;
                let shared = history.shared_is_expired().map(str::to_owned);
                return Err(match (newer.into_iter().next(), shared) {
                    (Some(newer), _) => Error::Session(SessionError::NotRecorded {
                        before: newer.before,
                        why: newer.gap.why,
                    }),
                    (None, Some(session)) => {
                        Error::Session(SessionError::SharedExpired { session })
                    }
                    (None, None) => Error::Session(SessionError::NothingToUndo),
                });
            }
            chosen => chosen?,
        };
        let unrecorded = unrecorded(&mut history, scope, options, &pieces)?;
        let expired = expired(&mut history, scope, options, &pieces)?;
        let chosen = self.plan_pieces(hold, &tracked, &history, &pieces, Vec::new(), options)?;
        Ok((Chosen { expired, unrecorded, ..chosen }, false))
    }

    /// Records the present state. An open step of `session`, or of any session if `None`, counts as
    /// interrupted if no process of its tool is running.
    pub(super) fn track_present(
        &self,
        hold: &Hold,
        session: Option<&str>,
        progress: &Progress,
    ) -> Result<Recorded, Error> {
        let undone_session = session.map(str::to_owned);
        let cause = Cause { undoing: true, undone_session, ..Cause::before_change() };
        hold.record_listed(&cause, progress)
    }

    /// Plans to reverse `pieces` after `first`, which are operations newer than all of them.
    pub(super) fn plan_pieces(
        &self,
        hold: &Hold,
        tracked: &Recorded,
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
        let mut chosen =
            self.plan_inverse(hold, tracked, Some(history), &spans, steps.clone(), options)?;
        // A step that continued after an earlier undo keeps the conflicts of that undo.
        let mut left: Vec<TreePath> =
            steps.iter().flat_map(|step| history.left_of_step(step)).collect();
        let actions = &chosen.prepared.plan.actions;
        left.retain(|path| !actions.iter().any(|action| action.path() == path));
        chosen.left_before = left;
        chosen.git_hint = git_hint(hold, &spans);
        chosen.session = only_session(history, pieces);
        // Files in conflict are not restored, so their only copy may lie outside of the work tree.
        let mut unrestored = HashSet::new();
        for path in chosen.conflicts.iter().map(|conflict| &conflict.path) {
            for span in &spans {
                let before = find(&hold.store.objects, &span.before.snapshot, path)?;
                unrestored.extend(before.map(|entry| entry.id));
            }
        }
        chosen.outside = self.undo_outside(hold, &chosen.steps, unrestored, options)?;
        Ok(chosen)
    }

    pub(super) fn plan_inverse(
        &self,
        hold: &Hold,
        tracked: &Recorded,
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
            unclear: options.unclear,
            present: &tracked.operation,
            root: &hold.root,
        };
        let now = crate::compare::Now::of(&tracked.listing);
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
        let prepared = hold.plan_from(tracked, inverted.request, sources.collect(), how)?;
        Ok(Chosen {
            steps,
            restore: None,
            session: None,
            prepared,
            conflicts: inverted.conflicts,
            ignored: inverted.ignored,
            ignored_left: inverted.ignored_left,
            uncaptured: uncaptured_by(hold, &inversion)?,
            outside: OutsidePart::default(),
            left_before: Vec::new(),
            recovered: hold.recovered.clone(),
            git_hint: None,
            expired: Vec::new(),
            unrecorded: Vec::new(),
        })
    }

    pub(super) fn carry_through(
        &self,
        hold: &Hold,
        mut chosen: Chosen,
        kind: OperationKind,
        details: Details,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let hash = chosen.outside.hash_with(chosen.prepared.plan.hash);
        if options.expected_plan.is_some_and(|expected| expected != hash) {
            return Err(Error::Restore(RestoreError::StalePlan));
        }
        let restore = RestoreOptions {
            allow_mass_removal: options.allow_mass_removal,
            ..RestoreOptions::default()
        };
        chosen.outside.check(&restore)?;
        let possible = chosen.is_possible();
        let outside = self.save_outside(hold, &mut chosen.outside, kind, &chosen.steps)?;
        let kept = chosen.prepared.plan.kept.iter().filter(|kept| kept.reason.is_failure());
        let conflicts = chosen.conflicts.iter().map(|conflict| &conflict.path);
        let conflicts = conflicts.chain(kept.map(|kept| &kept.path));
        let conflicts: BTreeSet<&TreePath> = conflicts.chain(&chosen.left_before).collect();
        let in_use = chosen.prepared.plan.kept.iter();
        let in_use = in_use.filter(|kept| matches!(kept.reason, KeptReason::InUse { .. }));
        let details = Details {
            in_use: in_use.map(|kept| kept.path.clone()).collect(),
            outside: outside.clone(),
            conflicts: conflicts.into_iter().cloned().collect(),
            ignored: chosen.ignored.clone(),
            ignored_left: chosen.ignored_left.iter().map(|left| left.path.clone()).collect(),
            ..details
        };
        if !possible {
            // Nothing is reversed. An undo records the attempt, so that the next one goes further
            // back; a redo, revert or unrevert can simply be repeated.
            let is_tried = !details.undone.is_empty() || details.outside.is_some();
            if kind == OperationKind::Undo && is_tried {
                let details = Details { tried: details.undone, undone: Vec::new(), ..details };
                let cause = Cause { details, always: true, ..Cause::of(kind) };
                hold.record(&TrackOptions::default(), &cause, progress)?;
            }
            return Ok(preview(chosen));
        }
        let takes_back = chosen.restore.as_ref().map(|restore| restore.id.clone());
        // Restored files that no tree holds are kept in the companion, where redo finds them.
        let named = chosen.ignored.clone();
        let cause = Cause { details, always: true, named, ..Cause::of(kind) };
        let Chosen {
            steps,
            prepared,
            conflicts,
            ignored_left,
            uncaptured,
            git_hint,
            expired,
            unrecorded,
            outside: part,
            ..
        } = chosen;
        let report = hold.carry_out(prepared, None, &restore, &cause, progress);
        let report = report.inspect_err(|_| self.forget_outside(hold, outside.as_ref()))?;
        let outside_asked = part.asked;
        let done = self.put_outside_back(hold, part, outside.as_ref());
        Ok(UndoReport {
            steps,
            takes_back,
            done: report.done,
            conflicts,
            ignored: ignored_left,
            kept: report.kept,
            not_checked: report.not_checked,
            uncaptured,
            outside: done.changes,
            outside_asked,
            expired,
            unrecorded,
            plan: hash,
            mass_removal: None,
            safety_operation: Some(report.safety_operation),
            after: Some(report.after),
            left: report.left.into_iter().chain(done.left).collect(),
            not_recorded: report.not_recorded,
            git_hint,
            recovered: report.recovered,
        })
    }
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

/// Closes the open steps of the requested session, by default of the one that began a step last.
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
    let hash = chosen.outside.hash_with(plan.hash);
    UndoReport {
        steps: chosen.steps,
        takes_back: chosen.restore.map(|restore| restore.id),
        conflicts: chosen.conflicts,
        ignored: chosen.ignored_left,
        uncaptured: chosen.uncaptured,
        outside_asked: chosen.outside.asked,
        outside: chosen.outside.into_changes(),
        expired: chosen.expired,
        unrecorded: chosen.unrecorded,
        plan: hash,
        mass_removal: plan.mass_removal,
        done: plan.actions,
        kept: plan.kept,
        not_checked: plan.not_checked,
        safety_operation: None,
        after: None,
        left: Vec::new(),
        not_recorded: None,
        git_hint: chosen.git_hint,
        recovered: chosen.recovered,
    }
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
/// that changed, nothing shows any more whether it changed such a file, so this is only reported if
/// there is nothing else to reverse.
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
            let is_own = span.owns(&path) && (is_empty || span.paths.is_some());
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
