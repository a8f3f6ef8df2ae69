//! One file per command: its arguments, one call of a method of `ctrlz-api` (or of the engine, where
//! programs have no such method), and the output of the result.

pub(crate) mod adopt;
pub(crate) mod apply;
pub(crate) mod blame;
pub(crate) mod checkpoint;
pub(crate) mod completions;
pub(crate) mod copy_borrowed;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod du;
pub(crate) mod export;
pub(crate) mod fork;
pub(crate) mod gc;
pub(crate) mod guard;
pub(crate) mod hook;
pub(crate) mod import;
pub(crate) mod install;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod patch;
pub(crate) mod pull;
pub(crate) mod purge;
pub(crate) mod push;
pub(crate) mod recover;
pub(crate) mod redo;
pub(crate) mod relink;
pub(crate) mod restore;
pub(crate) mod revert;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod track;
pub(crate) mod ui;
pub(crate) mod undo;
pub(crate) mod unrevert;
pub(crate) mod verify;
pub(crate) mod watch;

/// Result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// The request was carried out completely.
    Complete,
    /// Something could not be captured or restored, and was reported.
    Incomplete,
    /// A check found a problem.
    Unhealthy,
    /// The command that was run exited with this code.
    Ran(u8),
}

impl Done {
    /// Returns the result for a request that was or was not carried out completely.
    pub(crate) fn of(complete: bool) -> Done {
        if complete { Done::Complete } else { Done::Incomplete }
    }

    /// Returns the documented exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Done::Complete => 0,
            Done::Unhealthy => 1,
            Done::Incomplete => 3,
            Done::Ran(code) => code,
        }
    }
}
