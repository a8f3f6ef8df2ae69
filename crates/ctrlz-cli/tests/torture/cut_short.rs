//! Short writes, writes of zero bytes, and failing closes.
//!
//! A limit on file sizes causes real short writes: the part that fits is written, and the next
//! write fails.

use std::path::Path;

use xtask::Row;

use crate::lab::{Ended, has, run, sized};
use crate::scene::Scene;
use crate::strace::{Fault, calls, run_with};

/// Checks the state after a command with a fault, for any exit code.
fn check_after(scene: &Scene, ended: &Ended, right: Option<&str>, when: &str) {
    assert!(ended.code() != Some(101), "{when}: panicked\n{}", ended.stderr);
    if ended.code() == Some(0) {
        scene.lab.manifest().assert_is(&scene.after, &format!("{when}, reported as success"));
        assert_eq!(ended.hash().as_deref(), right, "{when}, reported as success");
    }
    scene.assert_atomic(when);
    let again = scene.run().is(&[0], &format!("{when}, and again"));
    assert_eq!(again.hash().as_deref(), right, "{when}, and again");
    scene.lab.manifest().assert_is(&scene.after, &format!("{when}, and again"));
    scene.lab.assert_no_leftovers(when);
}

/// Returns the hash that the command prints without a fault.
fn right(scene: &Scene) -> Option<String> {
    scene.reset();
    scene.run().ok().hash()
}

/// Limits the size of files, and raises the limit until the command succeeds.
fn check_short_writes(scene: &Scene) {
    let mut row = Row::of(3, format!("short writes of {}", scene.name()));
    if !has("prlimit") {
        return;
    }
    let right = right(scene);
    for signal in ["", "trap '' XFSZ; "] {
        let mut limit = 0;
        loop {
            scene.reset();
            let when = format!("{}: {signal}no file above {limit} bytes", scene.name());
            let script = format!("{signal}exec prlimit --fsize={limit}: \"$@\"");
            let ended = scene.lab.scripted(&script, &scene.args());
            check_after(scene, &ended, right.as_deref(), &when);
            row.done();
            if ended.code() == Some(0) {
                break;
            }
            assert!(limit < 1 << 20, "{when}: it never succeeds: {ended:?}");
            limit += sized(211, 23);
        }
    }
}

/// Injects a fault into each call of a kind in turn.
fn check_calls(scene: &Scene, kind: &str, fault: &str, stride: usize) {
    let mut row = Row::of(3, format!("calls of {} with {kind}:{fault}", scene.name()));
    if !has("strace") {
        return;
    }
    scene.reset();
    let calls = calls(&scene.lab, kind, &scene.args());
    assert!(!calls.is_empty(), "no call of {kind}");
    let right = right(scene);
    for call in calls.iter().step_by(stride) {
        scene.reset();
        let when = format!("{} with {fault} at {call:?}", scene.name());
        let ended = run_with(&scene.lab, &Fault::at(&call.name, fault, call.number), &scene.args());
        check_after(scene, &ended, right.as_deref(), &when);
        row.done();
    }
}

#[test]
fn a_short_write_never_makes_a_wrong_snapshot() {
    check_short_writes(&Scene::second_track());
}

#[test]
fn a_short_write_never_makes_a_wrong_snapshot_with_chunked_packs() {
    check_short_writes(&Scene::first_track().in_pieces());
}

/// The checksum of a chunked pack is computed from bytes that are read back from disk.
#[test]
fn a_failing_read_never_makes_a_wrong_pack() {
    let scene = Scene::first_track().in_pieces();
    check_calls(&scene, "pread64", "error=EIO", 1);
    check_calls(&scene, "pread64", "retval=0", 1);
}

#[test]
fn a_short_write_never_leaves_a_partial_restore() {
    check_short_writes(&Scene::restore());
}

#[test]
fn a_write_of_zero_bytes_is_never_reported_as_success() {
    // The last write of `track` prints the hash. Losing it must not look like success.
    check_calls(&Scene::second_track(), "write,pwrite64", "retval=0", 1);
    check_calls(&Scene::first_track().in_pieces(), "write,pwrite64", "retval=0", 1);
    check_calls(&Scene::restore(), "write,pwrite64", "retval=0", sized(3, 1));
}

/// Panic message of the standard library, which asserts that closing a directory succeeds. No file
/// system reports an error there.
const CLOSEDIR_PANIC: &str = "unexpected error during closedir";

/// Makes each close of a file fail. A close may report that an earlier write failed.
///
/// The closes are numbered in a run without faults. With other processes on the machine, a run may
/// close more directories of `/proc`, so a number can hit a directory; that run is skipped.
fn check_closes(scene: &Scene, stride: usize) {
    let mut row = Row::of(3, format!("failing closes of {}", scene.name()));
    if !has("strace") {
        return;
    }
    let right = right(scene);
    scene.reset();
    let closes = closes_of_files(scene);
    assert!(closes.len() > 10, "{closes:?}");
    for number in closes.into_iter().step_by(stride) {
        scene.reset();
        let when = format!("{} with EIO at close {number}", scene.name());
        let ended = run_with(&scene.lab, &Fault::at("close", "error=EIO", number), &scene.args());
        if ended.stderr.contains(CLOSEDIR_PANIC) {
            continue;
        }
        check_after(scene, &ended, right.as_deref(), &when);
        row.done();
    }
}

/// Returns the numbers of the closes of files in a run without faults.
fn closes_of_files(scene: &Scene) -> Vec<usize> {
    let log = scene.lab.dir().join("ctrlz-closes");
    let mut before =
        ["strace", "-f", "-qq", "-y", "-e", "trace=close", "-o"].map(str::to_owned).to_vec();
    before.push(log.to_str().unwrap().into());
    run(&mut scene.lab.wrapped(&before, &scene.args())).ok();
    let text = std::fs::read_to_string(log).unwrap();
    let closes = text.lines().filter(|line| line.contains("close("));
    let path = |line: &str| Some(line.split_once('<')?.1.split_once('>')?.0.to_owned());
    let is_file = |line: &str| path(line).is_some_and(|path| !Path::new(&path).is_dir());
    (1..).zip(closes).filter(|(_, line)| is_file(line)).map(|(number, _)| number).collect()
}

#[test]
fn a_failing_close_never_makes_a_wrong_snapshot_or_a_partial_restore() {
    check_closes(&Scene::second_track(), sized(5, 1));
    check_closes(&Scene::restore(), sized(9, 1));
}
