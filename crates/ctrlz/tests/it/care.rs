//! Care of the store: what nothing reaches goes, what anything reaches stays.

use ctrlz::{CareReport, Error, ObjectId, Progress, RestoreOptions, Retention};

use crate::lab::{Lab, assert_fsck_clean};

impl Lab {
    fn care(&self, retention: &Retention) -> CareReport {
        self.workspace().care(retention, &Progress::default()).unwrap()
    }

    fn store_bytes(&self) -> u64 {
        let packs = std::fs::read_dir(self.store().join("objects/pack")).unwrap();
        packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

fn thorough() -> Retention {
    Retention { thorough: true, ..Retention::default() }
}

/// A text of some size that differs a little from one version to the next.
fn version(number: usize) -> String {
    let line = |at: usize| match at == number % 400 {
        true => format!("line {at} changed by version {number}\n"),
        false => format!("line {at}: {}\n", at * 7919),
    };
    (0..400).map(line).collect()
}

fn versions(lab: &Lab, count: usize) -> Vec<ObjectId> {
    for at in 0..60 {
        lab.write(&format!("src/dir{}/file{at}.txt", at % 7), format!("file {at}\n").repeat(20));
    }
    (0..count)
        .map(|number| {
            lab.write("src/dir3/changing.txt", version(number));
            lab.hash()
        })
        .collect()
}

#[test]
fn consecutive_versions_take_little_room_and_every_one_is_there() {
    let lab = Lab::new();
    let hashes = versions(&lab, 150);
    lab.care(&thorough());
    assert_fsck_clean(&lab.store());
    for (number, hash) in hashes.iter().enumerate().step_by(13) {
        let text = lab.workspace().file_at(hash, &crate::lab::tree_path("src/dir3/changing.txt"));
        assert_eq!(text.unwrap(), version(number).into_bytes());
    }
    lab.restore(hashes[3]);
    assert_eq!(lab.read("src/dir3/changing.txt"), version(3));
    // 150 versions of a text that takes about 3 KB compressed.
    assert!(lab.store_bytes() < 120_000, "{} bytes", lab.store_bytes());
    lab.store_git(&["verify-pack", &pack(&lab)]);
}

fn pack(lab: &Lab) -> String {
    let dir = lab.store().join("objects/pack");
    let packs = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut packs: Vec<_> =
        packs.filter(|path| path.extension().is_some_and(|e| e == "idx")).collect();
    packs.sort_by_key(|path| path.metadata().unwrap().len());
    packs.pop().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn old_segments_go_with_what_only_they_reach() {
    let lab = Lab::new();
    let hashes = versions(&lab, 560);
    let report = lab.care(&Retention { keep_days: 0, ..thorough() });
    assert_eq!(report.dropped_operations, 512);
    assert!(report.gc.dropped_objects > 512, "{report:?}");
    let old = lab.try_restore(hashes[100], &RestoreOptions::default());
    assert!(matches!(old, Err(Error::UnknownSnapshot { .. })), "{old:?}");
    for hash in &hashes[512..] {
        lab.workspace().check_snapshot(hash).unwrap();
    }
    assert_eq!(lab.workspace().log(1000).unwrap().len(), 560 - 512);
    assert_eq!(
        lab.workspace()
            .timeline(&ctrlz::TimelineQuery { limit: 1000, ..Default::default() })
            .unwrap()
            .len(),
        560 - 512
    );
    assert_fsck_clean(&lab.store());
    lab.restore(hashes[520]);
}

#[test]
fn of_old_days_one_state_each_is_left() {
    let lab = Lab::new();
    let hashes = versions(&lab, 560);
    let policy = Retention { keep_days: 0, thin_days: 30, ..thorough() };
    let report = lab.care(&policy);
    // Two past segments, of which the two ends stay, and midnight may fall between them.
    assert!((504..=508).contains(&report.dropped_operations), "{}", report.dropped_operations);
    let left = lab.workspace().log(1000).unwrap();
    assert_eq!(left.len() as u64, 560 - report.dropped_operations);
    for operation in &left {
        lab.workspace().check_snapshot(&operation.snapshot).unwrap();
    }
    assert_eq!(left.last().unwrap().snapshot, hashes[0]);
    assert!(lab.workspace().check_snapshot(&hashes[100]).is_err());
    assert_fsck_clean(&lab.store());
    assert_eq!(lab.care(&policy).dropped_operations, 0, "thinning again changes nothing");
    lab.restore(hashes[0]);
    assert_eq!(lab.read("src/dir3/changing.txt"), version(0));
}

/// Whether any object of the store, or any of its other files, holds `canary`.
fn holds_canary(lab: &Lab, canary: &str) -> bool {
    let objects = lab.store_git(&["cat-file", "--batch-all-objects", "--batch-check"]);
    let in_objects = objects.lines().any(|line| {
        let (id, kind) = line.split_once(' ').unwrap();
        let kind = kind.split(' ').next().unwrap();
        lab.store_git(&["cat-file", kind, id]).contains(canary)
    });
    let mut dirs = vec![lab.store()];
    let mut in_files = false;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                in_files |= bytes.windows(canary.len()).any(|part| part == canary.as_bytes());
            }
        }
    }
    in_objects || in_files
}

#[test]
fn what_is_purged_is_nowhere_any_more() {
    let lab = Lab::with_git(&[(".gitignore", ".env\n"), ("a.txt", "a\n")]);
    let canary = "CANARY-7c1f0e";
    lab.write("deep/secret.txt", format!("{canary}\n").repeat(30));
    lab.write(".env", format!("KEY={canary}\n"));
    let old = lab.hash();
    for number in 0..5 {
        lab.write("deep/secret.txt", format!("{canary} {number}\n").repeat(30 + number));
        lab.write("a.txt", format!("{number}\n"));
        lab.hash();
    }
    lab.store_git(&["gc", "-q"]);
    lab.remove("deep/secret.txt");
    lab.remove(".env");
    let last = lab.hash();
    assert!(holds_canary(&lab, canary));
    let purge = |path: &str| {
        let path = crate::lab::tree_path(path);
        lab.workspace().purge(&path, ctrlz::PurgeOptions::default(), &Progress::default())
    };
    let report = purge("deep").unwrap();
    assert_eq!(report.contents, 6);
    assert!(!report.still_there && report.same_content.is_empty());
    assert!(holds_canary(&lab, canary), "the ignored file is still kept");
    purge(".env").unwrap();
    assert!(!holds_canary(&lab, canary));
    assert_fsck_clean(&lab.store());
    let replacement = report.snapshots[&old];
    match lab.workspace().check_snapshot(&old) {
        Err(Error::Purged { replacement: named, .. }) => assert_eq!(named, replacement),
        other => panic!("{other:?}"),
    }
    lab.workspace().check_snapshot(&last).unwrap();
    lab.restore_exact(replacement);
    assert_eq!(lab.read("a.txt"), "a\n");
    assert!(matches!(purge("deep"), Err(Error::NothingToPurge { .. })));
}

#[test]
fn what_is_purged_and_still_there_is_captured_whole_again() {
    let lab = Lab::new();
    lab.write("deep/secret.txt", "CANARY-51 is still needed\n");
    lab.write("deep/other.txt", "other\n");
    lab.write("a.txt", "a\n");
    lab.hash();
    // Old enough that the scan trusts what it remembers.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = lab.hash();
    let path = crate::lab::tree_path("deep/secret.txt");
    let options = ctrlz::PurgeOptions::default();
    let report = lab.workspace().purge(&path, options, &Progress::default()).unwrap();
    assert!(report.still_there);
    assert_eq!(lab.hash(), before);
    assert_fsck_clean(&lab.store());
    lab.remove("deep");
    lab.restore(before);
    assert_eq!(lab.read("deep/secret.txt"), "CANARY-51 is still needed\n");
}

#[test]
fn the_same_content_elsewhere_is_told_and_goes_when_asked() {
    let lab = Lab::new();
    lab.write("secret", "CANARY-9d2 is long enough to be found\n");
    lab.write("copy/of/it", "CANARY-9d2 is long enough to be found\n");
    lab.hash();
    lab.remove("secret");
    lab.remove("copy");
    lab.hash();
    let path = crate::lab::tree_path("secret");
    let purge = |everywhere| {
        let options = ctrlz::PurgeOptions { everywhere };
        lab.workspace().purge(&path, options, &Progress::default()).unwrap()
    };
    assert_eq!(purge(false).same_content, [crate::lab::tree_path("copy/of/it")]);
    assert!(holds_canary(&lab, "CANARY-9d2"));
    let everywhere = ctrlz::PurgeOptions { everywhere: true };
    let copy = crate::lab::tree_path("copy/of/it");
    lab.workspace().purge(&copy, everywhere, &Progress::default()).unwrap();
    assert!(!holds_canary(&lab, "CANARY-9d2"));
    assert_fsck_clean(&lab.store());
}

#[test]
fn nothing_is_garbage_when_a_ref_cannot_be_read() {
    let lab = Lab::new();
    versions(&lab, 10);
    let refs = lab.store().join("refs/ctrlz");
    let work_tree = std::fs::read_dir(&refs).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(work_tree.join("log")).unwrap();
    for bad in [&b""[..], b"garbage\n", &good[..20]] {
        std::fs::write(work_tree.join("other"), bad).unwrap();
        let refused = lab.workspace().care(&thorough(), &Progress::default());
        assert!(matches!(refused, Err(Error::LostRef { .. })), "{refused:?}");
    }
}

#[test]
fn refs_that_come_while_garbage_is_collected_are_no_lost_ones() {
    let lab = Lab::new();
    versions(&lab, 3);
    let newest = lab.store_git(&["for-each-ref", "--count=1", "--format=%(objectname)"]);
    let refs = lab.store().join("refs/ctrlz/other");
    std::fs::create_dir_all(&refs).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let (lock, name) = (refs.join("new.lock"), refs.join(format!("{}", number % 500)));
                std::fs::write(&lock, &newest).unwrap();
                std::fs::rename(&lock, &name).unwrap();
                drop(std::fs::remove_file(refs.join(format!("{}", (number + 250) % 500))));
            }
        });
        for _ in 0..60 {
            let cared = lab.workspace().care(&Retention::default(), &Progress::default());
            assert!(cared.is_ok(), "{cared:?}");
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn collecting_garbage_beside_snapshots_breaks_none() {
    let mut row = xtask::Row::of(15, "tracks beside gc, nothing they need deleted");
    let count = xtask::sized(300, 1_000);
    let lab = Lab::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let retention = Retention { keep_days: 0, ..thorough() };
                match lab.workspace().care(&retention, &Progress::default()) {
                    Ok(_) | Err(Error::Busy { .. }) => rounds += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            rounds
        });
        for number in 0..count {
            // The same contents come again after they were dropped, or are about to be.
            lab.write("a.txt", version(number % 260));
            lab.write(&format!("dir/{}.txt", number % 9), format!("{}\n", number % 130));
            let hash = lab.hash();
            lab.workspace().check_snapshot(&hash).unwrap();
            if number % 50 == 0 {
                let found = lab.workspace().verify(&Progress::default()).unwrap();
                assert_eq!(found.problems, [], "{number}");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        collector.join().unwrap()
    });
    assert!(rounds > 5, "{rounds}");
    row.add(count as u64);
    row.note(format!("{rounds} times gc"));
    let found = lab.workspace().verify(&Progress::default()).unwrap();
    assert_eq!(found.problems, []);
    for operation in lab.workspace().log(10_000).unwrap() {
        lab.workspace().check_snapshot(&operation.snapshot).unwrap();
    }
    assert_fsck_clean(&lab.store());
}

/// The worst case: every version of a file is wholly new, so that none is a delta of another.
#[test]
fn many_snapshots_of_one_changing_file_take_little_more_than_its_versions() {
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let (tracks, files) = if slow { (1_000, 10_000) } else { (100, 300) };
    let text = |seed: usize| -> String {
        (0..400)
            .map(|at| format!("{:x} line {at}\n", (at + 1) * (seed + 7) * 2_654_435_761))
            .collect()
    };
    let lab = Lab::new();
    let path = |at: usize| format!("d{}/e{}/file{at}.txt", at % 10, at % 37);
    for at in 0..files {
        lab.write(&path(at), text(at));
    }
    lab.hash();
    lab.care(&thorough());
    let before = lab.store_bytes();
    let mut expected = 0;
    for number in 0..tracks {
        let changed = text(1_000_000 + number * 31);
        let level = flate2::Compression::default();
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), level);
        std::io::Write::write_all(&mut packed, changed.as_bytes()).unwrap();
        expected += packed.finish().unwrap().len() as u64;
        lab.write(&path(number * 7 % files), changed);
        lab.hash();
    }
    let grown = lab.store_bytes() - before;
    lab.care(&thorough());
    let after = lab.store_bytes() - before;
    let found = format!("{grown} before gc, {after} after, {expected} expected");
    let mut row = xtask::Row::of(15, "snapshots of incompressible versions");
    row.add(tracks as u64);
    row.note(format!("{:.2} × the versions alone after gc", after as f64 / expected as f64));
    assert!(after * 10 <= expected * 12, "{found}");
    // Of few snapshots, a large share is not merged yet.
    assert!(!slow || grown * 10 <= expected * 12, "{found}");
}
