//! Which store a work tree uses, and which directories are too dangerous to protect.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, read_small};
use crate::git::Hasher;
use crate::path::PathText;

use super::user_repo::UserRepo;

/// What shares a store: decided once per path, and recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Project {
    pub(crate) id: String,
    pub(crate) path: PathText,
}

impl Project {
    /// The project of `root`, as recorded under `data_dir` or decided now.
    pub(crate) fn of(
        data_dir: &Path,
        root: &Path,
        repo: Option<&UserRepo>,
    ) -> Result<Project, Error> {
        let record = record_path(data_dir, root);
        private::sweep(&data_dir.join("paths"))?;
        private::sweep_builds(&data_dir.join("snapshot"))?;
        if let Some(project) = read_record(&record)? {
            return Ok(project);
        }
        private::create_dirs(&data_dir.join("paths"))?;
        let root_commit = match repo {
            Some(repo) => repo.root_commit()?,
            None => None,
        };
        let id = match root_commit {
            Some(commit) => commit.to_string(),
            None => format!("path-{}", path_hash(root)),
        };
        let project = Project { id, path: PathText::from_bytes(root.as_os_str().as_bytes()) };
        let json = serde_json::to_vec(&project).expect("plain data has a JSON form");
        if !private::create_once(&record, &json)? {
            // Another process decided first, or a torn record stands there.
            if let Some(project) = read_record(&record)? {
                return Ok(project);
            }
            private::replace(&record, &json, private::Durable::Yes)?;
        }
        Ok(project)
    }

    /// The recorded project, without deciding anything.
    pub(crate) fn recorded(data_dir: &Path, root: &Path) -> Result<Option<Project>, Error> {
        read_record(&record_path(data_dir, root))
    }

    pub(crate) fn store_path(&self, data_dir: &Path) -> PathBuf {
        data_dir.join("snapshot").join(&self.id)
    }
}

/// Records that `root`, which is empty, belongs to the project of `other`. What was recorded there
/// before was of a work tree that is gone; its store stays.
pub(crate) fn adopt_project(data_dir: &Path, other: &Path, root: &Path) -> Result<(), Error> {
    let Some(project) = Project::recorded(data_dir, other)? else { return Ok(()) };
    let record = record_path(data_dir, root);
    if read_record(&record)?.is_some_and(|known| known.id == project.id) {
        return Ok(());
    }
    let project = Project { path: PathText::from_bytes(root.as_os_str().as_bytes()), ..project };
    let json = serde_json::to_vec(&project).expect("plain data has a JSON form");
    Ok(private::replace(&record, &json, private::Durable::Yes)?)
}

/// The nearest directory at or above `dir` that is known as a work tree.
pub(crate) fn known_work_tree(data_dir: &Path, dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| record_path(data_dir, dir).is_file()).map(Path::to_owned)
}

fn record_path(data_dir: &Path, root: &Path) -> PathBuf {
    data_dir.join("paths").join(path_hash(root))
}

fn read_record(path: &Path) -> Result<Option<Project>, Error> {
    let bytes = read_small(path, 1 << 16)?.unwrap_or_default();
    let project: Option<Project> = serde_json::from_slice(&bytes).ok();
    // The id becomes a directory name.
    Ok(project.filter(|project| {
        project.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !project.id.is_empty()
    }))
}

/// A name for a path that any file system accepts.
pub(crate) fn path_hash(path: &Path) -> String {
    let mut hasher = Hasher::raw();
    hasher.update(path.as_os_str().as_bytes());
    hasher.finish().map_or_else(|| "0".repeat(40), |id| id.to_string())
}

/// Directories of the system that hold no project.
const SYSTEM: [&str; 19] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt",
    "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",
];

/// Directories of a home that hold everything but a project.
const HOME: [&str; 7] =
    [".cache", ".config", ".local", ".local/share", "Desktop", "Documents", "Downloads"];

/// Refuses directories that are far more than a project.
pub(crate) fn check_root(root: &Path, home: Option<&Path>) -> Result<(), Error> {
    let refuse = |why| Err(Error::DangerousRoot { path: root.to_owned(), why });
    if SYSTEM.iter().any(|system| root == Path::new(system)) {
        return refuse("it is a directory of the system");
    }
    let Some(home) = home else { return Ok(()) };
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    if home.starts_with(root) {
        return refuse("it holds your home directory");
    }
    if HOME.iter().any(|inside| root == home.join(inside)) {
        return refuse("it is not a project");
    }
    Ok(())
}
