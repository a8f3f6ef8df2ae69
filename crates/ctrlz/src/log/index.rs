//! Index of a log: one line per operation, so that listing a long log reads a single file.
//!
//! The index is disposable. Every line has a checksum and names the previous commit. If a line does
//! not match, the index is rebuilt from the commits.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fs::private::{self, Durable, read_small};
use crate::git::ObjectId;
use crate::path::TreePath;

use super::operation::{Details, Operation, OperationKind, StepInfo};
use crate::store::Store;

/// Upper bound on the size of a usable index. Reading the commits is as fast beyond it.
const MAX_BYTES: u64 = 1 << 30;

/// An operation without the data that only a restore needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogEntry {
    pub(crate) id: String,
    pub(crate) kind: OperationKind,
    pub(crate) snapshot: ObjectId,
    #[serde(rename = "at")]
    pub(crate) at_millis: u64,
    #[serde(default)]
    pub(crate) details: Details,
    pub(crate) commit: ObjectId,
    #[serde(default)]
    pub(crate) parent: Option<ObjectId>,
    /// Whether it begins a segment, so that earlier operations may have been dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    begins: bool,
}

impl LogEntry {
    /// Returns the kind and the step to show for the operation's change of a path. Changes in a
    /// step's operation that belong to no step are from outside, and its undo leaves them.
    pub(crate) fn author(&self, path: &TreePath) -> (OperationKind, Option<&StepInfo>) {
        let credits = &self.details.credits;
        let owner = credits
            .iter()
            .find(|credit| credit.paths.as_ref().is_none_or(|paths| paths.contains(path)));
        let is_unclear = || credits.iter().any(|credit| credit.unclear.contains(path));
        let is_steps = owner.is_some() || self.details.shared.contains(path) || is_unclear();
        let kind = match self.kind {
            OperationKind::Step if !is_steps => OperationKind::Outside,
            kind => kind,
        };
        (kind, owner.map(|credit| &credit.step))
    }
}

impl From<&Operation> for LogEntry {
    fn from(operation: &Operation) -> LogEntry {
        LogEntry {
            id: operation.id.clone(),
            kind: operation.kind,
            snapshot: operation.snapshot,
            at_millis: operation.at_millis,
            details: operation.details.clone(),
            commit: operation.commit,
            parent: operation.parent,
            begins: operation.segment.place == 0,
        }
    }
}

/// Appends an operation. Errors are ignored: the next reader rebuilds the index.
pub(crate) fn append(path: &Path, operation: &Operation) {
    let line = line_of(&LogEntry::from(operation));
    if operation.parent.is_none() {
        drop(private::replace(path, &line, Durable::No));
    } else if let Ok(mut file) = private::open_for_appending(path) {
        drop(file.write_all(&line));
    }
}

fn line_of(entry: &LogEntry) -> Vec<u8> {
    let json = serde_json::to_string(entry).expect("plain data has a JSON form");
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes()
}

/// A log as recorded in the index, newest first, parsed on demand.
pub(crate) struct LogIndex<'a> {
    store: &'a Store,
    /// Name of the log.
    log: String,
    path: PathBuf,
    bytes: Vec<u8>,
    /// End offset of the next older line.
    end: usize,
    next: Option<ObjectId>,
}

impl<'a> LogIndex<'a> {
    /// Opens the index at `path` of the log whose newest commit is `head`. Rebuilds it if it does
    /// not match. It is empty without a commit.
    pub(super) fn open(
        store: &'a Store,
        log: String,
        path: PathBuf,
        head: Option<ObjectId>,
    ) -> Result<LogIndex<'a>, Error> {
        let bytes = read_small(&path, MAX_BYTES)?.unwrap_or_default();
        let end = bytes.len();
        let mut index = LogIndex { store, log, path, bytes, end, next: head };
        if let Some(head) = head.filter(|_| index.peek().is_none()) {
            index.rebuild(head)?;
        }
        Ok(index)
    }

    fn rebuild(&mut self, head: ObjectId) -> Result<(), Error> {
        let mut entries: Vec<LogEntry> = Vec::new();
        for operation in self.store.history(&self.log, head) {
            let entry = LogEntry::from(&operation?);
            if let Some(newer) = entries.last_mut() {
                // The previous segment may have been rewritten after this commit named its end.
                newer.parent = Some(entry.commit);
            }
            entries.push(entry);
        }
        if let Some(oldest) = entries.last_mut() {
            // Earlier operations, if any, were dropped.
            oldest.parent = None;
        }
        self.bytes = entries.iter().rev().flat_map(line_of).collect();
        // Best effort: without the file, the next reader rebuilds the index.
        drop(private::replace(&self.path, &self.bytes, Durable::No));
        self.end = self.bytes.len();
        self.next = Some(head);
        Ok(())
    }

    /// Returns the next older entry, or `None` at the beginning of the log.
    fn older(&mut self) -> Result<Option<LogEntry>, Error> {
        let Some(wanted) = self.next else { return Ok(None) };
        if self.peek().is_none() {
            self.rebuild(wanted)?;
        }
        let Some((start, entry)) = self.peek() else { return Ok(None) };
        self.end = start;
        // The previous segment may have been dropped, which the index does not record.
        self.next = entry.parent.filter(|parent| !entry.begins || self.store.objects.holds(parent));
        Ok(Some(entry))
    }

    /// Parses the line that ends at `end`. Returns `None` if it is damaged or of another commit.
    fn peek(&self) -> Option<(usize, LogEntry)> {
        let line = self.bytes[..self.end].strip_suffix(b"\n")?;
        let start = line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (sum, json) = std::str::from_utf8(&line[start..]).ok()?.split_once(' ')?;
        if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(json.as_bytes()) {
            return None;
        }
        let entry: LogEntry = serde_json::from_str(json).ok()?;
        (Some(entry.commit) == self.next).then_some((start, entry))
    }
}

impl Iterator for LogIndex<'_> {
    type Item = Result<LogEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.older().transpose()
    }
}
