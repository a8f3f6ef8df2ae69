//! Planning: a request and the present state → the actions that carry it out.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Entry, Now, NowAt, entry_kind};
use crate::fs::MODE_BITS;
use crate::git::{Hasher, ObjectId};
use crate::path::{TreePath, is_within, join, split};
use crate::scan::{Content, EntryStat};

use super::plan::{
    Action, Kept, KeptReason, ModeChange, NewThing, OldThing, Plan, Request, Unit, Wanted,
};

/// Returns everything below a directory, if the safety snapshot holds all of it.
fn saved_below(now: &Now<'_>, path: &[u8]) -> Option<OldThing> {
    let start = now.listing.dirs.partition_point(|dir| dir.path.as_slice() < path);
    let within = now.listing.dirs[start..].iter().filter(|dir| is_within(&dir.path, path));
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    let relative = |full: &[u8]| full[path.len() + 1..].to_vec();
    let mut entered = BTreeSet::new();
    let mut seen = Vec::new();
    for dir in within {
        entered.insert(dir.path.clone());
        for entry in &dir.entries {
            let full = join(&dir.path, &entry.name);
            match &entry.content {
                Content::Known(id) => {
                    let kind = entry_kind(&entry.stat)?;
                    let there = Entry { kind, id: *id };
                    files.push((relative(&full), there, entry.stat, entry.racy));
                }
                Content::Directory => {
                    dirs.push(relative(&full));
                    seen.push(full);
                }
                _ => match now.forced.get(&full) {
                    Some((stat, entry)) => files.push((relative(&full), *entry, *stat, true)),
                    None => return None,
                },
            }
        }
    }
    // A directory that was not entered may hold other files.
    let complete = entered.contains(path) && seen.iter().all(|dir| entered.contains(dir));
    let inode = now.dir(path)?.stat.inode;
    complete.then_some(OldThing::Dir { inode, files, dirs })
}

/// Returns the plan that turns `now` into the state that `request` asks for.
pub(crate) fn plan(now: &Now<'_>, request: &Request) -> Plan {
    let mut planner = Planner {
        now,
        request,
        dirs: BTreeSet::from([Vec::new()]),
        made: BTreeSet::new(),
        units: BTreeMap::new(),
        actions: Vec::new(),
        kept: request.kept.clone(),
        left: contradictions(request),
    };
    for path in planner.left.clone() {
        planner.keep(&path, KeptReason::Contradiction);
    }
    for (path, wanted) in &request.wanted {
        if let Wanted::Entry { entry, mode } = wanted
            && !planner.left.contains(path)
        {
            planner.entry(path, *entry, *mode);
        }
    }
    for (path, mode) in &request.dirs {
        planner.directory(path, *mode);
    }
    for (path, wanted) in &request.wanted {
        if *wanted == Wanted::Absent {
            planner.absence(path);
        }
    }
    planner.removed_dirs();
    let modes = planner.modes();
    let links = planner.links();
    let Planner { units, mut actions, mut kept, .. } = planner;
    actions
        .sort_unstable_by(|one, other| one.path().cmp(other.path()).then_with(|| one.cmp(other)));
    kept.sort_unstable();
    kept.dedup();
    let units: Vec<Unit> = units.into_values().collect();
    // An ignored directory that is already empty is in no snapshot, so it could not be restored.
    let is_left = |dir: &Vec<u8>| units.iter().any(|unit| is_within(&unit.path, dir));
    let emptied = request.emptied.iter().filter(|dir| now.dir(dir).is_some() || is_left(dir));
    // Deepest first, so that subdirectories are removed before their parents.
    let emptied: Vec<Vec<u8>> = emptied.rev().cloned().collect();
    let hash = plan_hash(&units, &modes, &emptied);
    let place = |path: &Vec<u8>| units.binary_search_by(|unit| unit.path.cmp(path)).ok();
    let links = links.iter().map(|group| group.iter().filter_map(place).collect()).collect();
    let not_checked = request.not_checked.iter().map(|path| tree_path(path)).collect();
    let replaces_used = false;
    let mass_removal = None;
    Plan {
        actions,
        kept,
        not_checked,
        hash,
        mass_removal,
        units,
        modes,
        emptied,
        links,
        relinked: Vec::new(),
        unlinked: Vec::new(),
        replaces_used,
    }
}

struct Planner<'a> {
    now: &'a Now<'a>,
    request: &'a Request,
    /// Directories on disk that stay.
    dirs: BTreeSet<Vec<u8>>,
    /// Directories inside units that will be created.
    made: BTreeSet<Vec<u8>>,
    units: BTreeMap<Vec<u8>, Unit>,
    actions: Vec<Action>,
    kept: Vec<Kept>,
    /// Paths that are left alone, with everything below them.
    left: BTreeSet<Vec<u8>>,
}

/// Returns the files that the request wants at a path and at one above it, which is impossible.
fn contradictions(request: &Request) -> BTreeSet<Vec<u8>> {
    let is_file = |path: &[u8]| matches!(request.wanted.get(path), Some(Wanted::Entry { .. }));
    let mut found = BTreeSet::new();
    for path in request.wanted.keys().filter(|path| is_file(path)) {
        let mut above = split(path).0;
        while !above.is_empty() {
            if is_file(above) {
                found.insert(above.to_vec());
                found.insert(path.clone());
            }
            above = split(above).0;
        }
    }
    found
}

fn tree_path(path: &[u8]) -> TreePath {
    TreePath::from_scan(path.to_vec())
}

impl Planner<'_> {
    fn keep(&mut self, path: &[u8], reason: KeptReason) {
        self.kept.push(Kept { path: tree_path(path), reason });
    }

    /// Returns the topmost part of `path` that is not a directory on disk, if there is one.
    fn first_missing(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let part = &path[..end];
            if self.dirs.contains(part) {
                continue;
            }
            if self.now.at(part) != NowAt::Dir {
                return Some(part.to_vec());
            }
            self.dirs.insert(part.to_vec());
        }
        None
    }

    fn entry(&mut self, path: &[u8], entry: Entry, mode: u32) {
        let parent = split(path).0;
        let top = if parent.is_empty() { None } else { self.first_missing(parent) };
        if let Some(top) = top {
            let mode_of_entry = mode;
            return self.below(&top, path, |new, relative| {
                if let NewThing::Dir { files, .. } = new {
                    files.push((relative, entry, mode_of_entry));
                }
            });
        }
        let new = Some(NewThing::Leaf { entry, mode });
        let old = match self.now.at(path) {
            NowAt::Nothing => None,
            NowAt::File { entry: there, stat, .. } if there.is_same_content(&entry) => {
                return self.mode_only(path, &stat, entry, mode);
            }
            NowAt::File { stat, entry: there, racy } => {
                Some(OldThing::Leaf { entry: there, stat, racy })
            }
            NowAt::Dir => match self.replaceable(path) {
                Some(old) => Some(old),
                None => {
                    // Its contents stay too.
                    self.left.insert(path.to_vec());
                    return self.keep(path, KeptReason::DirectoryInTheWay);
                }
            },
            NowAt::Unsaved(why) => return self.keep(path, KeptReason::CannotBeSaved { why }),
        };
        let path_text = tree_path(path);
        self.actions.push(match old {
            None => Action::Create { path: path_text },
            Some(_) => Action::Overwrite { path: path_text },
        });
        self.units.insert(path.to_vec(), Unit { path: path.to_vec(), new, old });
    }

    /// Returns a directory that may be replaced, because all its files are saved and to be removed.
    /// Adds their removal to the actions.
    fn replaceable(&mut self, path: &[u8]) -> Option<OldThing> {
        let old = saved_below(self.now, path)?;
        let OldThing::Dir { files, .. } = &old else { return None };
        let full = |file: &[u8]| join(path, file);
        let goes = |file: &[u8]| self.request.wanted.get(&full(file)) == Some(&Wanted::Absent);
        if !files.iter().all(|(file, _, _, _)| goes(file)) {
            return None;
        }
        let removals =
            files.iter().map(|(file, _, _, _)| Action::Remove { path: tree_path(&full(file)) });
        self.actions.extend(removals);
        Some(old)
    }

    /// Adds `path` to the directory that will be created at `top`.
    fn below(&mut self, top: &[u8], path: &[u8], put: impl FnOnce(&mut NewThing, Vec<u8>)) {
        let old = match self.now.at(top) {
            NowAt::Nothing => None,
            NowAt::File { stat, entry, racy } => {
                // Only a file that is to be removed may be replaced by a directory.
                if self.request.wanted.get(top) != Some(&Wanted::Absent) {
                    return self.keep(path, KeptReason::FileInTheWay);
                }
                Some(OldThing::Leaf { entry, stat, racy })
            }
            NowAt::Unsaved(why) => return self.keep(path, KeptReason::CannotBeSaved { why }),
            NowAt::Dir => return self.keep(path, KeptReason::DirectoryInTheWay),
        };
        let made = |request: &Request, dir: &[u8]| {
            request.dir_modes.get(dir).copied().unwrap_or(request.common_dir_mode)
        };
        if !self.units.contains_key(top) && old.is_some() {
            self.actions.push(Action::Overwrite { path: tree_path(top) });
        }
        let request = self.request;
        let unit = self.units.entry(top.to_vec()).or_insert_with(|| Unit {
            path: top.to_vec(),
            new: Some(NewThing::Dir { mode: made(request, top), dirs: vec![], files: vec![] }),
            old,
        });
        let Some(NewThing::Dir { dirs, .. }) = &mut unit.new else { return };
        // All directories between the top and the path, parents first.
        let parent = split(path).0;
        let mut dir = parent;
        let mut missing = Vec::new();
        while dir.len() > top.len() {
            missing.push(dir);
            dir = split(dir).0;
        }
        for dir in missing.into_iter().rev() {
            if self.made.insert(dir.to_vec()) {
                dirs.push((dir[top.len() + 1..].to_vec(), made(request, dir)));
            }
        }
        if path.len() > top.len()
            && let Some(new) = &mut unit.new
        {
            put(new, path[top.len() + 1..].to_vec());
        }
        self.actions.push(Action::Create { path: tree_path(path) });
    }

    fn directory(&mut self, path: &[u8], mode: u32) {
        let Some(top) = self.first_missing(path) else { return };
        if matches!(self.now.at(&top), NowAt::File { .. }) && self.units.contains_key(&top) {
            // The unit at `top` is a file that the snapshot wants there.
            let is_dir = self
                .units
                .get(&top)
                .is_some_and(|unit| matches!(unit.new, Some(NewThing::Dir { .. })));
            if !is_dir {
                return;
            }
        }
        if self.made.contains(path) {
            return;
        }
        let before = self.actions.len();
        self.below(&top, path, |new, relative| {
            if let NewThing::Dir { dirs, .. } = new {
                dirs.push((relative, mode));
            }
        });
        self.made.insert(path.to_vec());
        // `below` adds actions for files, but this path is a directory.
        for action in &mut self.actions[before..] {
            if let Action::Create { path } = action {
                *action = Action::CreateDirectory { path: path.clone() };
            }
        }
        if top == path
            && let Some(Unit { new: Some(NewThing::Dir { mode: made, .. }), .. }) =
                self.units.get_mut(&top)
        {
            *made = mode;
        }
    }

    fn absence(&mut self, path: &[u8]) {
        let is_left = self.left.iter().any(|left| is_within(path, left));
        if self.is_replaced(path) || is_left {
            return;
        }
        let NowAt::File { stat, entry, racy } = self.now.at(path) else { return };
        self.actions.push(Action::Remove { path: tree_path(path) });
        let unit = Unit {
            path: path.to_vec(),
            new: None,
            old: Some(OldThing::Leaf { entry, stat, racy }),
        };
        self.units.insert(path.to_vec(), unit);
    }

    /// Returns groups of hard links to one file that get the same new content, so that they can be
    /// hard links again. Reports other hard links that change as separated.
    fn links(&mut self) -> Vec<Vec<Vec<u8>>> {
        let mut names: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
        for path in &self.now.listing.linked {
            if let NowAt::File { stat, .. } = self.now.at(path) {
                names.entry(stat.inode).or_default().push(path);
            }
        }
        let mut groups = Vec::new();
        for names in names.into_values() {
            let new = |path: &&Vec<u8>| self.units.get(*path).map(|unit| unit.new.as_ref());
            let changed: Vec<&Vec<u8>> =
                names.iter().filter(|path| matches!(new(path), Some(Some(_)))).copied().collect();
            let Some(first) = changed.first() else { continue };
            // A link that is removed does not matter. One that stays unchanged would differ.
            let is_whole = names.iter().all(|path| match new(path) {
                None => false,
                Some(None) => true,
                Some(wanted) => wanted == new(first).flatten(),
            });
            match is_whole {
                true if changed.len() > 1 => groups.push(changed.into_iter().cloned().collect()),
                true => (),
                false => changed.iter().for_each(|path| {
                    let (path, reason) = (tree_path(path), KeptReason::Separated);
                    self.kept.push(Kept { path, reason });
                }),
            }
        }
        groups
    }

    /// Adds the removal of the requested directories that will be empty. Checks the deepest first,
    /// because a directory may become empty by the removal of others.
    fn removed_dirs(&mut self) {
        let mut removed: BTreeSet<&Vec<u8>> = BTreeSet::new();
        let filled = self.units.values().filter(|unit| unit.new.is_some());
        let filled: BTreeSet<&[u8]> = filled.map(|unit| split(&unit.path).0).collect();
        for dir in self.request.emptied.iter().rev() {
            let goes = |name: &[u8]| {
                let path = join(dir, name);
                let unit = self.units.get(&path);
                removed.contains(&path) || unit.is_some_and(|unit| unit.new.is_none())
            };
            let all_go = match (self.now.dir(dir), self.request.unlisted.get(dir)) {
                (Some(listed), _) => listed.entries.iter().all(|entry| goes(&entry.name)),
                (None, Some(names)) => names.iter().all(|name| goes(name)),
                (None, None) => continue,
            };
            let is_empty = all_go && !filled.contains(dir.as_slice());
            if is_empty && !self.is_replaced(dir) {
                removed.insert(dir);
            }
        }
        let action = |dir: &Vec<u8>| Action::RemoveDirectory { path: tree_path(dir) };
        self.actions.extend(removed.into_iter().map(action));
    }

    /// Returns whether a unit changes the path, or replaces a directory above it.
    fn is_replaced(&self, path: &[u8]) -> bool {
        let mut part = path;
        while !part.is_empty() {
            if self.units.contains_key(part) {
                return true;
            }
            part = split(part).0;
        }
        false
    }

    fn mode_only(&mut self, path: &[u8], stat: &EntryStat, entry: Entry, mode: u32) {
        if entry.kind.is_file() && stat.mode & MODE_BITS != mode {
            self.actions.push(Action::SetMode { path: tree_path(path), mode });
        }
    }

    fn modes(&mut self) -> Vec<ModeChange> {
        let mut modes = Vec::new();
        for (path, wanted) in &self.request.wanted {
            if let Wanted::Entry { entry, mode } = wanted
                && let NowAt::File { stat, entry: there, .. } = self.now.at(path)
                && there.is_same_content(entry)
                && entry.kind.is_file()
                && stat.mode & MODE_BITS != *mode
                && !self.units.contains_key(path)
            {
                let change = ModeChange::of_file(path.clone(), stat.mode & MODE_BITS, *mode);
                modes.push(ModeChange { inode: Some(stat.inode), ..change });
            }
        }
        for change in &self.request.modes {
            let path = &change.path;
            let goes = Action::RemoveDirectory { path: tree_path(path) };
            if !self.is_replaced(path)
                && !self.request.wanted.contains_key(path)
                && !self.actions.contains(&goes)
            {
                self.actions.push(Action::SetMode { path: tree_path(path), mode: change.to });
                let inode = if change.is_dir { None } else { self.inode_of(path) };
                modes.push(ModeChange { inode, ..change.clone() });
            }
        }
        self.note_linked_modes(&modes);
        modes
    }

    /// Returns the inode of a file, which may be an ignored one.
    fn inode_of(&self, path: &[u8]) -> Option<u64> {
        let (dir, name) = split(path);
        let entries = &self.now.dir(dir)?.entries;
        Some(entries.iter().find(|entry| *entry.name == *name)?.stat.inode)
    }

    /// Reports the other hard links to files whose permissions change, because they change too.
    fn note_linked_modes(&mut self, modes: &[ModeChange]) {
        for mode in modes.iter().filter(|mode| !mode.is_dir) {
            let linked = &self.now.listing.linked;
            if !linked.contains(&mode.path) {
                continue;
            }
            let inode = mode.inode;
            let same =
                |path: &&Vec<u8>| self.inode_of(path) == inode && !self.units.contains_key(*path);
            for path in linked.iter().filter(same).collect::<Vec<_>>() {
                let action = Action::SetMode { path: tree_path(path), mode: mode.to };
                if !self.actions.contains(&action) {
                    self.actions.push(action);
                }
            }
        }
    }
}

/// Returns a hash of only the planned paths, their expected states and their new states.
fn plan_hash(units: &[Unit], modes: &[ModeChange], emptied: &[Vec<u8>]) -> ObjectId {
    let mut hasher = Hasher::raw();
    let mut put = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let leaf = |put: &mut dyn FnMut(&[u8]), entry: &Entry, mode: u32| {
        put(entry.kind.mode().as_bytes());
        put(entry.id.as_bytes());
        put(&mode.to_le_bytes());
    };
    for unit in units {
        put(&unit.path);
        match &unit.old {
            None => put(b"nothing"),
            Some(OldThing::Leaf { entry, stat, .. }) => leaf(&mut put, entry, stat.mode),
            Some(OldThing::Dir { files, .. }) => {
                for (path, entry, stat, _) in files {
                    put(path);
                    leaf(&mut put, entry, stat.mode);
                }
            }
        }
        match &unit.new {
            None => put(b"nothing"),
            Some(NewThing::Leaf { entry, mode }) => leaf(&mut put, entry, *mode),
            Some(NewThing::Dir { files, dirs, .. }) => {
                for (path, entry, mode) in files {
                    put(path);
                    leaf(&mut put, entry, *mode);
                }
                dirs.iter().for_each(|(path, _)| put(path));
            }
        }
    }
    for ModeChange { path, from, to, .. } in modes {
        put(path);
        put(&[from.to_le_bytes(), to.to_le_bytes()].concat());
    }
    emptied.iter().for_each(|path| put(path));
    hasher.finish().unwrap_or(ObjectId::NULL)
}
