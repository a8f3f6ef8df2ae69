//! The inverse of changes: what the present would be had they not been made.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::compare::{Change, Entry, Status, changes, find, merge_lines};
use crate::error::Error;
use crate::git::{EntryKind, Kind, ObjectId, diff_lines};
use crate::path::TreePath;
use crate::restore::{ModeChange, Now, NowAt, Request, Wanted};
use crate::store::{Companion, Operation, PackWriter, Store, read_companion};
use crate::workspace::{Absence, Modes, dirs_above, is_binary};

use super::history::{History, Span};
use super::undo::Conflict;

/// What to do about a file that was changed since in a way that does not merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    /// It stays as the user has it.
    Keep,
    /// It becomes what it was before the change.
    TakeTheirs,
}

/// A path's way back.
struct Track<'a> {
    /// Newest first: the change, and the span it is part of.
    changes: Vec<(Change, &'a Span)>,
}

/// What to invert, and how.
pub(super) struct Inversion<'a> {
    /// What was taken back already; `None` for redo, which takes back all of it.
    pub(super) history: Option<&'a History<'a>>,
    /// Oldest first.
    pub(super) spans: &'a [Span],
    /// Only these paths; all if empty.
    pub(super) limit: &'a [TreePath],
    pub(super) on_conflict: OnConflict,
    /// Whether changes of ignored files that no tool named are taken back too.
    pub(super) ignored: bool,
    /// The companion of the present state.
    pub(super) companion: Option<ObjectId>,
}

/// What an inversion asks for.
#[derive(Default)]
pub(super) struct Inverted {
    pub(super) request: Request,
    pub(super) conflicts: Vec<Conflict>,
    /// Ignored files among what is asked for.
    pub(super) ignored: Vec<TreePath>,
    /// Changes of ignored files that stay.
    pub(super) ignored_left: Vec<Conflict>,
}

impl Inversion<'_> {
    fn is_asked_for(&self, path: &TreePath) -> bool {
        self.limit.is_empty() || self.limit.iter().any(|limit| path.is_within(limit))
    }

    /// Whether every step that an operation is credited to is taken back here: then what they
    /// share is nobody else's.
    fn takes_all_of(&self, operation: &Operation) -> bool {
        let is_taken = |step: &str| {
            let of_step = |span: &Span| span.info.as_ref().is_some_and(|info| info.step == step);
            self.spans.iter().any(|span| span.after.id == operation.id && of_step(span))
        };
        operation.details.credits.iter().all(|credit| is_taken(&credit.step.step))
    }

    fn is_done(&self, span: &Span, path: &TreePath) -> bool {
        let step = self.history.zip(span.info.as_ref());
        step.is_some_and(|(history, info)| history.is_path_undone(&info.step, path))
    }
}

/// Works out what taking the spans back asks for.
pub(super) fn invert(
    store: &Store,
    now: &Now<'_>,
    inversion: &Inversion<'_>,
) -> Result<Inverted, Error> {
    let mut inverter = Inverter {
        store,
        now,
        inversion,
        out: Inverted {
            request: Request { common_dir_mode: 0o755, ..Request::default() },
            ..Inverted::default()
        },
        pack: PackWriter::new(&store.objects_dir()),
        merged: HashMap::new(),
    };
    let (mut tracks, hidden) = gather(store, inversion)?;
    inverter.shared();
    inverter.follow_renames(&mut tracks)?;
    for (path, track) in &tracks {
        inverter.path(path, track, None)?;
    }
    inverter.modes_and_dirs()?;
    inverter.ignored_files(&hidden)?;
    let Inverter { out, pack, .. } = inverter;
    // Merged texts are new objects; the plan needs them readable.
    pack.publish()?;
    store.objects.refresh()?;
    Ok(out)
}

/// A path that a snapshot no longer holds because it is ignored or skipped now.
struct Hidden<'a> {
    change: Change,
    span: &'a Span,
}

/// Every path the spans changed, with its changes newest first, and what they hid.
fn gather<'a>(
    store: &Store,
    inversion: &Inversion<'a>,
) -> Result<(BTreeMap<TreePath, Track<'a>>, Vec<Hidden<'a>>), Error> {
    let mut tracks: BTreeMap<TreePath, Track<'a>> = BTreeMap::new();
    let mut hidden = Vec::new();
    let forced = inversion.on_conflict == OnConflict::TakeTheirs;
    for span in inversion.spans.iter().rev() {
        let mut covered = Absence::of_operation(store, &span.after);
        let aside = span.before.meta.companion.map(|id| read_companion(&store.objects, &id));
        let aside = aside.and_then(Result::ok);
        let with_shared = forced || inversion.takes_all_of(&span.after);
        for mut change in changes(&store.objects, &span.before.snapshot, &span.after.snapshot)? {
            let own = span.owns(&change.path)
                || (with_shared && span.after.details.shared.contains(&change.path));
            if !own || !inversion.is_asked_for(&change.path) {
                continue;
            }
            if inversion.is_done(span, &change.path) {
                continue;
            }
            if let (None, Some(aside)) = (change.before, &aside) {
                // It was ignored before, and is not any more.
                change.before = find(&store.objects, &aside.tree, &change.path)?;
            }
            // Left out afterwards is not deleted.
            if change.after.is_none() && covered.doubt(&change.path)?.is_some() {
                hidden.push(Hidden { change, span });
            } else {
                let track = tracks.entry(change.path.clone()).or_insert(Track { changes: vec![] });
                track.changes.push((change, span));
            }
        }
    }
    Ok((tracks, hidden))
}

struct Inverter<'a> {
    store: &'a Store,
    now: &'a Now<'a>,
    inversion: &'a Inversion<'a>,
    out: Inverted,
    pack: PackWriter,
    /// Merged texts, which the pack holds and nobody can read yet: an earlier change of the same
    /// path may have to be merged out of one.
    merged: HashMap<ObjectId, Vec<u8>>,
}

impl Inverter<'_> {
    /// Takes one path's changes back, newest first, from what is there or from `merged`, which an
    /// edit of the file under another name left.
    fn path(
        &mut self,
        path: &TreePath,
        track: &Track<'_>,
        merged: Option<Entry>,
    ) -> Result<(), Error> {
        let ours = match self.now.at(path.as_bytes()) {
            NowAt::File { entry, .. } => Some(entry),
            NowAt::Nothing | NowAt::Dir => None,
            NowAt::Unsaved(why) => {
                self.conflict(path, why);
                return Ok(());
            }
        };
        let mut wanted = merged.or(ours);
        for (change, span) in track.changes.iter().skip(usize::from(merged.is_some())) {
            if change.before.is_none() && wanted == change.after {
                // What an operation of ours made was not there; the plan has looked.
                let is_ours = span.info.is_none() && span.named.contains(path);
                let doubt = Absence::of_operation(self.store, &span.before).doubt(path)?;
                if let Some(reason) = doubt.filter(|_| !is_ours) {
                    self.conflict(path, reason.describe());
                    return Ok(());
                }
            }
            match self.merge(wanted, change)? {
                Some(merged) => wanted = merged,
                None if self.inversion.on_conflict == OnConflict::TakeTheirs => {
                    wanted = change.before;
                }
                None => {
                    let why = "it was changed since, and the changes do not merge";
                    self.conflict(path, why.into());
                    return Ok(());
                }
            }
        }
        if wanted == ours {
            return Ok(());
        }
        let kind = wanted.map_or(EntryKind::File, |entry| entry.kind);
        let mode = match track.changes.last() {
            Some((_, span)) => self.mode_before(span, path, kind)?,
            None => 0o644,
        };
        let wanted = match wanted {
            Some(entry) => Wanted::Entry { entry, mode },
            None => {
                self.empty_out(path, track)?;
                Wanted::Absent
            }
        };
        self.out.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        Ok(())
    }

    /// The permissions that a file had before a span, also where it was ignored then.
    fn mode_before(&self, span: &Span, path: &TreePath, kind: EntryKind) -> Result<u32, Error> {
        let objects = &self.store.objects;
        if let Some(aside) = span.before.meta.companion
            && let Ok(aside) = read_companion(objects, &aside)
            && find(objects, &aside.tree, path)?.is_some()
        {
            return Ok(aside.mode_of(path.as_bytes(), usual_mode(kind)));
        }
        Ok(Modes::of(Some(&span.before.meta)).of_file(path.as_bytes(), kind))
    }

    fn conflict(&mut self, path: &TreePath, why: String) {
        self.out.conflicts.push(Conflict { path: path.clone(), why });
    }

    /// Takes edits of a file that the changes renamed back to its old name, where they merge.
    fn follow_renames(&mut self, tracks: &mut BTreeMap<TreePath, Track<'_>>) -> Result<(), Error> {
        let edited: Vec<(TreePath, Entry)> = tracks
            .iter()
            .filter_map(|(path, track)| {
                let [(change, _)] = track.changes.as_slice() else { return None };
                let NowAt::File { entry: ours, .. } = self.now.at(path.as_bytes()) else {
                    return None;
                };
                let is_edited = change.before.is_none() && change.after != Some(ours);
                is_edited.then(|| (path.clone(), ours))
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
            if let Some(Some(merged)) = self.merge(Some(ours), &renamed)? {
                self.empty_out(&new_name, made)?;
                self.out.request.wanted.insert(new_name.as_bytes().to_vec(), Wanted::Absent);
                self.path(&old_name, gone, Some(merged))?;
                tracks.remove(&new_name);
                tracks.remove(&old_name);
            }
        }
        Ok(())
    }

    /// The name that a new file had before: one that the same span removed, with the same or
    /// nearly the same text, and that nobody has made again.
    fn old_name(
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

    /// What changed while several steps were open is only told, unless all of them are taken back.
    fn shared(&mut self) {
        if self.inversion.on_conflict == OnConflict::TakeTheirs {
            return;
        }
        let spans = self.inversion.spans;
        let others = spans.iter().filter(|span| !self.inversion.takes_all_of(&span.after));
        let shared: BTreeSet<&TreePath> =
            others.flat_map(|span| &span.after.details.shared).collect();
        for path in shared {
            if self.inversion.is_asked_for(path) {
                let why = "it changed while several steps were open; --force takes it back";
                self.conflict(path, why.into());
            }
        }
    }

    /// Ignored files: what was deleted comes back, what a tool named is taken back like any other
    /// file, the rest only when asked.
    fn ignored_files(&mut self, hidden: &[Hidden<'_>]) -> Result<(), Error> {
        let objects = &self.store.objects;
        let open = |id: Option<ObjectId>| id.map(|id| read_companion(objects, &id)).transpose();
        let now = open(self.inversion.companion)?;
        let mut tracks: BTreeMap<TreePath, Vec<(Change, u32)>> = BTreeMap::new();
        for span in self.inversion.spans.iter().rev() {
            let (was, is) = (span.before.meta.companion, span.after.meta.companion);
            let (Ok(was), Ok(is)) = (open(was), open(is)) else { continue };
            self.newly_ignored(span, hidden, is.as_ref(), &mut tracks)?;
            if was == is {
                continue;
            }
            self.ignored_modes(span, was.as_ref(), is.as_ref(), now.as_ref())?;
            let tree = |companion: &Option<Companion>| {
                companion.as_ref().map_or(ObjectId::EMPTY_TREE, |companion| companion.tree)
            };
            for change in changes(objects, &tree(&was), &tree(&is))? {
                let path = &change.path;
                // What the snapshots themselves speak of is taken back there.
                let crossed = find(objects, &span.before.snapshot, path)?.is_some()
                    || find(objects, &span.after.snapshot, path)?.is_some();
                if !self.inversion.is_asked_for(path)
                    || self.inversion.is_done(span, path)
                    || crossed
                {
                    continue;
                }
                let named = span.named.contains(path);
                let unknown = was.as_ref().is_some_and(|was| was.is_unknown(path.as_bytes()));
                let why = match change.status() {
                    Status::Deleted => None,
                    Status::Modified if named || self.inversion.ignored => None,
                    Status::Added if named && !unknown => None,
                    Status::Modified => Some("an ignored file was changed"),
                    Status::Added => Some("an ignored file was made"),
                };
                match why {
                    Some(why) => {
                        let left = Conflict { path: path.clone(), why: why.into() };
                        self.out.ignored_left.push(left);
                    }
                    None => {
                        let usual = change.before.map_or(0o644, |entry| usual_mode(entry.kind));
                        let mode =
                            was.as_ref().map_or(usual, |was| was.mode_of(path.as_bytes(), usual));
                        tracks.entry(path.clone()).or_default().push((change, mode));
                    }
                }
            }
        }
        for (path, track) in tracks {
            self.ignored_file(&path, &track, now.as_ref())?;
        }
        Ok(())
    }

    /// Files that the span changed and that are ignored since: the companion says what it left.
    /// One that is its own, and that the companion neither has nor knows nothing of, it removed.
    fn newly_ignored(
        &self,
        span: &Span,
        hidden: &[Hidden<'_>],
        is: Option<&Companion>,
        tracks: &mut BTreeMap<TreePath, Vec<(Change, u32)>>,
    ) -> Result<(), Error> {
        for Hidden { change, .. } in hidden.iter().filter(|other| std::ptr::eq(other.span, span)) {
            let Some(before) = change.before else { continue };
            let path = &change.path;
            let after = match is {
                Some(is) => find(&self.store.objects, &is.tree, path)?,
                None => None,
            };
            // Nothing kept and nothing there, or its own: it was deleted and not only hidden.
            let is_unknown = is.is_some_and(|is| is.is_unknown(path.as_bytes()));
            let is_own = span.named.contains(path) && !is_unknown;
            let is_gone = after.is_none() && (is_own || self.now.is_absent(path.as_bytes()));
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

    /// Permissions of ignored files whose content stayed the same.
    fn ignored_modes(
        &mut self,
        span: &Span,
        was: Option<&Companion>,
        is: Option<&Companion>,
        now: Option<&Companion>,
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
            let mode = |companion: &Companion| companion.mode_of(&bytes, usual);
            let (to, from) = (mode(was), mode(is));
            let own = self.inversion.is_asked_for(&path) && !self.inversion.is_done(span, &path);
            if to == from || mode(now) != from || !kept || !own {
                continue;
            }
            if span.named.contains(&path) || self.inversion.ignored {
                self.out.ignored.push(path);
                let change = ModeChange { path: bytes, from, to, is_dir: false };
                self.out.request.modes.push(change);
            } else {
                let why = "an ignored file's permissions were changed".into();
                self.out.ignored_left.push(Conflict { path, why });
            }
        }
        Ok(())
    }

    fn ignored_file(
        &mut self,
        path: &TreePath,
        track: &[(Change, u32)],
        now: Option<&Companion>,
    ) -> Result<(), Error> {
        let objects = &self.store.objects;
        let kept = match now {
            Some(now) => find(objects, &now.tree, path)?,
            None => None,
        };
        let ours = match (self.now.at(path.as_bytes()), kept) {
            // What is in an ignored directory is seen by nobody but the companion.
            (_, Some(entry)) => Some(entry),
            (NowAt::Nothing, None) => None,
            (NowAt::File { .. }, None) => {
                // No longer ignored, so the snapshots themselves say what became of it.
                return Ok(());
            }
            (NowAt::Dir | NowAt::Unsaved(_), None) => {
                self.conflict(path, "it is ignored, and what is there now is not kept".into());
                return Ok(());
            }
        };
        let mut wanted = ours;
        let mut mode = 0o644;
        for (change, then) in track {
            match self.merge(wanted, change)? {
                Some(merged) => wanted = merged,
                None if self.inversion.on_conflict == OnConflict::TakeTheirs => {
                    wanted = change.before;
                }
                None => {
                    let why = "it was changed since, and the changes do not merge";
                    self.conflict(path, why.into());
                    return Ok(());
                }
            }
            mode = *then;
        }
        if wanted == ours {
            return Ok(());
        }
        let wanted = wanted.map_or(Wanted::Absent, |entry| Wanted::Entry { entry, mode });
        self.out.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        self.out.ignored.push(path.clone());
        Ok(())
    }

    /// Directories that the changes made go when their last file goes.
    fn empty_out(&mut self, path: &TreePath, track: &Track<'_>) -> Result<(), Error> {
        let Some((_, oldest)) = track.changes.last() else { return Ok(()) };
        for dir in dirs_above(path.as_bytes()) {
            let parent = TreePath::from_scan(dir.to_vec());
            let was_dir = find(&self.store.objects, &oldest.before.snapshot, &parent)?
                .is_some_and(|entry| entry.kind.is_tree());
            let was_empty =
                oldest.before.meta.empty_dirs.iter().any(|empty| empty.is_within(&parent));
            if !was_dir && !was_empty {
                self.out.request.emptied.insert(dir.to_vec());
            }
        }
        Ok(())
    }

    /// `ours` without the change; `None` if it cannot be taken out.
    fn merge(
        &mut self,
        ours: Option<Entry>,
        change: &Change,
    ) -> Result<Option<Option<Entry>>, Error> {
        let (base, theirs) = (change.after, change.before);
        if ours == base {
            return Ok(Some(theirs));
        }
        if ours == theirs || base == theirs {
            return Ok(Some(ours));
        }
        let (Some(ours), Some(base), Some(theirs)) = (ours, base, theirs) else {
            return Ok(None);
        };
        let all_files = ours.kind.is_file() && base.kind.is_file() && theirs.kind.is_file();
        if !all_files {
            return Ok(None);
        }
        let kind = if ours.kind == base.kind { theirs.kind } else { ours.kind };
        let id = if ours.id == base.id {
            Some(theirs.id)
        } else if theirs.id == base.id || ours.id == theirs.id {
            Some(ours.id)
        } else {
            self.merge_texts(&base.id, &ours.id, &theirs.id)?
        };
        Ok(id.map(|id| Some(Entry { kind, id })))
    }

    fn merge_texts(
        &mut self,
        base: &ObjectId,
        ours: &ObjectId,
        theirs: &ObjectId,
    ) -> Result<Option<ObjectId>, Error> {
        let read = |id: &ObjectId| match self.merged.get(id) {
            Some(text) => Ok(text.clone()),
            None => self.store.objects.blob(id),
        };
        let (base, ours, theirs) = (read(base)?, read(ours)?, read(theirs)?);
        if [&base, &ours, &theirs].into_iter().any(|bytes| is_binary(bytes)) {
            return Ok(None);
        }
        match merge_lines(&base, &ours, &theirs) {
            Some(merged) => {
                let known = |id: &ObjectId| self.store.objects.holds(id);
                let id = self.pack.add(Kind::Blob, &merged, known)?;
                self.merged.extend(id.map(|id| (id, merged)));
                Ok(id)
            }
            None => Ok(None),
        }
    }

    /// Permissions and empty directories, which a tree does not hold.
    fn modes_and_dirs(&mut self) -> Result<(), Error> {
        let inversion = self.inversion;
        let asked = |path: &TreePath| inversion.is_asked_for(path);
        for span in inversion.spans.iter().rev() {
            let (before, after) = (&span.before.meta, &span.after.meta);
            let made: BTreeSet<&TreePath> = after.empty_dirs.iter().collect();
            for dir in before.empty_dirs.iter().filter(|dir| !made.contains(dir)) {
                if asked(dir) && span.owns_dir(dir) {
                    let mode = before.mode_map().get(dir.as_bytes()).copied();
                    let mode = mode.unwrap_or(before.common.dir);
                    self.out.request.dirs.insert(dir.as_bytes().to_vec(), mode);
                }
            }
            for dir in after.empty_dirs.iter().filter(|dir| !before.empty_dirs.contains(dir)) {
                if asked(dir) && span.owns_dir(dir) {
                    self.out.request.emptied.insert(dir.as_bytes().to_vec());
                    self.out.request.emptied.extend(dirs_above(dir.as_bytes()).map(<[u8]>::to_vec));
                }
            }
            self.modes(span, &asked)?;
        }
        Ok(())
    }

    fn modes(&mut self, span: &Span, asked: &dyn Fn(&TreePath) -> bool) -> Result<(), Error> {
        let (before, after) = (&span.before.meta, &span.after.meta);
        if before.modes == after.modes && before.common == after.common {
            return Ok(());
        }
        let (then, left) = (Modes::of(Some(before)), Modes::of(Some(after)));
        let paths: BTreeSet<Vec<u8>> = if before.common == after.common {
            let listed = before.modes.iter().chain(&after.modes);
            listed.map(|(text, _)| text.clone().into_bytes()).collect()
        } else {
            // What most files have has changed, so every file may have.
            let all = changes(&self.store.objects, &ObjectId::EMPTY_TREE, &span.after.snapshot)?;
            all.into_iter().map(|change| change.path.as_bytes().to_vec()).collect()
        };
        for bytes in paths {
            let Ok(path) = TreePath::parse(&bytes) else { continue };
            let NowAt::File { stat, entry, .. } = self.now.at(&bytes) else { continue };
            let from = stat.mode & 0o777;
            let (was, to) = (left.of_file(&bytes, entry.kind), then.of_file(&bytes, entry.kind));
            let known = self.out.request.modes.iter().any(|change| change.path == bytes);
            if asked(&path) && span.owns(&path) && from == was && from != to && !known {
                self.out.request.modes.push(ModeChange { path: bytes, from, to, is_dir: false });
            }
        }
        Ok(())
    }
}

fn usual_mode(kind: EntryKind) -> u32 {
    if kind == EntryKind::Executable { 0o755 } else { 0o644 }
}

/// The share of lines that two texts have in common.
fn similarity(one: &[u8], other: &[u8]) -> f64 {
    if is_binary(one) || is_binary(other) {
        return 0.0;
    }
    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count() + 1;
    let diff = diff_lines(one, other);
    let (before, after) = (lines(one), lines(other));
    let common = before.saturating_sub(diff.deletions);
    common as f64 / before.max(after) as f64
}
