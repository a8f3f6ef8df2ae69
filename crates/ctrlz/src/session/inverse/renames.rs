//! Renamed files: later edits follow a file back to its old name where they merge.

use std::collections::{BTreeMap, HashMap};

use crate::compare::{Change, Entry, NowAt, changes, find};
use crate::error::Error;
use crate::git::{ObjectId, diff_lines};
use crate::path::TreePath;
use crate::restore::Wanted;
use crate::session::history::Span;
use crate::session::report::ConflictReason;
use crate::workspace::is_binary;

use super::permissions::with_mode;
use super::{Inverter, Track};

/// Returns whether one file may be an edited version of the other: at least half of it is the same.
fn resembles(one: &[u8], other: &[u8]) -> bool {
    let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let start = one.iter().zip(other).take_while(same).count();
    let end = one[start..].iter().rev().zip(other[start..].iter().rev()).take_while(same).count();
    one == other || (start + end) * 2 >= one.len().max(other.len()) || similarity(one, other) >= 0.5
}

/// Returns the share of lines that two texts have in common, from 0 to 1; 0 for binary files.
fn similarity(one: &[u8], other: &[u8]) -> f64 {
    if is_binary(one) || is_binary(other) {
        return 0.0;
    }
    let lines = |text: &[u8]| {
        let ends = text.iter().filter(|byte| **byte == b'\n').count();
        (ends + usize::from(!text.ends_with(b"\n"))).max(1)
    };
    let diff = diff_lines(one, other);
    let (before, after) = (lines(one), lines(other));
    let common = before.saturating_sub(diff.deletions);
    common as f64 / before.max(after) as f64
}

impl Inverter<'_> {
    /// Moves edits of a file that the changes renamed back to its old name, where they merge.
    pub(super) fn follow_renames(
        &mut self,
        tracks: &mut BTreeMap<TreePath, Track<'_>>,
    ) -> Result<(), Error> {
        let edited: Vec<(TreePath, Entry)> = tracks
            .iter()
            .filter_map(|(path, track)| {
                let [(change, _)] = track.changes.as_slice() else { return None };
                let NowAt::File { entry: ours, .. } = self.now.at(path.as_bytes()) else {
                    return None;
                };
                let is_edited = change.before.is_none() && change.after != Some(ours);
                // Edits of unknown owner stay where they are.
                (is_edited && !self.has_conflict(path)).then(|| (path.clone(), ours))
            })
            .collect();
        for (new_name, ours) in edited {
            let Some(old_name) = self.old_name(&new_name, tracks)? else { continue };
            let (made, gone) = (&tracks[&new_name], &tracks[&old_name]);
            let renamed = Change {
                path: old_name.clone(),
                before: gone.changes[0].0.before,
                after: made.changes[0].0.after,
            };
            // An unrelated file that took over the name stays where it is.
            let left = renamed.after.filter(|left| left.kind.is_file() && ours.kind.is_file());
            let Some(left) = left else { continue };
            if !resembles(&self.text(&left.id)?, &self.text(&ours.id)?) {
                continue;
            }
            let Some(Some(merged)) = self.merge(Some(ours), &renamed)? else { continue };
            let known = self.out.conflicts.len();
            self.path(&old_name, gone, Some(merged))?;
            let mode = self.changed_mode(&new_name, made.changes[0].1);
            let wanted = self.out.request.wanted.get_mut(old_name.as_bytes());
            if let (Some(Wanted::Entry { entry, mode: old }), Some(mode)) = (wanted, mode) {
                (*entry, *old) = (with_mode(*entry, mode), mode);
            }
            let wanted = self.out.request.wanted.get(old_name.as_bytes());
            if !matches!(wanted, Some(Wanted::Entry { .. })) {
                // Older changes of the old name do not merge, so both names are merged separately.
                self.out.conflicts.truncate(known);
                self.out.request.wanted.remove(old_name.as_bytes());
                continue;
            }
            self.empty_out(&new_name, made)?;
            self.out.request.wanted.insert(new_name.as_bytes().to_vec(), Wanted::Absent);
            self.followed.push((old_name.clone(), new_name.clone()));
            tracks.remove(&new_name);
            tracks.remove(&old_name);
        }
        Ok(())
    }

    /// Returns the previous name of a new file: a path that the same span removed, that had the
    /// same or similar text, and that is still unused.
    pub(super) fn old_name(
        &self,
        new_name: &TreePath,
        tracks: &BTreeMap<TreePath, Track<'_>>,
    ) -> Result<Option<TreePath>, Error> {
        const MAX_CANDIDATES: usize = 100;
        let (made, span) = &tracks[new_name].changes[0];
        let Some(made) = made.after.filter(|entry| entry.kind.is_file()) else { return Ok(None) };
        let gone: Vec<(&TreePath, Entry)> = tracks
            .iter()
            .filter_map(|(path, track)| {
                let (change, other) = track.changes.first()?;
                let same_span = std::ptr::eq(*other, *span);
                let is_free = matches!(self.now.at(path.as_bytes()), NowAt::Nothing);
                let entry = change.before.filter(|entry| entry.kind.is_file())?;
                (same_span && is_free && change.after.is_none()).then_some((path, entry))
            })
            .collect();
        if let Some((path, _)) = gone.iter().find(|(_, entry)| entry.id == made.id) {
            return Ok(Some((*path).clone()));
        }
        let text = self.store.objects.blob(&made.id)?;
        let mut best: Option<(f64, &TreePath)> = None;
        for (path, entry) in gone.into_iter().take(MAX_CANDIDATES) {
            let alike = similarity(&self.store.objects.blob(&entry.id)?, &text);
            if alike >= 0.5 && best.is_none_or(|(other, _)| alike > other) {
                best = Some((alike, path));
            }
        }
        Ok(best.map(|(_, path)| path.clone()))
    }

    /// Reverses changes of a file at the name that an earlier undo or redo moved it to, if the file
    /// is as the steps left it.
    pub(super) fn follow_undone_renames(
        &mut self,
        tracks: &mut BTreeMap<TreePath, Track<'_>>,
    ) -> Result<(), Error> {
        let mut moved = Vec::new();
        let mut by_content: Option<HashMap<ObjectId, Vec<Vec<u8>>>> = None;
        for (path, track) in tracks.iter() {
            let Some((change, span)) = track.changes.first() else { continue };
            let is_gone = matches!(self.now.at(path.as_bytes()), NowAt::Nothing);
            let left = change.after.filter(|left| is_gone && left.kind.is_file());
            let Some(left) = left.filter(|left| left.id != ObjectId::EMPTY_BLOB) else { continue };
            let now = by_content.get_or_insert_with(|| self.now.by_content());
            for found in now.get(&left.id).into_iter().flatten() {
                let name = TreePath::from_scan(found.clone());
                if !tracks.contains_key(&name) && self.was_moved_by_undo(path, &name, span)? {
                    moved.push((path.clone(), name));
                }
            }
        }
        for (path, name) in moved {
            if let Some(track) = tracks.remove(&path) {
                self.path(&name, &track, None)?;
            }
        }
        Ok(())
    }

    /// Returns whether an undo or redo since a span removed the file `from` and created `to`.
    fn was_moved_by_undo(
        &self,
        from: &TreePath,
        to: &TreePath,
        span: &Span,
    ) -> Result<bool, Error> {
        let Some(history) = self.inversion.history else { return Ok(false) };
        let (objects, entries) = (&self.store.objects, &history.entries);
        for at in (0..span.entry).filter(|at| entries[*at].kind.writes_files()) {
            let changed = changes(objects, &entries[at + 1].snapshot, &entries[at].snapshot)?;
            let is_gone = |change: &Change| change.path == *from && change.after.is_none();
            let is_new = |change: &Change| change.path == *to && change.before.is_none();
            if changed.iter().any(is_gone) && changed.iter().any(is_new) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports files that the steps created or changed and that were renamed since. The changes of
    /// their own paths do not show the rename.
    pub(super) fn renamed_since(
        &mut self,
        tracks: &BTreeMap<TreePath, Track<'_>>,
    ) -> Result<(), Error> {
        let mut by_content: Option<HashMap<ObjectId, Vec<Vec<u8>>>> = None;
        for (path, track) in tracks {
            let Some((change, span)) = track.changes.first() else { continue };
            let is_content = |left: &Entry| left.kind.is_file() && left.id != ObjectId::EMPTY_BLOB;
            let Some(left) = change.after.filter(is_content) else { continue };
            let is_gone = matches!(self.now.at(path.as_bytes()), NowAt::Nothing);
            if !is_gone || self.has_conflict(path) || change.before == change.after {
                continue;
            }
            let now = by_content.get_or_insert_with(|| self.now.by_content());
            for found in now.get(&left.id).into_iter().flatten() {
                let other = TreePath::from_scan(found.clone());
                let is_new = find(&self.store.objects, &span.after.snapshot, &other)?.is_none();
                let decided = self.out.request.wanted.contains_key(found);
                if is_new && !decided && !tracks.contains_key(&other) {
                    let why = format!("it was renamed since the step, which left it as {path}");
                    self.conflict(&other, ConflictReason::Merge, why);
                }
            }
        }
        Ok(())
    }
}
