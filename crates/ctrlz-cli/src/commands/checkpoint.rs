//! `ctrlz checkpoint`: records a named snapshot.

use ctrlz_api::methods::{self, CheckpointParams, NoParams};
use ctrlz_api::{Checkpoint, CheckpointMade};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
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
    let params = CheckpointParams {
        label: args.label.clone(),
        kind: Some(args.kind.clone()),
        pinned: args.pin,
        session: args.session.clone(),
        keep: None,
    };
    let made = place.call(methods::checkpoint, &params)?;
    let done = Done::of(made.complete);
    render::skipped(&made.skipped);
    if out.is_json() {
        out.json(&made)?;
        return Ok(done);
    }
    let CheckpointMade { checkpoint, .. } = &made;
    out.line(&format!("checkpoint {}", short_name(checkpoint)))?;
    out.line(&format!("snapshot   {}", checkpoint.snapshot))?;
    let name = checkpoint.label.as_deref().unwrap_or(short_name(checkpoint));
    let program = render::program();
    out.line(&format!("back to it: {program} restore --exact {}", shell_word(name.as_bytes())))?;
    Ok(done)
}

fn list(place: &Place, out: &mut Output) -> Result<Done, Failure> {
    let found = place.read(methods::checkpoints, &NoParams {})?;
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    let checkpoints = &found.checkpoints;
    if checkpoints.is_empty() {
        render::note("no checkpoint here yet; `ctrlz checkpoint -m LABEL` makes one");
    }
    for checkpoint in checkpoints {
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
