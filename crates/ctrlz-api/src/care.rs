//! Results of store maintenance, as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::status::Verification;

/// Result of retention and garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CareReport {
    /// Number of operations that were dropped from the log.
    pub dropped_operations: u64,
    /// Sessions that were dropped completely.
    pub dropped_sessions: Vec<String>,
    /// Messages whose files were dropped.
    pub lost_messages: Vec<LostMessage>,
    /// Result of the garbage collection.
    pub gc: GcReport,
}

/// A message whose files can no longer be restored.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LostMessage {
    /// Session of the message.
    pub session: String,
    /// Id of the message.
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

/// Result of a garbage collection.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GcReport {
    /// Size of the packs before, in bytes.
    pub bytes_before: u64,
    /// Size of the packs after, in bytes.
    pub bytes_after: u64,
    /// Number of packs before.
    pub packs_before: u64,
    /// Number of packs after.
    pub packs_after: u64,
    /// Number of reachable objects.
    pub live_objects: u64,
    /// Number of objects that were dropped.
    pub dropped_objects: u64,
    /// Reason why the collection was incomplete; `null` if it was complete.
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

/// Result of a purge.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PurgeReport {
    /// Snapshots that were rewritten without the purged path.
    pub snapshots: Vec<PurgedSnapshot>,
    /// Number of operations that had the path, in their snapshot or among the ignored files beside
    /// it.
    pub operations: u64,
    /// Number of contents that were removed.
    pub contents: u64,
    /// Number of steps and checkpoints whose label was blanked or lost the text.
    pub labels: u64,
    /// Other paths that have, or had, the same content.
    pub same_content: Vec<WirePath>,
    /// Whether the path still exists in the work tree, so that the next snapshot records it again.
    pub still_there: bool,
    /// Result of the garbage collection.
    pub gc: GcReport,
}

/// A snapshot that was rewritten by a purge.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PurgedSnapshot {
    /// Hash before the purge, which is no longer valid.
    pub hash: Hash,
    /// Hash after the purge.
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

/// A session whose history no longer has to be kept.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Released {
    /// Id of the session.
    pub session: String,
    /// Whether the whole store was removed.
    pub store_removed: bool,
}

/// Report of `ctrlz doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Doctor {
    /// Whether every check passed.
    pub ok: bool,
    /// The checks that were made.
    pub checks: Vec<Check>,
}

/// One check of `ctrlz doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Whether the check passed.
    pub ok: bool,
    /// Human-readable result.
    pub detail: String,
}

/// Used part of the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct QuotaUse {
    /// The higher of the two used shares, in percent.
    pub percent: u64,
    /// Size of this store, in bytes.
    pub store_bytes: u64,
    /// Limit for this store, in bytes.
    pub max_store_bytes: u64,
    /// Size of all stores in the data directory, in bytes.
    pub total_bytes: u64,
    /// Limit for all stores, in bytes.
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

/// Disk usage of a store.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiskUse {
    /// Size of all files of the store, in bytes.
    pub store_bytes: u64,
    /// Size of the damaged files that a repair moved to quarantine, in bytes.
    pub quarantine_bytes: u64,
    /// Size of packed objects that no operation needs, in bytes; `gc` frees most of them.
    pub unused_bytes: u64,
    /// Number of operations in the logs.
    pub operations: u64,
    /// Used part of the quota.
    pub quota: QuotaUse,
    /// Paths that use the most space, largest first.
    pub consumers: Vec<Consumer>,
    /// Growth per day, oldest first. Days without growth are left out.
    pub days: Vec<Growth>,
}

/// A path and the space that its versions use.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Consumer {
    /// Path under which the contents were first recorded.
    pub path: WirePath,
    /// Size of its versions in the packs, in bytes.
    pub bytes: u64,
    /// Number of distinct contents.
    pub versions: u64,
}

/// Growth on one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Growth {
    /// Number of days since 1970-01-01, in UTC.
    pub day: u64,
    /// Size of the packed objects that operations of this day were the first to need, in bytes.
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

/// Result of a repair.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RepairReport {
    /// State of the store before the repair.
    pub before: Verification,
    /// State of the store after the repair.
    pub after: Verification,
    /// Number of objects that were repaired.
    pub healed: u64,
    /// Refs that were restored.
    pub refs: Vec<String>,
    /// Quarantine paths of the damaged files.
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
