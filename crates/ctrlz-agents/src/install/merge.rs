//! Hooks in a JSON file that belongs to somebody else: ours are added and removed, and everything
//! else stays as it is, comments and spacing included.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::Value;

use crate::hook::Client;

/// Adds our hooks to the text of a configuration, in place of those of an earlier version.
pub(super) fn add(
    text: &str,
    hooks: &Value,
    client: Client,
    command: &str,
) -> Result<String, String> {
    let wanted = with_command(hooks, command);
    let root = parse(text)?;
    let top = top(&root)?;
    if ours(&top, client) == wanted {
        return Ok(text.to_owned());
    }
    let root = parse(&remove(text, client)?)?;
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

/// Removes our hooks, and lists that hold nothing else.
pub(super) fn remove(text: &str, client: Client) -> Result<String, String> {
    let root = parse(text)?;
    let Some(top) = root.object_value() else { return Ok(text.to_owned()) };
    let Some(events) = top.object_value("hooks") else { return Ok(text.to_owned()) };
    let mut removed = false;
    for event in events.properties() {
        let Some(list) = event.array_value() else { continue };
        let own: Vec<CstNode> =
            list.elements().into_iter().filter(|group| is_ours(group, client)).collect();
        if own.is_empty() {
            continue;
        }
        removed = true;
        own.into_iter().for_each(CstNode::remove);
        if list.elements().is_empty() {
            event.remove();
        }
    }
    if removed && events.properties().is_empty() {
        top.get("hooks").into_iter().for_each(|hooks| hooks.remove());
    }
    Ok(if removed { root.to_string() } else { text.to_owned() })
}

/// What the text says, without comments; `None` if it is no JSON.
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

/// The hooks with the command that this machine needs.
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

/// The hooks in a configuration that are ours.
fn ours(top: &CstObject, client: Client) -> Hooks {
    let Some(events) = top.object_value("hooks") else { return Vec::new() };
    let mut found = Hooks::new();
    for event in events.properties() {
        let groups = event.array_value().map(|list| list.elements()).unwrap_or_default();
        let own: Vec<Value> = groups
            .iter()
            .filter(|group| is_ours(group, client))
            .filter_map(CstNode::to_serde_value)
            .collect();
        if let (Some(name), false) = (event.decoded_name(), own.is_empty()) {
            found.push((name, own));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Whether a group of hooks runs nothing but `ctrlz hook` for this client.
fn is_ours(group: &CstNode, client: Client) -> bool {
    let Some(value) = group.to_serde_value() else { return false };
    let hooks = value["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let runs_us = |hook: &Value| {
        let command = hook["command"].as_str().unwrap_or_default();
        let program = command.strip_suffix(&format!(" hook {client}")).unwrap_or_default();
        let program = program.trim_end_matches('\'');
        program == "ctrlz" || program.ends_with("/ctrlz")
    };
    !hooks.is_empty() && hooks.iter().all(runs_us)
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
        let after = add(before, &hooks(CLIENT), CLIENT, COMMAND).unwrap();
        assert_eq!(after.matches(COMMAND).count(), 6, "{after}");
        assert_eq!(add(&after, &hooks(CLIENT), CLIENT, COMMAND).unwrap(), after, "twice is once");
        let left = remove(&after, CLIENT).unwrap();
        assert_eq!(value(&left), value(before), "{left}");
        for comment in ["// mine", "/* and mine */"] {
            assert_eq!(left.contains(comment), before.contains(comment), "{left}");
            assert_eq!(after.contains(comment), before.contains(comment), "{after}");
        }
    }

    #[test]
    fn what_others_wrote_stays() {
        check_round_trip("{}");
        check_round_trip("{\n  // mine\n  \"unknown\": [1, {\"a\": null}], /* and mine */\n}\n");
        check_round_trip("{\"hooks\": {\"BeforeTool\": [{\"hooks\": [{\"command\": \"mine\"}]}]}}");
        check_round_trip(
            "{\n\t\"hooks\": {\n\t\t// mine\n\t\t\"Other\": [],\n\t},\n\t\"b\": 1.50\n}",
        );
    }

    #[test]
    fn an_earlier_version_is_replaced() {
        let old = add("{\"a\": 1}", &hooks(CLIENT), CLIENT, "/old/ctrlz hook gemini-cli").unwrap();
        let new = add(&old, &hooks(CLIENT), CLIENT, COMMAND).unwrap();
        assert!(!new.contains("/old/") && new.matches(COMMAND).count() == 6, "{new}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "{\"hooks\": 1}", "{\"hooks\": {\"BeforeTool\": {}}}", "{\"a\" 1}", "x"]
        {
            assert!(add(text, &hooks(CLIENT), CLIENT, COMMAND).is_err(), "{text}");
        }
    }

    #[test]
    fn hooks_of_others_are_not_taken_for_ours() {
        let text = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"command\": \"ctrlz hook gemini-cli\"}, \
                    {\"command\": \"mine\"}]}, {\"hooks\": [{\"command\": \"not-ctrlz hook gemini-cli\"}]}]}}";
        assert_eq!(remove(text, CLIENT).unwrap(), text);
    }
}
