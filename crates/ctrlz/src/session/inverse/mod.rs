//! The inverse of changes: what the present would be had they not been made.

mod databases;
mod halves;
mod ignored;
mod modes;
mod renames;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use crate::compare::{Change, Entry, Now, NowAt, Trees, changes, find};
use crate::error::Error;
use crate::fs::Dir;
use crate::git::{EntryKind, Hasher, Kind, ObjectId};
use crate::log::{Credit, Operation, read_companion};
use crate::pack::PackWriter;
use crate::path::{TreePath, dirs_above};
use crate::restore::{Absence, KeptReason, Request, Wanted, is_dir_of};
use crate::scan::EntryStat;
use crate::session::history::{History, Span};
use crate::session::undo::{Conflict, ConflictReason};
use crate::store::Store;

use databases::{database_of_log, is_transient};
use modes::{ModeStep, with_mode};

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
}
