//! The last snapshot with a part of the work tree looked at again.
//!
//! Which part is told by a watcher, or by a look at what is remembered. Rules, coverage,
//! permissions and empty directories come out as a scan of everything would have them; where the
//! part does not decide that, the answer is `None` and everything is scanned.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Trees, changes};
use crate::error::Error;
use crate::fs::FileKind;
use crate::git::{Kind, ObjectId, hash_object};
use crate::path::{PathText, TreePath, is_within, join, split};
use crate::scan::{
    Content, Dirty, ListInput, ListedDir, Listing, Progress, SkipReason, StatCache, list,
    read_listing,
};
use crate::store::{Meta, NewOperation, Operation, PackWriter, Published, edit_tree};

use super::companion::Kept;
use super::quota::Allowance;
use super::track::{Edit, StoreKeep, passed_mark, snapshot};
use super::{Cause, Hold, Snapshot, TrackOptions, Workspace};

/// Fewer files are read before a second thread has started.
const MANY_FILES: u64 = 32;
/// The same for paths that are only looked at.
const MANY_PATHS: usize = 64;

/// What was looked at.
pub(super) struct Looked {
    pub(super) dirty: Dirty,
    pub(super) listing: Listing,
    pub(super) read: u64,
    pub(super) room: Option<Allowance>,
}

impl Looked {
    /// Whether something that was looked for is not there; it may have been renamed to where
    /// nobody looked.
    pub(super) fn lacks_something(&self) -> bool {
        !self.listing.vanished.is_empty()
            || !self.dirty.paths().all(|path| is_listed(&self.listing, path))
    }
}

/// The last snapshot with what was looked at in it.
pub(super) struct Edited {
    tree: ObjectId,
    meta: Meta,
}

/// What became of it.
pub(super) struct Recorded {
    pub(super) operation: Operation,
    /// Whether it is another operation than before.
    pub(super) is_new: bool,
    published: Published,
    added: u64,
    removed: u64,
}

impl Recorded {
    /// How many files the snapshot has, if the one before had so many.
    pub(super) fn files_after(&self, files: u64) -> u64 {
        (files + self.added).saturating_sub(self.removed)
    }

    /// For whoever asked.
    pub(super) fn snapshot(&self, looked: &Looked, borrowed: u64) -> Snapshot {
        let Looked { listing, read, room, .. } = looked;
        let mut snapshot =
            snapshot(&self.operation, self.is_new, listing, *read, &self.published, borrowed);
        let marked = room.filter(|_| self.is_new);
        snapshot.quota_mark = marked.and_then(|room| passed_mark(room.used, self.published.bytes));
        snapshot
    }
}

/// What could not be captured and has to be tried again; `None` if nothing but a scan can help.
pub(super) fn to_try_again(last: &Operation) -> Option<impl Iterator<Item = Vec<u8>>> {
    let skipped = &last.meta.skipped;
    let is_hopeless = skipped.iter().any(|skipped| skipped.reason == SkipReason::UnreadableIndex);
    let failed = skipped
        .iter()
        .filter(|skipped| skipped.reason.is_failure() || skipped.reason == SkipReason::Restless);
    (!is_hopeless).then(|| failed.map(|skipped| skipped.path.clone()))
}

impl Workspace {
    /// Lists and reads what is dirty.
    pub(super) fn look_at_dirty(
        &self,
        hold: &Hold,
        cause: &Cause,
        dirty: Dirty,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Option<Looked>, Error> {
        if dirty.covers(b"") {
            return Ok(None);
        }
        let mut listing = self.list_dirty(hold, cause, &dirty, keep, progress)?;
        let read = self.check_budget(hold, &listing, progress)?;
        let room = self.room_for(hold, cause, &listing)?;
        if room.is_some_and(|room| !room.fits_all(keep, &listing)) {
            // What is left out then is decided over everything.
            return Ok(None);
        }
        let threads = if read < MANY_FILES { 1 } else { self.options.threads.max(1) };
        read_listing(&hold.root, &mut listing, keep, threads, progress)?;
        Ok(Some(Looked { dirty, listing, read, room }))
    }

    /// Puts what was looked at into the last snapshot, which has so many files.
    pub(super) fn edited(
        &self,
        hold: &Hold,
        last: &Operation,
        files: u64,
        looked: &Looked,
        pack: &PackWriter,
    ) -> Result<Option<Edited>, Error> {
        let Looked { dirty, listing, read, .. } = looked;
        let found = listing.dirs.iter().map(|dir| dir.entries.len() as u64).sum::<u64>();
        if files.saturating_add(found) > self.options.max_files {
            return Ok(None);
        }
        let objects = &hold.store.objects;
        let trees = Trees::new(objects);
        if !rules_hold(&trees, last, dirty, listing)? {
            return Ok(None);
        }
        let edit = edit(&trees, last, dirty, listing, *read)?;
        let tree = edit_tree(objects, pack, last.snapshot, &edit.changes)?;
        Ok(Some(Edited { tree, meta: edit.meta }))
    }

    /// Records it, if it says anything new.
    pub(super) fn record_edited(
        &self,
        hold: &Hold,
        cause: &Cause,
        last: &Operation,
        edited: Edited,
        kept: Kept,
        pack: PackWriter,
    ) -> Result<Recorded, Error> {
        let Edited { tree, meta } = edited;
        let meta = Meta { companion: kept.same, ..meta };
        let same = kept.new.is_none() && tree == last.snapshot && meta.says_the_same_as(&last.meta);
        if !cause.always && same {
            // Nothing was added that the store did not have.
            let published = pack.publish()?;
            let operation = last.clone();
            return Ok(Recorded { operation, is_new: false, published, added: 0, removed: 0 });
        }
        let (kind, details, pack) =
            hold.credited(cause, pack, Some(last), (&tree, &meta), &kept)?;
        let new = NewOperation { kind, snapshot: tree, meta, details, companion: kept.new };
        let (operation, published) = hold.work_tree.append(&hold.store, pack, Some(last), new)?;
        let mut recorded = Recorded { operation, is_new: true, published, added: 0, removed: 0 };
        for change in changes(&hold.store.objects, &last.snapshot, &tree)? {
            recorded.added += u64::from(change.before.is_none());
            recorded.removed += u64::from(change.after.is_none());
        }
        Ok(recorded)
    }

    /// Lists what is dirty, by the rules of a scan of everything.
    fn list_dirty(
        &self,
        hold: &Hold,
        cause: &Cause,
        dirty: &Dirty,
        keep: &StoreKeep<'_>,
        progress: &Progress,
    ) -> Result<Listing, Error> {
        if dirty.paths().next().is_none() {
            return Ok(Listing::default());
        }
        let cache = StatCache::default();
        let rules = self.outer_rules(&hold.store)?.base();
        let input = self.list_input(
            &hold.store,
            &hold.root,
            &cache,
            rules,
            false,
            &TrackOptions::default(),
        )?;
        // A few paths are not worth the threads.
        let threads = if dirty.paths().count() < MANY_PATHS { 1 } else { input.threads };
        let (only, placed) = (Some(dirty), Some(&cause.placed));
        let input = ListInput { only, placed, threads, ..input };
        let listing = list(&hold.root, &input, keep, progress)?;
        // The user's index is large. It only matters for what is ignored or new and large.
        let matters = |content: &Content| {
            matches!(content, Content::Ignored | Content::Skipped(SkipReason::TooLarge { .. }))
        };
        let mut entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let Some(repo) =
            self.repo.as_ref().filter(|_| entries.any(|entry| matters(&entry.content)))
        else {
            return Ok(listing);
        };
        let (index, _) = repo.index()?;
        list(&hold.root, &ListInput { index: index.as_ref(), ..input }, keep, progress)
    }
}

fn is_listed(listing: &Listing, path: &[u8]) -> bool {
    let (parent, name) = split(path);
    let entries = dir_at(listing, parent).map(|dir| dir.entries.as_slice()).unwrap_or_default();
    entries.binary_search_by(|entry| (*entry.name).cmp(name)).is_ok()
}

fn dir_at<'a>(listing: &'a Listing, path: &[u8]) -> Option<&'a ListedDir> {
    let at = listing.dirs.binary_search_by(|dir| dir.path.as_slice().cmp(path)).ok()?;
    Some(&listing.dirs[at])
}

/// Whether the ignore files on the way to what is dirty are those of the last snapshot.
fn rules_hold(
    trees: &Trees<'_>,
    last: &Operation,
    dirty: &Dirty,
    listing: &Listing,
) -> Result<bool, Error> {
    let hidden: BTreeMap<Vec<u8>, Vec<u8>> = last
        .meta
        .rules
        .hidden
        .iter()
        .map(|(path, text)| (path.clone().into_bytes(), text.clone().into_bytes()))
        .collect();
    for way in dirty.ways().filter(|way| dir_at(listing, way).is_some()) {
        let file = join(way, b".gitignore");
        let rules = &listing.hidden_rules;
        let now = rules.binary_search_by(|(path, _)| path.cmp(&file)).ok().map(|at| &rules[at].1);
        let path = TreePath::from_scan(file.clone());
        let then = trees.find(&last.snapshot, &path)?.filter(|entry| entry.kind.is_file());
        // Of one that was looked at again only the id is left. A link is no ignore file.
        let mut entries = dir_at(listing, way).into_iter().flat_map(|dir| &dir.entries);
        let captured = entries.find_map(|entry| match entry.content {
            Content::Known(id) if *entry.name == *b".gitignore" => {
                (entry.stat.kind == FileKind::File).then_some(id)
            }
            _ => None,
        });
        let same = match (now, captured) {
            // It was applied, and then changed before it was captured.
            (Some(_), Some(_)) => false,
            (Some(text), None) => {
                let id = hash_object(Kind::Blob, text);
                hidden.get(&file) == Some(text)
                    || (then.is_some() && then.map(|then| then.id) == id)
            }
            (None, Some(id)) => then.is_some_and(|then| then.id == id),
            (None, None) => then.is_none() && !hidden.contains_key(&file),
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The last snapshot with what is dirty replaced by what was found.
fn edit(
    trees: &Trees<'_>,
    last: &Operation,
    dirty: &Dirty,
    listing: &Listing,
    read: u64,
) -> Result<Edit, Error> {
    let mut edit = Edit { changes: BTreeMap::new(), meta: last.meta.clone(), read };
    // A directory on the way that was not listed is none any more, or may not be entered.
    let closed = dirty.ways().filter(|way| dir_at(listing, way).is_none());
    let gone: Vec<Vec<u8>> = dirty.paths().chain(closed).map(<[u8]>::to_vec).collect();
    let gone_set = Dirty::new(gone.iter().cloned());
    let is_way = |path: &[u8]| dirty.names_in(path).is_some();
    let Meta { skipped, modes, empty_dirs, rules, .. } = &mut edit.meta;
    skipped.retain(|skipped| !gone_set.covers(&skipped.path));
    modes.retain(|(path, _)| {
        let path = path.clone().into_bytes();
        !gone_set.covers(&path) && !is_way(&path)
    });
    empty_dirs.retain(|dir| !gone_set.covers(dir.as_bytes()));
    rules.hidden.retain(|(path, _)| !gone_set.covers(&path.clone().into_bytes()));
    edit.changes.extend(gone.into_iter().map(|path| (path, None)));
    let kept = edit.meta.rules.hidden.clone();
    edit.take_listing(listing);
    // Of directories on the way, the ignore files were read; those that were not listed are the same.
    let is_new = |(path, _): &&(PathText, PathText)| {
        let path = path.clone().into_bytes();
        dirty.covers(&path) || !is_way(split(&path).0)
    };
    let hidden: Vec<_> = edit.meta.rules.hidden.iter().filter(is_new).cloned().collect();
    edit.meta.rules.hidden = kept;
    edit.meta.rules.hidden.extend(hidden);
    edit.meta.rules.hidden.sort_by_cached_key(|(path, _)| path.clone().into_bytes());
    edit.meta.rules.hidden.dedup();
    settle_empty_dirs(trees, last, listing, &mut edit)?;
    edit.meta.sort();
    edit.meta.skipped.dedup();
    Ok(edit)
}

/// Finds out which of the directories that were looked at hold no captured file, deepest only.
fn settle_empty_dirs(
    trees: &Trees<'_>,
    last: &Operation,
    listing: &Listing,
    edit: &mut Edit,
) -> Result<(), Error> {
    let mut empty: BTreeSet<Vec<u8>> =
        edit.meta.empty_dirs.iter().map(|dir| dir.as_bytes().to_vec()).collect();
    for dir in listing.dirs.iter().filter(|dir| !dir.path.is_empty()) {
        if holds_files(trees, last, &edit.changes, &dir.path)? {
            empty.remove(&dir.path);
        } else {
            empty.insert(dir.path.clone());
        }
    }
    let parents: BTreeSet<Vec<u8>> = empty
        .iter()
        .flat_map(|dir| super::absence::parents(dir).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let deepest = empty.into_iter().filter(|dir| !parents.contains(dir));
    edit.meta.empty_dirs = deepest.map(TreePath::from_scan).collect();
    Ok(())
}

type Changes = BTreeMap<Vec<u8>, crate::store::TreeChange>;

/// Whether anything is captured in the directory `dir` after the changes.
fn holds_files(
    trees: &Trees<'_>,
    last: &Operation,
    changes: &Changes,
    dir: &[u8],
) -> Result<bool, Error> {
    let start = join(dir, b"");
    let below = || {
        let after = changes.range(start.clone()..);
        after.take_while(|(path, _)| is_within(path, dir))
    };
    if below().any(|(_, change)| change.is_some()) {
        return Ok(true);
    }
    let is_gone = |path: &[u8]| {
        changes.get(path).is_some_and(Option::is_none)
            || super::absence::parents(path)
                .any(|above| changes.get(above).is_some_and(Option::is_none))
    };
    if is_gone(dir) {
        return Ok(false);
    }
    let path = TreePath::from_scan(dir.to_vec());
    let Some(entry) = trees.find(&last.snapshot, &path)?.filter(|entry| entry.kind.is_tree())
    else {
        return Ok(false);
    };
    // No tree of a snapshot is empty, so one name that stays is enough.
    for (name, kind) in trees.names(&entry.id)? {
        let path = join(dir, &name);
        let next = changes.range(join(&path, b"")..).next();
        let untouched = !changes.contains_key(&path)
            && next.is_none_or(|(changed, _)| !is_within(changed, &path));
        let stays = untouched || (kind.is_tree() && holds_files(trees, last, changes, &path)?);
        if stays {
            return Ok(true);
        }
    }
    Ok(false)
}
