//! Restores that fail and roll back, with further faults during the rollback.

use std::time::{Duration, Instant};

use crate::lab::{Lab, contains, ended, find, has, run, start};
use crate::manifest::Manifest;
use crate::scene::Scene;
use crate::strace::{Fault, injecting};
use xtask::Row;

/// The third exchange fails, so two exchanges are reversed and all staged files are removed. The
/// process is killed at each of those removals in turn.
#[test]
fn a_restore_killed_at_a_removal_during_rollback_is_all_or_nothing() {
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
    panic!("the restore never ran without being killed");
}

/// Like the test above, but the process is killed at one of the renames that reverse the exchanges.
#[test]
fn a_restore_killed_at_a_rename_during_rollback_is_all_or_nothing() {
    let mut row = Row::of(1, "kills while a restore rolls back");
    if !has("strace") {
        return;
    }
    let scene = Scene::restore();
    scene.reset();
    // Permissions are changed last, so all exchanges are done when the last of these calls fails
    // for which the restore rolls back.
    let modes = crate::strace::calls(&scene.lab, "fchmod", &scene.args()).len();
    let fails = |at: &usize| {
        scene.reset();
        let fault = Fault::at("fchmod", "error=EIO", *at);
        let ended = run(&mut scene.lab.wrapped(&injecting(&[fault]), &scene.args()));
        ended.code() != Some(0) && scene.lab.manifest() == scene.before
    };
    let modes = (1..=modes).rev().find(fails).expect("a failing change of permissions is ignored");
    scene.reset();
    let forth = crate::strace::calls(&scene.lab, "renameat2", &scene.args()).len();
    for at in 1..200 {
        scene.reset();
        let when = format!("killed at rename {at}, the last change of permissions fails");
        let faults =
            [Fault::at("fchmod", "error=EIO", modes), Fault::at("renameat2", "signal=SIGKILL", at)];
        let ended = run(&mut scene.lab.wrapped(&injecting(&faults), &scene.args()));
        scene.assert_atomic(&when);
        if !ended.is_killed() {
            assert!(ended.code() != Some(0), "{ended:?}");
            assert!(at > forth + 1, "none of {forth} renames was reversed: {at}, {ended:?}");
            scene.lab.manifest().assert_is(&scene.before, "rolled back without a kill");
            return;
        }
        scene.lab.ctrlz(&["track"]).is(&[0], &when);
        scene.assert_all_or_nothing(&when);
        scene.lab.assert_no_leftovers(&when);
        row.done();
    }
    panic!("the restore never ran without being killed");
}

/// Prepares two files that a restore overwrites. Returns the lab and the hash to restore.
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

/// Asserts that `text` is in the work tree or in an object of the store.
#[track_caller]
fn assert_not_lost(lab: &Lab, text: &[u8], when: &str) {
    let manifest = Manifest::of(&lab.work);
    let here = manifest.0.keys().any(|path| manifest.bytes(path) == Some(text));
    let stored = contains(&lab.all_objects(), text);
    assert!(here || stored, "{when}: {} is lost", String::from_utf8_lossy(text));
}

/// The user saves `a` right after the restore has exchanged it. Then the restore finds that `b` has
/// changed, and rolls back. The saved content of both must still exist.
fn check_saved_before_rollback(save: fn(&Lab, &str)) {
    if !has("strace") {
        return;
    }
    let (lab, then) = two_files();
    // The restore sleeps after the first exchange.
    let pause = Fault::at("renameat2", "delay_exit=1500000", 1);
    let restore = start(&mut lab.wrapped(&injecting(&[pause]), &["restore", &then]));
    wait_until("a is swapped", || {
        std::fs::read(lab.work.join("a")).is_ok_and(|bytes| bytes == b"a then")
    });
    save(&lab, "a saved by the user");
    lab.write("b", "b saved by the user");
    let ended = ended(restore);
    assert!(ended.code() != Some(0), "{ended:?}");
    assert_eq!(std::fs::read(lab.work.join("a")).unwrap(), b"a saved by the user");
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

/// The user replaces the file just before the exchange and again just after it. The restore detects
/// the first change and reverses the exchange, which must not discard the second one.
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
    // Once the journal shows that the exchanges begin, the restore sleeps before the first one.
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
