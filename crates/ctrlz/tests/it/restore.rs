//! Restoring snapshots.

use std::os::unix::fs::MetadataExt;

use ctrlz::{
    Action, Error, KeptReason, LookupError, ObjectId, Point, Progress, RestoreError, RestoreOptions,
};

use crate::lab::{Lab, assert_fsck_clean, exact, noise, tree_path};

/// The kind of entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Missing,
    File,
    Link,
    Dir,
}

const THINGS: [Thing; 4] = [Thing::Missing, Thing::File, Thing::Link, Thing::Dir];

fn make(lab: &Lab, thing: Thing, text: &str) {
    if lab.exists("x") {
        lab.remove("x");
    }
    match thing {
        Thing::Missing => (),
        Thing::File => lab.write("x", text),
        Thing::Link => lab.link(text, "x"),
        Thing::Dir => {
            lab.write("x/inner/file", text);
            lab.write("x/other", text);
            lab.chmod("x", 0o750);
        }
    }
}

#[test]
fn every_type_change_is_restored_and_can_be_undone() {
    for then in THINGS {
        for now in THINGS {
            let lab = Lab::new();
            lab.write("bystander", "stays");
            make(&lab, then, "then");
            let before = lab.manifest();
            let hash = lab.hash();
            make(&lab, now, "now");
            let after = lab.manifest();
            let report = lab.restore_exact(hash);
            assert!(report.is_complete(), "{then:?} <- {now:?}: {report:?}");
            assert_eq!(lab.manifest(), before, "{then:?} <- {now:?}");
            let undone = lab.restore_exact(report.safety);
            assert!(undone.is_complete(), "{then:?} -> {now:?}: {undone:?}");
            assert_eq!(lab.manifest(), after, "undo of {then:?} <- {now:?}");
            assert_fsck_clean(&lab.store());
        }
    }
}

#[test]
fn files_created_since_stay_unless_exact() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    lab.write("a", "two");
    lab.write("new/b", "user's");
    let report = lab.restore(hash);
    assert_eq!(lab.read("a"), "one");
    assert_eq!(lab.read("new/b"), "user's");
    assert_eq!(report.kept.len(), 1);
    assert_eq!(report.kept[0].reason, KeptReason::CreatedSince);
    assert!(report.is_complete());
    let report = lab.restore_exact(hash);
    assert!(!lab.exists("new"), "the emptied directory is removed too");
    let dir = Action::RemoveDirectory { path: tree_path("new") };
    assert_eq!(report.done, [dir, Action::Remove { path: tree_path("new/b") }]);
}

#[test]
fn restoring_the_current_state_writes_nothing() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    let before = lab.path("a").metadata().unwrap();
    let report = lab.restore_exact(hash);
    let after = lab.path("a").metadata().unwrap();
    assert_eq!(report.done, []);
    assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
}

#[test]
fn untouched_files_keep_their_inode_and_time() {
    let lab = Lab::new();
    lab.write("touched", "one");
    lab.write("untouched", "same");
    let hash = lab.hash();
    lab.write("touched", "two");
    let before = lab.path("untouched").metadata().unwrap();
    lab.restore(hash);
    let after = lab.path("untouched").metadata().unwrap();
    assert_eq!(lab.read("touched"), "one");
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

#[test]
fn permissions_are_restored_exactly() {
    let lab = Lab::new();
    for (path, mode) in
        [("secret", 0o600), ("shared", 0o664), ("run", 0o755), ("own", 0o700), ("ro", 0o444)]
    {
        lab.write(path, "x");
        lab.chmod(path, mode);
    }
    lab.write("private/f", "x");
    lab.chmod("private", 0o700);
    let before = lab.manifest();
    let hash = lab.hash();
    for path in ["secret", "run", "ro", "private"] {
        lab.remove(path);
    }
    lab.chmod("shared", 0o600);
    lab.chmod("own", 0o644);
    let report = lab.restore(hash);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.manifest(), before);
}

#[test]
fn a_permission_change_of_all_files_is_restored() {
    let lab = Lab::new();
    for name in ["a", "b", "c"] {
        lab.write(name, "x");
    }
    let before = lab.manifest();
    let hash = lab.hash();
    for name in ["a", "b", "c"] {
        lab.chmod(name, 0o666);
    }
    let report = lab.restore(hash);
    assert_eq!(lab.manifest(), before);
    assert_eq!(report.done.len(), 3);
    let undo = Point::Operation(report.safety_operation);
    lab.workspace().restore(undo, &exact(), &Progress::default()).unwrap();
    assert_eq!(lab.mode("b"), 0o666, "an operation records permissions that a hash does not");
}

#[test]
fn empty_directories_are_restored() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.path("a/b/c")).unwrap();
    std::fs::create_dir(lab.path("d")).unwrap();
    lab.chmod("d", 0o700);
    lab.write("e/f", "x");
    let before = lab.manifest();
    let hash = lab.hash();
    lab.remove("a");
    lab.remove("d");
    lab.remove("e");
    lab.restore(hash);
    assert_eq!(lab.manifest(), before);
    std::fs::create_dir_all(lab.path("new/empty")).unwrap();
    lab.restore_exact(hash);
    assert_eq!(lab.manifest(), before, "an exact restore removes new empty directories");
}

#[test]
fn only_the_requested_paths_are_restored() {
    let lab = Lab::new();
    lab.write("sub/a", "one");
    lab.write("subway", "one");
    lab.write("other/b", "one");
    let hash = lab.hash();
    for path in ["sub/a", "subway", "other/b", "sub/new"] {
        lab.write(path, "two");
    }
    let options = RestoreOptions { paths: vec![tree_path("sub")], ..exact() };
    lab.try_restore(hash, &options).unwrap();
    assert_eq!(lab.read("sub/a"), "one");
    assert!(!lab.exists("sub/new"));
    assert_eq!((lab.read("subway"), lab.read("other/b")), ("two".into(), "two".into()));
}

#[test]
fn a_restore_matches_its_plan_and_a_stale_plan_is_refused() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.write("b", "one");
    let hash = lab.hash();
    lab.write("a", "two");
    lab.remove("b");
    let plan = lab.workspace().plan_restore(hash, &exact(), &Progress::default()).unwrap();
    let manifest = lab.manifest();
    assert_eq!(
        plan.actions,
        [Action::Overwrite { path: tree_path("a") }, Action::Create { path: tree_path("b") }]
    );
    assert_eq!(lab.manifest(), manifest, "planning changes nothing");
    lab.write("a", "three");
    let options = RestoreOptions { expected_plan: Some(plan.hash), ..exact() };
    assert!(matches!(
        lab.try_restore(hash, &options),
        Err(Error::Restore(RestoreError::StalePlan))
    ));
    assert_eq!(lab.read("a"), "three");
    lab.write("unrelated", "new");
    let plan = lab.workspace().plan_restore(hash, &exact(), &Progress::default()).unwrap();
    let options = RestoreOptions { expected_plan: Some(plan.hash), ..exact() };
    let report = lab.try_restore(hash, &options).unwrap();
    assert_eq!(report.done, plan.actions);
}

#[test]
fn removing_most_files_needs_confirmation() {
    let lab = Lab::new();
    lab.write("only", "x");
    let hash = lab.hash();
    for number in 0..60 {
        lab.write(&format!("new{number}"), "x");
    }
    let options = RestoreOptions { exact: true, ..RestoreOptions::default() };
    assert!(matches!(
        lab.try_restore(hash, &options),
        Err(Error::Restore(RestoreError::MassChange { removed: 60, .. }))
    ));
    assert!(lab.exists("new59"));
    lab.restore_exact(hash);
    assert!(!lab.exists("new59"));
}

#[test]
fn restoring_an_unknown_hash_changes_nothing() {
    let lab = Lab::new();
    lab.write("a", "one");
    lab.track();
    let before = lab.manifest();
    let unknown: ObjectId = "00112233445566778899aabbccddeeff00112233".parse().unwrap();
    assert!(matches!(
        lab.try_restore(unknown, &exact()),
        Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))
    ));
    assert_eq!(lab.manifest(), before);
}

#[test]
fn a_commit_or_a_blob_is_not_accepted_as_a_snapshot() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    let log = lab.store_git(&["for-each-ref", "--format=%(objectname)"]);
    let commit: ObjectId = log.trim().parse().unwrap();
    let blob: ObjectId = lab.workspace().files(&hash).unwrap()[0].id;
    for id in [commit, blob] {
        assert!(matches!(
            lab.try_restore(id, &exact()),
            Err(Error::Lookup(LookupError::NotASnapshot { .. }))
        ));
    }
    assert_eq!(lab.read("a"), "one");
}

#[test]
fn a_restore_does_not_write_through_hard_links() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    lab.write("a", "two");
    std::fs::hard_link(lab.path("a"), lab.dir().join("outside")).unwrap();
    lab.restore(hash);
    assert_eq!(lab.read("a"), "one");
    assert_eq!(std::fs::read(lab.dir().join("outside")).unwrap(), b"two");
}

#[test]
fn names_of_the_maximum_length_are_restored() {
    let lab = Lab::new();
    let name = "n".repeat(255);
    lab.write(&name, "one");
    let hash = lab.hash();
    lab.write(&name, "two");
    lab.restore(hash);
    assert_eq!(lab.read(&name), "one");
}

#[test]
fn the_log_records_restores_and_outside_changes() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    lab.write("a", "two");
    lab.restore(hash);
    let kinds: Vec<_> = lab.workspace().log(10).unwrap().iter().map(|op| op.kind).collect();
    use ctrlz::OperationKind::{Baseline, Outside, Restore};
    assert_eq!(kinds, [Restore, Outside, Baseline]);
    let shown = lab.store_git(&["log", "--format=%s", "--all"]);
    assert_eq!(shown, "restore\nchanges outside any step\nbaseline\n");
}

#[test]
fn large_files_are_restored_intact() {
    let mut lab = Lab::new();
    let big: Vec<u8> =
        (0..12_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    lab.write("small", "x");
    lab.options.max_new_file_bytes = 64 << 20;
    lab.write("big", &big);
    let hash = lab.hash();
    lab.write("big", "gone");
    let report = lab.restore(hash);
    assert!(report.is_complete());
    assert!(std::fs::read(lab.path("big")).unwrap() == big);
    assert_fsck_clean(&lab.store());
}

#[test]
fn restore_replaces_a_large_or_ignored_file_where_the_snapshot_has_a_directory() {
    for name in ["large", "ignored"] {
        let mut lab = Lab::new();
        lab.options.max_new_file_bytes = 1_000;
        lab.write(&format!("{name}/inner"), "one\n");
        let hash = lab.track().hash;
        lab.remove(name);
        lab.write(".gitignore", "ignored\n");
        lab.write(name, noise(1, 5_000));
        let report = lab.restore(hash);
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!(lab.read(&format!("{name}/inner")), "one\n");
        let saved = lab.store_git(&["cat-file", "-s", &format!("{}:{name}", report.safety)]);
        assert_eq!(saved.trim(), "5000", "{name}");
    }
}
