//! What listeners hear.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, step};

/// Hears events.
struct Ear {
    lines: BufReader<TcpStream>,
}

impl Ear {
    fn new(lab: &Lab, lines: &str) -> Ear {
        let mut stream = lab.connect();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!("GET {} HTTP/1.1\r\n{}{lines}\r\n", lab.at("events"), lab.head());
        stream.write_all(request.as_bytes()).unwrap();
        let mut ear = Ear { lines: BufReader::new(stream) };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ear.lines.read_line(&mut head).unwrap();
        }
        assert!(head.contains("text/event-stream"), "{head}");
        ear
    }

    /// The next event: its name, its id, its data.
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
fn an_operation_is_told_once_it_is_recorded() {
    let lab = Lab::new();
    let mut ear = Ear::new(&lab, "");
    let (name, _, hello) = ear.next();
    assert_eq!(name, "hello");
    let newest = lab.get(&lab.at("timeline?limit=1")).json()["operations"][0].clone();
    assert_eq!(hello["newest"], newest["operation"]);
    step(&lab.workspace(), "s2", "m2", || {
        std::fs::write(lab.root().join("c.txt"), "three\n").unwrap();
    });
    let recorded = Instant::now();
    let (id, data) = ear.next_operation();
    assert!(recorded.elapsed() < Duration::from_secs(5), "{:?}", recorded.elapsed());
    let newest = lab.get(&lab.at("timeline?limit=1&files=20")).json()["operations"][0].clone();
    assert_eq!(data, newest, "the same as the timeline has it");
    assert_eq!(newest["operation"], id);
}

#[test]
fn who_is_at_work_is_told() {
    let lab = Lab::new();
    let mut ear = Ear::new(&lab, "");
    assert_eq!(ear.next().0, "hello");
    let begun = lab.method("begin_step", &json!({ "session": "s5", "tool": "bash" })).json();
    let open = loop {
        if let (name, _, data) = ear.next()
            && name == "open_steps"
        {
            break data;
        }
    };
    assert_eq!(open["steps"][0]["tool"], "bash");
    assert_eq!(open["steps"][0]["step"], begun["step"]);
    assert_eq!(lab.method("end_step", &json!({ "step": begun["step"] })).status, 200);
    let (name, _, closed) = ear.next();
    assert_eq!((name.as_str(), &closed["steps"]), ("open_steps", &json!([])));
}

#[test]
fn whoever_comes_back_hears_what_was_missed() {
    let lab = Lab::new();
    let last = lab.get(&lab.at("timeline?limit=1")).json()["operations"][0]["operation"].clone();
    for number in 0..12 {
        step(&lab.workspace(), "s2", &format!("m{number}"), || {
            std::fs::write(lab.root().join("c.txt"), format!("{number}\n")).unwrap();
        });
    }
    let mut ear = Ear::new(&lab, &format!("Last-Event-ID: {}\r\n", last.as_str().unwrap()));
    let heard: Vec<String> = (0..12).map(|_| ear.next_operation().0).collect();
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
fn a_work_tree_without_a_log_is_heard_when_it_has_one() {
    let lab = Lab::new();
    let other = lab.dir.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let project = lab.add_through_socket(&other);
    let mut stream = lab.connect();
    let request = format!("GET /v1/projects/{project}/events HTTP/1.1\r\n{}\r\n", lab.head());
    stream.write_all(request.as_bytes()).unwrap();
    let mut ear = Ear { lines: BufReader::new(stream) };
    assert_eq!(ear.next().2["newest"], Value::Null);
    std::fs::write(other.join("x"), "1").unwrap();
    let track = lab.post(&format!("/v1/projects/{project}/track"), &json!({}));
    assert_eq!(track.status, 200, "{track:?}");
    let (_, data) = ear.next_operation();
    assert_eq!(data["kind"], "baseline");
}

#[test]
fn a_listener_costs_nothing_while_nothing_happens() {
    let lab = Lab::new();
    let mut ears: Vec<Ear> = (0..5).map(|_| Ear::new(&lab, "")).collect();
    for ear in &mut ears {
        assert_eq!(ear.next().0, "hello");
    }
    let looks = || lab.get("/v1/server").json()["looks"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let before = looks();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(looks(), before, "nobody looked");
    step(&lab.workspace(), "s2", "m2", || {
        std::fs::write(lab.root().join("c.txt"), "three\n").unwrap();
    });
    for ear in &mut ears {
        ear.next_operation();
    }
    assert!(looks() <= before + 6, "one look for all, not one for each: {}", looks() - before);
}
