//! `ctrlz status`: shows the state of the work tree and its store.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ctrlz::{HeldLock, Status, escape};
use ctrlz_api::Check;
use ctrlz_api::methods::{self, NoParams};

use super::install::{self, Asked};
use super::{Done, hook, watch};
use crate::config::Environment;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output};

/// Show the state of the work tree and its store
///
/// Changes nothing and takes no lock.
#[derive(clap::Args, Debug)]
pub(crate) struct StatusArgs {}

pub(crate) fn run(
    place: &Place,
    args: &StatusArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    let StatusArgs {} = args;
    if out.is_json() {
        out.json(&place.read(methods::status, &NoParams {})?)?;
        return Ok(Done::Complete);
    }
    let status = place.workspace().status()?;
    for line in lines(&status) {
        out.line(&line)?;
    }
    out.line(&format!("watcher    {}", watch::described(&place.workspace().watcher().status()?)))?;
    for Check { name, detail, .. } in install::checks(place, environment, Asked::Files) {
        out.line(&format!("client     {name}: {detail}"))?;
    }
    if place.workspace().has_unusable_repository() {
        out.line("git        .git cannot be used as a repository; snapshots are taken without it")?;
    }
    for line in hook::failures(place) {
        out.line(&format!("agents     {line}"))?;
    }
    if let Some(why) = place.workspace().maintenance().collection_due()? {
        out.line(&format!("gc         due, {why}; it runs after the next track"))?;
    }
    if let Some(next) = ctrlz_api::next_step(&status) {
        out.line(&format!("next       {next}"))?;
    }
    Ok(Done::Complete)
}

/// Returns a path as text that is safe to print.
pub(super) fn shown(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

fn lines(status: &Status) -> Vec<String> {
    let mut lines = vec![format!("work tree  {}", shown(&status.root))];
    if !status.enabled {
        lines.push("enabled    no".into());
    }
    lines.push(match &status.store {
        Some(store) => format!("store      {}, {}", shown(store), render::size(status.store_bytes)),
        None => "store      none yet".into(),
    });
    lines.push(match (&status.last, status.last_at_millis) {
        (Some(last), Some(at)) => format!("snapshot   {last}, {}", render::age(at)),
        (Some(last), None) => format!("snapshot   {last}"),
        (None, _) => render::with_program("snapshot   none yet; `ctrlz track` takes one"),
    });
    if let Some(quota) = &status.quota {
        let (percent, max) = (quota.percent(), render::size(quota.max_store_bytes));
        lines.push(format!("quota      {percent} % used, {max} for this store"));
    }
    if status.last.is_some() {
        let (files, skipped) = (status.files, status.skipped.len());
        lines.push(format!("covered    {files} files, {skipped} paths left out"));
    }
    lines.extend(status.skipped.iter().map(|skipped| format!("skipped    {skipped}")));
    if status.borrowed > 0 {
        lines.push(format!("borrowed   {} objects still to copy", status.borrowed));
    }
    if let Some(path) = &status.wrong_index {
        lines.push(format!("index      {}", render::wrong_index(path)));
    }
    if let Some(files) = status.interrupted_files {
        lines.push(format!(
            "interrupted  a restore of {files} files; the next command that writes finishes it"
        ));
    }
    for HeldLock { what, processes } in &status.locks {
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        lines.push(format!("locked     {what}, by process {}", processes.join(", ")));
    }
    if let Some(why) = &status.gc_failed {
        lines.push(format!("gc         failed: {}", escape(why.as_bytes())));
    }
    for (path, why) in &status.damaged_packs {
        lines.push(format!("damaged    {}: {}", shown(path), escape(why.as_bytes())));
    }
    lines
}
