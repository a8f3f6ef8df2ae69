//! Gemini CLI: uses its extensions command; without one, and in projects, hooks in settings.json.

use std::path::PathBuf;

use super::{Action, Places, Refused, Run, State, Steps, merge, read_text};

fn config_dir(steps: &Steps<'_>) -> PathBuf {
    let home = steps.config_dir("GEMINI_CLI_HOME", "");
    home.join(".gemini")
}

fn extension(steps: &Steps<'_>) -> PathBuf {
    config_dir(steps).join("extensions/ctrlz")
}

fn settings(steps: &Steps<'_>) -> PathBuf {
    match &steps.setup.project {
        Some(project) => project.join(".gemini/settings.json"),
        None => config_dir(steps).join("settings.json"),
    }
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    if steps.setup.project.is_some() {
        return steps.merged_state(&settings(steps), &steps.shared_command());
    }
    let merged = steps.merged_state(&settings(steps), &steps.own_command());
    if merged != State::NotInstalled {
        return merged;
    }
    match extension(steps).is_dir() {
        true if is_current(steps) => State::Installed,
        true => State::Outdated,
        false if steps.machine.find("gemini").is_none() && !config_dir(steps).is_dir() => {
            State::Absent
        }
        false => State::NotInstalled,
    }
}

/// Returns whether Gemini's copy of the extension is what would be installed now.
fn is_current(steps: &Steps<'_>) -> bool {
    let copy = extension(steps);
    let same = |(name, text): &(String, String)| {
        read_text(&copy.join(name)).ok().flatten().as_ref() == Some(text)
    };
    super::files::plugin(steps.client, &steps.setup.program).iter().all(same)
}

pub(super) fn places(steps: &Steps<'_>) -> Places {
    if let Some(project) = &steps.setup.project {
        let own = vec![project.join(".gemini/extensions/ctrlz")];
        return Places { shared: vec![settings(steps)], own };
    }
    let below = |name: &str| config_dir(steps).join(name);
    // All files that the extensions command writes to. It also records its working directory.
    let shared =
        ["extensions/extension-enablement.json", "extension_integrity.json", "projects.json"];
    let shared = [vec![settings(steps)], shared.map(below).into()].concat();
    let mut own = vec![extension(steps), steps.plugin_dir()];
    if let Some(name) = project_name(steps) {
        own.extend([below("history").join(&name), below("tmp").join(&name)]);
    }
    Places { shared, own }
}

/// Returns the name that Gemini gave to our plugin directory as a project.
fn project_name(steps: &Steps<'_>) -> Option<String> {
    let projects = merge::value(&read_text(&config_dir(steps).join("projects.json")).ok()??)?;
    let name = projects["projects"][steps.plugin_dir().to_string_lossy().as_ref()].as_str()?;
    // The name becomes part of a path.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (!name.is_empty() && name.chars().all(is_plain)).then(|| name.to_owned())
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let Places { shared, mut own } = places(steps);
    if steps.setup.project.is_some() {
        let mut plan = steps.remove_all(&[], &own)?;
        plan.extend(steps.merge(&settings(steps), &steps.shared_command())?);
        return Ok(plan);
    }
    if extension(steps).is_dir() && is_current(steps) {
        return steps.remove_hooks(&settings(steps));
    }
    let Some(gemini) = steps.machine.find("gemini") else {
        let mut plan = steps.remove_all(&shared[1..], &own)?;
        plan.extend(steps.merge(&settings(steps), &steps.own_command())?);
        return Ok(plan);
    };
    own.retain(|path| *path != steps.plugin_dir());
    let mut plan = steps.remove_all(&shared, &own)?;
    plan.extend(steps.write_plugin());
    let dir = steps.plugin_dir();
    own.extend(["history/x", "tmp/x"].map(|name| config_dir(steps).join(name)));
    plan.push(Action::Keep { files: shared, made: own });
    let words = ["extensions", "install", &dir.to_string_lossy(), "--consent"];
    plan.push(Action::Run(Run {
        program: gemini,
        words: words.map(str::to_owned).to_vec(),
        dir,
        // Gemini asks whether to trust its working directory, which is our own.
        variables: vec![("GEMINI_CLI_TRUST_WORKSPACE", "true")],
    }));
    Ok(plan)
}
