//! The quota: it is never exceeded, skipped files are reported, and safety snapshots ignore it.

use ctrlz::{Error, Progress, RecordError, SkipReason, TrackOptions, UndoOptions, UndoScope};

use crate::lab::{Lab, noise};

const KB: u64 = 1 << 10;

fn used(lab: &Lab) -> u64 {
    lab.workspace().status().unwrap().quota.unwrap().store_bytes
}

#[test]
fn the_largest_files_are_skipped_first_and_reported() {
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 600 * KB;
    lab.write("small.txt", "fits\n");
    lab.write("large.bin", noise(1, 900 * KB));
    lab.write("middle.bin", noise(2, 300 * KB));
    let snapshot = lab.track();
    assert!(!snapshot.is_complete());
    let [skipped] = snapshot.skipped.as_slice() else { panic!("{:?}", snapshot.skipped) };
    assert_eq!(skipped.path, b"large.bin");
    assert_eq!(skipped.reason, SkipReason::OverQuota { bytes: 900 * KB });
    assert_eq!(snapshot.files, 2);
    assert!(used(&lab) <= 600 * KB, "{}", used(&lab));
    assert_eq!(lab.workspace().status().unwrap().skipped.len(), 1);
    // With a larger quota it is captured.
    lab.options.max_store_bytes = 3000 * KB;
    assert!(lab.track().is_complete());
}

#[test]
fn the_quota_always_holds_and_known_content_is_free() {
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 800 * KB;
    for at in 0..40 {
        lab.write("changing.bin", noise(at, 30 * KB + at));
        lab.write(&format!("dir{}/file{at}", at % 5), noise(at + 1000, 5 * KB));
        match lab.workspace().track(&TrackOptions::default(), &Progress::default()) {
            Ok(_) | Err(Error::Record(RecordError::OverQuota { .. })) => (),
            Err(error) => panic!("{error}"),
        }
        assert!(used(&lab) <= 800 * KB, "{} after {at}", used(&lab));
    }
    // After the cache is lost, everything is read again, but none of it is new.
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 600 * KB;
    lab.write("kept.bin", noise(7, 400 * KB));
    let first = lab.track();
    let caches = std::fs::read_dir(lab.store().join("ctrlz/wt")).unwrap();
    for dir in caches {
        std::fs::remove_file(dir.unwrap().path().join("stat")).unwrap();
    }
    lab.write("new.txt", "new\n");
    let second = lab.track();
    assert!(first.is_complete() && second.is_complete(), "{:?}", second.skipped);
}

#[test]
fn an_unchanged_ignored_file_stays_captured_when_the_quota_is_nearly_used() {
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 350 * KB;
    lab.write(".gitignore", "*.data\n");
    lab.write("ignored.data", noise(1, 200 * KB));
    lab.track();
    lab.write("a", "1\n");
    lab.track();
    lab.step("s", "m1", "1", |lab| lab.remove("ignored.data"));
    let options = UndoOptions { ignored: true, ..UndoOptions::default() };
    assert!(lab.undo_with(&UndoScope::LastTurn, &options).unwrap().is_complete());
    assert_eq!(std::fs::read(lab.path("ignored.data")).unwrap(), noise(1, 200 * KB));
}

#[test]
fn a_safety_snapshot_ignores_the_quota() {
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 200 * KB;
    lab.write("a.bin", "then\n");
    let then = lab.hash();
    lab.write("a.bin", noise(3, 500 * KB));
    assert!(!lab.track().is_complete());
    let report = lab.restore(then);
    assert_eq!(lab.read("a.bin"), "then\n");
    lab.restore(report.safety);
    assert_eq!(std::fs::read(lab.path("a.bin")).unwrap(), noise(3, 500 * KB));
}

#[test]
fn the_total_quota_limits_all_stores_together() {
    let mut lab = Lab::new();
    lab.write("a.bin", noise(4, 300 * KB));
    lab.track();
    lab.options.max_total_bytes = 500 * KB;
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("b.bin"), noise(5, 300 * KB)).unwrap();
    let workspace = ctrlz::Workspace::open(other.path(), lab.options.clone()).unwrap();
    let snapshot = workspace.track(&TrackOptions::default(), &Progress::default()).unwrap();
    assert!(!snapshot.is_complete());
    let quota = workspace.status().unwrap().quota.unwrap();
    assert!(quota.total_bytes <= 500 * KB && quota.total_bytes > quota.store_bytes, "{quota:?}");
}

#[test]
fn quota_warnings_at_50_and_80_percent_appear_once() {
    let mut lab = Lab::new();
    lab.options.max_store_bytes = 1000 * KB;
    let mut marks = Vec::new();
    for at in 0..8 {
        lab.write(&format!("file{at}"), noise(at, 100 * KB));
        marks.extend(lab.track().quota_mark);
    }
    assert_eq!(marks, [50, 80]);
    assert_eq!(lab.workspace().status().unwrap().quota.unwrap().warning(), Some(80));
}
