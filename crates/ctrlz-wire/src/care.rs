//! What care of a store did, as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::snapshot::Verification;

/// What care did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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

/// A message whose files can no longer be brought back.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LostMessage {
    /// The session.
    pub session: String,
    /// The message.
    pub message: String,
}

impl From<&ctrlz::CareReport> for CareReport {
    fn from(report: &ctrlz::CareReport) -> CareReport {
        let lost = |lost: &ctrlz::LostMessage| LostMessage {
            session: lost.session.clone(),
            message: lost.message.clone(),
        };
        CareReport {
            dropped_operations: report.dropped_operations,
            dropped_sessions: report.dropped_sessions.clone(),
            lost_messages: report.lost_messages.iter().map(lost).collect(),
            gc: (&report.gc).into(),
        }
    }
}

/// What collecting garbage did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GcReport {
    /// Bytes the packs took before.
    pub bytes_before: u64,
    /// Bytes they take now.
    pub bytes_after: u64,
    /// Packs before.
    pub packs_before: u64,
    /// Packs now.
    pub packs_after: u64,
    /// Objects that something reaches.
    pub live_objects: u64,
    /// Objects that were dropped.
    pub dropped_objects: u64,
    /// Why less was done than there was to do, if so.
    pub note: Option<String>,
}

impl From<&ctrlz::GcReport> for GcReport {
    fn from(report: &ctrlz::GcReport) -> GcReport {
        GcReport {
            bytes_before: report.bytes_before,
            bytes_after: report.bytes_after,
            packs_before: report.packs_before as u64,
            packs_after: report.packs_after as u64,
            live_objects: report.live_objects,
            dropped_objects: report.dropped_objects,
            note: report.note.clone(),
        }
    }
}

/// What purging did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PurgeReport {
    /// Snapshots that are without it now.
    pub snapshots: Vec<PurgedSnapshot>,
    /// Operations that had it, in their snapshot or among the ignored files beside it.
    pub operations: u64,
    /// Contents that are gone.
    pub contents: u64,
    /// Steps and checkpoints whose label was blanked or lost the text.
    pub labels: u64,
    /// Other paths that have, or had, the same content.
    pub same_content: Vec<WirePath>,
    /// Whether the path is still in the work tree, where the next snapshot finds it again.
    pub still_there: bool,
    /// What collecting garbage did.
    pub gc: GcReport,
}

/// A snapshot that something was purged from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PurgedSnapshot {
    /// Its hash before, which names nothing any more.
    pub hash: Hash,
    /// Its hash now.
    pub replacement: Hash,
}

impl From<&ctrlz::PurgeReport> for PurgeReport {
    fn from(report: &ctrlz::PurgeReport) -> PurgeReport {
        let snapshots = report.snapshots.iter().map(|(hash, replacement)| PurgedSnapshot {
            hash: (*hash).into(),
            replacement: (*replacement).into(),
        });
        PurgeReport {
            snapshots: snapshots.collect(),
            operations: report.operations,
            contents: report.contents,
            labels: report.labels,
            same_content: report.same_content.iter().map(WirePath::from).collect(),
            still_there: report.still_there,
            gc: (&report.gc).into(),
        }
    }
}

/// A session that need not be kept any more.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Released {
    /// The session.
    pub session: String,
    /// Whether the whole store was removed.
    pub store_removed: bool,
}

/// How everything was found to be.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Doctor {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// What was looked at.
    pub checks: Vec<Check>,
}

/// One line of the checklist.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// Whether nothing is wrong with it.
    pub ok: bool,
    /// What was found, for people.
    pub detail: String,
}

/// How much of the quota is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaUse {
    /// How full the fuller of the two is.
    pub percent: u64,
    /// Bytes that the objects of this store take.
    pub store_bytes: u64,
    /// What they may take.
    pub max_store_bytes: u64,
    /// Bytes that the objects of all stores under the data dir take.
    pub total_bytes: u64,
    /// What they may take.
    pub max_total_bytes: u64,
}

impl From<&ctrlz::QuotaUse> for QuotaUse {
    fn from(used: &ctrlz::QuotaUse) -> QuotaUse {
        QuotaUse {
            percent: used.percent(),
            store_bytes: used.store_bytes,
            max_store_bytes: used.max_store_bytes,
            total_bytes: used.total_bytes,
            max_total_bytes: used.max_total_bytes,
        }
    }
}

/// What a store takes, and what takes it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiskUse {
    /// Bytes of all its files.
    pub store_bytes: u64,
    /// Bytes of damaged files that a repair put aside.
    pub quarantine_bytes: u64,
    /// Bytes in packs that no operation needs; `gc` frees most of them.
    pub unused_bytes: u64,
    /// Operations in the logs.
    pub operations: u64,
    /// How much of the quota is used.
    pub quota: QuotaUse,
    /// What takes the most, most first.
    pub consumers: Vec<Consumer>,
    /// Growth by day, oldest first; days without any are left out.
    pub days: Vec<Growth>,
}

/// A path and what its versions take.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Consumer {
    /// The path that the contents had first.
    pub path: WirePath,
    /// Bytes that its versions take in the packs.
    pub bytes: u64,
    /// Contents it had.
    pub versions: u64,
}

/// What one day added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Growth {
    /// Days since 1970, in universal time.
    pub day: u64,
    /// Bytes in the packs that its operations were the first to need.
    pub bytes: u64,
}

impl From<&ctrlz::DiskUse> for DiskUse {
    fn from(used: &ctrlz::DiskUse) -> DiskUse {
        let consumer = |consumer: &ctrlz::Consumer| Consumer {
            path: (&consumer.path).into(),
            bytes: consumer.bytes,
            versions: consumer.versions,
        };
        let growth = |day: &ctrlz::Growth| Growth { day: day.day, bytes: day.bytes };
        DiskUse {
            store_bytes: used.store_bytes,
            quarantine_bytes: used.quarantine_bytes,
            unused_bytes: used.unused_bytes,
            operations: used.operations,
            quota: (&used.quota).into(),
            consumers: used.consumers.iter().map(consumer).collect(),
            days: used.days.iter().map(growth).collect(),
        }
    }
}

/// What a repair did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RepairReport {
    /// What was wrong.
    pub before: Verification,
    /// What still is.
    pub after: Verification,
    /// Objects that are whole again.
    pub healed: u64,
    /// Refs that were found again.
    pub refs: Vec<String>,
    /// Where the damaged files are now.
    pub quarantined: Vec<WirePath>,
}

impl From<&ctrlz::RepairReport> for RepairReport {
    fn from(report: &ctrlz::RepairReport) -> RepairReport {
        RepairReport {
            before: (&report.before).into(),
            after: (&report.after).into(),
            healed: report.healed,
            refs: report.refs.clone(),
            quarantined: report.quarantined.iter().map(|path| path.as_path().into()).collect(),
        }
    }
}
