//! The watcher with mounts, overlays and file systems that are not known to be local.

use std::time::{Duration, Instant};

use crate::disk::Mount;
use crate::lab::{Lab, is_root};

/// Runs `ctrlz` with a configuration that enables the watcher.
fn ctrlz(lab: &Lab, words: &[&str]) -> crate::lab::Ended {
    let config = lab.work.with_file_name("watch.toml");
    std::fs::write(&config, "watch = true\n").unwrap();
    lab.ctrlz(&[&["--config", config.to_str().unwrap()], words].concat())
}

/// Tracks the work tree. Returns whether the watcher was used.
fn is_watched(lab: &Lab) -> bool {
    let ended = ctrlz(lab, &["--json", "track"]).is(&[0, 3], "track");
    ended.stdout.contains("\"watched\":true")
}

#[test]
fn a_mount_or_unmount_in_the_work_tree_forces_a_full_scan() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    lab.write("file", "1");
    lab.write("sub/inside", "1");
    ctrlz(&lab, &["watch", "--detach"]).ok();
    assert!(!is_watched(&lab));
    lab.write("file", "2");
    assert!(is_watched(&lab));
    let mount = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &lab.work.join("sub"));
    assert!(!is_watched(&lab), "the mount was missed");
    drop(mount);
    assert!(!is_watched(&lab), "the unmount was missed");
    let hash = ctrlz(&lab, &["track"]).hash().unwrap();
    assert_eq!(ctrlz(&lab, &["track", "--rehash"]).hash(), Some(hash));
    ctrlz(&lab, &["watch", "--stop"]).ok();
}

#[test]
fn a_file_system_not_known_to_be_local_is_not_watched() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let mount = Mount::new(&["-t", "ramfs", "ramfs"], &lab.work);
    let lab = lab.mounted(mount);
    lab.write("file", "1");
    let ended = ctrlz(&lab, &["watch", "--detach"]).is(&[6], "not watched");
    assert!(ended.stderr.contains("not a local file system"), "{ended:?}");
    for round in 0..3 {
        lab.write("file", format!("{round}"));
        assert!(!is_watched(&lab));
    }
    let status = ctrlz(&lab, &["status"]).ok();
    assert!(status.stdout.contains("not a local file system"), "{status:?}");
}

#[test]
fn an_overlay_is_watched() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let at = |name: &str| lab.work.with_file_name(name);
    for dir in ["lower/sub", "upper", "scratch"] {
        std::fs::create_dir_all(at(dir)).unwrap();
    }
    std::fs::write(at("lower/sub/file"), "lower").unwrap();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower").display(),
        at("upper").display(),
        at("scratch").display()
    );
    let mount = Mount::new(&["-t", "overlay", "-o", &options, "overlay"], &lab.work);
    let lab = lab.mounted(mount);
    ctrlz(&lab, &["watch", "--detach"]).ok();
    is_watched(&lab);
    // The first write copies the file and its directory to the upper layer. Later writes do not.
    for round in 0..4 {
        lab.write("sub/file", format!("{round}"));
        lab.write(&format!("sub/new{round}/file"), "new");
        let start = Instant::now();
        assert!(is_watched(&lab), "round {round}");
        assert!(start.elapsed() < Duration::from_secs(10));
        let hash = ctrlz(&lab, &["track"]).hash().unwrap();
        assert_eq!(ctrlz(&lab, &["track", "--rehash"]).hash(), Some(hash), "round {round}");
    }
    ctrlz(&lab, &["watch", "--stop"]).ok();
}
