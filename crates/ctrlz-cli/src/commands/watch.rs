//! `ctrlz watch`: runs a watcher that reports changed paths to other commands.

use std::time::{Duration, Instant};

use ctrlz::{WatchEnd, WatchOptions, WatcherStatus};

use super::Done;
use crate::detached;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output};

/// Time limit for a watcher to become ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watch the work tree, so that snapshots need no full scan
///
/// With `watch = true` in the configuration, snapshots start a watcher and ask it for the changed
/// paths. Without a watcher, or if it lost events, they scan everything. The watcher exits after
/// half an hour without requests, or when the work tree is removed. Exits with 6 if the work tree
/// cannot be watched: on network and FUSE file systems, and above the kernel's limit of watched
/// directories.
#[derive(clap::Args, Debug)]
#[group(multiple = false)]
pub(crate) struct WatchArgs {
    /// Leave the watcher running and return when it is ready
    #[arg(long)]
    detach: bool,
    /// End the running watcher
    #[arg(long)]
    stop: bool,
    /// Show whether the work tree is watched
    #[arg(long)]
    status: bool,
    /// Run as the process that --detach leaves running
    #[arg(long, hide = true)]
    detached: bool,
}

impl WatchArgs {
    pub(crate) fn is_detached(&self) -> bool {
        self.detached
    }
}

pub(crate) fn run(place: &Place, args: &WatchArgs, out: &mut Output) -> Result<Done, Failure> {
    let watcher = place.workspace().watcher();
    if args.stop {
        let stopped = watcher.stop()?;
        render::note(if stopped { "ctrlz: the watcher ends" } else { "ctrlz: nobody watches" });
        return Ok(Done::Complete);
    }
    if args.detach {
        let mut child =
            detached::start(place, &["watch", "--detached"]).map_err(Failure::Output)?;
        let start = Instant::now();
        while child.try_wait().map_err(Failure::Output)?.is_none()
            && !matches!(watcher.status()?, WatcherStatus::Watching { .. })
            && start.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if args.detach || args.status {
        return show(place, out);
    }
    let mut ready = |dirs| {
        if !args.detached {
            render::note(&format!("ctrlz: watching {dirs} directories; Ctrl-C ends it"));
        }
    };
    match watcher.run(&WatchOptions::default(), &mut ready)? {
        WatchEnd::Refused(why) => Err(Failure::NotWatched { why }),
        WatchEnd::AlreadyThere => {
            render::note("ctrlz: another process already watches this work tree");
            Ok(Done::Complete)
        }
        _ => Ok(Done::Complete),
    }
}

fn show(place: &Place, out: &mut Output) -> Result<Done, Failure> {
    let watcher = place.workspace().watcher().status()?;
    if out.is_json() {
        out.json(&ctrlz_api::Watcher::from(&watcher))?;
    } else {
        out.line(&described(&watcher))?;
    }
    match watcher {
        WatcherStatus::Refused { why } => Err(Failure::NotWatched { why }),
        _ => Ok(Done::Complete),
    }
}

/// Returns a human-readable line.
pub(super) fn described(watcher: &WatcherStatus) -> String {
    match watcher {
        WatcherStatus::Watching { process, dirs } => {
            format!("process {process} watches {dirs} directories")
        }
        WatcherStatus::Silent => "not ready, or does not answer; everything is looked at".into(),
        WatcherStatus::Refused { why } => format!("none: {why}"),
        _ => "none; everything is looked at".into(),
    }
}

/// Starts a watcher if one is configured and none is running.
///
/// Errors are ignored: the snapshot is already recorded.
pub(crate) fn begin(place: &Place) {
    if place.workspace().watcher().is_wanted().unwrap_or(false) {
        detached::start(place, &["watch", "--detached"]).ok();
    }
}
