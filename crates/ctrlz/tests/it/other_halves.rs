//! Undo never removes the only remaining copy of a renamed or copied file.

use ctrlz::{ConflictReason, Progress, UndoOptions, UndoReport, UndoScope};

use crate::lab::{Lab, noise};

fn halves(report: &UndoReport) -> Vec<String> {
    let is_half = |reason| reason == ConflictReason::OtherHalf;
    let conflicts = report.conflicts.iter().filter(|conflict| is_half(conflict.reason));
    conflicts.map(|conflict| conflict.path.to_string()).collect()
}

fn rename(lab: &Lab, from: &str, to: &str) {
    std::fs::rename(lab.path(from), lab.path(to)).unwrap();
}

#[test]
fn a_renamed_file_stays_if_its_old_name_is_taken() {
    let lab = Lab::new();
    lab.write("a", "the only copy\n");
    lab.step("s", "m1", "1", |lab| rename(lab, "a", "b"));
    lab.write("a", "the user's\n");
    let report = lab.undo();
    assert_eq!(halves(&report), ["b"], "{report:?}");
    assert_eq!((lab.read("a"), lab.read("b")), ("the user's\n".into(), "the only copy\n".into()));
}

#[test]
fn undo_keeps_a_file_moved_out_of_an_ignored_directory() {
    let lab = Lab::with_git(&[(".gitignore", "build/\n")]);
    lab.write("build/model.csv", noise(1, 1000));
    lab.track();
    std::thread::sleep(std::time::Duration::from_millis(30));
    lab.step("s", "m1", "1", |lab| {
        rename(lab, "build/model.csv", "data.csv");
        lab.write("made.csv", "by the agent\n");
    });
    let report = lab.undo();
    assert_eq!(halves(&report), ["data.csv"], "{report:?}");
    assert!(lab.exists("data.csv") && !lab.exists("made.csv"));
}

#[test]
fn undo_keeps_a_backup_of_an_overwritten_ignored_file() {
    let lab = Lab::with_git(&[(".gitignore", ".env\n")]);
    lab.write(".env", "SECRET=1\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path(".env"), lab.path("env.backup")).unwrap();
        lab.write(".env", "SECRET=agent\n");
    });
    let report = lab.undo();
    assert_eq!(halves(&report), ["env.backup"], "{report:?}");
    assert_eq!(lab.read("env.backup"), "SECRET=1\n");
    assert!(!report.is_complete());
}

#[test]
fn undo_removes_a_backup_if_its_original_is_restored() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path("a"), lab.path("a.bak")).unwrap();
        lab.write("a", "AGENT\n");
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("a.bak"));
    assert_eq!(lab.read("a"), "one\n");
}

#[test]
fn undo_reverses_a_rename_with_an_edit() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\nthree\n");
    std::thread::sleep(std::time::Duration::from_millis(30));
    lab.step("s", "m1", "1", |lab| {
        rename(lab, "a", "b");
        lab.write("b", "one\ntwo\nthree\nAGENT\n");
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("b"));
    assert_eq!(lab.read("a"), "one\ntwo\nthree\n");
}

#[test]
fn uncaptured_files_in_a_renamed_directory_are_reported() {
    let lab = Lab::with_git(&[(".gitignore", "node_modules/\n*.sqlite\n.env\n")]);
    lab.write("pkg/index.js", "x\n");
    lab.write("pkg/.env", "SECRET=1\n");
    lab.write("pkg/dev.sqlite", noise(1, 300 << 10));
    lab.write("pkg/node_modules/dep/index.js", "dep\n");
    std::thread::sleep(std::time::Duration::from_millis(30));
    lab.step("s", "m1", "1", |lab| rename(lab, "pkg", "packages"));
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!(
        (lab.read("pkg/index.js"), lab.read("pkg/.env")),
        ("x\n".into(), "SECRET=1\n".into())
    );
    let halves = halves(&report);
    for path in ["packages/dev.sqlite", "packages/node_modules"] {
        assert!(halves.contains(&path.to_owned()), "{report:?}");
        assert!(lab.exists(path));
    }
}

#[test]
fn a_file_that_was_renamed_over_another_stays_if_its_old_name_is_taken() {
    let lab = Lab::new();
    lab.write("a", "the only copy\n");
    lab.write("b", "old\n");
    lab.step("s", "m1", "1", |lab| rename(lab, "a", "b"));
    lab.write("a", "the user's\n");
    let report = lab.undo();
    assert_eq!(halves(&report), ["b"], "{report:?}");
    assert_eq!(lab.read("b"), "the only copy\n");
}

#[test]
fn edits_of_a_twice_renamed_file_stay_if_they_cannot_be_moved_back() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.ign\n");
    lab.write("n.ign", "1\n2\n3\n4\n5\n");
    std::fs::create_dir(lab.path("d")).unwrap();
    lab.write("d/keep", "x\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::rename(lab.path("n.ign"), lab.path("d/h")).unwrap();
    });
    lab.step("s", "m1", "2", |lab| {
        std::fs::rename(lab.path("d/h"), lab.path("r")).unwrap();
    });
    lab.write("r", "1\n2\nUSER\n3\n4\n5\n");
    let report = lab.undo();
    assert_eq!(lab.read("r"), "1\n2\nUSER\n3\n4\n5\n", "{report:?}");
    assert_eq!(lab.read("n.ign"), "1\n2\n3\n4\n5\n");
    assert!(!report.is_complete());
}

#[test]
fn undo_removes_a_file_that_one_step_created_and_another_moved() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.write("p/s", "AGENT\n"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    lab.step("s", "m1", "2", |lab| {
        std::fs::rename(lab.path("p/s"), lab.path("k")).unwrap();
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("k") && !lab.exists("p"));
}

#[test]
fn undo_removes_a_copy_if_the_changes_of_its_source_cancel_out() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path("a"), lab.path("a.bak")).unwrap();
        lab.write("a", "one\nAGENT\ntwo\n");
    });
    lab.step("s", "m1", "2", |lab| lab.write("a", "one\ntwo\n"));
    lab.write("a", "user\none\ntwo\n");
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("a.bak"));
    assert_eq!(lab.read("a"), "user\none\ntwo\n");
}

#[test]
fn undo_removes_a_copy_if_an_earlier_undo_restored_its_source() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path("a"), lab.path("a.bak")).unwrap();
        lab.write("a", "one\nAGENT\ntwo\n");
    });
    let paths = vec![crate::lab::tree_path("a")];
    let only = UndoOptions { paths, ..UndoOptions::default() };
    let scope = UndoScope::LastTurn;
    lab.workspace().undo(&scope, &only, &Progress::default()).unwrap();
    lab.write("a", "one\ntwo\nuser\n");
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("a.bak"));
    assert_eq!(lab.read("a"), "one\ntwo\nuser\n");
}

#[test]
fn undo_keeps_a_copy_if_the_user_removed_lines_from_its_source() {
    let lab = Lab::new();
    lab.write("a", "one\ntwo\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::copy(lab.path("a"), lab.path("a.bak")).unwrap();
        lab.write("a", "one\nAGENT\ntwo\n");
    });
    lab.step("s", "m1", "2", |lab| lab.write("a", "one\ntwo\n"));
    lab.write("a", "user\n");
    let report = lab.undo();
    assert_eq!(halves(&report), ["a.bak"], "{report:?}");
    assert_eq!(lab.read("a.bak"), "one\ntwo\n");
}

#[test]
fn an_uncaptured_file_that_was_moved_over_a_captured_one_stays() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 100_000;
    lab.write("big", noise(1, 200_000));
    lab.write("t", "captured\n");
    lab.write("edited", "captured\n");
    lab.track();
    std::thread::sleep(std::time::Duration::from_millis(30));
    lab.step("s", "m1", "1", |lab| {
        rename(lab, "big", "t");
        lab.write("edited", noise(2, 300));
    });
    let report = lab.undo();
    assert_eq!(halves(&report), ["t"], "{report:?}");
    assert!(report.conflicts[0].why.contains("big"), "{report:?}");
    assert!(!report.is_complete());
    assert_eq!(std::fs::read(lab.path("t")).unwrap(), noise(1, 200_000));
    assert_eq!(lab.read("edited"), "captured\n", "a file that was written in place is undone");
}
