//! The registry: which store and which part of it belong to a path.
//!
//! ```text
//! <data>/origin             what tells this data directory from every other one
//! <data>/paths/<hash>       one record per path
//! ```
//!
//! A store at a place of the caller's choice keeps the same under its own `ctrlz/`. A record also
//! says which directory it was made for, so that a moved one is known again, a copy is no heir,
//! and another project at the same path never gets the history of the one before.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::fs::{Landmark, random_name};
use crate::git::Hasher;
use crate::path::PathText;

use super::lock::{Lock, Sharing};
use super::project::path_hash;
use super::user_repo::UserRepo;

/// Tombstones are followed no further than this.
const MAX_MOVES: usize = 100;

/// A history: a store, and a work tree's part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The project, which is the store's name in the data directory.
    pub(crate) id: String,
    pub(crate) work_tree: String,
    /// The directory it was recorded for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    landmark: Option<Landmark>,
}

/// What is known of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    path: PathText,
    #[serde(flatten)]
    claim: Claim,
    /// Where the directory went, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moved_to: Option<PathText>,
    /// Histories of other directories that were here before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<Claim>,
    /// Of everything else in it: a wrong name would lead to an empty history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<u32>,
}

/// What the registry says of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is recorded.
    Known(Claim),
    /// It certainly was recorded under another path, where it no longer is.
    Moved { from: PathBuf, claim: Claim },
    /// Another directory was recorded at this path.
    Replaced,
    /// It may be a directory that was recorded at a path where nothing is any more.
    MayBe { old: PathBuf },
    /// Nothing is known of it.
    New,
}

/// The records of a data directory or of a store.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    /// Where `origin` and `paths` lie; names of logs come from the one, so it outlives the other.
    dir: PathBuf,
}

impl Registry {
    pub(crate) fn of_data_dir(data_dir: &Path) -> Registry {
        Registry { dir: data_dir.to_owned() }
    }

    /// The registry of a store that no data directory knows.
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

    /// What is known of the directory `root`, without changing anything.
    pub(crate) fn standing(&self, root: &Path, repo: Option<&UserRepo>) -> Result<Standing, Error> {
        let here = Landmark::of(root);
        match self.read(root)? {
            Some(record) if record.moved_to.is_none() => match record.claim.fits(here, repo)? {
                true => Ok(Standing::Known(record.claim)),
                false => Ok(self.moved(here)?.unwrap_or(Standing::Replaced)),
            },
            _ => match self.moved(here)? {
                Some(moved) => Ok(moved),
                None => self.perhaps(root, repo),
            },
        }
    }

    /// The record of a directory that is `here` now and was elsewhere.
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

    /// A record of the same project at a path where nothing is any more. Worktrees come and go, so
    /// that proves nothing.
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

    /// The nearest directory at or above `dir` that is known as a work tree, under whatever path.
    pub(crate) fn known_above(&self, dir: &Path) -> Option<PathBuf> {
        let is_known = |dir: &&Path| {
            self.read(dir).ok().flatten().is_some_and(|record| record.moved_to.is_none())
        };
        let by_path = dir.ancestors().find(is_known);
        let is_moved = |dir: &&Path| self.moved(Landmark::of(dir)).ok().flatten().is_some();
        by_path.or_else(|| dir.ancestors().find(is_moved)).map(Path::to_owned)
    }

    /// The claim of `root`, recorded now if there is none. `store` names the store where that is
    /// decided already.
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
            // A machine that started again, a file system that was copied whole.
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

    /// What [`Registry::claim`] would give a directory of which nothing is recorded; `None` if it
    /// would have to be made up.
    pub(crate) fn derived(
        &self,
        root: &Path,
        repo: Option<&UserRepo>,
        store: Option<&str>,
    ) -> Result<Option<Claim>, Error> {
        let Some(origin) = read_origin(&self.dir.join("origin"))? else { return Ok(None) };
        // Naming the project may mean walking through all of its commits.
        match self.has_work_tree(&work_tree_id(&origin, root, "")) {
            true => self.new_claim(root, repo, store, false).map(Some),
            false => Ok(None),
        }
    }

    /// Whether a store that belongs here has a work tree's part of this name.
    fn has_work_tree(&self, name: &str) -> bool {
        let stores = std::fs::read_dir(self.dir.join("snapshot"));
        let stores = stores.into_iter().flatten().flatten().map(|store| store.path().join("ctrlz"));
        stores.chain([self.dir.clone()]).any(|dir| dir.join("wt").join(name).exists())
    }

    /// Removes what a power cut may have left beside a record, if anything was written there since:
    /// with thousands of records, looking is not free.
    fn sweep_after(&self, record: &Path) -> Result<(), Error> {
        const AT_ONCE: Duration = Duration::from_millis(50);
        let paths = self.paths();
        let (Ok(dir), Ok(record)) = (paths.metadata(), record.metadata()) else { return Ok(()) };
        // A rename moves both.
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
        // Where something was before, what is derived from the path is somebody else's.
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

    /// What tells this data directory from every other one, on whatever machine.
    fn origin(&self) -> Result<String, Error> {
        let path = self.dir.join("origin");
        if let Some(origin) = read_origin(&path)? {
            return Ok(origin);
        }
        private::create_dirs(&self.dir)?;
        self.new_origin()
    }

    /// Makes the data directory another one than those it was copied from or to.
    fn new_origin(&self) -> Result<String, Error> {
        let origin = random_name();
        private::replace(&self.dir.join("origin"), origin.as_bytes(), Durable::Yes)?;
        Ok(origin)
    }

    /// A claim on the same store under a name that nobody else has; not recorded yet.
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
        // The new path first: killed in between, both name the history, and only one exists.
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

    /// The history that somebody who names the path `old` means, and the path that has it now.
    /// `None` if nothing was ever recorded there.
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
                // What is there now has a history of its own; the one before it is meant.
                Some(former) if is_alive => former.clone(),
                _ => record.claim,
            };
            return Ok(Some((at, claim)));
        }
        Ok(None)
    }

    /// Whether the directory that a history was recorded for is still at `path`.
    pub(crate) fn is_in_use(&self, path: &Path, claim: &Claim) -> Result<bool, Error> {
        let Some(record) = self.read(path)? else { return Ok(false) };
        let is_current = record.moved_to.is_none() && record.claim.is_of(claim);
        let fits = match (record.claim.landmark, Landmark::of(path)) {
            (Some(then), Some(now)) => then.may_be(&now),
            _ => path.is_dir(),
        };
        Ok(is_current && fits)
    }

    /// Records that `root`, which is empty, belongs to the project of `other`. What was recorded
    /// there before was of a work tree that is gone; its history stays as a former one.
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

impl Claim {
    /// Whether both name the same history.
    pub(crate) fn is_of(&self, other: &Claim) -> bool {
        self.id == other.id && self.work_tree == other.work_tree
    }

    pub(crate) fn store_path(&self, data_dir: &Path) -> PathBuf {
        data_dir.join("snapshot").join(&self.id)
    }

    /// Whether the directory at the claim's path is the one it was recorded for, or another clone
    /// of the same project put in its place.
    fn fits(&self, here: Option<Landmark>, repo: Option<&UserRepo>) -> Result<bool, Error> {
        let (Some(then), Some(now)) = (self.landmark, here) else { return Ok(true) };
        if then.may_be(&now) {
            return Ok(true);
        }
        let root_commit = repo.map(UserRepo::root_commit).transpose()?.flatten();
        Ok(root_commit.is_some_and(|id| id.to_string() == self.id))
    }
}

impl Record {
    fn root(&self) -> PathBuf {
        to_path(&self.path)
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data has a JSON form")
    }

    fn sum(&self) -> u32 {
        crc32fast::hash(&Record { checksum: None, ..self.clone() }.to_json())
    }

    /// Whether it is what was written, as far as that can be told.
    fn is_whole(&self) -> bool {
        self.checksum.is_none_or(|sum| sum == self.sum())
    }
}

fn to_path(text: &PathText) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(&text.clone().into_bytes()))
}

/// The name of a work tree's part of any store: nobody else's, and silent about the path.
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

fn read_record(path: &Path) -> Result<Option<Record>, Error> {
    let bytes = read_small(path, 1 << 20)?.unwrap_or_default();
    let record: Option<Record> = serde_json::from_slice(&bytes).ok();
    // Both become names of files.
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let are_names = |record: &Record| is_name(&record.claim.id) && is_name(&record.claim.work_tree);
    Ok(record.filter(|record| are_names(record) && record.is_whole()))
}
