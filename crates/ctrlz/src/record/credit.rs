//! Attribution of changes to steps.
//!
//! Evidence, strongest first: a path that an open step names; the change time compared with the run
//! time of the tool; a single open step. Changes with several open steps are shared: they are
//! shown, and undone only on request. Without an open step a change belongs to the user.

use std::collections::BTreeSet;

use crate::compare::{Change, Entry, changes, changes_to_pending};
use crate::error::Error;
use crate::git::{EntryKind, ObjectId};
use crate::hold::Hold;
use crate::log::{Credit, Details, Disowned, OpenStep, Operation, OperationKind};
use crate::pack::PackWriter;
use crate::path::TreePath;

use super::draft::Draft;
use super::evidence::{Evidence, is_interrupted};
use super::kept::Kept;
use super::recording::Recording;
use super::request::{Cause, Ending};

impl Recording<'_> {
    /// Attributes the changes from `before` to the draft. Returns the kind and the details of the
    /// operation.
    pub(super) fn credited(
        &mut self,
        before: Option<&Operation>,
        draft: &Draft,
    ) -> Result<(OperationKind, Details), Error> {
        let (hold, cause) = (self.hold, self.cause);
        let mut details = Details { head: hold.head.clone(), ..cause.details.clone() };
        let (Some(before), OperationKind::Outside) = (before, cause.kind) else {
            let kind = if before.is_none() { OperationKind::Baseline } else { cause.kind };
            return Ok((kind, details));
        };
        if cause.correction {
            return Ok((OperationKind::Outside, details));
        }
        let evidence = Evidence::since(hold, before, cause)?;
        if evidence.open.is_empty() {
            details.gap = hold.open_gap()?.map(|open| open.gap);
            return Ok((OperationKind::Outside, details));
        }
        let credit = |step: &OpenStep| hold.credit(step, evidence.ending_of(step), &draft.kept);
        let mut credits: Vec<Credit> = evidence.open.iter().map(credit).collect();
        let sharing = if evidence.is_certain() {
            credits[0].paths = None;
            Default::default()
        } else {
            let found = self.changes(before, draft)?;
            evidence.share_out(&found, &mut credits, &mut details)
        };
        details.credits.clear();
        let has_shared = !details.shared.is_empty();
        for (at, mut credit) in credits.into_iter().enumerate() {
            let shares = sharing.contains(&at);
            // A step without paths of its own may still have shared ones.
            if credit.has_something() || shares {
                credit.apart = has_shared && !shares;
                details.credits.push(credit);
            }
        }
        let kind = if details.credits.is_empty() && !has_shared {
            OperationKind::Outside
        } else {
            OperationKind::Step
        };
        Ok((kind, details))
    }

    /// Returns the changes of content and permissions since the snapshot `before`.
    ///
    /// The new trees are read from the pack. If that was already written to disk, it is published
    /// and replaced by a new one.
    fn changes(&mut self, before: &Operation, draft: &Draft) -> Result<Vec<Change>, Error> {
        let objects = &self.hold.store.objects;
        let (then, now) = (&before.snapshot, &draft.tree);
        let mut found = match changes_to_pending(objects, &self.pack, then, now)? {
            Some(found) => found,
            None => {
                let next = PackWriter::new(&self.hold.store.objects_dir());
                std::mem::replace(&mut self.pack, next).publish()?;
                objects.refresh()?;
                changes(objects, then, now)?
            }
        };
        let known: BTreeSet<TreePath> = found.iter().map(|change| change.path.clone()).collect();
        let other_modes = before.meta.other_modes(&draft.meta).into_iter();
        let other_modes = other_modes.filter(|path| !known.contains(path));
        // Content and kind are the same.
        let there = Some(Entry { kind: EntryKind::File, id: ObjectId::NULL });
        found.extend(other_modes.map(|path| Change { path, before: there, after: there }));
        Ok(found)
    }
}

impl Hold {
    /// Returns the credit of an open step, without the changes in the snapshot.
    fn credit(&self, step: &OpenStep, ending: Option<&Ending>, kept: &Kept) -> Credit {
        let ran = ending.and_then(|ending| ending.ran);
        let is_earlier = |path: &TreePath| {
            let times = self.changed_at(path).zip(ran);
            times.is_some_and(|(changed, ran)| ran.excludes(changed, path, step))
        };
        let changed = ran.map(|_| kept.changed(self)).unwrap_or_default();
        Credit {
            step: step.info.clone(),
            paths: Some(Vec::new()),
            dirs: false,
            only_named: step.only_named,
            apart: false,
            unclear: Vec::new(),
            inferred: step.abandoned,
            named: kept.among(self, &step.paths),
            earlier_ignored: changed.into_iter().filter(is_earlier).collect(),
            uncaptured: ending.map(|ending| ending.uncaptured.clone()).unwrap_or_default(),
            outside: ending.is_some_and(|ending| ending.outside),
            begun: step.before_operation.clone(),
            began_millis: step.began_millis,
        }
    }

    /// Returns the credits of an open step in the operations since its beginning, without the
    /// changes that newer operations disown.
    pub(crate) fn credits_since(&self, step: &OpenStep) -> Result<Vec<Credit>, Error> {
        let mut credited = Vec::new();
        let mut disowned: Vec<Disowned> = Vec::new();
        for entry in self.work_tree.index(&self.store)? {
            let entry = entry?;
            if entry.id <= step.before_operation {
                break;
            }
            let credits = entry.details.credits.into_iter();
            for mut credit in credits.filter(|credit| credit.step.step == step.info.step) {
                let is_left = disowned.iter().all(|disowned| disowned.take_from(&mut credit));
                if is_left {
                    credited.push(credit);
                }
            }
            let more = entry.details.disowned.into_iter();
            disowned.extend(more.filter(|disowned| disowned.step == step.info.step));
        }
        Ok(credited)
    }

    /// Adds the changes that earlier operations credit to interrupted steps, although they are newer
    /// than the last sign of the tool: the user may have made them.
    pub(super) fn with_doubts(&self, cause: &Cause) -> Result<Cause, Error> {
        let mut cause = cause.clone();
        if cause.kind != OperationKind::Outside || cause.correction {
            return Ok(cause);
        }
        for step in self.open_steps()? {
            if !is_interrupted(&step, &cause) {
                continue;
            }
            let credited = self.credits_since(&step)?;
            let is_doubtful = |path: &TreePath| {
                let stat = self.root.glimpse_stat(path.as_bytes());
                let is_named = step.paths.iter().any(|named| path.is_within(named));
                // Users rarely delete files after an interruption.
                !is_named && stat.is_some_and(|stat| stat.ctime.millis() >= step.last_sign_millis)
            };
            let paths = credited.into_iter().flat_map(|credit| credit.paths.unwrap_or_default());
            let paths: Vec<TreePath> = paths.filter(is_doubtful).collect();
            if !paths.is_empty() {
                let (step, paths, unclear) = (step.info.step.clone(), Some(paths), true);
                cause.details.disowned.push(Disowned { step, paths, unclear });
                cause.always = true;
            }
        }
        Ok(cause)
    }
}
