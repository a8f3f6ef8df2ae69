//! `ctrlz gc`, `du`, `verify`, `purge`, `sessions delete`: what keeps a store fit.

use crate::bench::Bench;

fn json(bench: &Bench, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&bench.ok(args)).unwrap()
}

#[test]
fn gc_du_and_verify_tell_what_they_find() {
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
fn git_packs_deeper_when_it_is_asked_to() {
    let bench = Bench::new();
    for number in 0..4 {
        bench.write("a.txt", &format!("{number}\n").repeat(50));
        bench.track();
    }
    bench.ok(&["gc", "--deep"]);
    assert!(bench.ok(&["verify"]).contains("have the right hash"));
}

#[test]
fn purging_needs_a_yes_and_says_what_is_still_there() {
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
fn a_session_can_be_released() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.ok(&["run", "--session", "s1", "--", "sh", "-c", "echo two > a.txt"]);
    bench.ok(&["sessions", "delete", "s1"]);
    assert_eq!(bench.run(&["sessions", "delete", "nobody"]).code, 4);
}
