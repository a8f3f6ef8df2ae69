//! The inverse of changes: what the present would be had they not been made.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;

use crate::compare::{Change, Entry, Now, NowAt, Status, Trees, changes, find, merge_lines};
use crate::error::Error;
use crate::fs::{Dir, FileKind, MODE_BITS};
use crate::git::{EntryKind, Hasher, Kind, ObjectId, diff_lines};
use crate::log::{Companion, Credit, Operation, read_companion};
use crate::pack::PackWriter;
use crate::path::{PathText, TreePath, dirs_above, is_within};
use crate::record::look;
use crate::restore::{
    Absence, KeptReason, ModeChange, Modes, Request, Wanted, is_database_log, is_dir_of,
    is_shared_memory,
};
use crate::scan::{EntryStat, SIDECARS};
use crate::store::Store;
use crate::workspace::is_binary;

use super::history::{History, Span};
use super::undo::{Conflict, ConflictReason};

const NO_MERGE: &str = "it was changed since, and the changes do not merge";

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

/// The permissions of a path before and after a change; `None` where there was no file.
#[derive(Clone, Copy)]
struct ModeStep {
    before: Option<u32>,
    after: Option<u32>,
}

/// Takes changes of permissions back, newest first. Permissions that were changed since stay.
fn merge_modes(present: Option<u32>, changes: &[ModeStep]) -> Option<u32> {
    let mode = changes.iter().fold(present, |mode, change| match mode {
        None => change.before,
        Some(_) if mode == change.after => change.before,
        Some(_) => mode,
    });
    // A file that the changes made, and that stays, keeps its permissions.
    mode.or(present)
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
    /// Whether changes are taken back that may be an interrupted step's or the user's.
    pub(super) unclear: bool,
    /// The present state.
    pub(super) present: &'a Operation,
    /// The work tree.
    pub(super) root: &'a Dir,
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
    pub(super) fn is_asked_for(&self, path: &TreePath) -> bool {
        self.limit.is_empty() || self.limit.iter().any(|limit| path.is_within(limit))
    }

    /// Whether every step that an operation is credited to and that may have a part in something is
    /// taken back here: then no other step has a part in it.
    fn takes_all_of(&self, operation: &Operation, may: impl Fn(&Credit) -> bool) -> bool {
        let is_taken = |step: &str| {
            let of_step = |span: &Span| span.info.as_ref().is_some_and(|info| info.step == step);
            self.spans.iter().any(|span| span.after.id == operation.id && of_step(span))
        };
        let mut sharing = operation.details.credits.iter().filter(|credit| may(credit));
        sharing.all(|credit| is_taken(&credit.step.step))
    }

    /// Whether a path is taken back although the evidence does not say whose the change is:
    /// because of an option, or because it was named.
    fn takes_undecided(&self, path: &TreePath) -> bool {
        self.on_conflict == OnConflict::TakeTheirs || self.limit.contains(path)
    }

    fn is_done(&self, span: &Span, path: &TreePath) -> bool {
        let step = self.history.zip(span.info.as_ref());
        step.is_some_and(|(history, info)| history.is_path_undone(&info.step, span.entry, path))
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
        absence: Absence::of_operation(store, inversion.present),
        now,
        inversion,
        out: Inverted {
            request: Request { common_dir_mode: 0o755, ..Request::default() },
            ..Inverted::default()
        },
        pack: PackWriter::new(&store.objects_dir()),
        merged: HashMap::new(),
        modes: BTreeMap::new(),
        followed: Vec::new(),
    };
    let Gathered { mut tracks, hidden, logs, oldest } = gather(store, inversion)?;
    inverter.gather_modes(&tracks)?;
    inverter.undecided();
    inverter.follow_renames(&mut tracks)?;
    for (path, track) in &tracks {
        inverter.path(path, track, None)?;
    }
    inverter.modes_and_dirs()?;
    inverter.ignored_files(&hidden)?;
    inverter.keep_other_halves(&tracks, &oldest)?;
    inverter.databases_written_since(logs)?;
    inverter.renamed_since(&tracks)?;
    let Inverter { out, pack, .. } = inverter;
    // Merged texts are new objects; the plan needs them readable.
    pack.publish()?;
    store.objects.refresh()?;
    Ok(out)
}

/// Whether changes, newest first, follow each other without a gap and end where they began: a
/// revert and the steps that it took back, for instance.
fn cancels_out(changes: &[(Change, &Span)]) -> bool {
    let gapless = changes.windows(2).all(|pair| pair[0].0.before == pair[1].0.after);
    let ends = changes.first().zip(changes.last());
    gapless && ends.is_some_and(|((newest, _), (oldest, _))| newest.after == oldest.before)
}

/// Whether a change is about the shared memory of a database, which is never put back.
fn is_transient(store: &Store, change: &Change) -> Result<bool, Error> {
    let either = change.before.or(change.after).filter(|entry| entry.kind.is_file());
    match either {
        Some(entry) => is_shared_memory(&store.objects, &change.path, &entry.id),
        None => Ok(false),
    }
}

/// A path that a snapshot no longer holds because it is ignored or skipped now.
struct Hidden<'a> {
    change: Change,
    span: &'a Span,
}

/// The changes of the spans.
#[derive(Default)]
struct Gathered<'a> {
    /// Every path that was changed and is not taken back yet, with its changes newest first.
    tracks: BTreeMap<TreePath, Track<'a>>,
    hidden: Vec<Hidden<'a>>,
    /// Changes of paths that are named like the log of a database, also if they are taken back.
    logs: Vec<(Change, &'a Span)>,
    /// The oldest change of every path, whether it is asked for or not.
    oldest: BTreeMap<TreePath, (Change, &'a Span)>,
}

fn gather<'a>(store: &Store, inversion: &Inversion<'a>) -> Result<Gathered<'a>, Error> {
    let Gathered { mut tracks, mut hidden, mut logs, mut oldest } = Gathered::default();
    for span in inversion.spans.iter().rev() {
        let mut covered = Absence::of_operation(store, &span.after);
        let aside = span.before.meta.companion.map(|id| read_companion(&store.objects, &id));
        let aside = aside.and_then(Result::ok);
        let takes_all = inversion.takes_all_of(&span.after, |credit| !credit.apart);
        for mut change in changes(&store.objects, &span.before.snapshot, &span.after.snapshot)? {
            let undecided = inversion.takes_undecided(&change.path);
            let own = span.owns(&change.path)
                || ((undecided || takes_all) && span.after.details.shared.contains(&change.path))
                || ((undecided || inversion.unclear) && span.unclear.contains(&change.path));
            if own {
                oldest.insert(change.path.clone(), (change.clone(), span));
            }
            if !own || !inversion.is_asked_for(&change.path) {
                continue;
            }
            if database_of_log(&change.path).is_some() {
                logs.push((change.clone(), span));
            }
            if inversion.is_done(span, &change.path) || is_transient(store, &change)? {
                continue;
            }
            if let (None, Some(aside)) = (change.before, &aside) {
                // It was ignored before, and is not any more.
                let kept = find(&store.objects, &aside.tree, &change.path)?;
                change.before = kept.filter(|entry| !entry.kind.is_tree());
            }
            // Left out afterwards is not deleted.
            if change.after.is_none() && covered.is_left_out(&change.path)? {
                hidden.push(Hidden { change, span });
            } else {
                let track = tracks.entry(change.path.clone()).or_insert(Track { changes: vec![] });
                track.changes.push((change, span));
            }
        }
    }
    Ok(Gathered { tracks, hidden, logs, oldest })
}

struct Inverter<'a> {
    store: &'a Store,
    /// Decides about paths that the present state does not hold.
    absence: Absence<'a>,
    now: &'a Now<'a>,
    inversion: &'a Inversion<'a>,
    out: Inverted,
    pack: PackWriter,
    /// Merged texts, which the pack holds and nobody can read yet: an earlier change of the same
    /// path may have to be merged out of one.
    merged: HashMap<ObjectId, Vec<u8>>,
    /// The changes of permissions that the spans made, newest first.
    modes: BTreeMap<Vec<u8>, Vec<ModeStep>>,
    /// The old and the new name of files that go back under their old name with later edits.
    followed: Vec<(TreePath, TreePath)>,
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
        let mut is_hidden = false;
        let ours = match self.now.at(path.as_bytes()) {
            NowAt::File { entry, .. } => Some(entry),
            NowAt::Dir if !self.left_a_directory(path, track)? => {
                let why = "a directory was made there since";
                self.conflict(path, ConflictReason::Merge, why.into());
                return Ok(());
            }
            NowAt::Dir => None,
            // The scan does not enter an ignored directory, and not all others.
            NowAt::Nothing => match self.absence.doubt(path)? {
                None => None,
                Some(KeptReason::SkippedThen { why }) => {
                    self.conflict(path, ConflictReason::NotProven, why);
                    return Ok(());
                }
                // A redo needs to know that this undo created or removed it against the rules.
                Some(_) => match self.on_disk(path).inspect(|_| is_hidden = true) {
                    Some(ours) if !self.store.objects.holds(&ours.id) => {
                        self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                        return Ok(());
                    }
                    found => found,
                },
            },
            NowAt::Unsaved(why) => {
                self.conflict(path, ConflictReason::NotProven, why);
                return Ok(());
            }
        };
        let mut wanted = merged.or(ours);
        if merged.is_none() && cancels_out(&track.changes) {
            return if ours.is_none() { self.empty_out(path, track) } else { Ok(()) };
        }
        let mut moved = false;
        for (change, span) in track.changes.iter().skip(usize::from(merged.is_some())) {
            if change.before.is_none() && wanted == change.after {
                // What an operation of ours made was not there; the plan has looked.
                let is_ours = span.info.is_none() && span.named.contains(path);
                let doubt = Absence::of_operation(self.store, &span.before).doubt(path)?;
                if doubt.is_some() && self.is_untouched(path, span) {
                    // It was there, and only became visible because the rules changed.
                    return Ok(());
                }
                if let Some(reason) = doubt.filter(|_| !is_ours) {
                    self.conflict(path, ConflictReason::NotProven, reason.describe());
                    return Ok(());
                }
            }
            let forced = self.inversion.on_conflict == OnConflict::TakeTheirs;
            match self.merge(wanted, change)? {
                Some(merged) if self.keeps_lines(merged, change)? => {
                    moved = true;
                    wanted = if forced { change.before } else { merged };
                }
                Some(merged) => wanted = merged,
                None if forced => wanted = change.before,
                None => {
                    self.conflict(path, ConflictReason::Merge, NO_MERGE.into());
                    return Ok(());
                }
            }
        }
        if moved && self.inversion.on_conflict == OnConflict::Keep {
            let why = "lines of the step were moved within the file and are still there";
            self.conflict(path, ConflictReason::Merge, why.into());
        }
        if wanted == ours {
            // A directory that the step made goes also if its last file went since.
            return if ours.is_none() { self.empty_out(path, track) } else { Ok(()) };
        }
        if is_hidden || (ours.is_none() && self.absence.doubt(path)?.is_some()) {
            self.out.ignored.push(path.clone());
        }
        let mode = self.merged_mode(path, wanted.map_or(EntryKind::File, |entry| entry.kind));
        let wanted = match wanted {
            Some(entry) => Wanted::Entry { entry: with_mode(entry, mode), mode },
            None => {
                self.empty_out(path, track)?;
                Wanted::Absent
            }
        };
        self.out.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        Ok(())
    }

    /// Whether the newest change of a path left a directory there, or an undo may replace one
    /// anyway.
    fn left_a_directory(&self, path: &TreePath, track: &Track<'_>) -> Result<bool, Error> {
        let forced = self.inversion.on_conflict == OnConflict::TakeTheirs;
        let Some((_, span)) = track.changes.first().filter(|_| !forced) else { return Ok(true) };
        let (trees, meta) = (Trees::new(&self.store.objects), Some(&span.after.meta));
        is_dir_of(&trees, &span.after.snapshot, meta, path.as_bytes())
    }

    /// The permissions of a file without the changes of the spans.
    fn merged_mode(&self, path: &TreePath, kind: EntryKind) -> u32 {
        let present = match self.now.at(path.as_bytes()) {
            NowAt::File { stat, entry, .. } if entry.kind.is_file() => Some(stat.mode & MODE_BITS),
            NowAt::File { .. } | NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_) => None,
        };
        let changes = self.modes.get(path.as_bytes()).map(Vec::as_slice).unwrap_or_default();
        merge_modes(present, changes).unwrap_or_else(|| usual_mode(kind))
    }

    /// Gathers how the spans changed permissions: of files whose content they changed, and of all
    /// others whose recorded permissions differ.
    fn gather_modes(&mut self, tracks: &BTreeMap<TreePath, Track<'_>>) -> Result<(), Error> {
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
                let special = |modes: &Modes<'_>| match self.now.at(path.as_bytes()) {
                    NowAt::File { stat, .. } => modes.unrecorded(stat.mode),
                    NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_) => 0,
                };
                let of = |modes: &Modes<'_>, entry: Entry| {
                    modes.of_file(path.as_bytes(), entry.kind) | special(modes)
                };
                let is_file = |entry: &Entry| entry.kind.is_file();
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
                // What it is now may be another change's doing.
                let found = find(&self.store.objects, &span.after.snapshot, &path)?;
                let Some(kind) = found.map(|entry| entry.kind).filter(|kind| kind.is_file()) else {
                    continue;
                };
                let special = match self.now.at(path.as_bytes()) {
                    NowAt::File { stat, .. } => stat.mode & 0o7000,
                    _ => 0,
                };
                if own {
                    let of = |modes: &Modes<'_>| {
                        let mode = modes.of_file(path.as_bytes(), kind);
                        Some(mode | modes.unrecorded(special))
                    };
                    steps.push((path.clone(), ModeStep { before: of(&then), after: of(&left) }));
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

    /// Files of a span whose permissions may differ before and after it.
    fn paths_with_other_modes(&self, span: &Span) -> Result<Vec<TreePath>, Error> {
        let (before, after) = (&span.before.meta, &span.after.meta);
        if before.common == after.common {
            if before.modes == after.modes {
                return Ok(Vec::new());
            }
            let listed = before.modes.iter().chain(&after.modes);
            let listed: BTreeSet<Vec<u8>> =
                listed.map(|(text, _)| text.clone().into_bytes()).collect();
            return Ok(listed.iter().filter_map(|bytes| TreePath::parse(bytes).ok()).collect());
        }
        // The permissions that most files have changed, so those of every file may have.
        let all = changes(&self.store.objects, &ObjectId::EMPTY_TREE, &span.after.snapshot)?;
        Ok(all.into_iter().map(|change| change.path).collect())
    }

    /// The permissions that a file had before a span in the companion, if it was ignored then.
    fn kept_mode(
        &self,
        span: &Span,
        path: &TreePath,
        kind: EntryKind,
    ) -> Result<Option<u32>, Error> {
        let objects = &self.store.objects;
        if let Some(aside) = span.before.meta.companion
            && let Ok(aside) = read_companion(objects, &aside)
            && find(objects, &aside.tree, path)?.is_some()
        {
            return Ok(Some(aside.mode_of(path.as_bytes(), usual_mode(kind))));
        }
        Ok(None)
    }

    fn has_conflict(&self, path: &TreePath) -> bool {
        self.out.conflicts.iter().any(|conflict| conflict.path == *path)
    }

    /// Reports a conflict. One reason per path is enough.
    fn conflict(&mut self, path: &TreePath, reason: ConflictReason, why: String) {
        if self.has_conflict(path) {
            return;
        }
        self.out.conflicts.push(Conflict { path: path.clone(), reason, why });
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
                // Edits that nothing decides about stay where they are.
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
            // A file that only took the name stays where it is.
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
                // Older changes of the old name do not merge: both names are judged by themselves.
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

    /// Returns the present permissions of a file if they differ from those that a span left.
    fn changed_mode(&self, path: &TreePath, span: &Span) -> Option<u32> {
        let NowAt::File { stat, entry, .. } = self.now.at(path.as_bytes()) else { return None };
        let left = find(&self.store.objects, &span.after.snapshot, path).ok()??;
        let left = Modes::of(Some(&span.after.meta)).of_file(path.as_bytes(), left.kind);
        let mode = stat.mode & MODE_BITS;
        (entry.kind.is_file() && mode != left).then_some(mode)
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

    /// Reports changes whose owner nothing decides: those made while several steps were open,
    /// unless all of them are taken back, and those that may be an interrupted step's or the
    /// user's.
    fn undecided(&mut self) {
        let inversion = self.inversion;
        let mut found: BTreeMap<&TreePath, ConflictReason> = BTreeMap::new();
        for span in inversion.spans {
            let step = span.info.as_ref().map(|info| info.step.as_str());
            let is_apart =
                |credit: &Credit| credit.apart && Some(credit.step.step.as_str()) == step;
            let has_part = !span.after.details.credits.iter().any(is_apart);
            let shared = span.after.details.shared.iter().filter(|_| has_part);
            let shared =
                shared.filter(|_| !inversion.takes_all_of(&span.after, |credit| !credit.apart));
            let unclear = span.unclear.iter().filter(|_| !inversion.unclear);
            let shared = shared.map(|path| (path, ConflictReason::Shared));
            let all = shared.chain(unclear.map(|path| (path, ConflictReason::Unclear)));
            // A directory that went comes back with its files, and has no content of its own.
            let trees = Trees::new(&self.store.objects);
            let is_dir = |operation: &Operation, path: &TreePath| {
                let meta = Some(&operation.meta);
                is_dir_of(&trees, &operation.snapshot, meta, path.as_bytes()).unwrap_or(false)
            };
            let is_nothing = |path: &TreePath| {
                matches!(find(&self.store.objects, &span.after.snapshot, path), Ok(None))
                    && !is_dir(&span.after, path)
            };
            let went = |path: &TreePath| is_dir(&span.before, path) && is_nothing(path);
            found.extend(all.filter(|(path, _)| !inversion.is_done(span, path) && !went(path)));
        }
        for (path, reason) in found {
            if inversion.is_asked_for(path) && !inversion.takes_undecided(path) {
                let why = match reason {
                    ConflictReason::Unclear => {
                        "it changed while the interrupted command may have been running; \
                         --force or naming it takes it back"
                    }
                    _ => {
                        "it changed while several steps were open; --force or naming it takes it back"
                    }
                };
                self.conflict(path, reason, why.into());
            }
        }
    }

    /// Ignored files: what was deleted comes back, what a tool named is taken back like any other
    /// file, the rest only when asked.
    fn ignored_files(&mut self, hidden: &[Hidden<'_>]) -> Result<(), Error> {
        let objects = &self.store.objects;
        let open = |id: Option<ObjectId>| id.map(|id| read_companion(objects, &id)).transpose();
        let now = open(self.inversion.present.meta.companion)?;
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
                    || span.earlier_ignored.contains(path)
                    || !(span.owns_unnamed() || span.named.contains(path))
                    || is_transient(self.store, &change)?
                {
                    continue;
                }
                let mut written = span.named.iter().chain(span.paths.iter().flatten());
                let named = match span.info {
                    Some(_) => span.named.contains(path),
                    // An operation of ours names the ignored files that it wrote. The others only
                    // became visible or invisible, because it changed the rules.
                    None if written.any(|written| written == path) => true,
                    None => continue,
                };
                let credits = &span.after.details.credits;
                let may = |credit: &Credit| !credit.only_named;
                let shared = credits.len() > 1 && !self.inversion.takes_all_of(&span.after, may);
                let unknown = was.as_ref().is_some_and(|was| was.is_unknown(path.as_bytes()));
                // Nothing shows whether an interrupted step or the user changed an ignored file.
                let undecided = span.inferred && !self.inversion.unclear;
                let asked = self.inversion.ignored
                    && !shared
                    && (!undecided || self.inversion.takes_undecided(path));
                let was_absent = || {
                    let bytes = path.as_bytes();
                    let proven = was.as_ref().is_none_or(|was| was.proves_absent(bytes));
                    proven && !self.is_older(bytes, span)
                };
                // A file in a directory that no scan entered then was probably there.
                let proven = |was: &Companion| was.proves_absent(path.as_bytes());
                let is_old =
                    !was.as_ref().is_none_or(proven) && self.is_older(path.as_bytes(), span);
                if change.status() == Status::Added && is_old && !named {
                    continue;
                }
                let why = match change.status() {
                    Status::Deleted => None,
                    Status::Modified if named || asked => None,
                    Status::Added if !unknown && (named || (asked && was_absent())) => None,
                    Status::Modified => Some("an ignored file was changed"),
                    Status::Added => Some("an ignored file was made"),
                };
                match why {
                    Some(why) => {
                        let left = Conflict {
                            path: path.clone(),
                            reason: ConflictReason::Ignored,
                            why: why.into(),
                        };
                        self.out.ignored_left.push(left);
                    }
                    None => {
                        let usual = change.before.map_or(0o644, |entry| usual_mode(entry.kind));
                        let mode =
                            was.as_ref().map_or(usual, |was| was.mode_of(path.as_bytes(), usual));
                        if change.before.is_none() {
                            self.empty_out_of(path, span)?;
                        }
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
        &mut self,
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
                let reason = ConflictReason::Ignored;
                self.out.ignored_left.push(Conflict { path, reason, why });
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
            (NowAt::Nothing, None)
                if matches!(look(self.inversion.root, path.as_bytes()), Ok(None)) =>
            {
                None
            }
            // No longer left out. If the snapshots themselves speak of it, it is decided already.
            (NowAt::File { entry, .. }, None) => {
                if self.out.request.wanted.contains_key(path.as_bytes()) || self.has_conflict(path)
                {
                    return Ok(());
                }
                Some(entry)
            }
            (NowAt::Nothing | NowAt::Unsaved(_), None) if self.on_disk(path).is_some() => {
                self.on_disk(path)
            }
            (NowAt::Nothing | NowAt::Dir | NowAt::Unsaved(_), None) => {
                let why = "it is ignored, and what is there now is not kept";
                self.conflict(path, ConflictReason::NotProven, why.into());
                return Ok(());
            }
        };
        let mut wanted = ours;
        let mut mode = 0o644;
        // Only what the store holds can be merged.
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
            // Directories that were made for it go with it, if nothing else is in them.
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

    /// Whether an ignored directory was there before a span, which no tree says.
    fn was_ignored_dir(&self, span: &Span, dir: &[u8]) -> Result<bool, Error> {
        let objects = &self.store.objects;
        let Some(before) = span.before.meta.companion else { return Ok(false) };
        let before = read_companion(objects, &before)?;
        let path = TreePath::from_scan(dir.to_vec());
        if find(objects, &before.tree, &path)?.is_some_and(|entry| entry.kind.is_tree()) {
            return Ok(true);
        }
        let Some(listed) = before.data.not_kept else { return Ok(true) };
        let mut listed = listed.into_iter().map(PathText::into_bytes);
        Ok(listed.any(|listed| {
            // Of what lies in an ignored directory, only its own age says whether it was there; an
            // operation of ours names the directories that it made.
            listed == dir
                || (is_within(dir, &listed)
                    && match span.info {
                        Some(_) => self.is_older(dir, span),
                        None => !span.paths.iter().flatten().any(|made| *made == path),
                    })
        }))
    }

    /// Leaves files that hold the only copy of something: the step moved or copied it there from a
    /// path that it then removed or overwrote, and the plan does not bring that path back.
    fn keep_other_halves(
        &mut self,
        tracks: &BTreeMap<TreePath, Track<'_>>,
        oldest: &BTreeMap<TreePath, (Change, &Span)>,
    ) -> Result<(), Error> {
        let mut first: BTreeMap<TreePath, Change> = self.oldest_kept()?;
        first.extend(oldest.iter().map(|(path, (change, _))| (path.clone(), change.clone())));
        let sources = taken_contents(&first);
        let made: Vec<(TreePath, Entry, &Span)> = tracks
            .iter()
            .filter_map(|(path, track)| {
                let (change, span) = track.changes.last()?;
                let NowAt::File { entry, .. } = self.now.at(path.as_bytes()) else { return None };
                let goes = match self.out.request.wanted.get(path.as_bytes())? {
                    Wanted::Absent => change.before.is_none(),
                    Wanted::Entry { entry: wanted, .. } => wanted.id != entry.id,
                };
                goes.then(|| (path.clone(), entry, *span))
            })
            .collect();
        for (path, entry, span) in made {
            let others = |from: &&TreePath| **from != path;
            let taken = sources.get(&entry.id).map(|taken| taken.iter().filter(others).collect());
            let why = match taken.filter(|taken: &Vec<&TreePath>| !taken.is_empty()) {
                Some(taken) => {
                    let mut back = taken.iter().map(|from| self.comes_back(from, &entry.id));
                    if back.try_fold(false, |any, back| back.map(|back| any || back))? {
                        continue;
                    }
                    format!("it holds the only copy of what was {}", taken[0])
                }
                None if self.out.request.wanted.get(path.as_bytes()) != Some(&Wanted::Absent) => {
                    continue;
                }
                None => match self.came_from_elsewhere(&path, &entry, span, tracks, &first)? {
                    Some(why) => why,
                    None => continue,
                },
            };
            self.out.request.wanted.remove(path.as_bytes());
            self.conflict(&path, ConflictReason::OtherHalf, why);
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

    /// Whether a file that stays is in the place of a directory above a path.
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
            let tree = |id: Option<ObjectId>| companion_tree(self.store, id);
            let (was, is) = (tree(span.before.meta.companion), tree(span.after.meta.companion));
            if was != is {
                let after = span.after.meta.companion.map(|id| read_companion(objects, &id));
                let after = after.and_then(Result::ok);
                // A file that is no longer kept may still be there.
                let is_gone = |path: &TreePath| {
                    after.as_ref().is_none_or(|after| after.proves_absent(path.as_bytes()))
                };
                let found = changes(objects, &was, &is)?.into_iter();
                let found = found.filter(|one| one.after.is_some() || is_gone(&one.path));
                oldest.extend(found.map(|change| (change.path.clone(), change)));
            }
        }
        Ok(oldest)
    }

    /// Whether a path will have this content.
    fn comes_back(&self, path: &TreePath, content: &ObjectId) -> Result<bool, Error> {
        let wanted = self.out.request.wanted.get(path.as_bytes());
        Ok(match (wanted, self.now.at(path.as_bytes())) {
            // The path comes back as it was, or merged with what was done to it since.
            (Some(Wanted::Entry { .. }), _) => !self.is_blocked(path),
            (Some(Wanted::Absent), _) => false,
            (None, NowAt::File { entry, .. }) => {
                entry.id == *content || self.is_merged_already(path, &entry, content)?
            }
            (None, _) => match self.inversion.present.meta.companion {
                Some(id) => match read_companion(&self.store.objects, &id) {
                    Ok(now) => find(&self.store.objects, &now.tree, path)?
                        .is_some_and(|entry| entry.id == *content),
                    Err(_) => false,
                },
                None => false,
            },
        })
    }

    /// Returns whether a file that this plan leaves alone is what it would be without the steps: its
    /// changes cancel out or an earlier undo took them back, and it has every line of `content`.
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

    /// The paths that a file may have been moved from, or linked to, when it came to its own.
    fn sources(
        &self,
        path: &TreePath,
        tracks: &BTreeMap<TreePath, Track<'_>>,
    ) -> Result<Vec<TreePath>, Error> {
        let objects = &self.store.objects;
        let mut sources = Vec::new();
        for (change, span) in tracks.get(path).into_iter().flat_map(|track| &track.changes) {
            let moved = span.after.details.moved.iter().filter(|moved| moved.to == *path);
            sources.extend(moved.map(|moved| moved.from.clone()));
            let tree = companion_tree(self.store, span.before.meta.companion);
            for tree in [span.before.snapshot, tree] {
                let all = changes(objects, &ObjectId::EMPTY_TREE, &tree)?;
                let same = all.into_iter().filter(|found| found.after == change.after);
                sources.extend(same.map(|found| found.path));
            }
        }
        Ok(sources)
    }

    /// Returns why a file stays that a step seems to have made, but that is older than the step:
    /// the step moved it from where no snapshot looks, or from a path that does not come back.
    fn came_from_elsewhere(
        &self,
        path: &TreePath,
        entry: &Entry,
        span: &Span,
        tracks: &BTreeMap<TreePath, Track<'_>>,
        oldest: &BTreeMap<TreePath, Change>,
    ) -> Result<Option<String>, Error> {
        let NowAt::File { stat, .. } = self.now.at(path.as_bytes()) else { return Ok(None) };
        if stat.kind != FileKind::File || !self.is_older(path.as_bytes(), span) {
            return Ok(None);
        }
        // Another name of it stays, so nothing is lost.
        let (parent, name) = crate::path::split(path.as_bytes());
        let found = self.inversion.root.open_below(parent).and_then(|dir| dir.stat(name));
        if found.is_ok_and(|found| found.is_some_and(|found| found.links > 1)) {
            return Ok(None);
        }
        let sources = self.sources(path, tracks)?;
        let mut why = "it was moved here from a place that is not recorded".to_owned();
        for from in sources.iter().filter(|from| *from != path) {
            // On disk, because it may be ignored.
            let is_there = matches!(look(self.inversion.root, from.as_bytes()), Ok(Some(_)));
            let is_explained = match oldest.get(from) {
                // The undone steps made it themselves.
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

    /// Whether one file has a line of another. Binary files count as if they had.
    fn shares_a_line(&self, one: &Entry, other: &Entry) -> Result<bool, Error> {
        let (one, other) = (self.text(&one.id)?, self.text(&other.id)?);
        if is_binary(&one) || is_binary(&other) {
            return Ok(true);
        }
        Ok(!lines_of(&one).is_disjoint(&lines_of(&other)))
    }

    /// Whether a file was last changed before a span began.
    fn is_untouched(&self, path: &TreePath, span: &Span) -> bool {
        let NowAt::File { stat, .. } = self.now.at(path.as_bytes()) else { return false };
        span.began_millis > 0 && stat.ctime.millis() < span.began_millis
    }

    /// Whether a file or directory was created before the step of a span began.
    fn is_older(&self, path: &[u8], span: &Span) -> bool {
        let (parent, name) = crate::path::split(path);
        let born = self.inversion.root.open_below(parent).ok().and_then(|dir| dir.birth(name));
        born.is_some_and(|born| span.began_millis > 0 && born.millis() < span.began_millis)
    }

    /// Reports files that the steps made or changed and that have another name since: no change of
    /// their own path shows it.
    fn renamed_since(&mut self, tracks: &BTreeMap<TreePath, Track<'_>>) -> Result<(), Error> {
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

    /// Deals with databases whose log a step wrote and whose main file was written since: a
    /// checkpoint has moved the step's changes from the log into the main file, where the step
    /// itself changed nothing.
    fn databases_written_since(&mut self, changed: Vec<(Change, &Span)>) -> Result<(), Error> {
        let objects = &self.store.objects;
        let mut logs = changed;
        let inversion = self.inversion;
        for span in inversion.spans {
            let tree = |id: Option<ObjectId>| companion_tree(self.store, id);
            let (was, is) = (tree(span.before.meta.companion), tree(span.after.meta.companion));
            if was != is {
                logs.extend(changes(objects, &was, &is)?.into_iter().map(|change| (change, span)));
            }
        }
        for (change, span) in logs {
            let Some(main) = database_of_log(&change.path) else { continue };
            let Some(log) = change.after.filter(|log| log.kind.is_file()) else { continue };
            let is_asked_for = inversion.is_asked_for(&main) && !inversion.is_done(span, &main);
            let decided = self.out.request.wanted.contains_key(main.as_bytes());
            if !is_asked_for || decided || !is_database_log(objects, &log.id)? {
                continue;
            }
            let recorded = |operation: &Operation| match find(objects, &operation.snapshot, &main)?
            {
                Some(entry) => Ok(Some(entry)),
                None => find(objects, &companion_tree(self.store, operation.meta.companion), &main),
            };
            let is_same = |now: Option<Entry>, then: Option<Entry>| {
                now.map(|entry| entry.id) == then.map(|entry| entry.id)
            };
            let then: Option<Entry> = recorded(&span.after)?;
            if is_same(self.on_disk(&change.path), Some(log))
                || is_same(self.on_disk(&main), then)
                || then.is_none()
            {
                continue;
            }
            match recorded(&span.before)? {
                Some(entry) if inversion.on_conflict == OnConflict::TakeTheirs => {
                    let mode = self.merged_mode(&main, entry.kind);
                    let wanted = Wanted::Entry { entry, mode };
                    self.out.request.wanted.insert(main.as_bytes().to_vec(), wanted);
                }
                _ => {
                    let why = "the database was written to since the step";
                    self.conflict(&main, ConflictReason::Merge, why.into());
                }
            }
        }
        Ok(())
    }

    /// Reports what stays in a directory that a step moved, because no snapshot holds it.
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
    }

    /// A file as it is on disk, where no snapshot looks; `None` if it is none or cannot be read.
    fn on_disk(&self, path: &TreePath) -> Option<Entry> {
        let (parent, name) = crate::path::split(path.as_bytes());
        let dir = self.inversion.root.open_below(parent).ok()?;
        let stat = dir.stat(name).ok()??;
        let kind = crate::compare::entry_kind(&EntryStat::from(&stat)).filter(|k| k.is_file())?;
        let mut file = dir.open_file(name).ok()?;
        let mut hasher = Hasher::object(Kind::Blob, stat.bytes);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match file.read(&mut buffer).ok()? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        hasher.finish().map(|id| Entry { kind, id })
    }

    /// Removes the directories that the changes made once their last file goes.
    fn empty_out(&mut self, path: &TreePath, track: &Track<'_>) -> Result<(), Error> {
        for (change, span) in &track.changes {
            if change.before.is_none() {
                self.empty_out_of(path, span)?;
            }
        }
        Ok(())
    }

    fn empty_out_of(&mut self, path: &TreePath, span: &Span) -> Result<(), Error> {
        for dir in dirs_above(path.as_bytes()) {
            let parent = TreePath::from_scan(dir.to_vec());
            let is_dir = |operation: &Operation| -> Result<bool, Error> {
                let found = find(&self.store.objects, &operation.snapshot, &parent)?;
                let empty = &operation.meta.empty_dirs;
                Ok(found.is_some_and(|entry| entry.kind.is_tree())
                    || empty.iter().any(|empty| empty.is_within(&parent)))
            };
            // Ignored directories are recorded nowhere, so a redo could not bring them back.
            if is_dir(&span.after)? && !is_dir(&span.before)? && !self.was_ignored_dir(span, dir)? {
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

    /// Whether lines that only the change wrote are still in the file after it was merged out: they
    /// were moved to another place.
    fn keeps_lines(&self, merged: Option<Entry>, change: &Change) -> Result<bool, Error> {
        /// Shorter lines, as brackets are, say nothing about who wrote them.
        const MIN_BYTES: usize = 4;
        let (Some(merged), Some(base), Some(theirs)) = (merged, change.after, change.before) else {
            return Ok(false);
        };
        let exact = merged.id == theirs.id || base.id == theirs.id;
        let files = [merged, base, theirs].iter().all(|entry| entry.kind.is_file());
        // Only a text that was merged has been read.
        let Some(text) = self.merged.get(&merged.id).cloned().or_else(|| {
            let is_text = !exact && files && self.store.objects.holds(&merged.id);
            is_text.then(|| self.store.objects.blob(&merged.id).ok()).flatten()
        }) else {
            return Ok(false);
        };
        if exact || is_binary(&text) {
            return Ok(false);
        }
        let (base, theirs) = (self.text(&base.id)?, self.text(&theirs.id)?);
        let lines = |text: &[u8]| -> BTreeSet<Vec<u8>> {
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            lines.filter(|line| line.len() >= MIN_BYTES).map(<[u8]>::to_vec).collect()
        };
        let (before, left) = (lines(&theirs), lines(&text));
        Ok(lines(&base).iter().any(|line| !before.contains(line) && left.contains(line)))
    }

    /// A recorded text, or one that was merged here and is not readable yet.
    fn text(&self, id: &ObjectId) -> Result<Vec<u8>, Error> {
        match self.merged.get(id) {
            Some(text) => Ok(text.clone()),
            None => self.store.objects.blob(id),
        }
    }

    fn merge_texts(
        &mut self,
        base: &ObjectId,
        ours: &ObjectId,
        theirs: &ObjectId,
    ) -> Result<Option<ObjectId>, Error> {
        let (base, ours, theirs) = (self.text(base)?, self.text(ours)?, self.text(theirs)?);
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
        let trees = Trees::new(&self.store.objects);
        for (at, span) in inversion.spans.iter().rev().enumerate() {
            let (before, after) = (&span.before.meta, &span.after.meta);
            let made: BTreeSet<&TreePath> = after.empty_dirs.iter().collect();
            // Newest first, so that of several changes of a directory the oldest decides.
            for dir in before.empty_dirs.iter().filter(|dir| !made.contains(dir)) {
                if asked(dir) && span.owns_dir(dir) {
                    let mode = before.mode_map().get(dir.as_bytes()).copied();
                    let mode = mode.unwrap_or(before.common.dir);
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
            // A directory that this span made goes, although it was an empty one in between.
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
        for (path, changes) in &self.modes {
            let NowAt::File { stat, entry, .. } = self.now.at(path) else { continue };
            let from = stat.mode & MODE_BITS;
            let to = merge_modes(Some(from), changes).unwrap_or(from);
            if from != to && entry.kind.is_file() {
                let path = path.clone();
                self.out.request.modes.push(ModeChange { path, from, to, is_dir: false });
            }
        }
        Ok(())
    }

    /// Requests the permissions from before a span for directories that have to be made again.
    fn dir_modes(&mut self, span: &Span, is_newest: bool) {
        let (before, after) = (&span.before.meta, &span.after.meta);
        let (then, left) = (before.mode_map(), after.mode_map());
        let request = &mut self.out.request;
        match is_newest {
            true => {
                request.common_dir_mode = before.common.dir;
                request.dir_modes = then.iter().map(|(path, mode)| (path.clone(), *mode)).collect();
            }
            // Those that the newer spans found as this one left them.
            false => {
                for path in then.keys().chain(left.keys()) {
                    let found = request.dir_modes.get(path).copied();
                    let found = found.unwrap_or(request.common_dir_mode);
                    let of = |modes: &HashMap<Vec<u8>, u32>, usual| {
                        modes.get(path).copied().unwrap_or(usual)
                    };
                    if found == of(&left, after.common.dir) {
                        request.dir_modes.insert(path.clone(), of(&then, before.common.dir));
                    }
                }
            }
        }
    }

    /// Returns the directories whose permissions a span may have changed.
    fn dirs_with_other_modes(&self, span: &Span) -> Vec<Vec<u8>> {
        let (before, after) = (&span.before.meta, &span.after.meta);
        let (then, left) = (before.mode_map(), after.mode_map());
        let differs = |path: &&Vec<u8>| {
            let mode = |modes: &HashMap<Vec<u8>, u32>, usual: u32| {
                modes.get(*path).copied().unwrap_or(usual)
            };
            mode(&then, before.common.dir) != mode(&left, after.common.dir)
        };
        match before.common.dir == after.common.dir {
            true => then.keys().chain(left.keys()).filter(differs).cloned().collect(),
            false => {
                let dirs = self.now.listing.dirs.iter().map(|dir| &dir.path);
                dirs.filter(|path| !path.is_empty()).filter(differs).cloned().collect()
            }
        }
    }

    /// Takes back changes of the permissions of directories that stay. Spans compose: a directory
    /// that one span removed and a later one made again gets the permissions from before both.
    fn merge_dir_modes(&mut self, trees: &Trees<'_>) -> Result<(), Error> {
        let spans = self.inversion.spans;
        let paths: BTreeSet<Vec<u8>> =
            spans.iter().flat_map(|span| self.dirs_with_other_modes(span)).collect();
        let listed = |span: &Span| [span.before.meta.mode_map(), span.after.meta.mode_map()];
        let listed: Vec<[HashMap<Vec<u8>, u32>; 2]> = spans.iter().map(listed).collect();
        for path in paths {
            let Ok(dir) = TreePath::parse(&path) else { continue };
            let Some(present) = self.now.dir_mode(&path) else { continue };
            let mut mode = Some(present);
            for (span, [then, left]) in spans.iter().zip(&listed).rev() {
                let of = |operation: &Operation, modes: &HashMap<Vec<u8>, u32>| {
                    dir_mode_in(operation, modes, &path, present, trees)
                };
                let (before, after) = (of(&span.before, then)?, of(&span.after, left)?);
                let change = ModeStep { before, after };
                if mode == change.after && self.takes_dir_mode(span, &dir, change) {
                    mode = change.before;
                }
            }
            if let Some(to) = mode.filter(|to| *to != present) {
                let change = ModeChange { path, from: present, to, is_dir: true };
                self.out.request.modes.push(change);
            }
        }
        Ok(())
    }

    /// Whether a change of the permissions of a directory, or of its existence, is a span's own and
    /// asked for.
    fn takes_dir_mode(&self, span: &Span, dir: &TreePath, change: ModeStep) -> bool {
        let is_listed = span.before.meta.common.dir == span.after.meta.common.dir;
        let owns = match (change.before, change.after) {
            (None, _) | (_, None) => span.made_dir(dir),
            // Permissions that are listed are dealt out to steps path by path.
            _ if is_listed => span.paths.is_none() || span.owns(dir),
            _ => span.owns_dir(dir),
        };
        let takes = self.inversion.unclear || self.inversion.takes_undecided(dir);
        self.inversion.is_asked_for(dir)
            && (owns || (takes && span.unclear.contains(dir)))
            && !self.inversion.is_done(span, dir)
    }
}

/// Returns the permissions of a directory in an operation, whose exceptional ones are `modes`, or
/// `None` if it was not there. Bits that the operation does not record are those of `present`.
fn dir_mode_in(
    operation: &Operation,
    modes: &HashMap<Vec<u8>, u32>,
    path: &[u8],
    present: u32,
    trees: &Trees<'_>,
) -> Result<Option<u32>, Error> {
    let meta = &operation.meta;
    let is_there = is_dir_of(trees, &operation.snapshot, Some(meta), path)?;
    let mode = modes.get(path).copied().unwrap_or(meta.common.dir);
    Ok(is_there.then(|| mode | meta.unrecorded_bits(present)))
}

/// The tree of a companion; the empty one if there is none or it cannot be read.
fn companion_tree(store: &Store, id: Option<ObjectId>) -> ObjectId {
    let companion = id.and_then(|id| read_companion(&store.objects, &id).ok());
    companion.map_or(ObjectId::EMPTY_TREE, |companion| companion.tree)
}

/// The database that a path is the write-ahead log or journal of, by its name.
fn database_of_log(path: &TreePath) -> Option<TreePath> {
    let main = SIDECARS.iter().find_map(|end| path.as_bytes().strip_suffix(*end))?;
    TreePath::parse(main).ok()
}

/// The entry with the kind that its permissions give it.
fn with_mode(entry: Entry, mode: u32) -> Entry {
    let kind = match entry.kind {
        EntryKind::File | EntryKind::Executable if mode & 0o100 != 0 => EntryKind::Executable,
        EntryKind::File | EntryKind::Executable => EntryKind::File,
        other => other,
    };
    Entry { kind, ..entry }
}

fn usual_mode(kind: EntryKind) -> u32 {
    if kind == EntryKind::Executable { 0o755 } else { 0o644 }
}

/// Returns the contents that were taken away from paths. A version that another undone change made
/// does not count: only the oldest change of each path is given.
fn taken_contents(oldest: &BTreeMap<TreePath, Change>) -> HashMap<ObjectId, Vec<TreePath>> {
    let mut taken: HashMap<ObjectId, Vec<TreePath>> = HashMap::new();
    for change in oldest.values() {
        // An empty file holds nothing that another one could be a copy of.
        let is_content =
            |before: &Entry| before.kind.is_file() && before.id != ObjectId::EMPTY_BLOB;
        if let Some(before) = change.before.filter(is_content) {
            taken.entry(before.id).or_default().push(change.path.clone());
        }
    }
    taken
}

/// Returns the lines of a text without line ends and empty lines.
fn lines_of(text: &[u8]) -> BTreeSet<&[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect()
}

/// Whether one file can have been made of another by editing it.
fn resembles(one: &[u8], other: &[u8]) -> bool {
    let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let start = one.iter().zip(other).take_while(same).count();
    let end = one[start..].iter().rev().zip(other[start..].iter().rev()).take_while(same).count();
    one == other || (start + end) * 2 >= one.len().max(other.len()) || similarity(one, other) >= 0.5
}

/// The share of lines that two texts have in common.
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
