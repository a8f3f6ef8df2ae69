//! The registry: maps a path to its store and to its work tree's part of that store.
//!
//! ```text
//! <data>/origin             random name that is unique to this data directory
//! <data>/paths/<hash>       one record per path
//! ```
//!
//! A store at a path that the caller chose keeps the same files under its own `ctrlz/`. A record
//! also identifies the directory it was made for. So a moved directory keeps its history, a copy
//! does not inherit it, and another project at the same path gets a history of its own.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Landmark, random_name};
use crate::git::Hasher;
use crate::path::PathText;

use super::lock::{Lock, Sharing};
use super::project::path_hash;
use super::record::{Claim, Record, read_record, to_path};
use super::user_repo::UserRepo;

/// Upper bound on the `moved_to` links followed from one path, in case they form a cycle.
const MAX_MOVES: usize = 100;

/// State of a directory according to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The directory is recorded.
    Known(Claim),
    /// The directory was certainly recorded under another path and is no longer there.
    Moved { from: PathBuf, claim: Claim },
    /// Another directory was recorded at this path.
    Replaced,
    /// The directory may be one that was recorded at a path that no longer exists.
    MayBe { old: PathBuf },
    /// The directory is not recorded.
    New,
}

/// Records of a data directory or of a store.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// Directory with `origin` and `paths`. Log names derive from `origin`, so it outlives `paths`.
    dir: PathBuf,
}

impl Registry {
    pub(crate) fn of_data_dir(data_dir: &Path) -> Registry {
        Registry { dir: data_dir.to_owned() }
    }

    /// Returns the registry of a store outside of every data directory.
    pub(crate) fn of_store(git_dir: &Path) -> Registry {
        Registry { dir: git_dir.join("ctrlz") }
    }

    fn paths(&self) -> PathBuf {
        self.dir.join("paths")
    }

    fn record_path(&self, root: &Path) -> PathBuf {
        self.paths().join(path_hash(root))
    }

    fn read(&self, root: &Path) -> Result<Option<Record>, Error> {
        read_record(&self.record_path(root))
    }

    fn write(&self, root: &Path, record: &Record) -> Result<(), Error> {
        let sealed = Record { checksum: Some(record.sum()), ..record.clone() };
        Ok(private::replace(&self.record_path(root), &sealed.to_json(), Durable::Yes)?)
    }

    fn lock(&self) -> Result<Lock, Error> {
        private::create_dirs(&self.paths())?;
        Lock::take(&self.paths().join("lock"), Sharing::Exclusive, Duration::from_secs(10))
    }

    /// Returns the state of the directory `root` without changing anything.
    pub(crate) fn standing(&self, root: &Path, repo: Option<&UserRepo>) -> Result<Standing, Error> {
        let here = Landmark::of(root);
        match self.read(root)? {
            Some(record) if record.moved_to.is_none() => {
                if record.claim.fits(here, repo)? {
                    Ok(Standing::Known(record.claim))
                } else {
                    Ok(self.moved(here)?.unwrap_or(Standing::Replaced))
                }
            }
            _ => match self.moved(here)? {
                Some(moved) => Ok(moved),
                None => self.perhaps(root, repo),
            },
        }
    }

    /// Returns the record of the directory `here` if it was moved here from another path.
    fn moved(&self, here: Option<Landmark>) -> Result<Option<Standing>, Error> {
        let Some(here) = here else { return Ok(None) };
        for record in self.records()? {
            let Some(then) = record.claim.landmark else { continue };
            let from = record.root();
            let is_gone = Landmark::of(&from).is_none_or(|now| !now.is(&then));
            if record.moved_to.is_none() && then.is(&here) && is_gone {
                return Ok(Some(Standing::Moved { from, claim: record.claim }));
            }
        }
        Ok(None)
    }

    /// Looks for the only record of the same project, or without a repository of the same directory
    /// name, whose path no longer exists. That is not proof of a move, because git worktrees come
    /// and go.
    fn perhaps(&self, root: &Path, repo: Option<&UserRepo>) -> Result<Standing, Error> {
        let name = root.file_name();
        let mut records = self.records()?;
        records.retain(|record| {
            record.moved_to.is_none() && record.root().symlink_metadata().is_err()
        });
        if records.is_empty() {
            return Ok(Standing::New);
        }
        let root_commit = repo.map(UserRepo::root_commit).transpose()?.flatten();
        let project = root_commit.map(|id| id.to_string());
        let alike = |record: &&Record| match &project {
            Some(project) => record.claim.id == *project,
            None => repo.is_none() && record.root().file_name() == name,
        };
        let mut found = records.iter().filter(alike);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(Standing::MayBe { old: only.root() }),
            _ => Ok(Standing::New),
        }
    }

    fn records(&self) -> Result<Vec<Record>, Error> {
        let Ok(entries) = std::fs::read_dir(self.paths()) else { return Ok(Vec::new()) };
        let mut records = Vec::new();
        for entry in entries.flatten() {
            records.extend(read_record(&entry.path())?);
        }
        records.sort_by_cached_key(Record::root);
        Ok(records)
    }

    /// Returns the nearest directory at or above `dir` that is a known work tree, even if moved.
    pub(crate) fn known_above(&self, dir: &Path) -> Option<PathBuf> {
        let is_known = |dir: &&Path| {
            self.read(dir).ok().flatten().is_some_and(|record| record.moved_to.is_none())
        };
        let by_path = dir.ancestors().find(is_known);
        let is_moved = |dir: &&Path| self.moved(Landmark::of(dir)).ok().flatten().is_some();
        by_path.or_else(|| dir.ancestors().find(is_moved)).map(Path::to_owned)
    }

    /// Returns the claim of `root`, and records a new one if there is none. `store` names the store
    /// if the caller has already chosen it.
    pub(crate) fn claim(
        &self,
        root: &Path,
        repo: Option<&UserRepo>,
        store: Option<&str>,
    ) -> Result<Claim, Error> {
        let here = Landmark::of(root);
        if let Some(record) = self.read(root)?
            && record.moved_to.is_none()
            && (here.is_none() || record.claim.landmark == here)
        {
            self.sweep_after(&self.record_path(root))?;
            return Ok(record.claim);
        }
        let _lock = self.lock()?;
        private::sweep(&self.dir)?;
        private::sweep(&self.paths())?;
        let found = self.read(root)?;
        let claim = match found.as_ref().filter(|record| record.moved_to.is_none()) {
            // The landmark changed but still fits: the machine was rebooted, the whole file system
            // was copied, or another clone of the project is here.
            Some(record) if record.claim.fits(here, repo)? => {
                let landmark = here.or(record.claim.landmark);
                Claim { landmark, ..record.claim.clone() }
            }
            _ => self.new_claim(root, repo, store, found.is_some())?,
        };
        let mut former = found.as_ref().map(|record| record.former.clone()).unwrap_or_default();
        former.extend(found.map(|record| record.claim).filter(|old| !old.is_of(&claim)));
        let path = PathText::from_bytes(root.as_os_str().as_bytes());
        let (moved_to, checksum) = (None, None);
        self.write(root, &Record { path, claim: claim.clone(), moved_to, former, checksum })?;
        Ok(claim)
    }

    /// Returns the claim that [`Registry::claim`] would derive for a directory without a record.
    /// Returns `None` if that claim would be random or no store has a work tree of its name.
    pub(crate) fn derived(
        &self,
        root: &Path,
        repo: Option<&UserRepo>,
        store: Option<&str>,
    ) -> Result<Option<Claim>, Error> {
        let Some(origin) = read_origin(&self.dir.join("origin"))? else { return Ok(None) };
        // Checked first, because naming the project may walk all of its commits.
        if self.has_work_tree(&work_tree_id(&origin, root, "")) {
            self.new_claim(root, repo, store, false).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns whether a store of this registry has a work tree directory of this name.
    fn has_work_tree(&self, name: &str) -> bool {
        let stores = std::fs::read_dir(self.dir.join("snapshot"));
        let stores = stores.into_iter().flatten().flatten().map(|store| store.path().join("ctrlz"));
        stores.chain([self.dir.clone()]).any(|dir| dir.join("wt").join(name).exists())
    }

    /// Removes temporary files that a power loss may have left beside a record. Skipped unless the
    /// directory changed after the record was written, because a sweep lists thousands of records.
    fn sweep_after(&self, record: &Path) -> Result<(), Error> {
        const AT_ONCE: Duration = Duration::from_millis(50);
        let paths = self.paths();
        let (Ok(dir), Ok(record)) = (paths.metadata(), record.metadata()) else { return Ok(()) };
        // Renaming the record into place sets both its ctime and the directory's mtime.
        let written = Duration::new(record.ctime().max(0) as u64, record.ctime_nsec() as u32);
        let changed = Duration::new(dir.mtime().max(0) as u64, dir.mtime_nsec() as u32);
        if changed > written + AT_ONCE {
            private::sweep(&paths)?;
        }
        Ok(())
    }

    fn new_claim(
        &self,
        root: &Path,
        repo: Option<&UserRepo>,
        store: Option<&str>,
        is_taken: bool,
    ) -> Result<Claim, Error> {
        // The names derived from the path belong to the directory that was here before.
        let salt = if is_taken { random_name() } else { String::new() };
        let root_commit = match (store, repo) {
            (None, Some(repo)) => repo.root_commit()?,
            _ => None,
        };
        let id = match (store, root_commit) {
            (Some(store), _) => store.to_owned(),
            (None, Some(commit)) => commit.to_string(),
            (None, None) if is_taken => format!("path-{salt}"),
            (None, None) => format!("path-{}", path_hash(root)),
        };
        let work_tree = work_tree_id(&self.origin()?, root, &salt);
        Ok(Claim { id, work_tree, landmark: Landmark::of(root) })
    }

    /// Returns the random name that is unique to this data directory. Creates it if missing.
    fn origin(&self) -> Result<String, Error> {
        let path = self.dir.join("origin");
        if let Some(origin) = read_origin(&path)? {
            return Ok(origin);
        }
        private::create_dirs(&self.dir)?;
        self.new_origin()
    }

    /// Replaces the origin, so that the data directory differs from those it was copied from or to.
    fn new_origin(&self) -> Result<String, Error> {
        let origin = random_name();
        private::replace(&self.dir.join("origin"), origin.as_bytes(), Durable::Yes)?;
        Ok(origin)
    }

    /// Returns a claim on the same store with a unique work tree name. It is not recorded yet.
    pub(crate) fn another(&self, root: &Path, claim: &Claim) -> Result<Claim, Error> {
        let work_tree = work_tree_id(&self.new_origin()?, root, &random_name());
        Ok(Claim { work_tree, ..claim.clone() })
    }

    /// Records that `root` has this history from now on, and that `from`, if it is another path,
    /// does not.
    pub(crate) fn hand_over(&self, from: &Path, root: &Path, claim: &Claim) -> Result<(), Error> {
        let _lock = self.lock()?;
        let claim = Claim { landmark: Landmark::of(root), ..claim.clone() };
        let old = self.read(root)?;
        let mut former = old.as_ref().map(|record| record.former.clone()).unwrap_or_default();
        former.extend(old.map(|record| record.claim));
        former.retain(|former| !former.is_of(&claim));
        let path = PathText::from_bytes(root.as_os_str().as_bytes());
        // The new path is written first. After a kill in between both records name the history, but
        // only one of the two directories exists.
        self.write(
            root,
            &Record {
                path: path.clone(),
                claim: claim.clone(),
                moved_to: None,
                former,
                checksum: None,
            },
        )?;
        if from == root {
            return Ok(());
        }
        let Some(mut left) = self.read(from)? else { return Ok(()) };
        left.former.retain(|former| !former.is_of(&claim));
        if left.claim.is_of(&claim) {
            left.moved_to = Some(path);
        }
        self.write(from, &left)
    }

    /// Returns the history that a user means by the path `old`, and the path that has it now.
    /// Returns `None` if nothing was ever recorded there.
    pub(crate) fn history_of(&self, old: &Path) -> Result<Option<(PathBuf, Claim)>, Error> {
        let mut at = old.to_owned();
        for _ in 0..MAX_MOVES {
            let Some(record) = self.read(&at)? else { return Ok(None) };
            if let Some(next) = &record.moved_to {
                at = to_path(next);
                continue;
            }
            let here = Landmark::of(&at);
            let is_alive = here.is_some() && here == record.claim.landmark;
            let claim = match record.former.last() {
                // The directory there now has a history of its own, so the previous one is meant.
                Some(former) if is_alive => former.clone(),
                _ => record.claim,
            };
            return Ok(Some((at, claim)));
        }
        Ok(None)
    }

    /// Returns whether the directory that a history was recorded for is still at `path`.
    pub(crate) fn is_in_use(&self, path: &Path, claim: &Claim) -> Result<bool, Error> {
        let Some(record) = self.read(path)? else { return Ok(false) };
        let is_current = record.moved_to.is_none() && record.claim.is_of(claim);
        let fits = match (record.claim.landmark, Landmark::of(path)) {
            (Some(then), Some(now)) => then.may_be(&now),
            _ => path.is_dir(),
        };
        Ok(is_current && fits)
    }

    /// Records that `root`, which is empty, belongs to the project of `other`. An earlier record of
    /// `root` is of a work tree that is gone. Its history is kept as a former one.
    pub(crate) fn adopt_project(&self, other: &Path, root: &Path) -> Result<(), Error> {
        let Some(project) = self.read(other)? else { return Ok(()) };
        let id = Some(project.claim.id.as_str());
        match self.read(root)?.filter(|known| known.moved_to.is_none()) {
            Some(known) if known.claim.id != project.claim.id => {
                let claim = self.new_claim(root, None, id, true)?;
                self.hand_over(root, root, &claim)
            }
            _ => self.claim(root, None, id).map(drop),
        }
    }
}

/// Returns the name of a work tree's part of any store. It is unique and does not reveal the path.
fn work_tree_id(origin: &str, root: &Path, salt: &str) -> String {
    let mut hasher = Hasher::raw();
    hasher.update(origin.as_bytes());
    hasher.update(salt.as_bytes());
    hasher.update(b"\0");
    hasher.update(root.as_os_str().as_bytes());
    let hash = hasher.finish().map_or_else(random_name, |id| id.to_string());
    hash[..16].to_owned()
}

fn read_origin(path: &Path) -> Result<Option<String>, Error> {
    let text = String::from_utf8(read_small(path, 64)?.unwrap_or_default()).unwrap_or_default();
    let is_name = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok(is_name.then_some(text))
}
