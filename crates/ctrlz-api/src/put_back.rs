//! Plans and reports of all operations that change files, as JSON.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::{Hash, WirePath};
use crate::session::{Gap, StepInfo, Uncaptured};
use crate::snapshot::Recovery;
use crate::wire::{Wire, wire};

/// The action of a plan on one path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Action {
    /// Kind of the action.
    pub action: ActionKind,
    /// The path, relative to the work tree.
    pub path: WirePath,
    /// The new permissions, for `set_mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Kind of an action on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Creates a file or link.
    Create,
    /// Replaces the existing file or link.
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

impl Wire<Action> for ctrlz::Action {
    fn wire(&self) -> Action {
        let (kind, mode) = match self {
            ctrlz::Action::Create { .. } => (ActionKind::Create, None),
            ctrlz::Action::Overwrite { .. } => (ActionKind::Overwrite, None),
            ctrlz::Action::Remove { .. } => (ActionKind::Remove, None),
            ctrlz::Action::SetMode { mode, .. } => (ActionKind::SetMode, Some(*mode)),
            ctrlz::Action::CreateDirectory { .. } => (ActionKind::CreateDirectory, None),
            ctrlz::Action::RemoveDirectory { .. } => (ActionKind::RemoveDirectory, None),
        };
        Action { action: kind, path: self.path().into(), mode }
    }
}

wire! {
    /// A path that is left unchanged.
    pub struct Kept from ctrlz::Kept {
        /// The path, relative to the work tree.
        pub path: WirePath,
        /// Reason: `created_since`, `ignored_then`, `skipped_then`, `no_record`, `rules_unknown`,
        /// `cannot_be_saved`, `directory_in_the_way`, `file_in_the_way`, `read_only_directory`,
        /// `special_bits_dropped`, `contradiction`, `in_use`, `unit`, `process_file`, or a newer one
        /// that is not in this list.
        pub reason: String = |kept| kept.reason.code().to_owned(),
        /// Whether this makes the result incomplete.
        pub failure: bool = |kept| kept.reason.is_failure(),
        /// Human-readable reason.
        pub text: String = |kept| kept.reason.to_string(),
    }
}

wire! {
    /// The exact actions of a restore or revert.
    pub struct Plan from ctrlz::Plan {
        /// The actions, one per path.
        pub actions: Vec<Action>,
        /// Paths that the request covers and that are left unchanged.
        pub kept: Vec<Kept>,
        /// Files for which the kernel could not determine whether other processes have them open.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub not_checked: Vec<WirePath>,
        /// Hash of the plan. A call with this value as `plan` fails if it would do anything else.
        pub hash: Hash,
        /// The number of files that it removes and the number of all files, if the share is unusual.
        #[serde(skip)]
        pub mass_removal: Option<(u64, u64)>,
    }

    /// Report of a restore or revert.
    pub struct RestoreReport from ctrlz::RestoreReport {
        /// Whether the request was carried out completely.
        pub complete: bool = ctrlz::RestoreReport::is_complete,
        /// The snapshot taken before anything changed.
        pub safety: Hash,
        /// The operation that recorded it. Restoring this operation undoes everything, including
        /// permissions.
        pub safety_operation: String,
        /// The snapshot taken afterwards.
        pub after: Hash,
        /// The actions that were done.
        pub done: Vec<Action>,
        /// Paths that the request covers and that were left unchanged.
        pub kept: Vec<Kept>,
        /// Files for which the kernel could not determine whether other processes have them open.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub not_checked: Vec<WirePath>,
        /// Names of replaced files that another process changed during the swap and that were kept.
        pub left: Vec<String>,
        /// An interrupted restore that was finished before this one.
        pub recovered: Option<Recovery>,
        /// Reason why the state afterwards could not be recorded; `null` if it was. The actions in
        /// `done` took effect in either case.
        pub not_recorded: Option<String>,
    }

    /// A file that is left unchanged because the change cannot be undone in it.
    pub struct Conflict from ctrlz::Conflict {
        /// The file.
        pub path: WirePath,
        /// Reason: `merge`, `shared`, `unclear`, `other_half`, `not_proven`, `ignored`, or a newer one
        /// that is not in this list.
        pub reason: String,
        /// Human-readable reason.
        pub why: String,
    }

    /// Report of an undo or redo, or of its plan.
    pub struct UndoReport from ctrlz::UndoReport {
        /// Whether everything was undone.
        pub complete: bool = ctrlz::UndoReport::is_complete,
        /// The steps that it undoes or redoes, oldest first.
        pub steps: Vec<String>,
        /// The restore, recover or revert that it undoes instead of steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub takes_back: Option<String>,
        /// The actions, one per path.
        pub done: Vec<Action>,
        /// Files left unchanged because later changes do not merge.
        pub conflicts: Vec<Conflict>,
        /// Changes of ignored files that are left because the request did not include them.
        pub ignored: Vec<Conflict>,
        /// Files left unchanged for other reasons.
        pub kept: Vec<Kept>,
        /// Files for which the kernel could not determine whether other processes have them open.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub not_checked: Vec<WirePath>,
        /// Paths that no snapshot holds and that the steps created, removed or changed. They are left
        /// unchanged; `loss` marks those that are lost.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub uncaptured: Vec<Uncaptured>,
        /// Paths outside of the work tree that the steps changed. They are put back only if the request
        /// sets `outside`; paths left unchanged then make the report incomplete.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub outside: Vec<OutsideChange>,
        /// Steps that were requested and cannot be undone because the state before them has expired.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub expired: Vec<Expired>,
        /// Newer changes of agents that are left because they were not recorded as steps.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub unrecorded: Vec<Unrecorded>,
        /// Hash of the plan. A call with this value as `plan` fails if it would do anything else.
        pub plan: Hash,
        /// The operation that recorded the state before. Restoring it reverses this undo completely.
        pub safety_operation: Option<String>,
        /// The snapshot afterwards; `null` if nothing changed.
        pub after: Option<Hash>,
        /// Names of replaced files that could not be removed.
        pub left: Vec<String>,
        /// Reason why the undo could not be recorded; `null` if it was. The actions in `done` took
        /// effect in either case.
        pub not_recorded: Option<String>,
        /// A git command that moves the user's repository back. It is never run by ctrlz.
        pub git_hint: Option<String>,
        /// An interrupted restore that was finished before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub recovered: Option<Recovery>,
        /// The number of files that a plan removes and the number of all files, if the share is
        /// unusual.
        #[serde(skip)]
        pub mass_removal: Option<(u64, u64)>,
        /// Whether the request asked to put back paths outside of the work tree.
        #[serde(skip)]
        pub outside_asked: bool,
    }

    /// Changes of an agent that cannot be undone because they were not recorded as steps.
    pub struct Unrecorded from ctrlz::Unrecorded {
        /// The operation that recorded all of them later.
        pub operation: String,
        /// The operation before it. Restoring that one undoes everything since.
        pub before: String,
        /// Reason for the gap, and the turns that are missing.
        pub gap: Gap,
    }
}

/// A path outside of the work tree that a step changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OutsideChange {
    /// The named path that contains this one. It is put back as a whole or left unchanged.
    pub root: WirePath,
    /// The absolute path.
    pub path: WirePath,
    /// The action that puts the path back; `null` if it cannot be put back.
    pub action: Option<ActionKind>,
    /// The new permissions, for `set_mode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Reason why it is left unchanged: `not_asked`, `changed_since`, `not_captured`,
    /// `cannot_be_saved`, `repository`, `in_use`, `other_half`, `unit`, `failed`, or a newer one
    /// that is not in this list; `null` if it is put back.
    pub kept: Option<String>,
    /// Human-readable reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Wire<OutsideChange> for ctrlz::OutsideChange {
    fn wire(&self) -> OutsideChange {
        use ctrlz::{OutsideAction, OutsideKept};
        let kind = |action| match action {
            OutsideAction::Create => (ActionKind::Create, None),
            OutsideAction::Overwrite => (ActionKind::Overwrite, None),
            OutsideAction::Remove => (ActionKind::Remove, None),
            OutsideAction::SetMode { mode } => (ActionKind::SetMode, Some(mode)),
            OutsideAction::CreateDirectory => (ActionKind::CreateDirectory, None),
        };
        let action = self.action.map(kind);
        let kept = self.kept.as_ref().map(|kept| match kept {
            OutsideKept::NotAsked => "not_asked",
            OutsideKept::ChangedSince => "changed_since",
            OutsideKept::NotCaptured { .. } => "not_captured",
            OutsideKept::CannotBeSaved { .. } => "cannot_be_saved",
            OutsideKept::Repository => "repository",
            OutsideKept::InUse { .. } => "in_use",
            OutsideKept::OtherHalf => "other_half",
            OutsideKept::Unit => "unit",
            // Reasons that this version does not know are reported as failures.
            _ => "failed",
        });
        OutsideChange {
            root: self.root.as_path().into(),
            path: self.path.as_path().into(),
            action: action.map(|(kind, _)| kind),
            mode: action.and_then(|(_, mode)| mode),
            kept: kept.map(str::to_owned),
            why: self.kept.as_ref().map(ToString::to_string),
        }
    }
}

wire! {
    /// A captured repository that was restored to another directory.
    pub struct RecoveredRepository from ctrlz::RecoveredRepository {
        /// Whether the repository was restored completely.
        pub complete: bool = |recovered| recovered.missing.is_empty(),
        /// Original path.
        pub from: WirePath,
        /// Path of the restored copy.
        pub into: WirePath,
        /// Time of the capture, in milliseconds since the Unix epoch.
        pub at_millis: u64,
        /// Number of files that were written.
        pub files: u64,
        /// Paths that are missing in the capture.
        pub missing: Vec<Missing>,
    }

    /// A path that is missing in a capture.
    pub struct Missing from (PathBuf, String) {
        /// The absolute path.
        pub path: WirePath = |(path, _)| path.wire(),
        /// Reason why it was not captured.
        pub why: String = |(_, why)| why.clone(),
    }
}

/// Steps that cannot be undone because the state before them has expired.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Expired {
    /// The session.
    pub session: String,
    /// The step; `null` for older steps of the session, which the log no longer names.
    pub step: Option<String>,
    /// The label of the step.
    pub label: Option<String>,
    /// Everything that is known about the step.
    #[serde(skip)]
    pub info: Option<StepInfo>,
}

impl Wire<Expired> for ctrlz::Expired {
    fn wire(&self) -> Expired {
        let step = self.step.as_ref();
        Expired {
            session: self.session.clone(),
            step: step.map(|step| step.step.clone()),
            label: step.and_then(|step| step.label.clone()),
            info: step.map(StepInfo::from),
        }
    }
}
