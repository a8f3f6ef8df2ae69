//! Git's formats, and the only module that names gitoxide.
//!
//! Everything here reads or encodes bytes. Nothing here writes a file, starts a process or reads
//! a git configuration.

mod bases;
mod commit;
mod entry;
mod hash;
mod id;
mod ignore;
mod index;
mod lines;
mod name;
mod pack;
mod salvage;
mod tree;

pub(crate) use commit::{Commit, encode_commit, parse_commit};
pub(crate) use entry::{put_delta_header, put_object_header, split_entry};
pub(crate) use gix_object::Kind;
pub(crate) use hash::{Hasher, hash_object};
pub use id::{NotAHash, ObjectId};
pub(crate) use ignore::{Rules, Verdict};
pub(crate) use index::{IndexFile, Seed, TrackedBelow, TrackedDirs};
pub(crate) use lines::{Hunk, diff_lines, is_binary, split_lines};
pub(crate) use name::is_protected_name;
pub(crate) use pack::{PackFile, Packed, RawEntry, inflate_loose};
pub(crate) use salvage::salvage_pack;
pub use tree::TreeProblem;
pub(crate) use tree::{EntryKind, Tree, TreeEntry, encode_tree, parse_tree};
