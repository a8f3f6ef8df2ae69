//! Claude Code: through its plugin command; without one, and in projects, hooks in settings.json.

use std::path::{Path, PathBuf};

use super::{Action, Refused, State, Steps, merge, read_text};

const PLUGIN: &str = "ctrlz@ctrlz";

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

/// Where the plugin comes from, if it is enabled.
fn plugin_source(settings: &Path) -> Option<PathBuf> {
    let value = merge::value(&read_text(settings).ok()??)?;
    value["enabledPlugins"][PLUGIN].as_bool().filter(|enabled| *enabled)?;
    let source = &value["extraKnownMarketplaces"]["ctrlz"]["source"];
    Some(PathBuf::from(source["path"].as_str().unwrap_or_default()))
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    if let Some(project) = &steps.setup.project {
        return steps.merge(&project_settings(project), &steps.shared_command());
    }
    let settings = config_dir(steps).join("settings.json");
    let Some(claude) = steps.machine.find("claude") else {
        return steps.merge(&settings, &steps.own_command());
    };
    let mut plan = steps.write_plugin();
    let dir = steps.plugin_dir();
    if plugin_source(&settings).as_ref() == Some(&dir) {
        // It loads the plugin from there, so writing it is enough.
        return Ok(plan);
    }
    // Hooks that were merged before would run beside those of the plugin.
    plan.extend(steps.unmerge(&settings)?);
    plan.push(Action::Keep { files: kept_files(steps) });
    if plugin_source(&settings).is_some() {
        plan.push(steps.run(&claude, &["plugin", "marketplace", "remove", "ctrlz"]));
    }
    plan.push(steps.run(&claude, &["plugin", "marketplace", "add", &dir.to_string_lossy()]));
    plan.push(steps.run(&claude, &["plugin", "install", PLUGIN]));
    Ok(plan)
}

pub(super) fn uninstall(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    if let Some(project) = &steps.setup.project {
        return steps.unmerge(&project_settings(project));
    }
    let settings = config_dir(steps).join("settings.json");
    let mut plan = steps.unmerge(&settings)?;
    if plugin_source(&settings).is_some() {
        let Some(claude) = steps.machine.find("claude") else {
            return Err(Refused(
                "the plugin is removed by `claude plugin`, which is not there".into(),
            ));
        };
        plan.push(steps.run(&claude, &["plugin", "uninstall", PLUGIN]));
        plan.push(steps.run(&claude, &["plugin", "marketplace", "remove", "ctrlz"]));
        plan.push(Action::Remove { path: config_dir(steps).join("plugins/cache/ctrlz") });
        plan.push(Action::PutBack);
    }
    if steps.plugin_dir().exists() {
        plan.push(Action::Remove { path: steps.plugin_dir() });
    }
    Ok(plan)
}

/// What the plugin command writes to.
fn kept_files(steps: &Steps<'_>) -> Vec<PathBuf> {
    let names =
        ["settings.json", "plugins/installed_plugins.json", "plugins/known_marketplaces.json"];
    names.iter().map(|name| config_dir(steps).join(name)).collect()
}
