//! `ctrlz undo`: takes back what an agent did, and keeps what others did since.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ctrlz::{Action, OperationKind, StepRecord, TimelineQuery, UndoOptions, UndoReport, UndoScope};
use ctrlz_agents::outside::{Changed, Deed, OnConflict, Outside};

use super::restore::action_line;
use super::{Done, gc};
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::progress::watched;
use crate::render::{self, Output, printable};

/// Take back what was done last, and keep what you did since
///
/// Without options, takes back the last turn: every step of the newest message that is not taken
/// back yet. Again goes further back. Where a file was changed since, the changes are merged by
/// line; where they do not merge, the file stays as it is and is marked with !. Exit code 3 means
/// that something stayed. `ctrlz redo` brings everything back.
///
/// Look first, then do exactly that: `ctrlz undo --dry-run`, then `ctrlz apply PLAN`.
#[derive(clap::Args, Debug)]
pub(crate) struct UndoArgs {
    /// Take back one step, and keep later ones
    #[arg(long, value_name = "ID", group = "scope")]
    step: Option<String>,
    /// Take back one message, and keep later ones
    #[arg(long, value_name = "M", group = "scope")]
    message: Option<String>,
    /// Take back a message and everything its session did after it
    #[arg(long, value_name = "MESSAGE", group = "scope")]
    to: Option<String>,
    /// With --to: keep the parts of the message that come before part P
    #[arg(long, value_name = "P", requires = "to")]
    part: Option<String>,
    /// Take back the newest step alone
    #[arg(long, group = "scope")]
    last_step: bool,
    /// Take back everything the session did
    #[arg(long, group = "scope")]
    all: bool,
    /// Look only at session ID; by default, at the one that worked last
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Take the earlier version of a file where changes do not merge
    #[arg(long)]
    force: bool,
    /// Also take back changes of ignored files that no tool named
    #[arg(long)]
    ignored: bool,
    /// Also put back files outside of the project that an agent's tool changed
    #[arg(long)]
    outside: bool,
    /// First close the session's open steps, if its agent is gone or should not go on
    #[arg(long)]
    interrupt: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
    /// Go on only if the plan still is the one that --dry-run named
    #[arg(long, value_name = "HASH")]
    plan: Option<OsString>,
    /// Take back only these paths and what is below them
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &UndoArgs, out: &mut Output) -> Result<Done, Failure> {
    let scope = scope(args);
    let options = UndoOptions {
        session: args.session.clone(),
        paths: place.paths(&args.paths)?,
        force: args.force,
        ignored: args.ignored,
        interrupt: args.interrupt,
        allow_mass_removal: args.yes,
        expected_plan: args.plan.as_deref().map(hash).transpose()?,
    };
    if args.dry_run {
        let report = watched(|progress| place.workspace.plan_undo(&scope, &options, progress))?;
        if options.expected_plan.is_some_and(|expected| expected != report.plan) {
            return Err(ctrlz::Error::StalePlan.into());
        }
        show_plan(place, "would undo", &report, out)?;
        show_outside(place, &report.steps, args, out)?;
        return Ok(Done::Complete);
    }
    if let Some(steps) = left_outside(place, args)? {
        show_outside(place, &steps, args, out)?;
        return Ok(Done::Complete);
    }
    let report = watched(|progress| place.workspace.undo(&scope, &options, progress))?;
    show(place, "undo", &report, out)?;
    show_outside(place, &report.steps, args, out)?;
    if !out.is_json() {
        out.line(match report.after {
            Some(_) => "redo: ctrlz redo",
            None => "nothing was undone; --force takes the earlier versions",
        })?;
    }
    out.finish()?;
    gc::begin_if_due(place);
    Ok(Done::of(report.is_complete()))
}

/// The steps that the last undo took back, if that is the last thing that happened, it left
/// something outside of the project, and that is asked for now: then nothing else is meant.
fn left_outside(place: &Place, args: &UndoArgs) -> Result<Option<Vec<String>>, Failure> {
    if !args.outside {
        return Ok(None);
    }
    let query = TimelineQuery { limit: 1, files: 0, ..TimelineQuery::default() };
    let newest = place.workspace.timeline(&query)?.into_iter().next();
    let Some(undo) = newest.filter(|newest| newest.kind == OperationKind::Undo) else {
        return Ok(None);
    };
    let outside = Outside::of(&place.agents_dir, place.root());
    let left = outside.changed(&undo.undone, OnConflict::Overwrite);
    Ok(if left.is_empty() { None } else { Some(undo.undone) })
}

/// Shows what the steps changed outside of the project, and puts it back if that was asked for.
fn show_outside(
    place: &Place,
    steps: &[String],
    args: &UndoArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    let outside = Outside::of(&place.agents_dir, place.root());
    let conflicts = if args.force { OnConflict::Overwrite } else { OnConflict::Keep };
    let puts_back = args.outside && !args.dry_run;
    let changed = match puts_back {
        true => outside.put_back(steps, conflicts),
        false => outside.changed(steps, conflicts),
    };
    if out.is_json() {
        // The report's form is fixed, so this is for people alone.
        changed.iter().for_each(|changed| render::note(&outside_line(changed)));
        return Ok(());
    }
    match (changed.is_empty(), puts_back) {
        (true, _) => (),
        (false, true) => out.line("outside of the project:")?,
        (false, false) => {
            out.line("changed outside of the project, and left; --outside puts it back:")?;
        }
    }
    changed.iter().try_for_each(|changed| out.line(&outside_line(changed)))
}

fn outside_line(changed: &Changed) -> String {
    let path = ctrlz::escape(changed.path.as_os_str().as_bytes());
    match &changed.deed {
        Deed::Create => format!("+ create     {path}"),
        Deed::Overwrite => format!("~ overwrite  {path}"),
        Deed::Remove => format!("- remove     {path}"),
        Deed::Keep(why) => format!("= kept       {path}: {}", printable(why)),
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

/// Shows a plan and how to carry it out.
pub(super) fn show_plan(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    out: &mut Output,
) -> Result<Done, Failure> {
    show(place, verb, report, out)?;
    if !out.is_json() {
        out.line(&format!("plan {}", report.plan))?;
        out.line(&format!("apply it: ctrlz apply {}", report.plan))?;
    }
    Ok(Done::Complete)
}

/// Shows which steps it is about and what becomes of every file.
pub(super) fn show(
    place: &Place,
    verb: &str,
    report: &UndoReport,
    out: &mut Output,
) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&ctrlz_wire::UndoReport::from(report));
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
    if report.done.is_empty() && kept.is_empty() {
        out.line("no file to change")?;
    }
    if !report.ignored.is_empty() {
        out.line("ignored files that changed and stay; --ignored includes them:")?;
    }
    for left in &report.ignored {
        out.line(&format!("= ignored    {}: {}", left.path, printable(&left.why)))?;
    }
    if let Some(hint) = &report.git_hint {
        out.line(&format!("your git moved too; to move it back: {}", printable(hint)))?;
    }
    Ok(())
}

/// One line per step, in the order of the report; a step may be recorded in several pieces.
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

/// What stays as it is, and why; marked with `!` where it should not have.
pub(super) fn kept_lines(report: &UndoReport) -> Vec<String> {
    let conflicts = report.conflicts.iter();
    let conflicts =
        conflicts.map(|kept| format!("! kept       {}: {}", kept.path, printable(&kept.why)));
    let kept = report.kept.iter().map(|kept| {
        let sign = if kept.reason.is_failure() { '!' } else { '=' };
        format!("{sign} kept       {}: {}", kept.path, printable(&kept.reason.describe()))
    });
    let left = report.left.iter().map(|name| format!("! left       {name}"));
    let unrecorded = report.not_recorded.iter().map(|why| {
        format!("! the files are as listed, but that could not be recorded: {}", printable(why))
    });
    conflicts.chain(kept).chain(left).chain(unrecorded).collect()
}
