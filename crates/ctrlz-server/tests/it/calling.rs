//! Methods over HTTP: plans, paging, entity tags, streams, idempotency keys and locks.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, exchange, step};

#[test]
fn every_method_is_served_at_its_route() {
    let lab = Lab::new();
    for method in ctrlz_api::METHODS.iter() {
        let reply = lab.method(method.name, &json!({}));
        assert!(reply.status < 500, "{} {}", method.name, reply.head);
        assert_ne!(reply.kind_or_none(), "no_such_route", "{}", method.name);
        assert!(reply.json().is_object(), "{}", method.name);
    }
}

impl crate::lab::Reply {
    fn kind_or_none(&self) -> String {
        if self.status < 400 { String::new() } else { self.kind() }
    }
}

#[test]
fn an_undo_is_planned_then_done_then_redone() {
    let lab = Lab::new();
    let plan = lab.method("plan_undo", &json!({ "scope": "last_turn" })).json();
    assert_eq!(plan["done"].as_array().unwrap().len(), 2, "{plan}");
    assert_eq!(lab.read("a.txt"), "one\ntwo\n", "only planned");
    let done = lab.method("undo", &json!({ "plan": plan["plan"] }));
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\n", "(none)"));
    let plan = lab.method("plan_redo", &json!({})).json();
    assert_eq!(lab.method("apply", &json!({ "plan": plan["plan"] })).status, 200);
    assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\ntwo\n", "new\n"));
}

#[test]
fn a_stale_plan_changes_nothing() {
    let lab = Lab::new();
    let plan = lab.method("plan_undo", &json!({})).json();
    std::fs::write(lab.root().join("a.txt"), "somebody else\n").unwrap();
    let late = lab.method("apply", &json!({ "plan": plan["plan"] }));
    assert_eq!((late.status, late.kind().as_str()), (409, "stale_plan"));
    assert_eq!(lab.read("a.txt"), "somebody else\n");
    assert_eq!(lab.read("b.txt"), "new\n");
}

#[test]
fn restore_executes_its_plan() {
    let lab = Lab::new();
    let first = lab.workspace().log(10).unwrap().last().unwrap().snapshot.to_string();
    let request = json!({ "hash": first, "exact": true });
    let plan = lab.method("plan_restore", &request).json();
    let mut request = request;
    request["plan"] = plan["hash"].clone();
    let report = lab.method("restore", &request);
    assert_eq!(report.status, 200, "{report:?}");
    assert_eq!((lab.read("a.txt").as_str(), lab.read("b.txt").as_str()), ("one\n", "(none)"));
}

#[test]
fn a_locked_work_tree_is_busy_and_names_the_lock_holder() {
    let lab = Lab::new();
    let held = lab.workspace().signs().unwrap().unwrap().open_steps.with_file_name("lock");
    let lock = std::fs::File::options().read(true).write(true).open(held).unwrap();
    lock.lock().unwrap();
    lock.set_len(0).unwrap();
    (&lock).write_all(b"process 4711").unwrap();
    let reply = lab.method("track", &json!({ "options": { "patience_millis": 20 } }));
    assert_eq!((reply.status, reply.kind().as_str()), (409, "busy"));
    assert_eq!(reply.json()["error"]["details"]["holder"], "process 4711");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(lab.get(&lab.at("timeline")).status, 200, "reading does not wait");
}

#[test]
fn long_lists_are_paged() {
    let lab = Lab::new();
    for number in 0..25 {
        step(&lab.workspace(), "s2", &format!("n{number}"), || {
            std::fs::write(lab.root().join("count.txt"), format!("{number}\n")).unwrap();
        });
    }
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let page = lab.get(&lab.at(&format!("timeline?limit=7&session=s2{before}"))).json();
        let operations = page["operations"].as_array().unwrap();
        assert!(operations.len() <= 7);
        seen.extend(operations.iter().map(|one| one["operation"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 25);
    assert!(seen.is_sorted_by(|one, other| one > other), "newest first, each once");
    let page = lab.get(&lab.at("steps?session=s2&offset=20&limit=3")).json();
    assert_eq!((&page["total"], &page["next"]), (&json!(25), &json!(23)));
}

#[test]
fn immutable_responses_have_a_permanent_etag() {
    let lab = Lab::new();
    let log = lab.workspace().log(10).unwrap();
    let (to, from) = (log[0].snapshot, log.last().unwrap().snapshot);
    for query in [
        format!("diff?from={from}&to={to}"),
        format!("diff_full?from={from}&to={to}"),
        format!("changes?from={from}&to={to}"),
        format!("patch?hash={from}&to={to}"),
        format!("list_files?hash={to}"),
        format!("show?hash={to}&path=a.txt"),
    ] {
        let first = lab.get(&lab.at(&query));
        assert_eq!(first.status, 200, "{query} {first:?}");
        let tag = first.header("etag").unwrap().to_owned();
        step(&lab.workspace(), "s9", &query, || {
            std::fs::write(lab.root().join("c.txt"), &query).unwrap();
        });
        let lines = format!("{}If-None-Match: {tag}\r\n", lab.head());
        let again = lab.ask("GET", &lab.at(&query), &lines, "");
        assert_eq!((again.status, again.body.len()), (304, 0), "{query}");
    }
}

#[test]
fn the_etag_of_purged_content_is_no_longer_valid() {
    let lab = Lab::new();
    let hash = lab.workspace().log(1).unwrap()[0].snapshot;
    let query = lab.at(&format!("show?hash={hash}&path=a.txt"));
    let tag = lab.get(&query).header("etag").unwrap().to_owned();
    let purged = lab.method("purge", &json!({ "path": "a.txt", "confirm": true }));
    assert_eq!(purged.status, 200, "{purged:?}");
    let lines = format!("{}If-None-Match: {tag}\r\n", lab.head());
    let again = lab.ask("GET", &query, &lines, "");
    assert_eq!((again.status, again.kind().as_str()), (410, "purged"));
}

#[test]
fn mutable_responses_have_an_etag_of_their_content() {
    let lab = Lab::new();
    let first = lab.get(&lab.at("timeline"));
    let tag = first.header("etag").unwrap().to_owned();
    let lines = format!("{}If-None-Match: {tag}\r\n", lab.head());
    assert_eq!(lab.ask("GET", &lab.at("timeline"), &lines, "").status, 304);
    step(&lab.workspace(), "s2", "m2", || {
        std::fs::write(lab.root().join("c.txt"), "three\n").unwrap();
    });
    assert_eq!(lab.ask("GET", &lab.at("timeline"), &lines, "").status, 200);
}

#[test]
fn a_large_diff_is_streamed_completely() {
    let lab = Lab::new();
    let before = lab.workspace().log(1).unwrap()[0].snapshot;
    for number in 0..300 {
        let text = format!("{number} line\n").repeat(2000);
        std::fs::write(lab.root().join(format!("large{number}.txt")), text).unwrap();
    }
    std::fs::write(lab.root().join("latin.txt"), b"caf\xe9\n").unwrap();
    let after = lab.method("track", &json!({})).json()["hash"].as_str().unwrap().to_owned();
    let patch = lab.get(&lab.at(&format!("diff.patch?from={before}&to={after}")));
    assert_eq!(patch.header("content-type"), Some("text/x-diff; charset=utf-8"));
    assert_eq!(patch.header("transfer-encoding"), Some("chunked"));
    let text = String::from_utf8_lossy(&patch.body).into_owned();
    assert_eq!(text.matches("diff --git ").count(), 301);
    assert!(patch.body.windows(5).any(|bytes| bytes == b"caf\xe9\n"), "bytes are verbatim");
    let lines = lab.get(&lab.at(&format!("diff_full.ndjson?from={before}&to={after}")));
    let files: Vec<Value> = String::from_utf8(lines.body)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(files.len(), 301);
    assert_eq!(files[0]["additions"], 2000);
    let wrong = lab.get(&lab.at(&format!("diff.patch?from={before}&to={before}0")));
    assert_eq!((wrong.status, wrong.kind().as_str()), (400, "not_a_hash"));
    let only = lab.get(&lab.at(&format!("diff.patch?from={before}&to={after}&paths=large7.txt")));
    assert_eq!(String::from_utf8_lossy(&only.body).matches("diff --git ").count(), 1);
}

#[test]
fn a_repeated_request_with_an_idempotency_key_is_executed_once() {
    let lab = Lab::new();
    let plan = lab.method("plan_undo", &json!({})).json()["plan"].clone();
    let lines =
        format!("{}Content-Type: application/json\r\nIdempotency-Key: retry-1\r\n", lab.head());
    let body = json!({ "plan": plan }).to_string();
    let first = lab.ask("POST", &lab.at("apply"), &lines, &body);
    assert_eq!(first.status, 200, "{first:?}");
    let operations = lab.state().0;
    std::fs::write(lab.root().join("a.txt"), "mine\n").unwrap();
    let second = lab.ask("POST", &lab.at("apply"), &lines, &body);
    assert_eq!(second.body, first.body, "the same answer");
    assert_eq!((lab.state().0, lab.read("a.txt").as_str()), (operations, "mine\n"), "done once");
    let other = lab.ask("POST", &lab.at("apply"), &lines, &json!({ "plan": "0" }).to_string());
    assert_eq!((other.status, other.kind().as_str()), (422, "key_reused"));
    let elsewhere = lab.ask("POST", &lab.at("track"), &lines, "{}");
    assert_eq!(elsewhere.status, 200, "a key applies to one route");
}

#[test]
fn the_idempotency_key_of_a_failed_request_can_be_reused() {
    let lab = Lab::new();
    let lines = format!("{}Content-Type: application/json\r\nIdempotency-Key: k\r\n", lab.head());
    let hash = json!({ "step": "not-yet" }).to_string();
    assert_eq!(lab.ask("POST", &lab.at("end_step"), &lines, &hash).status, 404);
    let begun = lab.method("begin_step", &json!({ "session": "s3", "step": "not-yet" }));
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(lab.ask("POST", &lab.at("end_step"), &lines, &hash).status, 200);
}

#[test]
fn concurrent_requests_with_one_idempotency_key_are_executed_once() {
    let lab = Lab::new();
    let plan = lab.method("plan_undo", &json!({})).json()["plan"].clone();
    let body = json!({ "plan": plan }).to_string();
    let lines =
        format!("{}Content-Type: application/json\r\nIdempotency-Key: same\r\n", lab.head());
    let answers: Vec<(u16, Vec<u8>)> = std::thread::scope(|scope| {
        let ask = || {
            let reply = lab.ask("POST", &lab.at("apply"), &lines, &body);
            (reply.status, reply.body)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(answers[0].0, 200);
    let undos = lab.get(&lab.at("timeline")).json();
    let undos = undos["operations"].as_array().unwrap().iter();
    assert_eq!(undos.filter(|one| one["kind"] == "undo").count(), 1);
}

#[test]
fn an_undo_is_never_partial_when_its_client_disconnects() {
    let lab = Lab::new();
    let plan = lab.method("plan_undo", &json!({})).json()["plan"].clone();
    let body = json!({ "plan": plan }).to_string();
    let mut stream = lab.connect();
    let request = format!(
        "POST {} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        lab.at("apply"),
        lab.head(),
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    drop(stream);
    let start = Instant::now();
    let is_recorded = || {
        let log = lab.get(&lab.at("timeline?limit=1")).json();
        log["operations"][0]["kind"] == "undo"
    };
    // The client may disconnect before the server has read the request; then nothing changes.
    while !is_recorded() && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let files = (lab.read("a.txt"), lab.read("b.txt"));
    if is_recorded() {
        assert_eq!(files, ("one\n".into(), "(none)".into()));
    } else {
        assert_eq!(files, ("one\ntwo\n".into(), "new\n".into()));
    }
}

#[test]
fn many_clients_at_once_are_all_answered() {
    let mut row = xtask::Row::of(13, "requests by many clients at once, all answered");
    let clients = xtask::sized(12, 64);
    let lab = Lab::new();
    let hash = lab.workspace().log(1).unwrap()[0].snapshot;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let lab = &lab;
            scope.spawn(move || {
                for round in 0..6 {
                    let reply = match (client + round) % 6 {
                        0 => lab.method("track", &json!({})),
                        1 => lab.get(&lab.at("timeline")),
                        2 => lab.get(&lab.at(&format!("list_files?hash={hash}"))),
                        3 => lab.method("plan_undo", &json!({})),
                        4 => lab.get(&lab.at("sessions")),
                        _ => lab.get(&lab.at("status")),
                    };
                    assert_eq!(reply.status, 200, "{reply:?}");
                }
            });
        }
    });
    row.add(clients as u64 * 6);
}

#[test]
fn steps_can_be_recorded_over_http() {
    let lab = Lab::new();
    let begun = lab.method(
        "begin_step",
        &json!({ "session": "web", "message": "w1", "tool": "edit", "paths": ["a.txt"] }),
    );
    let id = begun.json()["step"].clone();
    let open = lab.get(&lab.at("open_steps")).json();
    assert_eq!(open["steps"][0]["session"], "web");
    std::fs::write(lab.root().join("a.txt"), "by the agent\n").unwrap();
    let ended = lab.method("end_step", &json!({ "step": id })).json();
    assert_eq!(ended["files"], json!(["a.txt"]));
    assert_eq!(lab.get(&lab.at("open_steps")).json()["steps"], json!([]));
    let step_changes = lab.get(&lab.at("step_changes?of=%7B%22session%22%3A%22web%22%7D")).json();
    assert_eq!(step_changes["files"][0]["path"], "a.txt");
}

#[test]
fn file_names_that_are_not_utf8_work_in_urls() {
    use std::os::unix::ffi::OsStrExt;
    let lab = Lab::new();
    let name = std::ffi::OsStr::from_bytes(b"n\xff.txt");
    std::fs::write(lab.root().join(name), "bytes\n").unwrap();
    let hash = lab.method("track", &json!({})).json()["hash"].as_str().unwrap().to_owned();
    let reply = lab.get(&lab.at(&format!("file?hash={hash}&path=n%ff.txt")));
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"bytes\n"[..]));
}

#[test]
fn a_removed_work_tree_is_reported_as_missing() {
    let lab = Lab::new();
    std::fs::rename(lab.root(), lab.dir.path().join("moved")).unwrap();
    let reply = lab.get(&lab.at("timeline"));
    assert_eq!((reply.status, reply.kind().as_str()), (404, "no_such_project"));
    assert_eq!(lab.get("/v1/projects").json()["projects"][0]["present"], false);
}

#[test]
fn several_requests_share_a_connection() {
    let lab = Lab::new();
    let one = format!("GET /v1/projects HTTP/1.1\r\n{}\r\n", lab.head());
    let last = format!("GET /v1/server HTTP/1.1\r\n{}Connection: close\r\n\r\n", lab.head());
    let reply = exchange(lab.connect(), format!("{one}{one}{last}").as_bytes()).unwrap();
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
}
