//! The changes that an installation makes, and their execution.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::record::{MadeDirs, Record, missing_dirs};
use super::{Machine, Run, Setup};
use crate::hook::Client;
use crate::private;

/// The changes that an install or uninstall makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in order.
    pub actions: Vec<Action>,
    /// Notes for the user about a second installation.
    pub notes: Vec<String>,
}

/// One change of an install or uninstall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates a directory.
    MakeDir {
        /// The directory.
        path: PathBuf,
    },
    /// Writes a file of our own, or a shared file of which we change a part.
    Write {
        /// The file.
        path: PathBuf,
        /// Its new content.
        bytes: Vec<u8>,
        /// Its new permissions; `None` keeps those of an existing file.
        mode: Option<u32>,
    },
    /// Removes a file or directory of our own.
    Remove {
        /// The file or directory.
        path: PathBuf,
    },
    /// Removes a directory that was created for our files and is now empty.
    RemoveDir {
        /// The directory.
        path: PathBuf,
    },
    /// Runs the client's own command.
    Run(Run),
    /// Records the current state of the client's configuration.
    Keep {
        /// The files; those that do not exist are recorded as such.
        files: Vec<PathBuf>,
        /// Paths that the client's own command creates.
        made: Vec<PathBuf>,
    },
    /// Deletes the records of the client's configuration, for the user or a project.
    Forget {
        /// The project; `None` for the user.
        project: Option<PathBuf>,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::MakeDir { path } => write!(out, "create  {}/", path.display()),
            Action::Write { path, .. } => write!(out, "write   {}", path.display()),
            Action::Remove { path } => write!(out, "remove  {}", path.display()),
            Action::RemoveDir { path } => write!(out, "remove  {}/", path.display()),
            Action::Run(run) => {
                let words = run.words.join(" ");
                let name = run.program.file_name().unwrap_or_default().to_string_lossy();
                write!(out, "run     {name} {words}")
            }
            Action::Keep { files, .. } => {
                let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
                write!(out, "keep    a copy of {}", names.join(", "))
            }
            Action::Forget { .. } => write!(out, "delete  our copies of the configuration"),
        }
    }
}

/// Reason why a client cannot be changed. A refused plan changes nothing; [`carry_out`] stops at
/// the action that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Carries out a plan.
pub fn carry_out(
    client: Client,
    plan: &Plan,
    setup: &Setup,
    machine: &dyn Machine,
) -> Result<(), Refused> {
    let mut record = Record::of(client, setup);
    let mut dirs = MadeDirs::of(setup);
    let mut kept: &[PathBuf] = &[];
    for action in &plan.actions {
        let done = match action {
            Action::MakeDir { path } => {
                dirs.add([path.clone()]).and_then(|()| std::fs::create_dir(path))
            }
            Action::Write { path, bytes, mode } => write(path, bytes, *mode),
            Action::Remove { path } => private::remove(path),
            Action::RemoveDir { path } => dirs.remove(path),
            Action::Run(run) => machine.run(run).map_err(io::Error::other),
            Action::Keep { files, made } => {
                kept = files;
                let missing = files.iter().chain(made).flat_map(|path| missing_dirs(path));
                dirs.add(missing.filter(|dir| !dir.starts_with(&setup.data_dir)))
                    .and_then(|()| record.keep(files))
            }
            Action::Forget { project } => {
                Record::of(client, &Setup { project: project.clone(), ..setup.clone() }).forget()
            }
        };
        done.map_err(|error| Refused(format!("{action}: {error}")))?;
    }
    match kept {
        [] => Ok(()),
        kept => record
            .keep_installed(kept)
            .map_err(|error| Refused(format!("a record of the configuration: {error}"))),
    }
}

fn write(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    // Writes to the target of a symlink instead of replacing the link.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let present = std::fs::metadata(&real).map(|meta| meta.permissions().mode() & 0o7777);
    let mode = mode.or(present.ok()).unwrap_or(0o644);
    private::replace(&real, bytes)?;
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(mode))
}

/// Returns whether an action would change anything.
pub(super) fn differs(action: &Action) -> bool {
    match action {
        Action::Write { path, bytes, mode } => {
            let present = std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o7777);
            std::fs::read(path).ok().as_deref() != Some(bytes.as_slice())
                || mode.is_some_and(|mode| present.ok() != Some(mode))
        }
        _ => true,
    }
}

/// Returns the path that an action changes directly.
pub(super) fn changed_path(action: &Action) -> Option<&Path> {
    match action {
        Action::MakeDir { path }
        | Action::Write { path, .. }
        | Action::Remove { path }
        | Action::RemoveDir { path } => Some(path),
        Action::Run(_) | Action::Keep { .. } | Action::Forget { .. } => None,
    }
}

pub(super) fn removed_path(action: &Action) -> Option<PathBuf> {
    match action {
        Action::Remove { path } => Some(path.clone()),
        _ => None,
    }
}
