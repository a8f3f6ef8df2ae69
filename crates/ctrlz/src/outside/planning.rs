//! Planning: captures and the present state → actions that restore the captured paths.

use std::collections::{BTreeSet, HashSet};

use crate::compare::{Entry, Now};
use crate::error::Error;
use crate::fs::{Dir, InUse, Users, use_of};
use crate::git::{EntryKind, Hasher, ObjectId};
use crate::path::is_within;
use crate::restore::{
    Action, HEAD_BYTES, ModeChange, Plan, Request, Wanted, database_of, is_sqlite, is_sqlite_log,
    plan,
};

use super::capture::{Capture, Outside, full_path, head_at, is_leaf, names_of, path_of};
use super::merging::{Merge, Top, kept_at};
use super::reader::Reader;
use super::report::{OutsideAction, OutsideChange, OutsideKept};
use super::state::{Same, State, Thing, compare, is_same_content};

/// Options for restoring captures.
#[derive(Default)]
pub(crate) struct How {
    /// Restores the earlier version even of paths that were changed since the step.
    pub(crate) force: bool,
    /// Replaces files that another process has open.
    pub(crate) replace_used: bool,
    /// Contents that the undo removed or overwrote in the work tree and does not restore.
    pub(crate) unrestored: HashSet<ObjectId>,
}

/// Plan for restoring captured paths.
#[derive(Default)]
pub(crate) struct OutsidePlan {
    /// Paths that change, and paths that stay unchanged although the step changed them.
    pub(crate) changes: Vec<OutsideChange>,
    pub(super) roots: Vec<PlannedRoot>,
}

/// Plan for one root.
pub(super) struct PlannedRoot {
    pub(super) dir: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// Whether the plan covers the log and the journal of this database too.
    pub(super) database: bool,
    /// Present state.
    pub(super) now: State,
    pub(super) plan: Plan,
}

impl OutsidePlan {
    /// Returns whether the plan writes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Returns every plan, with the number of files present where it is applied.
    pub(crate) fn plans(&self) -> impl Iterator<Item = (&Plan, u64)> {
        self.roots.iter().map(|root| {
            let files = root.now.0.values().filter(|thing| is_leaf(thing)).count();
            (&root.plan, files as u64)
        })
    }

    /// Combines the hash of the work tree's plan with the plans for the roots.
    pub(crate) fn hash_with(&self, inside: ObjectId) -> ObjectId {
        if self.roots.is_empty() {
            return inside;
        }
        let mut hasher = Hasher::raw();
        hasher.update(inside.as_bytes());
        for root in &self.roots {
            hasher.update(&full_path(&root.dir, &root.name));
            hasher.update(root.plan.hash.as_bytes());
        }
        hasher.finish().unwrap_or(ObjectId::NULL)
    }
}

/// Plans to restore captures, given oldest first. Reads the present state through `reader`.
pub(super) fn plan_captures(
    captures: &Outside<'_>,
    taken: &[Capture],
    reader: &mut Reader<'_>,
    how: &How,
) -> Result<OutsidePlan, Error> {
    let mut merge = Merge { unrestored: how.unrestored.clone(), ..Merge::default() };
    merge.read_present(taken, reader)?;
    let present = merge.now.clone();
    for root in taken.iter().rev().flat_map(|capture| &capture.roots) {
        if root.repository {
            merge.repository(root, captures)?;
        } else {
            merge.root(root, captures, how.force)?;
        }
    }
    let Merge { tops, now: wanted, mut changes, unrestored } = merge;
    let mut roots = Vec::new();
    for (_, top) in tops {
        let Some((mut root, actions, kept)) = plan_root(top, &present, &wanted) else { continue };
        root.plan.replaces_used = how.replace_used;
        let torn = || root.torn_databases(captures, taken, &wanted);
        let kept = match kept.or_else(|| root.must_stay(&wanted, &unrestored, how)) {
            Some(kept) => kept,
            None => torn()?,
        };
        let kept = (!kept.is_empty()).then_some(kept);
        match kept {
            Some(kept) => changes.extend(kept),
            None => {
                changes.extend(actions);
                roots.push(root);
            }
        }
    }
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes.dedup();
    Ok(OutsidePlan { changes, roots })
}

impl PlannedRoot {
    /// Returns the reasons for leaving the root unchanged although it could be restored.
    fn must_stay(
        &self,
        wanted: &State,
        unrestored: &HashSet<ObjectId>,
        how: &How,
    ) -> Option<Vec<OutsideChange>> {
        let top = full_path(&self.dir, &self.name);
        let files = self.now.0.iter().filter_map(|(path, thing)| match thing {
            Thing::File { id, .. } => Some((path, full_path(&self.dir, path), *id)),
            _ => None,
        });
        let is_replaced = |full: &[u8], id: &ObjectId| match wanted.0.get(full) {
            Some(Thing::File { id: wanted, .. }) => wanted != id,
            _ => true,
        };
        let replaced = files.filter(|(_, full, id)| is_replaced(full, id));
        let replaced: Vec<(&Vec<u8>, Vec<u8>, ObjectId)> = replaced.collect();
        let mut kept = Vec::new();
        let dir = Dir::open(&path_of(&self.dir)).ok()?;
        for (path, full, id) in &replaced {
            let used = if how.replace_used { None } else { use_of(&dir, path, Users::Writers) };
            if unrestored.contains(id) {
                kept.push(kept_at(&top, full, OutsideKept::OtherHalf));
            } else if let Some((InUse::Yes, process)) = used {
                kept.push(kept_at(&top, full, OutsideKept::InUse { process }));
            }
        }
        (!kept.is_empty()).then_some(kept)
    }

    /// Returns the files of databases that the plan would bring to different captured moments.
    fn torn_databases(
        &self,
        captures: &Outside<'_>,
        taken: &[Capture],
        wanted: &State,
    ) -> Result<Vec<OutsideChange>, Error> {
        let top = full_path(&self.dir, &self.name);
        let is_content = |action: &&Action| !matches!(action, Action::SetMode { .. });
        let written = self.plan.actions.iter().filter(is_content).map(|action| action.path());
        let mut torn = Vec::new();
        for path in written.map(|path| full_path(&self.dir, path.as_bytes())) {
            let main = database_of(&path);
            let head = |path: &[u8]| head_of(captures, wanted, path);
            let is_database = is_sqlite(&head_at(b"/", &main[1..])) || is_sqlite(&head(main)?);
            let is_log = main != path && is_sqlite_log(&head(&path)?);
            if (is_database || is_log) && !taken.iter().any(|taken| taken.holds(main, wanted)) {
                torn.push(kept_at(&top, &path, OutsideKept::Unit));
            }
        }
        Ok(torn)
    }
}

/// Returns the first bytes that a file will have.
fn head_of(captures: &Outside<'_>, wanted: &State, full: &[u8]) -> Result<Vec<u8>, Error> {
    match wanted.0.get(full) {
        // The present content is stored only if the plan is to be applied.
        Some(Thing::File { id, .. }) if captures.store.objects.holds(id) => {
            captures.store.objects.blob_head(id, HEAD_BYTES)
        }
        _ => Ok(head_at(b"/", full.get(1..).unwrap_or_default())),
    }
}

impl Capture {
    /// Returns whether a database, its log and its journal are all planned to be in the captured
    /// state. A log that no root covers must not exist.
    fn holds(&self, main: &[u8], wanted: &State) -> bool {
        names_of(main, true).iter().all(|full| {
            let root = self.roots.iter().find(|root| !root.repository && root.covers(full));
            let Some(root) = root else {
                let found = path_of(full).symlink_metadata();
                let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
                return full != main && found.as_ref().err().is_some_and(is_gone);
            };
            let path = &full[full_path(&root.dir, b"").len()..];
            is_same_content(root.before.at(path).as_ref(), wanted.at(full).as_ref())
        })
    }
}

type PlannedChanges = (PlannedRoot, Vec<OutsideChange>, Option<Vec<OutsideChange>>);

/// Plans to turn the `present` state below an outermost root into the `wanted` one. Returns `None`
/// if they are equal. The third value is set if the root must be left unchanged.
fn plan_root(root: Top, present: &State, wanted: &State) -> Option<PlannedChanges> {
    let top = full_path(&root.dir, &root.name);
    let mut request = Request { common_dir_mode: 0o755, ..Request::default() };
    let below = |state: &State| -> BTreeSet<Vec<u8>> {
        let from = state.0.range(top.clone()..).map(|(path, _)| path);
        let from = from.take_while(|path| path.starts_with(&top));
        from.filter(|path| root.covers(path)).cloned().collect()
    };
    let cut = full_path(&root.dir, b"").len();
    for full in below(present).union(&below(wanted)) {
        let path = full[cut..].to_vec();
        want(&mut request, path, present.0.get(full), wanted.0.get(full));
    }
    // A directory is not removed while something in it is kept.
    let stays: Vec<Vec<u8>> = below(wanted).into_iter().map(|full| full[cut..].to_vec()).collect();
    request.emptied.retain(|dir| !stays.iter().any(|path| is_within(path, dir)));
    if request.wanted.is_empty()
        && request.dirs.is_empty()
        && request.modes.is_empty()
        && request.emptied.is_empty()
    {
        return None;
    }
    let Top { dir, name, database, seen } = root;
    let plan = plan(&Now::of(&seen.listing), &request);
    let change = |path: &[u8], action| OutsideChange {
        root: path_of(&top),
        path: path_of(&full_path(&dir, path)),
        action: Some(action),
        kept: None,
    };
    let changes: Vec<OutsideChange> =
        plan.actions.iter().map(|action| change(action.path().as_bytes(), of(action))).collect();
    let kept = if seen.has_dir {
        let kept = plan.kept.iter().map(|kept| {
            let why = kept.reason.to_string();
            let full = full_path(&dir, kept.path.as_bytes());
            kept_at(&top, &full, OutsideKept::CannotBeSaved { why })
        });
        Some(kept.collect::<Vec<_>>()).filter(|kept| !kept.is_empty())
    } else {
        let why = "the directory that held it is gone".into();
        Some(vec![kept_at(&top, &top, OutsideKept::Failed { why })])
    };
    Some((PlannedRoot { dir, name, database, now: seen.state, plan }, changes, kept))
}

fn of(action: &Action) -> OutsideAction {
    match action {
        Action::Create { .. } => OutsideAction::Create,
        Action::Overwrite { .. } => OutsideAction::Overwrite,
        Action::Remove { .. } | Action::RemoveDirectory { .. } => OutsideAction::Remove,
        Action::SetMode { mode, .. } => OutsideAction::SetMode { mode: *mode },
        Action::CreateDirectory { .. } => OutsideAction::CreateDirectory,
    }
}

/// Adds to a request the changes that turn `present` into `wanted`.
pub(super) fn want(
    request: &mut Request,
    path: Vec<u8>,
    present: Option<&Thing>,
    wanted: Option<&Thing>,
) {
    if let Some(Thing::Dir(mode)) = wanted {
        request.dir_modes.insert(path.clone(), *mode);
    }
    if compare(present, wanted) != Same::No {
        return;
    }
    match wanted {
        Some(Thing::File { mode, id, .. }) => {
            let executable = mode & 0o100 != 0;
            let kind = if executable { EntryKind::Executable } else { EntryKind::File };
            let entry = Entry { kind, id: *id };
            request.wanted.insert(path, Wanted::Entry { entry, mode: *mode });
        }
        Some(Thing::Link(id)) => {
            let entry = Entry { kind: EntryKind::Symlink, id: *id };
            request.wanted.insert(path, Wanted::Entry { entry, mode: 0 });
        }
        Some(Thing::Dir(mode)) => match present {
            Some(Thing::Dir(from)) => {
                request.modes.push(ModeChange::of_dir(path, *from, *mode));
            }
            there => {
                if there.is_some_and(is_leaf) {
                    request.wanted.insert(path.clone(), Wanted::Absent);
                }
                request.dirs.insert(path, *mode);
            }
        },
        None => match present {
            Some(Thing::Dir(_)) => drop(request.emptied.insert(path)),
            Some(_) => drop(request.wanted.insert(path, Wanted::Absent)),
            None => (),
        },
        // Neither is ever wanted: a repository is not written, nor is a root with a left-out
        // object.
        Some(Thing::Repository | Thing::LeftOut { .. }) => (),
    }
}
