//! Restores that fail half-way and roll back, and what goes wrong while they do.

use std::time::{Duration, Instant};

use crate::lab::{Lab, contains, ended, find, has, run, start};
use crate::manifest::Manifest;
use crate::scene::Scene;
use crate::strace::{Fault, injecting};
use xtask::Row;

/// The third exchange fails, so two are taken back and all staged files are removed; the process
/// dies at each of those removals.
#[test]
fn a_restore_killed_while_it_rolls_back_is_done_wholly_or_not_at_all() {
    let mut row = Row::of(1, "kills while a restore rolls back");
    if !has("strace") {
        return;
    }
    let scene = Scene::restore();
    for at in 1..100 {
        scene.reset();
        let when = format!("killed at removal {at} of rolling back");
        let faults =
            [Fault::at("renameat2", "error=EIO", 3), Fault::at("unlinkat", "signal=SIGKILL", at)];
        let ended = run(&mut scene.lab.wrapped(&injecting(&faults), &scene.args()));
        scene.assert_atomic(&when);
        if !ended.is_killed() {
            assert!(ended.code() != Some(0), "{ended:?}");
            assert!(at > 3, "there was nothing to roll back: {ended:?}");
            return;
        }
        scene.lab.ctrlz(&["track"]).is(&[0], &when);
        scene.assert_all_or_nothing(&when);
        scene.lab.assert_no_leftovers(&when);
        row.done();
    }
    panic!("it never came to its end");
}

/// As above, but the process dies at one of the renames that take the swap back.
#[test]
fn a_restore_killed_while_it_swaps_back_is_done_wholly_or_not_at_all() {
    let mut row = Row::of(1, "kills while a restore rolls back");
    if !has("strace") {
        return;
    }
    let scene = Scene::restore();
    scene.reset();
    // Permissions change last, so every swap is done when this fails.
    let modes = crate::strace::calls(&scene.lab, "fchmod", &scene.args()).len();
    for at in 1..200 {
        scene.reset();
        let when = format!("killed at rename {at}, the last change of permissions fails");
        let faults =
            [Fault::at("fchmod", "error=EIO", modes), Fault::at("renameat2", "signal=SIGKILL", at)];
        let ended = run(&mut scene.lab.wrapped(&injecting(&faults), &scene.args()));
        scene.assert_atomic(&when);
        if !ended.is_killed() {
            return;
        }
        scene.lab.ctrlz(&["track"]).is(&[0], &when);
        scene.assert_all_or_nothing(&when);
        scene.lab.assert_no_leftovers(&when);
        row.done();
    }
    panic!("it never came to its end");
}

/// Two files of ten are to be overwritten; gives the lab and the hash to restore.
fn two_files() -> (Lab, String) {
    let lab = Lab::new();
    lab.write("a", "a then");
    lab.write("b", "b then");
    let then = lab.track();
    lab.write("a", "a now");
    lab.write("b", "b now");
    lab.track();
    (lab, then)
}

fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited too long until {what}");
        std::thread::yield_now();
    }
}

/// Everything that can be found anywhere: in the work tree or in an object of the store.
#[track_caller]
fn assert_not_lost(lab: &Lab, text: &[u8], when: &str) {
    let manifest = Manifest::of(&lab.work);
    let here = manifest.0.keys().any(|path| manifest.bytes(path) == Some(text));
    let stored = contains(&lab.all_objects(), text);
    assert!(here || stored, "{when}: {} is lost", String::from_utf8_lossy(text));
}

/// Somebody saves `a` right after the restore swapped it, then `b` turns out to have changed, so
/// everything is put back. What was saved meanwhile must be somewhere.
fn check_saved_before_rollback(save: fn(&Lab, &str)) {
    if !has("strace") {
        return;
    }
    let (lab, then) = two_files();
    // The first exchange is over, and the restore sleeps.
    let pause = Fault::at("renameat2", "delay_exit=1500000", 1);
    let restore = start(&mut lab.wrapped(&injecting(&[pause]), &["restore", &then]));
    wait_until("a is swapped", || {
        std::fs::read(lab.work.join("a")).is_ok_and(|bytes| bytes == b"a then")
    });
    save(&lab, "a saved by the user");
    lab.write("b", "b saved by the user");
    let ended = ended(restore);
    assert!(ended.code() != Some(0), "{ended:?}");
    lab.track();
    assert_not_lost(&lab, b"b saved by the user", "rolled back");
    assert_not_lost(&lab, b"a saved by the user", "rolled back");
    lab.assert_no_leftovers("rolled back");
}

#[test]
fn a_file_replaced_between_swap_and_rollback_is_not_lost() {
    check_saved_before_rollback(|lab, text| {
        let beside = lab.dir().join("data").join("save");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, lab.work.join("a")).unwrap();
    });
}

#[test]
fn a_file_rewritten_between_swap_and_rollback_is_not_lost() {
    check_saved_before_rollback(|lab, text| lab.write("a", text));
}

/// Somebody replaces the file just before the exchange, and again just after it: the restore
/// sees the first and swaps back, which must not throw the second away.
#[test]
fn a_file_replaced_twice_around_the_exchange_is_not_lost() {
    if !has("strace") {
        return;
    }
    let (lab, then) = two_files();
    let pause = Fault::at("renameat2", "delay_enter=1500000:delay_exit=1500000", 1);
    let mut command = lab.wrapped(&injecting(&[pause]), &["restore", &then, "--", "a"]);
    let restore = start(&mut command);
    let replace = |text: &str| {
        let beside = lab.dir().join("data").join("save");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, lab.work.join("a")).unwrap();
    };
    // Once the journal says that paths are being swapped, the restore sleeps before the first.
    wait_until("the swap begins", || {
        let journals = find(&lab.data, &|path| path.ends_with("restore.journal"));
        journals
            .iter()
            .any(|path| std::fs::read(path).is_ok_and(|bytes| contains(&bytes, b"Swapping")))
    });
    std::thread::sleep(Duration::from_millis(300));
    replace("saved first");
    wait_until("a is swapped", || {
        std::fs::read(lab.work.join("a")).is_ok_and(|bytes| bytes == b"a then")
    });
    replace("saved second");
    let ended = ended(restore);
    assert!(ended.code() != Some(0), "{ended:?}");
    lab.track();
    assert_not_lost(&lab, b"saved second", "swapped back");
    lab.assert_no_leftovers("swapped back");
}
