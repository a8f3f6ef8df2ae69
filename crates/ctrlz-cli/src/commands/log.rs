//! `ctrlz log`: lists the operations, newest first.

mod browse;
mod lanes;

use std::collections::HashMap;
use std::io::IsTerminal;

use ctrlz_api::methods::{self, LostParams, TimelineParams};
use ctrlz_api::{
    Boundary, Forked, Gap, LogEntry, LoggedFile, LoggedStep, Lost, LostFile, LostUncaptured,
    StepInfo,
};

use super::Done;
use crate::config::Environment;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Charset, Ink, Output, Palette, clipped_to, printable};
use lanes::Lanes;

/// Show what happened here, newest first
///
/// Prints one line per operation: a lane per session, the age, a title, the changed files and
/// lines, and at the end the session, the message and the step id for `undo --step`, or the
/// operation id for `restore`. `[undone]` steps are currently undone. `[inferred]` steps were not
/// ended by their agent. With --lost, shows files that disappeared instead.
///
/// Example: ctrlz log -n 5 --files
#[derive(clap::Args, Debug)]
pub(crate) struct LogArgs {
    /// Show only operations of this session
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Show a log that was pulled or imported, by the name that `sessions` shows
    #[arg(long, value_name = "LOG")]
    from: Option<String>,
    /// Show at most N operations
    #[arg(short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Name the files of each operation, with added and removed lines
    #[arg(short = 'f', long)]
    files: bool,
    /// List files that disappeared and have not come back, with the command that recovers them
    #[arg(long, conflicts_with_all = ["session", "from", "files"])]
    lost: bool,
    /// Browse the changes interactively, and undo, redo and restore with a few keys
    #[arg(short = 'i', long, conflicts_with_all = ["files", "lost", "json"])]
    interactive: bool,
}

pub(crate) fn run(
    place: &Place,
    args: &LogArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    if args.interactive {
        if !std::io::stdout().is_terminal() {
            return Err(Failure::NotATerminal);
        }
        let (charset, palette) = (environment.charset(), environment.palette());
        return browse::run(place, args.session.as_deref(), charset, palette);
    }
    if args.lost {
        show_lost(place, args, out)
    } else {
        show_operations(place, args, environment, out)
    }
}

fn limit(args: &LogArgs) -> usize {
    usize::try_from(args.limit).unwrap_or(usize::MAX)
}

fn show_lost(place: &Place, args: &LogArgs, out: &mut Output) -> Result<Done, Failure> {
    let params = LostParams { limit: Some(u64::MAX), ..LostParams::default() };
    let found = place.read(methods::lost, &params)?;
    // JSON output is never truncated.
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    let Lost { lost: all, uncaptured, .. } = &found;
    if all.is_empty() && uncaptured.is_empty() {
        render::note("no file is lost");
    }
    for LostFile { path, at_millis, kind, step, .. } in all.iter().take(limit(args)) {
        let by = render::origin(kind, step.as_ref());
        let age = render::age(*at_millis);
        let command = format!("{} recover {}", render::program(), place.typed(path.as_path()));
        out.line(&format!("{age:<14}  {path}  by {by}  {command}"))?;
    }
    for LostUncaptured { uncaptured, at_millis, step, .. } in uncaptured.iter().take(limit(args)) {
        let (age, by) = (render::age(*at_millis), render::step(step));
        let (path, what) = (&uncaptured.path, printable(&uncaptured.text));
        out.line(&format!("{age:<14}  {path}  by {by}  {what}"))?;
    }
    let over = |count: usize| count.saturating_sub(limit(args));
    let more = over(all.len()) + over(uncaptured.len());
    if more > 0 {
        render::note(&format!("and {} more; -n N shows more", render::files(more)));
    }
    Ok(Done::Complete)
}

fn show_operations(
    place: &Place,
    args: &LogArgs,
    environment: &Environment,
    out: &mut Output,
) -> Result<Done, Failure> {
    let params = TimelineParams {
        session: args.session.clone(),
        limit: Some(u64::from(args.limit)),
        log: args.from.clone(),
        ..TimelineParams::default()
    };
    let found = place.read(methods::timeline, &params)?;
    if out.is_json() {
        out.json(&found)?;
        return Ok(Done::Complete);
    }
    let entries = &found.operations;
    if entries.is_empty() {
        let start = "nothing is recorded here yet; `ctrlz run -- CMD` or `ctrlz track` starts it";
        render::note(&render::with_program(start));
    }
    let charset = environment.charset();
    let table = Table::of(entries, charset, environment.palette());
    for (at, entry) in entries.iter().enumerate() {
        out.line(table.line(at, entry).trim_end())?;
        if args.files {
            table.file_lines(at, entry).iter().try_for_each(|line| out.line(line))?;
        }
    }
    Ok(Done::Complete)
}

/// Maximum number of lost paths in the line of a step.
const MAX_LOST: usize = 3;

/// Layout shared by all lines.
struct Table {
    titles: Vec<String>,
    width: usize,
    lanes: Lanes,
    charset: Charset,
    palette: Palette,
}

impl Table {
    fn of(entries: &[LogEntry], charset: Charset, palette: Palette) -> Table {
        let known: HashMap<&str, &StepInfo> = entries
            .iter()
            .flat_map(|entry| &entry.steps)
            .map(|step| (step.info.step.as_str(), &step.info))
            .collect();
        let titles: Vec<String> = entries.iter().map(|entry| title(entry, &known)).collect();
        let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0);
        Table { titles, width, lanes: Lanes::of(entries.iter().map(session)), charset, palette }
    }

    fn line(&self, at: usize, entry: &LogEntry) -> String {
        let graph = self.lanes.row(at, sign(entry, self.charset), self.charset);
        let age = render::age(entry.at_millis);
        let (title, width) = (&self.titles[at], self.width);
        let text = format!("{age:<14}  {title:<width$}  {}", rest(entry));
        let text = match entry.kind.as_str() {
            _ if is_undone(entry) => self.palette.paint(Ink::Faint, &text),
            "step" => self.palette.paint(Ink::Agent, &text),
            "outside" if entry.gap.is_none() => self.palette.paint(Ink::Outside, &text),
            _ => text,
        };
        format!("{graph} {text}")
    }

    fn file_lines(&self, at: usize, entry: &LogEntry) -> Vec<String> {
        let graph = self.lanes.row_below(at, self.charset);
        let line = |file: &LoggedFile| {
            let LoggedFile { path, additions, deletions, .. } = file;
            let outside = if entry.outside.contains(path) { "  [outside]" } else { "" };
            format!("{graph}     {:<12} {path}{outside}", format!("+{additions} -{deletions}"))
        };
        let more = entry.files.unwrap_or_default() as usize;
        let more = more.saturating_sub(entry.changes.len());
        let more = (more > 0).then(|| format!("{graph}     and {} more", render::files(more)));
        entry.changes.iter().map(line).chain(more).collect()
    }
}

/// Returns the session whose lane an operation is in, or `None` if it belongs to no session.
fn session(entry: &LogEntry) -> Option<&str> {
    let first = entry.steps.first().map(|step| step.info.session.as_str());
    first.or(entry.session.as_deref())
}

/// Returns a short description of an operation.
pub(super) fn title(entry: &LogEntry, known: &HashMap<&str, &StepInfo>) -> String {
    let of = |verb: &str| match entry.subjects.as_slice() {
        [] => verb.to_owned(),
        [only] => match known.get(only.as_str()) {
            Some(step) => format!("{verb} of {}", render::step(step)),
            None => format!("{verb} of 1 step"),
        },
        several => format!("{verb} of {}", render::steps(several.len() as u64)),
    };
    let labelled = |kind: &str| match &entry.label {
        Some(label) => format!("{kind} {}", printable(label)),
        None => kind.to_owned(),
    };
    match entry.kind.as_str() {
        "step" => entry.steps.iter().map(step_title).collect::<Vec<_>>().join(" + "),
        "outside" => match (&entry.gap, &entry.label) {
            (Some(gap), _) => gap_title(gap),
            (None, Some(label)) => printable(label),
            (None, None) => "outside (you or a late process)".into(),
        },
        "revert" => match (&entry.boundary, &entry.commits) {
            (Some(Boundary { message, part }), _) => {
                let part = part.as_ref().map(|part| format!(", part {part}")).unwrap_or_default();
                printable(&format!("revert to before {message}{part}"))
            }
            (None, Some(_)) => "revert made final".into(),
            (None, None) => labelled("revert"),
        },
        kind @ ("undo" | "redo" | "unrevert") => of(kind),
        "fork" => match &entry.forked {
            Some(Forked { session, message, .. }) => {
                let at = message.as_ref().map(|message| format!(" before {message}"));
                printable(&format!("fork of {session}{}", at.unwrap_or_default()))
            }
            None => labelled("fork"),
        },
        kind => labelled(kind),
    }
}

/// Returns a description of changes that were not recorded: the reason and the missing turns.
fn gap_title(gap: &Gap) -> String {
    let turns = gap.turns.iter().map(|turn| {
        let who = turn.who.as_deref().unwrap_or(&turn.session);
        let message = turn.message.as_ref().map(|message| format!(" turn {message}"));
        format!("{who}{}", message.unwrap_or_default())
    });
    let turns: Vec<String> = turns.collect();
    let turns = if turns.is_empty() { String::new() } else { format!(" ({})", turns.join(", ")) };
    printable(&format!("{}{turns}", render::gap(gap)))
}

fn step_title(step: &LoggedStep) -> String {
    let what = render::step(&step.info);
    match &step.info.who {
        Some(who) => format!("step by {}: {what}", printable(who)),
        None => format!("step: {what}"),
    }
}

/// Returns the counts, marks and ids of an operation.
fn rest(entry: &LogEntry) -> String {
    let mut parts = vec![format!("{:<16}", counts(entry))];
    for LoggedStep { info, inferred, undone, uncaptured } in &entry.steps {
        if *undone {
            parts.push("[undone]".into());
        }
        if *inferred {
            parts.push("[inferred]".into());
        }
        let mut losses = uncaptured.iter().filter(|lost| lost.loss);
        for lost in losses.by_ref().take(MAX_LOST) {
            parts.push(printable(&format!("[{} {}]", lost.path, lost.text)));
        }
        let more = losses.count();
        if more > 0 {
            parts.push(format!("[{} more lost; see log --lost]", render::paths(more)));
        }
        let message = info.message.as_ref().map(|id| format!("/{id}")).unwrap_or_default();
        parts.push(printable(&format!("{}{message} step {}", info.session, info.step)));
    }
    if entry.pinned {
        parts.push("[pinned]".into());
    }
    if !entry.shared.is_empty() {
        parts.push(format!("[{} shared]", render::paths(entry.shared.len())));
    }
    if !entry.outside.is_empty() {
        parts.push(format!("[{} outside]", render::paths(entry.outside.len())));
    }
    if entry.steps.is_empty() {
        parts.push(format!("operation {}", entry.operation));
    }
    parts.join("  ")
}

/// Returns the number of files that an operation changed. Adds the lines if all files were counted.
fn counts(entry: &LogEntry) -> String {
    let lines = entry.additions.zip(entry.deletions);
    let lines = lines.map(|(more, fewer)| format!(" +{more} -{fewer}")).unwrap_or_default();
    match (entry.files, entry.changes.as_slice()) {
        _ if entry.damaged => "unreadable".into(),
        (None | Some(0), _) => String::new(),
        (Some(1), [only]) => format!("{}{lines}", clipped_to(&only.path.to_string(), 30)),
        (Some(files), _) => format!("{}{lines}", render::files(files as usize)),
    }
}

/// Returns whether everything in an operation is undone.
fn is_undone(entry: &LogEntry) -> bool {
    let steps = !entry.steps.is_empty() && entry.steps.iter().all(|step| step.undone);
    steps || entry.taken_back
}

/// Returns the symbol for the kind of an operation.
fn sign(entry: &LogEntry, charset: Charset) -> char {
    let is_undone = !entry.steps.is_empty() && entry.steps.iter().all(|step| step.undone);
    let (sign, ascii) = match entry.kind.as_str() {
        "step" if is_undone => ('◌', 'x'),
        "step" => ('●', '*'),
        "outside" => ('○', 'o'),
        "undo" | "revert" => ('↶', '<'),
        "redo" | "unrevert" => ('↷', '>'),
        "fork" => ('◇', '%'),
        _ => ('◆', '#'),
    };
    match charset {
        Charset::Utf8 => sign,
        Charset::Ascii => ascii,
    }
}
