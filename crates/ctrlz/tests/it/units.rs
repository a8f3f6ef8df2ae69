//! Files that must be restored together, and files in use.

use std::fs::File;
use std::io::Write;

use ctrlz::{KeptReason, OnUse, UndoOptions, UndoReport, UndoScope};

use crate::lab::{Lab, noise, tree_path};

/// Returns bytes that start with the header of an SQLite database.
fn database(seed: u64, pages: u64) -> Vec<u8> {
    let mut bytes = b"SQLite format 3\0".to_vec();
    bytes.extend(noise(seed, pages * 512 - 16));
    bytes
}

fn wal(seed: u64) -> Vec<u8> {
    let mut bytes = 0x377f_0682_u32.to_be_bytes().to_vec();
    bytes.extend(noise(seed, 500));
    bytes
}

/// First bytes of the shared memory of an SQLite database.
const SHARED_MEMORY: [u8; 4] = 3_007_000_u32.to_ne_bytes();

fn bytes_of(lab: &Lab, path: &str) -> Vec<u8> {
    std::fs::read(lab.path(path)).unwrap()
}

fn reasons(report: &UndoReport) -> Vec<(String, KeptReason)> {
    report.kept.iter().map(|kept| (kept.path.to_string(), kept.reason.clone())).collect()
}

#[test]
fn an_old_wal_is_never_restored_beside_a_newer_database() {
    for ignored in [false, true] {
        let lab =
            if ignored { Lab::with_git(&[(".gitignore", "*.sqlite3*\n")]) } else { Lab::new() };
        let large = if ignored { 600 } else { 4 };
        lab.write("dev.sqlite3", database(1, large));
        lab.write("dev.sqlite3-wal", wal(2));
        lab.write("dev.sqlite3-shm", SHARED_MEMORY);
        lab.write("other", "one\n");
        // The agent restarts the application, which moves the WAL into the database.
        lab.step("s", "m1", "1", |lab| {
            lab.write("dev.sqlite3", database(3, large));
            lab.remove("dev.sqlite3-wal");
            lab.remove("dev.sqlite3-shm");
            lab.write("other", "AGENT\n");
        });
        // The user keeps using it.
        let newer = database(4, large);
        lab.write("dev.sqlite3", &newer);
        let report = lab.undo();
        assert_eq!(lab.read("other"), "one\n", "the rest is undone");
        assert_eq!(bytes_of(&lab, "dev.sqlite3"), newer);
        assert!(!lab.exists("dev.sqlite3-wal") && !lab.exists("dev.sqlite3-shm"), "{report:?}");
        assert!(!report.is_complete(), "{report:?}");
    }
}

#[test]
fn a_database_and_its_wal_are_restored_together() {
    let lab = Lab::new();
    let (db, log) = (database(1, 4), wal(2));
    lab.write("app.db", &db);
    lab.write("app.db-wal", &log);
    lab.write("app.db-shm", SHARED_MEMORY);
    lab.step("s", "m1", "1", |lab| {
        lab.write("app.db", database(3, 5));
        lab.remove("app.db-wal");
        lab.remove("app.db-shm");
    });
    let report = lab.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((bytes_of(&lab, "app.db"), bytes_of(&lab, "app.db-wal")), (db, log));
    assert!(!lab.exists("app.db-shm"), "shared memory is never restored");
    lab.redo();
    assert_eq!(bytes_of(&lab, "app.db"), database(3, 5));
    assert!(!lab.exists("app.db-wal"));
}

#[test]
fn a_lost_database_is_recovered_with_its_wal_but_without_shared_memory() {
    let lab = Lab::new();
    let (db, log) = (database(1, 4), wal(2));
    lab.write("app.db", &db);
    lab.write("app.db-wal", &log);
    lab.write("app.db-shm", SHARED_MEMORY);
    lab.step("s", "m1", "1", |lab| {
        ["app.db", "app.db-wal", "app.db-shm"].iter().for_each(|path| lab.remove(path));
    });
    let lost = lab.workspace().lost_files().list().unwrap();
    let lost: Vec<String> = lost.iter().map(|lost| lost.path.to_string()).collect();
    assert_eq!(lost, ["app.db", "app.db-wal"]);
    let (path, progress) = (tree_path("app.db"), ctrlz::Progress::default());
    let report =
        lab.workspace().lost_files().recover(&path, &Default::default(), &progress).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((bytes_of(&lab, "app.db"), bytes_of(&lab, "app.db-wal")), (db, log));
}

#[test]
fn a_file_named_like_a_wal_without_a_database_is_an_ordinary_file() {
    let lab = Lab::new();
    lab.write("notes", "mine\n");
    lab.write("notes-wal", "text\n");
    lab.step("s", "m1", "1", |lab| lab.remove("notes-wal"));
    lab.write("notes", "changed since\n");
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("notes-wal"), "text\n");
}

#[test]
fn lock_files_of_package_managers_are_restored() {
    let lab = Lab::new();
    let names = ["Cargo.lock", "yarn.lock", "poetry.lock", "flake.lock"];
    names.iter().for_each(|name| lab.write(name, "locked\n"));
    lab.step("s", "m1", "1", |lab| names.iter().for_each(|name| lab.remove(name)));
    assert!(lab.undo().is_complete());
    names.iter().for_each(|name| assert_eq!(lab.read(name), "locked\n"));
}

#[test]
fn a_pid_file_is_not_restored_unless_git_tracks_it() {
    let lab = Lab::with_git(&[("tracked.pid", "42\n")]);
    lab.write("server.pid", "4711\n");
    lab.write("other.pid", "no number\n");
    lab.step("s", "m1", "1", |lab| {
        ["tracked.pid", "server.pid", "other.pid"].iter().for_each(|name| lab.remove(name));
    });
    let report = lab.undo();
    assert_eq!(reasons(&report), [("server.pid".to_owned(), KeptReason::ProcessFile)]);
    assert!(report.is_complete() && !lab.exists("server.pid"));
    assert_eq!(
        (lab.read("tracked.pid"), lab.read("other.pid")),
        ("42\n".into(), "no number\n".into())
    );
}

#[test]
fn a_key_value_store_is_restored_completely_or_not_at_all() {
    let fill = |lab: &Lab| {
        lab.write("kv/CURRENT", "MANIFEST-000001\n");
        lab.write("kv/MANIFEST-000001", "m1");
        lab.write("kv/000003.log", "log");
        lab.write("kv/LOCK", "");
    };
    let work = |lab: &Lab| {
        lab.write("kv/CURRENT", "MANIFEST-000002\n");
        lab.write("kv/MANIFEST-000002", "m2");
        lab.remove("kv/MANIFEST-000001");
        lab.remove("kv/LOCK");
    };
    let lab = Lab::new();
    fill(&lab);
    lab.step("s", "m1", "1", work);
    assert!(lab.undo().is_complete());
    assert_eq!(lab.read("kv/CURRENT"), "MANIFEST-000001\n");
    assert!(lab.exists("kv/MANIFEST-000001") && !lab.exists("kv/MANIFEST-000002"));
    assert!(!lab.exists("kv/LOCK"), "a lock file is never restored");
    let lab = Lab::new();
    fill(&lab);
    lab.step("s", "m1", "1", work);
    lab.write("kv/000003.log", "the application went on");
    let report = lab.undo();
    assert!(!report.is_complete());
    assert_eq!(lab.read("kv/CURRENT"), "MANIFEST-000002\n", "{report:?}");
    assert!(!lab.exists("kv/MANIFEST-000001"));
}

#[test]
fn a_file_open_for_writing_is_left_alone_and_reported() {
    let lab = Lab::new();
    lab.write("server.log", "one\n");
    lab.write("code", "one\n");
    lab.step("s", "m1", "1", |lab| {
        lab.write("server.log", "one\nby the agent\n");
        lab.write("code", "AGENT\n");
    });
    // Another process appends to the log.
    #[expect(clippy::disallowed_methods, reason = "the file must be open in another process")]
    let mut holder = std::process::Command::new("/bin/sh")
        .args(["-c", "exec >> server.log; echo ready >&2; read line; echo after"])
        .current_dir(lab.root())
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(holder.stderr.as_mut().unwrap(), &mut ready).unwrap();
    let report = lab.undo();
    assert_eq!(lab.read("code"), "one\n");
    assert_eq!(lab.read("server.log"), "one\nby the agent\n");
    let process = format!("sh ({})", holder.id());
    let found = reasons(&report);
    assert_eq!(found.len(), 1, "{report:?}");
    assert!(
        matches!(&found[0].1, KeptReason::InUse { process: Some(name) } if name.ends_with(&process)
            || name.ends_with(&format!("({})", holder.id()))),
        "{report:?}"
    );
    assert!(!report.is_complete());
    // Once the process has ended, the rest can be undone.
    holder.stdin.take().unwrap().write_all(b"\n").unwrap();
    holder.wait().unwrap();
    assert_eq!(lab.read("server.log"), "one\nby the agent\nafter\n", "no line was lost");
    let options = UndoOptions { force: true, ..UndoOptions::default() };
    lab.undo_with(&UndoScope::Step { step: "1".into() }, &options).unwrap();
    assert_eq!(lab.read("server.log"), "one\n");
}

#[test]
fn a_file_in_use_is_replaced_on_request() {
    let lab = Lab::new();
    lab.write("log", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("log", "AGENT\n"));
    let open = File::options().append(true).open(lab.path("log")).unwrap();
    assert!(!lab.undo().is_complete());
    assert_eq!(lab.read("log"), "AGENT\n");
    let options = UndoOptions { in_use: OnUse::Replace, ..UndoOptions::default() };
    lab.write("other", "x");
    let report = lab.undo_with(&UndoScope::Step { step: "1".into() }, &options).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(lab.read("log"), "one\n");
    drop(open);
}

#[test]
fn a_database_that_absorbed_the_wal_of_a_step_is_a_conflict_and_can_be_forced() {
    for ignored in [false, true] {
        let lab = if ignored { Lab::with_git(&[(".gitignore", "app.db*\n")]) } else { Lab::new() };
        let old = database(1, 4);
        lab.write("app.db", &old);
        lab.write("other", "one\n");
        lab.step("s", "m1", "1", |lab| {
            lab.write("app.db-wal", wal(2));
            lab.write("other", "AGENT\n");
        });
        // A reader closes the database, which moves the step's changes from the WAL into it.
        let newer = database(3, 4);
        lab.write("app.db", &newer);
        lab.remove("app.db-wal");
        let report = lab.undo();
        assert_eq!(lab.read("other"), "one\n", "the rest is undone");
        assert_eq!(bytes_of(&lab, "app.db"), newer);
        assert_eq!(report.conflicts.len(), 1, "{report:?}");
        assert_eq!(report.conflicts[0].path.to_string(), "app.db");
        let options = UndoOptions { force: true, ..UndoOptions::default() };
        let report = lab.undo_with(&UndoScope::LastTurn, &options).unwrap();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(bytes_of(&lab, "app.db"), old);
    }
}

#[test]
fn a_restore_removes_a_wal_created_since() {
    let lab = Lab::new();
    lab.write("app.db", database(1, 4));
    lab.write("notes", "one\n");
    let then = lab.track();
    for main in [database(1, 4), database(2, 4)] {
        lab.write("app.db", &main);
        lab.write("app.db-wal", wal(3));
        lab.write("notes-wal", "no database\n");
        let report = lab.restore(then.hash);
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(bytes_of(&lab, "app.db"), database(1, 4));
        assert!(!lab.exists("app.db-wal") && lab.exists("notes-wal"), "{report:?}");
        let safety = report.safety_operation.clone();
        let undone = ctrlz::Point::Operation(safety);
        let options = ctrlz::RestoreOptions::default();
        lab.workspace().restore(undone, &options, &ctrlz::Progress::default()).unwrap();
        assert_eq!((bytes_of(&lab, "app.db"), bytes_of(&lab, "app.db-wal")), (main, wal(3)));
    }
}

#[test]
fn an_exact_restore_removes_a_wal_that_is_too_large_to_be_captured() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 4096;
    lab.write("app.db", database(1, 4));
    let then = lab.track();
    let large = [wal(1), noise(2, 8192)].concat();
    lab.write("app.db", database(2, 4));
    lab.write("app.db-wal", &large);
    let report = lab.restore_exact(then.hash);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(bytes_of(&lab, "app.db"), database(1, 4));
    assert!(!lab.exists("app.db-wal"));
    let safety = ctrlz::Point::Operation(report.safety_operation.clone());
    lab.workspace().restore(safety, &crate::lab::exact(), &ctrlz::Progress::default()).unwrap();
    assert_eq!((bytes_of(&lab, "app.db"), bytes_of(&lab, "app.db-wal")), (database(2, 4), large));
}

#[test]
fn an_exact_restore_removes_a_new_database_with_a_log_that_is_too_large_to_be_captured() {
    let mut lab = Lab::new();
    lab.options.max_new_file_bytes = 4096;
    lab.write("notes", "one\n");
    let then = lab.track();
    lab.write("app.db", database(2, 4));
    lab.track();
    lab.write("app.db-wal", [wal(1), noise(2, 8192)].concat());
    let report = lab.restore_exact(then.hash);
    assert!(report.is_complete(), "{report:?}");
    assert!(!lab.exists("app.db") && !lab.exists("app.db-wal"));
}

#[test]
fn a_log_that_a_process_appends_to_does_not_stop_undo_from_walking_back() {
    let lab = Lab::new();
    lab.write("s.log", "1\n");
    lab.write("x", "one\n");
    lab.write("y", "one\n");
    lab.step("s", "m1", "1", |lab| lab.write("y", "AGENT\n"));
    let mut log = File::options().append(true).open(lab.path("s.log")).unwrap();
    lab.step("s", "m2", "2", |lab| {
        lab.write("x", "AGENT\n");
        log.write_all(b"2\n").unwrap();
    });
    log.write_all(b"3\n").unwrap();
    let first = lab.undo();
    assert_eq!(lab.read("x"), "one\n");
    assert!(first.conflicts.is_empty(), "{first:?}");
    assert!(
        matches!(reasons(&first)[..], [(ref path, KeptReason::InUse { .. })] if path == "s.log")
    );
    log.write_all(b"4\n").unwrap();
    let second = lab.undo();
    assert_eq!((second.steps, lab.read("y")), (vec!["1".to_owned()], "one\n".to_owned()));
    drop(log);
}

#[test]
fn text_files_beside_a_database_are_restored_whatever_their_names() {
    for name in ["store-shm", "store-wal", "store-journal"] {
        let lab = Lab::new();
        lab.write("store", database(1, 4));
        lab.write(name, "text\n");
        lab.step("s", "m1", "1", |lab| lab.remove(name));
        lab.write("store", database(2, 4));
        let report = lab.undo();
        assert!(report.is_complete(), "{name}: {report:?}");
        assert_eq!((lab.read(name), bytes_of(&lab, "store")), ("text\n".into(), database(2, 4)));
        lab.redo();
        assert!(!lab.exists(name));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another process has to have the log open")]
fn a_database_that_a_reader_opened_since_is_reported_with_the_process_and_can_be_forced() {
    for log in [Vec::new(), wal(3)] {
        let lab = Lab::new();
        lab.write("app.db", database(1, 4));
        lab.step("s", "m1", "1", |lab| lab.write("app.db", database(2, 4)));
        lab.write("app.db-wal", &log);
        lab.write("app.db-shm", SHARED_MEMORY);
        let mut reader = std::process::Command::new("sleep");
        // The reader has the log open until it is killed.
        let mut reader =
            reader.arg("60").stdin(File::open(lab.path("app.db-wal")).unwrap()).spawn().unwrap();
        let report = lab.undo();
        let options = UndoOptions { in_use: OnUse::Replace, ..UndoOptions::default() };
        let forced = lab
            .workspace()
            .undo(&UndoScope::LastTurn, &options, &ctrlz::Progress::default())
            .unwrap();
        reader.kill().unwrap();
        reader.wait().unwrap();
        let KeptReason::InUse { process } = &reasons(&report)[0].1 else {
            panic!("{report:?}");
        };
        assert!(
            process.as_ref().is_some_and(|process| process.starts_with("sleep")),
            "{process:?}"
        );
        if log.is_empty() {
            assert!(forced.is_complete(), "{forced:?}");
            assert_eq!(bytes_of(&lab, "app.db"), database(1, 4));
            assert!(!lab.exists("app.db-wal"));
        } else {
            assert!(matches!(reasons(&forced)[0].1, KeptReason::Unit { .. }), "{forced:?}");
            assert_eq!(bytes_of(&lab, "app.db"), database(2, 4));
            assert_eq!(bytes_of(&lab, "app.db-wal"), log);
        }
    }
}
