//! Ignored files: small ones and those that a tool names are kept beside the snapshots.

use ctrlz::{Error, IgnoredFiles, Progress, SessionError, StepStart, UndoOptions, UndoScope};

use crate::lab::{Lab, assert_fsck_clean, assert_same, run, tree_path};
use crate::sessions::start;

/// Returns a lab with an ignored, private `.env`.
fn with_env() -> Lab {
    let lab = Lab::new();
    lab.write(".gitignore", ".env*\n*.log\n/target/\nnode_modules\n");
    lab.write(".env", "KEY=old\n");
    lab.chmod(".env", 0o600);
    lab.write("code", "1\n");
    lab
}

fn naming(path: &str) -> StepStart {
    StepStart { paths: vec![tree_path(path)], ..start("s", "m1", "1") }
}

fn bash(lab: &Lab, script: &str) {
    run(&lab.root(), "bash", &["-c".as_ref(), script.as_ref()]);
}

impl Lab {
    fn naming_step(&self, path: &str, work: impl FnOnce(&Lab)) {
        self.begin(naming(path));
        work(self);
        self.end("1");
    }

    fn undo_ignored(&self) -> ctrlz::UndoReport {
        let options = UndoOptions { ignored: true, ..UndoOptions::default() };
        self.undo_with(&UndoScope::LastTurn, &options).unwrap()
    }

    /// Returns the ignored files that are stored beside the newest snapshot.
    fn kept(&self) -> Vec<String> {
        let refs = self.store_git(&["for-each-ref", "--format=%(refname)", "refs/ctrlz-private"]);
        let Some(name) = refs.lines().find(|name| name.ends_with("/log")) else {
            return Vec::new();
        };
        let files = self.store_git(&["ls-tree", "-r", "--name-only", name]);
        files.lines().map(str::to_owned).collect()
    }
}

#[test]
fn undo_restores_an_overwritten_ignored_file_with_its_permissions() {
    let lab = with_env();
    let before = lab.manifest();
    lab.naming_step(".env", |lab| bash(lab, "rm .env; echo KEY=new > .env; chmod 644 .env"));
    let after = lab.manifest();
    let report = lab.undo();
    assert!(report.is_complete() && report.ignored.is_empty(), "{report:?}");
    assert_same(&lab.manifest(), &before, "content and 0600");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
    lab.undo();
    assert_same(&lab.manifest(), &before, "undone again");
}

#[test]
fn undo_restores_an_ignored_file_deleted_by_a_script() {
    let lab = with_env();
    lab.write("sub/.env.local", "deep\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| bash(lab, "git clean -fdxq . 2>/dev/null; rm -rf .env sub"));
    let after = lab.manifest();
    lab.undo();
    assert_same(&lab.manifest(), &before, "an opaque script is undone too");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redo deletes it again");
}

#[test]
fn a_changed_ignored_file_is_listed_and_undone_only_on_request() {
    let lab = with_env();
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write(".env", "KEY=changed by a script\n");
        lab.write("code", "2\n");
    });
    let after = lab.manifest();
    let report = lab.undo();
    let listed: Vec<_> = report.ignored.iter().map(|left| &left.path).collect();
    assert_eq!(listed, [&tree_path(".env")]);
    assert_eq!(
        (lab.read(".env"), lab.read("code")),
        ("KEY=changed by a script\n".into(), "1\n".into())
    );
    let report = lab.undo_ignored();
    assert_eq!(report.steps, ["1"], "a later request undoes the rest of the same step");
    assert_same(&lab.manifest(), &before, "undone on request");
    lab.redo();
    lab.redo();
    assert_same(&lab.manifest(), &after, "both undos are redone one by one");
    assert!(lab.undo_ignored().is_complete());
    assert_same(&lab.manifest(), &before, "everything is undone at once");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn a_step_that_only_changed_ignored_files_does_not_block_earlier_undos() {
    let lab = with_env();
    lab.step("s", "m1", "1", |lab| lab.write("code", "2\n"));
    lab.step("s", "m2", "2", |lab| lab.write(".env", "KEY=changed\n"));
    assert_eq!(lab.undo().steps, ["2"]);
    assert_eq!(lab.read(".env"), "KEY=changed\n");
    assert_eq!(lab.undo().steps, ["1"], "step 2 does not block it");
    assert_eq!(lab.undo_ignored().steps, ["2"]);
    assert_eq!(lab.read(".env"), "KEY=old\n");
}

#[test]
fn undo_keeps_a_new_ignored_file_unless_the_tool_named_it() {
    let lab = with_env();
    lab.step("s", "m1", "1", |lab| {
        lab.write("build.log", "made\n");
        lab.write("code", "2\n");
    });
    let report = lab.undo();
    assert_eq!(report.ignored[0].path, tree_path("build.log"), "listed");
    assert!(lab.exists("build.log") && lab.read("code") == "1\n");
    let lab = with_env();
    lab.naming_step("build.log", |lab| lab.write("build.log", "made\n"));
    lab.undo();
    assert!(!lab.exists("build.log"), "a file that the tool named is removed");
    lab.redo();
    assert_eq!(lab.read("build.log"), "made\n");
}

#[test]
fn ignored_files_are_stored_within_limits_and_named_ones_first() {
    let mut lab = with_env();
    lab.options.max_ignored_bytes = 100;
    lab.write(".env.a", "x".repeat(60));
    lab.write(".env.b", "x".repeat(60));
    lab.write("huge.log", "x".repeat(300 << 10));
    lab.track();
    assert_eq!(lab.kept(), [".env", ".env.a"], "as many as fit into the byte limit");
    lab.naming_step("huge.log", |lab| lab.write("huge.log", "gone\n"));
    assert!(lab.kept().contains(&"huge.log".into()));
    lab.undo();
    assert_eq!(lab.read("huge.log").len(), 300 << 10, "named files are stored at any size");
    let lab = with_env();
    for number in 0..2_050 {
        lab.write(&format!("sub/{number}.log"), "");
    }
    lab.track();
    assert_eq!(lab.kept().len(), 2_000, "the number of files is limited too");
    assert!(lab.kept().contains(&".env".into()), "files near the root come first");
}

#[test]
fn ignored_directories_are_never_entered() {
    let lab = with_env();
    for number in 0..500 {
        lab.write(&format!("node_modules/p{number}/index.js"), "x\n");
    }
    lab.write("target/canary", "t\n");
    // Listing a directory updates its access time.
    let root = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        let meta = lab.path(path).metadata().unwrap();
        (meta.atime(), meta.atime_nsec())
    };
    let dirs = ["node_modules", "node_modules/p7", "target"];
    let before = dirs.map(root);
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.write("code", "2\n"));
    lab.undo();
    assert_eq!(dirs.map(root), before);
    assert_eq!(lab.kept(), [".env"]);
}

#[test]
fn the_snapshot_hash_does_not_depend_on_stored_ignored_files() {
    let hashes = [IgnoredFiles::Small, IgnoredFiles::Named, IgnoredFiles::None].map(|ignored| {
        let mut lab = with_env();
        lab.options.ignored = ignored;
        lab.begin(naming(".env"));
        lab.write(".env", "KEY=new\n");
        lab.end("1");
        assert_eq!(lab.kept().is_empty(), ignored == IgnoredFiles::None);
        assert_eq!(lab.hash().to_string(), lab.git_tree());
        lab.hash()
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]));
}

#[test]
fn the_ignored_option_limits_storage_to_named_files_or_none() {
    let mut lab = with_env();
    lab.options.ignored = IgnoredFiles::Named;
    lab.write(".env.other", "o\n");
    let before = lab.manifest();
    lab.naming_step(".env", |lab| bash(lab, "echo x > .env; rm .env.other"));
    lab.undo();
    assert_eq!((lab.read(".env"), lab.mode(".env")), ("KEY=old\n".into(), 0o600));
    assert!(!lab.exists(".env.other"), "it was not stored");
    lab.write(".env.other", "o\n");
    assert_same(&lab.manifest(), &before, "everything else is restored");
    let mut lab = with_env();
    lab.options.ignored = IgnoredFiles::None;
    lab.naming_step(".env", |lab| lab.write(".env", "new\n"));
    let result = lab.undo_with(&UndoScope::LastTurn, &UndoOptions::default());
    assert!(matches!(result, Err(Error::Session(SessionError::NothingToUndo))), "{result:?}");
    assert_eq!(lab.read(".env"), "new\n");
}

#[test]
fn stored_ignored_files_stay_out_of_public_refs_and_pass_git_fsck() {
    let lab = with_env();
    let before = lab.manifest();
    for number in 0..3 {
        lab.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
            lab.write(".env", format!("KEY=secret{number}\n"));
            lab.write("code", format!("{number}\n"));
        });
    }
    lab.step("s", "m3", "3", |lab| lab.remove(".env"));
    lab.undo();
    lab.undo_ignored();
    lab.redo();
    lab.redo();
    let public = lab.store_git(&["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
    assert!(!public.is_empty());
    for name in public.lines() {
        let objects = lab.store_git(&["log", "-p", name]);
        assert!(!objects.contains("KEY="), "{name} must not lead to an ignored file");
    }
    assert_eq!(lab.kept(), [".gitignore"; 0]);
    assert_fsck_clean(&lab.store());
    lab.store_git(&["gc", "-q", "--prune=now"]);
    assert_fsck_clean(&lab.store());
    lab.undo();
    assert_eq!(lab.read(".env"), "KEY=secret2\n", "gc lost nothing");
    let options = UndoOptions { ignored: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::Session, &options).unwrap();
    assert_same(&lab.manifest(), &before, "even the oldest version is restored");
}

#[test]
fn undo_restores_a_file_that_the_step_stopped_ignoring() {
    let lab = with_env();
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", "nothing\n");
        lab.write(".env", "KEY=new\n");
    });
    let after = lab.manifest();
    lab.undo();
    assert_eq!(lab.read(".env"), "KEY=old\n");
    assert_same(&lab.manifest(), &before, "with its permissions");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn undo_restores_a_file_that_the_step_ignored_and_deleted() {
    let lab = Lab::new();
    lab.write("config", "the user's\n");
    lab.chmod("config", 0o600);
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", "config\n");
        lab.remove("config");
    });
    let after = lab.manifest();
    lab.undo();
    assert_same(&lab.manifest(), &before, "undone");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn undo_restores_a_file_ignored_in_one_step_and_rewritten_in_the_next() {
    let lab = Lab::new();
    lab.write("config", "one\n");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| lab.write(".gitignore", "config\n"));
    let between = lab.manifest();
    lab.begin(StepStart { paths: vec![tree_path("config")], ..start("s", "m2", "2") });
    lab.write("config", "two\n");
    lab.end("2");
    let after = lab.manifest();
    lab.undo();
    assert_same(&lab.manifest(), &between, "the second step is undone");
    lab.undo();
    assert_same(&lab.manifest(), &before, "the first step is undone");
    lab.redo();
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
    lab.undo_with(&UndoScope::Session, &UndoOptions::default()).unwrap();
    assert_same(&lab.manifest(), &before, "both steps are undone at once");
}

#[test]
fn the_users_later_edit_of_an_ignored_file_survives() {
    let lab = with_env();
    let text = "A=1\nB=2\nC=3\nD=4\nE=5\nF=6\nG=7\n";
    lab.write(".env.merges", text);
    lab.begin(StepStart {
        paths: vec![tree_path(".env"), tree_path(".env.merges")],
        ..start("s", "m1", "1")
    });
    lab.write(".env", "KEY=agent\n");
    lab.write(".env.merges", text.replace("A=1", "A=agent"));
    lab.end("1");
    lab.write(".env", "KEY=user\n");
    lab.write(".env.merges", text.replace("A=1", "A=agent").replace("G=7", "G=user"));
    let report = lab.undo();
    assert_eq!(lab.read(".env"), "KEY=user\n");
    assert_eq!(report.conflicts[0].path, tree_path(".env"), "reported");
    assert_eq!(lab.read(".env.merges"), text.replace("G=7", "G=user"), "merged");
    let force = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &force).unwrap();
    assert_eq!(lab.read(".env"), "KEY=old\n", "when forced");
    lab.redo();
    assert_eq!(lab.read(".env"), "KEY=user\n", "redo reverses a forced undo exactly");
}

#[test]
fn undo_keeps_an_ignored_file_changed_by_another_session() {
    let lab = with_env();
    lab.step("s", "m1", "1", |lab| lab.write("code", "2\n"));
    lab.begin(StepStart { paths: vec![tree_path(".env")], ..start("other", "x", "o") });
    lab.write(".env", "KEY=other's\n");
    lab.end("o");
    let options = UndoOptions { ignored: true, ..crate::sessions::of("s") };
    lab.undo_with(&UndoScope::Session, &options).unwrap();
    assert_eq!((lab.read(".env"), lab.read("code")), ("KEY=other's\n".into(), "1\n".into()));
}

#[test]
fn undo_restores_permissions_of_a_named_ignored_file() {
    let lab = with_env();
    let before = lab.manifest();
    lab.naming_step(".env", |lab| lab.chmod(".env", 0o644));
    let after = lab.manifest();
    lab.undo();
    assert_same(&lab.manifest(), &before, "0600 again");
    lab.redo();
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn revert_restores_ignored_files_and_unrevert_reverses_it() {
    let lab = with_env();
    let before = lab.manifest();
    lab.naming_step(".env", |lab| lab.write(".env", "KEY=new\n"));
    lab.step("s", "m2", "2", |lab| lab.remove(".env"));
    let after = lab.manifest();
    let boundary = ctrlz::Boundary { message: "m1".into(), part: None };
    let (options, progress) = (UndoOptions::default(), Progress::default());
    lab.workspace().revert_to("s", &boundary, &options, &progress).unwrap();
    assert_same(&lab.manifest(), &before, "reverted");
    lab.workspace().unrevert("s", &options, &progress).unwrap();
    assert_same(&lab.manifest(), &after, "unreverted");
}

#[test]
fn a_file_created_during_a_scan_is_not_mistaken_for_an_ignored_one() {
    let lab = Lab::new();
    for round in 0..xtask::many(25, 400) {
        for at in 0..60 {
            lab.write(&format!("f{at}"), format!("{round}\n"));
        }
        let (new, number) = (format!("new{round}/x"), round.to_string());
        let paths = vec![tree_path(&new), tree_path("plain")];
        lab.begin(StepStart { paths, ..start("s", &number, &number) });
        for at in 0..60 {
            lab.write(&format!("f{at}"), format!("{round}!\n"));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Somewhere between the listing and the end of a snapshot.
                std::thread::sleep(std::time::Duration::from_micros(round as u64 % 25 * 300));
                lab.write(&new, "by the tool\n");
                lab.write("plain", "by the tool\n");
            });
            lab.track();
        });
        assert_eq!(lab.kept(), [""; 0], "round {round}");
        lab.end(&number);
        lab.undo();
        assert!(!lab.exists("plain") && !lab.exists(&new), "round {round}");
        assert!(lab.read("f0") == format!("{round}\n"), "round {round}");
    }
}

#[test]
fn changes_in_a_directory_that_the_same_step_starts_to_ignore_are_undone_and_redone() {
    let lab = Lab::new();
    for name in ["changed", "removed", "same"] {
        lab.write(&format!("dist/{name}"), "before\n");
    }
    lab.link("same", "dist/link");
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", "dist/\n");
        lab.write("dist/changed", "AGENT\n");
        lab.remove("dist/removed");
    });
    let after = lab.manifest();
    assert!(lab.undo().is_complete());
    assert_same(&lab.manifest(), &before, "undone");
    assert!(lab.redo().is_complete());
    assert_same(&lab.manifest(), &after, "redone");
}

#[test]
fn a_conflict_in_a_file_that_the_step_started_to_ignore_can_be_forced() {
    let lab = Lab::new();
    lab.write("dist/conf", "a\nb\nc\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write(".gitignore", "dist/\n");
        lab.write("dist/conf", "a\nAGENT\nc\n");
    });
    lab.write("dist/conf", "a\nUSER\nc\n");
    let report = lab.undo();
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    assert_eq!(lab.read("dist/conf"), "a\nUSER\nc\n");
    let options = UndoOptions { force: true, ..UndoOptions::default() };
    let report = lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("dist/conf"), "a\nb\nc\n");
}

#[test]
fn undo_with_ignored_files_also_removes_those_that_the_step_created() {
    let lab = with_env();
    lab.track();
    let before = lab.manifest();
    lab.step("s", "m1", "1", |lab| {
        lab.write("made.log", "AGENT\n");
        lab.write("code", "2\n");
    });
    let after = lab.manifest();
    let options = UndoOptions { ignored: true, ..UndoOptions::default() };
    assert!(lab.undo_with(&UndoScope::LastTurn, &options).unwrap().is_complete());
    assert_same(&lab.manifest(), &before, "removed");
    lab.redo();
    assert_same(&lab.manifest(), &after, "created again");
}

#[test]
fn an_ignored_file_that_may_predate_the_step_is_not_removed() {
    let lab = with_env();
    // Too large to be stored, so only its name is known.
    lab.write("old.log", "x".repeat(300 << 10));
    lab.track();
    lab.step("s", "m1", "1", |lab| {
        lab.write("old.log", "AGENT\n");
        lab.write("code", "2\n");
    });
    let options = UndoOptions { ignored: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
    assert_eq!((lab.read("old.log"), lab.read("code")), ("AGENT\n".into(), "1\n".into()));
}

#[test]
fn redo_keeps_an_ignored_directory_that_was_empty_before_the_undo() {
    let lab = with_env();
    lab.write("target/x", "kept\n");
    lab.track();
    lab.begin(naming("target/x"));
    lab.remove("target/x");
    lab.end("1");
    let after = lab.manifest();
    lab.undo();
    assert_eq!(lab.read("target/x"), "kept\n");
    lab.redo();
    assert_same(&lab.manifest(), &after, "the empty directory stays");
}

#[test]
fn permissions_of_an_ignored_file_that_several_steps_changed_go_back_to_the_first() {
    let lab = Lab::with_git(&[(".gitignore", ".env\n"), ("a", "1\n")]);
    lab.write(".env", "SECRET=1\n");
    lab.chmod(".env", 0o644);
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.chmod(".env", 0o600));
    lab.step("s", "m1", "2", |lab| lab.chmod(".env", 0o640));
    let options = UndoOptions { ignored: true, ..UndoOptions::default() };
    let report =
        lab.workspace().undo(&UndoScope::LastTurn, &options, &Progress::default()).unwrap();
    assert_eq!(lab.mode(".env") & 0o777, 0o644, "{report:?}");
}
