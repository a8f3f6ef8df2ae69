//! Work that an undo cannot reverse: never recorded as steps, or expired.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::log::{Credit, Gap, OperationKind, StepInfo};
use crate::path::TreePath;

use super::choose::UndoScope;
use super::history::{History, Piece};
use super::report::{Expired, UndoOptions, Unrecorded};

/// Returns the gaps that are newer than everything in `chosen`, newest first.
///
/// A user who undoes the last turn may mean one of these. They no longer count after a later
/// restore.
pub(super) fn unrecorded(
    history: &mut History<'_>,
    scope: &UndoScope,
    options: &UndoOptions,
    chosen: &[Piece],
) -> Result<Vec<Unrecorded>, Error> {
    let mut found = Vec::new();
    if !matches!(scope, UndoScope::LastTurn | UndoScope::LastStep) || !options.paths.is_empty() {
        return Ok(found);
    }
    let newest = chosen.iter().map(|piece| piece.entry).min().unwrap_or(usize::MAX);
    let is_asked_for = |gap: &Gap| match &options.session {
        Some(session) => gap.turns.iter().any(|turn| turn.session == *session),
        None => true,
    };
    let mut at = 0;
    while at < newest {
        let Some(before) = history.before(at)?.map(|before| before.id.clone()) else { break };
        let entry = &history.entries[at];
        if entry.kind == OperationKind::Restore {
            break;
        }
        if let Some(gap) = entry.details.gap.clone().filter(is_asked_for) {
            found.push(Unrecorded { operation: entry.id.clone(), before, gap });
        }
        at += 1;
    }
    Ok(found)
}

/// Returns the work in `scope` that has expired, given the pieces that were chosen.
pub(super) fn expired(
    history: &mut History<'_>,
    scope: &UndoScope,
    options: &UndoOptions,
    chosen: &[Piece],
) -> Result<Vec<Expired>, Error> {
    let Some(oldest) = history.entries.len().checked_sub(1) else { return Ok(Vec::new()) };
    if !history.is_cut_off(oldest)? {
        // The scope is the whole fork, and retention has removed the history that it shares.
        let shared = history.shared_is_expired().filter(|_| *scope == UndoScope::Session);
        let expired = |session: &str| Expired { session: session.to_owned(), step: None };
        return Ok(shared.map(expired).into_iter().collect());
    }
    let is_meant = |info: &StepInfo| {
        chosen.iter().map(|piece| history.info(*piece)).any(|known| match scope {
            UndoScope::LastStep | UndoScope::Step { .. } => info.step == known.step,
            UndoScope::LastTurn | UndoScope::Message { .. } => {
                info.root_session() == known.root_session() && info.root_turn() == known.root_turn()
            }
            UndoScope::From { message, .. } => {
                info.session == known.session && info.message.as_ref() == Some(message)
            }
            UndoScope::Session => info.root_session() == known.root_session(),
        })
    };
    let is_asked_for = |credit: &Credit| {
        let within = |path: &TreePath| options.paths.iter().any(|asked| path.is_within(asked));
        let Some(paths) = &credit.paths else { return true };
        let mut paths = paths.iter().chain(&credit.named);
        if options.paths.is_empty() { paths.next().is_some() } else { paths.any(within) }
    };
    let is_left = |piece: &Piece| {
        let credit = history.credit(*piece);
        is_asked_for(credit) && is_meant(&credit.step) && !history.is_undone(*piece)
    };
    let left: Vec<Piece> = history.pieces_of(oldest).filter(is_left).collect();
    let mut steps: Vec<&StepInfo> = left.iter().map(|piece| history.info(*piece)).collect();
    // A step that began before the oldest operation may have changed more than is recorded.
    let oldest_id = &history.entries[oldest].id;
    let began_earlier = |piece: &&Piece| {
        let begun = &history.credit(**piece).begun;
        !begun.is_empty() && begun < oldest_id
    };
    steps.extend(chosen.iter().filter(began_earlier).map(|piece| history.info(*piece)));
    let mut found: Vec<Expired> = Vec::new();
    for info in steps {
        let expired = Expired { session: info.session.clone(), step: Some(info.clone()) };
        if !found.contains(&expired) {
            found.push(expired);
        }
    }
    if *scope == UndoScope::Session {
        let sessions = chosen.iter().map(|piece| history.info(*piece).session.as_str());
        for session in sessions.collect::<BTreeSet<&str>>() {
            if history.has_older_work(session)? {
                found.insert(0, Expired { session: session.to_owned(), step: None });
            }
        }
    }
    Ok(found)
}
