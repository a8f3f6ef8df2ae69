//! The interface of ctrlz to other programs, shared by every transport.
//!
//! The command line with `--json`, `ctrlz rpc` and all other interfaces print the types of this
//! crate and nothing else. [`METHODS`] is the table of methods. [`dispatch`] calls them with JSON,
//! and the command line calls the same functions in [`methods`] with typed parameters.
//! [`WireError`] is the only form of errors, and [`schema()`] describes all of them for clients in
//! other languages.
//!
//! This crate knows no transport, does not read the environment and prints nothing. A [`Host`]
//! supplies the user's configuration.

#![forbid(unsafe_code)]

mod agents;
mod care;
mod error;
mod exchange;
mod log;
mod method;
pub mod methods;
mod path;
mod place;
mod put_back;
mod schema;
mod server;
mod session;
mod snapshot;
mod status;
mod wire;

pub use ctrlz::{ChangeStatus, IgnoredFiles, Presence};

pub use agents::{AgentFailure, Agents, Reach, Tool};
pub use care::{
    CareReport, Check, Consumer, DiskUse, Doctor, GcReport, Growth, LostMessage, PurgeReport,
    PurgedSnapshot, QuotaUse, Released, RepairReport,
};
pub use error::{ErrorDetails, Fault, KINDS, Kind, MethodError, WireError, message};
pub use exchange::{
    Adopted, Exported, Imported, Installation, Installed, Pulled, PulledLog, Pushed, Relinked,
};
pub use log::{
    Blame, BlameLine, Checkpoint, CheckpointMade, Checkpoints, Head, Log, LogEntry, LoggedFile,
    LoggedStep, Lost, LostFile, LostUncaptured, Origin, Version, Versions,
};
pub use method::{
    Access, Answer, Call, Context, METHODS, Method, Params, Precondition, dispatch, find, named,
};
pub use methods::{Sink, Stream, Wanted};
pub use path::{Hash, WirePath};
pub use place::{CallOptions, Host, Opened, Place, Profile, WorkTree};
pub use put_back::{
    Action, ActionKind, Conflict, Expired, Kept, Missing, OutsideChange, Plan, RecoveredRepository,
    RestoreReport, UndoReport, Unrecorded,
};
pub use schema::{Described, schema, schema_hash, schema_text};
pub use server::{
    CancelParams, Capabilities, InitializeParams, Initialized, PROTOCOL, ProgressParams, ShutDown,
    ShutdownParams,
};
pub use session::{
    Boundary, Fork, Forked, Gap, Noted, OpenSteps, ParentTurn, RevertState, Reverted, SessionInfo,
    Sessions, ShownStep, SnapshotBefore, SnapshotBeforeOutcome, StepBegun, StepEnded, StepInfo,
    StepRecord, Steps, Uncaptured, UnrecordedTurn, session_of,
};
pub use snapshot::{
    Change, Changes, Diff, DiffFull, Disabled, Encoding, Exists, FileAt, FileContent, FileDiff,
    Files, ListedFile, Patch, Record, Recovery, Shown, Skipped, Snapshot, SnapshotInfo,
    StepChanges, StepDiff, StepDiffFull,
};
pub use status::{DamagedPack, HeldLock, Problem, Status, Verification, Watcher, next_step};
