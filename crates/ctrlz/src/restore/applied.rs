//! The directory that a plan is applied to, and the results of applying it.

use std::path::Path;

use crate::error::Error;
use crate::fs::Dir;
use crate::scan::Placed;

/// Directory that a plan is applied to.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) root: &'a Dir,
    /// Path of the journal.
    pub(crate) journal: &'a Path,
    pub(crate) threads: usize,
    pub(crate) rescue: Rescue<'a>,
}

/// Results of applying a plan, beyond the planned actions.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Replaced files, by temporary name, and directories that could not be removed.
    pub(crate) left: Vec<Vec<u8>>,
    /// Paths that are left alone, because another process changed them between a crash and its
    /// recovery or because of an error.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Files whose content is known without reading them.
    pub(crate) placed: Placed,
    /// Files whose set-user-id or set-group-id bit could not be set.
    pub(crate) without_special_bits: Vec<Vec<u8>>,
}

/// Saves a file that is in no snapshot yet. The arguments are a directory, the name in it, and the
/// path that the file belongs to.
pub(crate) type Rescue<'a> = &'a dyn Fn(&Dir, &[u8], &[u8]) -> Result<(), Error>;
