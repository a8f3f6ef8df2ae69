//! How a client's configuration was before we touched it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Setup, merge, write};
use crate::hook::Client;
use crate::private::{self, fingerprint};

const MAX_BYTES: u64 = 16 << 20;

/// The configuration of one client, for the user or in one project.
pub(super) struct Record {
    path: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The text of each file; `None` for one that did not exist.
    files: BTreeMap<PathBuf, Option<String>>,
    /// Directories that were made for our files.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    dirs: BTreeSet<PathBuf>,
}

impl Record {
    pub(super) fn of(client: Client, setup: &Setup) -> Record {
        let place = setup.project.as_deref().unwrap_or(&setup.home);
        let number = fingerprint(&[place.as_os_str().as_encoded_bytes()]);
        let name = format!("agents/installed/{client}-{number:016x}");
        Record { path: setup.data_dir.join(name) }
    }

    /// Remembers how files are now, unless that is remembered already.
    pub(super) fn keep(&self, files: &[PathBuf]) -> io::Result<()> {
        let mut kept = self.read();
        for file in files {
            if !kept.files.contains_key(file) {
                let text = match std::fs::read_to_string(file) {
                    Ok(text) => Some(text),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(error),
                };
                kept.files.insert(file.clone(), text);
            }
        }
        self.write(&kept)
    }

    /// Remembers the directories that have to be made for a file.
    pub(super) fn keep_dirs_of(&self, file: &Path) -> io::Result<()> {
        let is_missing = |dir: &&Path| dir.symlink_metadata().is_err();
        let missing = file.ancestors().skip(1).take_while(is_missing).map(Path::to_owned);
        let missing: Vec<PathBuf> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut kept = self.read();
        kept.dirs.extend(missing);
        self.write(&kept)
    }

    /// Removes the directories that were made for our files, as far as they are empty.
    pub(super) fn remove_dirs(&self) -> io::Result<()> {
        let mut kept = self.read();
        // The entries of a directory sort behind it.
        for dir in std::mem::take(&mut kept.dirs).into_iter().rev() {
            match std::fs::remove_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(_) => drop(kept.dirs.insert(dir)),
                Ok(()) => (),
            }
        }
        match kept.files.is_empty() && kept.dirs.is_empty() {
            true => super::remove(&self.path),
            false => self.write(&kept),
        }
    }

    fn write(&self, kept: &Kept) -> io::Result<()> {
        let bytes = serde_json::to_vec(kept).expect("plain data has a JSON form");
        private::replace(&self.path, &bytes)
    }

    /// Gives files their bytes back where what they say is the same, and forgets them.
    ///
    /// A file that somebody else changed meanwhile stays as it is: only we are gone from it.
    pub(super) fn put_back(&self) -> io::Result<()> {
        let mut kept = self.read();
        for (file, before) in std::mem::take(&mut kept.files) {
            let Ok(now) = std::fs::read_to_string(&file) else { continue };
            match before {
                Some(before) if before != now && says_the_same(&file, &before, &now) => {
                    write(&file, before.as_bytes(), false)?;
                }
                None if says_nothing(&file, &now) => {
                    std::fs::remove_file(&file)?;
                }
                Some(_) | None => (),
            }
        }
        self.write(&kept)
    }

    fn read(&self) -> Kept {
        let bytes = private::read(&self.path, MAX_BYTES).ok().flatten().unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

/// Whether two texts say the same but for spacing, comments and things that hold nothing.
fn says_the_same(file: &Path, one: &str, other: &str) -> bool {
    match (meaning(file, one), meaning(file, other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Whether a text says nothing, as a client leaves a file that it made for us.
fn says_nothing(file: &Path, text: &str) -> bool {
    let Some(mut value) = meaning(file, text) else { return text.trim().is_empty() };
    if let Some(map) = value.as_object_mut() {
        drop(map.remove("version"));
    }
    value == Value::Object(serde_json::Map::new())
}

fn meaning(file: &Path, text: &str) -> Option<Value> {
    let is_toml = file.extension().is_some_and(|extension| extension == "toml");
    let value = match is_toml {
        true => serde_json::to_value(text.parse::<toml::Table>().ok()?).ok()?,
        false => merge::value(text)?,
    };
    Some(without_empty(value))
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
    fn spacing_and_empty_things_say_nothing() {
        let json = Path::new("a.json");
        let toml = Path::new("a.toml");
        assert!(says_the_same(json, "{ // x\n\"a\":1}", "{\"a\": 1, \"b\": {\"c\": {}}}"));
        assert!(!says_the_same(json, "{\"a\":1}", "{\"a\": 2}"));
        assert!(!says_the_same(json, "{\"a\":1}", "{"));
        assert!(says_the_same(toml, "a = 1 # x\n", "a=1\n[b]\n"));
        assert!(says_nothing(json, "{\"version\": 2, \"plugins\": {}}"));
        assert!(!says_nothing(json, "{\"version\": 2, \"plugins\": {\"a\": 1}}"));
    }
}
