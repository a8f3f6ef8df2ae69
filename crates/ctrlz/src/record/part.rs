//! The last snapshot with some paths rescanned, which a watcher or the stat cache names.
//!
//! Rules, coverage, permissions and empty directories are those of a full scan. Where the paths do
//! not decide them, the functions fail with [`Unfit::NeedsWhole`] and a full scan follows.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Trees, changes};
use crate::error::{Error, RecordError};
use crate::fs::FileKind;
use crate::git::{Kind, hash_object};
use crate::log::{Meta, Operation};
use crate::path::{PathText, TreePath, dirs_above, is_within, join, split};
use crate::scan::{Content, Dirty, ListInput, ListedDir, Listing, SkipReason, StatCache, list};
use crate::store::edit_tree;

use super::draft::{Draft, Recorded, Snapshot};
use super::edit::Edit;
use super::kept::Kept;
use super::recording::{Recording, Scanned};

/// The minimum number of paths that are listed on several threads.
const MANY_PATHS: usize = 64;

/// The rescanned paths, and the snapshot that holds the others.
pub(super) struct Part<'a> {
    pub(super) last: &'a Operation,
    /// The number of files in that snapshot.
    pub(super) files: u64,
    /// The cache of the last scan, if it was loaded.
    pub(super) cache: Option<&'a StatCache>,
    pub(super) dirty: Dirty,
    pub(super) scanned: Scanned,
}

/// Returns whether a dirty path is missing. It may have been renamed to one that was not rescanned.
pub(super) fn lacks_something(listing: &Listing, dirty: &Dirty) -> bool {
    !listing.vanished.is_empty() || !dirty.paths().all(|path| is_listed(listing, path))
}

/// Reason why a partial scan recorded nothing.
pub(super) enum Unfit {
    /// A full scan is required.
    NeedsWhole,
    Failed(Error),
}

impl From<Error> for Unfit {
    /// A full scan needs no older object, replaces lost ones, and decides what to leave out.
    fn from(error: Error) -> Unfit {
        use RecordError::{NoSpace, OverBudget, OverQuota};
        let is_full =
            matches!(error, Error::Record(OverBudget { .. } | OverQuota { .. } | NoSpace { .. }));
        if is_full || error.is_damage() { Unfit::NeedsWhole } else { Unfit::Failed(error) }
    }
}

/// Returns the result of a partial scan, or `None` if a full scan is required.
pub(super) fn or_whole<T>(result: Result<T, Unfit>) -> Result<Option<T>, Error> {
    match result {
        Ok(recorded) => Ok(Some(recorded)),
        Err(Unfit::NeedsWhole) => Ok(None),
        Err(Unfit::Failed(error)) => Err(error),
    }
}

/// Returns the paths that could not be captured, or `None` if a full scan is required.
pub(super) fn to_try_again(last: &Operation) -> Option<impl Iterator<Item = Vec<u8>>> {
    let skipped = &last.meta.skipped;
    let is_hopeless = skipped.iter().any(|skipped| skipped.reason == SkipReason::UnreadableIndex);
    let failed = skipped
        .iter()
        .filter(|skipped| skipped.reason.is_failure() || skipped.reason == SkipReason::Restless);
    (!is_hopeless).then(|| failed.map(|skipped| skipped.path.clone()))
}

impl Recording<'_> {
    /// Lists and reads the dirty paths.
    pub(super) fn rescan(&self, dirty: &Dirty) -> Result<Scanned, Unfit> {
        if dirty.covers(b"") {
            return Err(Unfit::NeedsWhole);
        }
        Ok(self.read(self.list_dirty(dirty)?)?)
    }

    /// Applies the rescanned paths to the last snapshot and records it, with the ignored files that
    /// `keep_ignored` returns.
    pub(super) fn part(
        self,
        part: Part<'_>,
        keep_ignored: impl FnOnce(&Recording<'_>, &Part<'_>) -> Result<Kept, Unfit>,
    ) -> Result<Recorded, Unfit> {
        let objects = &self.hold.store.objects;
        let draft = self.edited(&part)?;
        let kept = keep_ignored(&self, &part)?;
        let meta = Meta { ignored_snapshot: kept.same, ..draft.meta };
        let draft = Draft { meta, kept, ..draft };
        let Part { last, mut files, scanned, .. } = part;
        let recorded = self.finish(Some(last), draft, scanned)?;
        for change in changes(objects, &last.snapshot, &recorded.snapshot.hash)? {
            files += u64::from(change.before.is_none());
            files = files.saturating_sub(u64::from(change.after.is_none()));
        }
        let snapshot = Snapshot { files, ..recorded.snapshot };
        Ok(Recorded { snapshot, listing: Listing::default(), ..recorded })
    }

    /// Applies the rescanned paths to the last snapshot.
    fn edited(&self, part: &Part<'_>) -> Result<Draft, Unfit> {
        let Part { last, dirty, scanned: Scanned { listing, .. }, .. } = part;
        let found = listing.dirs.iter().map(|dir| dir.entries.len() as u64).sum::<u64>();
        if part.files.saturating_add(found) > self.hold.context.options.max_files {
            return Err(Unfit::NeedsWhole);
        }
        let objects = &self.hold.store.objects;
        let trees = Trees::new(objects);
        if !rules_hold(&trees, last, dirty, listing)? {
            return Err(Unfit::NeedsWhole);
        }
        let edit = edit(&trees, last, dirty, listing)?;
        let tree = edit_tree(objects, &self.pack, last.snapshot, &edit.changes)?;
        let renames = self.hold.moved(part.cache, last, &listing.dirs);
        Ok(Draft { tree, meta: edit.meta, renames, kept: Kept::default() })
    }

    /// Lists the dirty paths by the rules of a full scan.
    fn list_dirty(&self, dirty: &Dirty) -> Result<Listing, Error> {
        if dirty.paths().next().is_none() {
            return Ok(Listing::default());
        }
        let (hold, cache) = (self.hold, StatCache::default());
        let input = hold.context.list_input(&hold.store, &hold.root, &cache)?;
        // For a few paths, starting threads costs more than it saves.
        let threads = if dirty.paths().count() < MANY_PATHS { 1 } else { input.threads };
        let (only, placed) = (Some(dirty), Some(&self.cause.placed));
        let input = ListInput { only, placed, threads, ..input };
        let listing = list(&hold.root, &input, &self.keep(), self.progress)?;
        // The user's index may be large, and only matters for ignored and for new large files.
        let matters = |content: &Content| {
            matches!(content, Content::Ignored | Content::Skipped(SkipReason::TooLarge { .. }))
        };
        let mut entries = listing.dirs.iter().flat_map(|dir| &dir.entries);
        let Some(repo) =
            hold.context.repo.as_ref().filter(|_| entries.any(|entry| matters(&entry.content)))
        else {
            return Ok(listing);
        };
        let (index, _) = repo.index()?;
        list(&hold.root, &ListInput { index: index.as_ref(), ..input }, &self.keep(), self.progress)
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

/// Returns whether the ignore files above the dirty paths are those of the last snapshot.
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
        // Of a rescanned ignore file only the id is known. Git does not follow links here.
        let mut entries = dir_at(listing, way).into_iter().flat_map(|dir| &dir.entries);
        let captured = entries.find_map(|entry| match entry.content {
            Content::Known(id) if *entry.name == *b".gitignore" => {
                (entry.stat.kind == FileKind::File).then_some(id)
            }
            _ => None,
        });
        let same = match (now, captured) {
            // It changed between its use and its capture.
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

/// Returns the changes to the last snapshot.
fn edit(
    trees: &Trees<'_>,
    last: &Operation,
    dirty: &Dirty,
    listing: &Listing,
) -> Result<Edit, Error> {
    let mut edit = Edit::of(last);
    // An ancestor missing from the listing was removed or is unreadable.
    let closed = dirty.ways().filter(|way| dir_at(listing, way).is_none());
    let gone: Vec<Vec<u8>> = dirty.paths().chain(closed).map(<[u8]>::to_vec).collect();
    let gone_set = Dirty::new(gone.iter().cloned());
    let is_way = |path: &[u8]| dirty.names_in(path).is_some();
    edit.forget(|path| gone_set.covers(path));
    // Of ancestors, the permissions are listed again.
    edit.meta.modes.retain(|(path, _)| !is_way(&path.clone().into_bytes()));
    edit.changes.extend(gone.into_iter().map(|path| (path, None)));
    let kept = edit.meta.rules.hidden.clone();
    edit.take_listing(listing);
    // The ignore files of ancestors were read. Those of other directories are unchanged.
    let is_new = |(path, _): &&(PathText, PathText)| {
        let path = path.clone().into_bytes();
        dirty.covers(&path) || !is_way(split(&path).0)
    };
    let hidden: Vec<_> = edit.meta.rules.hidden.iter().filter(is_new).cloned().collect();
    edit.meta.rules.hidden = kept;
    edit.meta.rules.hidden.extend(hidden);
    edit.meta.rules.hidden.sort_by_cached_key(|(path, _)| path.clone().into_bytes());
    edit.meta.rules.hidden.dedup();
    update_empty_dirs(trees, last, listing, &mut edit)?;
    edit.meta.sort();
    edit.meta.skipped.dedup();
    Ok(edit)
}

/// Updates the empty directories: the deepest ones without a captured file.
fn update_empty_dirs(
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
        .flat_map(|dir| dirs_above(dir).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    let deepest = empty.into_iter().filter(|dir| !parents.contains(dir));
    edit.meta.empty_dirs = deepest.map(TreePath::from_scan).collect();
    Ok(())
}

type Changes = BTreeMap<Vec<u8>, crate::store::TreeChange>;

/// Returns whether the directory `dir` holds a captured file after the changes.
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
            || dirs_above(path).any(|above| changes.get(above).is_some_and(Option::is_none))
    };
    if is_gone(dir) {
        return Ok(false);
    }
    let path = TreePath::from_scan(dir.to_vec());
    let Some(entry) = trees.find(&last.snapshot, &path)?.filter(|entry| entry.kind.is_tree())
    else {
        return Ok(false);
    };
    // A snapshot has no empty trees, so one remaining name is enough.
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
