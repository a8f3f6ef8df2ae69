//! `ctrlz gc`: drops snapshots that are no longer kept, and repacks the rest.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ctrlz::{Progress, Workspace, escape};
use ctrlz_api::methods::{self, GcParams};
use ctrlz_api::{CareReport, GcReport, LostMessage};

use super::Done;
use crate::detached;
use crate::failure::Failure;
use crate::git;
use crate::place::Place;
use crate::render::{self, Output};

/// Time limit in the background. The next run continues.
const BACKGROUND_TIME: Duration = Duration::from_secs(120);

/// Drop snapshots that are no longer kept, and free their space
///
/// The configuration determines what is kept: keep_days (7), keep_sessions, thin_days. Checkpoints
/// are kept as long as they exist. Runs automatically after other commands, once a day or when
/// there are many packs; other commands do not wait for it.
#[derive(clap::Args, Debug)]
pub(crate) struct GcArgs {
    /// Rewrite every pack that contains unused objects
    #[arg(long)]
    thorough: bool,
    /// Then let git compute deltas between all objects; takes long, and needs git
    #[arg(long)]
    deep: bool,
    /// Show what would be dropped, and change nothing
    #[arg(long, conflicts_with = "deep")]
    dry_run: bool,
    /// Stop after two minutes, and print nothing
    #[arg(long, hide = true)]
    background: bool,
}

impl GcArgs {
    /// Returns whether another command started this process to continue after it has exited.
    pub(crate) fn is_detached(&self) -> bool {
        self.background
    }
}

pub(crate) fn run(place: &Place, args: &GcArgs, out: &mut Output) -> Result<Done, Failure> {
    if !args.dry_run {
        ctrlz_agents::remove_old_captures(&place.agents_dir);
    }
    let params = GcParams {
        thorough: args.thorough || args.deep,
        dry_run: args.dry_run,
        ..GcParams::default()
    };
    if args.background {
        in_background(place, &params);
        return Ok(Done::Complete);
    }
    let report = place.call(methods::gc, &params)?;
    if args.deep {
        repack_with_git(place)?;
    }
    if out.is_json() {
        out.json(&report)?;
    } else {
        for line in lines(&report) {
            out.line(&line)?;
        }
        if args.dry_run {
            out.line("nothing was changed")?;
        }
    }
    Ok(Done::Complete)
}

/// Runs the collection with a time limit. Errors are ignored: there is no user to report them to,
/// and the next run continues.
fn in_background(place: &Place, params: &GcParams) {
    let progress = Progress::default();
    let (working, finished) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watched = &progress;
        let watch = move || {
            if finished.recv_timeout(BACKGROUND_TIME).is_err() {
                watched.cancelled.store(true, Ordering::Relaxed);
            }
        };
        if std::thread::Builder::new().spawn_scoped(scope, watch).is_ok() {
            drop(methods::gc(&place.as_call(&progress), params));
        }
        working.send(()).ok();
    });
}

/// Starts `ctrlz gc` in a detached process if it is due. Errors are ignored: gc is optional here.
pub(super) fn begin_if_due(place: &Place) {
    drop(start_if_due(place.workspace(), place.config.as_deref()));
}

/// Like [`begin_if_due`], but returns the process, for long-lived callers that have to reap it.
pub(super) fn start_if_due(workspace: &Workspace, config: Option<&Path>) -> Option<Child> {
    workspace.maintenance().collection_due().ok()??;
    detached::start_for(workspace, config, &["gc", "--background"]).ok()
}

/// Repacks with git, which finds better deltas, in a separate repository.
fn repack_with_git(place: &Place) -> Result<(), Failure> {
    let Some(repack) = place.workspace().maintenance().begin_deep_repack()? else { return Ok(()) };
    git::pack(repack.git_dir(), repack.objects())?;
    Ok(repack.finish()?)
}

fn lines(report: &CareReport) -> Vec<String> {
    let CareReport { dropped_operations, dropped_sessions, lost_messages, gc } = report;
    let GcReport { bytes_before, bytes_after, packs_before, packs_after, .. } = gc;
    let mut lines = vec![format!(
        "{} in {packs_before} packs before, {} in {packs_after} now",
        render::size(*bytes_before),
        render::size(*bytes_after),
    )];
    if *dropped_operations > 0 {
        lines.push(format!("{dropped_operations} operations dropped"));
    }
    let printable = |text: &str| escape(text.as_bytes());
    for LostMessage { session, message } in lost_messages {
        lines.push(format!(
            "lost  the files of message {} of session {}",
            printable(message),
            printable(session)
        ));
    }
    lines.extend(dropped_sessions.iter().map(|id| format!("lost  session {}", printable(id))));
    lines.extend(gc.note.clone());
    lines
}
