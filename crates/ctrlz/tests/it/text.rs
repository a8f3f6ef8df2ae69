//! Textual diffs: `git apply` accepts them, and `git diff` lists the same paths.

use ctrlz::{ChangeStatus, Error, FileDiff, ObjectId, Progress};
use proptest::prelude::*;

use crate::lab::{Lab, assert_same, git_command, manifest, tree_path};

fn diff(lab: &Lab, from: ObjectId, to: ObjectId) -> Vec<u8> {
    let mut out = Vec::new();
    lab.workspace().diff_full(&from, &to, &[]).unwrap().write_unified(&mut out).unwrap();
    out
}

fn full(lab: &Lab, from: ObjectId, to: ObjectId) -> Vec<FileDiff> {
    lab.workspace().diff_full(&from, &to, &[]).unwrap().map(Result::unwrap).collect()
}

/// Applies our diff to a copy of the earlier state and compares the result with the later state.
fn check_applies(before: &dyn Fn(&Lab), after: &dyn Fn(&Lab)) {
    let lab = Lab::new();
    before(&lab);
    let from = lab.hash();
    let copy = tempfile::tempdir().unwrap();
    crate::lab::run(&lab.root(), "cp", &["-a".as_ref(), ".".as_ref(), copy.path().as_os_str()]);
    after(&lab);
    let to = lab.hash();
    let patch = diff(&lab, from, to);
    let file = lab.dir().join("patch");
    std::fs::write(&file, &patch).unwrap();
    if !patch.is_empty() {
        let output =
            git_command(copy.path(), &["apply", "--whitespace=nowarn", file.to_str().unwrap()])
                .output()
                .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}\n{}", String::from_utf8_lossy(&patch));
    }
    assert_same(&manifest(copy.path()), &lab.manifest(), "after git apply");
    let numstat = lab.store_git(&[
        "diff",
        "--no-renames",
        "--numstat",
        "-z",
        "--diff-algorithm=histogram",
        &from.to_string(),
        &to.to_string(),
    ]);
    let mut theirs: Vec<(usize, usize, String)> = numstat
        .split('\0')
        .filter(|row| !row.is_empty())
        .map(|row| {
            let mut parts = row.splitn(3, '\t');
            let mut number = || parts.next().unwrap().parse().unwrap_or(0);
            (number(), number(), parts.next().unwrap().to_owned())
        })
        .collect();
    let mut ours: Vec<(usize, usize, String)> = full(&lab, from, to)
        .into_iter()
        .map(|file| {
            let path = String::from_utf8_lossy(file.file.as_bytes()).into_owned();
            (file.additions, file.deletions, path)
        })
        .collect();
    theirs.sort();
    ours.sort();
    let paths = |rows: &[(usize, usize, String)]| -> Vec<String> {
        rows.iter().map(|row| row.2.clone()).collect()
    };
    assert_eq!(paths(&ours), paths(&theirs));
}

#[test]
fn git_applies_every_kind_of_change() {
    check_applies(
        &|lab| {
            lab.write("text", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\np\n");
            lab.write("no newline", "one\ntwo");
            lab.write("gone", "x\n");
            lab.write("mode", "x\n");
            lab.write("mode and text", "x\n");
            lab.write("crlf", "a\r\nb\r\n");
            lab.write("becomes empty", "x\n");
            lab.write("tab\tquote\"back\\slash\nnewline", "x\n");
            lab.write("ünïcode 日本", "x\n");
            lab.write("latin", b"caf\xe9\n");
            lab.link("a", "link");
        },
        &|lab| {
            lab.write("text", "A\nb\nc\nd\ne\nf\ng\nH\ni\nj\nk\nl\nm\nn\no\nP\nq\n");
            lab.write("no newline", "one\n2");
            lab.remove("gone");
            lab.chmod("mode", 0o755);
            lab.chmod("mode and text", 0o755);
            lab.write("mode and text", "y\n");
            lab.write("crlf", "a\r\nc\r\n");
            lab.write("becomes empty", "");
            lab.write("new", "x\n");
            lab.write("new empty", "");
            lab.write("new no newline", "x");
            lab.write("tab\tquote\"back\\slash\nnewline", "y\n");
            lab.write("ünïcode 日本", "y\n");
            lab.write("latin", b"caf\xe8\n");
            lab.remove("link");
            lab.link("b", "link");
        },
    );
}

#[test]
fn git_applies_type_changes() {
    check_applies(&|lab| lab.link("target", "x"), &|lab| {
        lab.remove("x");
        lab.write("x", "file\n");
    });
    check_applies(&|lab| lab.write("x", "file\n"), &|lab| {
        lab.remove("x");
        lab.link("target", "x");
    });
}

fn text() -> impl Strategy<Value = String> {
    (proptest::collection::vec("[abc]{0,2}\r?", 0..25), any::<bool>()).prop_map(|(lines, end)| {
        let mut text = lines.join("\n");
        if end && !text.is_empty() {
            text.push('\n');
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn git_applies_generated_changes(before in text(), after in text()) {
        check_applies(&|lab| lab.write("f", &before), &|lab| lab.write("f", &after));
    }
}

#[test]
fn binary_files_have_no_text_and_no_counts() {
    let lab = Lab::new();
    lab.write("b", b"\0one");
    let from = lab.hash();
    lab.write("b", b"\0two");
    let to = lab.hash();
    let text = String::from_utf8(diff(&lab, from, to)).unwrap();
    assert!(text.ends_with("Binary files a/b and b/b differ\n"), "{text}");
    let file = &full(&lab, from, to)[0];
    assert!(file.binary);
    assert_eq!((file.before.as_str(), file.after.as_str()), ("", ""));
    assert_eq!((file.additions, file.deletions), (0, 0));
}

#[test]
fn non_utf8_text_is_shown_lossily_and_kept_as_base64() {
    let lab = Lab::new();
    let from = lab.hash();
    lab.write("latin", b"caf\xe9\n");
    let to = lab.hash();
    let file = &full(&lab, from, to)[0];
    assert_eq!(file.after, "caf\u{fffd}\n");
    assert_eq!(file.after_base64.as_deref(), Some("Y2Fm6Qo="));
    assert_eq!((file.status, file.additions), (ChangeStatus::Added, 1));
}

#[test]
fn a_mode_change_alone_is_listed_as_a_change() {
    let lab = Lab::new();
    lab.write("run", "x\n");
    let from = lab.hash();
    lab.chmod("run", 0o755);
    let to = lab.hash();
    let file = &full(&lab, from, to)[0];
    assert_eq!((file.status, file.additions), (ChangeStatus::Modified, 0));
    let text = String::from_utf8(diff(&lab, from, to)).unwrap();
    assert_eq!(text, "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n");
}

#[test]
fn a_patch_lists_both_names_of_a_rename_as_raw_bytes() {
    let lab = Lab::new();
    let odd = " lead\ttab\"q\\b\n trail ";
    lab.write("old", "content\n");
    lab.write(odd, "x");
    let hash = lab.hash();
    std::fs::rename(lab.path("old"), lab.path("new")).unwrap();
    lab.write(odd, "y");
    let patch = lab.workspace().patch(&hash, &Progress::default()).unwrap();
    assert_eq!(patch.files, [tree_path(odd), tree_path("new"), tree_path("old")]);
    assert!(patch.absolute().all(|path| path.starts_with(lab.root().canonicalize().unwrap())));
}

#[test]
fn a_patch_distinguishes_ignored_from_deleted_files() {
    let lab = Lab::new();
    lab.write("same", "x");
    lab.write("edited", "x");
    lab.write("gone", "x");
    let hash = lab.hash();
    lab.write(".gitignore", "same\nedited\ngone\n");
    lab.write("edited", "y");
    lab.remove("gone");
    let patch = lab.workspace().patch(&hash, &Progress::default()).unwrap();
    assert_eq!(patch.files, [tree_path(".gitignore"), tree_path("edited"), tree_path("gone")]);
}

#[test]
fn a_diff_can_be_limited_to_paths() {
    let lab = Lab::new();
    let from = lab.hash();
    lab.write("a/x", "1\n");
    lab.write("ab", "1\n");
    let to = lab.hash();
    let mut out = Vec::new();
    lab.workspace()
        .diff_full(&from, &to, &[tree_path("a")])
        .unwrap()
        .write_unified(&mut out)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("a/a/x") && !text.contains("a/ab"));
}

#[test]
fn a_huge_single_line_is_not_compared_by_line() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 64 << 20;
    lab.write("line", "x".repeat(17 << 20));
    let from = lab.hash();
    lab.write("line", "y".repeat(17 << 20));
    let to = lab.hash();
    assert!(diff(&lab, from, to).len() < 500);
}

#[test]
fn files_made_on_several_threads_arrive_in_order() {
    for threads in [1, 3] {
        let mut lab = Lab::new();
        lab.options.threads = threads;
        let from = lab.hash();
        for file in 0..60 {
            lab.write(&format!("{file:02}"), "text\n".repeat(file * 37 % 11));
        }
        let mut diffs = lab.workspace().diff_full(&from, &lab.hash(), &[]).unwrap();
        let name = |diff: FileDiff| String::from_utf8_lossy(diff.file.as_bytes()).into_owned();
        let mut taken = vec![name(diffs.next().unwrap().unwrap())];
        diffs
            .make_each(name, |made| {
                taken.push(made);
                Ok::<(), Error>(())
            })
            .unwrap();
        let all: Vec<String> = (0..60).map(|file| format!("{file:02}")).collect();
        assert_eq!(taken, all, "{threads} threads");

        let diffs = lab.workspace().diff_full(&from, &lab.hash(), &[]).unwrap();
        let mut left = 20;
        let stopped = diffs.make_each(name, |_| {
            left -= 1;
            if left == 0 { Err(Box::<dyn std::error::Error>::from("enough")) } else { Ok(()) }
        });
        assert!(stopped.is_err());
        assert_eq!(left, 0, "an error of the consumer ends the reading");
    }
}
