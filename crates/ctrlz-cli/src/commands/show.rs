//! `ctrlz show`: prints a file of a snapshot, or describes a snapshot, operation or step.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ctrlz::{ObjectId, Point, StepRecord, StepScope};
use ctrlz_api::methods::{self, OperationParams, StepParams};
use ctrlz_api::{FileContent, LogEntry, Record, Skipped, SnapshotInfo, StepInfo};

use super::Done;
use super::log::title;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output, printable, shell_word};

/// Maximum number of files to list. The total is shown in any case.
const MAX_FILES: u64 = 1000;

/// Print a file of a snapshot, or describe a snapshot, an operation or a step
///
/// HASH:PATH prints the bytes of the file, or the target of a symlink; PATH is relative to the
/// current directory. HASH alone prints how many files the snapshot has and when it was recorded.
/// An operation, a checkpoint or a step is shown with its changes, even if they are undone. Instead
/// of HASH, an operation id, a checkpoint's name or label, `latest` or `resume` can be given.
///
/// Example: ctrlz show latest:src/main.rs
#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// The snapshot, a file in it, an operation, a checkpoint or a step
    #[arg(value_name = "HASH[:PATH]|ID")]
    what: OsString,
}

pub(crate) fn run(place: &Place, args: &ShowArgs, out: &mut Output) -> Result<Done, Failure> {
    match shown(place, &args.what) {
        Ok(Shown::File(hash, path)) => show_file(place, &hash, path, out)?,
        Ok(Shown::Snapshot(hash)) => show_snapshot(place, &hash, out)?,
        Ok(Shown::Operation(entry)) => show_operation(place, &entry, out)?,
        Err(failure) => {
            // Agents choose the ids of their steps, so any text may be one.
            let step = args.what.to_string_lossy();
            let records = place.workspace().step(&step).map_err(|_| failure)?;
            show_step(place, &step, &records, out)?;
        }
    }
    Ok(Done::Complete)
}

/// Resolved argument.
enum Shown<'a> {
    File(ObjectId, &'a [u8]),
    Snapshot(ObjectId),
    Operation(Box<LogEntry>),
}

fn shown<'a>(place: &Place, what: &'a OsStr) -> Result<Shown<'a>, Failure> {
    let bytes = what.as_bytes();
    let point = place.point(what);
    // Labels of checkpoints and paths may both contain colons.
    let mut unknown = None;
    for colon in (0..bytes.len()).filter(|at| bytes[*at] == b':' && point.is_err()) {
        match place.snapshot(OsStr::from_bytes(&bytes[..colon])) {
            Ok(hash) => return Ok(Shown::File(hash, &bytes[colon + 1..])),
            Err(failure) => drop(unknown.get_or_insert(failure)),
        }
    }
    Ok(match unknown.map_or(point, Err)? {
        Point::Snapshot(hash) => Shown::Snapshot(hash),
        Point::Operation(id) | Point::OperationOf { id, .. } => {
            let params = OperationParams { operation: id, files: Some(MAX_FILES) };
            Shown::Operation(Box::new(place.read(methods::operation, &params)?))
        }
    })
}

fn show_operation(place: &Place, entry: &LogEntry, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(entry);
    }
    let known: HashMap<&str, &StepInfo> =
        entry.steps.iter().map(|step| (step.info.step.as_str(), &step.info)).collect();
    out.line(&format!("operation {}", entry.operation))?;
    out.line(&format!("what      {}", title(entry, &known)))?;
    if let Some(session) = &entry.session {
        out.line(&format!("session   {}", printable(session)))?;
    }
    for step in &entry.steps {
        let mark = if step.undone { " [undone]" } else { "" };
        out.line(&printable(&format!("step      {}{mark}", step.info.step)))?;
    }
    out.line(&format!("recorded  {}", render::age(entry.at_millis)))?;
    out.line(&format!("snapshot  {}", entry.after))?;
    out.line(&format!("back      {} restore --exact {}", render::program(), entry.operation))?;
    match &entry.before {
        Some(before) if *before != entry.after => {
            let (before, after) = (before.id()?, entry.after.id()?);
            out.line("")?;
            let diffs = place.workspace().diff_full(&before, &after, &[])?;
            out.contents(|out| diffs.write_unified(out))
        }
        _ => Ok(()),
    }
}

fn show_step(
    place: &Place,
    step: &str,
    records: &[StepRecord],
    out: &mut Output,
) -> Result<(), Failure> {
    let Some(StepRecord { info, undone, .. }) = records.first() else { return Ok(()) };
    if out.is_json() {
        let step = step.to_owned();
        return out.json(&place.read(methods::step, &StepParams { step })?);
    }
    for (name, value) in [
        ("step", Some(&info.step)),
        ("session", Some(&info.session)),
        ("message", info.message.as_ref()),
        ("part", info.part.as_ref()),
        ("agent", info.who.as_ref()),
        ("tool", info.tool.as_ref()),
        ("label", info.label.as_ref()),
        ("parent", info.parent.as_ref().map(|turn| &turn.session)),
    ] {
        if let Some(value) = value {
            out.line(&format!("{name:<9} {}", printable(value)))?;
        }
    }
    for record in records {
        let guess = if record.inferred { ", its end is a guess" } else { "" };
        let (age, operation) = (render::age(record.at_millis), &record.operation);
        out.line(&format!("recorded  {age} ({operation}){guess}"))?;
    }
    if *undone {
        out.line(&format!("undone    at present; `{} redo` brings it back", render::program()))?;
        out.line("")?;
        return records.iter().try_for_each(|record| show_record(place, record, out));
    }
    let program = render::program();
    out.line(&format!("undo      {program} undo --step {}", shell_word(step.as_bytes())))?;
    out.line("")?;
    let scope = StepScope::Step(step.to_owned());
    let diffs = place.workspace().step_diff_full(&scope)?;
    out.contents(|out| diffs.write_unified(out))
}

/// Prints the changes of a step in one operation, even if they are undone.
fn show_record(place: &Place, record: &StepRecord, out: &mut Output) -> Result<(), Failure> {
    let paths = record.paths.as_deref();
    if paths.is_some_and(<[_]>::is_empty) {
        return Ok(());
    }
    let paths = paths.unwrap_or_default();
    let diffs = place.workspace().diff_full(&record.before, &record.after, paths)?;
    out.contents(|out| diffs.write_unified(out))
}

fn show_file(place: &Place, hash: &ObjectId, path: &[u8], out: &mut Output) -> Result<(), Failure> {
    let path = place.file(Path::new(OsStr::from_bytes(path)))?;
    let bytes = place.workspace().file_at(hash, &path)?;
    if out.is_json() {
        let content = FileContent::part((*hash).into(), path.into(), &bytes, 0, u64::MAX);
        return out.json(&ctrlz_api::Shown::File(content));
    }
    out.contents(|out| out.write_all(&bytes))
}

fn show_snapshot(place: &Place, hash: &ObjectId, out: &mut Output) -> Result<(), Failure> {
    let info = SnapshotInfo::of(place.workspace(), *hash)?;
    if out.is_json() {
        return out.json(&ctrlz_api::Shown::Snapshot(info));
    }
    let files = usize::try_from(info.files).unwrap_or(usize::MAX);
    out.line(&format!("snapshot {hash}"))?;
    out.line(&format!("holds    {}", render::files(files)))?;
    for Record { operation, at_millis, .. } in &info.records {
        out.line(&format!("recorded {} ({operation})", render::age(*at_millis)))?;
    }
    for Skipped { path, text, .. } in info.skipped.iter().flatten() {
        out.line(&format!("skipped  {path}: {}", printable(text)))?;
    }
    Ok(())
}
