//! Disks without free space or free inodes.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::disk::{Disk, Kind, Mount, can_mount};
use crate::lab::{Ended, Lab, ended, fresh_dir, is_root, noise, start};

const MB: usize = 1 << 20;

#[track_caller]
fn assert_refused(ended: &Ended) {
    assert!(ended.code().is_some_and(|code| code != 0 && code != 101), "{ended:?}");
    assert_eq!(ended.hash(), None);
}

/// Checks that a track fails if the disk of the store is too small, that earlier snapshots stay
/// valid, and that tracking works again once there is space.
fn check_small_store(lab: &Lab, make_large: impl Fn(), make_small: impl Fn()) {
    lab.write("small", "fits");
    let old = (lab.track(), lab.manifest());
    make_large();
    let large = lab.manifest();
    assert_refused(&lab.ctrlz(&["track"]));
    lab.manifest().assert_is(&large, "a refused track");
    lab.assert_tidy("the disk is full");
    make_small();
    lab.assert_restores(&old.0, &old.1, "after the disk was full");
    lab.write("small", "changed");
    let new = (lab.track(), lab.manifest());
    lab.assert_tidy("there is room again");
    lab.assert_restores(&old.0, &old.1, "there is room again");
    lab.assert_restores(&new.0, &new.1, "there is room again");
}

#[test]
fn a_full_store_disk_fails_the_snapshot_and_keeps_earlier_ones() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    let make_large = || {
        for at in 0..10 {
            lab.write(&format!("large/{at}"), noise(at, 2 * MB));
        }
    };
    check_small_store(&lab, make_large, || lab.remove("large"));
}

/// The file passes the estimate of the required space, so the disk fills up while the pack is
/// written.
#[test]
fn a_disk_that_fills_up_during_a_pack_write_keeps_earlier_snapshots() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    let make_large = || lab.write("large", noise(1, 9 * MB));
    check_small_store(&lab, make_large, || lab.remove("large"));
}

/// The same for a pack that is written in chunks, with one thread and with several.
#[test]
fn a_disk_that_fills_up_during_a_chunked_pack_write_keeps_earlier_snapshots() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    for is_threaded in [false, true] {
        let dir = fresh_dir();
        let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
        let (work, data) = (dir.path().join("work"), disk.path().join("data"));
        let lab = Lab::with(dir, work, data).on(vec![disk]).in_pieces(300_000);
        let lab = if is_threaded { lab.threaded() } else { lab };
        let make_large = || {
            for at in 0..90 {
                lab.write(&format!("large/{at}"), noise(at, MB / 10));
            }
        };
        check_small_store(&lab, make_large, || lab.remove("large"));
    }
}

#[test]
fn a_store_disk_without_inodes_fails_the_snapshot_and_keeps_earlier_ones() {
    if !is_root() {
        return;
    }
    let dir = fresh_dir();
    let at = dir.path().join("disk");
    let mount = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=42,size=8m", "tmpfs"], &at);
    let (work, data) = (dir.path().join("work"), at.join("data"));
    let lab = Lab::with(dir, work, data).mounted(mount);
    let make_large = || {
        lab.write("more", "to record");
        for name in 0.. {
            if std::fs::write(at.join(format!("filler{name}")), "").is_err() {
                return;
            }
        }
    };
    let make_small = || {
        lab.remove("more");
        for entry in std::fs::read_dir(&at).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("filler") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    };
    check_small_store(&lab, make_large, make_small);
}

/// The file system has too few inodes for a new store.
#[test]
fn creating_a_store_without_free_inodes_leaves_no_files_behind() {
    if !is_root() {
        return;
    }
    let dir = fresh_dir();
    let at = dir.path().join("disk");
    let mount = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=12,size=8m", "tmpfs"], &at);
    let (work, data) = (dir.path().join("work"), at.join("data"));
    let lab = Lab::with(dir, work, data).mounted(mount);
    lab.write("file", "text");
    assert_refused(&lab.ctrlz(&["track"]));
    lab.assert_no_leftovers("no inodes for a store");
    crate::lab::must("mount", &["-o", "remount,nr_inodes=200", at.to_str().unwrap()]);
    lab.track();
    lab.assert_tidy("inodes again");
}

#[test]
fn restore_to_a_full_work_tree_disk_fails_without_changes() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (disk.path().join("work"), dir.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    for at in 0..3 {
        lab.write(&format!("large{at}"), noise(at, MB));
    }
    lab.write("edited", "then");
    let old = (lab.track(), lab.manifest());
    for at in 0..3 {
        lab.remove(&format!("large{at}"));
    }
    lab.write("edited", "now");
    lab.track();
    let now = lab.manifest();
    // Another program uses the remaining space, outside of the work tree.
    let filler = lab.disks[0].path().join("filler");
    let full = std::fs::write(&filler, noise(9, 16 * MB));
    assert!(full.is_err());
    let ended = lab.ctrlz(&["restore", "--exact", &old.0]);
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    lab.manifest().assert_is(&now, "a restore without room");
    lab.assert_tidy("a restore without room");
    std::fs::remove_file(&filler).unwrap();
    lab.assert_restores(&old.0, &old.1, "there is room again");
}

#[test]
fn restore_rolls_back_if_the_work_tree_runs_out_of_inodes() {
    if !is_root() {
        return;
    }
    let dir = fresh_dir();
    let at = dir.path().join("disk");
    let mount = Mount::new(&["-t", "tmpfs", "-o", "nr_inodes=40,size=8m", "tmpfs"], &at);
    let (work, data) = (at.join("work"), dir.path().join("data"));
    let lab = Lab::with(dir, work, data).mounted(mount);
    for name in 0..20 {
        lab.write(&format!("d{}/{name}", name % 3), format!("file {name}"));
    }
    let old = (lab.track(), lab.manifest());
    lab.remove("d0");
    lab.remove("d1");
    lab.write("d2/2", "edited");
    lab.track();
    let now = lab.manifest();
    let filler = |name: usize| at.join(format!("filler{name}"));
    let fillers = (0..).take_while(|name| std::fs::write(filler(*name), "").is_ok()).count();
    for name in 0..fillers.min(6) {
        std::fs::remove_file(filler(name)).unwrap();
    }
    let ended = lab.ctrlz(&["restore", &old.0]);
    assert!(ended.code().is_some_and(|code| code != 0), "{ended:?}");
    lab.manifest().assert_is(&now, "a restore without inodes");
    lab.assert_tidy("a restore without inodes");
    for name in 6..fillers {
        std::fs::remove_file(filler(name)).unwrap();
    }
    lab.assert_restores(&old.0, &old.1, "inodes again");
}

#[test]
fn garbage_collection_works_on_a_completely_full_disk() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "16M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    let config = lab.dir().join("ctrlz-config.toml");
    std::fs::write(&config, "keep_days = 0\n").unwrap();
    // A log segment has 256 operations, so the first segment can be dropped.
    for at in 0..270 {
        lab.write("file", noise(at, 20_000));
        lab.track();
    }
    let last = (lab.track(), lab.manifest());
    let filler = lab.disks[0].path().join("filler");
    assert!(std::fs::write(&filler, noise(9, 32 * MB)).is_err());
    let size = |lab: &Lab| {
        crate::lab::find(&lab.store(), &|path| path.is_file())
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum::<u64>()
    };
    let before = size(&lab);
    lab.ctrlz(&["--config", config.to_str().unwrap(), "gc"]).ok();
    assert!(size(&lab) < before / 2, "{} of {before} bytes are left", size(&lab));
    std::fs::remove_file(&filler).unwrap();
    lab.assert_restores(&last.0, &last.1, "after gc on a full disk");
    lab.assert_tidy("after gc on a full disk");
}

#[test]
fn restore_from_an_unreadable_pack_changes_no_file() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let lab = Lab::new();
    let disk = Disk::new(Kind::Ext4, "64M", &lab.dir().join("disk"));
    let mut lab = lab.storing_in(disk.path().join("data")).on(vec![disk]);
    for file in 0..12 {
        lab.write(&format!("file{file}"), noise(file, 2 << 20));
    }
    let hash = lab.track();
    for file in 0..12 {
        lab.write(&format!("file{file}"), "now");
    }
    lab.track();
    let now = lab.manifest();
    // Makes the end of the disk unreadable. The remount drops it from the page cache.
    lab.disks[0].unmount();
    lab.disks[0].mount();
    lab.disks[0].shorten("16M");
    let ended = lab.ctrlz(&["restore", "--exact", "--yes", &hash]);
    assert_ne!(ended.code(), Some(0), "{ended:?}");
    crate::manifest::Manifest::of_user_files(&lab.work).assert_is(&now, "after it failed");
}

impl Lab {
    /// Fills the disk of the store to the last block.
    fn fill_disk(&self) -> std::path::PathBuf {
        let filler = self.disks[0].path().join("filler");
        std::fs::create_dir(&filler).unwrap();
        for (at, bytes) in [16 * MB, MB, 64 << 10].into_iter().chain([4096; 400]).enumerate() {
            let file = std::fs::File::create(filler.join(at.to_string()));
            let Ok(mut file) = file else { break };
            // With delayed allocation, the kernel reports ENOSPC only on flush.
            file.write_all(&noise(at as u64, bytes)).and_then(|()| file.sync_all()).ok();
        }
        filler
    }

    /// Runs a hook like Claude Code does. Returns the message for the user.
    #[track_caller]
    fn hook(&self, turn: &str, name: &str, call: &str) -> Option<String> {
        let event = json!({
            "session_id": "s", "prompt_id": turn, "cwd": self.work, "hook_event_name": name,
            "transcript_path": "/nowhere/s.jsonl", "tool_name": "Bash", "tool_use_id": call,
            "tool_input": { "command": "make" },
        });
        let mut child = start(self.command(&["hook", "claude-code"]).stdin(Stdio::piped()));
        child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
        let ended = ended(child).ok();
        let reply: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        reply["systemMessage"].as_str().map(str::to_owned)
    }
}

/// A turn that cannot be recorded is reported immediately, and appears as a gap in the log.
#[test]
fn a_turn_that_a_full_disk_left_unrecorded_is_reported_and_shown_as_a_gap() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    lab.write("a", "user\n");
    assert_eq!(lab.hook("one", "PreToolUse", "c1"), None);
    lab.write("a", "user\nturn one\n");
    assert_eq!(lab.hook("one", "PostToolUse", "c1"), None);
    let filler = lab.fill_disk();
    lab.write("c", "made before the call, so that it has something to record\n");
    let said = lab.hook("two", "PreToolUse", "c2").unwrap();
    assert!(said.contains("store disk full") && said.contains("cannot be undone"), "{said}");
    lab.write("b", "turn two\n");
    lab.hook("two", "PostToolUse", "c2");
    assert_eq!(lab.hook("two", "PreToolUse", "c3"), None, "reported once per turn");
    let status = lab.ctrlz(&["status"]).ok().stdout;
    assert!(status.contains("PreToolUse"), "{status}");
    let doctor = lab.ctrlz(&["doctor"]);
    assert!(doctor.stdout.contains("claude-code, PreToolUse"), "{doctor:?}");
    let said = lab.hook("three", "UserPromptSubmit", "").unwrap();
    assert!(said.contains("could not be recorded"), "{said}");
    // Recording works again.
    crate::lab::remove(&filler);
    assert_eq!(lab.hook("three", "PreToolUse", "c4"), None);
    assert_eq!(lab.hook("three", "PostToolUse", "c4"), None);
    let log = lab.ctrlz(&["log"]).ok().stdout;
    assert!(log.contains("not recorded: store disk full (claude-code turn two)"), "{log}");
    assert!(!log.contains("outside"), "{log}");
    let json: Value = serde_json::from_str(&lab.ctrlz(&["log", "--json"]).ok().stdout).unwrap();
    let operations = json["operations"].as_array().unwrap();
    let gaps: Vec<&Value> = operations.iter().filter(|one| !one["gap"].is_null()).collect();
    assert_eq!(gaps.len(), 1, "{json}");
    let gap = &gaps[0]["gap"]["turns"][0];
    assert_eq!((&gap["who"], &gap["session"]), (&json!("claude-code"), &json!("s")));
    let blame = lab.ctrlz(&["blame", "b"]).ok().stdout;
    assert!(blame.contains("not recorded") && !blame.contains("you"), "{blame}");
    // Edits after the gap are attributed to the user again.
    lab.write("b", "turn two\nuser\n");
    lab.track();
    let blame = lab.ctrlz(&["blame", "b"]).ok().stdout;
    assert!(blame.contains("not recorded") && blame.contains("you"), "{blame}");
    // An undo reverses the last recorded turn, and reports the unrecorded changes that it leaves.
    let undone = lab.ctrlz(&["undo"]).is(&[3], "undo");
    let shown = format!("{}{}", undone.stdout, undone.stderr);
    assert!(shown.contains("newer work of claude-code, not recorded"), "{shown}");
    assert_eq!(std::fs::read_to_string(lab.work.join("a")).unwrap(), "user\n");
    assert!(lab.work.join("b").exists());
    lab.assert_tidy("after a gap");
    let none = lab.ctrlz(&["undo"]);
    assert!(none.stderr.contains("was not recorded"), "{none:?}");
}

#[test]
fn a_command_that_ran_unrecorded_on_a_full_disk_is_shown_as_a_gap() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    lab.write("a", "user\n");
    lab.ctrlz(&["run", "--", "sh", "-c", "echo one >> a"]).ok();
    let filler = lab.fill_disk();
    lab.write("c", "made before the command, so that it has something to record\n");
    let words = ["--session", "s", "--who", "robot", "--", "sh", "-c", "echo two > b"];
    let refused = lab.ctrlz(&[&["run"], &words[..]].concat());
    assert!(refused.code() != Some(0) && !lab.work.join("b").exists(), "{refused:?}");
    lab.ctrlz(&[&["run", "--anyway"], &words[..]].concat()).ok();
    crate::lab::remove(&filler);
    lab.track();
    let log = lab.ctrlz(&["log"]).ok().stdout;
    assert!(log.contains("not recorded: store disk full (robot"), "{log}");
    assert!(!log.contains("outside"), "{log}");
    let blame = lab.ctrlz(&["blame", "b"]).ok().stdout;
    assert!(blame.contains("not recorded") && !blame.contains("you"), "{blame}");
}

/// If no file changed while the disk was full, there is no gap, and later edits are attributed to
/// the user.
#[test]
fn a_full_disk_without_file_changes_leaves_no_gap() {
    if !can_mount(Kind::Ext4) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Ext4, "8M", &dir.path().join("disk"));
    let (work, data) = (dir.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    lab.write("a", "user\n");
    assert_eq!(lab.hook("one", "PreToolUse", "c1"), None);
    assert_eq!(lab.hook("one", "PostToolUse", "c1"), None);
    let filler = lab.fill_disk();
    lab.write("b", "new\n");
    lab.hook("two", "PreToolUse", "c2").unwrap();
    lab.remove("b");
    crate::lab::remove(&filler);
    lab.track();
    lab.write("a", "user again\n");
    lab.track();
    let log = lab.ctrlz(&["log"]).ok().stdout;
    assert!(!log.contains("not recorded") && log.contains("outside"), "{log}");
}
