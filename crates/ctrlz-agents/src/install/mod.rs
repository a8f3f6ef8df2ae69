//! Installing ctrlz into coding agents, and taking it out again.
//!
//! A plan is a list of [`Action`]s; a dry run shows it and an install carries it out. Where a client
//! has a plugin command of its own, that does the work. Everything else is a conservative merge:
//! what we do not know stays, comments included. What a client's configuration was before is kept,
//! so that uninstalling leaves the very bytes wherever nobody else changed them meanwhile.

mod claude_code;
mod cline;
mod codex;
mod copied;
mod files;
mod gemini;
mod merge;
mod qwen;
mod record;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::hook::Client;
use crate::private;

pub use codex::{Trust, trust};
pub use files::hook_command;

/// What the installer may ask of the machine, so that it starts no process itself.
pub trait Machine {
    /// Where a program is, if it can be run.
    fn find(&self, program: &str) -> Option<PathBuf>;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// Runs a program to its end; an error says what it printed.
    fn run(&self, run: &Run) -> Result<(), String>;

    /// Says lines to a program until it answers with one that is wanted, and gives that.
    fn ask(&self, run: &Run, lines: &[String], wanted: &dyn Fn(&str) -> bool) -> Option<String>;
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program.
    pub program: PathBuf,
    /// Its words.
    pub words: Vec<String>,
    /// The directory to run it in.
    pub dir: PathBuf,
    /// Variables that it gets beside the usual ones.
    pub variables: Vec<(&'static str, &'static str)>,
}

/// Where to install what.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The user's home directory.
    pub home: PathBuf,
    /// Where our own files go.
    pub data_dir: PathBuf,
    /// The `ctrlz` that hooks run.
    pub program: PathBuf,
    /// The project to install into, instead of for the user.
    pub project: Option<PathBuf>,
}

/// One thing that an install or uninstall does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes a file of our own, or one that we have changed a part of.
    Write {
        /// The file.
        path: PathBuf,
        /// Its new content.
        bytes: Vec<u8>,
        /// Whether it can be run.
        program: bool,
    },
    /// Removes a file or directory of our own.
    Remove {
        /// The file.
        path: PathBuf,
    },
    /// Runs the client's own command.
    Run(Run),
    /// Remembers how the client's configuration is now.
    Keep {
        /// The files; those that do not exist are remembered as such.
        files: Vec<PathBuf>,
    },
    /// Gives configuration files the bytes that were remembered, where they say the same.
    PutBack,
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write { path, .. } => write!(out, "write   {}", path.display()),
            Action::Remove { path } => write!(out, "remove  {}", path.display()),
            Action::Run(run) => {
                let words = run.words.join(" ");
                let name = run.program.file_name().unwrap_or_default().to_string_lossy();
                write!(out, "run     {name} {words}")
            }
            Action::Keep { files } => {
                let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
                write!(out, "keep    a copy of {}", names.join(", "))
            }
            Action::PutBack => write!(out, "restore configuration to what it was"),
        }
    }
}

/// Why a client cannot be changed. Nothing was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// How ctrlz stands with a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The client is not on this machine.
    Absent,
    /// It is, and knows nothing of us.
    NotInstalled,
    /// Its hooks run this `ctrlz`.
    Installed,
    /// Its hooks run something else: an older version, or a `ctrlz` that has moved.
    Outdated,
}

/// What every client needs from its file here.
struct Steps<'a> {
    client: Client,
    setup: &'a Setup,
    machine: &'a dyn Machine,
}

/// How ctrlz stands with a client.
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

/// What installing into a client takes; nothing if it is installed already.
pub fn plan_install(
    client: Client,
    setup: &Setup,
    machine: &dyn Machine,
) -> Result<Vec<Action>, Refused> {
    let steps = Steps { client, setup, machine };
    let plan = match client {
        Client::ClaudeCode => claude_code::install(&steps),
        Client::Codex => codex::install(&steps),
        Client::Gemini => gemini::install(&steps),
        Client::Cline => cline::install(&steps),
        Client::Qwen => qwen::install(&steps),
        Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
            copied::install(&steps)
        }
    }?;
    stays_inside(plan, setup)
}

/// Refuses a plan that would write or remove something outside of the project that it is for, because a
/// directory in the project is a link.
fn stays_inside(plan: Vec<Action>, setup: &Setup) -> Result<Vec<Action>, Refused> {
    let Some(project) = &setup.project else { return Ok(plan) };
    let Ok(root) = project.canonicalize() else { return Ok(plan) };
    for action in &plan {
        let (Action::Write { path, .. } | Action::Remove { path }) = action else { continue };
        let dir = path.ancestors().skip(1).find_map(|dir| dir.canonicalize().ok());
        if path.starts_with(project) && !dir.is_some_and(|dir| dir.starts_with(&root)) {
            let why = "a link in the project leads out of it";
            return Err(Refused(format!("{}: {why}", path.display())));
        }
    }
    Ok(plan)
}

/// What taking ctrlz out of a client takes; nothing if it is not installed.
pub fn plan_uninstall(
    client: Client,
    setup: &Setup,
    machine: &dyn Machine,
) -> Result<Vec<Action>, Refused> {
    let steps = Steps { client, setup, machine };
    let plan = match client {
        Client::ClaudeCode => claude_code::uninstall(&steps),
        Client::Codex => codex::uninstall(&steps),
        Client::Gemini => gemini::uninstall(&steps),
        Client::Cline => cline::uninstall(&steps),
        Client::Qwen => qwen::uninstall(&steps),
        Client::Copilot | Client::Pi | Client::OpenCode | Client::Kilo | Client::Marvin => {
            copied::uninstall(&steps)
        }
    }?;
    stays_inside(plan, setup)
}

/// Carries a plan out.
pub fn carry_out(
    client: Client,
    plan: &[Action],
    setup: &Setup,
    machine: &dyn Machine,
) -> Result<(), Refused> {
    let record = record::Record::of(client, setup);
    for action in plan {
        let failed = |why: String| Refused(format!("{action}: {why}"));
        match action {
            Action::Write { path, bytes, program } => {
                let is_own = path.starts_with(&setup.data_dir);
                let kept = if is_own { Ok(()) } else { record.keep_dirs_of(path) };
                let written = kept.and_then(|()| write(path, bytes, *program));
                written.map_err(|error| failed(error.to_string()))?;
            }
            Action::Remove { path } => {
                remove(path).map_err(|error| failed(error.to_string()))?;
            }
            Action::Run(run) => machine.run(run).map_err(failed)?,
            Action::Keep { files } => {
                record.keep(files).map_err(|error| failed(error.to_string()))?;
            }
            Action::PutBack => record.put_back().map_err(|error| failed(error.to_string()))?,
        }
    }
    let removes = |action: &Action| matches!(action, Action::Remove { .. } | Action::PutBack);
    if plan.iter().any(removes) {
        let why = |error: io::Error| Refused(format!("directories that were made: {error}"));
        record.remove_dirs().map_err(why)?;
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8], program: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // What was there keeps its permissions, and a symlink keeps being one.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mode = match std::fs::metadata(&real) {
        Ok(meta) => meta.permissions().mode() & 0o777,
        Err(_) if program => 0o755,
        Err(_) => 0o644,
    };
    private::replace(&real, bytes)?;
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(mode))
}

/// Removes it, if it is there.
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
    /// The directory that a variable names, else one below home.
    fn config_dir(&self, variable: &str, usual: &str) -> PathBuf {
        let named = self.machine.variable(variable).filter(|value| !value.is_empty());
        named.map_or_else(|| self.setup.home.join(usual), PathBuf::from)
    }

    /// Where our plugin directory for the client is.
    fn plugin_dir(&self) -> PathBuf {
        self.setup.data_dir.join("integrations").join(self.client.name())
    }

    fn run(&self, program: &Path, words: &[&str]) -> Action {
        Action::Run(Run {
            program: program.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            dir: self.setup.home.clone(),
            variables: Vec::new(),
        })
    }

    /// Writes those files of the plugin directory that differ.
    fn write_plugin(&self) -> Vec<Action> {
        let dir = self.plugin_dir();
        let files = files::plugin(self.client, &self.setup.program);
        let writes = files.into_iter().map(|(name, text)| Action::Write {
            path: dir.join(name),
            bytes: text.into_bytes(),
            program: false,
        });
        writes.filter(differs).collect()
    }

    /// Merges our hooks into a JSON file.
    fn merge(&self, path: &Path, command: &str) -> Result<Vec<Action>, Refused> {
        let text = read_text(path)?;
        let hooks = files::hooks(self.client);
        let merged = merge::add(&text.clone().unwrap_or_default(), &hooks, self.client, command)
            .map_err(|why| Refused(format!("{}: {why}", path.display())))?;
        if text.as_deref() == Some(&merged) {
            return Ok(Vec::new());
        }
        let bytes = merged.into_bytes();
        Ok(vec![
            Action::Keep { files: vec![path.to_owned()] },
            Action::Write { path: path.to_owned(), bytes, program: false },
        ])
    }

    /// Takes our hooks out of a JSON file.
    fn unmerge(&self, path: &Path) -> Result<Vec<Action>, Refused> {
        let Some(text) = read_text(path)? else { return Ok(Vec::new()) };
        let left = merge::remove(&text, self.client)
            .map_err(|why| Refused(format!("{}: {why}", path.display())))?;
        if left == text {
            return Ok(Vec::new());
        }
        let write =
            Action::Write { path: path.to_owned(), bytes: left.into_bytes(), program: false };
        Ok(vec![write, Action::PutBack])
    }

    /// Whether a JSON file has our hooks, and whether they are what would be merged now.
    fn merged_state(&self, path: &Path, command: &str) -> State {
        let Ok(Some(text)) = read_text(path) else { return State::NotInstalled };
        let hooks = files::hooks(self.client);
        let wanted = merge::add(&text, &hooks, self.client, command);
        let without = merge::remove(&text, self.client);
        match (wanted, without) {
            (Ok(wanted), _) if wanted == text => State::Installed,
            (_, Ok(without)) if without != text => State::Outdated,
            _ => State::NotInstalled,
        }
    }

    /// The hook command with the full path, for a client of this user.
    fn own_command(&self) -> String {
        hook_command(self.client, &self.setup.program)
    }

    /// The hook command that works for everybody who shares a project.
    fn shared_command(&self) -> String {
        hook_command(self.client, Path::new("ctrlz"))
    }
}

/// Whether a write would change anything.
fn differs(action: &Action) -> bool {
    match action {
        Action::Write { path, bytes, .. } => {
            std::fs::read(path).ok().as_deref() != Some(bytes.as_slice())
        }
        Action::Remove { .. } | Action::Run(_) | Action::Keep { .. } | Action::PutBack => true,
    }
}

/// The text of a configuration file; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<String>, Refused> {
    const MAX_BYTES: u64 = 4 << 20;
    let refuse = |why: String| Refused(format!("{}: {why}", path.display()));
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse(error.to_string())),
        Ok(meta) if !meta.is_file() => return Err(refuse("it is not a file".into())),
        Ok(meta) if meta.len() > MAX_BYTES => return Err(refuse("it is too large".into())),
        Ok(_) => (),
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    Ok(Some(text))
}
