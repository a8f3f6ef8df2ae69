//! Methods that read snapshots, their files, and the state of the store.

use ctrlz::Presence;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::agents::Agents;
use crate::error::MethodError;
use crate::method::{Call, Method, Permanence};
use crate::path::{Hash, WirePath, bounded};
use crate::snapshot::{Exists, FileAt, FileContent, Files, ListedFile, Shown, SnapshotInfo};
use crate::status::{Status, Verification};

use super::{DEFAULT_MAX_BYTES, NoParams, OF_HASHES, OF_PATHS, page};

pub(super) fn table() -> Vec<Method> {
    vec![
        Method::reads(
            "show",
            "Returns a file of a snapshot or, without a path, information about the snapshot.",
            show,
        )
        .errors(OF_HASHES)
        .errors(OF_PATHS)
        .errors(&["no_such_file"])
        .lasts(Permanence::PermanentWith("path")),
        Method::reads(
            "get_file_at",
            "Returns a file of a snapshot, or null if it does not exist.",
            get_file_at,
        )
        .errors(OF_HASHES)
        .errors(OF_PATHS),
        Method::reads("file_exists_at", "Returns whether a snapshot has a file.", file_exists_at)
            .errors(OF_HASHES)
            .errors(OF_PATHS),
        Method::reads("list_files", "Lists the files of a snapshot.", list_files)
            .errors(OF_HASHES)
            .errors(OF_PATHS)
            .lasts(Permanence::Permanent),
        Method::reads(
            "status",
            "Returns the status of the work tree and its store; changes nothing.",
            status,
        ),
        Method::reads(
            "verify",
            "Reads every object of every snapshot and checks its hash.",
            verify,
        ),
    ]
}

/// Parameters of `show`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowParams {
    /// The snapshot.
    pub hash: Hash,
    /// The file. Default: none, which describes the snapshot.
    pub path: Option<WirePath>,
    /// Number of bytes to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of bytes to return. Default: 16 MiB.
    pub max_bytes: Option<u64>,
}

/// Runs the method `show`.
pub fn show(call: &Call<'_>, params: &ShowParams) -> Result<Shown, MethodError> {
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

fn content(call: &Call<'_>, params: &FileParams) -> Result<FileContent, MethodError> {
    let id = call.snapshot(&params.hash)?;
    let path = call.file(&params.path)?;
    let bytes = call.workspace.file_at(&id, &path)?;
    let max_bytes = params.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
    Ok(FileContent::part(id.into(), path.into(), &bytes, params.offset, max_bytes))
}

fn get_file_at(call: &Call<'_>, params: &FileParams) -> Result<FileAt, MethodError> {
    let path = call.file(&params.path)?;
    let presence = call.workspace.file_exists_at(&call.snapshot(&params.hash)?, &path)?;
    let file = match presence {
        Presence::Present => Some(content(call, params)?),
        Presence::Absent | Presence::Unknown => None,
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

fn file_exists_at(call: &Call<'_>, params: &ExistsParams) -> Result<Exists, MethodError> {
    let path = call.file(&params.path)?;
    let presence = call.workspace.file_exists_at(&call.snapshot(&params.hash)?, &path)?;
    Ok(Exists { exists: presence == Presence::Present, presence })
}

/// Parameters of `list_files`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {
    /// The snapshot.
    pub hash: Hash,
    /// Paths to list, including everything below them. Default: everything.
    #[serde(default, deserialize_with = "bounded")]
    pub paths: Vec<WirePath>,
    /// Number of files to skip.
    #[serde(default)]
    pub offset: u64,
    /// Maximum number of files to return. Default: 100,000.
    pub limit: Option<u64>,
}

/// Runs the method `list_files`.
pub fn list_files(call: &Call<'_>, params: &ListParams) -> Result<Files, MethodError> {
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

/// Runs the method `status`.
pub fn status(call: &Call<'_>, _: &NoParams) -> Result<Status, MethodError> {
    let failures = call.opened.agents.as_deref().map(Agents::failures).unwrap_or_default();
    Ok(Status { failures, ..Status::of(call.workspace)? })
}

/// Runs the method `verify`.
pub fn verify(call: &Call<'_>, _: &NoParams) -> Result<Verification, MethodError> {
    Ok(Verification::from(&call.maintenance().verify(call.progress)?))
}
