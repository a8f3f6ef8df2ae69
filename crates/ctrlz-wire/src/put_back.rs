//! Plans and reports of everything that changes files, as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::snapshot::{Recovery, tag};

/// What a plan does to one path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Action {
    /// What is done.
    pub action: ActionKind,
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The new permissions, of `set_mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Creates a file or link.
    Create,
    /// Replaces what is there.
    Overwrite,
    /// Removes a file or link.
    Remove,
    /// Changes permissions and nothing else.
    SetMode,
    /// Creates an empty directory.
    CreateDirectory,
}

impl From<&ctrlz::Action> for Action {
    fn from(action: &ctrlz::Action) -> Action {
        let (kind, mode) = match action {
            ctrlz::Action::Create { .. } => (ActionKind::Create, None),
            ctrlz::Action::Overwrite { .. } => (ActionKind::Overwrite, None),
            ctrlz::Action::Remove { .. } => (ActionKind::Remove, None),
            ctrlz::Action::SetMode { mode, .. } => (ActionKind::SetMode, Some(*mode)),
            ctrlz::Action::CreateDirectory { .. } => (ActionKind::CreateDirectory, None),
        };
        Action { action: kind, path: action.path().into(), mode }
    }
}

/// A path that stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Kept {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// Why: `created_since`, `ignored_then`, `skipped_then`, `no_record`, `cannot_be_saved`,
    /// `directory_in_the_way`, `file_in_the_way`, or one that is newer than this list.
    pub reason: String,
    /// Whether the request is not fully met because of it.
    pub failure: bool,
    /// The reason in words.
    pub text: String,
}

impl From<&ctrlz::Kept> for Kept {
    fn from(kept: &ctrlz::Kept) -> Kept {
        Kept {
            path: (&kept.path).into(),
            reason: tag(&kept.reason, "reason"),
            failure: kept.reason.is_failure(),
            text: kept.reason.describe(),
        }
    }
}

fn actions(actions: &[ctrlz::Action]) -> Vec<Action> {
    actions.iter().map(Action::from).collect()
}

fn all_kept(kept: &[ctrlz::Kept]) -> Vec<Kept> {
    kept.iter().map(Kept::from).collect()
}

/// Exactly what a restore or revert will do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plan {
    /// One entry per path.
    pub actions: Vec<Action>,
    /// What stays as it is although the request touches it.
    pub kept: Vec<Kept>,
    /// Names this plan; handed back as `plan`, it makes sure that nothing else is done.
    pub hash: Hash,
}

impl From<&ctrlz::Plan> for Plan {
    fn from(plan: &ctrlz::Plan) -> Plan {
        Plan { actions: actions(&plan.actions), kept: all_kept(&plan.kept), hash: plan.hash.into() }
    }
}

/// What a restore or revert did, path by path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RestoreReport {
    /// Whether everything that was asked for was done.
    pub complete: bool,
    /// The snapshot taken before anything changed.
    pub safety: Hash,
    /// The operation that recorded it: restoring this undoes everything, permissions included.
    pub safety_operation: String,
    /// The snapshot taken afterwards.
    pub after: Hash,
    /// What was done.
    pub done: Vec<Action>,
    /// What stays as it is although the request touches it.
    pub kept: Vec<Kept>,
    /// Replaced things that were changed by somebody else at the last moment and still lie under
    /// these names.
    pub left: Vec<String>,
    /// A restore that had been cut off and was finished before this one.
    pub recovered: Option<Recovery>,
    /// Why the state afterwards could not be recorded, if so; the files are as `done` says.
    pub not_recorded: Option<String>,
}

impl From<&ctrlz::RestoreReport> for RestoreReport {
    fn from(report: &ctrlz::RestoreReport) -> RestoreReport {
        RestoreReport {
            complete: report.is_complete(),
            safety: report.safety.into(),
            safety_operation: report.safety_operation.clone(),
            after: report.after.into(),
            done: actions(&report.done),
            kept: all_kept(&report.kept),
            left: report.left.clone(),
            recovered: report.recovered.as_ref().map(Recovery::from),
            not_recorded: report.not_recorded.clone(),
        }
    }
}

/// A file that stays as it is because taking the change out of it is not possible.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Conflict {
    /// The file.
    pub path: WirePath,
    /// Why.
    pub why: String,
}

/// What an undo or redo did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UndoReport {
    /// Whether everything was taken back.
    pub complete: bool,
    /// The steps it is about, oldest first.
    pub steps: Vec<String>,
    /// What was done, path by path.
    pub done: Vec<Action>,
    /// Files that stay because changes made since do not merge.
    pub conflicts: Vec<Conflict>,
    /// Changes of ignored files that stay, because nobody asked for them.
    pub ignored: Vec<Conflict>,
    /// Files that stay for other reasons.
    pub kept: Vec<Kept>,
    /// What the steps changed outside of the work tree, and what stays so: `ctrlz undo --outside`
    /// puts it back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<WirePath>,
    /// Names the plan; handed back as `plan`, it makes sure that nothing else is done.
    pub plan: Hash,
    /// The operation that recorded the state before: restoring it takes this back as a whole.
    pub safety_operation: Option<String>,
    /// The snapshot afterwards; `null` if nothing was changed.
    pub after: Option<Hash>,
    /// Replaced things that could not be removed and still lie under these names.
    pub left: Vec<String>,
    /// Why the undo could not be recorded, if so; the files are as `done` says.
    pub not_recorded: Option<String>,
    /// A command that moves the user's own git back; never run by us.
    pub git_hint: Option<String>,
}

impl From<&ctrlz::UndoReport> for UndoReport {
    fn from(report: &ctrlz::UndoReport) -> UndoReport {
        let conflict = |conflict: &ctrlz::Conflict| Conflict {
            path: (&conflict.path).into(),
            why: conflict.why.clone(),
        };
        UndoReport {
            complete: report.is_complete(),
            steps: report.steps.clone(),
            done: actions(&report.done),
            conflicts: report.conflicts.iter().map(conflict).collect(),
            ignored: report.ignored.iter().map(conflict).collect(),
            kept: all_kept(&report.kept),
            outside: Vec::new(),
            plan: report.plan.into(),
            safety_operation: report.safety_operation.clone(),
            after: report.after.map(Hash::from),
            left: report.left.clone(),
            not_recorded: report.not_recorded.clone(),
            git_hint: report.git_hint.clone(),
        }
    }
}
