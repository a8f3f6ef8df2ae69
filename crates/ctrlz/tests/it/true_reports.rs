//! Reports list exactly the actions that happened, and every path that was left alone.

use ctrlz::{KeptReason, PatchToRevert, Progress, RestoreOptions, UndoScope};

use crate::lab::{Lab, assert_same, tree_path};
use crate::sessions::of;

#[test]
fn a_directory_that_one_step_made_and_another_removed_is_not_created() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::create_dir(lab.path("e")).unwrap();
        lab.write("a", "2\n");
    });
    lab.step("s", "m1", "2", |lab| {
        std::fs::remove_dir(lab.path("e")).unwrap();
        lab.write("a", "3\n");
    });
    let report = lab.undo();
    assert_eq!(report.done.len(), 1, "{report:?}");
    assert!(!lab.exists("e"));
}

#[test]
fn removing_an_empty_directory_is_reported_as_an_action() {
    let lab = Lab::new();
    lab.write("a", "1\n2\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "1\nx\n");
        std::fs::create_dir_all(lab.path("r/s")).unwrap();
    });
    lab.write("a", "1\ny\n");
    let report = lab.undo();
    assert_eq!((report.done.len(), report.conflicts.len()), (2, 1), "{report:?}");
    assert!(!lab.exists("r"));
    lab.redo();
    assert!(lab.path("r/s").is_dir());
}

#[test]
fn undo_removes_a_created_directory_after_the_user_emptied_it() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.step("s", "m1", "1", |lab| {
        std::fs::create_dir(lab.path("k")).unwrap();
        std::fs::rename(lab.path("a"), lab.path("k/l")).unwrap();
    });
    std::fs::remove_file(lab.path("k/l")).unwrap();
    lab.undo();
    assert!(!lab.exists("k"));
    assert_eq!(lab.read("a"), "1\n");
}

#[test]
fn an_ignored_file_in_a_directory_that_became_a_file_does_not_stop_undo() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.ign\n");
    lab.write("d/e", "1\n");
    lab.write("d/o.ign", "2\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.remove("d");
        lab.write("d", "x\n");
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_same(&lab.manifest(), &before, "undone");
}

#[test]
fn contradictory_undo_targets_at_one_path_are_both_reported() {
    let lab = Lab::new();
    lab.write("a", "file\n");
    lab.write("keep", "k\n");
    lab.step("B", "1", "b1", |lab| lab.remove("a"));
    lab.step("A", "1", "a1", |lab| lab.write("a/e", "A\n"));
    lab.step("B", "1", "b2", |lab| lab.remove("a"));
    let report = lab.undo_with(&UndoScope::LastTurn, &of("B")).unwrap();
    assert!(!report.is_complete());
    let kept: Vec<_> =
        report.kept.iter().map(|kept| (kept.path.to_string(), &kept.reason)).collect();
    let both =
        [("a".to_owned(), &KeptReason::Contradiction), ("a/e".into(), &KeptReason::Contradiction)];
    assert_eq!(kept, both);
}

#[test]
fn contradictory_patches_are_reported() {
    let lab = Lab::new();
    lab.write("foo", "file\n");
    let file = lab.hash();
    lab.remove("foo");
    lab.write("foo/bar", "dir\n");
    let dir = lab.hash();
    lab.remove("foo");
    let patches = [
        PatchToRevert { hash: file, files: vec![tree_path("foo")] },
        PatchToRevert { hash: dir, files: vec![tree_path("foo/bar")] },
    ];
    let options = RestoreOptions::default();
    let report = lab.workspace().revert(&patches, &options, &Progress::default()).unwrap();
    assert!(!report.is_complete() && report.done.is_empty(), "{report:?}");
    assert_eq!(report.kept.len(), 2);
}

#[test]
fn a_restore_replaces_a_file_at_the_path_of_a_directory() {
    let lab = Lab::new();
    lab.write("foo/bar", "dir\n");
    let hash = lab.hash();
    lab.remove("foo");
    lab.write("foo", "file\n");
    let report = lab.restore(hash);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("foo/bar"), "dir\n");
}

#[test]
fn a_restore_replaces_a_directory_only_if_everything_in_it_is_saved() {
    let lab = Lab::new();
    lab.write(".gitignore", "ignored/\n");
    lab.write("foo", "file\n");
    lab.write("bar", "file\n");
    let hash = lab.hash();
    for path in ["foo", "bar"] {
        lab.remove(path);
        lab.write(&format!("{path}/new"), "mine\n");
    }
    lab.write("bar/ignored/deep", "not captured\n");
    let report = lab.restore(hash);
    assert_eq!(lab.read("foo"), "file\n");
    assert_eq!(
        (lab.read("bar/new"), lab.read("bar/ignored/deep")),
        ("mine\n".into(), "not captured\n".into())
    );
    assert!(!report.is_complete());
    assert!(
        report.kept.iter().any(|kept| kept.reason == KeptReason::DirectoryInTheWay),
        "{report:?}"
    );
}

#[test]
fn a_directory_that_the_undone_steps_made_and_removed_is_not_reported_as_created() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("a", "one\n");
    let edit = crate::sessions::start("s", "m1", "1");
    let paths = vec![crate::lab::tree_path("k/large")];
    lab.begin(ctrlz::StepStart { paths, only_named: true, ..edit });
    lab.write("k/large", crate::lab::noise(1, 2000));
    lab.end("1");
    lab.step("s", "m1", "2", |lab| {
        lab.remove("k");
        lab.write("a", "AGENT\n");
    });
    let report = lab.undo();
    let done: Vec<String> = report.done.iter().map(|action| action.path().to_string()).collect();
    assert_eq!(done, ["a"], "{report:?}");
    assert!(!lab.exists("k"));
}
