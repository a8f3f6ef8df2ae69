//! JSON-RPC 2.0 messages: parses requests and formats responses.

use std::fmt;

use ctrlz_api::WireError;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Id of a request: its original text, and the parsed value that ids are compared by.
#[derive(Clone, Debug)]
pub(super) struct Id {
    pub(super) text: String,
    pub(super) value: Value,
}

impl Id {
    /// Returns the id for the response to a request whose id could not be read.
    pub(super) fn null() -> Id {
        Id { text: "null".into(), value: Value::Null }
    }

    fn parse(raw: &RawValue) -> Option<Id> {
        const MAX_BYTES: usize = 1024;
        let text = raw.get();
        let value: Value =
            if text.len() > MAX_BYTES { return None } else { serde_json::from_str(text).ok()? };
        let allowed = matches!(value, Value::String(_) | Value::Number(_) | Value::Null);
        allowed.then(|| Id { text: text.to_owned(), value })
    }
}

/// A request, or a notification if it has no id.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) id: Option<Id>,
    pub(super) method: String,
    /// Parameters as JSON; `null` if there are none.
    pub(super) params: &'a str,
}

/// An invalid request, with the id for the error response.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) id: Id,
    pub(super) error: Box<WireError>,
}

impl Refused {
    fn new(id: Id, kind: &'static str, why: impl Into<String>) -> Refused {
        Refused { id, error: Box::new(WireError::new(kind, why)) }
    }
}

/// Content of one line.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Single(Result<Request<'a>, Refused>),
    Batch(Vec<Result<Request<'a>, Refused>>),
    /// The line is blank.
    Empty,
}

/// Parses one line.
pub(super) fn parse(line: &[u8]) -> Message<'_> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Message::Empty;
    }
    let refuse = |kind, why: String| Message::Single(Err(Refused::new(Id::null(), kind, why)));
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => return refuse("parse_error", format!("the line is not UTF-8: {error}")),
    };
    if !text.starts_with('[') {
        return Message::Single(parse_request(text));
    }
    match serde_json::from_str::<Items<'_>>(text) {
        Ok(Items(items)) if items.is_empty() => {
            refuse("invalid_request", "the batch is empty".into())
        }
        Ok(Items(items)) => {
            Message::Batch(items.into_iter().map(|item| parse_request(item.get())).collect())
        }
        Err(error) if error.is_data() => refuse("too_large", error.to_string()),
        Err(error) => refuse("parse_error", error.to_string()),
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Reads a value that is present, including `null`: a `null` id is not a missing id.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn parse_request(text: &str) -> Result<Request<'_>, Refused> {
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        let kind = if error.is_data() { "invalid_request" } else { "parse_error" };
        Refused::new(Id::null(), kind, error.to_string())
    })?;
    let id = match envelope.id.map(Id::parse) {
        None => None,
        Some(Some(id)) => Some(id),
        Some(None) => {
            let why = "an id is a string, a number or null, and of at most 1024 bytes";
            return Err(Refused::new(Id::null(), "invalid_request", why));
        }
    };
    let refuse = |why| Refused::new(id.clone().unwrap_or_else(Id::null), "invalid_request", why);
    let string = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    if envelope.jsonrpc.and_then(string).as_deref() != Some("2.0") {
        return Err(refuse("\"jsonrpc\" is not \"2.0\""));
    }
    let Some(method) = envelope.method.and_then(string) else {
        return Err(refuse("\"method\" is not a string"));
    };
    let params = envelope.params.map_or("null", RawValue::get);
    Ok(Request { id, method, params })
}

/// Upper bound on the requests in one batch.
pub(super) const MAX_BATCH: usize = 1000;

/// Elements of an array, as unparsed JSON.
struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<'a>, D::Error> {
        struct ItemsVisitor;
        impl<'de> Visitor<'de> for ItemsVisitor {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Items<'de>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = sequence.next_element()? {
                    if items.len() == MAX_BATCH {
                        let why = format!("a batch holds at most {MAX_BATCH} requests");
                        return Err(A::Error::custom(why));
                    }
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

/// Returns the response to a request that succeeded. `result` is JSON.
pub(super) fn success(id: &Id, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.text)
}

/// Returns the response to a request that failed.
pub(super) fn failure(id: &Id, error: &WireError) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        code: i32,
        message: &'a str,
        data: &'a WireError,
    }
    let body = Body { code: error.code(), message: &error.message, data: error };
    let body = serde_json::to_string(&body).expect("plain data has a JSON form");
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{body}}}"#, id.text)
}

/// Returns a message that expects no response.
pub(super) fn notification(method: &str, params: &impl Serialize) -> String {
    let params = serde_json::to_string(params).expect("plain data has a JSON form");
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parsing_arbitrary_lines_never_panics() {
        let seeds = [
            r#"{"jsonrpc":"2.0","id":1,"method":"track","params":{"dir":"/p","progress":true}}"#,
            r#"[{"jsonrpc":"2.0","method":"cancel","params":{"id":"a"}},{"jsonrpc":"2.0","id":null}]"#,
        ];
        let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
        xtask::feed("rpc", &seeds, xtask::sized(2_000, 200_000), |line| drop(parse(line)));
    }

    #[track_caller]
    fn check_refused(line: &[u8], kind: &str, id: &str) {
        match parse(line) {
            Message::Single(Err(refused)) => {
                assert_eq!((refused.error.kind, refused.id.text.as_str()), (kind, id));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn invalid_requests_are_refused_with_their_error_kind() {
        check_refused(b"{", "parse_error", "null");
        check_refused(b"\xff", "parse_error", "null");
        check_refused(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"} x", "parse_error", "null");
        check_refused(b"1", "invalid_request", "null");
        check_refused(b"{}", "invalid_request", "null");
        check_refused(b"[]", "invalid_request", "null");
        check_refused(br#"{"jsonrpc":"1.0","id":7,"method":"a"}"#, "invalid_request", "7");
        check_refused(br#"{"jsonrpc":"2.0","id":"x","method":1}"#, "invalid_request", "\"x\"");
        check_refused(br#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "invalid_request", "null");
        check_refused(br#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "invalid_request", "null");
        check_refused(br#"{"id":1,"id":2}"#, "invalid_request", "null");
        let many = format!("[{}1]", "1,".repeat(MAX_BATCH));
        check_refused(many.as_bytes(), "too_large", "null");
    }

    #[test]
    fn a_null_id_is_not_a_missing_id() {
        let id = |line: &'static str| match parse(line.as_bytes()) {
            Message::Single(Ok(request)) => request.id.map(|id| id.text),
            other => panic!("{other:?}"),
        };
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#).as_deref(), Some("null"));
        assert_eq!(id(r#"{"jsonrpc":"2.0","method":"a"}"#), None);
        let large = r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"a"}"#;
        assert_eq!(id(large).as_deref(), Some("123456789012345678901234567890"));
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = "[".repeat(1 << 20);
        check_refused(deep.as_bytes(), "parse_error", "null");
        let params = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}{}}}"#,
            "[".repeat(1 << 20),
            "]".repeat(1 << 20)
        );
        // Accepting and refusing it are both fine, as long as there is a response.
        assert!(matches!(parse(params.as_bytes()), Message::Single(_)));
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            match parse(&bytes) {
                Message::Single(Err(refused)) => {
                    let answer = failure(&refused.id, &refused.error);
                    prop_assert!(serde_json::from_str::<Value>(&answer).is_ok());
                }
                Message::Single(Ok(_)) | Message::Batch(_) | Message::Empty => (),
            }
        }

        #[test]
        fn any_request_round_trips(method in ".{0,20}", number in any::<i64>(), text in ".{0,20}") {
            for id in [Value::from(number), Value::from(text.clone()), Value::Null] {
                let line = serde_json::json!({
                    "jsonrpc": "2.0", "id": id, "method": method, "params": { "x": text },
                }).to_string();
                let Message::Single(Ok(request)) = parse(line.as_bytes()) else {
                    panic!("{line}");
                };
                prop_assert_eq!(&request.method, &method);
                let found = request.id.unwrap();
                prop_assert_eq!(&found.value, &id);
                let answer: Value = serde_json::from_str(&success(&found, request.params)).unwrap();
                prop_assert_eq!(&answer["id"], &id);
                prop_assert_eq!(answer["result"]["x"].as_str(), Some(text.as_str()));
            }
        }
    }
}
