//! The ignored files to keep, within limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::compare::{Extent, Now, NowAt, Trees, changes};
use crate::error::Error;
use crate::fs::FileKind;
use crate::git::{ObjectId, Verdict};
use crate::hold::Hold;
use crate::path::{PathText, TreePath, join, split};
use crate::scan::{Content, Dirty, EntryStat, Listing, rules_above};

use super::super::file::look;
use super::super::quota::cost;
use super::super::remembered::{Remembered, recall};
use super::super::request::{Cause, NamedLimit};

/// Upper bound on the size of ignored files that are kept although no tool names them.
const MAX_SMALL_BYTES: u64 = 256 << 10;
/// The maximum number of kept files. The others are only counted.
const MAX_FILES: usize = 2_000;

/// A file to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Candidate {
    named: bool,
    bytes: u64,
    /// Whether the last snapshot keeps it, so that it needs no space in the store.
    is_kept: bool,
}

impl Candidate {
    fn of(named: bool, stat: &EntryStat, known: Option<&Remembered>) -> Candidate {
        let is_kept = known.is_some_and(|known| known.is_same(stat));
        Candidate { named, bytes: stat.bytes, is_kept }
    }
}

/// The ignored files to keep.
pub(super) struct Candidates<'a> {
    hold: &'a Hold,
    files: BTreeMap<Vec<u8>, Candidate>,
    /// The files that were kept beside the last snapshot.
    pub(super) known: BTreeMap<Vec<u8>, Remembered>,
}

/// The candidates that fit into the limits.
#[derive(Default)]
pub(super) struct Fitting {
    /// Paths, each with a flag that says whether a tool named it.
    pub(super) chosen: Vec<(Vec<u8>, bool)>,
    /// Named files that exceed a limit.
    pub(super) unknown: Vec<PathText>,
    /// The number of other files that exceed a limit.
    pub(super) left_out: u64,
}

impl<'a> Candidates<'a> {
    /// Returns the files that open or earlier steps name and that the snapshot does not hold.
    pub(super) fn named(
        hold: &'a Hold,
        listing: &Listing,
        cause: &Cause,
        extent: Extent,
    ) -> Result<Candidates<'a>, Error> {
        let known = recall(hold);
        let forbidden = hold.forbidden();
        let steps = hold.open_steps()?;
        let from_steps = steps.iter().flat_map(|step| &step.paths).chain(&cause.named);
        let earlier =
            known.iter().filter(|(_, known)| known.named && known.bytes <= MAX_SMALL_BYTES);
        let paths: BTreeSet<&[u8]> = from_steps
            .map(TreePath::as_bytes)
            .chain(earlier.map(|(path, _)| path.as_slice()))
            .collect();
        let now = Now::of(listing);
        let mut files = BTreeMap::new();
        for path in paths {
            if matches!(now.at(path), NowAt::File { .. }) {
                continue;
            }
            if hold.is_forbidden(&forbidden, path) {
                continue;
            }
            // A file that was created after its directory was listed is not ignored. The next
            // snapshot holds it; beside this one it would seem to be older.
            if now.lacks(path, extent) && !is_ignored(hold, path)? {
                continue;
            }
            if let Ok(Some(FileKind::File | FileKind::Symlink)) = look(&hold.root, path) {
                let (parent, name) = split(path);
                let stat = hold.root.open_below(parent).and_then(|dir| dir.stat(name));
                let stat = stat.ok().flatten().map_or(EntryStat::NOTHING, |stat| (&stat).into());
                files.insert(path.to_vec(), Candidate::of(true, &stat, known.get(path)));
            }
        }
        Ok(Candidates { hold, files, known })
    }

    /// Adds the files of the previous snapshot that lie in a directory that is ignored now. Without
    /// them, the changes of a step that starts to ignore a directory would be unknown.
    pub(super) fn add_newly_ignored(
        &mut self,
        listing: &Listing,
        last: &ObjectId,
    ) -> Result<(), Error> {
        let hold = self.hold;
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
                if let Some(stat) = hold.root.glimpse_stat(&file)
                    && matches!(stat.kind, FileKind::File | FileKind::Symlink)
                {
                    let candidate = Candidate::of(true, &(&stat).into(), self.known.get(&file));
                    self.files.entry(file).or_insert(candidate);
                }
            }
        }
        Ok(())
    }

    /// Adds small ignored files in directories that are not ignored.
    pub(super) fn add_small(&mut self, listing: &Listing) {
        for dir in &listing.dirs {
            for entry in &dir.entries {
                let is_file = matches!(entry.stat.kind, FileKind::File | FileKind::Symlink);
                let ignored =
                    entry.content == Content::Ignored && entry.verdict == Verdict::Ignored;
                if is_file && ignored && entry.stat.bytes <= MAX_SMALL_BYTES {
                    let path = join(&dir.path, &entry.name);
                    let candidate = Candidate::of(false, &entry.stat, self.known.get(&path));
                    self.files.entry(path).or_insert(candidate);
                }
            }
        }
    }

    /// Adds the small files that were kept before and are not dirty.
    pub(super) fn add_unchanged(&mut self, dirty: &Dirty) {
        let unchanged =
            |(path, known): &(&Vec<u8>, &Remembered)| !known.named && !dirty.covers(path);
        for (path, known) in self.known.iter().filter(unchanged) {
            let candidate = Candidate { named: false, bytes: known.bytes, is_kept: true };
            self.files.entry(path.clone()).or_insert(candidate);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Chooses the files that fit: named ones from small to large, then the others from the top of
    /// the work tree down.
    pub(super) fn fitting(&mut self, limit: NamedLimit, mut room: u64) -> Fitting {
        /// A cautious estimate of the speed of reading, hashing and compressing.
        const BYTES_PER_SECOND: u64 = 40 << 20;
        let mut order: Vec<(Vec<u8>, Candidate)> =
            std::mem::take(&mut self.files).into_iter().collect();
        let depth = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
        order.sort_by_cached_key(|(path, candidate)| {
            if candidate.named {
                (false, candidate.bytes, path.clone())
            } else {
                (true, depth(path) as u64, path.clone())
            }
        });
        let options = &self.hold.context.options;
        let max_named = limit.bytes.unwrap_or(options.max_named_bytes);
        let in_time = |bytes: u64| {
            let left = limit.until.map(|until| until.saturating_duration_since(Instant::now()));
            left.is_none_or(|left| bytes / BYTES_PER_SECOND < left.as_secs().max(1))
        };
        let Fitting { mut chosen, mut unknown, mut left_out } = Fitting::default();
        let (mut total, mut total_named) = (0, 0);
        for (path, Candidate { named, bytes, is_kept }) in order {
            let fits = if named {
                let was_kept = self.known.get(&path).is_some_and(|known| known.bytes == bytes);
                was_kept || (total_named + bytes <= max_named && in_time(total_named + bytes))
            } else {
                total + bytes <= options.max_ignored_bytes && chosen.len() < MAX_FILES
            };
            let cost = if is_kept { 0 } else { cost(bytes) };
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
}

fn is_ignored(hold: &Hold, path: &[u8]) -> Result<bool, Error> {
    let outer = hold.outer_rules()?.base(&hold.store);
    Ok(rules_above(&hold.root, &outer, path).ignores_or_above(path, false))
}

/// Returns the paths of a listing that no tree holds: ignored files and directories, and nested
/// repositories.
pub(super) fn unrecorded_in(listing: &Listing) -> BTreeSet<Vec<u8>> {
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
