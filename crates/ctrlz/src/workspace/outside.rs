//! Captures of paths outside of the work tree.

use crate::fs::absolute;
use crate::hold::Hold;
use crate::log::WorkTree;
use crate::outside::Outside;
use crate::store::Store;

use super::Workspace;

impl Workspace {
    /// Returns the captures of this work tree. They omit the work tree itself and ctrlz's own
    /// files.
    pub(crate) fn outside<'a>(&self, store: &'a Store, work_tree: &'a WorkTree) -> Outside<'a> {
        let own = [absolute(&self.context.options.data_dir), absolute(store.path())];
        Outside {
            store,
            work_tree,
            omit: std::iter::once(self.context.root.clone()).chain(own).collect(),
            min_free_bytes: self.context.options.min_free_bytes,
            threads: self.context.options.threads,
            only_originals: self.needs_trust(store.path()),
        }
    }

    pub(crate) fn outside_of<'a>(&self, hold: &'a Hold) -> Outside<'a> {
        self.outside(&hold.store, &hold.work_tree)
    }
}
