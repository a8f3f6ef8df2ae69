//! The store: a git repository of our own for each project, and the registry of work trees.
//!
//! `docs/format.md` lists every file and ref.

mod alternates;
mod borrowing;
mod checks;
mod incoming;
mod layout;
mod lock;
mod project;
mod quarantine;
mod record;
mod refs;
mod registry;
mod skeleton;
mod tombstones;
mod trees;
mod trust;
mod user_repo;

pub use trust::check_data_dir;

pub(crate) use alternates::{Borrowed, COPY_LOCK};
pub(crate) use borrowing::{BorrowSource, Copied, CopyRound, Limits};
pub(crate) use checks::{foreign_part, is_newer, is_store};
pub(crate) use incoming::Incoming;
pub(crate) use layout::{Store, work_tree_dir};
pub(crate) use lock::{Lock, Sharing, holders};
pub(crate) use project::{IN_REPOSITORY, check_root, is_below_repository, path_hash};
pub(crate) use quarantine::is_among;
pub(crate) use record::Claim;
pub(crate) use refs::Refs;
pub(crate) use registry::{Registry, Standing};
pub(crate) use tombstones::Tombstones;
pub(crate) use trees::{
    Change as TreeChange, build as build_tree, edit as edit_tree, write as write_tree,
};
pub(crate) use trust::{Trust, is_in_project, note_pending, pending, resolve_store, set_aside};
pub use user_repo::{GitDirs, Head, git_dirs};
pub(crate) use user_repo::{MAX_LIST_BYTES, UserRepo};
