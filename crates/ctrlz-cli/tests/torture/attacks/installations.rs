//! Symlinks, pipes and existing files at the paths that `ctrlz install` writes.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use xtask::{Random, Row};

use super::{GOAL, MAX_TIME, all_below};
use crate::lab::{Ended, Lab, must, run, sized};
use crate::manifest::Manifest;

const CLIENTS: [&str; 10] = [
    "claude-code",
    "codex",
    "gemini-cli",
    "cline",
    "qwen-code",
    "copilot",
    "pi",
    "opencode",
    "kilo",
    "marvin",
];

/// Returns the manifests of the home directory and the project, which an installation may change,
/// and of a directory that it must not change.
fn all_of(lab: &Lab) -> [Manifest; 3] {
    [Manifest::of(&lab.home), Manifest::of(&lab.work), Manifest::of(&lab.dir().join("outside"))]
}

/// Runs a command with a `PATH` that contains none of the clients' programs.
fn ctrlz(lab: &Lab, words: &[&str], when: &str) -> Ended {
    let began = std::time::Instant::now();
    let ended = run(lab.command(words).env("PATH", "/usr/bin:/bin"));
    assert!(began.elapsed() < MAX_TIME, "{when}: {words:?} took {:?}", began.elapsed());
    assert!(!ended.is_killed() && ended.code() != Some(101), "{when}: {ended:?}");
    ended
}

/// Returns the paths that an installation writes, relative to the directory of the lab.
fn written_by(words: &[&str]) -> Vec<PathBuf> {
    let lab = Lab::new();
    ctrlz(&lab, words, "a plain installation");
    let below = |dir: &Path| {
        all_below(dir).into_iter().map(|path| path.strip_prefix(lab.dir()).unwrap().to_owned())
    };
    below(&lab.home).chain(below(&lab.work)).collect()
}

/// Puts an obstacle at the path `victim`. Returns a description.
fn obstruct(lab: &Lab, victim: &Path, random: &mut Random) -> String {
    let path = lab.dir().join(victim);
    let outside = lab.dir().join("outside");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let what = match random.below(8) {
        0 => {
            std::fs::write(&path, "{ \"mine\" :\t1 }").unwrap();
            "a file of the user's"
        }
        1 => {
            std::fs::write(outside.join("target"), "{}").unwrap();
            symlink(outside.join("target"), &path).unwrap();
            "a link to a file outside"
        }
        2 => {
            symlink(outside.join("nothing"), &path).unwrap();
            "a link to a missing file outside"
        }
        3 => {
            std::fs::create_dir_all(outside.join("dir")).unwrap();
            symlink(outside.join("dir"), &path).unwrap();
            "a link to a directory outside"
        }
        4 => {
            std::fs::create_dir_all(path.join("mine")).unwrap();
            "a directory of the user's"
        }
        5 => {
            must("mkfifo", &[path.to_str().unwrap()]);
            "a pipe"
        }
        6 => {
            symlink(&path, &path).unwrap();
            "a link to itself"
        }
        _ => {
            std::fs::write(&path, [0xff, 0, b'{']).unwrap();
            "bytes that are no text"
        }
    };
    format!("{what} at {}", victim.display())
}

/// A dry run and a refused installation change nothing. A project's symlinks do not lead to changes
/// outside of it. After a successful uninstall everything is in its original state.
#[test]
fn install_and_uninstall_lose_no_existing_file_or_link() {
    let mut row = Row::of(GOAL, "obstacles in the way of an installation");
    let mut random = Random::new("installations");
    for case in 0..sized(20, 600) {
        let client = *random.pick(&CLIENTS);
        let in_project = random.below(2) == 0 && client != "marvin";
        let words = |command: &'static str| {
            let all = [command, client, "--project"];
            all[..2 + usize::from(in_project)].to_vec()
        };
        let written = written_by(&words("install"));
        assert!(!written.is_empty(), "{client} writes nothing");
        let lab = Lab::new();
        let victim = random.pick(&written).clone();
        let what = obstruct(&lab, &victim, &mut random);
        let when = format!("case {case}: {:?} with {what}", words("install"));
        let before = all_of(&lab);
        ctrlz(&lab, &[&words("install")[..], &["--dry-run"]].concat(), &when);
        assert_same(&lab, &before, &format!("{when}, dry run"));
        let installed = ctrlz(&lab, &words("install"), &when);
        if in_project {
            let outside = &all_of(&lab)[2];
            outside.assert_is(&before[2], &when);
        }
        if installed.code() != Some(0) {
            assert_same(&lab, &before, &format!("{when}, refused"));
        }
        ctrlz(&lab, &words("install"), &when);
        let removed = ctrlz(&lab, &words("uninstall"), &when);
        if removed.code() == Some(0) {
            assert_same(&lab, &before, &format!("{when}, uninstalled"));
        }
        row.done();
    }
}

#[track_caller]
fn assert_same(lab: &Lab, before: &[Manifest; 3], when: &str) {
    for (now, before) in all_of(lab).iter().zip(before) {
        now.assert_is(before, when);
    }
}
