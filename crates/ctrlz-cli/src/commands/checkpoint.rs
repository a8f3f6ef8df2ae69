//! `ctrlz checkpoint`: records a named snapshot.

use ctrlz::{Checkpoint, CheckpointOptions};
use ctrlz_api::{CheckpointMade, Checkpoints};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::progress::watched;
use crate::render::{self, Output, printable, shell_word};

/// Record the work tree as a checkpoint, or list the checkpoints
///
/// `restore`, `diff`, `show` and `ls` accept its name, its label, `latest` for the newest
/// checkpoint and `resume` for the newest one of that kind. Git finds it in the store under the
/// same name. The last 100 are kept (`keep_checkpoints` in the configuration), and pinned ones
/// always.
///
/// Example: ctrlz checkpoint -m "it works", then ctrlz diff "it works"
#[derive(clap::Args, Debug)]
pub(crate) struct CheckpointArgs {
    /// Set a label
    #[arg(short = 'm', long, value_name = "LABEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    label: Option<String>,
    /// Keep it regardless of the number of checkpoints
    #[arg(long)]
    pin: bool,
    /// Set its kind, which is part of its name
    #[arg(long, value_name = "KIND", default_value = "manual", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    kind: String,
    /// Assign it to session ID
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// List the checkpoints, newest first
    #[arg(long, conflicts_with_all = ["label", "pin", "kind", "session"])]
    list: bool,
}

pub(crate) fn run(place: &Place, args: &CheckpointArgs, out: &mut Output) -> Result<Done, Failure> {
    if args.list {
        return list(place, out);
    }
    let options = CheckpointOptions {
        label: args.label.clone(),
        kind: args.kind.clone(),
        pinned: args.pin,
        session: args.session.clone(),
        keep: place.keep_checkpoints,
    };
    let checkpoint = watched(|progress| place.workspace.checkpoint(&options, progress))?;
    let complete = !checkpoint.skipped.iter().any(|skipped| skipped.reason.is_failure());
    render::skipped(&checkpoint.skipped);
    if out.is_json() {
        out.json(&CheckpointMade::from(&checkpoint))?;
        return Ok(Done::of(complete));
    }
    out.line(&format!("checkpoint {}", short_name(&checkpoint)))?;
    out.line(&format!("snapshot   {}", checkpoint.snapshot))?;
    let name = checkpoint.label.as_deref().unwrap_or(short_name(&checkpoint));
    let program = render::program();
    out.line(&format!("back to it: {program} restore --exact {}", shell_word(name.as_bytes())))?;
    Ok(Done::of(complete))
}

fn list(place: &Place, out: &mut Output) -> Result<Done, Failure> {
    let mut checkpoints = place.workspace.checkpoints()?;
    checkpoints.reverse();
    if out.is_json() {
        let checkpoints = checkpoints.iter().map(ctrlz_api::Checkpoint::from).collect();
        out.json(&Checkpoints { checkpoints })?;
        return Ok(Done::Complete);
    }
    if checkpoints.is_empty() {
        render::note("no checkpoint here yet; `ctrlz checkpoint -m LABEL` makes one");
    }
    for checkpoint in &checkpoints {
        let age = render::age(checkpoint.at_millis);
        let pinned = if checkpoint.pinned { "  [pinned]" } else { "" };
        let label = checkpoint.label.as_ref().map(|label| format!("  {}", printable(label)));
        let name = short_name(checkpoint);
        out.line(&format!("{age:<14}  {name}{pinned}{}", label.unwrap_or_default()))?;
    }
    Ok(Done::Complete)
}

/// Returns the last part of the ref name, which is unique in the work tree.
fn short_name(checkpoint: &Checkpoint) -> &str {
    checkpoint.name.rsplit('/').next().unwrap_or(&checkpoint.name)
}
