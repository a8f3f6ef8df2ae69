//! A long run of edits and snapshots, with a watcher that is killed repeatedly and a server process
//! that runs all the time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use xtask::{Random, Row};

use crate::lab::{Ended, Lab, command, run};

/// A running `ctrlz rpc`.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(lab: &Lab) -> Server {
        let mut rpc = lab.command(&["rpc"]);
        let mut child = rpc.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Server { child, input, output: BufReader::new(output) }
    }

    fn track(&mut self) -> String {
        let request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"track\",\"params\":{}}";
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&line).unwrap();
        answer["result"]["hash"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Returns the number of open descriptors and the resident memory in kilobytes. Maintenance
    /// after a snapshot opens a directory briefly, so the minimum of many samples counts.
    fn size(&self) -> (usize, u64) {
        let proc = format!("/proc/{}", self.child.id());
        let look = |_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::read_dir(format!("{proc}/fd")).unwrap().count()
        };
        let descriptors = (0..50).map(look).min().unwrap();
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        (descriptors, line.split_whitespace().next().unwrap().parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn watched(lab: &Lab, args: &[&str]) -> Ended {
    let config = lab.dir().join("ctrlz-watch.toml");
    std::fs::write(&config, "watch = true\n").unwrap();
    lab.ctrlz(&[&["--config", config.to_str().unwrap()], args].concat())
}

/// Kills the watcher, if it runs. Returns whether it was killed.
fn kill_watcher(lab: &Lab) -> bool {
    let status = watched(lab, &["--json", "status"]).ok().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let process = status["watcher"]["process"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let Some(pid) = process.and_then(Pid::from_raw) else { return false };
    kill_process(pid, Signal::KILL).is_ok()
}

/// Returns the hash of a full scan with an empty store.
fn cold(lab: &Lab) -> String {
    let data = lab.dir().join("data-cold");
    let mut line = lab.line(&["track", "--rehash"]);
    for word in &mut line {
        if *word == lab.data.to_str().unwrap() {
            *word = data.to_str().unwrap().into();
        }
    }
    let hash = run(command(&line[0]).args(&line[1..])).ok().hash().unwrap();
    crate::lab::remove(&data);
    hash
}

fn minutes() -> Option<u64> {
    std::env::var(xtask::SOAK).ok()?.parse().ok()
}

#[test]
fn sustained_edits_miss_no_change_and_leak_no_descriptors_or_memory() {
    let mut row = Row::of(18, "edits, 50 a second, each seen");
    let time = minutes().map_or(Duration::from_secs(6), |count| Duration::from_secs(count * 60));
    let lab = Lab::new();
    let mut random = Random::new("soak");
    for at in 0..300 {
        lab.write(&format!("dir{}/file{at}", at % 20), format!("file {at}"));
    }
    watched(&lab, &["watch", "--detach"]).ok();
    let mut server = Server::start(&lab);
    let (begun, mut killed, mut looked) = (Instant::now(), 0, Instant::now());
    let mut last_kill = Instant::now();
    let mut young = None;
    let mut edits: u64 = 0;
    while begun.elapsed() < time {
        let at = random.below(300);
        lab.write(&format!("dir{}/file{at}", at % 20), format!("edit {edits}"));
        edits += 1;
        std::thread::sleep(Duration::from_millis(20));
        if looked.elapsed() > Duration::from_secs(1) {
            let hash = watched(&lab, &["track"]).ok().hash().unwrap();
            assert_eq!(hash, cold(&lab), "after {edits} edits a change was missed");
            assert_eq!(hash, server.track(), "after {edits} edits the server sees something else");
            looked = Instant::now();
        }
        if last_kill.elapsed() > Duration::from_secs(5) {
            killed += u64::from(kill_watcher(&lab));
            watched(&lab, &["watch", "--detach"]);
            last_kill = Instant::now();
        }
        // The first measurement is taken after the warm-up; later growth is a leak.
        if begun.elapsed() > time / 4 && young.is_none() {
            young = Some(server.size());
        }
    }
    let ((descriptors, kilobytes), old) = (young.unwrap(), server.size());
    watched(&lab, &["watch", "--stop"]);
    lab.assert_tidy("after a long time");
    row.add(edits);
    row.note(format!(
        "watcher killed {killed} times; descriptors {descriptors} → {}, memory {} → {} kB",
        old.0, kilobytes, old.1
    ));
    assert!(old.0 <= descriptors, "descriptors leak: {descriptors}, then {}", old.0);
    // Memory is compared only in long runs.
    let flat = minutes().is_none() || old.1 <= kilobytes + kilobytes / 20;
    row.violated(u64::from(!flat));
}
