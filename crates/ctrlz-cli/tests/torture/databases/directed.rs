//! Specific situations: a database in use, key-value stores, pid files and lock files.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::lab::{Ended, Lab, has};
use crate::manifest::Manifest;

use super::programs::{Checker, End, Pace, User, program};

/// A writer that checkpoints only when its connection closes.
const PACE: Pace = Pace { pause: Duration::from_millis(1), is_heavy: false, checkpoint: 1_000_000 };

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_default()
}

/// Runs a shell script as a step.
#[track_caller]
fn step(lab: &Lab, script: &str) {
    lab.ctrlz(&["run", "--", "sh", "-c", script]).ok();
}

/// Returns the reasons with which a report lists paths below `dir` as left.
fn reasons(report: &Value, dir: &str) -> Vec<String> {
    let kept = report["kept"].as_array().into_iter().flatten();
    let conflicts = report["conflicts"].as_array().into_iter().flatten();
    let below = kept.chain(conflicts).filter(|entry| {
        entry["path"].as_str().is_some_and(|path| path == dir || path.starts_with(dir))
    });
    below.filter_map(|entry| entry["reason"].as_str().map(str::to_owned)).collect()
}

/// Returns a lab with a LevelDB directory in the state that its library leaves.
fn key_value_store() -> Lab {
    let lab = Lab::new();
    lab.write("notes", "0\n");
    lab.write("kv/CURRENT", "MANIFEST-000002\n");
    lab.write("kv/MANIFEST-000002", "version 2");
    lab.write("kv/000003.log", "records 3");
    lab.write("kv/LOCK", "");
    lab.track();
    lab
}

/// A compaction: a new manifest and a new log replace the old ones.
const COMPACTION: &str = "cd kv; echo version 4 > MANIFEST-000004; echo MANIFEST-000004 > CURRENT; \
                          echo records 5 > 000005.log; rm MANIFEST-000002 000003.log; echo 1 > ../notes";

/// Starts a process that holds the lock of a key-value store and has its log open.
fn holder(lab: &Lab) -> Child {
    let program = &mut program(
        "import fcntl, sys\n\
         lock = open('kv/LOCK', 'w')\n\
         fcntl.lockf(lock, fcntl.LOCK_EX)\n\
         log = open('kv/000005.log', 'a')\n\
         print('ready', flush=True)\n\
         sys.stdin.read()\n",
        &[],
    );
    let program = program.current_dir(&lab.work).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn undo_puts_a_key_value_store_back_as_a_whole() {
    let lab = key_value_store();
    let before = lab.manifest();
    step(&lab, COMPACTION);
    let after = lab.manifest();
    lab.ctrlz(&["undo", "--yes"]).ok();
    lab.manifest().assert_is(&before, "after undo");
    lab.ctrlz(&["redo", "--yes"]).ok();
    lab.manifest().assert_is(&after, "after redo");
}

#[test]
fn undo_leaves_a_whole_key_value_store_that_was_changed_since() {
    let lab = key_value_store();
    step(&lab, COMPACTION);
    lab.write("kv/000005.log", "records 5, and the user's");
    let below = |manifest: Manifest| -> Manifest {
        Manifest(manifest.0.into_iter().filter(|(path, _)| path.starts_with("kv")).collect())
    };
    let before = below(lab.manifest());
    let undone = lab.ctrlz(&["undo", "--json", "--yes"]).is(&[3], "the store stays");
    below(lab.manifest()).assert_is(&before, "after undo");
    let report = json(&undone);
    assert!(!reasons(&report, "kv/").is_empty(), "{report}");
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn undo_leaves_a_key_value_store_that_a_process_has_open() {
    if !has("python3") {
        return;
    }
    let lab = key_value_store();
    step(&lab, COMPACTION);
    let before = lab.manifest();
    let mut holder = holder(&lab);
    let undone = lab.ctrlz(&["undo", "--json", "--yes"]).is(&[3], "the store is in use");
    let report = json(&undone);
    let now = lab.manifest();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(reasons(&report, "kv/").contains(&"in_use".to_owned()), "{report}");
    for (path, entry) in before.0.iter().filter(|(path, _)| path.starts_with("kv")) {
        assert_eq!(now.0.get(path), Some(entry), "{path} of a store in use: {report}");
    }
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn a_removed_lock_of_a_key_value_store_is_not_put_back() {
    let lab = key_value_store();
    step(&lab, "rm kv/LOCK; echo 1 > notes");
    lab.ctrlz(&["undo", "--yes"]).is(&[0, 3], "undo");
    assert!(!lab.work.join("kv/LOCK").exists());
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn a_removed_pid_file_is_not_put_back() {
    let lab = Lab::new();
    lab.write("server.pid", "4194303\n");
    lab.write("notes", "0\n");
    lab.track();
    step(&lab, "rm server.pid; echo 1 > notes");
    lab.ctrlz(&["undo", "--yes"]).is(&[0, 3], "undo");
    assert!(!lab.work.join("server.pid").exists());
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn a_pid_file_of_a_restarted_server_is_not_put_back() {
    let lab = Lab::new();
    lab.write("server.pid", "4194303\n");
    lab.write("notes", "0\n");
    lab.track();
    // Id of a running process.
    let alive = std::process::id();
    step(&lab, &format!("echo {alive} > server.pid; echo 1 > notes"));
    lab.ctrlz(&["undo", "--yes"]).is(&[0, 3], "undo");
    let number = std::fs::read_to_string(lab.work.join("server.pid")).unwrap();
    assert_eq!(number, format!("{alive}\n"));
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn lock_files_of_package_managers_are_put_back() {
    let lab = Lab::new();
    let names = ["Cargo.lock", "yarn.lock", "package-lock.json", "poetry.lock", "composer.lock"];
    for name in names {
        lab.write(name, format!("{name} 1\n"));
    }
    lab.write("notes.pid", "not a number\n");
    lab.track();
    let before = lab.manifest();
    step(
        &lab,
        "rm Cargo.lock yarn.lock notes.pid; echo 2 > package-lock.json; echo 2 >> poetry.lock",
    );
    lab.ctrlz(&["undo", "--yes"]).ok();
    lab.manifest().assert_is(&before, "after undo");
}

/// Starts a writer and waits for its first commits.
fn writer(lab: &Lab, first: u64) -> User {
    let mut writer = User::writer(&lab.work.join("app.db"), first, PACE);
    writer.wait_until_ready().unwrap();
    writer.wait_for_commit().unwrap();
    writer
}

#[test]
fn an_exact_restore_leaves_the_shared_memory_of_a_database_in_use() {
    if !has("python3") {
        return;
    }
    let lab = Lab::new();
    let config = lab.dir().join("home/.config/ctrlz");
    std::fs::create_dir_all(&config).unwrap();
    // The database and its log are too large to be captured, but its shared-memory file is not.
    std::fs::write(config.join("config.toml"), "max_new_file_bytes = 100000\n").unwrap();
    let database = lab.work.join("app.db");
    let mut checker = Checker::start();
    checker.make(&database, "wal", 60);
    lab.write("notes", "0\n");
    let hash = lab.track();
    let mut writer = writer(&lab, 1);
    while database.with_extension("db-wal").metadata().unwrap().len() < 200_000 {
        writer.wait_for_commit().unwrap();
    }
    lab.write("notes", "1\n");
    lab.ctrlz(&["restore", "--exact", "--yes", &hash]).is(&[0, 3], "restore");
    let unlinked = writer.unlinked_files(&lab.work);
    let next = writer.next();
    writer.end(End::Clean);
    assert!(unlinked.is_empty(), "{unlinked:?}");
    assert!(checker.check(&database).unwrap().rows.len() as u64 >= next - 1);
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}

#[test]
fn an_old_log_is_not_put_beside_a_newer_database() {
    if !has("python3") {
        return;
    }
    let lab = Lab::new();
    let database = lab.work.join("app.db");
    let mut checker = Checker::start();
    // The database is too large to be kept as an ignored file, but its log is not.
    checker.make(&database, "wal", 100);
    lab.write(".gitignore", "app.db*\n");
    lab.write("notes", "0\n");
    let first = writer(&lab, 1);
    lab.track();
    let run = ["run", "--", "sh", "-c", "echo 1 > notes; echo; read end"];
    let mut command = lab.command(&run);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut step = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(step.stdout.take().unwrap()).read_line(&mut line).unwrap();
    first.end(End::Clean);
    drop(step.stdin.take());
    step.wait().unwrap();
    let second = writer(&lab, 1_000_000);
    let next = second.next();
    second.end(End::Clean);
    let before = std::fs::read(&database).unwrap();
    lab.ctrlz(&["undo", "--yes"]).is(&[0, 3], "undo");
    for end in ["db-wal", "db-shm", "db-journal"] {
        assert!(!database.with_extension(end).exists(), "{end}");
    }
    assert!(std::fs::read(&database).unwrap() == before, "the database was changed");
    let rows = checker.check(&database).unwrap().rows;
    assert!((1_000_000..next).all(|row| rows.contains(&row)), "{rows:?}");
    assert_eq!(std::fs::read_to_string(lab.work.join("notes")).unwrap(), "0\n");
}
