//! The stream of events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, step};

/// A client that reads the stream of events.
struct Events {
    lines: BufReader<TcpStream>,
}

impl Events {
    fn new(lab: &Lab, lines: &str) -> Events {
        let mut stream = lab.connect();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!("GET {} HTTP/1.1\r\n{}{lines}\r\n", lab.at("events"), lab.head());
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Events { lines: BufReader::new(stream) };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            events.lines.read_line(&mut head).unwrap();
        }
        assert!(head.contains("text/event-stream"), "{head}");
        events
    }

    /// Returns the next event: its name, its id and its data.
    fn next(&mut self) -> (String, Option<String>, Value) {
        let (mut name, mut id) = (String::new(), None);
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(text) = line.strip_prefix("event: ") {
                name = text.trim().to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.trim().to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                return (name, id, serde_json::from_str(text).unwrap());
            }
        }
    }

    fn next_operation(&mut self) -> (String, Value) {
        loop {
            if let (name, Some(id), data) = self.next()
                && name == "operation"
            {
                return (id, data);
            }
        }
    }
}

#[test]
fn an_event_is_sent_when_an_operation_is_recorded() {
    let lab = Lab::new();
    let mut events = Events::new(&lab, "");
    let (name, _, hello) = events.next();
    assert_eq!(name, "hello");
    let newest = lab.get(&lab.at("timeline?limit=1")).json()["operations"][0].clone();
    assert_eq!(hello["newest"], newest["operation"]);
    step(&lab.workspace(), "s2", "m2", || {
        std::fs::write(lab.root().join("c.txt"), "three\n").unwrap();
    });
    let recorded = Instant::now();
    let (id, data) = events.next_operation();
    assert!(recorded.elapsed() < Duration::from_secs(5), "{:?}", recorded.elapsed());
    let newest = lab.get(&lab.at("timeline?limit=1&files=20")).json()["operations"][0].clone();
    assert_eq!(data, newest, "the event equals the entry in the timeline");
    assert_eq!(newest["operation"], id);
}

#[test]
fn events_report_when_steps_begin_and_end() {
    let lab = Lab::new();
    let mut events = Events::new(&lab, "");
    assert_eq!(events.next().0, "hello");
    let begun = lab.method("begin_step", &json!({ "session": "s5", "tool": "bash" })).json();
    let open = loop {
        if let (name, _, data) = events.next()
            && name == "open_steps"
        {
            break data;
        }
    };
    assert_eq!(open["steps"][0]["tool"], "bash");
    assert_eq!(open["steps"][0]["step"], begun["step"]);
    assert_eq!(lab.method("end_step", &json!({ "step": begun["step"] })).status, 200);
    let (name, _, closed) = events.next();
    assert_eq!((name.as_str(), &closed["steps"]), ("open_steps", &json!([])));
}

#[test]
fn a_reconnecting_listener_receives_missed_operations() {
    let lab = Lab::new();
    let last = lab.get(&lab.at("timeline?limit=1")).json()["operations"][0]["operation"].clone();
    for number in 0..12 {
        step(&lab.workspace(), "s2", &format!("m{number}"), || {
            std::fs::write(lab.root().join("c.txt"), format!("{number}\n")).unwrap();
        });
    }
    let mut events = Events::new(&lab, &format!("Last-Event-ID: {}\r\n", last.as_str().unwrap()));
    let heard: Vec<String> = (0..12).map(|_| events.next_operation().0).collect();
    assert!(heard.is_sorted(), "oldest first: {heard:?}");
    let log = lab.get(&lab.at("timeline?limit=12")).json();
    let mut recorded: Vec<String> = log["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["operation"].as_str().unwrap().to_owned())
        .collect();
    recorded.reverse();
    assert_eq!(heard, recorded);
}

#[test]
fn events_start_with_the_first_operation_of_a_work_tree() {
    let lab = Lab::new();
    let other = lab.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let project = lab.add_through_socket(&other);
    let mut stream = lab.connect();
    let request = format!("GET /v1/projects/{project}/events HTTP/1.1\r\n{}\r\n", lab.head());
    stream.write_all(request.as_bytes()).unwrap();
    let mut events = Events { lines: BufReader::new(stream) };
    assert_eq!(events.next().2["newest"], Value::Null);
    std::fs::write(other.join("x"), "1").unwrap();
    let track = lab.post(&format!("/v1/projects/{project}/track"), &json!({}));
    assert_eq!(track.status, 200, "{track:?}");
    let (_, data) = events.next_operation();
    assert_eq!(data["kind"], "baseline");
}

#[test]
fn idle_listeners_do_not_read_the_log() {
    let lab = Lab::new();
    let mut streams: Vec<Events> = (0..5).map(|_| Events::new(&lab, "")).collect();
    for events in &mut streams {
        assert_eq!(events.next().0, "hello");
    }
    let looks = || lab.get("/v1/server").json()["looks"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let before = looks();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(looks(), before, "the log was not read");
    step(&lab.workspace(), "s2", "m2", || {
        std::fs::write(lab.root().join("c.txt"), "three\n").unwrap();
    });
    for events in &mut streams {
        events.next_operation();
    }
    assert!(looks() <= before + 6, "one read serves all listeners: {}", looks() - before);
}
