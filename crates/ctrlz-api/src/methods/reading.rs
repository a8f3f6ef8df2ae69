//! Methods that read snapshots, their files, and the state of the store.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::agents::Agents;
use crate::error::WireError;
use crate::method::{Access, Call, Method, Permanence};
use crate::path::{Hash, WirePath, bounded};
use crate::snapshot::{Exists, FileAt, FileContent, Files, ListedFile, Shown, SnapshotInfo};
use crate::status::{Status, Verification};

use super::{DEFAULT_MAX_BYTES, NoParams, page};

const UNKNOWN_OR_OUTSIDE: &[&str] = &[
    "not_a_hash",
    "unknown_snapshot",
    "being_imported",
    "purged",
    "not_a_snapshot",
    "not_a_tree_path",
];

pub(super) fn table() -> Vec<Method> {
    let reads = Access::Reads;
    vec![
        Method::new(
            "show",
            "Returns a file of a snapshot or, without a path, information about the snapshot.",
            reads,
            &[
                "not_a_hash",
                "unknown_snapshot",
                "being_imported",
                "purged",
                "not_a_snapshot",
                "not_a_tree_path",
                "no_such_file",
            ],
            show,
        )
        .lasts(Permanence::PermanentWith("path")),
        Method::new(
            "get_file_at",
            "Returns a file of a snapshot, or null if it does not exist.",
            reads,
            UNKNOWN_OR_OUTSIDE,
            get_file_at,
        ),
        Method::new(
            "file_exists_at",
            "Returns whether a snapshot has a file.",
            reads,
            UNKNOWN_OR_OUTSIDE,
            file_exists_at,
        ),
        Method::new(
            "list_files",
            "Lists the files of a snapshot.",
            reads,
            UNKNOWN_OR_OUTSIDE,
            list_files,
        )
        .lasts(Permanence::Permanent),
        Method::new(
            "status",
            "Returns the status of the work tree and its store; changes nothing.",
            reads,
            &[],
            status,
        ),
        Method::new(
            "verify",
            "Reads every object of every snapshot and checks its hash.",
            reads,
            &[],
            verify,
        ),
    ]
}

/// Parameters of `show`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShowParams {
    /// The snapshot.
    hash: Hash,
    /// The file. Default: none, which describes the snapshot.
    path: Option<WirePath>,
    /// Number of bytes to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of bytes to return. Default: 16 MiB.
    max_bytes: Option<u64>,
}

fn show(call: &Call<'_>, params: &ShowParams) -> Result<Shown, WireError> {
    let ShowParams { hash, path, offset, max_bytes } = params;
    match path.clone() {
        None => Ok(Shown::Snapshot(SnapshotInfo::of(call.workspace, call.snapshot(hash)?)?)),
        Some(path) => {
            let (hash, offset, max_bytes) = (hash.clone(), *offset, *max_bytes);
            content(call, &FileParams { hash, path, offset, max_bytes }).map(Shown::File)
        }
    }
}

/// Parameters of `get_file_at`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileParams {
    /// The snapshot.
    pub(super) hash: Hash,
    /// The file.
    pub(super) path: WirePath,
    /// Number of bytes to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of bytes to return. Default: 16 MiB.
    max_bytes: Option<u64>,
}

fn content(call: &Call<'_>, params: &FileParams) -> Result<FileContent, WireError> {
    let id = call.snapshot(&params.hash)?;
    let path = call.file(&params.path)?;
    let bytes = call.workspace.file_at(&id, &path)?;
    let max_bytes = params.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
    Ok(FileContent::part(id.into(), path.into(), &bytes, params.offset, max_bytes))
}

fn get_file_at(call: &Call<'_>, params: &FileParams) -> Result<FileAt, WireError> {
    let path = call.file(&params.path)?;
    let presence = call.workspace.file_exists_at(&call.snapshot(&params.hash)?, &path)?.into();
    let file = match presence {
        crate::snapshot::Presence::Present => Some(content(call, params)?),
        crate::snapshot::Presence::Absent | crate::snapshot::Presence::Unknown => None,
    };
    Ok(FileAt { presence, file })
}

/// Parameters of `file_exists_at`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExistsParams {
    /// The snapshot.
    hash: Hash,
    /// The file.
    path: WirePath,
}

fn file_exists_at(call: &Call<'_>, params: &ExistsParams) -> Result<Exists, WireError> {
    let path = call.file(&params.path)?;
    let presence = call.workspace.file_exists_at(&call.snapshot(&params.hash)?, &path)?;
    Ok(Exists { exists: presence == ctrlz::Presence::Present, presence: presence.into() })
}

/// Parameters of `list_files`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    /// The snapshot.
    hash: Hash,
    /// Paths to list, including everything below them. Default: everything.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Number of files to skip.
    #[serde(default)]
    offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    limit: Option<u64>,
}

fn list_files(call: &Call<'_>, params: &ListParams) -> Result<Files, WireError> {
    let hash = call.snapshot(&params.hash)?;
    let paths = call.paths(&params.paths)?;
    let mut files = call.workspace.files(&hash)?;
    files.retain(|file| paths.is_empty() || paths.iter().any(|path| file.path.is_within(path)));
    let (files, total, next) = page(files, params.offset, params.limit);
    Ok(Files {
        hash: hash.into(),
        files: files.iter().map(ListedFile::from).collect(),
        total,
        next,
    })
}

fn status(call: &Call<'_>, _: &NoParams) -> Result<Status, WireError> {
    let failures = call.agents.map(Agents::failures).unwrap_or_default();
    Ok(Status { failures, ..Status::of(call.workspace)? })
}

fn verify(call: &Call<'_>, _: &NoParams) -> Result<Verification, WireError> {
    Ok(Verification::from(&call.workspace.verify(call.progress)?))
}
