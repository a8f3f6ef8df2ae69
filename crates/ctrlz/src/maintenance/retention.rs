//! Retention: drops old segments of the log and collects the objects that only they reached.
//!
//! Age is counted in days of work: a period without recorded operations counts as at most one day.
//! A project that rests for a year keeps its last week, and a clock that jumps ahead by ten years
//! expires nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::gc::{GcOptions, GcReport};
use crate::git::ObjectId;
use crate::log::{Operation, Source, WorkTree, load_steps};
use crate::scan::Progress;
use crate::store::{Lock, Sharing, Store};

use super::Maintenance;
use super::thin::thin;

const DAY_MILLIS: u64 = 24 * 3600 * 1000;

/// Retention policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Operations younger than this many days of work are always kept. Default: 7.
    pub keep_days: u64,
    /// Number of most recently active sessions kept beyond `keep_days`. Default: none.
    pub keep_sessions: Option<usize>,
    /// Number of further days, beyond `keep_days`, for which one state per day is kept. Default: 0.
    pub thin_days: u64,
    /// Rewrites every pack that has unused objects. Default: only wasteful packs.
    pub thorough: bool,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { keep_days: 7, keep_sessions: None, thin_days: 0, thorough: false }
    }
}

/// A message whose files can no longer be restored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostMessage {
    /// Id of the session.
    pub session: String,
    /// Id of the message.
    pub message: String,
}

/// Report of [`Maintenance::collect`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CareReport {
    /// Number of operations dropped from the log.
    pub dropped_operations: u64,
    /// Sessions that were dropped completely.
    pub dropped_sessions: Vec<String>,
    /// Messages whose files were dropped.
    pub lost_messages: Vec<LostMessage>,
    /// Report of the garbage collection.
    pub gc: GcReport,
}

/// A past segment, oldest operation first.
struct PastSegment {
    /// Id of its last operation, which is part of the names of its refs.
    id: String,
    operations: Vec<Operation>,
}

impl PastSegment {
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

impl Maintenance<'_> {
    /// Drops what the retention policy does not keep and collects the garbage of the whole store.
    ///
    /// Checkpoints keep their snapshots as long as they exist; pinned ones are kept forever. If
    /// another process is already doing this, nothing is done and the report says so.
    pub fn collect(&self, retention: &Retention, progress: &Progress) -> Result<CareReport, Error> {
        let mut report = CareReport::default();
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(report) };
        let Some(_caring) = Lock::try_take(&store.care_lock_path(), Sharing::Exclusive)? else {
            report.gc.note = Some("another process is at it already".into());
            return Ok(report);
        };
        // The timestamp is written first, so that a failed or killed run is not repeated by every
        // command. Best effort: without it, the next run is merely due earlier.
        drop(private::replace(&store.cared_path(), b"", Durable::No));
        let outcome = self.collect_locked(&store, &work_tree, retention, progress, &mut report);
        match outcome {
            Err(Error::Cancelled | Error::Busy { .. }) | Ok(()) => (),
            // The run may be a background process without output, so `status` reports the error.
            Err(ref error) => {
                let why = error.to_string();
                drop(private::replace(&store.cared_path(), why.as_bytes(), Durable::No));
            }
        }
        outcome.map(|()| report)
    }

    fn collect_locked(
        &self,
        store: &Store,
        work_tree: &WorkTree,
        retention: &Retention,
        progress: &Progress,
        report: &mut CareReport,
    ) -> Result<(), Error> {
        // Past segments do not change meanwhile, so reading them needs no lock.
        let expiry = Expiry::plan(store, work_tree, retention)?;
        if !expiry.dropped.is_empty() {
            let hold = self.0.begin()?;
            expiry.perform(&hold.store, &hold.work_tree, report)?;
        }
        if work_tree.outside_dir().exists() {
            self.0.outside_of(&self.0.begin()?).expire()?;
        }
        let patience = self.0.options().patience;
        for pulled in pulled_logs(store, work_tree)? {
            let expiry = Expiry::plan(store, &pulled, retention)?;
            if !expiry.dropped.is_empty() {
                let _lock = pulled.lock(store, patience)?;
                expiry.perform(store, &pulled, report)?;
            }
        }
        if retention.thin_days > 0 {
            let _alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
            thin_out(store, work_tree, retention, report)?;
        }
        let options = GcOptions { thorough: retention.thorough };
        report.gc = store.collect(options, patience, progress)?;
        Ok(())
    }

    /// Returns the report that [`Maintenance::collect`] would produce now, without changing
    /// anything.
    pub fn plan_collect(
        &self,
        retention: &Retention,
        progress: &Progress,
    ) -> Result<CareReport, Error> {
        let mut report = CareReport::default();
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(report) };
        let mut going = HashSet::new();
        let pulled = pulled_logs(&store, &work_tree)?;
        for log in std::iter::once(&work_tree).chain(&pulled) {
            let expiry = Expiry::plan(&store, log, retention)?;
            expiry.tell(&mut report);
            going.extend(expiry.refs(&store, log)?);
        }
        let options = GcOptions { thorough: retention.thorough };
        report.gc = store.foresee(options, &going, self.0.options().patience, progress)?;
        if retention.thin_days > 0 {
            report.gc.note = Some("what thinning takes away is not counted".into());
        }
        Ok(report)
    }

    /// Returns why [`Maintenance::collect`] is due, if it is: many packs, or a day since the last
    /// run. Takes no lock, and reads only file names and timestamps.
    pub fn collection_due(&self) -> Result<Option<String>, Error> {
        const MANY_PACKS: usize = 200;
        const PAUSE: Duration = Duration::from_secs(24 * 3600);
        // A run that fails or is killed must not be started again by every snapshot.
        const SHORT_PAUSE: Duration = Duration::from_secs(600);
        let Some(store) = self.0.store_path()? else { return Ok(None) };
        let packs = std::fs::read_dir(store.join("objects/pack")).into_iter().flatten().flatten();
        let is_index = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".idx");
        let packs = packs.filter(|entry| is_index(entry.file_name())).count();
        // A timestamp in the future counts like one equally far in the past.
        let age = |path: &Path| {
            let written = path.metadata().ok()?.modified().ok()?;
            Some(written.elapsed().unwrap_or_else(|ahead| ahead.duration()))
        };
        let cared = age(&store.join("ctrlz/cared"));
        if packs > MANY_PACKS && cared.is_none_or(|age| age > SHORT_PAUSE) {
            return Ok(Some(format!("{packs} packs to merge")));
        }
        let age = cared.or_else(|| age(&store.join("ctrlz/format"))).unwrap_or_default();
        Ok((age > PAUSE).then(|| format!("{} since the last time", days(age))))
    }

    /// Releases a session: operations that only it performed need not be kept any longer. Its steps
    /// can be undone until retention drops them.
    pub fn release_session(&self, session: &str) -> Result<(), Error> {
        let hold = self.0.begin()?;
        let known = hold.work_tree.newest_of(&hold.store, session)?;
        known.ok_or_else(|| Error::no_such_session(session))?;
        let mut released = released(&hold.work_tree)?;
        released.insert(session.to_owned());
        Ok(private::save_json(&hold.work_tree.released_path(), &released, Durable::Yes)?)
    }
}

fn days(age: Duration) -> String {
    match age.as_secs() / (24 * 3600) {
        1 => "a day".into(),
        days => format!("{days} days"),
    }
}

pub(super) fn released(work_tree: &WorkTree) -> Result<BTreeSet<String>, Error> {
    Ok(private::load_json(&work_tree.released_path(), 16 << 20)?.unwrap_or_default())
}

/// Segments to drop, oldest first, and the operations that are kept.
struct Expiry {
    dropped: Vec<PastSegment>,
    kept: Vec<Operation>,
}

impl Expiry {
    fn plan(store: &Store, work_tree: &WorkTree, retention: &Retention) -> Result<Expiry, Error> {
        let Some(newest) = work_tree.last(store)? else {
            return Ok(Expiry { dropped: Vec::new(), kept: Vec::new() });
        };
        let mut dropped = past_segments(store, work_tree)?;
        let current = operations_of(store, newest.commit)?;
        let open = load_steps(&work_tree.steps_path())?;
        let needs = Needs {
            released: released(work_tree)?,
            begun: open.into_iter().map(|step| step.before_operation).collect(),
        };
        let count = expired(&dropped, &current, retention, &needs);
        let kept = dropped.split_off(count).into_iter().flat_map(|segment| segment.operations);
        Ok(Expiry { dropped, kept: kept.chain(current).collect() })
    }

    /// Removes the refs of the segments. The caller holds the work tree's lock.
    fn perform(
        &self,
        store: &Store,
        work_tree: &WorkTree,
        report: &mut CareReport,
    ) -> Result<(), Error> {
        self.tell(report);
        for name in self.refs(store, work_tree)? {
            store.refs.delete(&name)?;
        }
        work_tree.forget_index()
    }

    fn tell(&self, report: &mut CareReport) {
        let gone: Vec<&Operation> = self.gone().collect();
        tell(&gone, &self.kept.iter().collect::<Vec<_>>(), report);
    }

    /// Returns the refs that keep the segments, in the order in which they are deleted.
    fn refs(&self, store: &Store, work_tree: &WorkTree) -> Result<Vec<String>, Error> {
        let commits: HashSet<ObjectId> = self.gone().map(|operation| operation.commit).collect();
        let mut refs = work_tree.sessions_at(store, &commits)?;
        let segments = self.dropped.iter();
        refs.extend(segments.flat_map(|segment| work_tree.segment_refs(store, &segment.id)));
        Ok(refs)
    }

    fn gone(&self) -> impl Iterator<Item = &Operation> {
        self.dropped.iter().flat_map(|segment| &segment.operations)
    }
}

/// Returns the pulled and imported logs. The work tree's retention policy applies to them as well.
fn pulled_logs(store: &Store, own: &WorkTree) -> Result<Vec<WorkTree>, Error> {
    let others = store.logs()?.into_iter().filter(|name| name != own.id());
    let others = others.map(|name| WorkTree::named(store, &name));
    Ok(others.filter(|log| Source::of(log).is_some()).collect())
}

/// Other inputs to the decision about a segment.
#[derive(Debug, Default)]
struct Needs {
    /// Sessions that need not be kept.
    released: BTreeSet<String>,
    /// Operations that recorded the state before steps that are still open.
    begun: BTreeSet<String>,
}

/// Returns the number of oldest segments to drop. The first kept segment keeps all later ones.
fn expired(
    segments: &[PastSegment],
    current: &[Operation],
    retention: &Retention,
    needs: &Needs,
) -> usize {
    let kept_sessions = kept_sessions(segments, current, retention, &needs.released);
    let kept_days = retention.keep_days.saturating_add(retention.thin_days);
    let horizon = kept_days.saturating_mul(DAY_MILLIS);
    let needed = before_last_change(segments, current);
    let is_needed = |operation: &Operation| {
        needs.begun.contains(&operation.id) || needed == Some(operation.id.as_str())
    };
    let may_go = |sessions: BTreeSet<&str>, age: u64| {
        let is_wanted = sessions.iter().any(|session| kept_sessions.contains(*session));
        let is_released = !sessions.is_empty()
            && sessions.iter().all(|session| needs.released.contains(*session));
        is_released || (age > horizon && !(retention.keep_sessions.is_some() && is_wanted))
    };
    let ages = ages(segments, current);
    let is_expired = |(segment, age): &(&PastSegment, &Ages)| {
        may_go(segment.sessions(), age.last) && !segment.operations.iter().any(is_needed)
    };
    let mut count = segments.iter().zip(&ages).take_while(is_expired).count();
    // Undoing the first kept operation requires the state before it, which ends the segment before.
    let loses_base = |count: usize| {
        let kept = segments.get(count).map_or(current, |segment| &segment.operations);
        let first = kept.first();
        first.is_some_and(|first| !may_go(sessions_of(first).collect(), ages[count].first))
    };
    while count > 0 && loses_base(count) {
        count -= 1;
    }
    count
}

/// Ages of the first and the last operation of a segment, in milliseconds of work.
struct Ages {
    first: u64,
    last: u64,
}

/// Returns the ages of every segment, oldest first, and of the current one.
fn ages(segments: &[PastSegment], current: &[Operation]) -> Vec<Ages> {
    let mut ages = Vec::new();
    let (mut age, mut later) = (0_u64, None);
    let past = segments.iter().map(|segment| segment.operations.as_slice());
    for operations in past.chain([current]).rev() {
        let mut last = None;
        for operation in operations.iter().rev() {
            let gap = later.map_or(0, |later: u64| later.saturating_sub(operation.at_millis));
            age = age.saturating_add(gap.min(DAY_MILLIS));
            later = Some(operation.at_millis);
            last.get_or_insert(age);
        }
        ages.push(Ages { first: age, last: last.unwrap_or(age) });
    }
    ages.reverse();
    ages
}

/// Returns the operation before the last one that changed files; undoing that one requires it.
fn before_last_change<'a>(
    segments: &'a [PastSegment],
    current: &'a [Operation],
) -> Option<&'a str> {
    let all = || segments.iter().flat_map(|segment| &segment.operations).chain(current);
    let last = all().rfind(|operation| operation.kind.writes_files())?;
    all().rfind(|operation| operation.id < last.id).map(|operation| operation.id.as_str())
}

/// Reduces segments that are old but not dropped to one operation per day.
///
/// The caller holds the store lock exclusively.
fn thin_out(
    store: &Store,
    work_tree: &WorkTree,
    retention: &Retention,
    report: &mut CareReport,
) -> Result<(), Error> {
    let Some(newest) = work_tree.last(store)? else { return Ok(()) };
    let horizon = retention.keep_days.saturating_mul(DAY_MILLIS);
    let segments = past_segments(store, work_tree)?;
    let current = operations_of(store, newest.commit)?;
    let ages = ages(&segments, &current);
    let old = segments.iter().zip(&ages).filter(|(_, age)| age.last > horizon);
    let gone = thin(store, old.map(|(segment, _)| segment.operations.as_slice()))?;
    let lost: HashSet<&str> = gone.iter().map(|operation| operation.id.as_str()).collect();
    let all = segments.iter().flat_map(|segment| &segment.operations).chain(&current);
    let kept: Vec<&Operation> =
        all.filter(|operation| !lost.contains(operation.id.as_str())).collect();
    if !gone.is_empty() {
        tell(&gone, &kept, report);
    }
    Ok(())
}

/// Adds to the report the messages and sessions that belong only to dropped operations.
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

/// Returns the sessions that keep their segments.
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

/// Returns the past segments of a work tree, oldest first.
fn past_segments(store: &Store, work_tree: &WorkTree) -> Result<Vec<PastSegment>, Error> {
    let mut segments = Vec::new();
    for (id, head) in work_tree.past(store)? {
        segments.push(PastSegment { id, operations: operations_of(store, head)? });
    }
    segments.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(segments)
}

/// Returns the operations of one segment, oldest first.
fn operations_of(store: &Store, head: ObjectId) -> Result<Vec<Operation>, Error> {
    let mut operations: Vec<Operation> = store.segment(head).collect::<Result<_, _>>()?;
    operations.reverse();
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Details, OperationKind};
    use proptest::prelude::*;

    /// Builds an operation with the fields that retention uses.
    fn operation(number: usize, at_millis: u64, kind: OperationKind, session: u8) -> Operation {
        let session = (session > 0).then(|| format!("s{session}"));
        Operation {
            id: format!("{number:026}"),
            kind,
            snapshot: ObjectId::EMPTY_TREE,
            at_millis,
            details: Details { session, ..Details::default() },
            work_tree: String::new(),
            commit: ObjectId::NULL,
            parent: None,
            follows: None,
            segment: Default::default(),
            meta: Default::default(),
        }
    }

    type Spec = Vec<(i64, bool, u8)>;

    /// Builds segments of operations. Each time is relative to the previous operation, in hours.
    fn build(specs: &[Spec]) -> (Vec<PastSegment>, Vec<Operation>) {
        let (mut at, mut number) = (1_000_000_000_i64, 0);
        let mut segments: Vec<Vec<Operation>> = Vec::new();
        for spec in specs {
            let mut operations = Vec::new();
            for (hours, puts_back, session) in spec {
                at = (at + hours * 3_600_000).max(1);
                number += 1;
                let kind = if *puts_back { OperationKind::Restore } else { OperationKind::Step };
                operations.push(operation(number, at as u64, kind, *session));
            }
            segments.push(operations);
        }
        let current = segments.pop().unwrap_or_default();
        let past = segments.into_iter().map(|operations| {
            let id = operations.last().map(|last| last.id.clone()).unwrap_or_default();
            PastSegment { id, operations }
        });
        (past.collect(), current)
    }

    /// Returns whether the work of some sessions must be kept if `end` is the last operation that
    /// it includes, by the simplest possible implementation.
    fn work_must_stay(
        end: &Operation,
        sessions: &BTreeSet<&str>,
        all: &[&Operation],
        retention: &Retention,
        needs: &Needs,
    ) -> bool {
        if !sessions.is_empty() && sessions.iter().all(|s| needs.released.contains(*s)) {
            return false;
        }
        let end = all.iter().position(|o| o.id == end.id).unwrap();
        let mut age = 0;
        for pair in all[end..].windows(2) {
            age += pair[1].at_millis.saturating_sub(pair[0].at_millis).min(DAY_MILLIS);
        }
        let young = age <= (retention.keep_days + retention.thin_days) * DAY_MILLIS;
        let mut order: Vec<(u64, &str)> = Vec::new();
        for session in all.iter().flat_map(|o| sessions_of(o)).collect::<BTreeSet<&str>>() {
            let of = all.iter().filter(|o| sessions_of(o).any(|s| s == session));
            order.push((of.map(|o| o.at_millis).max().unwrap(), session));
        }
        order.sort();
        order.reverse();
        order.retain(|(_, session)| !needs.released.contains(*session));
        order.truncate(retention.keep_sessions.unwrap_or(0));
        young || order.iter().any(|(_, session)| sessions.contains(session))
    }

    /// Returns whether a segment must be kept for its own operations.
    fn must_stay(
        at: usize,
        segments: &[PastSegment],
        all: &[&Operation],
        retention: &Retention,
        needs: &Needs,
    ) -> bool {
        let own = &segments[at].operations;
        let last_change = all.iter().rposition(|o| o.kind == OperationKind::Restore);
        let safety = last_change.and_then(|at| at.checked_sub(1)).map(|at| &all[at].id);
        let needed = |o: &Operation| needs.begun.contains(&o.id) || Some(&o.id) == safety;
        let sessions: BTreeSet<&str> = own.iter().flat_map(sessions_of).collect();
        let end = own.last().unwrap();
        own.iter().any(needed) || work_must_stay(end, &sessions, all, retention, needs)
    }

    /// Returns whether the operation after a segment must stay, and so the state before it.
    fn next_must_stay(
        at: usize,
        segments: &[PastSegment],
        all: &[&Operation],
        retention: &Retention,
        needs: &Needs,
    ) -> bool {
        let end = all.iter().position(|o| o.id == segments[at].id).unwrap();
        let Some(next) = all.get(end + 1) else { return false };
        work_must_stay(next, &sessions_of(next).collect(), all, retention, needs)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            // Cheap enough to always run all cases: nothing here touches a disk.
            cases: 10_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn retention_drops_no_segment_that_must_stay(
            specs in prop::collection::vec(
                prop::collection::vec(
                    (prop_oneof![0..50_i64, -100_000..100_000_i64], prop::bool::weighted(0.1), 0..5_u8),
                    1..6,
                ),
                1..9,
            ),
            keep_days in 0..12_u64,
            thin_days in 0..4_u64,
            keep_sessions in prop::option::of(0..4_usize),
            released in prop::collection::btree_set(1..5_u8, 0..3),
            begun in prop::collection::btree_set(1..40_usize, 0..2),
        ) {
            let (segments, current) = build(&specs);
            let retention = Retention { keep_days, keep_sessions, thin_days, thorough: false };
            let needs = Needs {
                released: released.into_iter().map(|s| format!("s{s}")).collect(),
                begun: begun.into_iter().map(|number| format!("{number:026}")).collect(),
            };
            let count = expired(&segments, &current, &retention, &needs);
            let all: Vec<&Operation> =
                segments.iter().flat_map(|s| &s.operations).chain(&current).collect();
            let kept = |at| must_stay(at, &segments, &all, &retention, &needs);
            let holds = |at| next_must_stay(at, &segments, &all, &retention, &needs);
            for at in 0..count {
                prop_assert!(!kept(at), "segment {at} had to stay");
            }
            if let Some(last) = count.checked_sub(1) {
                prop_assert!(!holds(last), "segment {last} precedes an operation that stays");
            }
            prop_assert!(
                count == segments.len() || kept(count) || holds(count),
                "segment {count} could have gone",
            );
        }
    }
}
