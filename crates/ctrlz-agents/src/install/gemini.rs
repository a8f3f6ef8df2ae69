//! Gemini CLI: through its extensions command; without one, and in projects, hooks in settings.json.

use std::path::PathBuf;

use super::{Action, Refused, Run, State, Steps, read_text};

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

/// Whether the copy that Gemini keeps of the extension is what would be installed now.
fn is_current(steps: &Steps<'_>) -> bool {
    let copy = extension(steps);
    let same = |(name, text): &(String, String)| {
        read_text(&copy.join(name)).ok().flatten().as_ref() == Some(text)
    };
    super::files::plugin(steps.client, &steps.setup.program).iter().all(same)
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    if steps.setup.project.is_some() {
        return steps.merge(&settings(steps), &steps.shared_command());
    }
    let Some(gemini) = steps.machine.find("gemini") else {
        return steps.merge(&settings(steps), &steps.own_command());
    };
    if extension(steps).is_dir() && is_current(steps) {
        return Ok(Vec::new());
    }
    let mut plan = steps.write_plugin();
    plan.extend(steps.unmerge(&settings(steps))?);
    plan.push(Action::Keep { files: vec![settings(steps)] });
    if extension(steps).is_dir() {
        plan.push(steps.run(&gemini, &["extensions", "uninstall", "ctrlz"]));
    }
    let dir = steps.plugin_dir();
    let words = ["extensions", "install", &dir.to_string_lossy(), "--consent"];
    plan.push(Action::Run(Run {
        program: gemini,
        words: words.map(str::to_owned).to_vec(),
        dir,
        // It asks whether to trust the directory that it runs in, which is our own.
        variables: vec![("GEMINI_CLI_TRUST_WORKSPACE", "true")],
    }));
    Ok(plan)
}

pub(super) fn uninstall(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let mut plan = steps.unmerge(&settings(steps))?;
    if steps.setup.project.is_some() {
        return Ok(plan);
    }
    if extension(steps).is_dir() {
        match steps.machine.find("gemini") {
            Some(gemini) => plan.push(steps.run(&gemini, &["extensions", "uninstall", "ctrlz"])),
            None => plan.push(Action::Remove { path: extension(steps) }),
        }
        plan.push(Action::PutBack);
    }
    if steps.plugin_dir().exists() {
        plan.push(Action::Remove { path: steps.plugin_dir() });
    }
    Ok(plan)
}
