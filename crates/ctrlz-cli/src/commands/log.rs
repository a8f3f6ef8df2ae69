//! `ctrlz log`: lists the operations, newest first.

mod browse;
mod lanes;

use std::collections::HashMap;
use std::io::IsTerminal;

use ctrlz::{
    Boundary, Forked, Gap, LostFile, OperationKind, StepInfo, TimelineEntry, TimelineFile,
    TimelineQuery, TimelineStep,
};
use ctrlz_api::{Log, LogEntry, LogPage, Lost, counted_lines};

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
        return browse::run(&place.workspace, args.session.as_deref(), charset, palette);
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
    let all = place.workspace.lost()?;
    let uncaptured = place.workspace.lost_uncaptured()?;
    // JSON output is never truncated.
    if out.is_json() {
        let (lost, total) = (all.iter().map(ctrlz_api::LostFile::from), all.len() as u64);
        let uncaptured = uncaptured.iter().map(ctrlz_api::LostUncaptured::from).collect();
        out.json(&Lost { lost: lost.collect(), total, next: None, uncaptured })?;
        return Ok(Done::Complete);
    }
    if all.is_empty() && uncaptured.is_empty() {
        render::note("no file is lost");
    }
    for LostFile { path, at_millis, kind, step, .. } in all.iter().take(limit(args)) {
        let by = render::origin(*kind, step.as_ref());
        let age = render::age(*at_millis);
        let command = format!("{} recover {}", render::program(), place.typed(path));
        out.line(&format!("{age:<14}  {path}  by {by}  {command}"))?;
    }
    for lost in uncaptured.iter().take(limit(args)) {
        let by = render::origin(OperationKind::Step, Some(&lost.step));
        let (age, path) = (render::age(lost.at_millis), ctrlz::escape(&lost.uncaptured.path));
        let what = printable(&lost.uncaptured.describe());
        out.line(&format!("{age:<14}  {path}  by {by}  {what}; it cannot be recovered"))?;
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
    let query = TimelineQuery {
        log: args.from.clone(),
        session: args.session.clone(),
        limit: limit(args),
        ..TimelineQuery::default()
    };
    let LogPage { entries, next } = LogPage::read(&place.workspace, &query)?;
    if out.is_json() {
        let operations = entries.iter().map(LogEntry::from).collect();
        out.json(&Log { operations, next })?;
        return Ok(Done::Complete);
    }
    if entries.is_empty() {
        let start = "nothing is recorded here yet; `ctrlz run -- CMD` or `ctrlz track` starts it";
        render::note(&render::with_program(start));
    }
    let charset = environment.charset();
    let table = Table::of(&entries, charset, environment.palette());
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
    fn of(entries: &[TimelineEntry], charset: Charset, palette: Palette) -> Table {
        let known: HashMap<&str, &StepInfo> = entries
            .iter()
            .flat_map(|entry| &entry.steps)
            .map(|step| (step.info.step.as_str(), &step.info))
            .collect();
        let titles: Vec<String> = entries.iter().map(|entry| title(entry, &known)).collect();
        let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0);
        Table { titles, width, lanes: Lanes::of(entries.iter().map(session)), charset, palette }
    }

    fn line(&self, at: usize, entry: &TimelineEntry) -> String {
        let graph = self.lanes.row(at, sign(entry, self.charset), self.charset);
        let age = render::age(entry.at_millis);
        let (title, width) = (&self.titles[at], self.width);
        let text = format!("{age:<14}  {title:<width$}  {}", rest(entry));
        let is_undone = !entry.steps.is_empty() && entry.steps.iter().all(|step| step.undone);
        let text = match (entry.kind, is_undone || entry.taken_back) {
            (_, true) => self.palette.paint(Ink::Faint, &text),
            (OperationKind::Step, _) => self.palette.paint(Ink::Agent, &text),
            (OperationKind::Outside, _) if entry.gap.is_none() => {
                self.palette.paint(Ink::Outside, &text)
            }
            _ => text,
        };
        format!("{graph} {text}")
    }

    fn file_lines(&self, at: usize, entry: &TimelineEntry) -> Vec<String> {
        let graph = self.lanes.row_below(at, self.charset);
        let line = |file: &TimelineFile| {
            let TimelineFile { path, additions, deletions, .. } = file;
            let outside = if entry.outside.contains(path) { "  [outside]" } else { "" };
            format!("{graph}     {:<12} {path}{outside}", format!("+{additions} -{deletions}"))
        };
        let more = (entry.more_files > 0)
            .then(|| format!("{graph}     and {} more", render::files(entry.more_files)));
        entry.files.iter().map(line).chain(more).collect()
    }
}

/// Returns the session whose lane an operation is in, or `None` if it belongs to no session.
fn session(entry: &TimelineEntry) -> Option<&str> {
    let first = entry.steps.first().map(|step| step.info.session.as_str());
    first.or(entry.session.as_deref())
}

/// Returns a short description of an operation.
pub(super) fn title(entry: &TimelineEntry, known: &HashMap<&str, &StepInfo>) -> String {
    let of = |verb: &str| match entry.undone.as_slice() {
        [] => verb.to_owned(),
        [only] => match known.get(only.as_str()) {
            Some(step) => format!("{verb} of {}", render::step(step)),
            None => format!("{verb} of 1 step"),
        },
        several => format!("{verb} of {}", render::steps(several.len())),
    };
    let labelled = |kind: &str| match &entry.label {
        Some(label) => format!("{kind} {}", printable(label)),
        None => kind.to_owned(),
    };
    match entry.kind {
        OperationKind::Step => entry.steps.iter().map(step_title).collect::<Vec<_>>().join(" + "),
        OperationKind::Outside => match (&entry.gap, &entry.label) {
            (Some(gap), _) => gap_title(gap),
            (None, Some(label)) => printable(label),
            (None, None) => "outside (you or a late process)".into(),
        },
        OperationKind::Revert => match (&entry.boundary, &entry.commits) {
            (Some(Boundary { message, part }), _) => {
                let part = part.as_ref().map(|part| format!(", part {part}")).unwrap_or_default();
                printable(&format!("revert to before {message}{part}"))
            }
            (None, Some(_)) => "revert made final".into(),
            (None, None) => labelled("revert"),
        },
        OperationKind::Undo | OperationKind::Redo | OperationKind::Unrevert => {
            of(render::kind(entry.kind))
        }
        OperationKind::Fork => match &entry.forked {
            Some(Forked { session, message, .. }) => {
                let at = message.as_ref().map(|message| format!(" before {message}"));
                printable(&format!("fork of {session}{}", at.unwrap_or_default()))
            }
            None => labelled("fork"),
        },
        kind => labelled(render::kind(kind)),
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
    printable(&format!("{}{turns}", gap.describe()))
}

fn step_title(step: &TimelineStep) -> String {
    let what = render::step(&step.info);
    match &step.info.who {
        Some(who) => format!("step by {}: {what}", printable(who)),
        None => format!("step: {what}"),
    }
}

/// Returns the counts, marks and ids of an operation.
fn rest(entry: &TimelineEntry) -> String {
    let mut parts = vec![format!("{:<16}", counts(entry))];
    for TimelineStep { info, inferred, undone, uncaptured } in &entry.steps {
        if *undone {
            parts.push("[undone]".into());
        }
        if *inferred {
            parts.push("[inferred]".into());
        }
        let mut losses = uncaptured.iter().filter(|lost| lost.is_loss());
        for lost in losses.by_ref().take(MAX_LOST) {
            parts.push(printable(&format!("[{} {}]", ctrlz::escape(&lost.path), lost.describe())));
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
fn counts(entry: &TimelineEntry) -> String {
    let lines = counted_lines(entry).map(|(more, fewer)| format!(" +{more} -{fewer}"));
    match (entry.files.as_slice(), entry.more_files) {
        _ if entry.damaged => "unreadable".into(),
        ([], 0) => String::new(),
        ([only], 0) => {
            let name = clipped_to(&only.path.to_string(), 30);
            format!("{name}{}", lines.unwrap_or_default())
        }
        (files, more) => {
            format!("{}{}", render::files(files.len() + more), lines.unwrap_or_default())
        }
    }
}

/// Returns the symbol for the kind of an operation.
fn sign(entry: &TimelineEntry, charset: Charset) -> char {
    let is_undone = !entry.steps.is_empty() && entry.steps.iter().all(|step| step.undone);
    let (sign, ascii) = match entry.kind {
        OperationKind::Step if is_undone => ('◌', 'x'),
        OperationKind::Step => ('●', '*'),
        OperationKind::Outside => ('○', 'o'),
        OperationKind::Undo | OperationKind::Revert => ('↶', '<'),
        OperationKind::Redo | OperationKind::Unrevert => ('↷', '>'),
        OperationKind::Fork => ('◇', '%'),
        _ => ('◆', '#'),
    };
    match charset {
        Charset::Utf8 => sign,
        Charset::Ascii => ascii,
    }
}
