//! A work tree with a database, the processes that use it, and the rules that every command has to
//! follow.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use xtask::Random;

use crate::lab::{Ended, Lab, command, ended, python, run, start};

use super::programs::{AGENT, Checker, End, Pace, Rows, User};

/// A violation of a rule.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

type Checked = Result<(), Violation>;

fn check(rule: &'static str, holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { rule, what: what() }) }
}

/// The way in which ctrlz treats the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Storage {
    /// In the user's index, so it is captured regardless of its size.
    Tracked,
    /// New and small.
    Plain,
    /// Larger than `max_new_file_bytes`.
    Large,
    /// Ignored, and small enough to be kept outside of the snapshot.
    Ignored,
    /// Ignored and too large for that.
    IgnoredLarge,
}

impl Storage {
    const ALL: [Storage; 5] =
        [Storage::Tracked, Storage::Plain, Storage::Large, Storage::Ignored, Storage::IgnoredLarge];

    fn is_ignored(self) -> bool {
        matches!(self, Storage::Ignored | Storage::IgnoredLarge)
    }

    /// Returns whether snapshots hold the database.
    fn is_captured(self) -> bool {
        matches!(self, Storage::Tracked | Storage::Plain)
    }

    /// Returns a number of filler pages. A page is about 4 KiB.
    fn pages(self, random: &mut Random) -> usize {
        match self {
            Storage::Tracked => random.below(90),
            Storage::Plain | Storage::Ignored => random.below(12),
            Storage::Large | Storage::IgnoredLarge => 80 + random.below(40),
        }
    }
}

/// The files of a database that are restored together.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Unit(BTreeMap<&'static str, Vec<u8>>);

impl Unit {
    const ENDS: [&'static str; 3] = ["", "-wal", "-journal"];

    fn of(database: &Path) -> Unit {
        let read = |end: &&'static str| Some((*end, std::fs::read(beside(database, end)).ok()?));
        Unit(Unit::ENDS.iter().filter_map(read).collect())
    }

    fn write(&self, database: &Path) {
        for (end, bytes) in &self.0 {
            std::fs::write(beside(database, end), bytes).unwrap();
        }
    }

    /// Returns whether all files are small enough to be kept if they are ignored.
    fn is_small(&self) -> bool {
        self.0.values().all(|bytes| bytes.len() <= 256 << 10)
    }

    /// Returns whether a log is too large to be captured as a new file.
    fn has_large_log(&self) -> bool {
        let is_large = |bytes: &Vec<u8>| bytes.len() as u64 > MAX_NEW_FILE_BYTES as u64;
        self.0.iter().any(|(end, bytes)| !end.is_empty() && is_large(bytes))
    }

    /// Returns a short description for messages.
    fn show(&self) -> String {
        let sum = |bytes: &[u8]| {
            bytes.iter().fold(7_u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
        };
        let part = |(end, bytes): (&&str, &Vec<u8>)| {
            format!("db{end} {} bytes {:08x}", bytes.len(), sum(bytes))
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(", ")
    }
}

fn beside(database: &Path, end: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// The state of the database that a command recorded.
#[derive(Clone)]
enum Recorded {
    /// No process was writing: exactly this state.
    Exact(Arc<Unit>),
    /// A writer was active: a lower and an upper bound of the rows.
    Between(Rows, Rows),
}

struct Step {
    id: String,
    before: Recorded,
    after: Recorded,
    commits: bool,
    is_undone: bool,
}

/// A state that can be restored.
struct Moment {
    operation: String,
    recorded: Recorded,
}

/// The report of an undo, redo or restore.
struct Report {
    json: Value,
    code: Option<i32>,
}

impl Report {
    /// Returns whether the report lists the database as left or skipped.
    fn mentions_database(&self) -> bool {
        ["conflicts", "ignored", "kept", "uncaptured", "left", "skipped"].iter().any(|name| {
            let entries = self.json[name].as_array().into_iter().flatten();
            let mut paths = entries.map(|entry| entry["path"].as_str().or(entry.as_str()));
            paths.any(|path| path.is_some_and(|path| path.starts_with(DATABASE)))
        })
    }

    fn has_changed(&self) -> bool {
        self.json["after"].is_string() && !self.json["done"].as_array().is_none_or(Vec::is_empty)
    }

    fn steps(&self) -> Vec<&str> {
        self.json["steps"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

const DATABASE: &str = "app.db";
const MAX_NEW_FILE_BYTES: usize = 200 << 10;

/// Number of commands, by whether a writer had the database open.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) live: u64,
    pub(super) quiet: u64,
    /// Commands that put the database back.
    pub(super) put_back: u64,
    /// Commands that left the database unchanged and reported it.
    pub(super) left: u64,
}

impl Counts {
    pub(super) fn add(&mut self, more: Counts) {
        self.live += more.live;
        self.quiet += more.quiet;
        self.put_back += more.put_back;
        self.left += more.left;
    }
}

pub(super) struct History<'a> {
    lab: Lab,
    database: PathBuf,
    storage: Storage,
    checker: &'a mut Checker,
    random: Random,
    writer: Option<User>,
    reader: Option<User>,
    is_calm: bool,
    /// The rows in the database, without those of the current writer.
    base: Rows,
    /// Number of row numbers that were given out.
    numbers: u64,
    steps: Vec<Step>,
    moments: Vec<Moment>,
    /// Every exact state that a command recorded.
    units: Vec<Arc<Unit>>,
    /// Bounds of every state that a command recorded while a writer was active.
    lives: Vec<(Rows, Rows)>,
    copies: usize,
    pub(super) counts: Counts,
    pub(super) said: Vec<String>,
}

impl<'a> History<'a> {
    pub(super) fn new(checker: &'a mut Checker, seed: u64) -> History<'a> {
        let mut random = Random::from(seed);
        let storage = *random.pick(&Storage::ALL);
        let mode = *random.pick(&["wal", "wal", "delete"]);
        let is_calm = random.below(3) == 0;
        let lab = Lab::new().threaded();
        let database = lab.work.join(DATABASE);
        let config = lab.dir().join("home/.config/ctrlz");
        std::fs::create_dir_all(&config).unwrap();
        let limit = format!("max_new_file_bytes = {MAX_NEW_FILE_BYTES}\n");
        std::fs::write(config.join("config.toml"), limit).unwrap();
        lab.write(".gitignore", if storage.is_ignored() { "app.db*\n" } else { "\n" });
        lab.write("notes", "0\n");
        let pages = storage.pages(&mut random);
        checker.make(&database, mode, pages);
        if storage == Storage::Tracked {
            let git = |args: &[&str]| run(command("git").args(args).current_dir(&lab.work)).ok();
            git(&["init", "-q"]);
            git(&["add", "-f", DATABASE]);
        }
        let said = vec![format!("{storage:?}, journal_mode {mode}, {pages} pages of filler")];
        let history = History {
            lab,
            database,
            storage,
            checker,
            random,
            writer: None,
            reader: None,
            is_calm,
            base: Rows::default(),
            numbers: 0,
            steps: Vec::new(),
            moments: Vec::new(),
            units: Vec::new(),
            lives: Vec::new(),
            copies: 0,
            counts: Counts::default(),
            said,
        };
        // Records the database first, so that no snapshot under test is the first one.
        history.lab.ctrlz(&["track"]);
        history
    }

    /// Performs `count` random actions.
    pub(super) fn go(&mut self, count: usize) -> Checked {
        for _ in 0..count {
            self.act()?;
        }
        self.end_users(End::Clean);
        Ok(())
    }

    fn act(&mut self) -> Checked {
        if self.writer.is_some() {
            self.pass_time();
        }
        // Usually a writer is active; in calm histories it rarely is.
        if self.is_calm && !self.is_quiet() && self.random.below(3) == 0 {
            let end = *self.random.pick(&[End::Clean, End::Killed]);
            return self.end_writer(end);
        }
        if self.is_quiet() && self.random.below(if self.is_calm { 25 } else { 4 }) == 0 {
            return self.change_users();
        }
        match self.random.below(20) {
            0 => self.change_users(),
            1 => self.end_writer(End::Killed),
            2 => self.step_on_notes(),
            3..7 => self.step_on_database(),
            7 => self.step_that_ends_the_writer(),
            8 => self.step_that_removes(),
            9 => self.track(),
            10..15 => self.undo(),
            15 | 16 => self.redo(),
            17 => self.race(),
            _ => self.restore(),
        }
    }

    fn say(&mut self, line: String) {
        self.said.push(line);
    }

    fn pass_time(&mut self) {
        let micros = self.random.below(8_000) as u64;
        std::thread::sleep(Duration::from_micros(micros));
    }

    fn is_there(&self) -> bool {
        self.database.exists()
    }

    /// Returns whether no writer is running.
    fn is_quiet(&self) -> bool {
        self.writer.is_none()
    }

    /// Returns the rows of a database without a writer. Reads a copy, because a connection would
    /// change the files.
    fn rows_of(&mut self, unit: &Unit) -> Result<Rows, String> {
        if !unit.0.contains_key("") {
            return Ok(Rows::default());
        }
        let dir = self.lab.dir().join(format!("saved-{}", self.copies));
        self.copies += 1;
        std::fs::create_dir(&dir).unwrap();
        unit.write(&dir.join(DATABASE));
        let found = self.checker.check(&dir.join(DATABASE));
        std::fs::remove_dir_all(&dir).unwrap();
        found
    }

    /// Returns the rows that a command started now records at least.
    fn rows_now(&self) -> Rows {
        let mut rows = self.base.clone();
        if let Some(writer) = &self.writer {
            rows.rows.extend(writer.first..writer.next());
        }
        rows
    }

    /// Runs a command that records the database. Also returns the state that it may have recorded.
    fn recording<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> (T, Recorded) {
        if self.is_quiet() {
            let unit = Arc::new(Unit::of(&self.database));
            self.units.push(Arc::clone(&unit));
            return (run(self), Recorded::Exact(unit));
        }
        let low = self.rows_now();
        let result = run(self);
        let mut high = self.rows_now();
        // The last commit may not have been acknowledged yet.
        high.rows.extend(self.writer.as_ref().map(User::next));
        self.lives.push((low.clone(), high.clone()));
        (result, Recorded::Between(low, high))
    }

    fn pace(&mut self) -> Pace {
        Pace {
            pause: Duration::from_micros(*self.random.pick(&[0, 300, 1_000, 5_000, 20_000])),
            is_heavy: self.random.below(3) == 0,
            checkpoint: *self.random.pick(&[2, 20, 1_000]),
        }
    }

    fn new_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers * 1_000_000
    }

    /// Starts or ends a reader or writer.
    fn change_users(&mut self) -> Checked {
        let end = *self.random.pick(&[End::Clean, End::Killed]);
        if self.random.below(4) == 0 {
            match self.reader.take() {
                Some(reader) => {
                    self.say(format!("the reader ends: {end:?}"));
                    reader.end(end);
                }
                None if self.is_there() => {
                    let mut reader = User::reader(&self.database);
                    self.say("a reader starts".into());
                    started(&reader.wait_until_ready())?;
                    self.reader = Some(reader);
                }
                None => (),
            }
            return Ok(());
        }
        match self.writer.is_some() {
            true => self.end_writer(end),
            false if self.is_there() => {
                let rows = self.fresh_rows()?;
                let (number, pace) = (self.new_number(), self.pace());
                self.say(format!("a writer starts with {number}: {pace:?}"));
                let mut writer = User::writer(&self.database, number, pace);
                started(&writer.wait_until_ready())?;
                (self.base, self.writer) = (rows, Some(writer));
                Ok(())
            }
            false => Ok(()),
        }
    }

    /// Returns the rows that a new connection would find while no writer is running.
    fn fresh_rows(&mut self) -> Result<Rows, Violation> {
        let unit = Unit::of(&self.database);
        self.rows_of(&unit).map_err(|what| Violation {
            rule: "a database is damaged",
            what: format!("{what}: {}", unit.show()),
        })
    }

    /// Ends the writer, and checks that its acknowledged commits are in the database.
    fn end_writer(&mut self, end: End) -> Checked {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let (first, next) = (writer.first, writer.next());
        writer.end(end);
        self.say(format!("the writer ends before {next}: {end:?}"));
        let found = self.fresh_rows()?;
        let mut wanted = self.base.clone();
        wanted.rows.extend(first..next);
        self.lost_rows(&wanted, &found)?;
        self.base = found;
        Ok(())
    }

    fn lost_rows(&self, wanted: &Rows, found: &Rows) -> Checked {
        let lost: Vec<&u64> = wanted.rows.difference(&found.rows).take(5).collect();
        check("an acknowledged commit is lost", lost.is_empty(), || format!("{lost:?}"))?;
        check("a commit of a step is lost", wanted.agent.is_subset(&found.agent), || {
            format!("{:?}, not {:?}", found.agent, wanted.agent)
        })
    }

    fn end_users(&mut self, end: End) {
        for user in [self.writer.take(), self.reader.take()].into_iter().flatten() {
            user.end(end);
        }
    }

    fn count(&mut self) {
        if self.is_quiet() {
            self.counts.quiet += 1;
        } else {
            self.counts.live += 1;
        }
    }

    /// Checks the invariants that hold after every command while a writer runs.
    fn check_writer(&mut self, rule: &'static str) -> Checked {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let unlinked = writer.unlinked_files(&self.lab.work);
        check("a file that a writer has open was replaced", unlinked.is_empty(), || {
            format!("{unlinked:?} {rule}")
        })?;
        let wanted = self.rows_now();
        let found = self.checker.check(&self.database);
        let found = found.map_err(|what| Violation { rule: "a database is damaged", what })?;
        self.lost_rows(&wanted, &found)?;
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let commits = writer.wait_for_commit();
        check("a live writer cannot commit any more", commits.is_ok(), || format!("{commits:?}"))
    }

    fn ctrlz(&mut self, args: &[&str]) -> Ended {
        self.count();
        self.lab.ctrlz(args)
    }

    fn track(&mut self) -> Checked {
        let (tracked, recorded) = self.recording(|own| own.ctrlz(&["track", "--json"]));
        self.say(format!("ctrlz track -> {:?} {}", tracked.code(), recorded.show()));
        check("a command failed", matches!(tracked.code(), Some(0 | 3)), || {
            format!("{tracked:?}")
        })?;
        let json: Value = serde_json::from_str(&tracked.stdout).unwrap_or_default();
        if let Some(operation) = json["operation"].as_str() {
            self.moments.push(Moment { operation: operation.to_owned(), recorded });
        }
        self.check_writer("after track")
    }

    fn begin_step(&mut self) -> Result<(Child, String, Recorded), Violation> {
        let part = format!("part{}", self.steps.len());
        let line = ["run", "--session", "A", "--message", &part, "--part", &part];
        let script = ["--", "sh", "-c", "echo; read end"];
        let args: Vec<&str> = line.into_iter().chain(script).collect();
        let mut command = self.lab.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.count();
        let (child, before) = self.recording(|_| {
            let mut child = command.spawn().unwrap();
            let mut byte = [0];
            let said = child.stdout.as_mut().and_then(|out| out.read(&mut byte).ok());
            if said == Some(1) { Ok(child) } else { Err(ended(child)) }
        });
        let child = child.map_err(|ended| Violation {
            rule: "a command failed",
            what: format!("run: {ended:?}"),
        })?;
        Ok((child, part, before))
    }

    fn end_step(&mut self, begun: (Child, String, Recorded), commits: bool) -> Checked {
        let (mut child, part, before) = begun;
        let (ended, after) = self.recording(|_| {
            drop(child.stdin.take());
            ended(child)
        });
        check("a command failed", ended.code() == Some(1), || format!("run: {ended:?}"))?;
        let log = self.lab.ctrlz(&["log", "--json", "-n", "4"]).stdout;
        let log: Value = serde_json::from_str(&log).unwrap_or_default();
        let entries = log["operations"].as_array().into_iter().flatten();
        let mut steps = entries.flat_map(|entry| entry["steps"].as_array().into_iter().flatten());
        let found = steps.find(|step| step["part"] == part.as_str());
        let id = found.and_then(|step| step["step"].as_str()).unwrap_or_default().to_owned();
        self.say(format!("  {part} ({id}): {} -> {}", before.show(), after.show()));
        self.steps.push(Step { id, before, after, commits, is_undone: false });
        self.check_writer("after a step")
    }

    fn step_on_notes(&mut self) -> Checked {
        self.say("a step changes notes".into());
        let begun = self.begin_step()?;
        let number = self.new_number();
        self.lab.write("notes", format!("{number}\n"));
        self.end_step(begun, false)
    }

    /// Commits a row of the agent in a separate process.
    fn agent_commits(&mut self) -> Checked {
        let number = self.new_number();
        let path = self.database.to_str().unwrap().to_owned();
        let args = ["-I", "-S", "-c", AGENT, &path, &number.to_string()];
        let ended = run(command(python()).args(args));
        check("a process cannot write to the database", ended.code() == Some(0), || {
            format!("{ended:?}")
        })?;
        self.base.agent.insert(number);
        Ok(())
    }

    fn step_on_database(&mut self) -> Checked {
        if !self.is_there() {
            return Ok(());
        }
        let is_outside = self.random.below(5) == 0;
        if self.is_quiet() {
            self.base = self.fresh_rows()?;
        }
        if is_outside {
            self.say("the user changes the database".into());
            return self.agent_commits();
        }
        let with_notes = self.random.below(2) == 0;
        self.say("a step changes the database".into());
        let begun = self.begin_step()?;
        if with_notes {
            let number = self.new_number();
            self.lab.write("notes", format!("{number}\n"));
        }
        self.agent_commits()?;
        self.end_step(begun, true)
    }

    /// Runs a step that ends the writer, like an agent that restarts the application.
    fn step_that_ends_the_writer(&mut self) -> Checked {
        if self.is_quiet() {
            return Ok(());
        }
        self.say("a step ends the writer".into());
        let begun = self.begin_step()?;
        let end = *self.random.pick(&[End::Clean, End::Clean, End::Killed]);
        self.end_writer(end)?;
        self.end_step(begun, true)
    }

    fn step_that_removes(&mut self) -> Checked {
        let is_safe = self.storage.is_captured() || self.storage == Storage::Ignored;
        if !self.is_quiet() || self.reader.is_some() || !self.is_there() || !is_safe {
            return Ok(());
        }
        self.say("a step removes the database".into());
        let begun = self.begin_step()?;
        for end in ["", "-wal", "-shm", "-journal"] {
            crate::lab::remove(&beside(&self.database, end));
        }
        self.base = Rows::default();
        // `commits` is false: an undo need not report anything if the database exists again.
        self.end_step(begun, false)
    }

    fn undo(&mut self) -> Checked {
        let wants_ignored = self.storage == Storage::Ignored && self.random.below(2) == 0;
        let mut args = vec!["undo", "--json", "--yes"];
        if wants_ignored {
            args.push("--ignored");
        }
        let known: Vec<usize> =
            (0..self.steps.len()).filter(|at| !self.steps[*at].id.is_empty()).collect();
        let newest = known.last().copied();
        let at = if known.is_empty() || self.random.below(3) > 0 {
            newest.filter(|_| self.random.below(2) == 0)
        } else {
            Some(*self.random.pick(&known))
        };
        let id = at.map(|at| self.steps[at].id.clone()).unwrap_or_default();
        if at.is_some() {
            args.extend(["--step", &id]);
        }
        let expected = at.filter(|at| !self.steps[*at].is_undone).and_then(|at| {
            let step = &self.steps[at];
            match (&step.before, &step.after) {
                (Recorded::Exact(before), Recorded::Exact(after)) => {
                    let is_kept = wants_ignored && before.is_small() && after.is_small();
                    let is_captured = self.storage.is_captured() && !before.has_large_log();
                    let is_taken = is_captured || is_kept;
                    is_taken.then(|| (Arc::clone(after), Arc::clone(before)))
                }
                _ => None,
            }
        });
        let is_policy = self.storage.is_ignored();
        let must_speak = at.is_some_and(|at| {
            let step = &self.steps[at];
            step.commits && !step.is_undone && !is_policy
        });
        let unit = Unit::of(&self.database);
        let report = self.take_back(&args)?;
        let Some(report) = report else { return Ok(()) };
        if !self.is_quiet() {
            return check(
                "an undo does not say that it leaves a database in use",
                !must_speak || (report.mentions_database() && report.code == Some(3)),
                || format!("{:?} {}", report.code, report.json),
            );
        }
        let now = Unit::of(&self.database);
        if let (Some((after, before)), None) = (expected, &self.reader)
            && unit == *after
        {
            check("an undo does not put a database back", now == *before, || {
                format!("{} instead of {}: {}", now.show(), before.show(), report.json)
            })?;
        }
        if self.random.below(3) == 0 && report.has_changed() && self.reader.is_none() {
            let Some(redone) = self.take_back(&["redo", "--json", "--yes"])? else { return Ok(()) };
            let now = Unit::of(&self.database);
            return check("undo and redo are not the identity", now == unit, || {
                format!("{} instead of {}: {}", now.show(), unit.show(), redone.json)
            });
        }
        Ok(())
    }

    fn redo(&mut self) -> Checked {
        self.take_back(&["redo", "--json", "--yes"]).map(drop)
    }

    fn restore(&mut self) -> Checked {
        if self.moments.is_empty() {
            return self.track();
        }
        let at = self.random.below(self.moments.len());
        let Moment { operation, recorded } = &self.moments[at];
        let (operation, recorded) = (operation.clone(), recorded.clone());
        let mut args = vec!["restore", "--json", "--yes", &operation];
        let is_exact = self.random.below(2) == 0;
        if is_exact {
            args.push("--exact");
        }
        let report = self.take_back(&args)?;
        let Some(report) = report.filter(|_| self.is_quiet()) else { return Ok(()) };
        let now = Unit::of(&self.database);
        let is_put_back = match &recorded {
            Recorded::Exact(unit) if now == **unit => true,
            // A sidecar file that was created since may stay if it does not change the rows.
            Recorded::Exact(unit) if !is_exact => {
                self.rows_of(unit).ok() == self.rows_of(&now).ok()
            }
            Recorded::Exact(_) => false,
            Recorded::Between(..) => true,
        };
        let is_said = report.code == Some(3) && report.mentions_database();
        // Only an exact restore removes files that were created since.
        let had_database = matches!(&recorded, Recorded::Exact(unit) if unit.0.contains_key(""));
        // A log that was too large to be captured is in no snapshot, so that state cannot be
        // restored.
        let is_recorded = !matches!(&recorded, Recorded::Exact(unit) if unit.has_large_log());
        let is_taken = self.storage.is_captured() && is_recorded && (is_exact || had_database);
        check(
            "a restore does not put a database back",
            is_put_back || is_said || !is_taken,
            || format!("{}: {:?} {}", now.show(), report.code, report.json),
        )?;
        // Without a reader, nothing prevents an exact restore.
        let must = is_exact && is_taken && self.reader.is_none();
        check("an exact restore leaves a database", is_put_back || !must, || {
            format!("{}: {:?} {}", now.show(), report.code, report.json)
        })
    }

    /// Runs a command that may change files, and checks the general rules. Returns `None` if there
    /// was nothing to do.
    fn take_back(&mut self, args: &[&str]) -> Result<Option<Report>, Violation> {
        let unit = Unit::of(&self.database);
        let memory = std::fs::read(beside(&self.database, "-shm")).ok();
        let (ended, _) = self.recording(|own| own.ctrlz(args));
        self.say(format!("ctrlz {} -> {:?}", args.join(" "), ended.code()));
        self.judge(args[0], &unit, memory.as_deref(), &ended)
    }

    fn judge(
        &mut self,
        name: &str,
        unit: &Unit,
        memory: Option<&[u8]>,
        ended: &Ended,
    ) -> Result<Option<Report>, Violation> {
        let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let report = Report { json, code: ended.code() };
        for list in ["done", "conflicts", "ignored", "kept", "uncaptured", "left"] {
            if report.json[list].as_array().is_some_and(|list| !list.is_empty()) {
                self.say(format!("  {list} {}", report.json[list]));
            }
        }
        check("a command failed", matches!(ended.code(), Some(0 | 3 | 4)), || {
            format!("{ended:?}")
        })?;
        for id in report.steps() {
            let known = self.steps.iter_mut().find(|step| step.id == id);
            if let Some(step) = known.filter(|_| report.json["after"].is_string()) {
                // If a redo leaves the database, the step stays undone there.
                let is_left = name == "redo" && report.mentions_database();
                step.is_undone = name == "undo" || (is_left && step.is_undone);
            }
        }
        if let Some(reader) = &self.reader {
            let stale = reader.unlinked_files(&self.lab.work);
            let is_fine = stale.is_empty() || report.mentions_database();
            check("a reader has a stale file and the report does not say so", is_fine, || {
                format!("{stale:?}: {}", report.json)
            })?;
        }
        if self.writer.is_some() {
            self.check_writer("after a command")?;
            self.counts.left += u64::from(report.mentions_database());
            return Ok((report.code != Some(4)).then_some(report));
        }
        let now = Unit::of(&self.database);
        self.check_same_state(unit, &now, &report)?;
        self.counts.put_back += u64::from(now != *unit);
        self.counts.left += u64::from(now == *unit && report.mentions_database());
        let memory_now = std::fs::read(beside(&self.database, "-shm")).ok();
        let is_fine = memory_now.is_none() || memory_now.as_deref() == memory;
        check("a shared-memory file was put back", is_fine, || report.json.to_string())?;
        self.base = self.fresh_rows()?;
        Ok((report.code != Some(4)).then_some(report))
    }

    /// Checks that the database and its sidecar files belong to the same recorded state.
    fn check_same_state(&mut self, unit: &Unit, now: &Unit, report: &Report) -> Checked {
        if now == unit || self.units.iter().any(|known| **known == *now) {
            return Ok(());
        }
        let damaged = |what: String| Violation {
            rule: "a database is damaged",
            what: format!("{what}: {}: {}", now.show(), report.json),
        };
        let rows = self.rows_of(now).map_err(damaged)?;
        let is_known = self.lives.iter().any(|(low, high)| {
            low.rows.is_subset(&rows.rows)
                && rows.rows.is_subset(&high.rows)
                && low.agent == rows.agent
        });
        check("the files of a database are of several moments", is_known, || {
            format!("{} from {}: {}", now.show(), unit.show(), report.json)
        })
    }

    /// Starts a writer while an undo may be putting the database back.
    fn race(&mut self) -> Checked {
        if !self.is_quiet() || !self.is_there() || self.steps.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.steps.len());
        let id = self.steps[at].id.clone();
        let args = ["undo", "--json", "--yes", "--step", &id];
        let memory = std::fs::read(beside(&self.database, "-shm")).ok();
        let unit = Unit::of(&self.database);
        self.units.push(Arc::new(unit.clone()));
        let (number, pace) = (self.new_number(), self.pace());
        let child = start(&mut self.lab.command(&args));
        self.counts.live += 1;
        let micros = self.random.below(25_000) as u64;
        std::thread::sleep(Duration::from_micros(micros));
        let mut writer = User::writer(&self.database, number, pace);
        let ended = ended(child);
        let is_ready = writer.wait_until_ready();
        self.say(format!(
            "ctrlz {} -> {:?}; a writer starts with {number} after {micros} µs: {is_ready:?}",
            args.join(" "),
            ended.code()
        ));
        // The undo may have removed the database.
        if is_ready.is_err() && !self.is_there() {
            return self.judge("undo", &unit, memory.as_deref(), &ended).map(drop);
        }
        started(&is_ready)?;
        let commits = writer.wait_for_commit();
        check("a live writer cannot commit any more", commits.is_ok(), || format!("{commits:?}"))?;
        let found = self.checker.check(&self.database);
        let found = found.map_err(|what| Violation { rule: "a database is damaged", what })?;
        self.base = found;
        self.base.rows.retain(|row| *row < number);
        self.writer = Some(writer);
        // The writer opened the database while the undo was exchanging it.
        if ended.code() == Some(5) && ended.stdout.contains("rolled_back") {
            return self.check_writer("after an undo that was rolled back");
        }
        self.judge("undo", &unit, memory.as_deref(), &ended).map(drop)
    }
}

fn started(result: &Result<(), String>) -> Checked {
    check("a process cannot open the database", result.is_ok(), || format!("{result:?}"))
}

impl Recorded {
    fn show(&self) -> String {
        match self {
            Recorded::Exact(unit) => unit.show(),
            Recorded::Between(low, high) => {
                format!("{} to {} rows, live", low.rows.len(), high.rows.len())
            }
        }
    }
}
