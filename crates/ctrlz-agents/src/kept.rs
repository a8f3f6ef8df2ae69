//! Path analysis and recorded failures for agents that use rpc: the same as for hooks.

use std::io;
use std::path::{Path, PathBuf};

use ctrlz_api::{AgentFailure, Agents, Reach, Tool};

use crate::hook::Failures;
use crate::reach::reach;

/// Path analysis and recorded failures for the agents of one work tree.
#[derive(Clone, Debug)]
pub struct Kept {
    root: PathBuf,
    home: Option<PathBuf>,
    failures: Failures,
}

impl Kept {
    /// Creates the handle for the work tree `root`, with its files below `data_dir`. Shell commands
    /// expand `~` to `home`.
    pub fn of(data_dir: &Path, root: &Path, home: Option<&Path>) -> Kept {
        Kept {
            root: root.to_owned(),
            home: home.map(Path::to_owned),
            failures: Failures::of(data_dir, root),
        }
    }
}

impl Agents for Kept {
    fn reach(&self, tool: &Tool) -> Reach {
        reach(tool, &self.root, self.home.as_deref())
    }

    fn note(&self, client: &str, event: &str, why: &str) -> io::Result<()> {
        self.failures.add(client, event, why)
    }

    fn failures(&self) -> Vec<AgentFailure> {
        self.failures.recent()
    }
}
