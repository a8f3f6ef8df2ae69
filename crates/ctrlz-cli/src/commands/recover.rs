//! `ctrlz recover`: recovers lost files, and lists the versions of a file.

use std::path::{Path, PathBuf};

use ctrlz_api::methods::{self, HistoryParams, RecoverParams};
use ctrlz_api::{Action, Missing, RecoveredRepository, Version, WirePath};

use super::Done;
use super::restore::{Detail, action_line, show_plan, show_report};
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Recover files that disappeared, or list the versions of a file
///
/// Restores the last version of every file at PATH or below it that a snapshot has and the work
/// tree does not. Existing files are never overwritten. `ctrlz log --lost` lists lost files. With
/// --list, shows every recorded version of one file and the command that restores it.
///
/// With --git, writes the newest `.git` directory that an agent's command named and destroyed to a
/// new directory: nothing inside of a repository is ever written in place.
///
/// Example: ctrlz recover src/lost.rs
#[derive(clap::Args, Debug)]
pub(crate) struct RecoverArgs {
    /// The file or directory
    #[arg(value_name = "PATH", required_unless_present = "git")]
    path: Option<PathBuf>,
    /// Recover a captured repository instead
    #[arg(long, requires = "into", conflicts_with_all = ["path", "list", "dry_run"])]
    git: bool,
    /// With --git: the directory to write to, which must be new or empty
    #[arg(long, value_name = "DIR", requires = "git")]
    into: Option<PathBuf>,
    /// List the versions of the file, newest first, and change nothing
    #[arg(long)]
    list: bool,
    /// Show the plan, and change no file
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
}

pub(crate) fn run(place: &Place, args: &RecoverArgs, out: &mut Output) -> Result<Done, Failure> {
    if let Some(into) = &args.into {
        return recover_repository(place, into, out);
    }
    let path = WirePath::from(args.path.as_deref().unwrap_or(Path::new("")));
    if args.list {
        return list(place, path, out);
    }
    let params = RecoverParams { path, by_person: true, ..RecoverParams::default() };
    if args.dry_run {
        let plan = place.plan(methods::plan_recover, &params)?;
        return show_plan(&plan, Detail::Named, out);
    }
    let report = place.call(methods::recover, &params)?;
    if !out.is_json() {
        let mut done: Vec<&Action> = report.done.iter().collect();
        done.sort_by_key(|action| &action.path);
        done.iter().try_for_each(|action| out.line(&action_line(action)))?;
    }
    show_report(&report, Detail::Named, out)
}

fn recover_repository(place: &Place, into: &Path, out: &mut Output) -> Result<Done, Failure> {
    let into = place.dir().join(into);
    let recovered = watched(|_| place.workspace().lost_files().recover_repository(&into))?;
    let recovered = RecoveredRepository::from(&recovered);
    let done = Done::of(recovered.complete);
    if out.is_json() {
        out.json(&recovered)?;
        return Ok(done);
    }
    let RecoveredRepository { from, into, at_millis, files, missing, .. } = recovered;
    let age = render::age(at_millis);
    out.line(&format!("{files} files of {from}, captured {age}, are in {into}"))?;
    for Missing { path, why } in &missing {
        out.line(&format!("! missing    {path}: {}", render::printable(why)))?;
    }
    Ok(done)
}

fn list(place: &Place, path: WirePath, out: &mut Output) -> Result<Done, Failure> {
    let params = HistoryParams { path, limit: Some(u64::MAX), ..HistoryParams::default() };
    let found = place.read(methods::versions, &params)?;
    if found.versions.is_empty() {
        return Err(Failure::NoVersions { path: found.path });
    }
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    let (typed, program) = (place.typed(found.path.as_path()), render::program());
    let versions = &found.versions;
    let origins: Vec<String> = versions
        .iter()
        .map(|version| render::origin(&version.kind, version.step.as_ref()))
        .collect();
    let width = origins.iter().map(|origin| origin.chars().count()).max().unwrap_or(0);
    for (Version { content, operation, at_millis, .. }, origin) in versions.iter().zip(origins) {
        let age = render::age(*at_millis);
        out.line(&match content {
            Some(_) => {
                format!("{age:<14}  {origin:<width$}  {program} restore {operation} -- {typed}")
            }
            None => format!("{age:<14}  {origin:<width$}  deleted"),
        })?;
    }
    Ok(Done::Complete)
}
