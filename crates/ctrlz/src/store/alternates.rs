//! Lists of borrowed objects, and the `alternates` through which git reads them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::private::read_small;
use crate::git::ObjectId;

/// Objects that snapshots refer to and the store does not hold yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Borrowed {
    pub(super) source: PathBuf,
    pub(super) ids: BTreeSet<ObjectId>,
}

impl Borrowed {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Reads the list at `path`. A missing or malformed list counts as empty.
    pub(crate) fn load(path: &Path) -> Result<Borrowed, Error> {
        let Some(bytes) = read_small(path, 1 << 30)? else { return Ok(Borrowed::default()) };
        let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
            return Ok(Borrowed::default());
        };
        let source = PathBuf::from(std::ffi::OsString::from_vec(bytes[..end].to_vec()));
        let ids = bytes[end + 1..].chunks_exact(20).filter_map(ObjectId::from_slice).collect();
        Ok(Borrowed { source, ids })
    }
}

/// Returns whether a store borrows from an existing directory that no list names.
///
/// Another process that stops borrowing removes the line first and the list afterwards. So an
/// unknown line counts only if it is still there after the lists were read.
pub(super) fn has_unknown_alternate(git_dir: &Path) -> Result<bool, Error> {
    let unknown = unknown_alternates(git_dir)?;
    Ok(!unknown.is_empty()
        && alternates_in(git_dir)?.iter().any(|alternate| unknown.contains(alternate)))
}

/// Returns the lines of `alternates` that name an existing directory and are in no list.
fn unknown_alternates(git_dir: &Path) -> Result<BTreeSet<Vec<u8>>, Error> {
    let mut alternates = alternates_in(git_dir)?;
    // Lines of projects that were moved name no existing directory and are harmless.
    alternates.retain(|path| git_dir.join("objects").join(OsStr::from_bytes(path)).is_dir());
    if alternates.is_empty() {
        return Ok(alternates);
    }
    let lists = std::fs::read_dir(git_dir.join("ctrlz").join("wt")).into_iter().flatten().flatten();
    for list in lists {
        let known = Borrowed::load(&list.path().join("borrowed"))?.source;
        alternates.remove(known.as_os_str().as_bytes());
    }
    Ok(alternates)
}

/// Returns the lines of `alternates`.
pub(super) fn alternates_in(git_dir: &Path) -> Result<BTreeSet<Vec<u8>>, Error> {
    let text = read_small(&alternates_path(git_dir), 1 << 20)?.unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(<[u8]>::to_vec).collect())
}

pub(super) fn alternates_path(git_dir: &Path) -> PathBuf {
    git_dir.join("objects").join("info").join("alternates")
}
