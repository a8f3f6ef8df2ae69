//! Ignored files that are kept beside a snapshot: small ones next to tracked files, and those that
//! a tool names.
//!
//! Ignored directories are not entered. The kept files are in the ignored snapshot beside the
//! snapshot, which changes neither its tree nor its hash.

mod candidates;
mod gather;

use std::collections::BTreeSet;

use crate::compare::{Extent, Trees};
use crate::error::Error;
use crate::fs::FileKind;
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{IgnoredData, IgnoredSnapshot, OpenStep, Operation, read_ignored};
use crate::options::IgnoredFiles;
use crate::path::{PathText, TreePath, dirs_above, split};
use crate::scan::{Dirty, ListedDir, Listing, Proof, StatCache};
use crate::store::edit_tree;

use super::file::look;
use super::kept::Kept;
use super::part::{Part, Unfit};
use super::quota::Allowance;
use super::recording::{Recording, Scanned};
use super::remembered::recall;
use super::request::Cause;

use candidates::{Candidates, Fitting, unrecorded_in};
use gather::Gathered;

/// The maximum number of ignored paths that are listed.
const MAX_NOT_KEPT: usize = 2_000;

/// The files to keep beside a snapshot.
struct Wish<'a> {
    listing: &'a Listing,
    candidates: Candidates<'a>,
    /// All paths that no tree holds.
    unrecorded: BTreeSet<Vec<u8>>,
    room: Option<&'a Allowance>,
}

impl Recording<'_> {
    /// Captures the ignored files that are kept beside the snapshot.
    pub(super) fn keep_ignored(
        &self,
        listing: &Listing,
        last: Option<&Operation>,
        room: Option<&Allowance>,
    ) -> Result<Kept, Error> {
        let ignored = self.hold.context.options.ignored;
        if ignored == IgnoredFiles::None {
            return Ok(Kept::default());
        }
        let mut candidates = Candidates::named(self.hold, listing, self.cause, Extent::Whole)?;
        if let Some(last) = last {
            candidates.add_newly_ignored(listing, &last.snapshot)?;
        }
        if ignored == IgnoredFiles::Small {
            candidates.add_small(listing);
        }
        let last = last.and_then(|last| last.meta.ignored_snapshot);
        let wish = Wish { listing, candidates, unrecorded: unrecorded_in(listing), room };
        self.keep_wanted(wish, last)
    }

    /// Like [`Recording::keep_ignored`], for a listing of dirty paths.
    pub(super) fn keep_ignored_of(&self, part: &Part<'_>) -> Result<Kept, Unfit> {
        let Part { last, dirty, scanned: Scanned { listing, room, .. }, .. } = part;
        let last = last.meta.ignored_snapshot;
        let ignored = self.hold.context.options.ignored;
        if ignored == IgnoredFiles::None {
            return Ok(Kept::default());
        }
        let before = match last {
            Some(id) => {
                let before = read_ignored(&self.hold.store.objects, &id);
                Some(before.map_err(|_| Unfit::NeedsWhole)?)
            }
            None => None,
        };
        if !self.hold.may_differ(listing, dirty, self.cause, before.as_ref())? {
            return Ok(Kept { same: last, ..Kept::default() });
        }
        let mut unrecorded = unrecorded_in(listing);
        match before.map(|before| before.data) {
            // Files that did not fit then may fit now, and were not listed.
            Some(before) if before.left_out > 0 => return Err(Unfit::NeedsWhole),
            Some(IgnoredData { not_kept: None, .. }) => return Err(Unfit::NeedsWhole),
            Some(IgnoredData { not_kept: Some(not_kept), .. }) => {
                let still_there = not_kept.into_iter().map(PathText::into_bytes);
                unrecorded.extend(still_there.filter(|path| !dirty.covers(path)));
            }
            None => (),
        }
        let mut candidates = Candidates::named(self.hold, listing, self.cause, Extent::Part)?;
        if ignored == IgnoredFiles::Small {
            candidates.add_small(listing);
            candidates.add_unchanged(dirty);
        }
        let wish = Wish { listing, candidates, unrecorded, room: room.as_ref() };
        Ok(self.keep_wanted(wish, last)?)
    }

    /// Captures the files that fit, given the last ignored snapshot.
    fn keep_wanted(&self, wish: Wish<'_>, last_id: Option<ObjectId>) -> Result<Kept, Error> {
        let Hold { store, work_tree, .. } = self.hold;
        let Wish { listing, mut candidates, mut unrecorded, room } = wish;
        let last = match last_id {
            Some(id) => read_ignored(&store.objects, &id).ok(),
            None => None,
        };
        let nothing = candidates.is_empty() && unrecorded.is_empty();
        // An ignored snapshot with files is followed by an empty one; one that only listed paths is
        // not.
        let only_listed = last.as_ref().is_none_or(|last| {
            last.tree == ObjectId::EMPTY_TREE
                && last.data.not_kept.as_ref().is_some_and(|paths| !paths.is_empty())
        });
        if nothing && only_listed {
            return Ok(Kept::default());
        }
        let room = room.map_or(u64::MAX, |room| room.left(&self.keep()));
        let Fitting { chosen, unknown, left_out } =
            candidates.fitting(self.cause.named_limit, room);
        let data = IgnoredData { left_out, unknown, ..IgnoredData::default() };
        let mut made = Gathered::new(self, &candidates.known, data);
        for (path, named) in chosen {
            made.add(&path, named)?;
        }
        made.check_databases(listing)?;
        unrecorded.retain(|path| !made.entries.contains_key(path));
        made.data.not_kept = (unrecorded.len() <= MAX_NOT_KEPT)
            .then(|| unrecorded.iter().map(|path| PathText::from_bytes(path)).collect());
        // Errors are ignored: the files are read again next time.
        drop(private::replace(&work_tree.aside_path(), &made.remembered(), Durable::No));
        let tree = edit_tree(&store.objects, &self.pack, ObjectId::EMPTY_TREE, &made.entries)?;
        let ignored = IgnoredSnapshot { tree, data: made.data };
        let paths = made.entries;
        let before = last.as_ref().map(|last| last.tree);
        let had = last.as_ref().map(|last| last.data.modes.as_slice()).unwrap_or_default();
        let other_modes = other_modes(had, &ignored.data.modes);
        let kept = Kept { new: None, same: None, paths, before, other_modes };
        Ok(if last.as_ref() == Some(&ignored) {
            Kept { same: last_id, ..kept }
        } else {
            Kept { new: Some(ignored), ..kept }
        })
    }
}

/// Returns the paths whose permissions differ.
fn other_modes(had: &[(PathText, u32)], has: &[(PathText, u32)]) -> Vec<PathText> {
    let gone = had.iter().filter(|mode| !has.contains(mode));
    let new = has.iter().filter(|mode| !had.contains(mode));
    gone.chain(new).map(|(path, _)| path.clone()).collect()
}

impl Hold {
    /// Returns whether a dirty path is, was or has to be kept.
    fn may_differ(
        &self,
        listing: &Listing,
        dirty: &Dirty,
        cause: &Cause,
        before: Option<&IgnoredSnapshot>,
    ) -> Result<bool, Error> {
        let named = |step: &OpenStep| !step.paths.is_empty();
        if !cause.named.is_empty() || self.open_steps()?.iter().any(named) {
            return Ok(true);
        }
        if !unrecorded_in(listing).is_empty() {
            return Ok(true);
        }
        let Some(before) = before else { return Ok(false) };
        let mut not_kept = before.data.not_kept.iter().flatten().cloned().map(PathText::into_bytes);
        if not_kept.any(|path| dirty.covers(&path)) {
            return Ok(true);
        }
        let trees = Trees::new(&self.store.objects);
        for path in dirty.paths() {
            // Paths such as `.git` are in no snapshot.
            let Ok(path) = TreePath::parse(path) else { continue };
            if trees.find(&before.tree, &path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the files that tools name, which have to be listed in any case.
    pub(super) fn always_listed(&self, cause: &Cause) -> Result<Vec<Vec<u8>>, Error> {
        if self.context.options.ignored == IgnoredFiles::None {
            return Ok(Vec::new());
        }
        let steps = self.open_steps()?;
        let named = steps.iter().flat_map(|step| &step.paths).chain(&cause.named);
        let mut paths: Vec<Vec<u8>> = named.map(|path| path.as_bytes().to_vec()).collect();
        // They may lie in directories that are not watched.
        paths.extend(
            recall(self).into_iter().filter(|(_, known)| known.named).map(|(path, _)| path),
        );
        paths.retain(|path| !matches!(look(&self.root, path), Ok(Some(FileKind::Dir)) | Err(_)));
        Ok(paths)
    }

    /// Returns the cached directories that decide which ignored files are kept: those with ignored
    /// files, and those of named files or above them.
    pub(super) fn ignored_part(
        &self,
        cache: &StatCache,
        proof: &Proof,
        cause: &Cause,
    ) -> Result<Vec<ListedDir>, Error> {
        let steps = self.open_steps()?;
        let named = steps.iter().flat_map(|step| &step.paths).chain(&cause.named);
        let named = named.map(|path| path.parent_bytes().to_vec());
        let kept = recall(self).into_keys().map(|path| split(&path).0.to_vec());
        let nearest = |dir: Vec<u8>| {
            let above = dirs_above(&dir).chain([&b""[..]]);
            std::iter::once(dir.as_slice()).chain(above).find_map(|dir| cache.position(dir))
        };
        let numbers = named.chain(kept).filter_map(nearest);
        Ok(cache.part(&numbers.chain(proof.with_ignored().iter().copied()).collect()))
    }
}
