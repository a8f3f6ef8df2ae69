//! Power cuts: everything that was not flushed is gone, at any moment.
//!
//! A kill at the Nth call followed by a cut is a power cut at exactly that moment.

use crate::disk::{Disk, Kind, can_mount};
use crate::lab::{Ended, Lab, fresh_dir, has, noise, sized};
use crate::manifest::Manifest;
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

    /// Cuts the power of all disks, after a foreign flush every other time.
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

/// Every `stride`th call, and twice the moment after the last.
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

/// Tracks and cuts at every `stride`th call, and after the last.
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
        // The user's own edits were never flushed, so only the store is asked for them.
        let acked = ended.hash().map(|hash| (hash, now.clone()));
        for (hash, manifest) in acked.into_iter().chain([then.clone()]) {
            machine.lab.assert_restores(&hash, &manifest, &when);
        }
    }
}

/// The same for the first track, which makes the store.
fn check_first_track(kind: Kind, stride: usize) {
    let mut row = Row::of(2, format!("power cuts in track on {kind:?}"));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine::new(kind, Disks::One);
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

/// Restores and cuts; all user files were on disk before.
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
fn a_power_cut_on_ext4_while_the_store_is_made_leaves_nothing_in_the_way() {
    check_first_track(Kind::Ext4, sized(6, 1));
}

#[test]
fn a_power_cut_on_ext4_leaves_a_restore_done_or_not_done() {
    check_restore(Kind::Ext4, Disks::One, sized(5, 1));
}

#[test]
fn a_power_cut_with_the_store_on_another_disk_leaves_a_restore_done_or_not_done() {
    check_restore(Kind::Ext4, Disks::Two, sized(9, 1));
}

#[test]
fn a_power_cut_with_the_store_on_another_disk_loses_no_snapshot() {
    check_track(Kind::Ext4, Disks::Two, sized(9, 1));
}

#[test]
fn a_power_cut_on_xfs_loses_no_snapshot() {
    check_track(Kind::Xfs, Disks::One, sized(9, 1));
}

#[test]
fn a_power_cut_on_xfs_leaves_a_restore_done_or_not_done() {
    check_restore(Kind::Xfs, Disks::One, sized(13, 1));
}

/// Collects garbage and cuts.
fn check_gc(kind: Kind, stride: usize) {
    let mut row = Row::of(2, format!("power cuts in gc on {kind:?}"));
    if !can_mount(kind) || !has("strace") {
        return;
    }
    let mut machine = Machine::new(kind, Disks::One);
    first(&machine.lab);
    let then = (machine.lab.track(), machine.lab.manifest());
    second(&machine.lab);
    let now = (machine.lab.track(), machine.lab.manifest());
    machine.lab.disks.iter().for_each(Disk::sync);
    machine.save();
    let args = ["gc", "--thorough"];
    let calls = calls(&machine.lab, MUTATING, &args);
    for (at, call) in moments(&calls, stride) {
        machine.reset();
        run_until(&machine.lab, call, &args);
        machine.cut(at);
        row.done();
        let when = format!("{kind:?}: power cut at {call:?} of gc");
        machine.lab.track();
        machine.lab.assert_tidy(&when);
        for (hash, manifest) in [&now, &then] {
            machine.lab.assert_restores(hash, manifest, &when);
        }
    }
}

#[test]
fn a_power_cut_on_ext4_while_garbage_is_collected_loses_no_snapshot() {
    check_gc(Kind::Ext4, sized(4, 1));
}

#[test]
fn a_power_cut_on_xfs_while_garbage_is_collected_loses_no_snapshot() {
    check_gc(Kind::Xfs, sized(7, 1));
}
