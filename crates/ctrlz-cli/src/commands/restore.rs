//! `ctrlz restore`: restores the work tree to a snapshot.

use std::ffi::OsString;
use std::path::PathBuf;

use ctrlz_api::methods::{self, InUse, RestoreParams};
use ctrlz_api::{Action, ActionKind, Kept, Plan, Recovery, RestoreReport, WirePath};

use super::Done;
use super::undo::refuse_mass_removal;
use crate::failure::Failure;
use crate::place::{Place, as_given, hash};
use crate::render::{self, Output};

/// Restore the work tree to a snapshot
///
/// Records the present state first, so that the restore can be undone with the command that it
/// prints. Only files that differ are written. Files created since are kept unless --exact is
/// given; files that were ignored or skipped are always kept. In a subdirectory and without paths,
/// only that subdirectory is restored. Exit code 3 means that a path was left different from the
/// snapshot; it is listed with the reason.
#[derive(clap::Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The snapshot to restore, the operation that recorded it, or a checkpoint
    ///
    /// A checkpoint is given by its name or label, `latest` or `resume`. An operation also
    /// distinguishes states that differ only in permissions or empty directories, which a hash does
    /// not cover. By default, the newest state that was pulled or imported, if nothing was recorded
    /// here yet.
    #[arg(value_name = "HASH|OPERATION|CHECKPOINT")]
    to: Option<OsString>,
    /// Also remove files created since, where the snapshot proves that they did not exist
    #[arg(long)]
    exact: bool,
    /// Show the plan, and change no file
    #[arg(long)]
    dry_run: bool,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
    /// Replace files that other processes have open
    #[arg(long)]
    force: bool,
    /// Proceed only if the plan is still the one that --dry-run printed
    #[arg(long, value_name = "HASH")]
    plan: Option<OsString>,
    /// List every file that was created since and is kept
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Restore only these paths and everything below them
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &RestoreArgs, out: &mut Output) -> Result<Done, Failure> {
    let to = match &args.to {
        Some(to) => place.point(to)?,
        None => place.workspace().transfer().newest_received()?,
    };
    let params = RestoreParams {
        point: Some(to),
        exact: args.exact,
        paths: scoped_paths(place, &args.paths)?,
        by_person: true,
        in_use: in_use(args.force),
        allow_mass_removal: args.yes,
        plan: args.plan.as_deref().map(hash),
        ..RestoreParams::default()
    };
    let detail = Detail::of(args.verbose);
    if args.dry_run {
        let plan = place.plan(methods::plan_restore, &params)?;
        let done = show_plan(&plan, detail, out)?;
        refuse_mass_removal(plan.mass_removal, args.yes, out)?;
        return Ok(done);
    }
    let report = place.call(methods::restore, &params)?;
    show_report(&report, detail, out)
}

/// Returns the named paths, or the subdirectory in which the command acts.
fn scoped_paths(place: &Place, named: &[PathBuf]) -> Result<Vec<WirePath>, Failure> {
    if !named.is_empty() {
        return Ok(as_given(named));
    }
    let scope = place.scope()?;
    if let Some(scope) = &scope {
        let root = place.root().display();
        render::note(&format!("limited to {scope}/; use -C {root} to restore all of it"));
    }
    Ok(scope.iter().map(|_| place.dir().into()).collect())
}

/// Returns the policy of `--force` for files that other processes have open.
pub(super) fn in_use(force: bool) -> InUse {
    if force { InUse::Replace } else { InUse::Leave }
}

/// Whether files that were created since are listed or only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Counted,
    Named,
}

impl Detail {
    pub(super) fn of(verbose: bool) -> Detail {
        if verbose { Detail::Named } else { Detail::Counted }
    }
}

/// Prints a plan.
pub(super) fn show_plan(plan: &Plan, detail: Detail, out: &mut Output) -> Result<Done, Failure> {
    let done = Done::of(!plan.kept.iter().any(|kept| kept.failure));
    if out.is_json() {
        out.json(plan)?;
        return Ok(done);
    }
    // Sorted by path for the user; the plan itself is sorted by action.
    let mut actions: Vec<&Action> = plan.actions.iter().collect();
    actions.sort_by_key(|action| &action.path);
    for action in actions {
        out.line(&action_line(action))?;
    }
    show_kept(&plan.kept, detail, out)?;
    not_checked_line(&plan.not_checked).into_iter().try_for_each(|line| out.line(&line))?;
    out.line(&format!("plan {}", plan.hash))?;
    Ok(done)
}

/// Returns the line for an action, the same in every command that changes files.
pub(super) fn action_line(action: &Action) -> String {
    let Action { action, path, mode } = action;
    match action {
        ActionKind::Create => format!("+ create     {path}"),
        ActionKind::Overwrite => format!("~ overwrite  {path}"),
        ActionKind::Remove => format!("- remove     {path}"),
        ActionKind::SetMode => {
            format!("m mode       {path} ({:04o})", mode.unwrap_or_default())
        }
        ActionKind::CreateDirectory => format!("+ create     {path}/"),
        ActionKind::RemoveDirectory => format!("- remove     {path}/"),
    }
}

/// Prints a report and the command that undoes the restore.
pub(super) fn show_report(
    report: &RestoreReport,
    detail: Detail,
    out: &mut Output,
) -> Result<Done, Failure> {
    let done = Done::of(report.complete);
    if out.is_json() {
        out.json(report)?;
        return Ok(done);
    }
    recovered_line(report.recovered.as_ref()).into_iter().try_for_each(|line| out.line(&line))?;
    out.line(&summary(&report.done))?;
    show_kept(&report.kept, detail, out)?;
    not_checked_line(&report.not_checked).into_iter().try_for_each(|line| out.line(&line))?;
    for left in &report.left {
        out.line(&format!("left {left}: it was changed at the last moment"))?;
    }
    if let Some(why) = &report.not_recorded {
        out.line(&format!("the files are as listed, but that could not be recorded: {why}"))?;
    }
    if report.after != report.safety || !report.done.is_empty() {
        // The operation instead of the hash: the restore may have changed only permissions.
        out.line(&format!("before: {}", report.safety))?;
        let (program, operation) = (render::program(), &report.safety_operation);
        out.line(&format!("undo: {program} restore --exact {operation}"))?;
    }
    Ok(done)
}

/// Returns a line with the number of files that could not be checked for use, or `None` for 0.
pub(super) fn not_checked_line(paths: &[WirePath]) -> Option<String> {
    let count = render::files(paths.len());
    (!paths.is_empty())
        .then(|| format!("not checked whether other processes have it open: {count}"))
}

/// Returns a line about an interrupted restore that was recovered first.
pub(super) fn recovered_line(recovered: Option<&Recovery>) -> Option<String> {
    let Recovery { files, finished, .. } = recovered?;
    let paths = render::paths(usize::try_from(*files).unwrap_or(usize::MAX));
    Some(if *finished {
        format!("first, a restore of {paths} that was cut off was finished")
    } else {
        format!("first, a restore of {paths} that was cut off was rolled back")
    })
}

fn summary(done: &[Action]) -> String {
    let (mut created, mut overwritten, mut removed, mut modes) = (0, 0, 0, 0);
    for action in done {
        match action.action {
            ActionKind::Create | ActionKind::CreateDirectory => created += 1,
            ActionKind::Overwrite => overwritten += 1,
            ActionKind::Remove | ActionKind::RemoveDirectory => removed += 1,
            ActionKind::SetMode => modes += 1,
        }
    }
    if done.is_empty() {
        return "nothing to do".into();
    }
    let parts = [
        (created, "created"),
        (overwritten, "overwritten"),
        (removed, "removed"),
        (modes, "with their mode set"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}

pub(super) fn show_kept(kept: &[Kept], detail: Detail, out: &mut Output) -> Result<(), Failure> {
    let mut created_since = 0;
    for Kept { path, reason, text, .. } in kept {
        if reason == "created_since" && detail == Detail::Counted {
            created_since += 1;
        } else {
            out.line(&format!("= kept       {path}: {text}"))?;
        }
    }
    if created_since > 0 {
        let files = render::files(created_since);
        out.line(&format!("= kept       {files} created since the snapshot"))?;
    }
    Ok(())
}
