//! What is kept for the agents of one work tree, for those who speak rpc: the same as for hooks.

use std::io;
use std::path::{Path, PathBuf};

use ctrlz_wire::{AgentFailure, Agents, Reach, Tool};

use crate::hook::Failures;
use crate::outside::{OnConflict, Outside};
use crate::reach::reach;

/// What is kept for the agents of one work tree.
#[derive(Clone, Debug)]
pub struct Kept {
    root: PathBuf,
    home: Option<PathBuf>,
    outside: Outside,
    failures: Failures,
}

impl Kept {
    /// What is kept below `data_dir` for the work tree `root`; shell commands mean `home` by `~`.
    pub fn of(data_dir: &Path, root: &Path, home: Option<&Path>) -> Kept {
        Kept {
            root: root.to_owned(),
            home: home.map(Path::to_owned),
            outside: Outside::of(data_dir, root),
            failures: Failures::of(data_dir, root),
        }
    }
}

impl Agents for Kept {
    fn reach(&self, tool: &Tool) -> Reach {
        reach(tool, &self.root, self.home.as_deref())
    }

    fn keep(&self, step: &str, outside: &[PathBuf]) {
        if let Err(error) = self.outside.capture(step, outside) {
            let why = format!("files outside of the project could not be kept: {error}");
            // Where nothing can be written, nothing can be said either; the tool runs all the same.
            self.failures.add("rpc", "begin_step", &why).ok();
        }
    }

    fn settle(&self, step: &str) {
        // If it cannot be noted, undo compares with what is there then.
        self.outside.settle(step).ok();
    }

    fn changed(&self, steps: &[String]) -> Vec<PathBuf> {
        let changed = self.outside.changed(steps, OnConflict::Overwrite);
        changed.into_iter().map(|changed| changed.path).collect()
    }

    fn note(&self, client: &str, event: &str, why: &str) -> io::Result<()> {
        self.failures.add(client, event, why)
    }

    fn failures(&self) -> Vec<AgentFailure> {
        let failure = |failure: crate::hook::Failure| AgentFailure {
            at_millis: failure.at_millis,
            client: failure.client,
            event: failure.event,
            why: failure.why,
        };
        self.failures.recent().into_iter().map(failure).collect()
    }
}
