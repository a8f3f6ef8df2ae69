//! The wanted state: the present one with the changes of steps reverted.
//!
//! Each path is merged three ways: base is the state after the step, ours the present state, theirs
//! the state before the step. A root with a conflicting path is left unchanged.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::error::Error;
use crate::git::ObjectId;
use crate::path::is_within;
use crate::record::HashOnly;
use crate::restore::{HEAD_BYTES, SHARED_MEMORY, is_shared_memory_head};

use super::capture::{Capture, Outside, Root, full_path, names_of, path_of};
use super::reader::{Budget, Inside, Reader, Seen};
use super::report::{OutsideChange, OutsideKept};
use super::state::{Same, State, Thing, compare};

/// An outermost root and its present state.
pub(super) struct Top {
    pub(super) dir: Vec<u8>,
    pub(super) name: Vec<u8>,
    pub(super) database: bool,
    pub(super) seen: Seen,
}

impl Top {
    pub(super) fn covers(&self, full: &[u8]) -> bool {
        let names = names_of(&self.name, self.database);
        names.iter().any(|name| is_within(full, &full_path(&self.dir, name)))
    }
}

#[derive(Default)]
pub(super) struct Merge {
    /// Outermost roots by absolute path.
    pub(super) tops: BTreeMap<Vec<u8>, Top>,
    /// Planned state by absolute path; initially the present state.
    pub(super) now: State,
    pub(super) changes: Vec<OutsideChange>,
    /// Contents that steps removed and that are not restored.
    pub(super) unrestored: HashSet<ObjectId>,
}

impl Merge {
    pub(super) fn read_present(
        &mut self,
        taken: &[Capture],
        reader: &mut Reader<'_>,
    ) -> Result<(), Error> {
        let roots = || taken.iter().flat_map(|capture| &capture.roots);
        let roots = || roots().filter(|root| !root.repository);
        for root in roots() {
            let path = root.path();
            let is_part = |other: &Root| other.path() != path && other.covers(&path);
            if roots().any(is_part) || self.tops.contains_key(&path) {
                continue;
            }
            let database = roots().any(|other| other.path() == path && other.database);
            let known = root.after.as_ref();
            reader.budget = Budget::present();
            let names = names_of(&root.name, database);
            let seen = reader.read(&root.dir(), &names, Inside::Files, known)?;
            for (path, thing) in &seen.state.0 {
                self.now.0.insert(full_path(&root.dir, path), thing.clone());
            }
            let (dir, name) = (root.dir.clone(), root.name.clone());
            self.tops.insert(path, Top { dir, name, database, seen });
        }
        Ok(())
    }

    /// Reverts the changes of one root in the planned state, all of them or none.
    pub(super) fn root(
        &mut self,
        root: &Root,
        captures: &Outside<'_>,
        force: bool,
    ) -> Result<(), Error> {
        let mut back: Vec<(Vec<u8>, Option<Thing>)> = Vec::new();
        let mut blocked: Vec<(Vec<u8>, OutsideKept)> = Vec::new();
        let mut unknown: Option<(Vec<u8>, OutsideKept)> = None;
        for path in self.paths_of(root) {
            let full = full_path(&root.dir, &path);
            let now = self.now.at(&full);
            let before = root.before.at(&path);
            // Without a recorded state after the step, the present state is taken for it.
            let after = root.after.as_ref().map_or_else(|| now.clone(), |after| after.at(&path));
            let not_captured = |thing: &Thing| match thing {
                Thing::LeftOut { why, .. } => Some(OutsideKept::NotCaptured { why: why.clone() }),
                _ => None,
            };
            let left_out = before.as_ref().and_then(not_captured);
            if is_shared_memory(captures, &path, before.as_ref())? {
                continue;
            }
            if [&before, &after].iter().any(|thing| **thing == Some(Thing::Repository)) {
                self.created_repository(root, &full, before.as_ref(), now.as_ref());
                continue;
            }
            match compare(before.as_ref(), after.as_ref()) {
                Same::Yes => continue,
                Same::Unknown => {
                    unknown = unknown.or(left_out.map(|kept| (full, kept)));
                    continue;
                }
                Same::No => (),
            }
            let is = |thing: &Option<Thing>| compare(thing.as_ref(), now.as_ref()) == Same::Yes;
            if is(&before) {
                continue;
            }
            let kept = match (left_out, after.as_ref().and_then(not_captured), &now) {
                (Some(kept), ..) | (None, Some(kept), _) => Some(kept),
                (None, None, Some(Thing::LeftOut { why, .. })) => {
                    Some(OutsideKept::CannotBeSaved { why: why.clone() })
                }
                _ if is(&after) || force => None,
                _ => Some(OutsideKept::ChangedSince),
            };
            match kept {
                Some(kept) => blocked.push((full, kept)),
                None => back.push((full, before)),
            }
        }
        if !back.is_empty() || !blocked.is_empty() {
            blocked.extend(unknown);
        }
        if blocked.is_empty() {
            for (path, thing) in back {
                match thing {
                    Some(thing) => self.now.0.insert(path, thing),
                    None => self.now.0.remove(&path),
                };
            }
            return Ok(());
        }
        self.unrestored.extend(root.before.blobs());
        let top = root.path();
        self.changes.extend(blocked.into_iter().map(|(path, kept)| kept_at(&top, &path, kept)));
        Ok(())
    }

    /// Returns every path in one of the root's states, relative to the root's directory.
    fn paths_of(&self, root: &Root) -> BTreeSet<Vec<u8>> {
        let mut paths: BTreeSet<Vec<u8>> = root.before.0.keys().cloned().collect();
        match &root.after {
            Some(after) => paths.extend(after.0.keys().cloned()),
            None => {
                let top = root.path();
                let here = self.now.0.range(top.clone()..);
                let here = here.map(|(path, _)| path).take_while(|path| path.starts_with(&top));
                let here = here.filter(|path| root.covers(path));
                let cut = full_path(&root.dir, b"").len();
                paths.extend(here.map(|path| path[cut..].to_vec()));
            }
        }
        paths
    }

    /// Reports a repository that the step created. A destroyed one is a root of its own.
    fn created_repository(
        &mut self,
        root: &Root,
        full: &[u8],
        before: Option<&Thing>,
        now: Option<&Thing>,
    ) {
        if before.is_none() && now.is_some() {
            self.changes.push(kept_at(&root.path(), full, OutsideKept::Repository));
        }
    }

    /// Reports a version control directory that differs from its capture.
    pub(super) fn repository(&mut self, root: &Root, captures: &Outside<'_>) -> Result<(), Error> {
        let budget = Budget::repository();
        let mut reader = Reader { keep: &HashOnly, budget, omit: &captures.omit };
        let known = Some(&root.before);
        let now = reader.read(&root.dir(), &root.names(), Inside::Repository, known)?.state;
        let mut paths = root.before.0.keys().chain(now.0.keys());
        let differs = |path: &Vec<u8>| {
            compare(root.before.at(path).as_ref(), now.at(path).as_ref()) == Same::No
        };
        if paths.any(differs) {
            let top = root.path();
            self.changes.push(kept_at(&top, &top, OutsideKept::Repository));
        }
        Ok(())
    }
}

/// Returns whether a captured file is the shared memory of a database, which is never restored.
fn is_shared_memory(
    captures: &Outside<'_>,
    path: &[u8],
    before: Option<&Thing>,
) -> Result<bool, Error> {
    match before {
        Some(Thing::File { id, .. }) if path.ends_with(SHARED_MEMORY) => {
            let head = captures.store.objects.blob_head(id, HEAD_BYTES)?;
            Ok(is_shared_memory_head(path, &head))
        }
        _ => Ok(false),
    }
}

/// Returns the report of a path that is left unchanged.
pub(super) fn kept_at(root: &[u8], path: &[u8], kept: OutsideKept) -> OutsideChange {
    OutsideChange { root: path_of(root), path: path_of(path), action: None, kept: Some(kept) }
}
