//! Evidence about the step that made a change.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use crate::compare::Change;
use crate::error::Error;
use crate::fs::Time;
use crate::hold::Hold;
use crate::log::{Credit, Details, OpenStep, Operation, ProcessId};
use crate::path::{TreePath, split};
use crate::scan::StatCache;

use super::request::{Cause, Ending, RunTime};

/// Evidence about the open steps.
pub(super) struct Evidence<'a> {
    hold: &'a Hold,
    pub(super) open: Vec<OpenStep>,
    /// For each of them, whether its tool may have been interrupted.
    interrupted: Vec<bool>,
    ending: Option<&'a Ending>,
    /// The paths that a refused call names: the user was asked about them and may have edited them.
    refused: Vec<TreePath>,
    /// The time of the previous snapshot.
    recorded_millis: u64,
    /// Whether an undo recorded that one, and so has dealt with interrupted steps already.
    after_undo: bool,
    cache: OnceCell<StatCache>,
}

/// Returns whether the tool of a step may have been interrupted without an event: the step was
/// abandoned, or an undo finds it open and no process of the tool.
pub(super) fn is_interrupted(step: &OpenStep, cause: &Cause) -> bool {
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

impl<'a> Evidence<'a> {
    /// Returns the evidence about the changes since the snapshot `before`.
    pub(super) fn since(
        hold: &'a Hold,
        before: &Operation,
        cause: &'a Cause,
    ) -> Result<Evidence<'a>, Error> {
        let ending = cause.ending.as_ref();
        let without = ending.filter(|ending| ending.refused || ending.found);
        let (without, open): (Vec<OpenStep>, Vec<OpenStep>) = hold
            .open_steps()?
            .into_iter()
            .partition(|step| without.is_some_and(|ending| ending.step == step.info.step));
        let is_refused = ending.is_some_and(|ending| ending.refused);
        let refused = without.into_iter().filter(|_| is_refused);
        let refused = refused.flat_map(|step| step.paths);
        let interrupted = open.iter().map(|step| is_interrupted(step, cause)).collect();
        let (recorded_millis, after_undo) = (before.at_millis, before.kind.writes_files());
        let cache = OnceCell::new();
        let refused = refused.collect();
        Ok(Evidence {
            hold,
            open,
            interrupted,
            ending,
            refused,
            recorded_millis,
            after_undo,
            cache,
        })
    }

    /// Returns the evidence from the client of a step, if this step ends.
    pub(super) fn ending_of(&self, step: &OpenStep) -> Option<&'a Ending> {
        self.ending.filter(|ending| ending.step == step.info.step)
    }

    /// Returns whether all changes belong to the only open step. Only its end decides that: earlier
    /// snapshots list them, so that the end can disown some.
    pub(super) fn is_certain(&self) -> bool {
        let [only] = self.open.as_slice() else { return false };
        self.ending.is_some_and(|ending| ending.ran.is_none())
            && !only.only_named
            && !self.interrupted[0]
            && self.refused.is_empty()
    }

    /// Assigns the changed paths to the steps. Returns the steps with shared paths.
    pub(super) fn share_out(
        &self,
        found: &[Change],
        credits: &mut [Credit],
        details: &mut Details,
    ) -> BTreeSet<usize> {
        let open = self.open.as_slice();
        let mut working: Vec<usize> =
            (0..open.len()).filter(|at| !open[*at].only_named && !waits(open, *at)).collect();
        // A call that starts a sub-agent changes nothing itself. Alone, it represents the
        // sub-agent.
        let is_starter = |at: &usize| open[*at].starts_agent == Some(true);
        if !working.iter().all(is_starter) {
            working.retain(|at| !is_starter(at));
        }
        let mut sharing = BTreeSet::new();
        let last = found.iter().filter_map(|change| self.hold.changed_at(&change.path)).max();
        for change in found {
            match self.owner(&working, change, last) {
                Owner::Step(at) => {
                    let own = credits[at].paths.get_or_insert_default();
                    own.push(change.path.clone());
                }
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

    /// Returns the owner of a change, given the time of the last one.
    fn owner(&self, working: &[usize], change: &Change, last: Option<Time>) -> Owner {
        let open = self.open.as_slice();
        let changed_at = match self.ending.and_then(|ending| ending.ran).map(|ran| ran.since()) {
            Some(since) if self.was_moved_since(change, since) => None,
            Some(since) => {
                self.written_before(change, since).or_else(|| self.hold.changed_at(&change.path))
            }
            None => self.hold.changed_at(&change.path),
        };
        // A change before the reported start of the tool is not the tool's.
        let ran = |at: &usize| self.ending_of(&open[*at]).and_then(|ending| ending.ran);
        let times = |at: &usize| changed_at.zip(ran(at));
        let can_be = |at: &usize| times(at).is_none_or(|(changed, ran)| changed >= ran.since());
        let is_named = |at: &usize| {
            let excludes =
                |(changed, ran): (Time, RunTime)| ran.excludes(changed, &change.path, &open[*at]);
            open[*at].names(&change.path) && !times(at).is_some_and(excludes)
        };
        let named: Vec<usize> = (0..open.len()).filter(is_named).collect();
        match named.as_slice() {
            [] => (),
            [one] => return Owner::Step(*one),
            several => return Owner::Shared(several.to_vec()),
        }
        if self.refused.iter().any(|path| change.path.is_within(path)) {
            return Owner::Outside;
        }
        let able: Vec<usize> = working.iter().copied().filter(can_be).collect();
        // After an interruption users edit files, but rarely delete them.
        let is_clear = |at: &usize| {
            !self.interrupted[*at]
                || (change.after.is_none() && !self.after_undo)
                // Within one clock tick the order is unknown.
                || changed_at.is_some_and(|time| time.millis() < open[*at].last_sign_millis)
        };
        // If the report was late, the tool or the user made the change. Users rarely delete files
        // during a permission question.
        let can_be_late = |at: &usize| {
            let last = times(at).zip(last);
            last.is_some_and(|((changed, ran), last)| changed >= ran.earliest_if_last(last))
        };
        let late = || working.iter().copied().filter(can_be_late).collect::<Vec<usize>>();
        match able.as_slice() {
            [] => match late().as_slice() {
                [] => Owner::Outside,
                [one] if change.after.is_none() => Owner::Step(*one),
                several => Owner::Unclear(several.to_vec()),
            },
            several if !several.iter().any(is_clear) => Owner::Unclear(several.to_vec()),
            [one] => Owner::Step(*one),
            several => Owner::Shared(several.to_vec()),
        }
    }

    /// Returns whether a file appeared because a directory above it was renamed. A rename updates
    /// the change time of the directory and the modification time of its parent. A directory
    /// created after the last snapshot was not renamed from a recorded path.
    fn was_moved_since(&self, change: &Change, since: Time) -> bool {
        let mut dir = split(change.path.as_bytes()).0;
        while change.before.is_none() && !dir.is_empty() {
            let (above, name) = split(dir);
            if let Some(parent) = self.hold.root.glimpse(above)
                && let (Some(stat), Some(outer)) = (parent.stat(name), parent.stat_self())
            {
                let is_renamed = stat.ctime >= since && stat.mtime < since && outer.mtime >= since;
                let born = parent.birth(name);
                if is_renamed && born.is_none_or(|born| born.millis() < self.recorded_millis) {
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
    fn written_before(&self, change: &Change, since: Time) -> Option<Time> {
        if change.before == change.after || change.before.is_none() || change.after.is_none() {
            return None;
        }
        let stat = self.hold.root.glimpse_stat(change.path.as_bytes())?;
        let is_written = stat.mtime.millis() >= self.recorded_millis && stat.mtime < since;
        if !is_written || stat.ctime < since {
            return None;
        }
        // Another inode was moved here, which keeps its modification time.
        let (dir, name) = split(change.path.as_bytes());
        let load = || StatCache::load(&self.hold.work_tree.cache_path());
        let is_same = self
            .cache
            .get_or_init(load)
            .dir(dir)?
            .entries()
            .any(|entry| entry.name == name && entry.stat.inode == stat.inode);
        is_same.then_some(stat.mtime)
    }
}

impl Hold {
    /// Returns the change time of a path, or of the nearest existing directory above it.
    pub(crate) fn changed_at(&self, path: &TreePath) -> Option<Time> {
        if let Some(stat) = self.root.glimpse_stat(path.as_bytes()) {
            return Some(stat.ctime);
        }
        let mut dir = path.parent_bytes();
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
/// Calls that are known to start a sub-agent count. If the session has none, so does every call of an
/// unknown kind that began before the steps of the sub-agent.
fn waits(open: &[OpenStep], at: usize) -> bool {
    let step = &open[at];
    let works_for = |other: &OpenStep| {
        let parent = other.info.parent.as_ref();
        other.info.session != step.info.session
            && parent.is_some_and(|turn| turn.session == step.info.session)
    };
    let later = open[at + 1..].iter().any(works_for);
    let is_known = open
        .iter()
        .any(|other| other.info.session == step.info.session && other.starts_agent == Some(true));
    later && step.starts_agent.unwrap_or(!is_known)
}
