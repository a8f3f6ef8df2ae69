//! What harnesses share with the command that runs them: sizes, seeds, and measured rows.
//!
//! A harness is an ordinary test. Run by `cargo test` it does a smoke part and writes nothing; run
//! by `cargo xtask torture` it finds sizes and a seed in the environment, and appends what it
//! measured to a file, a line per [`Row`].

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Where rows are appended, if anywhere.
pub const ROWS: &str = "CTRLZ_TORTURE_ROWS";
/// The seed of everything random.
pub const SEED: &str = "CTRLZ_TORTURE_SEED";
/// Full sizes, if it is set to anything.
pub const SLOW: &str = "RUN_SLOW_TESTS";
/// How often at most, for what takes its time; a full run does a part of it.
pub const LIMIT: &str = "CTRLZ_TORTURE_LIMIT";
/// Where gitoxide is, as a program.
pub const GIX: &str = "CTRLZ_TORTURE_GIX";
/// How many minutes the soak takes; no soak where it is missing.
pub const SOAK: &str = "CTRLZ_TORTURE_SOAK_MINUTES";

/// `smoke`, or `full` if full sizes were asked for.
pub fn sized<T>(smoke: T, full: T) -> T {
    if std::env::var_os(SLOW).is_some() { full } else { smoke }
}

/// The same for what takes its time: `full` may be limited.
pub fn many(smoke: usize, full: usize) -> usize {
    let limit = std::env::var(LIMIT).ok().and_then(|text| text.parse().ok());
    sized(smoke, full.min(limit.unwrap_or(usize::MAX)))
}

/// The seed that was asked for, or always the same one.
pub fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(7)
}

/// A sequence that looks random and is the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of the seed that was asked for; harnesses with other names get other ones.
    pub fn new(harness: &str) -> Random {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random::from(harness.bytes().fold(seed() ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }

    /// A random byte.
    pub fn byte(&mut self) -> u8 {
        (self.next() >> 40) as u8
    }

    /// One of `things`, which is not empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    // splitmix64: any seed is a good one.
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

/// Says that the test that is running cannot do its work on this machine.
pub fn not_run(why: &str) {
    let thread = std::thread::current();
    drop(Row::of(0, format!("`{}` ({why})", thread.name().unwrap_or("a test"))));
}

/// One line of what was measured.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Measured {
    /// The goal it belongs to, as numbered in `docs/RELIABILITY.md`.
    pub goal: u8,
    /// What was done, in the plural: "kills at every call of track".
    pub what: String,
    /// How often. Nothing was done where it is zero.
    pub count: u64,
    /// How often it went wrong; a harness stops at its first.
    pub violations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Anything else that was measured.
    pub note: String,
    /// Who did it, where it was not ctrlz.
    pub peer: Option<String>,
    /// The seed it ran with.
    pub seed: u64,
}

/// A line that is being measured. It is written when it is dropped: a harness that panics has
/// found a violation, and one that never counted anything was not run.
#[derive(Debug)]
pub struct Row {
    measured: Measured,
    begun: Instant,
}

impl Row {
    /// A row for `goal`, with nothing counted.
    pub fn of(goal: u8, what: impl Into<String>) -> Row {
        let (what, note, seed) = (what.into(), String::new(), seed());
        let (count, violations, seconds, peer) = (0, 0, 0.0, None);
        let measured = Measured { goal, what, count, violations, seconds, note, peer, seed };
        Row { measured, begun: Instant::now() }
    }

    /// A row about somebody else, for comparison. What goes wrong there is counted by hand.
    pub fn of_peer(peer: &str, goal: u8, what: impl Into<String>) -> Row {
        let mut row = Row::of(goal, what);
        row.measured.peer = Some(peer.into());
        row
    }

    /// It was done once more.
    pub fn done(&mut self) {
        self.add(1);
    }

    /// It was done `more` times.
    pub fn add(&mut self, more: u64) {
        self.measured.count += more;
    }

    /// It went wrong.
    pub fn violated(&mut self, times: u64) {
        self.measured.violations += times;
    }

    /// Something else that was measured.
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
        // One write, so that lines of tests that end at once do not mix. A row that cannot be
        // written is missed by whoever reads them, which is the right moment to complain.
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(rows) {
            drop(file.write_all(&line));
        }
    }
}

/// Feeds a parser `seeds` and `count` variations of them; it may refuse them, but not panic. The
/// input that it did not survive is in the message, to become a test of its own.
///
/// # Panics
/// If the parser does.
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
        // Some variations of variations, without growing for ever.
        if at % 16 == 0 && input.len() < 4096 && corpus.len() < 64 {
            corpus.push(input);
        }
    }
}

/// Values that lengths and offsets go wrong at.
const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Changes a few bytes, repeats, cuts or inserts a piece.
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
