//! A client of `ctrlz rpc`, and a schema checker for its responses.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::Bench;

/// Timeout for a response or an exit, generous enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running `ctrlz rpc`. Everything it prints must be JSON.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    next_id: u64,
    /// Messages that arrived while waiting for another one.
    early: Vec<Value>,
}

impl Client {
    pub(crate) fn start(bench: &Bench) -> Client {
        Client::start_with(bench, &["rpc"])
    }

    pub(crate) fn start_with(bench: &Bench, words: &[&str]) -> Client {
        let mut command = bench.command(words);
        command.env("RUST_BACKTRACE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Client { child, stdin, lines, next_id: 1, early: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends a request without waiting and returns its id.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(format!("{line}\n").as_bytes());
        id
    }

    /// Returns the next message.
    #[track_caller]
    pub(crate) fn read(&mut self) -> Value {
        let line = self.lines.recv_timeout(TIMEOUT).expect("a message arrives in time");
        let message: Value = serde_json::from_str(&line).expect("only JSON is printed");
        message
    }

    /// Returns whether no message arrives within 200 ms.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(200)).is_err()
    }

    /// Returns the response with this id. Other messages are kept for later.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let is_it = |message: &Value| message["id"] == id;
        if let Some(at) = self.early.iter().position(is_it) {
            return self.early.remove(at);
        }
        loop {
            let message = self.read();
            if is_it(&message) {
                return message;
            }
            self.early.push(message);
        }
    }

    /// Sends a request and returns its result.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "every call makes its parameters in place")]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, &params);
        let answer = self.answer(id);
        assert_eq!(answer.get("error"), None, "{method} {params}");
        answer["result"].clone()
    }

    /// Sends a request that must fail with this kind, and returns the data of the error.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "every call makes its parameters in place")]
    pub(crate) fn fails(&mut self, method: &str, params: Value, kind: &str) -> Value {
        let id = self.ask(method, &params);
        let answer = self.answer(id);
        let error = &answer["error"];
        assert_eq!(error["data"]["kind"], kind, "{method} {params}: {answer}");
        assert!(error["code"].is_i64() && error["message"].is_string(), "{answer}");
        error["data"].clone()
    }

    /// Closes the input and waits for the exit. Returns the status and the remaining messages.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<Value>) {
        drop(self.stdin.take());
        let status = self.wait();
        let rest = self.lines.iter().map(|line| serde_json::from_str(&line).unwrap());
        (status, self.early.drain(..).chain(rest).collect())
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(start.elapsed() < TIMEOUT, "the server does not exit"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Errors are ignored: the process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The checked-in schema. Only the keywords that it uses are checked.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn read() -> Schema {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/ctrlz.schema.json");
        Schema(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Checks a result against the schema.
    #[track_caller]
    pub(crate) fn check_result(&self, method: &str, result: &Value) {
        let schema = &self.0["methods"][method]["result"];
        assert!(schema.is_object(), "the schema lacks {method}");
        if let Err(why) = self.check(schema, result) {
            panic!("the result of {method} does not match the schema: {why}\n{result:#}");
        }
    }

    /// Checks the output of a command that corresponds to no method.
    #[track_caller]
    pub(crate) fn check_command(&self, command: &str, printed: &Value) {
        let schema = &self.0["commands"][command];
        assert!(schema.is_object(), "the schema lacks {command}");
        if let Err(why) = self.check(schema, printed) {
            panic!("the output of {command} does not match the schema: {why}\n{printed:#}");
        }
    }

    /// Checks that the schema allows a request.
    #[track_caller]
    pub(crate) fn check_params(&self, method: &str, params: &Value) {
        let schema = &self.0["methods"][method]["params"];
        let named = |part: &Value| {
            let name = part["$ref"].as_str().unwrap().trim_start_matches("#/$defs/");
            self.0["$defs"][name].clone()
        };
        let parts: Vec<Value> = match schema["allOf"].as_array() {
            Some(parts) => parts.iter().map(named).collect(),
            None => vec![schema.clone()],
        };
        let known = parts.iter().filter_map(|part| part["properties"].as_object()).flatten();
        let known: serde_json::Map<String, Value> =
            known.map(|(key, part)| (key.clone(), part.clone())).collect();
        let required = parts.iter().filter_map(|part| part["required"].as_array()).flatten();
        let required: Vec<Value> = required.cloned().collect();
        let whole = json!({ "type": "object", "properties": known, "required": required });
        if let Err(why) = self.check(&whole, params) {
            panic!("the schema refuses parameters of {method}: {why}\n{params:#}");
        }
    }

    #[track_caller]
    pub(crate) fn check_error(&self, error: &Value) {
        if let Err(why) = self.check(&self.0["error"], error) {
            panic!("an error does not match the schema: {why}\n{error:#}");
        }
    }

    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.trim_start_matches("#/$defs/");
            self.check(&self.0["$defs"][name], value).map_err(|why| format!("{name}: {why}"))?;
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(options) = schema[key].as_array() {
                let tried: Vec<_> = options.iter().map(|one| self.check(one, value)).collect();
                if tried.iter().all(Result::is_err) {
                    return Err(format!("none of {tried:?}"));
                }
            }
        }
        if let Some(constant) = schema.get("const")
            && constant != value
        {
            return Err(format!("{value} is not {constant}"));
        }
        if let Some(options) = schema["enum"].as_array()
            && !options.contains(value)
        {
            return Err(format!("{value} is none of {options:?}"));
        }
        check_type(&schema["type"], value)?;
        self.check_parts(schema, value)
    }

    fn check_parts(&self, schema: &Value, value: &Value) -> Result<(), String> {
        for key in schema["required"].as_array().into_iter().flatten() {
            let key = key.as_str().unwrap();
            if value.is_object() && value.get(key).is_none() {
                return Err(format!("{key} is missing"));
            }
        }
        if let (Some(known), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
            for (key, field) in fields {
                match known.get(key) {
                    Some(part) => {
                        self.check(part, field).map_err(|why| format!("{key}: {why}"))?;
                    }
                    None if schema["additionalProperties"] == true => (),
                    None => return Err(format!("{key} is unknown")),
                }
            }
        }
        if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
            for value in values {
                self.check(items, value)?;
            }
        }
        Ok(())
    }
}

fn check_type(wanted: &Value, value: &Value) -> Result<(), String> {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = match wanted {
        Value::String(one) => one == found,
        Value::Array(several) => several.iter().any(|one| one == found),
        _ => true,
    };
    if fits { Ok(()) } else { Err(format!("{found} is not {wanted}")) }
}
