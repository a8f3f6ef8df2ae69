//! Snapshots without a watcher that look only at what is not as it is remembered: the same as a
//! scan of everything would give.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctrlz::{Progress, Snapshot, TrackOptions};

use crate::lab::Lab;
use crate::watching::{edit, project, random, times};

/// Files that no test touches. A listing of everything counts them a second time.
const STILL: u64 = 300;

/// Longer than the slack within which no timestamp is believed.
fn settle() {
    std::thread::sleep(Duration::from_millis(40));
}

fn add_still(lab: &Lab) {
    for file in 0..STILL {
        lab.write(&format!("still/{}/{file}", file % 10), "1");
    }
}

/// A snapshot, and whether it was made of what differs only.
fn track(lab: &Lab) -> (Snapshot, bool) {
    let progress = Progress::default();
    let snapshot = lab.workspace().track(&TrackOptions::default(), &progress).unwrap();
    let looks = progress.files.load(Ordering::Relaxed);
    assert!(looks >= STILL, "{looks} looks");
    (snapshot, looks < 2 * STILL)
}

#[track_caller]
fn track_differing(lab: &Lab) -> Snapshot {
    let (snapshot, differing) = track(lab);
    assert!(differing, "everything was listed");
    snapshot
}

/// A work tree that was scanned and is remembered.
fn remembered(lab: Lab) -> Lab {
    add_still(&lab);
    settle();
    lab.track();
    lab.workspace().absorb(u64::MAX).unwrap();
    lab.track();
    lab
}

#[test]
fn one_changed_file_is_all_that_is_listed() {
    let lab = remembered(Lab::new());
    lab.write("still/3/3", "changed");
    let snapshot = track_differing(&lab);
    assert!(snapshot.changed);
    assert_eq!((snapshot.files_read, snapshot.files), (1, STILL));
    lab.assert_as_cold(&snapshot, "one file");
    settle();
    let again = track_differing(&lab);
    assert!(!again.changed);
    assert_eq!(again.hash, snapshot.hash);
    let unread = track_differing(&lab);
    assert_eq!((unread.changed, unread.files_read), (false, 0), "it is believed by now");
}

#[test]
fn whatever_differs_gives_what_a_scan_of_everything_gives() {
    let mut row = xtask::Row::of(12, "rounds of edits, looked at alone and scanned alike");
    let (seeds, mut fast) = (times(6, 60), 0);
    for seed in 0..seeds as u64 {
        let lab = remembered(project(seed));
        let mut state = seed.wrapping_mul(977);
        for round in 0..times(14, 40) {
            let mut done = Vec::new();
            for _ in 0..1 + random(&mut state) % 4 {
                done.push(edit(&lab, &mut state, round));
            }
            if random(&mut state).is_multiple_of(2) {
                // Old enough to be believed next time.
                settle();
            }
            let copy = lab.copy();
            let (snapshot, differing) = track(&lab);
            fast += usize::from(differing);
            let what = format!("seed {seed}, round {round}: {done:#?}");
            lab.assert_as_scanned(&snapshot, &copy, &what);
            row.done();
        }
    }
    // A repository that is not entered makes everything be listed as long as it is there.
    assert!(fast > 5 * seeds, "{fast} times");
}

#[test]
fn what_is_left_out_every_time_costs_no_listing() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 1000;
    lab.write("a/large", vec![b'l'; 2000]);
    crate::lab::run(&lab.root(), "mkfifo", &["a/fifo".as_ref()]);
    let lab = remembered(lab);
    for round in 0..3 {
        let snapshot = track_differing(&lab);
        assert_eq!((snapshot.changed, snapshot.skipped.len()), (false, 2), "round {round}");
    }
    lab.write("a/large", "small by now");
    let snapshot = track_differing(&lab);
    assert_eq!(snapshot.skipped.len(), 1);
    lab.assert_as_cold(&snapshot, "it fits");
}

#[test]
fn ignored_files_that_are_kept_are_looked_at() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.env\n");
    lab.write("conf/x.env", "one");
    let lab = remembered(lab);
    for (round, text) in ["two", "three"].into_iter().enumerate() {
        settle();
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
fn changed_rules_make_everything_be_listed() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.log\n");
    lab.write("a/b.log", "ignored");
    let lab = remembered(lab);
    lab.write(".gitignore", "*.txt\n");
    let (snapshot, differing) = track(&lab);
    assert!(!differing);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "other rules");
    lab.write("a/.gitignore", "*.log\n");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "rules came");
    lab.remove("a/.gitignore");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash, "rules went");
}

/// A file is always in one of two directories, and in every snapshot.
#[test]
fn a_file_that_is_moved_about_is_in_every_snapshot() {
    let lab = Lab::new();
    let name = |at: usize| format!("d{at:02}/moved");
    for at in 0..40 {
        lab.write(&format!("d{at:02}/other"), "1");
    }
    lab.write(&name(0), "here");
    let lab = remembered(lab);
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
            match snapshot.is_complete() && snapshot.skipped.is_empty() {
                true => missed += usize::from(snapshot.files != STILL + 41),
                false => said += 1,
            }
        }
        over.store(true, Ordering::Relaxed);
        (missed, said)
    });
    assert_eq!(missed, 0, "{said} times it was said");
}

/// Rules that no snapshot holds are read every time, and said every time.
#[test]
fn rules_that_are_ignored_themselves_stay_known() {
    let lab = Lab::new();
    lab.write("hidden/.gitignore", "*\n");
    lab.write("hidden/data", "1");
    lab.write("a", "1");
    let lab = remembered(lab);
    assert!(!lab.track().changed, "nothing happened");
    lab.write("a", "2");
    let copy = lab.copy();
    let snapshot = track_differing(&lab);
    lab.assert_as_scanned(&snapshot, &copy, "with hidden rules");
    assert!(!lab.track().changed, "nothing happened since");
}

#[test]
fn a_link_in_the_place_of_an_ignore_file_is_none() {
    let lab = Lab::new();
    lab.write(".gitignore", "secret");
    lab.write("secret", "1");
    let lab = remembered(lab);
    lab.remove(".gitignore");
    lab.link("secret", ".gitignore");
    let (snapshot, _) = track(&lab);
    assert_eq!(snapshot.hash, lab.cold().0.hash);
}

/// What it held is in the remembered tree of its parent.
#[test]
fn a_directory_that_may_not_be_entered_any_more_is_left_out() {
    let mut lab = Lab::new();
    lab.options.nested_repos = false;
    // As long as this is there, everything is listed.
    lab.write("other/.git/x", "1");
    lab.write("p/d/f", "1");
    lab.write("p/g", "1");
    let lab = remembered(lab);
    std::fs::create_dir(lab.path("p/d/.git")).unwrap();
    let snapshot = lab.track();
    assert_eq!(snapshot.hash, lab.cold().0.hash);
    assert_eq!(snapshot.skipped.len(), 2);
}

#[test]
fn permissions_of_a_directory_mean_no_reading() {
    let mut lab = Lab::new();
    lab.options.max_snapshot_bytes = 10_000;
    lab.write("d/a", vec![b'a'; 6000]);
    // Otherwise it would be read again beside the next one.
    settle();
    lab.track();
    lab.write("d/b", vec![b'b'; 6000]);
    let lab = remembered(lab);
    lab.chmod("d", 0o700);
    let snapshot = lab.track();
    assert_eq!((snapshot.changed, snapshot.files_read), (true, 0));
}

#[test]
fn a_full_store_takes_a_snapshot_in_which_nothing_changed() {
    let lab = Lab::new();
    crate::lab::run(&lab.root(), "mkfifo", &["fifo".as_ref()]);
    let mut lab = remembered(lab);
    lab.options.max_store_bytes = 1;
    assert!(!lab.track().changed);
}

/// A rename brings another size under the same name, which decides whether it is kept.
#[test]
fn an_ignored_file_that_is_replaced_is_judged_by_its_new_size() {
    let lab = Lab::new();
    lab.write(".gitignore", "*.db\n");
    lab.write("data/a.db", vec![b'l'; 300 << 10]);
    lab.write("data/b.db", "small");
    lab.write("data/c", "1");
    let lab = remembered(lab);
    settle();
    for (name, text) in [("data/a.db", vec![b's'; 10]), ("data/b.db", vec![b'l'; 300 << 10])] {
        let away = lab.dir().join("away");
        std::fs::write(&away, text).unwrap();
        std::fs::rename(&away, lab.path(name)).unwrap();
        let copy = lab.copy();
        let (snapshot, _) = track(&lab);
        lab.assert_as_scanned(&snapshot, &copy, name);
    }
}
