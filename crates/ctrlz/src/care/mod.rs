//! Care of the store: what is kept, for how long, and what it costs.
//!
//! Nothing here is needed for a snapshot or an undo; all of it keeps them possible for years.

mod purge;
mod retention;
mod rewrite;
mod thin;

pub use purge::{PurgeOptions, PurgeReport};
pub use retention::{CareReport, LostMessage, Retention};
