//! One work tree's part of a store: its lock, its cache, its log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;

use super::layout::Store;
use super::lock::{Lock, Sharing};
use super::log::{self, NewOperation, Operation};
use super::pack_writer::{PackWriter, Published};
use super::project::path_hash;

/// The files and refs that belong to one work tree.
#[derive(Debug)]
pub(crate) struct WorkTree {
    dir: PathBuf,
    ref_name: String,
}

impl WorkTree {
    /// The part of `store` that belongs to the directory `root`.
    pub(crate) fn of(store: &Store, root: &Path) -> WorkTree {
        let id = path_hash(root)[..16].to_owned();
        let ref_name = format!("{}/{id}/log", store.ref_prefix());
        WorkTree { dir: store.work_tree_dir(&id), ref_name }
    }

    /// Makes its directory, and records which path it is for.
    pub(crate) fn create(&self, root: &Path) -> Result<(), Error> {
        private::create_dirs(&self.dir)?;
        let record = self.dir.join("path");
        if !record.exists() {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
            private::replace(&record, bytes, Durable::Yes)?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self, patience: Duration) -> Result<Lock, Error> {
        Lock::take(&self.dir.join("lock"), Sharing::Exclusive, patience)
    }

    pub(crate) fn cache_path(&self) -> PathBuf {
        self.dir.join("stat")
    }

    pub(crate) fn journal_path(&self) -> PathBuf {
        self.dir.join("restore.journal")
    }

    pub(crate) fn borrowed_path(&self) -> PathBuf {
        self.dir.join("borrowed")
    }

    pub(crate) fn ref_name(&self) -> &str {
        &self.ref_name
    }

    /// The newest operation.
    pub(crate) fn last(&self, store: &Store) -> Result<Option<Operation>, Error> {
        match store.refs.read(&self.ref_name)? {
            Some(head) => log::read(&store.objects, &head).map(Some),
            None => Ok(None),
        }
    }

    /// Appends an operation: its objects become durable, then visible, then the log names it.
    ///
    /// The caller holds the work tree's lock and the store's.
    pub(crate) fn append(
        &self,
        store: &Store,
        pack: PackWriter,
        new: NewOperation,
    ) -> Result<(Operation, Published), Error> {
        let operation = log::write(&pack, new, &|id| store.objects.holds(id))?;
        let published = pack.publish()?;
        self.point_at(store, &operation.commit)?;
        store.objects.refresh()?;
        Ok((operation, published))
    }

    fn point_at(&self, store: &Store, commit: &ObjectId) -> Result<(), Error> {
        store.refs.write(&self.ref_name, commit, &self.dir.join("ref.new"))
    }
}
