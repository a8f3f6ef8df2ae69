//! Methods that restore files from snapshots.

use ctrlz::{ObjectId, OnUse, PatchToRevert, Point, RestoreOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::WireError;
use crate::method::{Access, Call, Method, Precondition};
use crate::path::{Hash, WirePath, bounded};
use crate::put_back::{Plan, RestoreReport};

const OF_PLANS: &[&str] = &[
    "not_a_hash",
    "unknown_snapshot",
    "being_imported",
    "purged",
    "unknown_operation",
    "not_a_snapshot",
    "not_a_tree_path",
    "damaged",
];
const OF_RESTORES: &[&str] = &[
    "not_a_hash",
    "unknown_snapshot",
    "being_imported",
    "purged",
    "unknown_operation",
    "not_a_snapshot",
    "not_a_tree_path",
    "damaged",
    "mass_change",
    "moved",
    "stale_plan",
    "rolled_back",
    "interrupted",
    "no_space",
];

pub(super) fn table() -> Vec<Method> {
    let writes = Access::Writes;
    vec![
        Method::new(
            "plan_restore",
            "Plans `restore`: records the present state and changes no file.",
            writes,
            OF_PLANS,
            plan_restore,
        ),
        Method::new(
            "restore",
            "Restores the work tree, or some of its paths, to a snapshot.",
            writes,
            OF_RESTORES,
            restore,
        ).requires(Precondition::Plan),
        Method::new(
            "plan_revert",
            "Plans `revert`: records the present state and changes no file.",
            writes,
            OF_PLANS,
            plan_revert,
        ),
        Method::new(
            "revert",
            "Restores single files, each to its own snapshot; of several for one file, the first counts.",
            writes,
            OF_RESTORES,
            revert,
        ).requires(Precondition::Plan),
        Method::new(
            "plan_recover",
            "Plans `recover`: records the present state and changes no file.",
            writes,
            &["not_a_tree_path", "nothing_lost", "damaged", "stale_plan"],
            plan_recover,
        ),
        Method::new(
            "recover",
            "Restores the last version of each lost file at a path or below it.",
            writes,
            &[
                "not_a_tree_path",
                "nothing_lost",
                "damaged",
                "moved",
                "stale_plan",
                "rolled_back",
                "interrupted",
                "no_space",
            ],
            recover,
        ).requires(Precondition::Plan),
    ]
}

/// Parameters of `restore` and `plan_restore`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RestoreParams {
    /// The snapshot, or the id of the operation that recorded it. The operation also covers
    /// permissions and empty directories.
    hash: Hash,
    /// Whether to remove files created since, where the snapshot proves that they did not exist.
    #[serde(default)]
    exact: bool,
    /// Paths to restore, including everything below them. Default: the whole work tree.
    #[serde(default, deserialize_with = "bounded")]
    paths: Vec<WirePath>,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

impl RestoreParams {
    fn read(&self, call: &Call<'_>) -> Result<(Point, RestoreOptions), WireError> {
        let options = RestoreOptions {
            exact: self.exact,
            paths: call.paths(&self.paths)?,
            allow_mass_removal: self.allow_mass_removal,
            in_use: self.in_use.read(),
            by_person: self.by_person,
            expected_plan: expected(self.plan.as_ref())?,
        };
        let point: Point = self.hash.0.parse()?;
        if let Point::Snapshot(hash) = &point {
            call.host.check_snapshot(call.workspace, hash)?;
        }
        Ok((point, options))
    }
}

/// Parses the hash of the expected plan.
pub(super) fn expected(plan: Option<&Hash>) -> Result<Option<ObjectId>, WireError> {
    Ok(plan.map(Hash::id).transpose()?)
}

/// Policy for files that another process has open.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum InUse {
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
pub(super) fn check_plan(expected: Option<ObjectId>, found: ObjectId) -> Result<(), WireError> {
    match expected {
        Some(expected) if expected != found => {
            Err(ctrlz::Error::Restore(ctrlz::RestoreError::StalePlan).into())
        }
        Some(_) | None => Ok(()),
    }
}

fn plan_restore(call: &Call<'_>, params: &RestoreParams) -> Result<Plan, WireError> {
    let (to, options) = params.read(call)?;
    let plan = call.workspace.plan_restore(to, &options, call.progress)?;
    check_plan(options.expected_plan, plan.hash)?;
    Ok(Plan::from(&plan))
}

fn restore(call: &Call<'_>, params: &RestoreParams) -> Result<RestoreReport, WireError> {
    let (to, options) = params.read(call)?;
    Ok(RestoreReport::from(&call.workspace.restore(to, &options, call.progress)?))
}

/// Parameters of `revert` and `plan_revert`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertParams {
    /// Patches as returned by `patch`, oldest first.
    #[serde(deserialize_with = "bounded")]
    patches: Vec<PatchParam>,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Whether an unusual share of the files may be removed.
    #[serde(default)]
    allow_mass_removal: bool,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

/// Files to restore to their state in a snapshot. Additional keys are ignored, so that a result of
/// `patch` can be passed verbatim.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
struct PatchParam {
    /// The snapshot.
    hash: Hash,
    /// The files, absolute or relative to the work tree.
    #[serde(deserialize_with = "bounded")]
    files: Vec<WirePath>,
}

fn patches(call: &Call<'_>, params: &RevertParams) -> Result<Vec<PatchToRevert>, WireError> {
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

fn plan_revert(call: &Call<'_>, params: &RevertParams) -> Result<Plan, WireError> {
    let (patches, in_use) = (patches(call, params)?, params.in_use.read());
    let plan = call.workspace.plan_revert(&patches, in_use, call.progress)?;
    check_plan(expected(params.plan.as_ref())?, plan.hash)?;
    Ok(Plan::from(&plan))
}

fn revert(call: &Call<'_>, params: &RevertParams) -> Result<RestoreReport, WireError> {
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RecoverParams {
    /// The file or directory.
    path: WirePath,
    /// Whether a person asked for it, as in the web UI, rather than a program. A plain undo may
    /// undo it then.
    #[serde(default)]
    by_person: bool,
    /// Policy for files that another process has open: `leave` or `replace` them. Default: leave.
    #[serde(default)]
    in_use: InUse,
    /// Hash of the expected plan. The call fails if the plan has changed.
    plan: Option<Hash>,
}

fn plan_recover(call: &Call<'_>, params: &RecoverParams) -> Result<Plan, WireError> {
    let (path, in_use) = (call.file(&params.path)?, params.in_use.read());
    let plan = call.workspace.plan_recover(&path, in_use, call.progress)?;
    check_plan(expected(params.plan.as_ref())?, plan.hash)?;
    Ok(Plan::from(&plan))
}

fn recover(call: &Call<'_>, params: &RecoverParams) -> Result<RestoreReport, WireError> {
    let expected_plan = expected(params.plan.as_ref())?;
    let in_use = params.in_use.read();
    let options = RestoreOptions {
        expected_plan,
        in_use,
        by_person: params.by_person,
        ..RestoreOptions::default()
    };
    let path = call.file(&params.path)?;
    Ok(RestoreReport::from(&call.workspace.recover(&path, &options, call.progress)?))
}
