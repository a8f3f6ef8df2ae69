//! Planning: computes the actions from the present state to a requested one. Changes no files.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Entry, Now, NowAt, entry_kind};
use crate::fs::MODE_BITS;
use crate::git::{Hasher, ObjectId};
use crate::path::{TreePath, is_within, join, split};
use crate::scan::{Content, EntryStat};

/// Requested state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A file or symlink. `mode` holds the permissions of a file.
    Entry { entry: Entry, mode: u32 },
    /// Proven not to have existed.
    Absent,
}

/// All changes that a restore asks for.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) wanted: BTreeMap<Vec<u8>, Wanted>,
    /// Directories that must exist even if they are empty, with their permissions.
    pub(crate) dirs: BTreeMap<Vec<u8>, u32>,
    /// Files and directories of which only the permissions are to change.
    pub(crate) modes: Vec<ModeChange>,
    /// Directories to remove if they end up empty.
    pub(crate) emptied: BTreeSet<Vec<u8>>,
    /// Names in directories of `emptied` that the listing lacks because a scan does not enter them.
    pub(crate) unlisted: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Permissions of directories that have to be created.
    pub(crate) dir_modes: BTreeMap<Vec<u8>, u32>,
    pub(crate) common_dir_mode: u32,
    /// Paths that are already known to be left alone.
    pub(crate) kept: Vec<Kept>,
    /// Files for which the kernel could not determine whether other processes have them open.
    pub(crate) not_checked: Vec<Vec<u8>>,
}

/// A change of permissions only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange {
    pub(crate) path: Vec<u8>,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) is_dir: bool,
}

/// Reason why a path is left alone or not restored exactly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum KeptReason {
    /// The snapshot does not have it. Only `exact` removes such files.
    CreatedSince,
    /// The path was ignored when the snapshot was taken, so it may have existed.
    IgnoredThen,
    /// The path was skipped when the snapshot was taken, so it may have existed.
    SkippedThen {
        /// Why it was skipped.
        why: String,
    },
    /// There is no record of what the snapshot covered, so no path is proven absent.
    NoRecord,
    /// The snapshot was recorded elsewhere with private ignore rules, which may have covered it.
    RulesUnknown,
    /// The present content could not be saved first.
    CannotBeSaved {
        /// Why it could not be saved.
        why: String,
    },
    /// A directory in its place holds files that no snapshot has.
    DirectoryInTheWay,
    /// There is a file where its directory was, and the request does not include that file.
    FileInTheWay,
    /// Its directory is read-only and belongs to another user.
    ReadOnlyDirectory,
    /// Another process has it open.
    InUse {
        /// The process, if it is known.
        process: Option<String>,
    },
    /// It belongs to a database whose other files cannot be restored to the same recorded state.
    Unit {
        /// The database.
        of: String,
    },
    /// It is a PID file, and its number may belong to another process by now.
    ProcessFile,
    /// It was a hard link and became a separate file, because not all of its links change alike.
    Separated,
    /// The request wants a file here and another one below it.
    Contradiction,
    /// It was restored without its set-user-id or set-group-id bit, which the user may not set.
    SpecialBitsDropped,
}

impl KeptReason {
    /// Returns a short, stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            KeptReason::CreatedSince => "created_since",
            KeptReason::IgnoredThen => "ignored_then",
            KeptReason::SkippedThen { .. } => "skipped_then",
            KeptReason::NoRecord => "no_record",
            KeptReason::RulesUnknown => "rules_unknown",
            KeptReason::CannotBeSaved { .. } => "cannot_be_saved",
            KeptReason::DirectoryInTheWay => "directory_in_the_way",
            KeptReason::FileInTheWay => "file_in_the_way",
            KeptReason::ReadOnlyDirectory => "read_only_directory",
            KeptReason::InUse { .. } => "in_use",
            KeptReason::Unit { .. } => "unit",
            KeptReason::ProcessFile => "process_file",
            KeptReason::Separated => "separated",
            KeptReason::Contradiction => "contradiction",
            KeptReason::SpecialBitsDropped => "special_bits_dropped",
        }
    }

    /// Returns whether the request is not fully met because of it.
    pub fn is_failure(&self) -> bool {
        match self {
            KeptReason::CreatedSince
            | KeptReason::IgnoredThen
            | KeptReason::ProcessFile
            | KeptReason::Separated => false,
            KeptReason::SkippedThen { .. }
            | KeptReason::NoRecord
            | KeptReason::RulesUnknown
            | KeptReason::CannotBeSaved { .. }
            | KeptReason::DirectoryInTheWay
            | KeptReason::FileInTheWay
            | KeptReason::ReadOnlyDirectory
            | KeptReason::InUse { .. }
            | KeptReason::Unit { .. }
            | KeptReason::Contradiction
            | KeptReason::SpecialBitsDropped => true,
        }
    }

    /// Returns a one-line description for users.
    pub fn describe(&self) -> String {
        match self {
            KeptReason::CreatedSince => "created since the snapshot".into(),
            KeptReason::IgnoredThen => "was ignored when the snapshot was taken".into(),
            KeptReason::SkippedThen { why } => format!("was not captured then: {why}"),
            KeptReason::NoRecord => "nothing records what the snapshot covered".into(),
            KeptReason::RulesUnknown => {
                "may have been ignored by private rules of the machine that recorded the snapshot"
                    .into()
            }
            KeptReason::CannotBeSaved { why } => format!("cannot be saved first: {why}"),
            KeptReason::DirectoryInTheWay => {
                "a directory in its place holds files that no snapshot has".into()
            }
            KeptReason::FileInTheWay => "a file stands where its directory was".into(),
            KeptReason::ReadOnlyDirectory => {
                "its directory cannot be written and belongs to another user".into()
            }
            KeptReason::InUse { process: Some(process) } => {
                format!("{process} has it open; stop it, or pass --force")
            }
            KeptReason::InUse { process: None } => {
                "another process has it open; stop it, or pass --force".into()
            }
            KeptReason::Unit { of } => {
                format!("it belongs to the database {of}, which stays as it is")
            }
            KeptReason::ProcessFile => {
                "a pid file; its number may belong to another process by now".into()
            }
            KeptReason::Separated => "put back as a file of its own; it was a hard link".into(),
            KeptReason::Contradiction => {
                "both a file and a directory are to come back there".into()
            }
            KeptReason::SpecialBitsDropped => {
                "put back without its set-user-id or set-group-id bit, which you may not set".into()
            }
        }
    }
}

/// A path that is left alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// The path.
    pub path: TreePath,
    /// The reason.
    pub reason: KeptReason,
}

/// An action of a plan on one path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Creates a file or link.
    Create {
        /// The path.
        path: TreePath,
    },
    /// Replaces a file, symlink or directory.
    Overwrite {
        /// The path.
        path: TreePath,
    },
    /// Removes a file or link.
    Remove {
        /// The path.
        path: TreePath,
    },
    /// Changes only the permissions.
    SetMode {
        /// The path.
        path: TreePath,
        /// The new permissions.
        mode: u32,
    },
    /// Creates an empty directory.
    CreateDirectory {
        /// The path.
        path: TreePath,
    },
    /// Removes a directory that becomes empty.
    RemoveDirectory {
        /// The path.
        path: TreePath,
    },
}

impl Action {
    /// Returns the path that it changes.
    pub fn path(&self) -> &TreePath {
        match self {
            Action::Create { path }
            | Action::Overwrite { path }
            | Action::Remove { path }
            | Action::SetMode { path, .. }
            | Action::CreateDirectory { path }
            | Action::RemoveDirectory { path } => path,
        }
    }
}

/// The exact actions of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One entry per path, sorted.
    pub actions: Vec<Action>,
    /// Paths of the request that are left alone, with the reasons.
    pub kept: Vec<Kept>,
    /// Files for which the kernel could not determine whether other processes have them open.
    pub not_checked: Vec<TreePath>,
    /// Hash of the paths with their present and new states, which identifies the plan.
    pub hash: ObjectId,
    /// The number of files that it removes and the number of all files, if the share is unusual.
    pub mass_removal: Option<(u64, u64)>,
    pub(crate) units: Vec<Unit>,
    pub(crate) modes: Vec<PlannedMode>,
    pub(crate) emptied: Vec<Vec<u8>>,
    /// Groups of units, by index, that become hard links to one file again.
    pub(crate) links: Vec<Vec<usize>>,
    /// Whether files that another process has open for writing are replaced too.
    pub(crate) replaces_used: bool,
}

impl Plan {
    /// Returns whether it does everything that was requested.
    pub fn is_complete(&self) -> bool {
        !self.kept.iter().any(|kept| kept.reason.is_failure())
    }

    /// Returns whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Returns the blobs that it needs.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.units.iter().flat_map(|unit| match &unit.new {
            Some(NewThing::Leaf { entry, .. }) => vec![entry.id],
            Some(NewThing::Dir { files, .. }) => {
                files.iter().map(|(_, entry, _)| entry.id).collect()
            }
            None => Vec::new(),
        })
    }

    /// Returns the number of files that it removes.
    pub fn removed_files(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Remove { .. })).count()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedMode {
    pub(crate) path: Vec<u8>,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) is_dir: bool,
    /// Identifies the other hard links to a file, which change with it.
    pub(crate) inode: Option<u64>,
}

/// One rename of the plan, in a directory that exists and stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) path: Vec<u8>,
    pub(crate) new: Option<NewThing>,
    pub(crate) old: Option<OldThing>,
}

/// New content of a unit's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewThing {
    Leaf {
        entry: Entry,
        mode: u32,
    },
    /// A directory with everything in it. Paths are relative to it, parents first.
    Dir {
        mode: u32,
        dirs: Vec<(Vec<u8>, u32)>,
        files: Vec<(Vec<u8>, Entry, u32)>,
    },
}

/// Present content of a unit's path, which the safety snapshot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OldThing {
    Leaf {
        entry: Entry,
        stat: EntryStat,
        /// Whether the metadata is too recent to prove the content.
        racy: bool,
    },
    /// A directory with everything in it. Paths are relative to it.
    Dir { inode: u64, files: Vec<(Vec<u8>, Entry, EntryStat, bool)>, dirs: Vec<Vec<u8>> },
}

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

    fn modes(&mut self) -> Vec<PlannedMode> {
        let mut modes = Vec::new();
        for (path, wanted) in &self.request.wanted {
            if let Wanted::Entry { entry, mode } = wanted
                && let NowAt::File { stat, entry: there, .. } = self.now.at(path)
                && there.is_same_content(entry)
                && entry.kind.is_file()
                && stat.mode & MODE_BITS != *mode
                && !self.units.contains_key(path)
            {
                let from = stat.mode & MODE_BITS;
                let (path, inode) = (path.clone(), Some(stat.inode));
                modes.push(PlannedMode { path, from, to: *mode, is_dir: false, inode });
            }
        }
        for ModeChange { path, from, to, is_dir } in &self.request.modes {
            let goes = Action::RemoveDirectory { path: tree_path(path) };
            if !self.is_replaced(path)
                && !self.request.wanted.contains_key(path)
                && !self.actions.contains(&goes)
            {
                self.actions.push(Action::SetMode { path: tree_path(path), mode: *to });
                let inode = if *is_dir { None } else { self.inode_of(path) };
                let (path, is_dir) = (path.clone(), *is_dir);
                modes.push(PlannedMode { path, from: *from, to: *to, is_dir, inode });
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
    fn note_linked_modes(&mut self, modes: &[PlannedMode]) {
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
fn plan_hash(units: &[Unit], modes: &[PlannedMode], emptied: &[Vec<u8>]) -> ObjectId {
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
    for PlannedMode { path, from, to, .. } in modes {
        put(path);
        put(&[from.to_le_bytes(), to.to_le_bytes()].concat());
    }
    emptied.iter().for_each(|path| put(path));
    hasher.finish().unwrap_or(ObjectId::NULL)
}
