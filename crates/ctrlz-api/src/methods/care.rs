//! Methods for store maintenance: retention, disk usage, repair and purge.

use ctrlz::{PurgeOptions, Retention};
use schemars::JsonSchema;
use serde::Deserialize;

use super::NoParams;
use crate::care::{CareReport, DiskUse, PurgeReport, Released, RepairReport};
use crate::error::WireError;
use crate::method::{Access, Call, Method, Precondition};
use crate::path::WirePath;

pub(super) fn table() -> Vec<Method> {
    vec![
        Method::new(
            "gc",
            "Removes expired history and packs the rest.",
            Access::Writes,
            &["lost_ref", "damaged", "no_space"],
            gc,
        )
        .requires(Precondition::Confirmation),
        Method::new(
            "du",
            "Returns the size of the store, the largest paths and the growth.",
            Access::Reads,
            &["damaged"],
            du,
        ),
        Method::new(
            "repair",
            "Repairs damaged objects whose content still exists somewhere.",
            Access::Writes,
            &["no_space"],
            repair,
        ),
        Method::new(
            "release_session",
            "Releases a session: history that only it needs may be removed.",
            Access::Writes,
            &["no_such_session", "store_in_use"],
            release_session,
        )
        .requires(Precondition::Confirmation),
        Method::new(
            "purge",
            "Permanently removes a path from every snapshot, or a text from every label.",
            Access::Writes,
            &["not_confirmed", "not_a_tree_path", "nothing_to_purge", "damaged", "no_space"],
            purge,
        )
        .requires(Precondition::Confirmation),
    ]
}

/// Parameters of `gc`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GcParams {
    /// Age in days of work below which operations are kept, unless their sessions were released. A
    /// period without operations counts as one day at most. Default: as configured, else 7.
    keep_days: Option<u64>,
    /// Number of most recently active sessions whose older operations are kept too. Default: as
    /// configured.
    keep_sessions: Option<u64>,
    /// Number of days beyond `keep_days` for which one state per day is kept. Default: as
    /// configured.
    thin_days: Option<u64>,
    /// Whether to rewrite every pack with unreachable objects. Default: only wasteful ones.
    #[serde(default)]
    thorough: bool,
    /// Whether to change nothing and only report what would be done.
    #[serde(default)]
    dry_run: bool,
}

fn gc(call: &Call<'_>, params: &GcParams) -> Result<CareReport, WireError> {
    let sessions = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let retention = Retention {
        keep_days: params.keep_days.unwrap_or(call.retention.keep_days),
        keep_sessions: params.keep_sessions.map(sessions).or(call.retention.keep_sessions),
        thin_days: params.thin_days.unwrap_or(call.retention.thin_days),
        thorough: params.thorough,
    };
    let report = if params.dry_run {
        call.workspace.foresee_care(&retention, call.progress)?
    } else {
        call.workspace.care(&retention, call.progress)?
    };
    Ok(CareReport::from(&report))
}

/// Parameters of `du`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DuParams {
    /// Number of paths to list, largest first. Default: 10.
    top: Option<u64>,
}

fn du(call: &Call<'_>, params: &DuParams) -> Result<DiskUse, WireError> {
    let top = usize::try_from(params.top.unwrap_or(10)).unwrap_or(usize::MAX);
    Ok(DiskUse::from(&call.workspace.disk_use(top, call.progress)?))
}

fn repair(call: &Call<'_>, _: &NoParams) -> Result<RepairReport, WireError> {
    Ok(RepairReport::from(&call.workspace.repair(call.progress)?))
}

/// Parameters of `release_session`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReleaseParams {
    /// The session.
    session: String,
    /// Whether to then remove the whole store permanently. This fails if another work tree or
    /// session needs it.
    #[serde(default)]
    remove_store: bool,
}

fn release_session(call: &Call<'_>, params: &ReleaseParams) -> Result<Released, WireError> {
    call.workspace.release_session(&params.session)?;
    if params.remove_store {
        call.workspace.remove_store()?;
    }
    Ok(Released { session: params.session.clone(), store_removed: params.remove_store })
}

/// Parameters of `purge`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PurgeParams {
    /// The path to remove, including everything below it. Labels of steps that changed, named or
    /// mention it are blanked as well. Exactly one of `path` and `text` must be given.
    path: Option<WirePath>,
    /// Text to remove from the labels of all steps and checkpoints. File contents, paths and ids
    /// are not searched.
    text: Option<String>,
    /// Whether the purge is confirmed. Must be true, because a purge cannot be undone.
    #[serde(default)]
    confirm: bool,
    /// Whether to remove the same content under other paths too. Default: those are kept and
    /// listed.
    #[serde(default)]
    everywhere: bool,
}

fn purge(call: &Call<'_>, params: &PurgeParams) -> Result<PurgeReport, WireError> {
    let unconfirmed = |message: String| {
        let mut error = WireError::new("not_confirmed", message);
        error.hint = Some("pass \"confirm\": true".into());
        error
    };
    let report = match (&params.path, &params.text) {
        (Some(path), None) => {
            let path = call.file(path)?;
            if !params.confirm {
                let mut error =
                    unconfirmed(format!("{path} would be gone from every snapshot for good"));
                error.path = Some(path.into());
                return Err(error);
            }
            let options = PurgeOptions { everywhere: params.everywhere };
            call.workspace.purge(&path, options, call.progress)?
        }
        (None, Some(text)) if params.confirm => call.workspace.purge_text(text, call.progress)?,
        (None, Some(_)) => {
            return Err(unconfirmed("the text would be gone from every label for good".into()));
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(WireError::invalid_params("give either `path` or `text`"));
        }
    };
    Ok(PurgeReport::from(&report))
}
