//! State of the browser, and the effect of each key.

use std::collections::HashMap;

use ctrlz::{
    Error, ObjectId, OperationKind, Point, Progress, RestoreOptions, Rewind, TimelineEntry,
    TimelineQuery, UndoOptions, UndoReport, UndoScope, Workspace,
};
use ctrlz_api::LogPage;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::{rest, sign, title};
use crate::commands::restore::action_line;
use crate::commands::undo::kept_lines;
use crate::failure::Failure;
use crate::render::{self, Charset, file_line, printable};

/// Number of operations to read at once.
const PAGE: usize = 50;
/// Number of lines that a page key moves.
const SCREEN: usize = 10;

/// The pane that receives the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Timeline,
    Diff,
}

/// A proposed action, and its effects.
pub(super) struct Proposal {
    pub(super) question: String,
    /// The effects, one line per path.
    pub(super) lines: Vec<String>,
    act: Act,
}

enum Act {
    Apply { plan: ObjectId },
    Restore { operation: String, plan: ObjectId },
}

/// The changes of the selected operation.
#[derive(Default)]
pub(super) struct Preview {
    /// The operation that is shown.
    operation: Option<String>,
    pub(super) lines: Vec<String>,
    pub(super) scroll: usize,
}

/// State of the browser.
pub(super) struct Browser<'a> {
    workspace: &'a Workspace,
    session: Option<String>,
    charset: Charset,
    entries: Vec<TimelineEntry>,
    rows: Vec<String>,
    /// Cursor for reading older operations.
    more: Option<String>,
    selected: usize,
    preview: Preview,
    focus: Focus,
    proposal: Option<Proposal>,
    notice: Option<String>,
    open: bool,
}

impl<'a> Browser<'a> {
    pub(super) fn open(
        workspace: &'a Workspace,
        session: Option<&str>,
        charset: Charset,
    ) -> Result<Browser<'a>, Failure> {
        let mut browser = Browser {
            workspace,
            session: session.map(str::to_owned),
            charset,
            entries: Vec::new(),
            rows: Vec::new(),
            more: None,
            selected: 0,
            preview: Preview::default(),
            focus: Focus::Timeline,
            proposal: None,
            notice: None,
            open: true,
        };
        browser.read(PAGE)?;
        browser.show_chosen();
        Ok(browser)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    pub(super) fn rows(&self) -> &[String] {
        &self.rows
    }

    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    pub(super) fn entries(&self) -> &[TimelineEntry] {
        &self.entries
    }

    pub(super) fn preview(&self) -> &Preview {
        &self.preview
    }

    pub(super) fn focus(&self) -> Focus {
        self.focus
    }

    pub(super) fn proposal(&self) -> Option<&Proposal> {
        self.proposal.as_ref()
    }

    pub(super) fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    pub(super) fn chosen(&self) -> Option<&TimelineEntry> {
        self.entries.get(self.selected)
    }

    /// Rereads the newest `limit` operations.
    fn read(&mut self, limit: usize) -> Result<(), Error> {
        let query =
            TimelineQuery { session: self.session.clone(), limit, ..TimelineQuery::default() };
        let LogPage { entries, next } = LogPage::read(self.workspace, &query)?;
        (self.entries, self.more) = (entries, next);
        self.write_rows();
        Ok(())
    }

    /// Reads the next page, if there is one.
    fn read_on(&mut self) {
        let Some(before) = self.more.take() else { return };
        let query = TimelineQuery {
            session: self.session.clone(),
            before: Some(before),
            limit: PAGE,
            ..TimelineQuery::default()
        };
        match LogPage::read(self.workspace, &query) {
            Ok(LogPage { entries, next }) => {
                self.entries.extend(entries);
                self.more = next;
                self.write_rows();
            }
            Err(error) => self.say(&error),
        }
    }

    fn write_rows(&mut self) {
        let known: HashMap<_, _> = self
            .entries
            .iter()
            .flat_map(|entry| &entry.steps)
            .map(|step| (step.info.step.as_str(), &step.info))
            .collect();
        let row = |entry: &TimelineEntry| {
            let (sign, age) = (sign(entry, self.charset), render::age(entry.at_millis));
            format!("{sign} {age:<14}  {}  {}", title(entry, &known), rest(entry).trim_end())
        };
        self.rows = self.entries.iter().map(row).collect();
    }

    fn say(&mut self, error: &Error) {
        self.notice = Some(format!(" {}", render::message(error)));
    }

    /// Rereads the log if something was recorded in the meantime. The selection stays on its
    /// operation, or at the top.
    pub(super) fn look_up(&mut self) {
        let newest = self.workspace.log(1).ok().and_then(|mut log| log.pop());
        let shown = self.entries.first().map(|entry| entry.operation.as_str());
        let is_known = newest.as_ref().is_none_or(|newest| Some(newest.id.as_str()) == shown);
        // The newest operation may belong to another session. Rereading does no harm then.
        if is_known || self.proposal.is_some() {
            return;
        }
        self.read_again();
    }

    fn read_again(&mut self) {
        let chosen = self.chosen().map(|entry| entry.operation.clone());
        let at_top = self.selected == 0;
        if let Err(error) = self.read(self.entries.len().max(PAGE)) {
            self.say(&error);
        }
        let found = self.entries.iter().position(|entry| Some(&entry.operation) == chosen.as_ref());
        self.selected = if at_top { 0 } else { found.unwrap_or(0) };
        self.show_chosen();
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) {
        self.notice = None;
        let is_interrupt =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match (key.code, self.proposal.is_some()) {
            _ if is_interrupt => self.open = false,
            (KeyCode::Char('y') | KeyCode::Enter, true) => self.agree(),
            (KeyCode::Char('n' | 'q') | KeyCode::Esc, true) => self.proposal = None,
            (_, true) => (),
            (KeyCode::Char('q') | KeyCode::Esc, false) => self.open = false,
            (KeyCode::Tab | KeyCode::Enter, false) => self.turn(),
            (KeyCode::Up | KeyCode::Char('k'), false) => self.go(|at| at.saturating_sub(1)),
            (KeyCode::Down | KeyCode::Char('j'), false) => self.go(|at| at + 1),
            (KeyCode::PageUp, false) => self.go(|at| at.saturating_sub(SCREEN)),
            (KeyCode::PageDown | KeyCode::Char(' '), false) => self.go(|at| at + SCREEN),
            (KeyCode::Home | KeyCode::Char('g'), false) => self.go(|_| 0),
            (KeyCode::End | KeyCode::Char('G'), false) => self.go(|_| usize::MAX),
            (KeyCode::Char('u'), false) => self.propose_undo(WhichSteps::This),
            (KeyCode::Char('U'), false) => self.propose_undo(WhichSteps::FromHere),
            (KeyCode::Char('r'), false) => self.propose_redo(),
            (KeyCode::Char('R'), false) => self.propose_restore(),
            _ => (),
        }
    }

    fn turn(&mut self) {
        self.focus = match self.focus {
            Focus::Timeline => Focus::Diff,
            Focus::Diff => Focus::Timeline,
        };
    }

    fn go(&mut self, to: impl Fn(usize) -> usize) {
        match self.focus {
            Focus::Diff => {
                let last = self.preview.lines.len().saturating_sub(1);
                self.preview.scroll = to(self.preview.scroll).min(last);
            }
            Focus::Timeline => {
                let wanted = to(self.selected);
                while wanted.saturating_add(1) >= self.entries.len() && self.more.is_some() {
                    self.read_on();
                }
                self.selected = wanted.min(self.entries.len().saturating_sub(1));
                self.show_chosen();
            }
        }
    }

    fn show_chosen(&mut self) {
        let chosen = self.chosen().map(|entry| entry.operation.clone());
        if chosen.is_some() && chosen == self.preview.operation {
            return;
        }
        let lines = match self.chosen() {
            None => vec!["nothing is recorded here yet".into()],
            Some(entry) => {
                self.changes(entry).unwrap_or_else(|error| vec![render::message(&error)])
            }
        };
        self.preview = Preview { operation: chosen, lines, scroll: 0 };
    }

    /// Returns the changes of an operation as text.
    fn changes(&self, entry: &TimelineEntry) -> Result<Vec<String>, Error> {
        /// Upper bound on the number of lines in the preview.
        const MAX_LINES: usize = 20_000;
        let Some(before) = entry.before else {
            let count = self.workspace.files(&entry.snapshot)?.len();
            return Ok(vec![format!("the first snapshot: {}", render::files(count))]);
        };
        let mut diffs = self.workspace.diff_full(&before, &entry.snapshot, &[])?;
        let mut lines: Vec<String> = Vec::new();
        while let Some(text) = diffs.next_unified() {
            let text = text?;
            let text = String::from_utf8_lossy(&text);
            lines.extend(text.lines().map(|line| file_line(line).replace('\t', "    ")));
            if lines.len() > MAX_LINES {
                lines.truncate(MAX_LINES);
                lines.push(format!(
                    "and {} more; `ctrlz diff` shows all",
                    render::files(diffs.remaining())
                ));
                break;
            }
        }
        if lines.is_empty() {
            lines.push("no file changed".into());
        }
        Ok(lines)
    }

    fn propose_undo(&mut self, which: WhichSteps) {
        let step = self
            .chosen()
            .and_then(|entry| entry.steps.iter().find(|step| !step.undone).or(entry.steps.first()));
        let Some(info) = step.map(|step| step.info.clone()) else {
            self.notice = Some(" there is no step here to undo; R restores this state".into());
            return;
        };
        let options = UndoOptions { session: Some(info.session.clone()), ..UndoOptions::default() };
        let (scope, question) = match (which, &info.message) {
            (WhichSteps::FromHere, Some(message)) => (
                UndoScope::From { message: message.clone(), part: None },
                format!("Undo {message} and everything after it?"),
            ),
            _ => (
                UndoScope::Step { step: info.step.clone() },
                format!("Undo {}?", render::step(&info)),
            ),
        };
        let planned = self.workspace.plan(&Rewind::Undo { scope, options }, &Progress::default());
        self.propose(&question, planned);
    }

    fn propose_redo(&mut self) {
        let options = UndoOptions { session: self.session.clone(), ..UndoOptions::default() };
        let planned = self.workspace.plan(&Rewind::Redo { options }, &Progress::default());
        self.propose("Redo what was undone last?", planned);
    }

    fn propose(&mut self, question: &str, planned: Result<UndoReport, Error>) {
        match planned {
            Ok(report) => {
                let mut lines: Vec<String> = report.done.iter().map(action_line).collect();
                lines.extend(kept_lines(&report));
                let question = printable(question);
                let act = Act::Apply { plan: report.plan };
                self.proposal = Some(Proposal { question, lines, act });
            }
            Err(error) => self.say(&error),
        }
    }

    fn propose_restore(&mut self) {
        let Some(entry) = self.chosen() else { return };
        let operation = entry.operation.clone();
        let point = Point::Operation(operation.clone());
        let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
        match self.workspace.plan_restore(point, &options, &Progress::default()) {
            Ok(plan) => {
                let act = Act::Restore { operation, plan: plan.hash };
                let lines = plan.actions.iter().map(action_line).collect();
                let question = "Bring all files back to this state?".into();
                self.proposal = Some(Proposal { question, lines, act });
            }
            Err(error) => self.say(&error),
        }
    }

    /// Carries out exactly the plan that was proposed.
    fn agree(&mut self) {
        let Some(Proposal { act, .. }) = self.proposal.take() else { return };
        let progress = Progress::default();
        let done = match act {
            Act::Apply { plan } => {
                let applied = self.workspace.apply(&plan, true, &progress);
                applied.map(|report| (report.done.len(), report.is_complete()))
            }
            Act::Restore { operation, plan } => {
                let options = RestoreOptions {
                    exact: true,
                    allow_mass_removal: true,
                    expected_plan: Some(plan),
                    by_person: true,
                    ..RestoreOptions::default()
                };
                let restored =
                    self.workspace.restore(Point::Operation(operation), &options, &progress);
                restored.map(|report| (report.done.len(), report.is_complete()))
            }
        };
        self.selected = 0;
        self.read_again();
        match done {
            Ok((files, complete)) => {
                let left = if complete { "" } else { "; some stay as they are" };
                self.notice = Some(format!(" {} changed{left}", render::files(files)));
            }
            Err(error) => self.say(&error),
        }
    }
}

/// The steps that an undo covers.
#[derive(Clone, Copy)]
enum WhichSteps {
    This,
    FromHere,
}

/// Returns whether everything in an operation is undone.
pub(super) fn is_undone(entry: &TimelineEntry) -> bool {
    let steps = !entry.steps.is_empty() && entry.steps.iter().all(|step| step.undone);
    steps || entry.taken_back
}

/// Returns whether an operation belongs to no known step.
pub(super) fn is_outside(entry: &TimelineEntry) -> bool {
    entry.kind == OperationKind::Outside
}
