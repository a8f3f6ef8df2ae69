//! Refs: read as git reads them, written under ctrlz's lock and git's own `<ref>.lock`.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, StoreError};
use crate::fs::private::{self, read_small};
use crate::fs::{FileError, Named};
use crate::git::ObjectId;

/// Age at which a lock file of git counts as abandoned. Git holds them for milliseconds.
const STALE: Duration = Duration::from_secs(10);

/// Refs of a repository.
#[derive(Debug)]
pub(crate) struct Refs {
    git_dir: PathBuf,
}

impl Refs {
    pub(crate) fn new(git_dir: &Path) -> Refs {
        Refs { git_dir: git_dir.to_owned() }
    }

    /// Returns the value of a ref, loose or packed.
    pub(crate) fn read(&self, name: &str) -> Result<Option<ObjectId>, FileError> {
        if let Some(bytes) = read_small(&self.git_dir.join(name), 4096)?
            && let Some(id) = parse_hex(&bytes)
        {
            return Ok(Some(id));
        }
        Ok(self.packed()?.into_iter().find(|(packed, _)| packed == name).map(|(_, id)| id))
    }

    /// Returns every ref whose name starts with `prefix`, sorted by name.
    pub(crate) fn list(&self, prefix: &str) -> Result<Vec<(String, ObjectId)>, FileError> {
        let mut found: std::collections::BTreeMap<String, ObjectId> =
            self.packed()?.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
        for path in self.files(prefix.trim_end_matches('/'), false)? {
            if let Some(name) = path.strip_prefix(&self.git_dir).unwrap_or(&path).to_str()
                && let Some(bytes) = read_small(&path, 4096)?
                && let Some(id) = parse_hex(&bytes)
            {
                found.insert(name.to_owned(), id);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Returns all files below a directory of refs, except lock files. A missing directory is an
    /// error if `strict`.
    pub(crate) fn files(&self, dir: &str, strict: bool) -> Result<Vec<PathBuf>, FileError> {
        let mut found = Vec::new();
        let mut dirs = vec![self.git_dir.join(dir)];
        while let Some(dir) = dirs.pop() {
            let entries = match std::fs::read_dir(&dir) {
                Err(error) if !strict && error.kind() == ErrorKind::NotFound => continue,
                entries => entries.named("list", &dir)?,
            };
            for entry in entries {
                let entry = entry.named("list", &dir)?;
                let path = entry.path();
                if entry.file_type().named("look at", &path)?.is_dir() {
                    dirs.push(path);
                } else if !entry.file_name().as_encoded_bytes().ends_with(b".lock") {
                    found.push(path);
                }
            }
        }
        Ok(found)
    }

    fn packed(&self) -> Result<Vec<(String, ObjectId)>, FileError> {
        let bytes = read_small(&self.git_dir.join("packed-refs"), 64 << 20)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let parse = |line: &str| {
            let (id, name) = line.split_once(' ')?;
            Some((name.to_owned(), id.parse().ok()?))
        };
        Ok(text.lines().filter(|line| !line.starts_with(['#', '^'])).filter_map(parse).collect())
    }

    /// Sets a ref, durably. The caller holds the ctrlz lock of the ref's owner.
    ///
    /// `scratch` is a path on the same file system that no other process uses at this time.
    pub(crate) fn write(&self, name: &str, id: &ObjectId, scratch: &Path) -> Result<(), Error> {
        let path = self.git_dir.join(name);
        let lock = self.git_dir.join(format!("{name}.lock"));
        let parent = path.parent().unwrap_or(&self.git_dir);
        self.check_links(parent)?;
        private::create_dirs(parent)?;
        self.clear_own_lock(name, scratch)?;
        let mut file = private::create_held(scratch)?;
        file.write_all(format!("{id}\n").as_bytes()).named("write", scratch)?;
        private::flush(&file, scratch)?;
        self.take_git_lock(&lock, scratch)?;
        let moved = std::fs::rename(&lock, &path).named("update", &path);
        if moved.is_err() {
            private::remove(&lock)?;
        }
        moved?;
        private::remove(scratch)?;
        private::sync_dir(parent)?;
        Ok(())
    }

    /// Refuses to write to a ref through a symlinked directory.
    fn check_links(&self, parent: &Path) -> Result<(), Error> {
        let below = parent.ancestors().take_while(|dir| *dir != self.git_dir);
        let is_link = |dir: &Path| dir.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if below.into_iter().any(is_link) {
            Err(Error::untrusted(&self.git_dir, "a directory of its refs is a link"))
        } else {
            Ok(())
        }
    }

    /// Removes a ref, loose and packed. The caller holds the ctrlz lock of the ref's owner.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Error> {
        self.check_links(self.git_dir.join(name).parent().unwrap_or(&self.git_dir))?;
        if self.packed()?.iter().any(|(packed, _)| packed == name) {
            self.unpack(name)?;
        }
        Ok(private::remove(&self.git_dir.join(name))?)
    }

    /// Rewrites `packed-refs` without `name`, under git's own lock.
    fn unpack(&self, name: &str) -> Result<(), Error> {
        let path = self.git_dir.join("packed-refs");
        let lock = self.git_dir.join("packed-refs.lock");
        let scratch = self.git_dir.join(format!("ctrlz/tmp_{}", crate::fs::random_name()));
        let held = private::create_held(&scratch)?;
        let taken = self.take_git_lock(&lock, &scratch);
        drop(held);
        private::remove(&scratch)?;
        taken?;
        let written = self.packed_without(name).and_then(|text| {
            std::fs::write(&lock, text).named("write", &lock)?;
            std::fs::File::open(&lock).and_then(|file| file.sync_all()).named("flush", &lock)?;
            std::fs::rename(&lock, &path).named("update", &path)
        });
        if written.is_err() {
            private::remove(&lock)?;
        }
        Ok(written?)
    }

    fn packed_without(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let bytes = read_small(&self.git_dir.join("packed-refs"), 64 << 20)?.unwrap_or_default();
        let mut kept = Vec::with_capacity(bytes.len());
        let mut is_gone = false;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line that starts with `^` belongs to the line before it (peeled tag).
            is_gone = match line.first() {
                Some(b'^') => is_gone,
                _ => line.trim_ascii_end().ends_with(format!(" {name}").as_bytes()),
            };
            if !is_gone {
                kept.extend_from_slice(line);
            }
        }
        Ok(kept)
    }

    /// Returns all refs. An unreadable ref is an error, because its objects must not be collected.
    ///
    /// Other processes may write refs concurrently. A new ref may or may not be included; a ref
    /// that is moved to `packed-refs` is found there.
    pub(crate) fn all(&self) -> Result<Vec<(String, ObjectId)>, Error> {
        let mut found: std::collections::BTreeMap<String, ObjectId> =
            self.list("refs")?.into_iter().collect();
        for path in self.files("refs", true)? {
            let relative = path.strip_prefix(&self.git_dir).unwrap_or(&path);
            let name = relative.to_string_lossy().into_owned();
            if found.contains_key(&name) {
                continue;
            }
            // It was created after `list` ran, or it is unreadable.
            match read_small(&path, 4096)?.map(|bytes| parse_hex(&bytes)) {
                Some(Some(id)) => drop(found.insert(name, id)),
                Some(None) => return Err(Error::Store(StoreError::LostRef { path })),
                None => (),
            }
        }
        for (name, id) in self.packed()? {
            found.entry(name).or_insert(id);
        }
        Ok(found.into_iter().collect())
    }

    /// Hard-links the finished file to git's lock name, which succeeds for only one process.
    fn take_git_lock(&self, lock: &Path, scratch: &Path) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            match std::fs::hard_link(scratch, lock) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
                Err(error) => return Ok(Err(error).named("lock", lock)?),
            }
            if is_stale(lock) {
                private::remove(lock)?;
            } else if start.elapsed() > STALE {
                return Err(Error::Busy {
                    path: lock.to_owned(),
                    holder: "a git process".into(),
                    waited_seconds: start.elapsed().as_secs(),
                });
            } else {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Removes the lock that a killed ctrlz process left: it is a hard link to `scratch`. The
    /// caller holds the lock under which it was created, so its creator no longer runs.
    pub(crate) fn clear_own_lock(&self, name: &str, scratch: &Path) -> Result<(), FileError> {
        use std::os::unix::fs::MetadataExt;
        let Ok(own) = scratch.symlink_metadata() else { return Ok(()) };
        let lock = self.git_dir.join(format!("{name}.lock"));
        let is_own = lock
            .symlink_metadata()
            .is_ok_and(|meta| meta.ino() == own.ino() && meta.dev() == own.dev());
        if is_own {
            private::remove(&lock)?;
        }
        private::remove(scratch)
    }
}

fn is_stale(lock: &Path) -> bool {
    let age = lock
        .symlink_metadata()
        .and_then(|meta| meta.modified())
        .ok()
        .and_then(|time| SystemTime::now().duration_since(time).ok());
    age.is_some_and(|age| age > STALE)
}

fn parse_hex(bytes: &[u8]) -> Option<ObjectId> {
    std::str::from_utf8(bytes).ok()?.trim_end().parse().ok()
}
