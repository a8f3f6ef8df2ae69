//! Git's formats, and the only module that names gitoxide.
//!
//! Everything here reads or encodes bytes. Nothing here writes a file, starts a process or reads
//! a git configuration.

mod hash;
mod id;
mod ignore;
mod index;
mod lines;
mod name;
mod object;
mod pack;
mod salvage;

pub(crate) use hash::{Hasher, hash_object};
pub use id::{NotAHash, ObjectId};
pub(crate) use ignore::{Rules, Verdict};
pub(crate) use index::{IndexFile, Seed, TrackedBelow, TrackedDirs};
pub(crate) use lines::{Hunk, diff_lines, split_lines};
pub(crate) use name::is_protected_name;
pub use object::TreeProblem;
pub(crate) use object::{
    Commit, EntryKind, Kind, Tree, TreeEntry, encode_commit, encode_tree, parse_commit, parse_tree,
    tree_order,
};
pub(crate) use pack::{PackFile, Packed, RawEntry, inflate_loose};
pub(crate) use salvage::salvage_pack;
