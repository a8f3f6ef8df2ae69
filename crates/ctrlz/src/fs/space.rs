//! Free space on disks.

use std::path::Path;

use crate::error::{Error, RecordError};

use super::free_bytes;

/// Fails if the file system of `path` has fewer free bytes than needed. `needed` is called with the
/// number of free bytes.
pub(crate) fn check_free(path: &Path, needed: impl FnOnce(u64) -> u64) -> Result<(), Error> {
    let free_bytes = free_bytes(path)?;
    let needed_bytes = needed(free_bytes);
    if needed_bytes > free_bytes {
        let path = path.to_owned();
        return Err(RecordError::NoSpace { path, needed_bytes, free_bytes }.into());
    }
    Ok(())
}
