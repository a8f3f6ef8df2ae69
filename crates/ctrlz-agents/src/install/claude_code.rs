//! Claude Code: uses its plugin command; without one, and in projects, hooks in settings.json.

use std::path::{Path, PathBuf};

use super::merge;
use super::settings::{Plugin, PluginCommands, SettingsClient};
use super::steps::{Places, Steps, read_text};
use super::strip::PLUGIN;

pub(super) struct ClaudeCode;

impl SettingsClient for ClaudeCode {
    const PROGRAM: &'static str = "claude";

    fn config_dir(steps: &Steps<'_>) -> PathBuf {
        steps.config_dir("CLAUDE_CONFIG_DIR", ".claude")
    }

    fn places(steps: &Steps<'_>) -> Places {
        if let Some(project) = &steps.setup.project {
            let files = [".claude/settings.json", ".claude/settings.local.json"];
            let shared = files.map(|name| project.join(name)).into();
            return Places { shared, own: Vec::new() };
        }
        let below = |name: &str| Self::config_dir(steps).join(name);
        // All files that the plugin command writes to.
        let shared =
            ["settings.json", "plugins/installed_plugins.json", "plugins/known_marketplaces.json"];
        let own = ["plugins/cache/ctrlz", "plugins/marketplaces/ctrlz"].map(below);
        Places {
            shared: shared.map(below).into(),
            own: [own.to_vec(), vec![steps.plugin_dir()]].concat(),
        }
    }

    fn plugin(steps: &Steps<'_>) -> Plugin {
        match plugin_source(&Self::config_dir(steps).join("settings.json")) {
            // Claude Code loads the plugin from this directory.
            Some(dir) if dir == steps.plugin_dir() => {
                if steps.write_plugin().is_empty() {
                    Plugin::Current
                } else {
                    Plugin::InPlace
                }
            }
            Some(_) => Plugin::Outdated,
            None => Plugin::Missing,
        }
    }

    fn plugin_commands(steps: &Steps<'_>, program: &Path) -> Option<PluginCommands> {
        let dir = steps.plugin_dir();
        let runs = vec![
            steps.run(program, &["plugin", "marketplace", "add", &dir.to_string_lossy()]),
            steps.run(program, &["plugin", "install", PLUGIN]),
        ];
        Some(PluginCommands { runs, made: Vec::new() })
    }
}

/// Returns the directory that the plugin comes from, if it is enabled.
fn plugin_source(settings: &Path) -> Option<PathBuf> {
    let value = merge::value(&read_text(settings).ok()??)?;
    value["enabledPlugins"][PLUGIN].as_bool().filter(|enabled| *enabled)?;
    let source = &value["extraKnownMarketplaces"]["ctrlz"]["source"];
    Some(PathBuf::from(source["path"].as_str().unwrap_or_default()))
}
