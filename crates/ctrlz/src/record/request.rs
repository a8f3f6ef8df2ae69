//! The request for a snapshot: the files to scan, and the reason for it.

use std::time::{Duration, Instant};

use crate::fs::Time;
use crate::log::{Details, OpenStep, OperationKind, Uncaptured};
use crate::path::TreePath;
use crate::scan::Placed;

/// Usual delay between the end of a tool and its report, at most. A user takes longer than this to
/// switch from an editor to a permission question.
const SLACK: Duration = Duration::from_millis(250);

/// Delay on a busy machine, at most.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Time in which no user edits a file and answers a permission question.
const NO_QUESTION: Duration = Duration::from_millis(700);

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
    /// When the tool ran, if the client reports its duration and it had to wait before that.
    pub(crate) ran: Option<RunTime>,
    /// Whether the tool was refused and never ran.
    pub(crate) refused: bool,
    /// Whether the recorded changes preceded those of the tool, as its report shows.
    pub(crate) found: bool,
    /// Uncaptured paths that it removed or changed.
    pub(crate) uncaptured: Vec<Uncaptured>,
    /// Whether it changed captured files outside of the work tree.
    pub(crate) outside: bool,
}

/// The time in which a tool ran, given its duration and the time of its report.
///
/// The report comes some time after the end, so that the start is known less exactly than the
/// duration:
///
/// ```text
/// begin_step     question?       tool runs         delay     report
///     |----------------------|=================|------------|
///                   earliest ^ (if the delay is MAX_DELAY)
///                                   since ^ (if it is SLACK)
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTime {
    reported: Time,
    duration: Duration,
    failed: bool,
}

impl RunTime {
    /// Describes a tool that ran for `duration` and is reported now.
    pub(crate) fn until_now(duration: Duration, failed: bool) -> RunTime {
        RunTime { reported: Time::now(), duration, failed }
    }

    /// Returns whether the tool can have waited for a user's answer after `began`.
    pub(crate) fn waited_since(&self, began_millis: u64) -> bool {
        self.before_report(self.duration + NO_QUESTION).millis() > began_millis
    }

    /// Returns the earliest time of a change by the tool if its report had the usual delay.
    pub(crate) fn since(&self) -> Time {
        self.before_report(self.duration + SLACK)
    }

    /// Returns whether the tool of `step` cannot have changed `path` at `time`, before it ran.
    ///
    /// Its report may be late for a path that the call names. An edit tool owns the files that it
    /// names, however late that is, unless it failed and probably wrote nothing.
    pub(crate) fn excludes(&self, time: Time, path: &TreePath, step: &OpenStep) -> bool {
        let is_named = step.names(path) && !(step.only_named && self.failed);
        let start = if is_named { self.earliest() } else { self.since() };
        time < start && !(is_named && step.only_named)
    }

    /// Returns the earliest time of a change by the tool if its report was late.
    fn earliest(&self) -> Time {
        self.before_report(self.duration + SLACK + MAX_DELAY)
    }

    /// Returns the earliest time of a change by the tool if its report was late and its last change
    /// was at `last`: it ended after that.
    pub(crate) fn earliest_if_last(&self, last: Time) -> Time {
        last.minus_millis(millis(self.duration + SLACK)).max(self.earliest())
    }

    fn before_report(&self, time: Duration) -> Time {
        self.reported.minus_millis(millis(time))
    }
}

fn millis(time: Duration) -> i64 {
    time.as_millis().try_into().unwrap_or(i64::MAX)
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
