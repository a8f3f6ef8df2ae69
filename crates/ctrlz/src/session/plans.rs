//! Plans that were shown to the user and can be applied later by their hash.

use serde::{Deserialize, Serialize};

use crate::error::{Error, LookupError};
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::Boundary;
use crate::scan::Progress;
use crate::workspace::Workspace;

use super::choose::UndoScope;
use super::report::{UndoOptions, UndoReport};

/// Number of plans to remember. Older ones are removed.
const MAX_PLANS: usize = 200;

/// A request that can be planned first and applied later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rewind")]
pub enum Rewind {
    /// A call of [`Workspace::undo`].
    Undo {
        /// Steps to undo.
        #[serde(flatten)]
        scope: UndoScope,
        /// Options of the call.
        options: UndoOptions,
    },
    /// A call of [`Workspace::redo`].
    Redo {
        /// Options of the call.
        options: UndoOptions,
    },
    /// A call of [`Workspace::revert_to`].
    RevertTo {
        /// Session to revert.
        session: String,
        /// First message or part to revert.
        boundary: Boundary,
        /// Options of the call.
        options: UndoOptions,
    },
    /// A call of [`Workspace::unrevert`].
    Unrevert {
        /// Session whose revert is reversed.
        session: String,
        /// Options of the call.
        options: UndoOptions,
    },
}

impl Rewind {
    fn options_mut(&mut self) -> &mut UndoOptions {
        match self {
            Rewind::Undo { options, .. }
            | Rewind::Redo { options }
            | Rewind::RevertTo { options, .. }
            | Rewind::Unrevert { options, .. } => options,
        }
    }
}

impl Workspace {
    /// Plans a request without changing files. Pass the plan's hash to [`Workspace::apply`].
    pub fn plan(&self, rewind: &Rewind, progress: &Progress) -> Result<UndoReport, Error> {
        match rewind {
            Rewind::Undo { scope, options } => self.plan_undo(scope, options, progress),
            Rewind::Redo { options } => self.plan_redo(options, progress),
            Rewind::RevertTo { session, boundary, options } => {
                self.plan_revert_to(session, boundary, options, progress)
            }
            Rewind::Unrevert { session, options } => self.plan_unrevert(session, options, progress),
        }
    }

    /// Applies a remembered plan. Fails if the request would now result in a different plan.
    pub fn apply(
        &self,
        plan: &ObjectId,
        allow_mass_removal: bool,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let unknown = || Error::Lookup(LookupError::UnknownPlan { id: *plan });
        let (_, work_tree) = self.existing()?.ok_or_else(unknown)?;
        let path = work_tree.plans_dir().join(plan.to_string());
        let mut rewind: Rewind = private::load_json(&path, 16 << 20)?.ok_or_else(unknown)?;
        let options = rewind.options_mut();
        options.expected_plan = Some(*plan);
        options.allow_mass_removal |= allow_mass_removal;
        match &rewind {
            Rewind::Undo { scope, options } => self.undo(scope, options, progress),
            Rewind::Redo { options } => self.redo(options, progress),
            Rewind::RevertTo { session, boundary, options } => {
                self.revert_to(session, boundary, options, progress)
            }
            Rewind::Unrevert { session, options } => self.unrevert(session, options, progress),
        }
    }
}

/// Stores the request of a plan under the plan's hash.
pub(super) fn remember(
    hold: &Hold,
    rewind: &Rewind,
    report: UndoReport,
) -> Result<UndoReport, Error> {
    let dir = hold.work_tree.plans_dir();
    private::create_dirs(&dir)?;
    private::save_json(&dir.join(report.plan.to_string()), rewind, Durable::No)?;
    // Best effort: surplus plans do no harm.
    drop(forget_old(&dir));
    Ok(report)
}

fn forget_old(dir: &std::path::Path) -> std::io::Result<()> {
    let mut plans = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        plans.push((entry.metadata()?.modified()?, entry.path()));
    }
    plans.sort();
    for (_, path) in plans.iter().rev().skip(MAX_PLANS) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}
