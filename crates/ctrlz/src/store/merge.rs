//! Merging: many small packs become one, entries copied as they are.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Error;
use crate::fs::{Named, private};
use crate::git::PackFile;

use super::layout::Store;
use super::lock::{Lock, Sharing};
use super::pack_writer::PackWriter;

/// This many small packs are merged. Every snapshot opens all packs, so their number is a cost.
const MANY: usize = 50;
/// Larger packs are left alone.
const SMALL_BYTES: u64 = 4 << 20;

impl Store {
    /// Merges the small packs if there are many and nobody else is writing.
    ///
    /// The caller holds no lock on the store. The merged pack is durable before the first of the
    /// old ones goes.
    pub(crate) fn merge_small_packs(&self) -> Result<(), Error> {
        let small = |pack: &Arc<PackFile>| {
            let is_ours = pack.path().with_extension("keep").symlink_metadata().is_err();
            is_ours && pack.path().metadata().is_ok_and(|meta| meta.len() < SMALL_BYTES)
        };
        if self.objects.open_packs().iter().filter(|pack| small(pack)).count() < MANY {
            return Ok(());
        }
        let Some(_alone) = Lock::try_take(&self.lock_path(), Sharing::Exclusive)? else {
            return Ok(());
        };
        self.objects.refresh()?;
        let old: Vec<Arc<PackFile>> =
            self.objects.open_packs().into_iter().filter(|pack| small(pack)).collect();
        let merged = PackWriter::new(&self.objects_dir());
        let mut gone: Vec<PathBuf> = Vec::new();
        for pack in &old {
            // A pack with deltas came from git; it is not worth taking apart.
            if let Some(entries) = pack.whole_entries() {
                for (id, bytes) in entries {
                    merged.add_raw(id, bytes)?;
                }
                gone.push(pack.path().to_owned());
            }
        }
        if gone.len() < 2 {
            return Ok(());
        }
        // Merging again after a crash gives the same pack, which must not be taken for an old one.
        let made = merged.publish()?.packs;
        for path in gone.into_iter().filter(|path| !made.contains(path)) {
            // The index first: without it nobody looks for the pack.
            for file in [path.with_extension("idx"), path] {
                std::fs::remove_file(&file).named("remove", &file)?;
            }
        }
        private::sync_dir(&self.objects_dir().join("pack"))?;
        self.objects.refresh()?;
        Ok(())
    }
}
