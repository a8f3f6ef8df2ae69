//! Borrowing: the first snapshot of a git project takes blobs from the user's repository.
//!
//! A borrowed object is readable at once through git's `alternates`, and is copied into the store
//! as soon as possible, because the user's own `git gc` may drop it. Nothing in the user's
//! repository is linked or changed.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{FileError, Named};
use crate::git::{Kind, ObjectId};

use super::layout::Store;
use super::lock::{Lock, Sharing};
use crate::pack::{Objects, PackWriter};

/// Larger blobs are not borrowed.
const MAX_LOAN_BYTES: u64 = 64 << 20;

/// So long others have to wait for the store, at most.
const MAX_TURN: Duration = Duration::from_secs(10);

/// The user's objects during one scan.
pub(crate) struct Lender {
    dir: PathBuf,
    objects: Objects,
    /// With repetitions, where several files are alike.
    lent: Mutex<Vec<ObjectId>>,
}

impl Lender {
    pub(crate) fn open(objects_dir: &Path) -> Result<Lender, FileError> {
        let dir = objects_dir.canonicalize().named("open", objects_dir)?;
        let objects = Objects::open(&dir)?;
        Ok(Lender { dir, objects, lent: Mutex::default() })
    }

    /// Whether it has this blob with exactly this size; if so, it is noted as lent.
    pub(crate) fn lend(&self, id: &ObjectId, bytes: u64) -> bool {
        // Copying holds a blob in memory, so a very large file is read from disk instead.
        let has = bytes <= MAX_LOAN_BYTES
            && matches!(self.objects.header_known(id), Ok(Some((Kind::Blob, size))) if size == bytes);
        if has {
            self.lent.lock().unwrap_or_else(PoisonError::into_inner).push(*id);
        }
        has
    }

    /// Everything that was lent. Blobs that the store holds already are included, because the files
    /// that they stand for are still to be compared.
    pub(crate) fn into_borrowed(self) -> Borrowed {
        let lent = self.lent.into_inner().unwrap_or_else(PoisonError::into_inner);
        Borrowed { lender: self.dir, ids: lent.into_iter().collect() }
    }
}

/// Objects that snapshots refer to and the store does not hold yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Borrowed {
    lender: PathBuf,
    ids: BTreeSet<ObjectId>,
}

/// How much is copied in one go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
    /// What the quota has no room for stays borrowed.
    pub(crate) room_bytes: u64,
}

/// What was copied and is still on the list.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    objects: u64,
    done: HashSet<ObjectId>,
    lost: BTreeSet<ObjectId>,
}

impl Copied {
    /// The objects that are in the store now.
    pub(crate) fn ids(&self) -> &HashSet<ObjectId> {
        &self.done
    }

    /// Whether some could not be copied and are lost.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

/// How a round of copying went.
#[derive(Debug, Default)]
pub(crate) struct Absorbed {
    pub(crate) left: u64,
    /// Objects the lender no longer has.
    pub(crate) lost: BTreeSet<ObjectId>,
}

impl Borrowed {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn contains(&self, id: &ObjectId) -> bool {
        self.ids.contains(id)
    }

    pub(crate) fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Reads the list at `path`.
    pub(crate) fn load(path: &Path) -> Result<Borrowed, Error> {
        let Some(bytes) = read_small(path, 1 << 30)? else { return Ok(Borrowed::default()) };
        let Some(end) = bytes.iter().position(|byte| *byte == 0) else {
            return Ok(Borrowed::default());
        };
        let lender = PathBuf::from(std::ffi::OsString::from_vec(bytes[..end].to_vec()));
        let ids = bytes[end + 1..].chunks_exact(20).filter_map(ObjectId::from_slice).collect();
        Ok(Borrowed { lender, ids })
    }

    /// Writes a list at `path` again without some of its objects; `alternates` stay as they are.
    pub(crate) fn forget(path: &Path, ids: &BTreeSet<ObjectId>) -> Result<(), Error> {
        let mut borrowed = Borrowed::load(path)?;
        let before = borrowed.ids.len();
        borrowed.ids.retain(|id| !ids.contains(id));
        if borrowed.ids.len() < before {
            let mut bytes = borrowed.lender.as_os_str().as_bytes().to_vec();
            bytes.push(0);
            bytes.extend(borrowed.ids.iter().flat_map(|id| id.as_bytes()));
            private::replace(path, &bytes, Durable::Yes)?;
        }
        Ok(())
    }

    /// Makes the loan durable: the list for us, `alternates` for git. Before any ref needs it.
    pub(crate) fn save(&self, store: &Store, path: &Path) -> Result<(), Error> {
        let mut bytes = self.lender.as_os_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.ids.iter().flat_map(|id| id.as_bytes()));
        private::replace(path, &bytes, Durable::Yes)?;
        let _lock = lock_lenders(store)?;
        let mut lenders = lenders(store)?;
        if lenders.insert(self.lender.as_os_str().as_bytes().to_vec()) {
            write_lenders(store, &lenders)?;
        }
        Ok(())
    }

    /// Looks for the lender where the work tree it lies in has gone.
    pub(crate) fn follow(
        mut self,
        store: &Store,
        path: &Path,
        from: &Path,
        to: &Path,
    ) -> Result<(), Error> {
        let Ok(inside) = self.lender.strip_prefix(from) else { return Ok(()) };
        self.lender = to.join(inside);
        match self.is_empty() {
            true => Ok(()),
            false => self.save(store, path),
        }
    }

    /// Copies into the store what `limits` allow. The list stays as it is, for [`Borrowed::settle`].
    ///
    /// The caller holds the store's lock, so that nothing is taken out of the store meanwhile. The
    /// work tree's is not needed: this is most of the work, and nobody has to wait for it.
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
                Ok(None) | Err(Error::Damaged { .. }) => drop(copied.lost.insert(*id)),
                Err(error) => return Err(error),
            }
        }
        pack.publish()?;
        Ok(copied)
    }

    /// Takes off the work tree's list what was copied or lost.
    ///
    /// The caller holds the work tree's lock. The list is read again, as others may have changed it
    /// since.
    pub(crate) fn settle(store: &Store, path: &Path, copied: Copied) -> Result<Absorbed, Error> {
        let mut borrowed = Borrowed::load(path)?;
        // What was copied may be gone again by now; then it is still borrowed.
        store.objects.refresh()?;
        let is_here = |id: &ObjectId| copied.done.contains(id) && store.objects.holds(id);
        borrowed.ids.retain(|id| !is_here(id) && !copied.lost.contains(id));
        match borrowed.is_empty() {
            true => borrowed.end(store, path)?,
            false => borrowed.save(store, path)?,
        }
        store.objects.refresh()?;
        Ok(Absorbed { left: borrowed.len(), lost: copied.lost })
    }

    /// Ends the loan. Another work tree may still borrow from the same lender.
    ///
    /// The list goes last: as long as it is there, whoever comes after a kill ends the loan again.
    fn end(&self, store: &Store, path: &Path) -> Result<(), Error> {
        let _lock = lock_lenders(store)?;
        let mut lenders = lenders(store)?;
        if !others_borrow_from(store, &self.lender, path)?
            && lenders.remove(self.lender.as_os_str().as_bytes())
        {
            write_lenders(store, &lenders)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Ok(Err(error).named("remove", path)?)
            }
            _ => Ok(()),
        }
    }
}

/// Whether a list other than the one at `own` names this lender.
fn others_borrow_from(store: &Store, lender: &Path, own: &Path) -> Result<bool, Error> {
    let dir = store.path().join("ctrlz").join("wt");
    for entry in std::fs::read_dir(&dir).named("list", &dir)? {
        let path = entry.named("list", &dir)?.path().join("borrowed");
        let other = Borrowed::load(&path)?;
        if path != own && other.lender == lender && !other.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a store borrows from an existing directory that no list names.
///
/// Another process may end a loan meanwhile: it removes the line first and the list afterwards. So an
/// unknown line counts only if it is still there after the lists were read.
pub(super) fn has_unknown_lender(git_dir: &Path) -> Result<bool, Error> {
    let unknown = unknown_lenders(git_dir)?;
    Ok(!unknown.is_empty() && lenders_in(git_dir)?.iter().any(|lender| unknown.contains(lender)))
}

/// Returns the lines of `alternates` that name an existing directory and are in no list.
fn unknown_lenders(git_dir: &Path) -> Result<BTreeSet<Vec<u8>>, Error> {
    let mut lenders = lenders_in(git_dir)?;
    // Lines of projects that were moved lend nothing.
    lenders.retain(|lender| git_dir.join("objects").join(OsStr::from_bytes(lender)).is_dir());
    if lenders.is_empty() {
        return Ok(lenders);
    }
    let lists = std::fs::read_dir(git_dir.join("ctrlz").join("wt")).into_iter().flatten().flatten();
    for list in lists {
        let known = Borrowed::load(&list.path().join("borrowed"))?.lender;
        lenders.remove(known.as_os_str().as_bytes());
    }
    Ok(lenders)
}

/// Several work trees may change the list of lenders at once.
fn lock_lenders(store: &Store) -> Result<Lock, Error> {
    let path = store.path().join("ctrlz").join("lenders.lock");
    Lock::take(&path, Sharing::Exclusive, Duration::from_secs(10))
}

fn lenders(store: &Store) -> Result<BTreeSet<Vec<u8>>, Error> {
    lenders_in(store.path())
}

/// Returns the lines of `alternates`.
fn lenders_in(git_dir: &Path) -> Result<BTreeSet<Vec<u8>>, Error> {
    let text = read_small(&alternates(git_dir), 1 << 20)?.unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(<[u8]>::to_vec).collect())
}

fn alternates(git_dir: &Path) -> PathBuf {
    git_dir.join("objects").join("info").join("alternates")
}

fn write_lenders(store: &Store, lenders: &BTreeSet<Vec<u8>>) -> Result<(), Error> {
    let mut text = Vec::new();
    for lender in lenders {
        text.extend_from_slice(lender);
        text.push(b'\n');
    }
    Ok(private::replace(&alternates(store.path()), &text, Durable::Yes)?)
}
