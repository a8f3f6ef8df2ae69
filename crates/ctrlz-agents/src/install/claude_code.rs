//! Claude Code: uses its plugin command; without one, and in projects, hooks in settings.json.

use std::path::{Path, PathBuf};

use super::strip::PLUGIN;
use super::{Action, Places, Refused, State, Steps, merge, read_text};

fn config_dir(steps: &Steps<'_>) -> PathBuf {
    steps.config_dir("CLAUDE_CONFIG_DIR", ".claude")
}

fn project_settings(project: &Path) -> PathBuf {
    project.join(".claude/settings.json")
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    if let Some(project) = &steps.setup.project {
        return steps.merged_state(&project_settings(project), &steps.shared_command());
    }
    let settings = config_dir(steps).join("settings.json");
    let merged = steps.merged_state(&settings, &steps.own_command());
    if merged != State::NotInstalled {
        return merged;
    }
    match plugin_source(&settings) {
        Some(dir) if dir == steps.plugin_dir() && steps.write_plugin().is_empty() => {
            State::Installed
        }
        Some(_) => State::Outdated,
        None if steps.machine.find("claude").is_none() && !config_dir(steps).is_dir() => {
            State::Absent
        }
        None => State::NotInstalled,
    }
}

/// Returns the directory that the plugin comes from, if it is enabled.
fn plugin_source(settings: &Path) -> Option<PathBuf> {
    let value = merge::value(&read_text(settings).ok()??)?;
    value["enabledPlugins"][PLUGIN].as_bool().filter(|enabled| *enabled)?;
    let source = &value["extraKnownMarketplaces"]["ctrlz"]["source"];
    Some(PathBuf::from(source["path"].as_str().unwrap_or_default()))
}

pub(super) fn places(steps: &Steps<'_>) -> Places {
    if let Some(project) = &steps.setup.project {
        let local = project.join(".claude/settings.local.json");
        return Places { shared: vec![project_settings(project), local], own: Vec::new() };
    }
    let below = |name: &str| config_dir(steps).join(name);
    // All files that the plugin command writes to.
    let shared =
        ["settings.json", "plugins/installed_plugins.json", "plugins/known_marketplaces.json"];
    let own = ["plugins/cache/ctrlz", "plugins/marketplaces/ctrlz"].map(below);
    Places {
        shared: shared.map(below).into(),
        own: [own.to_vec(), vec![steps.plugin_dir()]].concat(),
    }
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let Places { shared, mut own } = places(steps);
    if let Some(project) = &steps.setup.project {
        let mut plan = steps.remove_all(&shared[1..], &[])?;
        plan.extend(steps.merge(&project_settings(project), &steps.shared_command())?);
        return Ok(plan);
    }
    let settings = config_dir(steps).join("settings.json");
    if plugin_source(&settings) == Some(steps.plugin_dir()) {
        // Claude Code loads the plugin from this directory, so writing it is enough.
        let mut plan = steps.write_plugin();
        plan.extend(steps.remove_hooks(&settings)?);
        return Ok(plan);
    }
    let Some(claude) = steps.machine.find("claude") else {
        let mut plan = steps.remove_all(&shared[1..], &own)?;
        plan.extend(steps.merge(&settings, &steps.own_command())?);
        return Ok(plan);
    };
    own.retain(|path| *path != steps.plugin_dir());
    let mut plan = steps.remove_all(&shared, &own)?;
    plan.extend(steps.write_plugin());
    plan.push(Action::Keep { files: shared, made: own });
    let dir = steps.plugin_dir();
    plan.push(steps.run(&claude, &["plugin", "marketplace", "add", &dir.to_string_lossy()]));
    plan.push(steps.run(&claude, &["plugin", "install", PLUGIN]));
    Ok(plan)
}
