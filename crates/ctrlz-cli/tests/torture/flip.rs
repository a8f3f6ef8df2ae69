//! An attacker keeps swapping a directory for a symlink to a directory of another user.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::checker::{self, Held, Holds as _};
use crate::lab::{Lab, StopOnDrop, copy_tree, remove, sized};
use crate::manifest::Manifest;
use xtask::Row;

pub(crate) const CANARY: &str = "canary-5b1f0c77-somebody-else's-secret";

/// Keeps swapping `dir`, in the work tree, with `other` until the flag is cleared. One of them is a
/// directory, the other a symlink to `victim`. Returns the number of swaps.
pub(crate) fn flip(
    dir: &Path,
    other: &Path,
    victim: &Path,
    real: &Path,
    running: &AtomicBool,
) -> u64 {
    let mut flips = 0;
    while running.load(Ordering::Relaxed) {
        if renameat_with(CWD, dir, CWD, other, RenameFlags::EXCHANGE).is_ok() {
            flips += 1;
        }
        // Restores may remove one of them; it is created again.
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

/// A directory in the work tree with two recorded states, and the victim that it is swapped with.
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

    /// Runs `commands` while the attacker swaps. Returns the number of swaps, and whether the
    /// victim is untouched.
    fn run(&self, lab: &Lab, time: Duration, commands: impl Fn(&Attack, u64)) -> (u64, Held) {
        let running = AtomicBool::new(true);
        let dir = lab.work.join("d");
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&running);
            let attack = || flip(&dir, &other(lab), &self.victim, &real(lab), &running);
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

/// Returns the template from which the attacker creates the directory.
fn real(lab: &Lab) -> PathBuf {
    lab.dir().join("saved-real")
}

/// Returns the path that the attacker swaps with the directory.
fn other(lab: &Lab) -> PathBuf {
    lab.dir().join("saved-other")
}

/// Runs `commands` in a loop while the attacker swaps, and asserts that the victim is untouched.
fn check_flipping(what: &str, commands: impl Fn(&Lab, &Attack, u64)) {
    let mut row = Row::of(7, format!("swaps under {what}"));
    let lab = Lab::new();
    let attack = Attack::prepare(&lab);
    let time = Duration::from_secs(sized(4, 60));
    let (flips, held) = attack.run(&lab, time, |attack, round| commands(&lab, attack, round));
    held.holds("while the attacker flips");
    assert!(flips > sized(100, 100_000), "too few swaps: {flips}");
    row.add(flips);
    remove(&lab.work.join("d"));
    lab.restore(&attack.early);
    lab.assert_tidy("after the attack");
}

/// Runs a command that may fail but must not panic.
fn tolerate(lab: &Lab, args: &[&str]) {
    let ended = lab.ctrlz(args);
    assert!(ended.code().is_some_and(|code| code != 101), "{args:?}: {ended:?}");
}

#[test]
fn track_never_reads_through_a_directory_swapped_for_a_symlink() {
    check_flipping("scans", |lab, _, round| {
        lab.write("beside", format!("round {round}"));
        tolerate(lab, if round % 2 == 0 { &["track"] } else { &["track", "--rehash"] });
    });
}

#[test]
fn restore_never_writes_through_a_directory_swapped_for_a_symlink() {
    check_flipping("restores", |lab, attack, round| {
        let hash = if round % 2 == 0 { &attack.early } else { &attack.late };
        tolerate(lab, &["restore", "--exact", "--yes", hash]);
    });
}

/// A restore deletes files that the snapshot lacks, in a directory that is a symlink half of the
/// time.
#[test]
fn restore_never_deletes_through_a_directory_swapped_for_a_symlink() {
    check_flipping("deletes", |lab, attack, round| {
        for name in ["d/made-since", "d/sub/made-since", &format!("d/made-{}", round % 8)] {
            // Written into the template: the attacker's symlink would redirect this test as well.
            let dir = real(lab);
            drop(std::fs::copy(dir.join("x"), dir.join(name.trim_start_matches("d/"))));
        }
        tolerate(lab, &["restore", "--exact", "--yes", &attack.early]);
    });
}
