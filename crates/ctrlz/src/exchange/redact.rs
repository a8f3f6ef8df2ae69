//! Redaction: rewrites a log's snapshots without some paths, for an export.
//!
//! Affected snapshots get a new hash and record that the paths are missing: "not captured" must not
//! be read as "did not exist".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::{Error, StoreError};
use crate::gc::Live;
use crate::git::{Commit, Kind, ObjectId, TreeEntry, encode_commit, encode_tree};
use crate::log::{IgnoredSnapshot, Operation, Redacted, ignored_before, read_ignored, redact};
use crate::path::{PathText, TreePath, is_within};
use crate::scan::{SkipReason, Skipped};
use crate::store::Store;

use super::bundle_writer::{Extra, put};

/// Operations rewritten without some paths.
pub(super) struct Redaction<'a> {
    store: &'a Store,
    paths: &'a [TreePath],
    commits: HashMap<ObjectId, ObjectId>,
    trees: HashMap<ObjectId, ObjectId>,
    snapshots: Vec<ObjectId>,
    extra: Extra,
}

impl<'a> Redaction<'a> {
    pub(super) fn of(store: &'a Store, paths: &'a [TreePath]) -> Redaction<'a> {
        let (commits, trees, snapshots, extra) = Default::default();
        Redaction { store, paths, commits, trees, snapshots, extra }
    }

    /// Rewrites an operation. Earlier operations must have been rewritten before.
    pub(super) fn rewrite(&mut self, operation: &Operation) -> Result<(), Error> {
        let snapshot = self.new_tree(&operation.snapshot)?;
        let mut meta = operation.meta.clone();
        let is_redacted = |path: &[u8]| self.is_redacted(path);
        meta.modes.retain(|(path, _)| !is_redacted(&path.clone().into_bytes()));
        meta.empty_dirs.retain(|path| !is_redacted(path.as_bytes()));
        meta.skipped.retain(|skipped| !is_redacted(&skipped.path));
        meta.rules.hidden.retain(|(path, _)| !is_redacted(&path.clone().into_bytes()));
        meta.skipped.extend(
            self.paths.iter().map(|path| Skipped {
                path: path.as_bytes().to_vec(),
                reason: SkipReason::Redacted,
            }),
        );
        meta.ignored_snapshot = meta.ignored_snapshot.map(|ignored| self.new_commit(&ignored));
        meta.sort();
        let new = Redacted { snapshot, meta, commits: &self.commits };
        let extra = &mut self.extra;
        let commit = redact(&self.store.objects, &operation.commit, new, |kind, bytes| {
            put(extra, kind, bytes)
        })?;
        self.commits.insert(operation.commit, commit);
        self.snapshots.push(snapshot);
        Ok(())
    }

    /// Rewrites an ignored snapshot and all that come before it in its chain. The operations that
    /// name them must be rewritten afterwards.
    pub(super) fn rewrite_ignored(&mut self, last: ObjectId) -> Result<(), Error> {
        let objects = &self.store.objects;
        let (mut chain, mut next) = (Vec::new(), Some(last));
        while let Some(id) = next {
            chain.push(id);
            next = ignored_before(objects, &id)?;
        }
        for id in chain.into_iter().rev() {
            let IgnoredSnapshot { tree, mut data } = read_ignored(objects, &id)?;
            data.modes.retain(|(path, _)| !self.is_redacted(&path.clone().into_bytes()));
            for listed in [Some(&mut data.unknown), data.not_kept.as_mut()].into_iter().flatten() {
                listed.retain(|path| !self.is_redacted(&path.clone().into_bytes()));
            }
            data.unknown
                .extend(self.paths.iter().map(|path| PathText::from_bytes(path.as_bytes())));
            let commit = objects.commit(&id)?;
            let tree = self.new_tree(&tree)?;
            let commit = Commit {
                tree,
                parents: commit.parents.iter().map(|parent| self.new_commit(parent)).collect(),
                data: serde_json::to_string(&data).expect("plain data has a JSON form"),
                ..commit
            };
            let new = put(&mut self.extra, Kind::Commit, encode_commit(&commit));
            self.commits.insert(id, new);
            self.snapshots.push(tree);
        }
        Ok(())
    }

    fn is_redacted(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|gone| is_within(path, gone.as_bytes()))
    }

    /// Returns the replacement of a commit.
    pub(super) fn new_commit(&self, old: &ObjectId) -> ObjectId {
        self.commits.get(old).copied().unwrap_or(*old)
    }

    /// Returns the replacement of a snapshot.
    pub(super) fn new_tree(&mut self, old: &ObjectId) -> Result<ObjectId, Error> {
        if let Some(new) = self.trees.get(old) {
            return Ok(*new);
        }
        let paths: Vec<&[u8]> = self.paths.iter().map(TreePath::as_bytes).collect();
        let new = self.without(*old, &paths)?.unwrap_or(ObjectId::EMPTY_TREE);
        if new == ObjectId::EMPTY_TREE {
            put(&mut self.extra, Kind::Tree, Vec::new());
        }
        self.trees.insert(*old, new);
        Ok(new)
    }

    /// Returns a tree without some paths, or `None` if it becomes empty.
    fn without(&mut self, id: ObjectId, paths: &[&[u8]]) -> Result<Option<ObjectId>, Error> {
        let tree = self.store.objects.tree(&id)?;
        let mut below: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for path in paths {
            match path.iter().position(|byte| *byte == b'/') {
                Some(at) => below.entry(&path[..at]).or_default().push(&path[at + 1..]),
                None => drop(below.insert(path, vec![b""])),
            }
        }
        let mut kept = Vec::new();
        let mut changed = false;
        for entry in tree.iter() {
            let new = match below.get(entry.name) {
                None => Some(entry.id),
                Some(rest) if rest.contains(&&b""[..]) => None,
                Some(rest) if entry.kind.is_tree() => self.without(entry.id, rest)?,
                Some(_) => Some(entry.id),
            };
            changed |= new != Some(entry.id);
            kept.extend(new.map(|id| TreeEntry { id, ..entry }));
        }
        match (changed, kept.is_empty()) {
            (false, _) => Ok(Some(id)),
            (true, true) => Ok(None),
            (true, false) => {
                let bytes = encode_tree(kept.into_iter());
                Ok(Some(put(&mut self.extra, Kind::Tree, bytes)))
            }
        }
    }

    /// Marks all objects of the store that the new snapshots need.
    pub(super) fn mark(&self, live: &mut Live) -> Result<(), Error> {
        let mut work = self.snapshots.clone();
        while let Some(id) = work.pop() {
            match self.extra.get(&id) {
                // A rewritten tree may still reference objects of the store.
                Some((_, bytes)) => {
                    let why = |why| Error::Store(StoreError::HostileTree { id, why });
                    let tree = crate::git::parse_tree(bytes.clone()).map_err(why)?;
                    for entry in tree.iter() {
                        if entry.kind.is_tree() {
                            work.push(entry.id);
                        } else {
                            live.insert(entry.id);
                        }
                    }
                }
                None => self.store.mark_tree(id, live, &BTreeSet::new())?,
            }
        }
        Ok(())
    }

    pub(super) fn into_extra(self) -> Extra {
        self.extra
    }
}
