//! Removes the text of private ignore lists from operations of earlier versions, which recorded it.

use std::collections::HashSet;

use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{Operation, Rewritten, WorkTree, read_operation};
use crate::store::Store;

use super::Maintenance;
use super::rewrite::{Editor, Fate, rewrite};

impl Maintenance<'_> {
    /// Rewrites the operations of this work tree that contain the text of private ignore lists, so
    /// that they record the hash instead. Ids and snapshots stay the same; commits change.
    ///
    /// Called before a push or an export. Does nothing for a log written by this version.
    pub(crate) fn withhold_private_lists(&self) -> Result<(), Error> {
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(()) };
        if operations_with_texts(&store, &work_tree)?.is_empty() {
            return Ok(());
        }
        drop(store);
        let Some(site) = self.begin_rewrite()? else { return Ok(()) };
        let store = &site.store;
        let commits = operations_with_texts(store, &work_tree)?;
        let mut withholder = Withholder { store, commits };
        rewrite(store, site.roots.iter().copied(), &mut withholder)?.publish()?;
        Ok(())
    }
}

/// Returns the commits to be sent by a push that contain the text of private ignore lists.
fn operations_with_texts(store: &Store, work_tree: &WorkTree) -> Result<HashSet<ObjectId>, Error> {
    let own = store.exclude()?;
    let mut found = HashSet::new();
    let mut seen = HashSet::new();
    let mut work: Vec<ObjectId> =
        work_tree.own_refs(store)?.into_iter().map(|(_, id)| id).collect();
    while let Some(commit) = work.pop() {
        // Unreadable operations cannot be sent either.
        let Some(operation) = Some(commit)
            .filter(|commit| seen.insert(*commit))
            .and_then(|commit| read_operation(&store.objects, &commit).ok())
        else {
            continue;
        };
        if operation.meta.rules.holds_texts(&own) {
            found.insert(commit);
        }
        work.extend(operation.parent_in_segment());
    }
    Ok(found)
}

struct Withholder<'a> {
    store: &'a Store,
    commits: HashSet<ObjectId>,
}

impl Editor for Withholder<'_> {
    fn operation(&mut self, operation: &Operation) -> Result<Fate, Error> {
        if !self.commits.contains(&operation.commit) {
            return Ok(Fate::Keep);
        }
        let mut meta = operation.meta.clone();
        meta.rules.withhold_texts(self.store)?;
        self.store.keep_private_lists(&meta.rules)?;
        let new = Rewritten { meta: Some(meta), ..Rewritten::with_snapshot(operation.snapshot) };
        Ok(Fate::Change(Box::new(new)))
    }
}
