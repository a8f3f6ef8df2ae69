//! Edits that the user made to a file while a tool that edits the same file waited for permission.
//!
//! The client reports what the tool did to the file. That gives the content that the tool found, and
//! its difference from the last snapshot is the user's edit. It is recorded as an operation of its
//! own, before the one of the step.

use std::collections::BTreeMap;
use std::io::Read;

use crate::compare::{Extent, find};
use crate::error::Error;
use crate::git::Kind;
use crate::hold::Hold;
use crate::log::OpenStep;
use crate::path::{TreePath, split};
use crate::scan::Progress;
use crate::store::edit_tree;

use super::draft::Draft;
use super::kept::Kept;
use super::moved::Renames;
use super::recording::{Recording, Scanned};
use super::request::{Cause, Ending};

/// Maximum size in bytes of a file for which a reported edit is used.
const MAX_BYTES: u64 = 16 << 20;

/// An edit of a file by a tool, as its client reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEdit {
    /// The file, one of the step's paths.
    pub path: TreePath,
    /// The text of the file before the edit, if the client reports it. Line ends may differ.
    pub found: Option<String>,
    /// The texts that the tool replaced and their replacements, in order. Used without `found`.
    pub replaced: Vec<(String, String)>,
}

impl FileEdit {
    /// Returns the text that the tool found, given the text at the beginning of the step and the
    /// present one. `None` if the report is no evidence of an edit by the user.
    fn found(&self, begun: &str, present: &str) -> Option<String> {
        // Clients also report an empty text for a file that they could not read.
        let found = match self.found.as_ref().filter(|found| !found.is_empty()) {
            Some(found) => with_ends_of(begun, found),
            None => self.reversed(begun, present)?,
        };
        (found != begun && found != present).then_some(found)
    }

    /// Reverses the replacements in the present text.
    ///
    /// A tool that failed may have replaced nothing. So each new text must occur exactly once now
    /// and not at the beginning, and each old text exactly once at the beginning.
    fn reversed(&self, begun: &str, present: &str) -> Option<String> {
        let mut before = begun.to_owned();
        for (old, new) in &self.replaced {
            let is_new = || !before.replacen(old, "\0", 1).contains(new.as_str());
            before =
                (occurs_once(&before, old) && is_new()).then(|| before.replacen(old, new, 1))?;
        }
        let mut text = present.to_owned();
        for (old, new) in self.replaced.iter().rev() {
            let is_replaced = new.contains(old.as_str()) || !text.contains(old.as_str());
            text = (occurs_once(&text, new) && is_replaced).then(|| text.replacen(new, old, 1))?;
        }
        Some(text)
    }
}

fn occurs_once(text: &str, part: &str) -> bool {
    !part.is_empty() && text.matches(part).take(2).count() == 1
}

/// Returns a text with the byte order mark and the line ends of another version. Clients normalise
/// both when they read a file.
fn with_ends_of(model: &str, text: &str) -> String {
    const MARK: char = '\u{feff}';
    let plain = text.trim_start_matches(MARK).replace("\r\n", "\n");
    let ends = if model.contains("\r\n") { plain.replace('\n', "\r\n") } else { plain };
    if model.starts_with(MARK) { format!("{MARK}{ends}") } else { ends }
}

impl Hold {
    /// Records the user's edits that the reports about an ending step prove. Returns the named paths
    /// whose earlier recorded changes, credited to the step, are all the user's.
    pub(crate) fn record_found(
        &self,
        step: &OpenStep,
        edits: &[FileEdit],
    ) -> Result<Vec<TreePath>, Error> {
        let mut users = Vec::new();
        let Some(last) = self.work_tree.last(&self.store)?.filter(|_| !edits.is_empty()) else {
            return Ok(users);
        };
        let objects = &self.store.objects;
        // Another tool that runs at the same time can have made the edit.
        let can_be = |other: &OpenStep| {
            other.info.step != step.info.step
                && !other.only_named
                && other.starts_agent != Some(true)
        };
        let is_users = !self.open_steps()?.iter().any(can_be);
        let ending = Ending { step: step.info.step.clone(), found: true, ..Ending::default() };
        let cause = Cause { ending: Some(ending), ..Cause::outside() };
        let progress = Progress::default();
        let recording = Recording::new(self, &cause, &progress, Extent::Part);
        let mut changes = BTreeMap::new();
        for edit in edits.iter().filter(|edit| step.paths.contains(&edit.path)) {
            let path = &edit.path;
            let begun = find(objects, &step.before, path)?.filter(|entry| entry.kind.is_file());
            let recorded = find(objects, &last.snapshot, path)?;
            let (Some(begun), Some(recorded)) = (begun, recorded) else { continue };
            let Some(present) = self.present_text(path) else { continue };
            let Ok(begun_text) = String::from_utf8(objects.blob(&begun.id)?) else { continue };
            let Some(found) = edit.found(&begun_text, &present) else { continue };
            if recorded.id != begun.id {
                // The change is recorded already. Unless it is exactly this edit, the tool may have
                // made a part of it.
                if is_users && objects.blob(&recorded.id)? == found.as_bytes() {
                    users.push(path.clone());
                }
                continue;
            }
            let id = recording.pack.add(Kind::Blob, found.as_bytes(), |id| objects.holds(id))?;
            if let Some(id) = id {
                changes.insert(path.as_bytes().to_vec(), Some((recorded.kind, id)));
            }
        }
        if changes.is_empty() {
            return Ok(users);
        }
        let tree = edit_tree(objects, &recording.pack, last.snapshot, &changes)?;
        let (meta, kept) = (last.meta.clone(), Kept::default());
        let draft = Draft { tree, meta, renames: Renames::default(), kept };
        recording.finish(Some(&last), draft, Scanned::default())?;
        Ok(users)
    }

    /// Reads a text file. Returns `None` if it cannot be read, is large or is not UTF-8.
    fn present_text(&self, path: &TreePath) -> Option<String> {
        let (dir, name) = split(path.as_bytes());
        let file = self.root.open_below(dir).ok()?.open_file(name).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
        let fits = u64::try_from(bytes.len()).is_ok_and(|bytes| bytes <= MAX_BYTES);
        String::from_utf8(bytes).ok().filter(|_| fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(found: Option<&str>, pairs: &[(&str, &str)]) -> FileEdit {
        let pair = |(old, new): &(&str, &str)| ((*old).to_owned(), (*new).to_owned());
        let path = TreePath::from_scan(b"a".to_vec());
        let found = found.map(str::to_owned);
        FileEdit { path, found, replaced: pairs.iter().map(pair).collect() }
    }

    fn replaced(pairs: &[(&str, &str)]) -> FileEdit {
        edit(None, pairs)
    }

    #[test]
    fn replacements_are_reversed_in_the_present_text() {
        let edit = replaced(&[("b\n", "B\n"), ("B\n", "B\nC\n")]);
        assert_eq!(edit.found("a\nb\n", "user\na\nB\nC\n").unwrap(), "user\na\nb\n");
        assert_eq!(edit.found("a\nb\n", "a\nB\nC\n"), None, "the user changed nothing");
    }

    #[test]
    fn a_failed_or_ambiguous_replacement_is_no_evidence() {
        let edit = replaced(&[("old", "new")]);
        assert_eq!(edit.found("new\n", "user\nnew\n"), None, "the tool found no `old`");
        assert_eq!(edit.found("old\n", "user\nold\n"), None, "the tool failed");
        assert_eq!(edit.found("old new\n", "user\nnew new\n"), None);
        assert_eq!(replaced(&[("old", "")]).found("old\n", "user\n\n"), None);
        assert_eq!(replaced(&[("older", "old")]).found("older\n", "user\nolder\n"), None);
        let shortened = replaced(&[("older", "old")]).found("older\n", "user\nold\n");
        assert_eq!(shortened.unwrap(), "user\nolder\n");
    }

    #[test]
    fn a_reported_text_gets_the_line_ends_of_the_file() {
        let edited = edit(Some("a\nuser\n"), &[]);
        assert_eq!(edited.found("a\r\n", "x").unwrap(), "a\r\nuser\r\n");
        assert_eq!(edited.found("\u{feff}a\n", "x").unwrap(), "\u{feff}a\nuser\n");
        let same = edit(Some("a\nb\n"), &[]);
        assert_eq!(same.found("\u{feff}a\r\nb\r\n", "x"), None);
    }
}
