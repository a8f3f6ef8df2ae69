//! Files that are installed: those in `integrations/`, with the path of this `ctrlz`.

use std::path::Path;

use crate::hook::Client;

macro_rules! integration {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../integrations/", $name)))),*]
    };
}

const CLAUDE_CODE: [(&str, &str); 8] = integration![
    "claude-code/.claude-plugin/marketplace.json",
    "claude-code/.claude-plugin/plugin.json",
    "claude-code/commands/checkpoint.md",
    "claude-code/commands/log.md",
    "claude-code/commands/redo.md",
    "claude-code/commands/status.md",
    "claude-code/commands/undo.md",
    "claude-code/hooks/hooks.json",
];

const GEMINI: [(&str, &str); 7] = integration![
    "gemini/commands/ctrlz/checkpoint.toml",
    "gemini/commands/ctrlz/log.toml",
    "gemini/commands/ctrlz/redo.toml",
    "gemini/commands/ctrlz/status.toml",
    "gemini/commands/ctrlz/undo.toml",
    "gemini/gemini-extension.json",
    "gemini/hooks/hooks.json",
];

const CLINE: [(&str, &str); 1] = integration!["cline/hook.sh"];

const QWEN: [(&str, &str); 1] = integration!["qwen-code/hooks.json"];

const COPILOT: [(&str, &str); 1] = integration!["copilot/hooks.json"];

const PI: [(&str, &str); 1] = integration!["pi/ctrlz.ts"];

const OPENCODE: [(&str, &str); 1] = integration!["opencode/ctrlz.ts"];

const MARVIN: [(&str, &str); 1] = integration!["marvin/ctrlz.ts"];

/// Returns the files of a client's plugin directory: relative paths and texts.
pub(super) fn plugin(client: Client, program: &Path) -> Vec<(String, String)> {
    let files: &[(&str, &str)] = match client {
        // Both clients use the same plugin.
        Client::ClaudeCode | Client::Codex => &CLAUDE_CODE,
        Client::Gemini => &GEMINI,
        Client::Cline => &CLINE,
        Client::Qwen => &QWEN,
        Client::Copilot => &COPILOT,
        Client::Pi => &PI,
        Client::OpenCode | Client::Kilo => &OPENCODE,
        Client::Marvin => &MARVIN,
    };
    let below = |name: &str| name.split_once('/').map_or(name, |(_, below)| below).to_owned();
    files.iter().map(|(name, text)| (below(name), with_program(name, text, program))).collect()
}

/// Returns the hooks for a client, in the format of its configuration.
pub(super) fn hooks(client: Client) -> serde_json::Value {
    let text = match client {
        Client::ClaudeCode | Client::Codex => CLAUDE_CODE[7].1,
        Client::Gemini => GEMINI[6].1,
        Client::Qwen => QWEN[0].1,
        Client::Cline
        | Client::Copilot
        | Client::Pi
        | Client::OpenCode
        | Client::Kilo
        | Client::Marvin => "{}",
    };
    serde_json::from_str(text).expect("the files in integrations/ are JSON")
}

/// Returns the command that a client runs for each event.
pub fn hook_command(client: Client, program: &Path) -> String {
    format!("{} hook {client}", shell_word(program))
}

/// Replaces the bare program name with its full path.
fn with_program(name: &str, text: &str, program: &Path) -> String {
    let word = shell_word(program);
    if name.ends_with(".json") {
        let escaped = serde_json::Value::from(word).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        return text.replace("\"ctrlz hook ", &format!("\"{escaped} hook "));
    }
    if name.ends_with(".ts") {
        let literal = serde_json::Value::from(program.to_string_lossy()).to_string();
        return text.replace("const PROGRAM = \"ctrlz\"", &format!("const PROGRAM = {literal}"));
    }
    // In TOML's multi-line strings a backslash would be an escape.
    let word = if name.ends_with(".toml") { word.replace('\\', "\\\\") } else { word };
    let mut text = text.to_owned();
    for before in ["!`", "!{", "Bash(", "exec "] {
        text = text.replace(&format!("{before}ctrlz "), &format!("{before}{word} "));
    }
    text
}

/// Quotes a path as one shell word.
fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-+".contains(c);
    if text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_runs_the_program_that_installed_it() {
        for client in Client::ALL {
            let mut named = 0;
            for (name, text) in plugin(client, Path::new("/opt/my tools/ctrlz")) {
                let rest = text.replace("'/opt/my tools/ctrlz' ", "");
                let bare = ["!`ctrlz ", "!{ctrlz ", "Bash(ctrlz ", "\"ctrlz hook", "exec ctrlz "];
                for bare in bare.into_iter().chain(["PROGRAM = \"ctrlz\""]) {
                    assert!(!rest.contains(bare), "{name} has {bare}");
                }
                let shell = text.contains("'/opt/my tools/ctrlz' ");
                let script = text.contains("PROGRAM = \"/opt/my tools/ctrlz\"");
                named += usize::from(shell || script);
                if name.ends_with(".json") {
                    serde_json::from_str::<serde_json::Value>(&text).unwrap();
                }
            }
            assert!(named > 0, "{client}");
        }
    }

    #[test]
    fn plugins_have_the_version_of_this_program() {
        for (_, text) in CLAUDE_CODE.iter().chain(&GEMINI) {
            if text.contains("\"version\"") {
                let version = format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION"));
                assert!(text.contains(&version), "{text}");
            }
        }
    }
}
