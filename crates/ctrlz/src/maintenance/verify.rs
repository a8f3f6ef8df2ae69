//! Verification: reads and checks every ref and every object reachable from one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use crate::error::{Error, StoreError};
use crate::git::{Kind, ObjectId, parse_commit};
use crate::log::read_operation;
use crate::path::{escape, join};
use crate::restore::Journal;
use crate::scan::{Progress, StatCache};
use crate::store::Store;

use super::Maintenance;

/// A problem found in a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Damaged or missing object, if the problem concerns an object.
    pub object: Option<ObjectId>,
    /// Path of the object in `snapshots`, escaped for printing.
    pub path: Option<String>,
    /// Snapshots, or trees of ignored files, that cannot be restored completely because of it.
    pub snapshots: Vec<ObjectId>,
    /// Description of the problem.
    pub what: String,
}

impl Problem {
    pub(super) fn plain(what: String) -> Problem {
        Problem { object: None, path: None, snapshots: Vec::new(), what }
    }
}

/// Result of verifying a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of snapshots checked.
    pub snapshots: u64,
    /// Number of objects whose content matches their hash.
    pub objects: u64,
    /// Problems found.
    pub problems: Vec<Problem>,
}

/// Result of a verification, with the details that a repair needs.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) verification: Verification,
    /// Damaged or missing objects, each with a description of the damage.
    pub(super) bad: BTreeMap<ObjectId, String>,
    /// Paths of the damaged objects in their trees, where a repair looks for copies.
    pub(super) paths: BTreeMap<ObjectId, BTreeSet<Vec<u8>>>,
    /// Commits that are referenced and cannot be read.
    pub(super) bad_commits: BTreeSet<ObjectId>,
    /// Files below `refs` that are not valid refs.
    pub(super) torn_refs: Vec<PathBuf>,
    /// Ids of work trees whose log has lost its ref.
    pub(super) lost_logs: Vec<String>,
    /// Stat caches that cannot be read, and journals that were set aside.
    pub(super) torn_caches: Vec<PathBuf>,
}

impl Maintenance<'_> {
    /// Reads every object reachable from the store's refs once and checks its hash.
    ///
    /// Other commands can run concurrently; only the removal of packs waits until the end.
    pub fn verify(&self, progress: &Progress) -> Result<Verification, Error> {
        let Some((store, _)) = self.0.existing()? else {
            return Ok(Verification::default());
        };
        let _shared = self.0.lock_shared(&store)?;
        store.objects.refresh()?;
        Ok(examine(&store, progress)?.verification)
    }
}

/// Checks the whole store. The caller holds the store lock, shared or exclusive.
pub(super) fn examine(store: &Store, progress: &Progress) -> Result<Findings, Error> {
    let mut findings = Findings::default();
    for (path, why) in store.objects.damaged_packs() {
        let what = format!("{}: {why}", path.display());
        findings.verification.problems.push(Problem::plain(what));
    }
    let roots = check_refs(store, &mut findings)?;
    let mut walk = Walk { store, progress, seen: HashSet::new(), trees: Vec::new() };
    for root in roots {
        walk.commits(root, &mut findings)?;
    }
    let trees = walk.trees;
    let snapshots: HashSet<ObjectId> =
        trees.iter().filter(|(_, shown)| *shown == Shown::Snapshot).map(|(id, _)| *id).collect();
    findings.verification.snapshots = snapshots.len() as u64;
    if !findings.bad.is_empty() {
        name_damage(store, &trees, &mut findings);
    }
    findings.verification.problems.sort();
    Ok(findings)
}

/// Meaning of a commit's tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Snapshot,
    /// Ignored files kept beside a snapshot, or data of an operation.
    Beside,
}

/// Returns the objects that refs name. Records damaged and lost refs and unreadable caches.
fn check_refs(store: &Store, findings: &mut Findings) -> Result<BTreeSet<ObjectId>, Error> {
    let found = store.refs.list("refs")?;
    let known: HashSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    for path in store.refs.files("refs", true)? {
        let name = path.strip_prefix(store.path()).unwrap_or(&path).to_string_lossy();
        if !known.contains(&*name) {
            let what = format!("the ref {} cannot be read", escape(name.as_bytes()));
            findings.verification.problems.push(Problem::plain(what));
            findings.torn_refs.push(path.clone());
        }
    }
    for work_tree in store.work_trees()? {
        if work_tree.is_logged() && !known.contains(work_tree.ref_name()) {
            let id = work_tree.id().to_owned();
            let what = format!("the log of the work tree {id} has lost its ref");
            findings.verification.problems.push(Problem::plain(what));
            findings.lost_logs.push(id);
        }
        for journal in work_tree.journal_dirs().iter().flat_map(|dir| Journal::damaged(dir)) {
            let what = format!("{}: {}", journal.display(), Journal::DAMAGED);
            findings.verification.problems.push(Problem::plain(what));
            findings.torn_caches.push(journal);
        }
        let cache = work_tree.cache_path();
        let is_there = cache.metadata().is_ok_and(|meta| meta.len() > 0);
        if is_there && !StatCache::is_readable(&cache) {
            let what = format!("{} cannot be read; it is made again", cache.display());
            findings.verification.problems.push(Problem::plain(what));
            findings.torn_caches.push(cache);
        }
    }
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

struct Walk<'a> {
    store: &'a Store,
    progress: &'a Progress,
    seen: HashSet<ObjectId>,
    /// Root trees of commits, newest commit of each chain first.
    trees: Vec<(ObjectId, Shown)>,
}

impl Walk<'_> {
    fn commits(&mut self, root: ObjectId, findings: &mut Findings) -> Result<(), Error> {
        let mut work = vec![root];
        while let Some(id) = work.pop() {
            if !self.seen.insert(id) {
                continue;
            }
            self.progress.check()?;
            let commit = match self.store.objects.read(&id) {
                Ok(Some((Kind::Commit, bytes))) => parse_commit(&bytes),
                Ok(_) => None,
                Err(Error::Store(StoreError::Damaged { .. })) => None,
                Err(error) => return Err(error),
            };
            let Some(commit) = commit else {
                let what = "the record of an operation is missing or damaged".to_owned();
                findings.bad.insert(id, what);
                findings.bad_commits.insert(id);
                continue;
            };
            findings.verification.objects += 1;
            let is_operation = read_operation(&self.store.objects, &id).is_ok();
            let shown = if is_operation { Shown::Snapshot } else { Shown::Beside };
            self.trees.push((commit.tree, shown));
            self.tree(commit.tree, findings)?;
            work.extend(commit.parents);
        }
        Ok(())
    }

    fn tree(&mut self, root: ObjectId, findings: &mut Findings) -> Result<(), Error> {
        let mut work = vec![root];
        while let Some(id) = work.pop() {
            if id == ObjectId::EMPTY_TREE || !self.seen.insert(id) {
                continue;
            }
            self.progress.check()?;
            let tree = match self.store.objects.tree(&id) {
                Ok(tree) => tree,
                Err(error) if error.is_damage() => {
                    findings.bad.insert(id, error.to_string());
                    continue;
                }
                Err(error) => return Err(error),
            };
            findings.verification.objects += 1;
            for entry in tree.iter() {
                if entry.kind.is_tree() {
                    work.push(entry.id);
                } else if self.seen.insert(entry.id) {
                    self.progress.check()?;
                    match self.store.objects.copy_blob(&entry.id, &mut std::io::sink()) {
                        Ok(_) => findings.verification.objects += 1,
                        Err(error @ Error::Store(StoreError::Damaged { .. })) => {
                            findings.bad.insert(entry.id, error.to_string());
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Determines the snapshots and paths at which each damaged object occurs.
fn name_damage(store: &Store, trees: &[(ObjectId, Shown)], findings: &mut Findings) {
    let mut named: BTreeMap<(ObjectId, Vec<u8>), Vec<ObjectId>> = BTreeMap::new();
    let mut done: HashSet<ObjectId> = HashSet::new();
    let mut sound = Sound::default();
    for (root, _) in trees.iter().filter(|(root, _)| done.insert(*root)) {
        let mut work = vec![(*root, Vec::new())];
        while let Some((id, at)) = work.pop() {
            if findings.bad.contains_key(&id) {
                named.entry((id, at)).or_default().push(*root);
                continue;
            }
            if sound.is(store, id, &findings.bad) {
                continue;
            }
            let Ok(tree) = store.objects.tree(&id) else { continue };
            for entry in tree.iter() {
                let path = join(&at, entry.name);
                match entry.kind.is_tree() {
                    true => work.push((entry.id, path)),
                    false if findings.bad.contains_key(&entry.id) => {
                        named.entry((entry.id, path)).or_default().push(*root);
                    }
                    false => (),
                }
            }
        }
    }
    let problem = |object: ObjectId, path: Option<String>, snapshots, what: &String| Problem {
        object: Some(object),
        path,
        snapshots,
        what: what.clone(),
    };
    for ((id, path), snapshots) in named {
        let what = &findings.bad[&id];
        let shown = if path.is_empty() { "(all of it)".into() } else { escape(&path) };
        findings.verification.problems.push(problem(id, Some(shown), snapshots, what));
        findings.paths.entry(id).or_default().insert(path);
    }
    for id in &findings.bad_commits {
        let what = &findings.bad[id];
        findings.verification.problems.push(problem(*id, None, Vec::new(), what));
    }
}

/// Cache of trees, with whether everything below them is intact.
#[derive(Default)]
struct Sound(HashMap<ObjectId, bool>);

impl Sound {
    fn is(&mut self, store: &Store, root: ObjectId, bad: &BTreeMap<ObjectId, String>) -> bool {
        // A tree is pushed below its subtrees, so that it is decided after them.
        let mut work = vec![(root, false)];
        while let Some((id, waited)) = work.pop() {
            if self.0.contains_key(&id) {
                continue;
            }
            if bad.contains_key(&id) {
                self.0.insert(id, false);
                continue;
            }
            let Ok(tree) = store.objects.tree(&id) else {
                self.0.insert(id, false);
                continue;
            };
            let subtrees = tree.iter().filter(|entry| entry.kind.is_tree());
            let open: Vec<ObjectId> = if waited {
                Vec::new()
            } else {
                subtrees.map(|entry| entry.id).filter(|id| !self.0.contains_key(id)).collect()
            };
            if open.is_empty() {
                let sound = tree.iter().all(|entry| {
                    if entry.kind.is_tree() {
                        self.0.get(&entry.id).copied().unwrap_or(false)
                    } else {
                        !bad.contains_key(&entry.id)
                    }
                });
                self.0.insert(id, sound);
            } else {
                work.push((id, true));
                work.extend(open.into_iter().map(|id| (id, false)));
            }
        }
        self.0.get(&root).copied().unwrap_or(false)
    }
}
