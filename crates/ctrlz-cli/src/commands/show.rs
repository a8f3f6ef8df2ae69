//! `ctrlz show`: a file of a snapshot, or what a snapshot is.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use ctrlz::{ObjectId, Operation, PathText, Skipped};
use serde::Serialize;
use serde_json::json;

use super::Done;
use crate::failure::Failure;
use crate::place::{Place, hash};
use crate::render::{self, Output};

/// Print a file as a snapshot has it, or describe a snapshot
///
/// HASH:PATH prints the bytes of the file (the target, for a link); PATH is relative to the
/// current directory. HASH alone says how many files the snapshot has and when it was recorded.
#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// The snapshot, or a file in it
    #[arg(value_name = "HASH[:PATH]")]
    what: OsString,
}

pub(crate) fn run(place: &Place, args: &ShowArgs, out: &mut Output) -> Result<Done, Failure> {
    let what = args.what.as_bytes();
    match what.iter().position(|byte| *byte == b':') {
        Some(colon) => {
            let hash = hash(OsStr::from_bytes(&what[..colon]))?;
            show_file(place, &hash, &what[colon + 1..], out)?;
        }
        None => show_snapshot(place, &hash(&args.what)?, out)?,
    }
    Ok(Done::Complete)
}

fn show_file(place: &Place, hash: &ObjectId, path: &[u8], out: &mut Output) -> Result<(), Failure> {
    let path = place.file(path)?;
    let bytes = place.workspace.file_at(hash, &path)?;
    if out.is_json() {
        // The lossless form of a path serves any bytes.
        let content = PathText::from_bytes(&bytes);
        return out.json(&json!({ "hash": hash, "path": path, "content": content }));
    }
    Ok(out.write_all(&bytes)?)
}

#[derive(Serialize)]
struct SnapshotJson<'a> {
    hash: &'a ObjectId,
    files: usize,
    /// When this work tree recorded it, newest first.
    records: Vec<serde_json::Value>,
    /// Known for the newest snapshot only.
    skipped: Option<Vec<Skipped>>,
}

fn show_snapshot(place: &Place, hash: &ObjectId, out: &mut Output) -> Result<(), Failure> {
    let files = place.workspace.files(hash)?.len();
    let log = place.workspace.log(usize::MAX)?;
    let records: Vec<&Operation> = log.iter().filter(|record| record.snapshot == *hash).collect();
    let newest = log.first().is_some_and(|record| record.snapshot == *hash);
    let skipped = match newest {
        true => Some(place.workspace.status()?.skipped),
        false => None,
    };
    if out.is_json() {
        let records = records.iter().map(|record| {
            json!({ "operation": record.id, "kind": record.kind, "at_millis": record.at_millis })
        });
        return out.json(&SnapshotJson { hash, files, records: records.collect(), skipped });
    }
    out.line(&format!("snapshot {hash}"))?;
    out.line(&format!("holds    {}", render::files(files)))?;
    for record in records {
        out.line(&format!("recorded {} ({})", render::age(record.at_millis), record.id))?;
    }
    for skipped in skipped.iter().flatten() {
        out.line(&format!("skipped  {skipped}"))?;
    }
    Ok(())
}
