//! Installs ctrlz into coding agents and removes it again.
//!
//! A [`Plan`] lists every change; a dry run prints it and an install carries it out. If a client
//! has a plugin command, installing runs it. Everything else is a conservative merge that preserves
//! other settings and comments. The previous configuration is recorded, so that uninstalling
//! restores the exact bytes of files that have not changed otherwise. Uninstalling runs no program:
//! it edits the client's files, even if the client itself is gone.
//!
//! A client that reads our hooks from two places would report every event twice. An installation
//! therefore removes all others: those of another kind, and the one in the project if the user has
//! one, because the user's covers all projects.

mod actions;
mod claude_code;
mod cline;
mod codex;
mod copied;
mod files;
mod gemini;
mod merge;
mod qwen;
mod record;
mod settings;
mod steps;
mod strip;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::hook::Client;
use actions::changed_path;
use steps::{Places, Steps};

pub use actions::{Action, Plan, Refused, carry_out};
pub use codex::{Trust, trust};
pub use files::hook_command;

/// Access to the machine, so that the installer itself starts no process.
pub trait Machine {
    /// Returns the path of a program, if it can be run.
    fn find(&self, program: &str) -> Option<PathBuf>;

    /// Returns an environment variable.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// Runs a program to its end. The error contains its output.
    fn run(&self, run: &Run) -> Result<(), String>;

    /// Sends lines to a program and returns the first response line that is `wanted`.
    fn ask(&self, run: &Run, lines: &[String], wanted: &dyn Fn(&str) -> bool) -> Option<String>;
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub words: Vec<String>,
    /// The directory to run it in.
    pub dir: PathBuf,
    /// Additional environment variables.
    pub variables: Vec<(&'static str, &'static str)>,
}

/// Scope and locations of an installation.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The user's home directory.
    pub home: PathBuf,
    /// Directory for our own files.
    pub data_dir: PathBuf,
    /// Path of the `ctrlz` that hooks run.
    pub program: PathBuf,
    /// Project to install into; `None` installs for the user.
    pub project: Option<PathBuf>,
    /// Project that the command runs in.
    pub here: Option<PathBuf>,
}

impl Setup {
    /// Returns the plugin directory of a client.
    fn plugin_dir(&self, client: Client) -> PathBuf {
        self.data_dir.join("integrations").join(client.name())
    }

    /// Returns the setup of the other scope: the user's if this is a project, else the surrounding
    /// project's.
    fn other(&self) -> Option<Setup> {
        match (&self.project, &self.here) {
            (Some(_), _) => Some(Setup { project: None, ..self.clone() }),
            (None, Some(here)) => Some(Setup { project: Some(here.clone()), ..self.clone() }),
            (None, None) => None,
        }
    }
}

/// Installation state of ctrlz in a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The client is not on this machine.
    Absent,
    /// The client is present, but ctrlz is not installed.
    NotInstalled,
    /// The client's hooks run this `ctrlz`.
    Installed,
    /// The client's hooks run something else: an older version, or a `ctrlz` that was moved.
    Outdated,
}

/// Functions that differ between clients.
struct Installer {
    state: fn(&Steps<'_>) -> State,
    /// Returns the places that the client's configuration has now.
    places: fn(&Steps<'_>) -> Result<Places, Refused>,
    /// Plans the installation, without the creation of directories.
    install: fn(&Steps<'_>) -> Result<Vec<Action>, Refused>,
}

impl Client {
    fn installer(self) -> Installer {
        match self {
            Client::ClaudeCode => settings::installer::<claude_code::ClaudeCode>(),
            Client::Codex => settings::installer::<codex::Codex>(),
            Client::Gemini => settings::installer::<gemini::Gemini>(),
            Client::Qwen => Installer { state: qwen::state, ..settings::installer::<qwen::Qwen>() },
            Client::Cline => {
                Installer { state: cline::state, places: cline::places, install: cline::install }
            }
            Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
                Installer { state: copied::state, places: copied::places, install: copied::install }
            }
        }
    }
}

/// Returns the installation state of ctrlz in a client.
pub fn state(client: Client, setup: &Setup, machine: &dyn Machine) -> State {
    (client.installer().state)(&Steps { client, setup, machine })
}

/// Plans an installation into a client. The plan has no actions if ctrlz is already installed.
pub fn plan_install(client: Client, setup: &Setup, machine: &dyn Machine) -> Result<Plan, Refused> {
    let steps = Steps { client, setup, machine };
    let install = (client.installer().install)(&steps)?;
    steps.refuse_left_over()?;
    let mut plan = Plan { actions: steps.checked(steps.with_dirs(install))?, notes: Vec::new() };
    if let Some(other) = setup.other() {
        let second = Steps { setup: &other, ..steps };
        if !second.shares_places_with(&steps)? {
            second.refuse_left_over()?;
            let removed = second.checked(second.uninstall()?)?;
            let changes =
                |actions: &[Action]| actions.iter().any(|one| changed_path(one).is_some());
            match (&setup.project, changes(&removed)) {
                (_, false) => (),
                (None, true) => {
                    plan.notes.push(second.removal_note());
                    plan.actions.extend(removed);
                }
                // Removing the user's installation would end the recording of all other projects.
                (Some(_), true) => {
                    let own = steps.checked(steps.uninstall()?)?;
                    plan.notes.push(if changes(&own) {
                        steps.removal_note()
                    } else {
                        second.covers_note()
                    });
                    plan.actions = own;
                }
            }
        }
    }
    Ok(plan)
}

/// Plans the removal of ctrlz from a client. The plan has no actions if ctrlz is not installed.
pub fn plan_uninstall(
    client: Client,
    setup: &Setup,
    machine: &dyn Machine,
) -> Result<Plan, Refused> {
    let steps = Steps { client, setup, machine };
    let actions = steps.uninstall().and_then(|actions| steps.checked(actions))?;
    Ok(Plan { actions, notes: Vec::new() })
}
