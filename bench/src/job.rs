//! One sample: a fresh process does one piece of work and prints what it cost.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Fallible;
use crate::measure::{Sample, Whose, measure};
use crate::peers::{self, Contender};
use crate::process::{output, program};

/// What is to be done, by whom, and where.
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

/// A piece of work that every contender knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Take a snapshot. The output is its hash.
    Track,
    /// Take a snapshot and list what changed since the hash.
    Patch(String),
    /// Both texts of every file that differs.
    DiffFull(String, String),
    /// Bring the files back.
    Restore(String),
    /// Bring the files back and remove those created since.
    RestoreExact(String),
    /// For the floor only: read, hash and compress everything.
    ReadAll,
    /// For the floor only: put so many files back, each by a rename, and flush once.
    WriteAll(usize),
}

impl Job {
    /// Does it in a fresh process.
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
