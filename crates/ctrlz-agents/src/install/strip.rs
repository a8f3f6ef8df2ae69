//! Removes everything of ours from the text of a configuration file that other programs share.

use std::path::Path;

use serde_json::Value;

use super::merge;

/// Name of the plugin in Claude Code and Codex: plugin@marketplace.
pub(super) const PLUGIN: &str = "ctrlz@ctrlz";

/// Returns the text without our hooks and without the entries that clients make for our plugin.
///
/// `plugin_dir` is the directory that the plugin was installed from.
pub(super) fn strip(path: &Path, text: &str, plugin_dir: &Path) -> Result<String, String> {
    if is_toml(path) {
        return strip_toml(text);
    }
    strip_plugin(path, &merge::remove(text)?, plugin_dir)
}

/// Returns the JSON text without the entries that clients make for our plugin; hooks stay.
pub(super) fn strip_plugin(path: &Path, text: &str, plugin_dir: &Path) -> Result<String, String> {
    let plugin_dir = plugin_dir.to_string_lossy();
    let keys: &[&[&str]] = match path.file_name().and_then(|name| name.to_str()) {
        Some("settings.json" | "settings.local.json") => {
            &[&["enabledPlugins", PLUGIN], &["extraKnownMarketplaces", "ctrlz"]]
        }
        Some("installed_plugins.json") => &[&["plugins", PLUGIN]],
        Some("known_marketplaces.json" | "extension-enablement.json") => &[&["ctrlz"]],
        Some("projects.json") => &[&["projects", &plugin_dir]],
        // The signature covers all extensions, and only the client can renew it.
        Some("extension_integrity.json") if is_only_extension(text) => {
            &[&["store", "ctrlz"], &["signature"]]
        }
        _ => &[],
    };
    merge::remove_keys(text, keys)
}

fn is_only_extension(text: &str) -> bool {
    let value = merge::value(text).unwrap_or_default();
    value["store"].as_object().is_some_and(|store| store.keys().eq(["ctrlz"]))
}

/// Returns a command of ours that is left in a text, in a form that `strip` does not recognize.
pub(super) fn left_over(path: &Path, text: &str) -> Option<String> {
    let hooks = meaning(path, text)?.get("hooks")?.to_owned();
    commands(&hooks).into_iter().find(|command| names_us(command))
}

/// Returns whether a command contains `ctrlz hook`.
pub(super) fn names_us(command: &str) -> bool {
    ["ctrlz hook ", "ctrlz' hook ", "ctrlz\" hook "].iter().any(|part| command.contains(part))
}

/// Returns all strings in a value.
pub(super) fn commands(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().flat_map(commands).collect(),
        Value::Object(map) => map.values().flat_map(commands).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Parses JSON with comments, or TOML. Returns `None` if the text is invalid.
pub(super) fn meaning(path: &Path, text: &str) -> Option<Value> {
    if is_toml(path) {
        serde_json::to_value(text.parse::<toml::Table>().ok()?).ok()
    } else {
        merge::value(text)
    }
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Removes whole tables, each with the empty lines before it. Everything else stays verbatim.
fn strip_toml(text: &str) -> Result<String, String> {
    const TABLES: [&str; 3] =
        ["[marketplaces.ctrlz]", "[plugins.\"ctrlz@ctrlz\"]", "[hooks.state.\"ctrlz@ctrlz:"];
    let parse = |text: &str| text.parse::<toml::Table>().map_err(|error| error.to_string());
    let mut left = String::new();
    let mut is_ours = false;
    // Comments and empty lines at the end of a table belong to the next one.
    let mut pending = String::new();
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        if start.starts_with('[') {
            is_ours = TABLES.iter().any(|table| start.starts_with(table));
            if is_ours && pending.trim().is_empty() {
                pending.clear();
            }
        }
        if start.is_empty() || start.starts_with('#') {
            pending.push_str(line);
        } else if is_ours {
            left.push_str(&std::mem::take(&mut pending));
        } else {
            left.push_str(&std::mem::take(&mut pending));
            left.push_str(line);
        }
    }
    if !is_ours || !pending.trim().is_empty() {
        left.push_str(&pending);
    }
    let plugins = parse(text).and(parse(&left))?.remove("plugins");
    if plugins.is_some_and(|plugins| plugins.get(PLUGIN).is_some()) {
        Err("our plugin is not in a table of its own".into())
    } else {
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_tables_of_ours_are_removed_and_the_rest_stays_verbatim() {
        let file = Path::new("config.toml");
        let check = |text: &str, wanted: &str| {
            assert_eq!(strip(file, text, Path::new("/x")).unwrap(), wanted, "{text}");
        };
        let ours = "\n[marketplaces.ctrlz]\nsource = \"/x\"\n\n[plugins.\"ctrlz@ctrlz\"]\nenabled = true\n";
        check(&ours[1..], "");
        check(&format!("a  = 1 # mine\n{ours}"), "a  = 1 # mine\n");
        check(&format!("a = 1\n{ours}\n# mine\n[b]\nc = 2\n"), "a = 1\n\n# mine\n[b]\nc = 2\n");
        check("a = 1\n\n[b]\n\n", "a = 1\n\n[b]\n\n");
        assert!(strip(file, "a = ", Path::new("/x")).is_err());
    }

    #[test]
    fn entries_of_our_plugin_are_removed_and_the_rest_stays_verbatim() {
        let text = "{\n  \"model\": \"x\", // mine\n  \"enabledPlugins\": {\"ctrlz@ctrlz\": true, \"o@o\": true}\n}\n";
        let left = strip(Path::new("a/settings.json"), text, Path::new("/x")).unwrap();
        assert!(left.contains("// mine") && left.contains("o@o") && !left.contains("ctrlz"));
        let signed = "{\"store\": {\"ctrlz\": {}, \"other\": {}}, \"signature\": \"s\"}";
        let file = Path::new("extension_integrity.json");
        assert_eq!(strip(file, signed, Path::new("/x")).unwrap(), signed);
    }

    #[test]
    fn a_command_that_runs_ctrlz_in_another_way_is_found() {
        let file = Path::new("settings.json");
        let text = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"command\": \"cd x && ctrlz hook qwen-code\"}]}]}}";
        assert_eq!(strip(file, text, Path::new("/x")).unwrap(), text);
        assert_eq!(left_over(file, text).as_deref(), Some("cd x && ctrlz hook qwen-code"));
        assert_eq!(left_over(file, "{\"a\": \"ctrlz hook x\" /* ctrlz hook x */}"), None);
    }
}
