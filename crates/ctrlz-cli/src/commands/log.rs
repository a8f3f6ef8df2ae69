//! `ctrlz log`: what happened here, newest first.

use std::collections::{HashMap, HashSet};

use ctrlz::{Credit, Head, ObjectId, Operation, OperationKind, StepInfo, TreePath};
use serde::Serialize;
use serde_json::json;

use super::Done;
use crate::failure::Failure;
use crate::place::Place;
use crate::render::{self, Charset, Output, printable};

/// Show what happened here, newest first
///
/// One line per operation: how long ago, what, the files and lines it changed, and at the end the
/// session, the message and the id that `undo --step` takes, or the operation that `restore`
/// takes. `[undone]` steps are taken back at present; of `[inferred]` ones, the agent never said
/// where they end.
#[derive(clap::Args, Debug)]
pub(crate) struct LogArgs {
    /// Show only what belongs to this session
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Show at most N operations
    #[arg(short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub(crate) fn run(
    place: &Place,
    args: &LogArgs,
    charset: Charset,
    out: &mut Output,
) -> Result<Done, Failure> {
    let entries = entries(place, args)?;
    if out.is_json() {
        let operations: Vec<_> = entries.iter().map(EntryJson::from).collect();
        out.json(&json!({ "operations": operations }))?;
        return Ok(Done::Complete);
    }
    if entries.is_empty() {
        render::note("nothing is recorded here yet; `ctrlz run -- CMD` or `ctrlz track` starts it");
    }
    let titles: Vec<String> = entries.iter().map(Entry::title).collect();
    let width = titles.iter().map(|title| title.chars().count()).max().unwrap_or(0);
    for (entry, title) in entries.iter().zip(titles) {
        let sign = sign(entry.operation.kind, charset);
        let age = render::age(entry.operation.at_millis);
        let line = format!("{sign} {age:<14}  {title:<width$}  {}", entry.rest());
        out.line(line.trim_end())?;
    }
    Ok(Done::Complete)
}

/// An operation with what others know about it.
struct Entry {
    operation: Operation,
    before: Option<ObjectId>,
    /// Which of its steps are taken back at present.
    undone: HashSet<String>,
    /// What is known of the steps that it took back or brought back.
    subjects: Vec<StepInfo>,
    counts: Option<Counts>,
}

/// How much an operation changed.
struct Counts {
    files: usize,
    /// Added and removed lines; a baseline has none, since everything would be new.
    lines: Option<(usize, usize)>,
}

fn entries(place: &Place, args: &LogArgs) -> Result<Vec<Entry>, Failure> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let to_read = match args.session {
        Some(_) => usize::MAX,
        // One more than is shown: it is the state before the oldest one.
        None => limit.saturating_add(1),
    };
    let log = place.workspace.log(to_read)?;
    let steps = place.workspace.steps()?;
    let known: HashMap<&str, &StepInfo> =
        steps.iter().map(|step| (step.info.step.as_str(), &step.info)).collect();
    let undone: HashSet<&str> =
        steps.iter().filter(|step| step.undone).map(|step| step.info.step.as_str()).collect();
    let befores: Vec<Option<ObjectId>> =
        log.iter().skip(1).map(|operation| Some(operation.snapshot)).chain([None]).collect();
    let mut entries: Vec<Entry> = Vec::new();
    for (operation, before) in log.into_iter().zip(befores) {
        let ids = operation.details.undone.iter();
        let subjects = ids.filter_map(|id| known.get(id.as_str()).copied().cloned()).collect();
        let credits = operation.details.credits.iter().map(|credit| &credit.step.step);
        let undone = credits.filter(|step| undone.contains(step.as_str())).cloned().collect();
        let entry = Entry { operation, before, undone, subjects, counts: None };
        if args.session.as_deref().is_none_or(|session| entry.belongs_to(session)) {
            entries.push(entry);
        }
    }
    if let (Some(session), true) = (&args.session, entries.is_empty()) {
        return Err(Failure::NoSuchSession { session: session.clone() });
    }
    entries.truncate(limit);
    for entry in &mut entries {
        // A damaged snapshot must not hide the log, which may be what helps.
        entry.counts = counts(place, &entry.operation, entry.before).ok();
    }
    Ok(entries)
}

fn counts(
    place: &Place,
    operation: &Operation,
    before: Option<ObjectId>,
) -> Result<Counts, Failure> {
    let Some(before) = before else {
        let files = place.workspace.files(&operation.snapshot)?.len();
        return Ok(Counts { files, lines: None });
    };
    let (mut files, mut additions, mut deletions) = (0, 0, 0);
    for file in place.workspace.diff_full(&before, &operation.snapshot, &[])? {
        let file = file?;
        files += 1;
        additions += file.additions;
        deletions += file.deletions;
    }
    Ok(Counts { files, lines: Some((additions, deletions)) })
}

impl Entry {
    fn belongs_to(&self, session: &str) -> bool {
        let details = &self.operation.details;
        let credited = details.credits.iter().map(|credit| &credit.step);
        let mut steps = credited.chain(&self.subjects);
        details.session.as_deref() == Some(session) || steps.any(|step| step.session == session)
    }

    /// What happened, in a few words.
    fn title(&self) -> String {
        let details = &self.operation.details;
        let of = |verb: &str| match self.subjects.as_slice() {
            [] => verb.to_owned(),
            [only] => format!("{verb} of {}", render::step(only)),
            several => format!("{verb} of {}", render::steps(several.len())),
        };
        let labelled = |kind: &str| match &details.label {
            Some(label) => format!("{kind} {}", printable(label)),
            None => kind.to_owned(),
        };
        match self.operation.kind {
            OperationKind::Step => {
                let titles: Vec<String> = details.credits.iter().map(step_title).collect();
                titles.join(" + ")
            }
            OperationKind::Outside => "outside (you or a late process)".into(),
            OperationKind::Undo => of("undo"),
            OperationKind::Redo => of("redo"),
            OperationKind::Baseline => "baseline".into(),
            OperationKind::Restore => labelled("restore"),
            OperationKind::Revert => labelled("revert"),
            OperationKind::Checkpoint => labelled("checkpoint"),
            _ => "something newer than this version".into(),
        }
    }

    /// Numbers, marks and ids.
    fn rest(&self) -> String {
        let Operation { id, details, .. } = &self.operation;
        let counts = match &self.counts {
            None => "unreadable".into(),
            Some(Counts { files, lines: None }) => render::files(*files),
            Some(Counts { files, lines: Some((additions, deletions)) }) => {
                format!("{} +{additions} -{deletions}", render::files(*files))
            }
        };
        let mut parts = vec![format!("{counts:<16}")];
        for Credit { step, inferred, .. } in &details.credits {
            if self.undone.contains(&step.step) {
                parts.push("[undone]".into());
            }
            if *inferred {
                parts.push("[inferred]".into());
            }
            let message = step.message.as_ref().map(|id| format!("/{id}")).unwrap_or_default();
            parts.push(printable(&format!("{}{message} step {}", step.session, step.step)));
        }
        if !details.shared.is_empty() {
            parts.push(format!("[{} shared]", render::paths(details.shared.len())));
        }
        if details.credits.is_empty() {
            parts.push(format!("operation {id}"));
        }
        parts.join("  ")
    }
}

fn step_title(credit: &Credit) -> String {
    let what = render::step(&credit.step);
    match &credit.step.who {
        Some(who) => format!("step by {}: {what}", printable(who)),
        None => format!("step: {what}"),
    }
}

/// The sign that tells kinds of operations apart at a glance.
fn sign(kind: OperationKind, charset: Charset) -> char {
    let (sign, ascii) = match kind {
        OperationKind::Step => ('●', '*'),
        OperationKind::Outside => ('○', 'o'),
        OperationKind::Undo => ('↶', '<'),
        OperationKind::Redo => ('↷', '>'),
        _ => ('◆', '#'),
    };
    match charset {
        Charset::Utf8 => sign,
        Charset::Ascii => ascii,
    }
}

#[derive(Serialize)]
struct EntryJson<'a> {
    operation: &'a str,
    kind: OperationKind,
    at_millis: u64,
    before: Option<ObjectId>,
    after: ObjectId,
    label: Option<&'a str>,
    steps: Vec<StepJson<'a>>,
    /// Paths of several steps at once.
    shared: &'a [TreePath],
    /// Steps that it took back or, for a redo, brought back.
    subjects: &'a [String],
    /// The undo that a redo took back.
    takes_back: Option<&'a str>,
    head: Option<&'a Head>,
    files: Option<usize>,
    additions: Option<usize>,
    deletions: Option<usize>,
}

#[derive(Serialize)]
struct StepJson<'a> {
    #[serde(flatten)]
    credit: &'a Credit,
    undone: bool,
}

impl<'a> From<&'a Entry> for EntryJson<'a> {
    fn from(entry: &'a Entry) -> EntryJson<'a> {
        let Entry { operation, before, undone, counts, .. } = entry;
        let details = &operation.details;
        let step =
            |credit: &'a Credit| StepJson { credit, undone: undone.contains(&credit.step.step) };
        let lines = counts.as_ref().and_then(|counts| counts.lines);
        EntryJson {
            operation: &operation.id,
            kind: operation.kind,
            at_millis: operation.at_millis,
            before: *before,
            after: operation.snapshot,
            label: details.label.as_deref(),
            steps: details.credits.iter().map(step).collect(),
            shared: &details.shared,
            subjects: &details.undone,
            takes_back: details.takes_back.as_deref(),
            head: details.head.as_ref(),
            files: counts.as_ref().map(|counts| counts.files),
            additions: lines.map(|(additions, _)| additions),
            deletions: lines.map(|(_, deletions)| deletions),
        }
    }
}
