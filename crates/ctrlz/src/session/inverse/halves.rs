//! The two halves of a rename or a backup: files that hold the only copy of some content stay.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::compare::{Change, Entry, NowAt, changes, find};
use crate::error::Error;
use crate::fs::FileKind;
use crate::git::ObjectId;
use crate::log::{Uncaptured, UncapturedChange, read_ignored};
use crate::pack::Objects;
use crate::path::{TreePath, dirs_above, escape};
use crate::record::look;
use crate::restore::Wanted;
use crate::session::history::Span;
use crate::session::report::ConflictReason;
use crate::workspace::is_binary;

use super::{Inverter, Track};

/// A file that a span made and that the plan removes or overwrites.
struct Made<'a> {
    path: TreePath,
    entry: Entry,
    span: &'a Span,
}

/// Paths of some contents in recorded trees. Each tree is read once.
struct Copies {
    contents: HashSet<ObjectId>,
    trees: HashMap<ObjectId, HashMap<ObjectId, Vec<(TreePath, Entry)>>>,
}

impl Copies {
    /// Returns the paths of a content in a tree.
    fn of(
        &mut self,
        objects: &Objects,
        tree: ObjectId,
        content: ObjectId,
    ) -> Result<&[(TreePath, Entry)], Error> {
        if !self.trees.contains_key(&tree) {
            let mut found: HashMap<ObjectId, Vec<(TreePath, Entry)>> = HashMap::new();
            for file in changes(objects, &ObjectId::EMPTY_TREE, &tree)? {
                if let Some(entry) = file.after.filter(|one| self.contents.contains(&one.id)) {
                    found.entry(entry.id).or_default().push((file.path, entry));
                }
            }
            self.trees.insert(tree, found);
        }
        Ok(self.trees[&tree].get(&content).map(Vec::as_slice).unwrap_or_default())
    }
}

/// Returns the contents that were removed from paths or overwritten, with those paths. Only the
/// oldest change of each path is given: a version that another undone change made does not count.
fn taken_contents(oldest: &BTreeMap<TreePath, Change>) -> HashMap<ObjectId, Vec<TreePath>> {
    let mut taken: HashMap<ObjectId, Vec<TreePath>> = HashMap::new();
    for change in oldest.values() {
        // An empty file has no content that another file could be a copy of.
        let is_content =
            |before: &Entry| before.kind.is_file() && before.id != ObjectId::EMPTY_BLOB;
        if let Some(before) = change.before.filter(is_content) {
            taken.entry(before.id).or_default().push(change.path.clone());
        }
    }
    taken
}

/// Returns the non-empty lines of a text, without line ends.
fn lines_of(text: &[u8]) -> BTreeSet<&[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect()
}

impl Inverter<'_> {
    /// Keeps files that hold the only copy of some content: the step moved or copied it there from
    /// a path that it then removed or overwrote, and the plan does not restore that path.
    pub(super) fn keep_other_halves(
        &mut self,
        tracks: &BTreeMap<TreePath, Track<'_>>,
        oldest: &BTreeMap<TreePath, (Change, &Span)>,
    ) -> Result<(), Error> {
        let mut first: BTreeMap<TreePath, Change> = self.oldest_kept()?;
        first.extend(oldest.iter().map(|(path, (change, _))| (path.clone(), change.clone())));
        let sources = taken_contents(&first);
        let made: Vec<Made<'_>> = tracks
            .iter()
            .filter_map(|(path, track)| {
                let (change, span) = track.changes.last()?;
                let NowAt::File { entry, .. } = self.now.at(path.as_bytes()) else { return None };
                let goes = match self.out.request.wanted.get(path.as_bytes())? {
                    Wanted::Absent => change.before.is_none(),
                    // Content that an undo or restore wrote is not a copy made by an agent.
                    Wanted::Entry { entry: wanted, .. } => {
                        wanted.id != entry.id && span.info.is_some()
                    }
                };
                goes.then(|| Made { path: path.clone(), entry, span })
            })
            .collect();
        let contents = made.iter().filter_map(|made| tracks.get(&made.path));
        let contents = contents.flat_map(|track| &track.changes);
        let contents = contents.filter_map(|(change, _)| Some(change.after?.id)).collect();
        let mut copies = Copies { contents, trees: HashMap::new() };
        for made in made {
            let Made { path, entry, .. } = &made;
            let others = |from: &&TreePath| *from != path;
            let taken = sources.get(&entry.id).map(|taken| taken.iter().filter(others).collect());
            let why = match taken.filter(|taken: &Vec<&TreePath>| !taken.is_empty()) {
                Some(taken) => {
                    let mut back = taken.iter().map(|from| self.comes_back(from, &entry.id));
                    if back.try_fold(false, |any, back| back.map(|back| any || back))? {
                        continue;
                    }
                    format!("it holds the only copy of what was {}", taken[0])
                }
                None => match self.came_from_elsewhere(&made, tracks, &first, &mut copies)? {
                    Some(why) => why,
                    None => continue,
                },
            };
            self.out.request.wanted.remove(path.as_bytes());
            self.conflict(path, ConflictReason::OtherHalf, why);
        }
        for (old_name, new_name) in std::mem::take(&mut self.followed) {
            if self.is_blocked(&old_name) {
                self.out.request.wanted.remove(old_name.as_bytes());
                self.out.request.wanted.remove(new_name.as_bytes());
                let why = format!("a file is in the way of {old_name}, where it would go");
                self.conflict(&new_name, ConflictReason::OtherHalf, why);
            }
        }
        self.keep_moved_dirs(tracks);
        Ok(())
    }

    /// Returns whether a file that replaced another one was moved there by a span: its last write
    /// is older than the span, but the change of the path is not.
    fn is_moved_over(&self, path: &TreePath, span: &Span) -> bool {
        let NowAt::File { stat, .. } = self.now.at(path.as_bytes()) else { return false };
        let began = span.began_millis;
        began > 0 && stat.mtime.millis() < began && stat.ctime.millis() >= began
    }

    /// Returns whether a file that stays occupies the place of an ancestor directory of `path`.
    fn is_blocked(&self, path: &TreePath) -> bool {
        let stays = |dir: &&[u8]| self.out.request.wanted.get(*dir) != Some(&Wanted::Absent);
        let mut above = dirs_above(path.as_bytes()).filter(stays);
        above.any(|dir| matches!(self.now.at(dir), NowAt::File { .. } | NowAt::Unsaved(_)))
    }

    /// Returns the oldest change of each ignored file that the undone steps changed.
    fn oldest_kept(&self) -> Result<BTreeMap<TreePath, Change>, Error> {
        let objects = &self.store.objects;
        let mut oldest = BTreeMap::new();
        for span in self.inversion.spans.iter().rev() {
            let changed = self.ignored_changes(span)?;
            if changed.is_empty() {
                continue;
            }
            let after = span.after.meta.ignored_snapshot.map(|id| read_ignored(objects, &id));
            let after = after.and_then(Result::ok);
            // A file that the ignored snapshot no longer keeps may still exist.
            let is_gone = |path: &TreePath| {
                after.as_ref().is_none_or(|after| after.proves_absent(path.as_bytes()))
            };
            let found = changed.into_iter().filter(|one| one.after.is_some() || is_gone(&one.path));
            oldest.extend(found.map(|change| (change.path.clone(), change)));
        }
        Ok(oldest)
    }

    /// Returns whether a path will have this content.
    fn comes_back(&self, path: &TreePath, content: &ObjectId) -> Result<bool, Error> {
        let wanted = self.out.request.wanted.get(path.as_bytes());
        Ok(match (wanted, self.now.at(path.as_bytes())) {
            // The path gets its old content, possibly merged with later edits.
            (Some(Wanted::Entry { .. }), _) => !self.is_blocked(path),
            (Some(Wanted::Absent), _) => false,
            (None, NowAt::File { entry, .. }) => {
                entry.id == *content || self.is_merged_already(path, &entry, content)?
            }
            (None, _) => match self.inversion.present.meta.ignored_snapshot {
                Some(id) => match read_ignored(&self.store.objects, &id) {
                    Ok(now) => find(&self.store.objects, &now.tree, path)?
                        .is_some_and(|entry| entry.id == *content),
                    Err(_) => false,
                },
                None => false,
            },
        })
    }

    /// Returns whether a file that the plan leaves unchanged already is what it would be without
    /// the steps: its changes cancel out or are undone already, and it has every line of `content`.
    fn is_merged_already(
        &self,
        path: &TreePath,
        now: &Entry,
        content: &ObjectId,
    ) -> Result<bool, Error> {
        if !self.inversion.is_asked_for(path) || self.has_conflict(path) || !now.kind.is_file() {
            return Ok(false);
        }
        let (then, now) = (self.text(content)?, self.text(&now.id)?);
        Ok(!is_binary(&then) && !is_binary(&now) && lines_of(&then).is_subset(&lines_of(&now)))
    }

    /// Returns the paths that a file may have been moved or hard-linked from.
    fn sources(
        &self,
        path: &TreePath,
        tracks: &BTreeMap<TreePath, Track<'_>>,
        copies: &mut Copies,
    ) -> Result<Vec<TreePath>, Error> {
        let mut sources = Vec::new();
        for (change, span) in tracks.get(path).into_iter().flat_map(|track| &track.changes) {
            let moved = span.after.details.moved.iter().filter(|moved| moved.to == *path);
            sources.extend(moved.map(|moved| moved.from.clone()));
            for tree in [span.before.snapshot, self.ignored_tree(&span.before)] {
                let Some(content) = change.after else { continue };
                let same = copies.of(&self.store.objects, tree, content.id)?.iter();
                let same = same.filter(|(_, entry)| *entry == content);
                sources.extend(same.map(|(path, _)| path.clone()));
            }
        }
        Ok(sources)
    }

    /// Returns the reason to keep a file that a step seems to have created but that is older than
    /// it: the step moved it from an unrecorded place, or from a path that is not restored.
    fn came_from_elsewhere(
        &self,
        made: &Made<'_>,
        tracks: &BTreeMap<TreePath, Track<'_>>,
        oldest: &BTreeMap<TreePath, Change>,
        copies: &mut Copies,
    ) -> Result<Option<String>, Error> {
        let Made { path, entry, span } = made;
        let NowAt::File { stat, .. } = self.now.at(path.as_bytes()) else { return Ok(None) };
        if stat.kind != FileKind::File {
            return Ok(None);
        }
        // A copy of a file that no snapshot holds is recognised by its size.
        let is_copied = |lost: &&Uncaptured| stat.bytes > 0 && lost.bytes == Some(stat.bytes);
        if let Some(lost) = span.uncaptured.iter().find(is_copied) {
            return Ok(Some(format!(
                "it may hold the only copy of what was {}",
                escape(&lost.path)
            )));
        }
        let is_made = self.out.request.wanted.get(path.as_bytes()) == Some(&Wanted::Absent);
        if !self.is_older(path.as_bytes(), span) || !(is_made || self.is_moved_over(path, span)) {
            return Ok(None);
        }
        // Another hard link remains, so nothing is lost.
        let (parent, name) = crate::path::split(path.as_bytes());
        let found = self.inversion.root.open_below(parent).and_then(|dir| dir.stat(name));
        if found.is_ok_and(|found| found.is_some_and(|found| found.links > 1)) {
            return Ok(None);
        }
        let sources = self.sources(path, tracks, copies)?;
        let gone = |lost: &&Uncaptured| lost.change == UncapturedChange::Gone;
        let mut why = match span.uncaptured.iter().filter(gone).collect::<Vec<_>>().as_slice() {
            [lost] => format!("it may hold the only copy of what was {}", escape(&lost.path)),
            _ => "it was moved here from a place that is not recorded".to_owned(),
        };
        for from in sources.iter().filter(|from| from != &path) {
            // Checked on disk because it may be ignored.
            let is_there = matches!(look(self.inversion.root, from.as_bytes()), Ok(Some(_)));
            let is_explained = match oldest.get(from) {
                // The undone steps created it themselves.
                Some(Change { before: None, .. }) => true,
                Some(Change { before: Some(before), .. }) => {
                    self.comes_back(from, &before.id)? || !self.shares_a_line(before, entry)?
                }
                None => is_there || self.out.request.wanted.contains_key(from.as_bytes()),
            };
            if is_explained {
                return Ok(None);
            }
            why = format!("it holds the only copy of what was {from}");
        }
        Ok(Some(why))
    }

    /// Returns whether two files have a line in common. Binary files are assumed to.
    fn shares_a_line(&self, one: &Entry, other: &Entry) -> Result<bool, Error> {
        let (one, other) = (self.text(&one.id)?, self.text(&other.id)?);
        if is_binary(&one) || is_binary(&other) {
            return Ok(true);
        }
        Ok(!lines_of(&one).is_disjoint(&lines_of(&other)))
    }

    /// Reports paths that stay in a directory that a step moved, because no snapshot holds them.
    fn keep_moved_dirs(&mut self, tracks: &BTreeMap<TreePath, Track<'_>>) {
        let mut moved: BTreeMap<Vec<u8>, &Span> = BTreeMap::new();
        for (path, track) in tracks {
            let Some((change, span)) = track.changes.last() else { continue };
            for dir in dirs_above(path.as_bytes()).filter(|_| change.before.is_none()) {
                let made = self.out.request.emptied.contains(dir);
                if made && self.is_older(dir, span) {
                    moved.insert(dir.to_vec(), span);
                }
            }
        }
        for dir in moved.keys() {
            for (path, is_recorded) in self.now.entries_of(dir) {
                let Ok(path) = TreePath::parse(&path) else { continue };
                let comes = self.out.request.wanted.contains_key(path.as_bytes());
                if !is_recorded && !comes && !self.has_conflict(&path) {
                    let why =
                        "it was moved here with its directory and is not recorded, so it stays";
                    self.conflict(&path, ConflictReason::OtherHalf, why.into());
                }
            }
        }
        self.keep_moved_whole();
    }

    /// Keeps the empty directories of a moved directory in which a file stays. A repository, for
    /// example, needs its empty directories.
    fn keep_moved_whole(&mut self) {
        let halves = self.out.conflicts.iter();
        let halves = halves.filter(|conflict| conflict.reason == ConflictReason::OtherHalf);
        let paths: Vec<TreePath> = halves.map(|conflict| conflict.path.clone()).collect();
        let is_moved =
            |dir: &[u8]| self.inversion.spans.iter().any(|span| self.is_older(dir, span));
        let above = paths.iter().flat_map(|path| dirs_above(path.as_bytes()));
        let whole: BTreeSet<&[u8]> = above.filter(|dir| is_moved(dir)).collect();
        let stays =
            |dir: &[u8]| dirs_above(dir).any(|above| whole.contains(above)) && is_moved(dir);
        let emptied = self.out.request.emptied.iter();
        let goes = emptied.filter(|dir| !stays(dir)).cloned().collect();
        self.out.request.emptied = goes;
    }
}
