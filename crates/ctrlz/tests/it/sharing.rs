//! Several clones, work trees and writers on one store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctrlz::{Error, Progress, RestoreOptions, TrackOptions, Workspace};

use crate::lab::{Lab, SetOnDrop, assert_fsck_clean, git, tree_path};

#[test]
fn clones_and_linked_work_trees_share_a_store_but_not_a_log() {
    let lab = Lab::with_git(&[("a", "one")]);
    git(lab.dir(), &["clone", "-q", "work", "clone"]);
    lab.git(&["worktree", "add", "-q", "../linked", "-b", "other"]);
    let open = |name: &str| Workspace::open(&lab.dir().join(name), lab.options.clone()).unwrap();
    let mut stores = std::collections::BTreeSet::new();
    for (name, text) in [("work", "w"), ("clone", "c"), ("linked", "l")] {
        std::fs::write(lab.dir().join(name).join("a"), text).unwrap();
        let workspace = open(name);
        let hash = workspace.track(&TrackOptions::default(), &Progress::default()).unwrap().hash;
        stores.insert(workspace.store_path().unwrap());
        assert_eq!(workspace.log(10).unwrap().len(), 1, "{name}");
        std::fs::write(lab.dir().join(name).join("a"), "x").unwrap();
        workspace.restore(hash, &RestoreOptions::default(), &Progress::default()).unwrap();
        assert_eq!(std::fs::read_to_string(lab.dir().join(name).join("a")).unwrap(), text);
    }
    assert_eq!(stores.len(), 1);
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_project_keeps_its_store_when_its_history_changes() {
    let lab = Lab::new();
    lab.git(&["init", "-q"]);
    lab.write("a", "one");
    let hash = lab.hash();
    let store = lab.store();
    lab.git(&["add", "."]);
    lab.git(&["commit", "-q", "-m", "first"]);
    lab.track();
    assert_eq!(lab.store(), store, "a first commit");
    lab.git(&["checkout", "-q", "--orphan", "new-root"]);
    lab.git(&["commit", "-q", "-m", "another root"]);
    lab.write("a", "two");
    lab.restore(hash);
    assert_eq!(lab.store(), store, "a new root");
}

#[test]
fn different_projects_have_separate_stores() {
    let one = Lab::new();
    one.write("a", "x");
    one.track();
    let other = one.dir().join("other");
    std::fs::create_dir(&other).unwrap();
    let workspace = Workspace::open(&other, one.options.clone()).unwrap();
    workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
    assert_ne!(workspace.store_path().unwrap().unwrap(), one.store());
}

#[test]
fn readers_find_every_object_during_pack_merges() {
    let lab = Lab::new();
    lab.write("a", "start");
    lab.track();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let read = || {
            let long_lived = lab.workspace();
            while !over.load(Ordering::Relaxed) {
                for workspace in [&long_lived, &lab.workspace()] {
                    for operation in workspace.log(3).unwrap() {
                        let files = workspace.files(&operation.snapshot).unwrap();
                        workspace.file_at(&operation.snapshot, &files[0].path).unwrap();
                    }
                }
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let done = SetOnDrop(&over);
        // Packs are merged whenever there are fifty.
        for number in 0..160 {
            lab.write("a", format!("edit {number}"));
            lab.track();
        }
        drop(done);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_fsck_clean(&lab.store());
}

#[test]
fn many_writers_on_one_work_tree_all_succeed() {
    let lab = Lab::new();
    for number in 0..20 {
        lab.write(&format!("f{number}"), "start");
    }
    let stop = AtomicBool::new(false);
    let hashes = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                lab.write(&format!("f{}", number % 20), format!("edit {number}"));
                number += 1;
            }
        });
        let trackers: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| (0..5).map(|_| lab.track()).collect::<Vec<_>>()))
            .collect();
        let done: Vec<_> = trackers.into_iter().map(|tracker| tracker.join()).collect();
        stop.store(true, Ordering::Relaxed);
        done.into_iter().flat_map(|tracked| tracked.unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(hashes.len(), 60);
    for snapshot in &hashes {
        for file in lab.workspace().files(&snapshot.hash).unwrap() {
            lab.workspace().file_at(&snapshot.hash, &file.path).unwrap();
        }
    }
    assert_fsck_clean(&lab.store());
}

#[test]
fn the_error_for_a_busy_work_tree_names_the_holder() {
    let mut lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
    let file =
        std::fs::File::options().write(true).read(true).open(wt.path().join("lock")).unwrap();
    file.lock().unwrap();
    lab.options.patience = Duration::from_millis(20);
    let result = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    match result {
        Err(Error::Busy { holder, .. }) => assert!(holder.starts_with("process "), "{holder}"),
        other => panic!("{other:?}"),
    }
    assert!(lab.workspace().status().is_ok(), "status does not wait for the lock");
    file.unlock().unwrap();
    lab.track();
}

#[test]
fn a_constantly_rewritten_file_is_never_captured_with_mixed_content() {
    let lab = Lab::new();
    let size = 300_000;
    lab.write("busy", vec![b'a'; size]);
    let stop = AtomicBool::new(false);
    let rounds = if std::env::var_os("RUN_SLOW_TESTS").is_some() { 1_000 } else { 120 };
    let snapshots = std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::{Seek, Write};
            let mut file = std::fs::File::options().write(true).open(lab.path("busy")).unwrap();
            let mut fill = b'a';
            while !stop.load(Ordering::Relaxed) {
                fill = if fill == b'z' { b'a' } else { fill + 1 };
                file.rewind().unwrap();
                file.write_all(&vec![fill; size]).unwrap();
                // Regular pauses allow the file to be captured.
                let pause = if fill == b'z' { 150 } else { 0 };
                std::thread::sleep(Duration::from_millis(pause));
            }
        });
        let _over = SetOnDrop(&stop);
        (0..rounds).map(|_| lab.track()).collect::<Vec<_>>()
    });
    let mut captured = 0;
    for snapshot in snapshots {
        let Ok(bytes) = lab.workspace().file_at(&snapshot.hash, &tree_path("busy")) else {
            assert!(!snapshot.is_complete(), "a skipped file is reported");
            continue;
        };
        captured += 1;
        assert_eq!(bytes.len(), size);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "mixed content");
    }
    assert!(captured > 0);
}

#[test]
fn small_packs_are_merged_and_nothing_is_lost() {
    let lab = Lab::new();
    let mut states = Vec::new();
    for number in 0..130 {
        lab.write("a", format!("{number}"));
        states.push((lab.hash(), format!("{number}")));
    }
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap().count();
    assert!(packs < 110, "{packs} files in the pack directory");
    assert_fsck_clean(&lab.store());
    for (hash, text) in states {
        let bytes = lab.workspace().file_at(&hash, &tree_path("a")).unwrap();
        assert_eq!(bytes, text.as_bytes());
    }
}
