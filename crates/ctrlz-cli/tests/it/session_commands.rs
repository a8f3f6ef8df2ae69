//! `revert --message`, `unrevert`, `apply`, `checkpoint`, `fork`, `blame`, `recover`, and the
//! session features of `log`, `show`, `diff` and `run`.

use serde_json::Value;

use crate::bench::{Bench, Ran, contents};

/// A file of five lines, so that edits far apart can be merged.
const CODE: &str = "one\ntwo\nthree\nfour\nfive\n";

impl Bench {
    /// Runs a shell script as a step of a session's message.
    #[track_caller]
    fn agent(&self, session: &str, message: &str, script: &str) -> Ran {
        self.agent_with(session, message, &[], script)
    }

    #[track_caller]
    fn agent_with(&self, session: &str, message: &str, more: &[&str], script: &str) -> Ran {
        let words = ["run", "--session", session, "--message", message, "--who", "agent"];
        let command = ["--label", script, "--", "/bin/sh", "-c", script];
        let ran = self.run(&[&words[..], more, &command].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    }

    /// Returns the id of the newest step.
    fn newest_step(&self) -> String {
        let log = self.json(&["log"]);
        let steps = log["operations"].as_array().unwrap().iter();
        let newest =
            steps.map(|operation| &operation["steps"][0]["step"]).find(|id| id.is_string());
        newest.unwrap().as_str().unwrap().to_owned()
    }
}

/// Returns a project where two messages of session `s` changed `code`, with an edit of the user in
/// between.
fn session_with_user_edit() -> Bench {
    let bench = Bench::new();
    bench.write("code", CODE);
    bench.agent("s", "m1", "sed -i s/one/ONE/ code; echo x > new");
    bench.write("code", "ONE\ntwo\nTHREE by me\nfour\nfive\n");
    bench.agent("s", "m2", "sed -i s/five/FIVE/ code");
    bench
}

#[test]
fn a_revert_can_be_moved_taken_back_and_made_final() {
    let bench = session_with_user_edit();
    let agreed = contents(&bench.project);

    // Back to before the second message: the user's edit stays.
    let report = bench.ok(&["revert", "--message", "m2"]);
    assert!(report.starts_with("revert sed -i s/five/FIVE/ code (agent, session s)\n"), "{report}");
    assert!(report.contains("~ overwrite  code\ntake it back: ctrlz unrevert\n"), "{report}");
    assert!(
        report.ends_with("ctrlz revert --commit --session s; new work does it too"),
        "{report}"
    );
    assert_eq!(bench.read("code").unwrap(), "ONE\ntwo\nTHREE by me\nfour\nfive\n");

    // The boundary moves back, and then forward again.
    bench.ok(&["revert", "--message", "m1"]);
    assert_eq!(bench.read("code").unwrap(), "one\ntwo\nTHREE by me\nfour\nfive\n");
    assert_eq!(bench.read("new"), None);
    let line = bench.ok(&["sessions"]);
    assert!(line.ends_with("reverted to before m1 (not final: ctrlz unrevert)"), "{line}");
    bench.ok(&["revert", "--message", "m2"]);
    assert_eq!(bench.read("new").unwrap(), "x\n");

    // Unrevert keeps an edit that the user made in the meantime.
    bench.write("mine", "keep me\n");
    let report = bench.ok(&["unrevert"]);
    assert!(report.ends_with("revert again: ctrlz revert --session s --message m2"), "{report}");
    std::fs::remove_file(bench.project.join("mine")).unwrap();
    assert_eq!(contents(&bench.project), agreed);
    bench.fails(&["unrevert"], 4, "no session is reverted");

    // Reverts again and makes it final.
    bench.ok(&["revert", "--message", "m1"]);
    let report = bench.ok(&["revert", "--commit"]);
    assert_eq!(
        report,
        "the revert of session s is final; 2 messages are gone:\nm1\nm2\nbring the files back: ctrlz redo"
    );
    bench.fails(&["unrevert", "--session", "s"], 4, "no revert to take back");
    bench.fails(&["revert", "--commit"], 4, "no session is reverted");
    bench.ok(&["redo"]);
    assert_eq!(contents(&bench.project), agreed);

    let log = bench.json(&["log"]);
    let kinds: Vec<&str> = log["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|op| op["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds[..3], ["redo", "revert", "revert"]);
    let text = bench.ok(&["log"]);
    assert!(text.contains("revert made final") && text.contains("revert to before m1"), "{text}");
}

#[test]
fn new_work_makes_a_revert_final() {
    let bench = session_with_user_edit();
    bench.ok(&["revert", "--message", "m2"]);
    assert_eq!(bench.json(&["sessions"])["sessions"][0]["reverted"]["boundary"]["message"], "m2");
    bench.agent("s", "m3", "echo y > other");
    assert_eq!(bench.json(&["sessions"])["sessions"][0]["reverted"], Value::Null);
    bench.fails(&["unrevert", "--session", "s"], 4, "no revert to take back");
    assert_eq!(bench.read("code").unwrap(), "ONE\ntwo\nTHREE by me\nfour\nfive\n");
}

#[test]
fn a_part_of_a_message_is_reverted() {
    let bench = Bench::new();
    for (part, file) in [("p1", "a"), ("p2", "b"), ("p3", "c")] {
        bench.agent_with("s", "m1", &["--part", part], &format!("echo x > {file}"));
    }
    bench.ok(&["revert", "--message", "m1", "--part", "p2"]);
    let left: Vec<bool> = ["a", "b", "c"].map(|name| bench.read(name).is_some()).into();
    assert_eq!(left, [true, false, false]);
    let line = bench.ok(&["sessions"]);
    assert!(line.contains("reverted to before m1, part p2"), "{line}");
    let report = bench.ok(&["unrevert"]);
    assert!(report.ends_with("--session s --message m1 --part p2"), "{report}");
    bench.ok(&["undo", "--to", "m1", "--part", "p3"]);
    assert!(bench.read("b").is_some() && bench.read("c").is_none());
    bench.fails(&["revert", "--message", "m1", "--part", "nope"], 4, "no step of a part");
}

#[test]
fn reverting_an_unknown_message_or_session_changes_nothing() {
    let bench = session_with_user_edit();
    let before = contents(&bench.project);
    bench.fails(&["revert", "--message", "nope"], 4, "no step of a message");
    bench.fails(&["revert", "--message", "m1", "--session", "nope"], 4, "hint: `ctrlz log`");
    let ran = bench.fails(&["--json", "revert", "--message", "nope"], 4, "nope");
    let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(json["error"]["kind"], "no_such_message");
    assert_eq!(contents(&bench.project), before);
}

#[test]
fn revert_keeps_conflicting_files_unless_forced() {
    let bench = Bench::new();
    bench.write("f", "one\n");
    bench.agent("s", "m1", "echo agent > f");
    bench.write("f", "mine\n");
    let ran = bench.run(&["revert", "--message", "m1"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.text().contains("! kept       f: it was changed since"), "{ran:?}");
    assert_eq!(bench.read("f").unwrap(), "mine\n");
    let json = bench.json(&["revert", "--message", "m1", "--force"]);
    assert_eq!((&json["complete"], &json["done"][0]["path"]), (&true.into(), &"f".into()));
    assert_eq!(bench.read("f").unwrap(), "one\n");
    bench.ok(&["unrevert"]);
    assert_eq!(bench.read("f").unwrap(), "mine\n");
}

#[test]
fn reverting_a_busy_session_requires_interrupt() {
    let bench = Bench::new();
    let script = "echo x > a; $CTRLZ revert --session s --message m1; echo code $?; \
                  $CTRLZ revert --session s --message m1 --interrupt; echo code $?";
    let ran = bench.shell(&format!(
        "export CTRLZ; $CTRLZ run --session s --message m1 -- /bin/sh -c '{script}' 2>&1"
    ));
    let text = ran.text();
    assert!(text.contains("is busy: ") && text.contains("--interrupt"), "{text}");
    let codes: Vec<&str> = text.lines().filter(|line| line.starts_with("code ")).collect();
    assert_eq!(codes, ["code 5", "code 0"], "{text}");
    assert_eq!(bench.read("a"), None);
}

#[test]
fn undo_with_interrupt_closes_the_open_step() {
    let bench = Bench::new();
    let script = "echo x > a; $CTRLZ undo --interrupt; ls; echo y > late";
    let ran = bench.shell(&format!(
        "export CTRLZ; $CTRLZ run --session s --message m1 -- /bin/sh -c '{script}' 2>&1"
    ));
    assert_eq!(bench.read("a"), None, "{ran:?}");
    let log = bench.json(&["log"]);
    let operations = log["operations"].as_array().unwrap();
    let step = operations.iter().find(|operation| operation["kind"] == "step").unwrap();
    assert_eq!(step["steps"][0]["inferred"], true, "{log}");
    assert_eq!(step["steps"][0]["undone"], true, "{log}");
}

#[test]
fn apply_executes_plans_of_every_kind_by_hash() {
    let bench = session_with_user_edit();
    let agreed = contents(&bench.project);
    for (words, way_back) in [
        (&["undo", "--dry-run"][..], "redo: ctrlz redo"),
        (&["redo", "--dry-run"], "undo: ctrlz restore --exact "),
        (&["revert", "--message", "m1", "--dry-run"], "take it back: ctrlz unrevert"),
        (&["unrevert", "--dry-run"], "undo: ctrlz restore --exact "),
    ] {
        let before = contents(&bench.project);
        let text = bench.ok(words);
        assert_eq!(contents(&bench.project), before, "a dry run changes nothing");
        let last = text.lines().last().unwrap();
        let hash = last.strip_prefix("apply it: ctrlz apply ").unwrap();
        assert!(text.contains(&format!("\nplan {hash}\n")), "{text}");
        let report = bench.ok(&["apply", hash]);
        assert!(report.contains(way_back), "{words:?}: {report}");
        assert_ne!(contents(&bench.project), before);
    }
    assert_eq!(contents(&bench.project), agreed);
}

#[test]
fn apply_refuses_stale_and_unknown_plans() {
    let bench = session_with_user_edit();
    let plan = bench.json(&["undo", "--dry-run"])["plan"].as_str().unwrap().to_owned();
    bench.write("code", "something else\n");
    let before = contents(&bench.project);
    bench.fails(&["apply", &plan], 5, "moved since the plan");
    bench.fails(&["apply", &"1".repeat(40)], 4, "make a plan with --dry-run");
    bench.fails(&["apply", "nonsense"], 4, "not a snapshot hash");
    assert_eq!(contents(&bench.project), before);
}

#[test]
fn apply_requires_yes_for_a_mass_removal() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let script = "i=0; while [ $i -lt 200 ]; do echo x > f$i; i=$((i+1)); done";
    bench.agent("s", "m1", script);
    let plan = bench.json(&["undo", "--dry-run"])["plan"].as_str().unwrap().to_owned();
    bench.fails(&["apply", &plan], 6, "--yes");
    let json = bench.json(&["apply", &plan, "--yes"]);
    assert_eq!((&json["plan"], &json["complete"]), (&plan.into(), &true.into()));
    assert_eq!(contents(&bench.project).len(), 1);
}

#[test]
fn redo_supports_a_dry_run_and_can_be_limited_to_a_session() {
    let bench = Bench::new();
    bench.agent("s", "m1", "echo x > a");
    bench.agent("t", "m1", "echo x > b");
    bench.ok(&["undo", "--session", "s"]);
    bench.ok(&["undo", "--session", "t"]);
    let plan = bench.ok(&["redo", "--session", "s", "--dry-run"]);
    assert!(plan.starts_with("would redo echo x > a"), "{plan}");
    assert!(bench.read("a").is_none() && bench.read("b").is_none());
    bench.ok(&["redo", "--session", "s"]);
    assert!(bench.read("a").is_some() && bench.read("b").is_none());
    bench.fails(&["redo", "--session", "s"], 4, "nothing to redo");
    bench.fails(&["redo", "--session", "nope", "--dry-run"], 4, "nothing to redo");
}

#[test]
fn undo_lists_ignored_files_that_it_leaves_unchanged() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write(".gitignore", ".env\n");
    bench.write(".env", "KEY=1\n");
    // A file that the script names literally would be undone without `--ignored`.
    bench.agent("s", "m1", "echo KEY=2 > $(echo .env); echo x > a");
    let text = bench.ok(&["undo", "--dry-run"]);
    assert!(text.contains("stay; --ignored includes them:\n= ignored    .env: "), "{text}");
    assert_eq!(bench.json(&["undo", "--dry-run"])["ignored"][0]["path"], ".env");
    bench.ok(&["undo", "--ignored"]);
    assert_eq!(bench.read(".env").unwrap(), "KEY=1\n");
}

#[test]
fn undo_restores_ignored_files_declared_with_the_path_flag() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write(".gitignore", "/big/\n.env\n");
    bench.write(".env", "KEY=1\n");
    bench.write("big/file", "one\n");
    let named = ["--path", ".env", "--path", "big/file"];
    bench.agent_with("s", "m1", &named, "echo KEY=2 > .env; echo two > big/file");
    let text = bench.ok(&["undo"]);
    assert!(!text.contains("= ignored"), "{text}");
    assert_eq!(bench.read(".env").unwrap(), "KEY=1\n");
    assert_eq!(bench.read("big/file").unwrap(), "one\n");
    bench.fails(&["run", "--path", "../outside", "--", "true"], 4, "outside the work tree");
}

#[test]
fn undoing_a_turn_includes_its_sub_agents() {
    let bench = Bench::new();
    let inner =
        "$CTRLZ run --session child --parent main --message c1 -- /bin/sh -c \"echo x > b\"";
    let script = format!("echo x > a; {inner}; echo x > c");
    bench.shell(&format!(
        "export CTRLZ; $CTRLZ run --session main --message m1 -- /bin/sh -c '{script}'"
    ));
    assert!(bench.read("b").is_some());
    let sessions = bench.ok(&["sessions"]);
    assert!(sessions.contains("works for main"), "{sessions}");
    let json = bench.json(&["sessions"]);
    let child = json["sessions"].as_array().unwrap().iter().find(|info| info["session"] == "child");
    assert_eq!(child.unwrap()["parent"], "main");
    bench.ok(&["undo"]);
    assert!(contents(&bench.project).is_empty(), "{:?}", contents(&bench.project));
}

#[test]
fn a_checkpoint_is_found_by_its_label_its_name_and_latest() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let text = bench.ok(&["checkpoint", "-m", "it works", "--kind", "turn"]);
    let name = text.lines().next().unwrap().strip_prefix("checkpoint ").unwrap();
    assert!(name.starts_with("checkpoint-turn-"), "{text}");
    assert!(text.ends_with("back to it: ctrlz restore --exact 'it works'"), "{text}");
    bench.write("a.txt", "two\n");
    bench.write("new.txt", "new\n");
    for name in ["it works", "latest", name] {
        assert_eq!(bench.ok(&["show", &format!("{name}:a.txt")]), "one");
        assert_eq!(bench.ok(&["ls", name]), "a.txt");
        assert_eq!(bench.ok(&["patch", "--relative", name]), "a.txt\nnew.txt");
        assert_eq!(bench.json(&["diff", name])["files"].as_array().unwrap().len(), 2);
        assert!(bench.ok(&["show", name]).contains("what      checkpoint it works"));
    }
    bench.fails(&["ls", "resume"], 4, "not a snapshot hash");
    bench.ok(&["checkpoint", "--kind", "resume"]);
    assert_eq!(bench.ok(&["ls", "resume"]), "a.txt\nnew.txt");
    bench.ok(&["restore", "--exact", "it works"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    assert_eq!(bench.read("new.txt"), None);
    bench.fails(&["restore", "it never worked"], 4, "ctrlz checkpoint --list");
}

#[test]
fn operation_ids_are_accepted_in_place_of_hashes() {
    let bench = session_with_user_edit();
    let log = bench.json(&["log"]);
    let first = log["operations"].as_array().unwrap().last().unwrap();
    let id = first["operation"].as_str().unwrap();
    assert_eq!(bench.ok(&["ls", id]), "code");
    assert_eq!(bench.ok(&["show", &format!("{id}:code")]), CODE.trim_end());
    assert!(bench.ok(&["diff", id, "--", "new"]).contains("+x"));
    bench.fails(&["ls", "01ARZ3NDEKTSV4RRFFQ69G5FAV"], 4, "no operation");
}

#[test]
fn checkpoints_are_listed_and_pruned_as_configured() {
    let bench = Bench::new();
    let empty = bench.run(&["checkpoint", "--list"]);
    assert_eq!((empty.code, empty.text().as_str()), (0, ""), "{empty:?}");
    bench.write_home(".config/ctrlz/config.toml", "keep_checkpoints = 2\n");
    bench.ok(&["checkpoint", "-m", "kept", "--pin"]);
    for label in ["one", "two", "three"] {
        bench.write("a.txt", label);
        bench.ok(&["checkpoint", "-m", label]);
    }
    let list = bench.ok(&["checkpoint", "--list"]);
    let labels: Vec<&str> = list.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(labels, ["three", "two", "kept"], "{list}");
    assert!(list.lines().last().unwrap().contains("[pinned]"), "{list}");
    let json = bench.json(&["checkpoint", "--list"]);
    assert_eq!(json["checkpoints"][0]["label"], "three");
    assert_eq!(json["checkpoints"][2]["pinned"], true);
    assert!(bench.ok(&["log"]).contains("[pinned]"));
    bench.write_home(".config/ctrlz/config.toml", "enabled = false\n");
    bench.fails(&["checkpoint"], 7, "disabled");
}

#[test]
fn fork_continues_a_session_in_a_new_directory() {
    let bench = session_with_user_edit();
    let into = bench.home.join("forked");
    let text =
        bench.ok(&["fork", "s", "--at", "m2", "--id", "f", "--into", into.to_str().unwrap()]);
    assert!(text.starts_with("session f goes on from s before message m2\n2 files in "), "{text}");
    let code = std::fs::read_to_string(into.join("code")).unwrap();
    assert_eq!(code, "ONE\ntwo\nTHREE by me\nfour\nfive\n");
    let line = bench.ok(&["sessions"]);
    assert!(line.lines().any(|line| line.contains("fork of s before m2")), "{line}");
    assert!(bench.ok(&["log", "-n", "1"]).contains("% "));
    let there = bench.ok(&["-C", into.to_str().unwrap(), "sessions"]);
    assert!(there.starts_with("f  "), "{there}");
    bench.fails(&["fork", "s", "--into", into.to_str().unwrap()], 6, "is not empty");
    bench.fails(&["fork", "s", "--into", "sub"], 6, "inside the work tree");
    bench.fails(&["fork", "s", "--id", "f"], 6, "a session \"f\" already");
}

#[test]
fn fork_without_a_directory_changes_no_files() {
    let bench = session_with_user_edit();
    let before = contents(&bench.project);
    let json = bench.json(&["fork", "s"]);
    assert_eq!((&json["forked"]["session"], &json["into"]), (&"s".into(), &Value::Null));
    let id = json["session"].as_str().unwrap();
    assert_eq!(contents(&bench.project), before);
    // Undo in the fork continues into the shared history.
    bench.ok(&["undo", "--session", id]);
    assert_eq!(bench.read("code").unwrap(), "ONE\ntwo\nTHREE by me\nfour\nfive\n");
    bench.fails(&["fork", "nope"], 4, "`ctrlz sessions`");
    bench.fails(&["fork", "s", "--at", "nope"], 4, "no step of a message");
}

#[test]
fn blame_names_the_step_behind_each_line() {
    let bench = session_with_user_edit();
    bench.write("code", "ONE\ntwo\nTHREE by me\nfour\nFIVE\n\tsix\u{1b}[2J\n");
    let text = bench.ok(&["blame", "code"]);
    let starts = [
        "sed -i s/one/ONE/ code; echo x ",
        "baseline ",
        "outside ",
        "baseline ",
        "sed -i s/five",
        "outside ",
    ];
    let ends = ["1  ONE", "2  two", "3  THREE by me", "4  four", "5  FIVE", "6  \tsix\\u{1b}[2J"];
    assert_eq!(text.lines().count(), 6, "{text}");
    for (line, (start, end)) in text.lines().zip(starts.iter().zip(ends)) {
        let start: String = start.chars().take(25).collect();
        assert!(line.starts_with(&start) && line.ends_with(end), "{line}");
        assert!(line.contains(" ago"), "{line}");
    }
    assert!(text.lines().nth(2).unwrap().contains("  you  "), "{text}");
    assert!(text.lines().next().unwrap().contains("  agent  "), "{text}");
    let json = bench.json(&["blame", "code"]);
    assert_eq!(json["lines"][0]["origin"]["step"]["message"], "m1");
    assert_eq!(json["lines"][2]["origin"]["kind"], "outside");
    assert_eq!(json["lines"][1]["text"], "two");
}

#[test]
fn blame_needs_a_text_file() {
    let bench = session_with_user_edit();
    bench.fails(&["blame", "nope"], 4, "has no nope");
    std::fs::write(bench.project.join("binary"), b"\0\x01\xff").unwrap();
    bench.fails(&["blame", "binary"], 4, "binary is binary");
    bench.fails(&["blame", "."], 4, "is the work tree itself");
}

#[test]
fn lost_files_are_listed_and_recovered() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("src/a b.txt", "one\n");
    bench.write("src/c.txt", "one\n");
    bench.write("keep.txt", "one\n");
    bench.agent("s", "m1", "echo two > src/c.txt");
    bench.agent("s", "m2", "rm -r src");
    bench.write("after.txt", "one\n");
    let list = bench.ok(&["log", "--lost"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains("src/a b.txt  by rm -r src  ctrlz recover 'src/a b.txt'"), "{list}");
    assert_eq!(bench.json(&["log", "--lost"])["lost"][1]["step"]["message"], "m2");
    let ran = bench.run(&["log", "--lost", "-n", "1"]);
    assert!(ran.stderr.contains("and 1 file more"), "{ran:?}");

    let plan = bench.ok(&["recover", "src", "--dry-run"]);
    assert!(plan.starts_with("+ create     src/a b.txt\n+ create     src/c.txt\n"), "{plan}");
    assert_eq!(bench.read("src/c.txt"), None);
    let text = bench.ok(&["recover", "src/c.txt"]);
    assert!(text.starts_with("+ create     src/c.txt\n1 created\n"), "{text}");
    assert_eq!(bench.read("src/c.txt").unwrap(), "two\n", "its last version");
    let json = bench.json(&["recover", "src"]);
    assert_eq!((&json["complete"], json["done"].as_array().unwrap().len()), (&true.into(), 1));
    bench.fails(&["recover", "src"], 4, "is not lost");
    let ran = bench.run(&["log", "--lost"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "no file is lost\n"));
}

#[test]
fn the_suggested_commands_work_for_names_that_look_like_options() {
    let bench = Bench::new();
    bench.write("-name", "one\n");
    bench.agent("s", "m1", "rm -- -name");
    let lost = bench.ok(&["log", "--lost"]);
    let command = lost.split("ctrlz ").last().unwrap();
    assert!(bench.shell(&format!("\"$CTRLZ\" {command}")).code == 0, "{lost}");
    assert_eq!(bench.read("-name").unwrap(), "one\n");
}

#[test]
fn undoing_a_revert_says_that_it_brings_the_steps_back() {
    let bench = Bench::new();
    bench.write("a", "one\n");
    bench.agent("s", "m1", "echo two > a");
    bench.ok(&["revert", "--session", "s", "--message", "m1"]);
    let plan = bench.ok(&["undo", "--dry-run"]);
    assert!(plan.contains("\nwould bring back echo two > a"), "{plan}");
    let said = bench.ok(&["undo"]);
    assert!(said.contains("\nbrought back echo two > a"), "{said}");
    assert_eq!(bench.read("a").unwrap(), "two\n");
}

#[test]
fn recover_lists_each_version_of_a_file_with_its_restore_command() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("sub/f", "one\n");
    bench.agent("s", "m1", "echo two > sub/f");
    bench.write("sub/f", "three\n");
    bench.agent("s", "m2", "rm sub/f; touch sub/g");
    let list = bench.ok(&["-C", "sub", "recover", "--list", "f"]);
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 4, "{list}");
    assert!(lines[0].contains("rm sub/f") && lines[0].ends_with("deleted"), "{list}");
    assert!(lines[1].contains("outside") && lines[3].contains("baseline"), "{list}");
    for (line, text) in [(lines[1], "three\n"), (lines[2], "two\n"), (lines[3], "one\n")] {
        let words = line.split_once("ctrlz ").unwrap().1;
        assert!(words.ends_with(" -- f"), "{list}");
        bench.ok(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(bench.read("sub/f").unwrap(), text);
    }
    let json = bench.json(&["recover", "--list", "sub/f"]);
    assert!(json["versions"].as_array().unwrap().len() > 4, "restores are versions too");
    bench.fails(&["recover", "--list", "nope"], 4, "no snapshot has nope");
}

#[test]
fn the_log_draws_a_lane_per_session_and_names_files() {
    let bench = Bench::new();
    bench.agent("s", "m1", "echo x > a");
    bench.agent("t", "m1", "echo x > b; echo x > c");
    bench.agent("s", "m2", "echo y >> a");
    bench.ok(&["undo", "--session", "s"]);
    let text = bench.ok(&["log", "--files"]);
    let graph: Vec<String> = text.lines().map(|line| line.chars().take(3).collect()).collect();
    assert_eq!(
        graph,
        ["<  ", "|  ", "x  ", "|  ", "| *", "|  ", "|  ", "*  ", "   ", "#  "],
        "{text}"
    );
    let files: Vec<&str> =
        text.lines().filter(|line| !line.contains(" ago ")).map(str::trim_start).collect();
    assert!(files[0].ends_with("+0 -1        a") && files[2].ends_with("+1 -0        b"), "{text}");
    assert!(text.contains("[undone]  s/m2 step "), "{text}");
    let newest = &bench.json(&["log", "-n", "1"])["operations"][0];
    assert_eq!((&newest["kind"], &newest["session"]), (&"undo".into(), &"s".into()));
    assert_eq!(newest["changes"][0]["path"], "a");
    assert_eq!(bench.ok(&["log", "t"]).lines().count(), 1);
}

#[test]
fn log_reads_no_further_back_than_its_limit() {
    let bench = Bench::new();
    let mut options = ctrlz::Options::new(&bench.data);
    options.home = Some(bench.home.clone());
    let workspace = ctrlz::Workspace::open(&bench.project, options).unwrap();
    let progress = ctrlz::Progress::default();
    for number in 0..300 {
        bench.write("f", &number.to_string());
        workspace.track(&ctrlz::TrackOptions::default(), &progress).unwrap();
    }
    let whole = bench.json(&["log", "-n", "1000"]);
    assert_eq!(whole["operations"].as_array().unwrap().len(), 300);
    // A damaged index is rebuilt only when its damaged part, here the beginning, is read.
    let index = contents(&bench.data).into_iter().find(|(path, _)| path.ends_with("log.index"));
    let (path, mut bytes) = index.unwrap();
    bytes[..8].fill(b'z');
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(bench.ok(&["log", "-n", "290"]).lines().count(), 290);
    assert_eq!(bench.ok(&["log", "-n", "3"]).lines().count(), 3);
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the damaged part was not read");
    let again = bench.json(&["log", "-n", "1000"]);
    assert_eq!(again["operations"].as_array().unwrap().len(), 300);
    assert_ne!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn show_prints_the_diff_of_a_step_even_when_it_is_undone() {
    let bench = session_with_user_edit();
    let step = bench.newest_step();
    let text = bench.ok(&["show", &step]);
    assert!(text.starts_with(&format!("step      {step}\nsession   s\nmessage   m2\n")), "{text}");
    assert!(text.contains(&format!("undo      ctrlz undo --step {step}")), "{text}");
    assert!(text.contains("-five\n+FIVE"), "{text}");
    bench.ok(&["undo"]);
    let text = bench.ok(&["show", &step]);
    assert!(text.contains("undone    at present") && text.contains("-five\n+FIVE"), "{text}");
    let json = bench.json(&["show", &step]);
    assert_eq!(json["records"][0]["undone"], true);
    let undo = bench.json(&["log", "-n", "1"])["operations"][0]["operation"].clone();
    let text = bench.ok(&["show", undo.as_str().unwrap()]);
    assert!(text.contains("what      undo of ") && text.contains("-FIVE\n+five"), "{text}");
    assert_eq!(bench.json(&["show", undo.as_str().unwrap()])["kind"], "undo");
    bench.fails(&["show", "no-such-step"], 4, "not a snapshot hash");
}

#[test]
fn diff_shows_the_changes_of_a_session_message_or_step() {
    let bench = session_with_user_edit();
    let of_session = bench.ok(&["diff", "--session", "s"]);
    assert!(of_session.contains("+ONE") && of_session.contains("+FIVE"), "{of_session}");
    let of_message = bench.ok(&["diff", "--message", "m1"]);
    assert!(of_message.contains("+ONE") && !of_message.contains("THREE by me"), "{of_message}");
    let step = bench.newest_step();
    let of_step = bench.ok(&["diff", "--step", &step]);
    assert!(of_step.contains("+FIVE") && !of_step.contains("+ONE"), "{of_step}");
    let files = bench.json(&["diff", "--message", "m1"]);
    assert_eq!(files["files"][1], serde_json::json!({ "path": "new", "status": "added" }));
    let full = bench.json(&["diff", "--session", "s", "--full"]);
    assert_eq!(full[1]["after"], "x\n");
    assert!(bench.ok(&["diff", "--step", &step, "--full"]).ends_with("modified code"));
    bench.fails(&["diff", "--session", "nope"], 4, "no session");
    bench.fails(&["diff", "--message", "nope"], 4, "no step of a message");
    bench.fails(&["diff", "--step", "nope"], 4, "no step");
}

#[test]
fn control_characters_from_agents_are_escaped_in_session_commands() {
    let bench = Bench::new();
    let evil = "\u{1b}[2J\u{202e}\nx";
    bench.write("a", "one\n");
    let words = ["run", "--session", evil, "--message", evil, "--part", evil, "--who", evil];
    bench
        .ok(&[&words[..], &["--label", evil, "--", "/bin/sh", "-c", "echo x >> a; rm -f b"]]
            .concat());
    let step = bench.newest_step();
    for words in [
        &["checkpoint", "-m", evil][..],
        &["checkpoint", "--list"],
        &["show", evil],
        &["show", &step],
        &["blame", "a"],
        &["fork", evil, "--id", "\u{1b}[1m"],
        &["revert", "--message", evil, "--part", evil],
        &["sessions"],
        &["log", "--files"],
        &["unrevert"],
        &["recover", "--list", "a"],
    ] {
        let text = bench.ok(words);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{words:?}: {text:?}");
    }
}

#[test]
fn suggested_commands_include_the_store_option() {
    let bench = Bench::new();
    bench.write("a", "1\n");
    let store = ["--store", ".agent/snapshots"];
    let ran = bench.run(&[&store[..], &["run", "--", "sh", "-c", "echo 2 > a"]].concat());
    assert!(ran.stderr.contains("undo: ctrlz --store .agent/snapshots undo"), "{ran:?}");
    let undone = bench.ok(&[&store[..], &["undo"]].concat());
    assert!(undone.contains("redo: ctrlz --store .agent/snapshots redo"), "{undone}");
    assert!(bench.ok(&[&store[..], &["redo"]].concat()).contains("undo: ctrlz --store"));
}

#[test]
fn the_suggested_command_restores_files_replaced_by_a_forced_redo() {
    let bench = Bench::new();
    bench.write("a", "1\n");
    bench.run(&["run", "--", "sh", "-c", "echo AGENT > a"]);
    bench.ok(&["undo"]);
    bench.write("a", "USER\n");
    let redone = bench.ok(&["redo", "--force"]);
    assert_eq!(bench.read("a").as_deref(), Some("AGENT\n"));
    let command = redone.lines().find_map(|line| line.strip_prefix("undo: ctrlz ")).unwrap();
    bench.ok(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(bench.read("a").as_deref(), Some("USER\n"));
}

#[test]
fn run_reports_changes_of_permissions_alone() {
    let bench = Bench::new();
    bench.write("a", "1\n");
    let ran = bench.run(&["run", "--", "chmod", "600", "a"]);
    assert!(
        ran.stderr.contains("only permissions") && ran.stderr.contains("ctrlz undo"),
        "{ran:?}"
    );
    let ran = bench.run(&["run", "--", "true"]);
    assert!(ran.stderr.contains("no files changed"), "{ran:?}");
}

#[test]
fn run_captures_large_and_ignored_files_that_its_command_names() {
    for words in [&["rm", "big", "ignored"][..], &["/bin/sh", "-c", "rm 'big' ignored"]] {
        let bench = Bench::new();
        bench.write(".gitignore", "ignored\n");
        let (big, ignored) = ("x".repeat(12_000_000), "y".repeat(900_000));
        bench.write("big", &big);
        bench.write("ignored", &ignored);
        bench.ok(&[&["run", "--"], words].concat());
        bench.ok(&["undo"]);
        assert!(bench.read("big") == Some(big), "{words:?}");
        assert!(bench.read("ignored") == Some(ignored), "{words:?}");
    }
}

#[test]
fn run_captures_a_repository_that_its_command_removes() {
    let bench = Bench::new();
    bench.write("a", "one\n");
    bench.write(".git/HEAD", "ref: refs/heads/main\n");
    let said = bench.run(&["run", "--", "rm", "-rf", ".git"]);
    let command = "`ctrlz recover --git --into DIR` writes what was captured";
    assert!(said.stderr.contains(command), "{said:?}");
    let lost = bench.ok(&["log", "--lost"]);
    assert!(lost.contains(command) && !lost.contains("cannot be recovered"), "{lost}");
    let undone = bench.run(&["undo"]);
    let said = String::from_utf8_lossy(&undone.stdout).into_owned();
    assert_eq!(undone.code, 3, "{said}");
    assert!(said.contains("! lost       .git") && !said.contains("outside"), "{said}");
    let into = bench.project.parent().unwrap().join("recovered");
    bench.ok(&["recover", "--git", "--into", into.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(into.join("HEAD")).unwrap(), "ref: refs/heads/main\n");
}

#[test]
fn redo_suggests_a_command_that_reaches_ignored_files_and_files_outside_the_project() {
    let bench = Bench::new();
    bench.shell("git init -q .");
    bench.write(".gitignore", "*.log\n");
    bench.write_home("outside.txt", "one\n");
    bench.write("a.txt", "one\n");
    bench.write("x.log", "one\n");
    bench.track();
    let outside = bench.home.join("outside.txt");
    let script =
        format!("echo two > a.txt; f=x; echo two > $f.log; echo two > {}", outside.display());
    bench.ok(&["run", "--", "/bin/sh", "-c", &script]);
    bench.ok(&["run", "--", "/bin/sh", "-c", "echo later > later.txt"]);
    let log = bench.json(&["log"]);
    let step = log["operations"][1]["steps"][0]["step"].as_str().unwrap().to_owned();
    let state = || {
        let text = std::fs::read_to_string(&outside).unwrap();
        [bench.read("a.txt").unwrap(), bench.read("x.log").unwrap(), text]
    };
    let reach = ["undo", "--step", &step, "--ignored", "--outside"];
    bench.ok(&reach);
    assert_eq!(state(), ["one\n"; 3]);
    let redone = bench.ok(&["redo"]);
    assert_eq!(state(), ["two\n"; 3]);
    let suggested = redone.lines().find_map(|line| line.strip_prefix("undo: ")).unwrap();
    let words: Vec<&str> = suggested.split(' ').skip_while(|word| *word != "undo").collect();
    bench.ok(&words);
    assert_eq!(state(), ["one\n"; 3], "{suggested}");
    assert_eq!(bench.read("later.txt").unwrap(), "later\n");
}

#[test]
fn hints_name_the_work_tree_that_the_command_was_given() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    let project = bench.project.to_str().unwrap();
    let ran = bench.fails(&["-C", project, "undo", "--step", "nope"], 4, "nope");
    assert!(ran.stderr.contains(&format!("`ctrlz -C {project} log` lists the steps")), "{ran:?}");
}
