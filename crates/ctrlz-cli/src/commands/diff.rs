//! `ctrlz diff`: shows the differences between two snapshots, or the changes of steps.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;

use ctrlz::{ChangeStatus, Diffs, FileDiff, ObjectId, StepScope};
use ctrlz_api::methods::{self, CompareParams, StepChangesParams, TrackParams, Whose};

use super::Done;
use crate::failure::Failure;
use crate::place::{Place, as_given};
use crate::render::{self, Output};

/// Show changes since a snapshot, between two, or of a session, message or step
///
/// Without TO, the work tree is recorded first and compared. The text is byte-exact and accepted by
/// `git apply`. With --full and --json, prints an array with both texts of every file; with --full
/// alone, a table of added and removed lines; with --json alone, the changed paths. For a session,
/// message or step, changes that are currently undone are not shown.
///
/// Example: ctrlz diff latest -- src
#[derive(clap::Args, Debug)]
pub(crate) struct DiffArgs {
    /// The earlier snapshot: its hash, an operation, a checkpoint, `latest` or `resume`
    #[arg(value_name = "HASH", required_unless_present = "scope", conflicts_with = "scope")]
    from: Option<OsString>,
    /// The later snapshot; by default, the present state
    #[arg(value_name = "TO")]
    to: Option<OsString>,
    /// Show the changes of a session, including its sub-agents
    #[arg(long, value_name = "ID", group = "scope")]
    session: Option<String>,
    /// Show the changes of one message
    #[arg(long, value_name = "M", group = "scope")]
    message: Option<String>,
    /// Show the changes of one step
    #[arg(long, value_name = "ID", group = "scope")]
    step: Option<String>,
    /// Count lines per file, or print both texts with --json
    #[arg(long)]
    full: bool,
    /// Show only these paths
    #[arg(last = true, value_name = "PATH", conflicts_with = "scope")]
    paths: Vec<PathBuf>,
}

pub(crate) fn run(place: &Place, args: &DiffArgs, out: &mut Output) -> Result<Done, Failure> {
    let form = Form { full: args.full, json: out.is_json() };
    match &args.from {
        Some(from) => show_between(place, args, from, form, out),
        None => show_steps(place, whose(args), form, out),
    }
}

/// Output format.
#[derive(Clone, Copy)]
struct Form {
    full: bool,
    json: bool,
}

fn show_between(
    place: &Place,
    args: &DiffArgs,
    from: &OsStr,
    form: Form,
    out: &mut Output,
) -> Result<Done, Failure> {
    let workspace = place.workspace();
    let from = place.snapshot(from)?;
    let to = args.to.as_deref().map(|to| place.snapshot(to)).transpose()?;
    let paths = place.paths(&args.paths)?;
    let (to, done) = match to {
        Some(to) => (to, Done::Complete),
        None => now(place, &from)?,
    };
    match form {
        Form { full: false, json: false } => {
            let diffs = workspace.diff_full(&from, &to, &paths)?;
            out.contents(|out| diffs.write_unified(out))?;
        }
        Form { full: false, json: true } => {
            let params = CompareParams {
                from: from.into(),
                to: Some(to.into()),
                paths: as_given(&args.paths),
                limit: Some(u64::MAX),
                ..CompareParams::default()
            };
            out.json(&place.read(methods::changes, &params)?)?;
        }
        Form { full: true, json: false } => {
            write_counts(workspace.diff_full(&from, &to, &paths)?, out)?;
        }
        Form { full: true, json: true } => {
            write_texts(workspace.diff_full(&from, &to, &paths)?, out)?;
        }
    }
    Ok(done)
}

fn whose(args: &DiffArgs) -> Whose {
    match args {
        DiffArgs { session: Some(session), .. } => Whose::Session(session.clone()),
        DiffArgs { message: Some(message), .. } => Whose::Message(message.clone()),
        DiffArgs { step: Some(step), .. } => Whose::Step(step.clone()),
        DiffArgs { .. } => Whose::All,
    }
}

fn show_steps(place: &Place, of: Whose, form: Form, out: &mut Output) -> Result<Done, Failure> {
    let workspace = place.workspace();
    let params = StepChangesParams { of, limit: Some(u64::MAX), ..StepChangesParams::default() };
    let scope: StepScope = params.of();
    match form {
        Form { full: false, json: false } => {
            let diffs = workspace.step_diff_full(&scope)?;
            out.contents(|out| diffs.write_unified(out))?;
        }
        Form { full: false, json: true } => {
            out.json(&place.read(methods::step_changes, &params)?)?;
        }
        Form { full: true, json: false } => write_counts(workspace.step_diff_full(&scope)?, out)?,
        Form { full: true, json: true } => write_texts(workspace.step_diff_full(&scope)?, out)?,
    }
    Ok(Done::Complete)
}

/// Records the present state, to compare it with `from`.
fn now(place: &Place, from: &ObjectId) -> Result<(ObjectId, Done), Failure> {
    // An unknown hash must fail before the snapshot is taken.
    place.workspace().check_snapshot(from)?;
    let snapshot = place.call(methods::track, &TrackParams::default())?;
    if !snapshot.complete {
        render::skipped(&snapshot.skipped);
    }
    Ok((snapshot.hash.id()?, Done::of(snapshot.complete)))
}

fn write_counts(diffs: Diffs, out: &mut Output) -> Result<(), Failure> {
    for file in diffs {
        let FileDiff { file, status, additions, deletions, binary, .. } = file?;
        let status = status_word(status);
        let counts = if binary { "binary".into() } else { format!("+{additions} -{deletions}") };
        out.line(&format!("{counts:<12} {status:<8} {file}"))?;
    }
    Ok(())
}

pub(super) fn status_word(status: ChangeStatus) -> &'static str {
    match status {
        ChangeStatus::Added => "added",
        ChangeStatus::Deleted => "deleted",
        ChangeStatus::Modified => "modified",
    }
}

/// Writes the array item by item, because the texts of a large change may not fit into memory.
fn write_texts(diffs: Diffs, out: &mut Output) -> Result<(), Failure> {
    out.write_all(b"[")?;
    let mut between: &[u8] = b"\n";
    let as_json = |file| serde_json::to_string(&ctrlz_api::FileDiff::from(file));
    diffs.make_each(as_json, |text| -> Result<(), Failure> {
        out.write_all(std::mem::replace(&mut between, b",\n"))?;
        out.json_part(&text?)
    })?;
    out.line("]")
}
