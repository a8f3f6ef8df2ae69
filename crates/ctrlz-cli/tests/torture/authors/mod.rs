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
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use xtask::Row;

use crate::lab::sized;

use actions::{Mode, Planned, plan};
use oracle::Violation;
use world::{Counts, World};

/// Number of the goal in `xtask` that the cases count for.
const GOAL: u8 = 19;
/// Number of threads that run cases.
const THREADS: usize = 2;
/// Number of violations that are shrunk. Later ones are only counted, to bound the time of a run.
const MAX_SHRUNK: usize = 12;
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
            match outcome.violation.as_ref().is_some_and(|found| found.rule == rule) {
                true => (actions, best, any) = (fewer, outcome, true),
                false => at = end,
            }
        }
        if reruns >= MAX_RERUNS || (size == 1 && !any) {
            return best;
        }
        size = (size / 2).max(1);
    }
}

/// The results of a run so far.
#[derive(Default)]
struct Found {
    counts: BTreeMap<Mode, (u64, Counts)>,
    /// Seeds of the cases that violated a rule, by rule and mode.
    broken: BTreeMap<(&'static str, &'static str), Vec<u64>>,
    shrunk: usize,
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

fn one(mode: Mode, seed: u64, found: &Mutex<Found>) {
    let outcome = run_case(mode, seed, &plan(mode, seed));
    let rule = outcome.violation.as_ref().map(|violation| violation.rule);
    let shrinks = {
        let mut found = found.lock().unwrap();
        let (cases, counts) = found.counts.entry(mode).or_default();
        *cases += 1;
        counts.commands += outcome.counts.commands;
        counts.undos += outcome.counts.undos;
        counts.conflicted += outcome.counts.conflicted;
        let Some(rule) = rule else { return };
        let seeds = found.broken.entry((rule, mode.name())).or_default();
        seeds.push(seed);
        let is_new = seeds.len() == 1 && found.shrunk < MAX_SHRUNK;
        found.shrunk += usize::from(is_new);
        is_new
    };
    if shrinks && let Some(rule) = rule {
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
    let cases = cases();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((mode, seed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(*mode, *seed, &found);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let mut broken = 0;
    for (mode, (cases, counts)) in &found.counts {
        let mut row = Row::of(GOAL, format!("histories with authors, {}", mode.name()));
        row.add(*cases);
        let Counts { commands, undos, conflicted } = counts;
        let share = 100.0 * *conflicted as f64 / (*undos).max(1) as f64;
        let note = format!(
            "{commands} commands, {conflicted} of {undos} undos with conflicts ({share:.0} %)"
        );
        eprintln!("{}: {cases} cases, {note}", mode.name());
        row.note(note);
        let of_mode = found.broken.iter().filter(|((_, name), _)| *name == mode.name());
        let violations: usize = of_mode.map(|(_, seeds)| seeds.len()).sum();
        row.violated(violations as u64);
        broken += violations;
    }
    for ((rule, mode), seeds) in &found.broken {
        eprintln!("{} x {rule} ({mode}): {:?}", seeds.len(), &seeds[..seeds.len().min(8)]);
    }
    assert_eq!(broken, 0, "cases that broke a rule");
}
