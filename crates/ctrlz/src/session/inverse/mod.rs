//! Inverse of changes: the work tree as it would be if some spans of history had not happened.
//!
//! Undo never writes an old tree over the present one. Each changed path is merged three ways:
//!
//! ```text
//!                  base = what the step left (`Change::after`)
//!                 /    \
//!    later edits /      \ the step, reversed
//!               /        \
//!           ours          theirs = what was there before the step (`Change::before`)
//!   = what is on disk    /
//!               \       /
//!                result = the later edits without the step
//! ```
//!
//! If `ours` equals `base`, the result is `theirs`. If `ours` equals `theirs`, it stays. Texts are
//! merged line by line. Anything else is a conflict, and [`OnConflict`] decides. Several changes of
//! one path are reversed newest first, each result being `ours` of the next merge.
//!
//! [`invert`] makes these passes. Each relies on the results of earlier ones.
//!
//! 1. `gather` collects the changes of the spans by path.
//! 2. `gather_modes` collects their permission changes, which passes 4 to 6 apply.
//! 3. `undecided` reports changes of unknown owner. It runs before any merge because pass 4 must
//!    not move such files and because only the first reason reported for a path is kept.
//! 4. `follow_renames` merges files that a step renamed and that were edited since. It removes both
//!    names from the tracks, because pass 5 would see a deleted file and a conflict.
//!    `follow_undone_renames` merges files that an earlier undo of such a step renamed back.
//! 5. `path` merges every other path.
//! 6. `modes_and_dirs` plans permissions and empty directories. It may cancel the removal of a
//!    directory that pass 5 requested.
//! 7. `ignored_files` plans changes that only ignored snapshots hold, after pass 5 has planned the
//!    others.
//! 8. `keep_other_halves` drops actions that would destroy the only copy of some content. It needs
//!    the complete request, ignored files included, to know which paths come back.
//! 9. `databases_written_since` and `renamed_since` only consider paths that are still undecided.
//! 10. `keep_traded_places` leaves what lies below a path in conflict.

mod databases;
mod files;
mod halves;
mod ignored;
mod modes;
mod permissions;
mod renames;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;

use crate::compare::{Change, Entry, Now, Trees, changes, find};
use crate::error::Error;
use crate::fs::Dir;
use crate::git::{Hasher, Kind, ObjectId};
use crate::log::{Credit, Operation, read_ignored};
use crate::pack::PackWriter;
use crate::path::{TreePath, dirs_above};
use crate::restore::{Absence, Request, database_of_log, is_dir_of, is_transient};
use crate::scan::EntryStat;
use crate::session::history::{History, Span};
use crate::session::report::{Conflict, ConflictReason};
use crate::store::Store;

use permissions::ModeStep;

const NO_MERGE: &str = "it was changed since, and the changes do not merge";

/// Policy for files that were changed since in a way that does not merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConflict {
    /// The file stays unchanged.
    Keep,
    /// The file gets its version from before the change.
    TakeTheirs,
}

/// Changes of one path that are to be reversed.
struct Track<'a> {
    /// Changes with the spans that they are part of, newest first.
    changes: Vec<(Change, &'a Span)>,
}

/// Changes to invert, and the options for doing so.
pub(super) struct Inversion<'a> {
    /// History that shows what is undone already, or `None` for a redo, which reverses everything.
    pub(super) history: Option<&'a History<'a>>,
    /// Spans to reverse, oldest first.
    pub(super) spans: &'a [Span],
    /// Paths to limit the inversion to. Empty for all.
    pub(super) limit: &'a [TreePath],
    pub(super) on_conflict: OnConflict,
    /// Whether to reverse changes of ignored files that no tool named.
    pub(super) ignored: bool,
    /// Whether to reverse changes that an interrupted step or the user may have made.
    pub(super) unclear: bool,
    /// Operation that recorded the present state.
    pub(super) present: &'a Operation,
    /// Root of the work tree.
    pub(super) root: &'a Dir,
}

/// Result of an inversion.
#[derive(Default)]
pub(super) struct Inverted {
    pub(super) request: Request,
    pub(super) conflicts: Vec<Conflict>,
    /// Ignored files in the request.
    pub(super) ignored: Vec<TreePath>,
    /// Changes of ignored files that are not reversed.
    pub(super) ignored_left: Vec<Conflict>,
}

impl Inversion<'_> {
    pub(super) fn is_asked_for(&self, path: &TreePath) -> bool {
        self.limit.is_empty() || self.limit.iter().any(|limit| path.is_within(limit))
    }

    /// Returns whether every step of an operation that `may` accepts is reversed here. Then no
    /// other step has a share in the changes that `may` is about.
    fn takes_all_of(&self, operation: &Operation, may: impl Fn(&Credit) -> bool) -> bool {
        let is_taken = |step: &str| {
            let of_step = |span: &Span| span.info.as_ref().is_some_and(|info| info.step == step);
            self.spans.iter().any(|span| span.after.id == operation.id && of_step(span))
        };
        let mut sharing = operation.details.credits.iter().filter(|credit| may(credit));
        sharing.all(|credit| is_taken(&credit.step.step))
    }

    /// Returns whether a path is reversed although the owner of the change is unknown: because of
    /// an option, or because the path was named.
    fn takes_undecided(&self, path: &TreePath) -> bool {
        self.on_conflict == OnConflict::TakeTheirs || self.limit.contains(path)
    }

    fn is_done(&self, span: &Span, path: &TreePath) -> bool {
        let step = self.history.zip(span.info.as_ref());
        step.is_some_and(|(history, info)| history.is_path_undone(&info.step, span.entry, path))
    }
}

/// Returns the request and the conflicts that result from reversing the spans.
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
    inverter.follow_undone_renames(&mut tracks)?;
    for (path, track) in &tracks {
        inverter.path(path, track, None)?;
    }
    inverter.modes_and_dirs()?;
    inverter.ignored_files(&hidden)?;
    inverter.keep_other_halves(&tracks, &oldest)?;
    inverter.databases_written_since(logs)?;
    inverter.renamed_since(&tracks)?;
    inverter.keep_traded_places();
    let Inverter { out, pack, .. } = inverter;
    // Merged texts are new objects, and the plan has to read them.
    pack.publish()?;
    store.objects.refresh()?;
    Ok(out)
}

/// A path that the later snapshot of a span leaves out because it is ignored or skipped.
struct Hidden<'a> {
    change: Change,
    span: &'a Span,
}

/// Changes of the spans.
#[derive(Default)]
struct Gathered<'a> {
    /// Every path with changes that are not undone yet.
    tracks: BTreeMap<TreePath, Track<'a>>,
    hidden: Vec<Hidden<'a>>,
    /// Changes of paths that are named like the log of a database, including undone ones.
    logs: Vec<(Change, &'a Span)>,
    /// Oldest change of every path that the spans own, even if the path was not asked for.
    oldest: BTreeMap<TreePath, (Change, &'a Span)>,
}

fn gather<'a>(store: &Store, inversion: &Inversion<'a>) -> Result<Gathered<'a>, Error> {
    let Gathered { mut tracks, mut hidden, mut logs, mut oldest } = Gathered::default();
    for span in inversion.spans.iter().rev() {
        let mut covered = Absence::of_operation(store, &span.after);
        let aside = span.before.meta.ignored_snapshot.map(|id| read_ignored(&store.objects, &id));
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
            if inversion.is_done(span, &change.path) || is_transient(&store.objects, &change)? {
                continue;
            }
            if let (None, Some(aside)) = (change.before, &aside) {
                // The file was ignored before the span, so the ignored snapshot may hold its old
                // content.
                let kept = find(&store.objects, &aside.tree, &change.path)?;
                change.before = kept.filter(|entry| !entry.kind.is_tree());
            }
            // A path that the later snapshot leaves out was not deleted.
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
    /// Decides whether paths that the present snapshot does not hold exist.
    absence: Absence<'a>,
    now: &'a Now<'a>,
    inversion: &'a Inversion<'a>,
    out: Inverted,
    pack: PackWriter,
    /// Merged texts, which cannot be read from the unpublished pack. An older change of the same
    /// path may have to be merged out of one.
    merged: HashMap<ObjectId, Vec<u8>>,
    /// Permission changes made by the spans, newest first.
    modes: BTreeMap<Vec<u8>, Vec<ModeStep>>,
    /// Old and new names of files that return to their old name with later edits.
    followed: Vec<(TreePath, TreePath)>,
}

impl Inverter<'_> {
    /// Leaves everything below a path in conflict: if a file and a directory traded places, either
    /// both change or neither.
    fn keep_traded_places(&mut self) {
        let Inverted { request, conflicts, ignored, .. } = &mut self.out;
        let left: BTreeSet<&TreePath> = conflicts.iter().map(|conflict| &conflict.path).collect();
        let below = |path: &[u8]| {
            dirs_above(path).any(|dir| left.contains(&TreePath::from_scan(dir.to_vec())))
        };
        request.wanted.retain(|path, _| !below(path));
        request.dirs.retain(|path, _| !below(path));
        let stays = |dir: &[u8]| left.contains(&TreePath::from_scan(dir.to_vec())) || below(dir);
        request.emptied.retain(|dir| !stays(dir));
        ignored.retain(|path| !below(path.as_bytes()));
    }

    fn is_forced(&self) -> bool {
        self.inversion.on_conflict == OnConflict::TakeTheirs
    }

    fn has_conflict(&self, path: &TreePath) -> bool {
        self.out.conflicts.iter().any(|conflict| conflict.path == *path)
    }

    /// Reports a conflict. Only the first reason for a path is kept.
    fn conflict(&mut self, path: &TreePath, reason: ConflictReason, why: String) {
        if self.has_conflict(path) {
            return;
        }
        self.out.conflicts.push(Conflict { path: path.clone(), reason, why });
    }

    /// Reports changes of unknown owner: those made while several steps were open, unless all of
    /// these steps are reversed, and those that an interrupted step or the user may have made.
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
            // A removed directory has no content of its own and comes back with its files.
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
                        "it changed while the command may have been running; \
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

    /// Returns whether a file or directory was created before the step of a span began.
    fn is_older(&self, path: &[u8], span: &Span) -> bool {
        let (parent, name) = crate::path::split(path);
        let born = self.inversion.root.open_below(parent).ok().and_then(|dir| dir.birth(name));
        born.is_some_and(|born| span.began_millis > 0 && born.millis() < span.began_millis)
    }

    /// Reads a file that no snapshot covers. Returns `None` if it is not regular or cannot be read.
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
}
