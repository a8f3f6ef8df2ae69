//! Many processes at once: they wait for each other, and nobody's work is lost.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lab::{Ended, Lab, ended, find, has, noise, sized, start};
use crate::strace::{Fault, injecting};
use xtask::Row;

/// Keeps replacing files until the flag falls.
fn edit(lab: &Lab, who: usize, go_on: &AtomicBool) {
    let beside = lab.dir().join(format!("saved-by-{who}"));
    let mut round = 0;
    while go_on.load(Ordering::Relaxed) {
        round += 1;
        std::fs::write(&beside, format!("writer {who}, round {round}")).unwrap();
        let name = format!("edited/{who}-{}", round % 7);
        std::fs::rename(&beside, lab.work.join(name)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    crate::lab::remove(&beside);
}

/// Starts the commands of `rounds` rounds, all of a round at once, while two writers edit.
fn run_crowd(lab: &Lab, rounds: usize, commands: &[Vec<&str>]) -> Vec<(Vec<String>, Ended)> {
    let go_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let go_on = &go_on;
        for who in 0..2 {
            scope.spawn(move || edit(lab, who, go_on));
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
        go_on.store(false, Ordering::Relaxed);
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

/// Tracks again and again; how long each took, and what it gave.
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
    let go_on = AtomicBool::new(true);
    let tracked: Vec<(Duration, String)> = std::thread::scope(|scope| {
        let (lab, go_on) = (&lab, &go_on);
        for who in 0..2 {
            scope.spawn(move || edit(lab, who, go_on));
        }
        let processes: Vec<_> = (0..24).map(|_| scope.spawn(|| track_often(lab))).collect();
        let tracked = processes.into_iter().flat_map(|process| process.join().unwrap()).collect();
        go_on.store(false, Ordering::Relaxed);
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
    for hash in hashes.iter().step_by(sized(4, 1)) {
        lab.restore(hash);
        assert_eq!(lab.track(), *hash);
    }
}

#[test]
fn a_mixed_crowd_fails_with_nothing_but_busy_or_incomplete() {
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

/// Processes are killed wherever they happen to be; the next one starts at once.
#[test]
fn a_killed_process_holds_nobody_up() {
    let lab = lab_with_files();
    let mut row = Row::of(6, "processes killed wherever they are");
    let first = (lab.track(), lab.manifest());
    for round in 0..sized(30_u64, 400) {
        lab.write("dir0/file0", noise(round, 700));
        let mut child = match round % 3 {
            0 => start(&mut lab.command(&["restore", "--exact", &first.0])),
            _ => start(&mut lab.command(&["track"])),
        };
        // A different moment every time, spread over the life of the process.
        std::thread::sleep(Duration::from_micros(round * 3700 % 40_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let start = Instant::now();
        lab.track();
        assert!(start.elapsed() < Duration::from_secs(10), "it waited for a dead process");
        lab.assert_no_leftovers("a process was killed");
        row.done();
    }
    lab.assert_tidy("many processes were killed");
    lab.assert_restores(&first.0, &first.1, "many processes were killed");
}

/// A holder that is stopped makes others wait; when it goes on, both come to their end.
#[test]
fn a_stopped_process_makes_others_wait_and_then_goes_on() {
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
        // The patience is half a minute.
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

/// The process that the lock names, once the kernel says that it is stopped.
fn wait_for_stopped_holder(lab: &Lab) -> rustix::process::Pid {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody holds the lock, stopped");
        let locks = find(&lab.data, &|path| path.ends_with("lock") && path.is_file());
        for lock in locks {
            let text = std::fs::read_to_string(&lock).unwrap_or_default();
            let pid = text.strip_prefix("process ").and_then(|pid| pid.trim().parse::<i32>().ok());
            let Some(pid) = pid else { continue };
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            // `t`: stopped under a tracer, which strace makes of every stop.
            if matches!(state, Some('t' | 'T')) && settled(pid) {
                return rustix::process::Pid::from_raw(pid).unwrap();
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a stop lasts: a tracer also stops a process for a moment at each call.
fn settled(pid: i32) -> bool {
    (0..5).all(|_| {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.contains(") t ") || stat.contains(") T "))
    })
}
