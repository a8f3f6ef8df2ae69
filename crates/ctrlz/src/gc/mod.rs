//! Garbage collection, and merging of packs while snapshots are recorded.
//!
//! ```text
//! collect  removes objects that no ref reaches
//! merge    merges the small packs of single snapshots
//! repack   writes objects of several packs into one, older versions as deltas
//! ```

mod collect;
mod merge;
mod repack;

pub use collect::GcReport;

pub(crate) use collect::{GcOptions, Live};
