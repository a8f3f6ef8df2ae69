//! Requests to undo, redo, revert and unrevert, which are planned first or carried out at once.

use serde::{Deserialize, Serialize};

use crate::error::{Error, LookupError, SessionError};
use crate::fs::private::{self, Durable};
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{Boundary, OpenStep};
use crate::record::{Cause, Recorded};
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
    fn options(&self) -> &UndoOptions {
        match self {
            Rewind::Undo { options, .. }
            | Rewind::Redo { options }
            | Rewind::RevertTo { options, .. }
            | Rewind::Unrevert { options, .. } => options,
        }
    }

    fn options_mut(&mut self) -> &mut UndoOptions {
        match self {
            Rewind::Undo { options, .. }
            | Rewind::Redo { options }
            | Rewind::RevertTo { options, .. }
            | Rewind::Unrevert { options, .. } => options,
        }
    }

    /// Fails if the sessions that are rewound have open steps, or closes these steps on request.
    fn check_idle(&self, hold: &Hold) -> Result<(), Error> {
        match self {
            // An undo does not wait for open steps. By default it closes those of the session that
            // began a step last.
            Rewind::Undo { options, .. } if options.interrupt => {
                let newest =
                    || Some(hold.open_steps().ok()?.last()?.info.root_session().to_owned());
                let session = options.session.clone().or_else(newest);
                session.map_or(Ok(()), |session| check_idle(hold, &session, true))
            }
            Rewind::Undo { .. } | Rewind::Redo { .. } => Ok(()),
            Rewind::RevertTo { session, options, .. } | Rewind::Unrevert { session, options } => {
                check_idle(hold, session, options.interrupt)
            }
        }
    }
}

/// A request that is being planned or carried out, with the locks that it holds.
pub(super) struct Rewinding<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) hold: &'a Hold,
    pub(super) options: UndoOptions,
    pub(super) progress: &'a Progress,
    /// The present state.
    pub(super) present: Recorded,
}

impl<'a> Rewinding<'a> {
    /// Records the present state.
    fn begin(
        workspace: &'a Workspace,
        hold: &'a Hold,
        rewind: &Rewind,
        progress: &'a Progress,
    ) -> Result<Rewinding<'a>, Error> {
        let mut options = rewind.options().clone();
        let interrupted = match rewind {
            Rewind::Undo { options, .. } | Rewind::Redo { options } => options.session.as_deref(),
            Rewind::RevertTo { .. } | Rewind::Unrevert { .. } => None,
        };
        let present = record_present(hold, interrupted, progress)?;
        if let Rewind::RevertTo { session, .. } = rewind {
            // Only undo changes paths outside of the work tree.
            options = UndoOptions { session: Some(session.clone()), outside: false, ..options };
        }
        Ok(Rewinding { workspace, hold, options, progress, present })
    }
}

impl Workspace {
    /// Returns the report that a request would produce now. Records the present state but changes
    /// no file. Pass the plan's hash to [`Workspace::apply`].
    pub fn plan(&self, rewind: &Rewind, progress: &Progress) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        let (chosen, _) = Rewinding::begin(self, &hold, rewind, progress)?.choose(rewind)?;
        remember(&hold, rewind, chosen.preview())
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
        self.rewind(&rewind, progress)
    }

    /// Carries out a request.
    fn rewind(&self, rewind: &Rewind, progress: &Progress) -> Result<UndoReport, Error> {
        let hold = self.begin()?;
        rewind.check_idle(&hold)?;
        let rewinding = Rewinding::begin(self, &hold, rewind, progress)?;
        let (chosen, cause) = rewinding.choose(rewind)?;
        rewinding.carry_through(chosen, cause)
    }

    /// Undoes steps, keeping all later changes by users and other sessions.
    pub fn undo(
        &self,
        scope: &UndoScope,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let (scope, options) = (scope.clone(), options.clone());
        self.rewind(&Rewind::Undo { scope, options }, progress)
    }

    /// Reverses the newest undo or revert that is still in force.
    pub fn redo(&self, options: &UndoOptions, progress: &Progress) -> Result<UndoReport, Error> {
        self.rewind(&Rewind::Redo { options: options.clone() }, progress)
    }

    /// Reverts a session to the state before a message or before a part of it.
    ///
    /// The history is kept: until [`Workspace::commit_revert`] or new work of the session, another
    /// call moves the boundary and [`Workspace::unrevert`] reverses it. Fails if no step belongs to
    /// the message, or if the session has open steps.
    pub fn revert_to(
        &self,
        session: &str,
        boundary: &Boundary,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let (boundary, options) = (boundary.clone(), options.clone());
        let rewind = Rewind::RevertTo { session: session.to_owned(), boundary, options };
        self.rewind(&rewind, progress)
    }

    /// Reverses a session's revert: restores the exact state before it if nothing changed since,
    /// else merges with the later changes.
    pub fn unrevert(
        &self,
        session: &str,
        options: &UndoOptions,
        progress: &Progress,
    ) -> Result<UndoReport, Error> {
        let (session, options) = (session.to_owned(), options.clone());
        self.rewind(&Rewind::Unrevert { session, options }, progress)
    }
}

/// Records the present state. An open step of `session`, or of any session if `None`, counts as
/// interrupted if no process of its tool is running.
pub(super) fn record_present(
    hold: &Hold,
    session: Option<&str>,
    progress: &Progress,
) -> Result<Recorded, Error> {
    let undone_session = session.map(str::to_owned);
    let cause = Cause { undoing: true, undone_session, ..Cause::before_change() };
    hold.record_listed(&cause, progress)
}

/// Fails if the session has open steps. With `interrupt`, closes them instead.
fn check_idle(hold: &Hold, session: &str, interrupt: bool) -> Result<(), Error> {
    let mut open = hold.open_steps()?;
    let own = |step: &&mut OpenStep| step.info.belongs_to(session) && !step.abandoned;
    for step in open.iter_mut().filter(own) {
        if !interrupt {
            let tool = step.info.tool.clone().or_else(|| step.info.label.clone());
            let holder = step.holder().or(tool).unwrap_or_else(|| "an open step".into());
            let (session, step) = (session.to_owned(), step.info.step.clone());
            return Err(Error::Session(SessionError::SessionBusy { session, step, holder }));
        }
        step.abandoned = true;
    }
    if interrupt { hold.save_steps(&open) } else { Ok(()) }
}

/// Stores the request of a plan under the plan's hash.
fn remember(hold: &Hold, rewind: &Rewind, report: UndoReport) -> Result<UndoReport, Error> {
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
