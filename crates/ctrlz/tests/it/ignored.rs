//! Ignore rules: which files they exclude, and that excluded files are never lost.

use ctrlz::{KeptReason, Presence, StepStart};

use crate::lab::{Lab, exact, tree_path};
use crate::sessions::start;

fn files(lab: &Lab) -> Vec<String> {
    let hash = lab.hash();
    lab.workspace().files(&hash).unwrap().iter().map(|file| file.path.to_string()).collect()
}

#[test]
fn rules_of_every_level_are_honoured() {
    let mut lab = Lab::with_git(&[]);
    std::fs::write(lab.dir().join("global"), "*.global\n").unwrap();
    lab.options.excludes_file = Some(lab.dir().join("global"));
    lab.options.exclude = vec!["*.conf".into()];
    lab.options.include_ignored = vec!["build/keep".into(), "*.kept".into()];
    lab.write(".git/info/exclude", "*.info\n");
    lab.write(".gitignore", "*.log\n!keep.log\nbuild/\n/top\n*.kept\n");
    lab.write("sub/.gitignore", "!*.log\nlocal\n");
    for path in [
        "a",
        "a.global",
        "a.conf",
        "a.info",
        "a.log",
        "keep.log",
        "build/x",
        "build/keep",
        "top",
        "sub/top",
        "sub/b.log",
        "sub/local",
        "local",
        "x.kept",
    ] {
        lab.write(path, "x");
    }
    let wanted = [
        ".gitignore",
        "a",
        "build/keep",
        "keep.log",
        "local",
        "sub/.gitignore",
        "sub/b.log",
        "sub/top",
        "x.kept",
    ];
    assert_eq!(files(&lab), wanted);
    assert_eq!(files(&lab), wanted, "the second time from the cache");
}

#[test]
fn ignore_rules_agree_with_git() {
    let lab = Lab::with_git(&[]);
    lab.write(
        ".gitignore",
        "*.o\n**/deep/*.c\nfoo/**/bar\n!important.o\n\\#hash\ndoc/*.txt\n#c\n\n  \ntrailing\\ \n",
    );
    lab.write("a/.gitignore", "/x\n*.y\n!z.y\n");
    for path in [
        "m.o",
        "important.o",
        "a/m.o",
        "x/deep/f.c",
        "deep/f.c",
        "foo/bar",
        "foo/a/b/bar",
        "#hash",
        "doc/a.txt",
        "doc/sub/a.txt",
        "a/x",
        "a/b/x",
        "a/q.y",
        "a/z.y",
        "trailing ",
        "c",
    ] {
        lab.write(path, "x");
    }
    let hash = lab.hash().to_string();
    lab.git(&["add", "-A"]);
    assert_eq!(lab.git(&["write-tree"]).trim(), hash);
}

#[test]
fn files_tracked_by_git_are_captured_although_ignored_or_large() {
    let mut lab = Lab::with_git(&[
        (".gitignore", "secret\nvendor/\n"),
        ("secret", "one"),
        ("vendor/deep/lib.js", "one"),
        ("big", "x"),
    ]);
    lab.options.max_new_file_bytes = 100;
    lab.write("big", "y".repeat(5000));
    lab.write("vendor/deep/untracked", "x");
    lab.write("vendor/other", "x");
    let wanted = [".gitignore", "big", "secret", "vendor/deep/lib.js"];
    assert_eq!(files(&lab), wanted);
    let hash = lab.hash();
    lab.write("vendor/deep/lib.js", "two");
    lab.write("secret", "two");
    lab.restore(hash);
    assert_eq!((lab.read("secret"), lab.read("vendor/deep/lib.js")), ("one".into(), "one".into()));
    lab.git(&["rm", "-q", "--cached", "secret"]);
    assert!(!files(&lab).contains(&"secret".to_owned()), "as a cold scan would see it");
    lab.git(&["add", "-f", "secret", "vendor/other"]);
    assert!(files(&lab).contains(&"secret".to_owned()));
    assert!(files(&lab).contains(&"vendor/other".to_owned()));
}

#[test]
fn ignored_files_survive_a_restore_across_changed_rules() {
    for exact_restore in [false, true] {
        let lab = Lab::new();
        lab.write(".gitignore", "data/\n*.db\n");
        lab.write("data/precious", "one");
        lab.write("local.db", "one");
        let hash = lab.hash();
        lab.write(".gitignore", "nothing\n");
        lab.write("created", "x");
        lab.track();
        let options = if exact_restore { exact() } else { Default::default() };
        let report = lab.try_restore(hash, &options).unwrap();
        assert_eq!(lab.read(".gitignore"), "data/\n*.db\n");
        assert_eq!(lab.read("data/precious"), "one");
        assert_eq!(lab.read("local.db"), "one");
        assert_eq!(lab.exists("created"), !exact_restore);
        if exact_restore {
            assert!(report.kept.iter().all(|kept| kept.reason == KeptReason::IgnoredThen));
            assert_eq!(report.kept.len(), 2);
        }
    }
}

#[test]
fn files_ignored_by_former_rules_survive_an_exact_restore() {
    let mut lab = Lab::new();
    lab.options.exclude = vec!["scratch/".into()];
    lab.write("scratch/data", "one");
    lab.write("hidden/.gitignore", "*\n");
    lab.write("hidden/data", "one");
    lab.write("a", "x");
    let hash = lab.hash();
    lab.options.exclude = vec![];
    lab.remove("hidden/.gitignore");
    lab.track();
    lab.restore_exact(hash);
    assert!(lab.exists("scratch/data") && lab.exists("hidden/data"));
}

#[test]
fn a_file_that_is_now_ignored_is_saved_before_a_restore_overwrites_it() {
    let lab = Lab::new();
    lab.write("conf", "one");
    let hash = lab.hash();
    lab.write(".gitignore", "conf\n");
    lab.write("conf", "the user's");
    let report = lab.restore(hash);
    assert_eq!(lab.read("conf"), "one");
    lab.remove(".gitignore");
    lab.restore(report.safety);
    assert_eq!(lab.read("conf"), "the user's");
}

#[test]
fn a_restore_keeps_an_ignored_directory_in_the_way() {
    let lab = Lab::new();
    lab.write("build", "a file once");
    let hash = lab.hash();
    lab.remove("build");
    lab.write(".gitignore", "build/\n");
    lab.write("build/output", "precious");
    let report = lab.restore(hash);
    assert!(!report.is_complete());
    let build = report.kept.iter().find(|kept| kept.path == tree_path("build")).unwrap();
    assert_eq!(build.reason, KeptReason::DirectoryInTheWay);
    assert_eq!(lab.read("build/output"), "precious");
}

#[test]
fn a_restore_keeps_a_directory_in_the_way_with_an_ignored_file() {
    let lab = Lab::new();
    lab.write("x", "a file once");
    let hash = lab.hash();
    lab.remove("x");
    lab.write(".gitignore", "*.secret\n");
    lab.write("x/captured", "one");
    lab.write("x/deep/my.secret", "precious");
    let before = lab.manifest();
    let report = lab.restore(hash);
    assert!(!report.is_complete());
    let mut after = lab.manifest();
    after.0.retain(|path, _| before.0.contains_key(path));
    assert_eq!(after, before);
}

#[test]
fn changed_ignore_rules_apply_to_the_next_snapshot() {
    let lab = Lab::new();
    lab.write("a.log", "x");
    lab.write("sub/b.log", "x");
    lab.write("sub/c", "x");
    assert_eq!(files(&lab), ["a.log", "sub/b.log", "sub/c"]);
    lab.write("sub/.gitignore", "*.log\n");
    assert_eq!(files(&lab), ["a.log", "sub/.gitignore", "sub/c"]);
    lab.write(".gitignore", "c\n");
    assert_eq!(files(&lab), [".gitignore", "a.log", "sub/.gitignore"]);
    lab.remove("sub/.gitignore");
    lab.remove(".gitignore");
    assert_eq!(files(&lab), ["a.log", "sub/b.log", "sub/c"]);
}

#[test]
fn malformed_ignore_files_do_not_break_snapshots() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.link("/etc/passwd", ".gitignore");
    assert_eq!(files(&lab), [".gitignore", "a"], "a link is not followed");
    lab.remove(".gitignore");
    crate::lab::run(&lab.root(), "mkfifo", &[".gitignore".as_ref()]);
    assert_eq!(files(&lab), ["a"], "a fifo is not waited for");
    lab.remove(".gitignore");
    std::fs::create_dir(lab.path(".gitignore")).unwrap();
    assert_eq!(files(&lab), ["a"]);
    lab.remove(".gitignore");
    lab.write(".gitignore", "b\n".repeat(1_000_000));
    let snapshot = lab.track();
    assert!(!snapshot.is_complete(), "reports that its rules were not applied");
    lab.write(".gitignore", b"\xff\xfe\n\\\n!\n[\n**/**/**/**/x\na\\");
    assert_eq!(files(&lab), [".gitignore", "a"]);
}

#[test]
fn presence_distinguishes_absent_from_unknown() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.tmp\n");
    lab.write("a", "x");
    let hash = lab.hash();
    let presence = |path| lab.workspace().file_exists_at(&hash, &tree_path(path)).unwrap();
    assert_eq!(presence("a"), Presence::Present);
    assert_eq!(presence("b"), Presence::Absent);
    assert_eq!(presence("b.tmp"), Presence::Unknown);
    assert_eq!(presence("a/b"), Presence::Absent);
}

#[test]
fn undo_and_redo_never_leave_half_of_an_ignored_directory_and_a_file_that_traded_places() {
    let lab = Lab::with_git(&[(".gitignore", "out\nbuild/\n")]);
    lab.write("out", "file\n");
    lab.write("build/a", "one\n");
    let named = |step: &str| StepStart {
        paths: ["out", "out/b", "build", "build/a"].map(tree_path).to_vec(),
        ..start("s", step, step)
    };
    lab.begin(named("1"));
    for (path, inner) in [("out", Some("out/b")), ("build", None)] {
        lab.remove(path);
        lab.write(inner.unwrap_or(path), "AGENT\n");
    }
    lab.end("1");
    let state = |lab: &Lab| ["out", "out/b", "build", "build/a"].map(|path| lab.exists(path));
    let (before, after) = ([true, false, true, true], [true, true, true, false]);
    assert_eq!(state(&lab), after);
    for round in ["undo", "redo"] {
        let report = if round == "undo" { lab.undo() } else { lab.redo() };
        let paths = state(&lab);
        for at in [0, 2] {
            let pair = &paths[at..at + 2];
            assert!(
                pair == &before[at..at + 2] || pair == &after[at..at + 2],
                "{round} {report:?}"
            );
        }
        let expected = if round == "undo" { before } else { after };
        assert_eq!(paths == expected, report.is_complete(), "{round} {paths:?} {report:?}");
    }
}
