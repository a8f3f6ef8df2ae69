//! Borrowing: the first snapshot of a git project uses blobs of the user's repository.
//!
//! A borrowed object is readable at once through git's `alternates`. It is copied into the store as
//! soon as possible, because the user's own `git gc` may drop it. Nothing in the user's repository
//! is linked or changed.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, StoreError};
use crate::fs::private::{self, Durable};
use crate::fs::{FileError, Named};
use crate::git::{Kind, ObjectId};

use super::alternates::{Borrowed, alternates_in, alternates_path};
use super::layout::Store;
use super::lock::{Lock, Sharing};
use crate::pack::{Objects, PackWriter};

/// Name of the lock file for changes of `alternates`. Fixed by the format; see docs/format.md.
pub(super) const ALTERNATES_LOCK: &str = "lenders.lock";

/// Name of a work tree's lock file for copying borrowed objects. Fixed by the format; see
/// docs/format.md.
pub(crate) const COPY_LOCK: &str = "loans.lock";

/// Upper bound on the size of a borrowed blob. Copying holds a blob in memory.
const MAX_BORROWED_BYTES: u64 = 64 << 20;

/// Upper bound on how long one round of copying holds the store lock.
const MAX_TURN: Duration = Duration::from_secs(10);

/// Objects of the user's repository that can be borrowed during one scan.
pub(crate) struct BorrowSource {
    dir: PathBuf,
    objects: Objects,
    /// Borrowed ids. Files with equal content add the same id repeatedly.
    borrowed: Mutex<Vec<ObjectId>>,
}

impl BorrowSource {
    pub(crate) fn open(objects_dir: &Path) -> Result<BorrowSource, FileError> {
        let dir = objects_dir.canonicalize().named("open", objects_dir)?;
        let objects = Objects::open(&dir)?;
        Ok(BorrowSource { dir, objects, borrowed: Mutex::default() })
    }

    /// Borrows a blob. Returns `false` if the user's repository does not have it with this exact
    /// size.
    pub(crate) fn borrow_blob(&self, id: &ObjectId, bytes: u64) -> bool {
        // Larger files are read from disk instead.
        let has = bytes <= MAX_BORROWED_BYTES
            && matches!(self.objects.header_known(id), Ok(Some((Kind::Blob, size))) if size == bytes);
        if has {
            self.borrowed.lock().unwrap_or_else(PoisonError::into_inner).push(*id);
        }
        has
    }

    /// Returns whether the object can be read and its content has this id.
    pub(crate) fn is_intact(&self, id: &ObjectId) -> bool {
        matches!(self.objects.read_known(id), Ok(Some(_)))
    }

    /// Returns everything that was borrowed. Blobs that the store already holds are included,
    /// because the files that they stand for are still to be compared.
    pub(crate) fn into_borrowed(self) -> Borrowed {
        let ids = self.borrowed.into_inner().unwrap_or_else(PoisonError::into_inner);
        Borrowed { source: self.dir, ids: ids.into_iter().collect() }
    }
}

/// Upper bounds on one round of copying.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    /// Bytes left in the quota. Objects that do not fit stay borrowed.
    pub(crate) room_bytes: u64,
}

/// Objects that were copied or found lost, and are still on the list.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    objects: u64,
    done: HashSet<ObjectId>,
    lost: BTreeSet<ObjectId>,
}

impl Copied {
    /// Returns the objects that are in the store now.
    pub(crate) fn ids(&self) -> &HashSet<ObjectId> {
        &self.done
    }

    /// Returns whether some objects are missing or damaged and could not be copied.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

/// Result of a round of copying.
#[derive(Debug, Default)]
pub(crate) struct CopyRound {
    pub(crate) left: u64,
    /// Objects that are missing or damaged in the user's repository.
    pub(crate) lost: BTreeSet<ObjectId>,
}

impl Borrowed {
    /// Removes objects from the list at `path`. `alternates` is not changed.
    pub(crate) fn forget(path: &Path, ids: &BTreeSet<ObjectId>) -> Result<(), Error> {
        let mut borrowed = Borrowed::load(path)?;
        let before = borrowed.ids.len();
        borrowed.ids.retain(|id| !ids.contains(id));
        if borrowed.ids.len() < before {
            let mut bytes = borrowed.source.as_os_str().as_bytes().to_vec();
            bytes.push(0);
            bytes.extend(borrowed.ids.iter().flat_map(|id| id.as_bytes()));
            private::replace(path, &bytes, Durable::Yes)?;
        }
        Ok(())
    }

    /// Records the borrowed objects, durably: the list for ctrlz, `alternates` for git. Must be
    /// called before a ref reaches any of them.
    pub(crate) fn save(&self, store: &Store, path: &Path) -> Result<(), Error> {
        let mut bytes = self.source.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.ids.iter().flat_map(|id| id.as_bytes()));
        private::replace(path, &bytes, Durable::Yes)?;
        let _lock = lock_alternates(store)?;
        let mut alternates = alternates_in(store.path())?;
        if alternates.insert(self.source.as_os_str().as_bytes().to_vec()) {
            write_alternates(store, &alternates)?;
        }
        Ok(())
    }

    /// Updates the path of the user's repository after its work tree moved.
    pub(crate) fn follow(
        mut self,
        store: &Store,
        path: &Path,
        from: &Path,
        to: &Path,
    ) -> Result<(), Error> {
        let Ok(inside) = self.source.strip_prefix(from) else { return Ok(()) };
        self.source = to.join(inside);
        if self.is_empty() { Ok(()) } else { self.save(store, path) }
    }

    /// Copies borrowed objects into the store. [`Borrowed::update`] updates the list.
    ///
    /// The caller holds the store's lock, so that nothing is removed from the store meanwhile. The
    /// work tree's lock is not needed: this slow part must not block other commands.
    pub(crate) fn copy(&self, store: &Store, limits: &Limits) -> Result<Copied, Error> {
        let mut copied = Copied::default();
        let pack = PackWriter::new(&store.objects_dir());
        let mut bytes = 0;
        let started = Instant::now();
        for id in &self.ids {
            let is_enough = bytes >= limits.bytes || copied.objects >= limits.objects;
            if is_enough || started.elapsed() > MAX_TURN {
                break;
            }
            if store.objects.holds(id) {
                copied.done.insert(*id);
                continue;
            }
            match store.objects.read_packed(id) {
                Ok(Some(found)) if bytes + found.bytes.len() as u64 > limits.room_bytes => (),
                Ok(Some(found)) => {
                    bytes += found.bytes.len() as u64;
                    match found.packed {
                        Some(packed) => pack.add_raw(*id, &packed)?,
                        None => drop(pack.add(found.kind, &found.bytes, |_| false)?),
                    }
                    copied.objects += 1;
                    copied.done.insert(*id);
                }
                Ok(None) | Err(Error::Store(StoreError::Damaged { .. })) => {
                    copied.lost.insert(*id);
                }
                Err(error) => return Err(error),
            }
        }
        pack.publish()?;
        Ok(copied)
    }

    /// Removes copied and lost objects from the work tree's list.
    ///
    /// The caller holds the work tree's lock. Reads the list again, which may have changed.
    pub(crate) fn update(store: &Store, path: &Path, copied: Copied) -> Result<CopyRound, Error> {
        let mut borrowed = Borrowed::load(path)?;
        // A copied object may have been removed again by now. Then it is still borrowed.
        store.objects.refresh()?;
        let is_here = |id: &ObjectId| copied.done.contains(id) && store.objects.holds(id);
        borrowed.ids.retain(|id| !is_here(id) && !copied.lost.contains(id));
        if borrowed.is_empty() {
            borrowed.end(store, path)?;
        } else {
            borrowed.save(store, path)?;
        }
        store.objects.refresh()?;
        Ok(CopyRound { left: borrowed.len(), lost: copied.lost })
    }

    /// Stops borrowing. `alternates` keeps the repository if another work tree borrows from it.
    ///
    /// The list is removed last: as long as it exists, the next process repeats this after a kill.
    fn end(&self, store: &Store, path: &Path) -> Result<(), Error> {
        let _lock = lock_alternates(store)?;
        let mut alternates = alternates_in(store.path())?;
        if !others_borrow_from(store, &self.source, path)?
            && alternates.remove(self.source.as_os_str().as_bytes())
        {
            write_alternates(store, &alternates)?;
        }
        Ok(private::remove(path)?)
    }
}

/// Returns whether a list other than the one at `own` names the repository `source`.
fn others_borrow_from(store: &Store, source: &Path, own: &Path) -> Result<bool, Error> {
    for dir in store.work_tree_dirs()? {
        let path = dir.join("borrowed");
        let other = Borrowed::load(&path)?;
        if path != own && other.source == source && !other.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Locks `alternates`, which several work trees may change at once.
fn lock_alternates(store: &Store) -> Result<Lock, Error> {
    let path = store.path().join("ctrlz").join(ALTERNATES_LOCK);
    Lock::take(&path, Sharing::Exclusive, Duration::from_secs(10))
}

fn write_alternates(store: &Store, alternates: &BTreeSet<Vec<u8>>) -> Result<(), Error> {
    let mut text = Vec::new();
    for alternate in alternates {
        text.extend_from_slice(alternate);
        text.push(b'\n');
    }
    Ok(private::replace(&alternates_path(store.path()), &text, Durable::Yes)?)
}
