//! The configuration file.
//!
//! Independent of the rest of the program, so that a fuzz target can include it alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The keys of the configuration, for every work tree or for one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keys {
    pub(crate) enabled: Option<bool>,
    pub(crate) require_git: Option<bool>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) max_new_file_bytes: Option<u64>,
    pub(crate) exclude: Option<Vec<String>>,
    pub(crate) include_ignored: Option<Vec<String>>,
    pub(crate) ignored: Option<ctrlz::IgnoredFiles>,
    pub(crate) max_ignored_bytes: Option<u64>,
    pub(crate) max_named_bytes: Option<u64>,
    pub(crate) nested_repos: Option<bool>,
    pub(crate) max_files: Option<u64>,
    pub(crate) max_snapshot_bytes: Option<u64>,
    pub(crate) min_free_bytes: Option<u64>,
    pub(crate) max_store_bytes: Option<u64>,
    pub(crate) max_total_bytes: Option<u64>,
    pub(crate) keep_days: Option<u64>,
    pub(crate) keep_sessions: Option<usize>,
    pub(crate) thin_days: Option<u64>,
    pub(crate) ref_prefix: Option<String>,
    pub(crate) keep_checkpoints: Option<usize>,
    pub(crate) labels: Option<bool>,
    pub(crate) watch: Option<bool>,
    pub(crate) watch_trust_seconds: Option<u64>,
}

/// The validated configuration file.
#[derive(Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) common: Keys,
    /// For each path that the file names, its keys and those of `common` that it does not override.
    projects: BTreeMap<String, Keys>,
}

/// Keys that are accepted and ignored, because this version does not implement them yet.
const LATER: [&str; 1] = ["durability"];

impl ConfigFile {
    pub(crate) fn parse(text: &str, home: Option<&Path>) -> Result<ConfigFile, String> {
        let mut table: toml::Table = text.parse().map_err(|error| syntax_error(text, &error))?;
        let projects = match table.remove("project") {
            None => toml::Table::new(),
            Some(toml::Value::Table(projects)) => projects,
            Some(_) => return Err("`project` is not a table".into()),
        };
        let common = Keys::parse(table.clone(), home)?;
        let mut file = ConfigFile { common, projects: BTreeMap::new() };
        for (path, keys) in projects {
            let within = |why: String| format!("{why}, in [project.{path:?}]");
            if !expand(Path::new(&path), home).is_absolute() {
                return Err(within("a project is named by its absolute path".into()));
            }
            let toml::Value::Table(keys) = keys else {
                return Err(within("not a table".into()));
            };
            let mut all = table.clone();
            all.extend(keys);
            let keys = Keys::parse(all, home).map_err(within)?;
            file.projects.insert(path, keys);
        }
        Ok(file)
    }

    /// Returns the keys that apply to the work tree `root`.
    pub(crate) fn for_project(self, root: &Path, home: Option<&Path>) -> Keys {
        let is_root = |path: &String| {
            let path = expand(Path::new(path), home);
            path == root || path.canonicalize().is_ok_and(|path| path == root)
        };
        let own = self.projects.into_iter().find(|(path, _)| is_root(path));
        own.map_or(self.common, |(_, keys)| keys)
    }
}

impl Keys {
    fn parse(mut table: toml::Table, home: Option<&Path>) -> Result<Keys, String> {
        for key in LATER {
            drop(table.remove(key));
        }
        let mut keys: Keys = table.try_into().map_err(|error: toml::de::Error| {
            // The message ends with an empty line.
            error.to_string().trim().replace('\n', " ")
        })?;
        if let Some(dir) = keys.data_dir.take() {
            let dir = expand(&dir, home);
            if !dir.is_absolute() {
                return Err("`data_dir` is not an absolute path".into());
            }
            keys.data_dir = Some(dir);
        }
        if keys.ref_prefix.as_deref().is_some_and(|prefix| !is_ref_prefix(prefix)) {
            return Err("`ref_prefix` is not a ref below refs/".into());
        }
        Ok(keys)
    }
}

/// Returns toml's multi-line error message on one line.
fn syntax_error(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("{}, on line {line}", error.message())
}

/// Expands `~/` to the home directory.
fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_) | Err(_), _) => path.to_owned(),
    }
}

/// Returns whether a prefix is a valid ref name for git and a plain path for the file system.
pub(crate) fn is_ref_prefix(prefix: &str) -> bool {
    let is_plain = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty()
            && part.bytes().all(allowed)
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.ends_with(".lock")
            && !part.contains("..")
    };
    prefix.strip_prefix("refs/").is_some_and(|rest| rest.split('/').all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "/home/someone";

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(text, Some(Path::new(HOME)))
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let why = parse(text).unwrap_err();
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn parsing_arbitrary_configurations_never_panics() {
        let seed = "enabled = true\nmax_new_file_bytes = 1000\nexclude = [\"*.log\"]\n\
                    ignored = \"small\"\n[project.\"/p\"]\nkeep_days = 3\n";
        xtask::feed("config", &[seed.into()], xtask::sized(2_000, 100_000), |bytes| {
            drop(std::str::from_utf8(bytes).map(parse));
        });
    }

    #[test]
    fn an_unknown_key_is_named_in_the_error() {
        check_refused("enbled = true", "enbled");
        check_refused("[project.\"/p\"]\nexclud = []", "exclud");
        check_refused("[project.\"/p\"]\nexclud = []", "/p");
    }

    #[test]
    fn invalid_values_are_refused() {
        check_refused("max_files = -1", "max_files");
        check_refused("keep_checkpoints = \"all\"", "keep_checkpoints");
        check_refused("enabled = \"no\"", "enabled");
        check_refused("data_dir = \"here\"", "data_dir");
        check_refused("project = 1", "project");
        check_refused("[project.here]", "here");
        for prefix in ["heads", "refs/", "refs/a..b", "refs/../x", "refs/a/", "refs/.a", "refs/a b"]
        {
            check_refused(&format!("ref_prefix = {prefix:?}"), "ref_prefix");
        }
        check_refused("= 1", "line 1");
    }

    #[test]
    fn keys_of_later_versions_are_accepted() {
        for key in LATER {
            parse(&format!("{key} = 7")).unwrap();
        }
    }

    #[test]
    fn a_project_overrides_only_what_it_names() {
        let file = parse(
            "max_files = 5\nexclude = [\"a\"]\n[project.\"~/p\"]\nmax_files = 6\n[project.\"/q\"]\n",
        );
        let keys = file.unwrap().for_project(&Path::new(HOME).join("p"), Some(Path::new(HOME)));
        assert_eq!(keys.max_files, Some(6));
        assert_eq!(keys.exclude, Some(vec!["a".to_owned()]));
    }
}
