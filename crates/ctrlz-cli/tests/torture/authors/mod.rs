//! Random histories in which every line has an author, and an oracle that knows all of them.
//!
//! Each line ever written is unique and names its author: the user or a step. After every undo,
//! redo, revert and unrevert the harness compares the files with the record of the oracle. Lines of
//! other authors are kept. Lines that only the undone steps wrote are gone, or reported with a
//! reason that the record confirms. The dry run, the report and the exit code agree with the
//! changes of the files.
//!
//! `CTRLZ_AUTHORS=MODE` limits a run to a mode, `CTRLZ_AUTHORS=MODE:SEED` to one case.
//! `CTRLZ_AUTHORS_CASES` sets the number of cases. `CTRLZ_AUTHORS_TOLERATE` lists rules, separated
//! by commas, whose violations are ignored.

mod actions;
mod calls;
mod client;
mod edits;
mod merge;
mod oracle;
mod report;
mod rules;
mod taking;
mod world;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xtask::Row;

use crate::lab::sized;
use crate::workers::{Share, in_workers};

use actions::{Mode, Planned, plan};
use oracle::Violation;
use world::{Counts, World};

/// Number of the goal in `xtask` that the cases count for.
const GOAL: u8 = 19;
/// Number of violations that a worker shrinks. Later ones are only counted, to bound the time of a
/// run.
const MAX_SHRUNK: usize = 6;
/// Upper bound on the runs of a case to find a shorter history.
const MAX_RERUNS: usize = 120;

/// The result of a case.
struct Outcome {
    counts: Counts,
    history: Vec<String>,
    violation: Option<Violation>,
}

fn run_case(mode: Mode, seed: u64, actions: &[Planned]) -> Outcome {
    let mut world = World::new(mode, seed);
    let done = actions.iter().try_for_each(|planned| world.act(planned));
    let done = done.and_then(|()| world.finish());
    let history = std::mem::take(&mut world.history);
    Outcome { counts: world.counts, history, violation: done.err() }
}

/// Removes actions from the case while the same rule is still violated.
fn shrink(mode: Mode, seed: u64, rule: &str, first: Outcome) -> Outcome {
    let mut actions = plan(mode, seed);
    let mut best = first;
    let mut reruns = 0;
    let mut size = (actions.len() / 2).max(1);
    loop {
        let mut at = 0;
        let mut any = false;
        while at < actions.len() && reruns < MAX_RERUNS {
            let end = (at + size).min(actions.len());
            let fewer: Vec<Planned> = [&actions[..at], &actions[end..]].concat();
            let outcome = run_case(mode, seed, &fewer);
            reruns += 1;
            if outcome.violation.as_ref().is_some_and(|found| found.rule == rule) {
                (actions, best, any) = (fewer, outcome, true);
            } else {
                at = end;
            }
        }
        if reruns >= MAX_RERUNS || (size == 1 && !any) {
            return best;
        }
        size = (size / 2).max(1);
    }
}

/// The results of the cases of a worker.
#[derive(Default, Serialize, Deserialize)]
struct Found {
    /// Number of cases and counters, by mode.
    counts: BTreeMap<String, (u64, Counts)>,
    /// Seeds of the cases that violated a rule, by mode and rule.
    broken: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
    shrunk: usize,
}

impl Found {
    fn add(&mut self, more: Found) {
        for (mode, (cases, counts)) in more.counts {
            let (sum, known) = self.counts.entry(mode).or_default();
            *sum += cases;
            known.add(counts);
        }
        for (mode, rules) in more.broken {
            let known = self.broken.entry(mode).or_default();
            for (rule, seeds) in rules {
                known.entry(rule).or_default().extend(seeds);
            }
        }
    }
}

fn describe(mode: Mode, seed: u64, outcome: &Outcome) -> String {
    let Some(violation) = &outcome.violation else { return String::new() };
    format!(
        "\nCTRLZ_AUTHORS={}:{seed}\n{}\n=> {}: {}\n",
        mode.name(),
        outcome.history.join("\n"),
        violation.rule,
        violation.what
    )
}

fn one(mode: Mode, seed: u64, found: &mut Found) {
    let outcome = run_case(mode, seed, &plan(mode, seed));
    let (cases, counts) = found.counts.entry(mode.name().to_owned()).or_default();
    *cases += 1;
    counts.add(outcome.counts);
    let Some(Violation { rule, .. }) = outcome.violation else { return };
    let rules = found.broken.entry(mode.name().to_owned()).or_default();
    let seeds = rules.entry(rule.to_owned()).or_default();
    seeds.push(seed);
    if seeds.len() == 1 && found.shrunk < MAX_SHRUNK {
        found.shrunk += 1;
        // A violation that depends on the timing may not occur again.
        eprintln!("{}", describe(mode, seed, &outcome));
        let shortest = shrink(mode, seed, rule, outcome);
        eprintln!("{}", describe(mode, seed, &shortest));
    }
}

/// Returns the requested cases.
fn cases() -> Vec<(Mode, u64)> {
    let asked = std::env::var("CTRLZ_AUTHORS").unwrap_or_default();
    let (mode, seed) = match asked.split_once(':') {
        Some((mode, seed)) => (Mode::named(mode), seed.parse().ok()),
        None => (Mode::named(&asked), None),
    };
    if let (Some(mode), Some(seed)) = (mode, seed) {
        return vec![(mode, seed)];
    }
    let count = std::env::var("CTRLZ_AUTHORS_CASES").ok().and_then(|text| text.parse().ok());
    let count = count.unwrap_or_else(|| sized(300, 20_000));
    let modes = mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
    let seed = |at: usize| xtask::seed().wrapping_mul(1_000_003).wrapping_add(at as u64);
    (0..count).map(|at| (modes[at % modes.len()], seed(at))).collect()
}

#[test]
fn undo_takes_back_the_lines_of_a_step_and_no_others() {
    let test = "authors::undo_takes_back_the_lines_of_a_step_and_no_others";
    let results = in_workers(test, |Share { number, count }| {
        let mut found = Found::default();
        for (mode, seed) in cases().into_iter().skip(number).step_by(count) {
            one(mode, seed, &mut found);
        }
        found
    });
    let Some(results) = results else { return };
    let mut found = Found::default();
    results.into_iter().for_each(|result| found.add(result));
    let mut broken = 0;
    for (mode, (cases, counts)) in &found.counts {
        let mut row = Row::of(GOAL, format!("histories with authors, {mode}"));
        row.add(*cases);
        let Counts { commands, undos, conflicted } = counts;
        let share = 100.0 * *conflicted as f64 / (*undos).max(1) as f64;
        let note = format!(
            "{commands} commands, {conflicted} of {undos} undos with conflicts ({share:.0} %)"
        );
        eprintln!("{mode}: {cases} cases, {note}");
        row.note(note);
        for (rule, seeds) in found.broken.get(mode).into_iter().flatten() {
            eprintln!("{} x {rule} ({mode}): {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
            row.violated(seeds.len() as u64);
            broken += seeds.len();
        }
    }
    assert_eq!(broken, 0, "cases that broke a rule");
}
