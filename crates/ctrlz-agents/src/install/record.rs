//! Records a client's configuration before an installation changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Setup;
use super::strip::{meaning, strip};
use crate::hook::Client;
use crate::private::{self, fingerprint};

const MAX_BYTES: u64 = 16 << 20;

/// Recorded configuration of one client, for the user or in one project.
pub(super) struct Record {
    path: PathBuf,
    /// Directory that the client's plugin is installed from.
    plugin_dir: PathBuf,
    kept: Kept,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The text of each file before the installation; `None` for one that did not exist.
    files: BTreeMap<PathBuf, Option<String>>,
    /// The state of each file after the installation. Version 0.1.0 did not record it.
    #[serde(default)]
    installed: BTreeMap<PathBuf, Installed>,
    /// The permissions of each file before the installation.
    #[serde(default)]
    modes: BTreeMap<PathBuf, u32>,
}

#[derive(Serialize, Deserialize)]
struct Installed {
    text: String,
    mode: u32,
}

/// A file's content and permissions.
pub(super) struct Content {
    pub(super) text: String,
    pub(super) mode: u32,
}

impl Record {
    pub(super) fn of(client: Client, setup: &Setup) -> Record {
        let place = setup.project.as_deref().unwrap_or(&setup.home);
        let number = fingerprint(&[place.as_os_str().as_encoded_bytes()]);
        let name = format!("agents/installed/{client}-{number:016x}");
        let path = setup.data_dir.join(name);
        let bytes = private::read(&path, MAX_BYTES).ok().flatten().unwrap_or_default();
        // A damaged record counts as missing: our part is removed from files, and the rest stays
        // verbatim.
        let kept = serde_json::from_slice(&bytes).unwrap_or_default();
        Record { path, plugin_dir: setup.plugin_dir(client), kept }
    }

    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Returns the content that a file gets when ctrlz is removed; `None` if the file is removed.
    ///
    /// The recorded bytes are restored if only our part has changed since the installation.
    /// Otherwise our part is removed from the current text.
    pub(super) fn without_us(&self, file: &Path, now: &Content) -> Result<Option<Content>, String> {
        let stripped = match strip(file, &now.text, &self.plugin_dir) {
            Ok(text) => text,
            Err(_) if !self.kept.files.contains_key(file) && !now.text.contains("ctrlz") => {
                return Ok(Some(Content { text: now.text.clone(), mode: now.mode }));
            }
            Err(why) => return Err(why),
        };
        if self.is_unchanged(file, &stripped) {
            let mode = match (self.kept.modes.get(file), self.kept.installed.get(file)) {
                (Some(before), Some(installed)) if installed.mode == now.mode => *before,
                _ => now.mode,
            };
            let before = self.kept.files.get(file).cloned().flatten();
            return Ok(before.map(|text| Content { text, mode }));
        }
        let was_missing = matches!(self.kept.files.get(file), Some(None));
        let is_empty = was_missing && says_nothing(file, &stripped);
        Ok((!is_empty).then_some(Content { text: stripped, mode: now.mode }))
    }

    /// Returns whether a file has not changed since the installation, apart from our part.
    /// `stripped` is its current text without our part.
    fn is_unchanged(&self, file: &Path, stripped: &str) -> bool {
        match (self.kept.files.get(file), self.kept.installed.get(file)) {
            (None, _) => false,
            (Some(_), Some(installed)) => {
                strip(file, &installed.text, &self.plugin_dir).as_deref() == Ok(stripped)
            }
            (Some(Some(before)), None) => says_the_same(file, before, stripped),
            (Some(None), None) => says_nothing(file, stripped),
        }
    }

    /// Records files before an installation. Keeps an earlier record of a file that is unchanged.
    pub(super) fn keep(&mut self, files: &[PathBuf]) -> io::Result<()> {
        for file in files {
            let Some(now) = read(file)? else {
                self.kept.files.insert(file.clone(), None);
                continue;
            };
            // A file that does not parse was not written by an installation, so nothing in it is
            // ours.
            let text = strip(file, &now.text, &self.plugin_dir).unwrap_or(now.text);
            if !self.is_unchanged(file, &text) {
                self.kept.modes.insert(file.clone(), now.mode);
                self.kept.files.insert(file.clone(), Some(text));
            }
        }
        self.write()
    }

    /// Records the state of kept files after an installation.
    pub(super) fn keep_installed(&mut self, files: &[PathBuf]) -> io::Result<()> {
        for file in files {
            if let Some(Content { text, mode }) = read(file)? {
                self.kept.installed.insert(file.clone(), Installed { text, mode });
            }
        }
        self.write()
    }

    pub(super) fn forget(&mut self) -> io::Result<()> {
        self.kept = Kept::default();
        private::remove(&self.path)
    }

    fn write(&self) -> io::Result<()> {
        private::replace(&self.path, &to_bytes(&self.kept))
    }
}

/// Directories that installations of all clients have created. Clients share some of them.
pub(super) struct MadeDirs {
    path: PathBuf,
    dirs: BTreeSet<PathBuf>,
}

impl MadeDirs {
    pub(super) fn of(setup: &Setup) -> MadeDirs {
        let path = setup.data_dir.join("agents/installed/directories");
        let bytes = private::read(&path, MAX_BYTES).ok().flatten().unwrap_or_default();
        MadeDirs { path, dirs: serde_json::from_slice(&bytes).unwrap_or_default() }
    }

    /// Records directories that do not exist yet.
    pub(super) fn add(&mut self, dirs: impl IntoIterator<Item = PathBuf>) -> io::Result<()> {
        let known = self.dirs.len();
        self.dirs.extend(dirs);
        if self.dirs.len() == known {
            return Ok(());
        }
        private::replace(&self.path, &to_bytes(&self.dirs))
    }

    /// Removes an empty directory and its record.
    pub(super) fn remove(&mut self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)?;
        self.dirs.remove(dir);
        if self.dirs.is_empty() {
            private::remove(&self.path)
        } else {
            private::replace(&self.path, &to_bytes(&self.dirs))
        }
    }

    /// Returns the recorded directories above `paths` that are empty once `removed` is gone.
    /// Subdirectories come before their parents.
    pub(super) fn empty_without(
        &self,
        paths: &[PathBuf],
        removed: &BTreeSet<PathBuf>,
    ) -> Vec<PathBuf> {
        let mut gone = removed.clone();
        let mut empty = Vec::new();
        // Entries sort after their directory, so the reverse order visits them first.
        for dir in self.dirs.iter().rev() {
            let is_above = paths.iter().any(|path| path.starts_with(dir));
            let Ok(mut entries) = std::fs::read_dir(dir) else { continue };
            let is_gone = |entry: io::Result<std::fs::DirEntry>| {
                entry.is_ok_and(|entry| gone.contains(&entry.path()))
            };
            if is_above && entries.all(is_gone) {
                gone.insert(dir.clone());
                empty.push(dir.clone());
            }
        }
        empty
    }
}

/// Returns the ancestors of a path that do not exist, the topmost first.
pub(super) fn missing_dirs(path: &Path) -> Vec<PathBuf> {
    let is_missing = |dir: &&Path| dir.symlink_metadata().is_err();
    let missing = path.ancestors().skip(1).take_while(is_missing);
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data has a JSON form")
}

/// Returns a file's text and permissions, or `None` if it does not exist.
fn read(file: &Path) -> io::Result<Option<Content>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = std::fs::metadata(file)?.permissions().mode() & 0o7777;
    Ok(Some(Content { text, mode }))
}

/// Returns whether two texts differ only in spacing, comments and empty values.
fn says_the_same(file: &Path, one: &str, other: &str) -> bool {
    match (meaning(file, one), meaning(file, other)) {
        (Some(one), Some(other)) => without_empty(one) == without_empty(other),
        _ => false,
    }
}

/// Returns whether a text holds no settings: the state in which a client leaves a file that it
/// created for us.
fn says_nothing(file: &Path, text: &str) -> bool {
    let Some(value) = meaning(file, text) else { return text.trim().is_empty() };
    let mut value = without_empty(value);
    if let Some(map) = value.as_object_mut() {
        drop(map.remove("version"));
    }
    value == Value::Object(serde_json::Map::new()) && !text.contains("//") && !text.contains('#')
}

fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(kept.filter(|(_, value)| !is_empty(value)).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_ignore_formatting_and_empty_values() {
        let json = Path::new("a.json");
        let toml = Path::new("a.toml");
        assert!(says_the_same(json, "{ // x\n\"a\":1}", "{\"a\": 1, \"b\": {\"c\": {}}}"));
        assert!(!says_the_same(json, "{\"a\":1}", "{\"a\": 2}"));
        assert!(!says_the_same(json, "{\"a\":1}", "{"));
        assert!(says_the_same(toml, "a = 1 # x\n", "a=1\n[b]\n"));
        assert!(says_nothing(json, "{\"version\": 2, \"plugins\": {}}"));
        assert!(!says_nothing(json, "{\"version\": 2, \"plugins\": {\"a\": 1}}"));
        assert!(!says_nothing(json, "{ // mine\n}"));
    }
}
