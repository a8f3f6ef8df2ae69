//! The table in `docs/RELIABILITY.md`: goals, figures of other tools, our figures, and commands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use xtask::Measured;

use crate::goals::{GOALS, Goal};
use crate::harness::Outcome;
use crate::process::{first_line, program, top};
use crate::torture::{Request, Tier};

/// Writes the table. Full sizes go to `docs/RELIABILITY.md`, others beside their rows.
pub(crate) fn write(
    asked: &Request,
    place: &Path,
    outcomes: &[Option<Outcome>],
) -> Result<PathBuf, String> {
    let path = match asked.tier {
        Tier::Full => top().join("docs/RELIABILITY.md"),
        _ => place.join("RELIABILITY.md"),
    };
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let text = render(&machine(), asked.tier, outcomes, &before);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Describes the machine and the commit that were measured.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = first_line(program("uname").arg("-sr"));
    let git = first_line(program("git").arg("--version"));
    let commit = first_line(program("git").args(["log", "-1", "--format=%h of %cs"]));
    format!("{kernel}, {cores} cores, {git}; commit {commit}")
}

/// Renders the table. Goals that were not run keep their row from `before`. Everything from the
/// section about attacks on is written by hand and kept too.
fn render(machine: &str, tier: Tier, outcomes: &[Option<Outcome>], before: &str) -> String {
    let mut text = String::new();
    let seeds: BTreeSet<u64> =
        outcomes.iter().flatten().flat_map(|goal| &goal.rows).map(|row| row.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let (tier, seeds) = (tier.name(), seeds.join(", "));
    text.push_str(HEAD);
    text.push_str(&format!("\nMeasured on {machine}; sizes: {tier}; seed {seeds}.\n\n"));
    text.push_str("| # | goal | peers | ctrlz | run it |\n|---|---|---|---|---|\n");
    for (goal, outcome) in GOALS.iter().zip(outcomes) {
        let start = format!("| {} |", goal.number);
        let known = before.lines().find(|line| line.starts_with(&start));
        match known.filter(|_| outcome.is_none()) {
            Some(known) => text.push_str(known),
            None => text.push_str(&line(goal, tier, outcome.as_ref())),
        }
        text.push('\n');
    }
    text.push_str(FOOT);
    if let Some(at) = before.find(ATTACKS) {
        text.push_str(&before[at..]);
    }
    text
}

fn line(goal: &Goal, tier: &str, outcome: Option<&Outcome>) -> String {
    let tier = if goal.number == 18 { "soak" } else { tier };
    let ours = outcome.map_or(NOT_RUN.to_owned(), ours);
    let mut peers = vec![goal.peers.to_owned()];
    let rows = outcome.into_iter().flat_map(|outcome| &outcome.rows);
    peers.extend(rows.filter(|row| row.peer.is_some()).map(peer));
    let (number, text, peers) = (goal.number, goal.text, peers.join("<br>"));
    format!(
        "| {number} | {text} | {peers} | {ours} | `cargo xtask torture {tier} --goal {number}` |"
    )
}

/// Start of the part of the file that is written by hand.
const ATTACKS: &str = "\n## Attacks\n";

const NOT_RUN: &str = "not run here";

fn ours(outcome: &Outcome) -> String {
    let mut lines: Vec<String> =
        outcome.rows.iter().filter(|row| row.peer.is_none()).map(measured).collect();
    lines.extend(outcome.failed.iter().map(|name| format!("**failed**: `{name}`")));
    if outcome.passed > 0 {
        lines.push(format!("{} tests passed", outcome.passed));
    }
    if lines.is_empty() {
        return NOT_RUN.to_owned();
    }
    lines.join("<br>")
}

fn measured(row: &Measured) -> String {
    if row.count == 0 && row.violations == 0 {
        return format!("{}: {NOT_RUN}", row.what);
    }
    let violations = match row.violations {
        0 => "0 violations".to_owned(),
        some => format!("**{some} violations**"),
    };
    let note = if row.note.is_empty() { String::new() } else { format!("; {}", row.note) };
    format!("{} {}: {violations}{note} ({:.0} s)", grouped(row.count), row.what, row.seconds)
}

fn peer(row: &Measured) -> String {
    let name = row.peer.as_deref().unwrap_or_default();
    if row.count == 0 {
        return format!("*{name}, {}: {NOT_RUN}*", row.what);
    }
    let note = if row.note.is_empty() { String::new() } else { format!("; {}", row.note) };
    let (count, wrong) = (grouped(row.count), grouped(row.violations));
    format!("*{name}, in the same run: {wrong} of {count} {}{note}*", row.what)
}

/// Formats a number with thousands separators: `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

const HEAD: &str = "# Reliability

Made by `cargo xtask torture`, which installs what it needs, runs the harnesses and writes this table: `smoke` is what
`cargo test` runs too, `full` has full sizes, `soak` goes on with one seed after the other. What a
machine cannot do is *not run here*; it is never counted as passed. A harness stops at its first violation, and the command
then ends with exit code 1. The peers' figures are from our own measurements and their own documents; what is in italics was
measured in the same run as ours. Goals that a run leaves out keep their earlier row.
";

const FOOT: &str = "
Every fault is checked by one checker, by the numbers of the invariants in
[ARCHITECTURE.md](../ARCHITECTURE.md), and the checker is checked: a debug build of `ctrlz` can be told to make one mistake per
invariant, and each of them has to be caught as what it is (`crates/ctrlz-cli/tests/torture/checked.rs`).
";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, violations: u64, peer: Option<&str>) -> Measured {
        let (what, note) = ("kills".to_owned(), String::new());
        let peer = peer.map(str::to_owned);
        Measured { goal: 1, what, count, violations, seconds: 2.4, note, peer, seed: 7 }
    }

    fn lines(rows: Vec<Measured>, failed: &[&str]) -> String {
        let failed = failed.iter().map(|name| (*name).to_owned()).collect();
        line(&GOALS[0], "full", Some(&Outcome { rows, passed: 1, failed }))
    }

    #[test]
    fn what_was_not_run_is_never_said_to_have_passed() {
        assert!(line(&GOALS[0], "full", None).contains(NOT_RUN));
        let empty = Outcome::default();
        assert!(line(&GOALS[0], "full", Some(&empty)).contains(NOT_RUN));
        let text = lines(vec![row(0, 0, None)], &[]);
        assert!(text.contains("kills: not run here") && !text.contains("0 violations"), "{text}");
    }

    #[test]
    fn violations_and_failed_tests_are_shown() {
        let text = lines(vec![row(12_345, 1, None)], &["killed::x"]);
        assert!(text.contains("12,345 kills: **1 violations** (2 s)"), "{text}");
        assert!(text.contains("**failed**: `killed::x`"), "{text}");
    }

    #[test]
    fn a_peers_row_is_beside_ours_and_no_violation_of_ours() {
        let rows = vec![row(10, 3, Some("git")), row(10, 0, None)];
        let text = lines(rows.clone(), &[]);
        assert!(text.contains("*git, in the same run: 3 of 10 kills*"), "{text}");
        assert!(text.contains("10 kills: 0 violations"), "{text}");
        assert!(Outcome { rows, passed: 1, failed: Vec::new() }.held());
    }

    #[test]
    fn every_goal_is_in_the_table_once_and_has_a_harness() {
        let numbers: Vec<u8> = GOALS.iter().map(|goal| goal.number).collect();
        assert_eq!(numbers, (1..=21).collect::<Vec<u8>>());
        assert!(GOALS.iter().all(|goal| !goal.harnesses.is_empty()));
        let text = render("here", Tier::Full, &vec![None; 21], "");
        assert_eq!(text.matches(NOT_RUN).count(), 21 + 1);
        let before = "| 3 | kept |\n\n## Attacks\n\nby hand\n";
        let text = render("here", Tier::Full, &vec![None; 21], before);
        assert!(text.contains("\n| 3 | kept |\n") && text.ends_with("\n## Attacks\n\nby hand\n"));
    }
}
