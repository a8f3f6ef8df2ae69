//! `ctrlz restore`: brings the work tree back to a snapshot.

use std::ffi::OsString;
use std::path::PathBuf;

use ctrlz::{
    Action, Kept, KeptReason, OnUse, Plan, Recovery, RestoreOptions, RestoreReport, TreePath,
};

use super::Done;
use super::undo::refuse_mass_removal;
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::progress::watched;
use crate::render::{self, Output};

/// Bring the work tree back to a snapshot
///
/// Records the present state first, so that the restore can itself be undone with the command it
/// prints. Only files that differ are written. Files created since stay, unless --exact asks to
/// remove them; files that were ignored or skipped always stay. In a sub-directory and without
/// paths, only that sub-directory is restored. Exit code 3 means that something was kept although
/// the snapshot has it differently; it is named with the reason.
#[derive(clap::Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The snapshot to bring back, the operation that recorded it, or a checkpoint
    ///
    /// A checkpoint is named by its name or label, `latest` or `resume`.
    /// An operation also tells apart states that differ only in permissions or empty directories,
    /// which a hash does not cover.
    /// Without it, the newest state that was pulled or imported, where nothing was recorded yet.
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
    /// Go on only if the plan still is the one that --dry-run named
    #[arg(long, value_name = "HASH")]
    plan: Option<OsString>,
    /// Name every file that was created since and stays
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Restore only these paths and what is below them
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &RestoreArgs, out: &mut Output) -> Result<Done, Failure> {
    let to = match &args.to {
        Some(to) => place.point(to)?,
        None => place.workspace.newest_from_elsewhere()?,
    };
    let options = RestoreOptions {
        exact: args.exact,
        paths: scoped_paths(place, &args.paths)?,
        allow_mass_removal: args.yes,
        in_use: on_use(args.force),
        by_person: true,
        expected_plan: args.plan.as_deref().map(hash).transpose()?,
    };
    let detail = Detail::of(args.verbose);
    if args.dry_run {
        place.workspace.check_finished()?;
        let plan = watched(|progress| place.workspace.plan_restore(to, &options, progress))?;
        if options.expected_plan.is_some_and(|expected| expected != plan.hash) {
            return Err(ctrlz::Error::StalePlan.into());
        }
        let done = show_plan(&plan, detail, out)?;
        refuse_mass_removal(plan.mass_removal, args.yes, out)?;
        return Ok(done);
    }
    let report = watched(|progress| place.workspace.restore(to, &options, progress))?;
    show_report(&report, detail, out)
}

/// The paths that were named, or the sub-directory the command acts in.
fn scoped_paths(place: &Place, named: &[PathBuf]) -> Result<Vec<TreePath>, Failure> {
    if !named.is_empty() {
        return place.paths(named);
    }
    let scope = place.scope()?;
    if let Some(scope) = &scope {
        let root = place.root().display();
        render::note(&format!("limited to {scope}/; use -C {root} to restore all of it"));
    }
    Ok(scope.into_iter().collect())
}

/// The policy that `--force` gives for files that other processes have open.
pub(super) fn on_use(force: bool) -> OnUse {
    if force { OnUse::Replace } else { OnUse::Leave }
}

/// Whether files that merely were created since are named or counted.
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

/// Shows what would be done.
pub(super) fn show_plan(plan: &Plan, detail: Detail, out: &mut Output) -> Result<Done, Failure> {
    if out.is_json() {
        out.json(&ctrlz_wire::Plan::from(plan))?;
        return Ok(Done::of(plan.is_complete()));
    }
    // By path, as people look for files; the plan itself is sorted by what is done.
    let mut actions: Vec<&Action> = plan.actions.iter().collect();
    actions.sort_by_key(|action| action.path());
    for action in actions {
        out.line(&action_line(action))?;
    }
    show_kept(&plan.kept, detail, out)?;
    not_checked_line(&plan.not_checked).into_iter().try_for_each(|line| out.line(&line))?;
    out.line(&format!("plan {}", plan.hash))?;
    Ok(Done::of(plan.is_complete()))
}

/// One line per path, the same for every command that changes files.
pub(super) fn action_line(action: &Action) -> String {
    match action {
        Action::Create { path } => format!("+ create     {path}"),
        Action::Overwrite { path } => format!("~ overwrite  {path}"),
        Action::Remove { path } => format!("- remove     {path}"),
        Action::SetMode { path, mode } => format!("m mode       {path} ({mode:04o})"),
        Action::CreateDirectory { path } => format!("+ create     {path}/"),
        Action::RemoveDirectory { path } => format!("- remove     {path}/"),
    }
}

/// Shows what was done, what was not, and the way back.
pub(super) fn show_report(
    report: &RestoreReport,
    detail: Detail,
    out: &mut Output,
) -> Result<Done, Failure> {
    let complete = report.is_complete();
    if out.is_json() {
        out.json(&ctrlz_wire::RestoreReport::from(report))?;
        return Ok(Done::of(complete));
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
        // The operation, not the hash: the restore may have changed nothing but permissions.
        out.line(&format!("before: {}", report.safety))?;
        let (program, operation) = (render::program(), &report.safety_operation);
        out.line(&format!("undo: {program} restore --exact {operation}"))?;
    }
    Ok(Done::of(complete))
}

/// Says of how many files the kernel cannot tell whether they are in use.
pub(super) fn not_checked_line(paths: &[TreePath]) -> Option<String> {
    let count = render::files(paths.len());
    (!paths.is_empty())
        .then(|| format!("not checked whether other processes have it open: {count}"))
}

/// Says that a restore which was cut off was finished first.
pub(super) fn recovered_line(recovered: Option<&Recovery>) -> Option<String> {
    let Recovery { files, finished, .. } = recovered?;
    let paths = render::paths(usize::try_from(*files).unwrap_or(usize::MAX));
    Some(match finished {
        true => format!("first, a restore of {paths} that was cut off was finished"),
        false => format!("first, a restore of {paths} that was cut off was rolled back"),
    })
}

fn summary(done: &[Action]) -> String {
    let (mut created, mut overwritten, mut removed, mut modes) = (0, 0, 0, 0);
    for action in done {
        match action {
            Action::Create { .. } | Action::CreateDirectory { .. } => created += 1,
            Action::Overwrite { .. } => overwritten += 1,
            Action::Remove { .. } | Action::RemoveDirectory { .. } => removed += 1,
            Action::SetMode { .. } => modes += 1,
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
    for Kept { path, reason } in kept {
        if *reason == KeptReason::CreatedSince && detail == Detail::Counted {
            created_since += 1;
        } else {
            out.line(&format!("= kept       {path}: {}", reason.describe()))?;
        }
    }
    if created_since > 0 {
        let files = render::files(created_since);
        out.line(&format!("= kept       {files} created since the snapshot"))?;
    }
    Ok(())
}
