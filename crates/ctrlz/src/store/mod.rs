//! The store: listing → snapshot, in a real git repository of our own.
//!
//! ```text
//! HEAD config info/ objects/ refs/        what plain git reads
//! ctrlz/format                            version of the layout
//! ctrlz/store.lock                        shared: writers; exclusive: whoever removes packs
//! ctrlz/care.lock                         one gc, purge or repair at a time
//! ctrlz/quarantine/                       damaged files that a repair put aside
//! ctrlz/lost                              objects that could not be healed
//! ctrlz/flawed                            packs that cannot be merged, disposable
//! ctrlz/cared                             when garbage was last collected, and why not if it failed
//! ctrlz/wt/<id>/lock                      one command per work tree at a time
//! ctrlz/wt/<id>/stat                      stat cache, disposable
//! ctrlz/wt/<id>/log.index                 the log in one file, disposable
//! ctrlz/wt/<id>/steps                     steps that have begun and not ended
//! ctrlz/wt/<id>/gap                       preallocated; which turns are not recorded, disk full
//! ctrlz/wt/<id>/restore.journal           there while files are being put back
//! ctrlz/wt/<id>/outside/                  captures of paths outside of the work tree; their contents
//!                                         are kept by refs/ctrlz-outside/<id>/<capture>
//! ctrlz/wt/<id>/borrowed                  objects still to be copied from the user's repository
//! ctrlz/wt/<id>/watch/                    the watcher's lock and socket
//! ctrlz/wt/<id>/watched                   what the watcher has to be asked for, disposable
//! ctrlz/wt/<id>/from                      where a log of another machine came from
//! ctrlz/.ctrlz-store-<random>/            what is being imported, until it has been checked
//! ```

mod bundle;
mod companion;
mod delta;
mod gap;
mod gc;
mod growing;
mod incoming;
mod layout;
mod lender;
mod lock;
mod log;
mod log_index;
mod merge;
mod meta;
mod objects;
mod pack_writer;
mod project;
mod quarantine;
mod refs;
mod registry;
mod repack;
mod steps;
mod tombstones;
mod trees;
mod user_repo;
mod work_tree;

pub use gc::GcReport;
pub use log::{
    Boundary, Credit, Details, Forked, Gap, Head, Operation, OperationKind, OutsideUndo,
    ParentTurn, StepInfo, Uncaptured, UncapturedChange, UnrecordedTurn,
};

pub(crate) use bundle::{Bundle, Contents as BundleContents, Extra, write_bundle};
pub(crate) use companion::{
    Companion, Data as CompanionData, NewCompanion, before as companion_before,
    read as read_companion, write as write_companion,
};
pub(crate) use gap::OpenGap;
pub(crate) use gc::{GcOptions, Live};
pub(crate) use incoming::Incoming;
pub(crate) use layout::Store;
pub(crate) use lender::{Absorbed, Borrowed, Lender, Limits};
pub(crate) use lock::{Lock, Sharing, holders};
pub(crate) use log::{
    NewOperation, Redacted, Rewriting, Rewritten, Start, follows_work_of, new_id,
    read as read_operation, redact, sessions_of,
};
pub(crate) use log_index::{LogEntry, LogIndex};
pub(crate) use meta::{Meta, OuterRules};
pub(crate) use objects::Objects;
#[cfg(debug_assertions)]
pub use pack_writer::write_small_packs;
pub(crate) use pack_writer::{PackWriter, Published};
pub(crate) use project::{check_root, path_hash};
pub(crate) use registry::{Claim, Registry, Standing};
pub(crate) use steps::{
    OpenStep, ProcessId, Stamp, Watched, load as load_steps, save as save_steps,
};
pub(crate) use tombstones::Tombstones;
pub(crate) use trees::{
    Change as TreeChange, build as build_tree, edit as edit_tree, write as write_tree,
};
pub(crate) use user_repo::UserRepo;
pub(crate) use work_tree::{WorkTree, ref_part};
