//! The server against input that nobody vouches for, without a process around it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{self, Cursor, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use ctrlz::{Options, Workspace};
use ctrlz_agents::rpc::Server;
use ctrlz_api::{Host, Opened, Place, WireError};
use proptest::prelude::*;
use serde_json::Value;

/// Opens one directory, or none, whatever is asked for.
struct Fixed(Option<(PathBuf, PathBuf)>);

impl Host for Fixed {
    fn open(&self, _: &Place) -> Result<Opened, WireError> {
        match &self.0 {
            Some((project, data)) => Ok(Workspace::open(project, Options::new(data))?.into()),
            None => Err(WireError::new("no_data_dir", "this host opens nothing")),
        }
    }

    fn owner(&self) -> Option<u32> {
        None
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything the server says to `input`, each line as JSON.
fn answers(host: Fixed, input: Vec<u8>) -> Vec<Value> {
    let written = Written::default();
    Server::new(written.clone(), Arc::new(host)).run(Cursor::new(input)).unwrap();
    let bytes = written.0.lock().unwrap().clone();
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Pieces that requests are made of, and pieces that they are not.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\n",
        "null",
        "-1e999",
        "\\ud800",
        r#""jsonrpc":"2.0""#,
        r#""id":1"#,
        r#""method":"status""#,
        r#""params":[1]"#,
        r#""dir":{"bytes":[255]}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"undo\",\"params\":{\"scope\":1}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"status\"}\n",
        "[{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"track\"},1]\n",
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"initialize\"}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"cancel\",\"params\":{\"id\":1}}\n",
    ];
    prop_oneof![
        4 => prop::sample::select(known.map(|text| text.as_bytes().to_vec()).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_input_is_answered_with_json_and_ends(pieces in prop::collection::vec(piece(), 0..40)) {
        for answer in answers(Fixed(None), pieces.concat()) {
            let all = match answer {
                Value::Array(answers) => answers,
                single => vec![single],
            };
            prop_assert!(!all.is_empty());
            for answer in all {
                prop_assert_eq!(&answer["jsonrpc"], "2.0");
                prop_assert!(answer.get("id").is_some());
                prop_assert!(answer.get("result").is_some() != answer.get("error").is_some());
            }
        }
    }
}

#[test]
fn everything_that_was_asked_for_is_answered_before_the_end() {
    let (project, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(project.path().join("a"), "one").unwrap();
    let request = |id: u64| {
        let method = ["track", "status", "log", "list_files"][(id % 4) as usize];
        format!("{}\n", serde_json::json!({ "jsonrpc": "2.0", "id": id, "method": method }))
    };
    let input: String = (0..50).map(request).collect();
    let host = Fixed(Some((project.path().to_owned(), data.path().to_owned())));
    let answers = answers(host, input.into_bytes());
    let mut ids: Vec<u64> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<u64>>());
    for answer in &answers {
        // `list_files` lacks its hash.
        let lacking = answer["id"].as_u64().unwrap() % 4 == 3;
        let kind = if lacking { "invalid_params" } else { "" };
        assert_eq!(answer["error"]["data"]["kind"].as_str().unwrap_or_default(), kind, "{answer}");
    }
}

/// Ends like a client that is gone.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Input that comes to no end while somebody holds the other side.
struct Open(Receiver<()>, Cursor<Vec<u8>>);

impl Read for Open {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.1.read(buffer)? {
            0 => self.0.recv().map(|()| 0).map_err(io::Error::other),
            count => Ok(count),
        }
    }
}

#[test]
fn a_client_that_reads_no_more_ends_the_server() {
    let (_held, wait) = channel();
    let input = Open(wait, Cursor::new(b"nonsense\n".to_vec()));
    Server::new(Gone, Arc::new(Fixed(None))).run(input).unwrap();
}

#[test]
fn a_server_can_be_stopped_while_it_waits_for_input() {
    let (_held, wait) = channel();
    let server = Server::new(Written::default(), Arc::new(Fixed(None)));
    let stopper = server.stopper();
    std::thread::spawn(move || stopper.stop());
    server.run(Open(wait, Cursor::new(Vec::new()))).unwrap();
}
