//! Directories that are moved, copied and replaced: a history stays with its own directory.

use std::path::{Path, PathBuf};

use ctrlz::{
    Error, ExchangeError, Notice, ObjectId, Options, Progress, StepInfo, StepStart, TrackOptions,
    UndoOptions, UndoScope, Workspace, relink,
};

use crate::lab::{Lab, assert_fsck_clean, assert_same, git, manifest};

impl Lab {
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir().canonicalize().unwrap().join(name)
    }

    fn open_at(&self, root: &Path) -> Workspace {
        Workspace::open(root, self.options.clone()).unwrap()
    }

    /// Records a step that writes `text` to `path`.
    pub(crate) fn step_at(&self, root: &Path, session: &str, path: &str, text: &str) -> ObjectId {
        step(&self.open_at(root), session, path, text)
    }
}

pub(crate) fn step(workspace: &Workspace, session: &str, path: &str, text: &str) -> ObjectId {
    let info = StepInfo { session: session.into(), ..StepInfo::default() };
    let start = StepStart { info, ..StepStart::default() };
    let begun = workspace.begin_step(start, &Progress::default()).unwrap();
    std::fs::write(workspace.root().join(path), text).unwrap();
    workspace.end_step(&begun.step, &Default::default(), &Progress::default()).unwrap().after
}

pub(crate) fn track(workspace: &Workspace) -> ObjectId {
    workspace.track(&TrackOptions::default(), &Progress::default()).unwrap().hash
}

pub(crate) fn undo(workspace: &Workspace) {
    workspace.undo(&UndoScope::default(), &UndoOptions::default(), &Progress::default()).unwrap();
}

fn copy(from: &Path, to: &Path) {
    crate::lab::run(Path::new("/"), "cp", &["-a".as_ref(), from.as_ref(), to.as_ref()]);
}

fn notice(root: &Path, options: &Options) -> Option<Notice> {
    Workspace::open(root, options.clone()).unwrap().notice().cloned()
}

#[test]
fn a_renamed_directory_keeps_its_history_and_is_reported_once() {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.write(".gitignore", "*.env\n");
    lab.write("x.env", "secret\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let (old, new) = (lab.root().canonicalize().unwrap(), lab.beside("renamed"));
    std::fs::rename(&old, &new).unwrap();
    let moved = lab.open_at(&new);
    assert_eq!(moved.notice(), Some(&Notice::Moved { from: old.clone() }));
    assert_eq!(notice(&new, &lab.options), None, "reported once");
    assert_eq!(moved.sessions(None).unwrap().len(), 1);
    undo(&moved);
    assert_eq!(std::fs::read_to_string(new.join("a.txt")).unwrap(), "one\n");
    // A new directory at the old path has its own history.
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("other"), "x").unwrap();
    track(&lab.open_at(&old));
    assert_eq!(lab.open_at(&old).log(10).unwrap().len(), 1);
    assert_ne!(lab.open_at(&old).store_path().unwrap(), moved.store_path().unwrap());
    assert_eq!(lab.open_at(&new).log(100).unwrap().len(), moved.log(100).unwrap().len());
    assert_fsck_clean(&moved.store_path().unwrap().unwrap());
}

#[test]
fn a_moved_work_tree_is_found_from_a_subdirectory() {
    let lab = Lab::new();
    lab.write("deep/er/a.txt", "one\n");
    track(&lab.workspace());
    let new = lab.beside("elsewhere");
    std::fs::rename(lab.root(), &new).unwrap();
    let found = ctrlz::find_work_tree(&new.join("deep/er"), &lab.options.data_dir, None).unwrap();
    assert_eq!(found, new);
}

#[test]
fn after_a_move_to_another_disk_relink_makes_undo_work() {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let (old, new) = (lab.root().canonicalize().unwrap(), lab.beside("disk2/work"));
    std::fs::create_dir_all(new.parent().unwrap()).unwrap();
    copy(&old, &new);
    let refused = relink(&old, &new, lab.options.clone());
    assert!(
        matches!(refused, Err(Error::Exchange(ExchangeError::StillThere { .. }))),
        "{refused:?}"
    );
    std::fs::remove_dir_all(&old).unwrap();
    // A possible match is reported but not adopted.
    let notice = notice(&new, &lab.options);
    assert_eq!(notice, Some(Notice::MayBe { old: old.clone() }));
    assert!(lab.open_at(&new).log(10).unwrap().is_empty());
    let relinked = relink(&old, &new, lab.options.clone()).unwrap();
    assert!(!relinked.already && relinked.snapshot.is_some(), "{relinked:?}");
    assert!(relink(&old, &new, lab.options.clone()).unwrap().already);
    undo(&lab.open_at(&new));
    assert_eq!(std::fs::read_to_string(new.join("a.txt")).unwrap(), "one\n");
    let unknown = relink(&lab.beside("never"), &new, lab.options.clone());
    assert!(
        matches!(unknown, Err(Error::Exchange(ExchangeError::NoHistory { .. }))),
        "{unknown:?}"
    );
}

#[test]
fn relink_sets_aside_history_recorded_at_the_new_path() {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let (old, new) = (lab.root().canonicalize().unwrap(), lab.beside("work2"));
    copy(&old, &new);
    std::fs::remove_dir_all(&old).unwrap();
    std::fs::write(new.join("a.txt"), "three\n").unwrap();
    let meanwhile = track(&lab.open_at(&new));
    let relinked = relink(&old, &new, lab.options.clone()).unwrap();
    assert!(relinked.set_aside.is_some(), "{relinked:?}");
    assert_eq!(lab.open_at(&new).sessions(None).unwrap().len(), 1);
    // Without git each path has its own store. The store of the new path still exists.
    let stores = std::fs::read_dir(lab.options.data_dir.join("snapshot")).unwrap();
    let holds = |store: PathBuf| {
        let args = ["cat-file", "-e", &meanwhile.to_string()];
        crate::lab::git_command(&store, &args).output().unwrap().status.success()
    };
    assert!(stores.map(|entry| entry.unwrap().path()).any(holds));
}

#[test]
fn a_copy_does_not_get_the_history_of_the_original() {
    let lab = Lab::with_git(&[("a.txt", "one\n")]);
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let before = lab.workspace().log(100).unwrap();
    let copied = lab.beside("copy");
    copy(&lab.root(), &copied);
    let there = lab.open_at(&copied);
    assert_eq!(there.notice(), None);
    track(&there);
    assert!(there.sessions(None).unwrap().is_empty());
    assert_eq!(there.log(10).unwrap().len(), 1);
    assert_eq!(lab.workspace().log(100).unwrap(), before);
    undo(&lab.workspace());
    assert_eq!(lab.read("a.txt"), "one\n");
    assert_eq!(std::fs::read_to_string(copied.join("a.txt")).unwrap(), "two\n");
}

#[test]
fn another_project_at_the_same_path_starts_with_an_empty_history() {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let kept = manifest(&lab.root());
    let root = lab.root().canonicalize().unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    lab.write("b.txt", "of another project\n");
    assert_eq!(notice(&root, &lab.options), Some(Notice::Replaced));
    assert!(lab.workspace().log(10).unwrap().is_empty());
    track(&lab.workspace());
    assert_eq!(lab.workspace().log(10).unwrap().len(), 1);
    assert_eq!(notice(&root, &lab.options), None, "reported once");
    assert!(lab.workspace().sessions(None).unwrap().is_empty());
    // The old history is not lost: relink brings it back.
    let relinked = relink(&root, &root, lab.options.clone()).unwrap();
    assert!(relinked.set_aside.is_some());
    lab.remove("b.txt");
    lab.restore(relinked.snapshot.unwrap());
    assert_same(&lab.manifest(), &kept, "the previous project");
    undo(&lab.workspace());
    assert_eq!(lab.read("a.txt"), "one\n");
}

#[test]
fn a_fresh_clone_at_the_same_path_keeps_the_history() {
    let lab = Lab::with_git(&[("a.txt", "one\n")]);
    let root = lab.root().canonicalize().unwrap();
    lab.step_at(&root, "s", "a.txt", "two\n");
    let kept = lab.beside("kept");
    git(&lab.beside(""), &["clone", "-q", root.to_str().unwrap(), kept.to_str().unwrap()]);
    std::fs::remove_dir_all(&root).unwrap();
    git(&lab.beside(""), &["clone", "-q", kept.to_str().unwrap(), root.to_str().unwrap()]);
    assert_eq!(notice(&root, &lab.options), None);
    assert_eq!(lab.workspace().sessions(None).unwrap().len(), 1);
}

#[test]
fn a_store_inside_the_project_moves_with_it() {
    let mut lab = Lab::new();
    lab.options.store = Some(".agent/snapshots".into());
    lab.write("a.txt", "one\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    let new = lab.beside("renamed");
    std::fs::rename(lab.root(), &new).unwrap();
    undo(&lab.open_at(&new));
    assert_eq!(std::fs::read_to_string(new.join("a.txt")).unwrap(), "one\n");
}

#[test]
fn borrowed_objects_are_found_after_a_move() {
    let lab = Lab::with_git(&[("a.txt", "one\n"), ("b.txt", "two\n")]);
    std::thread::sleep(std::time::Duration::from_millis(50));
    lab.git(&["update-index", "--refresh"]);
    let snapshot = lab.track();
    let new = lab.beside("renamed");
    std::fs::rename(lab.root(), &new).unwrap();
    let moved = lab.open_at(&new);
    moved.check_snapshot(&snapshot.hash).unwrap();
}

#[test]
fn history_is_found_after_the_path_registry_is_lost() {
    let lab = Lab::new();
    lab.write("a.txt", "one\n");
    lab.step_at(&lab.root(), "s", "a.txt", "two\n");
    std::fs::remove_dir_all(lab.options.data_dir.join("paths")).unwrap();
    track(&lab.workspace());
    assert_eq!(lab.workspace().sessions(None).unwrap().len(), 1);
}

#[test]
fn history_is_readable_with_a_lost_or_damaged_path_record() {
    for damage in [None, Some(&b"}"[..])] {
        let lab = Lab::with_git(&[("a", "one")]);
        let first = lab.hash();
        lab.write("a", "two");
        lab.track();
        let records = std::fs::read_dir(lab.options.data_dir.join("paths")).unwrap();
        for record in records.map(|entry| entry.unwrap().path()) {
            match damage {
                None => std::fs::remove_file(record).unwrap(),
                Some(bytes) => std::fs::write(record, bytes).unwrap(),
            }
        }
        assert_eq!(lab.workspace().log(10).unwrap().len(), 2, "{damage:?}");
        lab.restore(first);
        assert_eq!(lab.read("a"), "one");
        assert_eq!(lab.workspace().log(10).unwrap().len(), 3, "{damage:?}");
    }
}

#[test]
fn a_corrupted_path_record_is_detected() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    let log = lab.workspace().log(10).unwrap();
    let records = std::fs::read_dir(lab.options.data_dir.join("paths")).unwrap();
    let is_record = |path: &PathBuf| !path.ends_with("lock");
    let record = records.map(|entry| entry.unwrap().path()).find(is_record).unwrap();
    let good = std::fs::read_to_string(&record).unwrap();
    let (before, after) = good.split_once("\"work_tree\":\"").unwrap();
    let first = if after.starts_with('0') { '1' } else { '0' };
    std::fs::write(&record, format!("{before}\"work_tree\":\"{first}{}", &after[1..])).unwrap();
    assert_eq!(lab.workspace().log(10).unwrap(), log);
    lab.write("a", "two");
    lab.track();
    assert_eq!(lab.workspace().log(10).unwrap().len(), 2);
}

#[test]
fn leftover_temporary_path_records_are_removed_by_the_next_snapshot() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    std::thread::sleep(std::time::Duration::from_millis(80));
    let left = lab.options.data_dir.join("paths/tmp_0123456789abcdef");
    std::fs::write(&left, "{").unwrap();
    lab.track();
    assert!(!left.exists());
}
