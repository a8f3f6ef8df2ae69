//! Regression tests for defects that reviews and fault injection found in the engine.

use ctrlz::{
    Error, KeptReason, PatchToRevert, Presence, Progress, RecordError, RestoreError,
    RestoreOptions, StoreError, TrackOptions, Workspace,
};

use crate::lab::{Lab, SetOnDrop, assert_fsck_clean, exact, git, tree_path};

#[test]
fn a_store_beside_the_users_temporary_files_leaves_them_alone() {
    let mut lab = Lab::new();
    lab.options.store = Some("snapshots".into());
    lab.write("tmp_results/precious.csv", "x");
    lab.write("tmp_0123456789abcdef", "x");
    lab.write(".ctrlz-store-0123456789abcdef/mine", "x");
    lab.track();
    for path in
        ["tmp_results/precious.csv", "tmp_0123456789abcdef", ".ctrlz-store-0123456789abcdef/mine"]
    {
        assert!(lab.exists(path), "{path}");
    }
}

#[test]
fn a_repository_under_another_name_is_not_touched() {
    let lab = Lab::new();
    lab.git(&["init", "-q", "-b", "main", "--separate-git-dir", ".bare"]);
    lab.write("a", "one");
    lab.git(&["add", "a"]);
    lab.git(&["commit", "-q", "-m", "first"]);
    let hash = lab.hash();
    lab.write("a", "two");
    lab.git(&["commit", "-q", "-a", "-m", "second"]);
    let head = lab.git(&["rev-parse", "HEAD"]);
    lab.restore_exact(hash);
    assert_eq!(lab.read("a"), "one");
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(git(&lab.root(), &["fsck"]), "");
    let files = lab.workspace().files(&hash).unwrap();
    assert!(files.iter().all(|file| !file.path.to_string().starts_with(".bare")));
}

#[test]
fn replacing_a_directory_of_many_files_needs_confirmation() {
    let lab = Lab::new();
    lab.write("d", "a file then");
    let hash = lab.hash();
    lab.remove("d");
    for number in 0..60 {
        lab.write(&format!("d/new{number}"), "x");
    }
    for exact in [false, true] {
        let guarded = RestoreOptions { exact, ..RestoreOptions::default() };
        let result = lab.try_restore(hash, &guarded);
        assert!(
            matches!(result, Err(Error::Restore(RestoreError::MassChange { removed: 60, .. }))),
            "{result:?}"
        );
        assert!(lab.exists("d/new59"));
    }
    let report = lab.restore_exact(hash);
    assert!(report.is_complete());
    assert_eq!(lab.read("d"), "a file then");
    assert_eq!(report.done.len(), 61, "every removed file is in the plan");
}

#[test]
fn a_store_inside_the_work_tree_is_never_part_of_a_revert() {
    let mut lab = Lab::new();
    lab.options.store = Some("state/store".into());
    lab.write("a", "x");
    let hash = lab.hash();
    let files = vec![tree_path("state/store/HEAD"), tree_path("state/store/config")];
    let patches = [PatchToRevert { hash, files }];
    let report =
        lab.workspace().revert(&patches, &RestoreOptions::default(), &Progress::default()).unwrap();
    assert!(!report.is_complete());
    assert!(lab.exists("state/store/HEAD"));
    let options = TrackOptions { paths: vec![tree_path("state/store")], ..TrackOptions::default() };
    let result = lab.workspace().track(&options, &Progress::default());
    assert!(matches!(result, Err(Error::NotATreePath(_))), "{result:?}");
}

#[test]
fn a_directory_inside_dot_git_is_refused_as_a_work_tree() {
    let lab = Lab::with_git(&[("a", "x")]);
    let mut options = lab.options.clone();
    options.allow_dangerous_root = true;
    for inside in [".git", ".git/refs"] {
        let result = Workspace::open(&lab.path(inside), options.clone());
        assert!(
            matches!(result, Err(Error::Record(RecordError::DangerousRoot { .. }))),
            "{inside}"
        );
    }
}

#[test]
fn a_borrowed_object_that_was_lost_is_read_from_the_work_tree() {
    let lab = Lab::new();
    lab.git(&["init", "-q"]);
    lab.write("a", "one");
    std::thread::sleep(std::time::Duration::from_millis(40));
    lab.git(&["add", "a"]);
    lab.git(&["commit", "-q", "-m", "x"]);
    std::thread::sleep(std::time::Duration::from_millis(40));
    let first = lab.track();
    assert_eq!(first.borrowed, 1);
    std::fs::remove_dir_all(lab.path(".git/objects")).unwrap();
    std::fs::create_dir(lab.path(".git/objects")).unwrap();
    lab.workspace().copy_borrowed(u64::MAX).unwrap();
    lab.track();
    assert_eq!(lab.workspace().file_at(&first.hash, &tree_path("a")).unwrap(), b"one");
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_partial_snapshot_does_not_prove_absence_under_changed_rules() {
    let lab = Lab::new();
    lab.write("src/x.gen", "x");
    lab.write("src/a", "x");
    lab.track();
    lab.write(".gitignore", "*.gen\n");
    let options = TrackOptions { paths: vec![tree_path("src")], ..TrackOptions::default() };
    let partial = lab.workspace().track(&options, &Progress::default()).unwrap();
    let presence = lab.workspace().file_exists_at(&partial.hash, &tree_path("src/x.gen")).unwrap();
    assert_ne!(presence, Presence::Absent);
    lab.remove(".gitignore");
    lab.restore_exact(partial.hash);
    assert!(lab.exists("src/x.gen"));
}

#[test]
fn a_preview_does_not_change_what_a_restore_does() {
    let lab = Lab::new();
    lab.write("secret", "x");
    lab.chmod("secret", 0o600);
    let hash = lab.hash();
    lab.chmod("secret", 0o666);
    let plan = lab.workspace().plan_restore(hash, &exact(), &Progress::default()).unwrap();
    assert_eq!(plan.actions.len(), 1);
    let options = RestoreOptions { expected_plan: Some(plan.hash), ..exact() };
    lab.try_restore(hash, &options).unwrap();
    assert_eq!(lab.mode("secret"), 0o600);
}

#[test]
fn permissions_do_not_come_from_another_work_tree() {
    let lab = Lab::with_git(&[("secret", "x"), ("other", "x")]);
    git(lab.dir(), &["clone", "-q", "work", "clone"]);
    lab.chmod("secret", 0o600);
    let hash = lab.hash();
    let clone = Workspace::open(&lab.dir().join("clone"), lab.options.clone()).unwrap();
    clone.track(&TrackOptions::default(), &Progress::default()).unwrap();
    lab.write("other", "changed");
    lab.restore(hash);
    assert_eq!(lab.mode("secret"), 0o600);
}

#[test]
fn an_included_directory_does_not_prove_its_ignored_files_absent() {
    let mut lab = Lab::new();
    lab.options.include_ignored = vec!["dist/".into()];
    lab.write(".gitignore", "dist/\n*.log\n");
    lab.write("dist/keep", "x");
    lab.write("dist/a.log", "the user's");
    let hash = lab.hash();
    lab.write(".gitignore", "");
    lab.restore_exact(hash);
    assert!(lab.exists("dist/a.log"));
}

#[test]
fn rehashing_everything_replaces_a_damaged_object() {
    let lab = Lab::new();
    lab.write("a", "x".repeat(5000));
    let hash = lab.hash();
    let packs = lab.store().join("objects/pack");
    for entry in std::fs::read_dir(packs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "pack") {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[16] ^= 0xff;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let options = TrackOptions { rehash: true, ..TrackOptions::default() };
    lab.workspace().track(&options, &Progress::default()).unwrap();
    lab.write("a", "broken");
    lab.restore(hash);
    assert_eq!(lab.read("a"), "x".repeat(5000));
}

#[test]
fn a_growing_skipped_file_causes_no_new_snapshots() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 10;
    lab.write("log", "x".repeat(20));
    lab.track();
    lab.write("log", "x".repeat(40));
    assert!(!lab.track().changed);
    lab.write("a", "x");
    lab.chmod("a", 0o600);
    lab.track();
    let options = TrackOptions { paths: vec![tree_path("a")], ..TrackOptions::default() };
    assert!(!lab.workspace().track(&options, &Progress::default()).unwrap().changed);
}

#[test]
fn a_named_file_deep_in_an_ignored_directory_can_be_restored() {
    let lab = Lab::new();
    lab.write(".gitignore", "node_modules/\n");
    lab.write("node_modules/x/y.js", "one");
    lab.write("node_modules/x/z.js", "other");
    lab.track();
    let paths = vec![tree_path("node_modules/x/y.js")];
    let options = TrackOptions { paths, ..TrackOptions::default() };
    let snapshot = lab.workspace().track(&options, &Progress::default()).unwrap();
    lab.write("node_modules/x/y.js", "broken");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("node_modules/x/y.js"), "one");
    assert_eq!(lab.read("node_modules/x/z.js"), "other");
}

/// Returns the identity of a file in the form in which a journal holds it.
fn identity(path: &std::path::Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let meta = path.metadata().unwrap();
    let born = meta.created().ok().map(|born| {
        let since = born.duration_since(std::time::UNIX_EPOCH).unwrap();
        format!(",\"born\":[{},{}]", since.as_secs(), since.subsec_nanos())
    });
    format!("{{\"device\":[0,0],\"inode\":{}{}}}", meta.ino(), born.unwrap_or_default())
}

#[test]
fn status_leaves_a_journal_of_a_newer_version_alone() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
    let journal = wt.path().join("restore.journal");
    std::fs::write(&journal, "").unwrap();
    std::fs::write(&journal, format!("{{\"version\":99,\"file\":{}}}", identity(&journal)))
        .unwrap();
    lab.workspace().status().unwrap();
    assert!(journal.exists());
    let result = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Store(StoreError::NewerFormat { .. }))), "{result:?}");
}

#[test]
fn an_unwritable_cache_does_not_fail_a_snapshot() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
    let cache = wt.path().join("stat");
    std::fs::remove_file(&cache).unwrap();
    std::fs::create_dir(&cache).unwrap();
    lab.write("a", "y");
    assert!(lab.track().changed);
}

#[test]
fn merging_again_after_a_crash_keeps_the_merged_pack() {
    let lab = Lab::new();
    for number in 0..40 {
        lab.write("a", format!("{number}"));
        lab.track();
    }
    // The state after a merge that was killed before it removed the first old pack.
    let packs = lab.store().join("objects/pack");
    let copy = lab.dir().join("copy");
    crate::lab::run(lab.dir(), "cp", &["-a".as_ref(), packs.as_os_str(), copy.as_os_str()]);
    for number in 40..60 {
        lab.write("a", format!("{number}"));
        lab.track();
    }
    let script = format!("cp -n {}/* {}/", copy.display(), packs.display());
    crate::lab::run(lab.dir(), "bash", &["-c".as_ref(), script.as_ref()]);
    for number in 60..130 {
        lab.write("a", format!("{number}"));
        let hash = lab.hash();
        assert_eq!(
            lab.workspace().file_at(&hash, &tree_path("a")).unwrap(),
            format!("{number}").as_bytes()
        );
    }
    assert_eq!(lab.workspace().log(200).unwrap().len(), 130);
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_malformed_git_index_is_reported() {
    let lab = Lab::with_git(&[("a", "x")]);
    lab.write(".git/index", "DIRC and then nonsense");
    let snapshot = lab.track();
    assert!(!snapshot.is_complete());
    assert_eq!(snapshot.files, 1);
}

#[test]
fn restoring_permissions_of_many_files_is_not_quadratic() {
    let lab = Lab::new();
    for number in 0..3000 {
        lab.write(&format!("f{number}"), "x");
    }
    let hash = lab.hash();
    for number in 0..3000 {
        lab.chmod(&format!("f{number}"), 0o664);
    }
    let start = std::time::Instant::now();
    let report = lab.restore(hash);
    assert_eq!(report.done.len(), 3000);
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(report.kept.iter().all(|kept| kept.reason != KeptReason::NoRecord));
}

#[test]
fn a_file_that_moves_during_the_scan_is_captured_or_reported() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let lab = Lab::new();
    for number in 0..200 {
        lab.write(&format!("a{number:03}/f"), "x");
    }
    lab.write("a000/mover", "the one");
    lab.write("z/f", "x");
    let stop = AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (from, to) in [("a000/mover", "z/mover"), ("z/mover", "a000/mover")] {
                    std::fs::rename(lab.path(from), lab.path(to)).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(30));
                }
            }
        });
        let _over = SetOnDrop(&stop);
        (0..40)
            .filter(|_| {
                let snapshot = lab.track();
                let has = |path| {
                    lab.workspace().file_exists_at(&snapshot.hash, &tree_path(path)).unwrap()
                        != Presence::Absent
                };
                // A snapshot misses the file if it proves both places absent.
                !has("a000/mover") && !has("z/mover")
            })
            .count()
    });
    assert_eq!(missed, 0);
}
