//! An undo without arguments reverts the user's last restore.

use crate::bench::Bench;

fn restored() -> Bench {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    bench.ok(&[
        "run",
        "--session",
        "s",
        "--",
        "/bin/sh",
        "-c",
        "echo AGENT > a.txt; echo x > new.txt",
    ]);
    bench.ok(&["restore", "--exact", &hash]);
    assert_eq!((bench.read("a.txt").unwrap().as_str(), bench.read("new.txt")), ("one\n", None));
    bench
}

#[test]
fn undo_reverts_a_restore_and_redo_repeats_it() {
    let bench = restored();
    let text = bench.ok(&["undo"]);
    assert!(text.starts_with("undo the restore of "), "{text}");
    assert_eq!(bench.read("a.txt").unwrap(), "AGENT\n");
    assert_eq!(bench.read("new.txt").unwrap(), "x\n");
    bench.ok(&["redo"]);
    assert_eq!((bench.read("a.txt").unwrap().as_str(), bench.read("new.txt")), ("one\n", None));
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "AGENT\n");
    let text = bench.ok(&["undo"]);
    assert!(!text.contains("restore of"), "the next undo goes further back: {text}");
    assert_eq!((bench.read("a.txt").unwrap().as_str(), bench.read("new.txt")), ("one\n", None));
}

#[test]
fn undo_with_a_scope_never_reverts_a_restore() {
    let bench = restored();
    let ran = bench.run(&["undo", "--session", "s"]);
    assert!(!ran.text().contains("restore of"), "{ran:?}");
    let bench = restored();
    let ran = bench.run(&["undo", "--last-step"]);
    assert!(!ran.text().contains("restore of"), "{ran:?}");
}

#[test]
fn a_step_after_the_restore_is_undone_first() {
    let bench = restored();
    bench.ok(&["run", "--session", "s", "--", "/bin/sh", "-c", "echo later > later.txt"]);
    let text = bench.ok(&["undo"]);
    assert!(!text.contains("restore of"), "{text}");
    assert_eq!(bench.read("later.txt"), None);
}

#[test]
fn undo_reverts_recover_and_revert() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    bench.ok(&["run", "--session", "s", "--message", "1", "--", "/bin/sh", "-c", "rm a.txt"]);
    bench.ok(&["recover", "a.txt"]);
    bench.ok(&["undo"]);
    assert_eq!(bench.read("a.txt"), None);
    bench.ok(&["redo"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");

    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    bench.ok(&[
        "run",
        "--session",
        "s",
        "--message",
        "1",
        "--",
        "/bin/sh",
        "-c",
        "echo AGENT > a.txt",
    ]);
    bench.ok(&["revert", "--message", "1"]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    let text = bench.ok(&["undo"]);
    assert!(text.starts_with("undo the revert of "), "{text}");
    assert_eq!(bench.read("a.txt").unwrap(), "AGENT\n");
    let log = bench.json(&["log"]);
    assert_eq!(log["operations"][0]["kind"], "unrevert", "{log}");
}

#[test]
fn undo_goes_back_through_several_restores() {
    let bench = Bench::new();
    let mut hashes = Vec::new();
    for text in ["1\n", "2\n", "3\n"] {
        bench.write("a.txt", text);
        hashes.push(bench.track());
    }
    bench.ok(&["restore", &hashes[0]]);
    bench.ok(&["restore", &hashes[1]]);
    let read = || bench.read("a.txt").unwrap();
    for text in ["1\n", "3\n"] {
        bench.ok(&["undo"]);
        assert_eq!(read(), text);
    }
    assert_eq!(bench.run(&["undo"]).code, 4);
    for text in ["1\n", "2\n"] {
        bench.ok(&["redo"]);
        assert_eq!(read(), text);
    }
}

#[test]
fn a_dry_run_of_a_mass_removal_exits_like_the_real_run() {
    let bench = Bench::new();
    bench.write("a.txt", "1\n");
    let hash = bench.track();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo x > f$i; done";
    bench.ok(&["run", "--", "/bin/sh", "-c", script]);
    for words in [&["undo"][..], &["restore", "--exact", &hash]] {
        let dry = bench.run(&[words, &["--dry-run"]].concat());
        assert_eq!((dry.code, bench.run(words).code), (6, 6), "{words:?}: {dry:?}");
        assert!(dry.text().contains("f12"), "{dry:?}");
        let dry = bench.run(&[words, &["--dry-run", "--yes"]].concat());
        assert_eq!(dry.code, 0, "{words:?}: {dry:?}");
    }
}
