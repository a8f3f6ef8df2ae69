//! Stores inside a project that this user did not create: set aside, imported, never trusted.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::bench::{Bench, contents, finish, program};

const STORE: [&str; 2] = ["--store", ".agent/snapshots"];

fn with_store<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&STORE[..], args].concat()
}

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = program("git");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let ran = finish(command.arg("-C").arg(dir).args(args));
    assert_eq!(ran.code, 0, "git {args:?}: {ran:?}");
    ran.text().trim().to_owned()
}

/// Copies a directory with `cp -a`.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut command = program("cp");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    assert_eq!(finish(command.arg("-a").arg(from).arg(to)).code, 0);
}

fn store(bench: &Bench) -> PathBuf {
    bench.project.join(".agent/snapshots")
}

fn set_aside(bench: &Bench) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(bench.project.join(".agent")).unwrap().flatten();
    let is_old = |path: &PathBuf| path.to_string_lossy().contains("snapshots.untrusted-");
    entries.map(|entry| entry.path()).filter(is_old).collect()
}

/// Replaces the project by one of another user that contains a store with two snapshots. Returns
/// their hashes.
fn received(bench: &Bench) -> (String, String) {
    let other = Bench::new();
    other.write("a.txt", "one\n");
    let first = other.ok(&with_store(&["track"]));
    other.ok(&with_store(&["run", "--message", "second", "--", "sh", "-c", "echo two > a.txt"]));
    let second = other.ok(&with_store(&["track"]));
    std::fs::remove_dir_all(&bench.project).unwrap();
    copy(&other.project, &bench.project);
    (first.trim().to_owned(), second.trim().to_owned())
}

#[test]
fn a_received_store_is_imported_with_its_history() {
    let bench = Bench::new();
    let (first, second) = received(&bench);
    let tracked = bench.run(&with_store(&["track"]));
    assert_eq!(tracked.text().trim(), second, "{tracked:?}");
    assert!(tracked.stderr.contains("untrusted-"), "{tracked:?}");
    assert_eq!(set_aside(&bench).len(), 1);
    let log = bench.ok(&with_store(&["log"]));
    assert!(log.contains("echo two"), "{log}");
    bench.ok(&with_store(&["undo"]));
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    bench.ok(&with_store(&["restore", "--exact", &second]));
    bench.ok(&with_store(&["restore", "--exact", &first]));
    bench.ok(&with_store(&["verify"]));
    // From now on the store is trusted.
    let again = bench.run(&with_store(&["track"]));
    assert!(!again.stderr.contains("untrusted-"), "{again:?}");
    assert_eq!(set_aside(&bench).len(), 1);
}

#[test]
fn a_store_stays_trusted_when_the_project_is_renamed() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.ok(&with_store(&["track"]));
    let moved = bench.project.with_file_name("renamed");
    std::fs::rename(&bench.project, &moved).unwrap();
    let ran = finish(bench.command(&with_store(&["track"])).current_dir(&moved));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.stderr.contains("untrusted-"), "{ran:?}");
}

#[test]
fn a_copy_of_an_own_store_is_imported() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let hash = bench.ok(&with_store(&["track"])).trim().to_owned();
    let copied = bench.project.with_file_name("copied");
    copy(&bench.project, &copied);
    let dir = copied.to_str().unwrap();
    let ran = bench.run(&[&["-C", dir], &with_store(&["restore", &hash])[..]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("untrusted-"), "{ran:?}");
}

/// Returns other paths of the store, and makes the links that they need.
fn aliases(bench: &Bench) -> Vec<String> {
    let project = bench.project.to_str().unwrap();
    let (link, parent) = (bench.home.join("link"), bench.home.join("parent"));
    symlink(&bench.project, &link).unwrap();
    symlink(bench.project.parent().unwrap(), &parent).unwrap();
    let name = bench.project.file_name().unwrap().to_str().unwrap();
    vec![
        ".agent/../.agent/snapshots".into(),
        "missing/../.agent/snapshots".into(),
        format!("../{name}/.agent/snapshots"),
        format!("{project}/../{name}/.agent/snapshots"),
        format!("{}/.agent/snapshots", link.display()),
        format!("{}/{name}/.agent/snapshots", parent.display()),
        "/proc/self/cwd/.agent/snapshots".into(),
    ]
}

#[test]
fn a_received_store_is_set_aside_whatever_its_path_looks_like() {
    for at in 0..7 {
        let bench = Bench::new();
        received(&bench);
        let alias = aliases(&bench).remove(at);
        let mark = store(&bench).join("mark");
        std::fs::write(&mark, "foreign").unwrap();
        bench.ok(&["--store", &alias, "track"]);
        assert!(!mark.exists(), "{alias}");
        assert_eq!(set_aside(&bench).len(), 1, "{alias}");
        // It is the same store by every path, and trusted.
        for path in [alias.as_str(), ".agent/snapshots"] {
            assert!(bench.ok(&["--store", path, "log"]).contains("echo two"), "{path}");
        }
        assert_eq!(set_aside(&bench).len(), 1, "{alias}");
    }
}

#[test]
fn a_store_that_came_with_an_outer_repository_is_set_aside() {
    let bench = Bench::new();
    received(&bench);
    git(&bench.project, &["init", "-q", "."]);
    git(&bench.project, &["init", "-q", "nested"]);
    bench.write("nested/a.txt", "inner\n");
    let nested = bench.project.join("nested");
    let args = ["-C", nested.to_str().unwrap(), "--store", "../.agent/snapshots"];
    bench.ok(&[&args[..], &["track"]].concat());
    assert_eq!(set_aside(&bench).len(), 1);
    bench.ok(&[&args[..], &["track"]].concat());
    assert_eq!(set_aside(&bench).len(), 1);
}

#[test]
fn hooks_configuration_and_alternates_of_a_received_store_are_not_read() {
    let bench = Bench::new();
    received(&bench);
    let secret = bench.home.join("secret");
    git(&bench.home, &["init", "-q", "--bare", secret.to_str().unwrap()]);
    let store = store(&bench);
    let canary = bench.home.join("canary");
    let text = format!("#!/bin/sh\ntouch '{}'\n", canary.display());
    std::fs::create_dir_all(store.join("hooks")).unwrap();
    for hook in ["reference-transaction", "pre-auto-gc", "post-update"] {
        std::fs::write(store.join("hooks").join(hook), &text).unwrap();
        git(
            &bench.home,
            &[
                "config",
                "--file",
                store.join("config").to_str().unwrap(),
                "core.hooksPath",
                "hooks",
            ],
        );
    }
    let objects = secret.join("objects");
    std::fs::write(store.join("objects/info/alternates"), format!("{}\n", objects.display()))
        .unwrap();
    bench.ok(&with_store(&["track"]));
    bench.ok(&with_store(&["gc", "--deep"]));
    assert!(!canary.exists());
    let alternates = store.join("objects/info/alternates");
    let text = std::fs::read_to_string(alternates).unwrap_or_default();
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn a_received_store_with_symlinks_is_set_aside_and_their_targets_unchanged() {
    for part in ["objects", "objects/pack", "refs"] {
        let bench = Bench::new();
        received(&bench);
        let dir = store(&bench).join(part);
        let elsewhere = bench.home.join("elsewhere");
        std::fs::rename(&dir, &elsewhere).unwrap();
        symlink(&elsewhere, &dir).unwrap();
        let before = listing(&elsewhere);
        bench.ok(&with_store(&["track"]));
        bench.ok(&with_store(&["gc"]));
        assert_eq!(listing(&elsewhere), before, "{part}");
        assert_eq!(set_aside(&bench).len(), 1, "{part}");
    }
}

/// Replaces the newest operation of a store by one with other text in its header.
fn forge(store: &Path, from: &str, to: &str) {
    let names = git(store, &["for-each-ref", "--format=%(refname)", "refs/ctrlz"]);
    let name = names.lines().find(|name| name.ends_with("/log")).unwrap();
    let commit = git(store, &["cat-file", "commit", name]);
    assert!(commit.contains(from), "{commit}");
    std::fs::write(store.join("forged"), commit.replace(from, to) + "\n").unwrap();
    let forged = git(store, &["hash-object", "-t", "commit", "-w", "forged"]);
    git(store, &["update-ref", name, &forged]);
}

#[test]
fn an_operation_at_an_impossible_place_of_its_segment_stops_nothing() {
    let bench = Bench::new();
    received(&bench);
    forge(&store(&bench), "\"place\":", "\"place\":4294967295,\"was\":");
    bench.ok(&with_store(&["track"]));
    assert_eq!(set_aside(&bench).len(), 1);
    bench.ok(&with_store(&["run", "--", "sh", "-c", "echo three > a.txt"]));
    bench.ok(&with_store(&["undo"]));
    assert_eq!(bench.read("a.txt").unwrap(), "two\n");
}

/// A project must not be able to stop recording by an obstacle at the location of the store.
#[test]
fn an_unusable_store_location_falls_back_to_the_data_directory() {
    type Put = fn(&Bench);
    let obstacles: [(&str, Put); 7] = [
        ("a link is in its place", |bench| {
            received(bench);
            let elsewhere = bench.home.join("elsewhere");
            std::fs::rename(store(bench), &elsewhere).unwrap();
            symlink(&elsewhere, store(bench)).unwrap();
        }),
        ("a link that came with the project", |bench| {
            received(bench);
            let elsewhere = bench.home.join("elsewhere");
            std::fs::rename(bench.project.join(".agent"), &elsewhere).unwrap();
            symlink(&elsewhere, bench.project.join(".agent")).unwrap();
        }),
        ("a link that came with the project", |bench| {
            std::fs::create_dir(bench.home.join("elsewhere")).unwrap();
            symlink(bench.home.join("elsewhere"), bench.project.join(".agent")).unwrap();
        }),
        ("a link that came with the project", |bench| {
            symlink("nowhere", bench.project.join(".agent")).unwrap();
        }),
        ("a file is in its place", |bench| bench.write(".agent", "a file\n")),
        ("a file is in its place", |bench| bench.write(".agent/snapshots", "a file\n")),
        ("a directory with other files", |bench| bench.write(".agent/snapshots/notes", "text\n")),
    ];
    for (why, put) in obstacles {
        let bench = Bench::new();
        put(&bench);
        bench.write("a.txt", "one\n");
        let before = listing(&bench.home);
        let tracked = bench.run(&with_store(&["track"]));
        assert_eq!(tracked.code, 0, "{tracked:?}");
        assert!(tracked.stderr.contains(why), "{tracked:?}");
        bench.ok(&with_store(&["run", "--", "sh", "-c", "echo two > a.txt"]));
        bench.ok(&with_store(&["undo"]));
        assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"), "{why}");
        assert_eq!(listing(&bench.home), before, "{why}");
    }
}

#[test]
fn a_link_to_another_store_of_the_user_is_not_trusted() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let secret = bench.ok(&with_store(&["track"])).trim().to_owned();
    let other = bench.project.with_file_name("hostile");
    std::fs::create_dir_all(other.join(".agent")).unwrap();
    symlink(store(&bench), other.join(".agent/snapshots")).unwrap();
    let before = listing(&store(&bench));
    let dir = other.to_str().unwrap();
    let ran = bench.run(&[&["-C", dir], &with_store(&["restore", &secret])[..]].concat());
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(!other.join("a.txt").exists());
    assert_eq!(listing(&store(&bench)), before);
}

#[test]
fn data_directory_parts_are_made_private_and_must_not_be_symlinks() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    for part in ["snapshot", "paths"] {
        let path = bench.data.join(part);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        bench.track();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{part}");
        let moved = bench.home.join(part);
        std::fs::rename(&path, &moved).unwrap();
        symlink(&moved, &path).unwrap();
        bench.fails(&["track"], 1, "not a directory of this user");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&moved, &path).unwrap();
    }
    // A symlink in the path to the data directory is allowed.
    let moved = bench.home.join("elsewhere");
    std::fs::rename(&bench.data, &moved).unwrap();
    symlink(&moved, &bench.data).unwrap();
    bench.track();
}

/// Adds a foreign part to the store of a trusted project, as a `git pull` can, and checks that the
/// store is set aside once, recording continues and the old history is imported.
#[track_caller]
fn set_aside_once(what: &str, why: &str, add: impl FnOnce(&Bench, &Path)) {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let first = bench.ok(&with_store(&["track"]));
    bench.ok(&with_store(&["run", "--", "sh", "-c", "echo two > a.txt"]));
    let objects = listing(&store(&bench).join("objects"));
    add(&bench, &store(&bench));
    let outside = listing(&bench.home.join("outside"));
    let tracked = bench.run(&with_store(&["track"]));
    assert_eq!(tracked.code, 0, "{what}: {tracked:?}");
    assert!(
        tracked.stderr.contains("is not trusted") && tracked.stderr.contains(why),
        "{what}: {tracked:?}"
    );
    let old = set_aside(&bench);
    assert_eq!(old.len(), 1, "{what}");
    let names = |dir: &Path, all: Vec<(PathBuf, u64)>| -> Vec<PathBuf> {
        all.into_iter().map(|(path, _)| path.strip_prefix(dir).unwrap().to_owned()).collect()
    };
    let kept = names(&old[0].join("objects"), listing(&old[0].join("objects")));
    let before = names(&store(&bench).join("objects"), objects);
    assert!(before.iter().all(|path| kept.contains(path)), "{what}: {before:?} {kept:?}");
    // The old history is the history of the new store.
    bench.ok(&with_store(&["undo"]));
    assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"), "{what}");
    bench.ok(&with_store(&["restore", &first]));
    bench.ok(&with_store(&["verify"]));
    bench.ok(&with_store(&["gc"]));
    let again = bench.run(&with_store(&["track"]));
    assert!(!again.stderr.contains("not trusted"), "{what}: {again:?}");
    assert_eq!(set_aside(&bench).len(), 1, "{what}");
    assert_eq!(listing(&bench.home.join("outside")), outside, "{what}");
}

/// Moves the first entry of a directory out of the project and puts a link in its place.
fn replace_by_link(bench: &Bench, dir: &Path) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let moved = bench.home.join("outside/moved");
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    copy(&entries[0], &moved);
    std::fs::remove_dir_all(&entries[0]).or_else(|_| std::fs::remove_file(&entries[0])).unwrap();
    symlink(&moved, &entries[0]).unwrap();
}

#[test]
fn an_own_store_that_a_pull_added_a_link_to_is_set_aside_and_imported() {
    for part in ["ctrlz/wt", "ctrlz/paths", "info"] {
        set_aside_once(part, "link", |bench, store| replace_by_link(bench, &store.join(part)));
    }
    for dir in ["ctrlz/wt", "ctrlz/deep/er", "refs/ctrlz", "refs/other/deep"] {
        set_aside_once(dir, "link", |bench, store| {
            std::fs::create_dir_all(bench.home.join("outside")).unwrap();
            std::fs::create_dir_all(store.join(dir)).unwrap();
            symlink(bench.home.join("outside"), store.join(dir).join("link")).unwrap();
        });
    }
}

#[test]
fn an_own_store_with_a_file_of_the_wrong_kind_is_set_aside_and_imported() {
    for file in ["HEAD", "config", "ctrlz/format", "ctrlz/store.lock", "ctrlz/origin"] {
        set_aside_once(file, "in place of one of its files", |_, store| {
            std::fs::remove_file(store.join(file)).unwrap();
            std::fs::create_dir(store.join(file)).unwrap();
            std::fs::write(store.join(file).join("x"), "x").unwrap();
        });
    }
    for file in ["lock", "steps", "log.index", "restore.journal"] {
        set_aside_once(file, "in place of one of its files", |_, store| {
            let path = log_dir(store).join(file);
            std::fs::remove_file(&path).ok();
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("x"), "x").unwrap();
        });
    }
    set_aside_once("session", "of its refs", |_, store| {
        let path = store.join("refs/ctrlz").join(log_dir(store).file_name().unwrap());
        std::fs::remove_dir_all(path.join("session")).unwrap();
        std::fs::write(path.join("session"), "x").unwrap();
    });
    set_aside_once("wt", "in place of one of its directories", |_, store| {
        std::fs::write(store.join("ctrlz/wt/0123456789abcdef"), "x").unwrap();
    });
}

/// Without its ref, the old log cannot be found and is not imported.
#[test]
fn an_own_store_whose_log_ref_has_the_wrong_kind_is_set_aside() {
    for is_file in [true, false] {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.ok(&with_store(&["track"]));
        let path =
            store(&bench).join("refs/ctrlz").join(log_dir(&store(&bench)).file_name().unwrap());
        std::fs::remove_dir_all(&path).unwrap();
        if is_file {
            std::fs::write(path, "x").unwrap();
        } else {
            std::fs::create_dir_all(path.join("log/x")).unwrap();
        }
        bench.ok(&with_store(&["run", "--", "sh", "-c", "echo two > a.txt"]));
        assert_eq!(set_aside(&bench).len(), 1);
        bench.ok(&with_store(&["undo"]));
        assert_eq!(bench.read("a.txt").as_deref(), Some("one\n"));
    }
}

#[test]
fn an_own_store_with_foreign_alternates_or_a_commondir_is_set_aside_and_imported() {
    set_aside_once("alternates", "alternates", |bench, store| {
        let other = bench.home.join("outside");
        git(&bench.home, &["init", "-q", "--bare", other.to_str().unwrap()]);
        let line = format!("{}\n", other.join("objects").display());
        std::fs::write(store.join("objects/info/alternates"), line).unwrap();
    });
    set_aside_once("commondir", "commondir", |_, store| {
        std::fs::write(store.join("commondir"), "../../.git\n").unwrap();
    });
}

/// Renaming the store of a newer version would take the history from it.
#[test]
fn a_store_of_a_newer_format_in_a_project_is_left_alone() {
    for is_own in [true, false] {
        let bench = Bench::new();
        if is_own {
            drop(bench.ok(&with_store(&["track"])));
        } else {
            drop(received(&bench));
        }
        std::fs::write(store(&bench).join("ctrlz/format"), "99\n").unwrap();
        let before = listing(&store(&bench));
        bench.write("a.txt", "mine\n");
        let tracked = bench.run(&with_store(&["run", "--", "sh", "-c", "echo x > a.txt"]));
        assert_eq!(tracked.code, 0, "{tracked:?}");
        assert!(tracked.stderr.contains("newer version of ctrlz"), "{tracked:?}");
        bench.ok(&with_store(&["undo"]));
        assert_eq!(bench.read("a.txt").as_deref(), Some("mine\n"));
        assert_eq!(listing(&store(&bench)), before);
        assert_eq!(set_aside(&bench).len(), 0);
    }
}

/// A `git pull` can write a journal, but not give it the identity of a file that ctrlz made.
#[test]
fn a_forged_journal_of_a_newer_version_stops_no_command() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.ok(&with_store(&["track"]));
    let journal = log_dir(&store(&bench)).join("restore.journal");
    std::fs::write(&journal, "{\"version\":99}").unwrap();
    bench.ok(&with_store(&["track"]));
    assert!(!journal.exists());
}

/// The path names a store beside the work tree, in a directory that no repository marks as a
/// project.
#[test]
fn a_received_store_beside_the_work_tree_is_set_aside() {
    for has_git in [true, false] {
        let bench = Bench::new();
        received(&bench);
        bench.write("nested/a.txt", "inner\n");
        let nested = bench.project.join("nested");
        if has_git {
            git(&nested, &["init", "-q"]);
        }
        let absolute = store(&bench);
        for path in ["../.agent/snapshots", absolute.to_str().unwrap()] {
            bench.ok(&["-C", nested.to_str().unwrap(), "--store", path, "track"]);
            assert_eq!(set_aside(&bench).len(), 1, "{path}");
        }
    }
}

/// Returns the directory of the only log of a store.
fn log_dir(store: &Path) -> PathBuf {
    std::fs::read_dir(store.join("ctrlz/wt")).unwrap().next().unwrap().unwrap().path()
}

/// A `git pull` can create links in a store inside the project.
#[test]
fn links_among_the_files_of_a_log_are_not_followed() {
    let files = ["lock", "scanned", "gap", "log.index", "stat", "steps", "loans.lock"];
    let dirs = ["plans", "outside", "watch"];
    for is_inside in [true, false] {
        for name in files.iter().chain(&dirs) {
            let bench = Bench::new();
            bench.write("a.txt", "one\n");
            let args =
                |args: &[&'static str]| if is_inside { with_store(args) } else { args.to_vec() };
            bench.ok(&args(&["run", "--", "sh", "-c", "echo two > a.txt"]));
            let store = if is_inside {
                store(&bench)
            } else {
                let stores = bench.data.join("snapshot");
                std::fs::read_dir(stores).unwrap().next().unwrap().unwrap().path()
            };
            let link = log_dir(&store).join(name);
            let target = bench.home.join("target");
            std::fs::remove_dir_all(&link).or_else(|_| std::fs::remove_file(&link)).ok();
            let file = if dirs.contains(name) {
                std::fs::create_dir(&target).unwrap();
                target.join("0123.json")
            } else {
                target.clone()
            };
            std::fs::write(&file, "precious\n").unwrap();
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 86_400);
            std::fs::File::open(&file).unwrap().set_modified(old).unwrap();
            symlink(&target, &link).unwrap();
            let outside = |bench: &Bench| {
                let all = listing(&bench.home).into_iter();
                all.filter(|(path, _)| !path.starts_with(&bench.project)).count()
            };
            let before = outside(&bench);
            for command in [&["track"][..], &["run", "--", "true"], &["undo", "--dry-run"], &["gc"]]
            {
                let ran = bench.run(&args(command));
                // Inside a project the first command sets the store aside.
                let is_named = ran.stderr.contains("link");
                assert!(is_named || (is_inside && ran.code == 0), "{name}: {command:?}: {ran:?}");
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious\n", "{name}");
            assert_eq!(outside(&bench), before, "{name}");
        }
    }
}

#[test]
fn locks_of_the_data_directory_are_not_opened_through_links() {
    for lock in ["paths/lock", "stores/lock"] {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.ok(&with_store(&["track"]));
        bench.track();
        let (lock, target) = (bench.data.join(lock), bench.home.join("target"));
        std::fs::write(&target, "precious\n").unwrap();
        std::fs::remove_file(&lock).unwrap();
        symlink(&target, &lock).unwrap();
        let other = bench.project.with_file_name("other");
        std::fs::create_dir(&other).unwrap();
        let dir = ["-C", other.to_str().unwrap()];
        bench.run(&[&dir[..], &["track"]].concat());
        bench.run(&[&dir[..], &with_store(&["track"])].concat());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious\n", "{lock:?}");
    }
}

/// The commands that a message quotes act on the same store.
#[test]
fn suggested_commands_name_the_same_store_and_directory() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let ran = bench.run(&with_store(&["show", &"0".repeat(40)]));
    assert!(ran.stderr.contains("`ctrlz --store .agent/snapshots status`"), "{ran:?}");
    let text = bench.ok(&with_store(&["status"]));
    assert!(text.contains("`ctrlz --store .agent/snapshots track`"), "{text}");
    // Another directory at a path with a space and a quote.
    let odd = bench.project.with_file_name("it's odd");
    let dir = ["-C", odd.to_str().unwrap()];
    let track = || {
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("f"), "x").unwrap();
        let ran = bench.run(&[&dir[..], &["track"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.stderr
    };
    track();
    std::fs::rename(&odd, bench.home.join("gone")).unwrap();
    let said = track();
    let (_, command) = said.split_once('`').unwrap();
    let (command, _) = command.split_once('`').unwrap();
    assert!(command.contains("relink"), "{said}");
    let ran = bench.shell(&command.replacen("ctrlz", "$CTRLZ", 1));
    assert_eq!(ran.code, 0, "{command}: {ran:?}");
}

fn listing(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                dirs.push(entry.path());
            } else {
                found.push((entry.path(), meta.len()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn damaged_history_is_skipped_and_recording_continues() {
    let bench = Bench::new();
    let (first, _) = received(&bench);
    for (path, bytes) in listing(&store(&bench).join("objects")) {
        if path.extension().is_some_and(|end| end == "pack") && bytes > 100 {
            let mut content = std::fs::read(&path).unwrap();
            let middle = content.len() / 2;
            content[20..middle].fill(0);
            std::fs::write(&path, content).unwrap();
        }
    }
    bench.write("a.txt", "three\n");
    bench.ok(&with_store(&["track"]));
    let old = set_aside(&bench).remove(0);
    let adopted = bench.run(&with_store(&["adopt", old.to_str().unwrap()]));
    assert_eq!(adopted.code, 3, "{adopted:?}");
    assert!(adopted.stderr.contains("left out: log"), "{adopted:?}");
    assert_ne!(bench.run(&with_store(&["restore", &first])).code, 0);
    bench.ok(&with_store(&["verify"]));
}

/// A few kilobytes can describe thousands of nested directories or billions of files.
#[test]
fn trees_that_would_exhaust_memory_or_time_are_left_out() {
    let bench = Bench::new();
    let store = store(&bench);
    std::fs::create_dir_all(&store).unwrap();
    git(&store, &["init", "-q", "--bare", "."]);
    let hash = |kind: &str, bytes: &[u8]| {
        let file = bench.home.join("object");
        std::fs::write(&file, bytes).unwrap();
        git(&store, &["hash-object", "-w", "-t", kind, "--literally", file.to_str().unwrap()])
    };
    let id = |hex: &str| -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..40).step_by(2).map(byte).collect()
    };
    let blob = hash("blob", b"text");
    let file = [&b"100644 f\0"[..], &id(&blob)].concat();
    let (mut deep, mut wide) = (hash("tree", &file), hash("tree", &file));
    for _ in 0..1_100 {
        deep = hash("tree", &[&b"40000 d\0"[..], &id(&deep)].concat());
    }
    for _ in 0..8 {
        let entry = |at: u8| [format!("40000 {at:02}\0").as_bytes(), &id(&wide)].concat();
        wide = hash("tree", &(0..30).flat_map(entry).collect::<Vec<u8>>());
    }
    bench.write("a.txt", "one\n");
    bench.ok(&with_store(&["track"]));
    let old = set_aside(&bench).remove(0);
    let adopted = bench.run(&with_store(&["adopt", old.to_str().unwrap()]));
    assert_eq!(adopted.code, 3, "{adopted:?}");
    assert!(adopted.stderr.contains("nested directories"), "{adopted:?}");
    assert!(adopted.stderr.contains("paths"), "{adopted:?}");
    for bomb in [deep, wide] {
        assert_ne!(bench.run(&with_store(&["restore", &bomb])).code, 0);
    }
    bench.ok(&with_store(&["log", "--lost"]));
    bench.ok(&with_store(&["verify"]));
}

/// Programs that follow the documentation keep a bare repository with unreferenced trees.
#[test]
fn snapshots_of_a_plain_repository_are_imported_and_kept() {
    let bench = Bench::new();
    let store = store(&bench);
    std::fs::create_dir_all(&store).unwrap();
    bench.write("a.txt", "one\n");
    git(&store, &["init", "-q", "--bare", "."]);
    let work = bench.project.to_str().unwrap().to_owned();
    let dir = store.to_str().unwrap().to_owned();
    let at = ["--git-dir", &dir, "--work-tree", &work];
    git(&bench.project, &[&at[..], &["add", "a.txt"]].concat());
    let old = git(&bench.project, &[&at[..], &["write-tree"]].concat());
    bench.write("a.txt", "two\n");
    bench.ok(&with_store(&["track"]));
    bench.ok(&with_store(&["gc"]));
    bench.ok(&with_store(&["restore", "--exact", &old]));
    assert_eq!(bench.read("a.txt").unwrap(), "one\n");
    bench.ok(&with_store(&["verify"]));
}

#[test]
fn a_large_store_is_imported_in_the_background() {
    let bench = Bench::new();
    let other = Bench::new();
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    })
    .take(40 << 20)
    .collect();
    std::fs::write(other.project.join("noise"), noise).unwrap();
    let old = other.ok(&with_store(&["track", "--", "noise"])).trim().to_owned();
    std::fs::remove_dir_all(&bench.project).unwrap();
    copy(&other.project, &bench.project);
    std::fs::remove_file(bench.project.join("noise")).unwrap();
    // Recording does not wait for the import.
    bench.write("a.txt", "one\n");
    bench.ok(&with_store(&["track"]));
    let mut shown = bench.run(&with_store(&["restore", &old]));
    for _ in 0..600 {
        if shown.code == 0 {
            break;
        }
        assert!(shown.stderr.contains("being imported"), "{shown:?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
        shown = bench.run(&with_store(&["restore", &old]));
    }
    assert_eq!(shown.code, 0, "{shown:?}");
    assert_eq!(std::fs::metadata(bench.project.join("noise")).unwrap().len(), 40 << 20);
}

/// A data directory inside the project may be shipped with it. A record that has only the path is
/// not trusted.
#[test]
fn a_trust_record_shipped_with_the_project_is_not_accepted() {
    let bench = Bench::new();
    received(&bench);
    let data = bench.project.join(".agent/data");
    let id = std::fs::read_to_string(store(&bench).join("ctrlz/id")).unwrap();
    std::fs::create_dir_all(data.join("stores")).unwrap();
    let record = format!("{{\"path\":\"{}\"}}", store(&bench).display());
    std::fs::write(data.join("stores").join(id.trim()), record).unwrap();
    let data = data.to_str().unwrap();
    let args = [&["--data-dir", data], &with_store(&["track"])[..]].concat();
    assert_eq!(bench.run(&args).code, 0);
    assert_eq!(set_aside(&bench).len(), 1);
    // The new store is trusted by its identity.
    assert_eq!(bench.run(&args).code, 0);
    assert_eq!(set_aside(&bench).len(), 1);
}

/// Commits a file in a new repository at `dir`.
fn init(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q", "-b", "main", "."]);
    git(dir, &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "x", "--allow-empty"]);
}

#[test]
fn a_store_or_data_directory_in_a_git_directory_is_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    for dir in [&bench.project, &bench.project.join("sub"), &bench.home, &bench.home.join("other")]
    {
        init(dir);
    }
    symlink(bench.home.join("other/.git"), bench.home.join("link")).unwrap();
    let home = bench.home.to_str().unwrap();
    let outer = ["link", "link/x", ".git", ".git/x", "other/.git", "other/.git/modules/x"];
    let outer = outer.map(|path| format!("{home}/{path}"));
    let inner = [".git", ".git/x", "x/../.git", "sub/.git", "sub/.git/x/y", ".GIT", ".hg/store"];
    let all = |dir: &Path| contents(dir);
    let before = (all(&bench.home), all(&bench.project));
    for path in outer.iter().map(String::as_str).chain(inner) {
        for args in [&["track"][..], &["status"], &["log"], &["gc"], &["adopt", home]] {
            let ran = bench.run(&[&["--store", path], args].concat());
            assert_ne!(ran.code, 0, "{path} {args:?}: {ran:?}");
            assert!(!ran.stderr.contains("remove"), "{path} {args:?}: {ran:?}");
            assert!(
                ran.stderr.contains("a repository's own directory"),
                "{path} {args:?}: {ran:?}"
            );
        }
        bench.fails(
            &["--force-root", "--data-dir", path, "track"],
            1,
            "a repository's own directory",
        );
        assert_eq!((all(&bench.home), all(&bench.project)), before, "{path}");
    }
}

#[test]
fn a_repository_of_the_user_at_the_path_of_a_store_is_left_alone() {
    type Put = fn(&Bench, &Path);
    let write_tree = |bench: &Bench, dir: &Path| {
        let at = ["--git-dir", dir.to_str().unwrap(), "--work-tree", "."];
        git(&bench.project, &[&at[..], &["add", "a.txt"]].concat());
        git(&bench.project, &[&at[..], &["write-tree"]].concat());
    };
    let puts: [(&str, Put); 6] = [
        ("no commits", |_, _| ()),
        ("a branch", |bench, dir| {
            init(&bench.project.join("clone"));
            let url = dir.to_str().unwrap();
            git(&bench.project.join("clone"), &["push", "-q", url, "main"]);
        }),
        ("a packed branch", |bench, dir| {
            init(&bench.project.join("clone"));
            let url = dir.to_str().unwrap();
            git(&bench.project.join("clone"), &["push", "-q", url, "main"]);
            git(dir, &["gc", "-q"]);
        }),
        ("pushed snapshots", |bench, dir| {
            bench.ok(&["push", dir.to_str().unwrap()]);
        }),
        ("a detached HEAD", |_, dir| {
            std::fs::write(dir.join("HEAD"), format!("{}\n", "1".repeat(40))).unwrap();
        }),
        ("work trees", |_, dir| std::fs::create_dir(dir.join("worktrees")).unwrap()),
    ];
    for (what, put) in puts {
        for (name, is_inside) in [("lib.git", true), ("lib.git/x", true), ("lib.git", false)] {
            let bench = Bench::new();
            bench.write("a.txt", "one\n");
            bench.track();
            let above = if is_inside { bench.project.clone() } else { bench.home.join("outside") };
            let dir = above.join("lib.git");
            std::fs::create_dir_all(&dir).unwrap();
            git(&dir, &["init", "-q", "--bare", "."]);
            if what != "no commits" {
                write_tree(&bench, &dir);
            }
            put(&bench, &dir);
            let before = contents(&above);
            let args = ["--store", above.join(name).to_str().unwrap(), "track"].map(str::to_owned);
            let ran = bench.run(&args.each_ref().map(String::as_str));
            // A project must not be able to stop recording; elsewhere the path was a mistake.
            assert_eq!(ran.code == 0, is_inside, "{what} {name}: {ran:?}");
            assert!(ran.stderr.contains("is not used"), "{what} {name}: {ran:?}");
            assert_eq!(contents(&above), before, "{what} {name}");
        }
    }
}

#[test]
fn the_separate_git_directory_of_the_work_tree_is_not_used_as_a_store() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    git(&bench.project, &["init", "-q", "--separate-git-dir", ".bare", "."]);
    git(&bench.project, &["add", "a.txt"]);
    git(&bench.project, &["write-tree"]);
    let before = contents(&bench.project);
    for path in [".bare", ".bare/x"] {
        let ran = bench.run(&["--store", path, "track"]);
        assert!(ran.stderr.contains("a repository's own directory"), "{path}: {ran:?}");
        assert_eq!(contents(&bench.project), before, "{path}");
    }
}

#[test]
fn a_directory_with_sources_named_ctrlz_is_not_taken_for_a_store() {
    let bench = Bench::new();
    bench.write("crates/ctrlz/src/lib.rs", "text\n");
    let before = contents(&bench.project);
    let ran = bench.run(&["--store", "crates", "track"]);
    assert!(ran.stderr.contains("a directory with other files"), "{ran:?}");
    assert_eq!(contents(&bench.project), before);
    let outside = bench.home.join("outside");
    std::fs::create_dir_all(outside.join("ctrlz")).unwrap();
    std::fs::write(outside.join("ctrlz/lib.rs"), "text\n").unwrap();
    let before = contents(&outside);
    bench.fails(&["--store", outside.to_str().unwrap(), "track"], 1, "is not used");
    assert_eq!(contents(&outside), before);
}

/// Every imported ref is flushed, so a small store can need minutes.
#[test]
fn a_small_store_with_many_refs_does_not_delay_recording() {
    let bench = Bench::new();
    let (first, _) = received(&bench);
    let log = log_dir(&store(&bench));
    let log = log.file_name().unwrap().to_str().unwrap();
    let head =
        std::fs::read_to_string(store(&bench).join(format!("refs/ctrlz/{log}/log"))).unwrap();
    let line = |at: u32| format!("{} refs/ctrlz/{log}/cp{at:06}\n", head.trim());
    let packed: String = (0..5_000).map(line).collect();
    std::fs::write(store(&bench).join("packed-refs"), packed).unwrap();
    bench.write("a.txt", "mine\n");
    let began = std::time::Instant::now();
    bench.ok(&with_store(&["track"]));
    bench.ok(&with_store(&["run", "--", "sh", "-c", "echo three > a.txt"]));
    bench.ok(&with_store(&["undo"]));
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(bench.read("a.txt").as_deref(), Some("mine\n"));
    let shown = bench.run(&with_store(&["restore", &first]));
    assert!(shown.code == 0 || shown.stderr.contains("being imported"), "{shown:?}");
}
