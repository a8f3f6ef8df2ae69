//! Small private files that are replaced atomically: readers see the old or the new content.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Creates a directory and its missing parents with mode 0700.
pub(crate) fn create_dirs(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Fails if the directory `agents` of a data directory is a symlink or belongs to another user,
/// who could read and replace everything that is kept there.
pub(crate) fn check_owner(agents: &Path) -> io::Result<()> {
    let me = rustix::process::geteuid().as_raw();
    match agents.symlink_metadata() {
        Ok(meta) if !meta.is_dir() || meta.uid() != me => {
            let why = format!("{} is not a directory of this user's", agents.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        // Missing directories are created with the first file.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the content of a file, or `None` if it does not exist, is not a regular file or is
/// larger than `max_bytes`.
pub(crate) fn read(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match OpenOptions::new().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > max_bytes {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Replaces a file atomically. The file is not flushed, so a power failure may lose it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    create_dirs(dir)?;
    if path.symlink_metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_symlink()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    // The directory may have come with a project. A link at the predictable name is removed, and
    // a new one is not followed.
    remove(&temporary)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: the first error is the one to report.
        fs::remove_file(&temporary).ok();
    }
    written
}

/// Removes a file or directory, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Allocates a file of zeros, unless the path exists.
pub(crate) fn allocate(path: &Path, bytes: usize) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(_) => replace(path, &vec![0; bytes]),
    }
}

/// Overwrites an allocated file in place, which also works on a full disk.
pub(crate) fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// Removes the captures of outside files that version 0.1.0 made, once they are a week old. Errors
/// are ignored: the next call tries again.
pub fn remove_old_captures(data_dir: &Path) {
    const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
    let dir = data_dir.join("agents/outside");
    let is_old = |path: &Path| {
        let modified = path.metadata().and_then(|meta| meta.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MAX_AGE))
    };
    for project in fs::read_dir(&dir).into_iter().flatten().flatten() {
        for step in fs::read_dir(project.path()).into_iter().flatten().flatten() {
            if is_old(&step.path()) {
                fs::remove_dir_all(step.path()).ok();
            }
        }
        fs::remove_dir(project.path()).ok();
    }
    fs::remove_dir(&dir).ok();
}

/// Returns the 64-bit FNV-1a hash of the parts. It is stable across releases, but not
/// collision-resistant.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    // Each part ends with 0xff, which UTF-8 never contains, so that ("ab", "c") and ("a", "bc")
    // differ.
    parts.iter().fold(OFFSET, |hash, part| mix(part.iter().fold(hash, mix), &0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_a_file_follows_no_link_at_the_temporary_name() {
        let dir = tempfile::tempdir().unwrap();
        let (target, path) = (dir.path().join("target"), dir.path().join("settings.json"));
        fs::write(&target, "precious").unwrap();
        let temporary = dir.path().join(format!(".settings.json.{}", std::process::id()));
        std::os::unix::fs::symlink(&target, &temporary).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(temporary.symlink_metadata().is_err());
    }

    #[test]
    fn a_socket_is_not_replaced_by_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        replace(&path, b"new").unwrap_err();
        assert!(!path.symlink_metadata().unwrap().is_file());
    }
}
