//! Adds and removes our hooks in a JSON file of another program. Everything else stays unchanged,
//! including comments and spacing.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

use crate::hook::Client;

/// Adds our hooks to the text of a configuration, replacing those of an earlier version.
pub(super) fn add(text: &str, hooks: &Value, command: &str) -> Result<String, String> {
    let wanted = with_command(hooks, command);
    let root = parse(text)?;
    let top = top(&root)?;
    if ours(&top) == wanted {
        return Ok(text.to_owned());
    }
    let root = parse(&remove(text)?)?;
    let top = self::top(&root)?;
    let events = top.object_value_or_create("hooks").ok_or("`hooks` is not an object")?;
    for (event, groups) in wanted {
        let list = events
            .array_value_or_create(&event)
            .ok_or_else(|| format!("`hooks.{event}` is not a list"))?;
        for group in groups {
            list.append(input(&group));
        }
    }
    let mut text = root.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Removes our hooks, and lists that are then empty. Other hooks of the same group stay.
pub(super) fn remove(text: &str) -> Result<String, String> {
    let root = parse(text)?;
    let Some(top) = root.object_value() else { return Ok(text.to_owned()) };
    let Some(events) = top.object_value("hooks") else { return Ok(text.to_owned()) };
    let mut removed = false;
    for event in events.properties() {
        let Some(list) = event.array_value() else { continue };
        let mut has_own = false;
        for group in list.elements() {
            let hooks = hooks_of(&group);
            let own: Vec<CstNode> = hooks.iter().filter(|hook| is_ours(hook)).cloned().collect();
            has_own |= !own.is_empty();
            match own.len() {
                0 => (),
                some if some == hooks.len() => group.remove(),
                _ => own.into_iter().for_each(CstNode::remove),
            }
        }
        removed |= has_own;
        // An empty list of the user's stays.
        if has_own && list.elements().is_empty() {
            event.remove();
        }
    }
    if removed && events.properties().is_empty() {
        top.get("hooks").into_iter().for_each(|hooks| hooks.remove());
    }
    Ok(if removed { root.to_string() } else { text.to_owned() })
}

/// Removes properties, each given by its key path, and objects that are then empty.
pub(super) fn remove_keys(text: &str, keys: &[&[&str]]) -> Result<String, String> {
    let root = parse(text)?;
    let Some(top) = root.object_value() else { return Ok(text.to_owned()) };
    let mut removed = false;
    for key in keys {
        let (object, name, parent) = match key {
            [name] => (Some(top.clone()), *name, None),
            [parent, name] => (top.object_value(parent), *name, top.get(parent)),
            _ => continue,
        };
        let Some(object) = object else { continue };
        let Some(property) = object.get(name) else { continue };
        property.remove();
        removed = true;
        if object.properties().is_empty() {
            parent.into_iter().for_each(|parent| parent.remove());
        }
    }
    Ok(if removed { root.to_string() } else { text.to_owned() })
}

/// Parses JSON with comments. Returns `None` if the text is invalid.
pub(super) fn value(text: &str) -> Option<Value> {
    parse(text).ok()?.to_serde_value()
}

type Hooks = Vec<(String, Vec<Value>)>;

fn parse(text: &str) -> Result<CstRootNode, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

fn top(root: &CstRootNode) -> Result<CstObject, String> {
    root.object_value_or_create().ok_or_else(|| "it does not hold an object".to_owned())
}

/// Returns the hooks with the command of this machine.
fn with_command(hooks: &Value, command: &str) -> Hooks {
    let events = hooks["hooks"].as_object().into_iter().flatten();
    let groups = |groups: &Value| {
        let mut groups = groups.as_array().cloned().unwrap_or_default();
        for hook in groups.iter_mut().flat_map(|group| group["hooks"].as_array_mut()).flatten() {
            hook["command"] = command.into();
        }
        groups
    };
    let mut found: Hooks = events.map(|(event, list)| (event.clone(), groups(list))).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Returns the groups in a configuration that run `ctrlz hook`.
fn ours(top: &CstObject) -> Hooks {
    let Some(events) = top.object_value("hooks") else { return Vec::new() };
    let mut found = Hooks::new();
    for event in events.properties() {
        let groups = event.array_value().map(|list| list.elements()).unwrap_or_default();
        let own: Vec<Value> = groups
            .iter()
            .filter(|group| hooks_of(group).iter().any(is_ours))
            .filter_map(CstNode::to_serde_value)
            .collect();
        if let (Some(name), false) = (event.decoded_name(), own.is_empty()) {
            found.push((name, own));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn hooks_of(group: &CstNode) -> Vec<CstNode> {
    let list = group.as_object().and_then(|group| group.array_value("hooks"));
    list.map(|list| list.elements()).unwrap_or_default()
}

/// Returns whether a hook runs `ctrlz hook CLIENT` and nothing else.
fn is_ours(hook: &CstNode) -> bool {
    let hook = hook.to_serde_value().unwrap_or_default();
    runs_us(hook["command"].as_str().unwrap_or_default())
}

/// Returns whether a command is `ctrlz hook CLIENT`, with `ctrlz` in any directory.
pub(super) fn runs_us(command: &str) -> bool {
    let Some((program, client)) = command.rsplit_once(" hook ") else { return false };
    let program = program.trim_end_matches('\'');
    let is_program = program == "ctrlz" || program.ends_with("/ctrlz");
    // Without quotes, a space starts another word.
    let is_word = program.starts_with('\'') || command.starts_with('\'') || !program.contains(' ');
    is_program && is_word && client.parse::<Client>().is_ok()
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(list) => CstInputValue::Array(list.iter().map(input).collect()),
        Value::Object(map) => CstInputValue::Object(
            map.iter().map(|(key, value)| (key.clone(), input(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::files::hooks;

    const CLIENT: Client = Client::Gemini;
    const COMMAND: &str = "/opt/ctrlz hook gemini-cli";

    #[track_caller]
    fn check_round_trip(before: &str) {
        let after = add(before, &hooks(CLIENT), COMMAND).unwrap();
        assert_eq!(after.matches(COMMAND).count(), 6, "{after}");
        assert_eq!(add(&after, &hooks(CLIENT), COMMAND).unwrap(), after, "idempotent");
        let left = remove(&after).unwrap();
        assert_eq!(value(&left), value(before), "{left}");
        for comment in ["// mine", "/* and mine */"] {
            assert_eq!(left.contains(comment), before.contains(comment), "{left}");
            assert_eq!(after.contains(comment), before.contains(comment), "{after}");
        }
    }

    #[test]
    fn existing_settings_survive_adding_and_removing_hooks() {
        check_round_trip("{}");
        check_round_trip("{\n  // mine\n  \"unknown\": [1, {\"a\": null}], /* and mine */\n}\n");
        check_round_trip("{\"hooks\": {\"BeforeTool\": [{\"hooks\": [{\"command\": \"mine\"}]}]}}");
        check_round_trip(
            "{\n\t\"hooks\": {\n\t\t// mine\n\t\t\"Other\": [],\n\t\t\"Zzz\": [],\n\t},\n\t\"b\": 1.50\n}",
        );
    }

    #[test]
    fn an_earlier_version_is_replaced() {
        let old = add("{\"a\": 1}", &hooks(CLIENT), "/old/ctrlz hook gemini-cli").unwrap();
        let new = add(&old, &hooks(CLIENT), COMMAND).unwrap();
        assert!(!new.contains("/old/") && new.matches(COMMAND).count() == 6, "{new}");
    }

    #[test]
    fn malformed_settings_are_refused() {
        for text in ["[]", "{\"hooks\": 1}", "{\"hooks\": {\"BeforeTool\": {}}}", "{\"a\" 1}", "x"]
        {
            assert!(add(text, &hooks(CLIENT), COMMAND).is_err(), "{text}");
        }
    }

    #[test]
    fn foreign_hooks_are_kept_even_in_a_group_with_ours() {
        let ours = "{\"command\": \"ctrlz hook gemini-cli\"}, ";
        let text = format!(
            "{{\"hooks\": {{\"Stop\": [{{\"hooks\": [{ours}{{\"command\": \"mine\"}}]}}, \
             {{\"hooks\": [{{\"command\": \"not-ctrlz hook gemini-cli\"}}]}}]}}}}"
        );
        assert_eq!(remove(&text).unwrap(), text.replace(ours.trim_end(), ""));
    }

    #[test]
    fn only_the_plain_command_is_recognized_as_ours() {
        for ours in ["ctrlz hook codex", "/a/ctrlz hook codex", "'/a b/ctrlz' hook codex"] {
            assert!(runs_us(ours), "{ours}");
        }
        for other in ["ctrlz hook", "ctrlz hook vim", "x ctrlz hook codex", "xctrlz hook codex"] {
            assert!(!runs_us(other), "{other}");
        }
    }
}
