//! Paths that snapshots leave out, and how they are reported.

use std::os::unix::fs::PermissionsExt;

use ctrlz::{
    Error, Options, Point, Presence, Progress, RecordError, SkipReason, TrackOptions, Workspace,
};

use crate::lab::{Lab, exact, tree_path};

fn skipped(lab: &Lab) -> Vec<String> {
    lab.track().skipped.iter().map(|skipped| skipped.to_string()).collect()
}

#[test]
fn fifos_and_sockets_are_never_opened_and_never_removed() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    crate::lab::run(&lab.root(), "mkfifo", &["pipe".as_ref()]);
    let _socket = std::os::unix::net::UnixListener::bind(lab.path("socket")).unwrap();
    assert_eq!(
        skipped(&lab),
        ["pipe: a fifo, socket or device", "socket: a fifo, socket or device"]
    );
    assert_eq!(lab.track().hash, hash);
    assert!(lab.track().is_complete(), "policy, not failure");
    lab.restore_exact(hash);
    assert!(lab.exists("pipe") && lab.exists("socket"));
}

#[test]
fn a_restore_keeps_a_fifo_at_the_path_of_a_file() {
    let lab = Lab::new();
    lab.write("a", "one");
    let hash = lab.hash();
    lab.remove("a");
    crate::lab::run(&lab.root(), "mkfifo", &["a".as_ref()]);
    let report = lab.restore_exact(hash);
    assert!(!report.is_complete());
    assert_eq!(report.kept[0].path, tree_path("a"));
    assert!(!lab.path("a").metadata().unwrap().is_file());
}

#[test]
fn a_new_large_file_is_skipped_and_survives_exact_restores() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("a", "one");
    let before = lab.hash();
    lab.write("big", "x".repeat(1001));
    lab.write("limit", "x".repeat(1000));
    let snapshot = lab.track();
    assert_eq!(snapshot.skipped.len(), 1);
    assert_eq!(snapshot.skipped[0].reason, SkipReason::TooLarge { bytes: 1001 });
    assert!(snapshot.is_complete());
    assert_eq!(
        lab.workspace().file_exists_at(&snapshot.hash, &tree_path("big")).unwrap(),
        Presence::Unknown
    );
    lab.restore_exact(before);
    assert!(lab.exists("big") && !lab.exists("limit"));
    lab.restore_exact(snapshot.hash);
    assert!(lab.exists("big") && lab.exists("limit"));
}

#[test]
fn a_file_that_grew_past_the_limit_is_still_captured() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("log", "small");
    let hash = lab.hash();
    lab.write("log", "x".repeat(5000));
    assert_eq!(lab.track().skipped, []);
    lab.restore(hash);
    assert_eq!(lab.read("log"), "small");
}

#[test]
fn a_large_file_is_saved_before_it_is_overwritten() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("data", "small");
    let hash = lab.hash();
    lab.remove("data");
    lab.track();
    lab.write("data", "x".repeat(5000));
    assert_eq!(lab.track().skipped, [], "the log has held a file at this path");
    let report = lab.restore(hash);
    assert_eq!(lab.read("data"), "small");
    lab.restore_exact(report.safety);
    assert_eq!(lab.read("data"), "x".repeat(5000), "in the safety snapshot regardless of its size");
}

#[test]
fn a_symlink_to_a_large_file_is_captured_as_a_symlink() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 10;
    std::fs::write(lab.dir().join("big"), "x".repeat(100)).unwrap();
    lab.link("../big", "link");
    let snapshot = lab.track();
    assert_eq!((snapshot.files, snapshot.skipped.len()), (1, 0));
}

#[test]
fn names_that_alias_dot_git_are_reported_and_left_alone() {
    let lab = Lab::new();
    lab.write("a", "one");
    for name in ["git~1", ".GIT", ".g\u{200c}it", ".git ", "sub/.Git"] {
        lab.write(&format!("{name}/hooks"), "x");
    }
    let snapshot = lab.track();
    assert_eq!(snapshot.skipped.len(), 5);
    assert_eq!(snapshot.files, 1);
    let again = lab.track();
    assert_eq!(again.skipped, snapshot.skipped, "cached listings report the same");
    lab.restore_exact(snapshot.hash);
    assert!(lab.exists("git~1/hooks") && lab.exists("sub/.Git/hooks"));
    crate::lab::assert_fsck_clean(&lab.store());
}

#[test]
fn files_of_nested_repositories_are_captured() {
    let lab = Lab::with_git(&[("a", "one")]);
    lab.write("empty-repo/f", "inner");
    lab.write("repo/f", "inner");
    for (dir, commit) in [("empty-repo", false), ("repo", true)] {
        crate::lab::git(&lab.path(dir), &["init", "-q"]);
        if commit {
            crate::lab::git(&lab.path(dir), &["add", "f"]);
            crate::lab::git(&lab.path(dir), &["commit", "-q", "-m", "x"]);
        }
    }
    lab.write("bare/HEAD", "ref: refs/heads/main\n");
    lab.write("bare/objects/info/x", "x");
    lab.write("linked/.git", "gitdir: ../repo/.git\n");
    lab.write("linked/f", "x");
    let snapshot = lab.track();
    let files: Vec<String> =
        lab.workspace().files(&snapshot.hash).unwrap().iter().map(|f| f.path.to_string()).collect();
    let wanted = ["a", "bare/HEAD", "bare/objects/info/x", "empty-repo/f", "linked/f", "repo/f"];
    assert_eq!(files, wanted);
    lab.write("repo/f", "changed");
    lab.write("repo/.git/config", "x");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("repo/f"), "inner");
    assert_eq!(lab.read("repo/.git/config"), "x");
}

#[test]
fn nested_repositories_can_be_left_out() {
    let mut lab = Lab::new();
    lab.options.nested_repos = false;
    lab.write("repo/f", "inner");
    std::fs::create_dir(lab.path("repo/.git")).unwrap();
    lab.write("a", "one");
    let snapshot = lab.track();
    assert_eq!(snapshot.files, 1);
    assert_eq!(lab.track().skipped, snapshot.skipped);
    assert_eq!(snapshot.skipped[0].reason, SkipReason::NestedRepository);
}

#[test]
fn metadata_of_other_version_control_systems_is_never_entered() {
    let lab = Lab::new();
    for dir in [".jj", ".hg", ".svn", ".sl"] {
        lab.write(&format!("{dir}/f"), "x");
    }
    lab.write("a", "one");
    assert_eq!(lab.track().files, 1);
}

#[test]
fn dangerous_roots_are_refused() {
    let lab = Lab::new();
    let open = |path: &std::path::Path, options: &Options| Workspace::open(path, options.clone());
    let refused = |result: Result<Workspace, Error>| {
        matches!(result, Err(Error::Record(RecordError::DangerousRoot { .. })))
    };
    for path in ["/", "/etc", "/usr", "/tmp", "/home"] {
        assert!(refused(open(path.as_ref(), &lab.options)), "{path}");
    }
    let mut options = lab.options.clone();
    options.home = Some(lab.root());
    assert!(refused(open(&lab.root(), &options)), "the home itself");
    std::fs::create_dir(lab.path("Desktop")).unwrap();
    assert!(refused(open(&lab.path("Desktop"), &options)), "a part of it");
    assert!(refused(open(lab.dir(), &options)), "a directory above it");
    let mut options = lab.options.clone();
    options.data_dir = lab.path("data");
    assert!(refused(open(&lab.root(), &options)), "the store would track itself");
    options.allow_dangerous_root = true;
    assert!(open(&lab.root(), &options).is_ok());
}

#[test]
fn a_store_inside_the_work_tree_does_not_track_itself() {
    let mut lab = Lab::new();
    lab.options.store = Some(".agent/snapshots".into());
    lab.write("a", "one");
    lab.write(".agent/notes", "the agent's own");
    let first = lab.track();
    assert_eq!(first.files, 1);
    assert_eq!(lab.track().hash, first.hash);
    let mut other = lab.options.clone();
    other.store = Some("snapshots".into());
    let workspace = Workspace::open(&lab.root(), other).unwrap();
    let snapshot = workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
    let files = workspace.files(&snapshot.hash).unwrap();
    assert!(files.iter().all(|file| !file.path.to_string().starts_with("snapshots")));
}

#[test]
fn an_exceeded_budget_fails_before_anything_is_stored() {
    let mut lab = Lab::new();
    for number in 0..20 {
        lab.write(&format!("lots/f{number}"), "x".repeat(1000));
    }
    lab.options.max_snapshot_bytes = 10_000;
    let track = |lab: &Lab| lab.workspace().track(&TrackOptions::default(), &Progress::default());
    match track(&lab) {
        Err(Error::Record(RecordError::OverBudget { found: 20_000, largest, .. })) => {
            assert_eq!(largest[0].0, b"lots");
        }
        other => panic!("{other:?}"),
    }
    lab.options.max_snapshot_bytes = 1 << 30;
    lab.options.max_files = 19;
    assert!(matches!(
        track(&lab),
        Err(Error::Record(RecordError::OverBudget { what: "files", .. }))
    ));
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap().count();
    assert_eq!(packs, 0);
}

#[test]
fn tracking_while_disabled_fails_with_a_distinct_error() {
    let mut lab = Lab::new();
    lab.options.enabled = false;
    let result = lab.workspace().track(&TrackOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::Record(RecordError::Disabled { .. }))));
    assert!(!lab.options.data_dir.exists());
}

#[test]
fn a_git_repository_can_be_required() {
    let mut lab = Lab::new();
    lab.options.require_git = true;
    let result = Workspace::open(&lab.root(), lab.options.clone());
    assert!(matches!(result, Err(Error::Record(RecordError::NotGit { .. }))));
}

#[test]
fn a_vanished_work_tree_is_an_error() {
    let lab = Lab::new();
    lab.write("a", "one");
    let workspace = lab.workspace();
    workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
    std::fs::remove_dir_all(lab.root()).unwrap();
    let result = workspace.track(&TrackOptions::default(), &Progress::default());
    assert!(matches!(result, Err(Error::File(_))), "{result:?}");
}

/// Runs `test` without root privileges, because root can read everything. If the tests run as root,
/// a child process runs the test as the user `nobody`.
fn as_nobody(name: &str, test: impl FnOnce(&Lab)) {
    if std::env::var_os("CTRLZ_TEST_AS_NOBODY").is_some() || !rustix_is_root() {
        let lab = Lab::new();
        return test(&lab);
    }
    let executable = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // The build directory may be unreadable for other users, so the child runs a copy.
    let copy = dir.path().join("it");
    std::fs::copy(&executable, &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    #[expect(clippy::disallowed_methods, reason = "root cannot test permissions")]
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&copy)
        .args(["--exact", name, "--nocapture"])
        .env("CTRLZ_TEST_AS_NOBODY", "1")
        .env("TMPDIR", dir.path())
        .current_dir(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

fn rustix_is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    dir.path().metadata().unwrap().uid() == 0
}

#[test]
fn an_unreadable_file_is_reported_and_never_touched() {
    as_nobody("coverage::an_unreadable_file_is_reported_and_never_touched", |lab| {
        lab.write("a", "one");
        lab.write("secret", "one");
        let before = lab.hash();
        lab.write("secret", "two");
        lab.chmod("secret", 0o000);
        let snapshot = lab.track();
        assert!(!snapshot.is_complete());
        assert_eq!(snapshot.files, 1);
        assert!(matches!(snapshot.skipped[0].reason, SkipReason::Unreadable { .. }));
        let changes = lab.workspace().changes(&before, &snapshot.hash).unwrap();
        assert_eq!(changes, [], "not captured is not deleted");
        let report = lab.restore_exact(before);
        assert!(!report.is_complete());
        lab.chmod("secret", 0o644);
        assert_eq!(lab.read("secret"), "two", "it could not be saved, so it stays");
    });
}

#[test]
fn the_children_of_an_unreadable_directory_are_unknown() {
    as_nobody("coverage::the_children_of_an_unreadable_directory_are_unknown", |lab| {
        for mode in [0o000, 0o111] {
            lab.write("dir/a", "one");
            lab.write("dir/sub/b", "one");
            let before = lab.hash();
            lab.chmod("dir", mode);
            let snapshot = lab.track();
            assert!(!snapshot.is_complete());
            assert_eq!(lab.workspace().changes(&before, &snapshot.hash).unwrap(), []);
            lab.chmod("dir", 0o755);
            lab.write("dir/new", "x");
            lab.restore_exact(snapshot.hash);
            assert!(lab.exists("dir/new") && lab.exists("dir/sub/b"), "mode {mode:o}");
            lab.remove("dir/new");
        }
    });
}

#[test]
fn a_restore_writes_into_a_read_only_directory_of_the_user() {
    as_nobody("coverage::a_restore_writes_into_a_read_only_directory_of_the_user", |lab| {
        for mode in [0o755, 0o555] {
            lab.write("a", "one");
            lab.write("locked/b", format!("one {mode}"));
            lab.chmod("locked", mode);
            let hash = lab.hash();
            lab.chmod("locked", 0o755);
            for path in ["a", "locked/b"] {
                lab.write(path, "two");
            }
            lab.chmod("locked", 0o555);
            let report = lab.restore(hash);
            assert!(report.is_complete(), "{report:?}");
            assert_eq!((lab.read("locked/b"), lab.mode("locked")), (format!("one {mode}"), mode));
            lab.chmod("locked", 0o755);
        }
    });
}

#[test]
fn a_read_only_file_is_restored_and_stays_read_only() {
    as_nobody("coverage::a_read_only_file_is_restored_and_stays_read_only", |lab| {
        lab.write("a", "one");
        lab.chmod("a", 0o444);
        let hash = lab.hash();
        lab.chmod("a", 0o644);
        lab.write("a", "two");
        lab.chmod("a", 0o444);
        lab.restore(hash);
        assert_eq!((lab.read("a").as_str(), lab.mode("a")), ("one", 0o444));
    });
}

#[test]
fn an_unreadable_root_is_an_error_not_an_empty_snapshot() {
    as_nobody("coverage::an_unreadable_root_is_an_error_not_an_empty_snapshot", |lab| {
        lab.write("a", "one");
        lab.track();
        lab.chmod("", 0o000);
        let opened = Workspace::open(&lab.root(), lab.options.clone());
        let result = opened.and_then(|w| w.track(&TrackOptions::default(), &Progress::default()));
        lab.chmod("", 0o755);
        assert!(result.is_err(), "{result:?}");
    });
}

#[test]
fn an_exact_restore_uses_the_skipped_files_of_its_operation() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("kept", "one\n");
    lab.write("a", crate::lab::noise(1, 2000));
    let large = lab.track();
    assert_eq!(large.skipped.len(), 1);
    lab.remove("a");
    lab.write("other", "x");
    lab.track();
    lab.remove("other");
    let without = lab.track();
    assert_eq!(without.hash, large.hash, "the same tree, with and without a file left out");
    lab.write("a/e", "made since\n");
    let operation = Point::Operation(without.operation);
    let report = lab.workspace().restore(operation, &exact(), &Progress::default()).unwrap();
    assert!(report.is_complete() && !lab.exists("a"), "{report:?}");
    lab.write("a/e", "made since\n");
    lab.restore_exact(large.hash);
    assert!(lab.exists("a/e"), "for a bare hash, all operations with that tree count");
}
