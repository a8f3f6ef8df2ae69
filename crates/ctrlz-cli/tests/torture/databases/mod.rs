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

use serde::{Deserialize, Serialize};
use xtask::Row;

use crate::lab::{has, sized};
use crate::workers::{Share, in_workers};

use history::{Counts, History, Violation};
use programs::Checker;

/// Number of the goal in `xtask` that the commands count for.
const GOAL: u8 = 20;
/// Number of actions in a history.
const ACTIONS: usize = 24;
/// Number of histories whose violations a worker prints in full.
const MAX_SHOWN: usize = 6;

/// The results of the histories of a worker.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    counts: Counts,
    broken: BTreeMap<String, Vec<u64>>,
}

fn one(checker: &mut Checker, seed: u64, found: &mut Found) {
    let mut history = History::new(checker, seed);
    let done = history.go(ACTIONS);
    found.counts.add(history.counts);
    if let Err(Violation { rule, what }) = done {
        let shown = found.broken.values().map(Vec::len).sum::<usize>() < MAX_SHOWN;
        if shown {
            let said = history.said.join("\n");
            eprintln!("\nCTRLZ_DATABASES={seed}\n{said}\n=> {rule}: {what}\n");
        }
        found.broken.entry(rule.to_owned()).or_default().push(seed);
    }
}

/// Runs the histories of a worker: the requested one, or new ones until there are enough commands.
fn run_share(share: Share) -> Found {
    let asked = std::env::var("CTRLZ_DATABASES").ok().and_then(|text| text.parse().ok());
    let count = share.count as u64;
    let wanted_live = (sized(200, 10_000) as u64).div_ceil(count);
    let wanted_quiet = (sized(100, 2_000) as u64).div_ceil(count);
    let mut checker = Checker::start();
    let mut found = Found::default();
    if let Some(seed) = asked {
        if share.number == 0 {
            one(&mut checker, seed, &mut found);
        }
        return found;
    }
    let mut seed = xtask::seed().wrapping_mul(1_000_003).wrapping_add(share.number as u64);
    while found.counts.live < wanted_live || found.counts.quiet < wanted_quiet {
        one(&mut checker, seed, &mut found);
        seed = seed.wrapping_add(count);
    }
    found
}

#[test]
fn a_database_is_put_back_whole_or_left_and_no_commit_is_lost() {
    if !has("python3") {
        return;
    }
    let test = "databases::a_database_is_put_back_whole_or_left_and_no_commit_is_lost";
    let Some(results) = in_workers(test, run_share) else { return };
    let mut counts = Counts::default();
    let mut broken: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for found in results {
        counts.add(found.counts);
        for (rule, seeds) in found.broken {
            broken.entry(rule).or_default().extend(seeds);
        }
    }
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
