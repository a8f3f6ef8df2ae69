//! Checks of received logs and everything that they reference.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use crate::compare::MAX_PATHS;
use crate::error::{Error, ExchangeError};
use crate::git::{EntryKind, Kind, ObjectId};
use crate::log::{Operation, WorkTree, ignored_before, read_ignored, read_operation};
use crate::pack::Objects;
use crate::path::{TreePath, join};
use crate::scan::Progress;
use crate::session::{check_length, check_lengths};
use crate::store::{Store, Tombstones};

use super::arrival::Arrival;
use super::rejected::{Rejected, refused};

/// Relation of a received log to the local log of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// All of it is known here.
    Known,
    /// It has this many operations that are new here.
    News(u64),
    /// It and the local log have diverged.
    Diverged,
}

/// Returns the commits of a local log.
pub(super) fn known_commits(
    store: &Store,
    work_tree: &WorkTree,
) -> Result<HashSet<ObjectId>, Error> {
    work_tree.index(store)?.map(|entry| Ok(entry?.commit)).collect()
}

/// Checks that everything a received log references exists, is intact and is harmless.
pub(super) struct Checker<'a> {
    store: &'a Store,
    objects: &'a Objects,
    tombstones: Tombstones,
    /// Paths at which purged content was found, one per content.
    purged: BTreeSet<TreePath>,
    progress: &'a Progress,
    trees: HashSet<ObjectId>,
    /// Subtrees of each checked tree, and the number of its own files.
    inner: HashMap<ObjectId, (Vec<ObjectId>, u64)>,
    /// Height of each tree, and the number of files in it and its subtrees.
    shapes: HashMap<ObjectId, (u64, u64)>,
    blobs: HashSet<ObjectId>,
    /// Checked commits, with the ids of their operations.
    commits: HashMap<ObjectId, String>,
    pub(super) newest: Option<Operation>,
}

impl<'a> Checker<'a> {
    /// Prepares to check `objects`, which are not in the store yet.
    pub(super) fn of(
        store: &'a Store,
        objects: &'a Objects,
        progress: &'a Progress,
    ) -> Result<Checker<'a>, Error> {
        let tombstones = Tombstones::load(store)?;
        Ok(Checker {
            store,
            objects,
            tombstones,
            progress,
            purged: BTreeSet::new(),
            trees: HashSet::new(),
            inner: HashMap::new(),
            shapes: HashMap::new(),
            blobs: HashSet::new(),
            commits: HashMap::new(),
            newest: None,
        })
    }

    /// Fails if the objects from `from` include purged content that the store does not hold again.
    pub(super) fn refuse_purged(&self, from: &Path) -> Result<(), Error> {
        // Publishing the packs would also bring in objects that no log references.
        let packs = self.objects.open_packs();
        let mut ids = packs.iter().flat_map(|pack| pack.ids());
        if self.purged.is_empty() && !ids.any(|id| self.is_purged(&id)) {
            Ok(())
        } else {
            let paths = self.purged.iter().cloned().collect();
            Err(Error::Exchange(ExchangeError::BringsPurged { path: from.to_owned(), paths }))
        }
    }

    fn is_purged(&self, content: &ObjectId) -> bool {
        self.tombstones.cover(content) && !self.store.objects.holds(content)
    }

    /// Checks a log back to the first commit in `known`. Returns its relation to the local log,
    /// whose newest commit is `head`.
    pub(super) fn log(
        &mut self,
        arrival: &Arrival,
        known: &HashSet<ObjectId>,
        head: Option<ObjectId>,
    ) -> Result<Fate, Rejected> {
        self.newest = None;
        let Some(first) = arrival.log else { return Ok(Fate::Known) };
        if known.contains(&first) {
            return Ok(Fate::Known);
        }
        let mut met = None;
        let mut count = 0;
        let mut next = Some((first, None));
        while let Some((commit, newer)) = next {
            if known.contains(&commit) {
                met = Some(commit);
                break;
            }
            let operation = self.operation(&commit, newer.as_ref())?;
            count += 1;
            next =
                before(&operation, &arrival.past).map(|commit| (commit, Some(operation.clone())));
            self.newest.get_or_insert(operation);
        }
        for (end, commit) in &arrival.past {
            self.past(end, commit, known)?;
        }
        self.ignored_snapshots(arrival)?;
        Ok(match (head, met) {
            (Some(head), met) if met != Some(head) => Fate::Diverged,
            _ => Fate::News(count),
        })
    }

    /// Checks a past segment, whether or not the chain of the log reached it.
    fn past(
        &mut self,
        end: &str,
        commit: &ObjectId,
        known: &HashSet<ObjectId>,
    ) -> Result<(), Rejected> {
        let mut next = Some((*commit, None));
        let mut expected = Some(end);
        while let Some((commit, newer)) = next {
            if known.contains(&commit) || self.commits.contains_key(&commit) {
                let id = self.commits.get(&commit).map(String::as_str);
                return match (expected, id) {
                    (Some(end), Some(id)) if end != id => Err("a segment ends elsewhere".into()),
                    _ => Ok(()),
                };
            }
            let operation = self.operation(&commit, newer.as_ref())?;
            if expected.take().is_some_and(|end| end != operation.id) {
                return Err("a segment ends elsewhere".into());
            }
            next = operation.parent_in_segment().map(|commit| (commit, Some(operation)));
        }
        Ok(())
    }

    /// Checks one operation and its snapshot.
    fn operation(
        &mut self,
        commit: &ObjectId,
        newer: Option<&Operation>,
    ) -> Result<Operation, Rejected> {
        self.progress.check()?;
        let operation = refused(read_operation(self.objects, commit))?;
        let ids = std::iter::once(&operation.id).chain(&operation.follows);
        // Strictly descending ids exclude cycles.
        let is_older = newer.is_none_or(|newer| operation.id < newer.id);
        if !ids.into_iter().all(|id| is_operation_id(id)) || !is_older {
            return Err(format!("operation {commit} is out of order").into());
        }
        let steps = operation.details.credits.iter().map(|credit| check_lengths(&credit.step));
        let session = check_length("the session", operation.details.session.as_deref());
        if let Err(error) = steps.chain([session]).collect::<Result<(), _>>() {
            return Err(format!("operation {}: {error}", operation.id).into());
        }
        self.tree(operation.snapshot)?;
        self.commits.insert(*commit, operation.id.clone());
        Ok(operation)
    }

    /// Checks a tree and everything below it.
    pub(super) fn tree(&mut self, root: ObjectId) -> Result<(), Rejected> {
        let mut work = vec![(root, Vec::new())];
        while let Some((id, at)) = work.pop() {
            if id == ObjectId::EMPTY_TREE || !self.trees.insert(id) {
                continue;
            }
            self.progress.check()?;
            let tree = refused(self.objects.tree(&id))?;
            let inner = tree.iter().filter(|entry| entry.kind.is_tree()).map(|entry| entry.id);
            let files = tree.iter().filter(|entry| !entry.kind.is_tree()).count() as u64;
            self.inner.insert(id, (inner.collect(), files));
            for entry in tree.iter() {
                let path = join(&at, entry.name);
                if entry.kind.is_tree() {
                    work.push((entry.id, path));
                } else if self.blobs.insert(entry.id) {
                    if self.is_purged(&entry.id) {
                        self.purged.insert(TreePath::parse(&path).map_err(Error::from)?);
                    }
                    let header = refused(self.objects.header(&entry.id))?;
                    if !matches!(header, Some((Kind::Blob, _))) {
                        return Err(format!("blob {} is missing", entry.id).into());
                    }
                }
                if entry.kind == EntryKind::Symlink {
                    self.target(&entry.id)?;
                }
            }
        }
        self.shape(root)
    }

    /// Refuses a tree that would exhaust time or memory: a few kilobytes can describe thousands of
    /// nested directories, or billions of files. Each subtree counts as often as it occurs.
    fn shape(&mut self, root: ObjectId) -> Result<(), Rejected> {
        const MAX_HEIGHT: u64 = 1_000;
        let mut work = vec![(root, false)];
        while let Some((id, is_ready)) = work.pop() {
            if self.shapes.contains_key(&id) {
                continue;
            }
            let Some((inner, files)) = self.inner.get(&id) else {
                // The empty tree.
                self.shapes.insert(id, (0, 0));
                continue;
            };
            if !is_ready {
                work.push((id, true));
                work.extend(inner.iter().map(|inner| (*inner, false)));
                continue;
            }
            let shapes = inner.iter().filter_map(|inner| self.shapes.get(inner));
            let height = 1 + shapes.clone().map(|(height, _)| *height).max().unwrap_or(0);
            let paths = shapes.fold(*files, |sum, (_, paths)| sum.saturating_add(*paths));
            if height > MAX_HEIGHT {
                let why = format!("tree {id} has more than {MAX_HEIGHT} nested directories");
                return Err(why.into());
            }
            if paths > MAX_PATHS {
                return Err(format!("tree {id} has more than {MAX_PATHS} paths").into());
            }
            self.shapes.insert(id, (height, paths));
        }
        Ok(())
    }

    /// Refuses a symlink target that no file system accepts: every restore of its snapshot would
    /// fail.
    fn target(&self, id: &ObjectId) -> Result<(), Rejected> {
        const MAX_TARGET_BYTES: u64 = 4095;
        let head = refused(self.objects.blob_head(id, MAX_TARGET_BYTES + 1))?;
        let is_possible =
            !head.is_empty() && head.len() as u64 <= MAX_TARGET_BYTES && !head.contains(&0);
        if is_possible {
            Ok(())
        } else {
            Err(format!("symlink target {id} is empty, too long or holds a zero byte").into())
        }
    }

    fn ignored_snapshots(&mut self, arrival: &Arrival) -> Result<(), Rejected> {
        for commit in arrival.private.values() {
            let mut next = Some(*commit);
            let mut seen = HashSet::new();
            while let Some(commit) = next.filter(|commit| seen.insert(*commit)) {
                let ignored = refused(read_ignored(self.objects, &commit))?;
                self.tree(ignored.tree)?;
                next = match refused(ignored_before(self.objects, &commit)) {
                    Ok(before) => before,
                    Err(Rejected::Refused(_)) => None,
                    Err(failed) => return Err(failed),
                };
            }
        }
        Ok(())
    }

    /// Returns the number of operations that were checked.
    pub(super) fn operations(&self) -> u64 {
        self.commits.len() as u64
    }

    /// Returns the objects that the refs of a checked log name. Sessions and checkpoints that were
    /// not checked are left out.
    pub(super) fn roots(&self, arrival: &Arrival) -> Vec<ObjectId> {
        let others = arrival.others.values().filter(|id| self.has(id));
        let logs = arrival.log.iter().chain(arrival.past.values()).chain(others);
        logs.chain(arrival.private.values()).copied().collect()
    }

    /// Returns whether a commit was checked.
    pub(super) fn has(&self, commit: &ObjectId) -> bool {
        self.commits.contains_key(commit)
    }
}

/// Returns the previous operation, which may be the last one of the previous segment.
fn before(operation: &Operation, past: &BTreeMap<String, ObjectId>) -> Option<ObjectId> {
    match &operation.follows {
        None => operation.parent,
        Some(id) => past.get(id).copied(),
    }
}

/// Returns whether `id` has the form of a ULID, which can be part of a ref name. Its first digit is
/// at most 7, so that later ids can still sort after it.
fn is_operation_id(id: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_uppercase();
    id.len() == 26 && id.bytes().all(digit) && id.as_bytes()[0] <= b'7'
}

/// A received log that passed the checks.
pub(super) struct Checked {
    pub(super) arrival: Arrival,
    pub(super) fate: Fate,
    pub(super) newest: Option<Operation>,
}

/// Checks every received log against the local log of the same name.
pub(super) fn check_all<'a>(
    store: &'a Store,
    objects: &'a Objects,
    arrivals: Vec<Arrival>,
    progress: &'a Progress,
) -> Result<(Vec<Checked>, Checker<'a>), Rejected> {
    let mut checker = Checker::of(store, objects, progress)?;
    let mut checked = Vec::new();
    for arrival in arrivals {
        let here = WorkTree::named(store, &arrival.name);
        let known = known_commits(store, &here)?;
        let head = store.refs.read(here.ref_name())?;
        let fate = checker
            .log(&arrival, &known, head)
            .map_err(|rejected| rejected.within(&format!("log {}", arrival.name)))?;
        checked.push(Checked { arrival, fate, newest: checker.newest.take() });
    }
    Ok((checked, checker))
}
