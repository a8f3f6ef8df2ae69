//! Snapshots and what can be read from them, as JSON.

use ctrlz::{SkipReason, base64};
use schemars::JsonSchema;
use serde::Serialize;

use crate::agents::AgentFailure;
use crate::care::QuotaUse;
use crate::path::{Hash, WirePath};

/// A recorded state of the work tree.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Snapshot {
    /// Its hash: the id of a git tree.
    pub hash: Hash,
    /// The operation that recorded it.
    pub operation: String,
    /// Whether everything that should be in it is.
    pub complete: bool,
    /// Whether anything differs from the previous snapshot.
    pub changed: bool,
    /// Files it holds; of a partial snapshot, files that were looked at.
    pub files: u64,
    /// Files that had to be read.
    pub files_read: u64,
    /// Objects that were new to the store.
    pub objects_written: u64,
    /// Bytes the store grew by.
    pub bytes_written: u64,
    /// Blobs that the user's repository still has to lend.
    pub borrowed: u64,
    /// What it does not hold, and why.
    pub skipped: Vec<Skipped>,
    /// A restore that had been cut off and was finished first.
    pub recovered: Option<Recovery>,
    /// The mark that the use of the quota has passed with it: 50 or 80 percent.
    pub quota_mark: Option<u64>,
    /// Whether a watcher told what to look at; otherwise everything was looked at.
    pub watched: bool,
    /// A file whose content is not what the user's git index says; nothing was borrowed because of
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_index: Option<String>,
}

impl From<&ctrlz::Snapshot> for Snapshot {
    fn from(snapshot: &ctrlz::Snapshot) -> Snapshot {
        Snapshot {
            hash: snapshot.hash.into(),
            operation: snapshot.operation.clone(),
            complete: snapshot.is_complete(),
            changed: snapshot.changed,
            files: snapshot.files,
            files_read: snapshot.files_read,
            objects_written: snapshot.objects_written,
            bytes_written: snapshot.bytes_written,
            borrowed: snapshot.borrowed,
            skipped: all_skipped(&snapshot.skipped),
            recovered: snapshot.recovered.as_ref().map(Recovery::from),
            quota_mark: snapshot.quota_mark,
            watched: snapshot.watched,
            wrong_index: snapshot.wrong_index.clone(),
        }
    }
}

/// What is answered where snapshots are switched off, instead of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Disabled {
    /// Always true.
    pub disabled: bool,
    /// Always empty. An empty hash may be handed to any method, and is answered in this way.
    pub hash: String,
}

impl Disabled {
    /// The only value there is.
    pub fn answer() -> Disabled {
        Disabled { disabled: true, hash: String::new() }
    }
}

/// A path that a snapshot does not hold. Everything inside it is just as unknown.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Skipped {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// Why: `too_large`, `unreadable`, `unreadable_directory`, `unstable`, `restless`, `special`,
    /// `other_mount`, `protected_name`, `nested_repository`, `hash_collision`, `unreadable_index`,
    /// `ignore_file_too_large`, `over_quota`, or one that is newer than this list.
    pub reason: String,
    /// Whether it should have been captured, as opposed to left out by policy.
    pub failure: bool,
    /// The reason in words.
    pub text: String,
    /// Its size, where that is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl From<&ctrlz::Skipped> for Skipped {
    fn from(skipped: &ctrlz::Skipped) -> Skipped {
        let bytes = match &skipped.reason {
            SkipReason::TooLarge { bytes }
            | SkipReason::IgnoreFileTooLarge { bytes }
            | SkipReason::OverQuota { bytes } => Some(*bytes),
            _ => None,
        };
        Skipped {
            path: WirePath::from_bytes(&*skipped.path),
            reason: tag(&skipped.reason, "reason"),
            failure: skipped.reason.is_failure(),
            text: skipped.reason.describe(),
            bytes,
        }
    }
}

/// Every skipped path of a list.
pub(crate) fn all_skipped(skipped: &[ctrlz::Skipped]) -> Vec<Skipped> {
    skipped.iter().map(Skipped::from).collect()
}

/// Whether nothing is missing that should have been captured.
pub(crate) fn is_complete(skipped: &[ctrlz::Skipped]) -> bool {
    !skipped.iter().any(|skipped| skipped.reason.is_failure())
}

/// The name of a variant as the engine itself writes it, so that there is one list of names.
pub(crate) fn tag(value: &impl Serialize, key: &str) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    let name = json.as_str().or_else(|| json[key].as_str());
    name.unwrap_or("unknown").to_owned()
}

/// What became of a restore that a killed process left half-done.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Recovery {
    /// Paths it was about.
    pub files: u64,
    /// Whether it was finished; otherwise no file had changed yet, and none has.
    pub finished: bool,
    /// Paths that somebody changed in between, which stay as they are.
    pub kept: Vec<String>,
    /// Replaced things that are not what was saved, and still lie under these names.
    pub left: Vec<String>,
}

impl From<&ctrlz::Recovery> for Recovery {
    fn from(recovery: &ctrlz::Recovery) -> Recovery {
        let ctrlz::Recovery { files, finished, kept, left } = recovery.clone();
        Recovery { files, finished, kept, left }
    }
}

/// The files that changed since a snapshot; what `revert` takes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Patch {
    /// The snapshot they are compared with.
    pub hash: Hash,
    /// The changed files, sorted; absolute, unless relative ones were asked for.
    pub files: Vec<WirePath>,
    /// Whether the present state was captured completely.
    pub complete: bool,
    /// What the present snapshot does not hold.
    pub skipped: Vec<Skipped>,
}

/// What differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Changes {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The files that differ, sorted by path.
    pub files: Vec<Change>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// How it differs.
    pub status: ChangeStatus,
}

impl From<&ctrlz::Change> for Change {
    fn from(change: &ctrlz::Change) -> Change {
        Change { path: (&change.path).into(), status: change.status().into() }
    }
}

/// How a path differs between two snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// Only the later snapshot has it.
    Added,
    /// Only the earlier snapshot has it.
    Deleted,
    /// Both have it, with other bytes, another mode or another type.
    Modified,
}

impl From<ctrlz::ChangeStatus> for ChangeStatus {
    fn from(status: ctrlz::ChangeStatus) -> ChangeStatus {
        match status {
            ctrlz::ChangeStatus::Added => ChangeStatus::Added,
            ctrlz::ChangeStatus::Deleted => ChangeStatus::Deleted,
            ctrlz::ChangeStatus::Modified => ChangeStatus::Modified,
        }
    }
}

/// The difference between two snapshots as text that `git apply` accepts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Diff {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The text of whole files; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The real bytes, where the text is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
    /// Whether `max_bytes` ended it before the last file.
    pub truncated: bool,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
    /// How many files differ in all.
    pub total: u64,
}

/// Every changed file with its texts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiffFull {
    /// The earlier snapshot.
    pub from: Hash,
    /// The later snapshot.
    pub to: Hash,
    /// The files, sorted by path.
    pub files: Vec<FileDiff>,
    /// Whether `max_bytes` or `limit` ended it before the last file.
    pub truncated: bool,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
    /// How many files differ in all.
    pub total: u64,
}

/// What steps changed in all: per file, from before the first of them to after the last.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Deeds {
    /// The files that differ, sorted by path.
    pub files: Vec<Change>,
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// What steps changed, as text that `git apply` accepts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeedsDiff {
    /// The text of whole files; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The real bytes, where the text is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_base64: Option<String>,
    /// Whether `max_bytes` or `limit` ended it before the last file.
    pub truncated: bool,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
    /// How many files differ in all.
    pub total: u64,
}

/// What steps changed, with the texts of every file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeedsFull {
    /// The files, sorted by path.
    pub files: Vec<FileDiff>,
    /// Whether `max_bytes` or `limit` ended it before the last file.
    pub truncated: bool,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
    /// How many files differ in all.
    pub total: u64,
}

/// One changed file with both its texts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileDiff {
    /// The path, relative to the work tree.
    pub file: WirePath,
    /// How it differs.
    pub status: ChangeStatus,
    /// The earlier text; empty if there was none, it is binary, or it is omitted. Bytes that are
    /// not UTF-8 are replaced, and `before_base64` has the real ones.
    pub before: String,
    /// The later text, like `before`.
    pub after: String,
    /// Lines only the later text has; 0 for binary files.
    pub additions: u64,
    /// Lines only the earlier text has; 0 for binary files.
    pub deletions: u64,
    /// Whether either side is binary, or too large to be shown as text.
    pub binary: bool,
    /// Whether the texts are left out because they alone exceed `max_bytes`.
    pub omitted: bool,
    /// The earlier bytes where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_base64: Option<String>,
    /// The later bytes where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_base64: Option<String>,
}

impl From<ctrlz::FileDiff> for FileDiff {
    fn from(diff: ctrlz::FileDiff) -> FileDiff {
        FileDiff {
            file: diff.file.into(),
            status: diff.status.into(),
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
    /// What its texts take, roughly.
    pub(crate) fn text_bytes(&self) -> u64 {
        let encoded = [&self.before_base64, &self.after_base64];
        let encoded: usize = encoded.into_iter().flatten().map(String::len).sum();
        (self.before.len() + self.after.len() + encoded) as u64
    }

    /// The same without its texts.
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

/// How bytes are written in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Encoding {
    /// The bytes are UTF-8, and this is the text.
    #[serde(rename = "utf-8")]
    Utf8,
    /// The bytes are not UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// What a snapshot shows: one of its files, or itself.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Shown {
    /// A path was named.
    File(FileContent),
    /// No path was named.
    Snapshot(SnapshotInfo),
}

/// A file of a snapshot, or the target of a link.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileContent {
    /// The snapshot.
    pub hash: Hash,
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The content, as `encoding` says.
    pub content: String,
    /// How the content is written.
    pub encoding: Encoding,
    /// The size of the whole file.
    pub total_bytes: u64,
    /// Whether `max_bytes` ended it before the last byte.
    pub truncated: bool,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

impl FileContent {
    /// The part of a file from `offset` on, at most `max_bytes` long.
    ///
    /// A text is cut between characters, so that every part of it is a text.
    pub fn part(hash: Hash, path: WirePath, bytes: &[u8], offset: u64, max_bytes: u64) -> Self {
        let total = bytes.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(total);
        // At least one byte, or reading on would never end.
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

/// A file of a snapshot, if the snapshot has it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileAt {
    /// Whether the snapshot has it.
    pub presence: Presence,
    /// The file; `null` unless it is present.
    pub file: Option<FileContent>,
}

/// Whether a snapshot has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It holds the file.
    Present,
    /// It proves that there was none.
    Absent,
    /// The path was ignored or skipped then, so nobody can tell.
    Unknown,
}

impl From<ctrlz::Presence> for Presence {
    fn from(presence: ctrlz::Presence) -> Presence {
        match presence {
            ctrlz::Presence::Present => Presence::Present,
            ctrlz::Presence::Absent => Presence::Absent,
            ctrlz::Presence::Unknown => Presence::Unknown,
        }
    }
}

/// Whether a snapshot has a file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Exists {
    /// Whether it is present.
    pub exists: bool,
    /// The same, with "nobody can tell" told from "no".
    pub presence: Presence,
}

/// What a snapshot is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotInfo {
    /// The snapshot.
    pub hash: Hash,
    /// Files it holds.
    pub files: u64,
    /// When this work tree recorded it, newest first.
    pub records: Vec<Record>,
    /// What it does not hold; known for the newest snapshot only.
    pub skipped: Option<Vec<Skipped>>,
}

/// One operation that recorded a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Record {
    /// The operation.
    pub operation: String,
    /// What happened.
    pub kind: String,
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
}

impl SnapshotInfo {
    /// Everything that is known about a snapshot.
    pub fn of(workspace: &ctrlz::Workspace, hash: ctrlz::ObjectId) -> Result<Self, ctrlz::Error> {
        let files = workspace.files(&hash)?.len() as u64;
        let log = workspace.log(usize::MAX)?;
        let newest = log.first().is_some_and(|record| record.snapshot == hash);
        let skipped = match newest {
            true => Some(all_skipped(&workspace.status()?.skipped)),
            false => None,
        };
        let records = log.iter().filter(|record| record.snapshot == hash).map(|record| Record {
            operation: record.id.clone(),
            kind: tag(&record.kind, "kind"),
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
    /// How many there are in all.
    pub total: u64,
    /// The `offset` that goes on from here; `null` at the end.
    pub next: Option<u64>,
}

/// One file of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ListedFile {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// Git's mode: `100644`, `100755` or `120000`.
    pub mode: &'static str,
    /// The id of its content.
    pub id: Hash,
}

impl From<&ctrlz::ListedFile> for ListedFile {
    fn from(file: &ctrlz::ListedFile) -> ListedFile {
        ListedFile { path: (&file.path).into(), mode: file.mode, id: file.id.into() }
    }
}

/// How a work tree and its store are doing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Status {
    /// The work tree.
    pub root: WirePath,
    /// Whether snapshots are taken.
    pub enabled: bool,
    /// Whether it is a git work tree.
    pub git: bool,
    /// Where the store is, once it is decided.
    pub store: Option<WirePath>,
    /// Bytes the store takes.
    pub store_bytes: u64,
    /// How much of the quota is used, once there is a store.
    pub quota: Option<QuotaUse>,
    /// Packs in the store.
    pub packs: u64,
    /// Why collecting garbage is due, if it is.
    pub gc_due: Option<String>,
    /// Why collecting garbage failed the last time, if it did.
    pub gc_failed: Option<String>,
    /// What to do next, if something is to be done; for people.
    pub next_step: Option<String>,
    /// Files that the newest snapshot holds.
    pub files: u64,
    /// The newest snapshot.
    pub last: Option<Hash>,
    /// When it was taken, in milliseconds since 1970.
    pub last_at_millis: Option<u64>,
    /// What the newest snapshot does not hold.
    pub skipped: Vec<Skipped>,
    /// Blobs that the user's repository still lends.
    pub borrowed: u64,
    /// A file that the user's git index was wrong about; nothing is borrowed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_index: Option<String>,
    /// Files of a restore that was cut off; the next command that writes finishes it.
    pub interrupted_files: Option<u64>,
    /// Packs that are damaged.
    pub damaged_packs: Vec<DamagedPack>,
    /// Locks that somebody holds just now.
    pub locks: Vec<HeldLock>,
    /// Whether somebody watches the work tree.
    pub watcher: Watcher,
    /// What could not be recorded for agents lately, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<AgentFailure>,
}

/// Whether a work tree is watched, so that snapshots need not look at every file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Watcher {
    /// `none`, `silent` (not ready, or without an answer), `watching`, `refused`, or one that is
    /// newer than this list.
    pub state: String,
    /// The process that watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The directories it watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirs: Option<u64>,
    /// Why the last one could not watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&ctrlz::WatcherStatus> for Watcher {
    fn from(watcher: &ctrlz::WatcherStatus) -> Watcher {
        let (process, dirs, why) = match watcher {
            ctrlz::WatcherStatus::Watching { process, dirs } => (Some(*process), Some(*dirs), None),
            ctrlz::WatcherStatus::Refused { why } => (None, None, Some(tag(why, "why"))),
            _ => (None, None, None),
        };
        Watcher { state: tag(watcher, "state"), process, dirs, why }
    }
}

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HeldLock {
    /// `work tree`, `store` or `care`.
    pub what: &'static str,
    /// The processes that hold it.
    pub processes: Vec<u32>,
}

impl From<&ctrlz::HeldLock> for HeldLock {
    fn from(lock: &ctrlz::HeldLock) -> HeldLock {
        HeldLock { what: lock.what, processes: lock.processes.clone() }
    }
}

/// A pack that is damaged.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DamagedPack {
    /// The pack.
    pub path: WirePath,
    /// What is wrong with it.
    pub why: String,
}

impl Status {
    /// What is known of a work tree and of who watches it.
    pub fn of(workspace: &ctrlz::Workspace) -> Result<Status, ctrlz::Error> {
        let (status, watcher) = (&workspace.status()?, &workspace.watcher()?);
        let packs = status.damaged_packs.iter();
        let damaged = |(path, why): &(std::path::PathBuf, String)| DamagedPack {
            path: path.as_path().into(),
            why: why.clone(),
        };
        Ok(Status {
            root: status.root.as_path().into(),
            enabled: status.enabled,
            git: status.git,
            store: status.store.as_deref().map(WirePath::from),
            store_bytes: status.store_bytes,
            quota: status.quota.as_ref().map(QuotaUse::from),
            packs: status.packs,
            gc_due: workspace.care_due()?,
            gc_failed: status.gc_failed.clone(),
            next_step: next_step(status).map(str::to_owned),
            files: status.files,
            last: status.last.map(Hash::from),
            last_at_millis: status.last_at_millis,
            skipped: all_skipped(&status.skipped),
            borrowed: status.borrowed,
            wrong_index: status.wrong_index.clone(),
            interrupted_files: status.interrupted_files,
            damaged_packs: packs.map(damaged).collect(),
            locks: status.locks.iter().map(HeldLock::from).collect(),
            watcher: watcher.into(),
            failures: Vec::new(),
        })
    }
}

/// What to do about it, if something is to be done.
pub fn next_step(status: &ctrlz::Status) -> Option<&'static str> {
    let is_failure = |skipped: &ctrlz::Skipped| skipped.reason.is_failure();
    Some(match status {
        ctrlz::Status { enabled: false, .. } => "set enabled = true in the configuration",
        ctrlz::Status { last: None, .. } => "ctrlz track",
        ctrlz::Status { damaged_packs, .. } if !damaged_packs.is_empty() => "ctrlz verify --repair",
        ctrlz::Status { gc_failed: Some(_), .. } => "ctrlz verify --repair, then ctrlz gc",
        ctrlz::Status { interrupted_files: Some(_), .. } => "ctrlz track",
        ctrlz::Status { quota: Some(quota), .. } if quota.warning() == Some(80) => {
            "ctrlz du, then ctrlz gc --thorough or a larger max_store_bytes"
        }
        ctrlz::Status { skipped, .. } if skipped.iter().any(is_failure) => {
            "look at what was skipped, then ctrlz track"
        }
        ctrlz::Status { .. } => return None,
    })
}

/// The outcome of checking a store.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Verification {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// Snapshots that were looked at.
    pub snapshots: u64,
    /// Objects whose bytes have the right hash.
    pub objects: u64,
    /// What was wrong.
    pub problems: Vec<Problem>,
}

/// Something wrong in a store.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Problem {
    /// The object that is damaged or missing, if it is about one.
    pub object: Option<Hash>,
    /// The path it has in `snapshots`, safe to print.
    pub path: Option<String>,
    /// The snapshots that cannot be restored completely because of it.
    pub snapshots: Vec<Hash>,
    /// What is wrong.
    pub what: String,
}

impl From<&ctrlz::Verification> for Verification {
    fn from(found: &ctrlz::Verification) -> Verification {
        let problem = |problem: &ctrlz::Problem| Problem {
            object: problem.object.map(Hash::from),
            path: problem.path.clone(),
            snapshots: problem.snapshots.iter().copied().map(Hash::from).collect(),
            what: problem.what.clone(),
        };
        Verification {
            ok: found.problems.is_empty(),
            snapshots: found.snapshots,
            objects: found.objects,
            problems: found.problems.iter().map(problem).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file in parts and puts them together.
    #[track_caller]
    fn check_parts(bytes: &[u8], max_bytes: u64, encoding: Encoding) {
        let (hash, path) = (Hash("h".into()), WirePath::from_bytes("p"));
        let mut joined = String::new();
        let mut offset = Some(0);
        while let Some(at) = offset {
            let part = FileContent::part(hash.clone(), path.clone(), bytes, at, max_bytes);
            assert_eq!((part.encoding, part.total_bytes), (encoding, bytes.len() as u64));
            assert_eq!(part.truncated, part.next.is_some());
            assert!(part.next.is_none_or(|next| next > at), "it goes on");
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
