//! Ignore rules that change in or after a step: files only become visible or invisible.

use crate::lab::Lab;

/// Creates a directory with an ignored file, an empty directory and a file.
fn service(lab: &Lab) {
    lab.write("srv/.env", "KEY=1\n");
    lab.write("srv/k", "1\n");
    std::fs::create_dir(lab.path("srv/empty")).unwrap();
    lab.write("a", "1\n");
}

#[test]
fn files_that_a_step_ignores_survive_undo_and_redo() {
    let lab = Lab::new();
    lab.write(".gitignore", ".env\n");
    service(&lab);
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", ".env\nsrv/\n");
        lab.write("a", "2\n");
    });
    let before = lab.manifest();
    for _ in 0..2 {
        assert!(lab.undo().is_complete());
        assert_eq!(lab.read(".gitignore"), ".env\n");
        let report = lab.redo();
        assert!(report.is_complete(), "{report:?}");
        crate::lab::assert_same(&lab.manifest(), &before, "after redo");
    }
}

#[test]
fn files_that_a_step_no_longer_ignores_survive_undo() {
    let lab = Lab::new();
    lab.write(".gitignore", "srv/\n");
    service(&lab);
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", ".env\n");
        lab.write("a", "2\n");
    });
    let report = lab.undo();
    assert!(report.is_complete() && report.ignored.is_empty(), "{report:?}");
    crate::lab::assert_same(&lab.manifest(), &before, "after undo");
}

#[test]
fn an_exact_restore_leaves_empty_directories_that_were_ignored_then() {
    let lab = Lab::new();
    lab.write(".gitignore", "srv/\n");
    service(&lab);
    let hash = lab.hash();
    lab.write(".gitignore", "\n");
    lab.track();
    lab.restore_exact(hash);
    assert!(lab.exists("srv/empty"));
}

#[test]
fn new_files_in_a_directory_that_became_ignored_after_the_step_are_undone() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("build/x", "x\n");
        lab.write("a", "2\n");
    });
    lab.write(".gitignore", "build/\n");
    let report = lab.undo();
    let removed: Vec<String> = report.done.iter().map(|action| action.path().to_string()).collect();
    assert_eq!(removed, ["a", "build", "build/x"], "{report:?}");
    assert!(!lab.exists("build"));
    lab.redo();
    assert_eq!((lab.read("build/x"), lab.read("a")), ("x\n".into(), "2\n".into()));
}

#[test]
fn a_file_that_became_ignored_with_its_directory_and_was_edited_is_a_conflict() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.step("s", "m1", "1", |lab| lab.write("build/x", "x\n"));
    lab.write(".gitignore", "build/\n");
    lab.write("build/x", "mine\n");
    let report = lab.undo();
    assert!(!report.is_complete(), "{report:?}");
    assert_eq!(lab.read("build/x"), "mine\n");
}

#[test]
fn a_file_that_became_ignored_after_the_step_is_undone_and_redone() {
    let lab = Lab::with_git(&[("kept", "1\n")]);
    lab.write("h.md", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("h.md", "AGENT\n"));
    lab.write(".gitignore", "*.md\n");
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("h.md"), "one\n");
    lab.redo();
    assert_eq!(lab.read("h.md"), "AGENT\n");
    lab.undo();
    lab.write("h.md", "user\n");
    lab.redo();
    assert_eq!(lab.read("h.md"), "user\n", "an edit that no snapshot holds stays");
}
