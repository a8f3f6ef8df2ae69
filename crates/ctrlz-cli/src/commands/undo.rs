//! `ctrlz undo`: undoes changes of agents and keeps later changes of others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ctrlz::{
    Action, ConflictReason, OnUse, OutsideAction, OutsideChange, OutsideKept, Rewind, StepRecord,
    UndoOptions, UndoReport, UndoScope,
};

use super::restore::{action_line, not_checked_line, recovered_line};
use super::{Done, gc};
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::progress::watched;
use crate::render::{self, Output, printable};

/// Undo the last turn, and keep your later changes
///
/// Without options, undoes every step of the newest message that is not undone yet. Run it again to
/// go further back. If a file was changed since, the changes are merged by line; if they do not
/// merge, the file is left unchanged and marked with !. Exit code 3 means that something was left
/// unchanged. `ctrlz redo` reverses the undo.
///
/// To review the changes first, run `ctrlz undo --dry-run`, then `ctrlz apply PLAN`.
#[derive(clap::Args, Debug)]
pub(crate) struct UndoArgs {
    /// Undo one step, and keep later ones
    #[arg(long, value_name = "ID", group = "scope")]
    step: Option<String>,
    /// Undo one message, and keep later ones
    #[arg(long, value_name = "M", group = "scope")]
    message: Option<String>,
    /// Undo a message and everything its session did after it
    #[arg(long, value_name = "MESSAGE", group = "scope")]
    to: Option<String>,
    /// With --to: keep the parts of the message before part P
    #[arg(long, value_name = "P", requires = "to")]
    part: Option<String>,
    /// Undo only the newest step
    #[arg(long, group = "scope")]
    last_step: bool,
    /// Undo everything the session did
    #[arg(long, group = "scope")]
    all: bool,
    /// Undo in session ID; by default, in the most recently active one
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Use the earlier version where changes do not merge, and replace files in use
    #[arg(long)]
    force: bool,
    /// Also undo changes of ignored files that no tool named
    #[arg(long)]
    ignored: bool,
    /// Also put back files outside of the project that an agent's tool named and changed; directly
    /// after an undo, only those
    #[arg(long)]
    outside: bool,
    /// First close the session's open steps, if its agent has exited or should stop
    #[arg(long)]
    interrupt: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
    /// Proceed only if the plan is still the one that --dry-run printed
    #[arg(long, value_name = "HASH")]
    plan: Option<OsString>,
    /// Undo only these paths and everything below them
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// Maximum number of lost paths that a report lists.
const MAX_LOST: usize = 20;
/// Number of paths in the command that lists the others.
const MAX_LISTED: usize = 10_000;

pub(crate) fn run(place: &Place, args: &UndoArgs, out: &mut Output) -> Result<Done, Failure> {
    let scope = scope(args);
    let options = UndoOptions {
        session: args.session.clone(),
        paths: place.paths(&args.paths)?,
        force: args.force,
        ignored: args.ignored,
        unclear: false,
        in_use: OnUse::Leave,
        restores: true,
        by_person: true,
        outside: args.outside,
        interrupt: args.interrupt,
        allow_mass_removal: args.yes,
        expected_plan: args.plan.as_deref().map(hash).transpose()?,
    };
    if args.dry_run {
        place.workspace.check_finished()?;
        let rewind = Rewind::Undo { scope, options: options.clone() };
        let report = watched(|progress| place.workspace.plan(&rewind, progress))?;
        if options.expected_plan.is_some_and(|expected| expected != report.plan) {
            return Err(ctrlz::Error::Restore(ctrlz::RestoreError::StalePlan).into());
        }
        show_plan(place, "would undo", &report, out)?;
        refuse_mass_removal(report.mass_removal, args.yes, out)?;
        return Ok(Done::of(report.is_complete()));
    }
    let unclear = !out.is_json() && asks_for_unclear(place, &scope, &options)?;
    let options = UndoOptions { unclear, ..options };
    let report = watched(|progress| place.workspace.undo(&scope, &options, progress))?;
    show(place, "undo", &report, out)?;
    if !out.is_json() {
        out.line(&match report.after {
            Some(_) => format!("redo: {} redo", render::program()),
            None if !args.force && is_forceable(&report) => {
                "nothing was undone; --force takes the earlier versions".into()
            }
            None => "nothing was undone".into(),
        })?;
    }
    out.finish()?;
    gc::begin_if_due(place);
    Ok(Done::of(report.is_complete()))
}

/// Returns whether `--force` would change a path that a report lists as unchanged.
pub(super) fn is_forceable(report: &UndoReport) -> bool {
    use ConflictReason::{Merge, Shared, Unclear};
    let in_use = |kept: &ctrlz::Kept| matches!(kept.reason, ctrlz::KeptReason::InUse { .. });
    let is_open = |kept: &ctrlz::Conflict| matches!(kept.reason, Merge | Shared | Unclear);
    report.conflicts.iter().any(is_open) || report.kept.iter().any(in_use)
}

/// Asks whether to undo changes made while an interrupted command may have been running.
fn asks_for_unclear(
    place: &Place,
    scope: &UndoScope,
    options: &UndoOptions,
) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() || options.force {
        return Ok(false);
    }
    let rewind = Rewind::Undo { scope: scope.clone(), options: options.clone() };
    let plan = watched(|progress| place.workspace.plan(&rewind, progress))?;
    let unclear: Vec<_> =
        plan.conflicts.iter().filter(|kept| kept.reason == ConflictReason::Unclear).collect();
    if unclear.is_empty() {
        return Ok(false);
    }
    render::note("changed while the interrupted command may have been running:");
    unclear.iter().for_each(|kept| render::note(&format!("  {}", kept.path)));
    Ok(render::asks("take these back too? [y/N] "))
}

/// Ends a dry run like the command itself, which needs `--yes` to remove an unusual share of the
/// files. With `--json` the plan is the whole output, and `apply` refuses it without `--yes`.
pub(crate) fn refuse_mass_removal(
    mass: Option<(u64, u64)>,
    is_allowed: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    match mass.filter(|_| !is_allowed && !out.is_json()) {
        Some((removed, files)) => {
            out.finish()?;
            Err(ctrlz::Error::Restore(ctrlz::RestoreError::MassChange { removed, files }).into())
        }
        None => Ok(()),
    }
}

fn scope(args: &UndoArgs) -> UndoScope {
    match args {
        UndoArgs { step: Some(step), .. } => UndoScope::Step { step: step.clone() },
        UndoArgs { message: Some(message), .. } => UndoScope::Message { message: message.clone() },
        UndoArgs { to: Some(message), .. } => {
            UndoScope::From { message: message.clone(), part: args.part.clone() }
        }
        UndoArgs { last_step: true, .. } => UndoScope::LastStep,
        UndoArgs { all: true, .. } => UndoScope::Session,
        UndoArgs { .. } => UndoScope::LastTurn,
    }
}

/// Prints a plan and the command that applies it.
pub(super) fn show_plan(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    out: &mut Output,
) -> Result<Done, Failure> {
    show(place, verb, report, out)?;
    if !out.is_json() {
        out.line(&format!("plan {}", report.plan))?;
        out.line(&format!("apply it: {} apply {}", render::program(), report.plan))?;
    }
    Ok(Done::of(report.is_complete()))
}

/// Prints the steps of a report and its effect on every file.
pub(super) fn show(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    out: &mut Output,
) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&ctrlz_api::UndoReport::from(report));
    }
    if let Some(line) = recovered_line(report.recovered.as_ref()) {
        out.line(&line)?;
    }
    if let Some(operation) = &report.takes_back {
        let restore = place.workspace.find_operation(operation, 0)?;
        let (kind, age) = (render::kind(restore.kind), render::age(restore.at_millis));
        out.line(&format!("{verb} the {kind} of {age} (operation {operation})"))?;
    }
    for line in step_lines(&place.workspace.steps()?, report) {
        out.line(&format!("{verb} {line}"))?;
    }
    let mut actions: Vec<&Action> = report.done.iter().collect();
    actions.sort_by_key(|action| action.path());
    for action in actions {
        out.line(&action_line(action))?;
    }
    let kept = kept_lines(report);
    for line in &kept {
        out.line(line)?;
    }
    if let Some(line) = not_checked_line(&report.not_checked) {
        out.line(&line)?;
    }
    if report.done.is_empty() && kept.is_empty() && report.outside.is_empty() {
        out.line("no file to change")?;
    }
    if !report.ignored.is_empty() {
        out.line("ignored files that changed and stay; --ignored includes them:")?;
    }
    for left in &report.ignored {
        out.line(&format!("= ignored    {}: {}", left.path, printable(&left.why)))?;
    }
    show_outside(verb, report, out)?;
    if let Some(hint) = &report.git_hint {
        out.line(&format!("your git moved too; to move it back: {}", printable(hint)))?;
    }
    Ok(())
}

/// Prints the changes of paths outside of the project.
fn show_outside(verb: &str, report: &UndoReport, out: &mut Output) -> Result<(), Failure> {
    let changes = &report.outside;
    match (changes.is_empty(), report.outside_asked) {
        (true, _) => return Ok(()),
        (false, true) => out.line("outside of the project:")?,
        // Only undo can restore paths outside of the project.
        (false, false) if verb.ends_with("undo") => {
            out.line("changed outside of the project, and left; --outside puts it back:")?;
        }
        (false, false) => out.line("changed outside of the project, and left:")?,
    }
    for change in changes {
        out.line(&outside_line(change))?;
    }
    if changes.iter().any(|change| change.kept == Some(OutsideKept::Repository)) {
        let program = render::program();
        out.line(&format!("the captured repository: {program} recover --git --into DIR"))?;
    }
    Ok(())
}

fn outside_line(change: &OutsideChange) -> String {
    let shown = |path: &Path| ctrlz::escape(path.as_os_str().as_bytes());
    let path = shown(&change.path);
    match (&change.kept, change.action) {
        (None | Some(OutsideKept::NotAsked), Some(action)) => match action {
            OutsideAction::Create => format!("+ create     {path}"),
            OutsideAction::Overwrite => format!("~ overwrite  {path}"),
            OutsideAction::Remove => format!("- remove     {path}"),
            OutsideAction::SetMode { mode } => format!("m mode       {path} ({mode:04o})"),
            OutsideAction::CreateDirectory => format!("+ create     {path}/"),
        },
        (kept, _) => {
            let why = kept.as_ref().map(OutsideKept::describe).unwrap_or_default();
            let whole = if change.root == change.path {
                String::new()
            } else {
                format!("; nothing in {} is put back", shown(&change.root))
            };
            format!("! kept       {path}: {}", printable(&format!("{why}{whole}")))
        }
    }
}

/// Returns one line per step of the report. A step may have several records.
fn step_lines(steps: &[StepRecord], report: &UndoReport) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let named = steps.iter().map(|step| &step.info);
    named
        .filter(|info| report.steps.contains(&info.step) && seen.insert(&info.step))
        .map(|info| {
            let who = info.who.as_deref().map(|who| format!("{who}, ")).unwrap_or_default();
            let whose = printable(&format!("({who}session {})", info.session));
            format!("{} {whose}", render::step(info))
        })
        .collect()
}

/// Returns a line for each path that is left unchanged, marked with `!` if that is a failure.
pub(super) fn kept_lines(report: &UndoReport) -> Vec<String> {
    let conflicts = report.conflicts.iter();
    let conflicts =
        conflicts.map(|kept| format!("! kept       {}: {}", kept.path, printable(&kept.why)));
    let kept = report.kept.iter().map(|kept| {
        let sign = if kept.reason.is_failure() { '!' } else { '=' };
        format!("{sign} kept       {}: {}", kept.path, printable(&kept.reason.describe()))
    });
    let lost = report.uncaptured.iter().take(MAX_LOST).map(|lost| {
        let (path, what) = (ctrlz::escape(&lost.path), printable(&lost.describe()));
        if lost.is_loss() {
            format!("! lost       {path}: it {what}")
        } else {
            format!("= kept       {path}: {what}")
        }
    });
    let more = report.uncaptured.iter().skip(MAX_LOST).filter(|lost| lost.is_loss()).count();
    let more = (more > 0).then(|| {
        let (paths, program) = (render::paths(more), render::program());
        format!("! lost       {paths} more; `{program} log --lost -n {MAX_LISTED}` lists them")
    });
    let left = report.left.iter().map(|name| format!("! left       {name}"));
    let expired = report.expired.iter().map(|expired| match &expired.step {
        Some(step) => format!("! expired    {} (step {})", render::step(step), step.step),
        None => format!("! expired    older steps of session {}", expired.session),
    });
    let expired = expired.map(|line| printable(&line));
    let gaps = report.unrecorded.iter().map(|newer| {
        let ctrlz::Unrecorded { before, gap, .. } = newer;
        let who = gap.agents().join(", ");
        let who = if who.is_empty() { "an agent".into() } else { who };
        printable(&format!(
            "! stays      newer work of {who}, {}; `{} restore --exact {before}` takes it back",
            gap.describe(),
            render::program()
        ))
    });
    let unrecorded = report.not_recorded.iter().map(|why| {
        format!("! the files are as listed, but that could not be recorded: {}", printable(why))
    });
    let kept = conflicts.chain(kept).chain(lost).chain(more).chain(left);
    kept.chain(expired).chain(gaps).chain(unrecorded).collect()
}
