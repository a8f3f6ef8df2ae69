//! Sessions: operations over time.
//!
//! A *step* is what happens between [`Workspace::begin_step`](crate::Workspace::begin_step) and
//! [`Workspace::end_step`](crate::Workspace::end_step); a *turn* is all steps of one message. What
//! changes while no step is open is *outside* and credited to nobody.
//!
//! Taking a step back never puts an old tree over the present one. Each file it changed is merged
//! three ways, from what the step left, what is there now and what was there before, so that later
//! edits of the user and of other sessions stay. What cannot be merged stays as it is and is
//! reported.

mod blame;
mod checkpoint;
mod choose;
mod fork;
mod history;
mod inverse;
mod lost;
mod outside;
mod plans;
mod reading;
mod revert;
mod steps;
mod undo;

pub use blame::{BlameLine, Origin};
pub(crate) use checkpoint::date_of;
pub use checkpoint::{Checkpoint, CheckpointOptions};
pub use choose::{Expired, UndoScope, Unrecorded};
pub use fork::{Fork, ForkOptions};
pub use lost::{LostFile, LostUncaptured, Version};
pub use plans::Rewind;
pub use reading::{
    Deeds, SessionInfo, StepRecord, TimelineEntry, TimelineFile, TimelineQuery, TimelineStep,
    WalkBack,
};
pub use revert::RevertState;
pub use steps::{MAX_ID_BYTES, StepBegun, StepEnd, StepEnded, StepStart};
pub use undo::{Conflict, ConflictReason, UndoOptions, UndoReport};
