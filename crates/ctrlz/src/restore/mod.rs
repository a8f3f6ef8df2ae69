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

mod apply;
mod journal;
mod plan;
mod stage;

pub use plan::{Action, Kept, KeptReason, Plan};

pub(crate) use apply::{apply, recover};
pub(crate) use journal::{Journal, Phase, Record};
pub(crate) use plan::{Extent, ModeChange, Now, NowAt, Request, Wanted, entry_kind, plan};
