//! `ctrlz track`, and which work tree and store it uses.

use std::os::unix::fs::PermissionsExt;

use crate::bench::{Bench, contents, is_hash};

#[test]
fn track_prints_a_hash_and_nothing_else() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let ran = bench.run(&["track"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let text = ran.text();
    assert!(is_hash(text.strip_suffix('\n').unwrap()), "{text:?}");
}

#[test]
fn an_unchanged_work_tree_has_the_same_hash() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let first = bench.track();
    assert_eq!(bench.track(), first);
    assert_eq!(bench.ok(&["track", "--rehash"]), first);
    bench.write("a.txt", "two\n");
    assert_ne!(bench.track(), first);
}

#[test]
fn track_with_paths_updates_only_those_paths() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("b.txt", "one\n");
    bench.track();
    bench.write("a.txt", "two\n");
    bench.write("b.txt", "two\n");
    let hash = bench.ok(&["track", "--", "a.txt"]);
    assert_eq!(bench.ok(&["show", &format!("{hash}:a.txt")]), "two");
    assert_eq!(bench.ok(&["show", &format!("{hash}:b.txt")]), "one");
}

#[test]
fn files_skipped_by_policy_are_listed_without_an_error() {
    let bench = Bench::new();
    bench.write("small", "one\n");
    bench.write("large", &"x".repeat(2000));
    bench.write_home(".config/ctrlz/config.toml", "max_new_file_bytes = 1000\n");
    let ran = bench.run(&["track"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("skipped large: new and large (2000 bytes)"), "{ran:?}");
    assert!(ran.stderr.contains("1 path left out"), "{ran:?}");
}

#[test]
fn files_that_cannot_be_captured_make_the_snapshot_incomplete() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write("sub/.gitignore", &"# long\n".repeat(1 << 20));
    let ran = bench.run(&["track"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(is_hash(ran.text().trim_end()));
    assert!(ran.stderr.contains("skipped sub/.gitignore: an ignore file of"), "{ran:?}");
    assert!(ran.stderr.contains("1 of them because"), "{ran:?}");
    assert_eq!(bench.run(&["diff", ran.text().trim_end()]).code, 3);
    // Root can read every file, so this part applies only to other users.
    bench.write("locked", "secret\n");
    let locked = bench.project.join("locked");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::read(&locked).is_err() {
        let ran = bench.run(&["track"]);
        assert!(ran.stderr.contains("skipped locked: unreadable"), "{ran:?}");
    }
}

#[test]
fn a_sub_directory_tracks_the_whole_work_tree() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.write("sub/b.txt", "one\n");
    let hash = bench.track();
    assert_eq!(bench.ok(&["-C", "sub", "track"]), hash);
    assert_eq!(bench.ok(&["track", "-C", "sub"]), hash);
}

#[test]
fn snapshots_do_not_depend_on_the_users_git_repository() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("a.txt", "one\n");
    bench.git(&["add", "-A"]);
    bench.git(&["commit", "-q", "-m", "first"]);
    let before = contents(&bench.project.join(".git"));
    let hash = bench.track();
    assert_eq!(bench.json(&["status"])["borrowed"], 0);
    assert_eq!(contents(&bench.project.join(".git")), before, "the user's git is untouched");
    std::fs::remove_dir_all(bench.project.join(".git")).unwrap();
    assert_eq!(bench.ok(&["show", &format!("{hash}:a.txt")]), "one");
}

#[test]
fn a_store_inside_the_project_is_not_tracked_itself() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write(".agent/notes.txt", "mine\n");
    bench.write("sub/b.txt", "one\n");
    let store = ["--store", ".agent/snapshots"];
    let with = |words: &[&str]| bench.ok(&[&store, words].concat());
    let hash = with(&["track"]);
    assert_eq!(with(&["ls", &hash]), "a.txt\nsub/b.txt");
    assert_eq!(with(&["track"]), hash);
    assert!(bench.project.join(".agent/snapshots/objects").is_dir());
    // The data directory has only the record that the store is trusted.
    assert_eq!(bench.in_data(), ["stores"]);
    // In a sub-directory, the work tree is found through the store.
    assert_eq!(with(&["-C", "sub", "track"]), hash);
}

#[test]
fn track_fails_when_snapshots_are_disabled() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.write_home(".config/ctrlz/config.toml", "enabled = false\n");
    bench.fails(&["track"], 7, "disabled");
    assert!(!bench.data.exists());
    let project = bench.project.to_str().unwrap();
    let text = format!("enabled = false\n[project.{project:?}]\nenabled = true\n");
    bench.write_home(".config/ctrlz/config.toml", &text);
    assert!(is_hash(&bench.track()));
}

#[test]
fn an_unknown_configuration_key_is_refused_and_named() {
    let bench = Bench::new();
    bench.write_home(".config/ctrlz/config.toml", "enbled = false\n");
    let ran = bench.fails(&["track"], 2, "enbled");
    assert!(ran.stderr.contains("config.toml"), "{ran:?}");
}

#[test]
fn a_project_cannot_configure_itself() {
    let bench = Bench::new();
    for name in ["config.toml", "ctrlz.toml", ".ctrlz.toml", ".config/ctrlz/config.toml"] {
        bench.write(name, "enabled = false\n");
    }
    assert!(is_hash(&bench.track()));
}

#[test]
fn home_and_root_directories_are_refused_without_force_root() {
    let bench = Bench::new();
    let home = bench.home.to_str().unwrap();
    bench.fails(&["-C", home, "track"], 6, "--force-root");
    bench.fails(&["-C", "/", "track"], 6, "--force-root");
    assert!(!bench.data.exists());
    bench.write_home("a.txt", "one\n");
    assert!(is_hash(&bench.ok(&["-C", home, "--force-root", "track"])));
}

#[test]
fn track_records_even_if_its_output_pipe_is_closed() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    let mut command = bench.command(&["track"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = crate::bench::finish_into(&mut command, writer);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let last = bench.json(&["status"])["last"].as_str().unwrap().to_owned();
    assert_eq!(bench.track(), last);
}

/// Replaces the blob id of `path` in the index by that of `other` and keeps the stat data.
fn forge_index(bench: &Bench, path: &str, other: &str) {
    let id = |path: &str| {
        let text = bench.git(&["rev-parse", &format!(":{path}")]).text();
        let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        (0..20).map(byte).collect::<Vec<u8>>()
    };
    let index = bench.project.join(".git/index");
    let mut bytes = std::fs::read(&index).unwrap();
    let (old, new) = (id(path), id(other));
    let at = bytes.windows(20).position(|window| window == old).unwrap();
    bytes[at..at + 20].copy_from_slice(&new);
    std::thread::sleep(std::time::Duration::from_millis(40));
    std::fs::write(&index, bytes).unwrap();
}

#[test]
fn a_wrong_index_is_reported_by_track_status_and_doctor() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    bench.write("f", "AAAA");
    bench.write("g", "BBBB");
    bench.git(&["add", "."]);
    bench.git(&["commit", "-q", "-m", "one"]);
    forge_index(&bench, "f", "g");
    let ran = bench.run(&["track"]);
    assert!(ran.code == 0 && ran.stderr.contains("git's index is wrong about"), "{ran:?}");
    assert_eq!(bench.ok(&["show", &format!("{}:f", ran.text().trim())]), "AAAA");
    assert_eq!(bench.json(&["status"])["wrong_index"], "f");
    for command in ["status", "doctor"] {
        assert!(bench.run(&[command]).text().contains("wrong about the content of f"), "{command}");
    }
}

#[test]
fn a_restore_never_writes_content_that_only_a_wrong_index_has() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    // More files than the check of the index samples.
    for at in 0..1_000 {
        bench.write(&format!("f{at}"), &format!("{at:08}"));
    }
    bench.git(&["add", "."]);
    bench.git(&["commit", "-q", "-m", "one"]);
    for at in 0..100 {
        // The sample may detect the wrong index at once. Then there is no wrong snapshot.
        std::fs::remove_dir_all(&bench.data).ok();
        let (one, other) = (format!("f{}", 2 * at), format!("f{}", 2 * at + 1));
        bench.git(&["checkout", "-q", "HEAD", "--", "."]);
        bench.git(&["reset", "-q", "--hard"]);
        forge_index(&bench, &one, &other);
        let ran = bench.run(&["track"]);
        if ran.stderr.contains("git's index is wrong about") {
            continue;
        }
        let wrong = ran.text().trim().to_owned();
        let own = format!("{:08}", 2 * at);
        // Copying is over when the correction is in the log.
        let is_corrected = || bench.ok(&["log"]).contains("correction: git's index was wrong");
        for _ in 0..200 {
            if is_corrected() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert!(is_corrected());
        bench.write(&one, "later\n");
        let restored = bench.run(&["restore", &wrong]);
        assert_eq!(restored.code, 3, "{restored:?}");
        assert!(
            restored.text().contains("git's index was wrong")
                || restored.stderr.contains("git's index was wrong"),
            "{restored:?}"
        );
        assert_eq!(bench.read(&one).as_deref(), Some("later\n"));
        // The file has this content later on, when it is read.
        bench.write(&one, &format!("{:08}", 2 * at + 1));
        let genuine = bench.track();
        bench.write(&one, "last\n");
        bench.ok(&["restore", &genuine]);
        assert_eq!(bench.read(&one), Some(format!("{:08}", 2 * at + 1)));
        assert_ne!(bench.read(&one), Some(own));
        return;
    }
    panic!("the sample found every wrong index");
}

#[test]
fn undo_never_writes_content_that_only_a_wrong_index_has() {
    let bench = Bench::new();
    bench.git(&["init", "-q"]);
    // More files than the check of the index samples, so that the first snapshot is usually wrong.
    for at in 0..1_000 {
        bench.write(&format!("f{at}"), &format!("{at:08}"));
    }
    bench.git(&["add", "."]);
    bench.git(&["commit", "-q", "-m", "one"]);
    forge_index(&bench, "f7", "f8");
    bench.run(&["run", "--", "sh", "-c", "echo new > f1; sleep 1"]);
    bench.ok(&["undo"]);
    assert_eq!(bench.read("f1").as_deref(), Some("00000001"));
    assert_eq!(bench.read("f7").as_deref(), Some("00000007"));
}
