//! Behaviour that all commands share: help, JSON output, escaping and closed pipes.

use std::os::unix::ffi::OsStrExt;

use crate::bench::{Bench, finish_into};

#[test]
fn help_lists_every_command_and_has_no_side_effects() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let top = bench.ok(&["--help"]);
    assert!(top.contains("Exit codes:") && top.contains("7  snapshots are disabled"), "{top}");
    for command in [
        "undo",
        "redo",
        "log",
        "sessions",
        "run",
        "guard",
        "demo",
        "track",
        "patch",
        "diff",
        "show",
        "ls",
        "restore",
        "revert",
        "unrevert",
        "apply",
        "checkpoint",
        "fork",
        "blame",
        "recover",
        "status",
        "doctor",
    ] {
        assert!(top.contains(command));
        assert!(bench.ok(&[command, "--help"]).contains("Usage:"));
    }
    assert!(!top.contains("copy-borrowed"), "internal commands are hidden");
    assert!(!bench.data.exists());
}

/// Clients interpret exit code 2 of a hook as a request to stop the agent.
#[test]
fn usage_errors_of_a_hook_exit_with_code_0_whatever_options_precede_it() {
    let bench = Bench::new();
    for words in [
        &["hook", "--nope"][..],
        &["--json", "hook", "--nope"],
        &["--store", "x", "hook", "--nope"],
        &["--data-dir=x", "-C", ".", "hook", "no-client", "more"],
        &["--nope", "hook", "claude-code"],
    ] {
        assert_eq!(bench.run(words).code, 0, "{words:?}");
    }
    assert_eq!(bench.run(&["ls", "hook", "--nope"]).code, 2);
}

#[test]
fn usage_errors_exit_with_code_2() {
    let bench = Bench::new();
    for words in [
        &["trak"][..],
        &["relink"],
        &["track", "--nope"],
        &[],
        &["ls", "a", "b"],
        &["run"],
        &["run", "true"],
        &["undo", "--all", "--last-step"],
        &["log", "-n", "0"],
        &["log", "--lost", "s"],
        &["undo", "--part", "p"],
        &["revert"],
        &["revert", "--message", "m", "--patches", "-"],
        &["revert", "--part", "p", "--commit"],
        &["revert", "--commit", "--dry-run"],
        &["diff"],
        &["diff", "--step", "s", "--session", "s"],
        &["diff", "--step", "s", "latest"],
        &["checkpoint", "--list", "-m", "x"],
        &["checkpoint", "-m", ""],
        &["recover"],
        &["apply"],
        &["fork"],
    ] {
        assert_eq!(bench.run(words).code, 2, "{words:?}");
    }
}

#[test]
fn names_are_escaped_for_people_and_lossless_for_programs() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let name = b"b\x1b[31m\n\xff";
    std::fs::write(bench.project.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    let plan = bench.ok(&["restore", "--exact", "--dry-run", &hash]);
    assert!(plan.contains("- remove     b\\u{1b}[31m\\n\\xff\n"), "{plan}");
    let json = bench.json(&["restore", "--exact", "--dry-run", &hash]);
    assert_eq!(json["actions"][0]["path"], serde_json::json!({ "bytes": name }));
    let patch = bench.run(&["patch", "--relative", "-z", &hash]);
    assert_eq!(patch.stdout, [&name[..], b"\0"].concat());
    let ran = bench.fails(&["show", &format!("{hash}:\u{1b}[2J")], 4, "\\u{1b}[2J");
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
    let ran = bench.fails(&["show", "\u{1b}[2J"], 4, "not a snapshot hash");
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn errors_are_printed_as_json_with_the_json_flag() {
    let bench = Bench::new();
    let ran = bench.fails(&["--json", "show", "nonsense"], 4, "hint: ");
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(json["error"]["kind"], "not_a_hash");
    assert!(json["error"]["message"].as_str().unwrap().contains("nonsense"));
    assert!(json["error"]["hint"].is_string());
    assert_eq!(json["error"]["fault"], "caller");
}

#[test]
fn every_command_supports_json_output() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let snapshot = bench.json(&["track"]);
    let hash = snapshot["hash"].as_str().unwrap();
    assert_eq!(snapshot["complete"], true);
    assert_eq!(bench.json(&["ls", hash])["files"][0]["mode"], "100644");
    for words in [
        &["status"][..],
        &["doctor"],
        &["patch", hash],
        &["diff", hash],
        &["diff", "--full", hash],
        &["show", hash],
        &["show", &format!("{hash}:a.txt")],
        &["log"],
        &["log", "--lost"],
        &["sessions"],
        &["checkpoint", "-m", "named"],
        &["checkpoint", "--list"],
        &["show", "named"],
        &["blame", "a.txt"],
        &["recover", "--list", "a.txt"],
        &["restore", "--dry-run", hash],
        &["restore", hash],
    ] {
        bench.json(words);
    }
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let bench = Bench::new();
    let hash = bench.track();
    for index in 0..500 {
        bench.write(&format!("file-{index}"), &"some text\n".repeat(50));
    }
    let at_now = bench.track();
    for words in [
        &["diff", &hash][..],
        &["diff", "--full", "--json", &hash],
        &["patch", &hash],
        &["ls", &at_now],
        &["--json", "ls", &at_now],
        &["show", "nonsense", "--json"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = finish_into(&mut bench.command(words), writer);
        assert!(!ran.stderr.contains("panic"), "{words:?}: {ran:?}");
        let expected = if words.contains(&"nonsense") { 4 } else { 0 };
        assert_eq!(ran.code, expected, "{words:?}: {ran:?}");
    }
}

#[test]
fn closed_standard_streams_are_not_an_error() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        assert_eq!(bench.shell(&format!("$CTRLZ track {closed}")).code, 0, "{closed}");
        assert_eq!(bench.shell(&format!("$CTRLZ ls nonsense {closed}")).code, 4, "{closed}");
    }
    assert_eq!(bench.track(), hash);
}

#[test]
fn a_failed_write_to_standard_output_is_an_error() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = finish_into(&mut bench.command(&["track"]), full);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("cannot write the output"), "{ran:?}");
}

#[test]
fn man_pages_and_completions_need_no_home_or_data_directory() {
    let bench = Bench::new();
    let bare = |words: &[&str]| {
        let mut command = bench.command(words);
        let ran = crate::bench::finish(command.env_remove("HOME").env_remove("CTRLZ_DATA_DIR"));
        assert_eq!(ran.code, 0, "{words:?}: {ran:?}");
        ran.text()
    };
    assert!(bare(&["man"]).contains(".TH ctrlz"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(bare(&["completions", shell]).contains("restore"), "{shell}");
    }
    let dir = bench.home.join("man");
    std::fs::create_dir(&dir).unwrap();
    bare(&["man", "--dir", dir.to_str().unwrap()]);
    assert!(dir.join("ctrlz-restore.1").is_file());
}

/// Runs a command on a pseudo-terminal, made by `script` of util-linux, and returns its output.
fn on_a_terminal(bench: &Bench, words: &[&str]) -> String {
    let line = bench.command(words).get_args().fold(String::from("$CTRLZ"), |line, word| {
        format!("{line} '{}'", word.to_str().unwrap().replace('\'', "'\\''"))
    });
    let ran = bench.shell(&format!("script -qec \"{line}\" /dev/null < /dev/null"));
    assert_eq!(ran.code, 0, "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn file_contents_are_escaped_on_a_terminal_and_byte_exact_in_a_pipe() {
    let bench = Bench::new();
    let hash = bench.track();
    let hostile =
        "\u{1b}]0;title\u{7} \u{1b}[31m \u{9b}1m \u{202e}rlo \u{2066}x \u{61c} \u{e0041} \u{3164}";
    bench.write("a\u{202e}\u{9b}31m.txt", &format!("tab\there\n{hostile}\r\nback\\slash\n"));
    let after = bench.track();
    let name = format!("{after}:a\u{202e}\u{9b}31m.txt");
    for words in [&["diff", &hash, &after][..], &["show", &name]] {
        let shown = on_a_terminal(&bench, words);
        let steers = |c: char| c != '\n' && c != '\r' && c != '\t' && c.is_control();
        assert!(!shown.contains(steers), "{words:?}: {shown:?}");
        for hidden in ['\u{202e}', '\u{2066}', '\u{61c}', '\u{e0041}', '\u{3164}'] {
            assert!(!shown.contains(hidden), "{words:?}: {hidden:?} in {shown:?}");
        }
        assert!(shown.contains("\\u{1b}]0;title\\u{7}"), "not a terminal: {shown:?}");
        assert!(shown.contains("tab\there") && shown.contains("back\\slash"), "{shown:?}");
        let piped = bench.run(words);
        let raw = String::from_utf8(piped.stdout).unwrap();
        assert!(raw.contains(hostile), "{words:?}: {raw:?}");
    }
}

#[test]
fn names_in_diff_headers_are_quoted_as_git_quotes_them() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    let names = [
        "plain",
        "sp ace",
        "\u{e4}",
        "\u{9b}31m",
        "\u{202e}x",
        "q\"uote",
        "b\\s",
        "\u{7}\u{8}\u{b}",
    ];
    let hash = bench.track();
    for name in names {
        bench.write(name, "x\n");
    }
    let after = bench.track();
    let ours = bench.ok(&["diff", &hash, &after]);
    bench.git(&["add", "-A"]);
    let theirs = bench.git(&["diff", "--cached", "--no-renames"]).text();
    let headers = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("diff --git")).map(str::to_owned).collect()
    };
    assert_eq!(headers(&ours), headers(&theirs));
}

#[test]
fn json_of_whole_texts_is_escaped_on_a_terminal() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    bench.ok(&[
        "run",
        "--session",
        "s",
        "--",
        "sh",
        "-c",
        "printf '\\302\\233\\342\\200\\256' > a.txt",
    ]);
    if bench.shell("command -v script").code != 0 {
        return;
    }
    for which in [hash.as_str(), "--session s"] {
        let args = format!("diff --full --json {which}");
        let log = bench.home.join("typescript");
        let ran = bench.shell(&format!("script -q -c \"$CTRLZ {args}\" {}", log.display()));
        let text = ran.text();
        assert!(!text.contains(['\u{9b}', '\u{202e}']), "{args}: {text:?}");
        assert!(text.contains("\\u009b\\u202e"), "{args}: {text:?}");
    }
}
