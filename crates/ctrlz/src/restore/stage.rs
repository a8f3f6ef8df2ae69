//! Staging: writes new content under temporary names, and verifies it before any visible change.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::compare::Entry;
use crate::defect::Defect;
use crate::error::Error;
use crate::fs::{Dir, FileKind, Named, Stat, set_mode, set_owner, stat_file};
use crate::git::{EntryKind, Hasher, Kind, ObjectId};
use crate::pack::Objects;
use crate::path::{PathText, join, split};
use crate::scan::EntryStat;

use super::journal::{StatRecord, Thing};
use super::plan::NewThing;

/// Whether each file is flushed separately, or all of them at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    Each,
    Later,
}

/// Owner of staged files. Only root can change the owner of a file.
#[derive(Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl Owner {
    /// Returns the owner for a new file `name` in `dir`: that of the replaced file, else of the
    /// directory, so that root leaves no files of its own in a user's tree. `None` if not root.
    fn of(dir: &Dir, name: &[u8]) -> Result<Option<Owner>, Error> {
        if rustix::process::geteuid().as_raw() != 0 {
            return Ok(None);
        }
        let replaced = dir.stat(name)?.filter(|stat| stat.kind == FileKind::File);
        let Stat { uid, gid, .. } = match replaced {
            Some(file) => file,
            None => dir.stat_self()?,
        };
        Ok(Some(Owner { uid, gid }))
    }

    fn owns(&self, stat: &Stat) -> bool {
        (self.uid, self.gid) == (stat.uid, stat.gid)
    }
}

/// Stage of a restore that writes the new content.
#[derive(Clone, Copy)]
pub(super) struct Staging<'a> {
    pub(super) objects: &'a Objects,
    pub(super) flush: Flush,
}

impl Staging<'_> {
    /// Writes `new`, which will replace `name`, as `temporary` in `dir`. Returns its metadata.
    pub(super) fn stage(
        self,
        dir: &Dir,
        name: &[u8],
        temporary: &[u8],
        new: &NewThing,
    ) -> Result<Thing, Error> {
        let writer = Writer { staging: self, owner: Owner::of(dir, name)? };
        let staged = match new {
            NewThing::Leaf { entry, mode } => {
                let stat = writer.leaf(dir, temporary, entry, *mode)?;
                Thing::Leaf(StatRecord::from(&EntryStat::from(&stat)))
            }
            NewThing::Dir { mode, dirs, files } => {
                let top = writer.dir(dir, temporary, dirs, files)?;
                writer.finish_dir(&top, *mode)?;
                look_at(dir, temporary)?
            }
        };
        if self.flush == Flush::Each {
            dir.sync()?;
        }
        Ok(staged)
    }
}

/// Returns the metadata of the directory at `name` and of everything in it.
fn look_at(dir: &Dir, name: &[u8]) -> Result<Thing, Error> {
    let stat = dir.stat(name)?.ok_or_else(|| Error::moved(name))?;
    let top = dir.open_below(name)?;
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let inside = top.open_below(&path)?;
        for name in inside.names()? {
            let full = join(&path, &name);
            let stat = inside.stat(&name)?.ok_or_else(|| Error::moved(&full))?;
            if stat.kind == FileKind::Dir {
                dirs.push(PathText::from_bytes(&full));
                waiting.push(full);
            } else {
                let record = StatRecord::from(&EntryStat::from(&stat));
                files.push((PathText::from_bytes(&full), record));
            }
        }
    }
    Ok(Thing::Dir { inode: stat.inode, files, dirs })
}

/// Writer of the new content of a path.
struct Writer<'a> {
    staging: Staging<'a>,
    owner: Option<Owner>,
}

impl Writer<'_> {
    /// Writes one file or symlink and returns its metadata.
    fn leaf(&self, dir: &Dir, name: &[u8], entry: &Entry, mode: u32) -> Result<Stat, Error> {
        let Writer { staging: Staging { objects, flush }, owner } = *self;
        if entry.kind == EntryKind::Symlink {
            let target = objects.blob(&entry.id)?;
            dir.create_symlink(&target, name)?;
            if let Some(owner) = owner {
                dir.set_owner_of(name, owner.uid, owner.gid)?;
            }
            return dir.stat(name)?.ok_or_else(|| Error::moved(name));
        }
        let path = dir.path_of(name);
        let mut file = dir.create_file(name)?;
        let bytes = objects.copy_blob(&entry.id, &mut file)?;
        check_written(&file, &entry.id, bytes, &path)?;
        if Defect::Torn.is_made() {
            file.set_len(bytes / 2).named("write", &path)?;
        }
        set_mode(&file, mode).named("set the permissions of", &path)?;
        let mut stat = stat_file(&file, &path)?;
        if let Some(owner) = owner.filter(|owner| !owner.owns(&stat)) {
            set_owner(&file, owner.uid, owner.gid).named("set the owner of", &path)?;
            // Changing the owner may clear the set-user-id and set-group-id bits.
            set_mode(&file, mode).named("set the permissions of", &path)?;
            stat = stat_file(&file, &path)?;
        }
        if flush == Flush::Each {
            file.sync_all().named("flush", &path)?;
        }
        Ok(stat)
    }

    /// Writes a directory with everything in it. The caller sets its permissions.
    fn dir(
        &self,
        parent: &Dir,
        name: &[u8],
        dirs: &[(Vec<u8>, u32)],
        files: &[(Vec<u8>, Entry, u32)],
    ) -> Result<Dir, Error> {
        parent.create_dir(name)?;
        let top = parent.open_below(name)?;
        for (path, _) in dirs {
            let (above, name) = split(path);
            top.open_below(above)?.create_dir(name)?;
        }
        for (path, entry, mode) in files {
            let (above, name) = split(path);
            let dir = top.open_below(above)?;
            self.leaf(&dir, name, entry, *mode)?;
            if self.staging.flush == Flush::Each {
                dir.sync()?;
            }
        }
        // Permissions are set last and bottom-up: a read-only directory cannot be filled.
        for (path, mode) in dirs.iter().rev() {
            self.finish_dir(&top.open_below(path)?, *mode)?;
        }
        Ok(top)
    }

    fn finish_dir(&self, dir: &Dir, mode: u32) -> Result<(), Error> {
        if let Some(owner) = self.owner {
            dir.set_owner(owner.uid, owner.gid)?;
        }
        dir.set_mode_of_dir(mode)?;
        if self.staging.flush == Flush::Each {
            dir.sync()?;
        }
        Ok(())
    }
}

/// Reads the file back and checks its hash. The file replaces the user's data, so checking only the
/// object in the store is not enough.
fn check_written(
    file: &File,
    id: &ObjectId,
    bytes: u64,
    path: &std::path::Path,
) -> Result<(), Error> {
    const MAX_BUFFER_BYTES: u64 = 128 * 1024;
    let mut hasher = Hasher::object(Kind::Blob, bytes);
    let mut buffer = vec![0; bytes.min(MAX_BUFFER_BYTES) as usize];
    let mut at = 0;
    while at < bytes {
        let wanted = (bytes - at).min(MAX_BUFFER_BYTES) as usize;
        let count = match file.read_at(&mut buffer[..wanted], at) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other.named("read back", path)?,
        };
        if count == 0 {
            break;
        }
        hasher.update(&buffer[..count]);
        at += count as u64;
    }
    if hasher.finish() == Some(*id) {
        return Ok(());
    }
    Err(Error::damaged(id, "it was not written correctly"))
}
