//! Unusual file names and paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ctrlz::{Options, Progress, TrackOptions, Workspace};
use xtask::{Random, Row, sized};

use crate::lab::{Lab, assert_fsck_clean, assert_same};

/// Takes a snapshot, removes everything, restores it and compares.
fn check_round_trip(lab: &Lab) {
    let before = lab.manifest();
    let snapshot = lab.track();
    assert_eq!(snapshot.skipped, []);
    let names: Vec<_> = std::fs::read_dir(lab.root()).unwrap().map(|e| e.unwrap().path()).collect();
    for path in names {
        if path.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(&path).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let report = lab.restore(snapshot.hash);
    assert!(report.is_complete(), "{report:?}");
    assert_same(&lab.manifest(), &before, "round trip");
    assert_fsck_clean(&lab.store());
}

#[test]
fn unusual_file_names_survive_a_round_trip() {
    let lab = Lab::new();
    let names: [&[u8]; 30] = [
        b"new\nline",
        b"tab\t",
        b"quote\"",
        b"back\\slash",
        b"$(id)",
        b"`id`",
        b"*",
        b"?",
        b"<>|",
        b" lead",
        b"trail ",
        b"dot.",
        b"-rf",
        b"--help",
        b"\x1b[31m",
        b"\x07",
        b"\xe2\x80\xae",
        b"\xff\xfe\x80",
        b"CON",
        b"aux.c",
        b"a:b",
        b"...",
        b"HEAD",
        b"index.lock",
        b".ctrlz-0011223344556677-0",
        "日本".as_bytes(),
        "e\u{301}".as_bytes(),
        "é".as_bytes(),
        b":(top)x",
        b"Foo",
    ];
    for name in names {
        std::fs::write(lab.root().join(OsStr::from_bytes(name)), name).unwrap();
    }
    lab.write("foo", "another file than Foo");
    check_round_trip(&lab);
}

#[test]
fn random_file_names_survive_a_round_trip() {
    let lab = Lab::new();
    let mut random = Random::new("names");
    let mut row = Row::of(11, "names of random bytes");
    let count = sized(1_000, 10_000);
    let mut made = 0;
    while made < count {
        let length = random.below(255) + 1;
        let name: Vec<u8> =
            (0..length).map(|_| random.byte()).filter(|b| !matches!(b, b'/' | 0)).collect();
        let usable = ctrlz::TreePath::parse(&name).is_ok() && name != b".gitignore";
        if usable && std::fs::write(lab.root().join(OsStr::from_bytes(&name)), "x").is_ok() {
            made += 1;
        }
    }
    check_round_trip(&lab);
    row.add(made);
}

#[test]
fn paths_longer_than_path_max_survive_a_round_trip() {
    let mut row = Row::of(11, "bytes of one path");
    let lab = Lab::new();
    // 40 directories of 200 bytes each, made step by step.
    let script = "for i in $(seq 40); do d=$(printf '%0200d' $i); mkdir $d && cd $d; done; \
                  echo deep > file; echo one > other";
    crate::lab::run(&lab.root(), "bash", &["-c".as_ref(), script.as_ref()]);
    let first = lab.track();
    assert_eq!((first.files, first.skipped.len()), (2, 0));
    let change =
        "for i in $(seq 40); do cd $(printf '%0200d' $i); done; echo changed > file; rm other";
    crate::lab::run(&lab.root(), "bash", &["-c".as_ref(), change.as_ref()]);
    assert_ne!(lab.hash(), first.hash);
    let report = lab.restore(first.hash);
    assert!(report.is_complete());
    assert_eq!(lab.hash(), first.hash);
    let read = "for i in $(seq 40); do cd $(printf '%0200d' $i); done; cat file other";
    let text = crate::lab::run(&lab.root(), "bash", &["-c".as_ref(), read.as_ref()]);
    assert_eq!(text, b"deep\none\n");
    crate::lab::run(&lab.root(), "rm", &["-rf".as_ref(), format!("{:0200}", 1).as_ref()]);
    let report = lab.restore(first.hash);
    assert!(report.is_complete(), "the whole chain of directories is recreated");
    assert_eq!(lab.hash(), first.hash);
    row.add(40 * 201);
    crate::lab::run(&lab.root(), "rm", &["-rf".as_ref(), format!("{:0200}", 1).as_ref()]);
}

#[test]
fn thousands_of_directory_levels_survive_a_round_trip() {
    let lab = Lab::new();
    let mut row = Row::of(11, "levels of directories");
    let levels = sized(1_500, 5_000);
    // Not a shell script, because a shell resolves the whole path at every `cd`.
    let script = format!(
        "import os\nfor _ in range({levels}):\n os.mkdir('d'); os.chdir('d')\nopen('file', 'w').write('deep')"
    );
    crate::lab::run(&lab.root(), "python3", &["-c".as_ref(), script.as_ref()]);
    let first = lab.track();
    assert_eq!((first.files, first.skipped.len()), (1, 0));
    crate::lab::run(&lab.root(), "rm", &["-rf".as_ref(), "d".as_ref()]);
    let report = lab.restore(first.hash);
    assert!(report.is_complete());
    assert_eq!(lab.hash(), first.hash);
    row.add(levels);
    lab.write("e", "x");
    crate::lab::run(&lab.root(), "rm", &["-rf".as_ref(), "d".as_ref()]);
}

#[test]
fn a_work_tree_with_an_unusual_name_is_the_same_through_any_path() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join(OsStr::from_bytes(b"odd \n:\xff name"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("f"), "one").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    let options = Options::new(dir.path().join("data"));
    let open = |path: &std::path::Path| Workspace::open(path, options.clone()).unwrap();
    let direct = open(&root);
    let hash = direct.track(&TrackOptions::default(), &Progress::default()).unwrap().hash;
    for path in [link.clone(), root.join("."), dir.path().join("link/../link")] {
        let other = open(&path);
        assert_eq!(other.root(), direct.root());
        let snapshot = other.track(&TrackOptions::default(), &Progress::default()).unwrap();
        assert_eq!((snapshot.hash, snapshot.changed), (hash, false), "{path:?}");
    }
}
