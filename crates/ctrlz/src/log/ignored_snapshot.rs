//! Ignored snapshots: the ignored files that are kept beside a snapshot without being part of it.
//!
//! An ignored snapshot is a commit in a separate chain under [`PREFIX`], which is pushed and
//! exported only on request. The operation names it, so the public tree and its hash do not change.
//! The format calls it `companion`.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::git::{Commit, Kind, ObjectId, encode_commit, parse_commit};
use crate::path::{PathText, is_within};

use crate::pack::{Objects, PackWriter, add};

/// Prefix of the refs of ignored snapshots.
pub(crate) const PREFIX: &str = "refs/ctrlz-private";

/// The ignored files beside a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredSnapshot {
    pub(crate) tree: ObjectId,
    pub(crate) data: Data,
}

/// Data of an ignored snapshot that its tree cannot hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Data {
    /// Permissions that differ from the usual ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) modes: Vec<(PathText, u32)>,
    /// Files that a tool named and that could not be kept, so that their content is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<PathText>,
    /// Existing ignored files and directories that are not kept, and the directories of nested
    /// repositories. `None` if there are too many to list, and in stores of version 0.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_kept: Option<Vec<PathText>>,
    /// Number of small ignored files that exceeded the limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl IgnoredSnapshot {
    /// Returns whether the file may have existed although the ignored snapshot does not hold it.
    pub(crate) fn is_unknown(&self, path: &[u8]) -> bool {
        self.data.unknown.iter().any(|known| known.clone().into_bytes() == path)
    }

    /// Returns whether a file that the ignored snapshot does not hold did not exist. That is known
    /// if the snapshot holds or lists every ignored path.
    pub(crate) fn proves_absent(&self, path: &[u8]) -> bool {
        let Data { unknown, not_kept: Some(not_kept), left_out: 0, .. } = &self.data else {
            return false;
        };
        let mut left_out = unknown.iter().chain(not_kept).map(|known| known.clone().into_bytes());
        !left_out.any(|known| is_within(path, &known))
    }

    /// Returns the permissions of a file in the ignored snapshot.
    pub(crate) fn mode_of(&self, path: &[u8], usual: u32) -> u32 {
        let listed = self.data.modes.iter().find(|(known, _)| known.clone().into_bytes() == path);
        listed.map_or(usual, |(_, mode)| *mode)
    }

    /// Writes the commit of the ignored snapshot, with `before` as its parent.
    pub(crate) fn write(
        &self,
        objects: &Objects,
        pack: &PackWriter,
        before: Option<ObjectId>,
        at_millis: u64,
    ) -> Result<ObjectId, Error> {
        let commit = Commit {
            tree: self.tree,
            parents: before.into_iter().collect(),
            author: "ctrlz".into(),
            seconds: (at_millis / 1000) as i64,
            data: serde_json::to_string(&self.data).expect("plain data has a JSON form"),
            message: "ignored files".into(),
        };
        add(pack, Kind::Commit, &encode_commit(&commit), &|id| objects.holds(id))
    }
}

/// Returns the previous ignored snapshot in the chain.
pub(crate) fn before(objects: &Objects, id: &ObjectId) -> Result<Option<ObjectId>, Error> {
    let found = objects.read(id)?.and_then(|(_, bytes)| parse_commit(&bytes));
    Ok(found.and_then(|commit| commit.parents.first().copied()))
}

/// Reads the ignored snapshot whose commit is `id`.
pub(crate) fn read(objects: &Objects, id: &ObjectId) -> Result<IgnoredSnapshot, Error> {
    let commit = objects.commit(id)?;
    let data =
        serde_json::from_str(&commit.data).map_err(|_| Error::damaged(id, "unreadable data"))?;
    Ok(IgnoredSnapshot { tree: commit.tree, data })
}
