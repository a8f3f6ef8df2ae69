//! One work tree's part of a store: its lock, its cache, its log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::fs::Named;
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
    id: String,
    dir: PathBuf,
    ref_name: String,
}

impl WorkTree {
    /// The part of `store` that belongs to the directory `root`.
    pub(crate) fn of(store: &Store, root: &Path) -> WorkTree {
        let id = path_hash(root)[..16].to_owned();
        let ref_name = format!("{}/{id}/log", store.ref_prefix());
        WorkTree { dir: store.work_tree_dir(&id), ref_name, id }
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

    /// Takes the lock, and clears away what a killed holder left.
    pub(crate) fn lock(&self, store: &Store, patience: Duration) -> Result<Lock, Error> {
        let lock = Lock::take(&self.dir.join("lock"), Sharing::Exclusive, patience)?;
        private::sweep(&self.dir)?;
        store.refs.clear_own_lock(&self.ref_name, &self.scratch())?;
        Ok(lock)
    }

    /// Where a ref's new value is written before it takes the ref's name.
    fn scratch(&self) -> PathBuf {
        self.dir.join("ref.new")
    }

    pub(crate) fn cache_path(&self) -> PathBuf {
        self.dir.join("stat")
    }

    /// Makes the next scan read every file.
    pub(crate) fn forget_cache(&self) -> Result<(), Error> {
        let path = self.cache_path();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Ok(Err(error).named("remove", &path)?)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn journal_path(&self) -> PathBuf {
        self.dir.join("restore.journal")
    }

    pub(crate) fn steps_path(&self) -> PathBuf {
        self.dir.join("steps")
    }

    pub(crate) fn borrowed_path(&self) -> PathBuf {
        self.dir.join("borrowed")
    }

    pub(crate) fn ref_name(&self) -> &str {
        &self.ref_name
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The newest operation, as the ref says.
    pub(crate) fn last(&self, store: &Store) -> Result<Option<Operation>, Error> {
        match store.refs.read(&self.ref_name)? {
            Some(head) => log::read(&store.objects, &head).map(Some),
            None => Ok(None),
        }
    }

    /// The newest operation; if the ref or its commit is lost, the newest that can still be read,
    /// which the ref then names again.
    ///
    /// The caller holds the work tree's lock.
    pub(crate) fn last_or_salvaged(&self, store: &Store) -> Result<Option<Operation>, Error> {
        match self.last(store) {
            Ok(Some(last)) => return Ok(Some(last)),
            // There never was a log.
            Ok(None) if !self.marker().exists() => return Ok(None),
            Ok(None) | Err(Error::Damaged { .. } | Error::HostileTree { .. }) => (),
            Err(error) => return Err(error),
        }
        if let Some(lost) = store.refs.read(&self.ref_name)? {
            // Kept for whoever finds the missing pack again; git must not trip over it.
            let note = self.dir.join(format!("lost-{}", log::new_id()));
            private::replace(&note, format!("{lost}\n").as_bytes(), Durable::Yes)?;
        }
        let Some(head) = log::salvage(&store.objects, &self.id)? else { return Ok(None) };
        self.point_at(store, &head)?;
        log::read(&store.objects, &head).map(Some)
    }

    /// Exists once there is a log, so that a lost ref is told from a first snapshot.
    fn marker(&self) -> PathBuf {
        self.dir.join("logged")
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
        if operation.parent.is_none() {
            private::replace(&self.marker(), b"", Durable::Yes)?;
        }
        store.objects.refresh()?;
        Ok((operation, published))
    }

    fn point_at(&self, store: &Store, commit: &ObjectId) -> Result<(), Error> {
        store.refs.write(&self.ref_name, commit, &self.scratch())
    }
}
