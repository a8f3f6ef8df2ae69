//! Clients that load every file in a directory of theirs: one file of ours is put there.

use std::path::{Path, PathBuf};

use super::{Action, Refused, State, Steps, differs, files, read_text};
use crate::hook::Client;

/// Where such a client looks, and how it is found.
struct Layout {
    /// Its program.
    program: &'static str,
    /// The variable that moves its configuration, and where that is below home otherwise.
    config: (&'static str, &'static str),
    /// The directory below its configuration.
    below: &'static str,
    /// The directory below a project, where it loads anything from one.
    in_project: Option<&'static str>,
    /// What our file is called.
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

/// The file with the path of this program; a project that others share has only its name.
fn text(steps: &Steps<'_>) -> String {
    let program = match &steps.setup.project {
        Some(_) => Path::new("ctrlz"),
        None => &steps.setup.program,
    };
    let files = files::plugin(steps.client, program);
    files.into_iter().map(|(_, text)| text).next().unwrap_or_default()
}

fn is_ours(text: &str) -> bool {
    text.starts_with("// Made by integrations/build") || text.contains(" hook copilot\"")
}

pub(super) fn state(steps: &Steps<'_>) -> State {
    let Layout { program, config: (variable, usual), below, .. } = layout(steps.client);
    let found = target(steps).ok().and_then(|path| read_text(&path).ok().flatten());
    let config = steps.config_dir(variable, usual).join(below);
    // Directories like `.config` are everybody's; the one above ours is the client's.
    let is_here =
        || steps.machine.find(program).is_some() || config.parent().is_some_and(Path::is_dir);
    match found {
        Some(found) if found == text(steps) => State::Installed,
        Some(found) if is_ours(&found) => State::Outdated,
        _ if is_here() => State::NotInstalled,
        _ => State::Absent,
    }
}

pub(super) fn install(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let path = target(steps)?;
    if read_text(&path)?.is_some_and(|text| !is_ours(&text)) {
        return Err(Refused(format!("{} is somebody else's", path.display())));
    }
    let write = Action::Write { path, bytes: text(steps).into_bytes(), program: false };
    Ok(Some(write).into_iter().filter(differs).collect())
}

pub(super) fn uninstall(steps: &Steps<'_>) -> Result<Vec<Action>, Refused> {
    let path = target(steps)?;
    let ours = read_text(&path)?.is_some_and(|text| is_ours(&text));
    Ok(ours.then_some(Action::Remove { path }).into_iter().collect())
}
