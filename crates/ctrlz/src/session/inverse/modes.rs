//! Permissions and empty directories, which are merged three ways like content.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::compare::{Change, Entry, NowAt, Trees, changes, find};
use crate::error::Error;
use crate::fs::MODE_BITS;
use crate::git::{EntryKind, ObjectId};
use crate::log::{Meta, Operation, read_ignored};
use crate::path::{TreePath, dirs_above};
use crate::restore::{ModeChange, Modes, is_dir_of};
use crate::session::history::Span;
use crate::session::report::ConflictReason;

use super::permissions::{ModeStep, merge_modes, usual_mode};
use super::{Inverter, Track};

const OTHER_MODE: &str = "its permissions were changed since";

/// Returns the paths whose permissions one of two records lists.
fn listed_modes(one: &Meta, other: &Meta) -> BTreeSet<Vec<u8>> {
    let listed = one.modes.iter().chain(&other.modes);
    listed.map(|(path, _)| path.as_bytes().to_vec()).collect()
}

impl Inverter<'_> {
    /// Returns the permissions of a file without the changes of the spans.
    pub(super) fn merged_mode(&self, path: &TreePath, kind: EntryKind) -> u32 {
        let present = match self.now.at(path.as_bytes()) {
            NowAt::File { stat, entry, .. } if entry.kind.is_file() => Some(stat.mode & MODE_BITS),
            NowAt::File { .. } | NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_) => None,
        };
        let changes = self.modes.get(path.as_bytes()).map(Vec::as_slice).unwrap_or_default();
        let merged = merge_modes(present, changes, self.is_forced());
        merged.mode.unwrap_or_else(|| usual_mode(kind))
    }

    /// Collects the permission changes of the spans: of files whose content they changed, and of
    /// all other files whose recorded permissions differ.
    pub(super) fn gather_modes(
        &mut self,
        tracks: &BTreeMap<TreePath, Track<'_>>,
    ) -> Result<(), Error> {
        let mut of_span: HashMap<usize, Vec<&Change>> = HashMap::new();
        for (change, span) in tracks.values().flat_map(|track| &track.changes) {
            of_span.entry(std::ptr::from_ref(*span).addr()).or_default().push(change);
        }
        let inversion = self.inversion;
        for span in inversion.spans.iter().rev() {
            let (before, after) = (&span.before.meta, &span.after.meta);
            let (then, left) = (Modes::of(Some(before)), Modes::of(Some(after)));
            let changed = of_span.remove(&std::ptr::from_ref(span).addr()).unwrap_or_default();
            let changed: BTreeMap<&TreePath, &Change> =
                changed.into_iter().map(|change| (&change.path, change)).collect();
            let mut steps = Vec::new();
            for (path, change) in &changed {
                let was_kept = match change.before {
                    Some(entry) => self.kept_mode(span, path, entry.kind)?,
                    None => None,
                };
                let is_file = |entry: &Entry| entry.kind.is_file();
                let of =
                    |modes: &Modes<'_>, entry: Entry| self.mode_left_by(modes, path, entry.kind);
                let before = change.before.filter(is_file).map(|entry| of(&then, entry));
                let after = change.after.filter(is_file).map(|entry| of(&left, entry));
                let before = was_kept.or(before);
                steps.push(((*path).clone(), ModeStep { before, after }));
            }
            for path in self.paths_with_other_modes(span)? {
                let unclear = span.unclear.contains(&path);
                let takes = inversion.unclear || inversion.takes_undecided(&path);
                let own = inversion.is_asked_for(&path)
                    && (span.owns(&path) || (unclear && takes))
                    && !inversion.is_done(span, &path)
                    && !changed.contains_key(&path);
                // The present kind may be the result of another change.
                let found = find(&self.store.objects, &span.after.snapshot, &path)?;
                let Some(kind) = found.map(|entry| entry.kind).filter(|kind| kind.is_file()) else {
                    continue;
                };
                if own {
                    let of = |modes: &Modes<'_>| Some(self.mode_left_by(modes, &path, kind));
                    let step = ModeStep { before: of(&then), after: of(&left) };
                    steps.push((path, step));
                }
            }
            for (path, step) in steps {
                if step.before != step.after {
                    self.modes.entry(path.as_bytes().to_vec()).or_default().push(step);
                }
            }
        }
        Ok(())
    }

    /// Returns the permissions of a file in a record. Bits that the record does not include are
    /// those of the present file.
    fn mode_left_by(&self, record: &Modes<'_>, path: &TreePath, kind: EntryKind) -> u32 {
        let present = match self.now.at(path.as_bytes()) {
            NowAt::File { stat, .. } => stat.mode,
            NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_) => 0,
        };
        record.of_file(path.as_bytes(), kind) | record.unrecorded(present)
    }

    /// Returns the files whose permissions a span may have changed.
    fn paths_with_other_modes(&self, span: &Span) -> Result<Vec<TreePath>, Error> {
        let (before, after) = (&span.before.meta, &span.after.meta);
        if before.common == after.common {
            if before.modes == after.modes {
                return Ok(Vec::new());
            }
            let listed = listed_modes(before, after);
            return Ok(listed.iter().filter_map(|bytes| TreePath::parse(bytes).ok()).collect());
        }
        // The common permissions changed, which apply to most files, so any file may be affected.
        let all = changes(&self.store.objects, &ObjectId::EMPTY_TREE, &span.after.snapshot)?;
        Ok(all.into_iter().map(|change| change.path).collect())
    }

    /// Returns the permissions that the ignored snapshot before a span holds for a file.
    fn kept_mode(
        &self,
        span: &Span,
        path: &TreePath,
        kind: EntryKind,
    ) -> Result<Option<u32>, Error> {
        let objects = &self.store.objects;
        if let Some(aside) = span.before.meta.ignored_snapshot
            && let Ok(aside) = read_ignored(objects, &aside)
            && find(objects, &aside.tree, path)?.is_some()
        {
            return Ok(Some(aside.mode_of(path.as_bytes(), usual_mode(kind))));
        }
        Ok(None)
    }

    /// Returns the present permissions of a file if they differ from those that a span left.
    pub(super) fn changed_mode(&self, path: &TreePath, span: &Span) -> Option<u32> {
        let NowAt::File { stat, entry, .. } = self.now.at(path.as_bytes()) else { return None };
        let left = find(&self.store.objects, &span.after.snapshot, path).ok()??;
        let left = Modes::of(Some(&span.after.meta)).of_file(path.as_bytes(), left.kind);
        let mode = stat.mode & MODE_BITS;
        (entry.kind.is_file() && mode != left).then_some(mode)
    }

    /// Plans permissions and empty directories, which a tree does not hold.
    pub(super) fn modes_and_dirs(&mut self) -> Result<(), Error> {
        let inversion = self.inversion;
        let asked = |path: &TreePath| inversion.is_asked_for(path);
        let trees = Trees::new(&self.store.objects);
        for (at, span) in inversion.spans.iter().rev().enumerate() {
            let (before, after) = (&span.before.meta, &span.after.meta);
            let made: BTreeSet<&TreePath> = after.empty_dirs.iter().collect();
            // Spans are visited newest first, so that the oldest change of a directory decides.
            for dir in before.empty_dirs.iter().filter(|dir| !made.contains(dir)) {
                if asked(dir) && span.owns_dir(dir) {
                    let mode = Modes::of(Some(before)).of_dir(dir.as_bytes());
                    self.out.request.emptied.remove(dir.as_bytes());
                    self.out.request.dirs.insert(dir.as_bytes().to_vec(), mode);
                }
            }
            for dir in after.empty_dirs.iter().filter(|dir| !before.empty_dirs.contains(dir)) {
                if asked(dir) && span.made_dir(dir) {
                    let own = std::iter::once(dir.as_bytes()).chain(dirs_above(dir.as_bytes()));
                    for made in own {
                        if !is_dir_of(&trees, &span.before.snapshot, Some(before), made)?
                            && !self.was_ignored_dir(span, made)?
                        {
                            self.out.request.dirs.remove(made);
                            self.out.request.emptied.insert(made.to_vec());
                        }
                    }
                }
            }
            // A directory that this span created is removed, although a newer span found it empty.
            let wanted: Vec<Vec<u8>> = self.out.request.dirs.keys().cloned().collect();
            for dir in wanted {
                if is_dir_of(&trees, &span.after.snapshot, Some(after), &dir)?
                    && !is_dir_of(&trees, &span.before.snapshot, Some(before), &dir)?
                    && span.made_dir(&TreePath::from_scan(dir.clone()))
                {
                    self.out.request.dirs.remove(&dir);
                    self.out.request.emptied.insert(dir);
                }
            }
            self.dir_modes(span, at == 0);
        }
        self.merge_dir_modes(&trees)?;
        self.merge_file_modes();
        Ok(())
    }

    fn merge_file_modes(&mut self) {
        let mut conflicts = Vec::new();
        for (path, changes) in &self.modes {
            let NowAt::File { stat, entry, .. } = self.now.at(path) else { continue };
            if !entry.kind.is_file() {
                continue;
            }
            let from = stat.mode & MODE_BITS;
            let merged = merge_modes(Some(from), changes, self.is_forced());
            if merged.has_conflict {
                conflicts.push(TreePath::from_scan(path.clone()));
            }
            if let Some(to) = merged.mode.filter(|to| *to != from) {
                self.out.request.modes.push(ModeChange::of_file(path.clone(), from, to));
            }
        }
        for path in conflicts {
            self.conflict(&path, ConflictReason::Merge, OTHER_MODE.into());
        }
    }

    /// Requests the permissions from before a span for directories that have to be recreated.
    fn dir_modes(&mut self, span: &Span, is_newest: bool) {
        let (before, after) = (&span.before.meta, &span.after.meta);
        let (then, left) = (Modes::of(Some(before)), Modes::of(Some(after)));
        let request = &mut self.out.request;
        if is_newest {
            request.common_dir_mode = before.common.dir;
            request.dir_modes = before.mode_map().into_iter().collect();
        } else {
            // Only where the newer spans found the permissions that this span left.
            for path in listed_modes(before, after) {
                let found = request.dir_modes.get(&path).copied();
                if found.unwrap_or(request.common_dir_mode) == left.of_dir(&path) {
                    let mode = then.of_dir(&path);
                    request.dir_modes.insert(path, mode);
                }
            }
        }
    }

    /// Returns the directories whose permissions a span may have changed.
    fn dirs_with_other_modes(&self, span: &Span) -> Vec<Vec<u8>> {
        let (before, after) = (&span.before.meta, &span.after.meta);
        let (then, left) = (Modes::of(Some(before)), Modes::of(Some(after)));
        let mut dirs: Vec<Vec<u8>> = if before.common.dir == after.common.dir {
            listed_modes(before, after).into_iter().collect()
        } else {
            let dirs = self.now.listing.dirs.iter().map(|dir| dir.path.clone());
            dirs.filter(|path| !path.is_empty()).collect()
        };
        dirs.retain(|path| then.of_dir(path) != left.of_dir(path));
        dirs
    }

    /// Reverses permission changes of directories that stay. Spans compose: a directory that one
    /// span removed and a later one recreated gets the permissions from before both.
    fn merge_dir_modes(&mut self, trees: &Trees<'_>) -> Result<(), Error> {
        let spans = self.inversion.spans;
        let paths: BTreeSet<Vec<u8>> =
            spans.iter().flat_map(|span| self.dirs_with_other_modes(span)).collect();
        let recorded: Vec<[Modes<'_>; 2]> = spans
            .iter()
            .map(|span| [&span.before, &span.after].map(|state| Modes::of(Some(&state.meta))))
            .collect();
        for path in paths {
            let Ok(dir) = TreePath::parse(&path) else { continue };
            let Some(present) = self.now.dir_mode(&path) else { continue };
            let mut mode = Some(present);
            for (span, [then, left]) in spans.iter().zip(&recorded).rev() {
                let of = |operation: &Operation, modes: &Modes<'_>| -> Result<_, Error> {
                    let meta = Some(&operation.meta);
                    let is_there = is_dir_of(trees, &operation.snapshot, meta, &path)?;
                    Ok(is_there.then(|| modes.of_dir(&path) | modes.unrecorded(present)))
                };
                let (before, after) = (of(&span.before, then)?, of(&span.after, left)?);
                let change = ModeStep { before, after };
                if before == after || !self.takes_dir_mode(span, &dir, change) {
                    continue;
                }
                let is_conflict = change.conflicts_with(mode);
                if mode == change.after || (is_conflict && self.is_forced()) {
                    mode = change.before;
                } else if is_conflict {
                    self.conflict(&dir, ConflictReason::Merge, OTHER_MODE.into());
                }
            }
            if let Some(to) = mode.filter(|to| *to != present) {
                self.out.request.modes.push(ModeChange::of_dir(path, present, to));
            }
        }
        Ok(())
    }

    /// Returns whether a change of a directory's permissions or existence belongs to the span, was
    /// asked for and is not undone yet.
    fn takes_dir_mode(&self, span: &Span, dir: &TreePath, change: ModeStep) -> bool {
        let is_listed = span.before.meta.common.dir == span.after.meta.common.dir;
        let owns = match (change.before, change.after) {
            (None, _) | (_, None) => span.made_dir(dir),
            // Listed permissions are attributed to steps path by path.
            _ if is_listed => span.paths.is_none() || span.owns(dir),
            _ => span.owns_dir(dir),
        };
        let takes = self.inversion.unclear || self.inversion.takes_undecided(dir);
        self.inversion.is_asked_for(dir)
            && (owns || (takes && span.unclear.contains(dir)))
            && !self.inversion.is_done(span, dir)
    }
}
