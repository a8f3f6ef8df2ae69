//! Effects of environment variables and of the user's git configuration.

use crate::bench::{Bench, finish, is_hash};

#[test]
fn without_home_the_data_directory_option_is_required() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let run = |words: &[&str]| {
        let mut command = bench.command(words);
        command.env_remove("HOME").env_remove("CTRLZ_DATA_DIR");
        finish(&mut command)
    };
    let ran = run(&["track"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--data-dir"), "{ran:?}");
    assert_eq!(std::fs::read_dir(&bench.project).unwrap().count(), 1, "nothing is written");
    let ran = run(&["--data-dir", bench.data.to_str().unwrap(), "track"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // The record that the store is trusted would be inside the project itself.
    let ran = run(&["--store", ".agent/snapshots", "track"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let elsewhere = bench.home.join("store");
    let ran = run(&["--store", elsewhere.to_str().unwrap(), "track"]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn the_data_directory_follows_xdg_data_home() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let run = |value: &str| {
        let mut command = bench.command(&["--json", "status"]);
        command.env_remove("CTRLZ_DATA_DIR").env("XDG_DATA_HOME", value);
        let ran = finish(command.arg("--data-dir").arg(&bench.data));
        assert_eq!(ran.code, 0, "{ran:?}");
        let mut command = bench.command(&["track"]);
        finish(command.env_remove("CTRLZ_DATA_DIR").env("XDG_DATA_HOME", value));
    };
    let xdg = bench.home.join("xdg");
    run(xdg.to_str().unwrap());
    assert!(xdg.join("ctrlz/snapshot").is_dir());
    // The XDG specification says to ignore relative paths.
    run("relative");
    assert!(bench.home.join(".local/share/ctrlz/snapshot").is_dir());
    assert!(!bench.project.join("relative").exists());
}

#[test]
fn a_broken_git_configuration_has_no_effect() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    for text in ["[core\n\"", "[core]\nexcludesFile = \"open\n", "\0\u{1}[[", "= = ="] {
        bench.write_home(".gitconfig", text);
        assert_eq!(bench.track(), hash, "{text:?}");
    }
    std::fs::remove_file(bench.home.join(".gitconfig")).unwrap();
    std::fs::create_dir(bench.home.join(".gitconfig")).unwrap();
    assert_eq!(bench.track(), hash);
}

#[test]
fn the_global_ignore_file_is_honoured() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("a.log", "one\n");
    bench.write("a.tmp", "one\n");
    bench.write_home(".config/git/ignore", "*.log\n");
    let hash = bench.track();
    assert_eq!(bench.ok(&["ls", &hash]), "a.tmp\na.txt");
    bench.write_home(".gitconfig", "[core]\n\texcludesFile = ~/my ignore # note\n");
    bench.write_home("my ignore", "*.tmp\n");
    let hash = bench.track();
    assert_eq!(bench.ok(&["ls", &hash]), "a.log\na.txt");
}

/// Variables that name configuration files are the exception; see `git_ignores.rs`.
#[test]
fn git_environment_variables_have_no_effect() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    let hash = bench.track();
    let mut command = bench.command(&["track"]);
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"] {
        command.env(name, "/nonexistent");
    }
    command.env("GIT_CONFIG_COUNT", "1");
    command.env("GIT_CONFIG_KEY_0", "core.excludesFile").env("GIT_CONFIG_VALUE_0", "/x");
    let ran = finish(&mut command);
    assert_eq!((ran.code, ran.text().trim_end()), (0, hash.as_str()), "{ran:?}");
}

#[test]
fn a_configuration_that_is_not_a_regular_file_is_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.fails(&["--config", "/dev/zero", "track"], 2, "regular file");
    bench.fails(&["--config", "missing.toml", "track"], 2, "no such file");
}

#[test]
fn a_missing_directory_is_an_error() {
    let bench = Bench::new();
    bench.fails(&["-C", "missing", "track"], 1, "missing");
    let ran = bench.shell("mkdir gone && cd gone && /bin/rmdir ../gone && $CTRLZ track");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("ctrlz: cannot tell the current directory"), "{ran:?}");
    assert!(is_hash(&bench.track()), "an empty directory has a snapshot too");
}

/// Files in a repository come from its authors, so they must not configure ctrlz.
#[test]
fn configuration_inside_the_project_is_ignored() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    let store = bench.project.parent().unwrap().join("elsewhere");
    let config = format!(
        "store = {store:?}\ndata_dir = {store:?}\nenabled = false\nexclude = [\"*\"]\nwatch = true\n"
    );
    for name in ["ctrlz.toml", ".ctrlz.toml", ".ctrlz/config.toml", ".config/ctrlz/config.toml"] {
        bench.write(name, &config);
    }
    bench.write(".envrc", "export CTRLZ_DATA_DIR=/nowhere\n");
    bench.git(&["config", "ctrlz.enabled", "false"]);
    let hash = bench.track();
    let listed = bench.ok(&["ls", &hash]);
    assert!(listed.contains("a.txt") && listed.contains("ctrlz.toml"), "{listed}");
    let status = bench.json(&["status"]);
    assert_eq!((&status["enabled"], &status["watcher"]["state"]), (&true.into(), &"none".into()));
    let own = bench.data.to_str().unwrap();
    assert!(status["store"].as_str().unwrap().starts_with(own), "{status}");
    assert!(!store.exists());
}

#[test]
fn undo_works_with_a_broken_git_file_or_directory() {
    let long = format!("gitdir: {}", "a".repeat(300));
    let longer = format!("gitdir: {}", "a/".repeat(3_000));
    for broken in ["gitdir: \\0", &long, &longer, "gitdir: .git", "garbage", ""] {
        let bench = Bench::new();
        bench.write("f", "precious\n");
        bench.track();
        let script = format!("echo broken > f; printf '{broken}' > .git");
        bench.run(&["run", "--", "sh", "-c", &script]);
        assert!(bench.ok(&["status"]).contains(".git cannot be used"), "{broken:?}");
        bench.ok(&["undo"]);
        assert_eq!(bench.read("f").as_deref(), Some("precious\n"), "{broken:?}");
    }
    // Directories that only look like a repository.
    for script in [
        "mkdir .git; printf 'ref: \\0' > .git/HEAD; mkdir .git/objects",
        "mkdir .git; ln -s HEAD .git/HEAD; mkdir .git/objects",
        "mkdir .git; echo x > .git/HEAD; mkdir .git/objects; ln -s commondir .git/commondir",
    ] {
        let bench = Bench::new();
        bench.write("f", "precious\n");
        bench.track();
        bench.run(&["run", "--", "sh", "-c", &format!("echo broken > f; {script}")]);
        bench.ok(&["status"]);
        bench.run(&["undo"]);
        assert_eq!(bench.read("f").as_deref(), Some("precious\n"), "{script:?}");
    }
}

/// A step can replace any part of a `.git`, also before the first snapshot.
#[test]
fn an_unusable_object_directory_does_not_prevent_recording() {
    let damages = [
        ("objects/pack", "echo x > P"),
        ("objects/pack", "mkfifo P"),
        ("objects/pack", "ln -s pack P"),
        ("objects", "echo x > P"),
        ("objects", "mkfifo P"),
        ("objects", "ln -s objects P"),
        ("objects/info/alternates", "mkdir P"),
        ("packed-refs", "mkdir P"),
        ("shallow", "mkdir P"),
    ];
    for (path, damage) in damages {
        for is_first in [true, false] {
            let bench = Bench::new();
            bench.write("f", "one\n");
            bench.git(&["init", "-q"]);
            bench.git(&["add", "f"]);
            bench.git(&["commit", "-q", "-m", "one"]);
            if !is_first {
                bench.ok(&["track"]);
            }
            let script = damage.replace('P', &format!(".git/{path}"));
            let ran = bench.shell(&format!("rm -rf .git/{path} && {script}"));
            assert_eq!(ran.code, 0, "{ran:?}");
            for command in [&["status"][..], &["track"], &["doctor"]] {
                let ran = bench.run(command);
                assert_eq!(ran.code, 0, "{path}: {damage}: {ran:?}");
                let is_noted = ran.text().contains(".git cannot be used as a repository");
                let has_note = path.starts_with("objects/pack") || path == "objects";
                assert!(is_noted || !has_note || command == ["track"], "{path}: {ran:?}");
            }
            bench.ok(&["run", "--", "sh", "-c", "echo two > f"]);
            bench.ok(&["undo"]);
            assert_eq!(bench.read("f").as_deref(), Some("one\n"), "{path}: {damage}");
        }
    }
}
