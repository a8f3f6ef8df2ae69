//! Codex CLI: uses its plugin command with the plugin of Claude Code; without the command, and in
//! projects, hooks in hooks.json. Codex runs only hooks that the user has approved. The approval is
//! left to the user.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::settings::{Plugin, PluginCommands, SettingsClient};
use super::steps::{Places, Steps, read_text};
use super::strip::PLUGIN;
use super::{Machine, Run, Setup};

pub(super) struct Codex;

impl SettingsClient for Codex {
    const PROGRAM: &'static str = "codex";

    fn config_dir(steps: &Steps<'_>) -> PathBuf {
        steps.config_dir("CODEX_HOME", ".codex")
    }

    fn places(steps: &Steps<'_>) -> Places {
        if let Some(project) = &steps.setup.project {
            let files = [".codex/hooks.json", ".codex/config.toml"];
            let shared = files.map(|name| project.join(name)).into();
            return Places { shared, own: Vec::new() };
        }
        let below = |name: &str| Self::config_dir(steps).join(name);
        let own = ["plugins/cache/ctrlz", ".tmp/marketplaces/ctrlz"].map(below);
        Places {
            shared: ["hooks.json", "config.toml"].map(below).into(),
            own: [own.to_vec(), vec![steps.plugin_dir()]].concat(),
        }
    }

    fn plugin(steps: &Steps<'_>) -> Plugin {
        match plugin_source(steps) {
            Some(dir) if dir == steps.plugin_dir() && is_current(steps) => Plugin::Current,
            Some(_) => Plugin::Outdated,
            None => Plugin::Missing,
        }
    }

    fn plugin_commands(steps: &Steps<'_>, program: &Path) -> Option<PluginCommands> {
        let dir = steps.plugin_dir();
        let runs = vec![
            steps.run(program, &["plugin", "marketplace", "add", &dir.to_string_lossy()]),
            steps.run(program, &["plugin", "add", PLUGIN]),
        ];
        Some(PluginCommands { runs, made: Vec::new() })
    }
}

/// Returns the directory that the plugin comes from, if it is enabled.
fn plugin_source(steps: &Steps<'_>) -> Option<PathBuf> {
    let text = read_text(&Codex::config_dir(steps).join("config.toml")).ok()??;
    let config: toml::Table = text.parse().ok()?;
    config.get("plugins")?.get(PLUGIN)?.get("enabled")?.as_bool().filter(|enabled| *enabled)?;
    let source = config.get("marketplaces")?.get("ctrlz")?.get("source")?;
    Some(PathBuf::from(source.as_str()?))
}

/// Returns whether Codex's copy of the plugin is what would be installed now.
fn is_current(steps: &Steps<'_>) -> bool {
    let version = env!("CARGO_PKG_VERSION");
    let copy = format!("plugins/cache/ctrlz/ctrlz/{version}/hooks/hooks.json");
    let copy = Codex::config_dir(steps).join(copy);
    let source = steps.plugin_dir().join("hooks/hooks.json");
    let text = |path| read_text(path).ok().flatten();
    steps.write_plugin().is_empty() && text(&copy).is_some() && text(&copy) == text(&source)
}

/// Whether the user has approved our hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// All hooks are approved.
    Approved,
    /// Some or all hooks do not run until the user approves them.
    Waiting {
        /// Number of hooks that wait for approval.
        hooks: usize,
    },
    /// Codex does not report it.
    Unknown,
}

/// Asks Codex whether the user has approved our hooks. Only the user may approve them.
pub fn trust(setup: &Setup, machine: &dyn Machine) -> Trust {
    let Some(program) = machine.find("codex") else { return Trust::Unknown };
    let dir = setup.project.clone().unwrap_or_else(|| setup.home.clone());
    let info = json!({ "name": "ctrlz", "version": env!("CARGO_PKG_VERSION") });
    let say = |message: Value| message.to_string();
    let lines = [
        say(
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "clientInfo": info } }),
        ),
        say(json!({ "jsonrpc": "2.0", "method": "initialized" })),
        say(
            json!({ "jsonrpc": "2.0", "id": 2, "method": "hooks/list", "params": { "cwds": [dir] } }),
        ),
    ];
    let run = Run { program, words: vec!["app-server".into()], dir, variables: Vec::new() };
    let is_answer =
        |line: &str| serde_json::from_str(line).is_ok_and(|message: Value| message["id"] == 2);
    let answer = machine.ask(&run, &lines, &is_answer);
    answer
        .and_then(|line| serde_json::from_str(&line).ok())
        .map_or(Trust::Unknown, |answer| judge(&answer))
}

fn judge(answer: &Value) -> Trust {
    let places = answer["result"]["data"].as_array().into_iter().flatten();
    let hooks = places.flat_map(|place| place["hooks"].as_array().into_iter().flatten());
    let is_ours = |hook: &&Value| {
        hook["command"].as_str().is_some_and(|command| {
            command.ends_with("ctrlz hook claude-code")
                || command.ends_with("ctrlz hook codex")
                || command.contains("/ctrlz' hook ")
        })
    };
    let ours: Vec<&Value> = hooks.filter(is_ours).collect();
    let runs = |hook: &&&Value| matches!(hook["trustStatus"].as_str(), Some("trusted" | "managed"));
    match (ours.len(), ours.iter().filter(runs).count()) {
        (0, _) => Trust::Unknown,
        (all, trusted) if all == trusted => Trust::Approved,
        (all, trusted) => Trust::Waiting { hooks: all - trusted },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_hooks_determine_the_trust_status() {
        let answer = |hooks: &[(&str, &str)]| {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|(command, trust)| json!({ "command": command, "trustStatus": trust }))
                .collect();
            judge(&json!({ "id": 2, "result": { "data": [{ "cwd": "/", "hooks": hooks }] } }))
        };
        let own = "/usr/bin/ctrlz hook claude-code";
        assert_eq!(answer(&[(own, "trusted"), ("other", "untrusted")]), Trust::Approved);
        assert_eq!(answer(&[(own, "modified"), (own, "trusted")]), Trust::Waiting { hooks: 1 });
        assert_eq!(answer(&[("other", "trusted")]), Trust::Unknown);
        assert_eq!(judge(&json!({ "error": {} })), Trust::Unknown);
    }
}
