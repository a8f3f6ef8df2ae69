//! Paths outside of the work tree that a step names: captured before it runs, put back when asked.
//!
//! A *root* is a path that a tool named, in a directory that exists. It is captured with everything
//! below it, bounded, and goes back whole or not at all. What a capture leaves out is part of it,
//! so that it is never taken for absent. The directory of a version control system is a root of its
//! own that is captured and never written; [`Outside::write_repository`] copies it elsewhere.
//!
//! Putting a root back is a [`restore`](crate::restore) plan in the directory that holds it, with a
//! journal of its own. The state that it replaces becomes a capture like that of a step, which is
//! what redo takes back.

mod capture;
mod planning;
mod putting_back;
mod state;

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::git::ObjectId;
use crate::log::WorkTree;
use crate::pack::PackWriter;
use crate::record::HashOnly;
use crate::store::Store;

use capture::{Capture, Captures};
use planning::plan_captures;
use state::{Budget, Reader, Storing};

pub(crate) use planning::OutsidePlan;
pub(crate) use putting_back::Finished;

/// A path outside of the work tree that a step changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideChange {
    /// The path that goes back whole or not at all.
    pub root: PathBuf,
    /// The path itself.
    pub path: PathBuf,
    /// What putting it back does or did; `None` if it stays whatever is asked for.
    pub action: Option<OutsideAction>,
    /// Why it stays as it is; `None` if it is put back.
    pub kept: Option<OutsideKept>,
}

/// What putting a path back does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideAction {
    /// Creates a file or link.
    Create,
    /// Replaces what is there.
    Overwrite,
    /// Removes a file, link or empty directory.
    Remove,
    /// Changes permissions and nothing else.
    SetMode {
        /// The new permissions.
        mode: u32,
    },
    /// Creates an empty directory.
    CreateDirectory,
}

/// Why a path outside of the work tree stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutsideKept {
    /// It was not asked for.
    NotAsked,
    /// It was changed since the step.
    ChangedSince,
    /// It was not captured before or after the step.
    NotCaptured {
        /// Why not.
        why: String,
    },
    /// What is there now cannot be saved first.
    CannotBeSaved {
        /// Why not.
        why: String,
    },
    /// It belongs to a version control system.
    Repository,
    /// Another process has it open.
    InUse {
        /// The process, if its name is known.
        process: Option<String>,
    },
    /// It holds the only copy of something that the same undo does not bring back.
    OtherHalf,
    /// It is a database whose log lies beside it and was not captured with it.
    Unit,
    /// Putting it back failed, and nothing was changed.
    Failed {
        /// Why.
        why: String,
    },
}

impl OutsideKept {
    /// One line for people.
    pub fn describe(&self) -> String {
        match self {
            OutsideKept::NotAsked => "not asked for".into(),
            OutsideKept::ChangedSince => "it was changed since".into(),
            OutsideKept::NotCaptured { why } => format!("it was not captured: {why}"),
            OutsideKept::CannotBeSaved { why } => format!("it cannot be saved first: {why}"),
            OutsideKept::Repository => "a repository's own directory is never written".into(),
            OutsideKept::InUse { process: Some(process) } => format!("{process} has it open"),
            OutsideKept::InUse { process: None } => "another process has it open".into(),
            OutsideKept::OtherHalf => {
                "it holds the only copy of something that does not come back".into()
            }
            OutsideKept::Unit => "it is a database, and its log was not captured with it".into(),
            OutsideKept::Failed { why } => format!("it could not be put back: {why}"),
        }
    }
}

/// The directory of a version control system that was written to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRepository {
    /// Where it was.
    pub from: PathBuf,
    /// Where it is now.
    pub into: PathBuf,
    /// When it was captured, in milliseconds since 1970.
    pub at_millis: u64,
    /// How many files were written.
    pub files: u64,
    /// Paths below `from` that the capture does not have, each with the reason.
    pub missing: Vec<(PathBuf, String)>,
}

/// The captures of one work tree, and what can be done with them. The caller holds its lock.
pub(crate) struct Outside<'a> {
    pub(crate) store: &'a Store,
    pub(crate) work_tree: &'a WorkTree,
    /// The work tree, then the directories of ours: nothing of them is captured.
    pub(crate) omit: Vec<PathBuf>,
    /// Free space that must remain where the store is.
    pub(crate) min_free_bytes: u64,
    pub(crate) threads: usize,
}

/// A plan, and the contents that it would replace.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) plan: OutsidePlan,
    /// Absent if nothing was saved, so that the plan is for looking at only.
    pack: Option<PackWriter>,
}

/// How captures are taken back.
#[derive(Default)]
pub(crate) struct How {
    /// Takes the earlier version of paths that were changed since.
    pub(crate) force: bool,
    /// Replaces files that another process has open.
    pub(crate) replace_used: bool,
    /// Contents that the undo removed or overwrote in the work tree and does not bring back.
    pub(crate) unrestored: HashSet<ObjectId>,
}

/// Whether a plan will be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Preview,
    /// What is there is saved while it is read.
    PutBack,
}

impl Outside<'_> {
    fn captures(&self) -> Captures<'_> {
        Captures {
            store: self.store,
            work_tree: self.work_tree,
            omit: &self.omit,
            min_free_bytes: self.min_free_bytes,
        }
    }

    /// Records the state of `paths` before a step changes them, in no more than `time`.
    pub(crate) fn capture(
        &self,
        step: &str,
        paths: &[PathBuf],
        time: Option<Duration>,
    ) -> Result<(), Error> {
        if paths.is_empty() { Ok(()) } else { self.captures().capture(step, paths, time) }
    }

    /// Records the state that a step left. Returns whether it changed something.
    pub(crate) fn settle(&self, step: &str) -> Result<bool, Error> {
        self.captures().settle(step)
    }

    /// Forgets the capture of a step that did not run.
    pub(crate) fn forget_step(&self, step: &str) -> Result<(), Error> {
        self.captures().drop(step)
    }

    /// Removes captures that are too old or too many.
    pub(crate) fn expire(&self) -> Result<(), Error> {
        self.captures().expire()
    }

    /// Removes the captures that hold one of these contents. Returns the commits that kept them.
    pub(crate) fn forget(&self, ids: &dyn Fn(&ObjectId) -> bool) -> Result<Vec<ObjectId>, Error> {
        self.captures().forget(ids)
    }

    /// Plans to take captures back, named by their steps or undos, oldest first.
    pub(crate) fn plan(
        &self,
        of: &[String],
        how: &How,
        purpose: Purpose,
    ) -> Result<Prepared, Error> {
        let captures = self.captures();
        let mut taken: Vec<Capture> = Vec::new();
        for name in of {
            taken.extend(captures.load(name)?);
        }
        if taken.is_empty() {
            return Ok(Prepared::default());
        }
        let pack = captures.pack();
        let storing = Storing { store: self.store, pack: &pack };
        let keep: &dyn crate::scan::Keep = match purpose {
            Purpose::Preview => &HashOnly,
            Purpose::PutBack => &storing,
        };
        let mut reader = Reader { keep, budget: Budget::present(), omit: &self.omit };
        let plan = plan_captures(&captures, &taken, &mut reader, how)?;
        Ok(Prepared { plan, pack: (purpose == Purpose::PutBack).then_some(pack) })
    }

    /// Whether a journal of a restore is left.
    pub(crate) fn is_interrupted(&self) -> Result<bool, Error> {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
        Ok(self.captures().files()?.iter().any(is_journal))
    }
}

/// Refuses a place to write to that lies inside the directory of a version control system, also if
/// a symlink leads there.
pub(crate) fn check_place(path: &Path) -> Result<(), Error> {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |above: &Path| Some(above.canonicalize().ok()?.join(full.strip_prefix(above).ok()?));
    let real = full.ancestors().find_map(real).unwrap_or_else(|| full.clone());
    match capture::is_in_repository(real.as_os_str().as_bytes()) {
        true => Err(Error::InsideRepository { path: path.to_owned() }),
        false => Ok(()),
    }
}
