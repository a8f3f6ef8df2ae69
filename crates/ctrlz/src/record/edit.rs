//! Changes to single paths of a snapshot.

use std::collections::BTreeMap;

use crate::fs::MODE_BITS;
use crate::log::{Meta, Operation};
use crate::path::{PathText, join};
use crate::scan::{Content, Listing, ReadOutcome, SkipReason, Skipped};
use crate::store::TreeChange;

/// Changes to the previous snapshot.
pub(super) struct Edit {
    pub(super) changes: BTreeMap<Vec<u8>, TreeChange>,
    pub(super) meta: Meta,
    /// The number of files that were read one by one.
    pub(super) read: u64,
}

impl Edit {
    /// Returns no changes to a snapshot.
    pub(super) fn of(last: &Operation) -> Edit {
        Edit { changes: BTreeMap::new(), meta: last.meta.clone(), read: 0 }
    }

    /// Forgets the metadata of all paths that are gone or rescanned.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&[u8]) -> bool) {
        let Meta { skipped, modes, empty_dirs, rules, .. } = &mut self.meta;
        skipped.retain(|skipped| !is_gone(&skipped.path));
        modes.retain(|(path, _)| !is_gone(&path.clone().into_bytes()));
        empty_dirs.retain(|dir| !is_gone(dir.as_bytes()));
        rules.hidden.retain(|(path, _)| !is_gone(&path.clone().into_bytes()));
    }

    pub(super) fn take_file(&mut self, path: &[u8], outcome: ReadOutcome) {
        match outcome {
            ReadOutcome::Read { stat, id, .. } => {
                self.read += 1;
                let Some(kind) = crate::compare::entry_kind(&stat) else { return };
                self.changes.insert(path.to_vec(), Some((kind, id)));
                let mode = stat.mode & MODE_BITS;
                if kind.is_file() && mode != self.meta.common.of_file(mode) {
                    self.meta.modes.push((PathText::from_bytes(path), mode));
                }
            }
            ReadOutcome::Gone => (),
            ReadOutcome::Skip(reason) => self.skip(path, reason),
        }
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason) {
        self.meta.skipped.push(Skipped { path: path.to_vec(), reason });
    }

    pub(super) fn take_listing(&mut self, listing: &Listing) {
        let outer = self.meta.rules.with_hidden(Vec::new());
        let part = Meta::of_listing_with(listing, &outer, self.meta.common);
        self.meta.skipped.extend(part.skipped);
        self.meta.modes.extend(part.modes);
        self.meta.empty_dirs.extend(part.empty_dirs);
        self.meta.rules.hidden.extend(part.rules.hidden);
        self.meta.empty_dirs.sort_unstable();
        for dir in &listing.dirs {
            for entry in &dir.entries {
                if let Content::Known(id) = entry.content
                    && let Some(kind) = crate::compare::entry_kind(&entry.stat)
                {
                    self.changes.insert(join(&dir.path, &entry.name), Some((kind, id)));
                }
            }
        }
    }
}
