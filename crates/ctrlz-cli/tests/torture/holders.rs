//! Lock holders that were killed, lock files with reused process ids, and stale lock files.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xtask::Row;

use crate::lab::{Lab, ended, find, noise, sized, start};

/// Returns the path of the work tree's lock.
fn lock_of(lab: &Lab) -> PathBuf {
    let locks = find(&lab.store().join("ctrlz/wt"), &|path| path.ends_with("lock"));
    let of_work_tree = |path: &&PathBuf| !path.to_string_lossy().contains("watch");
    locks.iter().find(of_work_tree).unwrap().clone()
}

fn is_held(lock: &Path) -> bool {
    matches!(File::open(lock).unwrap().try_lock(), Err(TryLockError::WouldBlock))
}

/// Starts a command and kills it as soon as it holds the lock. Returns `false` if it ended first.
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
fn the_lock_of_a_killed_process_is_free_at_once() {
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
                assert!(freed.elapsed() < Duration::from_secs(5), "the lock is still held");
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
        assert!(round < 40 * 1000, "only {killed} lock holders were caught in {round} rounds");
    }
    lab.track();
    lab.assert_tidy("many holders were killed");
    row.note(format!("free after at most {:.1} ms", slowest.as_secs_f64() * 1000.0));
    // Full-size runs have the machine to themselves, so their limit is stricter.
    row.violated(u64::from(slowest > sized(Duration::from_secs(2), Duration::from_millis(50))));
}

/// The process id in a lock file is information for users. It does not decide whether the lock is
/// held.
#[test]
fn a_reused_process_id_in_a_lock_file_blocks_no_command() {
    let mut row = Row::of(6, "lock files with a reused process id");
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
    lab.assert_tidy("reused process ids");
}

/// Git's ref lock files are not tied to a process. An old one is stale.
#[test]
fn a_stale_git_ref_lock_file_blocks_no_command() {
    let mut row = Row::of(6, "stale ref lock files");
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
    lab.assert_tidy("stale ref lock files");
}
