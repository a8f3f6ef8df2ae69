//! Adoption: imports the history of a store that is not trusted.
//!
//! Its objects are read without its configuration, hooks, alternates and symlinks, pass the checks of
//! an import, and are written to the new store one by one. Nothing is written to the old directory.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, StoreError};
use crate::fs::Named;
use crate::fs::private::{self, Durable, read_small};
use crate::git::{Commit, Kind, ObjectId, encode_commit, parse_commit, parse_tree};
use crate::log::WorkTree;
use crate::pack::{Objects, PackWriter};
use crate::path::escape;
use crate::scan::Progress;
use crate::store::{Lock, Refs, Sharing, Store, path_hash, pending};
use crate::workspace::Workspace;

use super::Transfer;
use super::acceptance::{Origin, adopt};
use super::arrival::{Arrival, arrivals};
use super::checker::{Checker, Fate};
use super::rejected::Rejected;

/// Upper bound on the number of objects of a plain repository to import.
const MAX_OBJECTS: usize = 10_000_000;
/// Upper bound on the refs of an old store that are imported while a command waits. Each is flushed.
pub(super) const MAX_REFS_AT_ONCE: usize = 200;
/// Prefix of the refs that keep snapshots not named by any operation.
const KEPT: &str = "refs/ctrlz-adopted/";

/// Result of importing an old store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Adopted {
    /// Directory that was read.
    pub from: PathBuf,
    /// Number of operations that are new here.
    pub operations: u64,
    /// Number of snapshots that no operation names.
    pub snapshots: u64,
    /// Number of objects that were copied.
    pub objects: u64,
    /// Items that were left out, each with the reason.
    pub left_out: Vec<String>,
}

impl Transfer<'_> {
    /// Imports the history of stores that were set aside. Returns `None` if none is pending or
    /// another process is importing.
    pub fn finish_adoption(&self, progress: &Progress) -> Result<Option<Adopted>, Error> {
        let Some(path) = self.0.store_path()? else { return Ok(None) };
        if pending(&path)?.is_empty() {
            return Ok(None);
        }
        // Only one process imports at a time; the others have nothing to do.
        let lock_path = path.join("ctrlz").join("adopting.lock");
        let Some(_lock) = Lock::try_take(&lock_path, Sharing::Exclusive)? else { return Ok(None) };
        let waiting = pending(&path)?;
        let Some(last) = waiting.last() else { return Ok(None) };
        let mut adopted = Adopted { from: last.clone(), ..Adopted::default() };
        for old in &waiting {
            let one = self.adopt(old, progress)?;
            adopted.operations += one.operations;
            adopted.snapshots += one.snapshots;
            adopted.objects += one.objects;
            adopted.left_out.extend(one.left_out);
        }
        private::save_json(&path.join("ctrlz").join("adopted"), &adopted, Durable::Yes)?;
        let marker = path.join("ctrlz").join("adopting");
        std::fs::remove_file(&marker).named("remove", &marker)?;
        Ok(Some(adopted))
    }

    /// Returns whether a store that was set aside has not been imported yet.
    pub fn has_pending_adoption(&self) -> Result<bool, Error> {
        match self.0.store_path()? {
            Some(path) => Ok(!pending(&path)?.is_empty()),
            None => Ok(false),
        }
    }

    /// Imports the history of the store or bare git repository at `from`, which is only read.
    pub fn adopt(&self, from: &Path, progress: &Progress) -> Result<Adopted, Error> {
        // Does not resolve symlinks, which may have come with a project.
        let from = std::path::absolute(from).named("find", from)?;
        let mut adopted = Adopted { from: from.clone(), ..Adopted::default() };
        if let Err(why) = check_layout(&from) {
            adopted.left_out.push(format!("{}: {why}", escape_path(&from)));
            return Ok(adopted);
        }
        let (store, work_tree) = self.0.for_writing()?;
        let _shared = self.0.lock_shared(&store)?;
        let objects = Objects::open_alone(&from.join("objects"))?;
        let mut found = arrivals(&Refs::new(&from).list("refs")?);
        let own = own_log(&from, self.0.root(), &found);
        // The work tree's own log comes first, so that it becomes the history here.
        found.sort_by_key(|arrival| Some(&arrival.name) != own.as_ref());
        let is_store = from.join("ctrlz").is_dir();
        let mut adoption =
            Adoption { workspace: self.0, objects, store, work_tree, progress, adopted };
        for arrival in found {
            adoption.log(&arrival, Some(&arrival.name) == own.as_ref())?;
        }
        if !is_store {
            adoption.trees()?;
        }
        Ok(adoption.adopted)
    }
}

/// State of an import from an untrusted store.
struct Adoption<'a> {
    workspace: &'a Workspace,
    /// Objects of the old store.
    objects: Objects,
    store: Store,
    work_tree: WorkTree,
    progress: &'a Progress,
    adopted: Adopted,
}

impl Adoption<'_> {
    fn leave_out(&mut self, what: &str, why: &str) {
        self.adopted.left_out.push(format!("{what}: {why}"));
    }

    /// Returns the value, or `None` if a part of the old store was refused and is left out.
    fn accepted<T>(
        &mut self,
        part: &str,
        outcome: Result<T, Rejected>,
    ) -> Result<Option<T>, Error> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(Rejected::Refused(why)) => {
                self.leave_out(part, &why);
                Ok(None)
            }
            Err(Rejected::Failed(error)) => Err(error),
        }
    }

    /// Imports one log, either as the work tree's own history or as a separate log.
    fn log(&mut self, arrival: &Arrival, is_own: bool) -> Result<(), Error> {
        let imported = self.import_log(arrival, is_own);
        if let Some((operations, objects)) =
            self.accepted(&format!("log {}", arrival.name), imported)?
        {
            self.adopted.operations += operations;
            self.adopted.objects += objects;
        }
        Ok(())
    }

    /// Returns the number of new operations and of copied objects.
    fn import_log(&self, arrival: &Arrival, is_own: bool) -> Result<(u64, u64), Rejected> {
        let store = &self.store;
        let beside = WorkTree::named(store, &arrival.name);
        if beside.last(store)?.is_some() {
            return Ok((0, 0));
        }
        let mut checker = Checker::of(store, &self.objects, self.progress)?;
        let Fate::News(operations) = checker.log(arrival, &HashSet::new(), None)? else {
            return Ok((0, 0));
        };
        let objects = self.copy(checker.roots(arrival))?;
        let patience = self.workspace.options().patience;
        // The lock of the work tree must not be held for long.
        let is_own = is_own && arrival.private.len() + arrival.others.len() <= MAX_REFS_AT_ONCE;
        let own_lock = if is_own { Some(self.work_tree.lock(store, patience)?) } else { None };
        if own_lock.is_some() && self.work_tree.last(store)?.is_none() {
            adopt(store, &self.work_tree, arrival, &checker)?;
        } else {
            drop(own_lock);
            let from = self.adopted.from.file_name().unwrap_or_default().to_string_lossy();
            let origin = Origin { from: &from, into: self.work_tree.id(), patience };
            let _lock = origin.note(store, &beside)?;
            adopt(store, &beside, arrival, &checker)?;
        }
        Ok((operations, objects))
    }

    /// Imports the trees of a plain repository: other programs name snapshots by tree and keep no
    /// ref.
    fn trees(&mut self) -> Result<(), Error> {
        let ids = self.objects.all_ids()?;
        if ids.len() > MAX_OBJECTS {
            let why = format!("more than {MAX_OBJECTS}");
            self.leave_out("its objects", &why);
            return Ok(());
        }
        let mut inner = HashSet::new();
        let mut trees = BTreeSet::new();
        for id in ids {
            self.progress.check()?;
            if !matches!(self.objects.header_known(&id), Ok(Some((Kind::Tree, _)))) {
                continue;
            }
            let Ok(tree) = self.objects.tree(&id) else {
                self.leave_out(&format!("tree {id}"), "it is damaged or hostile");
                continue;
            };
            inner.extend(tree.iter().filter(|entry| entry.kind.is_tree()).map(|entry| entry.id));
            trees.insert(id);
        }
        let mut kept = BTreeMap::new();
        for root in trees.into_iter().filter(|id| !inner.contains(id)) {
            let imported = self.import_snapshot(root);
            if let Some(objects) = self.accepted(&format!("snapshot {root}"), imported)? {
                self.adopted.objects += objects;
                self.adopted.snapshots += 1;
                kept.insert(root.to_string(), root);
            }
        }
        if kept.is_empty() { Ok(()) } else { self.keep(&kept) }
    }

    /// Returns the number of copied objects.
    fn import_snapshot(&self, root: ObjectId) -> Result<u64, Rejected> {
        Checker::of(&self.store, &self.objects, self.progress)?.tree(root)?;
        self.copy(vec![root])
    }

    /// Keeps snapshots alive with a single ref to a commit whose tree contains all of them.
    fn keep(&self, snapshots: &BTreeMap<String, ObjectId>) -> Result<(), Error> {
        let entry = |(name, id): (&String, &ObjectId)| {
            [format!("40000 {name}\0").as_bytes(), id.as_bytes()].concat()
        };
        let bytes: Vec<u8> = snapshots.iter().flat_map(entry).collect();
        let pack = PackWriter::new(&self.store.objects_dir());
        let Some(tree) = pack.add(Kind::Tree, &bytes, |_| false)? else { return Ok(()) };
        let (author, message) = ("ctrlz".into(), "snapshots of another program".into());
        let (parents, data) = Default::default();
        let commit = Commit { tree, parents, author, seconds: 0, data, message };
        let id = pack.add(Kind::Commit, &encode_commit(&commit), |_| false)?;
        pack.publish()?;
        self.store.objects.refresh()?;
        match id {
            Some(id) => self.store.set_ref_alone(&format!("{KEPT}{id}"), &id),
            None => Ok(()),
        }
    }

    /// Copies objects and everything they reference, checking each against its hash. Returns the
    /// number of copied objects.
    fn copy(&self, roots: Vec<ObjectId>) -> Result<u64, Rejected> {
        let store = &self.store;
        let room = self.workspace.context().quota_use(store.path())?.left();
        let pack = PackWriter::new(&store.objects_dir());
        let (mut count, mut bytes) = (0, 0);
        let mut seen: HashSet<ObjectId> = [ObjectId::EMPTY_TREE].into();
        let mut waiting = roots;
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) || store.objects.holds(&id) {
                continue;
            }
            self.progress.check()?;
            let (kind, content) = match self.objects.read_known(&id) {
                Ok(Some(found)) => found,
                Ok(None) => return Err(format!("object {id} is missing").into()),
                Err(Error::Store(StoreError::Damaged { why, .. })) => {
                    return Err(format!("object {id}: {why}").into());
                }
                Err(error) => return Err(error.into()),
            };
            bytes += content.len() as u64;
            if bytes > room {
                return Err("the quota of the store has no room for it".into());
            }
            pack.add(kind, &content, |_| false)?;
            count += 1;
            match kind {
                Kind::Commit => {
                    let commit = parse_commit(&content)
                        .ok_or_else(|| format!("commit {id} cannot be read"))?;
                    waiting.extend(commit.parents.into_iter().chain([commit.tree]));
                }
                Kind::Tree => match parse_tree(content) {
                    Ok(tree) => waiting.extend(tree.iter().map(|entry| entry.id)),
                    Err(why) => return Err(format!("tree {id}: {why}").into()),
                },
                Kind::Blob | Kind::Tag => (),
            }
        }
        pack.publish()?;
        store.objects.refresh()?;
        Ok(count)
    }
}

/// Refuses an old store with symlinks or special files, or one that belongs to another user.
fn check_layout(dir: &Path) -> Result<(), &'static str> {
    let me = rustix::process::geteuid().as_raw();
    for part in [".", "objects", "objects/pack", "refs", "refs/ctrlz", "refs/ctrlz-private"] {
        // A path that ends in a slash or a dot would follow a symlink.
        let path = if part == "." { dir.to_owned() } else { dir.join(part) };
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => return Err("one of its directories is a link"),
            Ok(meta) if !meta.is_dir() => return Err("it is no repository"),
            Ok(meta) if meta.uid() != me => return Err("it belongs to another user"),
            Ok(_) => (),
            Err(_) if matches!(part, "." | "objects") => return Err("it is no repository"),
            Err(_) => (),
        }
    }
    let objects = dir.join("objects");
    let dirs = (0..=255_u8).map(|prefix| objects.join(format!("{prefix:02x}")));
    for dir in dirs.chain([objects.join("pack")]) {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        let is_file = |entry: std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file());
        if dir.symlink_metadata().is_ok_and(|meta| meta.is_symlink())
            || !entries.flatten().all(is_file)
        {
            return Err("one of its objects is no plain file");
        }
    }
    Ok(())
}

/// Returns whether a directory is the repository of a program that takes snapshots with `git
/// write-tree`: it has trees, but no ref, and nothing that branches or work trees leave.
pub(super) fn holds_only_snapshots(dir: &Path) -> bool {
    const USED: [&str; 5] = ["commondir", "logs", "modules", "reftable", "worktrees"];
    const MAX_PACKED_REFS: u64 = 4096;
    let is_unborn = || {
        let head = read_small(&dir.join("HEAD"), 4096).ok().flatten();
        let packed = dir.join("packed-refs").symlink_metadata().map_or(0, |meta| meta.len());
        head.is_some_and(|head| head.starts_with(b"ref: "))
            && packed <= MAX_PACKED_REFS
            && Refs::new(dir).list("refs").is_ok_and(|refs| refs.is_empty())
            && !USED.iter().any(|name| dir.join(name).symlink_metadata().is_ok())
    };
    let has_tree = || -> Option<bool> {
        let objects = Objects::open_alone(&dir.join("objects")).ok()?;
        let is_tree = |id| matches!(objects.header_known(&id), Ok(Some((Kind::Tree, _))));
        Some(objects.all_ids().ok()?.into_iter().any(is_tree))
    };
    check_layout(dir).is_ok() && is_unborn() && has_tree().unwrap_or_default()
}

/// Returns the work tree's own log: the one that the old registry names for its path, or the only
/// log.
fn own_log(from: &Path, root: &Path, found: &[Arrival]) -> Option<String> {
    let record = from.join("ctrlz").join("paths").join(path_hash(root));
    let bytes = read_small(&record, 1 << 20).ok().flatten().unwrap_or_default();
    let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let named = record["work_tree"].as_str();
    let is_there = |name: &&str| found.iter().any(|arrival| arrival.name == **name);
    let only = match found {
        [only] => Some(only.name.as_str()),
        _ => None,
    };
    named.filter(is_there).or(only).map(str::to_owned)
}

fn escape_path(path: &Path) -> String {
    escape(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}
