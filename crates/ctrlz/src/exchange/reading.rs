//! Checks that a snapshot belongs to a work tree, when several work trees share one store.

use crate::error::{Error, LookupError};
use crate::git::ObjectId;
use crate::log::{LogEntry, Source, WorkTree, read_operation};
use crate::store::Store;
use crate::workspace::Workspace;

impl Workspace {
    /// Checks that `hash` is a snapshot of this work tree.
    ///
    /// Its snapshots are those in its own log, in the logs of its forks, and in the logs that were
    /// pulled or imported into it. All other objects of the store are reported as unknown, like
    /// hashes that do not exist: other work trees may share the store, and it also holds private
    /// ignored files. For a purged snapshot the error names the replacement, if it belongs to this
    /// work tree.
    pub fn check_own_snapshot(&self, hash: &ObjectId) -> Result<(), Error> {
        let unknown = || Error::Lookup(LookupError::UnknownSnapshot { id: *hash });
        if *hash == ObjectId::EMPTY_TREE {
            return Ok(());
        }
        let (store, work_tree) = self.existing()?.ok_or_else(unknown)?;
        if is_recorded(&store, work_tree.id(), hash)? {
            return Ok(());
        }
        let replacement = match store.purged()?.get(&hash.to_string()) {
            Some(replacement) => replacement.parse()?,
            None => return Err(unknown()),
        };
        if is_recorded(&store, work_tree.id(), &replacement)? {
            Err(Error::Lookup(LookupError::Purged { id: *hash, replacement }))
        } else {
            Err(unknown())
        }
    }
}

/// Returns whether a snapshot is in the log `own`, in one pulled or imported into it, or in a fork.
fn is_recorded(store: &Store, own: &str, hash: &ObjectId) -> Result<bool, Error> {
    if log_has(store, own, hash)? {
        return Ok(true);
    }
    let mut others = store.logs()?;
    others.retain(|log| log != own);
    // Logs whose forks and imports have not been searched for yet.
    let mut parents = vec![own.to_owned()];
    while let Some(parent) = parents.pop() {
        let belongs = |log: &String| {
            Source::of(&WorkTree::named(store, log)).is_some_and(|from| from.is_for(&parent))
                || is_fork(store, log, &parent)
        };
        let (found, rest): (Vec<String>, Vec<String>) = others.into_iter().partition(belongs);
        for log in found {
            if log_has(store, &log, hash)? {
                return Ok(true);
            }
            parents.push(log);
        }
        others = rest;
    }
    Ok(false)
}

/// Returns whether a log has a snapshot. Unreadable parts of the log are not searched.
fn log_has(store: &Store, log: &str, hash: &ObjectId) -> Result<bool, Error> {
    if any_entry(store, log, |entry| entry.snapshot == *hash) {
        return Ok(true);
    }
    // Checkpoints outlive their segments.
    let commits = WorkTree::named(store, log).checkpoint_refs(store)?.into_iter();
    let mut kept = commits.filter_map(|(_, commit)| read_operation(&store.objects, &commit).ok());
    Ok(kept.any(|operation| operation.snapshot == *hash))
}

/// Returns whether a log records a session forked from the log `parent` into its own directory.
fn is_fork(store: &Store, log: &str, parent: &str) -> bool {
    let from = |entry: &LogEntry| entry.details.forked.as_ref()?.log.clone();
    any_entry(store, log, |entry| from(entry).is_some_and(|from| from == parent))
}

/// Returns whether any entry of a log satisfies `test`. An unreadable entry ends the search.
fn any_entry(store: &Store, log: &str, test: impl Fn(&LogEntry) -> bool) -> bool {
    let work_tree = WorkTree::named(store, log);
    let Ok(Some(head)) = store.refs.read(work_tree.ref_name()) else { return false };
    match work_tree.index(store) {
        Ok(index) => index.map_while(Result::ok).any(|entry| test(&entry)),
        // The index of a damaged log cannot be built, but its newest part can still be read.
        Err(_) => {
            let mut operations = store.history(log, head).map_while(Result::ok);
            operations.any(|operation| test(&LogEntry::from(&operation)))
        }
    }
}
