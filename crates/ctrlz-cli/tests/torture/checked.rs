//! Tests of the checker: builds of `ctrlz` that violate one invariant each, which the checker has
//! to detect.

use std::os::unix::fs::chown;

use xtask::Row;

use crate::checker::{self, Held};
use crate::disk::{Disk, Kind, can_mount};
use crate::lab::{Lab, command, has, is_root, noise, run};
use crate::manifest::Manifest;
use crate::strace::{Fault, run_with};

/// Asserts that a scenario passes with the normal build, and that the checker detects the right
/// violation with the broken one.
fn check_caught(invariant: u8, scenario: impl Fn(Lab) -> Held) {
    let mut row = Row::of(1, "deliberately broken builds, each caught by the checker");
    let sound = scenario(Lab::new());
    assert!(sound.is_ok(), "the correct build fails: {sound:?}");
    match scenario(Lab::new().broken(invariant)) {
        Err(found) => assert_eq!(found.invariant, invariant, "{found:?}"),
        Ok(()) => panic!("the checker missed the violation of invariant {invariant}"),
    }
    row.done();
}

/// Makes two states and leaves the second one. Returns the hash and the manifest of the first one.
fn two_states(lab: &Lab) -> (String, Manifest) {
    lab.write("over", noise(1, 2000));
    lab.write("gone", "only then");
    let then = (lab.track(), lab.manifest());
    lab.write("over", noise(2, 2000));
    lab.remove("gone");
    lab.write("made", "only now");
    then
}

#[test]
fn broken_build_1_stores_other_bytes() {
    check_caught(1, |lab| {
        two_states(&lab);
        checker::valid(&lab)
    });
}

#[test]
fn broken_build_2_flushes_nothing() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    check_caught(2, |lab| {
        let disk = Disk::new(Kind::Ext4, "48M", &lab.dir().join("disk"));
        let mut lab = lab.storing_in(disk.path().join("data")).on(vec![disk]);
        lab.write("file", noise(1, 5000));
        lab.track();
        lab.disks[0].sync();
        lab.write("file", noise(2, 5000));
        let (hash, then) = (lab.track(), lab.manifest());
        lab.disks[0].flush_something_else();
        lab.disks[0].cut();
        lab.write("file", "something else");
        checker::durable(&lab, &hash, &then)
    });
}

#[test]
fn broken_build_3_tears_files() {
    check_caught(3, |lab| {
        let then = two_states(&lab);
        let now = lab.manifest();
        lab.ctrlz(&["restore", "--exact", "--yes", &then.0]);
        checker::atomic(&lab, &now, &then.1)
    });
}

/// The file is captured, then ignored and edited, so only a restore has a reason to save it.
#[test]
fn broken_build_4_does_not_save_overwritten_files() {
    check_caught(4, |lab| {
        lab.write("local.conf", "captured");
        let then = lab.track();
        lab.write(".gitignore", "local.conf\n");
        lab.write("local.conf", noise(4, 300_000));
        let now = lab.manifest();
        let config = lab.dir().join("ctrlz-config.toml");
        std::fs::write(&config, "ignored = \"none\"\n").unwrap();
        let config = config.to_str().unwrap();
        lab.ctrlz(&["--config", config, "restore", "--exact", "--yes", &then]);
        checker::kept(&lab, &now)
    });
}

#[test]
fn broken_build_5_writes_beside_the_work_tree() {
    check_caught(5, |lab| {
        let then = two_states(&lab);
        let before = lab.surroundings();
        lab.restore(&then.0);
        checker::contained(&lab, &before)
    });
}

#[test]
fn broken_build_6_executes_a_program() {
    if !has("strace") {
        return;
    }
    check_caught(6, |lab| {
        lab.write("file", "text");
        checker::nothing_executed(&lab, &["track"])
    });
}

#[test]
fn broken_build_7_does_not_recover() {
    if !has("strace") {
        return;
    }
    check_caught(7, |lab| {
        let then = two_states(&lab);
        let now = lab.manifest();
        let args = ["restore", "--exact", "--yes", &then.0];
        let ended = run_with(&lab, &Fault::at("renameat2", "signal=SIGKILL", 2), &args);
        assert!(ended.is_killed(), "{ended:?}");
        checker::recovered(&lab, &now, &then.1)
    });
}

#[test]
fn broken_build_8_does_not_report_unreadable_files() {
    if !is_root() || !has("setpriv") {
        return;
    }
    check_caught(8, |lab| {
        let lab = lab.run_by_nobody();
        lab.write("file", "text");
        lab.write("secret", "text");
        for name in ["file", "secret"] {
            chown(lab.work.join(name), Some(65534), Some(65534)).unwrap();
        }
        lab.chmod("secret", 0);
        checker::honest(&lab)
    });
}

#[test]
fn broken_build_9_makes_the_store_readable_to_other_users() {
    check_caught(9, |lab| {
        two_states(&lab);
        checker::private(&lab)
    });
}

#[test]
fn broken_build_10_ignores_the_quota() {
    const MAX: u64 = 1 << 20;
    check_caught(10, |lab| {
        let config = lab.dir().join("ctrlz-config.toml");
        std::fs::write(&config, format!("max_store_bytes = {MAX}\n")).unwrap();
        for at in 0..4 {
            lab.write(&format!("file{at}"), noise(at, 700_000));
            lab.ctrlz(&["--config", config.to_str().unwrap(), "track"]);
        }
        checker::bounded(&lab, MAX + MAX / 8)
    });
}

#[test]
fn broken_build_11_writes_into_the_users_repository() {
    if !has("git") {
        return;
    }
    check_caught(11, |lab| {
        run(command("git").arg("-C").arg(&lab.work).args(["init", "-q"])).ok();
        let before = Manifest::of(&lab.work.join(".git"));
        two_states(&lab);
        checker::git_untouched(&lab, &before)
    });
}
