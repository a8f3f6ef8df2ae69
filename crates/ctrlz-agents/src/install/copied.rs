//! Clients that load every file in one of their directories: installs one file there.

use std::path::{Path, PathBuf};

use super::actions::{Action, Refused, differs};
use super::steps::{Places, Steps, read_text};
use super::strip::{commands, names_us};
use super::{State, merge};
use crate::hook::Client;

/// Program and directories of such a client.
struct Layout {
    /// Name of its program.
    program: &'static str,
    /// Environment variable of its configuration directory, and the default below home.
    config: (&'static str, &'static str),
    /// Directory below the configuration directory that files are loaded from.
    below: &'static str,
    /// Directory below a project, if the client loads files from projects.
    in_project: Option<&'static str>,
    /// Name of our file.
    file: &'static str,
}

fn layout(client: Client) -> Layout {
    match client {
        Client::OpenCode => Layout {
            program: "opencode",
            config: ("XDG_CONFIG_HOME", ".config"),
            below: "opencode/plugins",
            in_project: Some(".opencode/plugins"),
            file: "ctrlz.ts",
        },
        Client::Copilot => Layout {
            program: "copilot",
            config: ("COPILOT_HOME", ".copilot"),
            below: "hooks",
            in_project: Some(".github/hooks"),
            file: "ctrlz.json",
        },
        Client::Kilo => Layout {
            program: "kilo",
            config: ("XDG_CONFIG_HOME", ".config"),
            below: "kilo/plugins",
            in_project: Some(".kilo/plugins"),
            file: "ctrlz.ts",
        },
        Client::Marvin => Layout {
            program: "marvin",
            config: ("", ".config/marvin"),
            below: "hooks",
            in_project: None,
            file: "ctrlz.ts",
        },
        _ => Layout {
            program: "pi",
            config: ("PI_CODING_AGENT_DIR", ".pi/agent"),
            below: "extensions",
            in_project: Some(".pi/extensions"),
            file: "ctrlz.ts",
        },
    }
}

fn target(steps: &Steps<'_>) -> Result<PathBuf, Refused> {
    let Layout { config: (variable, usual), below, in_project, file, .. } = layout(steps.client);
    let dir = match (&steps.setup.project, in_project) {
        (None, _) => steps.config_dir(variable, usual).join(below),
        (Some(project), Some(dir)) => project.join(dir),
        (Some(_), None) => {
            let why =
                format!("{} loads hooks for the user only; leave out --project", steps.client);
            return Err(Refused(why));
        }
    };
    Ok(dir.join(file))
}

/// Returns whether a file is a copy of ours, of any version.
fn is_ours(text: &str) -> bool {
    text.starts_with("// Made by integrations/build") || runs_only_us(text)
}

/// Returns whether a hooks file of Copilot contains only our command.
fn runs_only_us(text: &str) -> bool {
    let found = hook_commands(text);
    !found.is_empty() && found.iter().all(|command| merge::runs_us(command))
}

fn hook_commands(text: &str) -> Vec<String> {
    let value = merge::value(text).unwrap_or_default();
    let found = commands(&value["hooks"]).into_iter();
    found.filter(|text| text != "command").collect()
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    let Layout { program, config: (variable, usual), below, .. } = layout(steps.client);
    let found = target(steps).ok().and_then(|path| read_text(&path).ok().flatten());
    let config = steps.config_dir(variable, usual).join(below);
    // Directories like `.config` are shared by programs; the parent of ours is the client's.
    let is_here =
        || steps.machine.find(program).is_some() || config.parent().is_some_and(Path::is_dir);
    match found {
        Some(found) if found == steps.single_file() => State::Installed,
        Some(found) if is_ours(&found) => State::Outdated,
        _ if is_here() => State::NotInstalled,
        _ => State::Absent,
    }
}

/// Returns the directories that the client loads files from, in this scope.
fn dirs(steps: &Steps<'_>) -> Vec<PathBuf> {
    let Ok(target) = target(steps) else { return Vec::new() };
    let dir = target.parent().unwrap_or(&target).to_owned();
    match steps.client {
        // The client loads both spellings.
        Client::OpenCode | Client::Kilo => vec![dir.with_file_name("plugin"), dir],
        _ => vec![dir],
    }
}

fn loaded_files(steps: &Steps<'_>) -> Vec<PathBuf> {
    let entries = dirs(steps).into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let is_code = |path: &PathBuf| {
        path.extension().is_some_and(|end| ["ts", "js", "mjs", "json"].iter().any(|e| end == *e))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_code).collect();
    files.sort();
    files
}

pub(super) fn places(steps: &Steps<'_>) -> Result<Places, Refused> {
    let mut own = Vec::new();
    for path in loaded_files(steps) {
        // Files of other programs may have any content; an unreadable one is not ours.
        if read_text(&path).is_ok_and(|text| text.is_some_and(|text| is_ours(&text))) {
            own.push(path);
        }
    }
    Ok(Places { shared: Vec::new(), own })
}

/// Refuses if the client also loads our package because a list in its settings names it.
fn refuse_listed(steps: &Steps<'_>) -> Result<(), Refused> {
    let (names, key): (&[&str], &str) = match steps.client {
        Client::OpenCode => (&["opencode.json", "opencode.jsonc"], "plugin"),
        Client::Kilo => (&["kilo.json", "kilo.jsonc", "opencode.json", "opencode.jsonc"], "plugin"),
        Client::Pi => (&["settings.json"], "packages"),
        _ => return Ok(()),
    };
    let dirs = dirs(steps);
    let config = dirs.first().and_then(|dir| dir.parent()).into_iter();
    for dir in config.chain(steps.setup.project.as_deref()) {
        for file in names.iter().map(|name| dir.join(name)) {
            let Ok(Some(text)) = read_text(&file) else { continue };
            let listed = commands(&merge::value(&text).unwrap_or_default()[key]);
            if let Some(package) = listed.iter().find(|package| is_our_package(package)) {
                return Err(steps.second_route(&file, &format!("{package:?} in `{key}`")));
            }
        }
    }
    Ok(())
}

/// Returns whether a package is one of `integrations/`, by its name or by its directory.
fn is_our_package(package: &str) -> bool {
    let name = package.trim_start_matches("npm:");
    let name = name.rsplit_once('@').map_or(name, |(name, _)| name);
    let dir = Path::new(package.trim_start_matches("file://"));
    let is_copy = |path: &Path| {
        dir.is_absolute()
            && read_text(path).is_ok_and(|text| text.is_some_and(|text| is_ours(&text)))
    };
    ["ctrlz-opencode", "ctrlz-pi"].contains(&name) || is_copy(dir) || is_copy(&dir.join("ctrlz.ts"))
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let path = target(steps)?;
    if read_text(&path)?.is_some_and(|text| !is_ours(&text)) {
        return Err(Refused(format!("{} is somebody else's", path.display())));
    }
    refuse_listed(steps)?;
    for file in loaded_files(steps) {
        let text = read_text(&file).ok().flatten().unwrap_or_default();
        if !is_ours(&text) && hook_commands(&text).iter().any(|command| names_us(command)) {
            return Err(steps.second_route(&file, "a hook that runs `ctrlz hook`"));
        }
    }
    let second = places(steps)?.own.into_iter().filter(|own| *own != path);
    let mut plan: Vec<Action> = second.map(|path| Action::Remove { path }).collect();
    plan.push(Action::Write { path, bytes: steps.single_file().into_bytes(), mode: None });
    plan.retain(differs);
    Ok(plan)
}
