//! Long logs: split into segments, read through an index that may be lost, torn or stale.

use std::path::PathBuf;

use ctrlz::{
    Error, OperationKind, Progress, SessionError, SnapshotBefore, StepRecord, StepScope,
    TimelineQuery, UndoOptions, UndoScope,
};

use crate::lab::{Lab, assert_fsck_clean, git_command, tree_path};

/// Number of operations, more than fit into a segment.
const MANY: usize = 270;

/// Returns a lab with [`MANY`] operations after a baseline. Each writes its number into `a`; every
/// tenth is a step of session `s`.
fn long() -> Lab {
    let lab = Lab::new();
    lab.write("a", "base\n");
    lab.write(".gitignore", ".env\n");
    lab.write(".env", "KEY=0\n");
    lab.track();
    lab.write("b", "base\n");
    lab.track();
    for number in 0..MANY {
        lab.write("a", format!("{number}\n"));
        if number % 90 == 0 {
            lab.write(".env", format!("KEY={number}\n"));
        }
        // Most operations are plain snapshots, which are faster. Only their number matters.
        match number % 10 {
            0 => lab.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
                lab.write("b", format!("{number}\n"));
            }),
            _ => drop(lab.track()),
        }
    }
    lab
}

impl Lab {
    fn log_index(&self) -> PathBuf {
        self.work_tree_dir().join("log.index")
    }

    fn work_tree_dir(&self) -> PathBuf {
        let mut dirs = std::fs::read_dir(self.store().join("ctrlz/wt")).unwrap();
        dirs.next().unwrap().unwrap().path()
    }

    fn refs(&self, under: &str) -> Vec<String> {
        let names = self.store_git(&["for-each-ref", "--format=%(refname)", under]);
        names.lines().map(str::to_owned).collect()
    }

    fn log_ref(&self) -> String {
        let names = self.refs("refs/ctrlz");
        names.into_iter().find(|name| name.ends_with("/log")).unwrap()
    }

    /// Returns the results of all queries that read the log.
    fn answers(&self) -> (Vec<StepRecord>, String, usize) {
        let workspace = self.workspace();
        let query = TimelineQuery { limit: 10_000, files: 0, ..TimelineQuery::default() };
        let timeline = format!("{:?}", workspace.timeline(&query).unwrap());
        let operations = workspace.log(10_000).unwrap().len();
        (workspace.steps().unwrap(), timeline, operations)
    }
}

#[test]
fn a_long_log_is_split_into_segments_and_its_history_stays_complete() {
    let lab = long();
    let past: Vec<String> =
        lab.refs("refs/ctrlz").into_iter().filter(|name| name.contains("/past/")).collect();
    assert_eq!(past.len(), 1, "{past:?}");
    let log = lab.workspace().log(10_000).unwrap();
    assert!(log.len() > 256);
    assert_eq!(log.last().unwrap().kind, OperationKind::Baseline, "across segments");
    assert!(log.windows(2).all(|pair| pair[0].id > pair[1].id), "ids ascend");
    assert_eq!(lab.workspace().steps().unwrap().len(), MANY / 10);
    let of_segment = lab.store_git(&["rev-list", "--count", "--first-parent", &lab.log_ref()]);
    assert!(of_segment.trim().parse::<usize>().unwrap() < 256, "git sees only the segment");
    let text = lab.store_git(&["log", "-p", &lab.log_ref()]);
    assert!(text.contains("+269") && text.contains("agent"), "plain git reads it");
    assert_fsck_clean(&lab.store());
    let report = lab.undo_with(&UndoScope::Session, &UndoOptions::default()).unwrap();
    assert_eq!(report.steps.len(), MANY / 10, "undo crosses segments");
    assert_eq!(lab.read("b"), "base\n");
    lab.redo();
    assert_eq!(lab.read("b"), format!("{}\n", MANY - 10));
}

#[test]
fn history_ends_without_errors_where_an_old_segment_was_dropped() {
    let lab = long();
    let all = lab.workspace().steps().unwrap();
    for name in lab.refs("refs/ctrlz").into_iter().chain(lab.refs("refs/ctrlz-private")) {
        if name.contains("/past/") {
            lab.store_git(&["update-ref", "-d", &name]);
        }
    }
    lab.store_git(&["gc", "-q", "--prune=now"]);
    assert_fsck_clean(&lab.store());
    for index in ["kept", "rebuilt"] {
        if index == "rebuilt" {
            std::fs::remove_file(lab.log_index()).unwrap();
        }
        let left = lab.workspace().steps().unwrap();
        assert!(!left.is_empty() && left.len() < all.len(), "{index}");
        assert_eq!(left, all[all.len() - left.len()..], "{index}");
        let log = lab.workspace().log(10_000).unwrap();
        assert!(log.len() < 256, "{index}");
        let (_, timeline, _) = lab.answers();
        assert!(!timeline.is_empty());
        lab.workspace().step_changes(&StepScope::Session("s".into())).unwrap();
        lab.workspace().lost_files().list().unwrap();
        let versions = lab.workspace().versions(&tree_path("a")).unwrap();
        assert!(!versions.is_empty(), "{index}");
        lab.workspace().blame(&tree_path("a"), None).unwrap();
        // The state before the first step of the segment has expired.
        let walk = lab.workspace().snapshot_before("s", &["m230".into()]).unwrap();
        assert_eq!(walk, SnapshotBefore::Expired { message: "m230".into() }, "{index}");
        let walk = lab.workspace().snapshot_before("s", &["m0".into()]).unwrap();
        assert_eq!(walk, SnapshotBefore::Nothing, "{index}");
        let gone = UndoScope::Message { message: "m0".into() };
        let result = lab.undo_with(&gone, &UndoOptions::default());
        assert!(
            matches!(result, Err(Error::Session(SessionError::NoSuchMessage { .. }))),
            "{index}: {result:?}"
        );
    }
    let report = lab.undo_with(&UndoScope::Session, &UndoOptions::default()).unwrap();
    assert!(report.steps.len() < all.len());
    lab.redo();
    lab.step("s", "next", "next", |lab| lab.write("b", "next\n"));
    assert_eq!(lab.undo().steps, ["next"]);
    assert!(
        lab.workspace().maintenance().verify(&Progress::default()).unwrap().problems.is_empty()
    );
}

#[test]
fn a_lost_torn_stale_or_corrupt_log_index_changes_no_result() {
    let lab = Lab::new();
    lab.write("a", "0\n");
    lab.track();
    let mut stale = Vec::new();
    for number in 0..6 {
        lab.step("s", &format!("m{number}"), &format!("{number}"), |lab| {
            lab.write("a", format!("{number}\n"));
        });
        stale.push(std::fs::read(lab.log_index()).unwrap());
    }
    lab.undo();
    let right = lab.answers();
    let whole = std::fs::read(lab.log_index()).unwrap();
    let check = |bytes: Option<&[u8]>, what: &str| {
        match bytes {
            Some(bytes) => std::fs::write(lab.log_index(), bytes).unwrap(),
            None => std::fs::remove_file(lab.log_index()).unwrap(),
        }
        assert_eq!(lab.answers(), right, "{what}");
        assert_eq!(lab.answers(), right, "{what}, second time");
    };
    check(None, "deleted");
    for end in (0..whole.len()).step_by(whole.len() / 40) {
        check(Some(&whole[..end]), &format!("cut at {end}"));
    }
    check(Some(&whole[..whole.len() - 1]), "a torn last line");
    check(Some(b"\0\xff garbage\n\n\n"), "garbage");
    for (at, old) in stale.iter().enumerate() {
        check(Some(old), &format!("stale, from after step {at}"));
    }
    let middle = whole.len() / 2;
    let mut flipped = whole.clone();
    flipped[middle] ^= 1;
    check(Some(&flipped), "a flipped bit");
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let mut swapped = lines.clone();
    swapped.swap(1, 2);
    check(Some(&swapped.concat()), "two lines swapped");
    let mut without = lines.clone();
    without.remove(3);
    check(Some(&without.concat()), "a line left out");
}

#[test]
fn steps_and_undo_work_with_a_damaged_log_index() {
    for damage in ["torn", "gone", "stale"] {
        let lab = Lab::new();
        lab.step("s", "m0", "0", |lab| lab.write("a", "0\n"));
        let stale = std::fs::read(lab.log_index()).unwrap();
        lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
        let whole = std::fs::read(lab.log_index()).unwrap();
        match damage {
            "torn" => std::fs::write(lab.log_index(), &whole[..whole.len() - 9]).unwrap(),
            "gone" => std::fs::remove_file(lab.log_index()).unwrap(),
            _ => std::fs::write(lab.log_index(), &stale).unwrap(),
        }
        lab.step("s", "m2", "2", |lab| lab.write("a", "2\n"));
        let steps: Vec<String> =
            lab.workspace().steps().unwrap().into_iter().map(|step| step.info.step).collect();
        assert_eq!(steps, ["0", "1", "2"], "{damage}");
        assert_eq!(lab.undo().steps, ["2"], "{damage}");
        assert_eq!(lab.undo().steps, ["1"], "{damage}");
    }
}

#[test]
fn a_stale_session_ref_after_a_kill_is_repaired() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    let name =
        lab.refs("refs/ctrlz").into_iter().find(|name| name.ends_with("/session/s")).unwrap();
    let old = std::fs::read(lab.store().join(&name)).unwrap();
    lab.step("s", "m2", "2", |lab| lab.write("a", "2\n"));
    let newest = lab.store_git(&["rev-parse", &lab.log_ref()]);
    // As if killed after the ref of the log was updated and before that of the session.
    std::fs::write(lab.store().join(&name), old).unwrap();
    lab.write("b", "outside\n");
    lab.track();
    assert_eq!(lab.store_git(&["rev-parse", &name]), newest);
    std::fs::remove_file(lab.store().join(&name)).unwrap();
    lab.step("s", "m3", "3", |lab| lab.write("a", "3\n"));
    assert_eq!(lab.store_git(&["rev-parse", &name]), lab.store_git(&["rev-parse", &lab.log_ref()]));
    let undone: Vec<_> = (0..3).map(|_| lab.undo().steps.concat()).collect();
    assert_eq!(undone, ["3", "2", "1"]);
}

#[test]
fn ids_keep_ascending_after_the_clock_was_set_back() {
    let lab = Lab::new();
    lab.step("s", "m1", "1", |lab| lab.write("a", "1\n"));
    // The newest operation has an id from the far future, as if the clock had been set back.
    let commit = lab.store_git(&["cat-file", "commit", &lab.log_ref()]);
    let id = lab.workspace().log(1).unwrap()[0].id.clone();
    let future = format!("5{}", &id[1..]);
    let path = lab.dir().join("commit");
    std::fs::write(&path, commit.replace(&id, &future)).unwrap();
    let args = ["hash-object", "-t", "commit", "-w", path.to_str().unwrap()];
    let written = git_command(&lab.store(), &args).output().unwrap();
    let new = String::from_utf8(written.stdout).unwrap();
    lab.store_git(&["update-ref", &lab.log_ref(), new.trim()]);
    let session = lab.log_ref().replace("/log", "/session/s");
    lab.store_git(&["update-ref", &session, new.trim()]);
    lab.step("s", "m2", "2", |lab| lab.write("a", "2\n"));
    lab.step("s", "m3", "3", |lab| lab.write("b", "3\n"));
    let log = lab.workspace().log(10).unwrap();
    assert!(log.windows(2).all(|pair| pair[0].id > pair[1].id), "{log:?}");
    assert!(log.iter().any(|operation| operation.id == future));
    assert_eq!(lab.undo().steps, ["3"]);
    assert_eq!(lab.undo().steps, ["2"]);
    assert_eq!(lab.read("a"), "1\n");
}
