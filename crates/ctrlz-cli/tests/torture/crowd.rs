//! Concurrent processes: they wait for each other, and no work is lost.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lab::{Ended, Lab, StopOnDrop, ended, find, has, must, noise, run, sized, start};
use crate::scene::keep_nothing;
use crate::strace::{Fault, injecting};
use xtask::Row;

/// Keeps replacing files until the flag is cleared.
fn edit(lab: &Lab, who: usize, running: &AtomicBool) {
    let beside = lab.dir().join(format!("saved-by-{who}"));
    let mut round = 0;
    while running.load(Ordering::Relaxed) {
        round += 1;
        std::fs::write(&beside, format!("writer {who}, round {round}")).unwrap();
        let name = format!("edited/{who}-{}", round % 7);
        std::fs::rename(&beside, lab.work.join(name)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    crate::lab::remove(&beside);
}

/// Runs `commands` in `rounds` rounds, concurrently within a round, while two writers edit files.
fn run_crowd(lab: &Lab, rounds: usize, commands: &[Vec<&str>]) -> Vec<(Vec<String>, Ended)> {
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let running = &running;
        let stop = StopOnDrop(running);
        for who in 0..2 {
            scope.spawn(move || edit(lab, who, running));
        }
        let mut all = Vec::new();
        for _ in 0..rounds {
            let started: Vec<(Vec<String>, Child)> = commands
                .iter()
                .map(|args| {
                    let words = args.iter().map(|arg| (*arg).to_owned()).collect();
                    (words, start(&mut lab.command(args)))
                })
                .collect();
            all.extend(started.into_iter().map(|(args, child)| (args, ended(child))));
        }
        drop(stop);
        all
    })
}

fn lab_with_files() -> Lab {
    let lab = Lab::new();
    for at in 0..40 {
        lab.write(&format!("dir{}/file{at}", at % 5), noise(at, 500));
    }
    lab.write("edited/start", "here");
    lab
}

/// Tracks repeatedly. Returns the duration and the hash of each track.
fn track_often(lab: &Lab) -> Vec<(Duration, String)> {
    let track = |_| {
        let begun = Instant::now();
        let hash = lab.track();
        (begun.elapsed(), hash)
    };
    (0..sized(2, 20)).map(track).collect()
}

#[test]
fn two_dozen_processes_track_one_tree_and_every_hash_restores() {
    let mut row = Row::of(4, "tracks by 24 processes at once");
    let lab = lab_with_files();
    let running = AtomicBool::new(true);
    let tracked: Vec<(Duration, String)> = std::thread::scope(|scope| {
        let (lab, running) = (&lab, &running);
        let stop = StopOnDrop(running);
        for who in 0..2 {
            scope.spawn(move || edit(lab, who, running));
        }
        let processes: Vec<_> = (0..24).map(|_| scope.spawn(|| track_often(lab))).collect();
        let tracked = processes.into_iter().flat_map(|process| process.join().unwrap()).collect();
        drop(stop);
        tracked
    });
    row.add(tracked.len() as u64);
    let (mut times, mut hashes): (Vec<Duration>, Vec<String>) = tracked.into_iter().unzip();
    times.sort_unstable();
    let slowest = times[times.len() * 99 / 100];
    row.note(format!("99 % of them within {} ms", slowest.as_millis()));
    row.violated(u64::from(slowest > sized(Duration::from_secs(20), Duration::from_secs(2))));
    hashes.sort_unstable();
    hashes.dedup();
    lab.assert_tidy("a crowd of tracks");
    let mut whole = 0;
    for hash in hashes.iter().step_by(sized(4, 1)) {
        let restored = lab.ctrlz(&["restore", "--exact", "--yes", hash]);
        // If entries of a directory changed during the scan, an exact restore keeps its files and
        // exits with code 3.
        if restored.is(&[0, 3], "after a crowd of tracks").code() == Some(0) {
            assert_eq!(lab.track(), *hash);
            whole += 1;
        }
    }
    assert!(whole > 0, "no snapshot was complete");
}

/// No process mistakes a store that another process is creating for a foreign one.
#[test]
fn concurrent_first_tracks_create_one_store_and_set_none_aside() {
    let mut row = Row::of(4, "stores made by 12 processes at once");
    for place in [&[][..], &["--store", ".agent/snapshots"]] {
        let mut args = vec!["track"];
        args.extend(place);
        for _ in 0..sized(8, 100) {
            let lab = lab_with_files();
            let crowd: Vec<Child> = (0..12).map(|_| start(&mut lab.command(&args))).collect();
            let mut hashes: Vec<String> =
                crowd.into_iter().map(|child| ended(child).ok().stdout).collect();
            hashes.dedup();
            assert_eq!(hashes.len(), 1, "{hashes:?}");
            let foreign = find(lab.dir(), &|path| path.to_string_lossy().contains(".untrusted-"));
            assert_eq!(foreign, Vec::<PathBuf>::new());
            row.done();
        }
    }
}

/// Commands open the store while blobs borrowed from the user's repository are copied in the
/// background.
#[test]
fn a_store_stays_trusted_while_borrowed_objects_are_copied() {
    let mut row = Row::of(4, "commands while borrowed objects are copied");
    for _ in 0..sized(6, 60) {
        let lab = lab_with_files();
        let work = lab.work.to_str().unwrap();
        for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "one"]] {
            let author = ["-C", work, "-c", "user.name=a", "-c", "user.email=a@b"];
            must("git", &[&author[..], args].concat());
        }
        lab.track();
        for _ in 0..20 {
            lab.ctrlz(&["status"]).is(&[0], "while borrowed objects are copied");
            row.done();
        }
    }
}

#[test]
fn a_mixed_load_of_commands_fails_only_with_busy_or_incomplete() {
    let lab = lab_with_files();
    let one = lab.track();
    lab.write("dir0/file0", "another version");
    lab.remove("dir1");
    let two = lab.track();
    let commands: Vec<Vec<&str>> = (0..12)
        .map(|at| match at % 6 {
            0 => vec!["restore", "--exact", "--yes", &one],
            1 => vec!["restore", "--exact", "--yes", &two],
            2 => vec!["diff", &one],
            3 => vec!["patch", &two],
            _ => vec!["track"],
        })
        .collect();
    let mut row = Row::of(4, "tracks, restores, diffs and patches, 12 at once");
    for (args, ended) in run_crowd(&lab, sized(2, 10), &commands) {
        ended.is(&[0, 3, 5], &args.join(" "));
        row.done();
    }
    let now = lab.manifest();
    let last = lab.track();
    lab.assert_tidy("a mixed crowd");
    lab.restore(&one);
    lab.assert_restores(&last, &now, "after a mixed crowd");
}

/// Processes are killed at arbitrary moments. The next command does not wait for them.
#[test]
fn a_killed_process_does_not_block_the_next_command() {
    let lab = lab_with_files();
    let mut row = Row::of(6, "processes killed at arbitrary moments");
    let first = (lab.track(), lab.manifest());
    for round in 0..sized(30_u64, 400) {
        lab.write("dir0/file0", noise(round, 700));
        let mut child = match round % 3 {
            0 => start(&mut lab.command(&["restore", "--exact", &first.0])),
            _ => start(&mut lab.command(&["track"])),
        };
        // A different delay each time, spread over the lifetime of the process.
        std::thread::sleep(Duration::from_micros(round * 3700 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        lab.track();
        assert!(start.elapsed() < Duration::from_secs(10), "it waited for a killed process");
        lab.assert_no_leftovers("a process was killed");
        row.done();
    }
    lab.assert_tidy("many processes were killed");
    lab.assert_restores(&first.0, &first.1, "many processes were killed");
}

/// A stopped lock holder makes other commands wait. After it is continued, both succeed.
#[test]
fn a_stopped_process_blocks_others_until_it_is_continued() {
    if !has("strace") {
        return;
    }
    let lab = lab_with_files();
    lab.track();
    lab.write("dir0/file0", "changed");
    let stop = Fault::at("fsync", "signal=SIGSTOP", 1);
    let stopped = start(&mut lab.wrapped(&injecting(&[stop]), &["track"]));
    let holder = wait_for_stopped_holder(&lab);
    let mut waiting = start(&mut lab.command(&["track"]));
    std::thread::sleep(Duration::from_millis(500));
    assert!(waiting.try_wait().unwrap().is_none(), "it did not wait for the lock");
    if sized(false, true) {
        // Commands wait 30 seconds for the lock.
        ended(start(&mut lab.command(&["track"]))).is(&[5], "waiting for a stopped process");
        waiting.wait().unwrap();
        waiting = start(&mut lab.command(&["track"]));
    }
    rustix::process::kill_process(holder, rustix::process::Signal::CONT).unwrap();
    let one = ended(stopped).is(&[0], "stopped, then continued");
    let other = ended(waiting).is(&[0], "waited for a stopped process");
    assert_eq!(one.hash(), other.hash());
    lab.assert_tidy("a process was stopped");
}

/// Waits for a stopped process that a lock file names. Returns its id.
fn wait_for_stopped_holder(lab: &Lab) -> rustix::process::Pid {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "no stopped process holds the lock");
        let locks = find(&lab.data, &|path| path.ends_with("lock") && path.is_file());
        for lock in locks {
            let text = std::fs::read_to_string(&lock).unwrap_or_default();
            let pid = text.strip_prefix("process ").and_then(|pid| pid.trim().parse::<i32>().ok());
            let Some(pid) = pid else { continue };
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            // `t` is a stop under a tracer: strace turns every stop into one.
            if matches!(state, Some('t' | 'T')) && stays_stopped(pid) {
                return rustix::process::Pid::from_raw(pid).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process stays stopped. A tracer also stops a process briefly at each call.
fn stays_stopped(pid: i32) -> bool {
    (0..5).all(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(") t ") || stat.contains(") T "))
    })
}

/// A store that several work trees share, because their repositories have the same root commit.
struct Shared {
    lab: Lab,
    trees: Vec<PathBuf>,
    /// Path of a configuration that keeps as little as possible.
    config: String,
}

impl Shared {
    fn new(count: usize) -> Shared {
        let lab = Lab::new();
        lab.write("start", "here");
        let git = |args: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-C"];
            crate::lab::must("git", &[&who[..], &[lab.work.to_str().unwrap()], args].concat());
        };
        git(&["init", "-q"]);
        git(&["add", "start"]);
        git(&["commit", "-q", "-m", "start"]);
        let beside = |at: usize| lab.dir().join(format!("work-{at}"));
        let trees: Vec<PathBuf> =
            std::iter::once(lab.work.clone()).chain((1..count).map(beside)).collect();
        for tree in &trees[1..] {
            git(&["clone", "-q", ".", tree.to_str().unwrap()]);
        }
        let config = keep_nothing(&lab);
        Shared { trees, config, lab }
    }

    fn command(&self, tree: &Path, args: &[&str]) -> Command {
        let words = [&["--config", &self.config], args].concat();
        self.lab.command_in(tree, &words)
    }

    /// Writes one of a few versions of a work tree, so that content that gc has dropped or is
    /// dropping comes back.
    fn edit(tree: &Path, round: u64) {
        std::fs::write(tree.join("edited"), noise(round % 13, 900)).unwrap();
        let dir = tree.join(format!("dir{}", round % 5));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), noise(round % 7 + 100, 300)).unwrap();
    }

    /// Tracks `rounds` times. Before every third track, another one is killed, which leaves
    /// unreferenced objects in the store until the same content is tracked again. Returns the
    /// printed hashes.
    fn track(&self, tree: &Path, rounds: u64) -> Vec<String> {
        let mut hashes = Vec::new();
        for round in 0..rounds {
            Shared::edit(tree, round);
            if round % 3 == 0 {
                let mut child = start(&mut self.command(tree, &["track"]));
                std::thread::sleep(Duration::from_micros(round * 3700 % 40_000));
                child.kill().unwrap();
                child.wait().unwrap();
            }
            let ended = run(&mut self.command(tree, &["track"])).is(&[0], "beside gc");
            hashes.extend(ended.hash());
            // A new snapshot is readable at once.
            let hash = &hashes[hashes.len() - 1];
            run(&mut self.command(tree, &["ls", hash])).is(&[0], "just tracked");
        }
        hashes
    }

    /// Collects garbage until the flag is cleared, and kills every other collection. Returns the
    /// numbers of completed and killed ones.
    fn collect(&self, running: &AtomicBool) -> (u64, u64) {
        let (mut done, mut killed) = (0, 0);
        for round in 0_u64.. {
            if !running.load(Ordering::Relaxed) {
                break;
            }
            let mut child = start(&mut self.command(&self.trees[0], &["gc", "--thorough"]));
            if round % 2 == 0 {
                std::thread::sleep(Duration::from_micros(500 + round * 2_900 % 30_000));
                child.kill().unwrap();
            }
            let ended = ended(child);
            if ended.is_killed() {
                killed += 1;
            } else {
                ended.is(&[0, 5], "gc beside tracks");
                done += 1;
            }
        }
        (done, killed)
    }
}

/// Four work trees share one store, and every other garbage collection is killed.
#[test]
fn killed_garbage_collections_break_no_snapshot() {
    let shared = Shared::new(4);
    let rounds = sized(12, 250);
    let running = AtomicBool::new(true);
    let begun = Instant::now();
    let (hashes, (done, killed)) = std::thread::scope(|scope| {
        let stop = StopOnDrop(&running);
        let collector = scope.spawn(|| shared.collect(&running));
        let trackers: Vec<_> = shared
            .trees
            .iter()
            .map(|tree| scope.spawn(|| (tree.clone(), shared.track(tree, rounds))))
            .collect();
        let hashes: Vec<(PathBuf, Vec<String>)> =
            trackers.into_iter().map(|tracker| tracker.join().unwrap()).collect();
        drop(stop);
        (hashes, collector.join().unwrap())
    });
    let tracks: usize = hashes.iter().map(|(_, hashes)| hashes.len()).sum();
    let seconds = begun.elapsed().as_secs();
    eprintln!("{tracks} tracks beside {done} collections and {killed} killed ones, {seconds} s");
    assert!(done > 0 && killed > 0, "{done} collections, {killed} killed");
    shared.lab.assert_tidy("collected beside tracks");
    let verified = run(&mut shared.command(&shared.trees[0], &["verify"]));
    verified.is(&[0], "collected beside tracks");
    for (tree, hashes) in &hashes {
        let last = hashes.last().unwrap();
        crate::lab::remove(&tree.join("edited"));
        run(&mut shared.command(tree, &["restore", "--exact", "--yes", last])).is(&[0], "restore");
        let again = run(&mut shared.command(tree, &["track"])).ok().hash();
        assert_eq!(again.as_ref(), Some(last));
    }
}

/// Garbage is collected while the objects of a snapshot are written and its ref is not.
#[test]
fn a_snapshot_in_progress_survives_a_garbage_collection() {
    if !has("strace") {
        return;
    }
    let shared = Shared::new(2);
    let lab = &shared.lab;
    Shared::edit(&shared.trees[0], 0);
    lab.track();
    for number in 1..=sized(3, 6) {
        Shared::edit(&shared.trees[0], number as u64);
        let expected = lab.manifest();
        let stop = Fault::at("fsync", "signal=SIGSTOP", number);
        let stopped = start(&mut lab.wrapped(&injecting(&[stop]), &["track"]));
        let holder = wait_for_stopped_holder(lab);
        // In another work tree, whose lock is free.
        let gc = start(&mut shared.command(&shared.trees[1], &["gc", "--thorough"]));
        std::thread::sleep(Duration::from_millis(300));
        rustix::process::kill_process(holder, rustix::process::Signal::CONT).unwrap();
        let when = format!("stopped at flush {number}");
        let hash = ended(stopped).is(&[0], &when).hash().unwrap();
        ended(gc).is(&[0], &when);
        run(&mut shared.command(&shared.trees[1], &["gc", "--thorough"])).is(&[0], &when);
        lab.remove("edited");
        lab.assert_restores(&hash, &expected, &when);
        lab.assert_tidy(&when);
    }
}
