//! Qwen Code: hooks in its settings.json.

use std::path::PathBuf;

use super::{Action, Places, Refused, State, Steps};

fn config_dir(steps: &Steps<'_>) -> PathBuf {
    steps.config_dir("QWEN_HOME", ".qwen")
}

fn settings(steps: &Steps<'_>) -> PathBuf {
    match &steps.setup.project {
        Some(project) => project.join(".qwen/settings.json"),
        None => config_dir(steps).join("settings.json"),
    }
}

fn command(steps: &Steps<'_>) -> String {
    match steps.setup.project {
        Some(_) => steps.shared_command(),
        None => steps.own_command(),
    }
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    let merged = steps.merged_state(&settings(steps), &command(steps));
    let is_here = steps.machine.find("qwen").is_some() || config_dir(steps).is_dir();
    match merged {
        State::NotInstalled if !is_here => State::Absent,
        other => other,
    }
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    steps.merge(&settings(steps), &command(steps))
}

pub(super) fn places(steps: &Steps<'_>) -> Places {
    Places { shared: vec![settings(steps)], own: Vec::new() }
}
