//! The contenders that are measured.

pub(crate) mod ctrlz;
pub(crate) mod floor;
pub(crate) mod git;
pub(crate) mod jj;
pub(crate) mod opencode;

use serde::{Deserialize, Serialize};

/// An implementation of the measured work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Contender {
    /// The `ctrlz` command, a process per call.
    Ctrlz,
    /// The engine inside a running process.
    Library,
    /// The `ctrlz` command beside a running `ctrlz watch`.
    Watcher,
    /// `git add -A && git write-tree` with a separate, warm index.
    Git,
    /// The git calls of OpenCode's snapshots.
    OpenCode,
    /// Jujutsu.
    Jj,
    /// The minimal work of any implementation without a watcher.
    Floor,
}

impl Contender {
    /// All contenders, in the order of the columns.
    pub(crate) const ALL: [Contender; 7] = [
        Contender::Ctrlz,
        Contender::Library,
        Contender::Watcher,
        Contender::Git,
        Contender::OpenCode,
        Contender::Jj,
        Contender::Floor,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Ctrlz => "ctrlz",
            Contender::Library => "ctrlz, in process",
            Contender::Watcher => "ctrlz, with watcher",
            Contender::Git => "git",
            Contender::OpenCode => "OpenCode's calls",
            Contender::Jj => "jj",
            Contender::Floor => "floor",
        }
    }

    /// Returns the name of its state directory.
    pub(crate) fn dir(self) -> &'static str {
        match self {
            Contender::Ctrlz => "ctrlz",
            Contender::Library => "library",
            Contender::Watcher => "watcher",
            Contender::Git => "git",
            Contender::OpenCode => "opencode",
            Contender::Jj => "jj",
            Contender::Floor => "floor",
        }
    }
}
