//! Removal of a whole store, on request, when the only session that used it ends.

use crate::error::{Error, StoreError};
use crate::fs::{disk_use, private};
use crate::log::WorkTree;
use crate::store::{Lock, Sharing, Store};

use super::Maintenance;
use super::retention::released;

impl Maintenance<'_> {
    /// Removes the store and all its snapshots permanently. Returns the number of bytes it used.
    ///
    /// Fails with [`StoreError::StoreInUse`] if the store is still needed by another existing work
    /// tree or by a session that was not released.
    pub fn remove_store(&self) -> Result<u64, Error> {
        let Some((store, work_tree)) = self.0.existing()? else { return Ok(0) };
        // Recovers from a killed command first, while the content it needs still exists.
        drop(self.0.begin()?);
        self.0.watcher().stop()?;
        let patience = self.0.options().patience;
        let _caring = Lock::take(&store.care_lock_path(), Sharing::Exclusive, patience)?;
        let _ours = work_tree.lock(&store, patience)?;
        let _alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
        if let Some(by) = self.other_user(&store, &work_tree)? {
            return Err(Error::Store(StoreError::StoreInUse { path: store.path().to_owned(), by }));
        }
        let bytes = disk_use(store.path())?;
        private::retire_dir(store.path())?;
        Ok(bytes)
    }

    /// Returns another work tree or session that needs the store.
    fn other_user(&self, store: &Store, work_tree: &WorkTree) -> Result<Option<String>, Error> {
        for other in store.work_trees()? {
            let root = other.root()?.filter(|root| root != self.0.root());
            if let Some(root) = root.filter(|root| root.is_dir()) {
                return Ok(Some(root.display().to_string()));
            }
        }
        let released = released(work_tree)?;
        let sessions = self.0.sessions(None)?.into_iter().map(|session| session.session);
        let mut others = sessions.filter(|session| !released.contains(session));
        Ok(others.next().map(|session| format!("session {session}")))
    }
}
