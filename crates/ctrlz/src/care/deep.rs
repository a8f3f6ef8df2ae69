//! Packing deeply: all packs become one, which another program made.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::git::{ObjectId, PackFile};
use crate::store::{Incoming, Lock, Sharing, Store};
use crate::workspace::Workspace;

/// A repository in which one pack is to be made of all objects of the store. Dropped, it leaves nothing.
pub struct DeepRepack {
    store: Store,
    incoming: Incoming,
    /// The packs to be replaced.
    packs: Vec<Arc<PackFile>>,
    objects: Vec<ObjectId>,
    patience: Duration,
}

impl DeepRepack {
    /// The repository, which borrows the objects from the store.
    pub fn git_dir(&self) -> &Path {
        self.incoming.path()
    }

    /// The objects that the new pack has to hold.
    pub fn objects(&self) -> &[ObjectId] {
        &self.objects
    }

    /// Moves the new pack into the store and removes the packs that it replaces. A pack with an object
    /// that the new one lacks stays.
    pub fn finish(self) -> Result<(), Error> {
        let _alone = Lock::take(&self.store.lock_path(), Sharing::Exclusive, self.patience)?;
        self.store.replace_packs(&self.incoming, &self.packs)
    }
}

impl Workspace {
    /// Begins to pack the store deeply; `None` if there is no store or nothing to gain.
    pub fn begin_deep_repack(&self) -> Result<Option<DeepRepack>, Error> {
        let Some((store, _)) = self.existing()? else { return Ok(None) };
        store.objects.refresh()?;
        let packs = store.objects.open_packs();
        let mut objects: Vec<ObjectId> = packs.iter().flat_map(|pack| pack.ids()).collect();
        objects.sort_unstable();
        objects.dedup();
        if objects.is_empty() {
            return Ok(None);
        }
        let incoming = Incoming::create(&store)?;
        let patience = self.options().patience;
        Ok(Some(DeepRepack { store, incoming, packs, objects, patience }))
    }
}
