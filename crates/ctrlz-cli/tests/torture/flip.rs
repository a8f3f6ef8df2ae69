//! An attacker who keeps swapping a directory for a symlink to somebody else's directory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::lab::{Lab, contains, copy_tree, remove, sized};
use crate::manifest::Manifest;

const CANARY: &str = "canary-5b1f0c77-somebody-else's-secret";

/// Swaps `dir`, in the work tree, with `other`: one is a directory, the other a link to `victim`.
fn flip(dir: &Path, other: &Path, victim: &Path, real: &Path, go_on: &AtomicBool) -> u64 {
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

fn fill(dir: &Path, text: &str) {
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    for name in ["x", "y", "sub/z", "made-since", "sub/made-since"] {
        std::fs::write(dir.join(name), format!("{text} {name}")).unwrap();
    }
}

/// Runs `commands` in a loop while the attacker flips, and looks whether the victim noticed.
fn check_flipping(commands: impl Fn(&Lab, &str, &str, u64)) {
    let lab = Lab::new();
    let victim = lab.dir().join("victim");
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
    let real = lab.dir().join("saved-real");
    copy_tree(&lab.work.join("d"), &real);
    let before = Manifest::of(&victim);
    let (dir, other) = (lab.work.join("d"), lab.dir().join("saved-other"));
    std::os::unix::fs::symlink(&victim, &other).unwrap();
    let go_on = AtomicBool::new(true);
    let flips = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| flip(&dir, &other, &victim, &real, &go_on));
        let begun = Instant::now();
        let mut round = 0;
        while begun.elapsed() < Duration::from_secs(sized(5, 60)) {
            commands(&lab, &early, &late, round);
            Manifest::of(&victim).assert_is(&before, "while the attacker flips");
            round += 1;
        }
        go_on.store(false, Ordering::Relaxed);
        attacker.join().unwrap()
    });
    assert!(flips > 100, "the attacker slept: {flips} flips");
    Manifest::of(&victim).assert_is(&before, "after the attack");
    assert!(!contains(&lab.all_objects(), CANARY.as_bytes()), "the store has the victim's bytes");
    remove(&lab.work.join("d"));
    lab.restore(&early);
    lab.assert_tidy("after the attack");
}

/// Any end is fine that is not a panic.
fn tolerate(lab: &Lab, args: &[&str]) {
    let ended = lab.ctrlz(args);
    assert!(ended.code().is_some_and(|code| code != 101), "{args:?}: {ended:?}");
}

#[test]
fn a_flipping_directory_never_gets_a_victims_bytes_into_a_snapshot() {
    check_flipping(|lab, _, _, round| {
        lab.write("beside", format!("round {round}"));
        tolerate(lab, if round % 2 == 0 { &["track"] } else { &["track", "--rehash"] });
    });
}

#[test]
fn a_flipping_directory_never_makes_a_restore_write_or_remove_elsewhere() {
    check_flipping(|lab, early, late, round| {
        let hash = if round % 2 == 0 { early } else { late };
        tolerate(lab, &["restore", "--exact", "--yes", hash]);
    });
}
