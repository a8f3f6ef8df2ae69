//! An attacker who keeps swapping a directory for a symlink to somebody else's directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::checker::{self, Held, Holds as _};
use crate::lab::{Lab, StopOnDrop, copy_tree, remove, sized};
use crate::manifest::Manifest;
use xtask::Row;

pub(crate) const CANARY: &str = "canary-5b1f0c77-somebody-else's-secret";

/// Swaps `dir`, in the work tree, with `other`: one is a directory, the other a link to `victim`.
pub(crate) fn flip(
    dir: &Path,
    other: &Path,
    victim: &Path,
    real: &Path,
    go_on: &AtomicBool,
) -> u64 {
    let mut flips = 0;
    while go_on.load(Ordering::Relaxed) {
        if renameat_with(CWD, dir, CWD, other, RenameFlags::EXCHANGE).is_ok() {
            flips += 1;
        }
        // Restores remove one or the other; the attacker starts again.
        let is_link = |path: &Path| path.symlink_metadata().ok().map(|meta| meta.is_symlink());
        if is_link(dir) == is_link(other) || is_link(other).is_none() {
            remove(other);
            match is_link(dir) {
                Some(true) => copy_tree(real, other),
                _ => std::os::unix::fs::symlink(victim, other).unwrap(),
            }
        }
        if flips % 64 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    flips
}

pub(crate) fn fill(dir: &Path, text: &str) {
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    for name in ["x", "y", "sub/z", "made-since", "sub/made-since"] {
        std::fs::write(dir.join(name), format!("{text} {name}")).unwrap();
    }
}

/// A directory in the work tree that has two states, and the victim that it is swapped with.
struct Attack {
    victim: PathBuf,
    before: Manifest,
    early: String,
    late: String,
}

impl Attack {
    fn prepare(lab: &Lab) -> Attack {
        let victim = lab.dir().join("victim");
        for path in [&victim, &lab.work.join("d"), &real(lab), &other(lab)] {
            remove(path);
        }
        fill(&victim, CANARY);
        fill(&lab.work.join("d"), "mine, later,");
        lab.write("beside", "calm");
        let late = lab.track();
        for name in ["d/made-since", "d/sub/made-since"] {
            lab.remove(name);
        }
        for name in ["d/x", "d/y", "d/sub/z"] {
            lab.write(name, format!("mine, early, {name}"));
        }
        let early = lab.track();
        copy_tree(&lab.work.join("d"), &real(lab));
        std::os::unix::fs::symlink(&victim, other(lab)).unwrap();
        let before = Manifest::of(&victim);
        Attack { victim, before, early, late }
    }

    /// Runs `commands` while the attacker flips; how often that was, and whether the victim noticed.
    fn run(&self, lab: &Lab, time: Duration, commands: impl Fn(&Attack, u64)) -> (u64, Held) {
        let go_on = AtomicBool::new(true);
        let dir = lab.work.join("d");
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&go_on);
            let attack = || flip(&dir, &other(lab), &self.victim, &real(lab), &go_on);
            let attacker = scope.spawn(attack);
            let begun = Instant::now();
            let (mut round, mut held) = (0, Ok(()));
            while begun.elapsed() < time && held.is_ok() {
                commands(self, round);
                held = checker::untouched(lab, &self.victim, &self.before, CANARY);
                round += 1;
            }
            drop(stop);
            (attacker.join().unwrap(), held)
        })
    }
}

/// What the attacker makes the directory of.
fn real(lab: &Lab) -> PathBuf {
    lab.dir().join("saved-real")
}

/// What the attacker swaps it with.
fn other(lab: &Lab) -> PathBuf {
    lab.dir().join("saved-other")
}

/// Runs `commands` in a loop while the attacker flips, and looks whether the victim noticed.
fn check_flipping(what: &str, commands: impl Fn(&Lab, &Attack, u64)) {
    let mut row = Row::of(7, format!("swaps under {what}"));
    let lab = Lab::new();
    let attack = Attack::prepare(&lab);
    let time = Duration::from_secs(sized(4, 60));
    let (flips, held) = attack.run(&lab, time, |attack, round| commands(&lab, attack, round));
    held.holds("while the attacker flips");
    assert!(flips > sized(100, 100_000), "the attacker slept: {flips} flips");
    row.add(flips);
    remove(&lab.work.join("d"));
    lab.restore(&attack.early);
    lab.assert_tidy("after the attack");
}

/// Any end is fine that is not a panic.
fn tolerate(lab: &Lab, args: &[&str]) {
    let ended = lab.ctrlz(args);
    assert!(ended.code().is_some_and(|code| code != 101), "{args:?}: {ended:?}");
}

#[test]
fn a_flipping_directory_never_gets_a_victims_bytes_into_a_snapshot() {
    check_flipping("scans", |lab, _, round| {
        lab.write("beside", format!("round {round}"));
        tolerate(lab, if round % 2 == 0 { &["track"] } else { &["track", "--rehash"] });
    });
}

#[test]
fn a_flipping_directory_never_makes_a_restore_write_or_remove_elsewhere() {
    check_flipping("restores", |lab, attack, round| {
        let hash = if round % 2 == 0 { &attack.early } else { &attack.late };
        tolerate(lab, &["restore", "--exact", "--yes", hash]);
    });
}

/// What the snapshot lacks is removed, in a directory that is somebody else's every other moment.
#[test]
fn a_flipping_directory_never_makes_a_restore_remove_elsewhere() {
    check_flipping("deletes", |lab, attack, round| {
        for name in ["d/made-since", "d/sub/made-since", &format!("d/made-{}", round % 8)] {
            // Only in our own directory: the attacker's link would lead this test astray too.
            let dir = real(lab);
            drop(std::fs::copy(dir.join("x"), dir.join(name.trim_start_matches("d/"))));
        }
        tolerate(lab, &["restore", "--exact", "--yes", &attack.early]);
    });
}
