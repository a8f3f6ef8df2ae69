//! Notes on where a log was pulled or imported from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable};

use super::work_tree::WorkTree;

/// Source of a log that was pulled or imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) from: String,
    /// Work trees that it was pulled or imported into; empty if an earlier version recorded it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) into: BTreeSet<String>,
}

impl Source {
    pub(crate) fn of(work_tree: &WorkTree) -> Option<Source> {
        private::load_json(&work_tree.source_path(), 1 << 16).ok()?
    }

    /// Returns whether the log was pulled or imported into a work tree. Without a record, that may
    /// have been any work tree of the store.
    pub(crate) fn is_for(&self, work_tree: &str) -> bool {
        self.into.is_empty() || self.into.contains(work_tree)
    }

    /// Records that a log was pulled or imported `from` somewhere into the work tree `into`. The
    /// caller holds the lock of the log.
    pub(crate) fn note(log: &WorkTree, from: &str, into: &str) -> Result<(), Error> {
        let known = Source::of(log);
        // An earlier version did not record the work trees. None of them may lose the log.
        let is_for_all = known.as_ref().is_some_and(|known| known.into.is_empty());
        let mut note = Source { from: from.to_owned(), ..known.unwrap_or_default() };
        if !is_for_all {
            note.into.insert(into.to_owned());
        }
        Ok(private::save_json(&log.source_path(), &note, Durable::Yes)?)
    }
}
