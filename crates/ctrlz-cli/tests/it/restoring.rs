//! `restore` and `revert`.

use serde_json::json;

use crate::bench::{Bench, contents, feed};

/// Returns the arguments of the undo command that a report prints.
fn undo_of(report: &str) -> Vec<&str> {
    let line = report.lines().find_map(|line| line.strip_prefix("undo: ctrlz ")).unwrap();
    line.split(' ').collect()
}

#[test]
fn undoing_a_restore_brings_the_previous_files_back() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("deep/b.txt", "one\n");
    let hash = bench.track();
    let before = contents(&bench.project);
    bench.write("a.txt", "two\n");
    bench.write("new.txt", "new\n");
    std::fs::remove_dir_all(bench.project.join("deep")).unwrap();
    let after = contents(&bench.project);

    let report = bench.ok(&["restore", &hash]);
    assert!(report.contains("1 created, 1 overwritten"), "{report}");
    assert!(report.contains("1 file created since"), "{report}");
    assert_eq!(bench.read("new.txt").unwrap(), "new\n", "only --exact removes");
    bench.ok(&undo_of(&report));
    assert_eq!(contents(&bench.project), after);

    let report = bench.ok(&["restore", "--exact", &hash]);
    assert_eq!(contents(&bench.project), before);
    let safety = report.lines().find_map(|line| line.strip_prefix("before: ")).unwrap();
    bench.ok(&["restore", "--exact", safety]);
    assert_eq!(contents(&bench.project), after);
}

#[test]
fn a_dry_run_shows_the_plan_and_changes_nothing() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("gone.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    bench.write("new.txt", "new\n");
    std::fs::remove_file(bench.project.join("gone.txt")).unwrap();
    let files = contents(&bench.project);
    let text = bench.ok(&["restore", "--exact", "--dry-run", &hash]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["~ overwrite  a.txt", "+ create     gone.txt", "- remove     new.txt"],
        "{text}"
    );
    let plan = lines[3].strip_prefix("plan ").unwrap();
    assert_eq!(contents(&bench.project), files);
    assert_eq!(bench.json(&["restore", "--exact", "--dry-run", &hash])["hash"], plan);

    bench.write("a.txt", "three\n");
    bench.fails(&["restore", "--exact", "--plan", plan, &hash], 5, "moved since the plan");
    assert_eq!(bench.read("a.txt").unwrap(), "three\n");
    let plan = bench.json(&["restore", "--exact", "--dry-run", &hash])["hash"].clone();
    bench.ok(&["restore", "--exact", "--plan", plan.as_str().unwrap(), &hash]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

#[test]
fn restore_in_a_sub_directory_is_limited_to_it() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.write("sub/b.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    bench.write("sub/b.txt", "two\n");
    let ran = bench.run(&["-C", "sub", "restore", &hash]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("limited to sub/"), "{ran:?}");
    assert_eq!(bench.read("sub/b.txt").unwrap(), "one\n");
    assert_eq!(bench.read("a.txt").unwrap(), "two\n");
    bench.ok(&["-C", "sub", "restore", &hash, "--", ".."]);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
}

#[test]
fn paths_outside_the_work_tree_are_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    for path in ["/etc/passwd", "../x", "../../x", ".git/config"] {
        bench.fails(&["restore", &hash, "--", path], 4, path);
        bench.fails(&["track", "--", path], 4, path);
        bench.fails(&["show", &format!("{hash}:{path}")], 4, path);
    }
}

#[test]
fn paths_that_cannot_be_restored_are_listed_and_exit_with_3() {
    let bench = Bench::new();
    bench.write(".gitignore", "*.log\n");
    bench.write("x", "a file\n");
    let hash = bench.track();
    std::fs::remove_file(bench.project.join("x")).unwrap();
    bench.write("x/precious.log", "in no snapshot\n");
    bench.write("new.txt", "new\n");
    let ran = bench.run(&["restore", "-v", &hash]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.text().contains("= kept       x: a directory in its place"), "{ran:?}");
    assert!(ran.text().contains("= kept       new.txt: created since"), "{ran:?}");
    assert_eq!(bench.read("x/precious.log").unwrap(), "in no snapshot\n");
}

#[test]
fn changes_of_permissions_alone_are_restored_and_undone() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let file = bench.project.join("a.txt");
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let set =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o640);
    let operation = bench.json(&["track"])["operation"].as_str().unwrap().to_owned();
    set(0o600);
    let report = bench.ok(&["restore", &operation]);
    assert_eq!(mode(), 0o640);
    bench.ok(&undo_of(&report));
    assert_eq!(mode(), 0o600);
}

#[test]
fn restore_requires_yes_to_remove_most_files() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    for index in 0..200 {
        bench.write(&format!("new/{index}"), "new\n");
    }
    bench.fails(&["restore", "--exact", &hash], 6, "--yes");
    assert!(bench.read("new/7").is_some());
    bench.ok(&["restore", "--exact", "--yes", &hash]);
    assert!(bench.read("new/7").is_none());
}

#[test]
fn a_restore_reports_in_json() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    let safety = bench.track();
    let report = bench.json(&["restore", &hash]);
    assert_eq!(report["safety"], safety.as_str());
    assert_eq!(report["after"], hash.as_str());
    assert_eq!(report["done"], json!([{ "action": "overwrite", "path": "a.txt" }]));
    assert_eq!(report["complete"], true);
}

#[test]
fn patches_are_reverted_file_by_file() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("b.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    bench.write("b.txt", "two\n");
    bench.write("new.txt", "new\n");
    let file = bench.home.join("patches.json");
    let absolute = bench.project.join("new.txt");
    let patches = json!([{ "hash": hash, "files": ["a.txt", absolute] }]);
    std::fs::write(&file, patches.to_string()).unwrap();
    let words = ["revert", "--patches", file.to_str().unwrap()];

    let plan = bench.ok(&[&words[..], &["--dry-run"]].concat());
    assert!(plan.starts_with("~ overwrite  a.txt\n- remove     new.txt\n"), "{plan}");
    assert_eq!(bench.read("a.txt").unwrap(), "two\n");
    let report = bench.ok(&words);
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    assert_eq!(bench.read("b.txt").unwrap(), "two\n");
    assert_eq!(bench.read("new.txt"), None);
    bench.ok(&undo_of(&report));
    assert_eq!(bench.read("new.txt").unwrap(), "new\n");
}

#[test]
fn revert_accepts_the_json_output_of_patch() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let before = contents(&bench.project);
    bench.write("a.txt", "two\n");
    std::fs::write(bench.project.join(weird_name()), "new\n").unwrap();
    let patch = bench.ok(&["--json", "patch", &hash]);
    let ran = feed(&mut bench.command(&["revert", "--patches", "-"]), &patch);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(contents(&bench.project), before);
}

fn weird_name() -> &'static std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(b"new\xff\n.txt")
}

#[test]
fn a_file_of_patches_is_read_relative_to_the_chosen_directory() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    bench.write("patches.json", &json!({ "hash": hash, "files": ["a.txt"] }).to_string());
    let project = bench.project.to_str().unwrap();
    let mut command = bench.command(&["-C", project, "revert", "--patches", "patches.json"]);
    let ran = crate::bench::finish(command.current_dir(&bench.home));
    assert_eq!((ran.code, bench.read("a.txt").as_deref()), (0, Some("one\n")), "{ran:?}");
}

#[test]
fn invalid_patches_and_paths_outside_change_nothing() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    bench.write("a.txt", "two\n");
    let check = |patches: &str, code: i32| {
        let ran = feed(&mut bench.command(&["revert", "--patches", "-"]), patches);
        assert_eq!(ran.code, code, "{patches}: {ran:?}");
        assert_eq!(bench.read("a.txt").unwrap(), "two\n");
    };
    for path in ["/etc/passwd", "../x", ".git/config", "", "."] {
        check(&json!({ "hash": hash, "files": ["a.txt", path] }).to_string(), 4);
    }
    check(&json!({ "hash": "1".repeat(40), "files": ["a.txt"] }).to_string(), 4);
    check(&json!({ "hash": "nonsense", "files": ["a.txt"] }).to_string(), 4);
    check("not json", 2);
    check("{}", 2);
    check("[1]", 2);
}
