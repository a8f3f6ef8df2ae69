//! `ctrlz rpc` over the standard streams of the real command.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bench::{Bench, contents};
use crate::rpc_client::{Client, Schema};

/// A client that remembers the called methods and checks every result against the schema.
struct Checked {
    client: Client,
    schema: Schema,
    asked: BTreeSet<String>,
    dir: Value,
}

impl Checked {
    fn start(bench: &Bench) -> Checked {
        let dir = json!(bench.project);
        let client = Client::start(bench);
        Checked { client, schema: Schema::read(), asked: BTreeSet::new(), dir }
    }

    #[track_caller]
    fn call(&mut self, method: &str, mut params: Value) -> Value {
        if !["initialize", "shutdown"].contains(&method) {
            params["dir"] = self.dir.clone();
        }
        self.schema.check_params(method, &params);
        let result = self.client.call(method, params);
        self.schema.check_result(method, &result);
        self.asked.insert(method.to_owned());
        result
    }
}

#[test]
fn every_method_works_and_matches_the_schema() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("sub/b.txt", "b\n");
    let mut rpc = Checked::start(&bench);
    let about = rpc.call("initialize", json!({ "client": "a test" }));
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));

    let snapshot = rpc.call("track", json!({}));
    let first = snapshot["hash"].clone();
    assert_eq!((&snapshot["files"], &snapshot["complete"]), (&2.into(), &true.into()));
    bench.write("a.txt", "two\n");
    bench.write("new.txt", "n\n");

    let patch = rpc.call("patch", json!({ "hash": first }));
    let at = |name: &str| json!(bench.project.join(name));
    assert_eq!(patch["files"], json!([at("a.txt"), at("new.txt")]));
    let relative = rpc.call("patch", json!({ "hash": first, "relative": true }));
    assert_eq!(relative["files"], json!(["a.txt", "new.txt"]));
    let changes = rpc.call("changes", json!({ "from": first }));
    let second = changes["to"].clone();
    assert_eq!(changes["files"][1], json!({ "path": "new.txt", "status": "added" }));
    let between = rpc.call("patch", json!({ "hash": first, "to": second, "relative": true }));
    assert_eq!(between["files"], relative["files"]);
    let diff = rpc.call("diff", json!({ "from": first, "to": second, "paths": ["a.txt"] }));
    assert!(diff["text"].as_str().unwrap().contains("-one\n+two\n"), "{diff}");
    let full = rpc.call("diff_full", json!({ "from": first, "to": second }));
    assert_eq!(
        (&full["files"][0]["before"], &full["files"][0]["after"]),
        (&"one\n".into(), &"two\n".into())
    );

    let file = rpc.call("show", json!({ "hash": first, "path": "a.txt" }));
    assert_eq!((&file["content"], &file["encoding"]), (&"one\n".into(), &"utf-8".into()));
    assert_eq!(rpc.call("show", json!({ "hash": first }))["files"], 2);
    let file = rpc.call("get_file_at", json!({ "hash": first, "path": at("sub/b.txt") }));
    assert_eq!(file["file"]["content"], "b\n");
    let file = rpc.call("get_file_at", json!({ "hash": first, "path": "new.txt" }));
    assert_eq!((&file["presence"], &file["file"]), (&"absent".into(), &Value::Null));
    let exists = rpc.call("file_exists_at", json!({ "hash": first, "path": "a.txt" }));
    assert_eq!(exists["exists"], true);
    let files = rpc.call("list_files", json!({ "hash": first, "paths": ["sub"] }));
    assert_eq!((&files["files"][0]["path"], &files["total"]), (&"sub/b.txt".into(), &1.into()));
    assert_eq!(rpc.call("status", json!({}))["last"], second);
    assert_eq!(rpc.call("verify", json!({}))["ok"], true);

    let plan = rpc.call("plan_restore", json!({ "hash": first, "exact": true }));
    assert_eq!(plan["actions"].as_array().unwrap().len(), 2);
    let report = rpc.call("restore", json!({ "hash": first, "exact": true, "plan": plan["hash"] }));
    assert_eq!((&report["complete"], &report["after"]), (&true.into(), &first));
    assert_eq!((bench.read("a.txt").as_deref(), bench.read("new.txt")), (Some("one\n"), None));
    bench.write("a.txt", "three\n");
    let patch = rpc.call("patch", json!({ "hash": first }));
    assert_eq!(
        rpc.call("plan_revert", json!({ "patches": [patch] }))["actions"][0]["path"],
        "a.txt"
    );
    rpc.call("revert", json!({ "patches": [patch] }));
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));

    let begun = rpc.call("begin_step", json!({ "session": "s", "message": "m", "tool": "bash" }));
    assert_eq!(rpc.call("open_steps", json!({}))["steps"][0]["step"], begun["step"]);
    bench.write("by the step", "x\n");
    let ended = rpc.call("end_step", json!({ "step": begun["step"] }));
    assert_eq!(ended["files"], json!(["by the step"]));
    assert_eq!(rpc.call("steps", json!({ "session": "s" }))["steps"][0]["tool"], "bash");
    assert_eq!(rpc.call("sessions", json!({}))["sessions"][0]["session"], "s");
    assert_eq!(rpc.call("log", json!({ "limit": 1 }))["operations"][0]["kind"], "step");
    let scope = json!({ "scope": { "message": "m" } });
    let plan = rpc.call("plan_undo", scope.clone());
    assert_eq!(plan["done"], json!([{ "action": "remove", "path": "by the step" }]));
    let report =
        rpc.call("undo", json!({ "scope": { "step": begun["step"] }, "plan": plan["plan"] }));
    assert_eq!((&report["complete"], bench.read("by the step")), (&true.into(), None));
    assert_eq!(rpc.call("plan_redo", json!({}))["done"][0]["action"], "create");
    rpc.call("redo", json!({}));
    assert!(bench.read("by the step").is_some());
    check_history(&mut rpc, &begun["step"]);
    check_revert_and_fork(&mut rpc, &bench);
    check_recover(&mut rpc, &bench);
    check_note_failure(&mut rpc);
    check_maintenance(&mut rpc, &bench);

    rpc.call("shutdown", json!({}));
    assert!(rpc.client.wait().success());
    let methods: BTreeSet<String> =
        serde_json::from_value(about["capabilities"]["methods"].clone()).unwrap();
    assert_eq!(rpc.asked, methods, "a method without a test");
}

fn check_history(rpc: &mut Checked, step: &Value) {
    let newest = rpc.call("timeline", json!({ "limit": 1 }));
    assert_eq!(newest["operations"][0]["kind"], "redo");
    let older = rpc.call("timeline", json!({ "limit": 1, "before": newest["next"] }));
    assert_eq!(older["operations"][0]["kind"], "undo");
    let undo = &older["operations"][0];
    assert_eq!((&undo["taken_back"], &undo["subjects"]), (&true.into(), &json!([step])));
    let operation = rpc.call("operation", json!({ "operation": undo["operation"] }));
    assert_eq!(operation["changes"][0]["path"], "by the step");
    let shown = rpc.call("step", json!({ "step": step }));
    assert_eq!(shown["files"], json!([{ "path": "by the step", "status": "added" }]));
    assert_eq!(
        (&shown["records"][0]["undone"], &shown["records"][0]["parent"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(
        rpc.call("step_changes", json!({ "of": { "message": "m" } }))["files"],
        shown["files"]
    );
    let text = rpc.call("step_diff", json!({ "of": { "session": "s" } }));
    assert!(text["text"].as_str().unwrap().contains("+x\n"), "{text}");
    let full = rpc.call("step_diff_full", json!({ "of": { "step": step } }));
    assert_eq!((&full["files"][0]["after"], &full["total"]), (&"x\n".into(), &1.into()));
    assert_eq!(rpc.call("step_changes", json!({}))["total"], 1);
    let blame = rpc.call("blame", json!({ "path": "by the step" }));
    assert_eq!(blame["lines"][0]["origin"]["kind"], "redo", "the redo wrote it last");
    let versions = rpc.call("versions", json!({ "path": "by the step" }));
    assert_eq!(
        (&versions["total"], &versions["versions"][1]["content"]),
        (&3.into(), &Value::Null)
    );
    let back = rpc.call("snapshot_before", json!({ "session": "s", "messages": ["m"] }));
    assert_eq!((&back["outcome"], &back["message"]), (&"found".into(), &"m".into()));
    let back = rpc.call("snapshot_before", json!({ "session": "s", "messages": ["never"] }));
    assert_eq!((&back["outcome"], &back["snapshot"]), (&"nothing".into(), &Value::Null));
    let of = json!({ "of": { "session": "s" } });
    let never = json!({ "session": "s", "messages": ["never"] });
    for (old, new, params) in [
        ("deeds", "step_changes", &of),
        ("deeds_diff", "step_diff", &of),
        ("deeds_full", "step_diff_full", &of),
        ("walk_back", "snapshot_before", &never),
    ] {
        assert_eq!(rpc.call(old, params.clone()), rpc.call(new, params.clone()), "{old}");
    }
}

fn check_revert_and_fork(rpc: &mut Checked, bench: &Bench) {
    let begun = rpc.call("begin_step", json!({ "session": "s", "message": "m2" }));
    rpc.call("end_step", json!({ "step": begun["step"] }));
    let parent = json!({ "session": "s", "message": "m2" });
    let begun = rpc.call(
        "begin_step",
        json!({ "session": "child", "message": "c", "parent": parent, "part": "p" }),
    );
    assert_eq!(begun["borrowed"], 0);
    bench.write("by the child", "c\n");
    rpc.call("end_step", json!({ "step": begun["step"] }));
    let steps = rpc.call("steps", json!({ "session": "child" }));
    assert_eq!(steps["steps"][0]["parent"], parent);

    let to = json!({ "message": "m2", "session": "s" });
    let plan = rpc.call("plan_revert_to", to.clone());
    assert_eq!(plan["done"], json!([{ "action": "remove", "path": "by the child" }]));
    rpc.call("apply", json!({ "plan": plan["plan"] }));
    assert_eq!(bench.read("by the child"), None);
    let state = rpc.call("revert_state", json!({}))["reverted"].clone();
    assert_eq!((&state["session"], &state["boundary"]["message"]), (&"s".into(), &"m2".into()));
    assert_eq!(rpc.call("plan_unrevert", json!({}))["done"][0]["action"], "create");
    rpc.call("unrevert", json!({ "session": "s" }));
    assert_eq!(bench.read("by the child").as_deref(), Some("c\n"));
    assert_eq!(rpc.call("revert_state", json!({ "session": "s" }))["reverted"], Value::Null);
    rpc.call("revert_to", json!({ "message": "m" }));
    assert_eq!((bench.read("by the step"), bench.read("by the child")), (None, None));
    assert_eq!(rpc.call("commit_revert", json!({}))["boundary"]["message"], "m");
    rpc.call("redo", json!({}));

    let made = rpc.call("checkpoint", json!({ "label": "here", "pinned": true }));
    let listed = rpc.call("checkpoints", json!({}))["checkpoints"][0].clone();
    assert_eq!((&listed["name"], &listed["pinned"]), (&made["name"], &true.into()));
    let into = bench.project.parent().unwrap().join("fork");
    let fork = rpc.call("fork", json!({ "session": "s", "at": "m2", "id": "f", "into": into }));
    assert_eq!((&fork["session"], &fork["complete"]), (&"f".into(), &true.into()));
    assert!(into.join("by the step").exists() && !into.join("by the child").exists());
}

fn check_recover(rpc: &mut Checked, bench: &Bench) {
    std::fs::remove_file(bench.project.join("a.txt")).unwrap();
    rpc.call("track", json!({}));
    assert_eq!(rpc.call("lost", json!({}))["lost"][0]["path"], "a.txt");
    let plan = rpc.call("plan_recover", json!({ "path": "a.txt" }));
    rpc.call("recover", json!({ "path": "a.txt", "plan": plan["hash"] }));
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));
}

fn check_note_failure(rpc: &mut Checked) {
    assert_eq!(rpc.call("status", json!({})).get("failures"), None);
    let failure = json!({ "client": "pi", "event": "tool_call", "why": "a reason" });
    assert_eq!(rpc.call("note_failure", failure)["noted"], true);
    let kept = &rpc.call("status", json!({}))["failures"][0];
    assert_eq!((&kept["client"], &kept["why"]), (&"pi".into(), &"a reason".into()));
}

fn check_maintenance(rpc: &mut Checked, bench: &Bench) {
    let used = rpc.call("du", json!({ "top": 1 }));
    assert_eq!(used["consumers"].as_array().unwrap().len(), 1, "{used}");
    assert!(used["quota"]["store_bytes"].as_u64().unwrap() > 0, "{used}");
    let repaired = rpc.call("repair", json!({}));
    assert_eq!((&repaired["before"]["ok"], &repaired["healed"]), (&true.into(), &0.into()));
    rpc.call("release_session", json!({ "session": "f" }));
    assert_eq!(rpc.call("gc", json!({ "thorough": true }))["dropped_operations"], 0);
    bench.write("secret", "s3cret\n");
    let with = rpc.call("track", json!({}))["hash"].clone();
    rpc.client.fails("purge", json!({ "path": "secret", "dir": rpc.dir }), "not_confirmed");
    rpc.client.fails("purge", json!({ "text": "s3", "dir": rpc.dir }), "not_confirmed");
    let both = json!({ "path": "secret", "text": "s3", "confirm": true, "dir": rpc.dir });
    rpc.client.fails("purge", both, "invalid_params");
    let unknown = json!({ "text": "in no label", "confirm": true, "dir": rpc.dir });
    rpc.client.fails("purge", unknown, "nothing_to_purge");
    let purged = rpc.call("purge", json!({ "path": "secret", "confirm": true }));
    assert_eq!((&purged["contents"], &purged["still_there"]), (&1.into(), &true.into()));
    let error = rpc.client.fails("show", json!({ "hash": with, "dir": rpc.dir }), "purged");
    assert_eq!(error["details"]["replacement"], purged["snapshots"][0]["replacement"]);
    assert_eq!(bench.read("secret").as_deref(), Some("s3cret\n"));
    let refused = json!({ "session": "s", "remove_store": true, "dir": rpc.dir });
    rpc.client.fails("release_session", refused, "store_in_use");
}

#[test]
fn json_output_of_commands_matches_the_rpc_schema() {
    let bench = Bench::new();
    let schema = Schema::read();
    bench.write("a.txt", "one\n");
    let track = bench.json(&["track"]);
    let hash = track["hash"].as_str().unwrap().to_owned();
    schema.check_result("track", &track);
    bench.write("a.txt", "two\n");
    bench.ok(&["run", "--message", "m", "--", "/bin/sh", "-c", "echo x > b"]);
    let ran = bench.json(&["log", "-n", "1"])["operations"][0]["steps"][0].clone();
    let text = |key: &str| ran[key].as_str().unwrap().to_owned();
    let (step, session, message) = (text("step"), text("session"), text("message"));
    bench.write("lost", "x");
    bench.track();
    std::fs::remove_file(bench.project.join("lost")).unwrap();
    bench.track();
    for (method, words) in [
        ("patch", &["patch", &hash][..]),
        ("changes", &["diff", &hash]),
        ("show", &["show", &hash]),
        ("show", &["show", &format!("{hash}:a.txt")]),
        ("list_files", &["ls", &hash]),
        ("status", &["status"]),
        ("log", &["log"]),
        ("sessions", &["sessions"]),
        ("plan_undo", &["undo", "--dry-run"]),
        ("undo", &["undo"]),
        ("redo", &["redo"]),
        ("plan_restore", &["restore", "--dry-run", &hash]),
        ("restore", &["restore", &hash]),
        ("timeline", &["log", "-n", "2"]),
        ("checkpoint", &["checkpoint", "-m", "here"]),
        ("checkpoints", &["checkpoint", "--list"]),
        ("operation", &["show", "here"]),
        ("blame", &["blame", "a.txt"]),
        ("versions", &["recover", "--list", "a.txt"]),
        ("step_changes", &["diff", "--step", &step]),
        ("step", &["show", &step]),
        ("fork", &["fork", &session]),
        ("plan_revert_to", &["revert", "--message", &message, "--dry-run"]),
        ("revert_to", &["revert", "--message", &message]),
        ("lost", &["log", "--lost"]),
        ("plan_unrevert", &["unrevert", "--dry-run"]),
        ("unrevert", &["unrevert"]),
        ("revert_to", &["revert", "--message", &message]),
        ("commit_revert", &["revert", "--commit"]),
        ("plan_recover", &["recover", "--dry-run", "lost"]),
        ("recover", &["recover", "lost"]),
        ("du", &["du"]),
        ("gc", &["gc", "--thorough"]),
        ("verify", &["verify"]),
        ("repair", &["verify", "--repair"]),
        ("purge", &["purge", "--yes", "b"]),
        ("release_session", &["sessions", "delete", &session]),
    ] {
        schema.check_result(method, &bench.json(words));
    }
    for command in ["doctor", "watch"] {
        let words: &[&str] = if command == "watch" { &["watch", "--status"] } else { &[command] };
        schema.check_command(command, &bench.json(words));
    }
    let full = bench.json(&["diff", "--full", &hash]);
    let as_answered = json!({
        "from": hash, "to": hash, "files": full, "truncated": false, "next": null, "total": 1,
    });
    schema.check_result("diff_full", &as_answered);
    let ran = bench.run(&["--json", "show", &"1".repeat(40)]);
    let failed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    schema.check_error(&failed["error"]);
    assert_eq!(failed["error"]["kind"], "unknown_snapshot");
}

#[test]
fn the_printed_schema_matches_the_checked_in_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/ctrlz.schema.json");
    let expected = std::fs::read_to_string(path).unwrap();
    assert!(Bench::new().run(&["rpc", "--schema"]).text() == expected);
}

#[test]
fn errors_have_the_documented_kind_and_details() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let schema = Schema::read();
    let mut client = Client::start(&bench);
    let hash = client.call("track", json!({}))["hash"].clone();
    let none = "1".repeat(40);
    let mut check = |method: &str, params: Value, kind: &str| {
        let error = client.fails(method, params, kind);
        schema.check_error(&error);
        error
    };
    let error = check("show", json!({ "hash": none, "path": "a" }), "unknown_snapshot");
    assert_eq!(
        (&error["details"]["hash"], &error["fault"]),
        (&none.clone().into(), &"caller".into())
    );
    check("restore", json!({ "hash": "nonsense" }), "not_a_hash");
    let error = check("show", json!({ "hash": hash, "path": "no" }), "no_such_file");
    assert_eq!(error["path"], "no");
    check("show", json!({ "hash": hash, "path": "../x" }), "not_a_tree_path");
    check("show", json!({ "hash": hash, "path": "/etc/passwd" }), "not_a_tree_path");
    check("show", json!({ "hash": hash, "path": ".git/config" }), "not_a_tree_path");
    check("restore", json!({ "hash": hash, "plan": none }), "stale_plan");
    check("undo", json!({}), "nothing_to_undo");
    bench.ok(&["run", "--", "/bin/sh", "-c", "echo x > b"]);
    check("undo", json!({ "scope": { "step": "x" } }), "no_such_step");
    check("undo", json!({ "scope": { "message": "x" } }), "no_such_message");
    let part = json!({ "scope": { "from": { "message": "x", "part": "p" } } });
    check("undo", part, "no_such_message");
    check("undo", json!({ "scope": { "from": "x" } }), "invalid_params");
    check("end_step", json!({ "step": "x" }), "no_such_step");
    check("redo", json!({}), "nothing_to_redo");
    check("redo", json!({ "interrupt": true }), "invalid_params");
    let error = check("apply", json!({ "plan": none }), "unknown_plan");
    assert_eq!(error["details"]["hash"], none);
    check("revert_to", json!({ "message": "x" }), "no_such_message");
    check("unrevert", json!({}), "nothing_reverted");
    check("commit_revert", json!({ "session": "run" }), "nothing_reverted");
    check("fork", json!({ "session": "x" }), "no_such_session");
    let inside = json!({ "session": "run", "into": "inside" });
    assert_eq!(check("fork", inside, "inside_work_tree")["fault"], "refused");
    check("blame", json!({ "path": "no" }), "no_such_file");
    check("recover", json!({ "path": "a.txt" }), "nothing_lost");
    check("step", json!({ "step": "x" }), "no_such_step");
    check("step_changes", json!({ "of": { "message": "x" } }), "no_such_message");
    check("operation", json!({ "operation": "x" }), "unknown_operation");
    check("timeline", json!({ "before": "x" }), "unknown_operation");
    check("release_session", json!({ "session": "x" }), "no_such_session");
    let unsure = json!({ "path": "a.txt", "confirm": false });
    assert_eq!(check("purge", unsure, "not_confirmed")["path"], "a.txt");
    check("purge", json!({ "path": "no", "confirm": true }), "nothing_to_purge");
    check("log", json!({ "session": "x" }), "no_such_session");
    check("status", json!({ "dir": "/does/not/exist" }), "file");
    check("status", json!({ "dir": "/" }), "dangerous_root");
    bench.write("one more", "x");
    check("track", json!({ "options": { "max_files": 0 } }), "over_budget");
    check("track", json!({ "options": { "ref_prefix": "x" } }), "invalid_params");
    check("track", json!({ "profile": "opencode" }), "not_git");
    for params in [
        json!({ "rehsh": true }),
        json!({ "rehash": 1 }),
        json!({ "paths": "a" }),
        json!({ "paths": [1] }),
        json!({ "dir": 1 }),
        json!({ "dir": { "bytes": [300] } }),
        json!({ "profile": "x" }),
        json!({ "options": { "x": 1 } }),
        json!([1]),
        json!("x"),
    ] {
        check("track", params, "invalid_params");
    }
    check("restore", json!({}), "invalid_params");
    check("no_such_method", json!({}), "method_not_found");
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));
    assert_eq!(client.call("restore", json!({ "hash": hash, "exact": true }))["after"], hash);
}

#[test]
fn malformed_requests_get_an_error_and_the_next_request_works() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let mut client = Client::start(&bench);
    let mut check = |line: &[u8], code: i64| {
        client.write(line);
        client.write(b"\n");
        let answer = client.read();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(answer["id"], Value::Null);
        assert_eq!(client.call("status", json!({}))["enabled"], true);
    };
    check(b"{", -32700);
    check(b"nonsense", -32700);
    check(b"\0\0\0", -32700);
    check(b"\"\xff\xfe\"", -32700);
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"st\0atus\"}", -32700);
    check(&vec![b'x'; 10 << 20], -32700);
    check(&vec![b'['; 10 << 20], -32700);
    check(&vec![b'{'; 65 << 20], -32700);
    check(b"[]", -32600);
    check(b"{}", -32600);
    check(b"17", -32600);
    check(b"{\"jsonrpc\":\"2.0\",\"result\":1}", -32600);
    let (status, rest) = client.end();
    assert!(status.success() && rest.is_empty(), "{rest:?}");
}

#[test]
fn request_ids_are_echoed_verbatim() {
    let bench = Bench::new();
    let mut client = Client::start(&bench);
    for id in ["1", "-7", "1.5", "12345678901234567890123", "\"text\"", "\"\\u00e9\\n\"", "null"] {
        client.write(
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"sessions\"}}\r\n").as_bytes(),
        );
        let answer = client.read();
        assert_eq!(answer["id"], serde_json::from_str::<Value>(id).unwrap());
        assert_eq!(answer["result"], json!({ "sessions": [] }));
    }
}

#[test]
fn notifications_are_executed_without_a_response() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let mut client = Client::start(&bench);
    let dir = json!(bench.project);
    for (method, params) in
        [("track", json!({ "dir": dir })), ("nonsense", json!({})), ("restore", json!([]))]
    {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        client.write(format!("{line}\n").as_bytes());
    }
    assert!(client.is_silent());
    // This request is in the same queue as the notification, so it runs after it.
    let snapshot = client.call("track", json!({ "dir": dir }));
    assert_eq!(snapshot["changed"], false);
}

#[test]
fn batches_get_a_single_response() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let mut client = Client::start(&bench);
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "track" },
        { "jsonrpc": "2.0", "method": "track" },
        { "jsonrpc": "2.0", "id": "two", "method": "nonsense" },
        7,
        { "jsonrpc": "2.0", "id": 3, "method": "initialize" },
    ]);
    client.write(format!("{batch}\n").as_bytes());
    let answers = client.read();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 4);
    let by_id = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(by_id(json!(1))["result"]["files"], 1);
    assert_eq!(by_id(json!("two"))["error"]["code"], -32601);
    assert_eq!(by_id(Value::Null)["error"]["code"], -32600);
    assert_eq!(by_id(json!(3))["result"]["name"], "ctrlz");
    let only_notifications = json!([{ "jsonrpc": "2.0", "method": "status" }]);
    client.write(format!("{only_notifications}\n").as_bytes());
    assert!(client.is_silent());
    let (status, _) = client.end();
    assert!(status.success());
}

#[test]
fn at_the_end_of_input_the_server_exits_after_all_responses() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let mut client = Client::start(&bench);
    for _ in 0..20 {
        client.ask("track", &json!({}));
    }
    // The last line has no line feed. It is processed if it is complete.
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"status\"}");
    let (status, answers) = client.end();
    assert!(status.success());
    assert_eq!(answers.len(), 21);
    assert!(answers.iter().all(|answer| answer.get("error").is_none()), "{answers:?}");

    let mut client = Client::start(&bench);
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"meth");
    let (status, answers) = client.end();
    assert!(status.success());
    assert_eq!(answers[0]["error"]["code"], -32700);
}

/// Returns the lock file that commands on the project hold.
fn work_tree_lock(bench: &Bench) -> PathBuf {
    let is_lock =
        |path: &PathBuf| path.ends_with("lock") && path.to_str().unwrap().contains("/wt/");
    let mut locks: Vec<PathBuf> =
        contents(&bench.data).into_iter().map(|(path, _)| path).filter(is_lock).collect();
    assert_eq!(locks.len(), 1, "{locks:?}");
    locks.remove(0)
}

#[test]
fn requests_for_different_directories_run_independently() {
    let bench = Bench::new();
    let other = bench.home.join("other");
    std::fs::create_dir(&other).unwrap();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let mut client = Client::start(&bench);
    let lock = File::options().write(true).open(work_tree_lock(&bench)).unwrap();
    lock.lock().unwrap();
    // Far more requests than threads.
    let waiting: Vec<u64> =
        (0..30).map(|_| client.ask("track", &json!({ "dir": bench.project }))).collect();
    let answer = client.call("track", json!({ "dir": other }));
    assert_eq!(answer["complete"], true);
    assert_eq!(client.call("status", json!({ "dir": bench.project }))["enabled"], true);
    let compared = json!({ "dir": bench.project, "from": hash, "to": hash });
    assert_eq!(client.call("diff", compared)["total"], 0);

    // A waiting request is cancelled at once.
    let cancelled = waiting[20];
    client.call("cancel", json!({ "id": cancelled }));
    let answer = client.answer(cancelled);
    assert_eq!(answer["error"]["data"]["kind"], "cancelled");
    assert_eq!(answer["error"]["code"], -32800);
    // A request with an id that is in use is refused.
    client.write(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"status\"}}\n", waiting[5]).as_bytes(),
    );
    assert_eq!(client.answer(waiting[5])["error"]["data"]["kind"], "invalid_request");
    lock.unlock().unwrap();
    for id in waiting.into_iter().filter(|id| *id != cancelled) {
        assert_eq!(client.answer(id)["result"]["complete"], true);
    }
}

#[test]
fn excess_requests_are_refused_and_the_others_complete() {
    let bench = Bench::new();
    bench.track();
    let mut client = Client::start(&bench);
    let lock = File::options().write(true).open(work_tree_lock(&bench)).unwrap();
    lock.lock().unwrap();
    let limit = client.call("initialize", json!({}))["capabilities"]["max_waiting"].clone();
    let asked: Vec<u64> = (0..1100).map(|_| client.ask("track", &json!({}))).collect();
    // One request runs, and the queue holds the others up to its limit.
    let refused = asked.len() - 1 - usize::try_from(limit.as_u64().unwrap()).unwrap();
    for _ in 0..refused - 1 {
        let answer = client.read();
        assert_eq!(answer["error"]["data"]["kind"], "overloaded");
        assert_eq!(answer["error"]["data"]["fault"], "conflict");
    }
    for id in &asked[100..1000] {
        client.call("cancel", json!({ "id": id }));
    }
    lock.unlock().unwrap();
    for id in &asked[..100] {
        assert_eq!(client.answer(*id)["result"]["complete"], true);
    }
}

/// Returns the peak memory use of a process, in MiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn paths_that_are_too_long_or_too_deep_are_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let mut client = Client::start(&bench);
    let dir = bench.project.to_str().unwrap().to_owned();
    for depth in [401, 1_000, 20_000] {
        let path = "a/".repeat(depth) + "x";
        let calls = [
            ("track", json!({"dir": dir, "paths": [path]})),
            ("file_exists_at", json!({"dir": dir, "hash": hash, "path": path})),
            ("plan_revert", json!({"dir": dir, "patches": [{"hash": hash, "files": [path]}]})),
        ];
        for (method, params) in calls {
            client.fails(method, params, "not_a_tree_path");
        }
        let began = std::time::Instant::now();
        let step = json!({"dir": dir, "session": "s", "message": "m", "files": [path]});
        // No tool can change such a file, so there is nothing to capture.
        client.call("begin_step", step);
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }
    client.call("track", json!({"dir": dir}));
}

#[test]
fn memory_for_a_long_line_is_bounded() {
    // A tenth of the size by default, because parsing is slow without optimisation.
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let (line_bytes, max_mib) = if slow { (60 << 20, 500) } else { (6 << 20, 130) };
    let bench = Bench::new();
    let mut client = Client::start(&bench);
    let mut check = |start: &str, piece: &str, end: &str, kind: &str| {
        let line = [start, &piece.repeat(line_bytes / piece.len()), end, "\n"].concat();
        client.write(line.as_bytes());
        let answer = client.read();
        assert_eq!(answer["error"]["data"]["kind"], kind, "{start}");
        let peak = peak_memory(client.pid());
        assert!(peak < max_mib, "{start}: {peak} MiB");
    };
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"track","params":"#;
    let with = |params: &str| format!("{request}{params}");
    check(&with(r#"{"paths":["#), r#""","#, r#"""]}}"#, "invalid_params");
    check(&with(r#"{"paths":[{"bytes":["#), "1,", "1]}]}}", "invalid_params");
    check(&with(r#"{"paths":[""#), "x", r#""]}}"#, "invalid_params");
    check(&with(r#"{"dir":""#), "x", r#""}}"#, "invalid_params");
    check(r#"{"jsonrpc":"2.0","id":1,"method":""#, "x", r#""}"#, "method_not_found");
    check(&with(r#"{"unknown":["#), "0,", "0]}}", "invalid_params");
    check(&with("{"), r#""a":1,"#, r#""b":1}}"#, "invalid_params");
    check(&with(r#"{"options":{"exclude":["#), r#""","#, r#"""]}}}"#, "invalid_params");
    check(r#"{"jsonrpc":"2.0","method":"a","id":["#, "0,", "0]}", "invalid_request");
    check("[", "0,", "0]", "too_large");
}

#[test]
fn a_hundred_requests_for_two_directories_are_answered_correctly() {
    let bench = Bench::new();
    let other = bench.home.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("theirs"), "x\n").unwrap();
    bench.write("mine", "x\n");
    let mut client = Client::start(&bench);
    let dirs = [bench.project.clone(), other.clone()];
    let hashes: Vec<Value> = dirs
        .iter()
        .map(|dir| client.call("track", json!({ "dir": dir }))["hash"].clone())
        .collect();
    let mut asked = Vec::new();
    for number in 0..100 {
        let which = number % 2;
        let (dir, hash) = (&dirs[which], &hashes[which]);
        let id = match number % 5 {
            0 => client.ask("track", &json!({ "dir": dir })),
            1 => client.ask("patch", &json!({ "dir": dir, "hash": hash })),
            2 => client.ask("list_files", &json!({ "dir": dir, "hash": hash })),
            3 => client.ask("status", &json!({ "dir": dir })),
            _ => client.ask("restore", &json!({ "dir": dir, "hash": hash })),
        };
        asked.push((id, which, number % 5));
    }
    let names = ["mine", "theirs"];
    for (id, which, method) in asked.into_iter().rev() {
        let answer = client.answer(id);
        let result = &answer["result"];
        match method {
            0 => assert_eq!(result["hash"], hashes[which], "{answer}"),
            1 => assert_eq!(result["files"], json!([]), "{answer}"),
            2 => assert_eq!(result["files"][0]["path"], names[which], "{answer}"),
            3 => assert_eq!(result["root"], json!(dirs[which]), "{answer}"),
            _ => assert_eq!(result["done"], json!([]), "{answer}"),
        }
    }
}

#[test]
fn a_long_snapshot_reports_progress_and_can_be_cancelled() {
    let bench = Bench::new();
    for index in 0..20_000 {
        bench.write(&format!("d{}/f{index}", index % 100), &format!("{index}\n"));
    }
    let mut client = Client::start(&bench);
    let id = client.ask("track", &json!({ "progress": true }));
    let message = client.read();
    assert_eq!(
        (&message["method"], &message["params"]["id"]),
        (&"progress".into(), &id.into()),
        "{message}"
    );
    let line = json!({ "jsonrpc": "2.0", "method": "cancel", "params": { "id": id } });
    client.write(format!("{line}\n").as_bytes());
    assert_eq!(client.answer(id)["error"]["data"]["kind"], "cancelled");
    let status = client.call("status", json!({}));
    assert_eq!((&status["last"], &status["damaged_packs"]), (&Value::Null, &json!([])));
    let snapshot = client.call("track", json!({}));
    assert_eq!((&snapshot["files"], &snapshot["complete"]), (&20_000.into(), &true.into()));
    assert_eq!(client.call("verify", json!({}))["ok"], true);
    let store = PathBuf::from(client.call("status", json!({}))["store"].as_str().unwrap());
    bench.git(&["--git-dir", store.to_str().unwrap(), "fsck", "--strict"]);
}

#[test]
fn file_names_that_are_not_utf8_round_trip_through_rpc() {
    let bench = Bench::new();
    let name = b"b\xff\xfe\n.txt";
    let on_disk = bench.project.join(OsStr::from_bytes(name));
    let path = json!({ "bytes": name });
    std::fs::write(&on_disk, "one\n").unwrap();
    let mut rpc = Checked::start(&bench);
    let hash = rpc.call("track", json!({ "paths": [path] }))["hash"].clone();
    assert_eq!(rpc.call("list_files", json!({ "hash": hash }))["files"][0]["path"], path);
    assert_eq!(rpc.call("show", json!({ "hash": hash, "path": path }))["content"], "one\n");
    std::fs::write(&on_disk, "two\n").unwrap();
    let patch = rpc.call("patch", json!({ "hash": hash }));
    let absolute = json!({ "bytes": on_disk.as_os_str().as_bytes() });
    assert_eq!(patch["files"], json!([absolute]));
    rpc.call("revert", json!({ "patches": [patch] }));
    assert_eq!(std::fs::read(&on_disk).unwrap(), b"one\n");
    std::fs::remove_file(&on_disk).unwrap();
    let report = rpc.call("restore", json!({ "hash": hash, "paths": [path] }));
    assert_eq!(report["done"], json!([{ "action": "create", "path": path }]));
    assert_eq!(std::fs::read(&on_disk).unwrap(), b"one\n");
    // The directory itself may have such a name, too.
    let dir = bench.home.join(OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&dir).unwrap();
    let dir = json!({ "bytes": dir.as_os_str().as_bytes() });
    assert_eq!(rpc.client.call("status", json!({ "dir": dir }))["root"], dir);
}

#[test]
fn binary_content_is_returned_as_base64() {
    let bench = Bench::new();
    std::fs::write(bench.project.join("data"), b"\x00\xff").unwrap();
    std::fs::write(bench.project.join("latin"), b"caf\xe9\n").unwrap();
    let mut rpc = Checked::start(&bench);
    let hash = rpc.call("track", json!({}))["hash"].clone();
    let file = rpc.call("show", json!({ "hash": hash, "path": "data" }));
    assert_eq!((&file["content"], &file["encoding"]), (&"AP8=".into(), &"base64".into()));
    let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let diff = rpc.call("diff", json!({ "from": empty, "to": hash, "paths": ["latin"] }));
    assert!(diff["text_base64"].is_string(), "{diff}");
    let full = rpc.call("diff_full", json!({ "from": empty, "to": hash }));
    assert_eq!(full["files"][1]["after_base64"], "Y2Fm6Qo=");
}

#[test]
fn long_responses_are_truncated_marked_and_paged() {
    let bench = Bench::new();
    let mut rpc = Checked::start(&bench);
    let from = rpc.call("track", json!({}))["hash"].clone();
    for index in 0..10 {
        bench.write(&format!("f{index}"), &"line\n".repeat(100));
    }
    let to = rpc.call("track", json!({}))["hash"].clone();
    for (method, params) in [
        ("changes", json!({ "limit": 3 })),
        ("diff_full", json!({ "limit": 3 })),
        ("diff_full", json!({ "max_bytes": 1600 })),
    ] {
        let mut seen = Vec::new();
        let mut offset = json!(0);
        while !offset.is_null() {
            let mut page = params.clone();
            (page["from"], page["to"], page["offset"]) = (from.clone(), to.clone(), offset);
            let result = rpc.call(method, page);
            let files = result["files"].as_array().unwrap();
            assert!(files.len() <= 3 && result["total"] == 10, "{result}");
            let key = if method == "changes" { "path" } else { "file" };
            seen.extend(files.iter().map(|file| file[key].as_str().unwrap().to_owned()));
            offset = result["next"].clone();
        }
        assert_eq!(seen, (0..10).map(|index| format!("f{index}")).collect::<Vec<_>>(), "{method}");
    }
    let whole = rpc.call("diff", json!({ "from": from, "to": to }));
    assert_eq!((&whole["truncated"], &whole["next"]), (&false.into(), &Value::Null));
    let mut text = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let params = json!({ "from": from, "to": to, "offset": offset, "max_bytes": 2000 });
        let part = rpc.call("diff", params);
        assert_eq!(part["truncated"], !part["next"].is_null());
        text.push_str(part["text"].as_str().unwrap());
        offset = part["next"].clone();
    }
    assert_eq!(text, whole["text"].as_str().unwrap());
    let tiny = rpc.call("diff_full", json!({ "from": from, "to": to, "max_bytes": 10 }));
    assert_eq!(
        (&tiny["files"][0]["omitted"], &tiny["files"][0]["additions"]),
        (&true.into(), &100.into())
    );
    let part = rpc.call("show", json!({ "hash": to, "path": "f1", "max_bytes": 7, "offset": 5 }));
    assert_eq!((&part["content"], &part["next"]), (&"line\nli".into(), &12.into()));
    assert_eq!((&part["truncated"], &part["total_bytes"]), (&true.into(), &500.into()));
    let list = rpc.call("list_files", json!({ "hash": to, "limit": 4, "offset": 8 }));
    assert_eq!((list["files"].as_array().unwrap().len(), &list["next"]), (2, &Value::Null));
}

#[test]
fn disabled_snapshots_are_a_result_and_not_an_error() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let mut rpc = Checked::start(&bench);
    // The configuration is read again for every call.
    bench.write_home(".config/ctrlz/config.toml", "enabled = false\n");
    let disabled = json!({ "disabled": true, "hash": "" });
    assert_eq!(rpc.call("track", json!({})), disabled);
    assert_eq!(rpc.call("track", json!({ "options": { "enabled": true } })), disabled);
    assert_eq!(rpc.call("patch", json!({ "hash": "" })), disabled);
    assert_eq!(rpc.call("begin_step", json!({ "session": "s" })), disabled);
    assert_eq!(rpc.call("restore", json!({ "hash": "" })), disabled);
    assert_eq!(rpc.call("show", json!({ "hash": "", "path": "a.txt" })), disabled);
    assert_eq!(rpc.call("status", json!({}))["enabled"], false);
    // Existing snapshots can still be compared and restored.
    assert_eq!(rpc.call("patch", json!({ "hash": hash, "to": hash }))["files"], json!([]));
    bench.write("a.txt", "two\n");
    rpc.call("restore", json!({ "hash": hash }));
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));
    bench.write_home(".config/ctrlz/config.toml", "");
    assert_eq!(rpc.call("track", json!({ "options": { "enabled": false } })), disabled);
    assert_eq!(rpc.call("track", json!({}))["hash"], hash);
    rpc.client.fails("patch", json!({ "hash": "" }), "not_a_hash");
}

#[test]
fn a_store_inside_the_project_excludes_its_whole_directory() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write(".agent/notes", "x\n");
    bench.git(&["init", "-q", "."]);
    let sub = bench.project.join("sub");
    bench.write("sub/b.txt", "b\n");
    let mut client = Client::start(&bench);
    let params = json!({ "dir": sub, "store": ".agent/snapshots", "work_tree": "dir" });
    let snapshot = client.call("track", params.clone());
    assert_eq!(snapshot["files"], 1, "only files in the directory");
    assert!(sub.join(".agent/snapshots/HEAD").is_file());
    let params = json!({ "dir": bench.project, "store": ".agent/snapshots" });
    let hash = client.call("track", params.clone())["hash"].clone();
    let mut listed = params.clone();
    listed["hash"] = hash;
    let files = client.call("list_files", listed);
    let names: Vec<&str> = files["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"a.txt") && !names.contains(&".agent/notes"), "{names:?}");
    assert_eq!(bench.in_data(), ["stores"], "only the record that the store is trusted");
}

#[test]
fn the_opencode_profile_behaves_like_opencode() {
    let bench = Bench::new();
    bench.git(&["init", "-q", "."]);
    bench.write("secret", "one\n");
    bench.write("large", &"x".repeat((2 << 20) + 1));
    let mut client = Client::start(&bench);
    let profile = |params: Value| {
        let mut params = params;
        params["profile"] = json!("opencode");
        params
    };
    let snapshot = client.call("track", profile(json!({})));
    assert_eq!(
        (&snapshot["skipped"][0]["path"], &snapshot["complete"]),
        (&"large".into(), &true.into())
    );
    assert_eq!(snapshot["skipped"][0]["reason"], "too_large");
    bench.write(".gitignore", "secret\n");
    bench.write("secret", "two\n");
    let params = json!({ "hash": snapshot["hash"], "relative": true });
    assert_eq!(client.call("patch", profile(params.clone()))["files"], json!([".gitignore"]));
    let all = client.call("patch", params);
    assert!(all["files"].as_array().unwrap().contains(&json!("secret")), "{all}");
}

#[test]
fn a_step_whose_process_died_is_closed() {
    let bench = Bench::new();
    let mut client = Client::start(&bench);
    client.call("begin_step", json!({ "session": "s", "label": "cut off" }));
    bench.write("a.txt", "one\n");
    client.kill();
    bench.track();
    bench.write("mine", "keep\n");
    bench.track();
    let mut client = Client::start(&bench);
    let steps = client.call("steps", json!({}));
    assert_eq!(steps["steps"][0]["inferred"], true, "{steps}");
    let report = client.call("undo", json!({}));
    assert_eq!(report["conflicts"][0]["reason"], "unclear", "{report}");
    client.call("undo", json!({ "unclear": true }));
    assert_eq!((bench.read("a.txt"), bench.read("mine").as_deref()), (None, Some("keep\n")));
}

#[test]
fn a_step_whose_process_is_a_zombie_is_closed() {
    let bench = Bench::new();
    let mut client = Client::start(&bench);
    client.call("begin_step", json!({ "session": "s", "label": "cut off" }));
    bench.write("a.txt", "one\n");
    let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let stat = format!("/proc/{}/stat", client.pid());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bench.track();
    let steps = Client::start(&bench).call("steps", json!({}));
    assert_eq!(steps["steps"][0]["inferred"], true, "{steps}");
    client.kill();
}

#[test]
fn sigterm_shuts_down_cleanly_and_sigint_is_ignored() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    let mut client = Client::start(&bench);
    client.call("status", json!({}));
    let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    client.call("status", json!({}));
    let lock = File::options().write(true).open(work_tree_lock(&bench)).unwrap();
    lock.lock().unwrap();
    let running = client.ask("track", &json!({}));
    let waiting = client.ask("track", &json!({}));
    client.call("status", json!({}));
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(client.answer(waiting)["error"]["data"]["kind"], "cancelled");
    lock.unlock().unwrap();
    let answer = client.answer(running);
    assert!(answer.get("result").is_some() || answer["error"]["data"]["kind"] == "cancelled");
    assert!(client.wait().success());
}

#[test]
fn ignored_and_outside_files_named_in_a_command_are_captured() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write(".gitignore", "build/\n");
    bench.write("build/deep/out.bin", "built\n");
    bench.write("a.txt", "one\n");
    bench.write_home("photos/one.jpg", "a photo\n");
    bench.write_home("notes.txt", "mine\n");
    let mut rpc = Checked::start(&bench);
    let command = "rm -r deep ~/photos; echo two > ../a.txt";
    let begun = rpc.call(
        "begin_step",
        json!({
            "session": "s", "commands": [command], "cwd": "build",
            "files": ["a.txt", bench.home.join("notes.txt")],
        }),
    );
    bench.shell(&format!("cd build && {command}; echo x > ~/notes.txt"));
    assert_eq!(bench.read("build/deep/out.bin"), None);
    rpc.call("end_step", json!({ "step": begun["step"] }));

    let report = rpc.call("undo", json!({}));
    assert_eq!(bench.read("build/deep/out.bin").as_deref(), Some("built\n"), "{report}");
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));
    let photo = bench.home.join("photos/one.jpg");
    let outside = report["outside"].as_array().unwrap();
    let listed = |path: &std::path::Path| {
        let change = outside.iter().find(|change| change["path"] == json!(path)).unwrap();
        (change["action"].clone(), change["kept"].clone())
    };
    assert_eq!(listed(&photo), (json!("create"), json!("not_asked")), "{report}");
    assert_eq!(listed(&bench.home.join("notes.txt")), (json!("overwrite"), json!("not_asked")));
    assert_eq!(report["complete"], true, "{report}");
    assert!(!photo.exists(), "files outside stay unless requested");
    let plan = rpc.call("plan_undo", json!({ "outside": true }));
    let report = rpc.call("undo", json!({ "outside": true, "plan": plan["plan"] }));
    assert_eq!(report["outside"], plan["outside"]);
    assert!(report["outside"][0]["kept"].is_null(), "{report}");
    assert_eq!(std::fs::read_to_string(photo).unwrap(), "a photo\n");
    assert_eq!(std::fs::read_to_string(bench.home.join("notes.txt")).unwrap(), "mine\n");
}

#[test]
fn a_caller_cannot_prune_more_checkpoints_than_the_configuration() {
    let bench = Bench::new();
    let mut rpc = Checked::start(&bench);
    for number in 0..3 {
        bench.write("a.txt", &number.to_string());
        rpc.call("checkpoint", json!({ "keep": 0 }));
    }
    let listed = rpc.call("checkpoints", json!({}));
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 3, "{listed}");
}

#[test]
fn errors_repeat_only_the_beginning_of_a_long_id() {
    let bench = Bench::new();
    let mut rpc = Checked::start(&bench);
    rpc.call("track", json!({}));
    let long = "x".repeat(100_000);
    for (method, params, kind) in [
        ("end_step", json!({ "step": long }), "no_such_step"),
        ("log", json!({ "session": long }), "no_such_session"),
        ("operation", json!({ "operation": long }), "unknown_operation"),
    ] {
        let error = rpc.client.fails(method, params, kind);
        assert!(error.to_string().len() < 8192, "{method}: {}", error.to_string().len());
    }
}
