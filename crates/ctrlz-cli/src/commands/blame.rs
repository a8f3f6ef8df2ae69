//! `ctrlz blame`: shows which step wrote each line.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ctrlz::{BlameLine, OperationKind, Origin, TrackOptions};
use ctrlz_api::Blame;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Ink, Output, Palette, clipped_to, file_line};

/// Show which step wrote each line of a file
///
/// Records the work tree first, so that the lines are those on disk. Prints for each line the step,
/// the agent, the age, the line number and the text. `outside` lines were not written by a step,
/// such as your own edits; `baseline` lines existed before anything was recorded; `older than the
/// log` lines were written before the oldest operation that `gc` kept. Files that were renamed
/// without a change are followed.
#[derive(clap::Args, Debug)]
pub(crate) struct BlameArgs {
    /// The file
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

pub(crate) fn run(
    place: &Place,
    args: &BlameArgs,
    palette: Palette,
    out: &mut Output,
) -> Result<Done, Failure> {
    let path = place.file(args.path.as_os_str().as_bytes())?;
    let snapshot = watched(|progress| place.workspace.track(&TrackOptions::default(), progress))?;
    let done = Done::of(snapshot.is_complete());
    if !snapshot.is_complete() {
        render::skipped(&snapshot.skipped);
    }
    let lines = place.workspace.blame(&path)?;
    if out.is_json() {
        let total = lines.len() as u64;
        let lines = lines.iter().map(ctrlz_api::BlameLine::from).collect();
        out.json(&Blame { path: path.into(), lines, total, next: None })?;
        return Ok(done);
    }
    let rows: Vec<Row> = lines.iter().map(Row::of).collect();
    let width =
        |of: fn(&Row) -> &String| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
    let (what, who) = (width(|row| &row.what), width(|row| &row.who));
    let number = rows.len().to_string().len();
    for (index, row) in rows.iter().enumerate() {
        let origin = format!("{:<what$}  {:<who$}  {:<14}", row.what, row.who, row.age);
        let origin = palette.paint(row.ink, &origin);
        let line = format!("{origin}  {:>number$}  {}", index + 1, row.text);
        out.line(line.trim_end())?;
    }
    Ok(done)
}

/// A line of the output.
struct Row {
    what: String,
    who: String,
    age: String,
    text: String,
    ink: Ink,
}

impl Row {
    fn of(line: &BlameLine) -> Row {
        let Origin { kind, at_millis, step, expired, gap, .. } = &line.origin;
        let unrecorded = gap.as_ref().map(|gap| (gap.describe(), gap.agents().join(", ")));
        let (what, who, ink) = match (step, kind) {
            _ if *expired => ("older than the log".into(), String::new(), Ink::Faint),
            (Some(step), _) => {
                let who = step.who.as_ref().unwrap_or(&step.session);
                (clipped_to(&render::step(step), 30), clipped_to(who, 16), Ink::Agent)
            }
            (None, OperationKind::Outside) => match unrecorded {
                Some((what, who)) => (clipped_to(&what, 30), clipped_to(&who, 16), Ink::Faint),
                None => ("outside".into(), "you".into(), Ink::Outside),
            },
            (None, kind) => (render::kind(*kind).into(), String::new(), Ink::Faint),
        };
        // The age of an expired line is unknown.
        let age = if *expired { String::new() } else { render::age(*at_millis) };
        Row { what, who, age, text: file_line(&line.text), ink }
    }
}
