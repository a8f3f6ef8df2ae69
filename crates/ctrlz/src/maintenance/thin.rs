//! Thinning: keeps one operation per day of old segments.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{Operation, Rewritten};
use crate::store::Store;

use super::rewrite::{Editor, Fate, rewrite};

const DAY_MILLIS: u64 = 24 * 3600 * 1000;

/// Changes to operations that are not kept verbatim.
enum Thinned {
    Gone,
    /// The operation represents this many dropped operations before it. A step loses its credit; a
    /// checkpoint keeps its name and its pin.
    StandsFor(u64),
}

struct Thinner {
    fates: HashMap<ObjectId, Thinned>,
}

impl Editor for Thinner {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error> {
        Ok(match self.fates.get(&operation.commit) {
            None => Fate::Keep,
            Some(Thinned::Gone) => Fate::Drop,
            Some(Thinned::StandsFor(count)) => Fate::Change(Box::new(Rewritten {
                stands_for: *count,
                ..Rewritten::with_snapshot(operation.snapshot)
            })),
        })
    }
}

/// Reduces each segment to one operation per day. Returns the dropped operations.
///
/// The caller holds the store lock exclusively. Pinned operations, operations that a ref names, and
/// the first and last operation of a segment are kept.
pub(super) fn thin<'a>(
    store: &Store,
    segments: impl Iterator<Item = &'a [Operation]>,
) -> Result<Vec<&'a Operation>, Error> {
    let named: HashSet<ObjectId> = store.refs.all()?.into_iter().map(|(_, id)| id).collect();
    let mut thinner = Thinner { fates: HashMap::new() };
    let mut gone = Vec::new();
    let mut heads = Vec::new();
    for operations in segments {
        let went = fates_of(operations, &named, &mut thinner.fates);
        if !went.is_empty() {
            heads.extend(operations.last().map(|operation| operation.commit));
        }
        gone.extend(went);
    }
    if gone.is_empty() {
        return Ok(gone);
    }
    rewrite(store, heads.into_iter(), &mut thinner)?.publish()?;
    Ok(gone)
}

/// Decides which operations of one segment are dropped, oldest first. Returns the dropped ones.
fn fates_of<'a>(
    operations: &'a [Operation],
    named: &HashSet<ObjectId>,
    fates: &mut HashMap<ObjectId, Thinned>,
) -> Vec<&'a Operation> {
    let mut gone = Vec::new();
    let mut waiting = 0;
    for (at, operation) in operations.iter().enumerate() {
        let day = |operation: &Operation| operation.at_millis / DAY_MILLIS;
        let is_last_of_day = operations.get(at + 1).is_none_or(|next| day(next) != day(operation));
        let stays = at == 0
            || is_last_of_day
            || operation.details.pinned
            || named.contains(&operation.commit);
        match (stays, waiting) {
            (false, _) => {
                fates.insert(operation.commit, Thinned::Gone);
                gone.push(operation);
                waiting += 1;
            }
            (true, 0) => (),
            (true, count) => {
                // Its difference from its new predecessor combines several operations.
                fates.insert(operation.commit, Thinned::StandsFor(count));
                waiting = 0;
            }
        }
    }
    gone
}
