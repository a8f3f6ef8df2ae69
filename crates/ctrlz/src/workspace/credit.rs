//! Credit: whose change is it?
//!
//! Evidence, strongest first: a path that an open step named, the only open step, several open
//! steps (shared: shown, undone only when asked). Nobody open: outside.

use crate::compare::changes;
use crate::error::Error;
use crate::git::ObjectId;
use crate::path::TreePath;
use crate::store::{Credit, Details, OpenStep, OperationKind, PackWriter, Store};

use super::companion::Kept;
use super::{Cause, Hold};

impl Hold {
    /// Says whose the change from `before` to `after` is.
    ///
    /// Where paths decide, the trees must be readable, so `pack` is published first and a new one
    /// takes its place.
    pub(super) fn credited(
        &self,
        cause: &Cause,
        pack: PackWriter,
        before: Option<&ObjectId>,
        after: &ObjectId,
        kept: &Kept,
    ) -> Result<(OperationKind, Details, PackWriter), Error> {
        let mut details = cause.details.clone();
        details.head = self.head.clone();
        let (Some(before), OperationKind::Outside) = (before, cause.kind) else {
            let kind = if before.is_none() { OperationKind::Baseline } else { cause.kind };
            return Ok((kind, details, pack));
        };
        let open = at_work(self.open_steps()?);
        let named = |step: &OpenStep| kept.among(self, &step.paths);
        match open.as_slice() {
            [] => Ok((OperationKind::Outside, details, pack)),
            [only] => {
                details.credits = vec![credit(only, None, named(only))];
                Ok((OperationKind::Step, details, pack))
            }
            several => {
                pack.publish()?;
                self.store.objects.refresh()?;
                share_out(&self.store, several, before, after, &mut details, &named)?;
                let pack = PackWriter::new(&self.store.objects_dir());
                Ok((OperationKind::Step, details, pack))
            }
        }
    }
}

/// The steps that can have changed something: while a sub-agent works, the tool call that
/// started it only waits.
fn at_work(open: Vec<OpenStep>) -> Vec<OpenStep> {
    let waits = |step: &OpenStep| {
        open.iter().any(|other| {
            let parent = other.info.parent.as_ref();
            other.info.session != step.info.session
                && parent.is_some_and(|turn| turn.session == step.info.session)
        })
    };
    let waiting: Vec<bool> = open.iter().map(waits).collect();
    open.into_iter().zip(waiting).filter(|(_, waits)| !waits).map(|(step, _)| step).collect()
}

fn credit(step: &OpenStep, paths: Option<Vec<TreePath>>, named: Vec<TreePath>) -> Credit {
    let begun = step.before_operation.clone();
    Credit { step: step.info.clone(), paths, inferred: step.abandoned, named, begun }
}

/// Deals the changed paths out to the steps that named them.
fn share_out(
    store: &Store,
    open: &[OpenStep],
    before: &ObjectId,
    after: &ObjectId,
    details: &mut Details,
    ignored: &dyn Fn(&OpenStep) -> Vec<TreePath>,
) -> Result<(), Error> {
    let mut named: Vec<Vec<TreePath>> = vec![Vec::new(); open.len()];
    for change in changes(&store.objects, before, after)? {
        let names = |step: &OpenStep| step.paths.iter().any(|path| change.path.is_within(path));
        let by: Vec<usize> = (0..open.len()).filter(|at| names(&open[*at])).collect();
        match by.as_slice() {
            [one] => named[*one].push(change.path),
            _ => details.shared.push(change.path),
        }
    }
    for (step, paths) in open.iter().zip(named) {
        // Also a step without a path of its own is listed: it may share in the rest.
        details.credits.push(credit(step, Some(paths), ignored(step)));
    }
    Ok(())
}
