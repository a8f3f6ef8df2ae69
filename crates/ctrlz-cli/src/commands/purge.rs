//! `ctrlz purge`: removes a path from every snapshot, or a text from every label.

use std::io::Read;
use std::path::{Path, PathBuf};

use ctrlz_api::methods::{self, PurgeParams};
use ctrlz_api::{PurgeReport, PurgedSnapshot};

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output};

/// Remove a file or directory from every snapshot permanently
///
/// For content that should never have been recorded, such as a secret. Removes it from all
/// snapshots of all work trees that share the store, and blanks the labels of steps that changed,
/// named or mention it, because a command may repeat what it wrote. The files of the work tree are
/// not touched; a file that still exists is recorded again unless you exclude it. With --text,
/// removes a text from the labels of all steps and checkpoints instead. This cannot be undone, so
/// it requires --yes.
///
/// Example: pbpaste | ctrlz purge --text --yes
#[derive(clap::Args, Debug)]
pub(crate) struct PurgeArgs {
    /// The path
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    path: Option<PathBuf>,
    /// Remove the text on standard input, without its final line break, from all labels
    #[arg(long, conflicts_with = "everywhere")]
    text: bool,
    /// Also remove the same content under other paths
    #[arg(long)]
    everywhere: bool,
    /// Confirm the purge
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &PurgeArgs, out: &mut Output) -> Result<Done, Failure> {
    let path = args.path.as_deref().map(|path| place.file(path)).transpose()?;
    if !args.yes {
        return Err(Failure::NotConfirmed { path });
    }
    let params = PurgeParams {
        path: args.path.as_deref().map(Into::into),
        text: if args.path.is_none() { Some(text_to_remove()?) } else { None },
        confirm: true,
        everywhere: args.everywhere,
    };
    let report = place.call(methods::purge, &params)?;
    if let Some(path) = path.filter(|_| report.still_there) {
        render::note(&format!("{path} is still there, and the next snapshot records it again"));
        render::note("remove it, or name it in `exclude` in the configuration");
    }
    if out.is_json() {
        out.json(&report)?;
        return Ok(Done::Complete);
    }
    let PurgeReport { snapshots, operations, contents, labels, same_content, .. } = &report;
    let counted = |count: u64, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    if args.text {
        out.line(&format!("text removed from {}", counted(*labels, "label")))?;
    } else {
        let (contents, from) = (counted(*contents, "content"), counted(*operations, "snapshot"));
        out.line(&format!("{contents} removed from {from}"))?;
    }
    if *labels > 0 && !args.text {
        out.line(&format!("labels of {} blanked", counted(*labels, "step")))?;
    }
    for PurgedSnapshot { hash, replacement } in snapshots {
        out.line(&format!("{hash} is {replacement} now"))?;
    }
    for other in same_content {
        let command = format!("{} purge {}", render::program(), place.typed(other.as_path()));
        out.line(&format!("the same content is at {other}; {command} removes it there"))?;
    }
    Ok(Done::Complete)
}

/// Reads the text from standard input, because arguments are visible to other processes and kept in
/// the history of the shell.
fn text_to_remove() -> Result<String, Failure> {
    /// Maximum length of the text, longer than any label: 1 MiB.
    const MAX_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text);
    read.map_err(|error| Failure::file("read", Path::new("standard input"), error))?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}
