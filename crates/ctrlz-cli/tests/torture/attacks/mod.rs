//! Random attacks: hostile stores inside a project, broken repositories, and names and contents
//! with terminal control characters. The submodules cover stores changed by a pull, repositories
//! named as stores, forged indexes, private ignore rules and obstacles to installations.
//!
//! `CTRLZ_TORTURE_SEED` changes the sequence; a failure names the number of its case.

mod indexes;
mod installations;
mod received;
mod rules;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xtask::{Random, Row};

use crate::lab::{Ended, Lab, find, has, must, run, sized};
use crate::manifest::Manifest;

/// Number of the goal in `xtask` that the cases count for.
const GOAL: u8 = 21;
/// Upper bound on the time of a command. No file may make a command hang.
const MAX_TIME: Duration = Duration::from_secs(30);

const STORE: [&str; 2] = ["--store", ".agent/snapshots"];

fn with_store<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&STORE[..], args].concat()
}

fn copy(from: &Path, to: &Path) {
    must("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
}

/// Runs a command, and asserts that it ends within [`MAX_TIME`] and does not panic.
fn timely(lab: &Lab, args: &[&str], when: &str) -> Ended {
    let began = Instant::now();
    let ended = lab.ctrlz(args);
    assert!(began.elapsed() < MAX_TIME, "{when}: {args:?} took {:?}", began.elapsed());
    assert!(!ended.is_killed() && !ended.stderr.contains("panicked"), "{when}: {ended:?}");
    ended
}

/// Returns all paths below a directory, sorted.
fn all_below(dir: &Path) -> Vec<PathBuf> {
    let mut all = find(dir, &|_| true);
    all.retain(|path| path != dir);
    all.sort();
    all
}

/// Makes a store hostile in one random way. Returns a description.
fn make_hostile(store: &Path, elsewhere: &Path, canary: &Path, random: &mut Random) -> String {
    let all = all_below(store);
    let victim = random.pick(&all).clone();
    let replace_by_link = |victim: &Path| {
        let target = elsewhere.join(victim.file_name().unwrap());
        if target.exists() {
            crate::lab::remove(&target);
        }
        std::fs::rename(victim, &target).unwrap();
        symlink(&target, victim).unwrap();
    };
    match random.below(9) {
        0 | 1 => {
            replace_by_link(&victim);
            format!("{} is a link", victim.display())
        }
        2 => {
            let line = format!("{}\n", elsewhere.join("repository/objects").display());
            std::fs::create_dir_all(store.join("objects/info")).unwrap();
            std::fs::write(store.join("objects/info/alternates"), line).unwrap();
            "foreign alternates".into()
        }
        3 => {
            std::fs::write(store.join("commondir"), elsewhere.join("repository").to_str().unwrap())
                .unwrap();
            "commondir".into()
        }
        4 => {
            let script = format!("#!/bin/sh\ntouch '{}'\n", canary.display());
            std::fs::create_dir_all(store.join("hooks")).unwrap();
            for hook in ["reference-transaction", "post-update", "pre-auto-gc", "pre-push"] {
                std::fs::write(store.join("hooks").join(hook), &script).unwrap();
                must("chmod", &["755", store.join("hooks").join(hook).to_str().unwrap()]);
            }
            let config = format!(
                "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\thooksPath = {}\n\tfsmonitor = \
                 touch {}\n\tsshCommand = touch {}\n[include]\n\tpath = {}\n",
                store.join("hooks").display(),
                canary.display(),
                canary.display(),
                elsewhere.join("config").display()
            );
            std::fs::write(store.join("config"), config).unwrap();
            "hooks and configuration".into()
        }
        5 if has("mkfifo") => {
            if victim.is_file() {
                std::fs::remove_file(&victim).unwrap();
                must("mkfifo", &[victim.to_str().unwrap()]);
            }
            format!("{} is a pipe", victim.display())
        }
        6 | 7 => {
            if victim.is_file() {
                let mut bytes = std::fs::read(&victim).unwrap();
                for _ in 0..1 + random.below(8) {
                    if bytes.is_empty() {
                        bytes.push(random.below(256) as u8);
                    } else {
                        let at = random.below(bytes.len());
                        bytes[at] = random.below(256) as u8;
                    }
                }
                must("chmod", &["u+w", victim.to_str().unwrap()]);
                std::fs::write(&victim, bytes).unwrap();
            }
            format!("{} has other bytes", victim.display())
        }
        _ => {
            if victim.is_dir() {
                std::fs::remove_dir_all(&victim).unwrap();
            } else {
                std::fs::remove_file(&victim).unwrap();
            }
            format!("{} is gone", victim.display())
        }
    }
}

/// A project contains a hostile store. Recording keeps working, no program runs, and nothing
/// outside of the project and the data directory changes.
#[test]
fn a_hostile_store_in_a_project_runs_no_program_and_changes_nothing_outside() {
    let mut row = Row::of(GOAL, "hostile stores inside a project");
    let mut random = Random::new("hostile stores");
    let maker = Lab::new();
    for round in 0..4 {
        maker.write("file", format!("round {round}\n"));
        maker.write(&format!("dir/{round}"), "text\n");
        let script = format!("echo {round} >> file");
        maker.ctrlz(&with_store(&["run", "--", "sh", "-c", &script])).ok();
    }
    let lab = Lab::new();
    let elsewhere = lab.dir().join("elsewhere");
    let canary = lab.dir().join("canary");
    for case in 0..sized(40, 2_000) {
        for dir in [&lab.work, &lab.data, &elsewhere] {
            if dir.exists() {
                crate::lab::remove(dir);
            }
        }
        copy(&maker.work, &lab.work);
        std::fs::create_dir_all(&elsewhere).unwrap();
        must("git", &["init", "-q", "--bare", elsewhere.join("repository").to_str().unwrap()]);
        let store = lab.work.join(".agent/snapshots");
        let hostile: Vec<String> = (0..1 + random.below(2))
            .map(|_| make_hostile(&store, &elsewhere, &canary, &mut random))
            .collect();
        let when = format!("case {case}: {hostile:?}");
        let before = Manifest::of(&elsewhere);
        lab.write("file", "mine\n");
        let tracked = timely(&lab, &with_store(&["track"]), &when);
        assert_eq!(tracked.code(), Some(0), "{when}: {tracked:?}");
        lab.write("file", "other\n");
        for args in [&["log"][..], &["gc"], &["gc", "--deep"], &["verify"], &["undo", "--yes"]] {
            timely(&lab, &with_store(args), &when);
        }
        let back = timely(&lab, &with_store(&["restore", "--yes", tracked.stdout.trim()]), &when);
        assert_eq!(back.code(), Some(0), "{when}: {back:?}");
        assert_eq!(std::fs::read_to_string(lab.work.join("file")).unwrap(), "mine\n", "{when}");
        Manifest::of(&elsewhere).assert_is(&before, &when);
        assert!(!canary.exists(), "{when}: a program ran");
        row.done();
    }
}

/// `.git` is broken in a random way. Undo and status succeed, and doctor ends without a panic.
#[test]
fn a_broken_git_directory_breaks_no_command() {
    let mut row = Row::of(GOAL, "broken .git files and directories");
    let mut random = Random::new("broken repositories");
    let lab = Lab::new();
    lab.write("file", "one\n");
    lab.track();
    for case in 0..sized(30, 1_000) {
        let git = lab.work.join(".git");
        if git.symlink_metadata().is_ok() {
            crate::lab::remove(&git);
        }
        let what = break_git(&git, &mut random);
        let when = format!("case {case}: {what}");
        lab.write("file", "one\n");
        let ran = timely(&lab, &["run", "--", "sh", "-c", "echo two > file"], &when);
        assert_eq!(ran.code(), Some(0), "{when}: {ran:?}");
        let undone = timely(&lab, &["undo", "--yes"], &when);
        assert_eq!(undone.code(), Some(0), "{when}: {undone:?}");
        assert_eq!(std::fs::read_to_string(lab.work.join("file")).unwrap(), "one\n", "{when}");
        let status = timely(&lab, &["status"], &when);
        assert_eq!(status.code(), Some(0), "{when}: {status:?}");
        timely(&lab, &["doctor"], &when);
        row.done();
    }
}

fn break_git(git: &Path, random: &mut Random) -> String {
    match random.below(7) {
        0 => {
            symlink(git, git).unwrap();
            "a loop of links".into()
        }
        1 => {
            std::fs::write(git, format!("gitdir: {}\n", "x/".repeat(3_000))).unwrap();
            "a path that is too long".into()
        }
        2 => {
            std::fs::write(git, b"gitdir: a\0b\n").unwrap();
            "a zero byte".into()
        }
        3 => {
            must("mkfifo", &[git.to_str().unwrap()]);
            "a pipe".into()
        }
        kind => {
            must("git", &["init", "-q", git.parent().unwrap().to_str().unwrap()]);
            let files: Vec<PathBuf> =
                all_below(git).into_iter().filter(|path| path.is_file()).collect();
            let victim = random.pick(&files).clone();
            match kind {
                4 => std::fs::remove_file(&victim).unwrap(),
                5 => {
                    let noise: Vec<u8> =
                        (0..random.below(300)).map(|_| random.below(256) as u8).collect();
                    must("chmod", &["u+w", victim.to_str().unwrap()]);
                    std::fs::write(&victim, noise).unwrap();
                }
                _ => {
                    std::fs::remove_file(&victim).unwrap();
                    symlink("/dev/zero", &victim).unwrap();
                }
            }
            format!("{} of a repository (kind {kind})", victim.display())
        }
    }
}

/// Names, contents and labels hold control, bidi and invisible characters. None of them reaches the
/// terminal unescaped.
#[test]
fn no_control_character_from_files_reaches_a_terminal() {
    let mut row = Row::of(GOAL, "names and contents on a terminal");
    if !has("script") {
        return;
    }
    let mut random = Random::new("terminals");
    let spoofs: Vec<char> = (1..32)
        .chain(0x7f..0xa0)
        .chain([
            0x200b, 0x200e, 0x202e, 0x2066, 0x2069, 0x3164, 0xfe0f, 0xfeff, 0x600, 0x2800, 0xe0041,
        ])
        .filter(|code| !b"\n\t".iter().any(|plain| u32::from(*plain) == *code))
        .filter_map(char::from_u32)
        .collect();
    for case in 0..sized(8, 200) {
        let lab = Lab::new();
        let text = |random: &mut Random| -> String {
            (0..6).flat_map(|_| ['a', *random.pick(&spoofs)]).collect()
        };
        let name = text(&mut random).replace('/', "_");
        lab.write("plain", "one\n");
        let first = lab.track();
        lab.write(&name, format!("{}\n{}\n", text(&mut random), text(&mut random)));
        let label = text(&mut random);
        lab.ctrlz(&[
            "run",
            "--message",
            &label.replace('\0', ""),
            "--",
            "sh",
            "-c",
            "echo x >> plain",
        ])
        .ok();
        let last = lab.track();
        for args in [
            &["diff", &first][..],
            &["log"],
            &["ls", &last],
            &["log", "--files"],
            &["undo", "--dry-run"],
            &["diff", "--full", "--json", &first],
        ] {
            let when = format!("case {case}: {args:?}");
            let shown = on_a_terminal(&lab, args);
            assert!(shown.contains('a'), "{when}: nothing was shown");
            for spoof in &spoofs {
                // The terminal ends lines with a carriage return, and `ctrlz` itself prints
                // colours.
                let is_ours = matches!(spoof, '\r' | '\u{1b}');
                assert!(is_ours || !shown.contains(*spoof), "{when}: {spoof:?} in {shown:?}");
            }
            let escapes = shown.split('\u{1b}').skip(1);
            let is_colour = |rest: &str| {
                let end = rest.find(|letter: char| letter.is_ascii_alphabetic());
                rest.starts_with('[') && end.is_some_and(|end| &rest[end..=end] == "m")
            };
            assert!(escapes.clone().all(is_colour), "{when}: {shown:?}");
        }
        row.done();
    }
}

/// Runs a command with a terminal as its standard output. Returns the output.
fn on_a_terminal(lab: &Lab, args: &[&str]) -> String {
    let words: Vec<String> =
        lab.line(args).iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let log = lab.dir().join("typescript");
    let mut command = crate::lab::command("script");
    command.args(["-q", "-e", "-c", &words.join(" "), log.to_str().unwrap()]);
    command.env("CTRLZ_PAGER", "cat").env("PAGER", "cat").env("TERM", "xterm");
    // `-e` returns the exit code of the command.
    run(command.current_dir(&lab.work)).ok().stdout
}
