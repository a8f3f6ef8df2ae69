//! Parts of plans that the installers of all clients share.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::actions::{Action, Refused, changed_path, differs, removed_path};
use super::files::{self, hook_command};
use super::record::{Content, MadeDirs, Record, missing_dirs};
use super::{Machine, Run, Setup, State, merge, strip};
use crate::hook::Client;

/// Context of the per-client installers.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) client: Client,
    pub(super) setup: &'a Setup,
    pub(super) machine: &'a dyn Machine,
}

/// Paths where ctrlz may be in a client's configuration, in one scope.
#[derive(Default)]
pub(super) struct Places {
    /// Files that other programs also write to.
    pub(super) shared: Vec<PathBuf>,
    /// Files and directories of our own.
    pub(super) own: Vec<PathBuf>,
}

impl Steps<'_> {
    /// Returns the directory that an environment variable names, or else one below home.
    pub(super) fn config_dir(&self, variable: &str, usual: &str) -> PathBuf {
        let named = self.machine.variable(variable).filter(|value| !value.is_empty());
        named.map_or_else(|| self.setup.home.join(usual), PathBuf::from)
    }

    pub(super) fn plugin_dir(&self) -> PathBuf {
        self.setup.plugin_dir(self.client)
    }

    fn places(&self) -> Result<Places, Refused> {
        (self.client.installer().places)(self)
    }

    /// Returns whether both scopes share files: the home directory may be a project.
    pub(super) fn shares_places_with(&self, other: &Steps<'_>) -> Result<bool, Refused> {
        let (one, other) = (self.places()?, other.places()?);
        Ok(one.shared.iter().any(|path| other.shared.contains(path))
            || one.own.iter().any(|path| other.own.contains(path)))
    }

    pub(super) fn uninstall(&self) -> Result<Vec<Action>, Refused> {
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
    pub(super) fn remove_all(
        &self,
        shared: &[PathBuf],
        own: &[PathBuf],
    ) -> Result<Vec<Action>, Refused> {
        let mut plan = Vec::new();
        for file in shared {
            plan.extend(self.unmerge(file)?);
        }
        let there = own.iter().filter(|path| path.symlink_metadata().is_ok());
        plan.extend(there.map(|path| Action::Remove { path: path.clone() }));
        Ok(plan)
    }

    /// Refuses if a file runs `ctrlz hook` in a form that cannot be removed automatically.
    pub(super) fn refuse_left_over(&self) -> Result<(), Refused> {
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
    pub(super) fn second_route(&self, file: &Path, what: &str) -> Refused {
        let client = self.client;
        Refused(format!(
            "{} has {what}, so that every event would be recorded twice; remove that and run \
             `ctrlz install {client}` again",
            file.display()
        ))
    }

    pub(super) fn removal_note(&self) -> String {
        let project = self.setup.project.as_deref().unwrap_or(Path::new("this project"));
        format!(
            "the second installation, in {}, is removed, as it would record every event twice; the \
             one for this user records all projects",
            project.display()
        )
    }

    /// Returns the note for a project that the user's installation already covers.
    pub(super) fn covers_note(&self) -> String {
        let client = self.client;
        format!(
            "installed for this user already, which records all projects; to record this project \
             alone, run `ctrlz uninstall {client}` first"
        )
    }

    /// Adds the creation of missing directories before files are written.
    pub(super) fn with_dirs(&self, actions: Vec<Action>) -> Vec<Action> {
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
    pub(super) fn checked(&self, plan: Vec<Action>) -> Result<Vec<Action>, Refused> {
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

    pub(super) fn run(&self, program: &Path, words: &[&str]) -> Action {
        Action::Run(Run {
            program: program.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            dir: self.setup.home.clone(),
            variables: Vec::new(),
        })
    }

    /// Plans to write the files of the plugin directory that differ.
    pub(super) fn write_plugin(&self) -> Vec<Action> {
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
    pub(super) fn merge(&self, path: &Path, command: &str) -> Result<Vec<Action>, Refused> {
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
    pub(super) fn remove_hooks(&self, path: &Path) -> Result<Vec<Action>, Refused> {
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
    pub(super) fn merged_state(&self, path: &Path, command: &str) -> State {
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

    /// Returns the program that the configuration runs: this one, or for a project, which several
    /// users share, only its name.
    fn program(&self) -> &Path {
        match &self.setup.project {
            Some(_) => Path::new("ctrlz"),
            None => &self.setup.program,
        }
    }

    /// Returns the hook command.
    pub(super) fn command(&self) -> String {
        hook_command(self.client, self.program())
    }

    /// Returns the text of the file of a client that loads a single file of ours.
    pub(super) fn single_file(&self) -> String {
        let files = files::plugin(self.client, self.program());
        files.into_iter().map(|(_, text)| text).next().unwrap_or_default()
    }
}

/// Returns the text of a configuration file, or `None` if it does not exist.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, Refused> {
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
