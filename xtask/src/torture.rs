//! `cargo xtask torture`: runs the harnesses goal by goal and writes the table.
//!
//! Rows are kept per goal under `target/torture-rows/<tier>`, so that a single goal can be run
//! again. A failing harness does not stop the others, but sets the exit code.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::goals::GOALS;
use crate::harness::{Binaries, Outcome};
use crate::process::target;
use crate::{needs, table};

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// The sizes of `cargo test`, which take a few minutes.
    Smoke,
    /// Full sizes. The random histories of goals 19 and 20 take the longest.
    Full,
    /// Full sizes with successive seeds, and the long run of goal 18.
    Soak,
}

impl Tier {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tier::Smoke => "smoke",
            Tier::Full => "full",
            Tier::Soak => "soak",
        }
    }
}

/// Options of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) tier: Tier,
    pub(crate) seed: u64,
    /// Goals to run. Empty means all.
    goals: Vec<u8>,
    minutes: u64,
}

impl Request {
    pub(crate) fn parse(words: &[&str]) -> Result<Request, String> {
        let mut asked = Request { tier: Tier::Smoke, seed: 7, goals: Vec::new(), minutes: 10 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().ok_or(format!("{word} needs a number"))?;
                text.parse::<u64>().map_err(|_| format!("{text} is no number"))
            };
            match *word {
                "smoke" => asked.tier = Tier::Smoke,
                "full" => asked.tier = Tier::Full,
                "soak" => asked.tier = Tier::Soak,
                "--seed" => asked.seed = number()?,
                "--goal" => asked.goals.push(goal(number()?)?),
                "--minutes" => asked.minutes = number()?,
                other => return Err(format!("torture knows no {other}")),
            }
        }
        Ok(asked)
    }

    /// Runs the requested goals. Returns whether all of them held.
    pub(crate) fn run(&self) -> Result<bool, String> {
        needs::install();
        let binaries = Binaries::build(self.tier)?;
        let end = Instant::now() + Duration::from_secs(self.minutes * 60);
        let mut held = true;
        for seed in self.seed.. {
            held &= self.run_once(&binaries, seed)?;
            // A soak repeats until its time is up. The other tiers run once.
            if self.tier != Tier::Soak || Instant::now() > end {
                break;
            }
        }
        Ok(held)
    }

    fn run_once(&self, binaries: &Binaries, seed: u64) -> Result<bool, String> {
        let begun = Instant::now();
        let place = self.place();
        std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let mut held = true;
        for goal in GOALS.iter().filter(|goal| self.wants(goal.number)) {
            println!("goal {}: {}", goal.number, goal.short);
            let outcome = binaries.run(goal, self, seed, &place)?;
            outcome.save(&place, goal.number)?;
            held &= outcome.held();
            println!("  {}", outcome.summary());
            // After each goal, so that an interrupted run leaves its results.
            let outcomes: Vec<Option<Outcome>> =
                GOALS.iter().map(|goal| Outcome::load(&place, goal.number)).collect();
            let written = table::write(self, &place, &outcomes)?;
            println!("  {} s, seed {seed}; {}", begun.elapsed().as_secs(), written.display());
        }
        Ok(held)
    }

    fn wants(&self, number: u8) -> bool {
        // Goal 18 takes long, so other tiers run it only on request.
        let all = self.goals.is_empty() && (number != 18 || self.tier == Tier::Soak);
        all || self.goals.contains(&number)
    }

    pub(crate) fn minutes(&self) -> u64 {
        self.minutes
    }

    fn place(&self) -> PathBuf {
        target().join("torture-rows").join(self.tier.name())
    }
}

fn goal(number: u64) -> Result<u8, String> {
    let known = GOALS.iter().map(|goal| goal.number).find(|known| u64::from(*known) == number);
    known.ok_or(format!("there is no goal {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_understood_or_refused() {
        let asked = Request::parse(&["full", "--seed", "9", "--goal", "3", "--goal", "18"]);
        let asked = asked.unwrap();
        assert_eq!((asked.tier, asked.seed), (Tier::Full, 9));
        let wanted: Vec<u8> = (1..=18).filter(|number| asked.wants(*number)).collect();
        assert_eq!(wanted, [3, 18]);
        let smoke = Request::parse(&[]).unwrap();
        assert!(smoke.wants(17) && !smoke.wants(18));
        for wrong in [&["--seed"][..], &["--seed", "x"], &["--goal", "22"], &["fast"]] {
            assert!(Request::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
