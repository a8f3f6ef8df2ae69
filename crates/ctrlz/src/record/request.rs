//! The request for a snapshot: the files to scan, and the reason for it.

use std::time::{Duration, Instant};

use crate::fs::Time;
use crate::log::{Details, OperationKind, Uncaptured};
use crate::path::TreePath;
use crate::scan::Placed;

/// Tolerance for the start of a tool: clients measure its duration a little before they report it.
/// A user takes longer than this to switch from an editor to a permission question.
const SLACK: Duration = Duration::from_millis(250);

/// Options of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TrackOptions {
    /// Rescans only these paths, and takes everything else from the previous snapshot. A file named
    /// here is captured even if it is ignored or large. Default: everything.
    pub paths: Vec<TreePath>,
    /// Reads every file instead of trusting timestamps. Default: no.
    pub rehash: bool,
}

/// Limits for ignored or large files that tools name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    /// Replaces [`Options::max_named_bytes`](crate::Options::max_named_bytes).
    pub(crate) bytes: Option<u64>,
    /// Deadline. Files that cannot be read by then are left out.
    pub(crate) until: Option<Instant>,
}

/// The step that ends, with the evidence from its client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) step: String,
    /// The start of the tool, if the client reports its duration.
    pub(crate) ran_since: Option<Time>,
    /// Whether the tool was refused and never ran.
    pub(crate) refused: bool,
    /// Uncaptured paths that it removed or changed.
    pub(crate) uncaptured: Vec<Uncaptured>,
    /// Whether it changed captured files outside of the work tree.
    pub(crate) outside: bool,
}

impl Ending {
    /// Returns the earliest change time of a tool that ended now and ran for `duration`.
    pub(crate) fn start_of(duration: Duration) -> Time {
        Time::now().minus_millis((duration + SLACK).as_millis().try_into().unwrap_or(i64::MAX))
    }
}

/// The limit on the size of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Quota,
    /// Limited by the disk only, for files that are about to be overwritten.
    Disk,
}

/// The reason for a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) kind: OperationKind,
    pub(crate) details: Details,
    /// Whether it is recorded even if nothing changed.
    pub(crate) always: bool,
    /// Paths that a tool is about to change. They are kept even if they are ignored.
    pub(crate) named: Vec<TreePath>,
    /// The limit for files that tools name.
    pub(crate) named_limit: NamedLimit,
    /// The files that a restore has just written.
    pub(crate) placed: Placed,
    pub(crate) room: Room,
    /// The step that ends with it.
    pub(crate) ending: Option<Ending>,
    /// Whether an undo follows, which may find interrupted steps.
    pub(crate) undoing: bool,
    /// The session of the undo, if it is limited to one.
    pub(crate) undone_session: Option<String>,
    /// Whether it corrects a wrong snapshot, so that no step is credited.
    pub(crate) correction: bool,
}

impl Cause {
    pub(crate) fn of(kind: OperationKind) -> Cause {
        let (always, named, placed, room) = (false, Vec::new(), Placed::new(), Room::Disk);
        Cause {
            kind,
            details: Details::default(),
            always,
            named,
            named_limit: NamedLimit::default(),
            placed,
            room,
            ending: None,
            undoing: false,
            undone_session: None,
            correction: false,
        }
    }

    /// Returns the cause of a snapshot whose changes belong to open steps or to the user.
    pub(crate) fn outside() -> Cause {
        Cause { room: Room::Quota, ..Cause::before_change() }
    }

    /// Returns the cause of a safety snapshot, to which the quota does not apply.
    pub(crate) fn before_change() -> Cause {
        Cause::of(OperationKind::Outside)
    }
}

/// The result that the caller of a scan needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Snapshot,
    /// Also the metadata of every file, for a restore.
    Listing,
}
