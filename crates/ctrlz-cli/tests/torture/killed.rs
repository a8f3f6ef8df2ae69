//! kill -9 at every call that changes a file system.

use std::path::{Path, PathBuf};

use crate::lab::{Lab, find, has, must, sized};
use crate::manifest::Manifest;
use crate::scene::Scene;
use crate::strace::{Fault, MUTATING, calls, run_with};
use xtask::Row;

/// Kills the command at each of its mutating calls in turn, and checks the state each time.
fn check_killed_everywhere(scene: &Scene) {
    check_killed(scene, 1);
}

/// Like [`check_killed_everywhere`], at every `stride`th call.
fn check_killed(scene: &Scene, stride: usize) {
    let mut row = Row::of(1, format!("kills at calls of {}", scene.name()));
    if !has("strace") {
        return;
    }
    scene.reset();
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    scene.lab.manifest().assert_is(&scene.after, "not killed");
    for (at, call) in calls.iter().enumerate().step_by(stride) {
        scene.reset();
        let when = format!("{:?} killed at {call:?}, its call {at}", scene.args);
        let ended = run_with(&scene.lab, &Fault::kill(call), &scene.args());
        assert!(ended.is_killed(), "{when}: {ended:?}");
        // A printed hash is acknowledged, even if the process was killed during its cleanup.
        let acked = ended.hash().map(|hash| (hash, scene.before.clone()));
        check_survived(scene, acked, at, &when);
        row.done();
    }
    assert!(calls.len() > 20, "too few calls: {calls:?}");
}

fn check_survived(
    scene: &Scene,
    acked: Option<(String, crate::manifest::Manifest)>,
    at: usize,
    when: &str,
) {
    scene.assert_atomic(when);
    // The next command is either the same one or another one.
    if at.is_multiple_of(2) || scene.is_track() {
        let next = scene.run().is(&[0], &format!("{when}, and again"));
        scene.lab.manifest().assert_is(&scene.after, when);
        if let (Some((acked, _)), Some(again)) = (&acked, next.hash()) {
            assert_eq!(*acked, again, "{when}");
        }
    } else {
        scene.lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        scene.assert_all_or_nothing(when);
    }
    scene.lab.assert_no_leftovers(when);
    // Checking the whole history costs more than everything else, so it is done only now and then.
    if at.is_multiple_of(sized(6, 1)) || acked.is_some() {
        scene.assert_acked(acked, when);
    }
}

/// Kills a command of a session at its calls in turn, and checks that the log agrees with the
/// files: a command that took effect can be reversed, and one that did not can be run again.
fn check_killed_session(scene: &Scene, there: &[&str], back: &[&str]) {
    let mut row = Row::of(1, format!("kills at calls of {}", scene.name()));
    if !has("strace") {
        return;
    }
    scene.reset();
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    scene.lab.manifest().assert_is(&scene.after, "not killed");
    assert!(calls.len() > 20, "too few calls: {calls:?}");
    // Every call in the long tier, every fourth one otherwise.
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| at.is_multiple_of(sized(4, 1))) {
        scene.reset();
        let when = format!("{} killed at {call:?}, its call {at}", scene.name());
        let ended = run_with(&scene.lab, &Fault::kill(call), &scene.args());
        assert!(ended.is_killed(), "{when}: {ended:?}");
        scene.assert_atomic(&when);
        scene.lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        scene.assert_all_or_nothing(&when);
        scene.assert_sessions_current(&when);
        if scene.lab.manifest() == scene.before {
            scene.lab.ctrlz(there).is(&[0], &format!("{when}, then run again"));
            scene.lab.manifest().assert_is(&scene.after, &format!("{when}, then run again"));
        }
        scene.lab.ctrlz(back).is(&[0], &format!("{when}, then reversed"));
        scene.lab.manifest().assert_is(&scene.before, &format!("{when}, then reversed"));
        scene.lab.assert_no_leftovers(&when);
        if at.is_multiple_of(sized(20, 1)) {
            scene.lab.assert_tidy(&when);
        }
        row.done();
    }
}

#[test]
fn a_killed_step_can_be_undone_with_force() {
    let scene = Scene::run_step();
    // No evidence shows whether the killed command or the user made the changes, so undo needs
    // `--force`.
    check_killed_session(&scene, &scene.args(), &["undo", "--yes", "--force"]);
}

#[test]
fn a_killed_undo_is_all_or_nothing_and_can_be_redone() {
    let scene = Scene::undo();
    check_killed_session(&scene, &scene.args(), &["redo", "--yes"]);
}

/// A store that came with a project is set aside and imported. After a kill at any call, the next
/// command finishes the import, and the old directory is unchanged.
#[test]
fn a_killed_adoption_is_finished_by_the_next_command() {
    let mut row = Row::of(1, "kills at calls of an adoption");
    if !has("strace") {
        return;
    }
    let lab = Lab::new();
    let with_store = |args: &[&'static str]| -> Vec<&'static str> {
        [&["--store", ".agent/snapshots"], args].concat()
    };
    lab.write("file", "one");
    let old = lab.ctrlz(&with_store(&["track"])).ok().stdout.trim().to_owned();
    lab.write("file", "two");
    lab.ctrlz(&with_store(&["track"])).ok();
    let (saved, agent) = (lab.dir().join("saved"), lab.work.join(".agent"));
    let copy = |from: &Path, to: &Path| {
        must("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
    };
    copy(&agent.join("snapshots"), &saved);
    let content = Manifest::of(&saved);
    let received = || {
        for dir in [&agent, &lab.data] {
            if dir.exists() {
                crate::lab::remove(dir);
            }
        }
        std::fs::create_dir_all(&agent).unwrap();
        copy(&saved, &agent.join("snapshots"));
    };
    received();
    let track = with_store(&["track"]);
    let calls = calls(&lab, MUTATING, &track);
    assert!(calls.len() > 20, "too few calls: {calls:?}");
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| at.is_multiple_of(sized(6, 1))) {
        received();
        let when = format!("an adoption killed at {call:?}, its call {at}");
        let ended = run_with(&lab, &Fault::kill(call), &track);
        assert!(ended.is_killed(), "{when}: {ended:?}");
        lab.ctrlz(&track).is(&[0], &format!("{when}, then track"));
        lab.ctrlz(&[&with_store(&["restore"])[..], &[&old]].concat()).is(&[0], &when);
        assert_eq!(std::fs::read_to_string(lab.work.join("file")).unwrap(), "one", "{when}");
        lab.write("file", "two");
        let is_aside = |path: &Path| path.to_string_lossy().contains("snapshots.untrusted-");
        let asides = std::fs::read_dir(&agent).unwrap().flatten().map(|entry| entry.path());
        let asides: Vec<PathBuf> = asides.filter(|path| is_aside(path)).collect();
        assert!(asides.iter().any(|aside| Manifest::of(aside) == content), "{when}: {asides:?}");
        row.done();
    }
}

/// A fork changes no file of its work tree. If it is killed, the next command in the new directory
/// completes it or removes it.
#[test]
fn a_killed_fork_keeps_the_work_tree_and_can_be_rerun() {
    let mut row = Row::of(1, "kills at calls of fork");
    if !has("strace") {
        return;
    }
    let scene = Scene::fork();
    let into = scene.lab.dir().join("forked");
    let fresh = || {
        scene.reset();
        if into.exists() {
            crate::lab::remove(&into);
        }
    };
    fresh();
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    let whole = Manifest::of(&into);
    assert!(calls.len() > 20, "too few calls: {calls:?}");
    for (at, call) in calls.iter().enumerate().filter(|(at, _)| at.is_multiple_of(sized(5, 1))) {
        fresh();
        let when = format!("fork killed at {call:?}, its call {at}");
        let ended = run_with(&scene.lab, &Fault::kill(call), &scene.args());
        assert!(ended.is_killed(), "{when}: {ended:?}");
        scene.lab.manifest().assert_is(&scene.before, &when);
        scene.lab.ctrlz(&["log", "--json"]).is(&[0], &format!("{when}, then log"));
        if into.exists() && Manifest::of(&into) != Manifest::default() {
            track_in(&scene, &into).is(&[0], &format!("{when}, then track there"));
            let made = Manifest::of(&into);
            assert!(made == whole || made == Manifest::default(), "{when}: {made:?}");
            crate::lab::empty(&into);
        }
        let again: Vec<&str> = scene.args();
        scene.lab.ctrlz(&again).is(&[0], &format!("{when}, and again"));
        Manifest::of(&into).assert_is(&whole, &format!("{when}, and again"));
        scene.lab.manifest().assert_is(&scene.before, &when);
        scene.lab.assert_no_leftovers(&when);
        if at.is_multiple_of(sized(20, 1)) {
            scene.lab.assert_tidy(&when);
        }
        row.done();
    }
}

fn track_in(scene: &Scene, dir: &std::path::Path) -> crate::lab::Ended {
    crate::lab::run(&mut scene.lab.command_in(dir, &["track"]))
}

#[test]
fn a_killed_first_track_does_not_block_the_next_command() {
    check_killed_everywhere(&Scene::first_track());
}

#[test]
fn a_track_killed_during_a_chunked_pack_write_does_not_block_the_next_command() {
    check_killed_everywhere(&Scene::first_track().in_pieces());
}

#[test]
fn a_killed_track_loses_no_snapshot() {
    check_killed_everywhere(&Scene::second_track());
}

#[test]
fn a_killed_restore_is_all_or_nothing() {
    check_killed_everywhere(&Scene::restore());
}

#[test]
fn a_killed_restore_of_a_database_leaves_no_foreign_log_beside_it() {
    check_killed(&Scene::restore_of_database(), sized(3, 1));
}

#[test]
fn a_killed_revert_is_all_or_nothing() {
    check_killed_everywhere(&Scene::revert());
}

#[test]
fn a_killed_copy_of_borrowed_objects_is_finished_by_the_next_one() {
    check_killed_copy(&Scene::copy_borrowed());
    check_killed_copy(&Scene::copy_borrowed().in_pieces());
}

fn check_killed_copy(scene: &Scene) {
    if !has("strace") {
        return;
    }
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    for (at, call) in calls.iter().enumerate().step_by(sized(2, 1)) {
        scene.reset();
        let when = format!("copy-borrowed killed at {call:?}, its call {at}");
        assert!(run_with(&scene.lab, &Fault::kill(call), &scene.args()).is_killed(), "{when}");
        scene.run().is(&[0], &format!("{when}, and again"));
        // The user's repository is no longer an alternate, so all objects have to be in the store
        // itself.
        let alternates = scene.lab.store().join("objects/info/alternates");
        assert_eq!(std::fs::read(alternates).unwrap(), b"", "{when}");
        scene.assert_acked(None, &when);
    }
}

#[test]
fn a_killed_gc_loses_no_snapshot() {
    check_killed_everywhere(&Scene::gc());
    check_killed(&Scene::gc().in_pieces(), sized(3, 1));
}

#[test]
fn a_killed_gc_that_drops_old_operations_loses_no_kept_snapshot() {
    check_killed(&Scene::gc_of_expired(), sized(7, 1));
}

#[test]
fn a_killed_purge_is_finished_by_the_next_one_and_loses_no_other_data() {
    let mut row = Row::of(1, "kills at calls of purge");
    let scene = Scene::purge();
    if !has("strace") {
        return;
    }
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    for (at, call) in calls.iter().enumerate().step_by(sized(5, 1)) {
        scene.reset();
        let when = format!("purge killed at {call:?}, its call {at}");
        assert!(run_with(&scene.lab, &Fault::kill(call), &scene.args()).is_killed(), "{when}");
        // Once the refs are updated there is nothing left to purge, but there may be garbage.
        scene.run().is(&[0, 4], &when);
        scene.lab.ctrlz(&["gc", "--thorough"]).is(&[0], &when);
        let objects = scene.lab.all_objects();
        assert!(!crate::lab::contains(&objects, b"in between"), "{when}: still there");
        scene.assert_acked(None, &when);
        row.done();
    }
}

#[test]
fn a_killed_repair_is_finished_by_the_next_one() {
    let mut row = Row::of(1, "kills at calls of repair");
    let scene = Scene::repair();
    if !has("strace") {
        return;
    }
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    for (at, call) in calls.iter().enumerate().step_by(sized(3, 1)) {
        scene.reset();
        let when = format!("repair killed at {call:?}, its call {at}");
        assert!(run_with(&scene.lab, &Fault::kill(call), &scene.args()).is_killed(), "{when}");
        scene.run().is(&[0], &format!("{when}, and again"));
        scene.assert_acked(None, &when);
        row.done();
    }
}

/// Runs a command of [`Scene::exchange`] again after each kill, and checks the result.
fn check_killed_exchange(scene: &Scene, came: &(String, Manifest), stride: usize) {
    let mut row = Row::of(1, format!("kills at calls of {}", scene.name()));
    if !has("strace") {
        return;
    }
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    assert!(calls.len() > 20, "too few calls: {calls:?}");
    for (at, call) in calls.iter().enumerate().step_by(stride) {
        scene.reset();
        let when = format!("{} killed at {call:?}, its call {at}", scene.name());
        // Some of these commands run git, which may be the process that is killed.
        let ended = run_with(&scene.lab, &Fault::kill(call), &scene.args());
        scene.lab.manifest().assert_is(&scene.before, &when);
        if at.is_multiple_of(2) {
            scene.lab.ctrlz(&["track"]).is(&[0], &format!("{when}, then track"));
        }
        scene.run().is(&[0], &format!("{when}: {ended:?}, and again"));
        // Leftovers in the directory of another log are removed by gc, or when that log grows.
        scene.lab.ctrlz(&["gc"]).is(&[0], &when);
        scene.assert_acked(None, &when);
        scene.lab.assert_restores(&came.0, &came.1, &when);
        let waiting = find(&scene.lab.data, &|path| path.to_string_lossy().contains(UNFINISHED));
        assert!(waiting.is_empty(), "{when}: {waiting:?}");
        row.done();
    }
}

/// Part of the name of stores that are still being created.
const UNFINISHED: &str = ".ctrlz-store-";

#[test]
fn a_killed_import_is_finished_by_the_next_one_and_loses_nothing() {
    let (scene, came) = Scene::import();
    check_killed_exchange(&scene, &came, sized(6, 1));
}

#[test]
fn a_killed_pull_is_finished_by_the_next_one_and_loses_nothing() {
    let (scene, came) = Scene::pull();
    check_killed_exchange(&scene, &came, sized(6, 1));
}

#[test]
fn a_killed_export_leaves_a_whole_file_or_none() {
    let mut row = Row::of(1, "kills at calls of export");
    let scene = Scene::export();
    if !has("strace") {
        return;
    }
    let file = scene.lab.dir().join("ctrlz-exported");
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    assert!(calls.len() > 5, "too few calls: {calls:?}");
    for (at, call) in calls.iter().enumerate() {
        scene.reset();
        crate::lab::remove(&file);
        let when = format!("export killed at {call:?}, its call {at}");
        let ended = run_with(&scene.lab, &Fault::kill(call), &scene.args());
        assert!(ended.is_killed(), "{when}: {ended:?}");
        if file.exists() {
            let word = file.to_str().unwrap();
            scene.lab.ctrlz(&["import", word]).is(&[0], &format!("{when}, and imported"));
        }
        scene.run().is(&[0], &format!("{when}, and again"));
        scene.lab.assert_no_leftovers(&when);
        row.done();
    }
    scene.assert_acked(None, "many exports were killed");
}
