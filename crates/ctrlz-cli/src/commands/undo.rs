//! `ctrlz undo`: undoes changes of agents and keeps later changes of others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use ctrlz_api::methods::{self, FromMessage, OperationParams, Scope, StepsParams, UndoParams};
use ctrlz_api::{Action, OutsideChange, StepRecord, UndoReport, Unrecorded};

use super::restore::{action_line, not_checked_line, recovered_line};
use super::{Done, gc};
use crate::failure::Failure;
use crate::place::{Place, as_given, hash};
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
    let mut params = UndoParams {
        scope: scope(args),
        session: args.session.clone(),
        paths: as_given(&args.paths),
        force: args.force,
        ignored: args.ignored,
        outside: args.outside,
        interrupt: args.interrupt,
        restores: true,
        allow_mass_removal: args.yes,
        plan: args.plan.as_deref().map(hash),
        ..UndoParams::default()
    };
    if args.dry_run {
        let report = place.plan(methods::plan_undo, &params)?;
        return show_plan(place, "would undo", &report, args.yes, out);
    }
    params.unclear = !out.is_json() && asks_for_unclear(place, &params)?;
    let report = place.call(methods::undo, &params)?;
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
    Ok(Done::of(report.complete))
}

/// Returns whether `--force` would change a path that a report lists as unchanged.
pub(super) fn is_forceable(report: &UndoReport) -> bool {
    let is_open = |reason: &str| ["merge", "shared", "unclear"].contains(&reason);
    report.conflicts.iter().any(|conflict| is_open(&conflict.reason))
        || report.kept.iter().any(|kept| kept.reason == "in_use")
}

/// Asks whether to undo changes made while an interrupted command may have been running.
fn asks_for_unclear(place: &Place, params: &UndoParams) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() || params.force {
        return Ok(false);
    }
    let plan = place.call(methods::plan_undo, params)?;
    let unclear: Vec<_> =
        plan.conflicts.iter().filter(|conflict| conflict.reason == "unclear").collect();
    if unclear.is_empty() {
        return Ok(false);
    }
    render::note("changed while the command may have been running:");
    unclear.iter().for_each(|conflict| render::note(&format!("  {}", conflict.path)));
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

fn scope(args: &UndoArgs) -> Scope {
    match args {
        UndoArgs { step: Some(step), .. } => Scope::Step(step.clone()),
        UndoArgs { message: Some(message), .. } => Scope::Message(message.clone()),
        UndoArgs { to: Some(message), .. } => {
            Scope::From(FromMessage { message: message.clone(), part: args.part.clone() })
        }
        UndoArgs { last_step: true, .. } => Scope::LastStep,
        UndoArgs { all: true, .. } => Scope::Session,
        UndoArgs { .. } => Scope::LastTurn,
    }
}

/// Prints a plan and the command that applies it. Fails like that command if the plan removes an
/// unusual share of the files and that is not allowed.
pub(super) fn show_plan(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    is_allowed: bool,
    out: &mut Output,
) -> Result<Done, Failure> {
    show(place, verb, report, out)?;
    if !out.is_json() {
        out.line(&format!("plan {}", report.plan))?;
        out.line(&format!("apply it: {} apply {}", render::program(), report.plan))?;
    }
    refuse_mass_removal(report.mass_removal, is_allowed, out)?;
    Ok(Done::of(report.complete))
}

/// Prints the steps of a report and its effect on every file.
pub(super) fn show(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    out: &mut Output,
) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(report);
    }
    if let Some(line) = recovered_line(report.recovered.as_ref()) {
        out.line(&line)?;
    }
    if let Some(operation) = &report.takes_back {
        let params = OperationParams { operation: operation.clone(), files: Some(0) };
        let restore = place.read(methods::operation, &params)?;
        let (kind, age) = (restore.kind, render::age(restore.at_millis));
        out.line(&format!("{verb} the {kind} of {age} (operation {operation})"))?;
    }
    let verb_of_steps = match (&report.takes_back, verb) {
        (None, verb) => verb,
        (Some(_), "would undo") => "would bring back",
        (Some(_), _) => "brought back",
    };
    for line in step_lines(&steps(place)?, report) {
        out.line(&format!("{verb_of_steps} {line}"))?;
    }
    let mut actions: Vec<&Action> = report.done.iter().collect();
    actions.sort_by_key(|action| &action.path);
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

/// Returns all steps of the work tree, oldest first.
pub(super) fn steps(place: &Place) -> Result<Vec<StepRecord>, Failure> {
    let params = StepsParams { limit: Some(u64::MAX), ..StepsParams::default() };
    Ok(place.read(methods::steps, &params)?.steps)
}

/// Prints the changes of paths outside of the project.
fn show_outside(verb: &str, report: &UndoReport, out: &mut Output) -> Result<(), Failure> {
    let is_repository = |change: &&OutsideChange| change.kept.as_deref() == Some("repository");
    let (repositories, changes): (Vec<_>, Vec<_>) = report.outside.iter().partition(is_repository);
    if !changes.is_empty() {
        // Only undo can restore paths outside of the project.
        let is_offered = verb.ends_with("undo") && changes.iter().any(|one| one.action.is_some());
        out.line(match (report.outside_asked, is_offered) {
            (true, _) => "outside of the project:",
            (false, true) => "changed outside of the project, and left; --outside puts it back:",
            (false, false) => "changed outside of the project, and left:",
        })?;
    }
    for change in changes.into_iter().chain(repositories.iter().copied()) {
        out.line(&outside_line(change))?;
    }
    if !repositories.is_empty() {
        let program = render::program();
        out.line(&format!("the captured repository: {program} recover --git --into DIR"))?;
    }
    Ok(())
}

fn outside_line(change: &OutsideChange) -> String {
    let OutsideChange { root, path, action, mode, kept, why } = change;
    match (kept.as_deref(), *action) {
        (None | Some("not_asked"), Some(action)) => {
            action_line(&Action { action, path: path.clone(), mode: *mode })
        }
        _ => {
            let why = why.as_deref().unwrap_or_default();
            let whole = if root == path {
                String::new()
            } else {
                format!("; nothing in {root} is put back")
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
        let sign = if kept.failure { '!' } else { '=' };
        format!("{sign} kept       {}: {}", kept.path, printable(&kept.text))
    });
    let lost = report.uncaptured.iter().take(MAX_LOST).map(|lost| {
        let (path, what) = (&lost.path, printable(&lost.text));
        if lost.loss {
            format!("! lost       {path}: it {what}")
        } else {
            format!("= kept       {path}: {what}")
        }
    });
    let more = report.uncaptured.iter().skip(MAX_LOST).filter(|lost| lost.loss).count();
    let more = (more > 0).then(|| {
        let (paths, program) = (render::paths(more), render::program());
        format!("! lost       {paths} more; `{program} log --lost -n {MAX_LISTED}` lists them")
    });
    let left = report.left.iter().map(|name| format!("! left       {name}"));
    let expired = report.expired.iter().map(|expired| match &expired.info {
        Some(step) => format!("! expired    {} (step {})", render::step(step), step.step),
        None => format!("! expired    older steps of session {}", expired.session),
    });
    let expired = expired.map(|line| printable(&line));
    let gaps = report.unrecorded.iter().map(|newer| {
        let Unrecorded { before, gap, .. } = newer;
        let who = render::agents(gap);
        let who = if who.is_empty() { "an agent".into() } else { who };
        printable(&format!(
            "! stays      newer work of {who}, {}; `{} restore --exact {before}` takes it back",
            render::gap(gap),
            render::program()
        ))
    });
    let unrecorded = report.not_recorded.iter().map(|why| {
        format!("! the files are as listed, but that could not be recorded: {}", printable(why))
    });
    let kept = conflicts.chain(kept).chain(lost).chain(more).chain(left);
    kept.chain(expired).chain(gaps).chain(unrecorded).collect()
}
