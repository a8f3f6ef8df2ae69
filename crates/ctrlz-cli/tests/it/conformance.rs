//! Runs the conformance suite of the clients against `ctrlz rpc` and `ctrlz serve`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::runner::{Server, Then};
use crate::bench::Bench;
use crate::rpc_client::Client;

#[path = "../../../../clients/conformance/runner.rs"]
mod runner;

/// A separate `ctrlz rpc` process for each vector, with its own home directory.
struct Rpc {
    client: Client,
    _home: Bench,
}

impl Server for Rpc {
    fn call(&mut self, method: &str, params: &Value) -> Option<Result<Value, Value>> {
        let id = self.client.ask(method, params);
        let answer = self.client.answer(id);
        Some(match answer.get("result") {
            Some(result) => Ok(result.clone()),
            None => Err(answer["error"]["data"].clone()),
        })
    }
}

#[test]
fn every_conformance_vector_passes_over_rpc() {
    // The results of `ctrlz rpc` are the reference for all other clients.
    let update = std::env::var_os("UPDATE_CONFORMANCE").is_some();
    runner::run_all(if update { Then::Keep } else { Then::Compare }, |_| {
        let home = Bench::new();
        Rpc { client: Client::start(&home), _home: home }
    });
}

/// A running `ctrlz serve`, called over TCP.
struct Http {
    child: Child,
    lab: PathBuf,
    address: String,
    token: String,
    project: String,
    _home: Bench,
}

impl Http {
    fn start(lab: &Path) -> Http {
        let home = Bench::new();
        let mut command = home.command(&["serve", "--port", "0"]);
        command.current_dir(lab.join("tree")).env("CTRLZ_DATA_DIR", lab.join("data"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let files = lab.join("data/serve");
        let url = wait_for(&files.join("url"));
        let address = url.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        let token = wait_for(&files.join("token")).trim().to_owned();
        let lab = lab.to_owned();
        let mut http = Http { child, lab, address, token, project: String::new(), _home: home };
        let projects = http.ask("GET", "/v1/projects", None).unwrap();
        http.project = projects["projects"][0]["project"].as_str().unwrap().to_owned();
        http
    }

    fn ask(&self, verb: &str, path: &str, body: Option<&Value>) -> Result<Value, Value> {
        let Http { address, token, .. } = self;
        let body = body.map(Value::to_string).unwrap_or_default();
        let about = match verb {
            "POST" => {
                format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
            }
            _ => String::new(),
        };
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{verb} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             {about}Connection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let found: Value = serde_json::from_slice(&answer[end..]).unwrap();
        match found.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(found),
        }
    }

    fn post(&self, method: &str, params: &Value) -> Result<Value, Value> {
        self.ask("POST", &format!("/v1/projects/{}/{method}", self.project), Some(params))
    }

    /// Makes a plan first, because HTTP requests that change files require one.
    fn with_plan(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let plan = self.post(&format!("plan_{method}"), params)?;
        let hash = plan.get("plan").unwrap_or(&plan["hash"]).clone();
        let mut params = params.clone();
        params["plan"] = hash;
        self.post(method, &params)
    }
}

impl Server for Http {
    fn call(&mut self, method: &str, params: &Value) -> Option<Result<Value, Value>> {
        const BY_PLAN: [&str; 7] =
            ["restore", "revert", "recover", "undo", "redo", "revert_to", "unrevert"];
        let mut params = params.as_object().unwrap().clone();
        // The URL selects the work tree, and parameters cannot name another one.
        let dir = params.remove("dir") == Some(json!(self.lab.join("tree")));
        let data_dir = params.remove("data_dir") == Some(json!(self.lab.join("data")));
        let elsewhere = ["store", "work_tree", "into"].iter().any(|key| params.contains_key(*key));
        // The HTTP server checks the confirmation before the path, with a message of its own.
        let unconfirmed = method == "purge" && !params.contains_key("confirm");
        if !dir || !data_dir || elsewhere || unconfirmed {
            return None;
        }
        if method == "release_session" {
            params.insert("confirm".into(), true.into());
        }
        let planned = params.contains_key("plan") || !BY_PLAN.contains(&method);
        let params = Value::Object(params);
        Some(if planned { self.post(method, &params) } else { self.with_plan(method, &params) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // Errors are ignored: the process may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until a file has content and returns its text.
fn wait_for(path: &Path) -> String {
    let start = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(start.elapsed() < Duration::from_secs(60), "no {}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_conformance_vector_passes_over_http() {
    runner::run_all(Then::Compare, Http::start);
}
