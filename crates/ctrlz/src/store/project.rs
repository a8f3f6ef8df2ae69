//! Directories that are too dangerous to protect, and file names for paths.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Error;
use crate::git::Hasher;

/// Returns a hash of `path` that is a valid file name on every file system.
pub(crate) fn path_hash(path: &Path) -> String {
    let mut hasher = Hasher::raw();
    hasher.update(path.as_os_str().as_bytes());
    hasher.finish().map_or_else(|| "0".repeat(40), |id| id.to_string())
}

/// Reason for refusing a path in the directory of a version control system.
pub(crate) const IN_REPOSITORY: &str = "it lies inside a repository's own directory";

/// Returns whether a directory above `path` is a git repository's own, whatever its name. It may
/// be damaged.
pub(crate) fn is_below_repository(path: &Path) -> bool {
    let is_repository = |dir: &Path| {
        let has = |name| dir.join(name).symlink_metadata().is_ok();
        has("objects") && (has("HEAD") || has("refs"))
    };
    path.ancestors().skip(1).any(is_repository)
}

/// System directories, which contain no project.
const SYSTEM: [&str; 19] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt",
    "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var",
];

/// Directories in a home directory that are not projects.
const HOME: [&str; 7] =
    [".cache", ".config", ".local", ".local/share", "Desktop", "Documents", "Downloads"];

/// Refuses directories that contain far more than a project.
pub(crate) fn check_root(root: &Path, home: Option<&Path>) -> Result<(), Error> {
    let refuse = |why| Err(Error::dangerous_root(root, why));
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
