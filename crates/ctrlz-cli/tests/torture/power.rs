//! Power cuts at any moment: all unflushed data is lost.
//!
//! A kill at the Nth call followed by a power cut simulates a power cut at that call.

use crate::disk::{Disk, Kind, can_mount};
use crate::lab::{Ended, Lab, fresh_dir, has, noise, sized};
use crate::manifest::Manifest;
use crate::scene::{Scene, keep_nothing, make_segment};
use crate::strace::{Call, Fault, MUTATING, calls, run_with};
use xtask::Row;

/// A work tree and a store, on one disk or on two.
struct Machine {
    lab: Lab,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disks {
    One,
    Two,
}

impl Machine {
    fn new(kind: Kind, disks: Disks) -> Machine {
        let dir = fresh_dir();
        let size = if kind == Kind::Xfs { "320M" } else { "48M" };
        let disk = |name: &str| Disk::new(kind, size, &dir.path().join(name));
        let mut made = vec![disk("disk-one")];
        let work = made[0].path().join("work");
        if disks == Disks::Two {
            made.push(disk("disk-two"));
        }
        let data = made[made.len() - 1].path().join("data");
        Machine { lab: Lab::with(dir, work, data).on(made) }
    }

    fn save(&mut self) {
        self.lab.disks.iter_mut().for_each(Disk::save);
    }

    fn reset(&mut self) {
        self.lab.disks.iter_mut().for_each(Disk::reset);
    }

    /// Cuts the power of all disks, every other time after a flush of an unrelated file.
    fn cut(&mut self, at: usize) {
        for disk in &mut self.lab.disks {
            if at.is_multiple_of(2) {
                disk.flush_something_else();
            }
            disk.cut();
        }
    }
}

fn first(lab: &Lab) {
    for at in 0..6 {
        lab.write(&format!("dir{}/file{at}", at % 2), noise(at, 3000));
    }
    lab.write("removed later", "then");
    lab.link("dir0/file0", "link");
}

fn second(lab: &Lab) {
    for at in 0..4 {
        lab.write(&format!("dir{}/file{at}", at % 2), noise(at + 100, 5000));
    }
    lab.remove("removed later");
    lab.write("made/since", "now");
}

/// Returns every `stride`th call, and twice the moment after the last one.
fn moments(calls: &[Call], stride: usize) -> Vec<(usize, Option<&Call>)> {
    let during = calls.iter().step_by(stride).map(Some);
    during.chain([None, None]).enumerate().collect()
}

/// Runs `ctrlz` up to a call, or to its end.
fn run_until(lab: &Lab, call: Option<&Call>, args: &[&str]) -> Ended {
    match call {
        Some(call) => run_with(lab, &Fault::kill(call), args),
        None => lab.ctrlz(args).ok(),
    }
}

/// Cuts the power at every `stride`th call of a track, and after the last one.
fn check_track(kind: Kind, disks: Disks, stride: usize) {
    let mut row = Row::of(2, format!("power cuts in track on {kind:?}"));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine::new(kind, disks);
    first(&machine.lab);
    let then = (machine.lab.track(), machine.lab.manifest());
    machine.save();
    second(&machine.lab);
    let now = machine.lab.manifest();
    let calls = calls(&machine.lab, MUTATING, &["track"]);
    for (at, call) in moments(&calls, stride) {
        machine.reset();
        second(&machine.lab);
        let ended = run_until(&machine.lab, call, &["track"]);
        machine.cut(at);
        row.done();
        let when = format!("{kind:?}: power cut at {call:?} of track");
        assert!(call.is_some() || ended.hash().is_some(), "{when}: {ended:?}");
        machine.lab.track();
        machine.lab.assert_tidy(&when);
        // The user's own edits were never flushed, so only the store is checked for them.
        let acked = ended.hash().map(|hash| (hash, now.clone()));
        for (hash, manifest) in acked.into_iter().chain([then.clone()]) {
            machine.lab.assert_restores(&hash, &manifest, &when);
        }
    }
}

/// Like [`check_track`], for the first track, which creates the store.
fn check_first_track(kind: Kind, stride: usize, prepared: fn(Lab) -> Lab) {
    let mut row = Row::of(2, format!("power cuts in track on {kind:?}"));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine { lab: prepared(Machine::new(kind, Disks::One).lab) };
    first(&machine.lab);
    let now = machine.lab.manifest();
    machine.save();
    let calls = calls(&machine.lab, MUTATING, &["track"]);
    for (at, call) in moments(&calls, stride) {
        machine.reset();
        let ended = run_until(&machine.lab, call, &["track"]);
        machine.cut(at);
        row.done();
        let when = format!("{kind:?}: power cut at {call:?} of the first track");
        assert!(call.is_some() || ended.hash().is_some(), "{when}: {ended:?}");
        machine.lab.manifest().assert_is(&now, &when);
        let hash = ended.hash();
        if let Some(hash) = &hash {
            machine.lab.assert_restores(hash, &now, &when);
        }
        let again = machine.lab.track();
        assert_eq!(*hash.as_ref().unwrap_or(&again), again, "{when}");
        machine.lab.assert_tidy(&when);
        machine.lab.remove("dir0");
        machine.lab.assert_restores(&again, &now, &when);
    }
}

/// Cuts the power during a restore. All user files were flushed before it.
fn check_restore(kind: Kind, disks: Disks, stride: usize) {
    let mut row = Row::of(2, format!("power cuts in restore on {kind:?}"));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine::new(kind, disks);
    first(&machine.lab);
    let then = (machine.lab.track(), machine.lab.manifest());
    second(&machine.lab);
    let now = (machine.lab.track(), machine.lab.manifest());
    machine.lab.disks.iter().for_each(Disk::sync);
    machine.save();
    let args = ["restore", "--exact", "--yes", &then.0];
    let calls = calls(&machine.lab, MUTATING, &args);
    for (at, call) in moments(&calls, stride) {
        machine.reset();
        let ended = run_until(&machine.lab, call, &args);
        machine.cut(at);
        row.done();
        let when = format!("{kind:?}: power cut at {call:?} of restore");
        Manifest::of_user_files(&machine.lab.work).assert_between(&now.1, &then.1, &when);
        if ended.code() == Some(0) {
            machine.lab.manifest().assert_is(&then.1, &format!("{when}, acknowledged"));
        }
        machine.lab.track();
        let found = machine.lab.manifest();
        assert!(
            found == now.1 || found == then.1,
            "{when}: neither before nor after:\n{}",
            found.difference(&then.1)
        );
        machine.lab.assert_tidy(&when);
        for (hash, manifest) in [&now, &then] {
            machine.lab.assert_restores(hash, manifest, &when);
        }
    }
}

#[test]
fn a_power_cut_on_ext4_loses_no_snapshot() {
    check_track(Kind::Ext4, Disks::One, sized(3, 1));
}

#[test]
fn a_power_cut_on_ext4_during_store_creation_does_not_block_the_next_track() {
    check_first_track(Kind::Ext4, sized(6, 1), |lab| lab);
}

#[test]
fn a_power_cut_on_ext4_during_a_chunked_pack_write_does_not_block_the_next_track() {
    check_first_track(Kind::Ext4, sized(6, 1), |lab| lab.in_pieces(2_000));
}

#[test]
fn a_restore_is_all_or_nothing_after_a_power_cut_on_ext4() {
    check_restore(Kind::Ext4, Disks::One, sized(5, 1));
}

#[test]
fn a_restore_is_all_or_nothing_after_a_power_cut_with_the_store_on_another_disk() {
    check_restore(Kind::Ext4, Disks::Two, sized(9, 1));
}

#[test]
fn a_power_cut_with_the_store_on_another_disk_loses_no_snapshot() {
    check_track(Kind::Ext4, Disks::Two, sized(9, 1));
}

/// With threads, a pack is flushed in the background. A printed hash must still survive the power
/// cut.
#[test]
fn a_power_cut_after_a_track_with_threads_loses_no_snapshot() {
    let mut row = Row::of(2, "power cuts after a track with threads on Ext4");
    if !can_mount(Kind::Ext4) {
        return;
    }
    for prepared in [|lab: Lab| lab, |lab: Lab| lab.in_pieces(2_000)] {
        let lab = prepared(Machine::new(Kind::Ext4, Disks::One).lab.threaded());
        let mut machine = Machine { lab };
        first(&machine.lab);
        machine.lab.track();
        machine.save();
        second(&machine.lab);
        let now = machine.lab.manifest();
        for at in 0..sized(4, 60) {
            machine.reset();
            second(&machine.lab);
            let hash = machine.lab.ctrlz(&["track"]).ok().hash().unwrap();
            machine.cut(at);
            row.done();
            machine.lab.assert_restores(&hash, &now, "power cut after a track with threads");
        }
    }
}

#[test]
fn a_power_cut_on_xfs_loses_no_snapshot() {
    check_track(Kind::Xfs, Disks::One, sized(9, 1));
}

#[test]
fn a_restore_is_all_or_nothing_after_a_power_cut_on_xfs() {
    check_restore(Kind::Xfs, Disks::One, sized(13, 1));
}

/// Prepares two states, and cuts the power during a command. Then `finish` runs the commands that a
/// user would run.
fn check_care(kind: Kind, stride: usize, prepare: fn(&Lab), args: &[&str], finish: fn(&Lab, &str)) {
    let mut row = Row::of(2, format!("power cuts in {} on {kind:?}", args[0]));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine::new(kind, Disks::One);
    let config = keep_nothing(&machine.lab);
    let args = [&["--config", config.as_str()], args].concat();
    first(&machine.lab);
    let then = (machine.lab.track(), machine.lab.manifest());
    prepare(&machine.lab);
    let now = (machine.lab.track(), machine.lab.manifest());
    machine.lab.disks.iter().for_each(Disk::sync);
    machine.save();
    let calls = calls(&machine.lab, MUTATING, &args);
    assert!(calls.len() > 20, "too few calls: {calls:?}");
    for (at, call) in moments(&calls, stride) {
        machine.reset();
        run_until(&machine.lab, call, &args);
        machine.cut(at);
        row.done();
        let when = format!("{kind:?}: power cut at {call:?} of {}", args[2]);
        machine.lab.track();
        finish(&machine.lab, &when);
        machine.lab.assert_tidy(&when);
        for (hash, manifest) in [&now, &then] {
            machine.lab.assert_restores(hash, manifest, &when);
        }
    }
}

/// Cuts the power during a garbage collection that has garbage to collect.
fn check_gc(kind: Kind, stride: usize) {
    let prepare = |lab: &Lab| {
        make_segment(lab);
        lab.remove("old");
        lab.track();
        second(lab);
    };
    check_care(kind, stride, prepare, &["gc", "--thorough"], |_, _| ());
}

#[test]
fn a_power_cut_on_ext4_while_garbage_is_collected_loses_no_snapshot() {
    check_gc(Kind::Ext4, sized(4, 1));
}

#[test]
fn a_power_cut_on_xfs_while_garbage_is_collected_loses_no_snapshot() {
    check_gc(Kind::Xfs, sized(7, 1));
}

#[test]
fn a_power_cut_during_a_purge_loses_no_other_data_and_a_rerun_finishes_it() {
    let prepare = |lab: &Lab| {
        lab.write("secret", "in between");
        lab.track();
        lab.remove("secret");
        second(lab);
    };
    check_care(Kind::Ext4, sized(6, 1), prepare, &["purge", "--yes", "secret"], |lab, when| {
        // Once the refs are updated there is nothing left to purge, but there may be garbage.
        lab.ctrlz(&["purge", "--yes", "secret"]).is(&[0, 4], when);
        lab.ctrlz(&["gc", "--thorough"]).is(&[0], when);
        let objects = lab.all_objects();
        assert!(!crate::lab::contains(&objects, b"in between"), "{when}: still there");
    });
}

#[test]
fn a_power_cut_during_a_repair_loses_no_data_and_a_rerun_finishes_it() {
    let prepare = |lab: &Lab| {
        second(lab);
        let large =
            |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "pack");
        lab.track();
        let packs = crate::lab::find(&lab.store(), &large);
        let newest = packs.iter().max_by_key(|path| path.metadata().unwrap().modified().unwrap());
        let mut bytes = std::fs::read(newest.unwrap()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x41;
        std::fs::write(newest.unwrap(), bytes).unwrap();
    };
    check_care(Kind::Ext4, sized(6, 1), prepare, &["verify", "--repair"], |lab, when| {
        second(lab);
        lab.ctrlz(&["verify", "--repair"]).is(&[0], when);
    });
}

#[test]
fn a_power_cut_during_an_import_loses_no_data_and_a_rerun_finishes_it() {
    if !can_mount(Kind::Ext4) || !has("strace") {
        return;
    }
    let (scene, came) = Scene::import();
    let file = scene.args[1].as_str();
    let mut machine = Machine::new(Kind::Ext4, Disks::One);
    first(&machine.lab);
    let own = (machine.lab.track(), machine.lab.manifest());
    machine.lab.disks.iter().for_each(Disk::sync);
    machine.save();
    let calls = calls(&machine.lab, MUTATING, &["import", file]);
    for (at, call) in moments(&calls, sized(6, 1)) {
        machine.reset();
        run_until(&machine.lab, call, &["import", file]);
        machine.cut(at);
        let when = format!("power cut at {call:?} of import");
        machine.lab.ctrlz(&["import", file]).is(&[0], &when);
        // Leftovers in the directory of another log are removed by gc, or when that log grows.
        machine.lab.ctrlz(&["gc"]).is(&[0], &when);
        machine.lab.assert_tidy(&when);
        for (hash, manifest) in [&came, &own] {
            machine.lab.assert_restores(hash, manifest, &when);
        }
    }
}
