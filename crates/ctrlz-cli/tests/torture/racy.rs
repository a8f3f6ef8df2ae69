//! Changes that timestamps do not show.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use xtask::{Random, Row};

use crate::disk::{Disk, Kind, can_mount};
use crate::lab::{Lab, StopOnDrop, fresh_dir, must, sized};

/// Asserts that a new snapshot holds the current content of a file.
#[track_caller]
fn assert_seen(lab: &Lab, path: &str, when: &str) {
    let hash = lab.track();
    let shown = lab.ctrlz(&["show", &format!("{hash}:{path}")]);
    let shown = if shown.code() == Some(0) {
        shown.stdout
    } else {
        lab.store_git(&["cat-file", "blob", &format!("{hash}:{path}")]).ok().stdout
    };
    let now = std::fs::read_to_string(lab.work.join(path)).unwrap();
    assert_eq!(shown, now, "{when}: the snapshot has other bytes than the file");
}

/// Runs `check` on a disk with timestamps of whole seconds, then on a normal one.
fn on_coarse_and_fine_clocks(check: impl Fn(&Lab)) {
    if can_mount(Kind::Ext4Coarse) {
        let dir = fresh_dir();
        let disk = Disk::new(Kind::Ext4Coarse, "64M", &dir.path().join("disk"));
        let (work, data) = (disk.path().join("work"), dir.path().join("data"));
        check(&Lab::with(dir, work, data).on(vec![disk]));
    }
    check(&Lab::new());
}

#[test]
fn a_rewrite_of_the_same_size_within_a_tick_is_seen() {
    let row = std::cell::RefCell::new(Row::of(12, "rewrites of the same size within a tick"));
    on_coarse_and_fine_clocks(|lab| {
        lab.write("other", "calm");
        for round in 0..sized(30, 2000) {
            lab.write("file", format!("round {round:06} a"));
            assert_seen(lab, "file", &format!("round {round}, written"));
            lab.write("file", format!("round {round:06} b"));
            assert_seen(lab, "file", &format!("round {round}, rewritten"));
            row.borrow_mut().done();
        }
    });
}

/// On a file system with reflinks, a file is captured in one consistent state. The writer keeps
/// changing the first and the last bytes together while the file is read.
#[test]
fn a_large_file_is_captured_consistently_while_it_is_written() {
    const BYTES: usize = 48 << 20;
    if !can_mount(Kind::Xfs) {
        return;
    }
    let dir = fresh_dir();
    let disk = Disk::new(Kind::Xfs, "400M", &dir.path().join("disk"));
    let (work, data) = (disk.path().join("work"), disk.path().join("data"));
    let lab = Lab::with(dir, work, data).on(vec![disk]);
    let mut bytes = vec![0_u8; BYTES];
    let mut random = Random::new("a large file");
    bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
    lab.write("big", &bytes);
    let file = std::fs::File::options().write(true).open(lab.work.join("big")).unwrap();
    let (running, writes) = (AtomicBool::new(true), AtomicU64::new(0));
    let tracked = std::thread::scope(|scope| {
        let stop = StopOnDrop(&running);
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                let number = writes.fetch_add(1, Ordering::Relaxed).to_le_bytes();
                file.write_all_at(&number, 0).unwrap();
                file.write_all_at(&number, BYTES as u64 - 8).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let tracked = lab.ctrlz(&["track", "--json", "--", "big"]);
        drop(stop);
        tracked
    });
    let tracked: serde_json::Value = serde_json::from_str(&tracked.ok().stdout).unwrap();
    assert_eq!(tracked["skipped"], serde_json::json!([]), "{tracked}");
    assert!(writes.into_inner() > 20, "the writer hardly wrote");
    let named = format!("{}:big", tracked["hash"].as_str().unwrap());
    let copy = lab.dir().join("copy");
    let shown = lab.store_git(&["cat-file", "-s", &named]).ok().stdout;
    assert_eq!(shown.trim(), BYTES.to_string());
    must(
        "sh",
        &[
            "-c",
            &format!(
                "git --git-dir='{}' cat-file blob {named} > '{}'",
                lab.store().display(),
                copy.display()
            ),
        ],
    );
    let found = std::fs::read(copy).unwrap();
    let number = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap());
    let (first, last) = (number(&found[..8]), number(&found[BYTES - 8..]));
    // The reflink copy may be made between the two writes.
    assert!(first == last || first == last + 1, "{first} at the start, {last} at the end");
}

#[test]
fn a_copy_with_the_same_size_and_time_is_seen() {
    on_coarse_and_fine_clocks(|lab| {
        lab.write("file", "one");
        lab.track();
        let other = lab.dir().join("saved-other");
        std::fs::write(&other, "two").unwrap();
        let (file, other) = (lab.work.join("file"), other.to_str().unwrap().to_owned());
        let file = file.to_str().unwrap();
        must("touch", &["-r", file, &other]);
        must("cp", &["-p", &other, file]);
        assert_seen(lab, "file", "cp -p");
        std::fs::write(file, "six").unwrap();
        must("touch", &["-r", &other, file]);
        assert_seen(lab, "file", "touch -r");
    });
}

#[test]
fn two_files_that_swap_names_are_seen() {
    on_coarse_and_fine_clocks(|lab| {
        lab.write("a", "one");
        lab.write("b", "two");
        let path = |name: &str| lab.work.join(name);
        let time = std::fs::metadata(path("a")).unwrap().modified().unwrap();
        std::fs::File::open(path("b")).unwrap().set_modified(time).unwrap();
        lab.track();
        for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
            std::fs::rename(path(from), path(to)).unwrap();
        }
        assert_seen(lab, "a", "swapped");
        assert_seen(lab, "b", "swapped");
    });
}

#[test]
fn odd_modification_times_hide_no_change() {
    on_coarse_and_fine_clocks(|lab| {
        let epoch = SystemTime::UNIX_EPOCH;
        let day = Duration::from_secs(86400);
        for time in [epoch, epoch - day * 365, SystemTime::now() + day * 365, epoch + day * 24_000]
        {
            for text in ["one", "two", "six"] {
                lab.write("file", text);
                // A file system that cannot represent the time uses the nearest one.
                std::fs::File::open(lab.work.join("file")).unwrap().set_modified(time).unwrap();
                assert_seen(lab, "file", &format!("{time:?}"));
            }
        }
    });
}

#[test]
fn a_change_of_permissions_or_of_a_links_target_alone_is_seen() {
    on_coarse_and_fine_clocks(|lab| {
        lab.write("tool", "#!/bin/sh");
        lab.link("aaaa", "link");
        let first = (lab.track(), lab.manifest());
        lab.chmod("tool", 0o755);
        let second = (lab.track(), lab.manifest());
        lab.remove("link");
        lab.link("bbbb", "link");
        let third = (lab.track(), lab.manifest());
        assert!(first.0 != second.0 && second.0 != third.0, "a change was not seen");
        for (hash, manifest) in [first, third, second] {
            lab.assert_restores(&hash, &manifest, "permissions and links");
        }
    });
}

#[test]
fn a_directory_that_becomes_a_file_within_a_tick_is_seen() {
    on_coarse_and_fine_clocks(|lab| {
        for round in 0..sized(5, 50) {
            lab.write("thing/in", format!("{round}"));
            assert_seen(lab, "thing/in", "a directory");
            lab.remove("thing");
            lab.write("thing", format!("{round}"));
            assert_seen(lab, "thing", "a file");
            lab.remove("thing");
        }
    });
}
