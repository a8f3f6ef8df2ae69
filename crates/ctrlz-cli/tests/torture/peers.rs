//! Plain git and gitoxide under the same faults. These figures are compared with ours, and they
//! prove that the harnesses detect the failures.

use std::path::Path;

use xtask::Row;

use crate::disk::{Disk, Kind, can_mount};
use crate::lab::{Ended, command, ended, find, fresh_dir, has, noise, run, sized, start};
use crate::strace::{Fault, injecting};

fn git(dir: &Path, args: &[&str]) -> std::process::Command {
    let mut git = command("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=a", "-c", "user.email=b"]).args(args);
    git
}

/// Creates a repository with two versions of a file, and checks out the second one.
fn two_versions(dir: &Path) -> [Vec<u8>; 2] {
    run(&mut git(dir, &["init", "-q", "-b", "main"])).ok();
    let versions = [1, 2].map(|seed| noise(seed, 40_000));
    for version in &versions {
        std::fs::write(dir.join("file"), version).unwrap();
        run(&mut git(dir, &["add", "-A"])).ok();
        run(&mut git(dir, &["commit", "-q", "-m", "version"])).ok();
    }
    versions
}

/// Runs a command that is killed at a system call.
fn run_and_die(call: &str, number: usize, words: &[&str]) -> Ended {
    let mut line = injecting(&[Fault::at(call, "signal=SIGKILL", number)]);
    line.extend(words.iter().map(|word| (*word).to_owned()));
    run(command(&line[0]).args(&line[1..]))
}

#[test]
fn git_tears_files_under_the_kills_that_we_survive() {
    let mut torn = Row::of_peer("git", 1, "kills in checkout leave a torn file");
    let mut locked = Row::of_peer("git", 1, "kills in checkout leave a lock that needs a human");
    if !has("strace") || !has("git") {
        return;
    }
    let (mut files, mut locks) = (0, 0);
    for write in 1..40 {
        let dir = fresh_dir();
        let versions = two_versions(dir.path());
        let words = ["git", "-C", dir.path().to_str().unwrap(), "checkout", "-q", "HEAD~1"];
        if !run_and_die("write", write, &words).is_killed() {
            break;
        }
        let found = std::fs::read(dir.path().join("file")).unwrap_or_default();
        files += u64::from(!versions.contains(&found));
        locks += u64::from(dir.path().join(".git/index.lock").exists());
        torn.done();
        locked.done();
    }
    torn.violated(files);
    locked.violated(locks);
    assert!(files > 0 && locks > 0, "git no longer tears files, or these kills missed it");
}

#[test]
fn git_adds_that_run_concurrently_fail_where_our_tracks_wait() {
    let mut row = Row::of_peer("git", 4, "concurrent adds fail, 8 processes × 8 rounds");
    if !has("git") {
        return;
    }
    let dir = fresh_dir();
    run(&mut git(dir.path(), &["init", "-q", "-b", "main"])).ok();
    let mut failed = 0;
    for round in 0..8 {
        for at in 0..300 {
            std::fs::write(dir.path().join(format!("file{at}")), noise(round * 1000 + at, 900))
                .unwrap();
        }
        let crowd: Vec<_> = (0..8).map(|_| start(&mut git(dir.path(), &["add", "-A"]))).collect();
        for child in crowd {
            failed += u64::from(ended(child).code() != Some(0));
            row.done();
        }
    }
    row.violated(failed);
    assert!(failed > 0, "git waits for its lock now, or the processes did not overlap");
}

#[test]
fn git_loses_objects_in_the_power_cuts_that_we_survive() {
    let mut row = Row::of_peer("git", 2, "objects are empty after power cuts, with git's defaults");
    if !can_mount(Kind::Ext4) || !has("git") {
        return;
    }
    let mut empty = 0;
    for round in 0..sized(2, 6) {
        let dir = fresh_dir();
        let mut disk = Disk::new(Kind::Ext4, "64M", &dir.path().join("disk"));
        let work = disk.path().join("work");
        std::fs::create_dir(&work).unwrap();
        run(&mut git(&work, &["init", "-q", "-b", "main"])).ok();
        for at in 0..200 {
            std::fs::write(work.join(format!("file{at}")), noise(round * 1000 + at, 900)).unwrap();
        }
        run(&mut git(&work, &["add", "-A"])).ok();
        run(&mut git(&work, &["commit", "-q", "-m", "acknowledged"])).ok();
        disk.flush_something_else();
        disk.cut();
        let (objects, lost) = count_empty(&work);
        row.add(objects);
        empty += lost;
    }
    row.violated(empty);
    assert!(empty > 0, "git flushes objects now, or the power cuts lost nothing");
}

/// Returns the number of object files in a repository, and how many of them are empty.
fn count_empty(work: &Path) -> (u64, u64) {
    let objects = find(&work.join(".git/objects"), &|path| path.is_file());
    let is_empty = |path: &&std::path::PathBuf| path.metadata().is_ok_and(|meta| meta.len() == 0);
    (objects.len() as u64, objects.iter().filter(is_empty).count() as u64)
}

/// Returns the path of a gitoxide program, which only `cargo xtask torture full` builds.
fn gix() -> Option<String> {
    std::env::var(xtask::GIX).ok().filter(|path| Path::new(path).exists())
}

#[test]
fn gix_tears_files_under_the_kills_that_we_survive() {
    let mut row = Row::of_peer("gitoxide", 1, "kills in checkout leave a torn file");
    let Some(gix) = gix().filter(|_| has("strace") && has("git")) else { return };
    let (mut torn, mut killed) = (0, 0);
    for call in ["openat", "write", "close"] {
        for number in 1..400 {
            let dir = fresh_dir();
            let versions = two_versions(dir.path());
            let tree = run(&mut git(dir.path(), &["rev-parse", "HEAD~1^{tree}"])).ok();
            let words = [&gix, "checkout", dir.path().to_str().unwrap(), tree.stdout.trim()];
            if !run_and_die(call, number, &words).is_killed() {
                break;
            }
            let found = std::fs::read(dir.path().join("file")).unwrap_or_default();
            torn += u64::from(!versions.contains(&found));
            killed += 1;
            row.done();
        }
    }
    row.violated(torn);
    assert!(killed > 0 && torn > 0, "{killed} kills left {torn} torn files");
}

#[test]
fn gix_loses_objects_in_the_power_cuts_that_we_survive() {
    let what = "objects are empty after power cuts behind a flush of something else";
    let mut row = Row::of_peer("gitoxide", 2, what);
    let Some(gix) = gix().filter(|_| has("git") && can_mount(Kind::Ext4)) else { return };
    for _ in 0..sized(1, 4) {
        let dir = fresh_dir();
        let mut disk = Disk::new(Kind::Ext4, "64M", &dir.path().join("disk"));
        let work = disk.path().join("work");
        std::fs::create_dir(&work).unwrap();
        run(&mut git(&work, &["init", "-q", "-b", "main"])).ok();
        run(command(&gix).args(["write", work.to_str().unwrap(), "200"])).ok();
        disk.flush_something_else();
        disk.cut();
        let (objects, empty) = count_empty(&work);
        assert!(empty > 0, "gitoxide flushes objects now, or the power cuts lost nothing");
        row.add(objects);
        row.violated(empty);
    }
}
