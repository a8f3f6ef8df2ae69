//! The ignored files that are kept beside a snapshot, compared with the last one.

use std::collections::BTreeMap;

use crate::compare::find;
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::IgnoredSnapshot;
use crate::path::{PathText, TreePath};
use crate::store::TreeChange;

/// The ignored files that are kept beside a snapshot.
#[derive(Default)]
pub(super) struct Kept {
    /// The new ignored snapshot, if it differs from the last one.
    pub(super) new: Option<IgnoredSnapshot>,
    /// The last ignored snapshot, if it is unchanged.
    pub(super) same: Option<ObjectId>,
    /// The content of every kept file.
    pub(super) paths: BTreeMap<Vec<u8>, TreeChange>,
    /// The tree of the last ignored snapshot.
    pub(super) before: Option<ObjectId>,
    /// Files whose permissions changed.
    pub(super) other_modes: Vec<PathText>,
}

impl Kept {
    /// Returns the ignored files among a step's paths that changed. A directory counts if a file in
    /// it is kept.
    pub(super) fn among(&self, hold: &Hold, paths: &[TreePath]) -> Vec<TreePath> {
        let differs = |path: &&TreePath| {
            let found = self.before.map(|tree| find(&hold.store.objects, &tree, path));
            // A directory that was named has no content of its own.
            let found = found.and_then(Result::ok).flatten().filter(|entry| !entry.kind.is_tree());
            let was = found.map(|entry| (entry.kind, entry.id));
            let now = self.paths.get(path.as_bytes()).copied().flatten();
            was != now || self.other_modes.contains(&PathText::from_bytes(path.as_bytes()))
        };
        paths.iter().filter(differs).cloned().collect()
    }

    /// Returns the kept files that changed.
    pub(super) fn changed(&self, hold: &Hold) -> Vec<TreePath> {
        let before = self.before.unwrap_or(ObjectId::EMPTY_TREE);
        let is_same = |path: &TreePath, now: &TreeChange| {
            let was = find(&hold.store.objects, &before, path).ok().flatten();
            was.map(|entry| (entry.kind, entry.id)) == *now
        };
        let paths = self.paths.iter();
        let paths = paths.filter_map(|(path, now)| Some((TreePath::parse(path).ok()?, now)));
        paths.filter(|(path, now)| !is_same(path, now)).map(|(path, _)| path).collect()
    }
}
