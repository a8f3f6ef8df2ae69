//! Plans: a request, the actions that carry it out, and the reasons for paths that stay.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::compare::Entry;
use crate::git::ObjectId;
use crate::log::Moved;
use crate::path::TreePath;
use crate::scan::EntryStat;

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
    /// Files that were hard links to another file, which may still exist or change alike.
    pub(crate) relinked: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Paths that are already known to be left alone.
    pub(crate) kept: Vec<Kept>,
    /// Files for which the kernel could not determine whether other processes have them open.
    pub(crate) not_checked: Vec<Vec<u8>>,
}

/// A change of permissions only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModeChange {
    #[serde(with = "crate::path::text")]
    pub(crate) path: Vec<u8>,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) is_dir: bool,
    /// Inode of a file in a plan. It identifies the other hard links, which change with the file.
    #[serde(skip)]
    pub(crate) inode: Option<u64>,
}

impl ModeChange {
    pub(crate) fn of_file(path: Vec<u8>, from: u32, to: u32) -> ModeChange {
        ModeChange { path, from, to, is_dir: false, inode: None }
    }

    pub(crate) fn of_dir(path: Vec<u8>, from: u32, to: u32) -> ModeChange {
        ModeChange { path, from, to, is_dir: true, inode: None }
    }
}

/// Reason why a path is left alone or not restored exactly. Its text is one line for users.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum KeptReason {
    /// The snapshot does not have it. Only `exact` removes such files.
    #[error("created since the snapshot")]
    CreatedSince,
    /// The path was ignored when the snapshot was taken, so it may have existed.
    #[error("was ignored when the snapshot was taken")]
    IgnoredThen,
    /// The path was skipped when the snapshot was taken, so it may have existed.
    #[error("was not captured then: {why}")]
    SkippedThen {
        /// Why it was skipped.
        why: String,
    },
    /// There is no record of what the snapshot covered, so no path is proven absent.
    #[error("nothing records what the snapshot covered")]
    NoRecord,
    /// The snapshot was recorded elsewhere with private ignore rules, which may have covered it.
    #[error("may have been ignored by private rules of the machine that recorded the snapshot")]
    RulesUnknown,
    /// The present content could not be saved first.
    #[error("cannot be saved first: {why}")]
    CannotBeSaved {
        /// Why it could not be saved.
        why: String,
    },
    /// A directory in its place holds files that no snapshot has.
    #[error("a directory in its place holds files that no snapshot has")]
    DirectoryInTheWay,
    /// There is a file where its directory was, and the request does not include that file.
    #[error("a file stands where its directory was")]
    FileInTheWay,
    /// Its directory is read-only and belongs to another user.
    #[error("its directory belongs to another user, and you may not change the file there")]
    ReadOnlyDirectory,
    /// Another process has it open.
    #[error("{} has it open; stop it, or pass --force", process.as_deref().unwrap_or("another process"))]
    InUse {
        /// The process, if it is known.
        process: Option<String>,
    },
    /// It belongs to a database whose other files cannot be restored to the same recorded state.
    #[error("it belongs to the database {of}, whose files are put back together or not at all")]
    Unit {
        /// The database.
        of: String,
    },
    /// It is a PID file, and its number may belong to another process by now.
    #[error("a pid file; its number may belong to another process by now")]
    ProcessFile,
    /// It was a hard link and became a separate file, because not all of its links change alike.
    #[error("put back as a file of its own; it was a hard link")]
    Separated,
    /// The request wants a file here and another one below it.
    #[error("both a file and a directory are to come back there")]
    Contradiction,
    /// It was restored without its set-user-id or set-group-id bit, which the user may not set.
    #[error("put back without its set-user-id or set-group-id bit, which you may not set")]
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
        !matches!(
            self,
            KeptReason::CreatedSince
                | KeptReason::IgnoredThen
                | KeptReason::ProcessFile
                | KeptReason::Separated
        )
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
    pub(crate) modes: Vec<ModeChange>,
    pub(crate) emptied: Vec<Vec<u8>>,
    /// Groups of units, by index, that become hard links to one file again.
    pub(crate) links: Vec<Vec<usize>>,
    /// Units, by index, that become hard links to an existing file, with its path and inode.
    pub(crate) relinked: Vec<(usize, Vec<u8>, u64)>,
    /// Hard links that are removed, each with another name of the file.
    pub(crate) unlinked: Vec<Moved>,
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

    /// Returns the number of files that it removes and the number of all files, if the share is
    /// unusual: 50 files or more, or at least 10 and more than a fifth.
    pub(super) fn mass_removal_of(&self, files: u64) -> Option<(u64, u64)> {
        let removed = self.removed_files() as u64;
        let is_unusual = removed >= 50 || (removed >= 10 && removed * 5 > files);
        is_unusual.then_some((removed, files))
    }
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
