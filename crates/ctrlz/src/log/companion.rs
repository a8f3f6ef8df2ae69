//! Companions: small ignored files, kept beside the snapshots without being part of them.
//!
//! A companion is a commit in a chain of its own under [`PREFIX`], which nothing pushes or exports.
//! The operation names it, so the public tree and its hash do not change.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::git::{Commit, Kind, ObjectId, encode_commit, parse_commit};
use crate::path::{PathText, is_within};

use crate::pack::{Objects, PackWriter, add};

/// Where the refs of companions lie.
pub(crate) const PREFIX: &str = "refs/ctrlz-private";

/// The ignored files beside a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Companion {
    pub(crate) tree: ObjectId,
    pub(crate) data: Data,
}

/// What its tree cannot say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Data {
    /// Permissions other than the usual ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) modes: Vec<(PathText, u32)>,
    /// Files that a tool named and that could not be kept, so that nothing is known of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<PathText>,
    /// Ignored files and directories that are there and not kept, and the directories of nested
    /// repositories; `None` if there are too many to list, or in stores of 0.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_kept: Option<Vec<PathText>>,
    /// Small ignored files that did not fit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A companion that has no commit yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCompanion(pub(crate) Companion);

impl Companion {
    pub(crate) fn into_new(self) -> NewCompanion {
        NewCompanion(self)
    }

    /// Whether the companion says nothing of a file although it may have been there.
    pub(crate) fn is_unknown(&self, path: &[u8]) -> bool {
        self.data.unknown.iter().any(|known| known.clone().into_bytes() == path)
    }

    /// Whether a file that its tree does not have was not there: the companion holds or lists every
    /// ignored path.
    pub(crate) fn proves_absent(&self, path: &[u8]) -> bool {
        let Data { unknown, not_kept: Some(not_kept), left_out: 0, .. } = &self.data else {
            return false;
        };
        let mut left_out = unknown.iter().chain(not_kept).map(|known| known.clone().into_bytes());
        !left_out.any(|known| is_within(path, &known))
    }

    /// The permissions of a file in it.
    pub(crate) fn mode_of(&self, path: &[u8], usual: u32) -> u32 {
        let listed = self.data.modes.iter().find(|(known, _)| known.clone().into_bytes() == path);
        listed.map_or(usual, |(_, mode)| *mode)
    }
}

/// Writes the commit of a companion, after `before` in its chain.
pub(crate) fn write(
    pack: &PackWriter,
    companion: &NewCompanion,
    before: Option<ObjectId>,
    at_millis: u64,
    exists: &dyn Fn(&ObjectId) -> bool,
) -> Result<ObjectId, Error> {
    let NewCompanion(Companion { tree, data }) = companion;
    let commit = Commit {
        tree: *tree,
        parents: before.into_iter().collect(),
        author: "ctrlz".into(),
        seconds: (at_millis / 1000) as i64,
        data: serde_json::to_string(data).expect("plain data has a JSON form"),
        message: "ignored files".into(),
    };
    add(pack, Kind::Commit, &encode_commit(&commit), exists)
}

/// The companion before one in its chain.
pub(crate) fn before(objects: &Objects, id: &ObjectId) -> Result<Option<ObjectId>, Error> {
    let found = objects.read(id)?.and_then(|(_, bytes)| parse_commit(&bytes));
    Ok(found.and_then(|commit| commit.parents.first().copied()))
}

/// Reads the companion whose commit is `id`.
pub(crate) fn read(objects: &Objects, id: &ObjectId) -> Result<Companion, Error> {
    let damaged = |why: &str| Error::Damaged { id: *id, why: why.into() };
    let (_, bytes) = objects.read(id)?.ok_or_else(|| damaged("it is missing"))?;
    let commit = parse_commit(&bytes).ok_or_else(|| damaged("it is not a commit"))?;
    let data = serde_json::from_str(&commit.data).map_err(|_| damaged("unreadable data"))?;
    Ok(Companion { tree: commit.tree, data })
}
