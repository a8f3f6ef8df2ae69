//! Tools for models: their arguments, and the methods that they call.
//!
//! The arguments may originate from a file that the model has read. Therefore no argument can name
//! another project, another store or an option of the user. Purge and garbage collection are not
//! tools, and every tool that changes files can be undone.

use serde_json::{Map, Value, json};

/// Upper bound on the text in one response.
pub(super) const MAX_TEXT_BYTES: usize = 64 << 10;
const MAX_OPERATIONS: u64 = 50;
const MAX_PATHS: usize = 1_000;

/// A tool that a model can call.
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) only_reads: bool,
    /// Arguments, as JSON Schema properties.
    arguments: fn() -> Value,
    required: &'static [&'static str],
    request: fn(&Arguments<'_>) -> Result<(&'static str, Value), String>,
}

/// All tools, in the order in which they are listed.
pub(super) const TOOLS: [Tool; 6] = [
    Tool {
        name: "list",
        about: "List what was done in this project, newest first: operations, their steps, sessions and \
                messages, and the files they changed.",
        only_reads: true,
        arguments: || {
            json!({
                "session": text("Only this session"),
                "before": text("Only operations older than this one"),
                "limit": { "type": "integer", "minimum": 1, "maximum": MAX_OPERATIONS,
                           "description": "How many; default 10" },
            })
        },
        required: &[],
        request: list,
    },
    Tool {
        name: "diff",
        about: "Show what a step, a message or a session changed, or what differs between two snapshots, \
                as unified diff.",
        only_reads: true,
        arguments: || {
            json!({
                "step": text("What this step changed"),
                "message": text("What this message changed"),
                "session": text("What this session changed"),
                "from": text("A snapshot's hash"),
                "to": text("Another snapshot's hash; default: the files as they are now"),
                "paths": paths(),
            })
        },
        required: &[],
        request: diff,
    },
    Tool {
        name: "show",
        about: "Show a file as a snapshot has it.",
        only_reads: true,
        arguments: || json!({ "hash": text("The snapshot's hash"), "path": path() }),
        required: &["hash", "path"],
        request: show,
    },
    Tool {
        name: "undo",
        about: "Take back changes and keep what others did since: the last turn, or one step, or one message. \
                Can itself be taken back with redo. Use dry_run first.",
        only_reads: false,
        arguments: || {
            json!({
                "step": text("Take back this step and keep later ones"),
                "message": text("Take back this message and keep later ones"),
                "from_message": text("Take back this message and everything its session did after it"),
                "session": text("Only this session"),
                "paths": paths(),
                "dry_run": { "type": "boolean", "description": "Only tell what would be done" },
            })
        },
        required: &[],
        request: undo,
    },
    Tool {
        name: "redo",
        about: "Bring back what the last undo took back.",
        only_reads: false,
        arguments: || {
            json!({
                "session": text("Only this session"),
                "dry_run": { "type": "boolean", "description": "Only tell what would be done" },
            })
        },
        required: &[],
        request: redo,
    },
    Tool {
        name: "checkpoint",
        about: "Record the present state of the project under a name.",
        only_reads: false,
        arguments: || json!({ "label": text("The name") }),
        required: &[],
        request: |arguments| Ok(("checkpoint", json!({ "label": arguments.text("label")? }))),
    },
];

impl Tool {
    /// Returns the JSON Schema of the arguments. It allows no additional ones.
    pub(super) fn schema(&self) -> Map<String, Value> {
        let schema = json!({
            "type": "object", "properties": (self.arguments)(), "required": self.required,
            "additionalProperties": false,
        });
        schema.as_object().cloned().unwrap_or_default()
    }

    /// Returns the method to call and its parameters, or the reason why the arguments are invalid.
    pub(super) fn request(
        &self,
        given: &Map<String, Value>,
    ) -> Result<(&'static str, Map<String, Value>), String> {
        let known = (self.arguments)();
        if let Some(unknown) = given.keys().find(|key| known.get(key).is_none()) {
            return Err(format!("there is no argument {unknown:?}"));
        }
        if let Some(missing) = self.required.iter().find(|name| !given.contains_key(**name)) {
            return Err(format!("{missing:?} is missing"));
        }
        let (method, params) = (self.request)(&Arguments(given))?;
        Ok((method, without_null(params)))
    }
}

struct Arguments<'a>(&'a Map<String, Value>);

impl Arguments<'_> {
    /// Returns an argument that is an id or a name.
    fn text(&self, name: &str) -> Result<Option<String>, String> {
        const MAX_CHARS: usize = 256;
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() || text.starts_with('-') => {
                Err(format!("{name:?} is empty or starts with a dash"))
            }
            Some(Value::String(text)) if text.chars().count() > MAX_CHARS => {
                Err(format!("{name:?} is too long"))
            }
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{name:?} is not a text")),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{name:?} is not true or false")),
        }
    }

    fn paths(&self) -> Result<Vec<String>, String> {
        match self.0.get("paths") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) if list.len() <= MAX_PATHS => {
                list.iter().map(checked_path).collect()
            }
            Some(_) => Err("\"paths\" is not a short list".into()),
        }
    }
}

/// Checks that a path is relative to the project and has no `.`, `..` or empty components. The
/// engine never follows symlinks.
fn checked_path(value: &Value) -> Result<String, String> {
    let path = value.as_str().ok_or("a path is not a text")?;
    let refuse = |why: &str| Err(format!("the path {path:?} {why}"));
    if path.is_empty() || path.starts_with('-') {
        return refuse("is empty or starts with a dash");
    }
    if path.starts_with('/') || path.contains('\0') {
        return refuse("is not relative to the project");
    }
    if path.split('/').any(|part| part == ".." || part == "." || part.is_empty()) {
        return refuse("is not plain");
    }
    Ok(path.to_owned())
}

fn list(arguments: &Arguments<'_>) -> Result<(&'static str, Value), String> {
    const DEFAULT: u64 = 10;
    let limit = match arguments.0.get("limit") {
        None | Some(Value::Null) => DEFAULT,
        Some(limit) => limit.as_u64().ok_or("\"limit\" is not a number")?.clamp(1, MAX_OPERATIONS),
    };
    let (session, before) = (arguments.text("session")?, arguments.text("before")?);
    Ok(("log", json!({ "session": session, "before": before, "limit": limit, "files": 20 })))
}

fn diff(arguments: &Arguments<'_>) -> Result<(&'static str, Value), String> {
    let of = ["step", "message", "session"];
    for name in of {
        if let Some(id) = arguments.text(name)? {
            let of = Value::Object(Map::from_iter([(name.to_owned(), Value::from(id))]));
            return Ok(("step_diff", json!({ "of": of, "max_bytes": MAX_TEXT_BYTES })));
        }
    }
    let from =
        arguments.text("from")?.ok_or("say a step, a message, a session or two snapshots")?;
    let params = json!({
        "from": from, "to": arguments.text("to")?, "paths": arguments.paths()?,
        "max_bytes": MAX_TEXT_BYTES,
    });
    Ok(("diff", params))
}

fn show(arguments: &Arguments<'_>) -> Result<(&'static str, Value), String> {
    let path = checked_path(arguments.0.get("path").unwrap_or(&Value::Null))?;
    let hash = arguments.text("hash")?;
    Ok(("show", json!({ "hash": hash, "path": path, "max_bytes": MAX_TEXT_BYTES })))
}

fn undo(arguments: &Arguments<'_>) -> Result<(&'static str, Value), String> {
    let step = arguments.text("step")?.map(|step| json!({ "step": step }));
    let message = arguments.text("message")?.map(|message| json!({ "message": message }));
    let from = arguments.text("from_message")?.map(|from| json!({ "from": { "message": from } }));
    let mut scopes = [step, message, from].into_iter().flatten();
    let scope = scopes.next();
    if scopes.next().is_some() {
        return Err("say one of step, message and from_message".into());
    }
    let method = if arguments.flag("dry_run")? { "plan_undo" } else { "undo" };
    let params = json!({
        "scope": scope, "session": arguments.text("session")?, "paths": arguments.paths()?,
    });
    Ok((method, params))
}

fn redo(arguments: &Arguments<'_>) -> Result<(&'static str, Value), String> {
    let method = if arguments.flag("dry_run")? { "plan_redo" } else { "redo" };
    Ok((method, json!({ "session": arguments.text("session")? })))
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn path() -> Value {
    text("A path relative to the project")
}

fn paths() -> Value {
    json!({
        "type": "array", "items": { "type": "string" },
        "description": "Only these paths, relative to the project, and what is below them",
    })
}

/// Removes the parameters that were not given.
fn without_null(params: Value) -> Map<String, Value> {
    let Value::Object(params) = params else { return Map::new() };
    params.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tool: &str, arguments: &Value) -> Result<(&'static str, Value), String> {
        let tool = TOOLS.iter().find(|known| known.name == tool).unwrap();
        let (method, params) = tool.request(arguments.as_object().unwrap())?;
        Ok((method, Value::Object(params)))
    }

    #[test]
    fn paths_outside_the_project_are_refused() {
        for path in ["../x", "/etc/passwd", "a/../../x", "-rf", "", ".", "a//b", "a/./b", "a\0b"] {
            let shown = request("show", &json!({ "hash": "0".repeat(40), "path": path }));
            assert!(shown.is_err(), "{path:?}");
            assert!(request("undo", &json!({ "paths": [path] })).is_err(), "{path:?}");
        }
        assert!(request("undo", &json!({ "paths": [5] })).is_err());
        let (_, params) = request("undo", &json!({ "paths": ["a/b c", "..x"] })).unwrap();
        assert_eq!(params, json!({ "paths": ["a/b c", "..x"] }));
    }

    #[test]
    fn another_project_cannot_be_named() {
        for name in
            ["dir", "data_dir", "store", "options", "profile", "force", "allow_mass_removal"]
        {
            for tool in &TOOLS {
                let given = json!({ name: "/elsewhere", "hash": "0", "path": "a" });
                assert!(tool.request(given.as_object().unwrap()).is_err(), "{} {name}", tool.name);
            }
        }
    }

    #[test]
    fn every_tool_maps_to_a_known_method_and_none_deletes_history() {
        let given = [
            ("list", json!({})),
            ("diff", json!({ "step": "s" })),
            ("diff", json!({ "from": "0" })),
            ("show", json!({ "hash": "0", "path": "a" })),
            ("undo", json!({ "dry_run": true })),
            ("undo", json!({})),
            ("redo", json!({ "dry_run": true })),
            ("redo", json!({})),
            ("checkpoint", json!({})),
        ];
        for (tool, arguments) in given {
            let (method, _) = request(tool, &arguments).unwrap();
            assert!(ctrlz_api::find(method).is_some(), "{method}");
            assert!(!["purge", "gc", "release_session", "repair"].contains(&method));
        }
    }
}
