//! Errors of commands and their exit codes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ctrlz::{FileError, NotATreePath, TreePath};
use ctrlz_api::{Fault, MethodError, WireError, WirePath};
use ctrlz_server::ServeError;

use crate::hints;

/// Exit code for wrong usage, the same as clap's.
pub(crate) const WRONG_USAGE: u8 = 2;
/// Exit codes of shells for a command that cannot be executed, and for one that is not found.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Any error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] ctrlz::Error),
    /// The environment names no directory for snapshots.
    #[error("there is no place for snapshots: HOME is not set")]
    NoDataDir,
    /// The current directory was removed or cannot be accessed.
    #[error("cannot tell the current directory")]
    CurrentDirectory(#[source] io::Error),
    /// The configuration is invalid.
    #[error("the configuration {} cannot be used: {why}", path.display())]
    Configuration { path: PathBuf, why: String },
    /// Another program passed an invalid option.
    #[error("{why}")]
    Option { why: &'static str },
    /// The patches to revert cannot be read.
    #[error("the patches cannot be read: {why}")]
    Patches { why: String },
    /// An error of a method that is not the engine's: no session has a pending revert.
    #[error("{}", .0.message)]
    Method(WireError),
    /// No snapshot has the file.
    #[error("no snapshot has {path}")]
    NoVersions { path: WirePath },
    /// The client of a coding agent cannot be changed or was not found.
    #[error("{why}")]
    Agent { why: String },
    /// A purge cannot be undone and needs a confirmation.
    #[error("purging {} cannot be undone", path.as_ref().map_or("a text".into(), TreePath::to_string))]
    NotConfirmed { path: Option<TreePath> },
    /// The command to run could not be started.
    #[error("cannot run {program:?}")]
    NotStarted { program: OsString, source: io::Error },
    /// The work tree cannot be watched.
    #[error("this work tree cannot be watched: {why}")]
    NotWatched { why: ctrlz::Refusal },
    /// Interactive mode was requested without a terminal.
    #[error("there is no terminal to browse in")]
    NotATerminal,
    /// The server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The running server listens on no port, so that it has no page.
    #[error("the server that runs listens on no port, so it has no page")]
    NoPage,
    /// Signals cannot be caught, so that Ctrl-C would interrupt a step.
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
    /// Git, which is needed for pushes, pulls and repacking, cannot be run.
    #[error("cannot run git")]
    NoGit(#[source] io::Error),
    /// A git command failed.
    #[error("git could not {what}: {said}")]
    Git { what: &'static str, said: String },
    /// Writing to standard output failed.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    /// A value has no JSON form.
    #[error("cannot write JSON")]
    Json(#[source] serde_json::Error),
}

/// Returns the exit code of a fault.
fn of_fault(fault: Fault) -> u8 {
    match fault {
        Fault::Protocol | Fault::Machine => 1,
        Fault::Caller => 4,
        Fault::Conflict => 5,
        Fault::Refused => 6,
        Fault::Disabled => 7,
    }
}

impl Failure {
    /// Creates the error of a failed operation on a file.
    pub(crate) fn file(verb: &'static str, path: &Path, source: io::Error) -> Failure {
        Failure::Engine(FileError { verb, path: path.to_owned(), source }.into())
    }

    /// Creates the error for an invalid path; `why` completes a sentence that starts with the path.
    pub(crate) fn path(path: &[u8], why: &'static str) -> Failure {
        Failure::Engine(NotATreePath { path: path.to_vec(), why }.into())
    }

    /// Returns the documented exit code.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::NoDataDir
            | Failure::Configuration { .. }
            | Failure::Option { .. }
            | Failure::NotATerminal
            | Failure::Patches { .. } => WRONG_USAGE,
            Failure::NotStarted { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => NOT_EXECUTABLE,
            },
            Failure::Method(_) => 4,
            // Its fault depends on the cause of a rollback, too.
            Failure::Engine(error) => of_fault(error.fault().into()),
            _ => of_fault(WireError::new(self.code(), "").fault),
        }
    }

    /// Returns a short, stable name for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Failure::Engine(error) => error.code(),
            Failure::NoDataDir => "no_data_dir",
            Failure::CurrentDirectory(_) => "current_directory",
            Failure::Configuration { .. } => "configuration",
            Failure::Option { .. } => "invalid_params",
            Failure::Patches { .. } => "patches",
            Failure::Method(error) => error.kind,
            Failure::NoVersions { .. } => "no_such_file",
            Failure::Agent { .. } => "agent",
            Failure::NotConfirmed { .. } => "not_confirmed",
            Failure::NotStarted { .. } => "not_started",
            Failure::NotWatched { .. } => "not_watched",
            Failure::NotATerminal => "not_a_terminal",
            Failure::Serve(error) => match error {
                ServeError::NotLoopback { .. } => "not_loopback",
                ServeError::AlreadyServed { .. } => "already_served",
                _ => "not_served",
            },
            Failure::NoPage => "already_served",
            Failure::Signals(_) => "signals",
            Failure::NoGit(_) => "no_git",
            Failure::Git { .. } => "git",
            Failure::Output(_) => "output",
            Failure::Json(_) => "json",
        }
    }

    /// Returns a suggestion for the user, if there is one.
    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Failure::Engine(error) => return hints::hint(error),
            Failure::NoDataDir => "pass --data-dir DIR, or set CTRLZ_DATA_DIR",
            Failure::CurrentDirectory(_) => "change to a directory that exists, or pass -C DIR",
            Failure::Patches { .. } => {
                "pass a JSON array of {\"hash\": …, \"files\": […]}, as `ctrlz patch --json` prints"
            }
            Failure::NoGit(_) => "install git; it carries pushes and pulls, and repacks for --deep",
            Failure::Method(_) => {
                "`ctrlz revert --message M` reverts one; `ctrlz redo` takes a final one back"
            }
            Failure::NoVersions { .. } => "`ctrlz log --lost` lists files that disappeared",
            Failure::NotWatched { .. } => "snapshots work all the same; each looks at every file",
            Failure::NotATerminal => "`ctrlz log` without -i prints the same",
            Failure::NoPage => "end it, or start it with `ctrlz serve --port 0`",
            Failure::Serve(ServeError::AlreadyServed { .. }) => "`ctrlz ui` uses the one that runs",
            Failure::Serve(ServeError::NotLoopback { .. }) => "from elsewhere, use an SSH tunnel",
            Failure::NotConfirmed { .. } => "pass --yes if you mean it",
            _ => return None,
        };
        Some(crate::render::with_program(text))
    }
}

/// Converts an error to the form that other programs see.
impl From<&Failure> for WireError {
    fn from(failure: &Failure) -> WireError {
        match failure {
            Failure::Engine(error) => {
                let hint = hints::hint(error);
                return WireError { hint, ..error.into() };
            }
            Failure::Serve(ServeError::Root(error)) => return error.clone(),
            _ => (),
        }
        let mut error = WireError::new(failure.code(), crate::render::message(failure));
        error.hint = failure.hint();
        match failure {
            Failure::Configuration { path, .. } => error.path = Some(path.as_path().into()),
            Failure::NoVersions { path } => error.path = Some(path.clone()),
            Failure::NotConfirmed { path } => error.path = path.as_ref().map(Into::into),
            _ => (),
        }
        error
    }
}

impl From<MethodError> for Failure {
    fn from(error: MethodError) -> Failure {
        match error {
            MethodError::Engine(error) => Failure::Engine(error),
            MethodError::Other(error) => Failure::Method(error),
        }
    }
}

impl From<ctrlz::NotAHash> for Failure {
    fn from(error: ctrlz::NotAHash) -> Failure {
        Failure::Engine(error.into())
    }
}

impl From<NotATreePath> for Failure {
    fn from(error: NotATreePath) -> Failure {
        Failure::Engine(error.into())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Failure {
        // EPIPE arrives here when JSON is streamed.
        if error.is_io() { Failure::Output(error.into()) } else { Failure::Json(error) }
    }
}
