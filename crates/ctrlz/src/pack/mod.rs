//! Packs: reading and writing objects. Independent of logs and work trees.
//!
//! ```text
//! writer     new objects, durable before a ref names them
//! sizes      the sizes of buffers and packs
//! large      blobs that are compressed while they are read
//! growing    packs that are larger than memory
//! temporary  unpublished files
//! entry      the encoding of entries
//! delta      entries as differences from others
//! index      the index that git reads beside a pack
//! packs      the packs of a directory
//! reader     objects of packs, loose files and alternates
//! ```

mod delta;
mod entry;
mod growing;
mod index;
mod large;
mod packs;
mod reader;
mod sizes;
mod temporary;
mod writer;

pub(crate) use delta::{MAX_BYTES as MAX_DELTA_BYTES, delta};
pub(crate) use entry::{Effort, deflated, effort_of, whole_entry};
pub(crate) use index::write_index;
pub(crate) use reader::Objects;
pub(crate) use sizes::PACK_BYTES;
#[cfg(debug_assertions)]
pub use sizes::write_small_packs;
pub(crate) use temporary::{Entry, HashedFile, TEMPORARY, TemporaryPack};
pub(crate) use writer::{PackWriter, Published, add, attack};
