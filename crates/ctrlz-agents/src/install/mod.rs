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

mod claude_code;
mod cline;
mod codex;
mod copied;
mod files;
mod gemini;
mod merge;
mod qwen;
mod record;
mod strip;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::hook::Client;
use crate::private;
use record::{Content, MadeDirs, Record, missing_dirs};

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

/// Context of the per-client installers.
#[derive(Clone, Copy)]
struct Steps<'a> {
    client: Client,
    setup: &'a Setup,
    machine: &'a dyn Machine,
}

/// Returns the installation state of ctrlz in a client.
pub fn state(client: Client, setup: &Setup, machine: &dyn Machine) -> State {
    let steps = Steps { client, setup, machine };
    match client {
        Client::ClaudeCode => claude_code::state(&steps),
        Client::Codex => codex::state(&steps),
        Client::Gemini => gemini::state(&steps),
        Client::Cline => cline::state(&steps),
        Client::Qwen => qwen::state(&steps),
        Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
            copied::state(&steps)
        }
    }
}

/// Paths where ctrlz may be in a client's configuration, in one scope.
#[derive(Default)]
struct Places {
    /// Files that other programs also write to.
    shared: Vec<PathBuf>,
    /// Files and directories of our own.
    own: Vec<PathBuf>,
}

/// Plans an installation into a client. The plan has no actions if ctrlz is already installed.
pub fn plan_install(client: Client, setup: &Setup, machine: &dyn Machine) -> Result<Plan, Refused> {
    let steps = Steps { client, setup, machine };
    let install = match client {
        Client::ClaudeCode => claude_code::install(&steps),
        Client::Codex => codex::install(&steps),
        Client::Gemini => gemini::install(&steps),
        Client::Cline => cline::install(&steps),
        Client::Qwen => qwen::install(&steps),
        Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
            copied::install(&steps)
        }
    }?;
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
            Action::Remove { path } => remove(path),
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

/// Removes a file or directory, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Steps<'_> {
    /// Returns the directory that an environment variable names, or else one below home.
    fn config_dir(&self, variable: &str, usual: &str) -> PathBuf {
        let named = self.machine.variable(variable).filter(|value| !value.is_empty());
        named.map_or_else(|| self.setup.home.join(usual), PathBuf::from)
    }

    fn plugin_dir(&self) -> PathBuf {
        self.setup.plugin_dir(self.client)
    }

    fn places(&self) -> Result<Places, Refused> {
        match self.client {
            Client::ClaudeCode => Ok(claude_code::places(self)),
            Client::Codex => Ok(codex::places(self)),
            Client::Gemini => Ok(gemini::places(self)),
            Client::Cline => cline::places(self),
            Client::Qwen => Ok(qwen::places(self)),
            Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
                copied::places(self)
            }
        }
    }

    /// Returns whether both scopes share files: the home directory may be a project.
    fn shares_places_with(&self, other: &Steps<'_>) -> Result<bool, Refused> {
        let (one, other) = (self.places()?, other.places()?);
        Ok(one.shared.iter().any(|path| other.shared.contains(path))
            || one.own.iter().any(|path| other.own.contains(path)))
    }

    fn uninstall(&self) -> Result<Vec<Action>, Refused> {
        let Places { shared, own } = self.places()?;
        let mut plan = self.remove_all(&shared, &own)?;
        let removed: BTreeSet<PathBuf> = plan.iter().filter_map(removed_path).collect();
        let paths = [shared, own].concat();
        let empty = MadeDirs::of(self.setup).empty_without(&paths, &removed);
        plan.extend(empty.into_iter().map(|path| Action::RemoveDir { path }));
        // The plugins of all clients are in one directory.
        let plugins = self.setup.data_dir.join("integrations");
        let is_gone = |entry: io::Result<std::fs::DirEntry>| {
            entry.is_ok_and(|entry| removed.contains(&entry.path()))
        };
        if removed.contains(&self.plugin_dir())
            && std::fs::read_dir(&plugins).is_ok_and(|mut entries| entries.all(is_gone))
        {
            plan.push(Action::RemoveDir { path: plugins });
        }
        if Record::of(self.client, self.setup).exists() {
            plan.push(Action::Forget { project: self.setup.project.clone() });
        }
        Ok(plan)
    }

    /// Plans the removal of our part from shared files, and of our own files.
    fn remove_all(&self, shared: &[PathBuf], own: &[PathBuf]) -> Result<Vec<Action>, Refused> {
        let mut plan = Vec::new();
        for file in shared {
            plan.extend(self.unmerge(file)?);
        }
        let there = own.iter().filter(|path| path.symlink_metadata().is_ok());
        plan.extend(there.map(|path| Action::Remove { path: path.clone() }));
        Ok(plan)
    }

    /// Refuses if a file runs `ctrlz hook` in a form that cannot be removed automatically.
    fn refuse_left_over(&self) -> Result<(), Refused> {
        for file in self.places()?.shared {
            // An unreadable file is refused when it is changed.
            let Ok(Some(text)) = read_text(&file) else { continue };
            let left = strip::strip(&file, &text, &self.plugin_dir()).unwrap_or(text);
            if let Some(command) = strip::left_over(&file, &left) {
                return Err(self.second_route(&file, &format!("a hook that runs `{command}`")));
            }
        }
        Ok(())
    }

    /// Returns the error for a second installation that was made by hand.
    fn second_route(&self, file: &Path, what: &str) -> Refused {
        let client = self.client;
        Refused(format!(
            "{} has {what}, so that every event would be recorded twice; remove that and run \
             `ctrlz install {client}` again",
            file.display()
        ))
    }

    fn removal_note(&self) -> String {
        let project = self.setup.project.as_deref().unwrap_or(Path::new("this project"));
        format!(
            "the second installation, in {}, is removed, as it would record every event twice; the \
             one for this user records all projects",
            project.display()
        )
    }

    /// Returns the note for a project that the user's installation already covers.
    fn covers_note(&self) -> String {
        let client = self.client;
        format!(
            "installed for this user already, which records all projects; to record this project \
             alone, run `ctrlz uninstall {client}` first"
        )
    }

    /// Adds the creation of missing directories before files are written.
    fn with_dirs(&self, actions: Vec<Action>) -> Vec<Action> {
        let mut made = BTreeSet::new();
        let mut plan = Vec::new();
        for action in actions {
            if let Action::Write { path, .. } = &action
                && !path.starts_with(&self.setup.data_dir)
            {
                let missing = missing_dirs(path).into_iter();
                let new = missing.filter(|dir| made.insert(dir.clone()));
                plan.extend(new.map(|path| Action::MakeDir { path }));
            }
            plan.push(action);
        }
        plan
    }

    /// Refuses a plan that cannot be carried out, or that changes something outside the project
    /// because a path in the project is a symlink.
    fn checked(&self, plan: Vec<Action>) -> Result<Vec<Action>, Refused> {
        let project = self.setup.project.as_deref();
        let root = project.and_then(|project| project.canonicalize().ok());
        for action in &plan {
            let Some(path) = changed_path(action) else { continue };
            let refuse = |why: &str| Err(Refused(format!("{}: {why}", path.display())));
            // Only a write follows a symlink in the last component.
            let real = match action {
                Action::Write { .. } => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
                _ => path.to_owned(),
            };
            let nearest = real.ancestors().skip(1).find(|dir| dir.symlink_metadata().is_ok());
            if let Some(link) = nearest.filter(|dir| dir.metadata().is_err()) {
                return refuse(&format!("{} is a link to nothing", link.display()));
            }
            let dir = real.ancestors().skip(1).find_map(|dir| dir.canonicalize().ok());
            let Some(dir) = dir else { return refuse("it has no directory") };
            if let (Some(project), Some(root)) = (project, &root)
                && path.starts_with(project)
                && !dir.starts_with(root)
            {
                return refuse("a link in the project leads out of it");
            }
            if let Err(error) = access(&dir, Access::WRITE_OK | Access::EXEC_OK) {
                return refuse(&format!("{} cannot be changed: {error}", dir.display()));
            }
        }
        Ok(plan)
    }

    fn run(&self, program: &Path, words: &[&str]) -> Action {
        Action::Run(Run {
            program: program.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            dir: self.setup.home.clone(),
            variables: Vec::new(),
        })
    }

    /// Plans to write the files of the plugin directory that differ.
    fn write_plugin(&self) -> Vec<Action> {
        let dir = self.plugin_dir();
        let files = files::plugin(self.client, &self.setup.program);
        let writes = files.into_iter().map(|(name, text)| Action::Write {
            path: dir.join(name),
            bytes: text.into_bytes(),
            mode: None,
        });
        writes.filter(differs).collect()
    }

    /// Plans to merge our hooks into a JSON file, in place of a plugin that the file enables.
    fn merge(&self, path: &Path, command: &str) -> Result<Vec<Action>, Refused> {
        let text = read_text(path)?;
        let refuse = |why: String| Refused(format!("{}: {why}", path.display()));
        let before = strip::strip_plugin(path, text.as_deref().unwrap_or(""), &self.plugin_dir())
            .map_err(refuse)?;
        let merged = merge::add(&before, &files::hooks(self.client), command).map_err(refuse)?;
        if text.as_deref() == Some(&merged) {
            return Ok(Vec::new());
        }
        let bytes = merged.into_bytes();
        Ok(vec![
            Action::Keep { files: vec![path.to_owned()], made: Vec::new() },
            Action::Write { path: path.to_owned(), bytes, mode: None },
        ])
    }

    /// Plans the removal of our hooks from a JSON file. A plugin that it enables stays.
    fn remove_hooks(&self, path: &Path) -> Result<Vec<Action>, Refused> {
        let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
        let left =
            merge::remove(&text).map_err(|why| Refused(format!("{}: {why}", path.display())))?;
        let bytes = left.into_bytes();
        let write = Action::Write { path: path.to_owned(), bytes, mode: None };
        Ok(Some(write).into_iter().filter(differs).collect())
    }

    /// Plans the removal of everything of ours from a shared file.
    fn unmerge(&self, path: &Path) -> Result<Vec<Action>, Refused> {
        let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
        let refuse = |why: String| Refused(format!("{}: {why}", path.display()));
        let meta = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
        let now = Content { text, mode: meta.permissions().mode() & 0o7777 };
        let record = Record::of(self.client, self.setup);
        let path = path.to_owned();
        Ok(match record.without_us(&path, &now).map_err(refuse)? {
            None => vec![Action::Remove { path }],
            Some(left) if left.text == now.text && left.mode == now.mode => Vec::new(),
            Some(left) => {
                vec![Action::Write { path, bytes: left.text.into_bytes(), mode: Some(left.mode) }]
            }
        })
    }

    /// Returns whether a JSON file has our hooks, and whether they are current.
    fn merged_state(&self, path: &Path, command: &str) -> State {
        let Ok(Some(text)) = read_text(path) else { return State::NotInstalled };
        let hooks = files::hooks(self.client);
        let wanted = merge::add(&text, &hooks, command);
        let without = merge::remove(&text);
        match (wanted, without) {
            (Ok(wanted), _) if wanted == text => State::Installed,
            (_, Ok(without)) if without != text => State::Outdated,
            _ => State::NotInstalled,
        }
    }

    /// Returns the hook command with the full path, for the configuration of this user.
    fn own_command(&self) -> String {
        hook_command(self.client, &self.setup.program)
    }

    /// Returns the hook command for a project, which works for all users who share it.
    fn shared_command(&self) -> String {
        hook_command(self.client, Path::new("ctrlz"))
    }
}

/// Returns whether an action would change anything.
fn differs(action: &Action) -> bool {
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
fn changed_path(action: &Action) -> Option<&Path> {
    match action {
        Action::MakeDir { path }
        | Action::Write { path, .. }
        | Action::Remove { path }
        | Action::RemoveDir { path } => Some(path),
        Action::Run(_) | Action::Keep { .. } | Action::Forget { .. } => None,
    }
}

fn removed_path(action: &Action) -> Option<PathBuf> {
    match action {
        Action::Remove { path } => Some(path.clone()),
        _ => None,
    }
}

/// Returns the text of a configuration file, or `None` if it does not exist.
fn read_text(path: &Path) -> Result<Option<String>, Refused> {
    const MAX_BYTES: u64 = 4 << 20;
    let refuse = |why: String| Refused(format!("{}: {why}", path.display()));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match path.symlink_metadata() {
                Ok(_) => Err(refuse("it is a link to nothing".into())),
                Err(_) => Ok(None),
            };
        }
        Err(error) => return Err(refuse(error.to_string())),
        Ok(meta) if !meta.is_file() => return Err(refuse("it is not a file".into())),
        Ok(meta) if meta.len() > MAX_BYTES => return Err(refuse("it is too large".into())),
        Ok(_) => (),
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    Ok(Some(text))
}
