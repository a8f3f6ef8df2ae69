//! `diff`, `patch`, `show`, `ls`, `status` and `doctor`.

use std::os::unix::ffi::OsStrExt;

use crate::bench::{Bench, contents};

/// Returns a project that was changed after a snapshot, and the hash of the snapshot.
fn changed() -> (Bench, String) {
    let bench = Bench::new();
    bench.write("a.txt", "one\ntwo\nthree\n");
    bench.write("gone.txt", "bye\n");
    bench.write("sub/b.txt", "b\n");
    let hash = bench.track();
    bench.write("a.txt", "one\n2\nthree\n");
    bench.write("new file.txt", "no end of line");
    std::fs::remove_file(bench.project.join("gone.txt")).unwrap();
    (bench, hash)
}

#[test]
fn git_apply_accepts_the_output_of_diff() {
    let (bench, hash) = changed();
    let now = contents(&bench.project);
    let diff = bench.run(&["diff", &hash]);
    assert_eq!(diff.code, 0, "{diff:?}");
    bench.ok(&["restore", "--exact", &hash]);
    assert_ne!(contents(&bench.project), now);
    let file = bench.home.join("change.patch");
    std::fs::write(&file, &diff.stdout).unwrap();
    bench.git(&["apply", file.to_str().unwrap()]);
    assert_eq!(contents(&bench.project), now);
}

#[test]
fn diff_supports_path_limits_line_counts_and_json() {
    let (bench, hash) = changed();
    let to = bench.track();
    let limited = bench.ok(&["diff", &hash, &to, "--", "a.txt"]);
    assert!(limited.contains("+2") && !limited.contains("gone"), "{limited}");
    let counts = bench.ok(&["diff", "--full", &hash, &to]);
    let counts: Vec<Vec<&str>> =
        counts.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(counts[0], ["+1", "-1", "modified", "a.txt"]);
    assert_eq!(counts[1], ["+0", "-1", "deleted", "gone.txt"]);
    let paths = bench.json(&["diff", &hash, &to]);
    assert_eq!(paths["files"][1]["status"], "deleted");
    let full = bench.json(&["diff", "--full", &hash, &to]);
    assert_eq!(full.as_array().unwrap().len(), 3);
    assert_eq!(full[0]["before"], "one\ntwo\nthree\n");
    assert_eq!(bench.json(&["diff", "--full", &to, &to]), serde_json::json!([]));
}

#[test]
fn patch_lists_absolute_paths() {
    let (bench, hash) = changed();
    let at = |name: &str| bench.project.join(name).to_str().unwrap().to_owned();
    let expected = [at("a.txt"), at("gone.txt"), at("new file.txt")];
    assert_eq!(bench.ok(&["patch", &hash]), expected.join("\n"));
    assert_eq!(bench.ok(&["patch", "--relative", &hash]), "a.txt\ngone.txt\nnew file.txt");
    assert_eq!(bench.ok(&["patch", "-z", "--relative", &hash]), "a.txt\0gone.txt\0new file.txt\0");
    let json = bench.json(&["patch", &hash]);
    assert_eq!(json["hash"], hash.as_str());
    assert_eq!(json["files"], serde_json::json!(expected));
}

#[test]
fn show_prints_bytes_and_ls_lists_files() {
    let bench = Bench::new();
    let bytes = b"\x00\xff\r\nbinary";
    std::fs::write(bench.project.join("data"), bytes).unwrap();
    bench.write("sub/b.txt", "b\n");
    let hash = bench.track();
    assert_eq!(bench.run(&["show", &format!("{hash}:data")]).stdout, bytes);
    assert_eq!(bench.ok(&["ls", &hash]), "data\nsub/b.txt");
    assert_eq!(bench.ok(&["ls", &hash, "--", "sub"]), "sub/b.txt");
    let long = bench.ok(&["ls", "-l", &hash, "--", "sub"]);
    assert!(long.starts_with("100644 ") && long.ends_with(" sub/b.txt"), "{long}");
    let about = bench.json(&["show", &hash]);
    assert_eq!(about["files"], 2);
    assert_eq!(about["records"].as_array().unwrap().len(), 1);
    assert!(bench.ok(&["show", &hash]).contains("2 files"));
    let content = bench.json(&["show", &format!("{hash}:data")]);
    assert_eq!(
        (&content["encoding"], &content["content"]),
        (&"base64".into(), &"AP8NCmJpbmFyeQ==".into())
    );
    bench.fails(&["show", &format!("{hash}:nothing")], 4, "has no nothing");
}

#[test]
fn show_accepts_a_label_with_a_colon() {
    let bench = Bench::new();
    bench.write("a:b", "one\n");
    bench.ok(&["checkpoint", "-m", "fix: parser"]);
    let about = bench.ok(&["show", "fix: parser"]);
    assert!(about.contains("fix: parser"), "{about}");
    assert_eq!(bench.ok(&["show", "fix: parser:a:b"]), "one");
    bench.fails(&["show", "nothing: here:a:b"], 4, "nothing");
}

#[test]
fn an_unknown_or_malformed_hash_changes_nothing() {
    let (bench, _) = changed();
    let files = contents(&bench.project);
    let store = contents(&bench.data);
    let unknown = "1234567890123456789012345678901234567890";
    for hash in [unknown, "not-a-hash", "", "HEAD", "1234"] {
        for command in ["restore", "patch", "diff", "show", "ls"] {
            let ran = bench.fails(&[command, hash], 4, "");
            assert!(ran.stderr.contains("hint: "), "{ran:?}");
        }
    }
    let ran = bench.fails(&["restore", unknown], 4, "no snapshot");
    assert!(ran.stderr.contains("hint: "), "{ran:?}");
    assert_eq!(contents(&bench.project), files);
    assert_eq!(contents(&bench.data), store);
}

#[test]
fn status_and_doctor_report_the_state_of_the_store() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    assert!(bench.ok(&["status"]).contains("none yet"));
    assert!(!bench.data.exists(), "status writes nothing");
    let hash = bench.track();
    let status = bench.ok(&["status"]);
    assert!(status.contains(&hash) && status.contains("ago"), "{status}");
    assert_eq!(bench.json(&["status"])["last"], hash.as_str());
    let doctor = bench.ok(&["doctor"]);
    assert!(doctor.lines().all(|line| line.starts_with("ok ")), "{doctor}");
    assert_eq!(bench.json(&["doctor"])["ok"], true);
}

#[test]
fn doctor_finds_damage() {
    let bench = Bench::new();
    bench.write("a.txt", &"one\n".repeat(1000));
    bench.track();
    for (path, mut bytes) in contents(&bench.data) {
        if path.extension().is_some_and(|end| end.as_bytes() == b"pack") {
            let middle = bytes.len() / 2;
            bytes[middle..].fill(0);
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let ran = bench.run(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.text().contains("problem"), "{ran:?}");
}
