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
mod merging;
mod planning;
mod putting_back;
mod reader;
mod report;
mod state;

use std::path::{Path, PathBuf};

use crate::error::{Error, RestoreError};
use crate::fs::absolute;
use crate::pack::PackWriter;
use crate::path::is_in_repository;
use crate::record::{HashOnly, StoreKeep};

use capture::Capture;
use planning::plan_captures;
use reader::{Budget, Reader};

pub use report::{OutsideAction, OutsideChange, OutsideKept, RecoveredRepository};

pub(crate) use capture::{Captured, Outside};
pub(crate) use planning::{How, OutsidePlan};
pub(crate) use putting_back::Finished;

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
    /// Plans to restore captures, named by their steps or undos, oldest first.
    pub(crate) fn plan(
        &self,
        of: &[String],
        how: &How,
        purpose: Purpose,
    ) -> Result<Prepared, Error> {
        let mut taken: Vec<Capture> = Vec::new();
        for name in of {
            taken.extend(self.load(name)?);
        }
        if taken.is_empty() {
            return Ok(Prepared::default());
        }
        let pack = self.pack();
        let storing = StoreKeep::new(self.store, &pack);
        let keep: &dyn crate::scan::Keep = match purpose {
            Purpose::Preview => &HashOnly,
            Purpose::PutBack => &storing,
        };
        let mut reader = Reader { keep, budget: Budget::present(), omit: &self.omit };
        let plan = plan_captures(self, &taken, &mut reader, how)?;
        Ok(Prepared { plan, pack: (purpose == Purpose::PutBack).then_some(pack) })
    }

    /// Returns whether an unfinished restore left a journal.
    pub(crate) fn is_interrupted(&self) -> Result<bool, Error> {
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "journal");
        Ok(self.files()?.iter().any(is_journal))
    }
}

/// Refuses a destination in the directory of a version control system, even through a symlink.
pub(crate) fn check_place(path: &Path) -> Result<(), Error> {
    if is_in_repository(&absolute(path)) {
        Err(Error::Restore(RestoreError::InsideRepository { path: path.to_owned() }))
    } else {
        Ok(())
    }
}
