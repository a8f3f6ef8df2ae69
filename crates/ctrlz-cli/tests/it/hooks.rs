//! `ctrlz hook`: events recorded from real clients, and malformed input.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::{Bench, Ran, contents, feed, program};

const CLIENTS: [&str; 6] = ["claude-code", "codex", "gemini-cli", "cline", "qwen-code", "copilot"];

impl Bench {
    /// Runs a hook like a client does. Hooks must always exit with 0.
    #[track_caller]
    fn hook(&self, client: &str, event: &Value) -> Ran {
        let ran = feed(&mut self.command(&["hook", client]), &event.to_string());
        assert_eq!(ran.code, 0, "{client} {event}: {ran:?}");
        ran
    }

    /// Runs a hook that must print nothing, neither output nor errors.
    #[track_caller]
    fn silent_hook(&self, client: &str, event: &Value) {
        let ran = self.hook(client, event);
        assert_eq!((ran.text().as_str(), ran.stderr.as_str()), ("", ""), "{client} {event}");
    }

    /// Returns an event of Claude Code in the turn `turn` of the session `s`.
    fn claude(&self, turn: &str, name: &str, more: &Value) -> Value {
        let mut event = json!({
            "session_id": "s", "prompt_id": turn, "cwd": self.project, "hook_event_name": name,
            "transcript_path": "/nowhere/s.jsonl",
        });
        for (key, value) in more.as_object().unwrap() {
            event[key] = value.clone();
        }
        event
    }

    fn bash(&self, turn: &str, name: &str, id: &str, command: &str) -> Value {
        let more = json!({
            "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": command },
        });
        self.claude(turn, name, &more)
    }

    /// Makes a tool call: runs the command between the two events.
    fn call(&self, turn: &str, id: &str, command: &str) {
        self.silent_hook("claude-code", &self.bash(turn, "PreToolUse", id, command));
        self.shell(command);
        self.silent_hook("claude-code", &self.bash(turn, "PostToolUse", id, command));
    }

    fn steps(&self) -> Vec<Value> {
        let log = self.json(&["log"]);
        let operations = log["operations"].as_array().unwrap().iter().rev();
        operations.flat_map(|operation| operation["steps"].as_array().unwrap().clone()).collect()
    }

    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(60), "timed out waiting for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the events of a session of a real client, moved to the test's project.
fn recorded(bench: &Bench, client: &str) -> Vec<Value> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hooks");
    let text = std::fs::read_to_string(dir.join(format!("{client}.jsonl"))).unwrap();
    let text = text.replace("/PROJECT", bench.project.to_str().unwrap());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn name_of(event: &Value) -> &str {
    event["hook_event_name"].as_str().or(event["hookName"].as_str()).unwrap()
}

/// Makes the file changes of the tool call in an event.
fn do_tool(bench: &Bench, event: &Value) {
    let input = match &event["tool_call"] {
        Value::Null => &event["tool_input"],
        call => &call["input"],
    };
    let text = |keys: [&str; 2]| {
        let found = keys.into_iter().find_map(|key| input[key].as_str());
        found.map(str::to_owned)
    };
    let path = text(["file_path", "path"]).map(|path| bench.project.join(path));
    let (content, command) = (text(["content", "file_text"]), text(["command", ""]));
    match (path, content, command) {
        (Some(path), Some(content), _) => std::fs::write(path, content).unwrap(),
        (Some(path), None, _) => {
            let [old_text, new_text] = [["old_string", "old_str"], ["new_string", "new_str"]];
            let old = std::fs::read_to_string(&path).unwrap();
            let new = old.replace(&text(old_text).unwrap(), &text(new_text).unwrap());
            std::fs::write(path, new).unwrap();
        }
        (None, _, Some(patch)) if patch.starts_with("*** Begin Patch") => {
            bench.write("a.txt", "ho\n");
        }
        (None, _, Some(command)) => drop(bench.shell(&command)),
        (None, ..) => drop(bench.shell(input["commands"][0].as_str().unwrap())),
    }
}

#[test]
fn a_recorded_session_of_every_client_is_one_turn_that_can_be_undone() {
    for client in CLIENTS {
        let bench = Bench::new();
        bench.write("a.txt", "hi\n");
        let before = contents(&bench.project);
        let events = recorded(&bench, client);
        let mut tools = 0;
        for event in &events {
            bench.silent_hook(client, event);
            if matches!(name_of(event), "PreToolUse" | "BeforeTool" | "tool_call") {
                do_tool(&bench, event);
                tools += 1;
            }
        }
        let after = contents(&bench.project);
        assert_ne!(after, before, "{client}");
        let steps = bench.steps();
        // The baseline that the first prompt starts in the background may split a step in two.
        let ids: std::collections::BTreeSet<String> =
            steps.iter().map(|step| step["step"].to_string()).collect();
        assert_eq!(ids.len(), tools, "{client}: {steps:?}");
        for step in &steps {
            assert_eq!(step["who"], client, "{step}");
            assert_eq!(step["message"], steps[0]["message"], "{client}");
            assert_eq!(step["session"], steps[0]["session"], "{client}");
            assert_eq!(step["inferred"], false, "{client}");
        }
        bench.ok(&["undo"]);
        assert_eq!(contents(&bench.project), before, "{client}");
        bench.ok(&["redo"]);
        assert_eq!(contents(&bench.project), after, "{client}");
        bench.ok(&["doctor"]);
    }
}

#[test]
fn codex_may_use_the_plugin_of_claude_code() {
    let bench = Bench::new();
    bench.write("a.txt", "hi\n");
    for event in recorded(&bench, "codex") {
        bench.silent_hook("claude-code", &event);
        if name_of(&event) == "PreToolUse" {
            do_tool(&bench, &event);
        }
    }
    let steps = bench.steps();
    assert_eq!((steps.len(), &steps[0]["who"]), (1, &json!("codex")), "{steps:?}");
}

#[test]
fn tool_events_work_without_preceding_session_or_prompt_events() {
    for client in CLIENTS {
        let bench = Bench::new();
        bench.write("a.txt", "hi\n");
        let before = contents(&bench.project);
        for event in recorded(&bench, client) {
            let is_tool = matches!(name_of(&event), "PreToolUse" | "BeforeTool" | "tool_call");
            let is_after = matches!(name_of(&event), "PostToolUse" | "AfterTool" | "tool_result");
            if is_tool || is_after {
                bench.silent_hook(client, &event);
            }
            if is_tool {
                do_tool(&bench, &event);
            }
        }
        bench.run(&["undo", "--all"]);
        let a_step_of_claude_failed = client == "claude-code";
        if !a_step_of_claude_failed {
            assert_eq!(contents(&bench.project), before, "{client}");
        }
        // An end event without a beginning is not an error.
        let last = recorded(&bench, client).pop().unwrap();
        bench.silent_hook(client, &last);
    }
}

#[test]
fn duplicate_events_record_a_single_step() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    for name in ["SessionStart", "UserPromptSubmit"] {
        let event = bench.claude("t", name, &json!({ "prompt": "x" }));
        bench.silent_hook("claude-code", &event);
        bench.silent_hook("claude-code", &event);
    }
    let command = "echo two > a.txt; echo new > b.txt";
    for _ in 0..2 {
        bench.silent_hook("claude-code", &bench.bash("t", "PreToolUse", "toolu_1", command));
    }
    bench.shell(command);
    for name in ["PostToolUse", "PostToolUse", "Stop", "Stop", "SessionEnd", "SessionEnd"] {
        bench.silent_hook("claude-code", &bench.bash("t", name, "toolu_1", command));
    }
    assert_eq!(bench.steps().len(), 1);
    bench.ok(&["undo"]);
    assert_eq!((bench.read("a.txt").unwrap().as_str(), bench.read("b.txt")), ("one\n", None));
}

/// Some clients send no prompt ids.
#[test]
fn prompts_without_ids_start_new_turns() {
    let bench = Bench::new();
    let without_id = |mut event: Value| {
        event.as_object_mut().unwrap().remove("prompt_id");
        event
    };
    for id in ["1", "2"] {
        let command = format!("echo x > f{id}");
        let prompt = bench.claude("", "UserPromptSubmit", &json!({ "prompt": "text" }));
        bench.hook("claude-code", &without_id(prompt));
        bench.hook("claude-code", &without_id(bench.bash("", "PreToolUse", id, &command)));
        bench.shell(&command);
        bench.hook("claude-code", &without_id(bench.bash("", "PostToolUse", id, &command)));
    }
    bench.ok(&["undo"]);
    assert_eq!((bench.read("f1").is_some(), bench.read("f2").is_some()), (true, false));
}

/// A dry run of an undo in one session must not close the open steps of another.
#[test]
fn undoing_another_session_does_not_interrupt_an_open_step() {
    let bench = Bench::new();
    bench.ok(&["run", "--session", "other", "--", "/bin/sh", "-c", "echo 1 > f1"]);
    bench.hook("claude-code", &bench.bash("t", "PreToolUse", "1", "make"));
    bench.write("f2", "x\n");
    bench.ok(&["undo", "--session", "other", "--dry-run"]);
    bench.write("f3", "x\n");
    bench.hook("claude-code", &bench.bash("t", "PostToolUse", "1", "make"));
    bench.ok(&["undo", "--session", "s"]);
    assert_eq!((bench.read("f2"), bench.read("f3")), (None, None));
}

#[test]
fn a_denied_tool_call_leaves_no_open_step() {
    let bench = Bench::new();
    bench.silent_hook("claude-code", &bench.bash("t", "PreToolUse", "toolu_1", "rm -rf ."));
    let call = json!({ "tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {} });
    let batch = bench.claude("t", "PostToolBatch", &json!({ "tool_calls": [call] }));
    bench.silent_hook("claude-code", &batch);
    bench.write("mine.txt", "mine\n");
    bench.call("t2", "toolu_2", "echo x > x.txt");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("mine.txt").unwrap(), "mine\n");
    bench.fails(&["undo"], 4, "nothing to undo");
}

#[test]
fn undo_keeps_user_edits_made_between_tool_calls() {
    let bench = Bench::new();
    bench.write("a.txt", "one\ntwo\nthree\nfour\n");
    bench.call("t", "toolu_1", "sed -i s/one/ONE/ a.txt");
    bench.write("a.txt", "ONE\ntwo\nthree\nFOUR by me\n");
    bench.call("t", "toolu_2", "echo x > x.txt");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\ntwo\nthree\nFOUR by me\n");
    assert_eq!(bench.read("x.txt"), None);
}

#[test]
fn the_next_prompt_closes_an_interrupted_step() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.silent_hook("claude-code", &bench.bash("t1", "PreToolUse", "toolu_1", "long"));
    bench.write("early.txt", "early\n");
    // Ctrl-C sends no event. Later writes of a left-over process belong to no step.
    bench.silent_hook("claude-code", &bench.claude("t2", "UserPromptSubmit", &json!({})));
    bench.write("late.txt", "late\n");
    bench.call("t2", "toolu_2", "echo two > a.txt");
    let cut_off: Vec<bool> = bench.steps().iter().map(|step| step["inferred"] == true).collect();
    assert_eq!(cut_off, [true, false]);
    bench.ok(&["undo", "--force"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    bench.ok(&["undo", "--force"]);
    assert_eq!(bench.read("early.txt"), None);
    assert_eq!(bench.read("late.txt").unwrap(), "late\n");
}

#[test]
fn the_end_of_a_session_closes_its_open_steps() {
    let bench = Bench::new();
    bench.silent_hook("codex", &json!({
        "session_id": "s", "turn_id": "t", "cwd": bench.project, "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_use_id": "c", "tool_input": { "command": "x" },
    }));
    bench.write("a.txt", "agent\n");
    bench.silent_hook(
        "codex",
        &json!({
            "session_id": "s", "cwd": bench.project, "hook_event_name": "SessionEnd",
        }),
    );
    bench.write("b.txt", "mine\n");
    bench.ok(&["undo", "--force"]);
    assert_eq!((bench.read("a.txt"), bench.read("b.txt").unwrap().as_str()), (None, "mine\n"));
}

#[test]
fn open_steps_of_a_dead_client_are_closed_before_the_next_step() {
    let bench = Bench::new();
    // Python acts as a client that runs the hook and exits.
    let event = bench.bash("t1", "PreToolUse", "toolu_1", "x").to_string();
    let script = "import os, subprocess, sys\n\
                  subprocess.run([os.environ['CTRLZ'], 'hook', 'claude-code'], input=sys.argv[1].encode())";
    let ran = bench.shell(&format!("python3 -c \"{script}\" '{event}'"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    bench.write("dead.txt", "by the dead one\n");
    let mut other = bench.bash("o1", "PreToolUse", "toolu_2", "y");
    other["session_id"] = json!("other");
    bench.silent_hook("claude-code", &other);
    bench.write("other.txt", "by the other one\n");
    other["hook_event_name"] = json!("PostToolUse");
    bench.silent_hook("claude-code", &other);
    let steps = bench.steps();
    assert_eq!(steps.len(), 2, "{steps:?}");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("other.txt"), None);
    assert!(bench.read("dead.txt").is_some());
    let ran = bench.run(&["undo"]);
    assert_eq!(ran.code, 3, "either the dead client or the user wrote it: {ran:?}");
    bench.ok(&["undo", "--force"]);
    assert_eq!(bench.read("dead.txt"), None);
}

#[test]
fn concurrent_hooks_lose_no_changes() {
    const TOOLS: usize = 8;
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let before = contents(&bench.project);
    let all = |name: &str| {
        let start = |at: usize| {
            let event = bench.claude(
                "t",
                name,
                &json!({
                    "tool_name": "Write", "tool_use_id": format!("toolu_{at}"),
                    "tool_input": { "file_path": bench.project.join(format!("f{at}")) },
                }),
            );
            start_hook(&mut bench.command(&["hook", "claude-code"]), &event)
        };
        let running: Vec<Child> = (0..TOOLS).map(start).collect();
        for child in running {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        }
    };
    all("PreToolUse");
    (0..TOOLS).for_each(|at| bench.write(&format!("f{at}"), "new\n"));
    all("PostToolUse");
    bench.ok(&["undo"]);
    assert_eq!(contents(&bench.project), before);
}

fn start_hook(command: &mut Command, event: &Value) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    child
}

#[test]
fn undoing_a_session_includes_its_sub_agents() {
    let bench = Bench::new();
    let task = json!({ "tool_name": "Task", "tool_use_id": "toolu_t", "tool_input": {} });
    bench.silent_hook("claude-code", &bench.claude("t", "PreToolUse", &task));
    for (name, at) in [("PreToolUse", 0), ("PostToolUse", 1)] {
        let mut event = bench.bash("t", name, "toolu_s", "echo x");
        event["agent_id"] = json!("a1");
        bench.silent_hook("claude-code", &event);
        if at == 0 {
            bench.write("by-agent.txt", "x\n");
        }
    }
    bench
        .silent_hook("claude-code", &bench.claude("t", "SubagentStop", &json!({"agent_id": "a1"})));
    bench.silent_hook("claude-code", &bench.claude("t", "PostToolUse", &task));
    let steps = bench.steps();
    assert_eq!(steps[0]["session"], "s/a1", "{steps:?}");
    assert_eq!(steps[0]["parent"]["session"], "s", "{steps:?}");
    bench.ok(&["undo", "--session", "s"]);
    assert_eq!(bench.read("by-agent.txt"), None);
}

#[test]
fn read_only_tools_create_no_snapshot() {
    let bench = Bench::new();
    let input = json!({ "file_path": "a.txt" });
    let read = json!({ "tool_name": "Read", "tool_use_id": "toolu_1", "tool_input": input });
    bench.silent_hook("claude-code", &bench.claude("t", "PreToolUse", &read));
    bench.silent_hook("claude-code", &bench.claude("t", "PostToolUse", &read));
    assert!(bench.json(&["status"])["last"].is_null());
}

#[test]
fn malformed_events_exit_with_0_and_print_nothing() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let project = bench.project.to_str().unwrap();
    let huge = format!(
        r#"{{"session_id":"s","cwd":"{project}","hook_event_name":"PreToolUse","tool_name":"Write","tool_use_id":"h","tool_input":{{"content":"{}"}}}}"#,
        "x".repeat(8 << 20)
    );
    let texts = [
        String::new(),
        "null".into(),
        "[]".into(),
        "{".into(),
        "not JSON at all".into(),
        "\u{0}\u{1}".into(),
        r#"{"hook_event_name": 5}"#.into(),
        r#"{"hook_event_name": "PreToolUse"}"#.into(),
        r#"{"hook_event_name": "SomethingNew", "session_id": "s", "unknown": {"a": [1]}}"#.into(),
        r#"{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash"}"#.into(),
        r#"{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/no/such/directory"}"#
            .into(),
        r#"{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "relative"}"#.into(),
        format!(
            r#"{{"hook_event_name": "PreToolUse", "session_id": "../../x", "cwd": "{project}", "tool_use_id": "../../y"}}"#
        ),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        huge,
    ];
    let outside = contents(&bench.home);
    for text in &texts {
        for client in CLIENTS {
            let ran = feed(&mut bench.command(&["hook", client]), text);
            let shown: String = text.chars().take(100).collect();
            assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{client} {shown:?}: {ran:?}");
        }
    }
    for words in [&["hook"][..], &["hook", "nobody"], &["hook", "codex", "--wrong"]] {
        let ran = feed(&mut bench.command(words), "{}");
        assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{words:?}: {ran:?}");
    }
    assert_eq!(contents(&bench.home), outside, "only the data directory is written to");
    for session in ["s", "../../x"] {
        let end = json!({ "hook_event_name": "SessionEnd", "session_id": session, "cwd": project });
        CLIENTS.iter().for_each(|client| drop(bench.hook(client, &end)));
    }
    bench.call("later", "toolu_later", "echo two > a.txt");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

#[test]
fn a_hook_times_out_when_its_input_never_ends() {
    let bench = Bench::new();
    let mut command = bench.command(&["hook", "claude-code", "--deadline", "300"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    let status = child.wait().unwrap();
    drop(stdin);
    assert!(status.success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn recording_failures_are_shown_by_status_the_next_prompt_and_doctor() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.call("t1", "toolu_1", "echo two > a.txt");
    let lock = find(&bench.data, "lock").expect("the work tree has a lock");
    let file = std::fs::File::open(&lock).unwrap();
    file.lock().unwrap();
    let event = bench.bash("t2", "PreToolUse", "toolu_2", "echo three > a.txt");
    let begun = Instant::now();
    let ran =
        feed(&mut bench.command(&["hook", "claude-code", "--deadline", "500"]), &event.to_string());
    assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{ran:?}");
    assert!(ran.stderr.contains("PreToolUse"), "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    file.unlock().unwrap();

    let status = bench.ok(&["status"]);
    assert!(status.contains("agents     claude-code, PreToolUse"), "{status}");
    let prompt = bench.claude("t3", "UserPromptSubmit", &json!({}));
    let reply: Value = serde_json::from_slice(&bench.hook("claude-code", &prompt).stdout).unwrap();
    assert!(reply["systemMessage"].as_str().unwrap().contains("could not be recorded"), "{reply}");
    bench.silent_hook("claude-code", &prompt);
    let doctor = bench.run(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.text().contains("problem  agents: claude-code, PreToolUse"), "{doctor:?}");
    bench.ok(&["doctor"]);
}

#[test]
fn exceeding_the_file_limit_is_reported_as_a_recording_failure() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("b.txt", "one\n");
    bench.write_home(".config/ctrlz/config.toml", "max_files = 1\n");
    let event = bench.bash("t1", "PreToolUse", "toolu_1", "echo two > a.txt");
    assert_eq!(bench.hook("claude-code", &event).text(), "");
    let status = bench.ok(&["status"]);
    assert!(status.contains("agents     claude-code, PreToolUse"), "{status}");
    assert_eq!(bench.json(&["status"])["failures"][0]["client"], "claude-code");
    std::fs::remove_file(bench.home.join(".config/ctrlz/config.toml")).unwrap();
    let prompt = bench.claude("t2", "UserPromptSubmit", &json!({}));
    let reply: Value = serde_json::from_slice(&bench.hook("claude-code", &prompt).stdout).unwrap();
    assert!(reply["systemMessage"].as_str().unwrap().contains("could not be recorded"), "{reply}");
}

/// Returns the file with this name that belongs to a work tree, anywhere below a directory.
fn find(dir: &Path, name: &str) -> Option<std::path::PathBuf> {
    let named = |path: &Path| path.file_name().is_some_and(|found| found == name);
    contents(dir).into_iter().map(|(path, _)| path).find(|path| {
        named(path)
            && path.parent().is_some_and(|dir| dir.parent().is_some_and(|d| d.ends_with("wt")))
    })
}

#[test]
fn after_an_undo_the_next_prompt_lists_the_changed_files() {
    let events = [
        ("claude-code", "UserPromptSubmit", json!({ "prompt_id": "p2" })),
        ("codex", "UserPromptSubmit", json!({ "turn_id": "p2" })),
        ("gemini-cli", "BeforeAgent", json!({ "timestamp": "2026-11-15T19:24:53.146Z" })),
    ];
    for (client, name, more) in events {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        let mut prompt =
            json!({ "session_id": "s", "cwd": bench.project, "hook_event_name": name });
        bench.silent_hook(client, &prompt);
        bench.call("t1", "toolu_1", "echo two > a.txt; echo x > 'b\tc'");
        bench.ok(&["undo"]);
        for (key, value) in more.as_object().unwrap() {
            prompt[key] = value.clone();
        }
        // The notice covers all steps in the shared work tree, also those of other sessions.
        let ran = bench.hook(client, &prompt);
        let reply: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let output = &reply["hookSpecificOutput"];
        let context = output["additionalContext"].as_str().unwrap();
        assert_eq!(output["hookEventName"], name);
        assert!(context.contains("took back"), "{context}");
        assert!(context.contains("\n- a.txt") && context.contains("\n- b\\tc"), "{context}");
        bench.silent_hook(client, &prompt);
    }
}

#[test]
fn cline_receives_the_undo_notice_in_its_own_format() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let events = recorded(&bench, "cline");
    bench.silent_hook("cline", &events[0]);
    bench.call("t1", "toolu_1", "echo two > a.txt");
    bench.ok(&["undo"]);
    let reply: Value = serde_json::from_slice(&bench.hook("cline", &events[0]).stdout).unwrap();
    assert_eq!(reply["cancel"], false);
    assert!(reply["contextModification"].as_str().unwrap().contains("\n- a.txt"), "{reply}");
}

#[test]
fn the_first_snapshot_is_taken_in_the_background() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    // The client reads our output up to EOF, so a background process must not inherit it.
    bench.silent_hook("claude-code", &bench.claude("t", "SessionStart", &json!({})));
    bench.wait_for("the first snapshot", || !bench.json(&["status"])["last"].is_null());
}

#[test]
fn a_tool_waits_for_the_first_snapshot() {
    let bench = Bench::new();
    for at in 0..3_000 {
        bench.write(&format!("d{}/f{at}", at % 100), &format!("{at}\n"));
    }
    let before = contents(&bench.project);
    bench.silent_hook("claude-code", &bench.claude("t", "UserPromptSubmit", &json!({})));
    bench.call("t", "toolu_1", "rm -r d1; echo x > d2/f2");
    bench.ok(&["undo"]);
    assert_eq!(contents(&bench.project), before);
}

#[test]
fn hooks_are_silent_when_snapshots_are_disabled() {
    let bench = Bench::new();
    bench.write_home(".config/ctrlz/config.toml", "enabled = false\n");
    for event in recorded(&bench, "claude-code") {
        bench.silent_hook("claude-code", &event);
    }
    assert!(bench.json(&["status"])["last"].is_null());
}

#[test]
fn the_warning_about_an_unprotected_home_directory_is_shown_once() {
    let bench = Bench::new();
    let prompt = json!({
        "session_id": "s", "prompt_id": "p", "cwd": bench.home, "hook_event_name": "UserPromptSubmit",
    });
    let reply: Value = serde_json::from_slice(&bench.hook("claude-code", &prompt).stdout).unwrap();
    assert!(reply["systemMessage"].as_str().unwrap().contains("cannot be undone"), "{reply}");
    assert_eq!(bench.hook("claude-code", &prompt).text(), "");
}

#[test]
fn a_session_stays_with_the_project_it_began_in() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    std::fs::create_dir_all(bench.home.join("elsewhere")).unwrap();
    let command = "cd ../elsewhere && echo x > y; echo two > ../project/a.txt";
    bench.silent_hook("claude-code", &bench.bash("t", "PreToolUse", "toolu_1", command));
    bench.shell(command);
    let mut after = bench.bash("t", "PostToolUse", "toolu_1", command);
    after["cwd"] = json!(bench.home.join("elsewhere"));
    bench.silent_hook("claude-code", &after);
    assert_eq!(bench.steps().len(), 1);
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

/// A process that runs hooks like a client.
struct ClientProgram {
    process: Child,
    runs: usize,
}

impl ClientProgram {
    fn start(bench: &Bench) -> ClientProgram {
        // `xargs` is the client. It runs one line after the other, each in a shell.
        let mut command = program("xargs");
        command.args(["-d", "\\n", "-n", "1", "sh", "-c"]).current_dir(&bench.project);
        command.env("HOME", &bench.home).env("CTRLZ_DATA_DIR", &bench.data);
        let process = command.stdin(Stdio::piped()).spawn().unwrap();
        ClientProgram { process, runs: 0 }
    }

    fn hook(&mut self, bench: &Bench, client: &str, event: &Value) {
        self.runs += 1;
        let mark = bench.home.join(format!("ran-{}-{}", self.process.id(), self.runs));
        let file = mark.with_extension("json");
        std::fs::write(&file, event.to_string()).unwrap();
        let (file, mark) = (file.to_str().unwrap(), mark.to_str().unwrap());
        let program = env!("CARGO_BIN_EXE_ctrlz");
        let line = format!("{program} hook {client} < {file}; touch {mark}\n");
        self.process.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        bench.wait_for("the hook", || Path::new(mark).exists());
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        self.process.stdin.take();
        self.process.wait().unwrap();
    }
}

/// Returns an event of Codex, which names the project only by the agent's directory.
fn codex(dir: &Path, name: &str, call: &str) -> Value {
    json!({
        "session_id": "main", "turn_id": "t", "cwd": dir, "hook_event_name": name,
        "tool_name": "Bash", "tool_use_id": call, "tool_input": { "command": "make" },
    })
}

fn steps_in(bench: &Bench, dir: &Path) -> usize {
    let log = feed(&mut bench.command(&["-C", dir.to_str().unwrap(), "log", "--json"]), "");
    let log: Value = serde_json::from_slice(&log.stdout).unwrap();
    let operations = log["operations"].as_array().unwrap();
    operations.iter().flat_map(|one| one["steps"].as_array().unwrap()).count()
}

#[test]
fn the_same_session_id_in_two_projects_is_two_sessions() {
    let bench = Bench::new();
    let other = bench.home.join("other");
    std::fs::create_dir_all(&other).unwrap();
    let mut one = ClientProgram::start(&bench);
    let mut two = ClientProgram::start(&bench);
    for call in ["1", "2"] {
        one.hook(&bench, "codex", &codex(&bench.project, "PreToolUse", call));
        two.hook(&bench, "codex", &codex(&other, "PreToolUse", call));
        bench.write("a.txt", call);
        std::fs::write(other.join("b.txt"), call).unwrap();
        // The first agent's shell has moved to the other project, but its session has not.
        one.hook(&bench, "codex", &codex(&other, "PostToolUse", call));
        two.hook(&bench, "codex", &codex(&other, "PostToolUse", call));
    }
    assert_eq!((steps_in(&bench, &bench.project), steps_in(&bench, &other)), (2, 2));
    // Sessions of exited clients do not affect a later client in another project.
    drop((one, two));
    let third = bench.home.join("third");
    std::fs::create_dir_all(&third).unwrap();
    let mut three = ClientProgram::start(&bench);
    three.hook(&bench, "codex", &codex(&third, "PreToolUse", "1"));
    std::fs::write(third.join("c.txt"), "x").unwrap();
    three.hook(&bench, "codex", &codex(&third, "PostToolUse", "1"));
    assert_eq!(steps_in(&bench, &third), 1);
    assert_eq!((steps_in(&bench, &bench.project), steps_in(&bench, &other)), (2, 2));
}

#[test]
fn a_prompt_in_another_project_moves_the_session_of_the_same_client() {
    let bench = Bench::new();
    let other = bench.home.join("other");
    std::fs::create_dir_all(&other).unwrap();
    let mut client = ClientProgram::start(&bench);
    for dir in [&bench.project, &other] {
        client.hook(&bench, "codex", &codex(dir, "UserPromptSubmit", ""));
        client.hook(&bench, "codex", &codex(dir, "PreToolUse", "1"));
        std::fs::write(dir.join("made"), "x").unwrap();
        client.hook(&bench, "codex", &codex(dir, "PostToolUse", "1"));
    }
    assert_eq!((steps_in(&bench, &bench.project), steps_in(&bench, &other)), (1, 1));
}

#[test]
fn the_project_named_by_the_client_determines_the_session() {
    let bench = Bench::new();
    let other = bench.home.join("other");
    std::fs::create_dir_all(&other).unwrap();
    // The client process and the agent's directory are the same in all events.
    let hook = |project: &Path, name: &str, call: &str| {
        let event = bench.bash("t", name, call, "make");
        let mut command = bench.command(&["hook", "claude-code"]);
        let ran = feed(command.env("CLAUDE_PROJECT_DIR", project), &event.to_string());
        assert_eq!((ran.code, ran.text().as_str()), (0, ""));
    };
    for (project, call) in [(&bench.project, "1"), (&other, "2"), (&bench.project, "3")] {
        hook(project, "PreToolUse", call);
        std::fs::write(project.join("file"), call).unwrap();
        hook(project, "PostToolUse", call);
    }
    assert_eq!((steps_in(&bench, &bench.project), steps_in(&bench, &other)), (2, 1));
}

#[test]
fn undo_restores_ignored_files_named_in_a_command() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write(".gitignore", "build/\n*.secret\n");
    bench.write("build/deep/out.bin", "built\n");
    bench.write("local.secret", "secret\n");
    bench.write("a.txt", "one\n");
    let before = contents(&bench.project);
    bench.call("t", "toolu_1", "cd build && rm -r deep; rm ../*.secret; echo two > ../a.txt");
    assert_ne!(contents(&bench.project), before);
    bench.ok(&["undo"]);
    let without_git = |files: Vec<(std::path::PathBuf, Vec<u8>)>| {
        let own = |path: &Path| path.components().any(|part| part.as_os_str() == ".git");
        files.into_iter().filter(|(path, _)| !own(path)).collect::<Vec<_>>()
    };
    assert_eq!(without_git(contents(&bench.project)), without_git(before));
}

#[test]
fn files_outside_the_project_are_restored_only_with_the_outside_flag() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write_home("photos/one.jpg", "a photo\n");
    bench.call("t1", "toolu_1", "echo mine > mine.txt");
    let command = "rm -r ~/photos; echo two > a.txt; echo x > ~/new.txt";
    bench.call("t2", "toolu_2", command);
    let photo = bench.home.join("photos/one.jpg");
    let plan = bench.ok(&["undo", "--dry-run"]);
    assert!(plan.contains("photos/one.jpg") && plan.contains("--outside"), "{plan}");
    let said = bench.ok(&["undo"]);
    assert!(said.contains("photos/one.jpg") && said.contains("--outside"), "{said}");
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    assert!(!photo.exists());
    let said = bench.ok(&["undo", "--outside"]);
    assert_eq!(std::fs::read_to_string(&photo).unwrap(), "a photo\n", "{said}");
    assert!(!bench.home.join("new.txt").exists(), "{said}");
    assert!(bench.read("mine.txt").is_some(), "the turn before is not undone: {said}");
    let redone = bench.json(&["redo"]);
    assert_eq!(redone["outside"].as_array().unwrap().len(), 3, "{redone}");
    assert!(!photo.exists() && bench.home.join("new.txt").exists(), "{redone}");
    let plan = bench.json(&["undo", "--outside", "--dry-run"]);
    assert!(!photo.exists(), "{plan}");
    let undone = bench.json(&["undo", "--outside"]);
    assert_eq!((&undone["outside"], &undone["complete"]), (&plan["outside"], &json!(true)));
    assert!(photo.exists());
    bench.ok(&["undo", "--outside"]);
    assert!(bench.read("mine.txt").is_none());
}

#[test]
fn a_directory_named_through_a_link_with_a_slash_is_captured() {
    let bench = Bench::new();
    bench.shell("git init -q .; mkdir kept; ln -s \"$HOME/data\" outside; ln -s kept inside");
    bench.write(".gitignore", "kept/\n");
    bench.write("kept/f", "precious\n");
    bench.write_home("data/f", "precious\n");
    bench.call("t1", "toolu_1", "find outside/ inside/ -type f -delete");
    assert!(!bench.home.join("data/f").exists() && bench.read("kept/f").is_none());
    bench.ok(&["undo", "--outside"]);
    assert_eq!(std::fs::read_to_string(bench.home.join("data/f")).unwrap(), "precious\n");
    assert_eq!(bench.read("kept/f").unwrap(), "precious\n");
}

#[test]
fn parallel_commands_are_distinguished_by_the_files_they_write() {
    let bench = Bench::new();
    let of =
        |name: &str, id: &str, file: &str| bench.bash("t", name, id, &format!("echo x > {file}"));
    bench.silent_hook("claude-code", &of("PreToolUse", "toolu_1", "one"));
    bench.silent_hook("claude-code", &of("PreToolUse", "toolu_2", "two"));
    bench.write("one", "x\n");
    bench.write("two", "x\n");
    bench.silent_hook("claude-code", &of("PostToolUse", "toolu_1", "one"));
    bench.silent_hook("claude-code", &of("PostToolUse", "toolu_2", "two"));
    bench.ok(&["undo", "--last-step"]);
    let left = [bench.read("one"), bench.read("two")];
    assert_eq!(left.iter().flatten().count(), 1, "{left:?}");
}

#[test]
fn a_hook_killed_before_its_tool_call_is_reported_by_status() {
    let bench = Bench::new();
    bench.write("a", "1\n");
    bench.call("t1", "toolu_1", "echo 2 > a");
    let lock = find(&bench.data, "lock").expect("the work tree has a lock");
    let file = std::fs::File::options().write(true).open(lock).unwrap();
    file.lock().unwrap();
    let event = bench.bash("t1", "PreToolUse", "toolu_2", "echo 3 > a");
    let mut hook = bench.command(&["hook", "claude-code"]);
    let mut hook = hook.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    hook.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let is_begun = |(_, bytes): &(std::path::PathBuf, Vec<u8>)| {
        String::from_utf8_lossy(bytes).contains("toolu_2")
    };
    bench.wait_for("the hook to begin its step", || {
        contents(&bench.data.join("agents/sessions")).iter().any(is_begun)
    });
    hook.kill().unwrap();
    hook.wait().unwrap();
    drop(file);
    bench.shell("echo 3 > a");
    bench.hook("claude-code", &bench.bash("t1", "PostToolUse", "toolu_2", "echo 3 > a"));
    assert!(bench.ok(&["status"]).contains("did not finish"), "{}", bench.ok(&["status"]));
}

#[test]
fn undo_keeps_user_edits_made_while_a_sub_agent_works() {
    let bench = Bench::new();
    bench.write("notes", "n\n");
    let task = |name: &str| {
        let input = json!({ "description": "d", "prompt": "p", "subagent_type": "x" });
        let more = json!({ "tool_name": "Task", "tool_use_id": "t1", "tool_input": input });
        bench.claude("t", name, &more)
    };
    let call = |name: &str| {
        let mut event = bench.bash("t", name, "t2", "echo sub > sub");
        event["agent_id"] = "ag1".into();
        event
    };
    bench.silent_hook("claude-code", &task("PreToolUse"));
    bench.silent_hook("claude-code", &call("PreToolUse"));
    bench.shell("echo sub > sub");
    bench.silent_hook("claude-code", &call("PostToolUse"));
    bench.write("notes", "n\nUSER\n");
    bench.silent_hook("claude-code", &task("PostToolUse"));
    bench.silent_hook("claude-code", &bench.claude("t", "Stop", &json!({})));
    bench.ok(&["undo"]);
    assert_eq!(bench.read("notes").as_deref(), Some("n\nUSER\n"));
    assert_eq!(bench.read("sub"), None);
}

#[test]
fn a_hook_writes_nothing_through_a_linked_agents_directory() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let target = bench.home.join("target");
    std::fs::create_dir(&target).unwrap();
    std::fs::create_dir_all(&bench.data).unwrap();
    std::os::unix::fs::symlink(&target, bench.data.join("agents")).unwrap();
    for name in ["SessionStart", "PreToolUse"] {
        let ran = bench.hook("claude-code", &bench.bash("t", name, "c", "rm a.txt"));
        assert!(ran.stderr.contains("could not be kept"), "{ran:?}");
        assert!(ran.stderr.contains("not a directory of this user's"), "{ran:?}");
        let written = std::fs::read_dir(&target).unwrap().count();
        assert_eq!(written, 0, "{name}");
    }
}

/// Runs an edit tool of a client while the user edits the same file during the permission question.
/// Returns the file after an undo.
fn edited_while_asked(client: &str, call: &Value, response: &Value) -> String {
    let bench = Bench::new();
    bench.write("a.txt", "one\ntwo\nthree\nfour\n");
    let event = |before: &str, more: Value| {
        let mut event = bench.claude("p", before, call);
        if client == "codex" {
            event["turn_id"] = event["prompt_id"].take();
        }
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let [before, after] = match client {
        "gemini-cli" => ["BeforeTool", "AfterTool"],
        _ => ["PreToolUse", "PostToolUse"],
    };
    bench.silent_hook(client, &event(before, json!({})));
    bench.write("a.txt", "one\nUSER\ntwo\nthree\nfour\n");
    bench.write("a.txt", "one\nUSER\ntwo\nthree\nAGENT\n");
    bench.silent_hook(client, &event(after, json!({ "tool_response": response })));
    let blame = bench.json(&["blame", "a.txt"]);
    let origin = |line: usize| blame["lines"][line]["origin"]["kind"].as_str().unwrap().to_owned();
    assert_eq!([origin(1), origin(4)], ["outside", "step"], "{client} {blame}");
    assert_eq!(bench.run(&["undo"]).code, 0, "{client}");
    let undone = bench.read("a.txt").unwrap();
    assert_eq!(bench.run(&["redo"]).code, 0, "{client}");
    assert_eq!(bench.read("a.txt").unwrap(), "one\nUSER\ntwo\nthree\nAGENT\n", "{client}");
    undone
}

#[test]
fn undo_keeps_user_edits_made_to_the_edited_file_while_permission_was_asked() {
    let found = "one\nUSER\ntwo\nthree\nfour\n";
    let written = "one\nUSER\ntwo\nthree\nAGENT\n";
    let id = |tool: &str, input: Value| json!({ "tool_name": tool, "tool_use_id": "1", "tool_call_id": "1", "tool_input": input });
    let write = json!({ "file_path": "a.txt", "content": written });
    let edit = json!({ "file_path": "a.txt", "old_string": "four", "new_string": "AGENT" });
    let short = json!({ "path": "a.txt", "old_str": "four", "new_str": "AGENT" });
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n three\n-four\n+AGENT\n*** End Patch";
    let patch = json!({ "command": patch });
    let shown = json!({ "returnDisplay": { "originalContent": found } });
    let calls = [
        ("claude-code", id("Write", write.clone()), json!({ "originalFile": found })),
        ("claude-code", id("Edit", edit.clone()), json!({ "originalFile": found })),
        ("gemini-cli", id("write_file", write), shown),
        ("qwen-code", id("edit", edit), json!("ok")),
        ("copilot", id("Edit", short), json!("ok")),
        ("codex", id("apply_patch", patch), json!("ok")),
    ];
    for (client, call, response) in calls {
        assert_eq!(edited_while_asked(client, &call, &response), found, "{client} {call}");
    }
}

#[test]
fn an_edit_through_a_symlink_owns_the_target() {
    let bench = Bench::new();
    bench.write("AGENTS.md", "one\ntwo\n");
    std::os::unix::fs::symlink("AGENTS.md", bench.project.join("CLAUDE.md")).unwrap();
    bench.run(&["track"]);
    let call = json!({
        "tool_name": "Edit", "tool_use_id": "t1",
        "tool_input": {
            "file_path": bench.project.join("CLAUDE.md"), "old_string": "two", "new_string": "AGENT",
        },
    });
    bench.silent_hook("claude-code", &bench.claude("p1", "PreToolUse", &call));
    bench.write("AGENTS.md", "one\nAGENT\n");
    bench.silent_hook("claude-code", &bench.claude("p1", "PostToolUse", &call));
    assert_eq!(bench.run(&["undo"]).code, 0);
    assert_eq!(bench.read("AGENTS.md").as_deref(), Some("one\ntwo\n"));
}
