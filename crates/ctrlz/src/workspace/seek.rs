//! Searches the work tree and the user's repository for content that the store has lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use crate::error::Error;
use crate::fs::Dir;
use crate::git::{Kind, ObjectId, hash_object};
use crate::pack::{Objects, PackWriter};
use crate::scan::{Keep, LargeProblem, ListInput, Progress, StatCache, list, read_listing};
use crate::store::{Store, build_tree};

use super::Workspace;
use crate::record::{capture, look};

/// Lost objects, and the paths they had.
pub(crate) struct Wanted<'a> {
    pub(crate) ids: BTreeSet<ObjectId>,
    pub(crate) paths: &'a BTreeMap<ObjectId, BTreeSet<Vec<u8>>>,
}

impl Wanted<'_> {
    fn is_found(&self, pack: &PackWriter) -> bool {
        self.ids.iter().all(|id| pack.has(id))
    }
}

/// Stores the wanted objects and discards all others.
struct Finder<'a> {
    wanted: &'a BTreeSet<ObjectId>,
    pack: &'a PackWriter,
}

impl Keep for Finder<'_> {
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error> {
        match hash_object(Kind::Blob, bytes) {
            Some(id) if self.wanted.contains(&id) => self.pack.add(Kind::Blob, bytes, |_| false),
            other => Ok(other),
        }
    }

    fn large(&self, bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem> {
        self.pack.add_large(bytes, source, |id| !self.wanted.contains(id))
    }

    fn has(&self, _: &ObjectId) -> bool {
        false
    }
}

impl Workspace {
    /// Adds to `pack` the wanted objects that still exist. Searches the user's repository, then
    /// their former paths, then the whole work tree. Finds trees too, if a directory is unchanged.
    pub(crate) fn seek(
        &self,
        store: &Store,
        wanted: &Wanted<'_>,
        pack: &PackWriter,
        progress: &Progress,
    ) -> Result<(), Error> {
        self.seek_in_repository(wanted, pack)?;
        let root = Dir::open(&self.context.root)?;
        let finder = Finder { wanted: &wanted.ids, pack };
        let lost = |id: &&ObjectId| wanted.ids.contains(id) && !pack.has(id);
        for id in wanted.paths.keys().filter(lost) {
            for path in wanted.paths[id].iter().filter(|path| !path.is_empty()) {
                // Errors are ignored: an unreadable path does not help, but the search continues.
                if let Ok(Some(kind)) = look(&root, path) {
                    drop(capture(&root, path, kind, &finder));
                }
            }
        }
        if wanted.is_found(pack) {
            return Ok(());
        }
        let cache = StatCache::default();
        let input = self.context.list_input(store, &root, &cache)?;
        let index = match &self.context.repo {
            Some(repo) => repo.index()?.0,
            None => None,
        };
        let input = ListInput { index: index.as_ref(), rehash: true, ..input };
        let mut listing = list(&root, &input, &finder, progress)?;
        read_listing(&root, &mut listing, &finder, input.threads, progress)?;
        build_tree(
            &mut listing,
            pack,
            &|id| !wanted.ids.contains(id),
            self.context.options.threads,
        )?;
        Ok(())
    }

    fn seek_in_repository(&self, wanted: &Wanted<'_>, pack: &PackWriter) -> Result<(), Error> {
        let Some(repo) = &self.context.repo else { return Ok(()) };
        let Ok(objects) = Objects::open(&repo.objects_dir()) else { return Ok(()) };
        for id in wanted.ids.iter().filter(|id| !pack.has(id)) {
            if let Ok(Some((kind, bytes))) = objects.read_known(id) {
                pack.add(kind, &bytes, |_| false)?;
            }
        }
        Ok(())
    }
}
