//! `ctrlz revert`: reverts a session to a message, or single files to their snapshots.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use ctrlz_api::methods::{self, CommitParams, PatchParam, RevertParams, RevertToParams};

use super::Done;
use super::restore::{Detail, in_use, show_plan, show_report};
use super::undo;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Output, printable, shell_word};

/// Maximum size of the patches, larger than any list of changed files: 256 MiB.
const MAX_PATCHES_BYTES: u64 = 256 << 20;

/// Revert a session to before a message, or single files to their snapshots
///
/// With --message, undoes everything that the session did from that message on, and keeps later
/// changes of you and others, as `undo` does. Until the session continues, another revert can move
/// the boundary forward or backward, and `ctrlz unrevert` reverses it completely; --commit makes it
/// final and lists the messages that are gone.
///
/// With --patches, reads patches as `ctrlz patch --json` prints them: {"hash": …, "files": […]} or
/// an array of these. If several patches name a file, the first one applies, so the oldest has to
/// come first. A file is restored if its snapshot has it, removed if the snapshot proves that it
/// did not exist, and otherwise kept and reported with exit code 3. The present state is recorded
/// first.
///
/// Example: ctrlz revert --message 7, then ctrlz unrevert or ctrlz revert --commit
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("meaning").required(true)))]
pub(crate) struct RevertArgs {
    /// Undo message M and everything its session did after it
    #[arg(long, value_name = "M", group = "meaning")]
    message: Option<String>,
    /// Keep the parts of the message before part P
    #[arg(long, value_name = "P", conflicts_with_all = ["commit", "patches"])]
    part: Option<String>,
    /// Make the session's revert final, and list the messages that are gone
    #[arg(long, group = "meaning")]
    commit: bool,
    /// Read the patches from FILE, or from standard input for -
    #[arg(long, value_name = "FILE|-", group = "meaning")]
    patches: Option<PathBuf>,
    /// Revert session ID; by default, the session of the message or the one reverted last
    #[arg(long, value_name = "ID", conflicts_with = "patches")]
    session: Option<String>,
    /// Show the plan, and change no file
    #[arg(long, conflicts_with = "commit")]
    dry_run: bool,
    /// Use the earlier version where changes do not merge, and replace files in use
    #[arg(long, conflicts_with = "commit")]
    force: bool,
    /// Also undo changes of ignored files that no tool named
    #[arg(long, conflicts_with_all = ["commit", "patches"])]
    ignored: bool,
    /// First close the session's open steps, if its agent has exited or should stop
    #[arg(long, conflicts_with_all = ["commit", "patches"])]
    interrupt: bool,
    /// Allow removing an unusual share of the files
    #[arg(long, conflicts_with = "commit")]
    yes: bool,
}

pub(crate) fn run(place: &Place, args: &RevertArgs, out: &mut Output) -> Result<Done, Failure> {
    match (&args.message, &args.patches) {
        (Some(message), _) => to_message(place, args, message, out),
        (None, Some(patches)) => files(place, args, patches, out),
        (None, None) => commit(place, args.session.as_deref(), out),
    }
}

fn to_message(
    place: &Place,
    args: &RevertArgs,
    message: &str,
    out: &mut Output,
) -> Result<Done, Failure> {
    let session = match &args.session {
        Some(session) => session.clone(),
        None => ctrlz_api::session_of(place.workspace(), message)?,
    };
    let params = RevertToParams {
        message: message.to_owned(),
        part: args.part.clone(),
        session: Some(session.clone()),
        force: args.force,
        ignored: args.ignored,
        interrupt: args.interrupt,
        by_person: true,
        allow_mass_removal: args.yes,
        ..RevertToParams::default()
    };
    if args.dry_run {
        let report = place.plan(methods::plan_revert_to, &params)?;
        return undo::show_plan(place, "would revert", &report, args.yes, out);
    }
    let report = place.call(methods::revert_to, &params)?;
    undo::show(place, "revert", &report, out)?;
    if !out.is_json() {
        for line in ways_on(&session) {
            out.line(&line)?;
        }
    }
    Ok(Done::of(report.complete))
}

/// Returns the commands that can follow a revert.
pub(super) fn ways_on(session: &str) -> Vec<String> {
    let (word, program) = (shell_word(session.as_bytes()), render::program());
    vec![
        format!("take it back: {program} unrevert"),
        format!("make it final: {program} revert --commit --session {word}; new work does it too"),
    ]
}

fn commit(place: &Place, session: Option<&str>, out: &mut Output) -> Result<Done, Failure> {
    let params = CommitParams { session: session.map(str::to_owned) };
    let state = place.read(methods::commit_revert, &params)?;
    if out.is_json() {
        out.json(&state)?;
        return Ok(Done::Complete);
    }
    let session = printable(&state.session);
    out.line(&match state.messages.as_slice() {
        [] => format!("the revert of session {session} is final"),
        messages => format!("the revert of session {session} is final; {} gone:", many(messages)),
    })?;
    for message in &state.messages {
        out.line(&printable(message))?;
    }
    out.line(&format!("bring the files back: {} redo", render::program()))?;
    Ok(Done::Complete)
}

fn many(messages: &[String]) -> String {
    if messages.len() == 1 {
        "1 message is".into()
    } else {
        format!("{} messages are", messages.len())
    }
}

fn files(
    place: &Place,
    args: &RevertArgs,
    patches: &Path,
    out: &mut Output,
) -> Result<Done, Failure> {
    // All input is read and checked before any file is changed.
    let params = RevertParams {
        patches: parse(&read(place, patches)?)?,
        by_person: true,
        in_use: in_use(args.force),
        allow_mass_removal: args.yes,
        plan: None,
    };
    if args.dry_run {
        place.workspace().check_finished()?;
        let plan = place.call_at_root(methods::plan_revert, &params)?;
        let done = show_plan(&plan, Detail::Named, out)?;
        undo::refuse_mass_removal(plan.mass_removal, args.yes, out)?;
        return Ok(done);
    }
    let report = place.call_at_root(methods::revert, &params)?;
    show_report(&report, Detail::Named, out)
}

fn read(place: &Place, path: &Path) -> Result<Vec<u8>, Failure> {
    let source: io::Result<Box<dyn Read>> = if path.as_os_str() == "-" {
        Ok(Box::new(io::stdin().lock()))
    } else {
        File::open(place.dir().join(path)).map(|file| Box::new(file) as Box<dyn Read>)
    };
    let mut bytes = Vec::new();
    source
        .and_then(|source| source.take(MAX_PATCHES_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::file("read", path, error))?;
    if bytes.len() as u64 > MAX_PATCHES_BYTES {
        return Err(Failure::Patches { why: format!("more than {MAX_PATCHES_BYTES} bytes") });
    }
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<Vec<PatchParam>, Failure> {
    let is_array = bytes.trim_ascii_start().starts_with(b"[");
    let parsed = if is_array {
        serde_json::from_slice(bytes)
    } else {
        serde_json::from_slice(bytes).map(|patch| vec![patch])
    };
    parsed.map_err(|error| Failure::Patches { why: error.to_string() })
}
