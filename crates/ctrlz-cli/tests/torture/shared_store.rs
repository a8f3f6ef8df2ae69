//! Eight work trees of one project share a store while garbage is collected in a loop.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xtask::Row;

use crate::lab::{Lab, StopOnDrop, command, has, run, sized};

/// Clones a repository. The clones have the same first commit, so they share a store.
fn clones(lab: &Lab, count: usize) -> Vec<PathBuf> {
    let git = |dir: &Path, args: &[&str]| run(command("git").arg("-C").arg(dir).args(args)).ok();
    git(&lab.work, &["init", "-q", "-b", "main"]);
    lab.write("file", "committed");
    lab.write("dir/other", "committed");
    git(&lab.work, &["add", "-A"]);
    let who = ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "first"];
    git(&lab.work, &who);
    let clone = |at: usize| {
        let to = lab.dir().join(format!("work-{at}"));
        git(&lab.work, &["clone", "-q", ".", to.to_str().unwrap()]);
        to
    };
    (0..count).map(clone).collect()
}

/// Edits and tracks until the flag is cleared. Returns every hash with the content of the file.
fn work(lab: &Lab, dir: &Path, running: &AtomicBool) -> Vec<(String, String)> {
    let mut tracked = Vec::new();
    while running.load(Ordering::Relaxed) {
        let text = format!("{} round {}", dir.display(), tracked.len());
        std::fs::write(dir.join("file"), &text).unwrap();
        let ended = run(&mut lab.command_in(dir, &["track"])).is(&[0], "track beside gc");
        tracked.push((ended.hash().unwrap(), text));
    }
    tracked
}

/// Runs a command until the flag is cleared. Returns the number of runs.
fn repeat(lab: &Lab, dir: &Path, args: &[&str], codes: &[i32], running: &AtomicBool) -> u64 {
    let mut count = 0;
    while running.load(Ordering::Relaxed) {
        run(&mut lab.command_in(dir, args)).is(codes, &args.join(" "));
        count += 1;
    }
    count
}

#[test]
fn eight_work_trees_on_one_store_survive_gc_in_a_loop() {
    let mut row = Row::of(5, "tracks of 8 work trees by 24 processes beside gc");
    if !has("git") {
        return;
    }
    let lab = Lab::new();
    let trees = clones(&lab, sized(4, 8));
    let running = AtomicBool::new(true);
    let (tracked, others, collected) = std::thread::scope(|scope| {
        let (lab, running) = (&lab, &running);
        let stop = StopOnDrop(running);
        let workers: Vec<_> =
            trees.iter().map(|dir| scope.spawn(move || work(lab, dir, running))).collect();
        let others = |args: &'static [&'static str]| {
            let others = trees
                .iter()
                .map(|dir| scope.spawn(move || repeat(lab, dir.as_path(), args, &[0], running)));
            others.collect::<Vec<_>>()
        };
        let (status, rehash) = (others(&["status"]), others(&["track", "--rehash"]));
        // If another gc is running, this one exits with code 5.
        let gc: &[&str] = &["gc", "--thorough"];
        let gc = scope.spawn(move || repeat(lab, &first_tree(lab), gc, &[0, 5], running));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(sized(5, 60)) {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(stop);
        let tracked: Vec<Vec<(String, String)>> =
            workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        let others: u64 = rehash.into_iter().map(|other| other.join().unwrap()).sum();
        let looked: u64 = status.into_iter().map(|other| other.join().unwrap()).sum();
        assert!(looked > 0, "no status was run");
        (tracked, others, gc.join().unwrap())
    });
    check_all_readable(&lab, &trees, &tracked);
    assert!(collected > 0, "garbage was never collected");
    row.add(tracked.iter().map(|of_tree| of_tree.len() as u64).sum::<u64>() + others);
    row.note(format!("{collected} times gc"));
}

fn first_tree(lab: &Lab) -> PathBuf {
    lab.dir().join("work-0")
}

fn check_all_readable(lab: &Lab, trees: &[PathBuf], tracked: &[Vec<(String, String)>]) {
    lab.assert_tidy("work trees beside gc");
    for (dir, tracked) in trees.iter().zip(tracked) {
        assert!(tracked.len() > 1, "{} was tracked {} times", dir.display(), tracked.len());
        for (hash, text) in tracked {
            let shown = lab.store_git(&["cat-file", "blob", &format!("{hash}:file")]);
            assert_eq!(shown.is(&[0], "a recorded snapshot").stdout, *text);
        }
        let (hash, text) = &tracked[tracked.len() / 2];
        run(&mut lab.command_in(dir, &["restore", hash])).is(&[0], "a recorded snapshot");
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), *text);
    }
}
