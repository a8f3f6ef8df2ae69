//! Clients whose settings file contains the hooks. Most of them also have a command that installs a
//! plugin, which is preferred for the user; projects always get the hooks.

use std::path::{Path, PathBuf};

use super::actions::{Action, Refused};
use super::steps::{Places, Steps};
use super::{Installer, State};

/// State of our plugin in a client.
pub(super) enum Plugin {
    Missing,
    /// The plugin comes from an earlier version or from another directory.
    Outdated,
    /// The plugin is outdated, but the client loads it from our directory.
    InPlace,
    Current,
}

/// Commands of the client that install the plugin.
pub(super) struct PluginCommands {
    pub(super) runs: Vec<Action>,
    /// Paths that the commands create besides those of [`SettingsClient::places`].
    pub(super) made: Vec<PathBuf>,
}

/// Differences between these clients.
pub(super) trait SettingsClient {
    /// Name of the client's program.
    const PROGRAM: &'static str;

    /// Returns the configuration directory of the user.
    fn config_dir(steps: &Steps<'_>) -> PathBuf;

    /// Returns all places. The first shared file is the one for hooks.
    fn places(steps: &Steps<'_>) -> Places;

    /// Returns the state of the user's plugin.
    fn plugin(_: &Steps<'_>) -> Plugin {
        Plugin::Missing
    }

    /// Returns the commands that install the plugin, if the client has plugins.
    fn plugin_commands(_: &Steps<'_>, _program: &Path) -> Option<PluginCommands> {
        None
    }

    /// Returns whether the client is on this machine.
    fn is_here(steps: &Steps<'_>) -> bool {
        steps.machine.find(Self::PROGRAM).is_some() || Self::config_dir(steps).is_dir()
    }

    /// Returns the file for hooks.
    fn hooks_file(steps: &Steps<'_>) -> PathBuf {
        Self::places(steps).shared.swap_remove(0)
    }
}

pub(super) fn installer<C: SettingsClient>() -> Installer {
    Installer { state: state::<C>, places: |steps| Ok(C::places(steps)), install: install::<C> }
}

fn state<C: SettingsClient>(steps: &Steps<'_>) -> State {
    let merged = steps.merged_state(&C::hooks_file(steps), &steps.command());
    if steps.setup.project.is_some() || merged != State::NotInstalled {
        return merged;
    }
    match C::plugin(steps) {
        Plugin::Current => State::Installed,
        Plugin::Outdated | Plugin::InPlace => State::Outdated,
        Plugin::Missing if C::is_here(steps) => State::NotInstalled,
        Plugin::Missing => State::Absent,
    }
}

fn install<C: SettingsClient>(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    if steps.setup.project.is_none() {
        match C::plugin(steps) {
            Plugin::Current => return steps.remove_hooks(&C::hooks_file(steps)),
            // Writing the files is enough.
            Plugin::InPlace => {
                let mut plan = steps.write_plugin();
                plan.extend(steps.remove_hooks(&C::hooks_file(steps))?);
                return Ok(plan);
            }
            Plugin::Outdated | Plugin::Missing => (),
        }
        let program = steps.machine.find(C::PROGRAM);
        if let Some(commands) = program.and_then(|program| C::plugin_commands(steps, &program)) {
            return install_plugin::<C>(steps, commands);
        }
    }
    let Places { shared, own } = C::places(steps);
    let mut plan = steps.remove_all(&shared[1..], &own)?;
    plan.extend(steps.merge(&shared[0], &steps.command())?);
    Ok(plan)
}

fn install_plugin<C: SettingsClient>(
    steps: &Steps<'_>,
    commands: PluginCommands,
) -> Result<Vec<Action>, Refused> {
    let Places { shared, mut own } = C::places(steps);
    own.retain(|path| *path != steps.plugin_dir());
    let mut plan = steps.remove_all(&shared, &own)?;
    plan.extend(steps.write_plugin());
    own.extend(commands.made);
    plan.push(Action::Keep { files: shared, made: own });
    plan.extend(commands.runs);
    Ok(plan)
}
