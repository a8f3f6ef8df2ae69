//! Blame: the step and prompt that wrote each line of a file.

use crate::compare::{Entry, changes, find};
use crate::error::{Error, LookupError};
use crate::git::{ObjectId, diff_lines, split_lines};
use crate::log::{Gap, LogEntry, OperationKind, StepInfo, WorkTree};
use crate::path::TreePath;
use crate::store::Store;
use crate::workspace::{Workspace, is_binary};

use super::history::History;

/// A line and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlameLine {
    /// Text without its line end. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Operation that added the line.
    pub origin: Origin,
}

/// Operation that added a line to a file, or the oldest kept one whose snapshot has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Operation id.
    pub operation: String,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Time of the operation, in milliseconds since 1970.
    pub at_millis: u64,
    /// Step that added the line, if any.
    pub step: Option<StepInfo>,
    /// Path of the file at that time.
    pub path: TreePath,
    /// Whether the line may be older, because earlier operations have expired.
    pub expired: bool,
    /// Set if the line was written while nothing could be recorded.
    pub gap: Option<Gap>,
}

impl Workspace {
    /// Returns the lines of a file in the newest snapshot, each with the operation that added it.
    ///
    /// Reads another log of the store if `log` names one; see [`Log::name`](crate::Log::name).
    /// Follows files that were renamed without a change. Fails if the file is binary.
    pub fn blame(&self, path: &TreePath, log: Option<&str>) -> Result<Vec<BlameLine>, Error> {
        let none = || Error::no_such_file(&ObjectId::EMPTY_TREE, path);
        let (store, work_tree) = self.existing()?.ok_or_else(none)?;
        let work_tree = log.map_or(work_tree, |log| WorkTree::named(&store, log));
        let mut history = History::open(&store, &work_tree)?;
        history.before(0)?;
        let newest = history.entries.first().ok_or_else(none)?.snapshot;
        let missing = || Error::no_such_file(&newest, path);
        let entry = find(&store.objects, &newest, path)?
            .filter(|entry| entry.kind.is_file())
            .ok_or_else(missing)?;
        let text = store.objects.blob(&entry.id)?;
        if is_binary(&text) {
            return Err(Error::Lookup(LookupError::Binary { path: path.clone() }));
        }
        let mut blamer = Blamer::of(&store, path, entry, text);
        let mut at = 0;
        while !blamer.open.is_empty() {
            let before = history.before(at)?.cloned();
            let Some(after) = history.entries.get(at).cloned() else { break };
            blamer.step_back(before.as_ref(), &after)?;
            at += 1;
        }
        Ok(blamer.into_lines())
    }
}

struct Blamer<'a> {
    store: &'a Store,
    path: TreePath,
    /// Entry of the file in the current operation.
    entry: Entry,
    text: Vec<u8>,
    lines: Vec<(Vec<u8>, Option<Origin>)>,
    /// Lines without an origin yet, as pairs of their index in `text` and in `lines`.
    open: Vec<(usize, usize)>,
}

impl<'a> Blamer<'a> {
    fn of(store: &'a Store, path: &TreePath, entry: Entry, text: Vec<u8>) -> Blamer<'a> {
        let lines: Vec<_> =
            split_lines(&text).into_iter().map(|line| (line.to_vec(), None)).collect();
        let open = (0..lines.len()).map(|at| (at, at)).collect();
        Blamer { store, path: path.clone(), entry, text, lines, open }
    }

    /// Attributes the lines that `after` added, then continues with the file in `before`.
    fn step_back(&mut self, before: Option<&LogEntry>, after: &LogEntry) -> Result<(), Error> {
        let objects = &self.store.objects;
        let Some(before) = before else {
            let is_first = after.kind == OperationKind::Baseline;
            let origin = origin_of(after, &self.path);
            self.give_rest(&if is_first {
                origin
            } else {
                Origin { step: None, expired: true, ..origin }
            });
            return Ok(());
        };
        if before.snapshot == after.snapshot {
            return Ok(());
        }
        let mut old_path = self.path.clone();
        let mut old = find(objects, &before.snapshot, &self.path)?;
        if old.is_none() {
            let renamed = changes(objects, &before.snapshot, &after.snapshot)?
                .into_iter()
                .find(|change| change.after.is_none() && change.before == Some(self.entry));
            if let Some(change) = renamed {
                old = change.before;
                old_path = change.path;
            }
        }
        match old.filter(|old| old.kind.is_file()) {
            Some(old) if old.id == self.entry.id => self.entry = old,
            Some(old) => {
                let text = objects.blob(&old.id)?;
                self.compare(&text, after);
                self.entry = old;
                self.text = text;
            }
            None => self.give_rest(&origin_of(after, &self.path)),
        }
        self.path = old_path;
        Ok(())
    }

    fn compare(&mut self, old: &[u8], after: &LogEntry) {
        let hunks = diff_lines(old, &self.text).hunks;
        let origin = origin_of(after, &self.path);
        let mut still_open = Vec::new();
        for (at, line) in std::mem::take(&mut self.open) {
            let earlier = hunks.iter().take_while(|hunk| hunk.after.end <= at);
            let (added, removed) = earlier.fold((0, 0), |(added, removed), hunk| {
                (added + hunk.after.len(), removed + hunk.before.len())
            });
            let is_new = hunks.iter().any(|hunk| hunk.after.contains(&at));
            if is_new {
                self.lines[line].1 = Some(origin.clone());
            } else {
                still_open.push((at + removed - added, line));
            }
        }
        self.open = still_open;
    }

    fn give_rest(&mut self, origin: &Origin) {
        for (_, line) in std::mem::take(&mut self.open) {
            self.lines[line].1 = Some(origin.clone());
        }
    }

    fn into_lines(self) -> Vec<BlameLine> {
        let line = |(bytes, origin): (Vec<u8>, Option<Origin>)| {
            let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            Some(BlameLine { text: String::from_utf8_lossy(bytes).into_owned(), origin: origin? })
        };
        self.lines.into_iter().filter_map(line).collect()
    }
}

fn origin_of(entry: &LogEntry, path: &TreePath) -> Origin {
    let (kind, step) = entry.author(path);
    Origin {
        operation: entry.id.clone(),
        kind,
        at_millis: entry.at_millis,
        step: step.cloned(),
        path: path.clone(),
        expired: entry.details.stands_for > 0,
        gap: entry.details.gap.clone(),
    }
}
