//! Ignored files, which are kept in ignored snapshots.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Change, NowAt, Status, Trees, changes, find};
use crate::error::Error;
use crate::git::ObjectId;
use crate::log::{Credit, IgnoredSnapshot, Operation, read_ignored};
use crate::path::{PathText, TreePath, dirs_above, is_within};
use crate::record::look;
use crate::restore::{ModeChange, Modes, Wanted, is_dir_of, is_transient};
use crate::session::history::Span;
use crate::session::report::{Conflict, ConflictReason};

use super::files::State;
use super::permissions::usual_mode;
use super::{Hidden, Inverter, NO_MERGE, OnConflict};

impl Inverter<'_> {
    /// Returns the tree of the ignored files that an operation kept. It is empty if there are none
    /// or they cannot be read.
    pub(super) fn ignored_tree(&self, operation: &Operation) -> ObjectId {
        let ignored = operation.meta.ignored_snapshot;
        let ignored = ignored.and_then(|id| read_ignored(&self.store.objects, &id).ok());
        ignored.map_or(ObjectId::EMPTY_TREE, |ignored| ignored.tree)
    }

    /// Returns the changes of the ignored files that the operations of a span kept.
    pub(super) fn ignored_changes(&self, span: &Span) -> Result<Vec<Change>, Error> {
        let (was, is) = (self.ignored_tree(&span.before), self.ignored_tree(&span.after));
        if was == is { Ok(Vec::new()) } else { changes(&self.store.objects, &was, &is) }
    }

    /// Plans ignored files. Deleted files are restored, and files that a tool named are undone like
    /// tracked files. Other changes are only undone on request.
    pub(super) fn ignored_files(&mut self, hidden: &[Hidden<'_>]) -> Result<(), Error> {
        let objects = &self.store.objects;
        let open = |id: Option<ObjectId>| id.map(|id| read_ignored(objects, &id)).transpose();
        let now = open(self.inversion.present.meta.ignored_snapshot)?;
        let mut tracks: BTreeMap<TreePath, Vec<(Change, u32)>> = BTreeMap::new();
        for span in self.inversion.spans.iter().rev() {
            let (was, is) = (span.before.meta.ignored_snapshot, span.after.meta.ignored_snapshot);
            let (Ok(was), Ok(is)) = (open(was), open(is)) else { continue };
            self.newly_ignored(span, hidden, is.as_ref(), &mut tracks)?;
            if was == is {
                continue;
            }
            self.ignored_modes(span, was.as_ref(), is.as_ref(), now.as_ref())?;
            let tree = |ignored: &Option<IgnoredSnapshot>| {
                ignored.as_ref().map_or(ObjectId::EMPTY_TREE, |ignored| ignored.tree)
            };
            for change in changes(objects, &tree(&was), &tree(&is))? {
                if let Some(mode) = self.ignored_change(span, was.as_ref(), &change)? {
                    tracks.entry(change.path.clone()).or_default().push((change, mode));
                }
            }
        }
        for (path, track) in tracks {
            self.ignored_file(&path, &track, now.as_ref())?;
        }
        Ok(())
    }

    /// Returns whether to reverse a change of an ignored file, with its permissions before. Lists
    /// the change as left if it was not asked for.
    fn ignored_change(
        &mut self,
        span: &Span,
        was: Option<&IgnoredSnapshot>,
        change: &Change,
    ) -> Result<Option<u32>, Error> {
        let objects = &self.store.objects;
        let path = &change.path;
        // Paths that one of the snapshots holds have been planned from there.
        let crossed = find(objects, &span.before.snapshot, path)?.is_some()
            || find(objects, &span.after.snapshot, path)?.is_some();
        if !self.inversion.is_asked_for(path)
            || self.inversion.is_done(span, path)
            || crossed
            || span.earlier_ignored.contains(path)
            || !(span.owns_unnamed() || span.named.contains(path))
            || is_transient(objects, change)?
        {
            return Ok(None);
        }
        let mut written = span.named.iter().chain(span.paths.iter().flatten());
        let named = match span.info {
            Some(_) => span.named.contains(path),
            // An undo or restore lists the ignored files that it wrote. Others only became visible
            // or hidden because it changed the ignore rules.
            None if written.any(|written| written == path) => true,
            None => return Ok(None),
        };
        let credits = &span.after.details.credits;
        let may = |credit: &Credit| !credit.only_named;
        let shared = credits.len() > 1 && !self.inversion.takes_all_of(&span.after, may);
        let unknown = was.is_some_and(|was| was.is_unknown(path.as_bytes()));
        // Nothing shows whether an interrupted step or the user changed an ignored file.
        let undecided = span.inferred && !self.inversion.unclear;
        let asked = self.inversion.ignored
            && !shared
            && (!undecided || self.inversion.takes_undecided(path));
        let proven = was.is_none_or(|was| was.proves_absent(path.as_bytes()));
        let is_old = || self.is_older(path.as_bytes(), span);
        // The file is older than the step and was not proven absent: it probably existed in a
        // directory that no scan had entered.
        if change.status() == Status::Added && !proven && !named && is_old() {
            return Ok(None);
        }
        let why = match change.status() {
            Status::Deleted => None,
            Status::Modified if named || asked => None,
            Status::Added if !unknown && (named || (asked && proven && !is_old())) => None,
            Status::Modified => Some("an ignored file was changed"),
            Status::Added => Some("an ignored file was made"),
        };
        if let Some(why) = why {
            let (path, reason) = (path.clone(), ConflictReason::Ignored);
            self.out.ignored_left.push(Conflict { path, reason, why: why.into() });
            return Ok(None);
        }
        if change.before.is_none() {
            self.empty_out_of(path, span)?;
        }
        let usual = change.before.map_or(0o644, |entry| usual_mode(entry.kind));
        Ok(Some(was.map_or(usual, |was| was.mode_of(path.as_bytes(), usual))))
    }

    /// Adds files that the span changed and that are ignored since to `tracks`. The ignored
    /// snapshot holds their content after the span. A file that the step named and that the ignored
    /// snapshot neither holds nor lists as unknown was removed.
    fn newly_ignored(
        &mut self,
        span: &Span,
        hidden: &[Hidden<'_>],
        is: Option<&IgnoredSnapshot>,
        tracks: &mut BTreeMap<TreePath, Vec<(Change, u32)>>,
    ) -> Result<(), Error> {
        for Hidden { change, .. } in hidden.iter().filter(|other| std::ptr::eq(other.span, span)) {
            let Some(before) = change.before else { continue };
            let path = &change.path;
            let after = match is {
                Some(is) => find(&self.store.objects, &is.tree, path)?,
                None => None,
            };
            // Not kept, and named by the step or missing on disk: it was deleted, not only hidden.
            let is_unknown = is.is_some_and(|is| is.is_unknown(path.as_bytes()));
            let is_own = span.named.contains(path) && !is_unknown;
            let is_absent = matches!(look(self.inversion.root, path.as_bytes()), Ok(None));
            let is_gone = after.is_none() && (is_own || is_absent);
            let is_file = before.kind.is_file();
            if after.is_none() && !is_gone && is_file && self.on_disk(path) != Some(before) {
                let why = "no snapshot holds what the step left of it";
                self.conflict(path, ConflictReason::NotProven, why.into());
            }
            if after == Some(before) || (after.is_none() && !is_gone) {
                continue;
            }
            let modes = Modes::of(Some(&span.before.meta));
            let mode = modes.of_file(path.as_bytes(), before.kind);
            let change = Change { path: path.clone(), before: Some(before), after };
            tracks.entry(path.clone()).or_default().push((change, mode));
        }
        Ok(())
    }

    /// Reverses permission changes of ignored files whose content did not change.
    fn ignored_modes(
        &mut self,
        span: &Span,
        was: Option<&IgnoredSnapshot>,
        is: Option<&IgnoredSnapshot>,
        now: Option<&IgnoredSnapshot>,
    ) -> Result<(), Error> {
        let (Some(was), Some(is), Some(now)) = (was, is, now) else { return Ok(()) };
        let objects = &self.store.objects;
        let listed = was.data.modes.iter().chain(&is.data.modes);
        let paths: BTreeSet<Vec<u8>> = listed.map(|(text, _)| text.clone().into_bytes()).collect();
        for bytes in paths {
            let Ok(path) = TreePath::parse(&bytes) else { continue };
            let Some(entry) = find(objects, &is.tree, &path)? else { continue };
            let kept = find(objects, &was.tree, &path)? == Some(entry)
                && find(objects, &now.tree, &path)?.is_some();
            let usual = usual_mode(entry.kind);
            let mode = |ignored: &IgnoredSnapshot| ignored.mode_of(&bytes, usual);
            let (to, from) = (mode(was), mode(is));
            let own = self.inversion.is_asked_for(&path) && !self.inversion.is_done(span, &path);
            // Several steps compose: the newest was taken back first.
            let planned = self.out.request.modes.iter().position(|change| change.path == bytes);
            let present = planned.map_or(mode(now), |at| self.out.request.modes[at].to);
            if to == from || present != from || !kept || !own {
                continue;
            }
            if span.named.contains(&path) || self.inversion.ignored {
                match planned {
                    Some(at) => self.out.request.modes[at].to = to,
                    None => {
                        self.out.ignored.push(path);
                        self.out.request.modes.push(ModeChange::of_file(bytes, from, to));
                    }
                }
            } else {
                let why = "an ignored file's permissions were changed".into();
                let reason = ConflictReason::Ignored;
                self.out.ignored_left.push(Conflict { path, reason, why });
            }
        }
        Ok(())
    }

    /// Returns the present state of a path that only ignored snapshots hold. Returns `None` if it
    /// cannot be merged or has been planned already.
    fn ignored_ours(
        &mut self,
        path: &TreePath,
        now: Option<&IgnoredSnapshot>,
    ) -> Result<Option<State>, Error> {
        let kept = match now {
            Some(now) => find(&self.store.objects, &now.tree, path)?,
            None => None,
        };
        let entry = match (self.now.at(path.as_bytes()), kept) {
            // Only the ignored snapshot covers files in ignored directories.
            (_, Some(entry)) => Some(entry),
            (NowAt::Nothing, None)
                if matches!(look(self.inversion.root, path.as_bytes()), Ok(None)) =>
            {
                None
            }
            // No longer ignored. If the snapshots hold the change, it has been planned already.
            (NowAt::File { entry, .. }, None) => {
                if self.out.request.wanted.contains_key(path.as_bytes()) || self.has_conflict(path)
                {
                    return Ok(None);
                }
                Some(entry)
            }
            (NowAt::Nothing | NowAt::Unsaved(_), None) if self.on_disk(path).is_some() => {
                self.on_disk(path)
            }
            (NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_), None) => {
                let why = "it is ignored, and what is there now is not kept";
                self.conflict(path, ConflictReason::NotProven, why.into());
                return Ok(None);
            }
        };
        Ok(Some(State { entry, is_hidden: true }))
    }

    fn ignored_file(
        &mut self,
        path: &TreePath,
        track: &[(Change, u32)],
        now: Option<&IgnoredSnapshot>,
    ) -> Result<(), Error> {
        let objects = &self.store.objects;
        let Some(State { entry: ours, .. }) = self.ignored_ours(path, now)? else { return Ok(()) };
        let mut wanted = ours;
        let mut mode = 0o644;
        // Only content that the store holds can be merged.
        let is_held = ours.is_none_or(|ours| objects.holds(&ours.id));
        for (change, then) in track {
            if !is_held && wanted == ours && ours != change.after && ours != change.before {
                self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                return Ok(());
            }
            match self.merge(wanted, change)? {
                Some(merged) => wanted = merged,
                None if self.inversion.on_conflict == OnConflict::TakeTheirs => {
                    wanted = change.before;
                }
                None => {
                    self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                    return Ok(());
                }
            }
            mode = *then;
        }
        if wanted == ours {
            return Ok(());
        }
        if wanted.is_none() {
            // Directories that were created for the file are removed with it if they end up empty.
            let trees = Trees::new(objects);
            for dir in dirs_above(path.as_bytes()) {
                let mut was_dir = false;
                for span in self.inversion.spans {
                    let (before, meta) = (&span.before.snapshot, Some(&span.before.meta));
                    was_dir |=
                        is_dir_of(&trees, before, meta, dir)? || self.was_ignored_dir(span, dir)?;
                }
                if !was_dir {
                    self.out.request.emptied.insert(dir.to_vec());
                }
            }
        }
        let wanted = wanted.map_or(Wanted::Absent, |entry| Wanted::Entry { entry, mode });
        self.out.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        self.out.ignored.push(path.clone());
        Ok(())
    }

    /// Returns whether an ignored directory existed before a span, which no tree records. Returns
    /// `true` if the ignored snapshot does not list such directories.
    pub(super) fn was_ignored_dir(&self, span: &Span, dir: &[u8]) -> Result<bool, Error> {
        let objects = &self.store.objects;
        let Some(before) = span.before.meta.ignored_snapshot else { return Ok(false) };
        let before = read_ignored(objects, &before)?;
        let path = TreePath::from_scan(dir.to_vec());
        if find(objects, &before.tree, &path)?.is_some_and(|entry| entry.kind.is_tree()) {
            return Ok(true);
        }
        let Some(listed) = before.data.not_kept else { return Ok(true) };
        let mut listed = listed.into_iter().map(PathText::into_bytes);
        Ok(listed.any(|listed| {
            // Below a listed directory, only the age of `dir` shows whether it existed before a
            // step. An undo or restore names the directories that it created.
            listed == dir
                || (is_within(dir, &listed)
                    && match span.info {
                        Some(_) => self.is_older(dir, span),
                        None => !span.paths.iter().flatten().any(|made| *made == path),
                    })
        }))
    }
}
