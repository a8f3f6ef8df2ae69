//! The packs of an object directory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::fs::private::list_if_there;
use crate::fs::{FileError, Named};
use crate::git::PackFile;

use super::temporary::TEMPORARY;

/// Upper bound on the size of an object in memory.
pub(super) const MAX_OBJECT_BYTES: u64 = 1 << 30;

/// The packs of one directory.
#[derive(Default)]
pub(super) struct Packs {
    /// Open packs, shared with readers.
    pub(super) open: Arc<Vec<Arc<PackFile>>>,
    /// Packs that are incomplete or do not match their index, with the reason.
    pub(super) damaged: Vec<(PathBuf, String)>,
    /// Whether there may be loose objects. Most stores have none.
    pub(super) loose: bool,
}

/// Opens all packs of an object directory. Those in `known` are open already.
///
/// A concurrent merge adds a new pack before it removes old ones, but a single listing may show
/// neither. Listing is repeated until two listings are equal.
pub(super) fn open_packs(dir: &Path, known: &[Arc<PackFile>]) -> Result<Packs, FileError> {
    /// Upper bound on the number of listings. Merges are far less frequent.
    const MAX_LOOKS: u32 = 100;
    /// Number of listings after which it sleeps between further ones.
    const PATIENT_AFTER: u32 = 10;
    let pack_dir = dir.join("pack");
    let mut listed = list_indexes(&pack_dir)?;
    let mut damaged = Vec::new();
    for look in 0..MAX_LOOKS {
        if look > PATIENT_AFTER {
            std::thread::sleep(Duration::from_millis(1));
        }
        let packs = open_listed(&listed, known)?;
        let now = list_indexes(&pack_dir)?;
        // A pack that was removed before it was opened is reported as damaged once.
        if now == listed && packs.damaged == damaged {
            return Ok(Packs { loose: has_loose(dir), ..packs });
        }
        (listed, damaged) = (now, packs.damaged);
    }
    Ok(Packs { loose: has_loose(dir), ..open_listed(&listed, known)? })
}

/// Returns the indexes of all published packs, sorted by path.
fn list_indexes(pack_dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut paths = list_if_there(pack_dir)?;
    let is_index = |path: &Path| path.extension().is_some_and(|extension| extension == "idx");
    paths.retain(|path| is_index(path) && !is_temporary(path));
    Ok(paths)
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()))
}

fn open_listed(indexes: &[PathBuf], known: &[Arc<PackFile>]) -> Result<Packs, FileError> {
    let known: HashMap<&Path, &Arc<PackFile>> =
        known.iter().map(|pack| (pack.path(), pack)).collect();
    let (mut open, mut damaged) = (Vec::new(), Vec::new());
    for index in indexes {
        let data = index.with_extension("pack");
        if let Some(pack) = known.get(data.as_path()) {
            open.push(Arc::clone(pack));
            continue;
        }
        match PackFile::open(index, MAX_OBJECT_BYTES) {
            Ok(pack) => open.push(Arc::new(pack)),
            // Failing to open an existing file (EMFILE, EACCES) is an error, not damage.
            Err(_) if !is_openable(index)? || !is_openable(&data)? => {
                damaged.push((index.clone(), "its pack or its index is missing".into()));
            }
            Err(why) => damaged.push((index.clone(), why.to_string())),
        }
    }
    // Small packs come first: they hold the newest objects, which are read most, and a lookup in a
    // large index touches more pages.
    open.sort_by_key(|pack: &Arc<PackFile>| pack.object_count());
    Ok(Packs { open: Arc::new(open), damaged, loose: false })
}

/// Returns whether there may be loose objects.
fn has_loose(dir: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(dir) else { return true };
    entries.any(|entry| entry.map_or(true, |entry| entry.file_name().len() == 2))
}

/// Returns whether a file exists. Fails if it exists but cannot be opened.
fn is_openable(path: &Path) -> Result<bool, FileError> {
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    match is_file.then(|| std::fs::File::open(path)) {
        None => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Some(Err(error)) => Err(error).named("open", path),
    }
}
