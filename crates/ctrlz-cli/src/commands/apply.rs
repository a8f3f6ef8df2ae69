//! `ctrlz apply`: applies a plan that was shown.

use std::ffi::OsString;

use ctrlz_api::UndoReport;
use ctrlz_api::methods::{self, ApplyParams, TimelineParams};

use super::Done;
use super::revert::ways_on;
use super::undo::show;
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::render::{self, Output};

/// Apply exactly the plan that --dry-run showed
///
/// If the files or the log changed since, so that the plan would do something else, nothing is
/// changed and the exit code is 5.
///
/// Example: ctrlz undo --dry-run, then ctrlz apply with the hash that it printed
#[derive(clap::Args, Debug)]
pub(crate) struct ApplyArgs {
    /// The plan's hash, as printed by --dry-run of undo, redo, revert --message or unrevert
    #[arg(value_name = "PLAN")]
    plan: OsString,
    /// Allow removing an unusual share of the files
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &ApplyArgs, out: &mut Output) -> Result<Done, Failure> {
    let params = ApplyParams { plan: hash(&args.plan), allow_mass_removal: args.yes };
    let report = place.call(methods::apply, &params)?;
    show(place, "applied to", &report, out)?;
    if !out.is_json() {
        for line in way_back(place, &report)? {
            out.line(&line)?;
        }
    }
    Ok(Done::of(report.complete))
}

/// Returns the commands that can follow, depending on the kind of the plan.
fn way_back(place: &Place, report: &UndoReport) -> Result<Vec<String>, Failure> {
    let Some(safety) = report.safety_operation.as_ref().filter(|_| report.after.is_some()) else {
        let is_forceable = super::undo::is_forceable(report);
        let hint = if is_forceable { "; make a plan with --force to take all of it" } else { "" };
        return Ok(vec![format!("nothing was changed{hint}")]);
    };
    let params = TimelineParams { limit: Some(1), files: Some(0), ..TimelineParams::default() };
    let newest = place.read(methods::timeline, &params)?.operations.into_iter().next();
    Ok(match newest {
        Some(newest) if newest.kind == "undo" => vec![format!("redo: {} redo", render::program())],
        Some(newest) if newest.kind == "revert" => ways_on(&newest.session.unwrap_or_default()),
        _ => vec![format!("undo: {} restore --exact {safety}", render::program())],
    })
}
