//! Attribution of changes to steps.
//!
//! Evidence, strongest first: a path that an open step names; the change time compared with the run
//! time of the tool; a single open step. Changes with several open steps are shared: they are
//! shown, and undone only on request. Without an open step a change belongs to the user.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::compare::{Change, Entry, changes, changes_to_pending};
use crate::error::Error;
use crate::fs::Time;
use crate::git::{EntryKind, ObjectId};
use crate::log::{
    Credit, Details, Disowned, Meta, OpenStep, Operation, OperationKind, ProcessId, Uncaptured,
};
use crate::pack::PackWriter;
use crate::path::{TreePath, split};
use crate::scan::StatCache;

use super::ignored::Kept;
use super::request::Cause;
use crate::hold::Hold;

/// Tolerance for the start of a tool: clients measure its duration a little before they report it.
/// A user takes longer than this to switch from an editor to a permission question.
const SLACK: Duration = Duration::from_millis(250);

/// The step that ends, with the evidence from its client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    pub(crate) step: String,
    /// The start of the tool, if the client reports its duration.
    pub(crate) ran_since: Option<Time>,
    /// Whether the tool was refused and never ran.
    pub(crate) refused: bool,
    /// Uncaptured paths that it removed or changed.
    pub(crate) uncaptured: Vec<Uncaptured>,
    /// Whether it changed captured files outside of the work tree.
    pub(crate) outside: bool,
}

impl Ending {
    /// Returns the earliest change time of a tool that ended now and ran for `duration`.
    pub(crate) fn start_of(duration: Duration) -> Time {
        Time::now().minus_millis((duration + SLACK).as_millis().try_into().unwrap_or(i64::MAX))
    }
}

/// Evidence about the open steps.
struct Evidence<'a> {
    open: &'a [OpenStep],
    /// For each of them, whether its tool may have been interrupted.
    interrupted: Vec<bool>,
    ending: Option<&'a Ending>,
    /// The paths that a refused call names: the user was asked about them and may have edited them.
    refused: &'a [TreePath],
    /// The time of the previous snapshot.
    recorded_millis: u64,
}

/// Returns whether the tool of a step may have been interrupted without an event: the step was
/// abandoned, or an undo finds it open and no process of the tool.
fn is_interrupted(step: &OpenStep, cause: &Cause) -> bool {
    let is_meant = cause.undone_session.as_deref().is_none_or(|id| id == step.info.root_session());
    let is_left = step.abandoned || (cause.undoing && is_meant && step.is_owned());
    // The step is ended by its own agent. The process that began it does not matter.
    let is_ending = cause.ending.as_ref().is_some_and(|ending| ending.step == step.info.step);
    let own = std::process::id();
    if !is_left || is_ending || step.is_owner(own) {
        return false;
    }
    // Hooks are processes of the client too, and so is the shell in which a user runs an undo.
    // `ctrlz run` starts nothing but the tool, so that an undo below it runs in the tool.
    let is_in_tool = cause.undoing && step.recorded_by_owner;
    let apart = if is_in_tool { vec![own] } else { ProcessId::ancestors(own) };
    !step.tool_is_running(&apart)
}

/// The owner of a change.
enum Owner {
    /// The step with this index.
    Step(usize),
    /// One of the interrupted steps with these indexes, or the user.
    Unclear(Vec<usize>),
    /// Several steps without evidence for one of them.
    Shared(Vec<usize>),
    /// No step.
    Outside,
}

impl Hold {
    /// Attributes the changes from `before` to `after`. Returns the kind and the details of the
    /// operation.
    ///
    /// If single paths have to be compared, the new trees are read from `pack`. A pack that was
    /// already written to disk is published first and replaced by a new one.
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
        if cause.correction {
            return Ok((OperationKind::Outside, details, pack));
        }
        let ending = cause.ending.as_ref();
        let refused = |step: &OpenStep| {
            ending.is_some_and(|ending| ending.refused && ending.step == step.info.step)
        };
        let (refused, open): (Vec<OpenStep>, Vec<OpenStep>) =
            self.open_steps()?.into_iter().partition(refused);
        let refused: Vec<TreePath> = refused.into_iter().flat_map(|step| step.paths).collect();
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
            // Only its end settles that all changes are the step's: earlier snapshots list them,
            // so that the end can disown some.
            [only]
                if ending.is_some()
                    && !only.only_named
                    && !interrupted[0]
                    && !has_window
                    && refused.is_empty() =>
            {
                credits[0].paths = None;
            }
            _ => {
                let mut found;
                (found, pack) = self.changed(pack, &before.snapshot, after)?;
                let known: BTreeSet<TreePath> =
                    found.iter().map(|change| change.path.clone()).collect();
                let other_modes = before.meta.other_modes(meta).into_iter();
                let other_modes = other_modes.filter(|path| !known.contains(path));
                // Content and kind are the same.
                let there = Some(Entry { kind: EntryKind::File, id: ObjectId::NULL });
                found.extend(other_modes.map(|path| Change { path, before: there, after: there }));
                let recorded_millis = before.at_millis;
                let refused = refused.as_slice();
                let evidence =
                    Evidence { open: &open, interrupted, ending, refused, recorded_millis };
                sharing = self.share_out(&evidence, &found, &mut credits, &mut details);
            }
        }
        // A step without paths of its own may still have shared ones.
        let credits = credits.into_iter().enumerate();
        let counts =
            |(at, credit): &(usize, Credit)| credit.has_something() || sharing.contains(at);
        let has_shared = !details.shared.is_empty();
        let placed = |(at, credit): (usize, Credit)| {
            let apart = has_shared && !sharing.contains(&at);
            Credit { apart, ..credit }
        };
        details.credits = credits.filter(counts).map(placed).collect();
        let kind = if details.credits.is_empty() && details.shared.is_empty() {
            OperationKind::Outside
        } else {
            OperationKind::Step
        };
        Ok((kind, details, pack))
    }

    /// Returns the credits of an open step in the operations since its beginning, without the
    /// changes that newer operations disown.
    pub(crate) fn credits_since(&self, step: &OpenStep) -> Result<Vec<Credit>, Error> {
        let mut credited = Vec::new();
        let mut disowned: Vec<Disowned> = Vec::new();
        let Some(head) = self.store.refs.read(self.work_tree.ref_name())? else {
            return Ok(credited);
        };
        let mut log = self.work_tree.index(&self.store, head)?;
        while let Some(entry) =
            log.next(&self.store)?.filter(|entry| entry.id > step.before_operation)
        {
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
                let (dir, name) = split(path.as_bytes());
                let stat = self.root.glimpse(dir).and_then(|dir| dir.stat(name));
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

    /// Returns all changes, reading the new trees from `pack`.
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

    /// Assigns the changed paths to the steps. Returns the steps with shared paths.
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
        // A call that starts a sub-agent changes nothing itself. Alone, it represents the
        // sub-agent.
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
            Some(since) if self.was_moved_since(change, since, evidence.recorded_millis) => None,
            Some(since) => self
                .written_before(change, since, evidence.recorded_millis)
                .or_else(|| self.changed_at(&change.path)),
            None => self.changed_at(&change.path),
        };
        // A change before the reported start of the tool is not the tool's.
        let can_be = |at: &usize| {
            let ending = ending.filter(|ending| ending.step == open[*at].info.step);
            let ran_since = ending.and_then(|ending| ending.ran_since);
            !matches!((changed_at, ran_since), (Some(changed), Some(since)) if changed < since)
        };
        let names = |step: &OpenStep| step.paths.iter().any(|path| change.path.is_within(path));
        // An edit tool owns the files that it names, even if its end is reported late.
        let named: Vec<usize> = (0..open.len())
            .filter(|at| names(&open[*at]) && (can_be(at) || open[*at].only_named))
            .collect();
        match named.as_slice() {
            [] => (),
            [one] => return Owner::Step(*one),
            several => return Owner::Shared(several.to_vec()),
        }
        if evidence.refused.iter().any(|path| change.path.is_within(path)) {
            return Owner::Outside;
        }
        let able: Vec<usize> = working.iter().copied().filter(can_be).collect();
        // After an interruption users edit files, but rarely delete them.
        let is_clear = |at: &usize| {
            !evidence.interrupted[*at]
                || change.after.is_none()
                // Within one clock tick the order is unknown.
                || changed_at.is_some_and(|time| time.millis() < open[*at].last_sign_millis)
        };
        match able.as_slice() {
            [] => Owner::Outside,
            several if !several.iter().any(is_clear) => Owner::Unclear(several.to_vec()),
            [one] => Owner::Step(*one),
            several => Owner::Shared(several.to_vec()),
        }
    }

    /// Returns whether a file appeared because a directory above it was renamed. A rename updates
    /// the change time of the directory and the modification time of its parent. A directory
    /// created after the last snapshot was not renamed from a recorded path.
    fn was_moved_since(&self, change: &Change, since: Time, recorded_millis: u64) -> bool {
        let mut dir = split(change.path.as_bytes()).0;
        while change.before.is_none() && !dir.is_empty() {
            let (above, name) = split(dir);
            if let Some(parent) = self.root.glimpse(above)
                && let (Some(stat), Some(outer)) = (parent.stat(name), parent.stat_self())
            {
                let is_renamed = stat.ctime >= since && stat.mtime < since && outer.mtime >= since;
                let born = parent.birth(name);
                if is_renamed && born.is_none_or(|born| born.millis() < recorded_millis) {
                    return true;
                }
            }
            dir = above;
        }
        false
    }

    /// Returns the modification time of a file that was written in place between the previous
    /// snapshot and `since`. A tool that only changed its metadata afterwards, for example by
    /// `chmod`, moved the change time but did not write the content.
    fn written_before(&self, change: &Change, since: Time, recorded_millis: u64) -> Option<Time> {
        if change.before == change.after || change.before.is_none() || change.after.is_none() {
            return None;
        }
        let (dir, name) = split(change.path.as_bytes());
        let stat = self.root.glimpse(dir).and_then(|dir| dir.stat(name))?;
        let is_written = stat.mtime.millis() >= recorded_millis && stat.mtime < since;
        if !is_written || stat.ctime < since {
            return None;
        }
        // Another inode was moved here, which keeps its modification time.
        let cache = StatCache::load(&self.work_tree.cache_path());
        let is_same = cache
            .dir(dir)?
            .entries()
            .any(|entry| entry.name == name && entry.stat.inode == stat.inode);
        is_same.then_some(stat.mtime)
    }

    /// Returns the change time of a path, or of the nearest existing directory above it.
    pub(crate) fn changed_at(&self, path: &TreePath) -> Option<Time> {
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

/// Returns whether a step only waits for a sub-agent, as the call that started it does.
///
/// Clients report which call starts a sub-agent. Without a report, every step that began before the
/// sub-agent's steps counts.
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
        apart: false,
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
