//! Gemini CLI: uses its extensions command; without one, and in projects, hooks in settings.json.

use std::path::{Path, PathBuf};

use super::actions::Action;
use super::settings::{Plugin, PluginCommands, SettingsClient};
use super::steps::{Places, Steps, read_text};
use super::{Run, files, merge};

pub(super) struct Gemini;

impl SettingsClient for Gemini {
    const PROGRAM: &'static str = "gemini";

    fn config_dir(steps: &Steps<'_>) -> PathBuf {
        steps.config_dir("GEMINI_CLI_HOME", "").join(".gemini")
    }

    fn places(steps: &Steps<'_>) -> Places {
        if let Some(project) = &steps.setup.project {
            let own = vec![project.join(".gemini/extensions/ctrlz")];
            return Places { shared: vec![project.join(".gemini/settings.json")], own };
        }
        let below = |name: &str| Self::config_dir(steps).join(name);
        // All files that the extensions command writes to. It also records its working directory.
        let shared = [
            "settings.json",
            "extensions/extension-enablement.json",
            "extension_integrity.json",
            "projects.json",
        ];
        let mut own = vec![extension(steps), steps.plugin_dir()];
        if let Some(name) = project_name(steps) {
            own.extend([below("history").join(&name), below("tmp").join(&name)]);
        }
        Places { shared: shared.map(below).into(), own }
    }

    fn plugin(steps: &Steps<'_>) -> Plugin {
        match extension(steps).is_dir() {
            true if is_current(steps) => Plugin::Current,
            true => Plugin::Outdated,
            false => Plugin::Missing,
        }
    }

    fn plugin_commands(steps: &Steps<'_>, program: &Path) -> Option<PluginCommands> {
        let dir = steps.plugin_dir();
        let words = ["extensions", "install", &dir.to_string_lossy(), "--consent"];
        let run = Run {
            program: program.to_owned(),
            words: words.map(str::to_owned).to_vec(),
            dir,
            // Gemini asks whether to trust its working directory, which is our own.
            variables: vec![("GEMINI_CLI_TRUST_WORKSPACE", "true")],
        };
        let made = ["history/x", "tmp/x"].map(|name| Self::config_dir(steps).join(name));
        Some(PluginCommands { runs: vec![Action::Run(run)], made: made.into() })
    }
}

fn extension(steps: &Steps<'_>) -> PathBuf {
    Gemini::config_dir(steps).join("extensions/ctrlz")
}

/// Returns whether Gemini's copy of the extension is what would be installed now.
fn is_current(steps: &Steps<'_>) -> bool {
    let copy = extension(steps);
    let same = |(name, text): &(String, String)| {
        read_text(&copy.join(name)).ok().flatten().as_ref() == Some(text)
    };
    files::plugin(steps.client, &steps.setup.program).iter().all(same)
}

/// Returns the name that Gemini gave to our plugin directory as a project.
fn project_name(steps: &Steps<'_>) -> Option<String> {
    let projects = Gemini::config_dir(steps).join("projects.json");
    let projects = merge::value(&read_text(&projects).ok()??)?;
    let name = projects["projects"][steps.plugin_dir().to_string_lossy().as_ref()].as_str()?;
    // The name becomes part of a path.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (!name.is_empty() && name.chars().all(is_plain)).then(|| name.to_owned())
}
