//! The processes that use a database, written in Python for its `sqlite3` module.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{command, python};

/// Commits numbered rows, and prints each number after its commit. Exits at the end of its input.
const WRITER: &str = r#"
import select, sqlite3, sys
path, number, pause, heavy, checkpoint = sys.argv[1:]
number = int(number)
try:
    db = sqlite3.connect("file:" + path + "?mode=rw", uri=True, timeout=60, isolation_level=None)
    db.execute("PRAGMA wal_autocheckpoint=" + checkpoint)
    db.execute("PRAGMA cache_size=10")
    db.execute("SELECT count(*) FROM rows").fetchone()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], float(pause))[0]:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows VALUES (?)", (number,))
        if heavy == "1":
            db.execute("UPDATE filler SET bytes = randomblob(length(bytes)) WHERE id % 3 = ?",
                       (number % 3,))
        db.execute("COMMIT")
        print(number, flush=True)
        number += 1
    db.close()
except sqlite3.Error as error:
    print("error:", error, flush=True)
    sys.exit(1)
"#;

/// Opens a database, reads from it, and keeps the connection open until the end of its input.
const READER: &str = r#"
import sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=rw", uri=True, timeout=60)
db.execute("SELECT count(*) FROM rows").fetchone()
print("ready", flush=True)
sys.stdin.read()
db.close()
"#;

/// Commits a row of the agent. Used as the command of a step.
pub(super) const AGENT: &str = r#"
import sqlite3, sys
db = sqlite3.connect("file:" + sys.argv[1] + "?mode=rw", uri=True, timeout=60, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
db.execute("INSERT INTO agent VALUES (?)", (int(sys.argv[2]),))
db.execute("UPDATE filler SET bytes = randomblob(length(bytes)) WHERE id % 5 = 0")
db.execute("COMMIT")
db.close()
"#;

/// Answers requests about databases, each with a new connection.
const CHECKER: &str = r#"
import json, sqlite3, sys
def connect(path, mode="rw"):
    return sqlite3.connect("file:" + path + "?mode=" + mode, uri=True, timeout=60,
                           isolation_level=None)
while True:
    line = sys.stdin.readline()
    if not line:
        break
    asked = json.loads(line)
    answer = {}
    try:
        if "make" in asked:
            db = connect(asked["make"], "rwc")
            db.execute("PRAGMA journal_mode=" + asked["mode"])
            db.execute("BEGIN")
            db.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY)")
            db.execute("CREATE TABLE agent (number INTEGER PRIMARY KEY)")
            db.execute("CREATE TABLE filler (id INTEGER PRIMARY KEY, bytes BLOB)")
            for at in range(asked["pages"]):
                db.execute("INSERT INTO filler VALUES (?, randomblob(3500))", (at,))
            db.execute("COMMIT")
        else:
            db = connect(asked["check"])
            found = db.execute("PRAGMA integrity_check").fetchall()
            answer["integrity"] = found[0][0]
            db.execute("BEGIN")
            for table in ["rows", "agent"]:
                answer[table] = [row[0] for row in db.execute("SELECT number FROM " + table)]
            db.execute("COMMIT")
        db.close()
    except sqlite3.Error as error:
        answer["error"] = str(error)
    print(json.dumps(answer), flush=True)
"#;

/// Returns a command that runs a Python program.
pub(super) fn program(text: &str, args: &[&str]) -> Command {
    let mut command = command(python());
    command.args(["-I", "-S", "-c", text]).args(args);
    command
}

/// The row numbers in the tables of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) rows: BTreeSet<u64>,
    pub(super) agent: BTreeSet<u64>,
}

/// A process that opens the database anew for every request.
pub(super) struct Checker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Checker {
    pub(super) fn start() -> Checker {
        let mut command = program(CHECKER, &[]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Checker { child, requests, answers }
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests.as_mut().unwrap(), "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Creates a database in a journal mode, with `pages` pages of random bytes.
    pub(super) fn make(&mut self, path: &Path, mode: &str, pages: usize) {
        let answer = self.ask(&json!({ "make": path, "mode": mode, "pages": pages }));
        assert!(answer["error"].is_null(), "{answer}");
    }

    /// Returns all rows of a sound database, or a description of its damage.
    pub(super) fn check(&mut self, path: &Path) -> Result<Rows, String> {
        let answer = self.ask(&json!({ "check": path }));
        if answer["integrity"] != "ok" || !answer["error"].is_null() {
            return Err(answer.to_string());
        }
        let numbers = |name: &str| {
            answer[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
        };
        Ok(Rows { rows: numbers("rows"), agent: numbers("agent") })
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        drop(self.requests.take());
        drop(self.child.wait());
    }
}

/// The way in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It closes its connection.
    Clean,
    /// kill -9.
    Killed,
}

/// A process that has a database open.
pub(super) struct User {
    child: Child,
    /// The first row number that it writes. Unused for readers.
    pub(super) first: u64,
    /// One more than the last acknowledged row number.
    next: Arc<AtomicU64>,
    is_ready: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
    acknowledging: Option<JoinHandle<String>>,
}

/// The speed and the size of a writer's transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) pause: Duration,
    /// Whether each transaction changes a third of the pages and exceeds the page cache.
    pub(super) is_heavy: bool,
    /// Number of pages after which the write-ahead log is checkpointed.
    pub(super) checkpoint: usize,
}

impl User {
    /// Starts a process that commits rows. Does not wait until it is ready.
    pub(super) fn writer(path: &Path, first: u64, pace: Pace) -> User {
        let Pace { pause, is_heavy, checkpoint } = pace;
        let (pause, checkpoint) = (pause.as_secs_f64().to_string(), checkpoint.to_string());
        let (number, heavy) = (first.to_string(), u8::from(is_heavy).to_string());
        let path = path.to_str().unwrap();
        User::start(program(WRITER, &[path, &number, &pause, &heavy, &checkpoint]), first)
    }

    /// Starts a process that only reads.
    pub(super) fn reader(path: &Path) -> User {
        User::start(program(READER, &[path.to_str().unwrap()]), 0)
    }

    fn start(mut command: Command, first: u64) -> User {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let next = Arc::new(AtomicU64::new(first));
        let (is_ready, has_failed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (acknowledged, ready, failed) =
            (Arc::clone(&next), Arc::clone(&is_ready), Arc::clone(&has_failed));
        let acknowledging = std::thread::spawn(move || {
            let mut error = String::new();
            for line in lines.map_while(Result::ok) {
                match line.parse::<u64>() {
                    Ok(number) => acknowledged.store(number + 1, Ordering::SeqCst),
                    Err(_) if line == "ready" => ready.store(true, Ordering::SeqCst),
                    Err(_) => error = line,
                }
            }
            failed.store(!error.is_empty(), Ordering::SeqCst);
            error
        });
        User { child, first, next, is_ready, has_failed, acknowledging: Some(acknowledging) }
    }

    /// Waits until the process has the database open. Returns its error message on failure.
    pub(super) fn wait_until_ready(&mut self) -> Result<(), String> {
        self.wait(|user| user.is_ready.load(Ordering::SeqCst))
    }

    /// Waits for the acknowledgement of a commit that begins from now on. Returns the error message
    /// on failure.
    pub(super) fn wait_for_commit(&mut self) -> Result<(), String> {
        let now = self.next();
        // The next commit may have begun earlier.
        self.wait(|user| user.next() > now + 1)
    }

    fn wait(&mut self, done: impl Fn(&User) -> bool) -> Result<(), String> {
        // Longer than the busy timeout of a connection.
        let end = Instant::now() + Duration::from_secs(90);
        while !done(self) {
            let has_ended = self.child.try_wait().is_ok_and(|ended| ended.is_some());
            if has_ended || self.has_failed.load(Ordering::SeqCst) || Instant::now() > end {
                let error = self.acknowledging.take().and_then(|thread| thread.join().ok());
                return Err(error.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    }

    /// Returns one more than the last acknowledged row number.
    pub(super) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Returns the files below a directory that the process has open and that were unlinked or
    /// replaced.
    pub(super) fn unlinked_files(&self, dir: &Path) -> Vec<String> {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).into_iter().flatten();
        let targets = fds.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let targets = targets.map(|target| target.to_string_lossy().into_owned());
        // A rollback journal is removed after every transaction.
        let is_lost = |target: &String| {
            let is_gone = target.ends_with(" (deleted)") || target.contains("/.ctrlz-");
            is_gone && Path::new(target).starts_with(dir) && !target.contains("-journal")
        };
        targets.filter(is_lost).collect()
    }

    pub(super) fn end(mut self, end: End) {
        match end {
            End::Clean => drop(self.child.stdin.take()),
            End::Killed => drop(self.child.kill()),
        }
        drop(self.child.wait());
        drop(self.acknowledging.take().map(JoinHandle::join));
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The process has exited already unless the case was aborted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
