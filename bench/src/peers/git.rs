//! Plain git with a separate repository, as careful scripts use it.

use std::process::Command;

use crate::Fallible;
use crate::job::{Job, Work};
use crate::process::{output, program, word};

fn git(job: &Job) -> Command {
    let mut git = program("git");
    git.current_dir(&job.tree).env("GIT_DIR", &job.state).env("GIT_WORK_TREE", &job.tree);
    git
}

/// Runs the git commands of a job.
pub(crate) fn run(job: &Job) -> Fallible<String> {
    match &job.work {
        Work::Track => {
            if !job.state.join("HEAD").exists() {
                output(git(job).args(["init", "-q"]))?;
            }
            output(git(job).args(["add", "-A"]))?;
            word(git(job).arg("write-tree"))
        }
        Work::Patch(hash) => {
            output(git(job).args(["add", "-A"]))?;
            word(git(job).args(["diff", "--cached", "--name-only", "--no-renames", hash]))
        }
        Work::Restore(hash) => {
            output(git(job).args(["read-tree", hash]))?;
            word(git(job).args(["checkout-index", "-a", "-f"]))
        }
        Work::RestoreExact(hash) => {
            output(git(job).args(["read-tree", hash]))?;
            output(git(job).args(["checkout-index", "-a", "-f"]))?;
            word(git(job).args(["clean", "-qfd"]))
        }
        Work::DiffFull(..) | Work::ReadAll | Work::WriteAll(_) => {
            Err("not a comparison that git makes".into())
        }
    }
}
