//! Databases with live writers: SQLite in both journal modes, key-value stores, pid and lock files.
//!
//! A writer commits rows and acknowledges each of them, while steps, undos, redos and restores run
//! at random moments. While the writer runs, no acknowledged commit is lost. A new connection
//! always finds a sound database. If no process has the database open, it is restored with its
//! sidecar files to one recorded state, byte for byte, or all of them are left and reported.
//!
//! `CTRLZ_DATABASES=SEED` runs one history.

mod directed;
mod history;
mod programs;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use xtask::Row;

use crate::lab::{has, sized};

use history::{Counts, History, Violation};
use programs::Checker;

/// Number of the goal in `xtask` that the commands count for.
const GOAL: u8 = 20;
/// Number of threads that run histories.
const THREADS: usize = 2;
/// Number of actions in a history.
const ACTIONS: usize = 24;
/// Number of histories whose violations are printed in full.
const MAX_SHOWN: usize = 12;

#[derive(Default)]
struct Found {
    counts: Counts,
    broken: BTreeMap<&'static str, Vec<u64>>,
}

fn one(checker: &mut Checker, seed: u64, found: &Mutex<Found>) {
    let mut history = History::new(checker, seed);
    let done = history.go(ACTIONS);
    let mut found = found.lock().unwrap();
    found.counts.live += history.counts.live;
    found.counts.quiet += history.counts.quiet;
    found.counts.put_back += history.counts.put_back;
    found.counts.left += history.counts.left;
    if let Err(Violation { rule, what }) = done {
        let shown = found.broken.values().map(Vec::len).sum::<usize>() < MAX_SHOWN;
        if shown {
            let said = history.said.join("\n");
            eprintln!("\nCTRLZ_DATABASES={seed}\n{said}\n=> {rule}: {what}\n");
        }
        found.broken.entry(rule).or_default().push(seed);
    }
}

#[test]
fn a_database_is_put_back_whole_or_left_and_no_commit_is_lost() {
    if !has("python3") {
        return;
    }
    let asked = std::env::var("CTRLZ_DATABASES").ok().and_then(|text| text.parse().ok());
    let wanted_live = sized(200, 10_000) as u64;
    let wanted_quiet = sized(100, 2_000) as u64;
    let first = xtask::seed().wrapping_mul(1_000_003);
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut checker = Checker::start();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Counts { live, quiet, .. } = found.lock().unwrap().counts;
                    match asked {
                        Some(seed) if at == 0 => one(&mut checker, seed, &found),
                        None if live < wanted_live || quiet < wanted_quiet => {
                            one(&mut checker, first.wrapping_add(at), &found);
                        }
                        _ => break,
                    }
                }
            });
        }
    });
    let Found { counts, broken } = found.into_inner().unwrap();
    let Counts { live, quiet, put_back, left } = counts;
    let note = format!("{put_back} put back, {left} left and reported");
    eprintln!("{live} commands beside a live writer, {quiet} without: {note}");
    let violations: usize = broken.values().map(Vec::len).sum();
    let mut row = Row::of(GOAL, "commands beside a live SQLite writer");
    row.add(live);
    row.note(note);
    row.violated(violations as u64);
    let mut row = Row::of(GOAL, "commands on an SQLite database without a writer");
    row.add(quiet);
    for (rule, seeds) in &broken {
        eprintln!("{} x {rule}: {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    assert_eq!(violations, 0, "histories that broke a rule");
}
