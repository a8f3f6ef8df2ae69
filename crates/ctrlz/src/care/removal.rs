//! Removing a whole store: at the end of the only session that used it, when asked.

use crate::error::Error;
use crate::fs::{disk_use, private};
use crate::log::WorkTree;
use crate::store::{Lock, Sharing, Store};
use crate::workspace::Workspace;

use super::retention::released;

impl Workspace {
    /// Removes the store with every snapshot in it, for good; gives the bytes it took.
    ///
    /// Refused while it is somebody else's too: of another work tree that is still there, or of a
    /// session that was not released.
    pub fn remove_store(&self) -> Result<u64, Error> {
        let Some((store, work_tree)) = self.existing()? else { return Ok(0) };
        // What a killed command left is finished as long as its content is there.
        drop(self.begin()?);
        self.stop_watcher()?;
        let patience = self.options().patience;
        let _caring = Lock::take(&store.care_lock_path(), Sharing::Exclusive, patience)?;
        let _ours = work_tree.lock(&store, patience)?;
        let _alone = Lock::take(&store.lock_path(), Sharing::Exclusive, patience)?;
        if let Some(by) = self.other_user(&store, &work_tree)? {
            return Err(Error::StoreInUse { path: store.path().to_owned(), by });
        }
        let bytes = disk_use(store.path())?;
        private::retire_dir(store.path())?;
        Ok(bytes)
    }

    /// Who else needs the store.
    fn other_user(&self, store: &Store, work_tree: &WorkTree) -> Result<Option<String>, Error> {
        for dir in store.work_tree_dirs()? {
            let root = WorkTree::root_of(&dir)?.filter(|root| root != self.root());
            if let Some(root) = root.filter(|root| root.is_dir()) {
                return Ok(Some(root.display().to_string()));
            }
        }
        let released = released(work_tree)?;
        let sessions = self.sessions()?.into_iter().map(|session| session.session);
        let mut others = sessions.filter(|session| !released.contains(session));
        Ok(others.next().map(|session| format!("session {session}")))
    }
}
