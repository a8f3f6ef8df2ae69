//! Random histories in processes of their own.
//!
//! A forked process shares the open files of its parent until it executes its program. If one
//! thread writes a file while another thread starts a process, ctrlz may therefore find the file in
//! use. The authors and the databases of a history use files, and every action starts a process, so
//! that each worker is a process with one thread.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::lab::command;

/// Number of workers.
const WORKERS: usize = 2;
/// Environment variable: number of the worker, a colon, and the file for its results.
const WORKER: &str = "CTRLZ_TORTURE_WORKER";

/// The part of the histories that a worker runs: every history whose number modulo `count` is
/// `number`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) number: usize,
    pub(crate) count: usize,
}

/// Runs `work` in several processes, each of which runs only the test that calls this function.
/// Returns their results, or `None` in such a process, whose test has to end then.
pub(crate) fn in_workers<T: Serialize + DeserializeOwned + Send>(
    test: &str,
    work: impl FnOnce(Share) -> T,
) -> Option<Vec<T>> {
    if let Ok(worker) = std::env::var(WORKER) {
        let (number, path) = worker.split_once(':').unwrap();
        let result = work(Share { number: number.parse().unwrap(), count: WORKERS });
        std::fs::write(path, serde_json::to_vec(&result).unwrap()).unwrap();
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..WORKERS).map(|at| dir.path().join(at.to_string())).collect();
    let results = std::thread::scope(|scope| {
        let run = |(number, path): (usize, &PathBuf)| {
            let worker = format!("{number}:{}", path.display());
            scope.spawn(move || run_worker(test, &worker))
        };
        let workers: Vec<_> = paths.iter().enumerate().map(run).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        paths.iter().map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    });
    Some(results.collect())
}

/// Runs a worker, and prints its messages.
fn run_worker(test: &str, worker: &str) {
    let mut command = command(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).envs(std::env::vars_os());
    command.env(WORKER, worker).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let messages = BufReader::new(child.stderr.take().unwrap());
    messages.lines().map_while(Result::ok).for_each(|line| eprintln!("{line}"));
    assert!(child.wait().unwrap().success(), "the worker {worker} failed");
}
