//! Paths outside of the work tree that a step names: captured before it runs, restored on request.
//!
//! A *root* is a path that a tool named, in a directory that exists. It is captured with everything
//! below it, within limits, and restored completely or not at all. Anything that a capture leaves
//! out is recorded in it, so that it is never taken for absent. The directory of a version control
//! system is a separate root that is never written; [`Outside::write_repository`] copies it
//! elsewhere.
//!
//! A root is restored by a [`restore`](crate::restore) plan in the directory that contains it, with
//! its own journal. The replaced state becomes a capture like that of a step, which redo restores.

mod capture;
mod planning;
mod putting_back;
mod report;
mod state;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, RestoreError};
use crate::git::ObjectId;
use crate::log::WorkTree;
use crate::pack::PackWriter;
use crate::record::HashOnly;
use crate::store::Store;

use capture::{Capture, Captures};
use planning::plan_captures;
use state::{Budget, Reader, Storing};

pub use report::{OutsideAction, OutsideChange, OutsideKept, RecoveredRepository};

pub(crate) use planning::{How, OutsidePlan};
pub(crate) use putting_back::Finished;

/// Captures of one work tree and the operations on them. The caller holds its lock.
pub(crate) struct Outside<'a> {
    pub(crate) store: &'a Store,
    pub(crate) work_tree: &'a WorkTree,
    /// Directories that are not captured: the work tree first, then those of ctrlz.
    pub(crate) omit: Vec<PathBuf>,
    /// Free space to leave on the store's disk.
    pub(crate) min_free_bytes: u64,
    pub(crate) threads: usize,
    /// Whether to ignore captures and journals that ctrlz did not write to their files. They name
    /// directories outside the work tree, and a `git pull` can create files in a store inside it.
    pub(crate) only_originals: bool,
}

/// A plan, with the contents that it would replace.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) plan: OutsidePlan,
    /// Absent if nothing was saved, so that the plan is only a preview.
    pack: Option<PackWriter>,
}

/// Whether a plan will be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Preview,
    /// The present state is saved while it is read.
    PutBack,
}

impl Outside<'_> {
    fn captures(&self) -> Captures<'_> {
        Captures {
            store: self.store,
            work_tree: self.work_tree,
            omit: &self.omit,
            min_free_bytes: self.min_free_bytes,
            only_originals: self.only_originals,
        }
    }

    /// Records the state of `paths` before a step changes them, within `time`.
    pub(crate) fn capture(
        &self,
        step: &str,
        paths: &[PathBuf],
        time: Option<Duration>,
    ) -> Result<(), Error> {
        if paths.is_empty() { Ok(()) } else { self.captures().capture(step, paths, time) }
    }

    /// Records the state after a step. Returns whether it changed something.
    pub(crate) fn settle(&self, step: &str) -> Result<bool, Error> {
        self.captures().settle(step)
    }

    /// Drops the capture of a step that did not run.
    pub(crate) fn forget_step(&self, step: &str) -> Result<(), Error> {
        self.captures().drop(step)
    }

    /// Removes captures that are too old or too large in total.
    pub(crate) fn expire(&self) -> Result<(), Error> {
        self.captures().expire()
    }

    /// Removes the captures that contain one of these blobs. Returns the commits that kept them.
    pub(crate) fn forget(&self, ids: &dyn Fn(&ObjectId) -> bool) -> Result<Vec<ObjectId>, Error> {
        self.captures().forget(ids)
    }

    /// Plans to restore captures, named by their steps or undos, oldest first.
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

    /// Returns whether an unfinished restore left a journal.
    pub(crate) fn is_interrupted(&self) -> Result<bool, Error> {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
        Ok(self.captures().files()?.iter().any(is_journal))
    }
}

/// Refuses a destination in the directory of a version control system, even through a symlink.
pub(crate) fn check_place(path: &Path) -> Result<(), Error> {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |above: &Path| Some(above.canonicalize().ok()?.join(full.strip_prefix(above).ok()?));
    let real = full.ancestors().find_map(real).unwrap_or_else(|| full.clone());
    if capture::is_in_repository(real.as_os_str().as_bytes()) {
        Err(Error::Restore(RestoreError::InsideRepository { path: path.to_owned() }))
    } else {
        Ok(())
    }
}
