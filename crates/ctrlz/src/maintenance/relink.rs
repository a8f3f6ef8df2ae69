//! Relinking: reconnects a moved directory with its history.
//!
//! Nothing in a store is renamed. The registry maps a path to a store and a log in it, so moving a
//! history means replacing one small file atomically.

use std::path::{Path, PathBuf};

use crate::error::{Error, ExchangeError};
use crate::fs::absolute;
use crate::log::WorkTree;
use crate::options::Options;
use crate::store::Store;
use crate::workspace::Workspace;

/// Result of [`relink`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relinked {
    /// Path at which the history was recorded.
    pub from: PathBuf,
    /// Directory that owns the history now.
    pub root: PathBuf,
    /// Whether the directory already owned the history.
    pub already: bool,
    /// Newest snapshot of the history.
    pub snapshot: Option<crate::ObjectId>,
    /// Log of the operations recorded at the new path before, if any. Its snapshots are kept.
    pub set_aside: Option<String>,
}

/// Assigns the history that was recorded at the path `old` to the directory `new`.
///
/// `old` need not exist. If the directory is still there, it keeps its history, and this function
/// returns an error. If `old` and `new` are the same, `new` takes over the history of the directory
/// that was at this path before.
pub fn relink(old: &Path, new: &Path, options: Options) -> Result<Relinked, Error> {
    let workspace = Workspace::open(new, options)?;
    let old = absolute(old);
    let registry = workspace.registry();
    let nothing = || Error::no_history(&old);
    let (from, claim) = registry.history_of(&old)?.ok_or_else(nothing)?;
    let root = workspace.root().to_owned();
    let own = workspace.claimed()?;
    if from != root && registry.is_in_use(&from, &claim)? {
        return Err(Error::Exchange(ExchangeError::StillThere { path: from }));
    }
    let already = own.as_ref().is_some_and(|own| own.is_of(&claim));
    let mut set_aside = None;
    if !already {
        if let Some((store, work_tree)) = workspace.existing()?
            && work_tree.last(&store)?.is_some()
        {
            set_aside = Some(work_tree.id().to_owned());
        }
        // Locked, so that no other process uses the history while it is reassigned.
        let _lock = lock(&workspace, &claim)?;
        workspace.take_over(&from, &claim)?;
    }
    let snapshot = match workspace.existing()? {
        Some((store, work_tree)) => work_tree.last(&store)?.map(|last| last.snapshot),
        None => None,
    };
    Ok(Relinked { from, root, already, snapshot, set_aside })
}

fn lock(
    workspace: &Workspace,
    claim: &crate::store::Claim,
) -> Result<Option<crate::store::Lock>, Error> {
    let options = workspace.options();
    let Some(store) = Store::open(&workspace.store_of(claim), &options.ref_prefix)? else {
        return Ok(None);
    };
    let work_tree = WorkTree::named(&store, &claim.work_tree);
    if work_tree.has_dir() { work_tree.lock(&store, options.patience).map(Some) } else { Ok(None) }
}
