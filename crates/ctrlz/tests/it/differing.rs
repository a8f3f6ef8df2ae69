//! Snapshots without a watcher that rescan only entries whose stat data differs from the cache.
//! They must equal full scans.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctrlz::{Progress, Snapshot, TrackOptions};

use crate::lab::Lab;
use crate::watching::{edit, project, random, times};

/// Number of files that no test touches. A full listing counts them a second time.
const STILL: u64 = 300;

/// Sleeps longer than the period in which timestamps are too recent to be trusted.
fn let_timestamps_age() {
    std::thread::sleep(Duration::from_millis(40));
}

fn add_still(lab: &Lab) {
    for file in 0..STILL {
        lab.write(&format!("still/{}/{file}", file % 10), "1");
    }
}

/// Takes a snapshot and returns whether only differing entries were rescanned.
fn track(lab: &Lab) -> (Snapshot, bool) {
    let progress = Progress::default();
    let snapshot = lab.workspace().track(&TrackOptions::default(), &progress).unwrap();
    let looks = progress.files.load(Ordering::Relaxed);
    assert!(looks >= STILL, "{looks} entries");
    (snapshot, looks < 2 * STILL)
}

#[track_caller]
fn track_differing(lab: &Lab) -> Snapshot {
    let (snapshot, differing) = track(lab);
    assert!(differing, "a full listing was made");
    snapshot
}

/// Returns a work tree whose entries are all in the cache.
fn cached(lab: Lab) -> Lab {
    add_still(&lab);
    let_timestamps_age();
    lab.track();
    lab.workspace().copy_borrowed(u64::MAX).unwrap();
    lab.track();
    lab
}

#[test]
fn without_a_watcher_only_the_changed_file_is_read() {
    let lab = cached(Lab::new());
    lab.write("still/3/3", "changed");
    let snapshot = track_differing(&lab);
    assert!(snapshot.changed);
    assert_eq!((snapshot.files_read, snapshot.files), (1, STILL));
    lab.assert_as_cold(&snapshot, "one file");
    let_timestamps_age();
    let again = track_differing(&lab);
    assert!(!again.changed);
    assert_eq!(again.hash, snapshot.hash);
    let unread = track_differing(&lab);
    assert_eq!((unread.changed, unread.files_read), (false, 0), "its timestamp is trusted now");
}

#[test]
fn scans_of_differing_entries_equal_full_scans() {
    let mut row = xtask::Row::of(12, "rounds of edits, looked at alone and scanned alike");
    let (seeds, mut fast) = (times(6, 60), 0);
    for seed in 0..seeds as u64 {
        let lab = cached(project(seed));
        let mut state = seed.wrapping_mul(977);
        for round in 0..times(14, 40) {
            let mut done = Vec::new();
            for _ in 0..1 + random(&mut state) % 4 {
                done.push(edit(&lab, &mut state, round));
            }
            if random(&mut state).is_multiple_of(2) {
                // Old enough for the timestamps to be trusted next time.
                let_timestamps_age();
            }
            let copy = lab.copy();
            let (snapshot, differing) = track(&lab);
            fast += usize::from(differing);
            let what = format!("seed {seed}, round {round}: {done:#?}");
            lab.assert_as_scanned(&snapshot, &copy, &what);
            row.done();
        }
    }
    // A nested repository that is not entered forces full listings while it exists.
    assert!(fast > 5 * seeds, "{fast} times");
}

#[test]
fn permanently_skipped_files_do_not_force_a_full_listing() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("a/large", vec![b'l'; 2000]);
    crate::lab::run(&lab.root(), "mkfifo", &["a/fifo".as_ref()]);
    let lab = cached(lab);
    for round in 0..3 {
        let snapshot = track_differing(&lab);
        assert_eq!((snapshot.changed, snapshot.skipped.len()), (false, 2), "round {round}");
    }
    lab.write("a/large", "small by now");
    let snapshot = track_differing(&lab);
    assert_eq!(snapshot.skipped.len(), 1);
    lab.assert_as_cold(&snapshot, "below the size limit");
}

#[test]
fn changes_of_stored_ignored_files_are_noticed() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.env\n");
    lab.write("conf/x.env", "one");
    let lab = cached(lab);
    for (round, text) in ["two", "three"].into_iter().enumerate() {
        let_timestamps_age();
        lab.write("conf/x.env", text);
        lab.write("still/1/1", text);
        let copy = lab.copy();
        let snapshot = track_differing(&lab);
        lab.assert_as_scanned(&snapshot, &copy, &format!("round {round}"));
        lab.remove("conf/x.env");
        let copy = lab.copy();
        let snapshot = track_differing(&lab);
        lab.assert_as_scanned(&snapshot, &copy, &format!("removed, round {round}"));
    }
}

#[test]
fn changed_ignore_rules_force_a_full_listing() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.log\n");
    lab.write("a/b.log", "ignored");
    let lab = cached(lab);
    lab.write(".gitignore", "*.txt\n");
    let (snapshot, differing) = track(&lab);
    assert!(!differing);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "changed rules");
    lab.write("a/.gitignore", "*.log\n");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "added rules");
    lab.remove("a/.gitignore");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "removed rules");
}

/// A file that is constantly renamed between directories must be in every complete snapshot.
#[test]
fn a_file_renamed_during_scans_is_in_every_complete_snapshot() {
    let lab = Lab::new();
    let name = |at: usize| format!("d{at:02}/moved");
    for at in 0..40 {
        lab.write(&format!("d{at:02}/other"), "1");
    }
    lab.write(&name(0), "here");
    let lab = cached(lab);
    let over = AtomicBool::new(false);
    let root = lab.root();
    let (missed, said) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !over.load(Ordering::Relaxed) {
                let to = (at * 7 + 13) % 40;
                std::fs::rename(root.join(name(at)), root.join(name(to))).unwrap();
                at = to;
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let (mut missed, mut said) = (0, 0);
        for round in 0..times(60, 1_000) {
            lab.write("still/0/0", round.to_string());
            let snapshot = lab.track();
            if snapshot.is_complete() && snapshot.skipped.is_empty() {
                missed += usize::from(snapshot.files != STILL + 41);
            } else {
                said += 1;
            }
        }
        over.store(true, Ordering::Relaxed);
        (missed, said)
    });
    assert_eq!(missed, 0, "{said} snapshots were incomplete");
}

/// Ignore files that are themselves ignored are read for every snapshot and recorded with it.
#[test]
fn ignore_files_that_ignore_themselves_stay_in_effect() {
    let lab = Lab::new();
    lab.write("hidden/.gitignore", "*\n");
    lab.write("hidden/data", "1");
    lab.write("a", "1");
    let lab = cached(lab);
    assert!(!lab.track().changed, "nothing happened");
    lab.write("a", "2");
    let copy = lab.copy();
    let snapshot = track_differing(&lab);
    lab.assert_as_scanned(&snapshot, &copy, "with hidden rules");
    assert!(!lab.track().changed, "nothing happened since");
}

#[test]
fn a_symlink_at_the_path_of_an_ignore_file_is_not_followed() {
    let lab = Lab::new();
    lab.write(".gitignore", "secret");
    lab.write("secret", "1");
    let lab = cached(lab);
    lab.remove(".gitignore");
    lab.link("secret", ".gitignore");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash);
}

/// Its files are still in the cached tree of its parent.
#[test]
fn a_directory_that_became_a_nested_repository_is_left_out() {
    let mut lab = Lab::new();
    lab.options.nested_repos = false;
    // Forces a full listing as long as it exists.
    lab.write("other/.git/x", "1");
    lab.write("p/d/f", "1");
    lab.write("p/g", "1");
    let lab = cached(lab);
    std::fs::create_dir(lab.path("p/d/.git")).unwrap();
    let snapshot = lab.track();
    assert_eq!(snapshot.hash, lab.cold().0.hash);
    assert_eq!(snapshot.skipped.len(), 2);
}

#[test]
fn a_chmod_of_a_directory_causes_no_file_reads() {
    let mut lab = Lab::new();
    lab.options.max_snapshot_bytes = 10_000;
    lab.write("d/a", vec![b'a'; 6000]);
    // Otherwise `d/a` would be read again together with `d/b`.
    let_timestamps_age();
    lab.track();
    lab.write("d/b", vec![b'b'; 6000]);
    let lab = cached(lab);
    lab.chmod("d", 0o700);
    let snapshot = lab.track();
    assert_eq!((snapshot.changed, snapshot.files_read), (true, 0));
}

#[test]
fn an_unchanged_snapshot_succeeds_in_a_full_store() {
    let lab = Lab::new();
    crate::lab::run(&lab.root(), "mkfifo", &["fifo".as_ref()]);
    let mut lab = cached(lab);
    lab.options.max_store_bytes = 1;
    assert!(!lab.track().changed);
}

/// A rename can change the size of the file at a path, and the size decides whether it is stored.
#[test]
fn a_replaced_ignored_file_is_stored_according_to_its_new_size() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.db\n");
    lab.write("data/a.db", vec![b'l'; 300 << 10]);
    lab.write("data/b.db", "small");
    lab.write("data/c", "1");
    let lab = cached(lab);
    let_timestamps_age();
    for (name, text) in [("data/a.db", vec![b's'; 10]), ("data/b.db", vec![b'l'; 300 << 10])] {
        let away = lab.dir().join("away");
        std::fs::write(&away, text).unwrap();
        std::fs::rename(&away, lab.path(name)).unwrap();
        let copy = lab.copy();
        let (snapshot, _) = track(&lab);
        lab.assert_as_scanned(&snapshot, &copy, name);
    }
}
