//! Maintenance of a store: `ctrlz gc`, `du`, `verify`, `purge` and `sessions delete`.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::bench::{Bench, feed, finish};

fn json(bench: &Bench, args: &[&str]) -> Value {
    serde_json::from_str(&bench.ok(args)).unwrap()
}

#[test]
fn gc_du_and_verify_report_their_results() {
    let bench = Bench::new();
    for number in 0..4 {
        bench.write("a.txt", &format!("{number}\n").repeat(50));
        bench.track();
    }
    let gc = json(&bench, &["--json", "gc", "--thorough"]);
    assert_eq!(gc["gc"]["packs_after"], 1, "{gc}");
    let du = json(&bench, &["--json", "du"]);
    assert_eq!(du["consumers"][0]["path"], "a.txt");
    assert_eq!(du["consumers"][0]["versions"], 4);
    assert_eq!(du["operations"], 4);
    assert!(bench.ok(&["du"]).contains("quota"));
    let verified = json(&bench, &["--json", "verify"]);
    assert_eq!(verified["problems"].as_array().unwrap().len(), 0);
    assert!(bench.ok(&["verify", "--repair"]).contains("have the right hash"));
    assert_eq!(json(&bench, &["--json", "status"])["files"], 1);
}

#[test]
fn the_store_is_intact_after_a_deep_gc() {
    let bench = Bench::new();
    for number in 0..4 {
        bench.write("a.txt", &format!("{number}\n").repeat(50));
        bench.track();
    }
    bench.ok(&["gc", "--deep"]);
    assert!(bench.ok(&["verify"]).contains("have the right hash"));
}

#[test]
fn purge_requires_yes_and_reports_that_the_file_still_exists() {
    let bench = Bench::new();
    bench.write("secret.txt", "SECRET-5c1\n");
    let hash = bench.track();
    let refused = bench.run(&["purge", "secret.txt"]);
    assert_eq!(refused.code, 6);
    bench.ok(&["show", &format!("{hash}:secret.txt")]);
    let done = bench.run(&["purge", "secret.txt", "--yes"]);
    assert_eq!(done.code, 0);
    assert!(done.stderr.contains("still there"), "{}", done.stderr);
    assert_ne!(bench.run(&["show", &format!("{hash}:secret.txt")]).code, 0);
}

#[test]
fn a_purge_names_the_command_that_removes_the_same_content_elsewhere() {
    let bench = Bench::new();
    bench.write(".env", "secret\n");
    bench.write("copy", "secret\n");
    bench.track();
    let said = bench.ok(&["purge", ".env", "--yes"]);
    assert!(said.contains("the same content is at copy; ctrlz purge copy removes it"), "{said}");
    assert!(bench.ok(&["purge", "copy", "--yes"]).starts_with("1 content removed"));
}

#[test]
fn a_purge_reports_ignored_files_and_blanks_the_command_that_wrote_them() {
    let bench = Bench::new();
    bench.write(".gitignore", ".env\n");
    bench.ok(&["run", "--", "sh", "-c", "echo K=SECRET-77 > .env"]);
    bench.ok(&["run", "--", "sh", "-c", "echo K=SECRET-77b > .env"]);
    assert!(bench.ok(&["log"]).contains("SECRET-77"));
    let shown = bench.ok(&["purge", ".env", "--yes"]);
    let expected = "2 contents removed from 2 snapshots\nlabels of 2 steps blanked";
    assert_eq!(shown, expected);
    assert!(!bench.ok(&["log"]).contains("SECRET-77"));
}

#[test]
fn a_text_to_purge_is_read_from_standard_input() {
    let bench = Bench::new();
    bench.ok(&["run", "--", "sh", "-c", "echo a > a.txt # SECRET-88"]);
    assert_eq!(bench.run(&["purge", "--text"]).code, 6);
    assert_eq!(bench.run(&["purge", "--text", "a.txt"]).code, 2);
    let shown = feed(&mut bench.command(&["purge", "--text", "--yes"]), "SECRET-88\n");
    let said = "text removed from 1 label\n";
    assert_eq!((shown.code, shown.text().as_str()), (0, said));
    assert!(!bench.ok(&["log"]).contains("SECRET-88"));
    let again = feed(&mut bench.command(&["purge", "--text", "--yes"]), "SECRET-88\n");
    assert_eq!(again.code, 4);
    assert!(!again.stderr.contains("SECRET-88"), "{}", again.stderr);
}

#[test]
fn a_session_can_be_released() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.ok(&["run", "--session", "s1", "--", "sh", "-c", "echo two > a.txt"]);
    let shown = bench.ok(&["sessions", "delete", "s1"]);
    assert!(shown.contains("until `ctrlz gc` drops it"), "{shown}");
    assert_eq!(bench.run(&["sessions", "delete", "nobody"]).code, 4);
}

#[test]
fn file_contents_and_variables_never_leak_into_output_or_data() {
    let bench = Bench::new();
    let (content, variable) = ("CANARY-in-a-file", "CANARY-in-a-variable");
    bench.write("a.txt", &format!("{content}\n").repeat(50));
    bench.write("unreadable/\u{1b}[31m", content);
    let run = |words: &[&str]| {
        let mut command = bench.command(words);
        command.env("SECRET", variable).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
        let ran = finish(&mut command);
        let said = format!("{}{}", ran.text(), ran.stderr);
        assert!(!said.contains("CANARY"), "{words:?}: {said}");
    };
    run(&["track"]);
    run(&["run", "--session", "s", "--", "/bin/sh", "-c", "cat a.txt >> b.txt"]);
    let packs = bench.store().join("objects/pack");
    for words in [
        &["status"][..],
        &["doctor"],
        &["log"],
        &["sessions"],
        &["du"],
        &["gc", "--thorough"],
        &["verify"],
        &["undo"],
        &["restore", "0123456789012345678901234567890123456789"],
        &["purge", "--yes", "a.txt"],
    ] {
        run(words);
    }
    // Repeats the check with a damaged store.
    for entry in std::fs::read_dir(packs).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(&path, bytes).unwrap();
    }
    for words in [&["track"][..], &["verify"], &["undo"], &["verify", "--repair"], &["status"]] {
        run(words);
    }
    for (path, bytes) in crate::bench::contents(&bench.data) {
        let found = bytes.windows(6).any(|part| part == b"CANARY");
        assert!(!found, "{}", path.display());
    }
}

/// Users should see problems in `status` before they need an undo.
#[test]
fn status_shows_locks_watcher_clients_and_the_next_command() {
    let bench = Bench::new();
    let next = bench.ok(&["status"]);
    assert!(next.contains("next       ctrlz track"), "{next}");
    bench.write("a.txt", "one\n");
    bench.track();
    std::fs::create_dir_all(bench.home.join(".claude")).unwrap();
    let shown = bench.ok(&["status"]);
    for part in ["store ", "snapshot ", "quota ", "covered    1 files", "watcher ", "client "] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    assert!(!shown.contains("locked"), "{shown}");
    let lock = std::fs::File::open(bench.store().join("ctrlz/store.lock")).unwrap();
    lock.lock().unwrap();
    let shown = bench.ok(&["status"]);
    let us = format!("locked     store, by process {}", std::process::id());
    assert!(shown.contains(&us), "{shown}");
    let locks = bench.json(&["status"])["locks"].clone();
    assert_eq!(locks[0]["processes"][0], std::process::id());
}

#[test]
fn a_dry_run_of_gc_changes_nothing() {
    let bench = Bench::new();
    for number in 0..12 {
        bench.write("a.txt", &number.to_string());
        bench.track();
    }
    let packs = || bench.json(&["status"])["packs"].clone();
    let before = packs();
    let shown = bench.ok(&["gc", "--thorough", "--dry-run"]);
    assert!(shown.ends_with("nothing was changed"), "{shown}");
    assert_eq!(packs(), before);
    bench.ok(&["gc", "--thorough"]);
    assert_eq!(packs(), 1);
}

impl Bench {
    fn configure(&self, text: &str) {
        self.write_home(".config/ctrlz/config.toml", text);
    }

    fn store(&self) -> PathBuf {
        PathBuf::from(self.json(&["status"])["store"].as_str().unwrap())
    }

    /// Makes garbage collection due.
    fn make_gc_due(&self) {
        let stamp = std::fs::File::create(self.store().join("ctrlz/cared")).unwrap();
        stamp.set_modified(SystemTime::now() - Duration::from_secs(3 * 24 * 3600)).unwrap();
    }
}

/// Returns text that does not compress.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    (0..bytes).map(|_| next()).collect()
}

fn reasons(snapshot: &Value) -> Vec<(&str, &str)> {
    let skipped = snapshot["skipped"].as_array().unwrap().iter();
    skipped.map(|one| (one["path"].as_str().unwrap(), one["reason"].as_str().unwrap())).collect()
}

#[test]
fn the_configured_quota_is_enforced_and_warned_about() {
    let bench = Bench::new();
    bench.configure("max_store_bytes = 300000\n");
    bench.write("first", &noise(1, 130_000));
    let first = bench.run(&["--json", "track"]);
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(first["quota_mark"], Value::Null, "{first}");
    bench.write("second", &noise(2, 60_000));
    let second = bench.run(&["track"]);
    assert!(second.stderr.contains("50 % of the quota"), "{}", second.stderr);
    bench.write("third", &noise(3, 200_000));
    bench.write("small", "still fits\n");
    let third = bench.run(&["--json", "track"]);
    assert_eq!(third.code, 3, "the snapshot is incomplete");
    let third: Value = serde_json::from_slice(&third.stdout).unwrap();
    assert_eq!(reasons(&third), [("third", "over_quota")]);
    let status = bench.json(&["status"]);
    assert_eq!(status["quota"]["max_store_bytes"], 300_000);
    assert!(status["quota"]["percent"].as_u64().unwrap() >= 50, "{status}");
    bench.configure("max_total_bytes = 1000\n");
    bench.write("fourth", "x");
    bench.fails(&["track"], 6, "quota");
}

#[test]
fn the_configured_limits_are_enforced() {
    let bench = Bench::new();
    bench.write("large", &noise(1, 50_000));
    bench.configure("max_snapshot_bytes = 10000\n");
    bench.fails(&["track"], 6, "more than 10000");
    bench.configure(&format!("min_free_bytes = {}\n", i64::MAX));
    // At most a tenth of the free space is reserved, so this snapshot fits.
    bench.track();
    bench.configure("max_ignored_bytes = 10\n");
    bench.write(".gitignore", "*.env\n");
    bench.write("a.env", "12345678");
    bench.write("b.env", "12345678");
    let hash = bench.track();
    let ignored = bench.json(&["ls", &hash])["files"].to_string();
    assert!(!ignored.contains("env"), "{ignored}");
    bench.configure("max_store_byte = 1\n");
    bench.fails(&["track"], 2, "max_store_byte");
}

#[test]
fn gc_drops_old_operations_as_configured_and_lists_their_messages() {
    let bench = Bench::new();
    let step = |session: &str, message: &str, text: &str| {
        let script = format!("echo {text} > a.txt");
        let args = ["run", "--session", session, "--message", message, "--", "sh", "-c", &script];
        bench.ok(&args);
    };
    step("early", "m1", "one");
    // A segment of the log ends after 256 operations.
    let input: String = (0..258)
        .map(|number| {
            let script = format!("echo {number} > a.txt");
            format!("$CTRLZ run --session filler -- sh -c '{script}' || exit 1\n")
        })
        .collect();
    assert_eq!(bench.shell(&input).code, 0);
    step("late", "m2", "two");
    let gc = bench.json(&["gc"]);
    assert_eq!(gc["dropped_operations"], 0, "a week is kept by default");
    bench.configure("keep_days = 0\nkeep_sessions = 9\n");
    assert_eq!(bench.json(&["gc"])["dropped_operations"], 0, "the last sessions are kept");
    bench.configure("keep_days = 0\nkeep_sessions = 1\n");
    let shown = bench.ok(&["gc"]);
    assert!(shown.contains("lost  the files of message m1 of session early"), "{shown}");
    assert!(shown.contains("lost  session early"), "{shown}");
    assert!(!shown.contains("m2"), "{shown}");
    assert!(!bench.ok(&["sessions"]).contains("early"));
    bench.ok(&["undo", "--session", "late"]);
}

#[test]
fn checkpoints_are_kept_up_to_the_configured_number() {
    let bench = Bench::new();
    bench.configure("keep_checkpoints = 2\n");
    for number in 0..4 {
        bench.write("a.txt", &number.to_string());
        bench.ok(&["checkpoint", "-m", &format!("c{number}")]);
    }
    let listed = bench.ok(&["checkpoint", "--list"]);
    assert!(listed.contains("c3") && listed.contains("c2") && !listed.contains("c1"), "{listed}");
}

#[test]
fn garbage_collection_starts_automatically_in_its_own_session() {
    let bench = Bench::new();
    for number in 0..9 {
        bench.write("a.txt", &number.to_string().repeat(99));
        bench.track();
    }
    bench.make_gc_due();
    assert!(bench.json(&["status"])["gc_due"].is_string());
    bench.write("a.txt", "last");
    bench.track();
    let start = Instant::now();
    while bench.json(&["status"])["packs"] != 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "no garbage was collected");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(bench.json(&["status"])["gc_due"], Value::Null);
    // A process that waits for the store's lock can be inspected.
    let lock = std::fs::File::open(bench.store().join("ctrlz/store.lock")).unwrap();
    lock.lock().unwrap();
    let project = bench.project.to_str().unwrap();
    let mut gc = bench.command(&["-C", project, "gc", "--background"]).spawn().unwrap();
    let field = |at: usize| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", gc.id())).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(at).unwrap().to_owned()
    };
    let start = Instant::now();
    while field(3) != gc.id().to_string() {
        assert!(start.elapsed() < Duration::from_secs(60), "still in our session");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(lock);
    assert!(gc.wait().unwrap().success());
}

#[test]
fn a_store_is_removed_with_its_last_session_when_asked() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    for session in ["s1", "s2"] {
        let script = format!("echo {session} > a.txt");
        bench.ok(&["run", "--session", session, "--", "sh", "-c", &script]);
    }
    let store = bench.store();
    bench.fails(&["sessions", "delete", "s1", "--remove-store"], 6, "session s2");
    assert!(store.exists());
    bench.ok(&["sessions", "delete", "s2", "--remove-store"]);
    assert!(!store.exists());
    let left: Vec<_> = std::fs::read_dir(store.parent().unwrap()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(bench.read("a.txt").as_deref(), Some("s2\n"));
    bench.track();
    assert_eq!(bench.json(&["log"])["operations"].as_array().unwrap().len(), 1);
}

#[test]
fn du_shows_growth_by_day() {
    let bench = Bench::new();
    bench.write("a.txt", &noise(5, 4_000));
    bench.track();
    let shown = bench.ok(&["du"]);
    let day = shown.lines().last().unwrap();
    assert!(day.ends_with(&"#".repeat(40)) && day.contains("KiB"), "{shown}");
    assert!(shown.contains("a.txt (1 versions)"), "{shown}");
}
