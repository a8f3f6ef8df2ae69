//! A process keeps writing a file while restores overwrite it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xtask::Row;

use crate::checker;
use crate::lab::{Lab, StopOnDrop, sized};

/// Returns one version of the file, long enough to detect a torn one.
fn version(number: u64) -> Vec<u8> {
    format!("version {number:08}\n").repeat(600).into_bytes()
}

/// Replaces the file repeatedly. Returns the versions that another process overwrote. Those must be
/// in the store.
fn keep_writing(lab: &Lab, running: &AtomicBool) -> Vec<u64> {
    let (file, beside) = (lab.work.join("file"), lab.dir().join("saved-by-the-writer"));
    let mut taken = Vec::new();
    for number in 1000.. {
        if !running.load(Ordering::Relaxed) {
            break;
        }
        std::fs::write(&beside, version(number)).unwrap();
        std::fs::rename(&beside, &file).unwrap();
        std::thread::sleep(Duration::from_millis(number % 40));
        let now = std::fs::read(&file).unwrap();
        let first = now.split(|byte| *byte == b'\n').next().unwrap();
        assert!(now == [first, b"\n"].concat().repeat(600), "a torn file");
        if now != version(number) {
            taken.push(number);
        }
    }
    taken
}

#[test]
fn a_version_that_a_restore_overwrites_is_always_in_a_snapshot() {
    let lab = Lab::new();
    lab.write("file", version(1));
    lab.write("calm", "then");
    let one = lab.track();
    lab.write("file", version(2));
    lab.write("calm", "now");
    let two = lab.track();
    let mut row = Row::of(4, "versions overwritten by restores under a writer");
    let running = AtomicBool::new(true);
    let (taken, done) = std::thread::scope(|scope| {
        let stop = StopOnDrop(&running);
        let writer = scope.spawn(|| keep_writing(&lab, &running));
        let begun = Instant::now();
        let mut done = 0;
        while begun.elapsed() < Duration::from_secs(sized(6, 60)) {
            let hash = if done % 2 == 0 { &one } else { &two };
            let ended = lab.ctrlz(&["restore", hash]).is(&[0, 3, 5], "restore while writing");
            done += u64::from(ended.code() == Some(0));
        }
        drop(stop);
        (writer.join().unwrap(), done)
    });
    lab.track();
    lab.assert_tidy("restores under a writer");
    assert!(done > 0 && !taken.is_empty(), "nothing happened: {done} restores, {taken:?}");
    let stored = checker::stored_ids(&lab);
    for number in taken {
        let id = checker::blob_id(&lab, &version(number));
        assert!(stored.contains(&id), "version {number} was overwritten and is in no snapshot");
        row.done();
    }
}
