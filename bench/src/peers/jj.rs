//! Jujutsu, in a copy of the work tree, because it keeps its state in the tree.

use std::path::{Path, PathBuf};

use crate::Fallible;
use crate::job::{Job, Work};
use crate::process::{output, program, word};

/// Returns the path of the copy in a state directory.
pub(crate) fn copy(state: &Path) -> PathBuf {
    state.join("tree")
}

/// Takes the snapshot that every command of jj begins with.
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
