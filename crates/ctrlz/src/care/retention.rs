//! Retention: old segments of the log are dropped whole, and what only they reached is collected.
//!
//! Age is measured against the newest operation of the log, not the wall clock: a project that
//! rests for a year keeps its last week.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::scan::Progress;
use crate::store::{
    GcOptions, GcReport, Lock, Operation, Sharing, Store, WorkTree, read_operation,
};
use crate::workspace::Workspace;

use super::thin::thin;

const DAY_MILLIS: u64 = 24 * 3600 * 1000;

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Operations younger than this, in days before the newest one, always stay. Default: 7.
    pub keep_days: u64,
    /// Beyond that, what one of this many sessions that worked last did. Default: none.
    pub keep_sessions: Option<usize>,
    /// Beyond `keep_days`, one state a day stays for this many days more. Default: none does.
    pub thin_days: u64,
    /// Rewrites every pack that has anything dead in it. Default: only wasteful ones.
    pub thorough: bool,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { keep_days: 7, keep_sessions: None, thin_days: 0, thorough: false }
    }
}

/// A message whose files can no longer be brought back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LostMessage {
    /// The session.
    pub session: String,
    /// The message.
    pub message: String,
}

/// What care did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CareReport {
    /// Operations that were dropped from the log.
    pub dropped_operations: u64,
    /// Sessions nothing is left of.
    pub dropped_sessions: Vec<String>,
    /// Messages whose files were dropped.
    pub lost_messages: Vec<LostMessage>,
    /// What collecting garbage did.
    pub gc: GcReport,
}

/// One past segment, oldest operation first.
struct PastSegment {
    /// The id of its last operation, which names its refs.
    id: String,
    operations: Vec<Operation>,
}

impl PastSegment {
    fn ended_at(&self) -> u64 {
        self.operations.last().map_or(0, |operation| operation.at_millis)
    }

    fn sessions(&self) -> BTreeSet<&str> {
        self.operations.iter().flat_map(sessions_of).collect()
    }
}

fn sessions_of(operation: &Operation) -> impl Iterator<Item = &str> {
    let credited = operation.details.credits.iter().map(|credit| credit.step.session.as_str());
    credited.chain(operation.details.session.as_deref())
}

fn messages_of(operation: &Operation) -> impl Iterator<Item = LostMessage> + '_ {
    operation.details.credits.iter().filter_map(|credit| {
        let (session, message) = (credit.step.session.clone(), credit.step.message.clone()?);
        Some(LostMessage { session, message })
    })
}

impl Workspace {
    /// Drops what retention does not keep, and collects the garbage of the whole store.
    ///
    /// Checkpoints keep their snapshots as long as they exist; pinned ones for ever.
    pub fn care(&self, retention: &Retention, progress: &Progress) -> Result<CareReport, Error> {
        let hold = self.begin()?;
        let mut report = CareReport::default();
        expire(&hold.store, &hold.work_tree, retention, &mut report)?;
        drop(hold);
        if let Some((store, work_tree)) = self.existing()? {
            if retention.thin_days > 0 {
                let patience = self.options().patience;
                let _alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
                thin_out(&store, &work_tree, retention, &mut report)?;
            }
            let options = GcOptions { thorough: retention.thorough };
            report.gc = store.collect(options, self.options().patience, progress)?;
        }
        Ok(report)
    }

    /// Releases a session: what only it did need not be kept any more. Its steps can still be
    /// undone until retention drops them.
    pub fn release_session(&self, session: &str) -> Result<(), Error> {
        let hold = self.begin()?;
        let known = hold.work_tree.newest_of(&hold.store, session)?;
        known.ok_or_else(|| Error::NoSuchSession { session: session.to_owned() })?;
        let mut released = released(&hold.work_tree)?;
        released.insert(session.to_owned());
        let bytes = serde_json::to_vec(&released).expect("plain data has a JSON form");
        private::replace(&hold.work_tree.released_path(), &bytes, Durable::Yes)?;
        Ok(())
    }
}

fn released(work_tree: &WorkTree) -> Result<BTreeSet<String>, Error> {
    let bytes = read_small(&work_tree.released_path(), 16 << 20)?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Drops the refs of segments that are not kept, oldest first, and stops at the first that is.
fn expire(
    store: &Store,
    work_tree: &WorkTree,
    retention: &Retention,
    report: &mut CareReport,
) -> Result<(), Error> {
    let Some(newest) = work_tree.last(store)? else { return Ok(()) };
    let segments = past_segments(store, work_tree)?;
    let current: Vec<Operation> = operations_of(store, newest.commit)?;
    let kept_sessions = kept_sessions(&segments, &current, retention, &released(work_tree)?);
    let kept_days = retention.keep_days.saturating_add(retention.thin_days);
    let horizon = newest.at_millis.saturating_sub(kept_days.saturating_mul(DAY_MILLIS));
    let is_expired = |segment: &&PastSegment| {
        let old = segment.ended_at() < horizon;
        let wanted = segment.sessions().iter().any(|session| kept_sessions.contains(*session));
        match retention.keep_sessions {
            None => old,
            // A session that is kept keeps its segments, whatever their age.
            Some(_) => !wanted,
        }
    };
    let dropped: Vec<&PastSegment> = segments.iter().take_while(is_expired).collect();
    if dropped.is_empty() {
        return Ok(());
    }
    let kept = segments[dropped.len()..].iter().flat_map(|segment| &segment.operations);
    let kept: Vec<&Operation> = kept.chain(&current).collect();
    let gone: Vec<&Operation> = dropped.iter().flat_map(|segment| &segment.operations).collect();
    tell(&gone, &kept, report);
    let commits: HashSet<ObjectId> = gone.iter().map(|operation| operation.commit).collect();
    work_tree.forget_sessions(store, &commits)?;
    for segment in dropped {
        work_tree.drop_segment(store, &segment.id)?;
    }
    work_tree.forget_index()
}

/// Leaves one operation a day of the segments that are old but not dropped.
///
/// The caller holds the store's lock alone.
fn thin_out(
    store: &Store,
    work_tree: &WorkTree,
    retention: &Retention,
    report: &mut CareReport,
) -> Result<(), Error> {
    let Some(newest) = work_tree.last(store)? else { return Ok(()) };
    let horizon = newest.at_millis.saturating_sub(retention.keep_days.saturating_mul(DAY_MILLIS));
    let segments = past_segments(store, work_tree)?;
    let old = segments.iter().filter(|segment| segment.ended_at() < horizon);
    let gone = thin(store, old.map(|segment| segment.operations.as_slice()))?;
    let lost: HashSet<&str> = gone.iter().map(|operation| operation.id.as_str()).collect();
    let current = operations_of(store, newest.commit)?;
    let all = segments.iter().flat_map(|segment| &segment.operations).chain(&current);
    let kept: Vec<&Operation> =
        all.filter(|operation| !lost.contains(operation.id.as_str())).collect();
    if !gone.is_empty() {
        tell(&gone, &kept, report);
    }
    Ok(())
}

/// Says what is lost: messages and sessions that only dropped operations belong to.
fn tell(gone: &[&Operation], kept: &[&Operation], report: &mut CareReport) {
    let kept_messages: BTreeSet<LostMessage> =
        kept.iter().flat_map(|operation| messages_of(operation)).collect();
    let gone_messages: BTreeSet<LostMessage> =
        gone.iter().flat_map(|operation| messages_of(operation)).collect();
    let kept_sessions: BTreeSet<&str> =
        kept.iter().flat_map(|operation| sessions_of(operation)).collect();
    let gone_sessions: BTreeSet<&str> =
        gone.iter().flat_map(|operation| sessions_of(operation)).collect();
    report.dropped_operations += gone.len() as u64;
    report.lost_messages.extend(gone_messages.difference(&kept_messages).cloned());
    let lost = gone_sessions.difference(&kept_sessions);
    report.dropped_sessions.extend(lost.map(|session| (*session).to_owned()));
}

/// The sessions that keep their segments.
fn kept_sessions(
    segments: &[PastSegment],
    current: &[Operation],
    retention: &Retention,
    released: &BTreeSet<String>,
) -> BTreeSet<String> {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let all = segments.iter().flat_map(|segment| &segment.operations).chain(current);
    for operation in all {
        for session in sessions_of(operation) {
            let at = last.entry(session).or_default();
            *at = (*at).max(operation.at_millis);
        }
    }
    let mut order: Vec<(u64, &str)> = last.into_iter().map(|(session, at)| (at, session)).collect();
    order.sort_unstable_by(|one, other| other.cmp(one));
    order
        .into_iter()
        .map(|(_, session)| session.to_owned())
        .filter(|session| !released.contains(session))
        .take(retention.keep_sessions.unwrap_or(usize::MAX))
        .collect()
}

/// The past segments of a work tree, oldest first.
fn past_segments(store: &Store, work_tree: &WorkTree) -> Result<Vec<PastSegment>, Error> {
    let mut segments = Vec::new();
    for (id, head) in work_tree.past(store)? {
        segments.push(PastSegment { id, operations: operations_of(store, head)? });
    }
    segments.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(segments)
}

/// The operations of one segment, oldest first.
fn operations_of(store: &Store, head: ObjectId) -> Result<Vec<Operation>, Error> {
    let mut operations = Vec::new();
    let mut next = Some(head);
    while let Some(commit) = next {
        let operation = read_operation(&store.objects, &commit)?;
        next = operation.parent.filter(|_| operation.follows.is_none());
        operations.push(operation);
    }
    operations.reverse();
    Ok(operations)
}
