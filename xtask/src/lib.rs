//! Code shared by the harnesses and the command that runs them: sizes, seeds, and measured rows.
//!
//! A harness is an ordinary test. Under `cargo test` it runs a small part and writes nothing. Under
//! `cargo xtask torture` it reads sizes and a seed from the environment, and appends its results to
//! a file, one line per [`Row`].

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

pub mod graph;

/// Environment variable: file that rows are appended to. Without it, none are written.
pub const ROWS: &str = "CTRLZ_TORTURE_ROWS";
/// Environment variable: seed of all random choices.
pub const SEED: &str = "CTRLZ_TORTURE_SEED";
/// Environment variable: enables full sizes if it is set to any value.
pub const SLOW: &str = "RUN_SLOW_TESTS";
/// Environment variable: upper bound on the repetitions of slow tests in a full run.
pub const LIMIT: &str = "CTRLZ_TORTURE_LIMIT";
/// Environment variable: path of the program that runs gitoxide.
pub const GIX: &str = "CTRLZ_TORTURE_GIX";
/// Environment variable: duration of the soak test in minutes. Without it, the test is not run.
pub const SOAK: &str = "CTRLZ_TORTURE_SOAK_MINUTES";

/// Returns `full` if full sizes are enabled, else `smoke`.
pub fn sized<T>(smoke: T, full: T) -> T {
    if std::env::var_os(SLOW).is_some() { full } else { smoke }
}

/// Returns the repetitions of a slow test: like [`sized`], but `full` may be limited.
pub fn many(smoke: usize, full: usize) -> usize {
    let limit = std::env::var(LIMIT).ok().and_then(|text| text.parse().ok());
    sized(smoke, full.min(limit.unwrap_or(usize::MAX)))
}

/// Returns the seed from the environment, or a fixed one.
pub fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(7)
}

/// A deterministic pseudorandom number generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator for the seed of this run and the name of a harness.
    pub fn new(harness: &str) -> Random {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random::from(harness.bytes().fold(seed() ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// Returns a number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    /// Returns a random byte.
    pub fn byte(&mut self) -> u8 {
        (self.next() >> 40) as u8
    }

    /// Returns one of `things`, which must not be empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    // The splitmix64 generator, which has no weak seeds.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl From<u64> for Random {
    fn from(seed: u64) -> Random {
        Random(seed)
    }
}

/// Records that the current test cannot run on this machine.
pub fn not_run(why: &str) {
    let thread = std::thread::current();
    drop(Row::of(0, format!("`{}` ({why})", thread.name().unwrap_or("a test"))));
}

/// The results of one row.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Measured {
    /// Number of the goal in `docs/RELIABILITY.md`.
    pub goal: u8,
    /// The repeated action, in the plural: "kills at every call of track".
    pub what: String,
    /// Number of repetitions. Zero means that the test was not run.
    pub count: u64,
    /// Number of violations. A harness stops at the first one.
    pub violations: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Other measured values.
    pub note: String,
    /// Name of the tool, if it is not ctrlz.
    pub peer: Option<String>,
    /// Seed of the run.
    pub seed: u64,
}

/// A row in progress, which is written on drop. A harness that panics has found a violation, and
/// one that counted nothing was not run.
#[derive(Debug)]
pub struct Row {
    measured: Measured,
    begun: Instant,
}

impl Row {
    /// Returns an empty row for `goal`.
    pub fn of(goal: u8, what: impl Into<String>) -> Row {
        let (what, note, seed) = (what.into(), String::new(), seed());
        let (count, violations, seconds, peer) = (0, 0, 0.0, None);
        let measured = Measured { goal, what, count, violations, seconds, note, peer, seed };
        Row { measured, begun: Instant::now() }
    }

    /// Returns a row about another tool, for comparison. Its violations are counted explicitly.
    pub fn of_peer(peer: &str, goal: u8, what: impl Into<String>) -> Row {
        let mut row = Row::of(goal, what);
        row.measured.peer = Some(peer.into());
        row
    }

    /// Counts one repetition.
    pub fn done(&mut self) {
        self.add(1);
    }

    /// Counts `more` repetitions.
    pub fn add(&mut self, more: u64) {
        self.measured.count += more;
    }

    /// Counts violations.
    pub fn violated(&mut self, times: u64) {
        self.measured.violations += times;
    }

    /// Sets the note about other measured values.
    pub fn note(&mut self, note: impl Into<String>) {
        self.measured.note = note.into();
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let Some(rows) = std::env::var_os(ROWS).map(PathBuf::from) else { return };
        self.measured.seconds = self.begun.elapsed().as_secs_f64();
        if std::thread::panicking() {
            self.measured.violations = self.measured.violations.max(1);
        }
        let Ok(mut line) = serde_json::to_vec(&self.measured) else { return };
        line.push(b'\n');
        // One write, so that lines of concurrent tests do not mix. Errors are ignored: the row is
        // missing from the table.
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(rows) {
            drop(file.write_all(&line));
        }
    }
}

/// Feeds a parser `seeds` and `count` mutations of them. The parser may reject an input, but must
/// not panic. On a panic, the message contains the input, so that it can become a regression test.
///
/// # Panics
/// Panics if the parser does.
pub fn feed(name: &str, seeds: &[Vec<u8>], count: usize, parse: impl Fn(&[u8])) {
    let mut row = Row::of(8, format!("made-up inputs for the parser of {name}"));
    let mut random = Random::new(name);
    let mut corpus: Vec<Vec<u8>> = seeds.to_vec();
    for at in 0..seeds.len() + count {
        let input = match seeds.get(at) {
            Some(seed) => seed.clone(),
            None => vary(random.pick(&corpus).clone(), &mut random),
        };
        let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| parse(&input)));
        assert!(survived.is_ok(), "the parser of {name} does not survive {input:?}");
        row.done();
        // Adds some mutations to the corpus, with limits on its size.
        if at % 16 == 0 && input.len() < 4096 && corpus.len() < 64 {
            corpus.push(input);
        }
    }
}

/// Boundary values of lengths and offsets.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Mutates bytes: changes, repeats, removes or inserts a few of them.
fn vary(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(9)).min(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, random.byte()),
            3 => bytes.extend_from_within(at..end),
            4 if at < bytes.len() => bytes[at] = *random.pick(&EDGES),
            _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => bytes.push(random.byte()),
        }
    }
    bytes
}
