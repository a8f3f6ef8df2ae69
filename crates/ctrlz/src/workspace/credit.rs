//! Attribution: which step made a change.
//!
//! Evidence, strongest first: a path that an open step named; the time of the change and the time
//! that the tool ran; the only open step; several open steps (shared: shown, undone only when
//! asked). Without an open step a change is outside.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::compare::{Change, Entry, changes, changes_to_pending};
use crate::error::Error;
use crate::fs::Time;
use crate::git::{EntryKind, ObjectId};
use crate::path::{TreePath, split};
use crate::store::{
    Credit, Details, Meta, OpenStep, Operation, OperationKind, PackWriter, ProcessId, Uncaptured,
};

use super::companion::Kept;
use super::{Cause, Hold};

/// Clients measure a tool's duration a little before they tell us, so its start is only known to
/// about this much. A person takes longer to go from an editor to a permission question.
const SLACK: Duration = Duration::from_millis(250);

/// The step that ends, with the evidence that its client gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) step: String,
    /// When the tool began to run, if the client says how long it ran.
    pub(crate) ran_since: Option<Time>,
    /// The tool was refused and never ran.
    pub(crate) refused: bool,
    /// Paths that no snapshot holds and that it removed or changed.
    pub(crate) uncaptured: Vec<Uncaptured>,
    /// It changed something outside of the work tree that a capture holds.
    pub(crate) outside: bool,
}

impl Ending {
    /// The earliest moment at which a tool can have changed something that ended just now after
    /// `duration`.
    pub(crate) fn start_of(duration: Duration) -> Time {
        Time::now().minus_millis((duration + SLACK).as_millis().try_into().unwrap_or(i64::MAX))
    }
}

/// Evidence about the open steps.
struct Evidence<'a> {
    open: &'a [OpenStep],
    /// For each of them, whether its tool may have stopped some time ago.
    interrupted: Vec<bool>,
    ending: Option<&'a Ending>,
}

/// Whether a step's tool may have stopped some time ago without an event that says so: the step was
/// abandoned, or an undo finds it open and no process of its client at it.
fn is_interrupted(step: &OpenStep, cause: &Cause) -> bool {
    let is_left = step.abandoned || (cause.undoing && step.is_owned());
    // Its own agent ends it now, whatever became of the process that began it.
    let is_ending = cause.ending.as_ref().is_some_and(|ending| ending.step == step.info.step);
    let is_ours = step.is_owner(std::process::id()) || is_ending;
    // A hook is started by the client too. An undo may be run by the tool itself.
    let own = std::process::id();
    let apart = if cause.undoing { vec![own] } else { ProcessId::ancestors(own) };
    is_left && !is_ours && !step.tool_is_running(&apart)
}

/// The owner of a change.
enum Owner {
    /// The step at this place.
    Step(usize),
    /// Perhaps one of the interrupted steps at these places, perhaps the user.
    Unclear(Vec<usize>),
    /// Several steps that nothing tells apart.
    Shared(Vec<usize>),
    /// No step.
    Outside,
}

impl Hold {
    /// Decides whose the changes from `before` to `after` are.
    ///
    /// Where paths decide, the new trees are read from `pack`. If it has written them out, it is
    /// published first and a new one takes its place.
    pub(super) fn credited(
        &self,
        cause: &Cause,
        pack: PackWriter,
        before: Option<&Operation>,
        (after, meta): (&ObjectId, &Meta),
        kept: &Kept,
    ) -> Result<(OperationKind, Details, PackWriter), Error> {
        let mut details = cause.details.clone();
        details.head = self.head.clone();
        let (Some(before), OperationKind::Outside) = (before, cause.kind) else {
            let kind = if before.is_none() { OperationKind::Baseline } else { cause.kind };
            return Ok((kind, details, pack));
        };
        let ending = cause.ending.as_ref();
        let refused = |step: &OpenStep| {
            ending.is_some_and(|ending| ending.refused && ending.step == step.info.step)
        };
        let open: Vec<OpenStep> =
            self.open_steps()?.into_iter().filter(|step| !refused(step)).collect();
        let mut credits: Vec<Credit> = open
            .iter()
            .map(|step| {
                let ending = ending.filter(|ending| ending.step == step.info.step);
                let uncaptured = ending.map(|ending| ending.uncaptured.clone()).unwrap_or_default();
                let outside = ending.is_some_and(|ending| ending.outside);
                let named = kept.among(self, &step.paths);
                let since = ending.and_then(|ending| ending.ran_since);
                let is_earlier = |path: &TreePath| {
                    self.changed_at(path).zip(since).is_some_and(|(at, since)| at < since)
                };
                let changed = since.map(|_| kept.changed(self)).unwrap_or_default();
                let earlier_ignored = changed.into_iter().filter(is_earlier).collect();
                Credit { outside, earlier_ignored, ..credit(step, named, uncaptured) }
            })
            .collect();
        let has_window = ending.is_some_and(|ending| ending.ran_since.is_some());
        let interrupted: Vec<bool> = open.iter().map(|step| is_interrupted(step, cause)).collect();
        let mut pack = pack;
        let mut sharing = BTreeSet::new();
        match open.as_slice() {
            [] => {
                details.gap = self.open_gap()?.map(|open| open.gap);
                return Ok((OperationKind::Outside, details, pack));
            }
            [only] if !only.only_named && !interrupted[0] && !has_window => {
                credits[0].paths = None;
            }
            _ => {
                let mut found;
                (found, pack) = self.changed(pack, &before.snapshot, after)?;
                let known: BTreeSet<TreePath> =
                    found.iter().map(|change| change.path.clone()).collect();
                let other_modes = before.meta.other_modes(meta).into_iter();
                let other_modes = other_modes.filter(|path| !known.contains(path));
                // They change neither the content nor the kind.
                let there = Some(Entry { kind: EntryKind::File, id: ObjectId::NULL });
                found.extend(other_modes.map(|path| Change { path, before: there, after: there }));
                let evidence = Evidence { open: &open, interrupted, ending };
                sharing = self.share_out(&evidence, &found, &mut credits, &mut details);
            }
        }
        // A step without a path of its own may still share in the rest.
        let credits = credits.into_iter().enumerate();
        let counts =
            |(at, credit): &(usize, Credit)| credit.has_something() || sharing.contains(at);
        details.credits = credits.filter(counts).map(|(_, credit)| credit).collect();
        let kind = match details.credits.is_empty() && details.shared.is_empty() {
            true => OperationKind::Outside,
            false => OperationKind::Step,
        };
        Ok((kind, details, pack))
    }

    /// Every path that differs, read from the trees that `pack` is about to publish.
    fn changed(
        &self,
        pack: PackWriter,
        before: &ObjectId,
        after: &ObjectId,
    ) -> Result<(Vec<Change>, PackWriter), Error> {
        let objects = &self.store.objects;
        if let Some(found) = changes_to_pending(objects, &pack, before, after)? {
            return Ok((found, pack));
        }
        pack.publish()?;
        objects.refresh()?;
        let pack = PackWriter::new(&self.store.objects_dir());
        Ok((changes(objects, before, after)?, pack))
    }

    /// Deals the changed paths out to the steps; returns those that share some of them.
    fn share_out(
        &self,
        evidence: &Evidence<'_>,
        found: &[Change],
        credits: &mut [Credit],
        details: &mut Details,
    ) -> BTreeSet<usize> {
        let open = evidence.open;
        let mut working: Vec<usize> =
            (0..open.len()).filter(|at| !open[*at].only_named && !waits(open, *at)).collect();
        // A call that starts an agent changes nothing itself; alone, it stands for its agent.
        if working.iter().any(|at| !open[*at].starts_agent) {
            working.retain(|at| !open[*at].starts_agent);
        }
        let mut sharing = BTreeSet::new();
        for change in found {
            match self.owner(evidence, &working, change) {
                Owner::Step(at) => own(&mut credits[at], change.path.clone()),
                Owner::Unclear(steps) => {
                    for at in steps {
                        credits[at].unclear.push(change.path.clone());
                    }
                }
                Owner::Shared(steps) => {
                    details.shared.push(change.path.clone());
                    sharing.extend(steps);
                }
                Owner::Outside => (),
            }
        }
        if let [only] = working.as_slice() {
            credits[*only].dirs = true;
        }
        sharing
    }

    fn owner(&self, evidence: &Evidence<'_>, working: &[usize], change: &Change) -> Owner {
        let &Evidence { open, ending, .. } = evidence;
        let since = ending.and_then(|ending| ending.ran_since);
        let changed_at = match since {
            Some(since) if self.was_moved_since(change, since) => None,
            _ => self.changed_at(&change.path),
        };
        // The client said how long the tool ran, and the change is older.
        let can_be = |at: &usize| {
            let ending = ending.filter(|ending| ending.step == open[*at].info.step);
            let ran_since = ending.and_then(|ending| ending.ran_since);
            !matches!((changed_at, ran_since), (Some(changed), Some(since)) if changed < since)
        };
        let names = |step: &OpenStep| step.paths.iter().any(|path| change.path.is_within(path));
        // An edit tool has changed what it names, however late its end was reported.
        let named: Vec<usize> = (0..open.len())
            .filter(|at| names(&open[*at]) && (can_be(at) || open[*at].only_named))
            .collect();
        match named.as_slice() {
            [] => (),
            [one] => return Owner::Step(*one),
            several => return Owner::Shared(several.to_vec()),
        }
        let able: Vec<usize> = working.iter().copied().filter(can_be).collect();
        // The user edits files after an interruption; deleting one is rarely what is meant.
        let is_clear = |at: &usize| {
            !evidence.interrupted[*at]
                || change.after.is_none()
                || changed_at.is_some_and(|time| time.millis() <= open[*at].last_sign_millis)
        };
        match able.as_slice() {
            [] => Owner::Outside,
            several if !several.iter().any(is_clear) => Owner::Unclear(several.to_vec()),
            [one] => Owner::Step(*one),
            several => Owner::Shared(several.to_vec()),
        }
    }

    /// Whether a file appeared because a directory above it was renamed: that moves the change time of
    /// the directory alone.
    fn was_moved_since(&self, change: &Change, since: Time) -> bool {
        let mut dir = split(change.path.as_bytes()).0;
        while change.before.is_none() && !dir.is_empty() {
            let stat = self.root.glimpse(dir).and_then(|dir| dir.stat_self());
            if stat.is_some_and(|stat| stat.ctime >= since && stat.mtime < since) {
                return true;
            }
            dir = split(dir).0;
        }
        false
    }

    /// When a path was changed last, as its own change time or, of one that is gone, the time of
    /// the nearest directory above it says.
    fn changed_at(&self, path: &TreePath) -> Option<Time> {
        let (mut dir, name) = split(path.as_bytes());
        if let Some(stat) = self.root.glimpse(dir).and_then(|dir| dir.stat(name)) {
            return Some(stat.ctime);
        }
        loop {
            if let Some(stat) = self.root.glimpse(dir).and_then(|dir| dir.stat_self()) {
                return Some(stat.mtime);
            }
            if dir.is_empty() {
                return None;
            }
            dir = split(dir).0;
        }
    }
}

/// Whether a step only waits: while a sub-agent works, the call that started it changes nothing.
///
/// Clients say which call starts an agent. Where none of the session's open steps does, it is any
/// that began before the sub-agent's.
fn waits(open: &[OpenStep], at: usize) -> bool {
    let step = &open[at];
    let works_for = |other: &OpenStep| {
        let parent = other.info.parent.as_ref();
        other.info.session != step.info.session
            && parent.is_some_and(|turn| turn.session == step.info.session)
    };
    let later = open[at + 1..].iter().any(works_for);
    let is_told =
        open.iter().any(|other| other.info.session == step.info.session && other.starts_agent);
    later && (step.starts_agent || !is_told)
}

fn own(credit: &mut Credit, path: TreePath) {
    credit.paths.get_or_insert_default().push(path);
}

fn credit(step: &OpenStep, named: Vec<TreePath>, uncaptured: Vec<Uncaptured>) -> Credit {
    Credit {
        step: step.info.clone(),
        paths: Some(Vec::new()),
        dirs: false,
        only_named: step.only_named,
        unclear: Vec::new(),
        inferred: step.abandoned,
        named,
        earlier_ignored: Vec::new(),
        uncaptured,
        outside: false,
        begun: step.before_operation.clone(),
        began_millis: step.began_millis,
    }
}
