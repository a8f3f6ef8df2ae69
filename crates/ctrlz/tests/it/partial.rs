//! Partial snapshots: the previous snapshot with the named paths replaced.

use ctrlz::{Progress, Snapshot, TrackOptions};

use crate::lab::{Lab, assert_fsck_clean, tree_path};

fn track_paths(lab: &Lab, paths: &[&str]) -> Snapshot {
    let paths = paths.iter().map(|path| tree_path(path)).collect();
    let options = TrackOptions { paths, ..TrackOptions::default() };
    lab.workspace().track(&options, &Progress::default()).unwrap()
}

fn files(lab: &Lab, snapshot: &Snapshot) -> Vec<(String, String)> {
    let workspace = lab.workspace();
    let read = |file: &ctrlz::ListedFile| {
        let bytes = workspace.file_at(&snapshot.hash, &file.path).unwrap();
        (file.path.to_string(), String::from_utf8(bytes).unwrap())
    };
    workspace.files(&snapshot.hash).unwrap().iter().map(read).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn only_the_named_paths_are_scanned() {
    let lab = Lab::new();
    lab.write("a", "1");
    lab.write("b", "1");
    lab.write("d/x", "1");
    lab.write("d/y", "1");
    lab.track();
    for path in ["a", "b", "d/x", "d/new"] {
        lab.write(path, "2");
    }
    lab.remove("d/y");
    assert_eq!(
        files(&lab, &track_paths(&lab, &["a"])),
        pairs(&[("a", "2"), ("b", "1"), ("d/x", "1"), ("d/y", "1")])
    );
    let snapshot = track_paths(&lab, &["d"]);
    assert_eq!(
        files(&lab, &snapshot),
        pairs(&[("a", "2"), ("b", "1"), ("d/new", "2"), ("d/x", "2")])
    );
    lab.remove("b");
    let last = track_paths(&lab, &["b"]);
    assert_eq!(last.hash, lab.hash(), "every change has been named");
    assert_fsck_clean(&lab.store());
}

#[test]
fn unchanged_paths_record_no_snapshot() {
    let lab = Lab::new();
    lab.write("a", "1");
    lab.write("d/b", "1");
    let hash = lab.hash();
    let again = track_paths(&lab, &["a", "d", "nowhere/x"]);
    assert_eq!((again.hash, again.changed), (hash, false));
}

#[test]
fn a_named_file_is_captured_although_ignored_and_large() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 5;
    lab.write(".gitignore", ".env\n");
    lab.write(".env", "SECRET=12345");
    lab.chmod(".env", 0o600);
    lab.track();
    let snapshot = track_paths(&lab, &[".env"]);
    assert_eq!(snapshot.skipped, []);
    lab.remove(".env");
    lab.restore(snapshot.hash);
    assert_eq!((lab.read(".env").as_str(), lab.mode(".env")), ("SECRET=12345", 0o600));
}

#[test]
fn ignore_rules_of_parents_apply_in_a_named_directory() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.log\n");
    lab.write("a/.gitignore", "*.tmp\n");
    lab.write("a/b/keep", "1");
    lab.track();
    for path in ["a/b/x.log", "a/b/x.tmp", "a/b/x.c"] {
        lab.write(path, "1");
    }
    let partial = track_paths(&lab, &["a/b"]);
    assert_eq!(partial.hash, lab.hash());
}

#[test]
fn the_first_partial_snapshot_captures_everything() {
    let lab = Lab::new();
    lab.write("a", "1");
    lab.write("b", "1");
    assert_eq!(track_paths(&lab, &["a"]).files, 2);
}

#[test]
fn a_type_change_of_a_named_path_is_captured() {
    let lab = Lab::new();
    lab.write("x", "file");
    lab.track();
    lab.remove("x");
    lab.write("x/y", "inner");
    assert_eq!(track_paths(&lab, &["x"]).hash, lab.hash());
    lab.remove("x");
    lab.write("x", "file");
    assert_eq!(track_paths(&lab, &["x"]).hash, lab.hash());
}
