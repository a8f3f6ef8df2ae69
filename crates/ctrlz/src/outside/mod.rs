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

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::git::ObjectId;
use crate::store::{PackWriter, Store, WorkTree};

use capture::{Capture, Captures};
use planning::{OnConflict, plan_captures};
use state::{Budget, Hashing, Reader, Storing};

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
        force: bool,
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
        let on_conflict = if force { OnConflict::TakeTheirs } else { OnConflict::Keep };
        let pack = captures.pack();
        let storing = Storing { store: self.store, pack: &pack };
        let keep: &dyn crate::scan::Keep = match purpose {
            Purpose::Preview => &Hashing,
            Purpose::PutBack => &storing,
        };
        let mut reader = Reader { keep, budget: Budget::present(), omit: &self.omit };
        let plan = plan_captures(&captures, &taken, &mut reader, on_conflict)?;
        Ok(Prepared { plan, pack: (purpose == Purpose::PutBack).then_some(pack) })
    }

    /// Whether a journal of a restore is left.
    pub(crate) fn is_interrupted(&self) -> Result<bool, Error> {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
        Ok(self.captures().files()?.iter().any(is_journal))
    }
}

/// Whether a path leads into the directory of a version control system, or is one.
pub(crate) fn is_in_repository(path: &Path) -> bool {
    capture::is_in_repository(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}
