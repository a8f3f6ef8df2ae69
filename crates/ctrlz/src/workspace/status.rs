//! How a work tree and its store are doing.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::Serialize;

use crate::compare::changes;
use crate::error::Error;
use crate::fs::Named;
use crate::git::ObjectId;
use crate::path::escape;
use crate::restore::Journal;
use crate::scan::{Progress, Skipped};
use crate::store::Borrowed;

use super::Workspace;

/// A look at a work tree, without changing anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The work tree.
    pub root: PathBuf,
    /// Whether snapshots are taken.
    pub enabled: bool,
    /// Whether it is a git work tree.
    pub git: bool,
    /// Where the store is, once it is decided.
    pub store: Option<PathBuf>,
    /// Bytes the store takes.
    pub store_bytes: u64,
    /// The newest snapshot.
    pub last: Option<ObjectId>,
    /// When it was taken, in milliseconds since 1970.
    pub last_at_millis: Option<u64>,
    /// What the newest snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Blobs that the user's repository still lends.
    pub borrowed: u64,
    /// Files of a restore that was cut off; the next command that writes finishes it.
    pub interrupted_files: Option<u64>,
    /// Packs that cannot be used, and why.
    pub damaged_packs: Vec<(PathBuf, String)>,
}

/// Something wrong in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The snapshot it was found in, if one could be read.
    pub snapshot: Option<ObjectId>,
    /// The path in that snapshot, safe to print.
    pub path: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// The outcome of checking a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// Objects whose bytes have the right hash.
    pub objects: u64,
    /// What was wrong.
    pub problems: Vec<Problem>,
}

impl Workspace {
    /// How things are, read without taking a lock.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = Status {
            root: self.root.clone(),
            enabled: self.options.enabled,
            git: self.repo.is_some(),
            store: self.store_path()?,
            store_bytes: 0,
            last: None,
            last_at_millis: None,
            skipped: Vec::new(),
            borrowed: 0,
            interrupted_files: None,
            damaged_packs: Vec::new(),
        };
        let Some((store, work_tree)) = self.existing()? else { return Ok(status) };
        status.store_bytes = disk_use(store.path())?;
        status.damaged_packs = store.objects.damaged_packs();
        status.borrowed = Borrowed::load(&work_tree.borrowed_path())?.len();
        let journal = Journal::peek(&work_tree.journal_path())?;
        status.interrupted_files = journal.map(|journal| journal.units.len() as u64);
        if let Some(last) = work_tree.last(&store)? {
            status.last = Some(last.snapshot);
            status.last_at_millis = Some(last.at_millis);
            status.skipped = last.meta.skipped;
        }
        Ok(status)
    }

    /// Reads every object of every snapshot of this work tree and checks its hash.
    pub fn verify(&self, progress: &Progress) -> Result<Verification, Error> {
        let mut outcome = Verification::default();
        let Some((store, work_tree)) = self.existing()? else { return Ok(outcome) };
        for (path, why) in store.objects.damaged_packs() {
            let what = format!("{}: {why}", path.display());
            outcome.problems.push(Problem { snapshot: None, path: None, what });
        }
        let Some(head) = store.refs.read(work_tree.ref_name())? else { return Ok(outcome) };
        let mut seen: HashSet<ObjectId> = HashSet::new();
        for operation in store.history(work_tree.id(), head) {
            progress.check()?;
            let operation = match operation {
                Ok(operation) => operation,
                Err(error) => {
                    let what = error.to_string();
                    outcome.problems.push(Problem { snapshot: None, path: None, what });
                    break;
                }
            };
            outcome.snapshots += 1;
            let id = operation.snapshot;
            if !seen.insert(id) {
                continue;
            }
            match changes(&store.objects, &ObjectId::EMPTY_TREE, &id) {
                Err(error) => {
                    let what = error.to_string();
                    outcome.problems.push(Problem { snapshot: Some(id), path: None, what });
                }
                Ok(files) => {
                    for (path, entry) in
                        files.iter().filter_map(|file| file.after.map(|entry| (&file.path, entry)))
                    {
                        if !seen.insert(entry.id) {
                            continue;
                        }
                        progress.check()?;
                        match store.objects.copy_blob(&entry.id, &mut std::io::sink()) {
                            Ok(_) => outcome.objects += 1,
                            Err(error) => outcome.problems.push(Problem {
                                snapshot: Some(id),
                                path: Some(escape(path.as_bytes())),
                                what: error.to_string(),
                            }),
                        }
                    }
                }
            }
        }
        Ok(outcome)
    }
}

fn disk_use(path: &std::path::Path) -> Result<u64, Error> {
    let mut total = 0;
    let mut dirs = vec![path.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).named("list", &dir)? {
            let entry = entry.named("list", &dir)?;
            // Another command may remove a temporary file between the two calls.
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if meta.is_dir() {
                dirs.push(entry.path());
            } else {
                total += meta.len();
            }
        }
    }
    Ok(total)
}
