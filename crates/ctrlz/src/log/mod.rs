//! The log: operations, and the data that a git tree cannot hold.
//!
//! ```text
//! operation         the entries of a log
//! codec             operations as git commits
//! rewriting         new versions of operations
//! id                sortable ids
//! history           the operations of a store
//! index             a log in one file, for fast reading
//! meta              skipped paths, permissions, empty directories, ignore rules
//! rules             ignore rules that are not files of a snapshot
//! ignored_snapshot  ignored files that are kept beside a snapshot
//! source            where a log was pulled or imported from
//! steps             open steps
//! gap               turns that were not recorded because the disk was full
//! work_tree         the part of a store that belongs to one work tree
//! ```

mod codec;
mod gap;
mod history;
mod id;
mod ignored_snapshot;
mod index;
mod meta;
mod operation;
mod rewriting;
mod rules;
mod source;
mod steps;
mod work_tree;

pub use operation::{
    Boundary, Credit, Details, Disowned, Forked, Gap, Moved, Operation, OperationKind, OutsideUndo,
    ParentTurn, StepInfo, Uncaptured, UncapturedChange, UnrecordedTurn,
};

pub(crate) use codec::{NewOperation, follows_work_of, read as read_operation, sessions_of};
pub(crate) use gap::OpenGap;
pub(crate) use id::new_id;
pub(crate) use ignored_snapshot::{
    Data as IgnoredData, IgnoredSnapshot, before as ignored_before, read as read_ignored,
};
pub(crate) use index::{LogEntry, LogIndex};
pub(crate) use meta::Meta;
pub(crate) use rewriting::{Redacted, Rewriting, Rewritten, Start, redact};
pub(crate) use rules::{Lists, OuterRules};
pub(crate) use source::Source;
pub(crate) use steps::{
    OpenStep, ProcessId, Stamp, Watched, load as load_steps, save as save_steps,
};
pub(crate) use work_tree::{WorkTree, WrongFile, WrongIndex, ref_part};
