//! The cost of flushing everything before it is acknowledged.

use std::time::{Duration, Instant};

use xtask::Row;

use crate::lab::{Lab, noise, sized};

/// Returns a lab on a real disk, with 200 files.
fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let (work, data) = (dir.path().join("work"), dir.path().join("data"));
    let lab = Lab::with(dir, work, data).threaded();
    change(&lab, 0);
    lab.track();
    lab
}

fn change(lab: &Lab, round: u64) {
    for at in 0..200 {
        lab.write(&format!("dir{}/file{at}", at % 10), noise(round * 1000 + at, 1000));
    }
}

fn time(lab: &Lab, round: u64) -> Duration {
    change(lab, round);
    // Flushes the changed files first, so that their own writeback is not measured.
    rustix::fs::syncfs(std::fs::File::open(&lab.work).unwrap()).unwrap();
    let begun = Instant::now();
    lab.track();
    begun.elapsed()
}

/// Compares the same program with and without flushing, alternately and on the same disk.
#[test]
fn durability_adds_little_time_to_a_track_of_200_files() {
    let mut row = Row::of(17, "durable tracks of 200 files beside ones that flush nothing");
    // The build that violates invariant 2 flushes nothing.
    let (safe, careless) = (lab(), lab().broken(2));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 1..=sized(5, 25) {
        with.push(time(&safe, round));
        without.push(time(&careless, round));
        row.done();
    }
    with.sort_unstable();
    without.sort_unstable();
    let (with, without) = (with[with.len() / 2], without[without.len() / 2]);
    let more = with.saturating_sub(without);
    row.note(format!(
        "{} ms more, median of {} and {} ms",
        more.as_millis(),
        with.as_millis(),
        without.as_millis()
    ));
    row.violated(u64::from(more > sized(Duration::from_secs(2), Duration::from_millis(30))));
}
