//! Methods that restore files from snapshots.

use ctrlz::{ObjectId, OnUse, PatchToRevert, Point, RestoreOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::MethodError;
use crate::method::{Call, Method, Precondition};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::{Plan, RestoreReport};

use super::OF_CHANGES;

const OF_RESTORES: &[&str] = &[
    "not_a_hash",
    "unknown_snapshot",
    "being_imported",
    "purged",
    "unknown_operation",
    "not_a_snapshot",
    "not_a_tree_path",
    "damaged",
];
pub(super) fn table() -> Vec<Method> {
    vec![
        Method::writes("plan_restore", "Plans `restore`: records the present state and changes no file.", plan_restore).errors(OF_RESTORES),
        Method::writes("restore", "Restores the work tree, or some of its paths, to a snapshot.", restore).errors(OF_RESTORES).errors(OF_CHANGES).errors(&["no_space"]).requires(Precondition::Plan),
        Method::writes("plan_revert", "Plans `revert`: records the present state and changes no file.", plan_revert).errors(OF_RESTORES),
        Method::writes("revert", "Restores single files, each to its own snapshot; of several for one file, the first counts.", revert).errors(OF_RESTORES).errors(OF_CHANGES).errors(&["no_space"]).requires(Precondition::Plan),
        Method::writes("plan_recover", "Plans `recover`: records the present state and changes no file.", plan_recover).errors(&["not_a_tree_path", "nothing_lost", "damaged", "stale_plan"]),
        Method::writes("recover", "Restores the last version of each lost file at a path or below it.", recover).errors(&[
                "not_a_tree_path",
                "nothing_lost",
                "damaged",
                "moved",
                "stale_plan",
                "rolled_back",
                "interrupted",
                "no_space",
            ]).requires(Precondition::Plan),
    ]
}

/// Parameters of `restore` and `plan_restore`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreParams {
    /// The snapshot, or the id of the operation that recorded it. The operation also covers
    /// permissions and empty directories.
    pub hash: Hash,
    /// Whether to remove files created since, where the snapshot proves that they did not exist.
    #[serde(default)]
    pub exact: bool,
    /// Paths to restore, including everything below them. Default: the whole work tree.
    #[serde(default, deserialize_with = "bounded")]
    pub paths: Vec<WirePath>,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    pub by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
    /// The state to restore instead of `hash`, if the caller knows it already.
    #[serde(skip)]
    pub point: Option<Point>,
}

impl RestoreParams {
    fn read(&self, call: &Call<'_>) -> Result<(Point, RestoreOptions), MethodError> {
        let options = RestoreOptions {
            exact: self.exact,
            paths: call.paths(&self.paths)?,
            allow_mass_removal: self.allow_mass_removal,
            in_use: self.in_use.read(),
            by_person: self.by_person,
            expected_plan: expected(self.plan.as_ref())?,
        };
        let point = match &self.point {
            Some(point) => point.clone(),
            None => self.hash.0.parse()?,
        };
        if let Point::Snapshot(hash) = &point {
            call.check_snapshot(hash)?;
        }
        Ok((point, options))
    }
}

/// Parses the hash of the expected plan.
pub(super) fn expected(plan: Option<&Hash>) -> Result<Option<ObjectId>, MethodError> {
    Ok(plan.map(Hash::id).transpose()?)
}

/// Policy for files that another process has open.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InUse {
    /// The file is left unchanged and reported with the process.
    #[default]
    Leave,
    /// The file is replaced. The process keeps using the old file.
    Replace,
}

impl InUse {
    pub(super) fn read(self) -> OnUse {
        match self {
            InUse::Leave => OnUse::Leave,
            InUse::Replace => OnUse::Replace,
        }
    }
}

/// Returns an error if the plan is not the expected one.
pub(super) fn check_plan(expected: Option<ObjectId>, found: ObjectId) -> Result<(), MethodError> {
    match expected {
        Some(expected) if expected != found => {
            Err(ctrlz::Error::Restore(ctrlz::RestoreError::StalePlan).into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Runs the method `plan_restore`.
pub fn plan_restore(call: &Call<'_>, params: &RestoreParams) -> Result<Plan, MethodError> {
    let (to, options) = params.read(call)?;
    let plan = call.workspace.plan_restore(to, &options, call.progress)?;
    check_plan(options.expected_plan, plan.hash)?;
    Ok(Plan::from(&plan))
}

/// Runs the method `restore`.
pub fn restore(call: &Call<'_>, params: &RestoreParams) -> Result<RestoreReport, MethodError> {
    let (to, options) = params.read(call)?;
    Ok(RestoreReport::from(&call.workspace.restore(to, &options, call.progress)?))
}

/// Parameters of `revert` and `plan_revert`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertParams {
    /// Patches as returned by `patch`, oldest first.
    #[serde(deserialize_with = "bounded")]
    pub patches: Vec<PatchParam>,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    pub by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    pub allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

/// Files to restore to their state in a snapshot. Additional keys are ignored, so that a result of
/// `patch` can be passed verbatim.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct PatchParam {
    /// The snapshot.
    pub hash: Hash,
    /// The files, absolute or relative to the work tree.
    #[serde(deserialize_with = "bounded")]
    pub files: Vec<WirePath>,
}

fn patches(call: &Call<'_>, params: &RevertParams) -> Result<Vec<PatchToRevert>, MethodError> {
    let read = |patch: &PatchParam| {
        let files = patch.files.iter().map(|file| call.file(file));
        Ok(PatchToRevert {
            hash: call.snapshot(&patch.hash)?,
            files: files.collect::<Result<_, _>>()?,
        })
    };
    // A patch without files has no effect, even if it was made while snapshots were disabled.
    params.patches.iter().filter(|patch| !patch.files.is_empty()).map(read).collect()
}

/// Runs the method `plan_revert`.
pub fn plan_revert(call: &Call<'_>, params: &RevertParams) -> Result<Plan, MethodError> {
    let (patches, in_use) = (patches(call, params)?, params.in_use.read());
    let plan = call.workspace.plan_revert(&patches, in_use, call.progress)?;
    check_plan(expected(params.plan.as_ref())?, plan.hash)?;
    Ok(Plan::from(&plan))
}

/// Runs the method `revert`.
pub fn revert(call: &Call<'_>, params: &RevertParams) -> Result<RestoreReport, MethodError> {
    let options = RestoreOptions {
        allow_mass_removal: params.allow_mass_removal,
        in_use: params.in_use.read(),
        by_person: params.by_person,
        expected_plan: expected(params.plan.as_ref())?,
        ..RestoreOptions::default()
    };
    let patches = patches(call, params)?;
    Ok(RestoreReport::from(&call.workspace.revert(&patches, &options, call.progress)?))
}

/// Parameters of `recover` and `plan_recover`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoverParams {
    /// The file or directory.
    pub path: WirePath,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    pub by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    pub in_use: InUse,
    /// Hash of the expected plan. The call fails if the plan has changed.
    pub plan: Option<Hash>,
}

/// Runs the method `plan_recover`.
pub fn plan_recover(call: &Call<'_>, params: &RecoverParams) -> Result<Plan, MethodError> {
    let (path, in_use) = (call.file(&params.path)?, params.in_use.read());
    let plan = call.workspace.lost_files().plan(&path, in_use, call.progress)?;
    check_plan(expected(params.plan.as_ref())?, plan.hash)?;
    Ok(Plan::from(&plan))
}

/// Runs the method `recover`.
pub fn recover(call: &Call<'_>, params: &RecoverParams) -> Result<RestoreReport, MethodError> {
    let expected_plan = expected(params.plan.as_ref())?;
    let in_use = params.in_use.read();
    let options = RestoreOptions {
        expected_plan,
        in_use,
        by_person: params.by_person,
        ..RestoreOptions::default()
    };
    let path = call.file(&params.path)?;
    Ok(RestoreReport::from(&call.workspace.lost_files().recover(&path, &options, call.progress)?))
}
