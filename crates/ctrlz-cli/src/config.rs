//! Resolved settings. A flag overrides the environment, the environment overrides the configuration
//! file, and the file overrides the default.
//!
//! The configuration belongs to the user and is never read from the project: a freshly cloned
//! repository must not be able to disable its own protection.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctrlz::{CheckpointOptions, Options, Retention, Workspace, find_work_tree};
use ctrlz_agents::hook::Client;
use ctrlz_agents::kept::Kept;
use ctrlz_api::{CallOptions, Opened, Place, WirePath, WorkTree};

use crate::args::GlobalArgs;
use crate::config_file::{ConfigFile, Keys, is_ref_prefix};
use crate::failure::Failure;
use crate::git_config::{self, ConfigPlaces};
use crate::render::{Charset, Palette};
use crate::small_file;

/// The settings that a command needs to open a work tree.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) options: Options,
    /// Retention of `gc`.
    pub(crate) retention: Retention,
    /// The work tree.
    pub(crate) root: PathBuf,
    /// The directory in which the command acts, at or below `root`, without symlinks.
    pub(crate) dir: PathBuf,
    /// The configuration file given on the command line, which detached processes use too.
    pub(crate) config: Option<PathBuf>,
    /// Number of checkpoints to keep, not counting pinned ones.
    pub(crate) keep_checkpoints: usize,
    /// Directory for the state of coding agents' hooks, the same for all work trees.
    pub(crate) agents_dir: PathBuf,
}

impl Settings {
    /// Opens the work tree.
    pub(crate) fn open(self) -> Result<Opened, ctrlz::Error> {
        let home = self.options.home.clone();
        let workspace = Workspace::open(&self.root, self.options)?;
        let kept = Kept::of(&self.agents_dir, workspace.root(), home.as_deref());
        Ok(Opened {
            workspace,
            keep_checkpoints: self.keep_checkpoints,
            retention: self.retention,
            agents: Some(Box::new(kept)),
        })
    }
}

/// The environment variables that are read. There are no others.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    data_dir: Option<PathBuf>,
    data_home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    home: Option<PathBuf>,
    /// `GIT_CONFIG_GLOBAL`. An empty value counts as set, as in git.
    git_global: Option<PathBuf>,
    /// `GIT_CONFIG_SYSTEM`.
    git_system: Option<PathBuf>,
    /// `GIT_CONFIG_NOSYSTEM`.
    no_git_system: bool,
    /// The project directory that Claude Code sets for its hooks.
    claude_project: Option<PathBuf>,
    /// The project directory that Gemini CLI sets for its hooks.
    gemini_project: Option<PathBuf>,
    /// Name of the locale.
    locale: Option<OsString>,
    /// Whether `NO_COLOR` is set.
    no_color: bool,
}

impl Environment {
    /// Reads the environment of the process. Empty variables count as unset. So do relative paths
    /// in the XDG variables, as their specification requires, and in the home and project
    /// variables.
    pub(crate) fn read() -> Environment {
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let absolute =
            |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
        Environment {
            data_dir: given("CTRLZ_DATA_DIR").map(PathBuf::from),
            data_home: given("XDG_DATA_HOME").and_then(absolute),
            config_home: given("XDG_CONFIG_HOME").and_then(absolute),
            home: given("HOME").and_then(absolute),
            git_global: std::env::var_os("GIT_CONFIG_GLOBAL").map(PathBuf::from),
            git_system: given("GIT_CONFIG_SYSTEM").map(PathBuf::from),
            no_git_system: given("GIT_CONFIG_NOSYSTEM")
                .is_some_and(|value| git_config::is_true(value.as_encoded_bytes())),
            claude_project: given("CLAUDE_PROJECT_DIR").and_then(absolute),
            gemini_project: given("GEMINI_PROJECT_DIR").and_then(absolute),
            locale: given("LC_ALL").or_else(|| given("LC_CTYPE")).or_else(|| given("LANG")),
            no_color: given("NO_COLOR").is_some(),
        }
    }

    /// Returns the project directory set by the client that started this process. Variables of
    /// other clients may be inherited from an agent that started this one.
    pub(crate) fn project_dir(&self, client: Client) -> Option<PathBuf> {
        match client {
            Client::ClaudeCode => self.claude_project.clone(),
            Client::Gemini => self.gemini_project.clone(),
            _ => None,
        }
    }

    /// Returns the data directory, which does not depend on the work tree.
    pub(crate) fn data_dir(&self, args: &GlobalArgs) -> Result<PathBuf, Failure> {
        let file = load_file(args.config.as_deref(), self)?;
        data_dir(args, self, file.common.data_dir.as_deref())
    }

    /// Returns the user's home directory.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Returns whether to colour the output: only on a terminal, and unless NO_COLOR is set.
    pub(crate) fn palette(&self) -> Palette {
        if std::io::stdout().is_terminal() && !self.no_color {
            Palette::Coloured
        } else {
            Palette::Plain
        }
    }

    /// Returns the character set of the terminal. Without a locale it is ASCII, as in POSIX.
    pub(crate) fn charset(&self) -> Charset {
        let locale = self.locale.as_ref().map(|name| name.to_string_lossy().to_ascii_lowercase());
        match locale {
            Some(name) if name.contains("utf-8") || name.contains("utf8") => Charset::Utf8,
            Some(_) | None => Charset::Ascii,
        }
    }

    fn config_dir(&self) -> Option<PathBuf> {
        self.config_home.clone().or_else(|| Some(self.home.as_ref()?.join(".config")))
    }

    /// Returns the locations of git's configuration.
    fn git_config_places(&self) -> ConfigPlaces {
        let system = self.git_system.clone().unwrap_or_else(|| "/etc/gitconfig".into());
        ConfigPlaces {
            system: (!self.no_git_system).then_some(system),
            global: self.git_global.clone(),
            config_dir: self.config_dir(),
            home: self.home.clone(),
        }
    }

    fn default_data_dir(&self) -> Option<PathBuf> {
        let home = || Some(self.home.as_ref()?.join(".local/share"));
        self.data_home.clone().or_else(home).map(|dir| dir.join("ctrlz"))
    }
}

/// Resolves the settings of a command.
pub(crate) fn decide(args: &GlobalArgs, environment: &Environment) -> Result<Settings, Failure> {
    decide_over(args, environment, WorkTree::Nearest, |file| file)
}

/// Resolves the settings of a call by another program. Its parameters override the command line.
pub(crate) fn decide_for(
    place: &Place,
    args: &GlobalArgs,
    environment: &Environment,
) -> Result<Settings, Failure> {
    let given = |path: &Option<WirePath>, typed: &Option<PathBuf>| {
        path.as_ref().map(|path| path.as_path().to_owned()).or_else(|| typed.clone())
    };
    let call = place.decided_options();
    let args = GlobalArgs {
        directory: given(&place.dir, &args.directory),
        data_dir: given(&place.data_dir, &args.data_dir),
        store: given(&place.store, &args.store),
        config: args.config.clone(),
        json: args.json,
        force_root: call.allow_dangerous_root.unwrap_or(args.force_root),
        threads: call.threads.filter(|threads| *threads > 0).or(args.threads),
    };
    if call.ref_prefix.as_deref().is_some_and(|prefix| !is_ref_prefix(prefix)) {
        return Err(Failure::Option { why: "`ref_prefix` is not a ref below refs/" });
    }
    let patience = call.patience_millis.map(Duration::from_millis);
    let mut settings = decide_over(&args, environment, place.work_tree, |user| over(call, user))?;
    settings.options.patience = patience.unwrap_or(settings.options.patience);
    Ok(settings)
}

/// Resolves the settings. `last_word` can override the configuration file.
fn decide_over(
    args: &GlobalArgs,
    environment: &Environment,
    which: WorkTree,
    last_word: impl FnOnce(Keys) -> Keys,
) -> Result<Settings, Failure> {
    let file = load_file(args.config.as_deref(), environment)?;
    let dir = acting_directory(args.directory.as_deref())?;
    // Finding the work tree needs a data directory, and the work tree's configuration may then name
    // another one.
    let common = data_dir(args, environment, file.common.data_dir.as_deref())?;
    let home = environment.home.as_deref();
    let root = match which {
        WorkTree::Nearest => work_tree(&dir, &common, home, args.store.as_deref())?,
        WorkTree::Dir => dir.clone(),
    };
    let keys = last_word(file.for_project(&root, environment.home.as_deref()));
    let default = Options::new(data_dir(args, environment, keys.data_dir.as_deref())?);
    let patterns = environment.git_config_places().pattern_files(&root);
    let usual = Retention::default();
    let retention = Retention {
        keep_days: keys.keep_days.unwrap_or(usual.keep_days),
        keep_sessions: keys.keep_sessions.or(usual.keep_sessions),
        thin_days: keys.thin_days.unwrap_or(usual.thin_days),
        thorough: usual.thorough,
    };
    let options = Options {
        store: args.store.clone(),
        enabled: keys.enabled.unwrap_or(default.enabled),
        require_git: keys.require_git.unwrap_or(default.require_git),
        max_new_file_bytes: keys.max_new_file_bytes.unwrap_or(default.max_new_file_bytes),
        exclude: keys.exclude.unwrap_or_default(),
        include_ignored: keys.include_ignored.unwrap_or_default(),
        ignored: keys.ignored.unwrap_or(default.ignored),
        max_ignored_bytes: keys.max_ignored_bytes.unwrap_or(default.max_ignored_bytes),
        max_named_bytes: keys.max_named_bytes.unwrap_or(default.max_named_bytes),
        nested_repos: keys.nested_repos.unwrap_or(default.nested_repos),
        max_files: keys.max_files.unwrap_or(default.max_files),
        max_snapshot_bytes: keys.max_snapshot_bytes.unwrap_or(default.max_snapshot_bytes),
        min_free_bytes: keys.min_free_bytes.unwrap_or(default.min_free_bytes),
        max_store_bytes: keys.max_store_bytes.unwrap_or(default.max_store_bytes),
        max_total_bytes: keys.max_total_bytes.unwrap_or(default.max_total_bytes),
        ref_prefix: keys.ref_prefix.unwrap_or(default.ref_prefix),
        excludes_file: patterns.excludes,
        attributes_file: patterns.attributes,
        home: environment.home.clone(),
        allow_dangerous_root: args.force_root,
        threads: args.threads.map_or(default.threads, usize::from),
        data_dir: default.data_dir,
        seed: default.seed,
        patience: default.patience,
        labels: keys.labels.unwrap_or(default.labels),
        watch: keys.watch.unwrap_or(default.watch),
        watch_trust: keys.watch_trust_seconds.map_or(default.watch_trust, Duration::from_secs),
    };
    let keep_checkpoints = keys.keep_checkpoints.unwrap_or(CheckpointOptions::default().keep);
    let config = args.config.clone();
    Ok(Settings { options, retention, root, dir, config, keep_checkpoints, agents_dir: common })
}

/// Returns the canonical path of the directory in which the command acts.
fn acting_directory(typed: Option<&Path>) -> Result<PathBuf, Failure> {
    match typed {
        Some(dir) => {
            dir.canonicalize().map_err(|error| Failure::file("open the directory", dir, error))
        }
        None => std::env::current_dir()
            .and_then(|dir| dir.canonicalize())
            .map_err(Failure::CurrentDirectory),
    }
}

/// Returns the canonical paths of the named directories, which are relative to the directory in
/// which the command acts. Returns that directory if none is named.
pub(crate) fn acting_directories(
    args: &GlobalArgs,
    named: &[PathBuf],
) -> Result<Vec<PathBuf>, Failure> {
    let here = acting_directory(args.directory.as_deref())?;
    match named {
        [] => Ok(vec![here]),
        named => named.iter().map(|dir| acting_directory(Some(&here.join(dir)))).collect(),
    }
}

/// Returns the data directory. There is no further fallback, because a guess would write to `/` or
/// into the project.
fn data_dir(
    args: &GlobalArgs,
    environment: &Environment,
    configured: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let typed = args.data_dir.as_deref().or(environment.data_dir.as_deref());
    if let Some(dir) = typed {
        return std::path::absolute(dir).map_err(Failure::CurrentDirectory);
    }
    configured
        .map(Path::to_owned)
        .or_else(|| environment.default_data_dir())
        // Nothing is written to the data directory for a store outside of the project. A store in
        // the project needs it, because it records the trusted stores.
        .or_else(|| args.store.clone().filter(|store| store.is_absolute()))
        .ok_or(Failure::NoDataDir)
}

/// Returns the work tree that `dir` belongs to.
///
/// The registry does not list stores inside a project. Without a repository, the nearest directory
/// that contains the named store is the work tree.
fn work_tree(
    dir: &Path,
    data_dir: &Path,
    home: Option<&Path>,
    store: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let root = find_work_tree(dir, data_dir, home)?;
    match store {
        Some(store) if store.is_relative() && root == dir && !root.join(".git").exists() => {
            let holds_store = |above: &&Path| above.join(store).is_dir();
            Ok(root.ancestors().find(holds_store).unwrap_or(&root).to_owned())
        }
        Some(_) | None => Ok(root),
    }
}

/// Reads the named file, which must exist, or the default one, which may be missing.
fn load_file(named: Option<&Path>, environment: &Environment) -> Result<ConfigFile, Failure> {
    let usual = || Some(environment.config_dir()?.join("ctrlz/config.toml"));
    let Some(path) = named.map(Path::to_owned).or_else(usual) else {
        return Ok(ConfigFile::default());
    };
    let refuse = |why| Failure::Configuration { path: path.clone(), why };
    let bytes = match small_file::read(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) if named.is_none() => return Ok(ConfigFile::default()),
        Ok(None) => return Err(refuse("there is no such file".into())),
        // The file may contain `enabled = false`, so it must not be ignored.
        Err(error) => return Err(refuse(error.to_string())),
    };
    let text = String::from_utf8(bytes).map_err(|error| refuse(error.to_string()))?;
    ConfigFile::parse(&text, environment.home.as_deref()).map_err(refuse)
}

/// Returns the options of a call over those of the user. A call cannot enable what the user
/// disabled. Labels, the watcher and retention are settings of the user, not of a single call.
fn over(call: CallOptions, user: Keys) -> Keys {
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Keys {
        enabled: if call.enabled == Some(false) { Some(false) } else { user.enabled },
        require_git: call.require_git.or(user.require_git),
        max_new_file_bytes: call.max_new_file_bytes.or(user.max_new_file_bytes),
        exclude: call.exclude.or(user.exclude),
        include_ignored: call.include_ignored.or(user.include_ignored),
        ignored: call.ignored.or(user.ignored),
        max_ignored_bytes: call.max_ignored_bytes.or(user.max_ignored_bytes),
        max_named_bytes: call.max_named_bytes.or(user.max_named_bytes),
        nested_repos: call.nested_repos.or(user.nested_repos),
        max_files: call.max_files.or(user.max_files),
        max_snapshot_bytes: call.max_snapshot_bytes.or(user.max_snapshot_bytes),
        min_free_bytes: call.min_free_bytes.or(user.min_free_bytes),
        max_store_bytes: call.max_store_bytes.or(user.max_store_bytes),
        max_total_bytes: call.max_total_bytes.or(user.max_total_bytes),
        ref_prefix: call.ref_prefix.or(user.ref_prefix),
        keep_checkpoints: call.keep_checkpoints.map(count).or(user.keep_checkpoints),
        ..user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/someone";

    #[test]
    fn a_call_cannot_enable_snapshots_that_the_user_disabled() {
        let decided = |call: Option<bool>, user: Option<bool>| {
            let call = CallOptions { enabled: call, ..CallOptions::default() };
            over(call, Keys { enabled: user, ..Keys::default() }).enabled
        };
        assert_eq!(decided(Some(true), Some(false)), Some(false));
        assert_eq!(decided(Some(false), Some(true)), Some(false));
        assert_eq!(decided(Some(false), None), Some(false));
        assert_eq!(decided(None, Some(true)), Some(true));
        assert_eq!(decided(Some(true), None), None);
    }

    #[test]
    fn the_data_dir_comes_from_flag_variable_config_or_default_in_this_order() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            global: GlobalArgs,
        }
        let typed = |words: &[&str]| <Typed as clap::Parser>::parse_from(words).global;
        let mut environment = Environment {
            data_dir: Some("/variable".into()),
            data_home: Some("/data".into()),
            home: Some(HOME.into()),
            ..Environment::default()
        };
        let configured = Some(Path::new("/configured"));
        let with = |environment: &Environment, words: &[&str], configured| {
            data_dir(&typed(words), environment, configured).ok()
        };
        let flag = ["ctrlz", "--data-dir", "/flag"];
        assert_eq!(with(&environment, &flag, configured), Some("/flag".into()));
        assert_eq!(with(&environment, &["ctrlz"], configured), Some("/variable".into()));
        environment.data_dir = None;
        assert_eq!(with(&environment, &["ctrlz"], configured), Some("/configured".into()));
        assert_eq!(with(&environment, &["ctrlz"], None), Some("/data/ctrlz".into()));
        environment.data_home = None;
        let home = format!("{HOME}/.local/share/ctrlz");
        assert_eq!(with(&environment, &["ctrlz"], None), Some(home.into()));
        environment.home = None;
        assert_eq!(with(&environment, &["ctrlz"], None), None);
    }
}
