//! `ctrlz watch`: a detached process that starts automatically and may be killed at any time.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::{Bench, is_hash};

/// A bench whose snapshots use a watcher. Kills the watcher on drop.
struct Watched {
    bench: Bench,
}

impl std::ops::Deref for Watched {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.project.is_dir() {
            return;
        }
        if let Some(pid) = self.process() {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

impl Watched {
    fn new() -> Watched {
        let bench = Bench::new();
        bench.write_home(".config/ctrlz/config.toml", "watch = true\n");
        bench.write("a.txt", "one\n");
        bench.write("sub/b.txt", "one\n");
        Watched { bench }
    }

    /// Returns a bench with a running watcher that knows the current state.
    fn armed() -> Watched {
        let bench = Watched::new();
        bench.track();
        bench.wait_for_watcher();
        bench.snapshot();
        bench
    }

    fn watcher(&self) -> Value {
        let ran = self.run(&["--json", "watch", "--status"]);
        serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null)
    }

    fn process(&self) -> Option<Pid> {
        Pid::from_raw(self.watcher()["process"].as_i64()?.try_into().unwrap())
    }

    #[track_caller]
    fn wait_for_watcher(&self) -> Pid {
        let start = Instant::now();
        loop {
            if let Some(process) = self.process() {
                return process;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{}", self.watcher());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes a snapshot. Returns its hash and whether the watcher was used.
    #[track_caller]
    fn snapshot(&self) -> (String, bool) {
        let ran = self.run(&["--json", "track"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let json: Value = serde_json::from_slice(&ran.stdout).unwrap();
        (json["hash"].as_str().unwrap().to_owned(), json["watched"].as_bool().unwrap())
    }

    /// Checks that a full scan of all files gives this hash.
    #[track_caller]
    fn assert_matches_full_scan(&self, hash: &str) {
        assert_eq!(self.ok(&["track", "--rehash"]), hash);
    }

    fn stat_of(&self, process: Pid) -> Vec<String> {
        let path = format!("/proc/{}/stat", process.as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap();
        let rest = text.rsplit_once(')').unwrap().1;
        rest.split_whitespace().map(str::to_owned).collect()
    }
}

fn is_alive(process: Pid) -> bool {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    // A zombie counts as dead.
    std::fs::read_to_string(path).is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn wait_for_end(process: Pid) {
    let start = Instant::now();
    while is_alive(process) {
        assert!(start.elapsed() < Duration::from_secs(20), "it still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_configured_watcher_starts_automatically_and_is_used() {
    let bench = Watched::armed();
    bench.write("sub/b.txt", "two\n");
    let (hash, watched) = bench.snapshot();
    assert!(watched);
    assert_eq!(bench.ok(&["show", &format!("{hash}:sub/b.txt")]), "two");
    bench.assert_matches_full_scan(&hash);
    let status = bench.ok(&["status"]);
    assert!(status.contains("watches 2 directories"), "{status}");
    assert!(bench.ok(&["doctor"]).contains("watcher: process"));
    bench.ok(&["watch", "--stop"]);
}

#[test]
fn without_the_configuration_key_no_watcher_starts() {
    let bench = Bench::new();
    bench.write("a.txt", "one\n");
    bench.track();
    assert_eq!(bench.ok(&["--json", "watch", "--status"]), "{\"state\":\"none\"}");
    assert!(bench.ok(&["status"]).contains("watcher    none"));
}

#[test]
fn the_watcher_is_detached_from_the_process_that_started_it() {
    let bench = Watched::new();
    // Like a hook: standard streams are pipes, and one more pipe is inherited.
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
    let mut child = bench
        .command(&["track"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(writer);
    let process = {
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert!(is_hash(String::from_utf8(output.stdout).unwrap().trim_end()));
        bench.wait_for_watcher()
    };
    // EOF arrives although the watcher runs: it did not inherit the writing end.
    let mut reader = reader;
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut rest).unwrap();
    let raw = process.as_raw_nonzero();
    let stat = bench.stat_of(process);
    assert_eq!(stat[3], raw.to_string(), "a session of its own");
    assert_eq!(std::fs::read_link(format!("/proc/{raw}/cwd")).unwrap().to_str(), Some("/"));
    for fd in 0..3 {
        let open = std::fs::read_link(format!("/proc/{raw}/fd/{fd}")).unwrap();
        assert_eq!(open.to_str(), Some("/dev/null"));
    }
    for entry in std::fs::read_dir(format!("/proc/{raw}/fd")).unwrap() {
        let open = std::fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!open.to_string_lossy().starts_with("pipe:"), "{open:?}");
    }
}

#[test]
fn a_killed_watcher_is_replaced_and_nothing_is_missed() {
    let bench = Watched::armed();
    for round in 0..5 {
        bench.write("a.txt", &format!("before {round}\n"));
        let process = bench.wait_for_watcher();
        kill_process(process, Signal::KILL).unwrap();
        bench.write("sub/b.txt", &format!("after {round}\n"));
        let (hash, watched) = bench.snapshot();
        assert!(!watched, "the watcher is dead");
        // If the command ended before the killed watcher did, the next command starts a new one.
        wait_for_end(process);
        bench.assert_matches_full_scan(&hash);
        // The new watcher takes over the socket, and its first answer cannot be used.
        bench.wait_for_watcher();
        bench.write("a.txt", &format!("meanwhile {round}\n"));
        let (hash, watched) = bench.snapshot();
        assert!(!watched, "it does not know what happened before it started");
        bench.assert_matches_full_scan(&hash);
        bench.write("a.txt", &format!("then {round}\n"));
        let (hash, watched) = bench.snapshot();
        assert!(watched);
        bench.assert_matches_full_scan(&hash);
    }
}

#[test]
fn killing_the_watcher_during_a_query_keeps_snapshots_correct() {
    let bench = Watched::armed();
    for round in 0..8_u64 {
        // The last command may have ended before the killed watcher did.
        bench.snapshot();
        let process = bench.wait_for_watcher();
        bench.write("a.txt", &format!("{round}\n"));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(round));
            kill_process(process, Signal::KILL).ok();
        });
        let (hash, _) = bench.snapshot();
        killer.join().unwrap();
        wait_for_end(process);
        bench.assert_matches_full_scan(&hash);
    }
}

#[test]
fn killing_a_client_during_a_query_does_not_harm_the_watcher() {
    let bench = Watched::armed();
    let process = bench.wait_for_watcher();
    for round in 0..20_u64 {
        bench.write("a.txt", &format!("{round}\n"));
        let mut child = bench.command(&["track"]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (hash, _) = bench.snapshot();
    bench.assert_matches_full_scan(&hash);
    assert_eq!(bench.process(), Some(process));
}

#[test]
fn a_suspended_watcher_times_out_and_missed_changes_are_scanned() {
    let bench = Watched::armed();
    let process = bench.wait_for_watcher();
    kill_process(process, Signal::STOP).unwrap();
    bench.write("a.txt", "while it sleeps\n");
    let start = Instant::now();
    let (hash, watched) = bench.snapshot();
    assert!(!watched);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    bench.assert_matches_full_scan(&hash);
    // More events than the kernel queues.
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    std::fs::create_dir(bench.project.join("many")).unwrap();
    for file in 0..limit.min(20_000) / 2 + 100 {
        // Each file causes at least two events.
        std::fs::write(bench.project.join(format!("many/{file}")), "x").unwrap();
    }
    kill_process(process, Signal::CONT).unwrap();
    let (hash, watched) = bench.snapshot();
    assert!(!watched, "events were dropped");
    bench.assert_matches_full_scan(&hash);
    let start = Instant::now();
    loop {
        bench.write("a.txt", &format!("{:?}\n", start.elapsed()));
        let (hash, watched) = bench.snapshot();
        bench.assert_matches_full_scan(&hash);
        if watched {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it never recovers");
    }
    assert_eq!(bench.process(), Some(process));
}

#[test]
fn only_one_of_several_watchers_started_at_once_keeps_running() {
    let bench = Watched::new();
    bench.track();
    bench.wait_for_watcher();
    bench.ok(&["watch", "--stop"]);
    let children: Vec<_> = (0..6)
        .map(|_| bench.command(&["watch", "--detach"]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut shown = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        shown.push(String::from_utf8(output.stdout).unwrap());
    }
    let process = bench.wait_for_watcher();
    let line = format!("process {} watches 2 directories\n", process.as_raw_nonzero());
    assert!(shown.contains(&line), "{shown:?}");
    let mine = bench.data.to_str().unwrap();
    let ours = || {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
        let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let text = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
        text.filter(|line| line.contains(mine) && line.contains("--detached")).count()
    };
    let start = Instant::now();
    while ours() != 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "{} watch", ours());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_idle_watcher_uses_no_cpu_time() {
    let bench = Watched::armed();
    let process = bench.wait_for_watcher();
    let ticks = || {
        let stat = bench.stat_of(process);
        stat[11].parse::<u64>().unwrap() + stat[12].parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(3));
    assert!(ticks() - before <= 1, "{} ticks in three seconds", ticks() - before);
}

#[test]
fn the_watcher_exits_when_the_work_tree_or_store_is_removed() {
    let bench = Watched::armed();
    let process = bench.wait_for_watcher();
    std::fs::remove_dir_all(&bench.project).unwrap();
    wait_for_end(process);
    let bench = Watched::armed();
    let process = bench.wait_for_watcher();
    std::fs::remove_dir_all(&bench.data).unwrap();
    wait_for_end(process);
}
