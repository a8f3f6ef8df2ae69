//! What ctrlz says to other programs, once for every interface.
//!
//! The command line with `--json`, `ctrlz rpc`, and whatever comes after them print the types of
//! this crate and nothing else. [`METHODS`] is the table of what can be asked for, [`dispatch`]
//! the one way to ask, [`WireError`] the one form of a failure, and [`schema()`] the description of
//! all of them that clients in other languages are written against.
//!
//! Nothing here knows a transport, reads the environment, or prints: where the user's
//! configuration comes from is up to a [`Host`].

#![forbid(unsafe_code)]

mod error;
mod method;
mod methods;
mod path;
mod place;
mod put_back;
mod schema;
mod server;
mod session;
mod snapshot;

pub use error::{ErrorDetails, Fault, KINDS, Kind, WireError};
pub use method::{Access, Answer, Context, METHODS, Method, UpTo, dispatch, find};
pub use path::{Hash, WirePath};
pub use place::{CallOptions, Host, Place, Profile, WorkTree};
pub use put_back::{Action, ActionKind, Conflict, Kept, Plan, RestoreReport, UndoReport};
pub use schema::{errors_table, methods_table, schema, schema_hash, schema_text};
pub use server::{
    CancelParams, Capabilities, InitializeParams, Initialized, PROTOCOL, ProgressParams, ShutDown,
    ShutdownParams,
};
pub use session::{
    Counts, CreditedStep, Head, Log, LogEntry, LogPage, LogRange, Logged, SessionInfo, Sessions,
    StepBegun, StepEnded, StepInfo, StepRecord, Steps, read_log,
};
pub use snapshot::{
    Change, ChangeStatus, Changes, DamagedPack, Diff, DiffFull, Disabled, Encoding, Exists, FileAt,
    FileContent, FileDiff, Files, ListedFile, Patch, Presence, Problem, Record, Recovery, Shown,
    Skipped, Snapshot, SnapshotInfo, Status, Verification,
};
