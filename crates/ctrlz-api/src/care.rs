//! Results of store maintenance, as JSON.

use ctrlz::ObjectId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::status::Verification;
use crate::wire::{Wire, wire};

wire! {
    /// Result of retention and garbage collection.
    pub struct CareReport from ctrlz::CareReport {
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
    pub struct LostMessage from ctrlz::LostMessage {
        /// Session of the message.
        pub session: String,
        /// Id of the message.
        pub message: String,
    }

    /// Result of a garbage collection.
    pub struct GcReport from ctrlz::GcReport {
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

    /// Result of a purge.
    pub struct PurgeReport from ctrlz::PurgeReport {
        /// Snapshots that were rewritten without the purged path.
        pub snapshots: Vec<PurgedSnapshot> = purged_snapshots,
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
}

/// A snapshot that was rewritten by a purge.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PurgedSnapshot {
    /// Hash before the purge, which is no longer valid.
    pub hash: Hash,
    /// Hash after the purge.
    pub replacement: Hash,
}

fn purged_snapshots(report: &ctrlz::PurgeReport) -> Vec<PurgedSnapshot> {
    let snapshot = |(hash, replacement): (&ObjectId, &ObjectId)| PurgedSnapshot {
        hash: hash.wire(),
        replacement: replacement.wire(),
    };
    report.snapshots.iter().map(snapshot).collect()
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

wire! {
    /// Used part of the quota.
    #[derive(Copy, Eq)]
    pub struct QuotaUse from ctrlz::QuotaUse {
        /// The higher of the two used shares, in percent.
        pub percent: u64 = |used| used.percent(),
        /// Size of this store, in bytes.
        pub store_bytes: u64,
        /// Limit for this store, in bytes.
        pub max_store_bytes: u64,
        /// Size of all stores in the data directory, in bytes.
        pub total_bytes: u64,
        /// Limit for all stores, in bytes.
        pub max_total_bytes: u64,
    }

    /// Disk usage of a store.
    pub struct DiskUse from ctrlz::DiskUse {
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
    pub struct Consumer from ctrlz::Consumer {
        /// Path under which the contents were first recorded.
        pub path: WirePath,
        /// Size of its versions in the packs, in bytes.
        pub bytes: u64,
        /// Number of distinct contents.
        pub versions: u64,
    }

    /// Growth on one day.
    #[derive(Copy, Eq)]
    pub struct Growth from ctrlz::Growth {
        /// Number of days since 1970-01-01, in UTC.
        pub day: u64,
        /// Size of the packed objects that operations of this day were the first to need, in bytes.
        pub bytes: u64,
    }

    /// Result of a repair.
    pub struct RepairReport from ctrlz::RepairReport {
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
}
