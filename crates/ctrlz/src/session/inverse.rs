//! The inverse of changes: what the present would be had they not been made.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Change, Entry, changes, find, merge_lines};
use crate::error::Error;
use crate::git::{EntryKind, Kind, ObjectId};
use crate::path::TreePath;
use crate::restore::{ModeChange, Now, NowAt, Request, Wanted};
use crate::store::{PackWriter, Store};
use crate::workspace::{Absence, Modes, dirs_above, is_binary};

use super::history::{History, Piece};
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
    /// Newest first: the change, and the piece it is part of.
    changes: Vec<(Change, Piece<'a>)>,
}

/// Works out what taking `pieces` (oldest first) back asks for.
pub(super) fn invert(
    store: &Store,
    now: &Now<'_>,
    history: Option<&History>,
    pieces: &[Piece<'_>],
    limit: &[TreePath],
    on_conflict: OnConflict,
) -> Result<(Request, Vec<Conflict>), Error> {
    let mut inverter = Inverter {
        store,
        now,
        on_conflict,
        request: Request { common_dir_mode: 0o755, ..Request::default() },
        conflicts: Vec::new(),
        pack: PackWriter::new(&store.objects_dir()),
    };
    let tracks = gather(store, history, pieces, limit, on_conflict)?;
    inverter.shared(pieces, limit);
    for (path, track) in &tracks {
        inverter.path(path, track)?;
    }
    inverter.modes_and_dirs(pieces, limit)?;
    let Inverter { request, conflicts, pack, .. } = inverter;
    // Merged texts are new objects; the plan needs them readable.
    pack.publish()?;
    store.objects.refresh()?;
    Ok((request, conflicts))
}

/// Every path the pieces changed, with its changes newest first.
fn gather<'a>(
    store: &Store,
    history: Option<&History>,
    pieces: &[Piece<'a>],
    limit: &[TreePath],
    on_conflict: OnConflict,
) -> Result<BTreeMap<TreePath, Track<'a>>, Error> {
    let mut tracks: BTreeMap<TreePath, Track<'a>> = BTreeMap::new();
    for piece in pieces.iter().rev() {
        let mut covered = Absence::of_operation(store, piece.after);
        for change in changes(&store.objects, &piece.before.snapshot, &piece.after.snapshot)? {
            let asked = limit.is_empty() || limit.iter().any(|path| change.path.is_within(path));
            // Left out afterwards is not deleted.
            let hidden = change.after.is_none() && covered.doubt(&change.path)?.is_some();
            let forced = on_conflict == OnConflict::TakeTheirs;
            let own = piece.owns(&change.path)
                || (forced && piece.after.details.shared.contains(&change.path));
            let done = history
                .zip(piece.info)
                .is_some_and(|(history, info)| history.is_path_undone(&info.step, &change.path));
            if asked && !hidden && own && !done {
                let track = tracks.entry(change.path.clone()).or_insert(Track { changes: vec![] });
                track.changes.push((change, *piece));
            }
        }
    }
    Ok(tracks)
}

struct Inverter<'a> {
    store: &'a Store,
    now: &'a Now<'a>,
    on_conflict: OnConflict,
    request: Request,
    conflicts: Vec<Conflict>,
    pack: PackWriter,
}

impl Inverter<'_> {
    /// Takes one path's changes back, newest first.
    fn path(&mut self, path: &TreePath, track: &Track<'_>) -> Result<(), Error> {
        let ours = match self.now.at(path.as_bytes()) {
            NowAt::File { entry, .. } => Some(entry),
            NowAt::Nothing | NowAt::Dir => None,
            NowAt::Unsaved(why) => {
                self.conflicts.push(Conflict { path: path.clone(), why });
                return Ok(());
            }
        };
        let mut wanted = ours;
        for (change, piece) in &track.changes {
            if change.before.is_none() && wanted == change.after {
                let doubt = Absence::of_operation(self.store, piece.before).doubt(path)?;
                if let Some(reason) = doubt {
                    self.conflicts.push(Conflict { path: path.clone(), why: reason.describe() });
                    return Ok(());
                }
            }
            match self.merge(wanted, change)? {
                Some(merged) => wanted = merged,
                None if self.on_conflict == OnConflict::TakeTheirs => wanted = change.before,
                None => {
                    let why = "it was changed since, and the changes do not merge".into();
                    self.conflicts.push(Conflict { path: path.clone(), why });
                    return Ok(());
                }
            }
        }
        if wanted == ours {
            return Ok(());
        }
        let mode = track.changes.last().map_or(0o644, |(_, piece)| {
            let kind = wanted.map_or(EntryKind::File, |entry| entry.kind);
            Modes::of(Some(&piece.before.meta)).of_file(path.as_bytes(), kind)
        });
        let wanted = match wanted {
            Some(entry) => Wanted::Entry { entry, mode },
            None => {
                self.empty_out(path, track)?;
                Wanted::Absent
            }
        };
        self.request.wanted.insert(path.as_bytes().to_vec(), wanted);
        Ok(())
    }

    /// What changed while several steps were open is nobody's, and is only told.
    fn shared(&mut self, pieces: &[Piece<'_>], limit: &[TreePath]) {
        if self.on_conflict == OnConflict::TakeTheirs {
            return;
        }
        let shared: BTreeSet<&TreePath> =
            pieces.iter().flat_map(|piece| &piece.after.details.shared).collect();
        for path in shared {
            if limit.is_empty() || limit.iter().any(|limit| path.is_within(limit)) {
                let why = "it changed while several steps were open; --force takes it back".into();
                self.conflicts.push(Conflict { path: path.clone(), why });
            }
        }
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
                self.request.emptied.insert(dir.to_vec());
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
        let read = |id: &ObjectId| self.store.objects.blob(id);
        let (base, ours, theirs) = (read(base)?, read(ours)?, read(theirs)?);
        if [&base, &ours, &theirs].into_iter().any(|bytes| is_binary(bytes)) {
            return Ok(None);
        }
        match merge_lines(&base, &ours, &theirs) {
            Some(merged) => {
                let known = |id: &ObjectId| self.store.objects.holds(id);
                self.pack.add(Kind::Blob, &merged, known)
            }
            None => Ok(None),
        }
    }

    /// Permissions and empty directories, which a tree does not hold.
    fn modes_and_dirs(&mut self, pieces: &[Piece<'_>], limit: &[TreePath]) -> Result<(), Error> {
        let asked = |path: &TreePath| limit.is_empty() || limit.iter().any(|l| path.is_within(l));
        for piece in pieces.iter().rev() {
            let (before, after) = (&piece.before.meta, &piece.after.meta);
            let made: BTreeSet<&TreePath> = after.empty_dirs.iter().collect();
            for dir in before.empty_dirs.iter().filter(|dir| !made.contains(dir)) {
                if asked(dir) && piece.paths.is_none() {
                    let mode = before.mode_map().get(dir.as_bytes()).copied();
                    let mode = mode.unwrap_or(before.common.dir);
                    self.request.dirs.insert(dir.as_bytes().to_vec(), mode);
                }
            }
            for dir in after.empty_dirs.iter().filter(|dir| !before.empty_dirs.contains(dir)) {
                if asked(dir) && piece.paths.is_none() {
                    self.request.emptied.insert(dir.as_bytes().to_vec());
                    self.request.emptied.extend(dirs_above(dir.as_bytes()).map(<[u8]>::to_vec));
                }
            }
            self.modes(piece, &asked)?;
        }
        Ok(())
    }

    fn modes(&mut self, piece: &Piece<'_>, asked: &dyn Fn(&TreePath) -> bool) -> Result<(), Error> {
        let (before, after) = (&piece.before.meta, &piece.after.meta);
        if before.modes == after.modes && before.common == after.common {
            return Ok(());
        }
        let (then, left) = (Modes::of(Some(before)), Modes::of(Some(after)));
        let paths: BTreeSet<Vec<u8>> = if before.common == after.common {
            let listed = before.modes.iter().chain(&after.modes);
            listed.map(|(text, _)| text.clone().into_bytes()).collect()
        } else {
            // What most files have has changed, so every file may have.
            let all = changes(&self.store.objects, &ObjectId::EMPTY_TREE, &piece.after.snapshot)?;
            all.into_iter().map(|change| change.path.as_bytes().to_vec()).collect()
        };
        for bytes in paths {
            let Ok(path) = TreePath::parse(&bytes) else { continue };
            let NowAt::File { stat, entry, .. } = self.now.at(&bytes) else { continue };
            let from = stat.mode & 0o777;
            let (was, to) = (left.of_file(&bytes, entry.kind), then.of_file(&bytes, entry.kind));
            let known = self.request.modes.iter().any(|change| change.path == bytes);
            if asked(&path) && piece.owns(&path) && from == was && from != to && !known {
                self.request.modes.push(ModeChange { path: bytes, from, to, is_dir: false });
            }
        }
        Ok(())
    }
}
