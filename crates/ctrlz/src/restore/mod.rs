//! Restoring: turns changes into a plan and applies it. Only this module writes a user's files.
//!
//! A [`Plan`] lists all actions in advance. Applying it has three stages. A journal records the
//! current stage, so that the next command can finish a restore whose process was killed:
//!
//! 1. *stage*: the new content is written beside its target under a temporary name, verified and
//!    flushed. No visible path changes. On failure the temporary files are removed.
//! 2. *swap*: each path changes by one rename. The replaced file moves to the temporary name and is
//!    compared with the safety snapshot. On failure all renames are reversed.
//! 3. *clean*: replaced files and directories that became empty are removed.
//!
//! A restore killed in stage 1 is rolled back; one killed later is rolled forward. The journal of
//! an undo or redo is kept until the operation is in the log.

mod absence;
mod applied;
mod apply;
mod carry_out;
mod clean;
mod journal;
mod modes;
mod place;
mod plan;
mod planner;
mod report;
mod request;
mod roll_back;
mod safety;
mod sqlite;
mod stage;
mod units;

pub use plan::{Action, Kept, KeptReason, Plan};
pub use report::{OnUse, RestoreOptions, RestoreReport};

pub(crate) use absence::{Absence, is_dir_of};
pub(crate) use applied::Site;
pub(crate) use apply::apply;
pub(crate) use carry_out::check_mass_removal;
pub(crate) use journal::{Journal, Phase, Record};
pub(crate) use plan::{ModeChange, Request, Wanted};
pub(crate) use planner::plan;
pub(crate) use request::{Modes, Target};
pub(crate) use roll_back::recover;
pub(crate) use safety::{Planning, Prepared, SaveIgnored, check_room};
pub(crate) use sqlite::{
    HEAD_BYTES, SHARED_MEMORY, database_of, database_of_log, is_database_log,
    is_shared_memory_head, is_sqlite, is_sqlite_log, is_transient,
};
pub(crate) use units::Source;
