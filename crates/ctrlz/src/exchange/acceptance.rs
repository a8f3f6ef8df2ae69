//! Acceptance of received logs that were checked: their objects and refs become part of the store.

use std::time::Duration;

use crate::error::Error;
use crate::log::{Source, WorkTree};
use crate::store::{Incoming, Lock, Store};

use super::arrival::{Arrival, PRIVATE};
use super::checker::{Checked, Checker, Fate};

/// Sets the refs of a received log as those of `work_tree`. Its objects are already in the store.
///
/// The log's ref is set last: it makes the others reachable. The caller holds the work tree's lock.
pub(super) fn adopt(
    store: &Store,
    work_tree: &WorkTree,
    arrival: &Arrival,
    checker: &Checker<'_>,
) -> Result<(), Error> {
    let prefix = format!("{}/{}", store.ref_prefix(), work_tree.id());
    let shared = |rest: &str| format!("{prefix}/{rest}");
    for (rest, id) in &arrival.private {
        work_tree.set_ref(store, &format!("{PRIVATE}{}/{rest}", work_tree.id()), id)?;
    }
    // A segment that ended before the newest local operation is here already, or has expired.
    let newest_here = work_tree.last(store)?.map(|last| last.id);
    let is_later = |end: &String| newest_here.as_ref().is_none_or(|newest| end >= newest);
    let past = arrival.past.iter().filter(|(end, _)| is_later(end));
    let past = past.map(|(end, id)| (format!("past/{end}"), id));
    let others = arrival.others.iter().map(|(rest, id)| (rest.clone(), id));
    for (rest, id) in past.chain(others).filter(|(_, id)| checker.has(id)) {
        work_tree.set_ref(store, &shared(&rest), id)?;
    }
    if let Some(log) = &arrival.log {
        work_tree.set_log(store, log)?;
    }
    Ok(())
}

/// Moves the received packs into the store if a log has new operations.
pub(super) fn publish(
    store: &Store,
    incoming: &Incoming,
    checked: &[Checked],
) -> Result<(), Error> {
    let has_news = checked.iter().any(|checked| matches!(checked.fate, Fate::News(_)));
    if has_news { incoming.publish(store).map(drop) } else { Ok(()) }
}

/// Where a log that is not of this work tree comes from.
pub(super) struct Origin<'a> {
    /// Server or file, as a label for users.
    pub(super) from: &'a str,
    /// Log of the work tree that imports it.
    pub(super) into: &'a str,
    /// Maximum time to wait for its lock.
    pub(super) patience: Duration,
}

impl Origin<'_> {
    /// Creates the directory of a log, locks it and records its source.
    pub(super) fn note(&self, store: &Store, log: &WorkTree) -> Result<Lock, Error> {
        log.create_dir()?;
        let lock = log.lock(store, self.patience)?;
        Source::note(log, self.from, self.into)?;
        Ok(lock)
    }
}
