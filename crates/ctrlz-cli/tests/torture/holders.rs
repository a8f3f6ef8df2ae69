//! Whoever held a lock and is gone, or is somebody else by now.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xtask::Row;

use crate::lab::{Lab, ended, find, noise, sized, start};

/// The work tree's lock.
fn lock_of(lab: &Lab) -> PathBuf {
    let locks = find(&lab.store().join("ctrlz/wt"), &|path| path.ends_with("lock"));
    let of_work_tree = |path: &&PathBuf| !path.to_string_lossy().contains("watch");
    locks.iter().find(of_work_tree).unwrap().clone()
}

fn is_held(lock: &Path) -> bool {
    matches!(File::open(lock).unwrap().try_lock(), Err(TryLockError::WouldBlock))
}

/// Starts a command and kills it as soon as it holds the lock; `false` if it was faster.
fn kill_a_holder(lab: &Lab, lock: &Path) -> bool {
    let mut child = start(&mut lab.command(&["track"]));
    let mut held = false;
    while !held && child.try_wait().unwrap().is_none() {
        held = is_held(lock);
    }
    child.kill().unwrap();
    held && ended(child).is_killed()
}

#[test]
fn a_killed_holder_lets_go_at_once() {
    let mut row = Row::of(6, "killed lock holders");
    let lab = Lab::new();
    for at in 0..30 {
        lab.write(&format!("file{at}"), noise(at, 2000));
    }
    lab.track();
    let lock = lock_of(&lab);
    let (mut killed, mut slowest) = (0, Duration::ZERO);
    for round in 0..u64::MAX {
        lab.write("file0", noise(round, 3000));
        if kill_a_holder(&lab, &lock) {
            let freed = Instant::now();
            while is_held(&lock) {
                assert!(freed.elapsed() < Duration::from_secs(5), "the dead hold on");
            }
            slowest = slowest.max(freed.elapsed());
            killed += 1;
            row.done();
        }
        if killed % 20 == 0 {
            lab.track();
            lab.assert_no_leftovers("a holder was killed");
        }
        if killed == sized(25, 1000) {
            break;
        }
        assert!(round < 40 * 1000, "only {killed} holders were met in {round} rounds");
    }
    lab.track();
    lab.assert_tidy("many holders were killed");
    row.note(format!("free after at most {:.1} ms", slowest.as_secs_f64() * 1000.0));
    // Full sizes are measured on a machine of their own.
    row.violated(u64::from(slowest > sized(Duration::from_secs(2), Duration::from_millis(50))));
}

/// A lock names its holder for people; what it names decides nothing.
#[test]
fn the_number_of_a_process_that_is_somebody_else_by_now_holds_nobody_up() {
    let mut row = Row::of(6, "locks that name a living stranger");
    let lab = Lab::new();
    lab.write("file", "one");
    lab.track();
    let lock = lock_of(&lab);
    for (round, pid) in [std::process::id(), 1, u32::MAX].into_iter().enumerate() {
        std::fs::write(&lock, format!("process {pid}")).unwrap();
        lab.write("file", format!("round {round}"));
        let begun = Instant::now();
        lab.track();
        assert!(begun.elapsed() < Duration::from_secs(5), "it waited for process {pid}");
        row.done();
    }
    lab.assert_tidy("strangers");
}

/// Git's own lock files have no holder; an old one is nobody's.
#[test]
fn an_old_lock_file_of_gits_is_in_nobodys_way() {
    let mut row = Row::of(6, "left-over locks of refs");
    let lab = Lab::new();
    lab.write("file", "one");
    lab.track();
    let refs = find(&lab.store().join("refs"), &|path| path.is_file());
    assert!(!refs.is_empty());
    for (round, name) in refs.iter().enumerate() {
        let left = PathBuf::from(format!("{}.lock", name.display()));
        std::fs::copy(name, &left).unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::open(&left).unwrap().set_modified(old).unwrap();
        lab.write("file", format!("round {round}"));
        lab.track();
        row.done();
        crate::lab::remove(&left);
    }
    lab.assert_tidy("left-over locks");
}
