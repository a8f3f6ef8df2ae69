//! Quarantine: a repair saves the intact objects of damaged packs, then moves the packs aside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::fs::private::{self, read_small};
use crate::fs::{Named, random_name};
use crate::git::{Hasher, Kind, ObjectId, PackFile, hash_object, salvage_pack};

use super::layout::Store;
use crate::pack::PackWriter;

/// Upper bound on the size of a pack that is read into memory because its index is unusable.
const MAX_PACK_BYTES: u64 = 2 << 30;
const MAX_OBJECT_BYTES: usize = 1 << 30;

impl Store {
    pub(crate) fn quarantine_dir(&self) -> PathBuf {
        self.path().join("ctrlz").join("quarantine")
    }

    /// Returns the usable packs in which an entry or the index does not match its checksum.
    pub(crate) fn flawed_packs(&self) -> Vec<Arc<PackFile>> {
        self.objects.open_packs().into_iter().filter(|pack| !is_intact(pack)).collect()
    }

    /// Returns the packs that have no usable index or are truncated.
    pub(crate) fn unusable_packs(&self) -> Result<Vec<PathBuf>, Error> {
        let usable: Vec<PathBuf> =
            self.objects.open_packs().iter().map(|pack| pack.path().to_owned()).collect();
        let dir = self.objects_dir().join("pack");
        let mut found = Vec::new();
        for path in private::list(&dir)? {
            let is_pack = path.extension().is_some_and(|part| part == "pack" || part == "idx");
            let pack = path.with_extension("pack");
            if is_pack && !usable.contains(&pack) && !found.contains(&pack) {
                found.push(pack);
            }
        }
        Ok(found)
    }

    /// Adds to `pack` every intact object of a flawed pack that no intact pack holds.
    pub(crate) fn salvage_flawed(
        &self,
        flawed: &PackFile,
        all_flawed: &[Arc<PackFile>],
        pack: &PackWriter,
    ) -> Result<(), Error> {
        let is_flawed = |path: &Path| all_flawed.iter().any(|other| other.path() == path);
        let packs = self.objects.open_packs();
        let safe = |id: &ObjectId| {
            packs.iter().any(|pack| !is_flawed(pack.path()) && pack.contains(id)) || pack.has(id)
        };
        for id in flawed.ids().filter(|id| !safe(id)) {
            if let Ok(Some((kind, bytes))) = flawed.read(&id)
                && hash_object(kind, &bytes) == Some(id)
            {
                pack.add(kind, &bytes, |_| false)?;
            }
        }
        Ok(())
    }

    /// Scans a pack without its index and adds the objects that `wanted` accepts to `pack`.
    pub(crate) fn salvage_unusable(
        &self,
        path: &Path,
        wanted: &dyn Fn(&ObjectId) -> bool,
        pack: &PackWriter,
    ) -> Result<(), Error> {
        let Some(bytes) = read_small(path, MAX_PACK_BYTES)? else { return Ok(()) };
        let mut failure = None;
        salvage_pack(&bytes, MAX_OBJECT_BYTES, &mut |kind: Kind, object: &[u8]| {
            let is_wanted = hash_object(kind, object).is_some_and(|id| wanted(&id));
            if is_wanted && failure.is_none() {
                failure = pack.add(kind, object, |_| false).err();
            }
        });
        failure.map_or(Ok(()), Err)
    }

    /// Returns the packs that were moved aside before.
    pub(crate) fn quarantined_packs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.quarantine_dir()).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|part| part == "pack")).collect()
    }

    /// Moves a pack and its index files aside and returns its new path.
    ///
    /// The caller holds the store's lock exclusively. Intact objects are durable in another pack.
    pub(crate) fn quarantine_pack(&self, pack: &Path) -> Result<PathBuf, Error> {
        // The index is moved first: without it the pack is not used.
        for extension in ["idx", "bitmap", "rev", "mtimes"] {
            self.quarantine(&pack.with_extension(extension))?;
        }
        self.quarantine(pack)
    }

    /// Moves any file of the store aside and returns its new path. A missing file is not an error.
    pub(crate) fn quarantine(&self, path: &Path) -> Result<PathBuf, Error> {
        let dir = self.quarantine_dir();
        private::create_dirs(&dir)?;
        let name = path.file_name().unwrap_or_default();
        let mut to = dir.join(name);
        if to.symlink_metadata().is_ok() {
            to = dir.join(format!("{}-{}", random_name(), name.to_string_lossy()));
        }
        private::absent_is_fine(std::fs::rename(path, &to)).named("move aside", path)?;
        private::sync_dir(&dir)?;
        path.parent().map_or(Ok(()), private::sync_dir)?;
        Ok(to)
    }

    /// Deletes everything that was moved aside and returns the number of files.
    pub(crate) fn empty_quarantine(&self) -> Result<u64, Error> {
        let dir = self.quarantine_dir();
        let mut count = 0;
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.named("list", &dir)?.path();
            std::fs::remove_file(&path).named("remove", &path)?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the file names of packs that could not be merged because of damage.
    pub(crate) fn known_flawed(&self) -> BTreeSet<String> {
        let bytes = read_small(&self.path().join("ctrlz/flawed"), 1 << 20).ok().flatten();
        String::from_utf8_lossy(&bytes.unwrap_or_default()).lines().map(str::to_owned).collect()
    }

    /// Notes packs that cannot be merged, so that no command retries and `status` reports them.
    pub(crate) fn note_flawed(&self, packs: &[PathBuf]) -> Result<(), Error> {
        if packs.is_empty() {
            return Ok(());
        }
        let dir = self.objects_dir().join("pack");
        let mut names = self.known_flawed();
        names.retain(|name| dir.join(name).exists());
        names.extend(packs.iter().filter_map(|pack| Some(pack.file_name()?.to_str()?.to_owned())));
        let text: String = names.iter().map(|name| format!("{name}\n")).collect();
        let path = self.path().join("ctrlz/flawed");
        Ok(private::replace(&path, text.as_bytes(), private::Durable::No)?)
    }

    /// Returns every pack that is known to be damaged, with the reason.
    pub(crate) fn damaged_packs(&self) -> Vec<(PathBuf, String)> {
        let mut packs = self.objects.damaged_packs();
        let why = "something in it is damaged, so it is not merged with others";
        for pack in self.objects.open_packs() {
            if is_among(&self.known_flawed(), &pack) {
                packs.push((pack.path().to_owned(), why.into()));
            }
        }
        packs
    }

    /// Returns the objects known to be lost, on which garbage collection must not fail.
    pub(crate) fn known_lost(&self) -> Result<BTreeSet<ObjectId>, Error> {
        let bytes = read_small(&self.path().join("ctrlz/lost"), 64 << 20)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    pub(crate) fn note_lost(&self, ids: impl Iterator<Item = ObjectId>) -> Result<(), Error> {
        let text: String = ids.map(|id| format!("{id}\n")).collect();
        let path = self.path().join("ctrlz/lost");
        if text.is_empty() && !path.exists() {
            Ok(())
        } else {
            Ok(private::replace(&path, text.as_bytes(), private::Durable::Yes)?)
        }
    }
}

/// Returns whether a pack's file name is in `names`.
pub(crate) fn is_among(names: &BTreeSet<String>, pack: &PackFile) -> bool {
    let name = pack.path().file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| names.contains(name))
}

/// Returns whether the index and every entry of a pack match their checksums.
fn is_intact(pack: &PackFile) -> bool {
    let index = std::fs::read(pack.path().with_extension("idx")).unwrap_or_default();
    let Some((body, sum)) = index.split_last_chunk::<20>() else { return false };
    let mut hasher = Hasher::raw();
    hasher.update(body);
    hasher.finish().is_some_and(|found| found.as_bytes() == sum)
        && pack.raw_entries().len() == pack.object_count() as usize
}
