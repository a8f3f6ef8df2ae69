//! Access to the store during a scan.

use std::io::Read;

use crate::compare::Trees;
use crate::error::Error;
use crate::git::{Kind, ObjectId, hash_object};
use crate::log::WorkTree;
use crate::pack::PackWriter;
use crate::path::TreePath;
use crate::scan::{Keep, LargeProblem, hash_large};
use crate::store::{BorrowSource, Store};

/// The store, as the target of a scan.
pub(crate) struct StoreKeep<'a> {
    pub(crate) store: &'a Store,
    pub(crate) pack: &'a PackWriter,
    pub(crate) source: Option<&'a BorrowSource>,
    /// Decides which files are new. Without it, no file is.
    pub(crate) log: Option<&'a WorkTree>,
    /// Whether objects are missing, so that cached ids prove nothing.
    pub(crate) doubt: bool,
    /// Whether all files are read again and compared with the store.
    pub(crate) rehash: bool,
}

impl<'a> StoreKeep<'a> {
    /// Returns a store for files that are read regardless of the cache.
    pub(crate) fn new(store: &'a Store, pack: &'a PackWriter) -> StoreKeep<'a> {
        StoreKeep { store, pack, source: None, log: None, doubt: true, rehash: false }
    }

    /// Returns whether a snapshot in the log has a file at `path`.
    fn is_in_log(&self, log: &WorkTree, path: &TreePath) -> Result<bool, Error> {
        let trees = Trees::new(&self.store.objects);
        let mut last = None;
        for entry in log.index(self.store)? {
            let entry = entry?;
            if last.replace(entry.snapshot) == Some(entry.snapshot) {
                continue;
            }
            let found = trees.find(&entry.snapshot, path)?;
            if found.is_some_and(|found| !found.kind.is_tree()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Keep for StoreKeep<'_> {
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error> {
        self.pack.add(Kind::Blob, bytes, |id| {
            if self.rehash {
                // A rehash also replaces damaged objects.
                self.store.objects.holds_intact(id)
            } else {
                self.store.objects.holds(id)
            }
        })
    }

    fn large(&self, bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem> {
        self.pack.add_large(bytes, source, |id| self.store.objects.holds(id))
    }

    fn clone_of(&self, file: &std::fs::File) -> Option<std::fs::File> {
        crate::fs::private::clone_into(&self.store.objects_dir(), file)
    }

    fn has(&self, id: &ObjectId) -> bool {
        !self.doubt || self.store.objects.holds(id)
    }

    fn borrow(&self, id: &ObjectId, bytes: u64) -> bool {
        self.source.is_some_and(|source| source.borrow_blob(id, bytes))
    }

    fn held_before(&self, path: &[u8]) -> bool {
        let path = TreePath::from_scan(path.to_vec());
        // If the log is unreadable, the file counts as new, so that it is skipped and reported.
        self.log.is_some_and(|log| self.is_in_log(log, &path).unwrap_or(false))
    }
}

/// Hashes files without storing them.
pub(crate) struct HashOnly;

impl Keep for HashOnly {
    fn blob(&self, bytes: &[u8]) -> Result<Option<ObjectId>, Error> {
        Ok(hash_object(Kind::Blob, bytes))
    }

    fn large(&self, bytes: u64, source: &mut dyn Read) -> Result<ObjectId, LargeProblem> {
        hash_large(bytes, source)
    }

    fn has(&self, _: &ObjectId) -> bool {
        true
    }
}
