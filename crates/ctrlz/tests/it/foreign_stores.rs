//! Stores inside the work tree that belong to another client of ctrlz: snapshots skip them and
//! nothing writes into them.

use std::time::Duration;

use ctrlz::{
    Error, ObjectId, Progress, SkipReason, TrackOptions, UndoOptions, UndoScope, Workspace,
};

use crate::lab::{Lab, Manifest, assert_fsck_clean, exact, manifest, tree_path};
use crate::sessions::start;

const STORE: &str = ".agent/snapshots";

impl Lab {
    /// Opens the same work tree with a store inside it.
    fn inner(&self) -> Workspace {
        let store = Some(STORE.into());
        Workspace::open(&self.root(), ctrlz::Options { store, ..self.options.clone() }).unwrap()
    }

    fn track_inner(&self) -> ObjectId {
        self.inner().track(&TrackOptions::default(), &Progress::default()).unwrap().hash
    }

    /// Removes the `.gitignore` that hides the store's files. Stores of 0.1.0 have none.
    fn unhide(&self) {
        self.remove(".agent/snapshots/.gitignore");
    }

    fn inner_files(&self) -> Manifest {
        manifest(&self.path(STORE))
    }

    fn files(&self) -> Vec<String> {
        let hash = self.hash();
        let files = self.workspace().files(&hash).unwrap();
        files.iter().map(|file| file.path.to_string()).collect()
    }

    /// Waits until the timestamps of everything written so far can be trusted.
    fn let_timestamps_age(&self) {
        std::thread::sleep(Duration::from_millis(60));
        self.track();
    }
}

#[test]
fn undo_leaves_the_snapshots_of_another_store_alone() {
    let lab = Lab::with_git(&[("a", "1\n")]);
    lab.track_inner();
    lab.track();
    lab.begin(start("s", "m", "p"));
    lab.write("a", "2\n");
    lab.write("b", "precious\n");
    let inner = lab.track_inner();
    lab.remove("b");
    lab.end("p");
    let files = lab.inner_files();
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("a"), "1\n");
    assert!(lab.inner_files() == files, "the store was written to");
    assert_eq!(lab.inner().files(&inner).unwrap().len(), 2);
    assert_fsck_clean(&lab.path(STORE));
}

#[test]
fn a_store_is_reported_and_never_captured() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.track_inner();
    let cold = lab.track();
    assert_eq!(cold.files, 1);
    assert_eq!(cold.skipped.len(), 1);
    assert_eq!(cold.skipped[0].path, STORE.as_bytes());
    assert_eq!(cold.skipped[0].reason, SkipReason::NestedRepository);
    assert!(cold.is_complete(), "policy, not failure");
    // Warm scans: nothing changed, a file of the store changed, a file of the user changed.
    lab.let_timestamps_age();
    assert!(!lab.track().changed);
    lab.write("b", "2\n");
    lab.track_inner();
    assert_eq!(lab.files(), ["a", "b"]);
    assert_eq!(lab.track().skipped, cold.skipped);
    // Naming the store does not capture it either.
    for path in [STORE, ".agent/snapshots/HEAD", ".agent/snapshots/ctrlz/new"] {
        let options = TrackOptions { paths: vec![tree_path(path)], ..TrackOptions::default() };
        let refused = lab.workspace().track(&options, &Progress::default());
        assert!(matches!(refused, Err(Error::NotATreePath(_))), "{path}: {refused:?}");
    }
    let options = TrackOptions { paths: vec![tree_path(".agent")], ..TrackOptions::default() };
    lab.workspace().track(&options, &Progress::default()).unwrap();
    assert_eq!(lab.files(), ["a", "b"]);
}

#[test]
fn a_store_that_a_tool_names_is_not_captured_as_an_ignored_file() {
    let lab = Lab::new();
    lab.write(".gitignore", "/.agent\n");
    lab.track_inner();
    let files = lab.inner_files();
    let step = ctrlz::StepStart {
        paths: vec![tree_path(".agent/snapshots/HEAD")],
        ..start("s", "m", "p")
    };
    lab.begin(step);
    let head = lab.path(STORE).join("HEAD");
    std::fs::write(&head, "ref: refs/heads/other\n").unwrap();
    lab.end("p");
    // Either there is nothing to undo, or the undo does not touch the store.
    drop(lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default()));
    assert_eq!(std::fs::read_to_string(&head).unwrap(), "ref: refs/heads/other\n");
    std::fs::write(&head, "ref: refs/heads/main\n").unwrap();
    assert!(lab.inner_files() == files);
}

#[test]
fn a_directory_is_captured_again_once_it_stops_being_a_store() {
    let lab = Lab::new();
    lab.write("a", "1\n");
    lab.track_inner();
    lab.unhide();
    lab.let_timestamps_age();
    assert_eq!(lab.files(), ["a"]);
    // The directory itself is not replaced.
    lab.remove(".agent/snapshots/ctrlz/format");
    assert!(lab.files().contains(&".agent/snapshots/HEAD".to_owned()));
    lab.let_timestamps_age();
    lab.write(".agent/snapshots/ctrlz/format", "1\n");
    assert_eq!(lab.files(), ["a"]);
    lab.let_timestamps_age();
    lab.remove(STORE);
    lab.write(".agent/snapshots/plain", "2\n");
    assert_eq!(lab.files(), [".agent/snapshots/plain", "a"]);
}

#[test]
fn watched_snapshots_skip_another_store() {
    let mut lab = Lab::new();
    lab.options.watch = true;
    lab.write("a", "1\n");
    lab.track_inner();
    let _watcher = lab.watcher();
    lab.track();
    lab.write("b", "2\n");
    lab.track_inner();
    let snapshot = lab.track();
    assert!(snapshot.watched);
    assert_eq!(snapshot.skipped.len(), 1);
    assert_eq!(lab.files(), ["a", "b"]);
    lab.unhide();
    lab.remove(".agent/snapshots/HEAD");
    assert!(lab.files().contains(&".agent/snapshots/ctrlz/format".to_owned()));
    lab.write(".agent/snapshots/HEAD", "ref: refs/heads/main\n");
    assert_eq!(lab.files(), ["a", "b"]);
}

/// Takes a snapshot that contains files of a store, like those of 0.1.0.
fn old_snapshot(lab: &Lab) -> ObjectId {
    lab.write("a", "1\n");
    lab.track_inner();
    lab.unhide();
    std::fs::rename(lab.path(".agent/snapshots/HEAD"), lab.dir().join("HEAD")).unwrap();
    let hash = lab.hash();
    std::fs::rename(lab.dir().join("HEAD"), lab.path(".agent/snapshots/HEAD")).unwrap();
    hash
}

#[test]
fn snapshots_that_captured_a_store_are_restored_without_it() {
    let lab = Lab::new();
    let old = old_snapshot(&lab);
    lab.write("a", "2\n");
    lab.track_inner();
    let files = lab.inner_files();
    let report = lab.restore_exact(old);
    assert_eq!(lab.read("a"), "1\n");
    assert!(lab.inner_files() == files, "the store was written to");
    let kept: Vec<String> = report.kept.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!(kept, [STORE]);
    assert!(!report.is_complete());
    // The same for a revert of single files.
    let patch = ctrlz::PatchToRevert {
        hash: old,
        files: vec![tree_path(".agent/snapshots/ctrlz/format"), tree_path(".agent/snapshots/x")],
    };
    let report = lab.workspace().revert(&[patch], &exact(), &Progress::default()).unwrap();
    assert!(report.done.is_empty(), "{report:?}");
    assert!(lab.inner_files() == files);
}

#[test]
fn git_leaves_a_store_inside_the_work_tree_alone() {
    let lab = Lab::with_git(&[("a", "1\n")]);
    lab.write("untracked", "2\n");
    let hash = lab.track_inner();
    let gitignore = lab.path(STORE).join(".gitignore");
    assert_eq!(std::fs::read_to_string(&gitignore).unwrap(), "*\n");
    assert_eq!(lab.git(&["status", "--porcelain"]), "?? untracked\n");
    assert_eq!(lab.git(&["add", "-A", "-n"]), "add 'untracked'\n");
    lab.git(&["clean", "-fdq"]);
    assert!(!lab.exists("untracked"));
    assert_eq!(lab.inner().files(&hash).unwrap().len(), 2);
    assert_fsck_clean(&lab.path(STORE));
    // A store of 0.1.0 gets its `.gitignore` with the next write.
    std::fs::remove_file(&gitignore).unwrap();
    lab.inner().files(&hash).unwrap();
    assert!(!gitignore.exists());
    lab.track_inner();
    assert!(gitignore.exists());
}
