//! Uncaptured paths: files in the log stay captured when they grow, and losses are reported.

use ctrlz::{Error, LookupError, Progress, StepStart, TrackOptions, UncapturedChange, UndoOptions};

use crate::lab::{Lab, noise, tree_path};
use crate::sessions::{last_turn, start};

fn small_limit() -> Lab {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1_000;
    lab
}

fn grown(lab: &Lab) {
    lab.write("d.bin", noise(1, 900));
    lab.track();
    lab.write("d.bin", noise(2, 1_200));
    lab.track();
}

#[test]
fn a_large_file_stays_captured_once_the_log_contains_it() {
    let lab = small_limit();
    grown(&lab);
    lab.step("s", "m1", "1", |lab| lab.remove("d.bin"));
    lab.undo();
    let edited = noise(3, 1_300);
    lab.write("d.bin", &edited);
    lab.step("s", "m2", "2", |lab| lab.remove("d.bin"));
    assert!(lab.undo().is_complete());
    assert_eq!(std::fs::read(lab.path("d.bin")).unwrap(), edited);
}

#[test]
fn undo_restores_every_version_of_a_grown_file() {
    let lab = small_limit();
    lab.write("d.bin", noise(1, 900));
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.write("d.bin", noise(2, 1_200)));
    lab.step("s", "m2", "2", |lab| lab.remove("d.bin"));
    assert!(lab.undo().is_complete());
    assert!(lab.undo().is_complete());
    assert_eq!(std::fs::read(lab.path("d.bin")).unwrap(), noise(1, 900));
}

#[test]
fn a_named_large_file_is_captured_by_the_first_snapshot() {
    let lab = small_limit();
    lab.write("big.bin", noise(1, 5_000));
    let options = TrackOptions { paths: vec![tree_path("big.bin")], ..TrackOptions::default() };
    let snapshot = lab.workspace().track(&options, &Progress::default()).unwrap();
    assert_eq!(snapshot.skipped, []);
    let names = lab.store_git(&["ls-tree", "-r", "--name-only", &snapshot.hash.to_string()]);
    assert_eq!(names.trim(), "big.bin");
}

#[test]
fn the_loss_of_an_uncaptured_file_is_reported_everywhere() {
    let lab = small_limit();
    lab.write("a", "one\n");
    lab.write("big.bin", noise(1, 5_000));
    lab.step("s", "m0", "0", |lab| lab.write("a", "AGENT\n"));
    lab.begin(start("s", "m1", "1"));
    lab.remove("big.bin");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.uncaptured.len(), 1);
    assert_eq!(ended.uncaptured[0].change, UncapturedChange::Gone);
    let lost = lab.workspace().lost_files().uncaptured().unwrap();
    assert_eq!(
        (lost[0].uncaptured.path.as_slice(), lost[0].step.step.as_str()),
        (&b"big.bin"[..], "1")
    );
    let timeline = lab.workspace().timeline(&Default::default()).unwrap();
    assert_eq!(timeline[0].steps[0].uncaptured.len(), 1);
    let plan = last_turn(&UndoOptions::default());
    let plan = lab.workspace().plan(&plan, &Progress::default()).unwrap();
    let report = lab.undo();
    for report in [plan, report] {
        assert!(!report.is_complete());
        assert_eq!(report.uncaptured.len(), 1, "{report:?}");
    }
    assert_eq!(lab.undo().steps, ["0"], "the next undo covers the turn before");
}

#[test]
fn undo_keeps_a_backup_of_an_uncaptured_file_that_the_step_changed() {
    for is_removed in [false, true] {
        let lab = Lab::new();
        lab.write(".gitignore", "dev.data\n");
        lab.write("dev.data", noise(1, 400 << 10));
        lab.write("a", "one\n");
        lab.step("s", "m1", "1", |lab| {
            std::fs::copy(lab.path("dev.data"), lab.path("backup")).unwrap();
            lab.write("other", noise(2, 300 << 10));
            lab.write("a", "AGENT\n");
            if is_removed { lab.remove("dev.data") } else { lab.write("dev.data", "reset") }
        });
        let report = lab.undo();
        assert_eq!(report.conflicts.len(), 1, "{report:?}");
        assert!(report.conflicts[0].why.contains("only copy of what was dev.data"), "{report:?}");
        assert_eq!(std::fs::read(lab.path("backup")).unwrap(), noise(1, 400 << 10));
        assert_eq!((lab.exists("other"), lab.read("a")), (false, "one\n".to_owned()));
    }
}

#[test]
fn a_large_file_that_a_step_wrote_to_is_reported() {
    let lab = small_limit();
    lab.write("a", "one\n");
    lab.write("big.bin", noise(1, 5_000));
    lab.step("s", "m1", "1", |lab| {
        lab.write("a", "AGENT\n");
        lab.write("big.bin", noise(2, 6_000));
    });
    let report = lab.undo();
    assert_eq!((lab.read("a"), report.is_complete()), ("one\n".into(), false), "{report:?}");
    assert_eq!(report.uncaptured[0].path, b"big.bin");
}

#[test]
fn ignored_files_and_directories_that_a_step_removed_are_reported() {
    let lab = Lab::with_git(&[(".gitignore", "*.db\nnode_modules/\n"), ("a", "one\n")]);
    lab.write("dev.db", noise(1, 300 << 10));
    lab.write("small.db", "small");
    lab.write("app/node_modules/x/index.js", "x");
    lab.write("other/node_modules/x/index.js", "x");
    lab.write("nested/file", "x");
    std::fs::create_dir_all(lab.path("nested/.git/objects")).unwrap();
    lab.begin(start("s", "m1", "1"));
    lab.remove("dev.db");
    lab.remove("small.db");
    lab.remove("app");
    lab.remove("nested");
    lab.write("other/node_modules/y", "y");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    let mut lost: Vec<String> = ended
        .uncaptured
        .iter()
        .filter(|lost| lost.is_loss())
        .map(|lost| String::from_utf8(lost.path.clone()).unwrap())
        .collect();
    lost.sort();
    assert_eq!(lost, ["app/node_modules", "dev.db", "nested/.git"], "{:?}", ended.uncaptured);
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!((lab.read("small.db"), lab.read("nested/file")), ("small".into(), "x".into()));
}

#[test]
fn changes_inside_an_ignored_directory_are_not_a_loss() {
    let lab = Lab::with_git(&[(".gitignore", "node_modules/\n"), ("a", "one\n")]);
    lab.write("node_modules/x", "x");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    lab.write("node_modules/y", "y");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.uncaptured.len(), 1, "{:?}", ended.uncaptured);
    assert!(!ended.uncaptured[0].is_loss());
    assert!(lab.undo().is_complete());
}

#[test]
fn the_loss_of_the_repository_itself_is_reported() {
    let lab = Lab::with_git(&[("a", "one\n")]);
    lab.track();
    lab.begin(start("s", "m1", "1"));
    std::fs::remove_dir_all(lab.path(".git")).unwrap();
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.uncaptured.len(), 1);
    assert_eq!(ended.uncaptured[0].path, b".git");
    assert!(ended.uncaptured[0].is_loss());
}

#[test]
fn files_removed_by_an_undo_are_not_lost() {
    let lab = Lab::new();
    lab.write("a", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("new", "AGENT\n"));
    lab.undo();
    assert_eq!(lab.workspace().lost_files().list().unwrap(), []);
    let result = lab.workspace().lost_files().recover(
        &tree_path("new"),
        &Default::default(),
        &Progress::default(),
    );
    assert!(matches!(result, Err(Error::Lookup(LookupError::NothingLost { .. }))));
}

#[test]
fn large_files_and_repositories_that_a_step_creates_are_listed_and_stay() {
    let lab = small_limit();
    lab.write("a", "one\n");
    lab.begin(start("s", "m1", "1"));
    lab.write("a", "AGENT\n");
    lab.write("big.bin", noise(1, 5_000));
    lab.write("sub/.git/HEAD", "ref: refs/heads/main\n");
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    let report = lab.undo();
    for listed in [&ended.uncaptured, &report.uncaptured] {
        let made: Vec<_> = listed.iter().map(|made| (made.path.as_slice(), made.change)).collect();
        let created = UncapturedChange::Created;
        assert_eq!(made, [(&b"big.bin"[..], created), (&b"sub/.git"[..], created)]);
    }
    assert!(report.is_complete(), "skipped by policy, not lost: {report:?}");
    assert!(lab.exists("big.bin") && lab.exists("sub/.git/HEAD"));
    assert_eq!(lab.read("a"), "one\n");
}

/// Begins a step that names a directory and every file below it, as a hook does for `rm -rf DIR`.
fn begin_naming(lab: &Lab, paths: &[&str]) {
    let paths = paths.iter().map(|path| tree_path(path)).collect();
    lab.begin(StepStart { paths, ..start("s", "m1", "1") });
}

#[test]
fn a_removed_ignored_directory_is_lost_unless_all_its_files_were_captured() {
    // Neither a file that the command did not name nor a nested repository is captured.
    for left_out in [None, Some("vendor/b"), Some("vendor/.git/HEAD")] {
        let lab = Lab::new();
        lab.write(".gitignore", "vendor\n");
        lab.write("vendor/a", "a\n");
        if let Some(path) = left_out {
            lab.write(path, "not captured\n");
        }
        begin_naming(&lab, &["vendor", "vendor/a"]);
        lab.remove("vendor");
        let ended =
            lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
        let is_lost = ended.uncaptured.iter().any(|lost| lost.path == b"vendor" && lost.is_loss());
        assert_eq!(is_lost, left_out.is_some(), "{left_out:?}: {:?}", ended.uncaptured);
    }
}

#[test]
fn a_directory_that_a_step_removed_and_created_again_is_reported_as_replaced() {
    let lab = Lab::with_git(&[(".gitignore", "out/\n")]);
    for path in [".git", "out"] {
        std::fs::create_dir_all(lab.path(path)).unwrap();
        lab.write(&format!("{path}/file"), noise(1, 2_000_000));
        lab.begin(start("s", path, path));
        // Some file systems assign the inode number of the removed directory again.
        std::fs::remove_dir_all(lab.path(path)).unwrap();
        std::fs::create_dir(lab.path(path)).unwrap();
        let ended =
            lab.workspace().end_step(path, &Default::default(), &Progress::default()).unwrap();
        let change = ended.uncaptured.iter().find(|change| change.path == path.as_bytes());
        assert_eq!(change.map(|change| change.change), Some(UncapturedChange::Replaced), "{path}");
    }
}

#[test]
fn a_mode_change_of_an_uncaptured_large_file_is_reported() {
    let lab = small_limit();
    lab.write("big.bin", noise(1, 5_000));
    lab.begin(start("s", "m1", "1"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(lab.path("big.bin"), mode).unwrap();
    let ended = lab.workspace().end_step("1", &Default::default(), &Progress::default()).unwrap();
    assert_eq!(ended.uncaptured.len(), 1);
    assert_eq!(ended.uncaptured[0].change, UncapturedChange::Modified);
    assert!(!lab.undo().is_complete());
}
