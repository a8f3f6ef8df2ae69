//! Parses query parameters according to the schema of their method.

use std::collections::HashMap;

use ctrlz_api::{METHODS, Params, WireError, schema};
use serde_json::{Map, Value, json};

/// Form of a parameter in an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Verbatim text. Bytes that are not UTF-8 are bytes of a path.
    Text,
    /// Decimal digits.
    Number,
    /// `true` or `false`.
    Truth,
    /// Text that may occur several times.
    Texts,
    /// JSON.
    Json,
}

/// Parameters of all methods.
pub(crate) struct Queries {
    methods: HashMap<&'static str, HashMap<String, Shape>>,
}

impl Queries {
    pub(crate) fn new() -> Queries {
        let schema = schema();
        let shapes = |name: &str| {
            let mut shapes: HashMap<String, Shape> = own_parameters(&schema, name)
                .iter()
                .map(|(name, parameter)| (name.clone(), shape(&schema, parameter)))
                .collect();
            shapes.insert("profile".into(), Shape::Text);
            shapes.insert("options".into(), Shape::Json);
            shapes
        };
        Queries {
            methods: METHODS.iter().map(|method| (method.name, shapes(method.name))).collect(),
        }
    }

    /// Returns whether a method has a parameter.
    pub(crate) fn takes(&self, method: &str, parameter: &str) -> bool {
        self.methods.get(method).is_some_and(|shapes| shapes.contains_key(parameter))
    }

    /// Parses the parameters of a query.
    pub(crate) fn read(&self, method: &str, query: &str) -> Result<Params, WireError> {
        let mut params = Map::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = String::from_utf8_lossy(&decoded(key)).into_owned();
            let value = decoded(value);
            let shape = self.methods.get(method).and_then(|shapes| shapes.get(&key));
            // The method itself refuses unknown parameters by name.
            let shape = shape.copied().unwrap_or(Shape::Text);
            if shape == Shape::Texts {
                let list = params.entry(key).or_insert_with(|| json!([]));
                list.as_array_mut().into_iter().for_each(|list| list.push(text(&value)));
            } else if params.contains_key(&key) {
                return Err(WireError::invalid_params(format!("{key:?} is given twice")));
            } else {
                let value = single(shape, &key, &value)?;
                params.insert(key, value);
            }
        }
        Ok(params.into())
    }
}

/// Returns the parameters that only this method has.
pub(crate) fn own_parameters<'a>(schema: &'a Value, method: &str) -> &'a Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let own = &schema["methods"][method]["params"]["allOf"][1];
    resolved(schema, own)["properties"].as_object().unwrap_or(&NONE)
}

/// Returns the target of a reference, or the schema itself if it is not a reference.
pub(crate) fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(name) => &schema["$defs"][name.trim_start_matches("#/$defs/")],
        None => part,
    }
}

/// Returns the form of a parameter with this schema.
pub(crate) fn shape(schema: &Value, parameter: &Value) -> Shape {
    let is_null = |part: &&Value| part["type"] == "null";
    if parameter["$ref"] == "#/$defs/Path" {
        return Shape::Text;
    }
    if let Some(parts) = parameter["anyOf"].as_array() {
        let mut parts = parts.iter().filter(|part| !is_null(part));
        return match (parts.next(), parts.next()) {
            (Some(only), None) => shape(schema, only),
            _ => Shape::Json,
        };
    }
    let found = resolved(schema, parameter);
    let kind = match &found["type"] {
        Value::String(kind) => kind.as_str(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).next().unwrap_or_default(),
        _ => "",
    };
    match kind {
        "string" => Shape::Text,
        "integer" => Shape::Number,
        "boolean" => Shape::Truth,
        "array" => Shape::Texts,
        _ => Shape::Json,
    }
}

fn single(shape: Shape, key: &str, value: &[u8]) -> Result<Value, WireError> {
    let as_text = || String::from_utf8_lossy(value).into_owned();
    let wrong = |what: &str| WireError::invalid_params(format!("{key:?} is not {what}"));
    match shape {
        Shape::Text | Shape::Texts => Ok(text(value)),
        Shape::Number => as_text().parse::<u64>().map(Value::from).map_err(|_| wrong("a number")),
        Shape::Truth => as_text().parse::<bool>().map(Value::from).map_err(|_| wrong("a truth")),
        Shape::Json => serde_json::from_str(&as_text()).map_err(|_| wrong("JSON")),
    }
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "bytes": bytes }),
    }
}

/// Decodes percent escapes and `+`.
pub(crate) fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3);
        // `from_str_radix` accepts a sign.
        let hex = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, escaped) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
        at += 1;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, query: &str, expected: &Value) {
        let params = Queries::new().read(method, query).unwrap();
        let value = |text| serde_json::from_str(text).unwrap();
        let read: Map<String, Value> =
            params.iter().map(|(name, text)| (name.to_owned(), value(text))).collect();
        assert_eq!(Value::Object(read), *expected);
    }

    #[test]
    fn parameters_are_read_as_their_schema_says() {
        check("timeline", "", &json!({}));
        check("timeline", "session=7&limit=7&files=0", &json!({"session":"7","limit":7,"files":0}));
        check("show", "hash=ab&path=a%20b+c", &json!({"hash":"ab","path":"a b c"}));
        check("show", "path=%ff%fe", &json!({"path":{"bytes":[255,254]}}));
        check(
            "diff",
            "from=1&to=2&paths=a&paths=b",
            &json!({"from":"1","to":"2","paths":["a","b"]}),
        );
        check("step_changes", r#"of={"session":"s"}"#, &json!({"of":{"session":"s"}}));
        check("patch", "hash=1&relative=true", &json!({"hash":"1","relative":true}));
        check("status", "unknown=1", &json!({"unknown":"1"}));
    }

    #[test]
    fn values_of_the_wrong_type_are_refused() {
        let queries = Queries::new();
        for (method, query) in [
            ("timeline", "limit=x"),
            ("timeline", "limit=-1"),
            ("timeline", "session=a&session=b"),
            ("step_changes", "of={"),
            ("patch", "relative=yes"),
        ] {
            assert_eq!(queries.read(method, query).unwrap_err().kind, "invalid_params", "{query}");
        }
    }

    #[test]
    fn percent_escapes_decode_to_bytes() {
        assert_eq!(decoded("a%41%zz%4"), b"aA%zz%4");
        assert_eq!(decoded("%+1%-1% 1"), b"% 1%-1% 1");
        assert_eq!(decoded("%E2%82%AC"), "€".as_bytes());
    }
}
