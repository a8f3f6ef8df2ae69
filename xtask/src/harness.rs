//! Running the harnesses of a goal: builds the test binaries, runs them, and collects the rows.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use xtask::{GIX, LIMIT, Measured, ROWS, SEED, SLOW, SOAK};

use crate::goals::{Goal, Harness};
use crate::needs::{self, search_path};
use crate::process::{output, program};
use crate::torture::{Request, Tier};

/// Timeout of a harness, which is killed after it.
const PATIENCE: Duration = Duration::from_secs(40 * 60);

/// Upper bound on the repetitions of slow tests in a full run. A soak has no bound.
const FULL_LIMIT: u32 = 500;

/// Test binaries, by package and target name.
pub(crate) struct Binaries {
    tests: BTreeMap<(String, String), TestBinary>,
    gix: Option<PathBuf>,
}

struct TestBinary {
    path: PathBuf,
    /// Directory of the package, in which its tests run.
    dir: PathBuf,
}

impl Binaries {
    /// Builds all of them, and the program that runs gitoxide unless the sizes are small.
    pub(crate) fn build(tier: Tier) -> Result<Binaries, String> {
        let mut cargo = program("cargo");
        cargo.args(["test", "--no-run", "--locked", "--quiet", "--message-format=json"]);
        cargo.args([
            "-p",
            "ctrlz-engine",
            "-p",
            "ctrlz",
            "-p",
            "ctrlz-server",
            "-p",
            "ctrlz-agents",
        ]);
        if tier != Tier::Smoke {
            // Full sizes include time limits, which are meant for optimized code.
            cargo.args(["--profile", "torture"]);
        }
        let text = output(&mut cargo)?;
        let messages = text.split(|byte| *byte == b'\n').filter_map(parse_message);
        let gix = (tier != Tier::Smoke).then(needs::gix).flatten();
        Ok(Binaries { tests: messages.collect(), gix })
    }

    /// Runs all harnesses of `goal`, even if one fails.
    pub(crate) fn run(
        &self,
        goal: &Goal,
        asked: &Request,
        seed: u64,
        place: &Path,
    ) -> Result<Outcome, String> {
        let rows = place.join(format!("rows-{:02}", goal.number));
        drop(std::fs::remove_file(&rows));
        let mut outcome = Outcome::default();
        for harness in goal.harnesses {
            let key = (harness.package.to_owned(), harness.target.to_owned());
            let binary = self.tests.get(&key).ok_or(format!("there is no test program {key:?}"))?;
            let log = place.join(format!(
                "goal-{:02}-{}-{}.log",
                goal.number, harness.package, harness.target
            ));
            let mut test = test_program(harness, binary, asked, seed);
            test.env(ROWS, std::path::absolute(&rows).map_err(|error| error.to_string())?);
            if let Some(gix) = &self.gix {
                test.env(GIX, gix);
            }
            let child = start(test, &log)?;
            let status = wait(child);
            outcome.take(&log, status, harness);
        }
        let text = std::fs::read_to_string(&rows).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        outcome.rows =
            together(lines.filter(|row: &Measured| [0, goal.number].contains(&row.goal)));
        outcome.passed -=
            outcome.rows.iter().filter(|row| row.goal == 0).count().min(outcome.passed);
        Ok(outcome)
    }
}

/// Merges rows about the same action, which several tests may contribute to.
fn together(rows: impl Iterator<Item = Measured>) -> Vec<Measured> {
    let mut all: BTreeMap<(Option<String>, String), Measured> = BTreeMap::new();
    for row in rows {
        let key = (row.peer.clone(), row.what.clone());
        match all.get_mut(&key) {
            Some(known) => {
                known.count += row.count;
                known.violations += row.violations;
                known.seconds += row.seconds;
            }
            None => drop(all.insert(key, row)),
        }
    }
    all.into_values().collect()
}

fn parse_message(line: &[u8]) -> Option<((String, String), TestBinary)> {
    let message: serde_json::Value = serde_json::from_slice(line).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    // The id ends in `#NAME@VERSION`, or in `#VERSION` if the directory has the package's name.
    let (_, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = match id.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => dir.file_name()?.to_str()?.to_owned(),
    };
    let name = message["target"]["name"].as_str()?.to_owned();
    let is_test = message["profile"]["test"].as_bool()?;
    is_test.then_some(((package, name), TestBinary { path, dir }))
}

fn test_program(harness: &Harness, binary: &TestBinary, asked: &Request, seed: u64) -> Command {
    let mut test = program(&binary.path);
    test.current_dir(&binary.dir);
    test.args(harness.filters).arg("--color=never");
    test.env("PATH", search_path());
    test.env(SEED, seed.to_string()).env("PROPTEST_RNG_SEED", seed.to_string());
    if asked.tier == Tier::Full {
        test.env(LIMIT, FULL_LIMIT.to_string());
    }
    if asked.tier != Tier::Smoke {
        test.env(SLOW, "1").env(SOAK, asked.minutes().to_string());
    }
    test
}

/// Starts a test binary with its output redirected to `log`.
fn start(mut test: Command, log: &Path) -> Result<Child, String> {
    let named = |error| format!("{}: {error}", log.display());
    let log = File::create(log).map_err(named)?;
    let errors = log.try_clone().map_err(named)?;
    let started = test.stdout(Stdio::from(log)).stderr(Stdio::from(errors)).spawn();
    started.map_err(|error| format!("cannot run {}: {error}", test.get_program().display()))
}

fn wait(mut child: Child) -> Option<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(child.kill());
    drop(child.wait());
    None
}

/// Results of the harnesses of one goal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Measured>,
    /// Number of tests that passed.
    pub(crate) passed: usize,
    /// Names of the tests that failed.
    pub(crate) failed: Vec<String>,
}

impl Outcome {
    /// Returns whether no test failed and no violation was counted, except those of other tools.
    pub(crate) fn held(&self) -> bool {
        let ours = self.rows.iter().filter(|row| row.peer.is_none());
        self.failed.is_empty() && ours.map(|row| row.violations).sum::<u64>() == 0
    }

    pub(crate) fn summary(&self) -> String {
        let count: u64 = self.rows.iter().map(|row| row.count).sum();
        let failed = self.failed.join(", ");
        if self.held() {
            format!("held: {} tests, {count} counted", self.passed)
        } else {
            format!("VIOLATED: {failed} ({} tests passed)", self.passed)
        }
    }

    fn take(&mut self, log: &Path, status: Option<ExitStatus>, harness: &Harness) {
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let ends_with = |end: &str| {
            let names =
                text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(end));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        self.passed += ends_with(" ... ok").len();
        let failed = ends_with(" ... FAILED");
        if !status.is_some_and(|status| status.success()) && failed.is_empty() {
            self.failed.push(format!("{} did not come to its end", harness.package));
        }
        self.failed.extend(failed);
    }

    pub(crate) fn save(&self, place: &Path, goal: u8) -> Result<(), String> {
        let path = place.join(format!("goal-{goal:02}.json"));
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns the results that were saved last, or `None` if this goal was never run.
    pub(crate) fn load(place: &Path, goal: u8) -> Option<Outcome> {
        let text = std::fs::read(place.join(format!("goal-{goal:02}.json"))).ok()?;
        serde_json::from_slice(&text).ok()
    }
}
