//! Snapshots and the results of reading them, as JSON.

use ctrlz::{ChangeStatus, Presence, SkipReason, base64};
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::wire::{Wire, wire};

wire! {
    /// A recorded state of the work tree.
    pub struct Snapshot from ctrlz::Snapshot {
        /// Hash of the snapshot: the id of a git tree.
        pub hash: Hash,
        /// The operation that recorded it.
        pub operation: String,
        /// Whether nothing is missing because of a failure.
        pub complete: bool = ctrlz::Snapshot::is_complete,
        /// Whether it differs from the previous snapshot.
        pub changed: bool,
        /// Number of files; of a partial snapshot, the number of rescanned files.
        pub files: u64,
        /// Number of files that were read.
        pub files_read: u64,
        /// Number of objects that were new to the store.
        pub objects_written: u64,
        /// Growth of the store, in bytes.
        pub bytes_written: u64,
        /// Number of blobs that are still borrowed from the user's repository.
        pub borrowed: u64,
        /// Paths that the snapshot does not hold, with the reasons.
        pub skipped: Vec<Skipped>,
        /// An interrupted restore that was finished first.
        pub recovered: Option<Recovery>,
        /// Warning mark of the quota that was passed by this snapshot: 50 or 80 percent.
        pub quota_mark: Option<u64>,
        /// Whether only the paths reported by a watcher were scanned. Otherwise everything was.
        pub watched: bool,
        /// A path for which the user's git index has a wrong id. Nothing is borrowed in that case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub wrong_index: Option<String>,
    }
}

/// Result of a call while snapshots are disabled. It is not an error.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Disabled {
    /// Always true.
    pub disabled: bool,
    /// Always empty. While snapshots are disabled, a method called with an empty hash returns this
    /// result.
    pub hash: String,
}

impl Disabled {
    /// Returns the only value of this type.
    pub fn answer() -> Disabled {
        Disabled { disabled: true, hash: String::new() }
    }
}

wire! {
    /// A path that a snapshot does not hold. The state of everything below it is unknown as well.
    pub struct Skipped from ctrlz::Skipped {
        /// The path, relative to the work tree.
        pub path: WirePath = |skipped| WirePath::from_bytes(&*skipped.path),
        /// Reason: `too_large`, `unreadable`, `unreadable_directory`, `unstable`, `restless`,
        /// `special`, `other_mount`, `protected_name`, `nested_repository`, `hash_collision`,
        /// `unreadable_index`, `ignore_file_too_large`, `over_quota`, or a newer one that is not in
        /// this list.
        pub reason: String,
        /// Whether it was skipped because of a failure, not by policy.
        pub failure: bool = |skipped| skipped.reason.is_failure(),
        /// Human-readable reason.
        pub text: String = |skipped| skipped.reason.to_string(),
        /// Size of the file in bytes, if the size is the reason.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bytes: Option<u64> = skipped_bytes,
    }
}

/// Returns the size of a file that was skipped because of its size.
fn skipped_bytes(skipped: &ctrlz::Skipped) -> Option<u64> {
    match &skipped.reason {
        SkipReason::TooLarge { bytes }
        | SkipReason::IgnoreFileTooLarge { bytes }
        | SkipReason::OverQuota { bytes } => Some(*bytes),
        _ => None,
    }
}

/// Returns whether no path was skipped because of a failure.
pub(crate) fn is_complete(skipped: &[ctrlz::Skipped]) -> bool {
    !skipped.iter().any(|skipped| skipped.reason.is_failure())
}

wire! {
    /// Outcome of a restore that a killed process left unfinished.
    pub struct Recovery from ctrlz::Recovery {
        /// Number of its paths.
        pub files: u64,
        /// Whether the restore was finished. Otherwise it was rolled back and no file changed.
        pub finished: bool,
        /// Paths that were changed in between and left unchanged.
        pub kept: Vec<String>,
        /// Names of replaced files that differ from the saved ones and were kept.
        pub left: Vec<String>,
    }
}

/// The files that changed since a snapshot, in the form that `revert` takes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Patch {
    /// The snapshot that they are compared with.
    pub hash: Hash,
    /// The changed files, sorted. They are absolute unless `relative` was set.
    pub files: Vec<WirePath>,
    /// Whether nothing is missing in the later snapshot because of a failure.
    pub complete: bool,
    /// Paths that the later snapshot does not hold, with the reasons.
    pub skipped: Vec<Skipped>,
}

/// The differences between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Changes {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The changed files, sorted by path.
    pub files: Vec<Change>,
    /// Number of changed files in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

wire! {
    /// A changed path.
    pub struct Change from ctrlz::Change {
        /// The path, relative to the work tree.
        pub path: WirePath,
        /// Kind of the change.
        pub status: ChangeStatus = ctrlz::Change::status,
    }
}

/// The difference between two snapshots as a patch that `git apply` accepts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The patch, in whole files. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The exact bytes in base64, if the patch is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
    /// Whether `max_bytes` or `limit` was reached before the last file.
    pub truncated: bool,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
    /// Number of changed files in total.
    pub total: u64,
}

/// The changed files with their texts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiffFull {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The changed files, sorted by path.
    pub files: Vec<FileDiff>,
    /// Whether `max_bytes` or `limit` was reached before the last file.
    pub truncated: bool,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
    /// Number of changed files in total.
    pub total: u64,
}

/// The combined changes of steps: per file, from before the first step to after the last one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepChanges {
    /// The changed files, sorted by path.
    pub files: Vec<Change>,
    /// Number of changed files in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

/// The combined changes of steps as a patch that `git apply` accepts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepDiff {
    /// The patch, in whole files. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The exact bytes in base64, if the patch is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
    /// Whether `max_bytes` or `limit` was reached before the last file.
    pub truncated: bool,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
    /// Number of changed files in total.
    pub total: u64,
}

/// The combined changes of steps, with the texts of every file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepDiffFull {
    /// The changed files, sorted by path.
    pub files: Vec<FileDiff>,
    /// Whether `max_bytes` or `limit` was reached before the last file.
    pub truncated: bool,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
    /// Number of changed files in total.
    pub total: u64,
}

/// A changed file with both of its texts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileDiff {
    /// The path, relative to the work tree.
    pub file: WirePath,
    /// Kind of the change.
    pub status: ChangeStatus,
    /// The earlier text. Empty if there was none, if it is binary, or if it is omitted. Bytes that
    /// are not UTF-8 are replaced; `before_base64` has the exact ones.
    pub before: String,
    /// The later text, in the same form as `before`.
    pub after: String,
    /// Number of lines that only the later text has; 0 for binary files.
    pub additions: u64,
    /// Number of lines that only the earlier text has; 0 for binary files.
    pub deletions: u64,
    /// Whether either side is binary or too large to be shown as text.
    pub binary: bool,
    /// Whether the texts are omitted because they exceed `max_bytes` on their own.
    pub omitted: bool,
    /// The earlier bytes in base64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_base64: Option<String>,
    /// The later bytes in base64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_base64: Option<String>,
}

impl From<ctrlz::FileDiff> for FileDiff {
    fn from(diff: ctrlz::FileDiff) -> FileDiff {
        FileDiff {
            file: diff.file.into(),
            status: diff.status,
            before: diff.before,
            after: diff.after,
            additions: diff.additions as u64,
            deletions: diff.deletions as u64,
            binary: diff.binary,
            omitted: false,
            before_base64: diff.before_base64,
            after_base64: diff.after_base64,
        }
    }
}

impl FileDiff {
    /// Returns the approximate size of its texts in bytes.
    pub(crate) fn text_bytes(&self) -> u64 {
        let encoded = [&self.before_base64, &self.after_base64];
        let encoded: usize = encoded.into_iter().flatten().map(String::len).sum();
        (self.before.len() + self.after.len() + encoded) as u64
    }

    /// Returns the entry with its texts omitted.
    pub(crate) fn without_texts(self) -> FileDiff {
        FileDiff {
            before: String::new(),
            after: String::new(),
            before_base64: None,
            after_base64: None,
            omitted: true,
            ..self
        }
    }
}

/// Encoding of bytes in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Encoding {
    /// The bytes are UTF-8 and are given as text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// The bytes are not UTF-8 and are given in base64.
    #[serde(rename = "base64")]
    Base64,
}

/// Result of `show`: a file of a snapshot, or a description of the snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Shown {
    /// The file, if a path was given.
    File(FileContent),
    /// The snapshot, if no path was given.
    Snapshot(SnapshotInfo),
}

/// A file of a snapshot, or the target of a symlink.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileContent {
    /// The snapshot.
    pub hash: Hash,
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The content, in the encoding given by `encoding`.
    pub content: String,
    /// Encoding of the content.
    pub encoding: Encoding,
    /// Size of the whole file in bytes.
    pub total_bytes: u64,
    /// Whether `max_bytes` was reached before the end of the file.
    pub truncated: bool,
    /// `offset` of the next part; `null` for the last part.
    pub next: Option<u64>,
}

impl FileContent {
    /// Returns the part of a file that starts at `offset` and is at most `max_bytes` long.
    ///
    /// Text is split at character boundaries, so that every part is valid UTF-8.
    pub fn part(hash: Hash, path: WirePath, bytes: &[u8], offset: u64, max_bytes: u64) -> Self {
        let total = bytes.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(total);
        // At least one byte, so that a reader always makes progress.
        let length = usize::try_from(max_bytes.max(1)).unwrap_or(usize::MAX);
        let mut end = start.saturating_add(length).min(total);
        let text = std::str::from_utf8(bytes).ok().and_then(|text| {
            let ends = |at: &usize| text.is_char_boundary(*at);
            let below = (start + 1..=end).rev().find(ends);
            end = below.or_else(|| (end..=total).find(ends)).unwrap_or(total);
            text.get(start..end)
        });
        let (content, encoding) = match text {
            Some(text) => (text.to_owned(), Encoding::Utf8),
            None => (base64(&bytes[start..end]), Encoding::Base64),
        };
        let next = (end < total).then_some(end as u64);
        let (total_bytes, truncated) = (total as u64, next.is_some());
        FileContent { hash, path, content, encoding, total_bytes, truncated, next }
    }
}

/// A file of a snapshot, if it is present.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileAt {
    /// Whether the snapshot has the file.
    pub presence: Presence,
    /// The file; `null` unless it is present.
    pub file: Option<FileContent>,
}

/// Whether a snapshot has a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Exists {
    /// Whether the file is present.
    pub exists: bool,
    /// The same, with unknown distinguished from absent.
    pub presence: Presence,
}

/// Description of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotInfo {
    /// The snapshot.
    pub hash: Hash,
    /// Number of its files.
    pub files: u64,
    /// Operations of this work tree that recorded it, newest first.
    pub records: Vec<Record>,
    /// Paths that it does not hold, with the reasons; known only for the newest snapshot.
    pub skipped: Option<Vec<Skipped>>,
}

/// An operation that recorded a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Record {
    /// Id of the operation.
    pub operation: String,
    /// Kind of the operation; see `kind` of the log.
    pub kind: String,
    /// Time of the operation, in milliseconds since the Unix epoch.
    pub at_millis: u64,
}

impl SnapshotInfo {
    /// Reads the description of a snapshot.
    pub fn of(workspace: &ctrlz::Workspace, hash: ctrlz::ObjectId) -> Result<Self, ctrlz::Error> {
        let files = workspace.files(&hash)?.len() as u64;
        let log = workspace.log(usize::MAX)?;
        let newest = log.first().is_some_and(|record| record.snapshot == hash);
        let skipped = if newest { Some(workspace.status()?.skipped.wire()) } else { None };
        let records = log.iter().filter(|record| record.snapshot == hash).map(|record| Record {
            operation: record.id.clone(),
            kind: record.kind.wire(),
            at_millis: record.at_millis,
        });
        Ok(SnapshotInfo { hash: hash.into(), files, records: records.collect(), skipped })
    }
}

/// The files of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Files {
    /// The snapshot.
    pub hash: Hash,
    /// Its files, sorted by path.
    pub files: Vec<ListedFile>,
    /// Number of files in total.
    pub total: u64,
    /// `offset` of the next page; `null` on the last page.
    pub next: Option<u64>,
}

wire! {
    /// A file of a snapshot.
    pub struct ListedFile from ctrlz::ListedFile {
        /// The path, relative to the work tree.
        pub path: WirePath,
        /// Git file mode: `100644`, `100755` or `120000`.
        pub mode: &'static str,
        /// Id of the content.
        pub id: Hash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file in parts and compares their concatenation with it.
    #[track_caller]
    fn check_parts(bytes: &[u8], max_bytes: u64, encoding: Encoding) {
        let (hash, path) = (Hash("h".into()), WirePath::from_bytes("p"));
        let mut joined = String::new();
        let mut offset = Some(0);
        while let Some(at) = offset {
            let part = FileContent::part(hash.clone(), path.clone(), bytes, at, max_bytes);
            assert_eq!((part.encoding, part.total_bytes), (encoding, bytes.len() as u64));
            assert_eq!(part.truncated, part.next.is_some());
            assert!(part.next.is_none_or(|next| next > at), "the offset advances");
            joined.push_str(&part.content);
            offset = part.next;
        }
        if encoding == Encoding::Utf8 {
            assert_eq!(joined.as_bytes(), bytes);
        }
    }

    #[test]
    fn a_file_can_be_read_in_parts() {
        let text = "a\u{e9}\u{1f980}z".repeat(20);
        for max_bytes in [0, 1, 2, 3, 5, 64, u64::MAX] {
            check_parts(text.as_bytes(), max_bytes, Encoding::Utf8);
        }
        check_parts(b"", 1, Encoding::Utf8);
        check_parts(b"\xff\x00abc", 3, Encoding::Base64);
        let beyond = FileContent::part(Hash("h".into()), WirePath::from_bytes("p"), b"ab", 99, 9);
        assert_eq!((beyond.content.as_str(), beyond.next), ("", None));
    }
}
