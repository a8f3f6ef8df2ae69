//! State of one captured path and everything below it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::git::ObjectId;
use crate::path::{PathText, split};
use crate::scan::EntryStat;

/// Object at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Thing {
    /// A directory with its permissions.
    Dir(u32),
    File {
        mode: u32,
        id: ObjectId,
        /// Proves the content while the metadata stays the same; absent if the file was too recent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stamp: Option<Stamp>,
    },
    /// A symlink, as the blob of its target.
    Link(ObjectId),
    /// Directory of a version control system. It is captured separately and never written.
    Repository,
    /// An object that was not captured. Everything below it is unknown too.
    LeftOut {
        why: String,
        /// Metadata of a file; absent for directories, whose content it would not prove.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stamp: Option<Stamp>,
    },
}

/// Inode, size, modification time and change time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp(u64, u64, (i64, u32), (i64, u32));

impl From<&EntryStat> for Stamp {
    fn from(stat: &EntryStat) -> Stamp {
        let EntryStat { inode, bytes, mtime, ctime, .. } = stat;
        Stamp(*inode, *bytes, (mtime.seconds, mtime.nanos), (ctime.seconds, ctime.nanos))
    }
}

/// Result of comparing two states of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    Yes,
    No,
    /// Neither state was captured.
    Unknown,
}

/// Compares two states of a path; `None` means that nothing exists there.
pub(super) fn compare(one: Option<&Thing>, other: Option<&Thing>) -> Same {
    use Thing::{Dir, File, LeftOut, Link, Repository};
    let same = match (one, other) {
        (None, None) | (Some(Repository), Some(Repository)) => true,
        (Some(Dir(one)), Some(Dir(other))) => one == other,
        (Some(Link(one)), Some(Link(other))) => one == other,
        (Some(File { mode, id, .. }), Some(File { mode: other_mode, id: other, .. })) => {
            mode == other_mode && id == other
        }
        (Some(LeftOut { stamp, .. }), Some(LeftOut { stamp: other, .. })) => match (stamp, other) {
            (Some(one), Some(other)) => one == other,
            _ => return Same::Unknown,
        },
        _ => false,
    };
    if same { Same::Yes } else { Same::No }
}

/// Returns whether two states of a path have the same content. Permissions are not compared.
pub(super) fn is_same_content(one: Option<&Thing>, other: Option<&Thing>) -> bool {
    match (one, other) {
        (Some(Thing::File { id, .. }), Some(Thing::File { id: other, .. })) => id == other,
        // Unchanged metadata proves the content of a file that was too large to be captured.
        (Some(Thing::LeftOut { stamp, .. }), Some(Thing::File { stamp: other, .. })) => {
            stamp.is_some() && stamp == other
        }
        _ => compare(one, other) == Same::Yes,
    }
}

/// Objects by path. All paths of a state begin with a name of its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State(pub(super) BTreeMap<Vec<u8>, Thing>);

impl State {
    /// Returns the object at `path`. Everything below an object that was left out is left out too.
    pub(super) fn at(&self, path: &[u8]) -> Option<Thing> {
        if let Some(thing) = self.0.get(path) {
            return Some(thing.clone());
        }
        let mut above = split(path).0;
        while !above.is_empty() {
            if let Some(Thing::LeftOut { why, .. }) = self.0.get(above) {
                return Some(Thing::LeftOut { why: why.clone(), stamp: None });
            }
            above = split(above).0;
        }
        None
    }

    /// Returns the blobs that the state references.
    pub(super) fn blobs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.0.values().filter_map(|thing| match thing {
            Thing::File { id, .. } | Thing::Link(id) => Some(*id),
            Thing::Dir(_) | Thing::Repository | Thing::LeftOut { .. } => None,
        })
    }
}

impl Serialize for State {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .collect_seq(self.0.iter().map(|(path, thing)| (PathText::from_bytes(path), thing)))
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
        let things = Vec::<(PathText, Thing)>::deserialize(deserializer)?;
        Ok(State(things.into_iter().map(|(path, thing)| (path.into_bytes(), thing)).collect()))
    }
}
