//! Regression tests for failures that users of other systems reported.

use ctrlz::{
    Error, LookupError, PatchToRevert, Progress, RecordError, RestoreOptions, TrackOptions,
};

use crate::lab::{Lab, assert_fsck_clean, assert_same, git, tree_path};

fn revert_all_since(lab: &Lab, hash: ctrlz::ObjectId) {
    let patch = lab.workspace().patch(&hash, &Progress::default()).unwrap();
    let patches = [PatchToRevert { hash, files: patch.files }];
    lab.workspace().revert(&patches, &RestoreOptions::default(), &Progress::default()).unwrap();
}

#[test]
fn stale_locks_in_the_users_repository_do_not_block_snapshots() {
    let lab = Lab::with_git(&[("a", "one")]);
    lab.write(".git/index.lock", "");
    lab.write(".git/HEAD.lock", "");
    let hash = lab.hash();
    lab.write("a", "two");
    assert_ne!(lab.hash(), hash);
    lab.restore(hash);
    assert_eq!(lab.read("a"), "one");
}

#[test]
fn a_stale_lock_on_a_store_ref_is_removed() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    let wt = std::fs::read_dir(lab.store().join("refs/ctrlz")).unwrap().next().unwrap().unwrap();
    let lock = wt.path().join("log.lock");
    std::fs::write(&lock, "").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(&lock).unwrap().set_modified(old).unwrap();
    lab.write("a", "two");
    lab.track();
    assert_eq!(lab.workspace().log(10).unwrap().len(), 2);
}

#[test]
fn queries_before_the_first_snapshot_fail_cleanly() {
    let lab = Lab::new();
    lab.write("a", "one");
    let some = "1234567890123456789012345678901234567890".parse().unwrap();
    let workspace = lab.workspace();
    assert!(matches!(
        workspace.patch(&some, &Progress::default()),
        Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))
    ));
    assert!(matches!(
        workspace.changes(&some, &some),
        Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))
    ));
    assert!(matches!(
        workspace.files(&some),
        Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))
    ));
    assert_eq!(workspace.log(5).unwrap(), []);
    assert!(workspace.status().unwrap().last.is_none());
    assert_eq!(lab.track().files, 1);
}

#[test]
fn a_submodule_is_captured_as_files() {
    let inner = Lab::with_git(&[("lib", "one")]);
    let lab = Lab::with_git(&[("a", "one")]);
    lab.git(&["submodule", "-q", "add", inner.root().to_str().unwrap(), "sub"]);
    lab.git(&["commit", "-q", "-m", "sub"]);
    let hash = lab.hash();
    lab.write("sub/lib", "two");
    lab.write("sub/new", "x");
    revert_all_since(&lab, hash);
    assert_eq!(lab.read("sub/lib"), "one");
    assert!(!lab.exists("sub/new"));
    assert_eq!(git(&lab.path("sub"), &["status", "--porcelain"]), "");
    assert_fsck_clean(&lab.store());
}

#[test]
fn reverting_a_patch_restores_a_file_that_became_ignored() {
    let lab = Lab::new();
    lab.write("config", "the user's");
    let hash = lab.hash();
    lab.write("config", "the agent's");
    lab.write(".gitignore", "config\n");
    revert_all_since(&lab, hash);
    assert_eq!(lab.read("config"), "the user's");
    assert!(!lab.exists(".gitignore"));
}

#[test]
fn a_skipped_file_named_like_a_pattern_hides_no_other_file() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 100;
    lab.write("[ab]", "x".repeat(200));
    lab.write("a", "small");
    lab.write("*", "x".repeat(200));
    let snapshot = lab.track();
    assert_eq!((snapshot.files, snapshot.skipped.len()), (1, 2));
}

#[test]
fn a_huge_new_file_is_skipped_cheaply_and_survives() {
    let lab = Lab::new();
    lab.write("a", "one");
    let before = lab.hash();
    std::fs::File::create(lab.path("model.bin")).unwrap().set_len(11 << 30).unwrap();
    lab.write("a", "two");
    let snapshot = lab.track();
    assert!(snapshot.bytes_written < 1 << 20);
    assert_eq!(snapshot.skipped.len(), 1);
    lab.restore_exact(before);
    assert_eq!(lab.path("model.bin").metadata().unwrap().len(), 11 << 30);
    assert_eq!(lab.read("a"), "one");
}

#[test]
fn a_failed_snapshot_never_returns_an_old_hash() {
    let mut lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    lab.write("a", "two, and much longer than before");
    lab.options.max_snapshot_bytes = 5;
    let result = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Record(RecordError::OverBudget { .. }))), "{result:?}");
}

#[test]
fn a_second_instance_does_not_reset_the_log() {
    let lab = Lab::new();
    lab.write("a", "one");
    let first = lab.workspace();
    let hash = first.track(&TrackOptions::default(), &Progress::default()).unwrap().hash;
    let second = lab.workspace();
    lab.write("a", "two");
    second.track(&TrackOptions::default(), &Progress::default()).unwrap();
    first.restore(hash, &RestoreOptions::default(), &Progress::default()).unwrap();
    assert_eq!(lab.read("a"), "one");
    assert_eq!(first.log(10).unwrap().len(), 3);
}

#[test]
fn a_directory_swapped_for_a_link_and_back_changes_nothing_outside() {
    let lab = Lab::new();
    let outside = lab.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("keep"), "victim").unwrap();
    let guard = crate::lab::manifest(&outside);
    lab.write("d/f", "one");
    let as_dir = lab.hash();
    let dir_state = lab.manifest();
    lab.remove("d");
    lab.link(outside.to_str().unwrap(), "d");
    let as_link = lab.hash();
    let link_state = lab.manifest();
    for _ in 0..3 {
        lab.restore_exact(as_dir);
        assert_same(&lab.manifest(), &dir_state, "a directory again");
        lab.restore_exact(as_link);
        assert_same(&lab.manifest(), &link_state, "a link again");
    }
    assert_same(&crate::lab::manifest(&outside), &guard, "outside");
}

#[test]
fn a_restore_keeps_the_inodes_of_directories() {
    use std::os::unix::fs::MetadataExt;
    let lab = Lab::new();
    lab.write("src/a", "one");
    let hash = lab.hash();
    let inode = |path| lab.path(path).metadata().unwrap().ino();
    let before = (inode(""), inode("src"));
    lab.write("src/a", "two");
    lab.write("src/b", "x");
    lab.restore_exact(hash);
    assert_eq!((inode(""), inode("src")), before);
}

#[test]
fn unusual_modification_times_do_not_hide_changes() {
    let lab = Lab::new();
    let set = |seconds: i64| {
        let base = std::time::UNIX_EPOCH;
        let time = if seconds < 0 {
            base - std::time::Duration::from_secs(seconds.unsigned_abs())
        } else {
            base + std::time::Duration::from_secs(seconds as u64)
        };
        std::fs::File::options()
            .write(true)
            .open(lab.path("a"))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    for seconds in [0, -1000, 4_102_444_800, i64::from(u32::MAX) + 10] {
        lab.write("a", "one");
        set(seconds);
        let first = lab.hash();
        assert_eq!(lab.hash(), first);
        lab.write("a", "two");
        set(seconds);
        assert_ne!(lab.hash(), first, "same size, same time {seconds}, other bytes");
    }
}

#[test]
fn swapping_files_of_equal_size_and_mtime_is_detected() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.write("b", "two");
    let time = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    for name in ["a", "b"] {
        std::fs::File::options()
            .write(true)
            .open(lab.path(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(60));
    let first = lab.hash();
    assert_eq!(lab.hash(), first);
    for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
        std::fs::rename(lab.path(from), lab.path(to)).unwrap();
    }
    let second = lab.hash();
    assert_ne!(second, first);
    assert_eq!(lab.workspace().file_at(&second, &tree_path("a")).unwrap(), b"two");
}

#[test]
fn a_symlink_with_a_new_target_of_equal_length_is_detected() {
    let lab = Lab::new();
    lab.link("one", "link");
    let first = lab.hash();
    lab.remove("link");
    lab.link("two", "link");
    assert_ne!(lab.hash(), first);
}
