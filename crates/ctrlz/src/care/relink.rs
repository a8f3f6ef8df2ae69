//! Relinking: a directory that was moved gets its history back.
//!
//! Nothing in a store is renamed. The registry says which part of which store belongs to a path,
//! so handing a history over is one small file, replaced in one step.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::Error;
use crate::hold::absolute;
use crate::log::WorkTree;
use crate::options::Options;
use crate::store::Store;
use crate::workspace::Workspace;

/// A directory that has its history again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Relinked {
    /// Where the history was recorded.
    pub from: PathBuf,
    /// Whose it is now.
    pub root: PathBuf,
    /// Whether it was this directory's already.
    pub already: bool,
    /// The newest snapshot of the history.
    pub snapshot: Option<crate::ObjectId>,
    /// The log of what was recorded at the new path before, if anything was. Its snapshots stay.
    pub set_aside: Option<String>,
}

/// Makes the history that was recorded at the path `old` that of the directory `new`.
///
/// `old` need not exist. If the directory is still there the history stays with it, and this is
/// an error. With `old` and `new` the same, the history of a directory that was at this path
/// before is taken over.
pub fn relink(old: &Path, new: &Path, options: Options) -> Result<Relinked, Error> {
    let workspace = Workspace::open(new, options)?;
    let old = absolute(old);
    let registry = workspace.registry();
    let nothing = || Error::NoHistory { path: old.clone() };
    let (from, claim) = registry.history_of(&old)?.ok_or_else(nothing)?;
    let root = workspace.root().to_owned();
    let own = workspace.claimed()?;
    if from != root && registry.is_in_use(&from, &claim)? {
        return Err(Error::StillThere { path: from });
    }
    let already = own.as_ref().is_some_and(|own| own.is_of(&claim));
    let mut set_aside = None;
    if !already {
        if let Some((store, work_tree)) = workspace.existing()?
            && work_tree.last(&store)?.is_some()
        {
            set_aside = Some(work_tree.id().to_owned());
        }
        // Nobody may be at work on the history while it changes hands.
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
    match work_tree.has_dir() {
        true => work_tree.lock(&store, options.patience).map(Some),
        false => Ok(None),
    }
}
