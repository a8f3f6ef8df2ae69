//! Incremental scans, which use the stat cache, must equal cold scans.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ctrlz::{
    ObjectId, Options, Progress, Snapshot, StepInfo, StepStart, TrackOptions, TreePath, Workspace,
};

use crate::lab::Lab;

/// Returns a deterministic generator of pseudorandom numbers below a limit.
fn fixed_random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |limit| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    }
}

/// Sleeps longer than the period in which timestamps are too recent to be trusted.
fn let_timestamps_age() {
    std::thread::sleep(Duration::from_millis(40));
}

/// Returns the path of the stat cache.
fn cache(lab: &Lab) -> std::path::PathBuf {
    work_tree_dir(lab).join("stat")
}

fn work_tree_dir(lab: &Lab) -> std::path::PathBuf {
    let dir = lab.store().join("ctrlz/wt");
    let mut entries = std::fs::read_dir(dir).unwrap();
    entries.next().unwrap().unwrap().path()
}

/// Returns the hash of a cold scan into a separate store.
fn cold(lab: &Lab) -> ObjectId {
    let data = lab.dir().join("cold");
    drop(std::fs::remove_dir_all(&data));
    let options = Options { data_dir: data, ..lab.options.clone() };
    let workspace = Workspace::open(&lab.root(), options).unwrap();
    workspace.track(&TrackOptions::default(), &Progress::default()).unwrap().hash
}

/// Takes a snapshot and returns how many entries were examined.
fn track_counting(lab: &Lab) -> (Snapshot, u64) {
    let progress = Progress::default();
    let snapshot = lab.workspace().track(&TrackOptions::default(), &progress).unwrap();
    (snapshot, progress.files.load(Ordering::Relaxed))
}

#[track_caller]
fn assert_equals_cold_scan(lab: &Lab, what: &str) {
    assert_eq!(lab.hash(), cold(lab), "{what}");
}

#[test]
fn incremental_and_cold_hashes_are_equal_after_any_edit() {
    let lab = Lab::with_git(&[("src/a.rs", "a"), ("src/b.rs", "b"), ("docs/x/y.md", "y")]);
    let mut row = xtask::Row::of(9, "edits after which the incremental hash is the cold one");
    let mut random = fixed_random(xtask::seed());
    for round in 0..xtask::many(120, 10_000) {
        random_edit(&lab, &mut random, round);
        if random(4) == 0 {
            // Old enough for timestamps to be trusted, so that the fast paths are exercised too.
            let_timestamps_age();
            lab.track();
        }
        assert_equals_cold_scan(&lab, &format!("round {round}"));
        row.done();
    }
}

fn random_edit(lab: &Lab, random: &mut impl FnMut(usize) -> usize, round: usize) {
    let dirs = ["", "src/", "docs/", "docs/x/", "out/"];
    let path = |random: &mut dyn FnMut(usize) -> usize| {
        format!("{}f{}", dirs[random(dirs.len())], random(6))
    };
    let file = path(random);
    match random(11) {
        0..=3 => {
            if !lab.path(&file).is_dir() {
                if lab.path(&file).is_symlink() {
                    lab.remove(&file);
                }
                lab.write(&file, format!("{:04}", round % 10_000));
            }
        }
        4 => drop(std::fs::remove_file(lab.path(&file))),
        5 => {
            let to = path(random);
            if lab.exists(&file) && !lab.exists(&to) && lab.path(&to).parent().unwrap().is_dir() {
                std::fs::rename(lab.path(&file), lab.path(&to)).unwrap();
            }
        }
        6 => {
            if lab.path(&file).is_file() {
                lab.chmod(&file, [0o644, 0o755][random(2)]);
            }
        }
        7 => {
            let rules = ["", "f1\n", "out/\n", "f*\n!f2\n"][random(4)];
            lab.write([".gitignore", "docs/.gitignore"][random(2)], rules);
        }
        8 => {
            if !lab.exists(&file) && lab.path(&file).parent().unwrap().is_dir() {
                lab.link("f0", &file);
            }
        }
        9 => drop(lab.git(&["add", "-A", "-f"])),
        _ => {
            // The same size and time as before, as `cp -p` leaves it.
            if lab.path(&file).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                let time = std::fs::metadata(lab.path(&file)).unwrap().modified().unwrap();
                let bytes = vec![b'z'; std::fs::read(lab.path(&file)).unwrap().len()];
                std::fs::write(lab.path(&file), bytes).unwrap();
                let opened = std::fs::File::options().write(true).open(lab.path(&file)).unwrap();
                opened.set_modified(time).unwrap();
            }
        }
    }
}

#[test]
fn one_edited_file_means_one_file_read() {
    let lab = Lab::new();
    for file in 0..300 {
        lab.write(&format!("d{}/f{file}", file % 15), format!("{file}"));
    }
    let_timestamps_age();
    assert_eq!(lab.track().files_read, 300);
    let again = lab.track();
    assert_eq!((again.files_read, again.files, again.changed), (0, 300, false));
    lab.write("d3/f18", "edited");
    let edited = lab.track();
    assert_eq!((edited.files_read, edited.files, edited.changed), (1, 300, true));
    // The blob, its directory, the work tree and the commit.
    assert_eq!(edited.objects_written, 4);
}

#[test]
fn changed_excludes_index_and_options_are_noticed_without_file_changes() {
    let mut lab = Lab::with_git(&[("a.log", "a"), ("kept.txt", "k"), ("hidden/b.txt", "b")]);
    lab.git(&["rm", "-q", "--cached", "a.log", "hidden/b.txt"]);
    let calm = |lab: &Lab| {
        let_timestamps_age();
        lab.track();
        lab.track();
    };
    calm(&lab);
    std::fs::write(lab.path(".git/info/exclude"), "*.log\nhidden/\n").unwrap();
    assert_equals_cold_scan(&lab, "info/exclude");
    calm(&lab);
    lab.git(&["add", "-f", "a.log"]);
    assert_equals_cold_scan(&lab, "an ignored file is tracked now");
    calm(&lab);
    lab.git(&["add", "-f", "hidden/b.txt"]);
    assert_equals_cold_scan(&lab, "a file in an ignored directory is tracked now");
    calm(&lab);
    lab.git(&["rm", "-q", "--cached", "a.log", "hidden/b.txt"]);
    assert_equals_cold_scan(&lab, "the files are no longer tracked");
    calm(&lab);
    lab.options.exclude = vec!["kept.txt".into()];
    assert_equals_cold_scan(&lab, "an exclude pattern of the configuration");
    calm(&lab);
    lab.options.exclude.clear();
    lab.options.include_ignored = vec!["hidden/b.txt".into()];
    assert_equals_cold_scan(&lab, "an include pattern of the configuration");
}

#[test]
fn ignored_ignore_files_are_read_for_every_snapshot() {
    let lab = Lab::new();
    lab.write(".gitignore", ".gitignore\n*.tmp\n");
    lab.write("sub/.gitignore", "*.bak\n");
    lab.write("sub/a.bak", "a");
    lab.write("b.tmp", "b");
    let_timestamps_age();
    lab.track();
    lab.track();
    lab.write("sub/.gitignore", "*.xyz\n");
    assert_equals_cold_scan(&lab, "a hidden rule file of a directory");
    let_timestamps_age();
    lab.track();
    lab.write(".gitignore", ".gitignore\n*.log\n");
    assert_equals_cold_scan(&lab, "the hidden rule file at the top");
}

#[test]
fn a_partial_snapshot_is_not_mistaken_for_a_full_one() {
    let lab = Lab::new();
    lab.write("a", "1");
    lab.write("ignored", "secret");
    lab.write(".gitignore", "ignored\n");
    let_timestamps_age();
    let whole = lab.track();
    let paths = vec![TreePath::parse(b"ignored").unwrap()];
    let options = TrackOptions { paths, ..TrackOptions::default() };
    let part = lab.workspace().track(&options, &Progress::default()).unwrap();
    assert_ne!(part.hash, whole.hash);
    let again = lab.track();
    assert_eq!(again.hash, whole.hash);
    assert_ne!(again.operation, whole.operation, "it is recorded after the partial one");
}

#[test]
fn a_damaged_cache_causes_a_full_scan_with_the_same_hash() {
    let lab = Lab::new();
    for file in 0..20 {
        lab.write(&format!("d{}/f{file}", file % 3), format!("{file}"));
    }
    let_timestamps_age();
    lab.track();
    let hash = lab.hash();
    let good = std::fs::read(cache(&lab)).unwrap();
    let step = (good.len() / xtask::many(40, 2_000)).max(1);
    for at in (0..good.len()).step_by(step) {
        for cut in [false, true] {
            let mut bad = good.clone();
            if cut {
                bad.truncate(at);
            } else {
                bad[at] ^= 0x55;
            }
            std::fs::write(cache(&lab), &bad).unwrap();
            let snapshot = lab.track();
            assert_eq!((snapshot.hash, snapshot.files_read), (hash, 20), "byte {at}, cut {cut}");
        }
    }
    std::fs::remove_file(cache(&lab)).unwrap();
    assert_eq!(lab.track().files_read, 20);
}

fn pack_count(lab: &Lab) -> usize {
    let packs = std::fs::read_dir(lab.store().join("objects/pack")).unwrap();
    let is_pack = |path: std::path::PathBuf| path.extension().is_some_and(|ext| ext == "pack");
    packs.filter(|entry| entry.as_ref().is_ok_and(|entry| is_pack(entry.path()))).count()
}

#[test]
fn a_long_session_does_not_pile_up_packs() {
    let lab = Lab::new();
    lab.write("f", "0");
    let workspace = lab.workspace();
    let progress = Progress::default();
    for step in 0..xtask::many(70, 1_000) {
        let info = StepInfo { session: "s".into(), ..StepInfo::default() };
        let start = StepStart { info, ..StepStart::default() };
        let begun = workspace.begin_step(start, &progress).unwrap();
        lab.write("f", format!("{step}"));
        workspace.end_step(&begun.step, &Default::default(), &progress).unwrap();
    }
    let count = pack_count(&lab);
    assert!(count <= 55, "{count} packs");
}

#[test]
fn the_cache_stays_valid_after_packs_are_merged() {
    let lab = Lab::new();
    let cache = |lab: &Lab| std::fs::read(work_tree_dir(lab).join("stat")).unwrap();
    let written =
        |lab: &Lab| std::fs::metadata(work_tree_dir(lab).join("stat")).unwrap().modified().unwrap();
    let mut merges = 0;
    for round in 0..110 {
        lab.write("f", format!("{round}"));
        let packs = if round == 0 { 0 } else { pack_count(&lab) };
        if packs > 45 {
            // Recently written files are examined again in any case.
            std::thread::sleep(Duration::from_millis(40));
        }
        lab.track();
        if pack_count(&lab) < packs {
            merges += 1;
            let (before, bytes) = (written(&lab), cache(&lab));
            assert!(!lab.track().changed);
            assert_eq!(written(&lab), before, "the cache was rewritten");
            assert_eq!(cache(&lab), bytes);
        }
    }
    assert!(merges >= 2, "{merges}");
}

#[test]
fn threads_that_wait_for_the_work_tree_share_one_scan() {
    const WAITING: usize = 6;
    let lab = Lab::new();
    for file in 0..50 {
        lab.write(&format!("f{file}"), "x");
    }
    lab.track();
    let held = std::fs::File::open(work_tree_dir(&lab).join("lock")).unwrap();
    held.lock().unwrap();
    let ready = Barrier::new(WAITING + 1);
    let results: Vec<(Snapshot, u64)> = std::thread::scope(|scope| {
        let wait = || {
            ready.wait();
            track_counting(&lab)
        };
        let threads: Vec<_> = (0..WAITING).map(|_| scope.spawn(wait)).collect();
        ready.wait();
        // All requests have been made by now and wait for the lock.
        std::thread::sleep(Duration::from_millis(300));
        lab.write("f7", "changed while they waited");
        held.unlock().unwrap();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let scans = results.iter().filter(|(_, looked)| *looked > 0).count();
    assert_eq!(scans, 1, "one scan for all");
    let hash = lab.hash();
    assert!(results.iter().all(|(snapshot, _)| snapshot.hash == hash && snapshot.files == 50));
}

#[test]
fn a_request_does_not_use_a_scan_that_began_before_it() {
    let lab = Lab::new();
    lab.write("f", "1");
    let (first, looked) = track_counting(&lab);
    assert!(looked > 0);
    lab.write("f", "2");
    let (second, looked) = track_counting(&lab);
    assert!(looked > 0 && first.hash != second.hash);
}

#[test]
fn files_written_by_a_restore_are_not_read_again() {
    let lab = Lab::new();
    let file = |at: usize| format!("d{}/f{at}", at / 100);
    let write_all = |text: &str| (0..2_000).for_each(|at| lab.write(&file(at), text));
    write_all("one\n");
    let_timestamps_age();
    let first = lab.hash();
    write_all("two\n");
    let_timestamps_age();
    let second = lab.hash();
    let progress = Progress::default();
    let report =
        lab.workspace().restore(first, &ctrlz::RestoreOptions::default(), &progress).unwrap();
    assert_eq!((report.done.len(), report.after), (2_000, first));
    let read = progress.files_read.load(Ordering::Relaxed);
    // Files whose bytes were written just before the rename are read again. That may be many where
    // a flush takes no time.
    assert!(read < 1_900, "{read} of 2,000 files were read again");
    let_timestamps_age();
    assert_equals_cold_scan(&lab, "after the restore");
    lab.restore(second);
    assert_equals_cold_scan(&lab, "after the second restore");
}

/// Rewrites a file but keeps its modification time, as some formatters do.
fn rewrite_keeping_times(path: &std::path::Path, text: &[u8]) -> std::io::Result<()> {
    let times = std::fs::metadata(path)?.modified()?;
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    std::io::Write::write_all(&mut file, text)?;
    file.set_modified(times)
}

#[test]
fn writes_just_after_a_restore_are_detected_even_with_kept_mtimes() {
    let lab = Lab::new();
    let file = |at: usize| format!("d{}/f{at}", at / 20);
    for at in 0..200 {
        lab.write(&file(at), "one\n");
    }
    let_timestamps_age();
    let first = lab.hash();
    let mut written = 0_u64;
    for round in 0..xtask::many(6, 200) {
        for at in 0..200 {
            lab.write(&file(at), "two\n");
        }
        let_timestamps_age();
        lab.track();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = 0;
                while !done.load(Ordering::Relaxed) {
                    for at in (round % 7..200).step_by(7) {
                        let path = lab.path(&file(at));
                        // Only files that the restore has already written.
                        if std::fs::read(&path).is_ok_and(|text| text == b"one\n")
                            && rewrite_keeping_times(&path, b"six\n").is_ok()
                        {
                            written += 1;
                        }
                    }
                }
                written
            });
            let over = crate::lab::SetOnDrop(&done);
            lab.restore(first);
            drop(over);
            written += writer.join().unwrap();
        });
        assert_equals_cold_scan(&lab, &format!("round {round}"));
        let_timestamps_age();
        assert_equals_cold_scan(&lab, &format!("round {round}, later"));
    }
    assert!(written > 0, "the writer wrote nothing");
}
