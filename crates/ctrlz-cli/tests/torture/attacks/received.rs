//! Stores that are trusted and then changed by a `git pull`, and other paths to foreign stores.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xtask::{Random, Row};

use super::{GOAL, STORE, all_below, copy, timely, with_store};
use crate::lab::{Lab, must, run, sized};
use crate::manifest::Manifest;

/// Forges one part of a trusted store, as a `git pull` can. Returns a description.
fn forge(store: &Path, elsewhere: &Path, random: &mut Random) -> String {
    let logs = all_below(&store.join("ctrlz/wt"));
    let Some(log) = logs.iter().find(|path| path.join("logged").exists()) else {
        return "nothing more: an earlier change removed the log".into();
    };
    let files = [
        "ctrlz/format",
        "ctrlz/store.lock",
        "ctrlz/origin",
        "ctrlz/purged",
        "ctrlz/adopting",
        "HEAD",
        "config",
        "packed-refs",
        "commondir",
        "objects/info/alternates",
    ];
    let own = [
        "lock",
        "stat",
        "steps",
        "scanned",
        "gap",
        "log.index",
        "watched",
        "borrowed",
        "aside",
        "restore.journal",
        "wrong-index",
        "path",
        "logged",
        "plans",
        "outside",
        "watch",
    ];
    let victim = match random.below(3) {
        0 => store.join(random.pick(&files)),
        1 => log.join(random.pick(&own)),
        _ => random.pick(&all_below(store)).clone(),
    };
    if victim.symlink_metadata().is_ok() {
        crate::lab::remove(&victim);
    } else {
        std::fs::create_dir_all(victim.parent().unwrap()).unwrap();
    }
    let what = match random.below(6) {
        0 => {
            symlink(elsewhere, &victim).unwrap();
            "a link to a directory outside"
        }
        1 => {
            symlink(elsewhere.join("file"), &victim).unwrap();
            "a link to a file outside"
        }
        2 => {
            std::fs::create_dir(&victim).unwrap();
            std::fs::write(victim.join("x"), "x").unwrap();
            "a directory"
        }
        3 => {
            std::fs::write(&victim, forged_journal(elsewhere, random)).unwrap();
            "a forged journal"
        }
        4 => {
            let text = format!("{}\n", elsewhere.join("repository/objects").display());
            std::fs::write(&victim, text).unwrap();
            "the path of a repository"
        }
        _ => {
            let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.byte()).collect();
            std::fs::write(&victim, bytes).unwrap();
            "other bytes"
        }
    };
    format!("{what} at {}", victim.strip_prefix(store).unwrap().display())
}

/// Returns a journal that renames, removes or overwrites a file, in the work tree or outside.
fn forged_journal(elsewhere: &Path, random: &mut Random) -> String {
    let absolute = elsewhere.join("file").display().to_string();
    let paths = ["file", "../elsewhere/file", &absolute, ".git/config", "dir/../file", ""];
    let path = *random.pick(&paths);
    let phase = *random.pick(&["staging", "swapping", "recording"]);
    let version = random.below(4);
    let unit = format!(
        "{{\"path\":\"{path}\",\"temporary\":\".ctrlz-0123456789abcdef\",\"staged\":null,\"old\":null}}"
    );
    format!(
        "{{\"version\":{version},\"phase\":\"{phase}\",\"units\":[{unit}],\"modes\":[],\"opened\":[],\"emptied\":[\"dir\"]}}"
    )
}

/// A `git pull` writes into a store that was trusted before. Recording and undo keep working, and
/// nothing outside of the project and no file of the user changes.
#[test]
fn a_store_changed_by_a_pull_neither_stops_recording_nor_leads_outside() {
    let mut row = Row::of(GOAL, "trusted stores changed by a pull");
    let mut random = Random::new("changed stores");
    let lab = Lab::new();
    let elsewhere = lab.dir().join("elsewhere");
    let store = lab.work.join(".agent/snapshots");
    for case in 0..sized(30, 1_000) {
        for dir in [&lab.work, &lab.data, &elsewhere] {
            if dir.exists() {
                crate::lab::remove(dir);
            }
        }
        std::fs::create_dir_all(&lab.work).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("file"), "precious\n").unwrap();
        must("git", &["init", "-q", "--bare", elsewhere.join("repository").to_str().unwrap()]);
        lab.write("file", "one\n");
        lab.write("dir/file", "user's\n");
        lab.ctrlz(&with_store(&["run", "--", "sh", "-c", "echo two > file"])).ok();
        let forged: Vec<String> =
            (0..1 + random.below(2)).map(|_| forge(&store, &elsewhere, &mut random)).collect();
        let when = format!("case {case}: {forged:?}");
        let before = Manifest::of(&elsewhere);
        let tracked = timely(&lab, &with_store(&["track"]), &when);
        assert_eq!(tracked.code(), Some(0), "{when}: {tracked:?}");
        let mine = std::fs::read_to_string(lab.work.join("file")).unwrap();
        assert_eq!(mine, "two\n", "{when}: a file of the user changed");
        let ran = timely(&lab, &with_store(&["run", "--", "sh", "-c", "echo three > file"]), &when);
        assert_eq!(ran.code(), Some(0), "{when}: {ran:?}");
        for args in [&["log"][..], &["gc"], &["verify"]] {
            timely(&lab, &with_store(args), &when);
        }
        let undone = timely(&lab, &with_store(&["undo", "--yes"]), &when);
        assert_eq!(undone.code(), Some(0), "{when}: {undone:?}");
        let now = std::fs::read_to_string(lab.work.join("file")).unwrap();
        assert_eq!(now, "two\n", "{when}");
        let kept = std::fs::read_to_string(lab.work.join("dir/file")).unwrap();
        assert_eq!(kept, "user's\n", "{when}");
        Manifest::of(&elsewhere).assert_is(&before, &when);
        row.done();
    }
}

/// Returns a random path that leads to the store of the project, and the directory to start in.
fn alias(lab: &Lab, random: &mut Random) -> (PathBuf, String) {
    let project = lab.work.clone();
    let name = project.file_name().unwrap().to_str().unwrap().to_owned();
    let link = lab.dir().join(format!("link{}", random.below(1 << 30)));
    let mut path = match random.below(5) {
        0 => String::new(),
        1 => format!("{}/", project.display()),
        2 => {
            symlink(&project, &link).unwrap();
            format!("{}/", link.display())
        }
        3 => {
            symlink(project.parent().unwrap(), &link).unwrap();
            format!("{}/{name}/", link.display())
        }
        _ => format!("../{name}/"),
    };
    for _ in 0..random.below(4) {
        let ups = ["missing/../", ".agent/../", "./", &format!("../{name}/"), "sub/../"];
        let up = *random.pick(&ups);
        path.push_str(up);
    }
    path.push_str(".agent/snapshots");
    let from = if random.below(3) == 0 { project.join("sub") } else { project.clone() };
    // A relative path starts from the work tree, which is the directory itself without a `.git`.
    if from != project && !path.starts_with('/') {
        path.insert_str(0, "../");
    }
    (from, path)
}

/// A received store is set aside by whatever path it is named.
#[test]
fn a_received_store_is_set_aside_by_every_path() {
    let mut row = Row::of(GOAL, "paths to stores that came with a project");
    let mut random = Random::new("aliases");
    let maker = Lab::new();
    maker.write("file", "one\n");
    maker.write("sub/file", "one\n");
    maker.ctrlz(&with_store(&["run", "--", "sh", "-c", "echo two > file"])).ok();
    let lab = Lab::new();
    for case in 0..sized(20, 500) {
        for dir in [&lab.work, &lab.data] {
            if dir.exists() {
                crate::lab::remove(dir);
            }
        }
        copy(&maker.work, &lab.work);
        if random.below(2) == 0 {
            must("git", &["init", "-q", lab.work.to_str().unwrap()]);
            must("git", &["init", "-q", lab.work.join("sub").to_str().unwrap()]);
        }
        let mark = lab.work.join(".agent/snapshots/mark");
        std::fs::write(&mark, "foreign").unwrap();
        let (from, path) = alias(&lab, &mut random);
        let when = format!("case {case}: {} --store {path}", from.display());
        let tracked = run(&mut lab.command_in(&from, &[STORE[0], &path, "track"]));
        assert_eq!(tracked.code(), Some(0), "{when}: {tracked:?}");
        assert!(!mark.exists(), "{when}: the store was trusted: {tracked:?}");
        row.done();
    }
}

/// Makes a repository of the user at `dir`, in a random state. Returns a description.
fn make_repository(lab: &Lab, dir: &Path, random: &mut Random) -> String {
    let path = dir.to_str().unwrap();
    let is_bare = random.below(2) == 0;
    let git_dir = if is_bare { dir.to_owned() } else { dir.join(".git") };
    let kind: &[&str] = if is_bare { &["--bare"] } else { &[] };
    must("git", &[&["init", "-q"], kind, &[path]].concat());
    let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let at = format!("--git-dir={}", git_dir.display());
    let who = ["-c", "user.name=n", "-c", "user.email=e", &at];
    let state = random.below(4);
    if state > 0 {
        let file = lab.dir().join("empty");
        std::fs::write(&file, "").unwrap();
        must("git", &[&at, "hash-object", "-w", "-t", "tree", file.to_str().unwrap()]);
        let made = must("git", &[&who[..], &["commit-tree", "-m", "x", tree]].concat());
        let name =
            *random.pick(&["refs/heads/main", "refs/tags/x", "refs/ctrlz/0123456789abcdef/log"]);
        must("git", &[&at, "update-ref", name, made.trim()]);
    }
    if state > 1 {
        must("git", &[&at, "pack-refs", "--all"]);
    }
    if state > 2 {
        std::fs::remove_file(git_dir.join("HEAD")).unwrap();
    }
    format!("a repository ({}, state {state})", if is_bare { "bare" } else { "with files" })
}

/// A caller names the path of a repository, or a path inside it, as the store or as the data
/// directory. No command changes the repository.
#[test]
fn a_repository_named_as_a_store_is_never_changed() {
    let mut row = Row::of(GOAL, "repositories of the user named as stores");
    let mut random = Random::new("named repositories");
    let lab = Lab::new();
    let elsewhere = lab.dir().join("elsewhere");
    for case in 0..sized(20, 1_000) {
        for dir in [&lab.work, &lab.data, &elsewhere] {
            if dir.exists() {
                crate::lab::remove(dir);
            }
        }
        std::fs::create_dir_all(&lab.work).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        lab.write("file", "one\n");
        if random.below(2) == 0 {
            must("git", &["init", "-q", lab.work.to_str().unwrap()]);
        }
        let above = if random.below(2) == 0 { &lab.work } else { &elsewhere };
        let name = *random.pick(&["sub", "lib.git", ".bare", "a.b"]);
        let dir = above.join(name);
        let what = make_repository(&lab, &dir, &mut random);
        let git_dir = if dir.join(".git").exists() { dir.join(".git") } else { dir.clone() };
        let below = *random.pick(&["", "", "/x", "/objects", "/refs/x", "/./x/..", "/hooks/a/b"]);
        let path = format!("{}{below}", git_dir.display());
        let args = *random.pick(&[
            &["track"][..],
            &["status"],
            &["log"],
            &["gc"],
            &["undo", "--yes"],
            &["run", "--", "true"],
        ]);
        let when = format!("case {case}: {what}, --store {path} {args:?}");
        let before = Manifest::of(&dir);
        timely(&lab, &[&["--store", &path], args].concat(), &when);
        Manifest::of(&dir).assert_is(&before, &when);
        if git_dir != dir {
            timely(&lab, &[&["--force-root", "--data-dir", &path], args].concat(), &when);
            Manifest::of(&dir).assert_is(&before, &when);
        }
        row.done();
    }
}

/// Paths with many parts or bytes, of steps, undos and snapshots. Every command ends in time.
#[test]
fn paths_with_many_parts_are_refused_or_ignored_in_time() {
    let mut row = Row::of(GOAL, "paths with many parts");
    let mut random = Random::new("long paths");
    let lab = Lab::new();
    lab.write("file", "one\n");
    lab.track();
    for case in 0..sized(20, 500) {
        let part = *random.pick(&["a", "..", ".", "", "é", "a\u{202e}"]);
        let count = 1 << random.below(15);
        let end = *random.pick(&["", "/", "/file", "\\"]);
        let path = format!("{}{end}", vec![part; count].join("/"));
        let path = if path.is_empty() { ".".to_owned() } else { path };
        let when = format!("case {case}: {count} × {part:?} and {end:?}");
        let commands: [&[&str]; 6] = [
            &["track", "--", &path],
            &["undo", "--dry-run", "--", &path],
            &["show", &format!("latest:{path}")],
            &["recover", "--list", &path],
            &["run", "--", "true", &path],
            &["blame", &path],
        ];
        let args = *random.pick(&commands);
        timely(&lab, args, &when);
        lab.ctrlz(&["verify"]).ok();
        row.done();
    }
}
