//! Cline CLI: runs every file in its hooks directory that is named after an event.

use std::path::PathBuf;

use super::State;
use super::actions::{Action, Refused, differs};
use super::steps::{Places, Steps, read_text};
use super::strip::names_us;

const EVENTS: [&str; 9] = [
    "TaskStart",
    "TaskResume",
    "TaskCancel",
    "TaskComplete",
    "TaskError",
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "SessionShutdown",
];

fn config_dir(steps: &Steps<'_>) -> PathBuf {
    steps.config_dir("CLINE_DIR", ".cline")
}

fn hooks_dir(steps: &Steps<'_>) -> PathBuf {
    match &steps.setup.project {
        Some(project) => project.join(".clinerules/hooks"),
        None => config_dir(steps).join("hooks"),
    }
}

/// Returns our files. The extension distinguishes them from a user's hook for the same event.
fn our_files(steps: &Steps<'_>) -> Vec<PathBuf> {
    let dir = hooks_dir(steps);
    EVENTS.iter().map(|event| dir.join(format!("{event}.sh"))).collect()
}

fn is_ours(text: &str) -> bool {
    text.contains("ctrlz install cline")
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    let found: Vec<Option<String>> =
        our_files(steps).iter().map(|file| read_text(file).ok().flatten()).collect();
    let wanted = steps.single_file();
    let present = found.iter().flatten().filter(|text| is_ours(text)).count();
    match present {
        0 if steps.machine.find("cline").is_none() && !config_dir(steps).is_dir() => State::Absent,
        0 => State::NotInstalled,
        _ if found.iter().all(|text| text.as_ref() == Some(&wanted)) => State::Installed,
        _ => State::Outdated,
    }
}

pub(super) fn places(steps: &Steps<'_>) -> Result<Places, Refused> {
    let mut own = Vec::new();
    for path in hook_files(steps) {
        if read_text(&path)?.is_some_and(|text| is_ours(&text)) {
            own.push(path);
        }
    }
    Ok(Places { shared: Vec::new(), own })
}

/// Returns the files in the hooks directory that Cline runs, with any extension.
fn hook_files(steps: &Steps<'_>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(hooks_dir(steps)).into_iter().flatten().flatten();
    let is_event = |path: &PathBuf| {
        path.file_stem().is_some_and(|stem| EVENTS.iter().any(|event| stem == *event))
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_event).collect();
    files.sort();
    files
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let text = steps.single_file();
    let wanted = our_files(steps);
    let mut plan = Vec::new();
    for path in hook_files(steps) {
        let found = read_text(&path)?.unwrap_or_default();
        match (is_ours(&found), wanted.contains(&path)) {
            (true, true) => (),
            (true, false) => plan.push(Action::Remove { path }),
            (false, _) if names_us(&found) => {
                return Err(steps.second_route(&path, "a hook that runs `ctrlz hook`"));
            }
            (false, true) => {
                return Err(Refused(format!("{} is a hook of another program", path.display())));
            }
            (false, false) => (),
        }
    }
    for path in wanted {
        plan.push(Action::Write { path, bytes: text.clone().into_bytes(), mode: Some(0o755) });
    }
    plan.retain(differs);
    Ok(plan)
}
