//! Maintenance of the store: retention, purging, verification, repair and disk use.
//!
//! Snapshots and undo do not depend on this module; it keeps them possible in the long term.
//!
//! ```text
//! retention    expires old operations, then collects garbage
//! thin         keeps one operation per day
//! purge        removes content or text from every snapshot and label
//! editors      the changes that a purge makes to the history
//! occurrences  where a path and its contents occur in the history
//! withhold     removes the text of private ignore lists from old operations
//! rewrite      rewrites logs for purge, thin and withhold
//! verify       finds damage
//! repair       replaces damaged packs
//! deep         the repository in which `gc --deep` runs git
//! du           disk use
//! relink       connects a moved directory with its history
//! removal      removes a store
//! ```

mod deep;
mod du;
mod editors;
mod occurrences;
mod purge;
mod relink;
mod removal;
mod repair;
mod retention;
mod rewrite;
mod thin;
mod verify;
mod withhold;

use crate::workspace::Workspace;

pub use deep::DeepRepack;
pub use du::{Consumer, DiskUse, Growth};
pub use purge::{PurgeOptions, PurgeReport};
pub use relink::{Relinked, relink};
pub use repair::RepairReport;
pub use retention::{CareReport, LostMessage, Retention};
pub use verify::{Problem, Verification};

/// Maintenance of the store that a work tree uses.
pub struct Maintenance<'a>(&'a Workspace);

impl Workspace {
    /// Returns a handle to garbage collection, purging, verification, repair and disk use of the
    /// store.
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance(self)
    }
}
