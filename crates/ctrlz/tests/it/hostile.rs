//! Malicious trees, and repositories that try to run code.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use ctrlz::{Error, ObjectId, Progress, StoreError, TrackOptions, Workspace};
use xtask::Row;

use crate::lab::{Lab, assert_same, exact, git, git_command, manifest};

/// Writes an object into the store verbatim, without git's checks.
fn plant(lab: &Lab, kind: &str, bytes: &[u8]) -> ObjectId {
    let mut child =
        git_command(&lab.store(), &["hash-object", "-t", kind, "-w", "--literally", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn entry(mode: &str, name: &[u8], id: ObjectId) -> Vec<u8> {
    [mode.as_bytes(), b" ", name, b"\0", id.as_bytes()].concat()
}

#[test]
fn hostile_trees_are_refused_before_the_first_write() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let blob = plant(&lab, "blob", b"evil");
    let tree = plant(&lab, "tree", &entry("100644", b"f", blob));
    let names: [&[u8]; 22] = [
        b".",
        b"..",
        b".git",
        b".GIT",
        b".gIt",
        ".g\u{200c}it".as_bytes(),
        b"git~1",
        b"GIT~1",
        b".git ",
        b".git.",
        b".git::$INDEX_ALLOCATION",
        b".git...:x",
        b"../outside",
        b"a/../../x",
        b"/abs",
        b"",
        b"a/b",
        b".git/hooks/x",
        b".hg",
        b".jj",
        b".svn",
        b".git\\x",
    ];
    let mut row = Row::of(8, "hostile trees, refused before the first write");
    let before = lab.manifest();
    let guard = crate::lab::manifest(lab.dir().join("work").parent().unwrap());
    for name in names {
        for (mode, id) in [
            ("100644", blob),
            ("100755", blob),
            ("120000", blob),
            ("40000", tree),
            ("160000", blob),
        ] {
            let leaf = plant(&lab, "tree", &entry(mode, name, id));
            let below = plant(&lab, "tree", &entry("40000", b"sub", leaf));
            for hash in [leaf, below] {
                let result = lab.try_restore(hash, &exact());
                assert!(
                    matches!(result, Err(Error::Store(StoreError::HostileTree { .. }))),
                    "{mode} {:?}: {result:?}",
                    String::from_utf8_lossy(name)
                );
                row.done();
            }
        }
    }
    assert_same(&lab.manifest(), &before, "nothing was written");
    let mut after = crate::lab::manifest(lab.dir());
    after.0.retain(|path, _| !path.starts_with(b"data"));
    let mut guard = guard;
    guard.0.retain(|path, _| !path.starts_with(b"data"));
    assert_same(&after, &guard, "nothing was written outside either");
}

#[test]
fn contradictory_trees_are_refused() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let blob = plant(&lab, "blob", b"evil");
    let tree = plant(&lab, "tree", &entry("100644", b"f", blob));
    let link = plant(&lab, "blob", b".git/hooks");
    let mut row = Row::of(8, "hostile trees, refused before the first write");
    let cases = [
        [entry("100644", b"x", blob), entry("100644", b"x", blob)].concat(),
        [entry("100644", b"x", blob), entry("40000", b"x", tree)].concat(),
        [entry("120000", b"x", link), entry("40000", b"x", tree)].concat(),
        [entry("100644", b"b", blob), entry("100644", b"a", blob)].concat(),
        entry("100666", b"x", blob),
        b"100644 x\0short".to_vec(),
    ];
    for case in cases {
        let hash = plant(&lab, "tree", &case);
        let result = lab.try_restore(hash, &exact());
        assert!(matches!(result, Err(Error::Store(StoreError::HostileTree { .. }))), "{result:?}");
        row.done();
    }
    assert_eq!(lab.read("a"), "x");
}

#[test]
fn a_missing_object_stops_a_restore_before_the_first_write() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.write("z", "x");
    lab.track();
    let missing: ObjectId = "1234567890123456789012345678901234567890".parse().unwrap();
    let blob = plant(&lab, "blob", b"new");
    let hash = plant(
        &lab,
        "tree",
        &[entry("100644", b"a", blob), entry("100644", b"z", missing)].concat(),
    );
    let result = lab.try_restore(hash, &exact());
    assert!(matches!(result, Err(Error::Store(StoreError::Damaged { .. }))), "{result:?}");
    assert_eq!(lab.read("a"), "x");
}

#[test]
fn a_tree_bomb_is_refused() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    let blob = plant(&lab, "blob", b"x");
    let mut tree = plant(&lab, "tree", &ten(&|name| entry("100644", name, blob)));
    for _ in 0..9 {
        let inner = tree;
        tree = plant(&lab, "tree", &ten(&|name| entry("40000", name, inner)));
    }
    let result = lab.try_restore(tree, &exact());
    assert!(matches!(result, Err(Error::Store(StoreError::Bomb { .. }))), "{result:?}");
    assert_eq!(lab.manifest().0.len(), 1);
}

fn ten(make: &dyn Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    (0..10).flat_map(|digit| make(format!("{digit}").as_bytes())).collect()
}

#[test]
fn a_decompression_bomb_is_refused() {
    let lab = Lab::new();
    lab.write("a", "x");
    lab.track();
    // A loose object whose header promises three gigabytes.
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"blob 3221225472\0").unwrap();
    encoder.write_all(&vec![0; 1 << 20]).unwrap();
    let id: ObjectId = "00000000000000000000000000000000000000aa".parse().unwrap();
    let dir = lab.store().join("objects/00");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("000000000000000000000000000000000000aa"), encoder.finish().unwrap())
        .unwrap();
    let hash = plant(&lab, "tree", &entry("100644", b"bomb", id));
    let result = lab.try_restore(hash, &exact());
    assert!(matches!(result, Err(Error::Store(StoreError::Damaged { .. }))), "{result:?}");
    assert!(!lab.exists("bomb"));
}

#[test]
fn hooks_filters_and_config_of_a_hostile_repository_are_never_used() {
    let lab = Lab::with_git(&[("a.txt", "one\r\n"), ("b", "x")]);
    let pwned = lab.dir().join("pwned");
    let touch = format!("touch {}", pwned.display());
    lab.write(
        ".gitattributes",
        "* filter=x diff=x merge=x text eol=crlf working-tree-encoding=UTF-16 ident export-subst\n",
    );
    lab.write(
        ".git/config",
        format!(
            "[core]\n\tfsmonitor = {touch}\n\thooksPath = hooks\n\tworktree = /\n\tbare = true\n\
             \tsshCommand = {touch}\n\tpager = {touch}\n[filter \"x\"]\n\tclean = {touch}\n\
             \tsmudge = {touch}\n[diff \"x\"]\n\ttextconv = {touch}\n[include]\n\tpath = /dev/zero\n"
        ),
    );
    lab.write(".git/hooks/post-checkout", format!("#!/bin/sh\n{touch}\n"));
    lab.chmod(".git/hooks/post-checkout", 0o755);
    let snapshot = lab.track();
    assert_eq!(snapshot.skipped, []);
    lab.write("a.txt", "two\r\n");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("a.txt"), "one\r\n", "raw bytes");
    assert!(!pwned.exists());
    let hooks = std::fs::read_dir(lab.store()).unwrap().any(|e| e.unwrap().file_name() == "hooks");
    assert!(!hooks, "no hook is copied into the store");
}

#[test]
fn malformed_dot_git_entries_do_not_break_snapshots() {
    let cases: [&dyn Fn(&Lab); 6] = [
        &|lab| lab.write(".git", "gitdir: /etc\n"),
        &|lab| lab.write(".git", "gitdir: ../../..\n"),
        &|lab| drop(crate::lab::run(&lab.root(), "mkfifo", &[".git".as_ref()])),
        &|lab| lab.link(".git", ".git"),
        &|lab| lab.write(".git", "x".repeat(1 << 20)),
        &|lab| {
            lab.write(".git/HEAD", "ref: ../../etc/passwd\n");
            std::fs::create_dir_all(lab.path(".git/objects/info")).unwrap();
            let fifo = lab.path(".git/objects/info/alternates");
            crate::lab::run(&lab.root(), "mkfifo", &[fifo.as_os_str()]);
            lab.write(".git/index", "DIRC garbage");
        },
    ];
    for (number, make) in cases.iter().enumerate() {
        let lab = Lab::new();
        lab.write("a", "x");
        make(&lab);
        let snapshot = lab.track();
        assert_eq!(snapshot.files, 1, "case {number}");
    }
}

#[test]
fn symlinks_to_directories_are_not_followed() {
    let lab = Lab::new();
    let outside = lab.dir().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "do not store me").unwrap();
    lab.link(outside.to_str().unwrap(), "d");
    lab.link("/proc/self/root", "root");
    lab.link("b", "loop");
    lab.link("loop", "b");
    lab.link(&"x".repeat(4000), "long");
    let snapshot = lab.track();
    assert_eq!(snapshot.files, 5);
    for file in lab.workspace().files(&snapshot.hash).unwrap() {
        let bytes = lab.workspace().file_at(&snapshot.hash, &file.path).unwrap();
        assert!(!bytes.starts_with(b"do not"), "{}", file.path);
    }
}

#[test]
fn the_files_of_the_sha1_collision_pair_are_not_confused() {
    // The first 320 bytes of the two published colliding files differ but have the same SHA-1.
    let (one, two) = crate::hostile::shattered();
    let lab = Lab::new();
    lab.write("good", "x");
    lab.write("one", one);
    lab.write("two", two);
    let snapshot = lab.track();
    let reasons: Vec<_> = snapshot.skipped.iter().map(|skipped| &skipped.reason).collect();
    assert_eq!(snapshot.files + reasons.len() as u64, 3);
    let before = lab.manifest();
    lab.restore_exact(snapshot.hash);
    assert_same(&lab.manifest(), &before, "both keep their content");
}

/// Prefixes of the SHAttered files, which make any equal suffix collide as raw SHA-1.
fn shattered() -> (Vec<u8>, Vec<u8>) {
    const COMMON: &str = "255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e6774682038203020522f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d3120697320646561642121212121852fec092339759c39b1a1c63c4c97e1fffe01";
    const ONE: &str = "7f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df614f86db1690901c56b45c1530afedfb76038e972722fe7ad728f0e4904e046c230570fe9d41398abe12ef5bc942be33542a4802d98b5d70f2a332ec37fac3514e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1";
    const TWO: &str = "7346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de218f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f0e332edf93ac3500eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1";
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
            .collect()
    };
    ([bytes(COMMON), bytes(ONE)].concat(), [bytes(COMMON), bytes(TWO)].concat())
}

#[test]
fn the_users_repository_is_never_written() {
    let lab = Lab::with_git(&[("a", "one"), ("dir/b", "two"), (".gitignore", "*.log\n")]);
    let before = crate::lab::manifest(&lab.path(".git"));
    let hash = lab.hash();
    lab.write("a", "changed");
    lab.write("new", "x");
    lab.remove("dir");
    lab.restore_exact(hash);
    lab.workspace().patch(&hash, &Progress::default()).unwrap();
    lab.workspace().copy_borrowed(u64::MAX).unwrap();
    lab.workspace().maintenance().verify(&Progress::default()).unwrap();
    lab.workspace()
        .track(&TrackOptions { rehash: true, ..Default::default() }, &Progress::default())
        .unwrap();
    assert_same(&crate::lab::manifest(&lab.path(".git")), &before, "byte for byte");
    assert_eq!(git(&lab.root(), &["status", "--porcelain"]), "");
}

#[test]
fn ignore_rules_below_git_are_not_read_through_a_link() {
    for link in [".git/info/exclude", ".git/info"] {
        let lab = Lab::with_git(&[("f", "a\n")]);
        let secret = lab.dir().join("elsewhere");
        std::fs::create_dir(&secret).unwrap();
        std::fs::write(secret.join("exclude"), "machine example.com password SECRET-9f3\n")
            .unwrap();
        std::fs::remove_dir_all(lab.path(".git/info")).ok();
        match link {
            ".git/info" => std::os::unix::fs::symlink(&secret, lab.path(link)).unwrap(),
            _ => {
                std::fs::create_dir(lab.path(".git/info")).unwrap();
                std::os::unix::fs::symlink(secret.join("exclude"), lab.path(link)).unwrap();
            }
        }
        lab.track();
        let log = lab.store_git(&["log", "--all", "--format=%H"]);
        for commit in log.lines() {
            let text = lab.store_git(&["cat-file", "commit", commit]);
            assert!(!text.contains("SECRET-9f3"), "{link}: {text}");
        }
    }
}

#[test]
fn a_store_that_links_to_another_repository_is_set_aside_without_changes_there() {
    let dirs = ["objects", "objects/pack", "objects/info", "refs", "ctrlz/wt", "info"];
    for dir in dirs {
        let mut lab = Lab::with_git(&[("f", "a\n")]);
        lab.options.store = Some(".agent/snapshots".into());
        lab.track();
        lab.write("f", "b\n");
        let store = lab.path(".agent/snapshots");
        let target = lab.path(".git").join(if dir.starts_with("objects") { dir } else { "refs" });
        std::fs::remove_dir_all(store.join(dir)).unwrap();
        std::os::unix::fs::symlink(&target, store.join(dir)).unwrap();
        let before = manifest(&lab.path(".git"));
        let tracked = Workspace::open(&lab.root(), lab.options.clone())
            .and_then(|open| open.track(&TrackOptions::default(), &Progress::default()));
        assert!(tracked.is_ok(), "{dir}: {tracked:?}");
        assert!(!lab.path(".agent/snapshots").join(dir).is_symlink(), "{dir}");
        assert_same(&manifest(&lab.path(".git")), &before, dir);
    }
    let mut lab = Lab::with_git(&[("f", "a\n")]);
    lab.options.store = Some(".agent/snapshots".into());
    lab.track();
    lab.write(".agent/snapshots/commondir", "../../.git\n");
    lab.workspace().track(&TrackOptions::default(), &Progress::default()).unwrap();
    assert!(!lab.path(".agent/snapshots/commondir").exists());
}

/// Returns the text of a journal with one unit.
fn journal(phase: &str, unit: &str, modes: &str) -> String {
    let id = "0".repeat(40);
    format!(
        r#"{{"version":1,"phase":"{phase}","target":null,"safety":"{id}","units":[{unit}],
            "modes":[{modes}],"emptied":[],"record":null}}"#
    )
}

/// A `git pull` can write to a store inside the project.
#[test]
fn a_forged_journal_is_set_aside_and_reported() {
    let unit = |path: &str, temporary: &str| {
        format!(
            r#"{{"path":"{path}","temporary":"{temporary}","staged":null,"has_new":true,"old":null}}"#
        )
    };
    let ours = ".ctrlz-0123456789abcdef-0";
    let mode = |path: &str| format!(r#"{{"path":"{path}","from":420,"to":511,"is_dir":false}}"#);
    let forged = [
        journal("Staging", &unit("x", "../precious"), ""),
        journal("Staging", &unit("x", "kept"), ""),
        journal("Staging", &unit("x", ".ctrlz-0123456789abcdef-0/../kept"), ""),
        journal("Staging", &unit("../x", ours), ""),
        journal("Staging", &unit(".git/x", ours), ""),
        journal("RollingBack", "", &mode(".git/config")),
        journal("Swapping", "", &mode(".git/config")),
        journal("Swapping", "", &mode("../precious")),
        journal("Swapping", "", "").replace(r#""emptied":[]"#, r#""emptied":["../empty"]"#),
    ];
    for text in forged {
        let lab = Lab::with_git(&[("kept", "1\n")]);
        lab.track();
        let (precious, empty) = (lab.dir().join("precious"), lab.dir().join("empty"));
        std::fs::write(&precious, "precious\n").unwrap();
        std::fs::create_dir(&empty).unwrap();
        let config = lab.path(".git/config");
        let modes = |path: &std::path::Path| path.metadata().unwrap().permissions().mode();
        let before = (modes(&precious), modes(&config));
        let wt = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap().unwrap();
        for _ in 0..2 {
            std::fs::write(wt.path().join("restore.journal"), &text).unwrap();
            lab.write("kept", "2\n");
            lab.track();
            assert!(!wt.path().join("restore.journal").exists(), "{text}");
        }
        assert_eq!(lab.read("kept"), "2\n", "{text}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious\n", "{text}");
        assert!(empty.exists(), "{text}");
        assert_eq!((modes(&precious), modes(&config)), before, "{text}");
        assert_eq!(lab.workspace().status().unwrap().damaged_packs.len(), 2, "{text}");
        let verified = lab.workspace().maintenance().verify(&Progress::default()).unwrap();
        assert_eq!(verified.problems.len(), 2, "{verified:?}");
        lab.workspace().maintenance().repair(&Progress::default()).unwrap();
        assert!(lab.workspace().status().unwrap().damaged_packs.is_empty(), "{text}");
    }
}
