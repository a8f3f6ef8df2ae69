//! `ctrlz` itself, as a command and as a library.

use std::path::PathBuf;

use ctrlz::{ObjectId, Options, Progress, RestoreOptions, TrackOptions, Workspace};

use crate::Fallible;
use crate::job::{Job, Work};
use crate::peers::Contender;
use crate::process::{output, program, word};

/// Runs the command.
pub(crate) fn command(job: &Job) -> Fallible<String> {
    let mut ctrlz = program(&job.ctrlz);
    ctrlz.arg("-C").arg(&job.tree).arg("--data-dir").arg(&job.state);
    if job.contender == Contender::Watcher {
        ctrlz.arg("--config").arg(watching(job)?);
    }
    match &job.work {
        Work::Track => word(ctrlz.arg("track")),
        Work::Patch(hash) => word(ctrlz.args(["patch", hash])),
        Work::DiffFull(from, to) => {
            let json = output(ctrlz.args(["--json", "diff", "--full", from, to]))?;
            Ok(json.len().to_string())
        }
        Work::Restore(hash) => word(ctrlz.args(["restore", hash])),
        Work::RestoreExact(hash) => word(ctrlz.args(["restore", "--exact", "--yes", hash])),
        Work::ReadAll | Work::WriteAll(_) => Err("only the floor reads without storing".into()),
    }
}

/// Returns the path of a configuration file that enables the watcher.
fn watching(job: &Job) -> Fallible<PathBuf> {
    let file = job.state.with_extension("toml");
    if !file.exists() {
        std::fs::write(&file, "watch = true\n")?;
    }
    Ok(file)
}

/// Starts or stops a watcher.
pub(crate) fn watcher(job: &Job, how: &str) -> Fallible<()> {
    let mut ctrlz = program(&job.ctrlz);
    ctrlz.arg("-C").arg(&job.tree).arg("--data-dir").arg(&job.state);
    ctrlz.arg("--config").arg(watching(job)?);
    output(ctrlz.args(["watch", how])).map(drop)
}

/// Opens the work tree like a program that embeds the engine.
pub(crate) fn open(job: &Job) -> Fallible<Workspace> {
    Ok(Workspace::open(&job.tree, Options::new(&job.state))?)
}

/// Calls the engine.
pub(crate) fn library(job: &Job) -> Fallible<String> {
    let workspace = open(job)?;
    let progress = Progress::default();
    let id = |text: &str| -> Fallible<ObjectId> { Ok(text.parse()?) };
    match &job.work {
        Work::Track => Ok(workspace.track(&TrackOptions::default(), &progress)?.hash.to_string()),
        Work::Patch(hash) => Ok(workspace.patch(&id(hash)?, &progress)?.files.len().to_string()),
        Work::DiffFull(from, to) => {
            let mut bytes = 0;
            for file in workspace.diff_full(&id(from)?, &id(to)?, &[])? {
                let file = file?;
                bytes += file.before.len() + file.after.len();
            }
            Ok(bytes.to_string())
        }
        Work::Restore(hash) => restore(&workspace, &id(hash)?, false),
        Work::RestoreExact(hash) => restore(&workspace, &id(hash)?, true),
        Work::ReadAll | Work::WriteAll(_) => Err("only the floor reads without storing".into()),
    }
}

fn restore(workspace: &Workspace, hash: &ObjectId, exact: bool) -> Fallible<String> {
    let options = RestoreOptions { exact, allow_mass_removal: true, ..RestoreOptions::default() };
    let report = workspace.restore(hash, &options, &Progress::default())?;
    if !report.is_complete() {
        return Err(format!("the restore is incomplete: {:?}", report.kept).into());
    }
    Ok(report.done.len().to_string())
}
