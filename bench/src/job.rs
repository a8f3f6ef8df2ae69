//! A sample: a new process does one piece of work and prints its cost.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Fallible;
use crate::measure::{Sample, Whose, measure};
use crate::peers::{self, Contender};
use crate::process::{output, program};

/// A piece of work, its contender, and the directories to use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) contender: Contender,
    pub(crate) work: Work,
    /// The work tree.
    pub(crate) tree: PathBuf,
    /// The contender's own directory: its store or its git directory.
    pub(crate) state: PathBuf,
    /// The `ctrlz` binary.
    pub(crate) ctrlz: PathBuf,
}

/// A piece of work. Contenders reject those that they do not support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Takes a snapshot. The output is its hash.
    Track,
    /// Takes a snapshot and lists the changes since the hash.
    Patch(String),
    /// Reads both versions of each file that differs.
    DiffFull(String, String),
    /// Restores the files.
    Restore(String),
    /// Restores the files and removes those created since.
    RestoreExact(String),
    /// Reads, hashes and compresses everything. Only for the floor.
    ReadAll,
    /// Writes this number of files, each by a rename, and flushes once. Only for the floor.
    WriteAll(usize),
}

impl Job {
    /// Does the work in a new process and returns its cost.
    pub(crate) fn sample(&self) -> Fallible<Sample> {
        let me = std::env::current_exe()?;
        let json = serde_json::to_string(self)?;
        let printed = output(program(me).args(["--job", &json]))?;
        Ok(serde_json::from_slice(&printed)?)
    }
}

/// Does the work described in `json` and prints a [`Sample`].
pub(crate) fn run_and_print(json: &str) -> Fallible<()> {
    let job: Job = serde_json::from_str(json)?;
    let sample = match job.contender {
        Contender::Ctrlz | Contender::Watcher => {
            measure(Whose::Children, || peers::ctrlz::command(&job))?
        }
        Contender::Library => measure(Whose::Own, || peers::ctrlz::library(&job))?,
        Contender::Git => measure(Whose::Children, || peers::git::run(&job))?,
        Contender::OpenCode => measure(Whose::Children, || peers::opencode::run(&job))?,
        Contender::Jj => measure(Whose::Children, || peers::jj::run(&job))?,
        Contender::Floor => {
            let mut floor = peers::floor::Floor::prepare(&job)?;
            measure(Whose::Own, || floor.run())?
        }
    };
    println!("{}", serde_json::to_string(&sample)?);
    Ok(())
}
