//! Plans and reports of everything that changes files, as JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::session::{Gap, Uncaptured};
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
    /// Removes a directory that becomes empty.
    RemoveDirectory,
}

impl From<&ctrlz::Action> for Action {
    fn from(action: &ctrlz::Action) -> Action {
        let (kind, mode) = match action {
            ctrlz::Action::Create { .. } => (ActionKind::Create, None),
            ctrlz::Action::Overwrite { .. } => (ActionKind::Overwrite, None),
            ctrlz::Action::Remove { .. } => (ActionKind::Remove, None),
            ctrlz::Action::SetMode { mode, .. } => (ActionKind::SetMode, Some(*mode)),
            ctrlz::Action::CreateDirectory { .. } => (ActionKind::CreateDirectory, None),
            ctrlz::Action::RemoveDirectory { .. } => (ActionKind::RemoveDirectory, None),
        };
        Action { action: kind, path: action.path().into(), mode }
    }
}

/// A path that stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Kept {
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// Why: `created_since`, `ignored_then`, `skipped_then`, `no_record`, `rules_unknown`, `cannot_be_saved`,
    /// `directory_in_the_way`, `file_in_the_way`, `read_only_directory`, `special_bits_dropped`,
    /// `contradiction`, `in_use`, `unit`, `process_file`, or one that is newer than this list.
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
    /// Files of which the kernel could not say whether other processes have them open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<WirePath>,
    /// Names this plan; handed back as `plan`, it makes sure that nothing else is done.
    pub hash: Hash,
}

impl From<&ctrlz::Plan> for Plan {
    fn from(plan: &ctrlz::Plan) -> Plan {
        Plan {
            actions: actions(&plan.actions),
            kept: all_kept(&plan.kept),
            not_checked: plan.not_checked.iter().map(WirePath::from).collect(),
            hash: plan.hash.into(),
        }
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
    /// Files of which the kernel could not say whether other processes have them open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<WirePath>,
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
            not_checked: report.not_checked.iter().map(WirePath::from).collect(),
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
    /// Why: `merge`, `shared`, `unclear`, `other_half`, `not_proven`, `ignored`, or one that is newer
    /// than this list.
    pub reason: String,
    /// The reason in words.
    pub why: String,
}

/// What an undo or redo did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UndoReport {
    /// Whether everything was taken back.
    pub complete: bool,
    /// The steps it is about, oldest first.
    pub steps: Vec<String>,
    /// The restore, recover or revert that it takes back, if it is not about steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes_back: Option<String>,
    /// What was done, path by path.
    pub done: Vec<Action>,
    /// Files that stay because changes made since do not merge.
    pub conflicts: Vec<Conflict>,
    /// Changes of ignored files that stay, because nobody asked for them.
    pub ignored: Vec<Conflict>,
    /// Files that stay for other reasons.
    pub kept: Vec<Kept>,
    /// Files of which the kernel could not say whether other processes have them open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<WirePath>,
    /// Paths that no snapshot holds and that the steps removed or changed, so that they are lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncaptured: Vec<Uncaptured>,
    /// Paths outside of the work tree that the steps changed, path by path. Put back only if `outside` was
    /// asked for; whatever then stays makes the report incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<OutsideChange>,
    /// Steps that were meant and stay, because the state before them has expired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<Expired>,
    /// Newer work of agents that stays, because it was not recorded as steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<Unrecorded>,
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
    /// A restore that had been cut off and was finished before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovery>,
}

/// Work of an agent that cannot be undone, because it was not recorded as steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Unrecorded {
    /// The operation that recorded all of it later.
    pub operation: String,
    /// The operation before it: restoring that takes back everything since.
    pub before: String,
    /// Why it was not recorded, and whose turns are missing.
    pub gap: Gap,
}

impl From<&ctrlz::Unrecorded> for Unrecorded {
    fn from(unrecorded: &ctrlz::Unrecorded) -> Unrecorded {
        let ctrlz::Unrecorded { operation, before, gap } = unrecorded;
        Unrecorded { operation: operation.clone(), before: before.clone(), gap: gap.into() }
    }
}

/// A path outside of the work tree that a step changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OutsideChange {
    /// The path that goes back whole or not at all.
    pub root: WirePath,
    /// The path, absolute.
    pub path: WirePath,
    /// What putting it back does or did; `null` if it stays whatever is asked for.
    pub action: Option<ActionKind>,
    /// The new permissions, of `set_mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Why it stays: `not_asked`, `changed_since`, `not_captured`, `cannot_be_saved`, `repository`,
    /// `in_use`, `other_half`, `unit`, `failed`, or one that is newer than this list; `null` if it is put back.
    pub kept: Option<String>,
    /// The reason in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl From<&ctrlz::OutsideChange> for OutsideChange {
    fn from(change: &ctrlz::OutsideChange) -> OutsideChange {
        use ctrlz::{OutsideAction, OutsideKept};
        let kind = |action| match action {
            OutsideAction::Create => (ActionKind::Create, None),
            OutsideAction::Overwrite => (ActionKind::Overwrite, None),
            OutsideAction::Remove => (ActionKind::Remove, None),
            OutsideAction::SetMode { mode } => (ActionKind::SetMode, Some(mode)),
            OutsideAction::CreateDirectory => (ActionKind::CreateDirectory, None),
        };
        let action = change.action.map(kind);
        let kept = change.kept.as_ref().map(|kept| match kept {
            OutsideKept::NotAsked => "not_asked",
            OutsideKept::ChangedSince => "changed_since",
            OutsideKept::NotCaptured { .. } => "not_captured",
            OutsideKept::CannotBeSaved { .. } => "cannot_be_saved",
            OutsideKept::Repository => "repository",
            OutsideKept::InUse { .. } => "in_use",
            OutsideKept::OtherHalf => "other_half",
            OutsideKept::Unit => "unit",
            // A reason that this version does not know is a failure as well.
            _ => "failed",
        });
        OutsideChange {
            root: change.root.as_path().into(),
            path: change.path.as_path().into(),
            action: action.map(|(kind, _)| kind),
            mode: action.and_then(|(_, mode)| mode),
            kept: kept.map(str::to_owned),
            why: change.kept.as_ref().map(ctrlz::OutsideKept::describe),
        }
    }
}

/// A captured repository that was written to another place.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RecoveredRepository {
    /// Whether everything that was there is written.
    pub complete: bool,
    /// Where it was.
    pub from: WirePath,
    /// Where it is now.
    pub into: WirePath,
    /// When it was captured, in milliseconds since 1970.
    pub at_millis: u64,
    /// How many files were written.
    pub files: u64,
    /// Paths that the capture does not have.
    pub missing: Vec<Missing>,
}

/// A path that a capture does not have.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Missing {
    /// The path, absolute.
    pub path: WirePath,
    /// Why it was left out.
    pub why: String,
}

impl From<&ctrlz::RecoveredRepository> for RecoveredRepository {
    fn from(recovered: &ctrlz::RecoveredRepository) -> RecoveredRepository {
        let missing = |(path, why): &(std::path::PathBuf, String)| Missing {
            path: path.as_path().into(),
            why: why.clone(),
        };
        RecoveredRepository {
            complete: recovered.missing.is_empty(),
            from: recovered.from.as_path().into(),
            into: recovered.into.as_path().into(),
            at_millis: recovered.at_millis,
            files: recovered.files,
            missing: recovered.missing.iter().map(missing).collect(),
        }
    }
}

/// Work that cannot be undone, because the state before it has expired.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Expired {
    /// The session.
    pub session: String,
    /// The step; `null` for older steps of the session, which the log does not name any more.
    pub step: Option<String>,
    /// The label of the step.
    pub label: Option<String>,
}

impl From<&ctrlz::Expired> for Expired {
    fn from(expired: &ctrlz::Expired) -> Expired {
        let step = expired.step.as_ref();
        Expired {
            session: expired.session.clone(),
            step: step.map(|step| step.step.clone()),
            label: step.and_then(|step| step.label.clone()),
        }
    }
}

impl From<&ctrlz::UndoReport> for UndoReport {
    fn from(report: &ctrlz::UndoReport) -> UndoReport {
        let conflict = |conflict: &ctrlz::Conflict| Conflict {
            path: (&conflict.path).into(),
            reason: tag(&conflict.reason, "reason"),
            why: conflict.why.clone(),
        };
        UndoReport {
            complete: report.is_complete(),
            steps: report.steps.clone(),
            takes_back: report.takes_back.clone(),
            done: actions(&report.done),
            conflicts: report.conflicts.iter().map(conflict).collect(),
            ignored: report.ignored.iter().map(conflict).collect(),
            kept: all_kept(&report.kept),
            not_checked: report.not_checked.iter().map(WirePath::from).collect(),
            uncaptured: report.uncaptured.iter().map(Uncaptured::from).collect(),
            outside: report.outside.iter().map(OutsideChange::from).collect(),
            expired: report.expired.iter().map(Expired::from).collect(),
            unrecorded: report.unrecorded.iter().map(Unrecorded::from).collect(),
            plan: report.plan.into(),
            safety_operation: report.safety_operation.clone(),
            after: report.after.map(Hash::from),
            left: report.left.clone(),
            not_recorded: report.not_recorded.clone(),
            git_hint: report.git_hint.clone(),
            recovered: report.recovered.as_ref().map(Recovery::from),
        }
    }
}
