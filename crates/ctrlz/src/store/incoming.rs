//! Incoming objects: a temporary repository beside the store that holds imported or pulled objects
//! until they are checked.
//!
//! It borrows the store's objects, so that only new ones are transferred. The store is unchanged if
//! it is dropped or the process is killed.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::fs::{FileError, Named};
use crate::git::ObjectId;

use super::layout::Store;
use super::refs::Refs;
use super::skeleton::CONFIG;
use crate::pack::Objects;

/// Temporary repository with objects and refs that are not part of the store yet.
pub(crate) struct Incoming {
    dir: PathBuf,
    /// Lock on the directory, so that no other process sweeps it as a leftover.
    _held: File,
}

impl Incoming {
    pub(crate) fn create(store: &Store) -> Result<Incoming, Error> {
        let parent = store.path().join("ctrlz");
        private::sweep_builds(&parent)?;
        let (dir, held) = private::create_build_dir(&parent)?;
        let incoming = Incoming { dir, _held: held };
        // `ctrlz` comes first: it lets a sweep recognise the directory as one of ours.
        for part in ["ctrlz", "refs", "objects/info", "objects/pack"] {
            private::create_dirs(&incoming.dir.join(part))?;
        }
        let files = [
            ("HEAD", "ref: refs/heads/main\n"),
            ("config", CONFIG),
            ("objects/info/alternates", "../../../objects\n"),
        ];
        for (name, text) in files {
            private::replace(&incoming.dir.join(name), text.as_bytes(), Durable::No)?;
        }
        Ok(incoming)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pack_dir(&self) -> PathBuf {
        self.dir.join("objects").join("pack")
    }

    /// Returns its objects, with the store's objects as alternates.
    pub(crate) fn objects(&self) -> Result<Objects, FileError> {
        Objects::open(&self.dir.join("objects"))
    }

    pub(crate) fn refs(&self) -> Result<Vec<(String, ObjectId)>, FileError> {
        Refs::new(&self.dir).list("refs")
    }

    /// Moves the packs into the store, durably, and returns their new paths. Sets no ref.
    ///
    /// The caller holds the store's lock.
    pub(crate) fn publish(&self, store: &Store) -> Result<Vec<PathBuf>, Error> {
        let to_dir = store.objects_dir().join("pack");
        let mut published = Vec::new();
        for pack in private::list(&self.pack_dir())? {
            if pack.extension().is_none_or(|extension| extension != "pack") {
                continue;
            }
            // The pack comes before its index, because git and ctrlz look for indexes.
            published.push(to_dir.join(pack.file_name().unwrap_or_default()));
            for file in [pack.clone(), pack.with_extension("idx")] {
                let private = Permissions::from_mode(0o600);
                std::fs::set_permissions(&file, private).named("set the permissions of", &file)?;
                File::open(&file).and_then(|file| file.sync_all()).named("flush", &file)?;
                let to = to_dir.join(file.file_name().unwrap_or_default());
                std::fs::rename(&file, &to).named("publish", &to)?;
            }
        }
        private::sync_dir(&to_dir)?;
        store.objects.refresh()?;
        Ok(published)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // Best effort: a later command sweeps the directory.
        drop(private::remove_build_dir(&self.dir));
    }
}
