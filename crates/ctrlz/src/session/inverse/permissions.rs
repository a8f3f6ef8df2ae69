//! Three-way merge of permissions.

use crate::compare::Entry;
use crate::git::EntryKind;

/// Permissions of a path before and after a change, or `None` where there was no file.
#[derive(Clone, Copy)]
pub(super) struct ModeStep {
    pub(super) before: Option<u32>,
    pub(super) after: Option<u32>,
}

impl ModeStep {
    /// Returns whether permissions that are neither those before nor those after the change were
    /// set since.
    pub(super) fn conflicts_with(self, mode: Option<u32>) -> bool {
        let sides = [self.before, self.after];
        mode.is_some() && sides.iter().all(Option::is_some) && !sides.contains(&mode)
    }
}

/// Permissions without the changes of the spans.
pub(super) struct MergedMode {
    pub(super) mode: Option<u32>,
    /// Whether a later modification is kept instead.
    pub(super) has_conflict: bool,
}

/// Returns the permissions with `changes` reversed, newest first. Later modifications are kept
/// unless `forced`.
pub(super) fn merge_modes(present: Option<u32>, changes: &[ModeStep], forced: bool) -> MergedMode {
    let mut merged = MergedMode { mode: present, has_conflict: false };
    for change in changes {
        let is_conflict = change.conflicts_with(merged.mode);
        merged.has_conflict |= is_conflict && !forced;
        if merged.mode.is_none() || merged.mode == change.after || (is_conflict && forced) {
            merged.mode = change.before;
        }
    }
    // A file that the changes created and that stays keeps its permissions.
    MergedMode { mode: merged.mode.or(present), ..merged }
}

/// Returns the entry with the kind that matches its permissions.
pub(super) fn with_mode(entry: Entry, mode: u32) -> Entry {
    let kind = match entry.kind {
        EntryKind::File | EntryKind::Executable if mode & 0o100 != 0 => EntryKind::Executable,
        EntryKind::File | EntryKind::Executable => EntryKind::File,
        other => other,
    };
    Entry { kind, ..entry }
}

/// Returns the permissions of a file of which a record lists none.
pub(super) fn usual_mode(kind: EntryKind) -> u32 {
    if kind == EntryKind::Executable { 0o755 } else { 0o644 }
}
