//! Jujutsu, in a copy of the work tree, because it keeps its state inside.

use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::job::{Job, Work};
use crate::process::{output, program, word};

/// The copy, given where jj has its state.
pub(crate) fn copy(state: &Path) -> PathBuf {
    state.join("tree")
}

/// Takes a snapshot as every command of jj does first.
pub(crate) fn run(job: &Job) -> Fallible<String> {
    let copy = copy(&job.state);
    if !copy.exists() {
        std::fs::create_dir_all(&job.state)?;
        output(program("cp").arg("-a").arg(&job.tree).arg(&copy))?;
        output(program("jj").current_dir(&copy).args(["git", "init", "--quiet"]))?;
    }
    match job.work {
        Work::Track => word(program("jj").current_dir(&copy).args(["util", "snapshot"])),
        _ => Err("only its snapshots are measured".into()),
    }
}
