//! Packs: reading and writing objects. Independent of logs and work trees.
//!
//! ```text
//! writer     new objects, durable before a ref names them
//! growing    packs that are larger than memory
//! temporary  unpublished files
//! entry      the encoding of entries
//! delta      entries as differences from others
//! index      the index that git reads beside a pack
//! reader     packs, loose objects and alternates
//! ```

mod delta;
mod entry;
mod growing;
mod index;
mod reader;
mod temporary;
mod writer;

pub(crate) use delta::{MAX_BYTES as MAX_DELTA_BYTES, delta};
pub(crate) use entry::{Effort, deflated, effort_of, put_header, put_offset, size_of, whole_entry};
pub(crate) use index::write_index;
pub(crate) use reader::Objects;
pub(crate) use temporary::{Entry, HashedFile, TEMPORARY, TemporaryPack};
#[cfg(debug_assertions)]
pub use writer::write_small_packs;
pub(crate) use writer::{PACK_BYTES, PackWriter, Published, add, attack};
