//! Undo for coding agents: snapshots of a working directory, and ways to restore them.
//!
//! A [`Workspace`] is a protected directory. [`Workspace::track`] records its state in a separate
//! git repository and returns the state's hash. [`Workspace::restore`] restores a state. It records
//! the present one first, so that nothing is lost:
//!
//! ```
//! use ctrlz::{Options, Progress, RestoreOptions, TrackOptions, Workspace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let project = tempfile::tempdir()?;
//! # let data = tempfile::tempdir()?;
//! # std::fs::write(project.path().join("main.rs"), "fn main() {}")?;
//! let workspace = Workspace::open(project.path(), Options::new(data.path()))?;
//! let progress = Progress::default();
//!
//! let before = workspace.track(&TrackOptions::default(), &progress)?;
//!
//! // An agent makes a mistake.
//! std::fs::remove_file(project.path().join("main.rs"))?;
//!
//! let report = workspace.restore(&before.hash, &RestoreOptions::default(), &progress)?;
//! assert!(report.is_complete());
//! assert_eq!(std::fs::read_to_string(project.path().join("main.rs"))?, "fn main() {}");
//! # Ok(())
//! # }
//! ```
//!
//! The work of an agent is recorded in steps, one for each tool call. [`Workspace::undo`] undoes
//! steps and keeps later changes by others, line by line where possible:
//!
//! ```
//! use ctrlz::{Options, Progress, StepEnd, StepInfo, StepStart, UndoOptions, UndoScope, Workspace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let project = tempfile::tempdir()?;
//! # let data = tempfile::tempdir()?;
//! # let workspace = Workspace::open(project.path(), Options::new(data.path()))?;
//! # let progress = Progress::default();
//! let info = StepInfo {
//!     session: "session-1".into(),
//!     message: Some("message-1".into()),
//!     ..StepInfo::default()
//! };
//! let step = workspace.begin_step(StepStart { info, ..StepStart::default() }, &progress)?;
//! std::fs::write(project.path().join("notes.txt"), "oops")?; // the tool call
//! let ended = workspace.end_step(&step.step, &StepEnd::default(), &progress)?; // even if the tool failed
//! assert_eq!(ended.files.len(), 1);
//!
//! workspace.undo(&UndoScope::LastTurn, &UndoOptions::default(), &progress)?;
//! assert!(!project.path().join("notes.txt").exists());
//! # Ok(())
//! # }
//! ```
//!
//! `examples/agent.rs` is a complete agent loop. Programs in other languages use `ctrlz rpc`, with
//! clients for Python, Go and TypeScript.
//!
//! The engine is synchronous, starts no process, and reads neither the environment nor a
//! configuration file: callers configure it through [`Options`]. It never writes inside a `.git`
//! directory except its own store, never follows a symlink, and reports the paths that it could not
//! capture ([`Snapshot::skipped`]).
//!
//! Data flows one way through the modules: `git` and `fs` read formats and files, `scan` lists the
//! work tree, `record` and `store` turn the listing into a snapshot, `compare` finds the changes,
//! `restore` plans and writes, and `workspace` is the public interface to all of them.

#![deny(unsafe_code)]

mod clock;
mod compare;
mod defect;
mod error;
mod exchange;
mod fs;
mod gc;
mod git;
mod hold;
mod jobs;
mod log;
mod maintenance;
mod options;
mod outside;
mod pack;
#[cfg(any(test, fuzzing))]
pub mod parsers;
mod path;
mod record;
mod restore;
mod scan;
mod session;
mod store;
mod watch;
mod workspace;

pub use clock::now_millis;
pub use compare::{Change, FileDiff, Status as ChangeStatus, base64};
#[cfg(debug_assertions)]
pub use defect::break_invariant;
pub use error::{
    ERROR_KINDS, Error, ErrorKind, ExchangeError, Fault, LookupError, QuotaUse, RecordError,
    RestoreError, SessionError, StoreError,
};
pub use exchange::{
    Adopted, Exchange, ExportOptions, Exported, Imported, Log, OnPurged, Pulled, PulledLog, Push,
    RefUpdate, Transfer,
};
pub use fs::FileError;
pub use gc::GcReport;
pub use git::{NotAHash, ObjectId, TreeProblem};
pub use hold::Recovery;
pub use log::{
    Boundary, Credit, Details, Disowned, Forked, Gap, Moved, Operation, OperationKind, OutsideUndo,
    ParentTurn, StepInfo, Uncaptured, UncapturedChange, UnrecordedTurn,
};
pub use maintenance::{
    CareReport, Consumer, DeepRepack, DiskUse, Growth, LostMessage, Maintenance, Problem,
    PurgeOptions, PurgeReport, Relinked, RepairReport, Retention, Verification, relink,
};
pub use options::{IgnoredFiles, Options};
pub use outside::{OutsideAction, OutsideChange, OutsideKept, RecoveredRepository};
#[cfg(debug_assertions)]
pub use pack::write_small_packs;
pub use path::{NotATreePath, PathText, TreePath, escape};
pub use record::{FileEdit, Snapshot, TrackOptions};
pub use restore::{Action, Kept, KeptReason, OnUse, Plan, RestoreOptions, RestoreReport};
pub use scan::{Progress, SkipReason, Skipped};
pub use session::{
    BlameLine, Checkpoint, CheckpointOptions, Conflict, ConflictReason, Expired, Fork, ForkOptions,
    LostFile, LostFiles, LostUncaptured, MAX_ID_BYTES, Origin, RevertState, Rewind, SessionInfo,
    SnapshotBefore, StepBegun, StepEnd, StepEnded, StepRecord, StepScope, StepStart, TimelineEntry,
    TimelineFile, TimelineQuery, TimelineStep, UndoOptions, UndoReport, UndoScope, Unrecorded,
    Version,
};
pub use store::{GitDirs, Head, check_data_dir, git_dirs};
pub use watch::{Refusal, WatchEnd, WatchOptions, WatcherStatus};
pub use workspace::{
    Diffs, HeldLock, ListedFile, Notice, Patch, PatchToRevert, Point, Presence, Signs, Status,
    WatcherControl, Workspace, find_work_tree,
};
