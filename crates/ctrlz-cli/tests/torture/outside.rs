//! `undo --outside` under the same faults as other restores: kills, full disks, swapped symlinks,
//! concurrent writers, and other users.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use xtask::Row;

use crate::checker;
use crate::disk::Mount;
use crate::flip::{CANARY, fill, flip};
use crate::lab::{
    Lab, StopOnDrop, as_nobody, command, copy_into, copy_tree, empty, ended, find, has, is_root,
    must, noise, remove, run, sized,
};
use crate::manifest::Manifest;
use crate::strace::{Fault, MUTATING, calls, run_with};

/// Sends a hook event before or after an agent's shell command.
fn hook(lab: &Lab, event: &str, id: &str, script: &str) {
    let event = json!({
        "session_id": "s", "prompt_id": id, "cwd": lab.work, "hook_event_name": event,
        "transcript_path": "/nowhere", "tool_name": "Bash", "tool_use_id": id,
        "tool_input": { "command": script },
    });
    let mut command = lab.command(&["hook", "claude-code"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let ended = ended(child).ok();
    assert_eq!(ended.stderr, "", "{event}");
}

/// Runs a shell command as an agent, with a hook event before and after it.
fn agent(lab: &Lab, id: &str, script: &str) {
    agent_as(lab, id, script, &[]);
}

fn agent_as(lab: &Lab, id: &str, script: &str, wrapper: &[String]) {
    hook(lab, "PreToolUse", id, script);
    let line: Vec<&str> = wrapper.iter().map(String::as_str).chain(["sh", "-c", script]).collect();
    run(command(line[0]).args(&line[1..]).current_dir(&lab.work)).ok();
    hook(lab, "PostToolUse", id, script);
}

/// Returns a directory beside the work tree. Its name excludes it from [`Lab::surroundings`].
fn elsewhere(lab: &Lab) -> PathBuf {
    let dir = lab.dir().join("saved-elsewhere");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[track_caller]
fn assert_no_temporary_names(dir: &Path, when: &str) {
    let is_left = |path: &Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".ctrlz-"))
    };
    let left = find(dir, &is_left);
    assert!(left.is_empty(), "{when}: {left:?}");
}

/// Writes an SQLite database with a write-ahead log.
fn write_database(dir: &Path) {
    write(&dir.join("app.db"), [&b"SQLite format 3\0"[..], &noise(7, 9000)].concat());
    write(&dir.join("app.db-wal"), [&[0x37, 0x7f, 0x06, 0x82][..], &noise(8, 4000)].concat());
}

/// Returns a command that names only the database and removes its log as well.
fn change_database(at: &str) -> String {
    format!("cd / && for log in {at}/app.db; do rm $log-wal; echo agent > $log; done")
}

/// Returns the part of a manifest that is a database and its log.
fn database_in(manifest: &Manifest) -> (Manifest, Manifest) {
    (part(manifest, "app.db"), part(manifest, "app.db-wal"))
}

/// Returns the part of a manifest at and below one path.
fn part(manifest: &Manifest, name: &str) -> Manifest {
    let mut part = manifest.clone();
    part.0.retain(|path, _| path == name || path.starts_with(&format!("{name}/")));
    part
}

#[test]
fn a_killed_undo_outside_leaves_each_path_old_or_new_and_can_be_rerun() {
    let mut row = Row::of(1, "kills at calls of undo --outside");
    if !has("strace") {
        return;
    }
    let lab = Lab::new();
    let dir = elsewhere(&lab);
    lab.write("file", "then");
    for (path, text) in [("one/a", "a"), ("one/deep/b", "b"), ("two/c", "c"), ("three", "d")] {
        write(&dir.join(path), text);
    }
    std::os::unix::fs::symlink("a", dir.join("one/link")).unwrap();
    write_database(&dir);
    let before = Manifest::of(&dir);
    let at = dir.to_str().unwrap();
    let script = format!(
        "rm -r {at}/one; echo agent > {at}/two/c; rm {at}/three; echo x > {at}/new; echo now > file"
    );
    agent(&lab, "t1", &format!("{script}; {}", change_database(at)));
    let after = Manifest::of(&dir);
    let places = [(&lab.data, "saved-data"), (&lab.work, "saved-work"), (&dir, "saved-dir")];
    for (place, name) in places {
        copy_tree(place, &lab.dir().join(name));
    }
    let reset = || {
        for (place, name) in places {
            empty(place);
            copy_into(&lab.dir().join(name), place);
        }
    };
    let args = ["undo", "--outside", "--yes"];
    reset();
    let calls = calls(&lab, MUTATING, &args);
    Manifest::of(&dir).assert_is(&before, "not killed");
    assert!(calls.len() > 40, "too few calls: {calls:?}");
    for (at, call) in calls.iter().enumerate().step_by(sized(5, 1)) {
        reset();
        let when = format!("undo --outside killed at {call:?}, its call {at}");
        assert!(run_with(&lab, &Fault::kill(call), &args).is_killed(), "{when}");
        lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        assert_no_temporary_names(&dir, &when);
        let found = Manifest::of(&dir);
        for name in ["one", "two", "three", "new"] {
            let found = part(&found, name);
            let whole = [part(&before, name), part(&after, name)].contains(&found);
            assert!(whole, "{when}: {name} is {found:?}");
        }
        let unit = database_in(&found);
        let whole = [database_in(&before), database_in(&after)].contains(&unit);
        assert!(whole, "{when}: a database and a log of different moments: {unit:?}");
        // Running the command again restores the remaining paths, and redo reverses all of it.
        if found != before {
            lab.ctrlz(&args).is(&[0], &format!("{when}, and again"));
        }
        Manifest::of(&dir).assert_is(&before, &format!("{when}, and again"));
        assert_eq!(std::fs::read(lab.work.join("file")).unwrap(), b"then", "{when}");
        for _ in 0..3 {
            lab.ctrlz(&["redo", "--yes"]).is(&[0, 4], &format!("{when}, and redone"));
        }
        Manifest::of(&dir).assert_is(&after, &format!("{when}, and redone"));
        lab.assert_no_leftovers(&when);
        if at.is_multiple_of(sized(20, 1)) {
            lab.assert_tidy(&when);
        }
        row.done();
    }
}

/// A step names a database outside. Its beginning or end is killed at each call.
#[test]
fn a_killed_capture_outside_is_whole_or_absent() {
    let mut row = Row::of(1, "kills at calls of captures outside");
    if !has("strace") {
        return;
    }
    let lab = Lab::new();
    let dir = elsewhere(&lab);
    lab.write("file", "then");
    write_database(&dir);
    let before = Manifest::of(&dir);
    lab.track();
    let places = [(&lab.data, "saved-data"), (&lab.work, "saved-work"), (&dir, "saved-dir")];
    for (place, name) in places {
        copy_tree(place, &lab.dir().join(name));
    }
    let reset = || {
        for (place, name) in places {
            empty(place);
            copy_into(&lab.dir().join(name), place);
        }
    };
    // The command itself makes none of the mutating calls.
    let at = dir.to_str().unwrap();
    let script = format!("for db in {at}/app.db; do : > $db; : > $db-wal; done; : > file");
    let args = ["run", "--", "sh", "-c", &script];
    let calls = calls(&lab, MUTATING, &args);
    let after = Manifest::of(&dir);
    assert!(calls.len() > 15 && after != before, "{calls:?}");
    for (at, call) in calls.iter().enumerate().step_by(sized(4, 1)) {
        reset();
        let when = format!("a capture outside killed at {call:?}, its call {at}");
        assert!(run_with(&lab, &Fault::kill(call), &args).is_killed(), "{when}");
        let left = Manifest::of(&dir);
        assert!([&before, &after].contains(&&left), "{when}: {left:?}");
        lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        lab.ctrlz(&["undo", "--outside", "--force", "--yes"]).is(&[0, 3, 4], &when);
        let found = Manifest::of(&dir);
        assert!([&before, &after].contains(&&found), "{when}: {found:?}");
        assert!(left != after || found == before, "{when}: the capture before it is lost");
        assert_no_temporary_names(&dir, &when);
        lab.assert_no_leftovers(&when);
        row.done();
    }
}

#[test]
fn undo_outside_leaves_paths_on_a_full_disk_unchanged() {
    let _row = Row::of(2, "full disks under undo --outside");
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let dir = elsewhere(&lab);
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"], &dir);
    let lab = lab.mounted(mount);
    for at in 0..3 {
        write(&dir.join(format!("large/{at}")), noise(at, 1 << 20));
    }
    write(&dir.join("large/edited"), "then");
    write_database(&dir);
    lab.write("file", "then");
    let before = Manifest::of(&dir);
    let at = dir.to_str().unwrap();
    let script = format!("rm {at}/large/?; echo now > {at}/large/edited; echo now > file");
    agent(&lab, "t1", &format!("{script}; {}", change_database(at)));
    let after = Manifest::of(&dir);
    let filler = dir.join("filler");
    assert!(std::fs::write(&filler, noise(9, 8 << 20)).is_err());
    let ended = lab.ctrlz(&["undo", "--outside"]).is(&[3], "no room");
    assert!(ended.stdout.contains("could not be put back"), "{ended:?}");
    remove(&filler);
    Manifest::of(&dir).assert_is(&after, "no room");
    assert_eq!(std::fs::read(lab.work.join("file")).unwrap(), b"then", "the work tree has room");
    lab.assert_tidy("no room");
    lab.ctrlz(&["undo", "--outside"]).ok();
    Manifest::of(&dir).assert_is(&before, "room again");
}

#[test]
fn undo_outside_fails_without_changes_if_the_store_is_full() {
    let _row = Row::of(2, "full stores under undo --outside");
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=3m", "tmpfs"], &lab.data);
    let lab = lab.mounted(mount);
    let dir = elsewhere(&lab);
    write(&dir.join("file"), "then");
    lab.write("file", "then");
    let at = dir.to_str().unwrap();
    agent(&lab, "t1", &format!("echo now > {at}/file; echo now > file"));
    // The version to be overwritten has to be saved first, and does not fit into the store.
    write(&dir.join("file"), noise(1, 4 << 20));
    let (now, work) = (Manifest::of(&dir), lab.manifest());
    let ended = lab.ctrlz(&["undo", "--outside", "--force"]);
    assert!(ended.code().is_some_and(|code| code != 0 && code != 101), "{ended:?}");
    Manifest::of(&dir).assert_is(&now, "a full store");
    lab.manifest().assert_is(&work, "a full store");
}

#[test]
fn undo_outside_never_follows_a_directory_swapped_for_a_symlink() {
    let mut row = Row::of(7, "swaps under undo --outside");
    let lab = Lab::new();
    let dir = elsewhere(&lab);
    let victim = lab.dir().join("victim");
    let (real, other) = (lab.dir().join("saved-real"), lab.dir().join("saved-other"));
    fill(&victim, CANARY);
    fill(&dir.join("d"), "mine");
    lab.write("file", "then");
    let at = dir.to_str().unwrap();
    agent(&lab, "t1", &format!("rm -r {at}/d; mkdir -p {at}/d/sub; echo x > {at}/d/made-since"));
    agent(&lab, "t2", &format!("rm {at}/d/made-since; echo y > {at}/d/x"));
    write_database(&dir.join("d"));
    agent(&lab, "t3", &change_database(&format!("{at}/d")));
    copy_tree(&dir.join("d"), &real);
    std::os::unix::fs::symlink(&victim, &other).unwrap();
    let before = Manifest::of(&victim);
    let running = AtomicBool::new(true);
    let flips = std::thread::scope(|scope| {
        let stop = StopOnDrop(&running);
        let attack = || flip(&dir.join("d"), &other, &victim, &real, &running);
        let attacker = scope.spawn(attack);
        let begun = Instant::now();
        let mut round = 0;
        while begun.elapsed() < Duration::from_secs(sized(4, 60)) {
            let commands: [&[&str]; 4] = [
                &["undo", "--outside", "--force", "--yes"],
                &["undo", "--outside", "--force", "--yes"],
                &["redo", "--force", "--yes"],
                &["redo", "--force", "--yes"],
            ];
            let ended = lab.ctrlz(commands[round % 4]);
            assert!(ended.code().is_some_and(|code| code != 101), "{ended:?}");
            checker::untouched(&lab, &victim, &before, CANARY).unwrap();
            round += 1;
        }
        drop(stop);
        attacker.join().unwrap()
    });
    assert!(flips > sized(100, 100_000), "too few swaps: {flips}");
    row.add(flips);
}

fn version(number: u64) -> Vec<u8> {
    format!("version {number:08}\n").repeat(600).into_bytes()
}

#[test]
fn undo_outside_stores_every_version_that_it_overwrites() {
    let mut row = Row::of(4, "versions overwritten by undo --outside under a writer");
    let lab = Lab::new();
    let dir = elsewhere(&lab);
    let (file, beside) = (dir.join("file"), lab.dir().join("saved-by-the-writer"));
    write(&file, version(1));
    lab.write("file", "then");
    let at = dir.to_str().unwrap();
    agent(&lab, "t1", &format!("echo agent > {at}/file; echo now > file"));
    let running = AtomicBool::new(true);
    let taken = std::thread::scope(|scope| {
        let stop = StopOnDrop(&running);
        let writer = scope.spawn(|| {
            let mut taken = Vec::new();
            for number in 1000.. {
                if !running.load(Ordering::Relaxed) {
                    break;
                }
                std::fs::write(&beside, version(number)).unwrap();
                std::fs::rename(&beside, &file).unwrap();
                std::thread::sleep(Duration::from_millis(number % 40));
                let now = std::fs::read(&file).unwrap();
                if now != version(number) {
                    taken.push(number);
                }
            }
            taken
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(sized(6, 60)) {
            for args in [&["undo", "--outside", "--force"][..], &["redo", "--force"]] {
                lab.ctrlz(args).is(&[0, 3, 4], "while a writer writes");
            }
        }
        drop(stop);
        writer.join().unwrap()
    });
    assert!(!taken.is_empty(), "nothing was overwritten");
    assert_no_temporary_names(&dir, "under a writer");
    let stored = checker::stored_ids(&lab);
    for number in taken {
        let id = checker::blob_id(&lab, &version(number));
        assert!(stored.contains(&id), "version {number} was overwritten and is not in the store");
        row.done();
    }
}

/// A file that could not be read before the step is left alone and reported.
#[test]
fn undo_outside_leaves_and_reports_files_that_were_unreadable_before_the_step() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let lab = Lab::new().run_by_nobody();
    let dir = elsewhere(&lab);
    let file = dir.join("d/file");
    write(&file, "precious");
    lab.write("a", "a");
    let at = dir.to_str().unwrap();
    must("chown", &["-R", "65534:65534", at, lab.work.to_str().unwrap()]);
    must("chmod", &["000", &format!("{at}/d")]);
    for named in [format!("chmod 755 {at}/d; "), String::new()] {
        let script = format!("{named}sed -i s/precious/edited/ {at}/d/file; echo b >> a");
        hook(&lab, "PreToolUse", "t1", &script);
        must("chmod", &["755", &format!("{at}/d")]);
        let shell: Vec<String> = as_nobody();
        let line: Vec<&str> = shell.iter().map(String::as_str).collect();
        run(command(line[0]).args(&line[1..]).args(["sh", "-c", &script]).current_dir(&lab.work))
            .ok();
        hook(&lab, "PostToolUse", "t1", &script);
        let ended = lab.ctrlz(&["undo", "--outside"]).is(&[3], &script);
        assert!(ended.stdout.contains("not captured"), "{ended:?}");
        assert_eq!(std::fs::read(&file).unwrap(), b"edited");
        std::fs::write(&file, "precious").unwrap();
        must("chmod", &["000", &format!("{at}/d")]);
        lab.ctrlz(&["track"]).ok();
    }
    must("chmod", &["755", &format!("{at}/d")]);
}

#[test]
fn undo_outside_leaves_an_unwritable_directory_unchanged() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let lab = Lab::new().run_by_nobody();
    let dir = elsewhere(&lab);
    write(&dir.join("d/a"), "then");
    write(&dir.join("d/locked/b"), "then");
    lab.write("a", "a");
    let at = dir.to_str().unwrap();
    must("chown", &["-R", "65534:65534", at, lab.work.to_str().unwrap()]);
    agent_as(
        &lab,
        "t1",
        &format!("echo now | tee {at}/d/a {at}/d/locked/b; ls {at}/d"),
        &as_nobody(),
    );
    agent_as(
        &lab,
        "t2",
        &format!("chmod -R u+w {at}/d; echo more >> {at}/d/a; echo more >> {at}/d/locked/b"),
        &as_nobody(),
    );
    // Owned by root. Undo would make a directory that is merely read-only writable meanwhile.
    must("chown", &["0:0", &format!("{at}/d/locked")]);
    let now = Manifest::of(&dir);
    lab.ctrlz(&["undo", "--outside"]).is(&[3], "a locked directory");
    Manifest::of(&dir).assert_is(&now, "a locked directory");
    assert_no_temporary_names(&dir, "a locked directory");
    must("chown", &["65534:65534", &format!("{at}/d/locked")]);
    lab.ctrlz(&["undo", "--outside"]).ok();
    assert_eq!(std::fs::read(dir.join("d/a")).unwrap(), b"now\n");
    assert_eq!(std::fs::read(dir.join("d/locked/b")).unwrap(), b"now\n");
}

/// An agent replaced the `.git` directory of a project with 4,000 files. Undo writes nothing into
/// the new one, and the old one can be recovered into another directory.
#[test]
fn undo_outside_leaves_a_replaced_git_directory_and_recover_extracts_the_old_one() {
    let lab = Lab::new();
    let git = |args: &[&str]| {
        run(command("git").args(["-C", lab.work.to_str().unwrap()]).args(args)).ok().stdout
    };
    git(&["init", "-q", "-b", "main"]);
    for at in 0..4_000 {
        lab.write(&format!("d{}/{at}", at % 40), format!("file {at}"));
    }
    git(&["add", "-A"]);
    git(&["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "first"]);
    let head = git(&["rev-parse", "HEAD"]);
    lab.ctrlz(&["track"]).ok();
    agent(&lab, "t1", "rm -rf .git && git init -q");
    let own = lab.work.join(".git");
    let now = Manifest::of(&own);
    let ended = lab.ctrlz(&["undo", "--outside"]).is(&[3], "a destroyed repository");
    assert!(ended.stdout.contains(" recover --git --into"), "{ended:?}");
    Manifest::of(&own).assert_is(&now, "nothing inside of a repository is written");
    let saved = lab.dir().join("saved-git");
    lab.ctrlz(&["recover", "--git", "--into", saved.to_str().unwrap()]).ok();
    let saved_git = |args: &[&str]| {
        run(command("git").args(["--git-dir", saved.to_str().unwrap()]).args(args)).ok().stdout
    };
    assert_eq!(saved_git(&["rev-parse", "HEAD"]), head);
    saved_git(&["fsck", "--strict"]);
}
