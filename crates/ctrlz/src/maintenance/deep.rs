//! Deep repack: replaces all packs of the store by a single one, which git builds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::git::{ObjectId, PackFile};
use crate::store::{Incoming, Lock, Sharing, Store};

use super::Maintenance;

/// A temporary repository for packing all objects of the store into one pack. Removed on drop.
pub struct DeepRepack {
    store: Store,
    incoming: Incoming,
    /// Packs to be replaced.
    packs: Vec<Arc<PackFile>>,
    objects: Vec<ObjectId>,
    patience: Duration,
}

impl DeepRepack {
    /// Returns the path of the repository, which borrows the objects of the store.
    pub fn git_dir(&self) -> &Path {
        self.incoming.path()
    }

    /// Returns the objects that the new pack must contain.
    pub fn objects(&self) -> &[ObjectId] {
        &self.objects
    }

    /// Moves the new pack into the store and removes the packs that it replaces. A pack that has an
    /// object missing from the new one is kept.
    pub fn finish(self) -> Result<(), Error> {
        let _alone = Lock::take(&self.store.lock_path(), Sharing::Exclusive, self.patience)?;
        self.store.replace_packs(&self.incoming, &self.packs)
    }
}

impl Maintenance<'_> {
    /// Prepares a deep repack. Returns `None` if there is no store or no object is packed.
    pub fn begin_deep_repack(&self) -> Result<Option<DeepRepack>, Error> {
        let Some((store, _)) = self.0.existing()? else { return Ok(None) };
        store.objects.refresh()?;
        let packs = store.objects.open_packs();
        let mut objects: Vec<ObjectId> = packs.iter().flat_map(|pack| pack.ids()).collect();
        objects.sort_unstable();
        objects.dedup();
        if objects.is_empty() {
            return Ok(None);
        }
        let incoming = Incoming::create(&store)?;
        let patience = self.0.options().patience;
        Ok(Some(DeepRepack { store, incoming, packs, objects, patience }))
    }
}
