//! `ctrlz verify`: checks the whole store, and repairs it.

use ctrlz::escape;
use ctrlz_api::methods::{self, NoParams};
use ctrlz_api::{Problem, RepairReport, Verification};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output};

/// Check every object, ref and cache of the store
///
/// Names the paths and snapshots that are damaged; exits with 1 if any damage is left. With
/// --repair, damaged objects are restored from another pack, your repository or your files, if they
/// still have the content. Damaged files are moved to ctrlz/quarantine in the store, never deleted.
#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Repair what can be repaired
    #[arg(long)]
    repair: bool,
}

pub(crate) fn run(place: &Place, args: &VerifyArgs, out: &mut Output) -> Result<Done, Failure> {
    let left = if args.repair {
        let report = place.call(methods::repair, &NoParams {})?;
        show_repair(&report, out)?;
        report.after
    } else {
        let found = place.call(methods::verify, &NoParams {})?;
        if out.is_json() {
            out.json(&found)?;
        } else {
            show(&found, out)?;
        }
        found
    };
    if left.ok {
        return Ok(Done::Complete);
    }
    if !args.repair {
        let repair = "`ctrlz verify --repair` heals what still exists somewhere";
        render::note(&render::with_program(repair));
    }
    Ok(Done::Unhealthy)
}

fn show_repair(report: &RepairReport, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(report);
    }
    let RepairReport { before, after, healed, refs, quarantined } = report;
    if before.problems.is_empty() {
        return show(after, out);
    }
    out.line(&format!("{} problems found, {healed} objects healed", before.problems.len()))?;
    for name in refs {
        out.line(&format!("found again  {}", escape(name.as_bytes())))?;
    }
    for path in quarantined {
        out.line(&format!("put aside    {path}"))?;
    }
    show(after, out)
}

fn show(found: &Verification, out: &mut Output) -> Result<(), Failure> {
    for problem in &found.problems {
        out.line(&format!("damaged    {}", line(problem)))?;
    }
    let Verification { snapshots, objects, .. } = found;
    out.line(&format!("{objects} objects in {snapshots} snapshots have the right hash"))
}

/// Returns a problem on one line.
pub(super) fn line(problem: &Problem) -> String {
    let mut line = escape(problem.what.as_bytes());
    if let Some(path) = &problem.path {
        line.push_str(&format!(", at {path}"));
    }
    match problem.snapshots.as_slice() {
        [] => (),
        [one] => line.push_str(&format!(", in snapshot {one}")),
        [first, more @ ..] => {
            line.push_str(&format!(", in snapshot {first} and {} more", more.len()));
        }
    }
    line
}
