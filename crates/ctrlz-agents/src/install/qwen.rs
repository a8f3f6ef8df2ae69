//! Qwen Code: hooks in its settings.json.

use std::path::PathBuf;

use super::State;
use super::settings::SettingsClient;
use super::steps::{Places, Steps};

pub(super) struct Qwen;

impl SettingsClient for Qwen {
    const PROGRAM: &'static str = "qwen";

    fn config_dir(steps: &Steps<'_>) -> PathBuf {
        steps.config_dir("QWEN_HOME", ".qwen")
    }

    fn places(steps: &Steps<'_>) -> Places {
        let settings = match &steps.setup.project {
            Some(project) => project.join(".qwen/settings.json"),
            None => Self::config_dir(steps).join("settings.json"),
        };
        Places { shared: vec![settings], own: Vec::new() }
    }
}

/// Returns the state. Unlike those of other clients, a project without Qwen Code is `Absent` too.
pub(super) fn state(steps: &Steps<'_>) -> State {
    match steps.merged_state(&Qwen::hooks_file(steps), &steps.command()) {
        State::NotInstalled if !Qwen::is_here(steps) => State::Absent,
        merged => merged,
    }
}
