//! Restoring: changes → plan → files. The only code that writes a user's files.
//!
//! A [`Plan`] says exactly what will happen. Applying it has three stages, and a journal tells the
//! next command which one a killed process was in:
//!
//! 1. *stage*: the new content is written beside its target under a temporary name, checked and
//!    flushed. Nothing visible has changed; a failure removes the temporary files.
//! 2. *swap*: every path changes by one rename. What was there before goes to the temporary name
//!    and is checked to be what the safety snapshot holds. A failure renames everything back.
//! 3. *clean*: what was replaced is removed, directories that became empty too.
//!
//! Killed in stage 1: rolled back. Killed later: rolled forward. Where the log shall say more than
//! that something was restored, the journal stays until it does.

mod absence;
mod apply;
mod carry_out;
mod clean;
mod journal;
mod modes;
mod place;
mod plan;
mod report;
mod request;
mod roll_back;
mod safety;
mod stage;
mod units;

pub use plan::{Action, Kept, KeptReason, Plan};
pub use report::{OnUse, RestoreOptions, RestoreReport};

pub(crate) use absence::{Absence, is_dir_of};
pub(crate) use apply::apply;
pub(crate) use carry_out::check_mass_removal;
pub(crate) use journal::{Journal, Phase, Record};
pub(crate) use plan::{ModeChange, Request, Wanted, plan};
pub(crate) use request::{Modes, Target};
pub(crate) use roll_back::recover;
pub(crate) use safety::{Planning, Prepared, SaveIgnored};
pub(crate) use units::{Source, is_database_log, is_shared_memory};
