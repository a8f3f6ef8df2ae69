//! Ignored files that are kept beside a snapshot: small ones next to tracked files, and those that
//! a tool names.
//!
//! Ignored directories are not entered. The kept files are in the snapshot's companion, which
//! changes neither its tree nor its hash.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::compare::{Extent, Trees, changes, find};
use crate::error::Error;
use crate::fs::private::{self, Durable};
use crate::fs::{FileKind, MODE_BITS, Time};
use crate::git::{ObjectId, Verdict};
use crate::log::{Companion, CompanionData, OpenStep, Operation, read_companion};
use crate::options::IgnoredFiles;
use crate::pack::PackWriter;
use crate::path::{PathText, TreePath, dirs_above, join, split};
use crate::scan::{
    Content, Dirty, EntryStat, ListedDir, Listing, Proof, ReadOutcome, SIDECARS, StatCache,
    is_racy, rules_above,
};
use crate::store::{TreeChange, edit_tree};

use super::keep::StoreKeep;
use super::named::{capture, look};
use super::quota::Allowance;
use super::remembered::{Remembered, recall};
use super::request::{Cause, NamedLimit};
use crate::hold::Hold;

/// Upper bound on the size of ignored files that are kept although no tool names them.
const MAX_SMALL_BYTES: u64 = 256 << 10;
/// The maximum number of kept files. The others are only counted.
const MAX_FILES: usize = 2_000;
/// The maximum number of ignored paths that are listed.
const MAX_NOT_KEPT: usize = 2_000;

/// The ignored files that are kept beside a snapshot.
#[derive(Default)]
pub(super) struct Kept {
    /// The new companion, if it differs from the last one.
    pub(super) new: Option<Companion>,
    /// The last companion, if it is unchanged.
    pub(super) same: Option<ObjectId>,
    paths: BTreeMap<Vec<u8>, TreeChange>,
    before: Option<ObjectId>,
    /// Files whose permissions changed.
    other_modes: Vec<PathText>,
}

/// A file to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Candidate {
    named: bool,
    bytes: u64,
}

type Candidates = BTreeMap<Vec<u8>, Candidate>;

/// The files to keep, within limits.
struct Wish {
    candidates: Candidates,
    limit: NamedLimit,
    /// All paths that no tree holds.
    unrecorded: BTreeSet<Vec<u8>>,
    known: BTreeMap<Vec<u8>, Remembered>,
    /// The bytes that the quota leaves.
    room: u64,
}

/// The candidates that fit into the limits.
#[derive(Default)]
struct Fitting {
    /// Paths, each with a flag that says whether a tool named it.
    chosen: Vec<(Vec<u8>, bool)>,
    /// Named files that exceed a limit.
    unknown: Vec<PathText>,
    /// The number of other files that exceed a limit.
    left_out: u64,
}

/// Returns the bytes that the quota leaves for ignored files.
fn left(room: Option<&Allowance>, keep: &StoreKeep<'_>) -> u64 {
    room.map_or(u64::MAX, |room| room.left(keep))
}

impl Kept {
    /// Returns the ignored files among a step's paths that changed. A directory counts if a file in
    /// it is kept.
    pub(super) fn among(&self, hold: &Hold, paths: &[TreePath]) -> Vec<TreePath> {
        let differs = |path: &&TreePath| {
            let found = self.before.map(|tree| find(&hold.store.objects, &tree, path));
            // A directory that was named has no content of its own.
            let found = found.and_then(Result::ok).flatten().filter(|entry| !entry.kind.is_tree());
            let was = found.map(|entry| (entry.kind, entry.id));
            let now = self.paths.get(path.as_bytes()).copied().flatten();
            was != now || self.other_modes.contains(&PathText::from_bytes(path.as_bytes()))
        };
        paths.iter().filter(differs).cloned().collect()
    }

    /// Returns the kept files that changed.
    pub(super) fn changed(&self, hold: &Hold) -> Vec<TreePath> {
        let before = self.before.unwrap_or(ObjectId::EMPTY_TREE);
        let is_same = |path: &TreePath, now: &TreeChange| {
            let was = find(&hold.store.objects, &before, path).ok().flatten();
            was.map(|entry| (entry.kind, entry.id)) == *now
        };
        let paths = self.paths.iter();
        let paths = paths.filter_map(|(path, now)| Some((TreePath::parse(path).ok()?, now)));
        paths.filter(|(path, now)| !is_same(path, now)).map(|(path, _)| path).collect()
    }
}

impl Hold {
    /// Captures the ignored files that are kept beside the snapshot.
    pub(super) fn keep_ignored(
        &self,
        listing: &Listing,
        cause: &Cause,
        last: Option<&Operation>,
        keep: &StoreKeep<'_>,
        room: Option<&Allowance>,
    ) -> Result<Kept, Error> {
        let last_id = last.and_then(|last| last.meta.companion);
        if self.context.options.ignored == IgnoredFiles::None {
            return Ok(Kept::default());
        }
        let known = recall(self);
        let mut candidates = self.named(listing, cause, &known, Extent::Whole)?;
        if let Some(last) = last {
            add_newly_ignored(self, listing, &last.snapshot, &mut candidates)?;
        }
        if self.context.options.ignored == IgnoredFiles::Small {
            add_small(listing, &mut candidates);
        }
        let room = left(room, keep);
        let unrecorded = unrecorded_in(listing);
        let wish = Wish { candidates, limit: cause.named_limit, unrecorded, known, room };
        self.keep(listing, wish, last_id, keep.pack)
    }

    /// Like `keep_ignored`, for a listing of dirty paths. Returns `None` if a full scan is
    /// required.
    pub(super) fn keep_ignored_dirty(
        &self,
        listing: &Listing,
        dirty: &Dirty,
        cause: &Cause,
        last: &Operation,
        room: (&StoreKeep<'_>, Option<&Allowance>),
    ) -> Result<Option<Kept>, Error> {
        let (keep, room) = room;
        let same = Kept { same: last.meta.companion, ..Kept::default() };
        if self.context.options.ignored == IgnoredFiles::None {
            return Ok(Some(Kept::default()));
        }
        let before = match last.meta.companion {
            Some(id) => match read_companion(&self.store.objects, &id) {
                Ok(before) => Some(before),
                Err(_) => return Ok(None),
            },
            None => None,
        };
        if !self.may_differ(listing, dirty, cause, before.as_ref())? {
            return Ok(Some(same));
        }
        let mut unrecorded = unrecorded_in(listing);
        match before.map(|before| before.data) {
            // Files that did not fit then may fit now, and were not listed.
            Some(before) if before.left_out > 0 => return Ok(None),
            Some(CompanionData { not_kept: None, .. }) => return Ok(None),
            Some(CompanionData { not_kept: Some(not_kept), .. }) => {
                let still_there = not_kept.into_iter().map(PathText::into_bytes);
                unrecorded.extend(still_there.filter(|path| !dirty.covers(path)));
            }
            None => (),
        }
        let known = recall(self);
        let mut candidates = self.named(listing, cause, &known, Extent::Part)?;
        if self.context.options.ignored == IgnoredFiles::Small {
            add_small(listing, &mut candidates);
            for (path, known) in known.iter().filter(|(_, known)| !known.named) {
                if !dirty.covers(path) {
                    let candidate = Candidate { named: false, bytes: known.bytes };
                    candidates.entry(path.clone()).or_insert(candidate);
                }
            }
        }
        let room = left(room, keep);
        let wish = Wish { candidates, limit: cause.named_limit, unrecorded, known, room };
        self.keep(listing, wish, last.meta.companion, keep.pack).map(Some)
    }

    /// Returns whether a dirty path is, was or has to be kept.
    fn may_differ(
        &self,
        listing: &Listing,
        dirty: &Dirty,
        cause: &Cause,
        before: Option<&Companion>,
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

    /// Keeps a database and its sidecar files only if they are consistent. Otherwise they are
    /// listed as unknown.
    fn settle_databases(
        &self,
        listing: &Listing,
        known: &BTreeMap<Vec<u8>, Remembered>,
        pack: &PackWriter,
        made: &mut Gathered,
    ) -> Result<(), Error> {
        const TRIES: usize = 4;
        let now = crate::compare::Now::of(listing);
        let sidecar = |path: &&Vec<u8>| SIDECARS.iter().any(|end| path.ends_with(end));
        let sidecars: Vec<Vec<u8>> = made.entries.keys().filter(sidecar).cloned().collect();
        for path in sidecars {
            let main = SIDECARS.iter().find_map(|end| path.strip_suffix(*end)).unwrap_or(&path);
            let parts: Vec<Vec<u8>> = SIDECARS
                .iter()
                .map(|end| [main, *end].concat())
                .chain([main.to_vec()])
                .filter(|part| made.entries.contains_key(part))
                .collect();
            // A main file in the snapshot itself was read before.
            let held = match now.at(main) {
                crate::compare::NowAt::File { stat, .. } => Some(stat),
                _ => None,
            };
            let stat_of = |path: &[u8]| {
                let (parent, name) = split(path);
                self.root.glimpse(parent).and_then(|dir| dir.stat(name))
            };
            let is_settled = |made: &Gathered| {
                let same = |seen: &&Remembered| {
                    let path = seen.path.clone().into_bytes();
                    let now = stat_of(&path).map(|stat| EntryStat::from(&stat));
                    now.is_some_and(|now| seen.is_same(&now))
                };
                let own = |seen: &&Remembered| parts.contains(&seen.path.clone().into_bytes());
                let main_is_same = held.is_none_or(|held| {
                    stat_of(main).is_some_and(|stat| EntryStat::from(&stat) == held)
                });
                main_is_same && made.seen.iter().filter(own).all(|seen| same(&seen))
            };
            let mut settled = is_settled(made);
            for _ in 1..TRIES {
                if settled || held.is_some() {
                    break;
                }
                for part in &parts {
                    made.forget(part);
                    self.gather(part, false, known, pack, made)?;
                }
                settled = is_settled(made);
            }
            for part in parts.iter().filter(|_| !settled) {
                made.forget(part);
                made.data.unknown.push(PathText::from_bytes(part));
            }
        }
        Ok(())
    }

    fn keep(
        &self,
        listing: &Listing,
        wish: Wish,
        last_id: Option<ObjectId>,
        pack: &PackWriter,
    ) -> Result<Kept, Error> {
        let Wish { candidates, limit, mut unrecorded, known, room } = wish;
        let last = match last_id {
            Some(id) => read_companion(&self.store.objects, &id).ok(),
            None => None,
        };
        let nothing = candidates.is_empty() && unrecorded.is_empty();
        // A companion with files is followed by an empty one; one that only listed paths is not.
        let only_listed = last.as_ref().is_none_or(|last| {
            last.tree == ObjectId::EMPTY_TREE
                && last.data.not_kept.as_ref().is_some_and(|paths| !paths.is_empty())
        });
        if nothing && only_listed {
            return Ok(Kept::default());
        }
        let Fitting { chosen, unknown, left_out } =
            self.within_bounds(candidates, &known, limit, room);
        let data = CompanionData { left_out, unknown, ..CompanionData::default() };
        let mut made = Gathered { data, ..Gathered::default() };
        for (path, named) in chosen {
            self.gather(&path, named, &known, pack, &mut made)?;
        }
        self.settle_databases(listing, &known, pack, &mut made)?;
        unrecorded.retain(|path| !made.entries.contains_key(path));
        made.data.not_kept = (unrecorded.len() <= MAX_NOT_KEPT)
            .then(|| unrecorded.iter().map(|path| PathText::from_bytes(path)).collect());
        // Errors are ignored: the files are read again next time.
        drop(private::replace(&self.work_tree.aside_path(), &made.remembered(), Durable::No));
        let tree = edit_tree(&self.store.objects, pack, ObjectId::EMPTY_TREE, &made.entries)?;
        let companion = Companion { tree, data: made.data };
        let paths = made.entries;
        let before = last.as_ref().map(|last| last.tree);
        let (had, has) = (last.as_ref().map(|last| &last.data.modes), &companion.data.modes);
        let had = had.into_iter().flatten();
        let only_one = had.clone().filter(|mode| !has.contains(mode));
        let only_one =
            only_one.chain(has.iter().filter(|mode| !had.clone().any(|had| had == *mode)));
        let other_modes = only_one.map(|(path, _)| path.clone()).collect();
        let kept = Kept { new: None, same: None, paths, before, other_modes };
        Ok(if last.as_ref() == Some(&companion) {
            Kept { same: last_id, ..kept }
        } else {
            Kept { new: Some(companion), ..kept }
        })
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

    /// Returns the files that open or earlier steps name and that the snapshot does not hold.
    fn named(
        &self,
        listing: &Listing,
        cause: &Cause,
        known: &BTreeMap<Vec<u8>, Remembered>,
        extent: Extent,
    ) -> Result<Candidates, Error> {
        let forbidden = self.forbidden();
        let steps = self.open_steps()?;
        let from_steps = steps.iter().flat_map(|step| &step.paths).chain(&cause.named);
        let earlier =
            known.iter().filter(|(_, known)| known.named && known.bytes <= MAX_SMALL_BYTES);
        let paths: BTreeSet<&[u8]> = from_steps
            .map(TreePath::as_bytes)
            .chain(earlier.map(|(path, _)| path.as_slice()))
            .collect();
        let now = crate::compare::Now::of(listing);
        let mut named = BTreeMap::new();
        for path in paths {
            if matches!(now.at(path), crate::compare::NowAt::File { .. }) {
                continue;
            }
            if self.is_forbidden(&forbidden, path) {
                continue;
            }
            // A file that was created after its directory was listed is not ignored. The next
            // snapshot holds it; beside this one it would seem to be older.
            if now.lacks(path, extent) && !self.is_ignored(path)? {
                continue;
            }
            if let Ok(Some(FileKind::File | FileKind::Symlink)) = look(&self.root, path) {
                let (parent, name) = split(path);
                let stat = self.root.open_below(parent).and_then(|dir| dir.stat(name));
                let bytes = stat.ok().flatten().map_or(0, |stat| stat.bytes);
                named.insert(path.to_vec(), Candidate { named: true, bytes });
            }
        }
        Ok(named)
    }

    fn is_ignored(&self, path: &[u8]) -> Result<bool, Error> {
        let outer = self.outer_rules()?.base(&self.store);
        Ok(rules_above(&self.root, &outer, path).ignores_or_above(path, false))
    }

    /// Chooses the files that fit: named ones from small to large, then the others from the top of
    /// the work tree down.
    fn within_bounds(
        &self,
        candidates: Candidates,
        known: &BTreeMap<Vec<u8>, Remembered>,
        limit: NamedLimit,
        mut room: u64,
    ) -> Fitting {
        /// A cautious estimate of the speed of reading, hashing and compressing.
        const BYTES_PER_SECOND: u64 = 40 << 20;
        let mut order: Vec<(Vec<u8>, Candidate)> = candidates.into_iter().collect();
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        order.sort_by_cached_key(|(path, candidate)| {
            if candidate.named {
                (false, candidate.bytes, path.clone())
            } else {
                (true, depth(path) as u64, path.clone())
            }
        });
        let max_named = limit.bytes.unwrap_or(self.context.options.max_named_bytes);
        let in_time = |bytes: u64| {
            let left = limit.until.map(|until| until.saturating_duration_since(Instant::now()));
            left.is_none_or(|left| bytes / BYTES_PER_SECOND < left.as_secs().max(1))
        };
        let Fitting { mut chosen, mut unknown, mut left_out } = Fitting::default();
        let (mut total, mut total_named) = (0, 0);
        for (path, Candidate { named, bytes }) in order {
            let fits = if named {
                // An unchanged file that was kept before costs nothing.
                let is_kept = known.get(&path).is_some_and(|known| known.bytes == bytes);
                is_kept || (total_named + bytes <= max_named && in_time(total_named + bytes))
            } else {
                total + bytes <= self.context.options.max_ignored_bytes && chosen.len() < MAX_FILES
            };
            let cost = super::quota::cost(bytes);
            match (fits && cost <= room, named) {
                (true, _) => {
                    room -= cost;
                    *(if named { &mut total_named } else { &mut total }) += bytes;
                    chosen.push((path, named));
                }
                (false, true) => unknown.push(PathText::from_bytes(&path)),
                (false, false) => left_out += 1,
            }
        }
        Fitting { chosen, unknown, left_out }
    }

    fn gather(
        &self,
        path: &[u8],
        named: bool,
        known: &BTreeMap<Vec<u8>, Remembered>,
        pack: &PackWriter,
        made: &mut Gathered,
    ) -> Result<(), Error> {
        let before = Time::now();
        let (parent, name) = split(path);
        let Ok(dir) = self.root.open_below(parent) else { return Ok(()) };
        let Ok(Some(stat)) = dir.stat(name) else { return Ok(()) };
        let trust = self.root.trust()?;
        let remembered =
            known.get(path).and_then(|known| known.holds(&EntryStat::from(&stat), trust));
        let (stat, id) = match remembered.filter(|id| self.store.objects.holds(id)) {
            Some(id) => (EntryStat::from(&stat), id),
            None => {
                let keep = StoreKeep::new(&self.store, pack);
                match capture(&self.root, path, stat.kind, &keep)? {
                    ReadOutcome::Read { stat, id, .. } => (stat, id),
                    ReadOutcome::Gone => return Ok(()),
                    // It is unreadable or keeps changing.
                    ReadOutcome::Skip(_) => {
                        made.data.unknown.push(PathText::from_bytes(path));
                        return Ok(());
                    }
                }
            }
        };
        let Some(kind) = crate::compare::entry_kind(&stat) else { return Ok(()) };
        let mode = stat.mode & MODE_BITS;
        let usual = if mode & 0o100 != 0 { 0o755 } else { 0o644 };
        if kind.is_file() && mode != usual {
            made.data.modes.push((PathText::from_bytes(path), mode));
        }
        made.entries.insert(path.to_vec(), Some((kind, id)));
        let settled = !is_racy(stat.ctime, before);
        made.seen.push(Remembered::of(path, named, &stat, settled.then_some(id)));
        Ok(())
    }
}

#[derive(Default)]
struct Gathered {
    entries: BTreeMap<Vec<u8>, TreeChange>,
    data: CompanionData,
    seen: Vec<Remembered>,
}

impl Gathered {
    fn forget(&mut self, path: &[u8]) {
        self.entries.remove(path);
        self.seen.retain(|seen| seen.path.clone().into_bytes() != path);
        self.data.modes.retain(|(known, _)| known.clone().into_bytes() != path);
    }

    fn remembered(&self) -> Vec<u8> {
        serde_json::to_vec(&self.seen).expect("plain data has a JSON form")
    }
}

/// Returns the paths of a listing that no tree holds: ignored files and directories, and nested
/// repositories.
fn unrecorded_in(listing: &Listing) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    for dir in &listing.dirs {
        for entry in &dir.entries {
            let is_nested = &*entry.name == b".git" && !dir.path.is_empty();
            if entry.content == Content::Ignored || is_nested {
                found.insert(join(&dir.path, &entry.name));
            }
        }
    }
    found
}

/// Adds the files of the previous snapshot that lie in a directory that is ignored now. Without
/// them, the changes of a step that starts to ignore a directory would be unknown.
fn add_newly_ignored(
    hold: &Hold,
    listing: &Listing,
    last: &ObjectId,
    candidates: &mut Candidates,
) -> Result<(), Error> {
    let trees = Trees::new(&hold.store.objects);
    let mut left = MAX_FILES;
    for path in unrecorded_in(listing) {
        let Ok(dir) = TreePath::parse(&path) else { continue };
        let found = trees.find(last, &dir)?.filter(|entry| entry.kind.is_tree());
        let Some(tree) = found else { continue };
        let files = changes(&hold.store.objects, &ObjectId::EMPTY_TREE, &tree.id)?;
        for file in files.into_iter().take(left) {
            left -= 1;
            let file = join(&path, file.path.as_bytes());
            let (parent, name) = split(&file);
            let stat = hold.root.glimpse(parent).and_then(|dir| dir.stat(name));
            if let Some(stat) = stat
                && matches!(stat.kind, FileKind::File | FileKind::Symlink)
            {
                candidates.entry(file).or_insert(Candidate { named: true, bytes: stat.bytes });
            }
        }
    }
    Ok(())
}

/// Adds small ignored files in directories that are not ignored.
fn add_small(listing: &Listing, candidates: &mut Candidates) {
    for dir in &listing.dirs {
        for entry in &dir.entries {
            let is_file = matches!(entry.stat.kind, FileKind::File | FileKind::Symlink);
            let ignored = entry.content == Content::Ignored && entry.verdict == Verdict::Ignored;
            if is_file && ignored && entry.stat.bytes <= MAX_SMALL_BYTES {
                let candidate = Candidate { named: false, bytes: entry.stat.bytes };
                candidates.entry(join(&dir.path, &entry.name)).or_insert(candidate);
            }
        }
    }
}
