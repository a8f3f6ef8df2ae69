//! Trust: which stores inside a project were made by this user on this machine.
//!
//! ```text
//! <store>/ctrlz/id          random name, made with the store
//! <data>/stores/<id>        path and identity of the directory that the store was made in
//! ```
//!
//! A store that was cloned, unpacked or copied has no record, or one of another directory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Landmark, Named, absolute, random_name};
use crate::path::{PathText, is_in_repository};

use super::lock::{Lock, Sharing};
use super::project::{IN_REPOSITORY, check_root};

/// Record of a store that this user made.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Made {
    path: PathText,
    /// Distinguishes the directory from a copy of it. `None` on file systems that give directories
    /// no lasting identity; then the path decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    landmark: Option<Landmark>,
}

/// Stores that are recorded in a data directory.
pub(crate) struct Trust {
    dir: PathBuf,
}

impl Trust {
    pub(crate) fn of(data_dir: &Path) -> Trust {
        Trust { dir: data_dir.join("stores") }
    }

    /// Returns whether the store at `git_dir` was made by this user in this place, or was moved
    /// there. Through a symlink only the place where it was made counts, because the symlink may
    /// have come with the project and point to another store of this user.
    ///
    /// `by_path_alone` accepts a record without an identity, from a file system that has none.
    pub(crate) fn knows(
        &self,
        git_dir: &Path,
        through_link: bool,
        by_path_alone: bool,
    ) -> Result<bool, Error> {
        let Some(id) = read_id(git_dir)? else { return Ok(false) };
        let made: Option<Made> = private::load_json(&self.dir.join(&id), 1 << 16)?;
        let Some(made) = made else { return Ok(false) };
        let is_path = made.path == PathText::from_bytes(git_dir.as_os_str().as_bytes());
        Ok(match (made.landmark, Landmark::of(git_dir)) {
            (Some(made), Some(here)) => made.may_be(&here) && (is_path || !through_link),
            _ => is_path && by_path_alone,
        })
    }

    /// Records that this user made the store at `git_dir`.
    pub(crate) fn record(&self, git_dir: &Path) -> Result<(), Error> {
        let id = random_name();
        let made = Made {
            path: PathText::from_bytes(git_dir.as_os_str().as_bytes()),
            landmark: Landmark::of(git_dir),
        };
        private::create_dirs(&self.dir)?;
        private::save_json(&self.dir.join(&id), &made, Durable::Yes)?;
        Ok(private::replace(&id_path(git_dir), id.as_bytes(), Durable::Yes)?)
    }

    /// Takes the lock that is held while a store is made or set aside.
    pub(crate) fn lock(&self) -> Result<Lock, Error> {
        private::create_dirs(&self.dir)?;
        Lock::take(&self.dir.join("lock"), Sharing::Exclusive, Duration::from_secs(10))
    }
}

/// Upper bound on the symlinks in the path of a store, as in the kernel.
const MAX_LINKS: usize = 40;

/// Returns the absolute path of a store that the caller named relative to `root`.
///
/// The result has no `..`, and no symlink except those inside a project. These are kept, so that
/// the caller can refuse them: they may have come with the project. A path that leads into `root`
/// in any other way, such as through a bind mount, begins with `root`.
pub(crate) fn resolve_store(root: &Path, store: &Path, home: Option<&Path>) -> PathBuf {
    let parts = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut waiting = parts(&root.join(store));
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = waiting.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        // Begins again at the top for a symlink with an absolute target.
        let next = at.join(&part);
        match next.read_link() {
            Ok(target) if links < MAX_LINKS && !is_in_project(&at, root, home) => {
                links += 1;
                waiting.extend(parts(&target));
            }
            _ => at = next,
        }
    }
    below_root(root, &at).unwrap_or(at)
}

/// Returns `path` as a path below `root` if one of the directories above it is the same directory.
fn below_root(root: &Path, path: &Path) -> Option<PathBuf> {
    let id = |dir: &Path| dir.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let top = id(root)?;
    let above = path.ancestors().find(|dir| id(dir) == Some(top))?;
    let rest = path.strip_prefix(above).ok()?;
    // `join` of an empty path would add a slash.
    Some(if rest.as_os_str().is_empty() { root.to_owned() } else { root.join(rest) })
}

/// Returns whether `path` is inside `root` or any other git work tree, whose files may have come
/// from somewhere else. A repository around a home directory does not count.
pub(crate) fn is_in_project(path: &Path, root: &Path, home: Option<&Path>) -> bool {
    let is_work_tree =
        |dir: &Path| dir.join(".git").symlink_metadata().is_ok() && check_root(dir, home).is_ok();
    path.ancestors().any(|dir| dir == root || is_work_tree(dir))
}

fn id_path(git_dir: &Path) -> PathBuf {
    git_dir.join("ctrlz").join("id")
}

/// Reads a store's id. Only letters and digits are accepted, because others could form a path.
fn read_id(git_dir: &Path) -> Result<Option<String>, Error> {
    let bytes = read_small(&id_path(git_dir), 64)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    Ok(is_plain.then_some(text))
}

/// Returns the directories that were set aside for a store, oldest first.
pub(crate) fn set_aside(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = path.parent().unwrap_or(Path::new("/"));
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let start = format!("{name}.untrusted-");
    let is_old = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start))
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_old).collect();
    found.sort();
    found
}

/// Notes that the histories of all directories that were set aside are still to be imported. There
/// is more than one if a process was killed before it recorded the new store.
pub(crate) fn note_pending(store: &Path) -> Result<(), Error> {
    let names = set_aside(store).into_iter().filter_map(|old| Some(old.file_name()?.to_owned()));
    let bytes = names.map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>().join(&0);
    Ok(private::replace(&store.join("ctrlz").join("adopting"), &bytes, Durable::Yes)?)
}

/// Returns the old directories, beside the store, whose histories are not imported yet.
pub(crate) fn pending(store: &Path) -> Result<Vec<PathBuf>, Error> {
    let bytes = read_small(&store.join("ctrlz").join("adopting"), 1 << 16)?.unwrap_or_default();
    let names = bytes.split(|byte| *byte == 0).map(|name| Path::new(OsStr::from_bytes(name)));
    let is_name =
        |name: &&Path| matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    Ok(names.filter(is_name).map(|name| store.with_file_name(name)).collect())
}

/// Refuses a data directory inside a repository, or with parts that another user could write to. Removes the
/// permissions of group and others from its subdirectories.
pub fn check_data_dir(data_dir: &Path) -> Result<(), Error> {
    if is_in_repository(&absolute(data_dir)) {
        return Err(Error::untrusted(data_dir, IN_REPOSITORY));
    }
    let me = rustix::process::geteuid().as_raw();
    for path in data_dir.ancestors() {
        let is_foreign =
            |meta: &std::fs::Metadata| meta.is_symlink() && meta.uid() != me && meta.uid() != 0;
        if path.symlink_metadata().is_ok_and(|meta| is_foreign(&meta)) {
            return Err(Error::untrusted(path, "it is a link that another user made"));
        }
    }
    for part in ["snapshot", "paths", "stores", "agents", "integrations"] {
        let path = data_dir.join(part);
        let Ok(meta) = path.symlink_metadata() else { continue };
        if !meta.is_dir() || meta.uid() != me {
            return Err(Error::untrusted(path, "it is not a directory of this user's"));
        }
        if meta.mode() & 0o077 != 0 {
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&path, private).named("set the permissions of", &path)?;
        }
    }
    Ok(())
}
