//! `run`, `guard`, `undo`, `redo`, `log`, `sessions` and `demo`.

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::bench::{Bench, Ran, contents, finish};

impl Bench {
    /// Runs a shell script as a step.
    fn step(&self, script: &str) -> Ran {
        self.run(&["run", "--", "/bin/sh", "-c", script])
    }

    fn guarded(&self, script: &str) -> Ran {
        self.run(&["guard", "--", "/bin/sh", "-c", script])
    }
}

#[test]
fn a_run_is_undone_and_redone() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("deep/b.txt", "one\n");
    let before = contents(&bench.project);
    let ran = bench.step("echo two > a.txt; rm -r deep; echo new > new.txt; echo shown");
    assert_eq!((ran.code, ran.text().as_str()), (0, "shown\n"), "{ran:?}");
    assert_eq!(ran.stderr, "ctrlz: 3 files changed; undo: ctrlz undo\n");
    let after = contents(&bench.project);

    let report = bench.ok(&["undo"]);
    assert_eq!(contents(&bench.project), before);
    let lines: Vec<&str> = report.lines().collect();
    assert!(lines[0].starts_with("undo /bin/sh -c echo two > a.txt;"), "{report}");
    assert_eq!(
        lines[1..],
        [
            "~ overwrite  a.txt",
            "+ create     deep/b.txt",
            "- remove     new.txt",
            "redo: ctrlz redo"
        ]
    );
    bench.fails(&["undo"], 4, "nothing to undo");

    let report = bench.ok(&["redo"]);
    assert_eq!(contents(&bench.project), after);
    assert!(report.ends_with("undo: ctrlz undo"), "{report}");
    bench.fails(&["redo"], 4, "nothing to redo");
}

#[test]
fn undo_reverts_one_run_at_a_time() {
    let bench = Bench::new();
    for number in ["1", "2", "3"] {
        bench.step(&format!("echo {number} > f{number}"));
    }
    bench.ok(&["undo"]);
    assert!(bench.read("f3").is_none() && bench.read("f2").is_some());
    bench.ok(&["undo"]);
    assert!(bench.read("f2").is_none() && bench.read("f1").is_some());
}

#[test]
fn the_commands_exit_code_is_passed_on() {
    let bench = Bench::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137)] {
        assert_eq!(bench.step(script).code, code, "{script}");
        assert_eq!(bench.guarded(script).code, code, "{script}");
    }
    bench.fails(&["run", "--", "/nonexistent/x"], 127, "cannot run");
    bench.write("not-executable", "");
    bench.fails(&["run", "--", "./not-executable"], 126, "cannot run");
    bench.step("echo x > after");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("after"), None, "a command that did not start leaves no open step");
}

#[test]
fn a_failed_command_is_recorded_as_a_step() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    assert_eq!(bench.step("echo two > a.txt; exit 1").code, 1);
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

#[test]
fn a_guard_undoes_on_failure_and_keeps_on_success() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let ran = bench.guarded("echo two > a.txt; mkdir new; echo x > new/file; exit 7");
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.stderr.contains("failed with 7; 3 paths put back; redo: ctrlz redo"), "{ran:?}");
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    assert!(!bench.project.join("new").exists());
    bench.ok(&["redo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "two\n");

    let ran = bench.guarded("echo three > a.txt");
    assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{ran:?}");
    assert_eq!(bench.read("a.txt").unwrap(), "three\n");
    let ran = bench.guarded("exit 1");
    assert!(ran.stderr.contains("it changed nothing"), "{ran:?}");
    assert_eq!(bench.read("a.txt").unwrap(), "three\n", "only its own step is undone");
}

#[test]
fn guard_removes_any_number_of_new_files_without_confirmation() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let before = contents(&bench.project);
    let script = "i=0; while [ $i -lt 200 ]; do echo x > f$i; i=$((i+1)); done; exit 1";
    let ran = bench.guarded(script);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(contents(&bench.project), before);
}

#[test]
fn undo_keeps_user_edits_made_after_the_step() {
    let bench = Bench::new();
    bench.write("code", "one\ntwo\nthree\nfour\nfive\n");
    bench.step("sed -i s/one/ONE/ code; echo x > new");
    bench.write("code", "ONE\ntwo\nthree\nfour\nFIVE by me\n");
    bench.write("mine", "keep me\n");
    bench.ok(&["undo"]);
    assert_eq!(bench.read("code").unwrap(), "one\ntwo\nthree\nfour\nFIVE by me\n");
    assert_eq!(bench.read("mine").unwrap(), "keep me\n");
    assert_eq!(bench.read("new"), None);
}

#[test]
fn undo_keeps_and_reports_conflicting_files() {
    let bench = Bench::new();
    bench.write("f", "one\n");
    bench.write("g", "one\n");
    bench.step("echo agent > f; echo agent > g");
    bench.write("f", "mine\n");
    let ran = bench.run(&["undo", "--dry-run"]);
    assert_eq!(ran.code, 3, "a dry run exits like the real one: {ran:?}");
    assert!(ran.text().contains("! kept       f: it was changed since"), "{ran:?}");
    assert_eq!(bench.read("g").unwrap(), "agent\n", "a dry run changes nothing");
    let ran = bench.run(&["undo"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let text = ran.text();
    assert!(text.contains("! kept       f: it was changed since"), "{text}");
    assert!(text.contains("~ overwrite  g"), "{text}");
    assert!(text.ends_with("redo: ctrlz redo\n"), "{text}");
    assert_eq!(
        (bench.read("f").unwrap(), bench.read("g").unwrap()),
        ("mine\n".into(), "one\n".into())
    );
}

#[test]
fn undo_force_overwrites_conflicting_files() {
    let bench = Bench::new();
    bench.write("f", "one\n");
    bench.step("echo agent > f");
    bench.write("f", "mine\n");
    let ran = bench.run(&["undo"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.text().ends_with("nothing was undone; --force takes the earlier versions\n"));
    let ran = bench.run(&["--json", "undo"]);
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, &json["complete"]), (3, &false.into()));
    assert_eq!(json["conflicts"][0]["path"], "f");
    bench.ok(&["undo", "--force"]);
    assert_eq!(bench.read("f").unwrap(), "one\n");
    bench.ok(&["redo"]);
    assert_eq!(bench.read("f").unwrap(), "mine\n");
}

#[test]
fn undo_executes_only_a_matching_plan() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.step("echo two > a.txt");
    let plan = bench.json(&["undo", "--dry-run"])["plan"].as_str().unwrap().to_owned();
    let other = "1".repeat(40);
    bench.fails(&["undo", "--plan", &other], 5, "moved since the plan");
    bench.fails(&["undo", "--dry-run", "--plan", &other], 5, "moved since the plan");
    assert_eq!(bench.read("a.txt").unwrap(), "two\n");
    bench.ok(&["undo", "--plan", &plan]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

/// Three messages of session `s`, the first with two steps, and one of session `t`.
fn agents() -> Bench {
    let bench = Bench::new();
    for (session, message, file) in
        [("s", "m1", "a"), ("s", "m1", "b"), ("s", "m2", "c"), ("t", "m1", "d"), ("s", "m3", "e")]
    {
        let script = format!("echo x > {file}");
        let words = ["run", "--session", session, "--message", message, "--tool", "sh"];
        let more = ["--who", "agent", "--label", file, "--", "/bin/sh", "-c", &script];
        bench.ok(&[&words[..], &more].concat());
    }
    bench
}

#[track_caller]
fn check_undo(words: &[&str], left: &str) {
    let bench = agents();
    bench.ok(&[&["undo"], words].concat());
    let files: String =
        ["a", "b", "c", "d", "e"].into_iter().filter(|file| bench.read(file).is_some()).collect();
    assert_eq!(files, left, "{words:?}");
}

#[test]
fn undo_can_be_limited_to_a_step_message_session_or_path() {
    check_undo(&[], "abcd");
    check_undo(&["--last-step"], "abcd");
    check_undo(&["--message", "m2"], "abde");
    check_undo(&["--to", "m2"], "abd");
    check_undo(&["--all"], "d");
    check_undo(&["--session", "t"], "abce");
    check_undo(&["--session", "t", "--all"], "abce");
    check_undo(&["--session", "s", "--message", "m1"], "cde");
    check_undo(&["--all", "--", "a", "./b"], "cde");
}

#[test]
fn undo_selects_a_single_step_by_its_id() {
    let bench = agents();
    let log = bench.json(&["log"]);
    let id = log["operations"][3]["steps"][0]["step"].as_str().unwrap();
    let report = bench.ok(&["undo", "--step", id]);
    assert!(report.starts_with("undo sh: b (agent, session s)\n"), "{report}");
    assert!(bench.read("b").is_none() && bench.read("a").is_some() && bench.read("e").is_some());
    let report = bench.ok(&["redo"]);
    let way_back = report.lines().last().unwrap().strip_prefix("undo: ctrlz ").unwrap();
    bench.ok(&way_back.split(' ').collect::<Vec<_>>());
    assert_eq!(bench.read("b"), None, "the suggested command undoes this redo, not the last turn");
    bench.fails(&["undo", "--step", "nope"], 4, "no step");
    bench.fails(&["undo", "--message", "nope"], 4, "no step of a message");
    bench.fails(&["undo", "--session", "nope"], 4, "nothing to undo");
}

#[test]
fn run_suggests_an_undo_command_for_its_own_step() {
    let bench = agents();
    let script = "echo x > f";
    let ran =
        bench.run(&["run", "--session", "s", "--message", "m3", "--", "/bin/sh", "-c", script]);
    let way_back = ran.stderr.trim_end().split_once("undo: ctrlz ").unwrap().1;
    bench.ok(&way_back.split(' ').collect::<Vec<_>>());
    assert!(bench.read("f").is_none() && bench.read("e").is_some());
}

#[test]
fn log_lists_all_operations_newest_first() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.step("echo two > a.txt; echo x > b.txt");
    bench.write("mine.txt", "one\ntwo\n");
    bench.ok(&["undo"]);
    bench.ok(&["redo"]);
    let text = bench.ok(&["log"]);
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        (">   ", "redo of /bin/sh -c echo two", "2 files +2 -1"),
        ("<   ", "undo of /bin/sh -c echo two", "2 files +1 -2"),
        ("| o ", "outside (you or a late process)", "mine.txt +2 -0"),
        ("* | ", "step: /bin/sh -c echo two", "2 files +2 -1"),
        ("  # ", "baseline", "operation "),
    ];
    assert_eq!(lines.len(), expected.len(), "{text}");
    for (line, (sign, title, counts)) in lines.iter().zip(expected) {
        assert!(line.starts_with(sign) && line.contains(" ago "), "{line}");
        assert!(line.contains(title) && line.contains(counts), "{line}");
    }
    assert!(lines[3].contains(" run/") && lines[3].contains(" step 0"), "{text}");
    assert!(!text.contains("[undone]"), "{text}");
    assert_eq!(bench.ok(&["log", "-n", "2"]).lines().count(), 2);

    bench.ok(&["undo"]);
    assert!(bench.ok(&["log"]).lines().nth(4).unwrap().contains("[undone]"));
    let json = bench.json(&["log", "-n", "5"]);
    let kinds: Vec<&str> = json["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|op| op["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["undo", "redo", "undo", "outside", "step"]);
    let step = &json["operations"][4];
    assert_eq!((&step["files"], &step["additions"]), (&2.into(), &2.into()));
    assert_eq!(step["steps"][0]["undone"], true);
    assert_eq!(json["operations"][0]["subjects"][0], step["steps"][0]["step"]);
}

#[test]
fn log_symbols_follow_the_locale() {
    let bench = Bench::new();
    bench.step("echo x > a");
    let first = |variables: &[(&str, &str)]| {
        let ran = finish(bench.command(&["log"]).envs(variables.iter().copied()));
        ran.text().chars().next().unwrap()
    };
    assert_eq!(first(&[]), '*');
    assert_eq!(first(&[("LANG", "en_US.UTF-8")]), '●');
    assert_eq!(first(&[("LANG", "C.utf8")]), '●');
    assert_eq!(first(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]), '*');
    assert_eq!(first(&[("LC_CTYPE", "C.UTF-8"), ("LANG", "C"), ("LC_ALL", "")]), '●');
}

#[test]
fn log_can_be_limited_to_a_session_and_sessions_lists_all() {
    let bench = agents();
    bench.ok(&["undo", "--session", "t"]);
    assert_eq!(bench.ok(&["log", "t"]).lines().count(), 2, "the step and its undo");
    assert_eq!(bench.ok(&["log", "s"]).lines().count(), 4);
    bench.fails(&["log", "nope"], 4, "`ctrlz sessions`");
    let text = bench.ok(&["sessions"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("s  agent, 4 steps, "), "{text}");
    assert!(lines[1].starts_with("t  agent, 1 step (1 undone), "), "{text}");
    let json = bench.json(&["sessions"]);
    assert_eq!(json["sessions"][0]["session"], "s");
    assert_eq!(json["sessions"][1]["undone"], 1);
}

#[test]
fn log_and_sessions_succeed_without_a_store() {
    let bench = Bench::new();
    for words in [["log"], ["sessions"]] {
        let ran = bench.run(&words);
        assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{ran:?}");
        assert!(!ran.stderr.is_empty());
    }
    assert_eq!(bench.json(&["log"])["operations"], serde_json::json!([]));
    assert!(!bench.data.exists());
}

#[test]
fn control_characters_from_agents_are_escaped_in_log_and_undo() {
    let bench = Bench::new();
    let evil = "\u{1b}[2J\u{202e}\nx";
    let words = ["run", "--session", evil, "--message", evil, "--tool", evil, "--who", evil];
    bench.ok(&[&words[..], &["--label", evil, "--", "/bin/sh", "-c", "echo x > a"]].concat());
    for words in [["log"], ["sessions"], ["undo"], ["log"], ["redo"]] {
        let text = bench.ok(&words);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{words:?}: {text:?}");
    }
}

#[test]
fn run_and_guard_require_a_snapshot_unless_anyway_is_given() {
    let bench = Bench::new();
    bench.write_home(".config/ctrlz/config.toml", "enabled = false\n");
    for command in ["run", "guard"] {
        let words = ["--", "/bin/sh", "-c", "echo x > ran; exit 4"];
        bench.fails(&[&[command], &words[..]].concat(), 7, "--anyway");
        assert_eq!(bench.read("ran"), None);
        let ran = bench.run(&[&[command, "--anyway"], &words[..]].concat());
        assert_eq!(ran.code, 4, "{ran:?}");
        assert!(ran.stderr.contains("without a way back"), "{ran:?}");
        std::fs::remove_file(bench.project.join("ran")).unwrap();
    }
    // An invalid configuration might disable snapshots, so it is an error.
    bench.write_home(".config/ctrlz/config.toml", "nonsense\n");
    bench.fails(&["run", "--", "/bin/sh", "-c", "echo x > ran"], 2, "config.toml");
    assert_eq!(bench.read("ran"), None);
}

#[test]
fn run_executes_the_command_in_the_selected_directory() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("sub/a", "one\n");
    let ran = bench.run(&["-C", "sub", "run", "--", "/bin/sh", "-c", "echo two > a; pwd"]);
    assert_eq!(ran.text().trim_end(), bench.project.join("sub").to_str().unwrap());
    bench.ok(&["undo"]);
    assert_eq!(bench.read("sub/a").unwrap(), "one\n");
}

#[test]
fn undo_restores_files_after_the_step_deleted_the_git_repository() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.git(&["add", "-A"]);
    bench.git(&["commit", "-q", "-m", "first"]);
    assert_eq!(bench.step("rm -rf .git a.txt").code, 0);
    let ran = bench.run(&["undo"]);
    assert_eq!(ran.code, 3, "the repository itself cannot come back: {ran:?}");
    assert!(
        ran.text().contains("! lost       .git: it is gone, and no snapshot holds it"),
        "{ran:?}"
    );
    assert_eq!(bench.read("a.txt").unwrap(), "one\n", "borrowed objects were copied in time");
}

#[test]
fn undo_suggests_git_reset_when_head_moved() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.git(&["add", "-A"]);
    bench.git(&["commit", "-q", "-m", "first"]);
    let head = bench.git(&["rev-parse", "HEAD"]).text();
    bench.track();
    bench.write("b.txt", "mine\n");
    bench.track();
    bench.ok(&["run", "--", "/bin/sh", "-c", "echo two > a.txt"]);
    bench.git(&["commit", "-q", "-am", "second"]);
    let report = bench.ok(&["undo"]);
    let hint = format!("your git moved too; to move it back: git reset --soft {}", head.trim());
    assert!(report.lines().any(|line| line == hint), "{report}");
    assert!(report.ends_with("redo: ctrlz redo"), "{report}");
}

#[test]
fn run_returns_the_commands_exit_code_even_if_recording_fails() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    for code in [0, 6] {
        let data = bench.data.to_str().unwrap();
        let ran = bench.step(&format!("echo two > a.txt; mv {data} {data}-{code}; exit {code}"));
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.stderr.contains("was not recorded"), "{ran:?}");
        assert!(ran.stderr.contains("before it: ctrlz restore --exact "), "{ran:?}");
    }
}

/// Starts a step in its own process group and waits until its command runs.
fn start(bench: &Bench, script: &str) -> (Child, Pid) {
    let script = format!("{script}; echo > ready; exec sleep 30");
    let mut command = bench.command(&["run", "--", "/bin/sh", "-c", &script]);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.read("ready").is_none() {
        assert!(Instant::now() < deadline, "the command never ran");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_child(&child);
    (child, pid)
}

#[track_caller]
fn check_interrupted(child: Child, bench: &Bench, code: i32) {
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, code, "{ran:?}");
    assert_eq!(ran.stderr, "ctrlz: 2 files changed; undo: ctrlz undo\n");
    // The step is closed, so later changes do not belong to it.
    bench.write("mine", "keep me\n");
    bench.ok(&["undo"]);
    let left: Vec<bool> = ["a", "ready", "mine"].map(|name| bench.read(name).is_some()).into();
    assert_eq!(left, [false, false, true]);
    assert_eq!(bench.json(&["log"])["operations"][2]["steps"][0]["inferred"], false);
}

#[test]
fn ctrl_c_ends_the_command_and_its_step_is_recorded() {
    let bench = Bench::new();
    let (child, group) = start(&bench, "echo x > a");
    kill_process_group(group, Signal::INT).unwrap();
    check_interrupted(child, &bench, 128 + 2);
}

#[test]
fn sigterm_is_forwarded_to_the_command_and_its_step_is_recorded() {
    let bench = Bench::new();
    let (child, pid) = start(&bench, "echo x > a");
    kill_process(pid, Signal::TERM).unwrap();
    check_interrupted(child, &bench, 128 + 15);
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let bench = Bench::new();
    let script = "trap '' HUP; exec $CTRLZ run -- /bin/sh -c 'kill -HUP $$; echo alive'";
    let ran = bench.shell(script);
    assert_eq!((ran.code, ran.text().as_str()), (0, "alive\n"), "{ran:?}");
}

#[test]
fn demo_prints_the_expected_output_and_cleans_up() {
    let bench = Bench::new();
    let temp = bench.home.join("tmp");
    std::fs::create_dir(&temp).unwrap();
    let mut command = bench.command(&["demo"]);
    let ran = finish(command.env("TMPDIR", &temp));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let text = ran.text();
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.len() <= 80), "{text}");
    let shown: Vec<&str> = text.lines().filter(|line| line.contains("src/app.py  ")).collect();
    let values = ["'hello'; vat = 0.19", "'HELLO!!!'; vat = 0.21", "'hello'; vat = 0.21"];
    for (line, values) in shown.iter().zip([values[0], values[1], values[2], values[1]]) {
        assert!(line.ends_with(values), "{text}");
    }
    assert_eq!(shown.len(), 4);
    assert_eq!(text.matches("the-only-copy").count(), 2, "{text}");
    assert!(text.contains("your VAT is still there"), "{text}");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
    assert!(!bench.data.exists() && contents(&bench.project).is_empty());
}

#[test]
fn demo_cleans_up_when_its_output_pipe_is_closed() {
    let bench = Bench::new();
    let temp = bench.home.join("tmp");
    std::fs::create_dir(&temp).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = crate::bench::finish_into(bench.command(&["demo"]).env("TMPDIR", &temp), writer);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0);
}
