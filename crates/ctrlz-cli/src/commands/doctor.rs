//! `ctrlz doctor`: checks that snapshots work here.

use ctrlz::{Snapshot, Status, TrackOptions, Verification, WatcherStatus, escape};
use ctrlz_api::{Check, Doctor};

use super::status::shown;
use super::{Done, hook, install, watch};
use crate::config::Environment;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output};

/// Check that snapshots work here, and that every recorded one is intact
///
/// Takes a snapshot, then reads every object of every snapshot and checks its hash. Prints one
/// line per check; exits with 0 if all is well and with 1 if there is a problem. Failures of hooks
/// are shown once.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArgs {}

pub(crate) fn run(
    place: &Place,
    args: &DoctorArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    let DoctorArgs {} = args;
    let mut checks = Vec::new();
    // Before the capture, which finishes an interrupted restore: that must be reported.
    let before = place.workspace().status();
    let captured = watched(|progress| place.workspace().track(&TrackOptions::default(), progress));
    judge(&mut checks, "status", before, |status, checks| check_status(place, status, checks));
    judge(&mut checks, "capture", captured, check_capture);
    let verified = watched(|progress| place.workspace().maintenance().verify(progress));
    judge(&mut checks, "objects", verified, check_objects);
    if place.workspace().options().watch {
        judge(&mut checks, "watcher", place.workspace().watcher().status(), check_watcher);
    }
    let works = checks.iter().all(|check| check.ok);
    check_agents(place, environment, &mut checks);
    let ok = checks.iter().all(|check| check.ok);
    if out.is_json() {
        out.json(&Doctor { ok, checks })?;
    } else {
        for Check { name, ok, detail } in &checks {
            let sign = if *ok { "ok" } else { "problem" };
            out.line(&format!("{sign:<7}  {name}: {detail}"))?;
        }
    }
    if works {
        // The failures have been shown, and the checks found no cause that remains.
        hook::forget_failures(place);
    }
    Ok(if ok { Done::Complete } else { Done::Unhealthy })
}

/// Adds the checks of a result, or a failed check for an error.
fn judge<T>(
    checks: &mut Vec<Check>,
    name: &'static str,
    outcome: Result<T, ctrlz::Error>,
    add: impl FnOnce(&T, &mut Vec<Check>),
) {
    match outcome {
        Ok(outcome) => add(&outcome, checks),
        Err(error) => {
            let hint =
                crate::hints::hint(&error).map(|hint| format!(" ({hint})")).unwrap_or_default();
            let message = render::message(&error);
            checks.push(Check { name, ok: false, detail: format!("{message}{hint}") });
        }
    }
}

fn check_status(place: &Place, status: &Status, checks: &mut Vec<Check>) {
    let mut add = |name, ok, detail| checks.push(Check { name, ok, detail });
    let git = match place.workspace().has_unusable_repository() {
        true => "its .git cannot be used as a repository; snapshots are taken without it",
        false if status.git => "a git work tree",
        false => "not in a git repository",
    };
    add("work tree", true, format!("{}, {git}", shown(&status.root)));
    // The first capture, which has run by now, determines the store.
    let store = status.store.clone().or_else(|| place.workspace().store_path().ok().flatten());
    match store {
        Some(store) => add("store", true, shown(&store)),
        None => add("store", false, "none could be made".into()),
    }
    if !status.enabled {
        add("enabled", false, "snapshots are switched off by configuration".into());
    }
    if let Some(quota) = &status.quota {
        let percent = quota.percent();
        add("quota", percent < 100, format!("{percent} % used"));
    }
    if let Some(why) = &status.gc_failed {
        add("gc", false, format!("failed: {}", escape(why.as_bytes())));
    }
    if let Ok(Some(why)) = place.workspace().maintenance().collection_due() {
        add("gc", true, format!("due, {why}; it runs after the next track"));
    }
    if let Some(path) = &status.wrong_index {
        add("index", true, render::wrong_index(path));
    }
    match status.interrupted_files {
        Some(files) => {
            let files = render::files(usize::try_from(files).unwrap_or(usize::MAX));
            add("restores", true, format!("one of {files} had been cut off and was finished"));
        }
        None => add("restores", true, "none was cut off".into()),
    }
}

fn check_capture(snapshot: &Snapshot, checks: &mut Vec<Check>) {
    let mut add = |name, ok, detail| checks.push(Check { name, ok, detail });
    let files = render::files(usize::try_from(snapshot.files).unwrap_or(usize::MAX));
    add("capture", true, format!("{files}, snapshot {}", snapshot.hash));
    for skipped in &snapshot.skipped {
        add("skipped", !skipped.reason.is_failure(), skipped.to_string());
    }
    if snapshot.borrowed > 0 {
        add("borrowed", true, format!("{} objects still to copy", snapshot.borrowed));
    }
}

/// Adds the state of the watcher. It is never a problem, because snapshots work without one.
fn check_watcher(watcher: &WatcherStatus, checks: &mut Vec<Check>) {
    checks.push(Check { name: "watcher", ok: true, detail: watch::described(watcher) });
}

/// Adds the state of each coding agent's integration, and the failures of hooks.
fn check_agents(place: &Place, environment: &Environment, checks: &mut Vec<Check>) {
    checks.extend(install::checks(place, environment, install::Asked::Agents));
    for detail in hook::failures(place) {
        checks.push(Check { name: "agents", ok: false, detail });
    }
}

fn check_objects(found: &Verification, checks: &mut Vec<Check>) {
    let ctrlz_api::Verification { ok, snapshots, objects, problems } = found.into();
    let detail = format!("{objects} in {snapshots} snapshots have the right hash");
    checks.push(Check { name: "objects", ok, detail });
    for problem in &problems {
        let detail =
            format!("{} (`{} verify --repair`)", super::verify::line(problem), render::program());
        checks.push(Check { name: "damage", ok: false, detail });
    }
}
