//! Borrowing objects from the user's repository: fast, and never with wrong content.

use std::time::Duration;

use ctrlz::{ObjectId, Progress, TrackOptions};

use crate::lab::{Lab, assert_fsck_clean, git};

/// Returns a repository whose index is old enough to be trusted.
fn committed(files: &[(&str, &str)]) -> Lab {
    let lab = Lab::new();
    lab.git(&["init", "-q", "-b", "main"]);
    for (path, text) in files {
        lab.write(path, text);
    }
    commit_all(&lab);
    lab
}

/// Commits everything, with pauses so that timestamps are unambiguous.
fn commit_all(lab: &Lab) {
    std::thread::sleep(Duration::from_millis(40));
    lab.git(&["add", "-A", "-f"]);
    lab.git(&["commit", "-q", "-m", "x", "--allow-empty"]);
    std::thread::sleep(Duration::from_millis(40));
}

/// Waits until the lock on borrowed objects is free. A process that another test is about to start
/// may hold an inherited descriptor for a moment. Reads `/proc/locks`, because a descriptor opened
/// here could be inherited as well.
fn wait_for_copying(lab: &Lab) {
    use std::os::unix::fs::MetadataExt;
    let work_tree = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap();
    let lock = work_tree.unwrap().path().join("loans.lock").metadata().unwrap();
    let inode = format!(":{} ", lock.ino());
    let start = std::time::Instant::now();
    while std::fs::read_to_string("/proc/locks").unwrap().contains(&inode) {
        assert!(start.elapsed() < Duration::from_secs(60), "the lock is still held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the hash of a snapshot without borrowing, in a separate store.
fn hash_without_borrowing(lab: &Lab) -> ObjectId {
    let mut options = lab.options.clone();
    options.seed = false;
    options.data_dir = lab.dir().join("honest");
    let workspace = ctrlz::Workspace::open(&lab.root(), options).unwrap();
    workspace.track(&TrackOptions::default(), &Progress::default()).unwrap().hash
}

#[test]
fn unchanged_files_are_borrowed_and_changed_ones_read() {
    let lab = committed(&[("a", "one"), ("dir/b", "two"), ("c", "three")]);
    lab.link("a", "link");
    commit_all(&lab);
    lab.write("c", "changed");
    lab.write("new", "x");
    let snapshot = lab.track();
    assert_eq!((snapshot.borrowed, snapshot.files_read), (3, 2));
    assert_eq!(snapshot.hash, hash_without_borrowing(&lab));
    assert_fsck_clean(&lab.store());
}

#[test]
fn borrowed_objects_survive_a_history_rewrite_and_gc_of_the_user() {
    let lab = committed(&[("a", "only in this commit"), ("b", "x")]);
    let snapshot = lab.track();
    assert!(snapshot.borrowed > 0);
    assert_eq!(lab.workspace().copy_borrowed(u64::MAX).unwrap(), 0);
    assert_eq!(lab.workspace().status().unwrap().borrowed, 0);
    lab.write("a", "rewritten");
    lab.git(&["commit", "-q", "-a", "--amend", "-m", "y"]);
    lab.git(&["reflog", "expire", "--expire=now", "--all"]);
    lab.git(&["gc", "-q", "--prune=now"]);
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("a"), "only in this commit");
    std::fs::remove_dir_all(lab.path(".git")).unwrap();
    assert_fsck_clean(&lab.store());
}

#[test]
fn the_next_snapshot_finishes_copying_borrowed_objects() {
    let lab = committed(&[("a", "one"), ("b", "two")]);
    assert_eq!(lab.track().borrowed, 2);
    assert_eq!(lab.workspace().copy_borrowed(1).unwrap(), 1, "stops at the byte limit");
    wait_for_copying(&lab);
    lab.track();
    assert_eq!(lab.workspace().status().unwrap().borrowed, 0);
    let alternates = lab.store().join("objects/info/alternates");
    assert_eq!(std::fs::read(alternates).unwrap(), b"");
    std::fs::remove_dir_all(lab.path(".git")).unwrap();
    assert_fsck_clean(&lab.store());
}

#[test]
fn objects_that_the_user_repository_lost_are_read_from_the_work_tree() {
    let lab = committed(&[("a", "one"), ("b", "two")]);
    let first = lab.track();
    assert!(first.borrowed > 0);
    std::fs::remove_dir_all(lab.path(".git/objects")).unwrap();
    std::fs::create_dir(lab.path(".git/objects")).unwrap();
    let again = lab.track();
    assert_eq!(again.hash, first.hash);
    lab.write("a", "broken");
    lab.restore(first.hash);
    assert_eq!(lab.read("a"), "one", "read from the work tree because the repository lost it");
    assert_fsck_clean(&lab.store());
}

#[test]
fn filters_and_attributes_never_affect_a_snapshot() {
    for attributes in [
        "* text=auto\n",
        "* eol=crlf\n",
        "* ident\n",
        "a filter=rot13\n",
        "* working-tree-encoding=UTF-16\n",
        "[attr]secret filter=rot13\na secret\n",
    ] {
        let lab = Lab::new();
        lab.git(&["init", "-q"]);
        lab.git(&["config", "filter.rot13.clean", "tr a-z n-za-m"]);
        lab.git(&["config", "filter.rot13.smudge", "tr a-z n-za-m"]);
        lab.git(&["config", "core.autocrlf", "input"]);
        let text = if attributes.contains("UTF-16") { "\u{feff}x\n" } else { "abc $Id$\r\n" };
        lab.write("a", if attributes.contains("rot13") { "abc\n" } else { text });
        if !attributes.contains("UTF-16") {
            lab.write(".gitattributes", attributes);
        }
        commit_all(&lab);
        lab.write(".gitattributes", attributes);
        let snapshot = lab.track();
        let bytes = lab.workspace().file_at(&snapshot.hash, &crate::lab::tree_path("a")).unwrap();
        assert_eq!(bytes, std::fs::read(lab.path("a")).unwrap(), "{attributes:?}");
        assert_eq!(snapshot.hash, hash_without_borrowing(&lab), "{attributes:?}");
    }
}

#[test]
fn index_flags_that_hide_changes_from_git_do_not_affect_snapshots() {
    let lab = committed(&[("assumed", "one"), ("skipped", "one"), ("intended", "one")]);
    lab.git(&["update-index", "--assume-unchanged", "assumed"]);
    lab.git(&["update-index", "--skip-worktree", "skipped"]);
    lab.git(&["rm", "-q", "--cached", "intended"]);
    lab.git(&["add", "-N", "intended"]);
    lab.write("assumed", "two");
    lab.write("skipped", "two");
    std::thread::sleep(Duration::from_millis(40));
    let snapshot = lab.track();
    let read =
        |path| lab.workspace().file_at(&snapshot.hash, &crate::lab::tree_path(path)).unwrap();
    assert_eq!(
        (read("assumed"), read("skipped"), read("intended")),
        (b"two".to_vec(), b"two".to_vec(), b"one".to_vec())
    );
    assert_eq!(snapshot.hash, hash_without_borrowing(&lab));
}

#[test]
fn unusual_index_formats_are_read_or_ignored() {
    let variants: [(&str, &[&[&str]]); 5] = [
        ("split", &[&["update-index", "--split-index"]]),
        ("v4", &[&["update-index", "--index-version", "4"]]),
        ("untracked cache", &[&["update-index", "--untracked-cache"]]),
        ("unmerged", &[]),
        ("skip hash", &[&["-c", "index.skipHash=true", "update-index", "--force-write-index"]]),
    ];
    for (name, commands) in variants {
        let lab = committed(&[
            ("a", "one"),
            ("dir/b", "two"),
            (".gitignore", "ignored\n"),
            ("ignored", "but tracked"),
        ]);
        for command in commands {
            lab.git(command);
        }
        if name == "unmerged" {
            let id = lab.git(&["hash-object", "-w", "a"]);
            let id = id.trim();
            let lines = format!("0 {} 0\tc\n100644 {id} 1\tc\n100644 {id} 2\tc\n", "0".repeat(40));
            let file = lab.dir().join("lines");
            std::fs::write(&file, lines).unwrap();
            let script = format!("git update-index --index-info < {}", file.display());
            crate::lab::run(&lab.root(), "bash", &["-c".as_ref(), script.as_ref()]);
            lab.write("c", "conflict");
        }
        let snapshot = lab.track();
        assert_eq!(snapshot.hash, hash_without_borrowing(&lab), "{name}");
        let files = lab.workspace().files(&snapshot.hash).unwrap();
        assert!(files.iter().any(|file| file.path.to_string() == "ignored"), "{name}");
    }
}

#[test]
fn a_sha256_repository_is_captured_without_borrowing() {
    let lab = Lab::new();
    lab.git(&["init", "-q", "--object-format=sha256"]);
    lab.write(".gitignore", "ignored\n");
    lab.write("ignored", "but tracked");
    lab.write("a", "one");
    commit_all(&lab);
    let snapshot = lab.track();
    assert_eq!((snapshot.files, snapshot.borrowed), (3, 0));
    lab.write("a", "two");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("a"), "one");
}

#[test]
fn a_restore_does_not_fill_a_sparse_checkout() {
    let lab = committed(&[("in/a", "one"), ("out/b", "two")]);
    lab.git(&["sparse-checkout", "set", "in"]);
    assert!(!lab.exists("out"));
    let snapshot = lab.track();
    assert_eq!(snapshot.files, 1);
    lab.write("in/a", "changed");
    lab.restore_exact(snapshot.hash);
    assert!(!lab.exists("out"));
}

#[test]
fn objects_are_borrowed_from_packed_and_delta_compressed_repositories() {
    let lab = committed(&[
        ("a", &"line\n".repeat(500)),
        ("b", &format!("{}end\n", "line\n".repeat(500))),
    ]);
    lab.git(&["gc", "-q", "--aggressive"]);
    let snapshot = lab.track();
    assert_eq!(snapshot.borrowed, 2);
    lab.workspace().copy_borrowed(u64::MAX).unwrap();
    std::fs::remove_dir_all(lab.path(".git")).unwrap();
    lab.write("a", "x");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("a"), "line\n".repeat(500));
    assert_fsck_clean(&lab.store());
}

#[test]
fn objects_are_borrowed_from_a_clone_with_alternates() {
    let lab = committed(&[("a", "one")]);
    let clone = lab.dir().join("clone");
    git(lab.dir(), &["clone", "-q", "--shared", "work", "clone"]);
    std::thread::sleep(Duration::from_millis(40));
    let workspace = ctrlz::Workspace::open(&clone, lab.options.clone()).unwrap();
    let snapshot = workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
    assert_eq!(workspace.copy_borrowed(u64::MAX).unwrap(), 0);
    assert_eq!(workspace.file_at(&snapshot.hash, &crate::lab::tree_path("a")).unwrap(), b"one");
}

#[test]
fn copying_borrowed_objects_does_not_need_the_work_tree_lock() {
    let lab = committed(&[("a", "one"), ("b", "two")]);
    assert_eq!(lab.track().borrowed, 2);
    let work_tree = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap();
    let lock = std::fs::File::open(work_tree.unwrap().path().join("lock")).unwrap();
    lock.lock().unwrap();
    let packs = || std::fs::read_dir(lab.store().join("objects/pack")).unwrap().count();
    let before = packs();
    let workspace = lab.workspace();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| workspace.copy_borrowed(u64::MAX));
        let start = std::time::Instant::now();
        while packs() == before {
            assert!(start.elapsed() < Duration::from_secs(20), "the copy waits for the work tree");
            std::thread::sleep(Duration::from_millis(5));
        }
        lock.unlock().unwrap();
        assert_eq!(copying.join().unwrap().unwrap(), 0);
    });
    std::fs::remove_dir_all(lab.path(".git")).unwrap();
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_snapshot_leaves_borrowed_objects_that_another_process_is_copying() {
    let lab = committed(&[("a", "one"), ("b", "two")]);
    assert_eq!(lab.track().borrowed, 2);
    let work_tree = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap().next().unwrap();
    let lock = std::fs::File::create(work_tree.unwrap().path().join("loans.lock")).unwrap();
    lock.lock().unwrap();
    lab.write("a", "changed");
    assert_eq!(lab.track().borrowed, 2);
    assert_eq!(lab.workspace().copy_borrowed(u64::MAX).unwrap(), 2);
    lock.unlock().unwrap();
    assert_eq!(lab.workspace().copy_borrowed(u64::MAX).unwrap(), 0);
}

/// Sets the blob id of `path` in the index to that of `other` and keeps the stat data.
fn forge(lab: &Lab, path: &str, other: &str) {
    let id = |path: &str| {
        let text = lab.git(&["rev-parse", &format!(":{path}")]);
        text.trim().parse::<ObjectId>().unwrap().as_bytes().to_vec()
    };
    let index = lab.path(".git/index");
    let mut bytes = std::fs::read(&index).unwrap();
    let (old, new) = (id(path), id(other));
    let at = bytes.windows(20).position(|window| window == old).unwrap();
    bytes[at..at + 20].copy_from_slice(&new);
    std::thread::sleep(Duration::from_millis(40));
    std::fs::write(&index, bytes).unwrap();
}

#[test]
fn an_index_with_a_wrong_blob_id_is_noticed_at_the_first_snapshot() {
    let lab = committed(&[("dir/f", "AAAA"), ("g", "BBBB"), ("h", "other")]);
    forge(&lab, "dir/f", "g");
    let snapshot = lab.track();
    assert_eq!(snapshot.hash, hash_without_borrowing(&lab));
    assert_eq!((snapshot.borrowed, snapshot.files_read), (0, 3));
    assert_eq!(snapshot.wrong_index.as_deref(), Some("dir/f"));
    assert_eq!(lab.store_git(&["show", &format!("{}:dir/f", snapshot.hash)]), "AAAA");
    assert_eq!(lab.workspace().status().unwrap().wrong_index.as_deref(), Some("dir/f"));
    assert_eq!(lab.track().wrong_index, None, "reported once");
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_damaged_object_of_the_user_is_not_borrowed() {
    let lab = committed(&[("f", "PRECIOUS"), ("g", "other")]);
    let id = lab.git(&["rev-parse", "HEAD:f"]);
    let (dir, name) = id.trim().split_at(2);
    let object = lab.path(&format!(".git/objects/{dir}/{name}"));
    std::fs::remove_file(&object).unwrap();
    let mut forged = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut forged, b"blob 8\0REPLACED").unwrap();
    std::fs::write(&object, forged.finish().unwrap()).unwrap();
    let snapshot = lab.track();
    assert_eq!(snapshot.wrong_index.as_deref(), Some("f"));
    lab.remove("f");
    lab.restore(snapshot.hash);
    assert_eq!(lab.read("f"), "PRECIOUS");
}

#[test]
fn a_wrong_blob_id_that_the_sample_misses_is_noticed_when_blobs_are_copied() {
    let names: Vec<(String, String)> =
        (0..1_500).map(|at| (format!("d{}/f{at}", at % 30), format!("{at:08}"))).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    // The sample finds it in one of 23 runs.
    for copy_at_next_snapshot in [false, true] {
        let lab = committed(&files);
        forge(&lab, "d7/f7", "d8/f8");
        lab.track();
        if !copy_at_next_snapshot {
            lab.workspace().copy_borrowed(u64::MAX).unwrap();
        }
        let mut now = lab.track();
        // A snapshot copies at most 1,000 blobs.
        while now.borrowed > 0 {
            now = lab.track();
        }
        assert_eq!(now.hash, hash_without_borrowing(&lab));
        assert_eq!(lab.workspace().status().unwrap().wrong_index.as_deref(), Some("d7/f7"));
        assert_eq!(lab.store_git(&["show", &format!("{}:d7/f7", now.hash)]), "00000007");
        assert_fsck_clean(&lab.store());
    }
}

#[test]
fn a_wrong_blob_id_of_a_blob_that_the_store_holds_is_noticed_too() {
    let names: Vec<(String, String)> =
        (0..1_500).map(|at| (format!("f{at}"), format!("{at:08}"))).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let lab = committed(&files);
    lab.track();
    lab.workspace().copy_borrowed(u64::MAX).unwrap();
    // A second clone shares the store.
    let mut clone = Lab::new();
    clone.options = lab.options.clone();
    git(clone.dir(), &["clone", "-q", lab.root().to_str().unwrap(), "work"]);
    std::thread::sleep(Duration::from_millis(40));
    forge(&clone, "f7", "f8");
    clone.track();
    clone.workspace().copy_borrowed(u64::MAX).unwrap();
    assert_eq!(clone.track().hash, hash_without_borrowing(&clone));
    assert_eq!(clone.workspace().status().unwrap().wrong_index.as_deref(), Some("f7"));
}

#[test]
fn a_step_is_not_credited_with_the_correction_of_a_wrong_index() {
    let names: Vec<(String, String)> =
        (0..900).map(|at| (format!("f{at}"), format!("{at:08}"))).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let lab = committed(&files);
    forge(&lab, "f7", "f8");
    // Ending the step copies the objects that its beginning borrowed.
    lab.step("s", "m", "1", |lab| lab.write("f1", "by the step"));
    assert_eq!(lab.workspace().status().unwrap().wrong_index.as_deref(), Some("f7"));
    lab.undo();
    assert_eq!((lab.read("f1").as_str(), lab.read("f7").as_str()), ("00000001", "00000007"));
    assert_eq!(lab.track().hash, hash_without_borrowing(&lab));
}

#[test]
fn a_correct_index_is_not_reported_as_wrong() {
    let names: Vec<(String, String)> =
        (0..200).map(|at| (format!("f{at}"), format!("{at:08}"))).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let lab = committed(&files);
    lab.write("f3", "changed!");
    let first = lab.track();
    assert_eq!((first.borrowed, first.wrong_index), (199, None));
    lab.write("f4", "changed!");
    assert_eq!(lab.workspace().copy_borrowed(u64::MAX).unwrap(), 0);
    assert_eq!(lab.workspace().status().unwrap().wrong_index, None);
    let read = lab.track().files_read;
    assert!(read <= 2, "only recently written files are read again, not {read}");
}
