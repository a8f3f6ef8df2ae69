//! Stores inside a project that this user did not create: set aside, imported, never trusted.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::bench::{Bench, finish, program};

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
    for part in ["objects", "objects/pack", "refs", ""] {
        let bench = Bench::new();
        received(&bench);
        let whole = store(&bench);
        let dir = if part.is_empty() { whole } else { whole.join(part) };
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

/// A project must not be able to stop recording by an obstacle at the location of the store.
#[test]
fn an_unusable_store_location_falls_back_to_the_data_directory() {
    type Put = fn(&Bench);
    let obstacles: [(&str, Put); 6] = [
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

#[test]
fn an_own_store_with_a_link_in_it_is_refused() {
    for part in ["ctrlz", "ctrlz/wt", "objects/pack", "refs"] {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.ok(&with_store(&["track"]));
        let dir = store(&bench).join(part);
        let entry = std::fs::read_dir(&dir).unwrap().flatten().next().unwrap().path();
        let moved = bench.home.join("moved");
        std::fs::rename(&entry, &moved).unwrap();
        symlink(&moved, &entry).unwrap();
        let ran = bench.run(&with_store(&["track"]));
        // Without its id, the store is not recognized as this user's and is set aside.
        let is_set_aside = ran.code == 0 && !set_aside(&bench).is_empty();
        assert!(is_set_aside || ran.stderr.contains("link"), "{part}: {ran:?}");
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
            let args = |args: &[&'static str]| match is_inside {
                true => with_store(args),
                false => args.to_vec(),
            };
            bench.ok(&args(&["run", "--", "sh", "-c", "echo two > a.txt"]));
            let store = match is_inside {
                true => store(&bench),
                false => {
                    let stores = bench.data.join("snapshot");
                    std::fs::read_dir(stores).unwrap().next().unwrap().unwrap().path()
                }
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
            let before = listing(&bench.home).len();
            for command in [&["track"][..], &["run", "--", "true"], &["undo", "--dry-run"], &["gc"]]
            {
                let ran = bench.run(&args(command));
                assert!(ran.stderr.contains("link"), "{name}: {command:?}: {ran:?}");
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious\n", "{name}");
            assert_eq!(listing(&bench.home).len(), before, "{name}");
        }
    }
}

#[test]
fn a_link_deep_in_an_own_store_inside_the_project_is_named() {
    for dir in ["ctrlz/wt", "ctrlz/deep/er", "refs/ctrlz", "refs/other/deep"] {
        let bench = Bench::new();
        bench.write("a.txt", "one\n");
        bench.ok(&with_store(&["track"]));
        let dir = store(&bench).join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        symlink(&bench.home, dir.join("link")).unwrap();
        bench.fails(&with_store(&["track"]), 1, "link");
        assert_eq!(set_aside(&bench).len(), 0);
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

#[test]
fn an_own_store_with_a_foreign_alternate_is_refused() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.ok(&with_store(&["track"]));
    let other = bench.home.join("other");
    git(&bench.home, &["init", "-q", "--bare", other.to_str().unwrap()]);
    let line = format!("{}\n", other.join("objects").display());
    std::fs::write(store(&bench).join("objects/info/alternates"), line).unwrap();
    bench.fails(&with_store(&["track"]), 1, "alternates");
}

fn listing(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let meta = entry.metadata().unwrap();
            match meta.is_dir() {
                true => dirs.push(entry.path()),
                false => found.push((entry.path(), meta.len())),
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
