//! `ctrlz blame`: shows which step wrote each line.

use std::path::PathBuf;

use ctrlz_api::methods::{self, HistoryParams, TrackParams};
use ctrlz_api::{BlameLine, Origin};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
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
    // A path that is refused must fail before the snapshot is taken.
    place.file(&args.path)?;
    let snapshot = place.call(methods::track, &TrackParams::default())?;
    let done = Done::of(snapshot.complete);
    if !snapshot.complete {
        render::skipped(&snapshot.skipped);
    }
    let path = args.path.as_path().into();
    let params = HistoryParams { path, limit: Some(u64::MAX), ..HistoryParams::default() };
    let found = place.read(methods::blame, &params)?;
    if out.is_json() {
        out.json(&found)?;
        return Ok(done);
    }
    let rows: Vec<Row> = found.lines.iter().map(Row::of).collect();
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
        let Origin { kind, at_millis, step, gap, .. } = &line.origin;
        let is_expired = kind == "expired";
        let (what, who, ink) = match (step, gap) {
            _ if is_expired => ("older than the log".into(), String::new(), Ink::Faint),
            (Some(step), _) => {
                let who = step.who.as_ref().unwrap_or(&step.session);
                (clipped_to(&render::step(step), 30), clipped_to(who, 16), Ink::Agent)
            }
            (None, Some(gap)) if kind == "outside" => {
                let (what, who) = (render::gap(gap), render::agents(gap));
                (clipped_to(&what, 30), clipped_to(&who, 16), Ink::Faint)
            }
            (None, None) if kind == "outside" => ("outside".into(), "you".into(), Ink::Outside),
            (None, _) => (kind.clone(), String::new(), Ink::Faint),
        };
        // The age of an expired line is unknown.
        let age = if is_expired { String::new() } else { render::age(*at_millis) };
        Row { what, who, age, text: file_line(&line.text), ink }
    }
}
