//! Replacement of a store that is not trusted.
//!
//! A store that came with a project is renamed, and a new store takes its place; see
//! [`adoption`](super::adoption) for the import of its history.
//!
//! ```text
//! <store>                       the new store
//! <store>.untrusted-<date>      the old one
//! <store>/ctrlz/adopting        the old directory's name, until its history is imported
//! ```

use std::path::{Path, PathBuf};

use crate::clock::now_millis;
use crate::error::Error;
use crate::fs::{Named, absolute};
use crate::scan::Progress;
use crate::session::date_of;
use crate::store::{
    IN_REPOSITORY, Lock, Refs, Sharing, Store, Trust, UserRepo, check_root, foreign_part,
    is_below_repository, is_in_project, is_newer, is_store, note_pending, pending, set_aside,
};
use crate::workspace::{Notice, Workspace};

use super::adoption::{MAX_REFS_AT_ONCE, holds_only_snapshots};

/// Old stores below this total size are imported at once, larger ones in the background.
const MAX_BYTES_AT_ONCE: u64 = 32 << 20;
impl Workspace {
    /// Ensures that a store inside a project belongs to this user and is as ctrlz made it. Any
    /// other one is renamed, and a new one takes its place. If the path itself cannot be used, this
    /// work tree is recorded in the data directory instead: no project may prevent recording.
    pub(crate) fn prepare_store(&mut self) -> Result<Option<Notice>, Error> {
        let Some(path) = &self.options().store else { return Ok(None) };
        let path = self.root().join(path);
        if !self.needs_trust(&path) {
            let is_inside = self.lies_in_repository(&path);
            return if is_inside { Err(Error::untrusted(path, IN_REPOSITORY)) } else { Ok(None) };
        }
        if let Some(why) = self.obstacle(&path)? {
            if absolute(&self.options().data_dir).starts_with(self.root()) {
                return Err(Error::untrusted(path, why));
            }
            self.record_in_data_dir();
            return Ok(Some(Notice::StoreElsewhere { path, why }));
        }
        if !is_filled(&path) {
            return Ok(None);
        }
        let replaced = self.replace_foreign_store(&path)?;
        self.finish_small_adoption(&path)?;
        Ok(replaced.map(|(old, why)| Notice::SetAside { old, why }))
    }

    /// Returns why `path` holds no store of this user and none can be created there.
    fn obstacle(&self, path: &Path) -> Result<Option<&'static str>, Error> {
        if self.lies_in_repository(path) {
            return Ok(Some(IN_REPOSITORY));
        }
        if !is_link(path) && is_newer(path)? {
            // Renaming it would take it from the newer version.
            return Ok(Some("a newer version of ctrlz made it, or a file in it says so"));
        }
        if self.foreign(path)?.is_none() {
            return Ok(None);
        }
        if self.links_above(path) {
            return Ok(Some("a directory on the way to it is a link that came with the project"));
        }
        let mut existing = path.ancestors().filter(|place| place.symlink_metadata().is_ok());
        let nearest = existing.next().unwrap_or(path);
        let is_there = nearest == path;
        if is_link(nearest) {
            // Not renamed, because the project may track it.
            return Ok(Some("a link is in its place"));
        }
        if !nearest.is_dir() {
            return Ok(Some("a file is in its place"));
        }
        if is_there && is_filled(path) && !self.may_be_replaced(path) {
            return Ok(Some("a directory with other files is in its place"));
        }
        let written = if is_there { path.parent().unwrap_or(path) } else { nearest };
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let is_writable = rustix::fs::access(written, access).is_ok();
        Ok((!is_writable).then_some("the directory above it cannot be written"))
    }

    /// Imports the stores that were set aside if they are small and have few refs. Others wait for
    /// a background process.
    fn finish_small_adoption(&self, path: &Path) -> Result<(), Error> {
        let waiting = pending(path)?;
        let sizes = waiting.iter().map(|old| bytes_in(&old.join("objects"), MAX_BYTES_AT_ONCE));
        let refs = waiting.iter().map(|old| Ok(Refs::new(old).list("refs")?.len()));
        let refs = refs.sum::<Result<usize, Error>>().unwrap_or(usize::MAX);
        let is_small = sizes.sum::<u64>() < MAX_BYTES_AT_ONCE && refs <= MAX_REFS_AT_ONCE;
        if !waiting.is_empty() && is_small {
            // Errors must not stop the recording. The import stays pending and is retried.
            drop(self.transfer().finish_adoption(&Progress::default()));
        }
        Ok(())
    }

    /// Returns whether a store at `path` may have come with a project: it is inside this work tree
    /// or another git work tree, or the caller named it in a directory that also contains this work
    /// tree, and not in the data directory. [`resolve_store`] has removed `..` and all other aliases.
    pub(crate) fn needs_trust(&self, path: &Path) -> bool {
        let (root, options) = (self.root(), self.options());
        let home = options.home.as_deref();
        let data_dir = absolute(&options.data_dir);
        // Without a data directory beside the store, its own files are all that is recorded.
        let is_apart = !path.starts_with(&data_dir) && !data_dir.starts_with(path);
        let is_named = options.store.is_some() && is_apart;
        let mut shared = path.ancestors().filter(|dir| root.starts_with(dir));
        let mut came_together =
            || shared.next().is_some_and(|dir| dir != path && check_root(dir, home).is_ok());
        is_in_project(path, root, home) || (is_named && came_together())
    }

    /// Returns whether a directory above `path` is a symlink. Only those inside a project are left,
    /// the others are resolved.
    fn links_above(&self, path: &Path) -> bool {
        path.ancestors().skip(1).take_while(|dir| *dir != self.root()).any(is_link)
    }

    /// Returns why the store at `path` is not this user's own. Inside a project it must be recorded
    /// as such and have no foreign parts; elsewhere only this user can have created it.
    fn foreign(&self, path: &Path) -> Result<Option<&'static str>, Error> {
        let is_own = if self.needs_trust(path) { self.is_recorded(path)? } else { is_store(path) };
        match is_own {
            true if self.needs_trust(path) => foreign_part(path),
            true => Ok(None),
            false => Ok(Some("it was not made by this user on this machine")),
        }
    }

    /// Returns whether the data directory records that this user made the store at `path`.
    fn is_recorded(&self, path: &Path) -> Result<bool, Error> {
        let data_dir = &self.options().data_dir;
        // A record inside a project may have come with it. It can forge a path but no inode.
        let (place, home) = (absolute(data_dir), self.options().home.as_deref());
        let by_path_alone = !is_in_project(&place, self.root(), home);
        let through_link = is_link(path) || self.links_above(path);
        Trust::of(data_dir).knows(path, through_link, by_path_alone)
    }

    /// Returns whether `path` lies in the own directory of this work tree's repository or of any
    /// other one.
    fn lies_in_repository(&self, path: &Path) -> bool {
        let own = self.context().repo.as_ref().map(UserRepo::own_dirs).unwrap_or_default();
        own.iter().any(|dir| path.starts_with(dir)) || is_below_repository(path)
    }

    /// Returns whether `path` is a store, or a repository with snapshots of another program. At a
    /// path that the caller named, any other repository is one of the user's.
    fn may_be_replaced(&self, path: &Path) -> bool {
        match self.options().store {
            Some(_) => is_store(path) || holds_only_snapshots(path),
            None => is_repository(path),
        }
    }

    /// Renames a foreign store or snapshot repository at `path` and creates a new store in its place.
    /// Returns the new path of the old directory and the reason, or `None` if nothing was replaced.
    fn replace_foreign_store(&self, path: &Path) -> Result<Option<(PathBuf, &'static str)>, Error> {
        if self.foreign(path)?.is_none() {
            return Ok(None);
        }
        let _lock = Trust::of(&self.options().data_dir).lock()?;
        // Another process may have replaced it meanwhile. The order matters: between two checks our
        // store may appear at an empty path, but never in place of a foreign store.
        if !is_filled(path) || !self.may_be_replaced(path) {
            return Ok(None);
        }
        let Some(why) = self.foreign(path)? else { return Ok(None) };
        // Processes that began before the foreign parts arrived may still write to it.
        let _unused = if self.is_recorded(path)? { self.lock_recorded(path)? } else { None };
        let old = aside_name(path);
        std::fs::rename(path, &old).named("rename", path)?;
        let store = self.make_store(path)?;
        if !self.needs_trust(path) {
            note_pending(store.path())?;
        }
        Ok(Some((old, why)))
    }

    /// Locks a store with foreign parts against all processes that use it. Returns `None` if the
    /// lock itself is one of those parts.
    fn lock_recorded(&self, path: &Path) -> Result<Option<Lock>, Error> {
        let lock = path.join("ctrlz").join("store.lock");
        let is_plain = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_file());
        if is_link(&path.join("ctrlz")) || !is_plain(&lock) {
            return Ok(None);
        }
        Lock::take(&lock, Sharing::Exclusive, self.options().patience).map(Some)
    }

    /// Opens or creates the store at `path`. A repository of another program there is set aside.
    pub(crate) fn create_store(&self, path: &Path) -> Result<Store, Error> {
        if !is_store(path) {
            if is_filled(path) {
                self.replace_foreign_store(path)?;
                self.finish_small_adoption(path)?;
            } else if self.needs_trust(path) {
                // Without the lock, another process could find the store before it is recorded.
                let _lock = Trust::of(&self.options().data_dir).lock()?;
                return self.make_store(path);
            }
        }
        Store::open_or_create(path, &self.options().ref_prefix, &self.store_exclude(path))
    }

    /// Opens or creates a store. A new store inside a project is recorded as this user's own.
    fn make_store(&self, path: &Path) -> Result<Store, Error> {
        let is_new = !is_filled(path);
        let (prefix, exclude) = (&self.options().ref_prefix, self.store_exclude(path));
        let store = Store::open_or_create(path, prefix, &exclude)?;
        if is_new && self.needs_trust(path) {
            // Before the store is recorded as trusted, so that a trusted store always lists the
            // stores that were set aside for it.
            if !set_aside(path).is_empty() {
                note_pending(path)?;
            }
            Trust::of(&self.options().data_dir).record(path)?;
        }
        Ok(store)
    }
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
}

/// Returns whether a directory has any entries. Any symlink counts as filled.
fn is_filled(path: &Path) -> bool {
    is_link(path) || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns whether a directory looks like a store or a bare git repository. Any symlink does.
fn is_repository(path: &Path) -> bool {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    is_link(path) || has("ctrlz") || (has("objects") && has("HEAD"))
}

/// Returns an unused name for an old store.
fn aside_name(path: &Path) -> PathBuf {
    let date = date_of(now_millis());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = |end: &str| path.with_file_name(format!("{name}.untrusted-{date}{end}"));
    let ends = std::iter::once(String::new()).chain((2..).map(|number| format!("-{number}")));
    let mut free = ends.map(|end| named(&end)).filter(|path| path.symlink_metadata().is_err());
    free.next().unwrap_or_else(|| named(""))
}

/// Returns the size of the files below a directory. Stops counting at `enough` bytes.
fn bytes_in(dir: &Path, enough: u64) -> u64 {
    let mut total = 0;
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() { dirs.push(entry.path()) } else { total += meta.len() }
        }
        if total >= enough {
            break;
        }
    }
    total
}
