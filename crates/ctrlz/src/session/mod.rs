//! Sessions: steps, turns, undo and redo over the log.
//!
//! A *step* covers the changes between [`Workspace::begin_step`](crate::Workspace::begin_step) and
//! [`Workspace::end_step`](crate::Workspace::end_step); a *turn* is all steps of one message.
//! Changes made while no step is open are *outside* and attributed to no step.
//!
//! Undo never writes an old tree over the present one. Each changed file is merged three ways, from
//! the version that the step left, the present one and the one before the step. Later edits of the
//! user and of other sessions are kept. Files that do not merge stay unchanged and are reported.

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
mod report;
mod revert;
mod steps;
mod timeline;
mod undo;
mod unreachable;

use crate::workspace::Workspace;

pub use blame::{BlameLine, Origin};
pub(crate) use checkpoint::date_of;
pub use checkpoint::{Checkpoint, CheckpointOptions};
pub use choose::UndoScope;
pub use fork::{Fork, ForkOptions};
pub use lost::{LostFile, LostUncaptured, Version};
pub use plans::Rewind;
pub use reading::{SessionInfo, SnapshotBefore, StepRecord, StepScope};
pub use report::{Conflict, ConflictReason, Expired, UndoOptions, UndoReport, Unrecorded};
pub use revert::RevertState;
pub use steps::{MAX_ID_BYTES, StepBegun, StepEnd, StepEnded, StepStart};
pub(crate) use steps::{check_length, check_lengths};
pub use timeline::{TimelineEntry, TimelineFile, TimelineQuery, TimelineStep};

/// Files that disappeared from a work tree.
pub struct LostFiles<'a>(&'a Workspace);

impl Workspace {
    /// Returns a handle to files that disappeared and to their recovery.
    pub fn lost_files(&self) -> LostFiles<'_> {
        LostFiles(self)
    }
}
