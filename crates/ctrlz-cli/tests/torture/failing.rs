//! Every call that changes a file system fails once, with ENOSPC, EIO and other errors.

use crate::disk::Mount;
use crate::lab::{Ended, Lab, find, has, is_root, run, sized};
use crate::scene::Scene;
use crate::strace::{Call, Fault, MUTATING, calls, injecting, run_with};
use xtask::Row;

/// Makes each call fail in turn with each error.
fn check_failing_everywhere(scene: &Scene) {
    let mut row = Row::of(3, format!("failing calls of {}", scene.name()));
    if !has("strace") {
        return;
    }
    scene.reset();
    let calls = calls(&scene.lab, MUTATING, &scene.args());
    scene.reset();
    let right = scene.run().ok().hash();
    let errors = sized(
        &["ENOSPC", "EIO"][..],
        &["ENOSPC", "EIO", "EDQUOT", "EACCES", "EROFS", "EMFILE", "EINTR"][..],
    );
    for error in errors {
        for (at, call) in calls.iter().enumerate() {
            let ended = check_failed_once(scene, error, call, right.as_deref(), at);
            row.done();
            // With exit code 3 a hash is printed, but the snapshot is incomplete. Its record is the
            // newest one for this tree and determines the permissions that a restore of the bare
            // hash applies, so it is not checked here.
            if at.is_multiple_of(sized(12, 1)) && ended.code() != Some(3) {
                let acked = ended.hash().map(|hash| (hash, scene.before.clone()));
                scene.assert_acked(acked, &format!("{error} at {call:?}"));
            }
        }
    }
}

fn check_failed_once(
    scene: &Scene,
    error: &str,
    call: &Call,
    right: Option<&str>,
    at: usize,
) -> Ended {
    scene.reset();
    let when = format!("{} with {error} at {call:?}, its call {at}", scene.name());
    let ended = run_with(&scene.lab, &Fault::error(error, call), &scene.args());
    assert!(ended.code().is_some(), "{when}: {ended:?}");
    assert!(ended.code() != Some(101), "{when}: panicked\n{}", ended.stderr);
    if ended.code() == Some(0) {
        scene.lab.manifest().assert_is(&scene.after, &format!("{when}, reported as success"));
        assert_eq!(ended.hash().as_deref(), right, "{when}, reported as success");
    }
    scene.assert_atomic(&when);
    let again = scene.run().is(&[0], &format!("{when}, and again"));
    if again.hash().as_deref() != right {
        let hash = again.hash().unwrap_or_default();
        let holds = scene.lab.store_git(&["ls-tree", "-r", "-t", &hash]).stdout;
        panic!("{when}: first {ended:?}, again {again:?}, which holds\n{holds}");
    }
    scene.lab.manifest().assert_is(&scene.after, &format!("{when}, and again"));
    scene.lab.assert_no_leftovers(&when);
    ended
}

/// Makes every flush fail. No command may report success.
fn check_flushes_failing(scene: &Scene) {
    let mut row = Row::of(3, "commands with every flush failing");
    if !has("strace") {
        return;
    }
    scene.reset();
    let fault = Fault::always("fsync,fdatasync,syncfs", "error=EIO");
    let ended = run_with(&scene.lab, &fault, &scene.args());
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    assert_eq!(ended.hash(), None, "a hash was printed that may be lost");
    row.done();
    scene.assert_atomic("every flush failed");
    scene.run().ok();
    scene.lab.manifest().assert_is(&scene.after, "every flush failed, and again");
    scene.assert_acked(None, "every flush failed, and again");
}

#[test]
fn a_failing_call_never_makes_a_wrong_first_snapshot() {
    check_failing_everywhere(&Scene::first_track());
}

#[test]
fn a_failing_call_never_makes_a_wrong_snapshot_with_chunked_packs() {
    check_failing_everywhere(&Scene::first_track().in_pieces());
}

#[test]
fn a_failing_call_never_makes_a_wrong_snapshot() {
    check_failing_everywhere(&Scene::second_track());
}

#[test]
fn a_failing_call_never_leaves_a_partial_restore() {
    check_failing_everywhere(&Scene::restore());
}

#[test]
fn a_failing_call_never_leaves_a_foreign_log_beside_a_restored_database() {
    check_failing_everywhere(&Scene::restore_of_database());
}

#[test]
fn a_failing_flush_is_never_reported_as_success() {
    check_flushes_failing(&Scene::first_track());
    check_flushes_failing(&Scene::first_track().in_pieces());
    check_flushes_failing(&Scene::second_track());
    check_flushes_failing(&Scene::restore());
}

/// If a file cannot be opened, the snapshot must not be reported as complete, and a restore must
/// not treat the file as absent.
#[test]
fn a_failing_open_never_makes_a_wrong_snapshot_or_a_partial_restore() {
    let mut row = Row::of(3, "failing opens of track and restore");
    if !has("strace") {
        return;
    }
    const OPENS: &str = "openat,openat2";
    for (scene, stride) in [(Scene::second_track(), 3), (Scene::restore(), 7)] {
        scene.reset();
        let calls = calls(&scene.lab, OPENS, &scene.args());
        scene.reset();
        let right = scene.run().ok().hash();
        for error in sized(&["EMFILE"][..], &["EMFILE", "EIO", "EACCES", "ENOMEM"][..]) {
            for (at, call) in calls.iter().enumerate().step_by(sized(stride, 1)) {
                drop(check_failed_once(&scene, error, call, right.as_deref(), at));
                row.done();
            }
        }
    }
}

/// A directory that could not be read once is complete in the next snapshot, although it has not
/// changed since.
#[test]
fn a_directory_that_failed_to_open_is_complete_in_the_next_snapshot() {
    if !has("strace") {
        return;
    }
    let lab = Lab::new();
    lab.write("beside", "calm");
    lab.track();
    lab.write("made/file", "new");
    lab.write("also/file", "new");
    // Old enough that cached directory listings are trusted.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let opens = 6;
    for number in 1..=opens {
        let fault = Fault::at("openat2", "error=EMFILE", number);
        let first = run_with(&lab, &fault, &["track"]);
        let again = lab.ctrlz(&["track"]).ok().hash().unwrap();
        let listed = lab.store_git(&["ls-tree", "-r", "--name-only", &again]).ok().stdout;
        assert_eq!(listed, "also/file\nbeside\nmade/file\n", "open {number}: first {first:?}");
        crate::lab::remove(&lab.data);
    }
}

/// If no threads can be created, commands use those that they have.
#[test]
fn commands_succeed_if_no_threads_can_be_created() {
    let mut row = Row::of(3, "commands that get no threads, or one");
    if !has("strace") {
        return;
    }
    let starts = "?clone,?clone3";
    let none = Fault::always(starts, "error=EAGAIN");
    let one = Fault { when: "2+".into(), ..none.clone() };
    for fault in [none, one] {
        let lab = Lab::new().threaded();
        let fill = |text: &str| {
            for dir in 0..200 {
                lab.write(&format!("dir{dir}/file"), format!("{text} {dir}"));
            }
        };
        let mut run = |args: &[&str]| {
            row.done();
            let args = [&["--threads", "4"][..], args].concat();
            run_with(&lab, &fault, &args).is(&[0], &format!("{args:?}"))
        };
        fill("first");
        let (first, before) = (run(&["track"]).hash().unwrap(), lab.manifest());
        assert_eq!(run(&["track"]).hash().as_ref(), Some(&first), "nothing changed");
        fill("second");
        let second = run(&["track"]).hash().unwrap();
        run(&["diff", &first, &second]);
        run(&["restore", "--exact", "--yes", &first]);
        lab.manifest().assert_is(&before, "restored without threads");
        lab.assert_tidy("no threads");
    }
}

/// Some network file systems have no locks. That has to be reported as an error. It must not lead
/// to endless retries that create one more file each time.
#[test]
fn a_file_system_without_locks_is_reported_and_not_filled_with_files() {
    if !has("strace") || !is_root() {
        return;
    }
    let lab = Lab::new();
    let mount = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=2000", "tmpfs"], &lab.data);
    let lab = lab.mounted(mount);
    lab.write("file", "text");
    let fault = Fault::always("flock", "error=ENOLCK");
    let mut before = ["timeout", "-s", "KILL", "20"].map(str::to_owned).to_vec();
    before.extend(injecting(&[fault]));
    let ended = run(&mut lab.wrapped(&before, &["track"]));
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    let made = find(&lab.data, &|path| path.is_file());
    assert!(made.len() < 20, "it made {} files: {ended:?}", made.len());
    lab.track();
    lab.assert_tidy("locks again");
}
