//! Store maintenance: unreachable objects are dropped, reachable ones are kept.

#![expect(clippy::print_stderr, reason = "measurements, visible with --nocapture")]

use ctrlz::{
    CareReport, Error, LookupError, ObjectId, Progress, PurgeOptions, RestoreOptions, Retention,
    StoreError,
};

use crate::lab::{Lab, SetOnDrop, assert_fsck_clean, tree_path};

impl Lab {
    fn care(&self, retention: &Retention) -> CareReport {
        self.workspace().maintenance().collect(retention, &Progress::default()).unwrap()
    }

    /// Like `store_bytes`, but ignores files that vanish concurrently.
    fn store_bytes_now(&self) -> u64 {
        let packs = std::fs::read_dir(self.store().join("objects/pack")).unwrap();
        packs.flatten().filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
    }

    fn store_bytes(&self) -> u64 {
        let packs = std::fs::read_dir(self.store().join("objects/pack")).unwrap();
        packs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

fn thorough() -> Retention {
    Retention { thorough: true, ..Retention::default() }
}

/// Returns a text that differs in a few lines from one version to the next.
fn version(number: usize) -> String {
    let line = |at: usize| {
        if at == number % 400 {
            format!("line {at} changed by version {number}\n")
        } else {
            format!("line {at}: {}\n", at * 7919)
        }
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
fn consecutive_versions_are_stored_compactly_and_stay_readable() {
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
fn expired_segments_are_dropped_with_the_objects_only_they_reach() {
    let lab = Lab::new();
    let hashes = versions(&lab, 560);
    let report = lab.care(&Retention { keep_days: 0, ..thorough() });
    assert_eq!(report.dropped_operations, 512);
    assert!(report.gc.dropped_objects > 512, "{report:?}");
    let old = lab.try_restore(hashes[100], &RestoreOptions::default());
    assert!(matches!(old, Err(Error::Lookup(LookupError::UnknownSnapshot { .. }))), "{old:?}");
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
fn thinning_keeps_one_state_per_old_day() {
    let lab = Lab::new();
    let hashes = versions(&lab, 560);
    let policy = Retention { keep_days: 0, thin_days: 30, ..thorough() };
    let report = lab.care(&policy);
    // Both ends of each of the two past segments stay, and midnight may fall between them.
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

#[test]
fn a_gc_preview_matches_the_real_run_and_changes_nothing() {
    let lab = Lab::new();
    versions(&lab, 560);
    let policy = Retention { keep_days: 0, ..thorough() };
    let files = || {
        let list = |dir: &str| {
            let entries = std::fs::read_dir(lab.store().join(dir)).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect::<std::collections::BTreeSet<_>>()
        };
        (list("objects/pack"), lab.store_git(&["for-each-ref"]))
    };
    let before = files();
    let foreseen =
        lab.workspace().maintenance().plan_collect(&policy, &Progress::default()).unwrap();
    assert_eq!(files(), before, "a preview changes nothing");
    let done = lab.care(&policy);
    assert_eq!(foreseen.dropped_operations, done.dropped_operations);
    assert_eq!(foreseen.dropped_sessions, done.dropped_sessions);
    assert_eq!(foreseen.lost_messages, done.lost_messages);
    let facts = |report: &CareReport| {
        let gc = &report.gc;
        (gc.dropped_objects, gc.live_objects, gc.packs_before, gc.packs_after, gc.bytes_before)
    };
    assert_eq!(facts(&foreseen), facts(&done));
    let again = lab.workspace().maintenance().plan_collect(&policy, &Progress::default()).unwrap();
    assert_eq!((again.dropped_operations, again.gc.dropped_objects), (0, 0));
}

#[test]
fn temporary_files_of_dead_processes_in_other_work_trees_are_removed() {
    let lab = Lab::new();
    versions(&lab, 2);
    let other = lab.store().join("ctrlz/wt/somebody-else");
    std::fs::create_dir_all(other.join("plans")).unwrap();
    let left = [other.join("tmp_0123456789abcdef"), other.join("plans/tmp_0123456789abcdef")];
    let alive = other.join("tmp_fedcba9876543210");
    for path in left.iter().chain([&alive]) {
        std::fs::write(path, "half a file").unwrap();
    }
    let writer = std::fs::File::open(&alive).unwrap();
    writer.lock().unwrap();
    lab.care(&Retention::default());
    assert!(left.iter().all(|path| !path.exists()));
    assert!(alive.exists(), "its writer is still alive");
}

/// Drops half of a store while another thread takes snapshots.
#[test]
fn gc_needs_little_extra_space_and_does_not_block_snapshots() {
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let bytes = if slow { 1_200_000 } else { 100_000 };
    let lab = Lab::new();
    for number in 0..300_u64 {
        lab.write(&format!("large{}", number % 40), crate::lab::noise(number, bytes));
        lab.hash();
    }
    let mut usual = (0..30).map(|number| timed_track(&lab, number)).collect::<Vec<_>>();
    let before = lab.store_bytes();
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
    let (peak, mut meanwhile, took) = std::thread::scope(|scope| {
        let room = scope.spawn(|| {
            let mut peak = 0;
            while !is_done() {
                peak = peak.max(lab.store_bytes_now());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            peak
        });
        let tracks = scope.spawn(|| {
            let numbers = (100..).take_while(|_| !is_done());
            numbers.map(|number| timed_track(&lab, number)).collect::<Vec<_>>()
        });
        let over = SetOnDrop(&done);
        let start = std::time::Instant::now();
        let report = lab.care(&Retention { keep_days: 0, ..thorough() });
        let took = start.elapsed();
        drop(over);
        assert_eq!(report.dropped_operations, 256);
        (room.join().unwrap(), tracks.join().unwrap(), took)
    });
    usual.sort();
    meanwhile.sort();
    let extra = peak.saturating_sub(before);
    eprintln!(
        "{before} bytes, {extra} more at most while {took:?} of collecting made them {}; a snapshot \
         took {:?} before, meanwhile {:?} ({} of them, the longest {:?})",
        lab.store_bytes(),
        usual[usual.len() / 2],
        meanwhile[meanwhile.len() / 2],
        meanwhile.len(),
        meanwhile[meanwhile.len() - 1],
    );
    // Small stores are collected in pieces of 16 MiB.
    assert!(extra <= (before / 10).max(16 << 20), "{extra} more than {before}");
    assert!(lab.store_bytes() < before / 2);
    assert!(meanwhile.len() > 1, "no snapshot was taken during the collection");
}

fn timed_track(lab: &Lab, number: u64) -> std::time::Duration {
    lab.write("small", number.to_string());
    let start = std::time::Instant::now();
    lab.hash();
    start.elapsed()
}

/// Returns whether any object of the store, or any other file of the data directory, contains
/// `canary`.
fn holds_canary(lab: &Lab, canary: &str) -> bool {
    let objects = lab.store_git(&["cat-file", "--batch-all-objects", "--batch-check"]);
    let in_objects = objects.lines().any(|line| {
        let (id, kind) = line.split_once(' ').unwrap();
        let kind = kind.split(' ').next().unwrap();
        lab.store_git(&["cat-file", kind, id]).contains(canary)
    });
    // Quarantined packs are compressed and not part of the store, so none may be left.
    let quarantine = lab.store().join("ctrlz/quarantine");
    let aside = std::fs::read_dir(quarantine).is_ok_and(|mut entries| entries.next().is_some());
    let mut dirs = vec![lab.options.data_dir.clone()];
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
    aside || in_objects || in_files
}

fn damage_newest_pack(lab: &Lab) {
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap();
    let packs = packs.map(|entry| entry.unwrap().path());
    let packs = packs.filter(|path| path.extension().is_some_and(|e| e == "pack"));
    let newest = packs.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x41;
    std::fs::write(&newest, bytes).unwrap();
}

/// Purges a file while a snapshot of it is taken. The report says that the file is still in the
/// work tree. Once it is removed there, the next purge leaves nothing.
#[test]
fn a_purge_concurrent_with_snapshots_is_complete_or_reports_the_remaining_file() {
    let lab = Lab::new();
    let canary = "CANARY-0e91";
    let path = crate::lab::tree_path("secret");
    let purge = || {
        let options = ctrlz::PurgeOptions::default();
        lab.workspace().maintenance().purge(&path, options, &Progress::default())
    };
    lab.write("other", "stays\n");
    for round in 0..10 {
        lab.write("secret", format!("{canary} {round}\n").repeat(20));
        lab.hash();
        std::thread::scope(|scope| {
            let tracking = scope.spawn(|| lab.hash());
            let report = purge().unwrap();
            tracking.join().unwrap();
            assert!(report.still_there);
        });
        lab.remove("secret");
        match purge() {
            Ok(report) => assert!(!report.still_there),
            Err(Error::Lookup(LookupError::NothingToPurge { .. })) => (),
            Err(error) => panic!("{error}"),
        }
        assert!(!holds_canary(&lab, canary), "round {round}");
    }
    lab.hash();
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_purge_succeeds_while_other_threads_open_the_store() {
    let lab = Lab::new();
    lab.write("a", "1");
    lab.track();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    lab.workspace().status().unwrap();
                }
            });
        }
        let _over = SetOnDrop(&over);
        for round in 0..25 {
            lab.write("secret", format!("{round}"));
            lab.track();
            lab.remove("secret");
            lab.track();
            let (options, progress) = (PurgeOptions::default(), Progress::default());
            lab.workspace().maintenance().purge(&tree_path("secret"), options, &progress).unwrap();
        }
    });
    assert_fsck_clean(&lab.store());
}

#[test]
fn a_purge_removes_the_content_from_the_whole_data_directory() {
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
    // Safety snapshots in both directions, and one of an edit that was not tracked before.
    lab.write("deep/secret.txt", format!("{canary} edited\n"));
    lab.restore(old);
    lab.write("deep/secret.txt", format!("{canary} edited again\n").repeat(40));
    lab.restore_exact(old);
    // A damaged pack that was quarantined.
    lab.write("deep/secret.txt", format!("{canary} damaged\n"));
    lab.hash();
    damage_newest_pack(&lab);
    lab.workspace().maintenance().repair(&Progress::default()).unwrap();
    lab.remove("deep/secret.txt");
    lab.remove(".env");
    let last = lab.hash();
    assert!(holds_canary(&lab, canary));
    let purge = |path: &str| {
        let path = crate::lab::tree_path(path);
        lab.workspace().maintenance().purge(
            &path,
            ctrlz::PurgeOptions::default(),
            &Progress::default(),
        )
    };
    let report = purge("deep").unwrap();
    // Contents that the damage destroyed are not counted.
    assert!(report.contents > 6, "{}", report.contents);
    assert!(!report.still_there && report.same_content.is_empty());
    assert!(holds_canary(&lab, canary), "the ignored file is still stored");
    purge(".env").unwrap();
    assert!(!holds_canary(&lab, canary));
    assert_fsck_clean(&lab.store());
    let replacement = report.snapshots[&old];
    match lab.workspace().check_snapshot(&old) {
        Err(Error::Lookup(LookupError::Purged { replacement: named, .. })) => {
            assert_eq!(named, replacement);
        }
        other => panic!("{other:?}"),
    }
    lab.workspace().check_snapshot(&last).unwrap();
    lab.restore_exact(replacement);
    assert_eq!(lab.read("a.txt"), "a\n");
    assert!(matches!(purge("deep"), Err(Error::Lookup(LookupError::NothingToPurge { .. }))));
}

impl Lab {
    fn labelled(&self, step: &str, label: &str, work: impl FnOnce(&Lab)) {
        let mut start = crate::sessions::start("s", &format!("m{step}"), step);
        start.info.label = Some(label.into());
        self.begin(start);
        work(self);
        self.end(step);
    }

    fn label_of(&self, step: &str) -> Option<String> {
        self.workspace().step(step).unwrap()[0].info.label.clone()
    }
}

#[test]
fn purging_a_path_blanks_the_labels_of_steps_that_changed_named_or_mention_it() {
    let lab = Lab::with_git(&[(".gitignore", ".env\n"), ("a.txt", "a\n")]);
    let canary = "CANARY-b41";
    lab.track();
    lab.labelled("1", &format!("echo K={canary} > .env"), |lab| {
        lab.write(".env", format!("K={canary}\n"));
    });
    lab.labelled("2", &format!("grep {canary} .env > found"), |lab| lab.write("found", "1\n"));
    lab.labelled("3", "make", |lab| lab.write("a.txt", "b\n"));
    lab.labelled("4", "cp .env.example x", |lab| lab.write("x", "x\n"));
    let mut open = crate::sessions::start("s", "m5", "5");
    open.info.label = Some(format!("sed -i s/{canary}/x/ .env"));
    lab.begin(open);
    assert!(holds_canary(&lab, canary));
    lab.remove(".env");
    let path = tree_path(".env");
    let options = PurgeOptions::default();
    let report = lab.workspace().maintenance().purge(&path, options, &Progress::default()).unwrap();
    // An ignored file is not in a snapshot but in the private commits beside them.
    assert_eq!((report.contents, report.snapshots.len()), (1, 0));
    assert_eq!((report.operations, report.labels), (4, 2), "{report:?}");
    lab.end("5");
    assert!(!holds_canary(&lab, canary));
    let labels: Vec<_> = ["1", "2", "3", "4"].iter().map(|step| lab.label_of(step)).collect();
    let kept = |label: &str| Some(label.to_owned());
    assert_eq!(labels, [None, None, kept("make"), kept("cp .env.example x")]);
    assert_fsck_clean(&lab.store());
    lab.undo_with(&ctrlz::UndoScope::Step { step: "3".into() }, &ctrlz::UndoOptions::default())
        .unwrap();
    assert_eq!(lab.read("a.txt"), "a\n");
    let again = lab.workspace().maintenance().purge(&path, options, &Progress::default());
    assert!(matches!(again, Err(Error::Lookup(LookupError::NothingToPurge { .. }))), "{again:?}");
}

#[test]
fn purging_a_text_removes_it_from_every_label_and_leaves_contents_alone() {
    let lab = Lab::new();
    let canary = "CANARY-c52";
    lab.write("a.txt", "a\n");
    lab.track();
    // The subject of the commit is cut after 100 characters, in the middle of the text.
    let long = format!("{} {canary} and more", "x".repeat(94));
    lab.labelled("1", &long, |lab| lab.write("a.txt", "b\n"));
    lab.labelled("2", "make", |lab| lab.write("a.txt", "c\n"));
    let options = ctrlz::CheckpointOptions {
        label: Some(format!("before {canary}")),
        pinned: true,
        ..Default::default()
    };
    let checkpoint = lab.workspace().checkpoint(&options, &Progress::default()).unwrap();
    // Plain git leaves unreachable objects loose.
    lab.store_git(&["repack", "-q", "-A", "-d"]);
    let before = lab.hash();
    let report = lab.workspace().maintenance().purge_text(canary, &Progress::default()).unwrap();
    assert_eq!((report.labels, report.contents, report.snapshots.len()), (2, 0, 0));
    for part in [canary, "CANAR"] {
        assert!(!holds_canary(&lab, part), "{part}");
    }
    assert_eq!(lab.label_of("1"), Some(long.replace(canary, "[purged]")));
    assert_eq!(lab.label_of("2").as_deref(), Some("make"));
    let found = lab.workspace().find_checkpoint("before [purged]").unwrap();
    assert_eq!((found.operation, found.pinned), (checkpoint.operation, true));
    assert_eq!(lab.hash(), before, "no snapshot changes");
    assert_fsck_clean(&lab.store());
    let again = lab.workspace().maintenance().purge_text(canary, &Progress::default());
    assert!(matches!(again, Err(Error::Lookup(LookupError::NoSuchText))), "{again:?}");
    assert!(matches!(
        lab.workspace().maintenance().purge_text("", &Progress::default()),
        Err(Error::Lookup(LookupError::NoSuchText))
    ));
}

#[test]
fn a_purged_file_that_still_exists_is_captured_again() {
    let lab = Lab::new();
    lab.write("deep/secret.txt", "CANARY-51 is still needed\n");
    lab.write("deep/other.txt", "other\n");
    lab.write("a.txt", "a\n");
    lab.hash();
    // Old enough for the scan to trust its cache.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = lab.hash();
    let path = crate::lab::tree_path("deep/secret.txt");
    let options = ctrlz::PurgeOptions::default();
    let report = lab.workspace().maintenance().purge(&path, options, &Progress::default()).unwrap();
    assert!(report.still_there);
    assert_eq!(lab.hash(), before);
    assert_fsck_clean(&lab.store());
    lab.remove("deep");
    lab.restore(before);
    assert_eq!(lab.read("deep/secret.txt"), "CANARY-51 is still needed\n");
}

#[test]
fn a_purge_reports_copies_elsewhere_and_removes_them_on_request() {
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
        lab.workspace().maintenance().purge(&path, options, &Progress::default()).unwrap()
    };
    assert_eq!(purge(false).same_content, [crate::lab::tree_path("copy/of/it")]);
    assert!(holds_canary(&lab, "CANARY-9d2"));
    let everywhere = ctrlz::PurgeOptions { everywhere: true };
    let copy = crate::lab::tree_path("copy/of/it");
    lab.workspace().maintenance().purge(&copy, everywhere, &Progress::default()).unwrap();
    assert!(!holds_canary(&lab, "CANARY-9d2"));
    assert_fsck_clean(&lab.store());
}

#[test]
fn gc_is_refused_when_a_ref_cannot_be_read() {
    let lab = Lab::new();
    versions(&lab, 10);
    let refs = lab.store().join("refs/ctrlz");
    let work_tree = std::fs::read_dir(&refs).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(work_tree.join("log")).unwrap();
    for bad in [&b""[..], b"garbage\n", &good[..20]] {
        std::fs::write(work_tree.join("other"), bad).unwrap();
        let refused = lab.workspace().maintenance().collect(&thorough(), &Progress::default());
        assert!(matches!(refused, Err(Error::Store(StoreError::LostRef { .. }))), "{refused:?}");
    }
}

#[test]
fn gc_purge_repair_and_verify_run_beside_snapshots_without_false_alarms() {
    let rounds = if std::env::var_os("RUN_SLOW_TESTS").is_some() { 100 } else { 8 };
    let lab = Lab::new();
    versions(&lab, 5);
    for number in 0..rounds {
        lab.write(&format!("secret{number}"), format!("CANARY-{number} is to go\n"));
    }
    lab.hash();
    for number in 0..rounds {
        lab.remove(&format!("secret{number}"));
    }
    // An operation that waits too long for a lock fails with `Busy`. No other error is allowed.
    fn done_unless_busy<T>(outcome: Result<T, Error>) -> Option<T> {
        match outcome {
            Ok(done) => Some(done),
            Err(Error::Busy { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
    let progress = Progress::default;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                done_unless_busy(lab.workspace().maintenance().collect(&thorough(), &progress()));
            }
        });
        scope.spawn(|| {
            for number in 0..rounds {
                let path = crate::lab::tree_path(&format!("secret{number}"));
                done_unless_busy(lab.workspace().maintenance().purge(
                    &path,
                    Default::default(),
                    &progress(),
                ));
            }
        });
        scope.spawn(|| {
            for _ in 0..rounds {
                let report = done_unless_busy(lab.workspace().maintenance().repair(&progress()));
                assert_eq!(report.map_or(vec![], |report| report.before.problems), []);
            }
        });
        for number in 0..rounds {
            lab.write("a.txt", version(number));
            let hash = lab.hash();
            lab.workspace().check_snapshot(&hash).unwrap();
            let found = done_unless_busy(lab.workspace().maintenance().verify(&progress()));
            assert_eq!(found.map_or(vec![], |found| found.problems), [], "{number}");
        }
    });
    assert_fsck_clean(&lab.store());
}

#[test]
fn refs_created_during_gc_are_not_reported_as_lost() {
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
        let _over = SetOnDrop(&done);
        for _ in 0..60 {
            let cared =
                lab.workspace().maintenance().collect(&Retention::default(), &Progress::default());
            assert!(cared.is_ok(), "{cared:?}");
        }
    });
}

/// A pack that is being flushed has its index but not yet its final name.
#[test]
fn verify_accepts_a_pack_that_is_being_written() {
    let lab = Lab::new();
    versions(&lab, 2);
    let looking = lab.workspace();
    let hold = std::fs::File::open(lab.store().join("ctrlz/store.lock")).unwrap();
    hold.lock_shared().unwrap();
    for name in ["tmp_ctrlz_0123456789abcdef", "tmp_ctrlz_0123456789abcdef.idx"] {
        std::fs::write(lab.store().join("objects/pack").join(name), "half").unwrap();
    }
    assert_eq!(looking.maintenance().verify(&Progress::default()).unwrap().problems, []);
    assert_eq!(lab.workspace().maintenance().verify(&Progress::default()).unwrap().problems, []);
}

#[test]
fn gc_concurrent_with_snapshots_deletes_nothing_they_need() {
    let mut row = xtask::Row::of(15, "tracks beside gc, nothing they need deleted");
    let count = xtask::many(300, 1_000);
    let lab = Lab::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    let rounds = std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let retention = Retention { keep_days: 0, ..thorough() };
                match lab.workspace().maintenance().collect(&retention, &Progress::default()) {
                    Ok(_) | Err(Error::Busy { .. }) => rounds += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            rounds
        });
        let over = SetOnDrop(&done);
        for number in 0..count {
            // The same contents recur after they were dropped, or just before.
            lab.write("a.txt", version(number % 260));
            lab.write(&format!("dir/{}.txt", number % 9), format!("{}\n", number % 130));
            let hash = lab.hash();
            lab.workspace().check_snapshot(&hash).unwrap();
            if number % 50 == 0 {
                let found = lab.workspace().maintenance().verify(&Progress::default()).unwrap();
                assert_eq!(found.problems, [], "{number}");
            }
        }
        drop(over);
        collector.join().unwrap()
    });
    eprintln!("{count} snapshots beside {rounds} collections");
    assert!(rounds > 5, "{rounds}");
    row.add(count as u64);
    row.note(format!("{rounds} times gc"));
    let found = lab.workspace().maintenance().verify(&Progress::default()).unwrap();
    assert_eq!(found.problems, []);
    for operation in lab.workspace().log(10_000).unwrap() {
        lab.workspace().check_snapshot(&operation.snapshot).unwrap();
    }
    assert_fsck_clean(&lab.store());
}

/// A first snapshot writes its ref before it records that a log exists. A collection in between
/// must not report the log as lost.
#[test]
fn gc_during_a_first_snapshot_does_not_report_a_lost_log() {
    for _ in 0..100 {
        let lab = Lab::new();
        lab.write("a", "1");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    match lab.workspace().maintenance().collect(&thorough(), &Progress::default()) {
                        Ok(_) | Err(Error::Busy { .. }) => (),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            let _done = SetOnDrop(&done);
            lab.track();
        });
    }
}

/// Worst case: every version of a file is entirely new, so deltas do not help.
#[test]
fn many_snapshots_take_little_more_space_than_the_changed_files() {
    let slow = std::env::var_os("RUN_SLOW_TESTS").is_some();
    let (tracks, files) = if slow { (1_000, 11_000) } else { (100, 300) };
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
    let found = format!(
        "{tracks} snapshots of {files} files: {grown} bytes before gc, {after} after; the changed \
         files alone take {expected} compressed"
    );
    eprintln!("{found}");
    let mut row = xtask::Row::of(15, "snapshots of incompressible versions");
    row.add(tracks as u64);
    row.note(format!("{:.2} × the versions alone after gc", after as f64 / expected as f64));
    assert!(after * 10 <= expected * 12, "{found}");
    // With few snapshots, a large share of the packs is not merged yet.
    assert!(!slow || grown * 10 <= expected * 12, "{found}");
}
