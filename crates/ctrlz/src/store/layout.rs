//! A store: how it is opened or created, and the paths in it.

use std::path::{Path, PathBuf};

use crate::error::{Error, LookupError};
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Named, random_name};
use crate::git::{Kind, ObjectId, Tree};

use super::checks::{check_format, check_links, check_owner, is_store};
use super::lock::{Lock, Sharing};
use super::refs::Refs;
use super::skeleton::{build, mend};
use super::trust::pending;
use crate::pack::{Objects, TEMPORARY};

/// A git repository that belongs to ctrlz.
pub(crate) struct Store {
    git_dir: PathBuf,
    pub(crate) objects: Objects,
    pub(crate) refs: Refs,
    ref_prefix: String,
}

impl Store {
    /// Opens the store at `git_dir`. Returns `None` if there is none.
    pub(crate) fn open(git_dir: &Path, ref_prefix: &str) -> Result<Option<Store>, Error> {
        if !is_store(git_dir) {
            return Ok(None);
        }
        check_owner(git_dir)?;
        check_links(git_dir)?;
        check_format(git_dir)?;
        mend(git_dir)?;
        let objects = Objects::open(&git_dir.join("objects"))?;
        let store = Store {
            git_dir: git_dir.to_owned(),
            objects,
            refs: Refs::new(git_dir),
            ref_prefix: ref_prefix.to_owned(),
        };
        store.sweep()?;
        for dir in [".", "ctrlz", "info", "objects/info"] {
            private::sweep(&git_dir.join(dir))?;
        }
        Ok(Some(store))
    }

    /// Opens the store at `git_dir`, or creates it atomically.
    ///
    /// `exclude` becomes the store's `info/exclude`.
    pub(crate) fn open_or_create(
        git_dir: &Path,
        ref_prefix: &str,
        exclude: &str,
    ) -> Result<Store, Error> {
        if let Some(store) = Store::open(git_dir, ref_prefix)? {
            return Ok(store);
        }
        let parent = git_dir.parent().unwrap_or(Path::new("/"));
        private::create_dirs(parent)?;
        private::sweep_builds(parent)?;
        let foreign = std::fs::read_dir(git_dir).is_ok_and(|mut entries| entries.next().is_some());
        if foreign {
            // Another process may have created its store there in the meantime.
            if let Some(store) = Store::open(git_dir, ref_prefix)? {
                return Ok(store);
            }
            let why = "the directory is not empty and holds no store";
            return Err(Error::untrusted(git_dir, why));
        }
        // The handle locks the directory until it is renamed, so that no other process sweeps it.
        let (fresh, _building) = private::create_build_dir(parent)?;
        let made = build(&fresh, exclude);
        if let Err(error) = made {
            // Best effort. The random name is not used by other processes.
            drop(std::fs::remove_dir_all(&fresh));
            return Err(error);
        }
        if let Err(error) = std::fs::rename(&fresh, git_dir) {
            drop(std::fs::remove_dir_all(&fresh));
            // Another process created the store first, or the parent is not writable.
            if let Some(store) = Store::open(git_dir, ref_prefix)? {
                return Ok(store);
            }
            return Ok(Err(error).named("create the store", git_dir)?);
        }
        private::sync_dir(parent)?;
        Store::open(git_dir, ref_prefix)?
            .ok_or_else(|| Error::untrusted(git_dir, "it vanished while it was made"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.git_dir
    }

    /// Hides the store from the git of the work tree that contains it. Otherwise `git add -A` would
    /// add it and `git clean -fd` would delete it.
    ///
    /// Best effort, because no snapshot depends on it and the next command tries again.
    pub(crate) fn hide_from_git(&self) {
        let path = self.git_dir.join(".gitignore");
        if path.symlink_metadata().is_err() {
            drop(private::replace(&path, b"*\n", Durable::No));
        }
    }

    /// Returns the path of a file or directory that is not git's.
    fn own(&self, name: &str) -> PathBuf {
        self.git_dir.join("ctrlz").join(name)
    }

    pub(crate) fn objects_dir(&self) -> PathBuf {
        self.git_dir.join("objects")
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.own("store.lock")
    }

    /// Returns the path of the lock held by garbage collection, purge and repair.
    pub(crate) fn care_lock_path(&self) -> PathBuf {
        self.own("care.lock")
    }

    /// Returns the path of maintenance's result: an empty file, or the reason of its failure.
    pub(crate) fn cared_path(&self) -> PathBuf {
        self.own("cared")
    }

    /// Returns the path of the keyed hashes of purged contents.
    pub(super) fn tombstones_path(&self) -> PathBuf {
        self.own("tombstones")
    }

    /// Returns the path of a loose object.
    pub(crate) fn loose_path(&self, id: &ObjectId) -> PathBuf {
        let hex = id.to_string();
        self.objects_dir().join(&hex[..2]).join(&hex[2..])
    }

    pub(crate) fn work_tree_dir(&self, id: &str) -> PathBuf {
        work_tree_dir(&self.git_dir, id)
    }

    pub(crate) fn ref_prefix(&self) -> &str {
        &self.ref_prefix
    }

    /// Returns the store's own exclude list.
    pub(crate) fn exclude(&self) -> Result<Vec<u8>, Error> {
        Ok(read_small(&self.git_dir.join("info").join("exclude"), 1 << 20)?.unwrap_or_default())
    }

    /// Returns the tree `id`. The error says whether it is purged, not imported yet or unknown.
    pub(crate) fn snapshot(&self, id: &ObjectId) -> Result<Tree, Error> {
        if *id == ObjectId::EMPTY_TREE {
            return Ok(Tree::empty());
        }
        match self.objects.read(id)? {
            Some((Kind::Tree, _)) => self.objects.tree(id),
            Some((kind, _)) => {
                Err(Error::Lookup(LookupError::NotASnapshot { id: *id, kind: kind.to_string() }))
            }
            None => match self.purged()?.get(&id.to_string()) {
                Some(replacement) => Err(Error::Lookup(LookupError::Purged {
                    id: *id,
                    replacement: replacement.parse()?,
                })),
                None if !pending(&self.git_dir)?.is_empty() => {
                    Err(Error::Lookup(LookupError::BeingImported { id: *id }))
                }
                None => Err(Error::Lookup(LookupError::UnknownSnapshot { id: *id })),
            },
        }
    }

    /// Returns the purged snapshots, each with the snapshot that replaces it.
    pub(crate) fn purged(&self) -> Result<std::collections::BTreeMap<String, String>, Error> {
        let path = self.own("purged");
        Ok(private::load_json(&path, 1 << 30)?.unwrap_or_default())
    }

    /// Records the replacements of purged snapshots. Called before the old snapshots are removed.
    pub(crate) fn note_purged(
        &self,
        trees: impl Iterator<Item = (ObjectId, ObjectId)>,
    ) -> Result<(), Error> {
        let mut purged = self.purged()?;
        purged.extend(trees.map(|(old, new)| (old.to_string(), new.to_string())));
        let path = self.own("purged");
        Ok(private::save_json(&path, &purged, Durable::Yes)?)
    }

    /// Sets any ref. The caller holds the store's lock exclusively.
    pub(crate) fn set_ref_alone(&self, name: &str, id: &ObjectId) -> Result<(), Error> {
        let scratch = self.own(&format!("tmp_{}", random_name()));
        self.refs.write(name, id, &scratch)
    }

    /// Returns the directories of the work trees that use the store, sorted.
    pub(crate) fn work_tree_dirs(&self) -> Result<Vec<PathBuf>, Error> {
        Ok(private::list(&self.own("wt"))?)
    }

    /// Removes a loose object. Does nothing if it is missing.
    pub(crate) fn remove_loose(&self, id: &ObjectId) -> Result<(), Error> {
        Ok(private::remove(&self.loose_path(id))?)
    }

    /// Removes leftovers of killed writers. Writers hold the store's lock shared, so every
    /// temporary file is an orphan once the lock is held exclusively.
    fn sweep(&self) -> Result<(), Error> {
        let pack_dir = self.objects_dir().join("pack");
        let is_orphan = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(TEMPORARY);
        let list = || -> Result<Vec<PathBuf>, Error> {
            let entries = std::fs::read_dir(&pack_dir).named("list", &pack_dir)?;
            let names: std::collections::HashSet<_> =
                entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
            let orphans = names.iter().filter(|name| {
                let path = Path::new(name);
                let lonely = path.extension().is_some_and(|extension| extension == "pack")
                    && !names.contains(path.with_extension("idx").as_os_str());
                is_orphan(name) || (lonely && is_old(&pack_dir.join(name)))
            });
            Ok(orphans.map(|name| pack_dir.join(name)).collect())
        };
        if list()?.is_empty() {
            return Ok(());
        }
        let Some(_alone) = Lock::try_take(&self.lock_path(), Sharing::Exclusive)? else {
            return Ok(());
        };
        for path in list()? {
            if path.file_name().is_some_and(is_orphan) {
                std::fs::remove_file(&path).named("remove", &path)?;
            } else {
                // A killed writer did not publish the index, or the index was lost.
                drop(self.quarantine(&path)?);
            }
        }
        Ok(())
    }
}

/// Returns the directory of a work tree's own files in the store.
pub(crate) fn work_tree_dir(git_dir: &Path, id: &str) -> PathBuf {
    git_dir.join("ctrlz").join("wt").join(id)
}

/// Returns whether a pack is over an hour old, so that no git command is still writing its index.
fn is_old(path: &Path) -> bool {
    let modified = path.symlink_metadata().and_then(|meta| meta.modified()).ok();
    let age = modified.and_then(|time| std::time::SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > std::time::Duration::from_secs(3600))
}
