//! Maintenance of the store: retention, garbage collection, purging, verification, repair, disk
//! use, and exchange with other machines.
//!
//! Snapshots and undo do not depend on this module; it keeps them possible in the long term.

mod adoption;
mod arrival;
mod deep;
mod du;
mod exchange;
mod export;
mod import;
mod purge;
mod reading;
mod redact;
mod relink;
mod removal;
mod repair;
mod retention;
mod rewrite;
mod thin;
mod verify;
mod withhold;

pub use adoption::Adopted;
pub use arrival::OnPurged;
pub use deep::DeepRepack;
pub use du::{Consumer, DiskUse, Growth};
pub use exchange::{Exchange, Log, Pulled, PulledLog, Push, RefUpdate};
pub use export::{ExportOptions, Exported};
pub use import::Imported;
pub use purge::{PurgeOptions, PurgeReport};
pub use relink::{Relinked, relink};
pub use repair::RepairReport;
pub use retention::{CareReport, LostMessage, Retention};
pub use verify::{Problem, Verification};
