//! Single files of the work tree, without following links.

use crate::error::Error;
use crate::fs::{Dir, FileKind};
use crate::path::split;
use crate::scan::{Keep, ReadOutcome, read_entry};

/// Returns the kind of the file at `path`.
pub(crate) fn look(root: &Dir, path: &[u8]) -> Result<Option<FileKind>, Error> {
    let (parent, name) = split(path);
    match root.open_below(parent) {
        Ok(dir) => Ok(dir.stat(name)?.map(|stat| stat.kind)),
        // Its directory does not exist.
        Err(error)
            if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory]
                .contains(&error.kind())
                || rustix::io::Errno::from_io_error(&error.source)
                    == Some(rustix::io::Errno::LOOP) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads one file or link, regardless of its size and the rules.
pub(crate) fn capture(
    root: &Dir,
    path: &[u8],
    kind: FileKind,
    keep: &dyn Keep,
) -> Result<ReadOutcome, Error> {
    let (parent, name) = split(path);
    let dir = root.open_below(parent)?;
    read_entry(&dir, name, kind, keep)
}
