//! Runs the vectors against any interface that takes a method and parameters.
//!
//! Included by its path. A new interface implements [`Server`] and calls [`run_all`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// An interface to test.
pub(crate) trait Server {
    /// Returns the result or the error; `None` if this interface does not support the call, which is
    /// then skipped.
    fn call(&mut self, method: &str, params: &Value) -> Option<Result<Value, Value>>;
}

/// How to treat the output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Compares it with the expected output.
    Compare,
    /// Stores it as the expected output.
    Keep,
}

/// Runs every vector in its own empty directory.
pub(crate) fn run_all<S: Server>(then: Then, mut start: impl FnMut(&Path) -> S) {
    let mut names: Vec<PathBuf> = fs::read_dir(folder().join("vectors"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("json")))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "there are vectors");
    for name in names {
        let temp = tempfile::tempdir().unwrap();
        let lab = temp.path().canonicalize().unwrap();
        fs::create_dir(lab.join("tree")).unwrap();
        let found = run(&read_json(&name), &lab, &mut start(&lab));
        let expected = name.with_extension("expected.jsonl");
        if then == Then::Keep {
            fs::write(
                &expected,
                found.iter().flatten().map(|line| format!("{line}\n")).collect::<String>(),
            )
            .unwrap();
        }
        let wanted = fs::read_to_string(&expected).unwrap_or_default();
        for (at, (found, wanted)) in found.iter().zip(wanted.lines()).enumerate() {
            // A skipped call has no line to compare.
            let found = found.as_deref().unwrap_or(wanted);
            assert_eq!(found, wanted, "line {} of {}", at + 1, expected.display());
        }
        assert_eq!(found.len(), wanted.lines().count(), "{}", expected.display());
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/conformance")
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns a line for every step with output; `None` for a skipped call.
fn run(vector: &Value, lab: &Path, server: &mut impl Server) -> Vec<Option<String>> {
    let mut lines = Vec::new();
    let mut names = BTreeMap::new();
    let mut plain = Plain::new(lab);
    for step in vector["steps"].as_array().unwrap() {
        match take_step(step, lab, server, &mut names) {
            Outcome::Quiet => (),
            Outcome::LeftOut => lines.push(None),
            Outcome::Line(line) => lines.push(Some(plain.plain("", line).to_string())),
        }
    }
    lines
}

/// Output of a step.
enum Outcome {
    Quiet,
    LeftOut,
    Line(Value),
}

fn take_step(
    step: &Value,
    lab: &Path,
    server: &mut impl Server,
    names: &mut BTreeMap<String, Value>,
) -> Outcome {
    let tree = lab.join("tree");
    let at = |key: &str| step.get(key).map(|path| tree.join(OsStr::from_bytes(&bytes(path))));
    if let Some(path) = at("write") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content(step)).unwrap();
    } else if let Some(path) = at("remove") {
        fs::remove_file(path).unwrap();
    } else if let Some(path) = at("symlink") {
        symlink(step["target"].as_str().unwrap(), path).unwrap();
    } else if let Some(path) = at("mode") {
        let bits = u32::try_from(step["bits"].as_u64().unwrap()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    } else if let Some(path) = at("read") {
        let found = fs::read(path).ok().map(|bytes| ctrlz::base64(&bytes));
        return Outcome::Line(json!({ "read": step["read"], "base64": found }));
    } else {
        let method = step["call"].as_str().unwrap();
        // Steps that refer to a skipped call are skipped, too.
        let params = params(&step["params"], lab, names);
        let Some(result) = params.and_then(|params| server.call(method, &params)) else {
            return Outcome::LeftOut;
        };
        if let (Some(name), Ok(result)) = (step["as"].as_str(), &result) {
            names.insert(name.to_owned(), result.clone());
        }
        return Outcome::Line(match result {
            Ok(result) => json!({ "call": method, "result": result }),
            Err(error) => json!({ "call": method, "error": error }),
        });
    }
    Outcome::Quiet
}

/// Returns the bytes of a path, which is a string or `{"bytes": […]}`.
fn bytes(path: &Value) -> Vec<u8> {
    match path.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => serde_json::from_value(path["bytes"].clone()).unwrap(),
    }
}

fn content(step: &Value) -> Vec<u8> {
    match step["base64"].as_str() {
        Some(text) => decode_base64(text),
        None => step["text"].as_str().unwrap().as_bytes().to_vec(),
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: u8| DIGITS.iter().position(|known| *known == byte).unwrap();
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let number = group.iter().fold(0, |number, byte| number << 6 | digit(*byte));
        let number = number << (6 * (4 - group.len()));
        bytes.extend_from_slice(&u32::try_from(number).unwrap().to_be_bytes()[1..group.len()]);
    }
    bytes
}

/// Returns the parameters of a call, with references to earlier results and the work tree filled in.
/// Returns `None` if an earlier call was skipped.
fn params(params: &Value, lab: &Path, names: &BTreeMap<String, Value>) -> Option<Value> {
    let lab = lab.to_str().unwrap();
    let mut made = filled(params, lab, names)?;
    let object = made.as_object_mut().unwrap();
    object.entry("dir").or_insert_with(|| format!("{lab}/tree").into());
    object.entry("data_dir").or_insert_with(|| format!("{lab}/data").into());
    Some(made)
}

fn filled(value: &Value, lab: &str, names: &BTreeMap<String, Value>) -> Option<Value> {
    Some(match value {
        Value::String(text) if text.starts_with("$LAB") => text.replacen("$LAB", lab, 1).into(),
        Value::Array(items) => {
            items.iter().map(|item| filled(item, lab, names)).collect::<Option<_>>()?
        }
        Value::Object(fields) => match fields.get("$").and_then(Value::as_str) {
            Some(reference) => return referred(reference, names),
            None => {
                let fill =
                    |(key, item): (&String, &Value)| Some((key.clone(), filled(item, lab, names)?));
                Value::Object(fields.iter().map(fill).collect::<Option<_>>()?)
            }
        },
        other => other.clone(),
    })
}

fn referred(reference: &str, names: &BTreeMap<String, Value>) -> Option<Value> {
    let (name, rest) = reference.split_once('.').unwrap_or((reference, ""));
    let pointer = rest.split('.').filter(|part| !part.is_empty());
    let pointer: String = pointer.map(|part| format!("/{part}")).collect();
    let found = names.get(name)?.pointer(&pointer);
    Some(found.unwrap_or_else(|| panic!("no {reference}")).clone())
}

/// Replaces values that differ between runs.
struct Plain {
    lab: String,
    volatile: Vec<String>,
    ids: Vec<String>,
}

impl Plain {
    fn new(lab: &Path) -> Plain {
        let volatile = read_json(&folder().join("volatile.json"));
        let volatile = serde_json::from_value(volatile).unwrap();
        Plain { lab: lab.to_str().unwrap().to_owned(), volatile, ids: Vec::new() }
    }

    fn plain(&mut self, key: &str, value: Value) -> Value {
        if !value.is_null() && self.volatile.iter().any(|volatile| volatile == key) {
            return "*".into();
        }
        match value {
            Value::String(text) if is_id(&text) => self.number(text).into(),
            Value::String(text) => text.replace(&self.lab, "$LAB").into(),
            Value::Array(items) => items.into_iter().map(|item| self.plain("", item)).collect(),
            // Sorted by key, because the maps of this crate are sorted.
            Value::Object(fields) => {
                let mut made = Map::new();
                for (key, item) in fields {
                    let item = self.plain(&key, item);
                    made.insert(key, item);
                }
                Value::Object(made)
            }
            other => other,
        }
    }

    fn number(&mut self, id: String) -> String {
        let at = self.ids.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.ids.push(id);
            self.ids.len() - 1
        });
        format!("<id {}>", at + 1)
    }
}

/// Whether a string is a generated id: 26 characters of Crockford's base 32.
fn is_id(text: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    text.len() == 26 && text.bytes().all(is_digit)
}
