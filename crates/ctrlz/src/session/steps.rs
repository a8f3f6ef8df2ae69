//! Steps: the snapshots before and after a tool runs.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::compare::changes;
use crate::error::{Error, SessionError};
use crate::fs::Time;
use crate::git::ObjectId;
use crate::hold::Hold;
use crate::log::{
    Credit, Details, Disowned, OpenStep, Operation, OperationKind, ParentTurn, ProcessId, StepInfo,
    Uncaptured, Watched, load_steps, new_id, read_ignored,
};
use crate::outside::Captured;
use crate::path::{TreePath, is_within};
use crate::record::{
    CAPTURED_REPOSITORY, Cause, Ending, FileEdit, Moment, NamedLimit, Recorded, RunTime, Snapshot,
    TrackOptions,
};
use crate::scan::{Progress, Skipped};
use crate::workspace::Workspace;

use super::history::append;

/// Maximum total size of named files that the snapshot before a step captures at once. The rest
/// follows after the tree is recorded.
const QUICK_NAMED_BYTES: u64 = 4 << 20;

/// Description of a step that is about to begin.
#[derive(Clone, Debug, Default)]
pub struct StepStart {
    /// Session, message and tool of the step. An empty [`StepInfo::step`] is replaced by a new id.
    pub info: StepInfo,
    /// Paths that the tool announces to change. The strongest evidence when several steps overlap.
    /// Those beyond 1 MiB in total are ignored.
    pub paths: Vec<TreePath>,
    /// Whether the tool changes only the files in `paths`, as an edit tool does. Default: no.
    pub only_named: bool,
    /// Whether the tool starts a sub-agent and waits for it. Default: unknown. Then a step of a
    /// sub-agent that begins later shows that it does.
    pub starts_agent: Option<bool>,
    /// Process that will end the step. If it dies, the step is closed and marked as inferred.
    /// Default: none, for clients whose calls come from different processes.
    pub owner: Option<u32>,
    /// Maximum total size in bytes of named files that are captured although they are ignored or
    /// large. Default: [`Options::max_named_bytes`](crate::Options::max_named_bytes).
    pub max_named_bytes: Option<u64>,
    /// Time limit for capturing named files that are ignored or large, not for the snapshot itself.
    /// Default: none.
    pub named_time: Option<Duration>,
    /// Process that starts the tool, which shows whether the tool still runs. Default: the owner.
    pub tools_of: Option<u32>,
    /// Paths outside of the work tree that the tool announces to change. They are captured, within
    /// limits, for [`UndoOptions::outside`](crate::UndoOptions::outside).
    pub outside: Vec<PathBuf>,
}

/// End of a step, as its client reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepEnd {
    /// Duration of the tool call, if the client reports it. Earlier changes, made while a
    /// permission prompt was open, are the user's.
    pub duration: Option<Duration>,
    /// Whether the tool was refused and never ran, so that the step owns nothing. Default: no.
    pub refused: bool,
    /// Whether the tool failed. An edit tool that failed usually wrote nothing. Default: no.
    pub failed: bool,
    /// Edits that the tool made to the files that it names, if the client reports them. They show
    /// which changes of these files are the user's. Default: none.
    pub edits: Vec<FileEdit>,
}

/// Result of beginning a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepBegun {
    /// Step id.
    pub step: String,
    /// Snapshot before the step.
    pub before: ObjectId,
    /// Paths that this snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Named files that are ignored or large and exceeded their size limit, the quota or the time.
    pub not_kept: Vec<TreePath>,
    /// Number of blobs still borrowed from the user's repository; see [`Workspace::copy_borrowed`].
    /// 0 for a step that was already open.
    pub borrowed: u64,
    /// Error if paths outside of the work tree could not be captured.
    pub outside_failed: Option<String>,
}

/// Result of ending a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepEnded {
    /// Step id.
    pub step: String,
    /// Snapshot before the step.
    pub before: ObjectId,
    /// Snapshot after the step.
    pub after: ObjectId,
    /// Paths that differ between the two snapshots, including changes that are not the step's.
    pub files: Vec<TreePath>,
    /// Whether the step changed something, even if only permissions, directories or ignored files.
    pub changed: bool,
    /// Paths that the later snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Paths that no snapshot holds and that the step created, removed or changed.
    pub uncaptured: Vec<Uncaptured>,
}

impl Workspace {
    /// Records the state before a tool runs. Later changes are attributed to the step.
    ///
    /// Idempotent: beginning an open step again takes no snapshot. Steps that the session left open
    /// in an earlier turn are closed and marked as inferred, unless their owner process is alive.
    pub fn begin_step(&self, start: StepStart, progress: &Progress) -> Result<StepBegun, Error> {
        // The tool can start while a client no longer waits for this call.
        let began = Moment::now();
        self.context().check_enabled()?;
        check_lengths(&start.info)?;
        let hold = self.begin()?;
        let recorded_by_owner = start.owner == Some(std::process::id());
        let StepStart { mut info, mut paths, only_named, starts_agent, owner, tools_of, .. } =
            start;
        // The tool may also change the paths that are left out.
        let only_named = limit_paths(&mut paths) && only_named;
        let until = start.named_time.map(|time| Instant::now() + time);
        let named_limit = NamedLimit { bytes: start.max_named_bytes, until };
        let mut open = hold.open_steps()?;
        let known = open.iter().find(|step| step.info.step == info.step).map(|step| step.before);
        if info.step.is_empty() {
            info.step = new_id();
        }
        // The step is recorded even if this fails. The caller decides where to report the error.
        let (named, time) = (&start.outside, start.named_time);
        let captured = self.outside_of(&hold).capture(&info.step, named, time);
        let outside_failed = captured.as_ref().err().map(ToString::to_string);
        let captured = captured.unwrap_or_else(|error| Captured::failed(named, &error));
        if let Some(before) = known {
            let again = |open: &&mut OpenStep| open.info.step == info.step;
            if let Some(open) = open.iter_mut().find(again) {
                self.watch_captured(&hold, captured, &mut open.uncaptured);
            }
            hold.save_steps(&open)?;
            let (step, skipped, not_kept, borrowed) = (info.step, Vec::new(), Vec::new(), 0);
            return Ok(StepBegun { step, before, skipped, not_kept, borrowed, outside_failed });
        }
        info.label = info.label.filter(|_| self.options().labels).map(clipped);
        let mut open = self.abandon_earlier_turns(&hold, open, &info)?;
        note_sign(&mut open, &info);
        info.parent = parent_turn(&open, &info);
        let (snapshot, operation) = record_before(&hold, &paths, named_limit, progress)?;
        let mut not_kept = unknown_of(&hold, &operation, &paths);
        // Files that could not be read are listed as skipped.
        let failed = |path: &TreePath, skipped: &Skipped| {
            skipped.reason.is_failure() && skipped.path == path.as_bytes()
        };
        not_kept.retain(|path| !snapshot.skipped.iter().any(|skipped| failed(path, skipped)));
        let mut open: Vec<OpenStep> = open.into_iter().filter(|step| !step.abandoned).collect();
        let owner = owner.and_then(ProcessId::of);
        let step = info.step.clone();
        let before = operation.snapshot;
        let mut uncaptured = hold.watch_uncaptured(&operation, &not_kept)?;
        // A named directory is captured file by file, and what was not captured is watched.
        uncaptured.retain(|watched| {
            let path = watched.path.as_bytes();
            let is_named = paths.iter().any(|named| named.as_bytes() == path);
            !(is_named && hold.keeps_all_of(&operation, path))
        });
        self.watch_captured(&hold, captured, &mut uncaptured);
        open.push(OpenStep {
            info,
            paths,
            before,
            before_operation: operation.id,
            owner,
            tools_of: tools_of.and_then(ProcessId::of),
            abandoned: false,
            only_named,
            starts_agent,
            began_millis: Time::now().millis(),
            began_ticks: Some(began.ticks()),
            recorded_by_owner,
            last_sign_millis: Time::now().millis(),
            max_named_bytes: named_limit.bytes,
            uncaptured,
        });
        hold.save_steps(&open)?;
        let Snapshot { skipped, borrowed, .. } = snapshot;
        Ok(StepBegun { step, before, skipped, not_kept, borrowed, outside_failed })
    }

    /// Records the state after a tool ran, even if the tool failed.
    ///
    /// `end` is the client's report of how the step ended. Fails without changing anything if the
    /// step is not open.
    pub fn end_step(
        &self,
        step: &str,
        end: &StepEnd,
        progress: &Progress,
    ) -> Result<StepEnded, Error> {
        // Computed before waiting for locks, because the duration ends now.
        let ran = end.duration.map(|duration| RunTime::until_now(duration, end.failed));
        let hold = self.begin()?;
        let mut open = hold.open_steps()?;
        let Some(at) = open.iter().position(|open| open.info.step == step) else {
            return Err(Error::no_such_step(step));
        };
        let mut uncaptured =
            if end.refused { Vec::new() } else { hold.uncaptured_changes(&open[at].uncaptured) };
        let outside = self.end_outside(&hold, step, end.refused);
        // A loss is recorded even if no snapshot differs.
        let always = outside || uncaptured.iter().any(Uncaptured::is_loss);
        // Only if the tool had to wait can the user have changed files between the two times.
        let ran = ran.filter(|ran| ran.waited_since(open[at].began_millis));
        let ending = Ending {
            step: step.to_owned(),
            ran,
            refused: end.refused,
            uncaptured: uncaptured.clone(),
            outside,
            ..Ending::default()
        };
        let named_limit = NamedLimit { bytes: open[at].max_named_bytes, until: None };
        let mut disowned: Vec<Disowned> =
            disowned(&hold, &open[at], &ending)?.into_iter().collect();
        let users = hold.record_found(&open[at], &end.edits)?;
        if !users.is_empty() {
            disowned.push(Disowned { step: step.to_owned(), paths: Some(users), unclear: false });
        }
        let always = always || !disowned.is_empty();
        let details = Details { disowned, ..Details::default() };
        let cause =
            Cause { ending: Some(ending), always, named_limit, details, ..Cause::outside() };
        let options = TrackOptions::default();
        let Recorded { snapshot, operation, .. } = hold.record(&options, &cause, progress)?;
        let ended = open.remove(at);
        let before = ended.before;
        let after = operation.snapshot;
        let credited = |credit: &Credit| credit.step.step == step;
        let is_change =
            |credit: &Credit| credited(credit) && (credit.has_something() || credit.dirs);
        let changed_something = operation.details.credits.iter().any(is_change);
        if !snapshot.changed || !operation.details.credits.iter().any(credited) {
            mark_turn(&hold, &operation, &ended)?;
        }
        note_sign(&mut open, &ended.info);
        hold.save_steps(&open)?;
        let changed = changes(&hold.store.objects, &before, &after)?;
        if !end.refused && !ended.only_named {
            let made = hold.made_uncaptured(&ended.uncaptured, &before, &operation)?;
            uncaptured.extend(made);
        }
        hold.release();
        Ok(StepEnded {
            step: step.to_owned(),
            before,
            after,
            changed: snapshot.changed && changed_something,
            files: changed.into_iter().map(|change| change.path).collect(),
            skipped: snapshot.skipped,
            uncaptured,
        })
    }
}

/// Maximum size in bytes of an id or name that callers choose. Each is stored with every operation.
pub const MAX_ID_BYTES: usize = 1024;

/// Maximum size in bytes of a path that a step names (PATH_MAX on Linux). Longer ones are ignored.
const MAX_PATH_BYTES: usize = 4096;

/// Maximum total size in bytes of the paths that a step names. More are ignored: each command reads
/// the paths of all open steps.
const MAX_PATHS_BYTES: usize = 1 << 20;

/// Refuses ids and names that are too long. Labels are truncated instead.
pub(crate) fn check_lengths(info: &StepInfo) -> Result<(), Error> {
    let parent = info.parent.as_ref();
    let texts = [
        ("the step", Some(&info.step)),
        ("the session", Some(&info.session)),
        ("the message", info.message.as_ref()),
        ("the part", info.part.as_ref()),
        ("the tool", info.tool.as_ref()),
        ("the agent", info.who.as_ref()),
        ("the parent's session", parent.map(|parent| &parent.session)),
        ("the parent's message", parent.and_then(|parent| parent.message.as_ref())),
    ];
    for (what, text) in texts {
        check_length(what, text.map(String::as_str))?;
    }
    Ok(())
}

/// Refuses a text that is too long.
pub(crate) fn check_length(what: &'static str, text: Option<&str>) -> Result<(), Error> {
    if text.is_some_and(|text| text.len() > MAX_ID_BYTES) {
        Err(Error::Session(SessionError::TooLong { what, max: MAX_ID_BYTES }))
    } else {
        Ok(())
    }
}

/// Truncates a label to [`MAX_ID_BYTES`], at a character boundary.
fn clipped(mut label: String) -> String {
    let end = (0..=MAX_ID_BYTES.min(label.len())).rev().find(|at| label.is_char_boundary(*at));
    label.truncate(end.unwrap_or(0));
    label
}

/// Drops paths beyond the limits. Returns whether the remaining ones are all that the tool can
/// change.
fn limit_paths(paths: &mut Vec<TreePath>) -> bool {
    // The kernel rejects longer paths.
    paths.retain(|path| path.as_bytes().len() <= MAX_PATH_BYTES);
    let all = paths.len();
    let mut bytes = 0;
    paths.retain(|path| {
        bytes += path.as_bytes().len();
        bytes <= MAX_PATHS_BYTES
    });
    paths.len() == all
}

/// Records the state before a step. Large named files are captured after the tree is recorded; that
/// is a best effort, whose errors are ignored.
fn record_before(
    hold: &Hold,
    paths: &[TreePath],
    named_limit: NamedLimit,
    progress: &Progress,
) -> Result<(Snapshot, Operation), Error> {
    let options = TrackOptions::default();
    let few = NamedLimit { bytes: Some(QUICK_NAMED_BYTES), until: None };
    let record = |named_limit| {
        let cause = Cause { named: paths.to_vec(), named_limit, ..Cause::outside() };
        hold.record(&options, &cause, progress)
    };
    let Recorded { snapshot, operation, .. } = record(few)?;
    if unknown_of(hold, &operation, paths).is_empty() {
        return Ok((snapshot, operation));
    }
    let operation = record(named_limit).map_or(operation, |recorded| recorded.operation);
    Ok((snapshot, operation))
}

/// Updates the last sign of activity of a turn's open steps: its agent is still working on them.
fn note_sign(open: &mut [OpenStep], info: &StepInfo) {
    let now = Time::now().millis();
    for step in open.iter_mut().filter(|step| !step.abandoned) {
        if step.info.session == info.session && step.info.turn() == info.turn() {
            step.last_sign_millis = now;
        }
    }
}

impl Workspace {
    /// Returns the steps that have begun and not ended, oldest first. Takes no lock.
    pub fn open_steps(&self) -> Result<Vec<StepInfo>, Error> {
        let Some((_, work_tree)) = self.existing()? else { return Ok(Vec::new()) };
        let open = load_steps(&work_tree.steps_path())?;
        Ok(open.into_iter().filter(|step| !step.abandoned).map(|step| step.info).collect())
    }

    /// Closes steps that their agent will not end, and marks them as inferred.
    ///
    /// Changes since their beginning are attributed to them. Steps that are not open are skipped.
    /// If none is open, nothing is scanned.
    pub fn close_steps(&self, steps: &[String], progress: &Progress) -> Result<(), Error> {
        let hold = self.begin()?;
        let mut open = hold.open_steps()?;
        let mut marked = false;
        for step in open.iter_mut().filter(|step| steps.contains(&step.info.step)) {
            step.abandoned = true;
            marked = true;
            self.record_abandoned(&hold, step);
        }
        if !marked {
            return Ok(());
        }
        // Saved first: the snapshot attributes changes to the marked steps, then drops them.
        hold.save_steps(&open)?;
        let options = TrackOptions::default();
        hold.record(&options, &Cause::outside(), progress)?;
        hold.release();
        Ok(())
    }
}

/// Returns the changes that operations since the beginning of a step credit to it, because they
/// were recorded while it was open, and that its end shows are not its own: the tool was refused,
/// or started later.
fn disowned(hold: &Hold, step: &OpenStep, ending: &Ending) -> Result<Option<Disowned>, Error> {
    if !ending.refused && ending.ran.is_none() {
        return Ok(None);
    }
    let credited = hold.credits_since(step)?;
    if ending.refused {
        let all = Disowned { step: step.info.step.clone(), paths: None, unclear: false };
        return Ok((!credited.is_empty()).then_some(all));
    }
    let is_earlier = |path: &TreePath| {
        let times = hold.changed_at(path).zip(ending.ran);
        times.is_some_and(|(changed, ran)| ran.excludes(changed, path, step))
    };
    let paths = credited.into_iter().flat_map(|credit| credit.paths.unwrap_or_default());
    let paths: Vec<TreePath> = paths.filter(is_earlier).collect();
    let is_some = !paths.is_empty();
    let step = step.info.step.clone();
    Ok(is_some.then_some(Disowned { step, paths: Some(paths), unclear: false }))
}

/// Returns the named files that exist but that the operation does not hold.
fn unknown_of(hold: &Hold, operation: &Operation, paths: &[TreePath]) -> Vec<TreePath> {
    let Some(id) = &operation.meta.ignored_snapshot else { return Vec::new() };
    let Ok(ignored) = read_ignored(&hold.store.objects, id) else { return Vec::new() };
    paths.iter().filter(|path| ignored.is_unknown(path.as_bytes())).cloned().collect()
}

/// Returns the turn that a sub-agent's step works for, as far as its parent's open steps show it.
fn parent_turn(open: &[OpenStep], info: &StepInfo) -> Option<ParentTurn> {
    let parent = info.parent.clone()?;
    let waiting = open.iter().rev().find(|step| step.info.session == parent.session);
    match waiting {
        // A nested sub-agent works for the turn that started the outermost one.
        Some(step) if step.info.parent.is_some() => step.info.parent.clone(),
        Some(step) if parent.message.is_none() => {
            Some(ParentTurn { message: Some(step.info.turn().to_owned()), ..parent })
        }
        _ => Some(parent),
    }
}

/// Records a step that changed nothing if it is the first of its message, so that the session can
/// be reverted to that message.
fn mark_turn(hold: &Hold, last: &Operation, step: &OpenStep) -> Result<(), Error> {
    if step.info.message.is_none() {
        return Ok(());
    }
    let known = hold.work_tree.newest_of(&hold.store, &step.info.session)?;
    let is_known = known.is_some_and(|known| {
        let credits = &known.details.credits;
        credits.iter().any(|credit| credit.step.message == step.info.message)
    });
    if is_known {
        return Ok(());
    }
    let credit = Credit {
        step: step.info.clone(),
        paths: Some(Vec::new()),
        dirs: false,
        only_named: step.only_named,
        apart: false,
        unclear: Vec::new(),
        inferred: false,
        named: Vec::new(),
        earlier_ignored: Vec::new(),
        uncaptured: Vec::new(),
        outside: false,
        begun: step.before_operation.clone(),
        began_millis: step.began_millis,
    };
    let details = Details { credits: vec![credit], ..Details::default() };
    append(hold, last, OperationKind::Step, details)
}

impl Workspace {
    /// Marks steps that the same session left open in an earlier turn: its agent was interrupted.
    fn abandon_earlier_turns(
        &self,
        hold: &Hold,
        mut open: Vec<OpenStep>,
        next: &StepInfo,
    ) -> Result<Vec<OpenStep>, Error> {
        let mut marked = false;
        for step in &mut open {
            let earlier = step.info.session == next.session && step.info.turn() != next.turn();
            if earlier && !step.abandoned && !step.is_owned() {
                step.abandoned = true;
                marked = true;
                self.record_abandoned(hold, step);
            }
        }
        if marked {
            // Saved first because the next snapshot attributes changes to the marked steps.
            hold.save_steps(&open)?;
        }
        Ok(open)
    }

    /// Adds the paths outside of the work tree that were left out to the watched ones, and notes
    /// which repositories were captured.
    fn watch_captured(&self, hold: &Hold, captured: Captured, watched: &mut Vec<Watched>) {
        let root = self.root().as_os_str().as_bytes();
        let repositories = captured.repositories.into_iter().map(|path| {
            let inside = path.strip_prefix(root).and_then(|path| path.strip_prefix(b"/"));
            (inside.map(<[u8]>::to_vec).unwrap_or(path), CAPTURED_REPOSITORY.to_owned())
        });
        // Those inside of the work tree belong to a repository, which is watched itself.
        let left_out = captured.left_out.into_iter().filter(|(path, _)| !is_within(path, root));
        let new = hold.watch(repositories.chain(left_out));
        watched.retain(|known| !new.iter().any(|new| new.path == known.path));
        watched.extend(new);
    }

    /// Records the state that a step left outside of the work tree. Returns whether it changed.
    fn end_outside(&self, hold: &Hold, step: &str, is_refused: bool) -> bool {
        let outside = self.outside_of(hold);
        let changed = if is_refused {
            outside.forget_step(step).map(|()| false)
        } else {
            outside.record_after(step)
        };
        // On error the step counts as changed: undo compares the capture with the present state.
        changed.unwrap_or(true)
    }

    /// Records the state that an interrupted step left outside of the work tree.
    fn record_abandoned(&self, hold: &Hold, step: &OpenStep) {
        // Errors are ignored because undo then compares with the present state.
        drop(self.outside_of(hold).record_after(&step.info.step));
    }
}
