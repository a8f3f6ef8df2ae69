//! Methods for store maintenance: retention, disk usage, repair and purge.

use ctrlz::{PurgeOptions, Retention};
use schemars::JsonSchema;
use serde::Deserialize;

use super::NoParams;
use crate::care::{CareReport, DiskUse, PurgeReport, Released, RepairReport};
use crate::error::{MethodError, WireError};
use crate::method::{Call, Method, Precondition};
use crate::path::WirePath;

pub(super) fn table() -> Vec<Method> {
    vec![
        Method::writes("gc", "Removes expired history and packs the rest.", gc)
            .errors(&["lost_ref", "damaged", "no_space"])
            .requires(Precondition::Confirmation),
        Method::reads("du", "Returns the size of the store, the largest paths and the growth.", du)
            .errors(&["damaged"]),
        Method::writes(
            "repair",
            "Repairs damaged objects whose content still exists somewhere.",
            repair,
        )
        .errors(&["no_space"]),
        Method::writes(
            "release_session",
            "Releases a session: history that only it needs may be removed.",
            release_session,
        )
        .errors(&["no_such_session", "store_in_use"])
        .requires(Precondition::Confirmation),
        Method::writes(
            "purge",
            "Permanently removes a path from every snapshot, or a text from every label.",
            purge,
        )
        .errors(&["not_confirmed", "not_a_tree_path", "nothing_to_purge", "damaged", "no_space"])
        .requires(Precondition::Confirmation),
    ]
}

/// Parameters of `gc`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcParams {
    /// Age in days of work below which operations are kept, unless their sessions were released. A
    /// period without operations counts as one day at most. Default: as configured, else 7.
    pub keep_days: Option<u64>,
    /// Number of most recently active sessions whose older operations are kept too. Default: as
    /// configured.
    pub keep_sessions: Option<u64>,
    /// Number of days beyond `keep_days` for which one state per day is kept. Default: as
    /// configured.
    pub thin_days: Option<u64>,
    /// Whether to rewrite every pack with unreachable objects. Default: only wasteful ones.
    #[serde(default)]
    pub thorough: bool,
    /// Whether to change nothing and only report what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Runs the method `gc`.
pub fn gc(call: &Call<'_>, params: &GcParams) -> Result<CareReport, MethodError> {
    let sessions = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let retention = Retention {
        keep_days: params.keep_days.unwrap_or(call.opened.retention.keep_days),
        keep_sessions: params.keep_sessions.map(sessions).or(call.opened.retention.keep_sessions),
        thin_days: params.thin_days.unwrap_or(call.opened.retention.thin_days),
        thorough: params.thorough,
    };
    let report = if params.dry_run {
        call.maintenance().plan_collect(&retention, call.progress)?
    } else {
        call.maintenance().collect(&retention, call.progress)?
    };
    Ok(CareReport::from(&report))
}

/// Parameters of `du`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DuParams {
    /// Number of paths to list, largest first. Default: 10.
    pub top: Option<u64>,
}

/// Runs the method `du`.
pub fn du(call: &Call<'_>, params: &DuParams) -> Result<DiskUse, MethodError> {
    let top = usize::try_from(params.top.unwrap_or(10)).unwrap_or(usize::MAX);
    Ok(DiskUse::from(&call.maintenance().disk_use(top, call.progress)?))
}

/// Runs the method `repair`.
pub fn repair(call: &Call<'_>, _: &NoParams) -> Result<RepairReport, MethodError> {
    Ok(RepairReport::from(&call.maintenance().repair(call.progress)?))
}

/// Parameters of `release_session`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseParams {
    /// The session.
    pub session: String,
    /// Whether to then remove the whole store permanently. This fails if another work tree or
    /// session needs it.
    #[serde(default)]
    pub remove_store: bool,
}

/// Runs the method `release_session`.
pub fn release_session(call: &Call<'_>, params: &ReleaseParams) -> Result<Released, MethodError> {
    call.maintenance().release_session(&params.session)?;
    if params.remove_store {
        call.maintenance().remove_store()?;
    }
    Ok(Released { session: params.session.clone(), store_removed: params.remove_store })
}

/// Parameters of `purge`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeParams {
    /// The path to remove, including everything below it. Labels of steps that changed, named or
    /// mention it are blanked as well. Exactly one of `path` and `text` must be given.
    pub path: Option<WirePath>,
    /// Text to remove from the labels of all steps and checkpoints. File contents, paths and ids
    /// are not searched.
    pub text: Option<String>,
    /// Whether the purge is confirmed. Must be true, because a purge cannot be undone.
    #[serde(default)]
    pub confirm: bool,
    /// Whether to remove the same content under other paths too. Default: those are kept and
    /// listed.
    #[serde(default)]
    pub everywhere: bool,
}

/// Runs the method `purge`.
pub fn purge(call: &Call<'_>, params: &PurgeParams) -> Result<PurgeReport, MethodError> {
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
                return Err(error.into());
            }
            let options = PurgeOptions { everywhere: params.everywhere };
            call.maintenance().purge(&path, options, call.progress)?
        }
        (None, Some(text)) if params.confirm => {
            call.maintenance().purge_text(text, call.progress)?
        }
        (None, Some(_)) => {
            let message = "the text would be gone from every label for good".to_owned();
            return Err(unconfirmed(message).into());
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(WireError::invalid_params("give either `path` or `text`").into());
        }
    };
    Ok(PurgeReport::from(&report))
}
