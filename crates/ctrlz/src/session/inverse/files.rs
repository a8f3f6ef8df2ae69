//! Files of the snapshots: the three-way merge of one path with its present state.

use crate::compare::{Change, Entry, NowAt, Trees, find};
use crate::error::Error;
use crate::git::EntryKind;
use crate::log::Operation;
use crate::path::{TreePath, dirs_above};
use crate::restore::{Absence, KeptReason, Wanted, is_dir_of};
use crate::session::history::Span;
use crate::session::report::ConflictReason;

use super::permissions::with_mode;
use super::{Inverter, NO_MERGE, OnConflict, Track};

/// State of a path.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// File or symlink, if there is one.
    pub(super) entry: Option<Entry>,
    /// Whether no listing shows the file, because it is ignored or too large.
    pub(super) is_hidden: bool,
}

/// Returns whether changes, newest first, are contiguous and end in the state that they began with,
/// for instance a revert and the steps that it reversed.
fn cancels_out(changes: &[(Change, &Span)]) -> bool {
    let gapless = changes.windows(2).all(|pair| pair[0].0.before == pair[1].0.after);
    let ends = changes.first().zip(changes.last());
    gapless && ends.is_some_and(|((newest, _), (oldest, _))| newest.after == oldest.before)
}

impl Inverter<'_> {
    /// Reverses the changes of one path, newest first. Starts from the present file or from
    /// `merged`, which is the file from under its new name with the newest change already reversed.
    pub(super) fn path(
        &mut self,
        path: &TreePath,
        track: &Track<'_>,
        merged: Option<Entry>,
    ) -> Result<(), Error> {
        let Some(State { entry: ours, is_hidden }) = self.ours(path, track)? else { return Ok(()) };
        if merged.is_none() && cancels_out(&track.changes) {
            return if ours.is_none() { self.empty_out(path, track) } else { Ok(()) };
        }
        let skipped = usize::from(merged.is_some());
        let start = State { entry: merged.or(ours), is_hidden };
        let Some(State { entry: wanted, .. }) = self.reversed(path, track, skipped, start)? else {
            return Ok(());
        };
        if wanted == ours {
            // A directory that the step created is removed even if its last file was removed since.
            return if ours.is_none() { self.empty_out(path, track) } else { Ok(()) };
        }
        if is_hidden || (ours.is_none() && self.absence.doubt(path)?.is_some()) {
            self.out.ignored.push(path.clone());
        }
        let mode = self.merged_mode(path, wanted.map_or(EntryKind::File, |entry| entry.kind));
        let wanted = match wanted {
            Some(entry) => {
                let unlinked = track.changes.iter().flat_map(|(_, span)| {
                    span.after.details.unlinked.iter().filter(|name| name.from == *path)
                });
                let others = unlinked.map(|name| (name.from.as_bytes(), name.to.as_bytes()));
                let others = others.map(|(name, other)| (name.to_vec(), other.to_vec()));
                self.out.request.relinked.extend(others);
                Wanted::Entry { entry: with_mode(entry, mode), mode }
            }
            None => {
                self.empty_out(path, track)?;
                Wanted::Absent
            }
        };
        self.out.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        Ok(())
    }

    /// Returns the present state of a path. Returns `None` and reports a conflict if it is not
    /// known or cannot be merged.
    fn ours(&mut self, path: &TreePath, track: &Track<'_>) -> Result<Option<State>, Error> {
        let (entry, is_hidden) = match self.now.at(path.as_bytes()) {
            NowAt::File { entry, .. } => (Some(entry), false),
            NowAt::Dir if !self.left_a_directory(path, track)? => {
                let why = "a directory was made there since";
                self.conflict(path, ConflictReason::Merge, why.into());
                return Ok(None);
            }
            NowAt::Dir => (None, false),
            // Not listed does not mean absent: a scan skips ignored and some other directories.
            NowAt::Nothing => match self.absence.doubt(path)? {
                None => (None, false),
                Some(KeptReason::SkippedThen { why }) => {
                    self.conflict(path, ConflictReason::NotProven, why);
                    return Ok(None);
                }
                // Listed as ignored, so that a redo knows that this undo wrote or removed it.
                Some(_) => match self.on_disk(path) {
                    Some(ours) if !self.store.objects.holds(&ours.id) => {
                        self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                        return Ok(None);
                    }
                    found => (found, found.is_some()),
                },
            },
            // A file that became ignored or too large since is captured before it is replaced.
            NowAt::Unsaved(why) => match self.on_disk(path) {
                Some(ours) if self.store.objects.holds(&ours.id) => (Some(ours), true),
                _ => {
                    self.conflict(path, ConflictReason::NotProven, why);
                    return Ok(None);
                }
            },
        };
        Ok(Some(State { entry, is_hidden }))
    }

    /// Returns a file without the changes of a track, of which the newest `skipped` are reversed
    /// already. Returns `None` if the file has to stay, and reports the conflict.
    fn reversed(
        &mut self,
        path: &TreePath,
        track: &Track<'_>,
        skipped: usize,
        start: State,
    ) -> Result<Option<State>, Error> {
        let forced = self.is_forced();
        let mut wanted = start.entry;
        let mut moved = false;
        for (change, span) in track.changes.iter().skip(skipped) {
            let removes = change.before.is_none() && wanted == change.after;
            if removes && !self.may_remove(path, span)? {
                return Ok(None);
            }
            match self.merge(wanted, change)? {
                Some(merged) if self.keeps_lines((wanted, merged), change)? => {
                    moved = true;
                    wanted = if forced { change.before } else { merged };
                }
                Some(merged) => wanted = merged,
                None if forced => wanted = change.before,
                None => {
                    self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                    return Ok(None);
                }
            }
        }
        if moved && self.inversion.on_conflict == OnConflict::Keep {
            let why = "lines of the step were moved within the file and are still there";
            self.conflict(path, ConflictReason::Merge, why.into());
        }
        Ok(Some(State { entry: wanted, ..start }))
    }

    /// Returns whether a file that a span seems to have created did not exist before. Reports a
    /// conflict if that is not proven.
    fn may_remove(&mut self, path: &TreePath, span: &Span) -> Result<bool, Error> {
        // An undo or restore creates a file only after checking that the path is free.
        let is_ours = span.info.is_none() && span.named.contains(path);
        let doubt = Absence::of_operation(self.store, &span.before).doubt(path)?;
        if doubt.is_some() && self.is_untouched(path, span) {
            // The file existed before and only became visible because the rules changed.
            return Ok(false);
        }
        let doubt = doubt.filter(|_| !is_ours);
        if let Some(reason) = &doubt {
            self.conflict(path, ConflictReason::NotProven, reason.to_string());
        }
        Ok(doubt.is_none())
    }

    /// Returns whether the newest change of a path left a directory or the undo may replace one.
    fn left_a_directory(&self, path: &TreePath, track: &Track<'_>) -> Result<bool, Error> {
        let forced = self.inversion.on_conflict == OnConflict::TakeTheirs;
        let Some((_, span)) = track.changes.first().filter(|_| !forced) else { return Ok(true) };
        let (trees, meta) = (Trees::new(&self.store.objects), Some(&span.after.meta));
        is_dir_of(&trees, &span.after.snapshot, meta, path.as_bytes())
    }

    /// Returns whether a file was last changed before a span began.
    fn is_untouched(&self, path: &TreePath, span: &Span) -> bool {
        let NowAt::File { stat, .. } = self.now.at(path.as_bytes()) else { return false };
        span.began_millis > 0 && stat.ctime.millis() < span.began_millis
    }

    /// Requests the removal of directories that the changes created, if they end up empty.
    pub(super) fn empty_out(&mut self, path: &TreePath, track: &Track<'_>) -> Result<(), Error> {
        for (change, span) in &track.changes {
            if change.before.is_none() {
                self.empty_out_of(path, span)?;
            }
        }
        Ok(())
    }

    /// Requests the removal of directories above a path that a span created, if they end up empty.
    pub(super) fn empty_out_of(&mut self, path: &TreePath, span: &Span) -> Result<(), Error> {
        for dir in dirs_above(path.as_bytes()) {
            let parent = TreePath::from_scan(dir.to_vec());
            let is_dir = |operation: &Operation| -> Result<bool, Error> {
                let found = find(&self.store.objects, &operation.snapshot, &parent)?;
                let empty = &operation.meta.empty_dirs;
                Ok(found.is_some_and(|entry| entry.kind.is_tree())
                    || empty.iter().any(|empty| empty.is_within(&parent)))
            };
            // A directory that was ignored before is not recorded, so redo could not recreate it.
            if is_dir(&span.after)? && !is_dir(&span.before)? && !self.was_ignored_dir(span, dir)? {
                self.out.request.emptied.insert(dir.to_vec());
            }
        }
        Ok(())
    }
}
